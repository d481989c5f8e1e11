"""What is said of environment variables: known or not, readable or not, of any effect or not."""

import pytest

from vllm_advisor.check import environment, fix, read
from vllm_advisor.check.finding import Change
from vllm_advisor.check.parse import parse
from vllm_advisor.vllm import surface


def found(words, version="0.33.0"):
    loaded = surface.load(version)
    return environment.findings(parse(read.command_line([*words.split(), "vllm", "serve", "m"]), loaded), loaded)


@pytest.mark.parametrize(
    ("words", "version", "finding_id", "says"),
    [
        ("VLLM_ROCM_USE_AITR=1", "0.33.0", "ENV-03", "does not know"),
        ("VLLM_MY_OWN=1", "0.33.0", "ENV-03", "does not know"),
        ("VLLM_USE_TRITON_FLASH_ATTN=0", "0.24.0", "ENV-11", "is gone"),
        ("VLLM_TEST_FORCE_FP8_MARLIN=1", "0.33.0", "ENV-11", "was the last to read it"),
        ("VLLM_ENABLE_STARTUP_PLAN=1", "0.24.0", "ENV-12", "came with vLLM"),
        ("VLLM_USE_DEEP_GEMM=true", "0.33.0", "ENV-13", "reads a number"),
        ("VLLM_LOG_STATS_INTERVAL=often", "0.33.0", "ENV-13", "not a number"),
        ("VLLM_ROCM_FP8_PADDING=1", "0.24.0", "ENV-14", "changes nothing"),
        ("VLLM_ROCM_USE_AITER=0", "0.33.0", "ENV-14", "changes nothing"),
        ("VLLM_FLOAT32_MATMUL_PRECISION=best", "0.33.0", "ENV-15", "highest, high, medium"),
        ("VLLM_ROCM_USE_AITER=yes", "0.33.0", "ENV-16", "only 1 or true"),
        ("VLLM_MARLIN_USE_ATOMIC_ADD=true", "0.33.0", "ENV-16", "only 1 turns"),
    ],
)
def test_a_faulty_variable_has_its_id(words, version, finding_id, says):
    """One finding, about that variable."""
    (one,) = found(words, version)

    assert (finding_id, words.partition("=")[0]) == (one.id, one.subject)
    assert says in one.text


@pytest.mark.parametrize(
    "words",
    ["VLLM_ROCM_USE_AITER=1", "VLLM_USE_DEEP_GEMM=0", "NCCL_DEBUG=INFO", "VLLM_PORT=$PORT", "VLLM_LOGGING_LEVEL=debug"],
)
def test_a_good_variable_has_no_finding(words):
    """Nor has one that is not vLLM's, nor one that only a run can tell."""
    assert () == found(words)


def test_a_strict_command_stops_at_an_unknown_variable():
    """With --fail-on-environ-validation a warning of vLLM's is an error."""
    loaded = surface.load("0.33.0")
    words = ["VLLM_MY_OWN=1", "vllm", "serve", "m", "--fail-on-environ-validation"]
    (one,) = environment.findings(parse(read.command_line(words), loaded), loaded)

    assert ("error", "ENV-03") == (one.level, one.id)


def test_a_variable_that_became_a_flag_is_moved():
    """And taken away from the environment."""
    (one,) = found("VLLM_ATTENTION_BACKEND=FLASH_ATTN_VLLM_V1")

    assert Change(3, 3, ("--attention-backend", "FLASH_ATTN"), (("VLLM_ATTENTION_BACKEND", None),)) == one.change


def test_a_flag_that_is_given_already_is_not_added():
    """The variable goes, the command's own choice stays."""
    loaded = surface.load("0.33.0")
    words = ["VLLM_ATTENTION_BACKEND=FLASHINFER", "vllm", "serve", "m", "--attention-backend", "TRITON_ATTN"]
    (one,) = environment.findings(parse(read.command_line(words), loaded), loaded)

    assert ((), (("VLLM_ATTENTION_BACKEND", None),)) == (one.change.words, one.change.env)


def test_a_variable_of_the_script_alone_is_not_seen_by_vllm(tmp_path):
    """Set on a line of its own without export: said, and exported by --fix."""
    path = tmp_path / "serve.sh"
    path.write_text("VLLM_ROCM_USE_AITER=1\nVLLM_USE_DEEP_GEMM=0\nOTHER=1\nexport VLLM_USE_DEEP_GEMM\nvllm serve m\n")
    (invocation,) = read.file(path)
    loaded = surface.load("0.33.0")
    (one,) = environment.findings(parse(invocation, loaded), loaded)
    after = fix.apply(invocation, [one.change])

    assert ("ENV-17", "VLLM_ROCM_USE_AITER") == (one.id, one.subject)
    assert ((), {"VLLM_USE_DEEP_GEMM": "0", "VLLM_ROCM_USE_AITER": "1"}) == (after.unexported, dict(after.env))


def test_a_slip_is_corrected_in_words():
    """A variable's name is not changed without asking."""
    (one,) = found("VLLM_ROCM_USE_AITR=1")

    assert ("did you mean VLLM_ROCM_USE_AITER?", None) == (one.hint, one.change)
