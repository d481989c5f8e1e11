"""The kernel and backend tables give what vLLM's own selectors gave, and what its source says beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, Quantization
from vllm_advisor.vllm import backends, surface


SURVEY = json.loads((Path(__file__).parents[1] / "data" / "backends.json").read_text(encoding="utf-8"))
EXCEPTIONS = {tuple(row[:3]): row[3] for row in SURVEY["exceptions"]}
NEW, OLD = surface.load("0.33.0"), surface.load("0.24.0")

GQA = CacheGroup("full", (0,), q_heads=32, kv_heads=8, k_dim=128, v_dim=128)
SINK = CacheGroup("sliding", (0,), q_heads=64, kv_heads=8, k_dim=64, v_dim=64, window=128, sinks=True)
MLA = CacheGroup("mla", (0,), q_heads=128, kv_heads=1, k_dim=576)
CASES = {"gqa128": (GQA, False), "gqa64sink": (SINK, False), "mla": (MLA, False), "mla_sparse": (MLA, True)}


def _rows(part):
    return [(device, key, value) for device, row in SURVEY[part].items() for key, value in row.items()]


def _device(text):
    arch, _, suffix = text.partition("+")
    return arch, bool(suffix)


@pytest.mark.parametrize(("device", "asked", "survey"), _rows("moe"))
def test_moe_kernels_equal_the_survey_of_0_33(device, asked, survey):
    """The table picks what vLLM's selector picked on that device, with the exceptions that the data file explains."""
    arch, with_aiter = _device(device)
    scheme, _, how = asked.partition("/")
    model_type = "deepseek_v4" if how == "deepseek_v4" else ""
    activation = "swigluoai" if how == "swigluoai" else "silu"
    expected = EXCEPTIONS.get(("moe", device, asked), survey)
    assert expected == backends.moe(NEW, arch, scheme, activation, aiter=with_aiter, model_type=model_type)


@pytest.mark.parametrize(("device", "case", "dtypes"), _rows("attention"))
def test_attention_backends_equal_the_survey_of_0_33(device, case, dtypes):
    """Backends and their order equal the selector's, dtype by dtype."""
    arch, with_aiter = _device(device)
    cache, sparse = CASES[case]
    for dtype, survey in dtypes.items():
        expected = EXCEPTIONS.get(("attention", device, f"{case}/{dtype}"), survey)
        assert tuple(expected) == backends.attention(NEW, arch, cache, dtype, aiter=with_aiter, sparse=sparse), dtype


@pytest.mark.parametrize(("device", "scheme", "survey"), _rows("linear"))
def test_linear_kernels_equal_the_survey_of_0_33(device, scheme, survey):
    """The first kernel that the device supports."""
    arch, with_aiter = _device(device)
    assert EXCEPTIONS.get(("linear", device, scheme), survey) == backends.linear(NEW, arch, scheme, aiter=with_aiter)


def test_every_exception_of_the_data_file_is_used():
    """An exception that matches nothing would hide a typing error."""
    keys = {("moe", d, k) for d, k, _ in _rows("moe")} | {("linear", d, k) for d, k, _ in _rows("linear")}
    keys |= {("attention", d, f"{c}/{t}") for d, c, dtypes in _rows("attention") for t in dtypes}
    assert set(EXCEPTIONS) <= keys


@pytest.mark.parametrize(
    ("arch", "scheme", "expected"),
    [
        ("sm90", "nvfp4", "MARLIN"),  # no Humming in the automatic list yet
        ("sm120", "mxfp4", "MARLIN"),
        ("gfx942", "mxfp4", "TRITON_UNFUSED"),  # 0.24 ends in it on ROCm
        ("gfx950", "mxfp8", "NATIVE_MXFP8"),
        ("gfx1100", "fp8_block", None),  # RDNA3 does not support FP8 in 0.24
    ],
)
def test_moe_kernels_of_0_24(arch, scheme, expected):
    """Where 0.24's own lists differ from those of 0.33."""
    assert expected == backends.moe(OLD, arch, scheme, "silu")


def test_block_fp8_on_ada_became_weight_only():
    """0.24 refuses Marlin from sm89 on, 0.33 puts it before Triton."""
    assert backends.linear(OLD, "sm89", "fp8_block") == "TritonFp8Block"
    assert backends.linear(NEW, "sm89", "fp8_block") == "MarlinFP8"


def test_hopper_takes_another_kernel_for_blocks_under_expert_parallelism():
    """oracle/fp8.py moves Triton to the front for TP and FlashInfer for EP."""
    assert backends.moe(NEW, "sm90", "fp8_block", "silu") == "TRITON"
    assert backends.moe(NEW, "sm90", "fp8_block", "silu", expert_parallel=True) == "FLASHINFER_CUTLASS"


def test_minimax_m3_packs_gates_and_ups():
    """Its activation is gpt-oss's by name and another by layout: only some kernels take it."""
    assert backends.moe(NEW, "sm90", "mxfp4", "swigluoai") == "TRITON"
    assert backends.moe(NEW, "sm90", "mxfp4", "swigluoai", model_type="minimax_m3") == "FLASHINFER_CUTLASS_MXFP4_BF16"


def test_aiter_takes_fp8_experts_or_nothing():
    """With the variable set, vLLM raises where AITER lacks the activation, instead of going on to Triton."""
    m3 = {"activation": "swigluoai", "model_type": "minimax_m3"}
    assert backends.moe(OLD, "gfx942", "fp8_block", aiter=True, **m3) is None
    assert backends.aiter_refuses_experts(OLD, "gfx942", "fp8_block", **m3)
    assert backends.moe(NEW, "gfx942", "fp8_block", aiter=True, **m3) == "AITER"
    assert not backends.aiter_refuses_experts(NEW, "gfx942", "fp8_block", **m3)


def test_bf16_experts_fall_back_since_0_33():
    """0.24 raises for them as well, 0.33 warns and goes on."""
    assert backends.moe(OLD, "gfx950", "bf16", "gelu_tanh", aiter=True) is None
    assert backends.moe(NEW, "gfx950", "bf16", "gelu_tanh", aiter=True) == "TRITON"


@pytest.mark.parametrize(
    ("arch", "scheme", "moe", "expected"),
    [
        ("sm80", "fp8_block", False, (16, False, False)),  # Marlin: weights only
        ("sm80", "int8", False, (8, True, False)),
        ("sm90", "fp8_tensor", False, (8, True, False)),
        ("sm90", "mxfp4", True, (16, False, False)),
        ("sm100", "nvfp4", True, (4, True, False)),
        ("sm100", "mxfp4", True, (16, False, False)),  # BF16 activations unless asked for
        ("sm100", "mxfp4", False, (4, True, False)),
        ("gfx90a", "fp8_block", True, (16, False, True)),  # accepted, with no FP8 unit behind it
        ("gfx942", "fp8_block", True, (8, True, False)),
        ("gfx942", "nvfp4", True, (16, False, True)),
        ("gfx950", "mxfp8", True, (8, True, False)),
        ("sm120", "bf16", True, (16, True, False)),
    ],
)
def test_arithmetic_is_what_the_kernel_multiplies_in(arch, scheme, moe, expected):
    """compute bits, native, emulated."""
    assert expected == tuple(backends.arithmetic(NEW, arch, scheme, moe=moe)[:3])


def test_a_dtype_that_nothing_takes_gives_no_backend():
    """MI300X has no nvfp4 cache, although vLLM's configuration check lets it pass."""
    assert backends.attention(NEW, "gfx942", GQA, "nvfp4") == ()


def test_nvfp4_cache_reached_hopper_in_0_33():
    """0.24's FlashInfer wants sm100."""
    assert backends.attention(OLD, "sm90", GQA, "nvfp4") == ()
    assert backends.attention(OLD, "sm100", GQA, "nvfp4") == ("FLASHINFER",)
    assert backends.attention(NEW, "sm90", GQA, "nvfp4") == ("FLASHINFER",)


def test_sparse_attention_needs_hopper_or_blackwell():
    """DeepSeek V3.2 does not run on an A100 at all."""
    assert backends.attention(NEW, "sm80", MLA, "auto", sparse=True) == ()
    assert backends.attention(OLD, "sm90", MLA, "auto", sparse=True) == ("FLASHMLA_SPARSE",)


def test_bf16_kv_is_preferred_by_flashmla_and_fp8_by_flashinfer_on_blackwell():
    """platforms/cuda.py orders the sparse backends by the cache's dtype."""
    assert backends.attention(NEW, "sm100", MLA, "auto", sparse=True)[0] == "FLASHMLA_SPARSE"
    assert backends.attention(NEW, "sm100", MLA, "fp8", sparse=True)[0] == "FLASHINFER_MLA_SPARSE"


def test_state_and_indexer_do_not_follow_the_flag():
    """A fixed state stays what it is under any cache dtype."""
    state = CacheGroup("state", (0,), state_shapes=((10, 2, True),))
    assert backends.attention(NEW, "sm90", state, "fp8") == ("STATE",)


def test_fp8_cache_on_a_cpu_needs_wide_vectors():
    """It was run on AVX2, and it failed."""
    assert backends.attention(NEW, "cpu-x86_64", GQA, "fp8") == ()
    assert backends.attention(NEW, "cpu-avx512", GQA, "fp8") == ("CPU_ATTN",)


def test_mla_on_a_cpu_came_after_0_24():
    """platforms/cpu.py of 0.24 raises."""
    assert backends.attention(OLD, "cpu-amx", MLA, "auto") == ()
    assert backends.attention(NEW, "cpu-amx", MLA, "auto") == ("CPU_MLA",)


@pytest.mark.parametrize(
    "arch", ["sm75", "sm80", "sm103", "sm110", "sm121", "gfx90a", "gfx950", "gfx1151", "gfx1201", "cpu-amx"]
)
def test_supported_devices_have_no_reason(arch):
    """Every architecture of the catalog that vLLM builds for."""
    assert backends.supported_arch(NEW, arch) is None


@pytest.mark.parametrize("arch", ["sm70", "sm61", "gfx906", "tpu"])
def test_unsupported_devices_have_one(arch):
    """The reason names the device and the version."""
    reason = backends.supported_arch(OLD, arch)
    assert arch in reason
    assert "0.24.0" in reason


def _model(moe=None, **other):
    base = {
        "name": "m", "architecture": "X", "model_type": "x", "dtype": "bfloat16", "hidden_size": 4096, "num_layers": 2,
        "vocab_size": 1000, "max_position": 4096, "attention_heads": 32, "kv_heads": 8, "caches": (GQA,), "weights": (),
        "moe": moe,
    }  # fmt: skip
    return ModelSpec(**(base | other))


EXPERTS = Moe(64, 8, 0, 2048, (0, 1))


@pytest.mark.parametrize(
    ("vllm", "arch", "moe", "expected"),
    [
        (OLD, "sm90", None, ["fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8"]),
        (NEW, "sm90", None, ["fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "mxfp4"]),
        (NEW, "sm80", None, ["fp8_per_tensor", "fp8_per_block", "mxfp8", "mxfp4"]),  # no per-channel: Marlin drops it
        (NEW, "sm100", EXPERTS, ["fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8",
                                 "int8_per_channel_weight_only", "mxfp4", "nvfp4_per_token"]),
        (NEW, "gfx942", None, ["fp8_per_tensor", "fp8_per_channel", "fp8_per_block"]),
        (OLD, "gfx942", EXPERTS, ["fp8_per_tensor", "fp8_per_channel", "fp8_per_block"]),
        (NEW, "cpu-x86_64", None, ["fp8_per_channel"]),
        (NEW, "cpu-x86_64", EXPERTS, []),
    ],
)  # fmt: skip
def test_online_quantizations(vllm, arch, moe, expected):
    """What the version and the device take for a BF16 checkpoint, without emulation and deprecated spellings."""
    assert expected == [flag for flag, _ in backends.online_quantizations(vllm, arch, _model(moe))]


def test_a_quantized_checkpoint_is_not_converted_again():
    """The flag is for BF16 and FP16."""
    assert backends.online_quantizations(NEW, "sm90", _model(quantization=Quantization("awq", "int4"))) == ()
