"""What each shipped vLLM version takes, against what is known of it from its source."""

from __future__ import annotations

import pytest

from vllm_advisor.errors import UnknownVllm
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.surface import EnvVar, load, release_of, versions


SHIPPED = (
    "0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
)  # fmt: skip
# Registered nowhere any more, though old guides still name them (read: envs.py of 0.24.0 and 0.33.0).
DEAD = (
    "VLLM_ATTENTION_BACKEND", "VLLM_USE_TRITON_FLASH_ATTN", "VLLM_FLASH_ATTN_VERSION", "VLLM_USE_V1",
    "VLLM_USE_FLASHINFER_MOE_FP8", "VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_MXFP4_USE_MARLIN",
)  # fmt: skip
# In envs.py of 0.24.0 and not of 0.33.0.
REMOVED_ENV = {
    "K_SCALE_CONSTANT", "Q_SCALE_CONSTANT", "V_SCALE_CONSTANT", "VLLM_CI_USE_S3", "VLLM_CPU_SGL_KERNEL",
    "VLLM_ENGINE_ITERATION_TIMEOUT_S", "VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB",
    "VLLM_MM_HASHER_ALGORITHM", "VLLM_NIXL_EP_MAX_NUM_RANKS", "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
    "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM", "VLLM_ROCM_USE_AITER_PAGED_ATTN", "VLLM_TEST_FORCE_FP8_MARLIN",
    "VLLM_TPU_BUCKET_PADDING_GAP", "VLLM_TPU_MOST_MODEL_LEN", "VLLM_TRITON_ATTN_USE_TD",
    "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE", "VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM",
    "VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "VLLM_USE_RAY_WRAPPED_PP_COMM", "VLLM_XPU_ENABLE_XPU_GRAPH",
}  # fmt: skip


def test_versions_are_oldest_first():
    """The shipped versions are listed in the order of their releases."""
    assert SHIPPED == versions()
    assert sorted(versions(), key=release_of) == list(versions())


@pytest.mark.parametrize("text", ["0.33.0", "v0.33.0", "0.33", "v0.33", "0.33.0+cu130", " 0.33.0 "])
def test_a_version_is_known_by_its_usual_spellings(text):
    """`v`, a missing patch number and a local suffix name the same surface."""
    assert "0.33.0" == load(text).version


def test_latest_is_the_newest_that_is_shipped():
    """`latest` and nothing at all mean the newest surface."""
    assert versions()[-1] == load("latest").version == load("").version


@pytest.mark.parametrize(("text", "nearest"), [("0.34.1", "0.33.0"), ("0.23", "0.24.0"), ("0.31.2", "0.31.0")])
def test_an_unknown_version_gets_the_nearest_one(text, nearest):
    """The hint of an unknown version names the nearest release and all that are known."""
    with pytest.raises(UnknownVllm) as caught:
        load(text)
    assert f"nearest is {nearest}" in caught.value.hint
    assert all(v in caught.value.hint for v in SHIPPED)


@pytest.mark.parametrize("text", ["banana", "0.x", "..", "1.2.3.4a", "-1"])
def test_a_version_that_is_none_is_bad_input(text):
    """Anything else is one line and exit code 2."""
    with pytest.raises(UnknownVllm) as caught:
        load(text)
    assert 2 == caught.value.exit_code


def test_the_build_that_was_read_is_said():
    """All shipped surfaces were read from the wheels for CUDA."""
    assert {"cuda"} == {load(v).build for v in SHIPPED}


def test_at_least_compares_releases():
    """0.24 is older than 0.33, and a version is at least itself."""
    assert not load("0.24.0").at_least(0, 33)
    assert load("0.33.0").at_least(0, 33)
    assert load("0.33.0").at_least(0, 24)


@pytest.mark.parametrize(("version", "count"), [("0.24.0", 268), ("0.28.0", 295), ("0.32.0", 316), ("0.33.0", 318)])
def test_every_registered_variable_is_there(version, count):
    """envs.py registers 268 names in 0.24.0, 295 in 0.28.0, 316 in 0.32.0, 318 in 0.33.0."""
    assert count == len(load(version).env)


@pytest.mark.parametrize(("version", "count"), [("0.24.0", 359), ("0.32.0", 428), ("0.33.0", 433)])
def test_every_spelling_of_the_parser_is_there(version, count):
    """With aliases and `--no-` forms: 433 of the 435 option strings of 0.33.0's parser; the other two are for help."""
    flags = load(version).flags.values()
    assert count == sum(1 + len(f.aliases) + (f.kind == "bool") for f in flags)


@pytest.mark.parametrize("version", SHIPPED)
@pytest.mark.parametrize("name", DEAD)
def test_dead_variables_are_dead(version, name):
    """Names that no shipped version registers any more are not there."""
    assert not load(version).has_env(name)


def test_variables_removed_and_added_between_the_versions():
    """21 names went from 0.24.0 to 0.33.0, 71 came."""
    old, new = set(load("0.24.0").env), set(load("0.33.0").env)
    assert REMOVED_ENV == old - new
    assert 71 == len(new - old)


def test_names_that_vllm_never_checks_are_not_checked():
    """A name without the prefix is not vLLM's to know."""
    assert load("0.33.0").has_env("NCCL_DEBUG")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("VLLM_ROCM_USE_AITER", False, False),
        ("VLLM_ROCM_USE_AITER_FP8BMM", True, False),
        ("VLLM_ROCM_USE_AITER_FP4BMM", True, False),
        ("VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION", False, False),
        ("VLLM_ROCM_FP8_PADDING", True, True),
        ("VLLM_DEEP_GEMM_WARMUP", "relax", "relax"),
        ("VLLM_USE_V2_MODEL_RUNNER", None, None),
        ("VLLM_LOG_STATS_INTERVAL", 10.0, 10.0),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", True, True),
    ],
)
def test_defaults_of_variables(name, old, new):
    """A variable's default is what its getter falls back to, which can differ between versions."""
    assert (old, new) == (load("0.24.0").env[name].default, load("0.33.0").env[name].default)


def test_what_a_getter_computes_is_unknown():
    """A default that the source computes is not guessed."""
    assert isinstance(load("0.33.0").env["VLLM_USE_AOT_COMPILE"].default, Unknown)


def test_choices_of_a_variable():
    """A variable with a list of values has it."""
    expected = EnvVar("VLLM_DEEP_GEMM_WARMUP", "str", "relax", ("skip", "full", "relax"))
    assert expected == load("0.33.0").env["VLLM_DEEP_GEMM_WARMUP"]


def test_flags_removed_between_the_versions():
    """Exactly four flags went from 0.24.0 to 0.33.0."""
    gone = {
        "--calculate-kv-scales", "--max-long-partial-prefills", "--max-num-partial-prefills",
        "--override-attention-dtype",
    }  # fmt: skip
    assert gone == set(load("0.24.0").flags) - set(load("0.33.0").flags)


@pytest.mark.parametrize("version", SHIPPED)
@pytest.mark.parametrize("flag", ["--swap-space", "--rope-scaling", "--num-lookahead-slots", "--expert-parallel"])
def test_flags_of_old_guides_are_not_there(version, flag):
    """Flags that peers still print are refused by every shipped version."""
    assert not load(version).has_flag(flag)


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("-tp", "--tensor-parallel-size"),
        ("-dcp", "--decode-context-parallel-size"),
        ("-q", "--quantization"),
        ("-O3", "--optimization-level"),
        ("--max_model_len", "--max-model-len"),
        ("--max-model-len=4096", "--max-model-len"),
        ("--compilation-config.mode=3", "--compilation-config"),
        ("-cc.mode", "--compilation-config"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--no-headless", None),
        ("--no-such", None),
        ("", None),
    ],
)
def test_a_flag_is_known_however_it_is_written(text, flag):
    """Aliases, underscores, values, dotted keys and `--no-` forms lead to the flag; a switch has no `--no-` form."""
    assert flag == load("0.33.0").spelling(text)


def test_a_new_alias_belongs_to_its_version():
    """`--device-memory-utilization` is an alias that 0.24.0 does not have."""
    assert load("0.33.0").has_flag("--device-memory-utilization")
    assert not load("0.24.0").has_flag("--device-memory-utilization")


def test_a_flag_has_type_choices_default_and_group():
    """The parts of a flag are those of the version's own parser."""
    flag = load("0.33.0").flags["--performance-mode"]
    assert ("performance_mode", "VllmConfig", "str", "balanced") == (flag.field, flag.group, flag.kind, flag.default)
    assert ("balanced", "interactivity", "throughput") == flag.choices


def test_a_value_that_the_parser_does_not_check_has_no_choices():
    """`--kv-cache-dtype` passes any string through the parser; the names stand in their own list."""
    surface = load("0.33.0")
    assert () == surface.flags["--kv-cache-dtype"].choices
    assert "fp8_e4m3fn" not in surface.kv_cache_dtypes
    assert "fp8_e4m3" in surface.kv_cache_dtypes


def test_choices_that_depend_on_the_device_are_said_to_be_unread():
    """What source reading cannot tell stands in `unread`."""
    surface = load("0.33.0")
    assert () == surface.flags["--mm-processor-device"].choices
    assert any("--mm-processor-device" in text for text in surface.unread)


def test_quantizations_between_the_versions():
    """bitsandbytes went, nvfp4_per_token came; old names are in neither."""
    old, new = load("0.24.0"), load("0.33.0")
    assert {"bitsandbytes"} == set(old.quantizations) - set(new.quantizations)
    assert {"nvfp4_per_token"} == set(new.quantizations) - set(old.quantizations)
    assert not {"ptpc_fp8", "gguf", "marlin", "aqlm", "hqq"} & {*old.quantizations, *new.quantizations}


def test_online_quantizations_between_the_versions():
    """mxfp4 is online since 0.33 (as is nvfp4_per_token), and only a checkpoint method in 0.24."""
    old, new = load("0.24.0"), load("0.33.0")
    assert {"mxfp4", "nvfp4_per_token"} == set(new.online_quantizations) - set(old.online_quantizations)
    assert "mxfp4" in old.quantizations
    assert ("fbgemm_fp8", "fp_quant") == new.deprecated_quantizations


def test_kv_cache_dtypes_between_the_versions():
    """0.33 adds nvfp4 for MLA and the four-bit per-head kind."""
    added = set(load("0.33.0").kv_cache_dtypes) - set(load("0.24.0").kv_cache_dtypes)
    assert {"nvfp4_ds_mla", "int4_per_token_head"} <= added


def test_moe_backends_between_the_versions():
    """0.33 adds nine MoE backends and drops none."""
    old, new = set(load("0.24.0").moe_backends), set(load("0.33.0").moe_backends)
    assert set() == old - new
    assert 9 == len(new - old)


def test_all2all_choices_are_those_of_the_command_line():
    """`passthrough` is a value of the config class that the parser takes away."""
    surface = load("0.33.0")
    assert "passthrough" not in surface.all2all_backends
    assert "allgather_reducescatter" in surface.all2all_backends


@pytest.mark.parametrize(
    ("architecture", "old", "new"),
    [
        ("LlamaForCausalLM", True, True),
        ("GptOssForCausalLM", True, True),
        ("KimiK3ForConditionalGeneration", False, True),
        ("MllamaForConditionalGeneration", False, False),
    ],
)
def test_architectures_of_the_registry(architecture, old, new):
    """An architecture is in the versions whose registry lists it."""
    assert (old, new) == tuple(load(v).has_architecture(architecture) for v in ("0.24.0", "0.33.0"))


def test_a_removed_architecture_has_its_last_version():
    """The registry remembers what it once had."""
    assert "0.10.2" == load("0.33.0").removed_architectures["MllamaForConditionalGeneration"]


def test_deprecated_flags_of_a_version():
    """0.33.0 still takes three flags that it announces to drop; 0.24.0 knew two of them as ordinary ones."""
    assert {"--disable-cascade-attn", "--mamba-cache-mode", "--log-config-file"} == set(load("0.33.0").deprecated_flags)
    assert {} == load("0.24.0").deprecated_flags


def test_a_surface_is_read_once_and_can_be_a_key():
    """The same version is the same object, and hashable, so that functions of it can be cached."""
    assert load("0.33") is load("v0.33.0")
    assert "x" == {load("0.33.0"): "x"}[load("0.33")]
