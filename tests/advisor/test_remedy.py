"""A remedy taken: the question that it makes has the plan that was proved to fit."""

import pytest

from vllm_advisor import question, remedy
from vllm_advisor.candidates import Restrictions
from vllm_advisor.errors import UsageError
from vllm_advisor.question import Load, Question


def cures(gpu, model, load, limits):
    """The answer where nothing fits, and every remedy with its miss."""
    found = question.answer(Question(model, gpu, None, "0.33.0", load, limits), 50).found
    return found, [(miss, cure) for miss in found.misses for cure in miss.remedies]


@pytest.mark.parametrize(
    ("gpu", "model", "load", "limits"),
    [
        ("L4", "Qwen/Qwen3-32B", Load(context="40960"), Restrictions()),
        ("L4", "Qwen/Qwen3-235B-A22B", Load(), Restrictions()),
        ("L4", "Qwen/Qwen3-8B", Load(context="40960"), Restrictions("none", "auto", siblings=False)),
    ],
)
def test_every_remedy_leads_to_a_plan(gpu, model, load, limits):
    """What was proved to fit is an answer to the question that the remedy makes."""
    found, offered = cures(gpu, model, load, limits)
    assert offered
    asked = Question(model, gpu, None, "0.33.0", load, limits)
    for miss, cure in offered:
        again = question.answer(remedy.applied(asked, found.facts, miss, cure), 5).found
        assert again.plans, cure.change


def test_devices_cannot_be_added_to_a_machine_that_is_there():
    """A probed machine is what it is: one line, and what to do."""
    found, offered = cures("L4", "Qwen/Qwen3-235B-A22B", Load(), Restrictions())
    asked = Question("Qwen/Qwen3-235B-A22B", None, None, "0.33.0", Load(), Restrictions())
    with pytest.raises(UsageError, match="this needs 8 devices, 1xNVIDIA L4 has 1"):
        remedy.applied(asked, found.facts, *offered[0])


def test_a_remedy_asks_for_what_it_changes_and_for_nothing_else():
    """Another checkpoint loses the revision of the first; what was fixed before stays fixed."""
    asked = Question(
        "Qwen/Qwen3-32B", "L4", None, "0.33.0", Load(context="40960"), Restrictions(max_num_seqs=8), revision="main"
    )
    found = question.answer(asked, 50).found
    offered = [(miss, cure) for miss in found.misses for cure in miss.remedies]
    miss, cure = next(pair for pair in offered if pair[0].rejected.plan.checkpoint != pair[1].plan.checkpoint)
    again = remedy.applied(asked, found.facts, miss, cure)
    assert (cure.plan.checkpoint, None, "L4") == (again.model, again.revision, again.gpu)
    assert asked.restrictions == again.restrictions
    assert str(cure.plan.max_model_len) == again.load.context
