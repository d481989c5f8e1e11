"""The kernel and backend tables give what vLLM's own selectors gave, and what its source says beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, Quantization
from vllm_advisor.vllm import archs, backends, backends_table, surface


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
    assert backends.attention(NEW, "cpu-x86_64", MLA, "auto") == ("CPU_MLA",)
    assert backends.attention(NEW, "cpu-amx", MLA, "auto") == ("AMX_MLA",)  # where the tiles are, they are preferred


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
        (NEW, "cpu-amx", None, ["fp8_per_channel", "fp8_per_block"]),
    ],
)  # fmt: skip
def test_online_quantizations(vllm, arch, moe, expected):
    """What the version and the device take for a BF16 checkpoint, without emulation and deprecated spellings."""
    assert expected == [flag for flag, _ in backends.online_quantizations(vllm, arch, _model(moe))]


@pytest.mark.parametrize(
    ("version", "arch", "scheme", "activation", "expected"),
    [
        ("0.24.0", "gfx942", "mxfp4", "silu", "TRITON_UNFUSED"),
        ("0.28.0", "gfx942", "mxfp4", "silu", None),  # as in 0.33, not as in 0.24
        ("0.28.0", "sm90", "nvfp4", "silu", "MARLIN"),  # as in 0.24: no Humming in the list yet
        ("0.31.0", "sm90", "nvfp4", "silu", "MARLIN"),  # it is, and behind Marlin
        ("0.32.0", "sm90", "nvfp4", "silu", "HUMMING"),
        ("0.24.0", "sm100", "bf16", "swigluoai", "FLASHINFER_CUTLASS"),
        ("0.28.0", "sm100", "bf16", "swigluoai", "TRITON"),
        ("0.28.0", "gfx942", "int4", "silu", "TRITON"),
        ("0.24.0", "gfx942", "int4", "silu", "TRITON"),  # past the selector, which has no kernel for it
    ],
)
def test_each_release_has_its_own_moe_kernels(version, arch, scheme, activation, expected):
    """A release between the two ends follows its own source."""
    assert expected == backends.moe(surface.load(version), arch, scheme, activation)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.24.0", "TritonFp8Block"), ("0.28.0", "TritonFp8Block"), ("0.29.0", "MarlinFP8"), ("0.30.0", "MarlinFP8")],
)
def test_block_fp8_on_ada_is_weight_only_since_0_29(version, expected):
    """Where Marlin no longer refuses a GPU that has FP8 units."""
    assert expected == backends.linear(surface.load(version), "sm89", "fp8_block")


@pytest.mark.parametrize(
    ("version", "expected"), [("0.28.0", ()), ("0.30.0", ()), ("0.32.0", ("FLASHINFER",)), ("0.33.0", ("FLASHINFER",))]
)
def test_nvfp4_cache_on_hopper_by_release(version, expected):
    """FlashAttention 2 reads it since 0.32 at the latest, and no release before 0.31 does."""
    assert expected == backends.attention(surface.load(version), "sm90", GQA, "nvfp4")


def test_every_release_knows_every_device():
    """No device of ours is missing in a release's tables, under its own name or a sibling's."""
    known = archs.CUDA | archs.ROCM | archs.CPU
    for version in surface.versions():
        vllm = surface.load(version)
        assert {a for a in known if backends_table.device(vllm, a, aiter=False) < 0} == set(), version
        assert {a for a in archs.ROCM if "+aiter" not in _name(vllm, a)} == set(), version


def _name(vllm, arch):
    return backends_table.tables(vllm)["devices"][backends_table.device(vllm, arch, aiter=True)]


def test_tables_are_small():
    """A release's kernels stay below 40 KB of JSON."""
    sizes = {v: len(json.dumps(dict(surface.load(v).kernels))) for v in surface.versions()}
    assert {v for v, size in sizes.items() if not 5_000 < size < 40_000} == set()


def test_a_release_without_tables_is_judged_by_the_nearest():
    """A surface that was made without them still answers."""
    bare = NEW._replace(version="0.31.9", release=(0, 31, 9), more={})
    assert backends.linear(bare, "sm89", "fp8_block") == "MarlinFP8"


def test_what_the_source_does_not_tell_is_said():
    """AITER's list of tuned shapes is AITER's; the choice that rests on it is marked."""
    gate = backends.unverified(NEW, "gfx942", "fp8_channel", moe=False, aiter=True)
    assert gate.endswith("is_shuffled_per_token_w8a8_gemm_tuned(…)")
    assert backends.linear(NEW, "gfx942", "fp8_channel", aiter=True) == "AiterPreshuffledPerTokenFp8"
    assert backends.unverified(NEW, "gfx942", "fp8_channel", moe=False) is None
    assert backends.unverified(NEW, "sm90", "mxfp4", moe=True, model_type="deepseek_v4") is None


def test_qwen_3_5_runs_without_deep_gemm_on_blackwell():
    """vLLM switches it off by model type there."""
    assert backends.linear(NEW, "sm100", "fp8_block") == "DeepGemmFp8Block"
    assert backends.linear(NEW, "sm100", "fp8_block", model_type="qwen3_5_text") == "CutlassFp8Block"
    assert backends.moe(NEW, "sm120", "fp8_block", "silu", model_type="qwen3_5_moe_text") == "TRITON"


def test_mixed_nvfp4_is_weight_only():
    """ModelOpt's mixed checkpoints hold W4A16 layers: other kernels than for W4A4, and none on ROCm."""
    assert backends.moe(NEW, "sm120", "nvfp4_mixed", "silu") == "MARLIN"
    assert backends.linear(NEW, "sm100", "nvfp4_mixed") == "FlashInferCuteDslNvFp4W4A16"
    assert backends.linear(NEW, "gfx942", "nvfp4_mixed") is None


@pytest.mark.parametrize(
    ("arch", "dtype", "expected"),
    [
        ("sm90", "auto", "TRITON_FLASH_ATTN"),
        ("sm100", "auto", "TRITON_FLASHINFER"),
        ("sm89", "auto", "TRITON_ATTN"),
        ("gfx942", "auto", "TRITON_ATTN"),
        ("sm120", "fp8", "TRITON_ATTN"),
    ],
)
def test_images_that_see_both_ways_have_their_own_backends(arch, dtype, expected):
    """Gemma 3 and 4 with pictures: heads of 256."""
    gemma = CacheGroup("full", (0,), q_heads=16, kv_heads=8, k_dim=256, v_dim=256)
    assert expected == backends.attention(NEW, arch, gemma, dtype, mm_prefix=True)[0]


@pytest.mark.parametrize(
    ("arch", "dtype", "expected"),
    [
        ("sm90", "fp8", ("FLASH_ATTN_DIFFKV",)),
        ("sm100", "auto", ("FLASH_ATTN_DIFFKV",)),
        ("sm100", "fp8", ()),
        ("sm80", "auto", ("TRITON_ATTN_DIFFKV",)),
        ("sm80", "fp8", ()),
        ("gfx942", "auto", ("TRITON_ATTN_DIFFKV",)),
    ],
)
def test_values_shorter_than_keys_have_one_backend(arch, dtype, expected):
    """MiMo-V2 names it itself, and FP8 runs on Hopper or not at all."""
    unequal = CacheGroup("full", (0,), q_heads=64, kv_heads=4, k_dim=192, v_dim=128)
    assert expected == backends.attention(NEW, arch, unequal, dtype)


@pytest.mark.parametrize(
    ("method", "scheme", "device", "expected"),
    [
        ("compressed-tensors", "fp8_channel", "sm80", "HummingFP8"),
        ("fp8", "fp8_tensor", "sm80", "MarlinFP8"),
        ("compressed-tensors", "fp8_channel", "sm89", "CutlassFP8"),
        ("awq", "int4", "gfx942", "AutoAWQ"),
        ("awq", "int4_g32", "gfx950", "AutoAWQ"),
        ("gptq", "int4", "gfx942", "TritonW4A16"),
        ("awq", "int4", "sm90", "Machete"),
        ("awq", "int4_g32", "sm90", "Humming"),
        ("fbgemm_fp8", "fp8_channel", "gfx942+aiter", "RowWiseTorchFP8"),
        ("compressed-tensors", "fp8_channel", "gfx942+aiter", "AiterPreshuffledPerTokenFp8"),
    ],
)
def test_a_method_may_load_a_scheme_in_a_way_of_its_own(method, scheme, device, expected):
    """The same stored format goes to another kernel, by who loads it."""
    arch, with_aiter = _device(device)
    assert expected == backends.linear(NEW, arch, scheme, aiter=with_aiter, method=method)


def test_fp8_without_a_unit_went_to_marlin_in_0_24():
    """Humming came in 0.25."""
    assert backends.linear(OLD, "sm80", "fp8_channel", method="compressed-tensors") == "MarlinFP8"


def test_fbgemm_does_not_rest_on_aiters_tuned_shapes():
    """AITER is not asked for its layers, so its list of shapes decides nothing."""
    asked = {"moe": False, "aiter": True}
    assert backends.unverified(NEW, "gfx942", "fp8_channel", method="fbgemm_fp8", **asked) is None
    assert backends.unverified(NEW, "gfx942", "fp8_channel", method="compressed-tensors", **asked) is not None


WINDOW = CacheGroup("sliding", (0,), q_heads=64, kv_heads=1, k_dim=512, v_dim=0, window=128, sinks=True)


@pytest.mark.parametrize("arch", ["sm90", "sm100", "sm120", "gfx942"])
@pytest.mark.parametrize("vllm", [OLD, NEW])
def test_latent_windows_are_a_cache_of_their_own(vllm, arch):
    """DeepSeek V4's sliding windows hold latents, which no dense backend reads."""
    assert backends.attention(vllm, arch, WINDOW, "auto") == ("DEEPSEEK_SPARSE_SWA",)


def test_latent_windows_need_what_the_compressed_layers_need():
    """No device without a sparse kernel, and no cache in 16 bits."""
    assert backends.attention(NEW, "sm80", WINDOW, "auto") == ()
    assert backends.attention(NEW, "sm100", WINDOW, "bfloat16") == ()


@pytest.mark.parametrize(
    ("vllm", "tp", "dtype", "expected"),
    [
        (NEW, 8, "auto", "FLASH_ATTN_MLA_SPARSE_FA4"),
        (NEW, 4, "auto", "FLASHMLA_SPARSE"),
        (NEW, 8, "fp8", "FLASHINFER_MLA_SPARSE"),
        (OLD, 8, "auto", "FLASHINFER_MLA_SPARSE"),
        (OLD, 4, "auto", "FLASHMLA_SPARSE"),
    ],
)
def test_few_heads_on_a_rank_change_the_order(vllm, tp, dtype, expected):
    """128 heads on 8 ranks are 16, up to which FlashMLA's padding makes it the last on Blackwell."""
    assert expected == backends.attention(vllm, "sm100", MLA, dtype, sparse=True, tp=tp)[0]


def test_few_heads_change_nothing_on_hopper():
    """Only the order of Blackwell asks for the number of heads."""
    many = backends.attention(NEW, "sm90", MLA, "auto", sparse=True)
    assert many == backends.attention(NEW, "sm90", MLA, "auto", sparse=True, tp=8)


@pytest.mark.parametrize(
    ("vllm", "arch", "head", "images", "expected"),
    [
        (NEW, "sm80", 256, False, ("TRITON_ATTN",)),
        (OLD, "sm120", 512, False, ("TRITON_ATTN",)),
        (NEW, "gfx942", 256, False, ("TRITON_ATTN",)),
        (NEW, "cpu-avx512", 256, False, ("CPU_ATTN",)),
        (NEW, "sm90", 256, False, "FLASH_ATTN"),
        (NEW, "sm100", 256, False, "FLASHINFER"),
        (NEW, "sm90", 256, True, "TRITON_FLASH_ATTN"),
        (OLD, "sm90", 256, True, "FLASH_ATTN"),
    ],
)
def test_heads_of_several_sizes_want_flash_attention_4_or_triton(vllm, arch, head, images, expected):
    """Gemma 4: one version for all layers where it runs, Triton for all where it does not."""
    group = CacheGroup("full", (0,), q_heads=8, kv_heads=1, k_dim=head, v_dim=head)
    found = backends.attention(vllm, arch, group, "auto", mm_prefix=images, mixed_heads=True)
    assert expected == (found if isinstance(expected, tuple) else found[0])


def test_a_quantized_checkpoint_is_not_converted_again():
    """The flag is for BF16 and FP16."""
    assert backends.online_quantizations(NEW, "sm90", _model(quantization=Quantization("awq", "int4"))) == ()
