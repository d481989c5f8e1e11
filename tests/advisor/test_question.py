"""A question and its command line: what the wizard prints must be what it asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_advisor.candidates import Restrictions
from vllm_advisor.question import Load, Question, answer, flags


PLAIN = Question("Qwen/Qwen3-8B", "2xL40S", None, "0.33.0", Load(), Restrictions())
FULL = PLAIN._replace(
    vllm="0.31.0",
    load=Load("rag", "6000", "256", 8, "16384", None, "1024", "latency", 900.0, 40.0, "sensitive"),
    restrictions=Restrictions("none", "fp8", 2, None, 1, False, 0.9, 16, 4096, True, False, True),
    offline=True,
)


def test_defaults_are_not_typed():
    """A question that only names model and machine is a line that a person would type."""
    assert ("Qwen/Qwen3-8B", "--gpu", "2xL40S") == flags(PLAIN)


def test_a_file_of_a_machine_and_a_revision_are_typed():
    """Beside the defaults, both have a flag."""
    asked = PLAIN._replace(gpu=None, node=Path("box.json"), revision="abc")
    assert ("Qwen/Qwen3-8B", "--node", "box.json", "--revision", "abc") == flags(asked)


@pytest.mark.parametrize("asked", [PLAIN, FULL], ids=["plain", "full"])
def test_the_typed_question_has_the_same_answer(asked):
    """`advisor recommend` with those words gives the very commands that the function gave."""
    wanted = [list(plan.command.argv) for plan in answer(asked, 5).found.plans]

    argv = [sys.executable, "-m", "vllm_advisor", "recommend", *flags(asked), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)

    assert wanted == [plan["command"]["argv"] for plan in json.loads(done.stdout)["plans"]] != []
