"""Flags of vLLM, as the doctor names them in a remedy, taken into the question; None where one is no limit of ours."""

import pytest

from vllm_advisor.candidates import Restrictions
from vllm_advisor.question import Load, Question, flags
from vllm_advisor.remedy import by_flags


ASKED = Question("m", "L4", None, "0.33.0", Load(), Restrictions())


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ((("--max-model-len", "4096"),), ("--context", "4096")),
        ((("--tensor-parallel-size", "2"), ("--kv-cache-dtype", "fp8")), ("--kv-cache-dtype", "fp8", "--tp", "2")),
        ((("--gpu-memory-utilization", "0.85"),), ("--gpu-memory-utilization", "0.85")),
        ((("--enforce-eager", ""),), ("--enforce-eager",)),
        ((("--enable-expert-parallel", ""),), ("--ep",)),
        ((), ()),
    ],
)
def test_a_remedy_is_a_question(given, typed):
    """What would be typed for it."""
    assert ("m", "--gpu", "L4", *typed) == flags(by_flags(ASKED, given))


@pytest.mark.parametrize(
    "given", [(("--port", "8001"),), (("--kv-cache-dtype", None),), (("--max-num-seqs", "many"),), (("--x", ""),)]
)
def test_what_is_no_limit_has_to_be_done_by_hand(given):
    """Another flag, one that has to go, a value that cannot be read."""
    assert by_flags(ASKED, given) is None
