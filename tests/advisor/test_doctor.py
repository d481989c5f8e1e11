"""The doctor's parts: where memory ran out, the command rebuilt, the prediction beside the log, secrets masked."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.doctor import command, comparison, diagnosis, remedies
from vllm_advisor.doctor.failure import Change
from vllm_advisor.doctor.mask import mask
from vllm_advisor.vllm.logs_facts import Facts


LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
HEAD = "(APIServer pid=1) INFO 11-29 08:00:01 [startup.py:96] "
OOM = "(Worker_TP0 pid=3) ERROR 11-29 08:00:09 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried for 2 GiB\n"


def read(text: str) -> diagnosis.Finding:
    return diagnosis.read(io.BytesIO(text.encode()))


def frame(name: str, who: str = "Worker_TP0 pid=3") -> str:
    return f'({who}) ERROR 11-29 08:00:08 [x.py:1]   File "/x/vllm/a.py", line 1, in {name}\n'


def facts(args: str, version: str = "0.33.0") -> Facts:
    return read(f"{HEAD}vLLM server version {version}, serving model a/b\n{HEAD}non-default args: {args}\n").start.facts


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (frame("load_model"), "DOC-04"),
        (frame("determine_available_memory") + frame("profile_run"), "DOC-05"),
        (frame("determine_available_memory") + frame("profile_cudagraph_memory"), "DOC-06"),
        (frame("capture_model") + frame("execute_model"), "DOC-06"),
        (frame("profile_run") + frame("embed_multimodal"), "DOC-08"),
        (frame("initialize_from_config"), "DOC-09"),
        (frame("capture_model", "Worker_TP1 pid=4"), "DOC-04"),
        (
            "(Worker_TP0 pid=3) INFO 11-29 08:00:02 [x.py:1] Model loading took 7.64 GiB memory and 9.1 seconds\n",
            "DOC-05",
        ),
        ("(EngineCore pid=3) INFO 11-29 08:00:02 [x.py:1] GPU KV cache size: 9 tokens\n", "DOC-06"),
        ("(APIServer pid=1) INFO:     Application startup complete.\n" + frame("execute_model"), "DOC-10"),
    ],
)
def test_where_memory_ran_out_is_told_by_frames_else_by_progress(before, expected):
    """Frames of the same process; without them, how far the start got."""
    assert expected == read(before + OOM).cause.failure.id


def test_a_failure_before_the_server_was_ready_is_none():
    """It recovered: the server serves."""
    assert "healthy" == read(OOM + "(APIServer pid=1) INFO:     Application startup complete.\n").verdict


def test_a_symptom_counts_only_when_it_stays_alone_and_is_repeated():
    """One wait of a minute is a compilation."""
    wait = "(Core pid=2) INFO 11-29 08:01:00 [s.py:1] No available shared memory broadcast block found in 60 seconds\n"

    assert ["unfinished", "failed", "DOC-04"] == [
        read(wait).verdict, read(wait * 3).verdict, read(wait * 3 + OOM).cause.failure.id,
    ]  # fmt: skip


def test_the_command_is_rebuilt_from_its_arguments():
    """Switches, lists, mappings and quotes are written for a shell; what is no literal is named as lost."""
    found = facts(
        "{'model_tag': 'a/b', 'model': 'a/b', 'enforce_eager': True, 'enable_prefix_caching': False, "
        "'served_model_name': ['x y'], "
        "'speculative_config': {'method': 'mtp'}, 'compilation_config': CompilationConfig(mode=3), "
        "'api_key': ['sk-secret1']}"
    )
    built = command.rebuilt(found, Change((("--max-model-len", "4096"),), (("NCCL_DEBUG", "INFO"), ("VLLM_X", None))))

    assert (
        "unset VLLM_X; NCCL_DEBUG=INFO vllm serve a/b --enforce-eager --no-enable-prefix-caching "
        "--served-model-name 'x y' "
        '--speculative-config \'{"method":"mtp"}\' --max-model-len 4096'
    ) == built.text
    assert ("compilation_config", "api_key") == built.lost


def test_a_change_replaces_and_removes_flags():
    """The negated form goes with the flag."""
    found = facts("{'model': 'a/b', 'max_num_seqs': 256, 'enable_prefix_caching': False}")
    built = command.rebuilt(found, Change((("--max-num-seqs", "64"), ("--enable-prefix-caching", None))))

    assert "vllm serve a/b --max-num-seqs 64" == built.text


def test_without_arguments_the_change_alone_is_said():
    """There is nothing to rebuild."""
    assert command.rebuilt(Facts(), Change()) is None
    assert "NCCL_DEBUG=INFO, --enforce-eager, --port 8001, without --swap-space" == command.added(
        Change((("--enforce-eager", ""), ("--port", "8001"), ("--swap-space", None)), (("NCCL_DEBUG", "INFO"),))
    )


@pytest.mark.parametrize(
    ("version", "share"), [("0.33.0", "0.87"), ("0.11.0", "0.85"), ("0.9.2", "0.85"), ("0.20.0", "0.87")]
)
def test_a_share_is_lowered_from_the_default_of_that_version(version, share):
    """0.92 since 0.20, 0.9 before."""
    found = read(f"{HEAD}vLLM server version {version}, serving model a/b\n" + frame("initialize_kv_cache") + OOM)

    assert [(("--gpu-memory-utilization", share),)] == [
        way.change.flags for way in remedies.fixes(found.cause, found.start.facts, None)
    ]


KV = (
    "(EngineCore pid=2) ERROR 11-29 08:00:09 [x.py:1] ValueError: To serve at least one request with the model's "
    "max seq len (131072), (18.0 GiB KV cache is needed, which is larger than the available KV cache memory (6.0 GiB)\n"
)


def test_without_an_estimate_of_vllm_the_length_is_a_rule_of_thumb():
    """Old versions name no longest length: a tenth less than in proportion, in whole steps."""
    found = read(KV)
    way = remedies.fixes(found.cause, found.start.facts, None)[0]

    assert ((("--max-model-len", "38912"),), remedies.RULE) == (way.change.flags, way.basis)


def test_the_memory_model_starts_from_the_cache_that_was_printed():
    """6 GiB of 144 KiB tokens: 43,690, in whole steps 43,008."""
    text = f"{HEAD}vLLM server version 0.33.0, serving model Qwen/Qwen3-8B\n"
    text += f"{HEAD}non-default args: {{'model': 'Qwen/Qwen3-8B'}}\n"
    found = read(text + KV.replace("131072", "40960").replace("6.0 GiB", "3.0 GiB"))
    compared = comparison.compare(found.start.facts, gpus.node("H100"), None, models.find)
    ways = remedies.fixes(found.cause, found.start.facts, compared.estimated)

    assert (("--max-model-len", "21504"), remedies.MODEL) == (ways[0].change.flags[0], ways[0].basis)
    assert ("--kv-cache-dtype", "fp8") in [flag for way in ways for flag in way.change.flags]


def test_the_prediction_stands_beside_what_was_printed():
    """Weights of a rank at TP2 are exact, and every row has its difference."""
    with (LOGS / "healthy-0.33.log").open("rb") as stream:
        found = diagnosis.read(stream)
    rows = {row.name: row for row in comparison.compare(found.start.facts, gpus.node("2xH100"), None, models.find).rows}

    assert abs(rows["weights per rank"].difference) < 0.01
    assert abs(rows["KV cache size"].difference) < 0.15
    assert 1_753_632 == rows["KV cache size"].printed


@pytest.mark.parametrize(
    ("node", "model", "why"),
    [
        (None, "Qwen/Qwen3-8B", "--gpu or --node says what machine it ran on"),
        ("H100", None, "the log does not name the model"),
    ],
)
def test_what_cannot_be_predicted_says_why(node, model, why):
    """Nothing is guessed."""
    found = Facts()
    found.model = model

    assert why == comparison.compare(found, gpus.node(node) if node else None, None, models.find).why_not


HOMES, ROOTS = ("/" + name for name in ("home", "root"))  # where users' and the administrator's folders are on Linux
SECRETS = (
    ("token hf_abcdefghijklmnop end", "token hf_*** end"),
    ("Authorization: Bearer abcdef.ghijkl-123", "Authorization: Bearer ***"),
    ("--api-key sk-live-1234567890 --port 1", "--api-key *** --port 1"),
    ("'api_key': ['secret-one', 'two'], 'port': 1", "'api_key': ***, 'port': 1"),
    ("HF_TOKEN=abc123def vllm", "HF_TOKEN=*** vllm"),
    ("http://user:pass@proxy:3128/x", "http://***@proxy:3128/x"),
    (f"{HOMES}/alice/models/x and {ROOTS}/.cache", "~/models/x and ~/.cache"),
    ("C:\\Users\\alice\\x", "~\\x"),
    ("max_num_batched_tokens=8192, tokenizer='a/b'", "max_num_batched_tokens=8192, tokenizer='a/b'"),
    ("'max_tokens': 100, 'eos_token_id': 2", "'max_tokens': 100, 'eos_token_id': 2"),
)


@pytest.mark.parametrize(("text", "expected"), SECRETS)
def test_secrets_and_homes_are_masked(text, expected):
    """Tokens, keys, passwords and users' names; counts of tokens stay."""
    assert expected == mask(text)


def test_quotes_are_masked_and_bounded():
    """A quoted line has no control characters and no more than its bound."""
    found = read("OSError: You are trying to access a gated repo. token=hf_abcdefghijklmnop \x07 " + "x" * 5000 + "\n")

    assert "hf_abc" not in found.cause.quote
    assert found.cause.quote.isprintable()
    assert len(found.cause.quote) <= 601
