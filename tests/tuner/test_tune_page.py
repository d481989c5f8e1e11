"""docs/tuner.md says what the tables of the code say."""

import json
import re
from pathlib import Path

import pytest

from vllm_advisor.profile import Event
from vllm_tuner import outcome, search
from vllm_tuner.cli import show
from vllm_tuner.effort import EFFORTS
from vllm_tuner.quality import LIMITS
from vllm_tuner.quality_exam import LEVELS


PAGE = (Path(__file__).parents[2] / "docs/tuner.md").read_text(encoding="utf-8")
SOURCES = Path(search.__file__).parent


def row(*cells):
    return f"| {' | '.join(map(str, cells))} |"


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS)
def test_efforts_are_as_the_page_says(effort):
    """A row an effort."""
    knobs = {1: "few", 2: "all", 3: "all, every value"}[effort.breadth]
    repeats = f"{effort.least} to {effort.most}"
    more = (f"{effort.tight:.0%}".replace("%", " %"), effort.rounds, effort.waves, f"{effort.budget_s / 60:g} min")

    assert row(effort.name, effort.trials, effort.plans, knobs, repeats, *more) in PAGE


@pytest.mark.parametrize("name", LIMITS, ids=str)
def test_limits_are_as_the_page_says(name):
    """A row a class of work."""
    kl, agreement, perplexity, kept = LIMITS[name]

    assert row(name, f"{kl:g}", f"{agreement * 100:g} %", f"× {perplexity:g}", f"{kept * 100:g} %") in PAGE


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_levels_are_as_the_page_says(level):
    """A row a level."""
    needles = len(level.shares) * len(level.depths) * level.repeats

    assert row(level.name, level.prompts, level.own, level.tokens, needles, level.arithmetic, level.code) in PAGE


def test_every_event_and_verdict_is_on_the_page():
    """What the code tells by name, and the words that a program may rest on."""
    code = "".join((SOURCES / name).read_text() for name in ("tune.py", "search.py", "quality_gate.py"))
    kinds = set(re.findall(r'say\("(\w+)"', code)) | set(search._EVENTS.values()) | {"opened", "result"}
    words = (outcome.BETTER, outcome.NOT_BETTER, outcome.NO_DEFAULTS, outcome.UNDECIDED, outcome.NOTHING)

    assert kinds == set(
        re.findall(
            r"^\| `(\w+)` \|", PAGE.partition("## For programs")[2].partition("`message` is for")[0], re.MULTILINE
        )
    )
    assert [] == [word for word in words if f"`{word}`" not in PAGE]


def test_a_line_has_what_the_page_says(capsys):
    """schema, event, message, at, and the event's own fields."""
    show.listener(json_lines=True)(Event("trial", "complete", "n", (("trial", 3), ("left_s", 1.5)), 7.0))

    assert {"schema": 1, "event": "trial", "message": "complete", "at": 7.0, "trial": 3, "left_s": 1.5} == json.loads(
        capsys.readouterr().out
    )
