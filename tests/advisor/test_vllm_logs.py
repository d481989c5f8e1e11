"""Start-up logs of every form and origin come to the same figures, and no bytes break the reader."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_advisor.errors import BadInput
from vllm_advisor.vllm import logs, logs_facts
from vllm_advisor.vllm.logs_facts import Backend, Memory, Pool, Rank
from vllm_advisor.vllm.logs_lines import LONGEST, messages


LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"


def facts(text: str | bytes) -> logs_facts.Facts:
    raw = text.encode() if isinstance(text, str) else text
    return logs.read(io.BytesIO(raw)).starts[-1].facts


def stored(name: str) -> bytes:
    return (LOGS / f"{name}.log").read_bytes()


def test_a_start_of_0_33_with_two_ranks_gives_all_that_it_prints():
    """One-line KV size, charged and captured graphs, the summary of memory, ready."""
    found = facts(stored("healthy-0.33"))

    assert ("0.33.0", "Qwen/Qwen3-8B", "Qwen3ForCausalLM") == (found.version, found.model, found.architecture)
    assert {"model": "Qwen/Qwen3-8B", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "port": 8000} == {
        k: v for k, v in found.args.items() if k != "api_key"
    }
    assert [Rank("Worker_TP0", 7.64, 8.7, 60.27, 0.58, 0.61), Rank("Worker_TP1", 7.64, 8.9, 60.21)] == list(
        found.ranks.values()
    )
    assert [Pool("EngineCore", "GPU", 1_753_632, 40_960, 42.81)] == list(found.pools.values())
    assert Memory(78.6, 79.11, 0.92, 72.78, None, 8.95, 2.91, None, 0.58, 60.27) == found.memory
    assert (48.91, 89.72, True, True) == (found.compile_s, found.init_s, found.ready, found.unit_scales)
    assert "http://0.0.0.0:8000" == found.address


def test_a_start_of_0_24_prints_the_cache_on_two_lines():
    """The V2 runner's line of weights, the two-line form, kernels in order, and a MoE configuration that is missing."""
    found = facts(stored("healthy-0.24"))

    assert [Rank("EngineCore_DP0", 56.88, 21.1, 6.13, 1.02)] == list(found.ranks.values())
    assert [Pool("EngineCore_DP0", "GPU", 66_912, 40_960, 1.63)] == list(found.pools.values())
    assert Backend(
        "MoE (Unquantized)", "TRITON", ("AITER", "FlashInfer", "TRTLLM", "FlashInfer", "CUTLASS", "TRITON")
    ) in (found.backends.values())
    assert {"E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json": False} == found.moe_configs


def test_ray_workers_and_several_engines_stay_apart():
    """Two engines of data parallelism, four workers on two nodes."""
    found = facts(stored("healthy-ray-dp"))

    assert [40.25, 40.26, 40.25, 40.26] == [rank.weights_gib for rank in found.ranks.values()]
    assert "RayWorkerWrapper 10.0.0.1:500" in found.ranks
    assert [(412_000, 12.57), (412_160, 12.58)] == [(p.tokens, p.concurrency) for p in found.pools.values()]


def test_an_engine_of_v0_prints_blocks_and_a_namespace():
    """0.7: another prefix, all arguments, GB, the split of memory on one line."""
    found = facts(stored("kv-too-small-v0"))

    assert ("0.7.2", "Qwen/Qwen3-8B", 1478) == (found.version, found.model, found.blocks)
    assert (29000, 2, 0.95) == tuple(
        found.args[n] for n in ("max_model_len", "tensor_parallel_size", "gpu_memory_utilization")
    )
    assert {7.631} == {rank.weights_gib for rank in found.ranks.values()}
    assert 1.65 == found.ranks["rank 0"].kv_gib


SUMMARY_0_24 = (
    "Free memory on device (139.2/139.8 GiB) on startup. Desired GPU memory utilization is (0.9, 125.82 GiB). "
    "Actual usage is 40.25 GiB for weight, 3.5 GiB for peak activation, 1.2 GiB for non-torch memory, and 0.9 GiB for "
    "CUDAGraph memory. Replace it. Current kv cache memory in use is 80.87 GiB."
)
LINES = (
    ("CPU KV cache size: 46,592 tokens, Maximum concurrency for 2,048 tokens per request: 22.75x", "pools",
     {"Worker_TP0": Pool("Worker_TP0", "CPU", 46_592, 2048, 22.75)}),
    ("GPU + host KV cache size: 9,000 tokens, Maximum concurrency for 3,000 tokens per request: 3.00x", "pools",
     {"Worker_TP0": Pool("Worker_TP0", "GPU + host", 9000, 3000, 3.0)}),
    ("Available KV cache memory: -2.51 GiB", "ranks", {"Worker_TP0": Rank("Worker_TP0", kv_gib=-2.51)}),
    ("Explicitly set (1.0/22.46) GiB for KV cache on node 0.", "given_kv_gib", 1.0),
    ("Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.",
     "block_size", 544),
    ("Auto-fit max_model_len: reduced from 131072 to 41312 to fit in available KV cache memory (5.44 GiB GPU)",
     "auto_fit", (131072, 41312)),
    ("Auto-fit max_model_len: full model context length 40960 fits in available KV cache memory (60.2 GiB GPU)",
     "auto_fit", (40960, 40960)),
    ("torch.compile takes 39.60 s in total", "compile_s", 39.6),
    ("init engine (profile, create kv cache, warmup model) took 58.80 seconds", "init_s", 58.8),
    ("Loading model weights took 14.9888 GB", "ranks", {"Worker_TP0": Rank("Worker_TP0", 14.9888)}),
    ("Using FLASHMLA backend out of potential backends: ['FLASHMLA'].", "backends",
     {("attention", "FLASHMLA"): Backend("attention", "FLASHMLA", ("FLASHMLA",))}),
    ("Using Flash Attention backend on V1 engine.", "backends",
     {("attention", "Flash Attention"): Backend("attention", "Flash Attention")}),
    ("Using AttentionBackendEnum.FLASHINFER backend.", "backends",
     {("attention", "FLASHINFER"): Backend("attention", "FLASHINFER")}),
    ("Using 'MARLIN' Mxfp4 MoE backend.", "backends", {("MoE (Mxfp4)", "MARLIN"): Backend("MoE (Mxfp4)", "MARLIN")}),
    ("Using MarlinLinearKernel for mixed-precision linear", "backends",
     {("linear (mixed-precision)", "MarlinLinearKernel"): Backend("linear (mixed-precision)", "MarlinLinearKernel")}),
    ("Using CutlassNvFp4LinearKernel for NVFP4 GEMM", "backends",
     {("linear (NVFP4)", "CutlassNvFp4LinearKernel"): Backend("linear (NVFP4)", "CutlassNvFp4LinearKernel")}),
    (SUMMARY_0_24, "memory", Memory(139.2, 139.8, 0.9, 125.82, 40.25, None, 3.5, 1.2, 0.9, 80.87)),
)  # fmt: skip


@pytest.mark.parametrize(("text", "field", "expected"), LINES, ids=[text[:30] for text, _, _ in LINES])
def test_each_form_is_read(text, field, expected):
    """One line of each kind, behind vLLM's own prefix."""
    found = facts(f"(Worker_TP0 pid=303) INFO 11-29 08:00:31 [file.py:12] {text}\n")

    assert expected == getattr(found, field)


BODY = "Model loading took 7.64 GiB memory and 9.100000 seconds"
ORIGINS = {
    "vLLM 0.33": "(Worker_TP0 pid=303) INFO 11-29 08:00:31 [gpu_model_runner.py:5089] ",
    "vLLM 0.8": "(VllmWorker rank=0 pid=303) INFO 11-29 08:00:31 [gpu_model_runner.py:1347] ",
    "vLLM 0.6": "(VllmWorkerProcess pid=303) INFO 11-29 08:00:31 model_runner.py:1115] ",
    "two prefixes": "(Worker pid=303) (Worker_TP0 pid=303) INFO 11-29 08:00:31 [x.py:1] ",
    "debug paths": "(Worker_TP0 pid=303) INFO 11-29 08:00:31.123 [v1/worker/gpu_model_runner.py:5089] ",
    "colours": "\x1b[0;36m(Worker_TP0 pid=303)\x1b[0;0m \x1b[32mINFO\x1b[0m "
    "\x1b[90m11-29 08:00:31\x1b[0m \x1b[90m[x.py:1]\x1b[0m ",
    "Compose": "vllm-server-1  | (Worker_TP0 pid=303) INFO 11-29 08:00:31 [x.py:1] ",
    "kubectl": "[pod/vllm-0/server] 2026-11-29T08:00:31.000000001Z (Worker_TP0 pid=303) INFO 11-29 08:00:31 [x.py:1] ",
    "containerd": "2026-11-29T08:00:31.123456789+00:00 stdout F (Worker_TP0 pid=303) INFO 11-29 08:00:31 [x.py:1] ",
    "journald": "Nov 29 08:00:31 gpu7 vllm[4411]: (Worker_TP0 pid=303) INFO 11-29 08:00:31 [x.py:1] ",
    "Ray": "(RayWorkerWrapper pid=500, ip=10.0.0.1) INFO 11-29 08:00:31 [x.py:1] ",
    "CI": "[2026-02-24T20:21:58Z] (EngineCore_DP0 pid=6) INFO 11-29 08:00:31 [x.py:1] ",
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_every_origin_is_stripped(origin):
    """Whatever stands in front, the figure and its writer are found."""
    found = facts(ORIGINS[origin] + BODY + "\n")

    assert [7.64] == [rank.weights_gib for rank in found.ranks.values()]
    assert [True] == ["pid" not in name and name != "rank 0" for name in found.ranks]


def test_what_is_stripped_says_who_and_how_loud():
    """Process and level are kept, the message is whole."""
    line = messages(7, b'web-1 | (Worker_TP3 pid=9) ERROR 11-29 08:00:31 [a.py:1]   File "x.py", line 1, in y')[0]

    assert (7, "Worker_TP3", "ERROR", '  File "x.py", line 1, in y') == line


def test_a_json_record_gives_its_message_and_its_traceback():
    """Docker's wrapper around vLLM's JSON formatter, each line of the traceback a line."""
    inner = json.dumps(
        {"levelname": "ERROR", "processName": "EngineCore", "message": "died", "exc_info": "Traceback\nValueError: x"}
    )
    told = messages(1, json.dumps({"log": inner + "\n", "stream": "stderr"}).encode())

    assert [
        ("EngineCore", "ERROR", "died"),
        ("EngineCore", "ERROR", "Traceback"),
        ("EngineCore", "ERROR", "ValueError: x"),
    ] == [line[1:] for line in told]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_an_encoding_of_a_shell_on_windows_is_read(encoding):
    """PowerShell redirects as UTF-16, with a byte-order mark or without."""
    text = stored("healthy-0.33").decode()
    marked = "\ufeff" + text if encoding == "utf-16-be" else text

    assert 1_753_632 == facts(marked.encode(encoding)).pools["EngineCore"].tokens


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r\r\n"])
def test_newlines_of_every_system_are_read(newline):
    """vLLM itself ends lines of a message with both characters."""
    raw = stored("healthy-0.33").replace(b"\n", newline.encode())

    assert [42.81] == [pool.concurrency for pool in facts(raw).pools.values()]


def test_a_message_behind_a_progress_bar_is_read():
    """A bar rewrites its line with carriage returns; the message follows on it."""
    found = facts(
        "Loading:  0%\rLoading: 50%\rLoading: 100%\r(Worker_TP0 pid=3) INFO 11-29 08:00:31 [x.py:1] " + BODY + "\n"
    )

    assert 7.64 == found.ranks["Worker_TP0"].weights_gib


def test_a_packed_log_is_refused_with_the_command_that_unpacks_it():
    """gzip is said, never read as garbage."""
    with pytest.raises(BadInput, match="gzip") as caught:
        facts(gzip.compress(stored("healthy-0.33")))

    assert "zcat LOG | advisor doctor -" == caught.value.hint


def test_a_line_without_end_is_cut_and_the_next_one_is_read():
    """A line of four megabytes costs a bound, not the log."""
    raw = b"x" * (4 << 20) + b"\n" + ORIGINS["vLLM 0.33"].encode() + BODY.encode() + b"\n"
    log = logs.read(io.BytesIO(raw))

    assert 7.64 == log.starts[-1].facts.ranks["Worker_TP0"].weights_gib
    assert log.lines < 8
    assert len(messages(1, b"y" * (LONGEST * 2))[0].text) <= LONGEST


def test_the_last_start_counts_and_the_one_before_is_kept():
    """A container that restarted: two banners, the figures of the second."""
    log = logs.read(io.BytesIO(stored("restarted")), ("KV cache is needed",))

    assert (2, 2) == (log.begun, len(log.starts))
    assert [False, True] == [start.facts.ready for start in log.starts]
    assert [1, 0] == [len(start.evidence) for start in log.starts]


def test_evidence_is_the_lines_that_hold_a_mark():
    """Number, process and text of each."""
    log = logs.read(io.BytesIO(stored("heads")), ("must be divisible by tensor parallel size",))

    assert [(7, "APIServer")] == [(line.number, line.process) for line in log.starts[-1].evidence]


def test_a_prompt_of_a_client_is_no_evidence():
    """A log may hold every request; what is said of one that was received counts."""
    marks = ("out of memory",)
    asked = b"(APIServer pid=1) INFO 11-29 08:00:01 [logger.py:40] Received request cmpl-1f: prompt: 'out of memory'\n"
    failed = b"(APIServer pid=1) ERROR 11-29 08:00:01 [s.py:4] Received request when out of memory: retry\n"

    found = logs.read(io.BytesIO(asked + failed), marks).starts[-1]

    assert [2] == [line.number for line in found.evidence]


def test_arguments_that_are_no_literals_stay_text():
    """Objects, nested brackets and quotes with commas are kept as they are written, and nothing is evaluated."""
    found = facts("non-default args: {'model': 'a/b', 'compilation_config': CompilationConfig(mode=3, sizes=[1, 2]), "
                  "'chat_template': 'it\\'s, {x}', 'enforce_eager': True, 'x': None}\n")  # fmt: skip

    assert {
        "model": "a/b", "compilation_config": "CompilationConfig(mode=3, sizes=[1, 2])", "chat_template": "it's, {x}",
        "enforce_eager": True, "x": None,
    } == found.args  # fmt: skip


def test_no_mark_holds_a_digit():
    """Lines that differ only in digits are judged once, so a literal with a digit could be missed."""
    assert [] == [form.mark for form in logs_facts.FORMS if any(c.isdigit() for c in form.mark)]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_are_a_log_or_packed(raw):
    """Garbage gives a log without figures; nothing else is ever raised."""
    try:
        log = logs.read(io.BytesIO(raw), ("out of memory",))
    except BadInput as error:
        assert "packed" in error.message  # noqa: PT017 - the rest must not raise at all
        return
    assert len(log.starts) in (1, 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4000), st.integers(0, 4000), st.binary(max_size=60))
def test_a_damaged_log_is_still_a_log(start, length, inserted):
    """Any part of a real log replaced by any bytes."""
    raw = stored("healthy-0.33")
    log = logs.read(io.BytesIO(b"(x" + raw[:start] + inserted + raw[start + length :]), ("out of memory",))

    assert log.lines >= 1
