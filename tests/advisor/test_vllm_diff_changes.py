"""What takes the place of a flag, a variable or a value that a version lacks."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import pairwise

import pytest

from vllm_advisor.vllm.changes import choices_of, successor_of_choice, successor_of_env, successor_of_flag
from vllm_advisor.vllm.changes_table import CHOICES, ENV, FLAGS
from vllm_advisor.vllm.surface import load, versions


NEW, OLD = load("0.33.0"), load("0.24.0")


@pytest.mark.parametrize(
    ("name", "value", "words", "keeps"),
    [
        ("--calculate-kv-scales", None, (), False),
        ("--max-num-partial-prefills", "4", (), False),
        ("--max-num-partial-prefills", "1", (), True),
        ("--swap-space", "4", (), True),
        ("--rope-scaling", '{"rope_type": "yarn"}', ("--hf-overrides", '{"rope_parameters": {"rope_type": "yarn"}}'),
         True),
        ("--num_redundant_experts", "8", ("--eplb-config.num_redundant_experts", "8"), True),
        ("--disable-log-requests", None, (), True),
        ("--no-disable-log-requests", None, ("--enable-log-requests",), True),
        ("--task", "embed", ("--runner", "pooling", "--convert", "embed"), True),
        ("--cuda-graph-sizes=64", None, ("--cudagraph-capture-sizes", "64"), True),
        ("--speculative-model", "x/y", ("--speculative-config.model", "x/y"), True),
    ],
)  # fmt: skip
def test_a_flag_that_is_gone(name, value, words, keeps):
    """Its successor with the value in place, or none; `keeps` says whether anything is lost."""
    found = successor_of_flag(name, NEW, value)
    assert found is not None
    assert (words, keeps) == (found.words, found.keeps)


@pytest.mark.parametrize(
    ("name", "value", "words", "env"),
    [
        ("VLLM_TRITON_ATTN_USE_TD", "1", (), (("VLLM_TRITON_USE_TD", "1"),)),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "512", ("--prefix-cache-retention-interval", "512"), ()),
        ("VLLM_MM_HASHER_ALGORITHM", "sha256", ("--mm-hasher-algorithm", "sha256"), ()),
        ("VLLM_ATTENTION_BACKEND", "FLASHINFER", ("--attention-backend", "FLASHINFER"), ()),
        ("VLLM_ATTENTION_BACKEND", "TRITON_ATTN_VLLM_V1", ("--attention-backend", "TRITON_ATTN"), ()),
        ("VLLM_ATTENTION_BACKEND", "XFORMERS", (), ()),
        ("VLLM_FLASHINFER_MOE_BACKEND", "latency", ("--moe-backend", "flashinfer_trtllm"), ()),
        ("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-cutlass", ("--linear-backend", "flashinfer_cutlass"), ()),
        ("VLLM_TEST_FORCE_FP8_MARLIN", "true", ("--linear-backend", "marlin", "--moe-backend", "marlin"), ()),
        ("VLLM_USE_V1", "1", (), ()),
        ("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "1", (), (("VLLM_ROCM_USE_AITER_MOE_SITUV2", "a8w4"),)),
    ],
)
def test_a_variable_that_is_gone(name, value, words, env):
    """A new name, a flag, or nothing."""
    found = successor_of_env(name, NEW, value)
    assert found is not None
    assert (words, env) == (found.words, found.env)


@pytest.mark.parametrize(
    ("flag", "value", "words", "condition"),
    [
        ("--quantization", "fp8", ("--quantization", "fp8_per_tensor"), "unquantized"),
        ("--quantization", "ptpc_fp8", ("--quantization", "fp8_per_channel"), ""),
        ("--quantization", "bitsandbytes", (), ""),
        ("--kv-cache-dtype", "fp8_e4m3fn", ("--kv-cache-dtype", "fp8_e4m3"), ""),
        ("--all2all-backend", "pplx", ("--all2all-backend", "allgather_reducescatter"), ""),
        ("--mamba-cache-mode", "all", (), ""),
    ],
)
def test_a_value_that_is_gone(flag, value, words, condition):
    """The flag with its new value; a condition where the checkpoint decides."""
    found = successor_of_choice(flag, value, NEW)
    assert found is not None
    assert (words, condition) == (found.words, found.condition)


def test_the_answer_depends_on_the_target():
    """fp8 is deprecated since 0.31 only; a mode of 0.31 has another successor in 0.32 than in 0.33."""
    assert successor_of_choice("--quantization", "fp8", load("0.30.0")) is None
    assert successor_of_choice("--quantization", "fp8", load("0.31.0")) is not None
    assert ("--mamba-cache-mode", "align") == successor_of_choice("--mamba-cache-mode", "all", load("0.32.0")).words
    assert ("--attention-config.use_prefill_decode_attention", "true") == successor_of_env(
        "VLLM_V1_USE_PREFILL_DECODE_ATTENTION", load("0.28.0"), "1"
    ).words
    assert ("--attention-backend", "ROCM_ATTN") == successor_of_env(
        "VLLM_V1_USE_PREFILL_DECODE_ATTENTION", NEW, "1"
    ).words


def test_the_way_back():
    """What is a flag now was a variable then."""
    assert (("VLLM_MM_HASHER_ALGORITHM", "sha256"),) == successor_of_flag("--mm-hasher-algorithm", OLD, "sha256").env
    assert (("VLLM_TRITON_ATTN_USE_TD", "1"),) == successor_of_env("VLLM_TRITON_USE_TD", OLD, "1").env


def test_nothing_is_known_of_a_name_that_nobody_had():
    """None, so that a caller can say so."""
    assert (None, None, None) == (
        successor_of_flag("--no-such", NEW), successor_of_env("VLLM_NO_SUCH", NEW),
        successor_of_choice("--quantization", "no_such", NEW),
    )  # fmt: skip


def test_without_a_value_its_place_is_marked():
    """A hint can be written without one."""
    assert ("--attention-backend", "VALUE") == successor_of_env("VLLM_ATTENTION_BACKEND", NEW).words


def test_every_row_has_a_version_that_it_holds_for():
    """No successor is a flag, a variable or a value that no shipped version has."""
    surfaces = [load(v) for v in versions()]
    lookups = [
        *((r, lambda s, r=r: successor_of_flag(r.name, s, r.value or "1")) for r in FLAGS),
        *((r, lambda s, r=r: successor_of_env(r.name, s, r.value or "1")) for r in ENV),
        *((r, lambda s, r=r: successor_of_choice(r.name, r.value, s)) for r in CHOICES),
    ]
    assert [] == [(r.name, r.value) for r, find in lookups if not any(map(find, surfaces))]


def test_all_that_went_between_the_shipped_versions_is_known():
    """Each flag and variable that a later version lacks has a row."""
    known = [load(v) for v in versions()]
    for old, new in pairwise(known):
        gone = [n for n in old.flags if n not in new.flags and successor_of_flag(n, new, "x") is None]
        gone += [n for n in old.env if n not in new.env and successor_of_env(n, new, "1") is None]
        assert [] == gone, new.version


def test_rows_have_a_text_and_a_source():
    """Every row says why, and where vLLM says it."""
    assert [] == [r.name for r in (*FLAGS, *ENV, *CHOICES) if not r.text or not r.source]


def test_values_of_a_flag():
    """Lists that the parser does not check stand in for its choices; a flag that takes any value has none."""
    assert "fp8_per_channel" in choices_of("--quantization", NEW)
    assert "auto" in choices_of("--attention-backend", NEW)
    assert ("balanced", "interactivity", "throughput") == choices_of("--performance-mode", NEW)
    assert () == choices_of("--served-model-name", NEW) == choices_of("--no-such", NEW)


# Values that a row's flag or variable was given, where not just any number will do.
SAMPLES = {
    "--rope-scaling": '{"rope_type": "yarn"}', "--guided-decoding-backend": "xgrammar",
    "--override-pooler-config": "{}", "VLLM_ATTENTION_BACKEND": "FLASHINFER", "VLLM_MM_HASHER_ALGORITHM": "sha256",
    "VLLM_ALL2ALL_BACKEND": "deepep_low_latency", "VLLM_TORCH_PROFILER_DIR": "traces", "VLLM_FLASH_ATTN_VERSION": "3",
}  # fmt: skip
# Only taken beside a backend that the command names too, then as now.
WITH_A_BACKEND = ("--guided-decoding-disable-any-whitespace", "--guided-decoding-disable-additional-properties")
PARSE = """
import json, sys
rows = json.loads(sys.stdin.read())
sys.argv = ["vllm"]
import vllm
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
parser = make_arg_parser(FlexibleArgumentParser())
def refused(words):
    try:
        parser.parse_args(["model", *words])
    except SystemExit:
        return True
print(json.dumps([row for row in rows[vllm.__version__.split("+")[0]] if refused(row)]))
"""


@pytest.mark.vllm
@pytest.mark.skipif("ADVISOR_VLLM_PYTHON" not in os.environ, reason="no vLLM in another environment")
def test_the_real_parser_takes_every_successor(tmp_path):
    """Each row's words, in the installed version, one after the other."""
    rows = {v: _all_words(load(v)) for v in versions()}
    done = subprocess.run(
        [os.environ["ADVISOR_VLLM_PYTHON"], "-c", PARSE], input=json.dumps(rows), capture_output=True, text=True,
        check=True, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    assert [] == json.loads(done.stdout.splitlines()[-1])


def _all_words(surface):
    given = {r: r.value or SAMPLES.get(r.name, "2") for r in (*FLAGS, *ENV, *CHOICES) if r.name not in WITH_A_BACKEND}
    found = [successor_of_flag(r.name, surface, v) for r, v in given.items() if r in FLAGS]
    found += [successor_of_env(r.name, surface, v) for r, v in given.items() if r in ENV]
    found += [successor_of_choice(r.name, r.value, surface) for r in given if r in CHOICES]
    return [list(f.words) for f in found if f and f.words]
