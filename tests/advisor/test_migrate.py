"""A command carried to another version: its words translated, and what changes for it and for nobody else."""

from __future__ import annotations

import dataclasses
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_advisor.catalog import gpus, models
from vllm_advisor.check.fix import shell
from vllm_advisor.check.read import command_line
from vllm_advisor.migrate.concerns import CONCERNS
from vllm_advisor.migrate.item import Move
from vllm_advisor.migrate.migrate import migrate
from vllm_advisor.migrate.rewrite import rewrite
from vllm_advisor.vllm.changes_behaviour import BEHAVIOURS
from vllm_advisor.vllm.surface import load, versions


SERVE = "vllm serve Qwen/Qwen3-8B"


def rewritten(text, old="0.24.0", new="0.33.0", model=None):
    after, items = rewrite(command_line(shlex.split(text)), load(old), load(new), models.find(model) if model else None)
    return after, {item.subject: item for item in items}


def moved(text, gpu=None, model=None, old="0.24.0", new="0.33.0"):
    node = gpus.node(gpu) if gpu else None
    spec = models.find(model) if model else None
    return migrate(Move(command_line(shlex.split(text)), load(old), load(new), node, spec))


def concerned(migration):
    return {item.subject for item in migration.items if item.kind in ("behaviour", "default")}


@pytest.mark.parametrize("version", versions())
def test_a_command_stays_as_it_is_on_its_own_version(version):
    """No word is touched and nothing is said."""
    text = f"{SERVE} -tp 2 --max_model_len=4096 --no-enable-prefix-caching -O3"
    found = moved(text, old=version, new=version)
    assert (tuple(shlex.split(text)), (), True) == (found.after.argv, found.items, found.complete)


@pytest.mark.parametrize(
    ("given", "after", "carried"),
    [
        ("--calculate-kv-scales", "", False),
        ("--max-num-partial-prefills 1", "", True),
        ("--max_num_partial_prefills=2", "", False),
        ("--swap-space 4", "", True),
        ("--all2all-backend pplx", "--all2all-backend allgather_reducescatter", True),
        ("--mamba-cache-mode all", "", True),
        ("--quantization ptpc_fp8", "--quantization fp8_per_channel", True),
        ("-q ptpc_fp8", "--quantization fp8_per_channel", True),
        ("--task embed", "--runner pooling --convert embed", True),
        ("--rope-theta 1e6", "--hf-overrides '{\"rope_theta\": 1e6}'", True),
        ("--kv-cache-dtype fp8_e4m3", "--kv-cache-dtype fp8_e4m3", True),
        ("--attention-config.use_fp4_indexer_cache true", "--attention-config.indexer_kv_dtype mxfp4", True),
        ("--attention-config '{\"use_fp4_indexer_cache\": true}'", "--attention-config.indexer_kv_dtype mxfp4", True),
        ("--no-such-flag 3", "--no-such-flag 3", False),
    ],
)
def test_an_option_in_the_words_of_the_new_version(given, after, carried):
    """Removed, renamed, or with another value; what is lost is marked."""
    found, items = rewritten(f"{SERVE} {given}")
    assert f"{SERVE} {after}".strip() == shlex.join(found.argv)
    assert carried is all(item.carried for item in items.values())


@pytest.mark.parametrize(
    ("given", "env", "words"),
    [
        ("VLLM_TRITON_ATTN_USE_TD=1", {"VLLM_TRITON_USE_TD": "1"}, ""),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL=512", {}, "--prefix-cache-retention-interval 512"),
        ("VLLM_MM_HASHER_ALGORITHM=sha256", {}, "--mm-hasher-algorithm sha256"),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", {}, "--attention-backend FLASHINFER"),
        ("VLLM_USE_V1=1", {}, ""),
        ("K_SCALE_CONSTANT=100", {}, ""),
        ("NCCL_DEBUG=INFO", {"NCCL_DEBUG": "INFO"}, ""),
        ("VLLM_NO_SUCH_THING=1", {"VLLM_NO_SUCH_THING": "1"}, ""),
        ("VLLM_ROCM_USE_AITER=1", {"VLLM_ROCM_USE_AITER": "1"}, ""),
    ],
)
def test_a_variable_in_the_words_of_the_new_version(given, env, words):
    """A new name, a flag, nothing; what vLLM does not check stays."""
    found, _ = rewritten(f"{given} {SERVE}")
    assert (env, f"{SERVE} {words}".strip()) == (dict(found.env), shlex.join(found.argv))


def test_a_flag_of_the_users_own_wins_over_a_variable():
    """The variable's translation is not added beside it."""
    found, _ = rewritten(f"VLLM_ATTENTION_BACKEND=FLASHINFER {SERVE} --attention-backend FLASH_ATTN")
    assert f"{SERVE} --attention-backend FLASH_ATTN" == shlex.join(found.argv)


def test_a_json_option_is_folded_with_what_is_added_to_it():
    """vLLM takes the last of two: both must stand in one."""
    found, _ = rewritten(f'{SERVE} --hf-overrides \'{{"a": {{"b": 1}}}}\' --rope-theta 5')
    assert ("--hf-overrides", '{"a": {"b": 1}, "rope_theta": 5}') == found.argv[-2:]
    found, _ = rewritten(f"VLLM_FLASH_ATTN_VERSION=3 {SERVE} --attention-config '{{\"use_trtllm_attention\": true}}'")
    assert ("--attention-config", '{"use_trtllm_attention": true, "flash_attn_version": 3}') == found.argv[-2:]


def test_a_json_option_that_the_user_gave_twice_stays():
    """Nothing is mended that the migration did not touch."""
    text = f"{SERVE} --attention-config.flash_attn_version 3 --attention-config '{{}}'"
    assert tuple(shlex.split(text)) == rewritten(text)[0].argv


def test_online_fp8_depends_on_the_checkpoint():
    """Renamed for an unquantized one, left for a quantized one, only said where the model is not known."""
    text = f"{SERVE} --quantization fp8"
    assert "fp8_per_tensor" in rewritten(text, model="Qwen/Qwen3-8B")[0].argv
    assert "fp8" in rewritten(text, model="Qwen/Qwen3-8B-FP8")[0].argv
    found, items = rewritten(text)
    assert ("fp8", "kept") == (found.argv[-1], items["--quantization"].kind)
    assert {} == rewritten(text, new="0.30.0")[1]


def test_the_way_back():
    """What came later becomes a variable, or is said to be lost."""
    found, items = rewritten(
        f"VLLM_TRITON_USE_TD=1 {SERVE} --mm-hasher-algorithm sha256 --device-memory-utilization 0.9 "
        "--max-num-active-seqs 3",
        "0.33.0", "0.24.0",
    )  # fmt: skip
    assert {"VLLM_MM_HASHER_ALGORITHM": "sha256", "VLLM_TRITON_ATTN_USE_TD": "1"} == dict(found.env)
    assert f"{SERVE} --gpu-memory-utilization 0.9" == shlex.join(found.argv)
    assert "it came with 0.31.0" in items["--max-num-active-seqs"].text


def test_a_value_that_only_a_run_can_tell_is_left_alone():
    """A variable of the shell stays."""
    found, items = rewritten(f"{SERVE} --quantization '$METHOD'")
    assert ("$METHOD", {}) == (found.argv[-1], items)


@pytest.mark.parametrize(
    ("text", "gpu", "model", "subject", "concerns"),
    [
        (SERVE, "8xMI300X", "Qwen/Qwen3-8B", "--max-num-batched-tokens", True),
        (SERVE, "8xH100", "Qwen/Qwen3-8B", "--max-num-batched-tokens", False),
        (f"{SERVE} --max-num-batched-tokens 4096", "8xMI300X", "Qwen/Qwen3-8B", "--max-num-batched-tokens", False),
        (SERVE, "1xMI300X", "Qwen/Qwen3-8B", "AMD GPUs with graphs (no --enforce-eager)", True),
        (f"{SERVE} --enforce-eager", "1xMI300X", "Qwen/Qwen3-8B", "AMD GPUs with graphs (no --enforce-eager)", False),
        (SERVE, "1xH100", "Qwen/Qwen3-8B", "AMD GPUs with graphs (no --enforce-eager)", False),
        (SERVE, "1xH100", "openai/gpt-oss-120b", "models with sliding-window or chunked-local layers", True),
        (SERVE, "1xH100", "Qwen/Qwen3-8B", "models with sliding-window or chunked-local layers", False),
        (f"VLLM_ROCM_USE_AITER=1 {SERVE}", "8xMI300X", "deepseek-ai/DeepSeek-V3.2",
         "AMD with VLLM_ROCM_USE_AITER=1 and a model with latent attention", True),
        (SERVE, "8xMI300X", "deepseek-ai/DeepSeek-V3.2",
         "AMD with VLLM_ROCM_USE_AITER=1 and a model with latent attention", False),
        (f"{SERVE} --kv-cache-dtype bfloat16", "1xH100", "Qwen/Qwen3-8B",
         "--kv-cache-dtype float16 or bfloat16", True),
        (f"{SERVE} -tp 2", "2xH100", "Qwen/Qwen3-8B", "tensor parallelism on NVIDIA", True),
        (SERVE, "1xH100", "Qwen/Qwen3-8B", "tensor parallelism on NVIDIA", False),
        (f"{SERVE} -tp 8 -dcp 8", "8xH100", "deepseek-ai/DeepSeek-V3.2", "--dcp-comm-backend", True),
        (SERVE, "8xH100", "deepseek-ai/DeepSeek-V3.2", "--dcp-comm-backend", False),
        (SERVE, "8xH100", "Qwen/Qwen3-Next-80B-A3B-Instruct", "hybrid models (Mamba, GDN, KDA layers)", True),
        (f"{SERVE} --no-enable-prefix-caching", "8xH100", "Qwen/Qwen3-Next-80B-A3B-Instruct",
         "hybrid models (Mamba, GDN, KDA layers)", False),
    ],
)  # fmt: skip
def test_a_change_is_said_where_it_concerns_the_command(text, gpu, model, subject, concerns):
    """By flags, model and device; nobody else hears of it."""
    assert concerns is (subject in concerned(moved(text, gpu, model)))


def test_batched_tokens_are_told_with_both_figures():
    """A server on 192 GiB takes twice the tokens a step since 0.28."""
    item = next(i for i in moved(SERVE, "1xMI300X").items if i.subject == "--max-num-batched-tokens")
    assert ("8192", "16384") == (item.before, item.after)
    back = moved(SERVE, "1xMI300X", old="0.33.0", new="0.27.1")
    item = next(i for i in back.items if i.subject == "--max-num-batched-tokens")
    assert ("16384", "8192") == (item.before, item.after)


def test_going_back_says_no_way_to_have_it_as_before():
    """The older version does it anyway."""
    up, down = (
        next(i for i in moved(f"{SERVE} -tp 2", "2xH100", old=a, new=b).items if i.subject.startswith("tensor par"))
        for a, b in (("0.28.0", "0.29.0"), ("0.29.0", "0.28.0"))
    )
    assert ("it is on (VLLM_ALLREDUCE_USE_FLASHINFER=0: as before)", "since 0.29.0") == (up.after, up.text)
    assert ("it is on", "FlashInfer's all-reduce is off", "before 0.29.0") == (down.before, down.after, down.text)


def test_the_memory_of_a_sliding_model_on_amd():
    """Graphs are taken off, requests keep two steps' tokens, and the third column tells the batch's share."""
    text = "vllm serve openai/gpt-oss-120b -tp 8 --max-model-len 32768"
    old, new, held = moved(text, "8xMI300X", "openai/gpt-oss-120b").memory
    assert (8192, 16384, 8192) == tuple(m.max_num_batched_tokens for m in (old, new, held))
    assert 0 == old.graphs < new.graphs
    assert old.request_bytes < held.request_bytes < new.request_bytes
    assert old.max_concurrency > held.max_concurrency > new.max_concurrency
    assert old.kv_cache > new.kv_cache


def test_memory_that_does_not_move():
    """A dense model on Hopper has two columns, and a request takes the same in both."""
    old, new = moved(SERVE, "1xH100", "Qwen/Qwen3-8B").memory
    assert (old.request_bytes, old.max_num_batched_tokens) == (new.request_bytes, new.max_num_batched_tokens)


def test_without_a_device_no_memory_is_compared():
    """And nothing that only some devices do is left out for it."""
    found = moved(SERVE, model="Qwen/Qwen3-8B")
    assert () == found.memory
    assert any("160 GiB" in subject for subject in concerned(found))


def test_a_model_that_the_new_version_lost():
    """Said as something that cannot be carried over."""
    spec = models.find("Qwen/Qwen3-8B")
    assert spec is not None
    gone = dataclasses.replace(spec, architecture="GritLM")
    found = migrate(Move(command_line(shlex.split(SERVE)), load("0.24.0"), load("0.33.0"), None, gone))
    assert not found.complete
    assert "vLLM 0.33.0 has no GritLM" in next(i.text for i in found.items if i.kind == "dropped")


def test_what_the_new_version_refuses_makes_it_incomplete():
    """Faults that were there before are told too, once."""
    found = moved(f"{SERVE} -tp 3", "4xH100", "Qwen/Qwen3-8B")
    assert not found.complete
    assert found.refused


def test_an_announced_end_is_said():
    """An option that the new version still takes and means to drop."""
    items = [i for i in moved(f"{SERVE} --mamba-cache-mode align").items if i.kind == "deprecated"]
    assert ["--mamba-cache-mode"] == [i.subject for i in items]
    assert "0.33.0" in items[0].text


def test_every_change_of_behaviour_has_a_predicate():
    """None is forgotten, and none is left over."""
    assert {b.id for b in BEHAVIOURS} == set(CONCERNS)


WORDS = st.sampled_from([
    "--calculate-kv-scales", "--swap-space", "4", "-tp", "2", "--quantization", "fp8", "--rope-scaling", "{}", "--",
    "-q", "--attention-config", '{"a": 1}', "--attention-config.x", "--hf-overrides={", "--no-x", "-O3",
    "--max-model-len=1k", "--kv-cache-dtype", "--model", "$X", "", "é", "--all2all-backend", "pplx",
])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=8), st.sampled_from(versions()), st.sampled_from(versions()))
def test_any_words_are_carried_and_a_second_time_changes_nothing(words, old, new):
    """No traceback; and what came out is in the new version's words already."""
    invocation = command_line(["VLLM_USE_V1=1", "vllm", "serve", "x/y", *words])
    after, _ = rewrite(invocation, load(old), load(new))
    again, _ = rewrite(after, load(new), load(new))
    assert (after.argv, after.env) == (again.argv, again.env)
    assert shell(after)


@pytest.mark.parametrize("new", versions())
def test_what_comes_out_has_no_flag_that_the_version_lacks(new):
    """For every version: all flags that others have, given at once."""
    flags = sorted({f.name for v in versions() for f in load(v).flags.values() if f.kind in ("bool", "switch")})
    invocation = command_line(["vllm", "serve", "x/y", *flags])
    for old in versions():
        after, items = rewrite(invocation, load(old), load(new))
        kept = {i.subject for i in items if i.kind == "kept"}
        words = [w for w in after.argv if w.startswith("--") and w not in kept]
        assert [] == [w for w in words if not load(new).has_flag(w)], old
