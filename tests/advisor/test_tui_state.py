"""What the wizard keeps: states, their past, and the file between two runs."""

import json

import pytest


pytest.importorskip("textual")

from vllm_advisor.candidates import Restrictions
from vllm_advisor.errors import BadInput
from vllm_advisor.question import Load
from vllm_advisor.tui import keep
from vllm_advisor.tui.state import History, State, from_json, to_json


FULL = State("", "box.json", "org/m", "abc", "0.30.0", Load("rag", "6k", concurrency=3), Restrictions("fp8"), 4, "yaml")


def test_a_state_survives_its_document():
    """Every field, the load and the limits included."""
    assert FULL == from_json(to_json(FULL))


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain | {"schema": 99},
        lambda plain: plain | {"plan": "4"},
        lambda plain: plain | {"step": "nowhere"},
        lambda plain: plain | {"unheard": 1},
        lambda plain: plain | {"load": 3},
        lambda plain: [plain],
    ],
)
def test_a_damaged_document_is_one_expected_error(damage):
    """Nothing of a broken file reaches the screens."""
    with pytest.raises(BadInput):
        from_json(json.dumps(damage(json.loads(to_json(FULL)))))


def test_undo_walks_edits_and_leaves_the_step():
    """Taking a step is no edit, and undoing an edit does not take a step."""
    history = History(State())
    history.change(model="a/b")
    history.change(step="plans")
    history.change(plan=3)

    assert [True, True] == [history.undo(), history.undo()]
    assert State(step="plans") == history.state
    assert history.redo()
    assert ("a/b", 1) == (history.state.model, history.state.plan)


def test_an_edit_ends_what_could_be_redone():
    """After undo and a new edit there is no way forward to the old one."""
    history = History(State())
    history.change(model="a/b")
    history.undo()
    history.change(model="c/d")

    assert not history.redo()


def test_nothing_to_undo_is_said():
    """The first state has no past, and an edit that changes nothing makes none."""
    history = History(State())
    assert not history.change(model="")
    assert not history.undo()


def test_a_kept_state_is_read_again(tmp_path):
    """Saved whole, in a folder that was not there, with nothing beside it."""
    file = tmp_path / "deep/wizard.json"
    keep.save(FULL, file)

    assert FULL == keep.load(file)
    assert [file] == list(file.parent.iterdir())


def test_nothing_kept_is_an_expected_error(tmp_path):
    """`--resume` without a past says what to type."""
    with pytest.raises(BadInput) as caught:
        keep.load(tmp_path / "none.json")
    assert "advisor wizard" == caught.value.hint


def test_commands_are_those_of_the_state():
    """The wizard's last line, and what it launches."""
    state = State(gpu="cpu", model="org/m", plan=2, vllm_python="/v/bin/python", port=8001)
    assert ("advisor", "recommend", "org/m", "--gpu", "cpu") == state.recommend()
    assert (*("advisor", "launch", "org/m", "--gpu", "cpu", "--plan", "2", "--port", "8001"),
            "--vllm-python", "/v/bin/python") == state.launch()  # fmt: skip
