"""Formats and settings against the checkpoint and each other: the pairs that vLLM takes, refuses, or ignores."""

from __future__ import annotations

import shlex

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.check import judge
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import parse
from vllm_advisor.vllm.surface import load, versions


def found(line, gpu="", version="0.33.0"):
    """Findings by id."""
    surface = load(version)
    reading = parse(Invocation(tuple(shlex.split(line))), surface)
    node, model = gpus.node(gpu) if gpu else None, models.find(reading.model or "")
    return {f.id: f for f in judge.findings(reading, surface, node, model)}


@pytest.mark.parametrize(
    ("model", "flag", "finding"),
    [
        # config/model.py:1395-1462: overrides of the checkpoint's own method are taken, others refused
        ("Qwen/Qwen2.5-0.5B-Instruct-AWQ", "awq", None),
        ("Qwen/Qwen2.5-0.5B-Instruct-AWQ", "awq_marlin", None),
        ("Qwen/Qwen2.5-0.5B-Instruct-AWQ", "gptq", "QNT-25"),
        ("Qwen/Qwen2.5-0.5B-Instruct-AWQ", "fp8_per_channel", "QNT-25"),
        ("Qwen/Qwen3-0.6B-FP8", "fp8", None),
        ("openai/gpt-oss-20b", "mxfp4", None),
        ("Qwen/Qwen3-0.6B", "fp8_per_tensor", None),
        ("Qwen/Qwen3-0.6B", "fp8", None),
        ("Qwen/Qwen3-0.6B", "gptq", "QNT-26"),
    ],
)
def test_a_method_must_be_the_checkpoint_s_or_one_that_converts(model, flag, finding):
    """What is refused can be left out."""
    said = found(f"vllm serve {model} --quantization {flag}")
    about = {"QNT-25", "QNT-26"} & said.keys()

    assert ({finding} if finding else set()) == about
    assert all(said[f].change.words == () for f in about)


@pytest.mark.parametrize(("version", "converts"), [("0.24.0", False), ("0.33.0", True)])
def test_mxfp4_converts_since_a_later_version(version, converts):
    """0.24 reads mxfp4 checkpoints only (quantization/online/base.py:58-70); 0.33 has the shorthand."""
    assert converts == ("QNT-26" not in found("vllm serve Qwen/Qwen3-30B-A3B --quantization mxfp4", version=version))


def test_the_seed_s_first_command_is_refused_for_its_cache():
    """fp8 weights and an e5m2 cache, vLLM 0.24: attention.py:166-183."""
    line = "vllm serve MiniMaxAI/MiniMax-M3 --quantization fp8 --kv-cache-dtype fp8_e5m2 --max-model-len 32768 -tp 4"
    said = found(line, "8xH200", "0.24.0")["KV-04"]

    assert "error" == said.level
    assert ("--kv-cache-dtype", "fp8") == said.change.words


def test_the_seed_s_second_command_reads_no_mxfp4_and_lacks_aiter():
    """MXFP4 of a BF16 checkpoint on MI300X in 0.24."""
    line = "vllm serve MiniMaxAI/MiniMax-M3 --quantization mxfp4 --kv-cache-dtype fp8_e4m3 --max-model-len 65536 -tp 8"
    said = found(line, "8xMI300X", "0.24.0")

    assert {"QNT-26", "ENV-01", "KV-05"} <= said.keys()
    assert "error" == said["QNT-26"].level


@pytest.mark.parametrize(
    ("device", "backend", "refused"),
    [
        ("B200", "flashinfer_trtllm", False),
        ("H100", "flashinfer_trtllm", True),
        ("H100", "flashinfer_cutlass", False),
        ("A100", "deep_gemm", True),
        ("A100", "marlin", False),
        ("MI300X", "marlin", True),
        ("MI300X", "aiter", False),
        ("H100", "aiter", True),
        ("H100", "auto", False),
    ],
)
def test_an_moe_backend_must_run_on_the_device(device, backend, refused):
    """fused_moe/experts/*.py _supports_current_device."""
    assert refused == ("BCK-01" in found(f"vllm serve m --moe-backend {backend}", device))


@pytest.mark.parametrize(
    ("version", "gpu", "backend", "refused"),
    [
        # config/vllm.py:2180-2196: since 0.33 ROCm also overlaps the default; 0.24.0 :1427 knows three
        ("0.33.0", "8xH100", "allgather_reducescatter", True),
        ("0.33.0", "8xMI300X", "allgather_reducescatter", False),
        ("0.24.0", "8xMI300X", "allgather_reducescatter", True),
        ("0.33.0", "8xH100", "deepep_high_throughput", False),
    ],
)
def test_two_batches_at_once_need_a_backend_that_overlaps(version, gpu, backend, refused):
    """--enable-dbo."""
    line = f"vllm serve m -ep --enable-dbo --all2all-backend {backend}"

    assert refused == ("CFL-10" in found(line, gpu, version))


def test_a_setting_said_twice_is_dropped_only_where_both_agree():
    """--attention-backend and its key."""
    other = """vllm serve m --attention-backend FLASHINFER --attention-config '{"backend":"TRITON_ATTN"}'"""
    same = other.replace("TRITON_ATTN", "flashinfer")

    assert found(other)["CFL-12"].change is None
    assert (3, 5, ()) == found(same)["CFL-12"].change[:3]


@pytest.mark.parametrize(
    ("version", "method", "finding"),
    [
        ("0.24.0", "medusa", None),
        ("0.33.0", "medusa", "SPC-01"),
        ("0.33.0", "egale3", "SPC-01"),
        ("0.33.0", "qwen3_next_mtp", "SPC-02"),
        ("0.33.0", "dspark", None),
        ("0.24.0", "dspark", "SPC-01"),
    ],
)
def test_speculative_methods_are_the_version_s(version, method, finding):
    """config/speculative.py:74; 0.24.0 :60."""
    config = f"""'{{"method":"{method}","model":"d","num_speculative_tokens":3}}'"""
    said = {"SPC-01", "SPC-02"} & found(f"vllm serve m --speculative-config {config}", version=version).keys()

    assert ({finding} if finding else set()) == said


def test_a_mistyped_method_is_named():
    """The nearest one that exists."""
    said = found("""vllm serve m --speculative-config '{"method":"egale3","model":"d","num_speculative_tokens":3}'""")

    assert "did you mean eagle3?" == said["SPC-01"].hint


ODD = ("", "-5", "{}", '{"method":3,"num_redundant_experts":"x","backend":[],"policy":{}}', "auto", "$X", "9" * 400)


@pytest.mark.parametrize("version", [versions()[0], versions()[-1]])
def test_no_option_makes_the_judgement_fall(version):
    """Every option with an odd value, on a hybrid, a sparse and an unknown model: findings, and no error."""
    surface, node = load(version), gpus.node("8xH100")
    names = ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "deepseek-ai/DeepSeek-V3.2", "m")
    known = {name: models.find(name) for name in names}
    for turn, flag in enumerate(surface.flags.values()):
        for shift in (0, 2, 5):
            name, value = names[turn % 3], ODD[(turn + shift) % len(ODD)]
            reading = parse(Invocation(("vllm", "serve", name, f"{flag.name}={value}")), surface)
            assert judge.findings(reading, surface, node, known[name])
