"""docs/calibration.md: what it names exists, and its true output has the shape that the commands print."""

import ast
import re
from pathlib import Path

import pytest

from vllm_advisor.vllm import surface
from vllm_tuner.calibrate.warm_up import PATHS, Limits, steps
from vllm_tuner.calibrate.warm_up_script import script


typer = pytest.importorskip("typer", reason="typer is not installed")
PAGE = (Path(__file__).parents[2] / "docs/calibration.md").read_text(encoding="utf-8")


def commands():
    from vllm_tuner.calibrate.cli import app

    return typer.main.get_command(app).commands


def test_every_option_exists():
    """Options that the page names are ours, or flags of vLLM's newest release that we know."""
    ours = {name for command in commands().values() for p in command.params for name in (*p.opts, *p.secondary_opts)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))

    assert {"--url", "--script", "--force", "--budget", "--expert-tokens"} <= named
    assert set() == named - ours - set(surface.load("0.33.0").flags)


def test_every_command_is_named_and_exists():
    """`tuner calibrate X` is a command of ours or a folder; each of ours is on the page."""
    assert {"model", "list", "warm-up"} == set(commands())
    words = set(re.findall(r"tuner calibrate ([\w.-]+)", PAGE))

    assert {"list", "warm-up"} <= words
    assert all(word in commands() or word in ("MODEL", "model", ".") for word in words), words


def test_every_step_and_path_is_explained():
    """The table of steps has a row for each kind, and every sampling path is named."""
    rows = set(re.findall(r"^\| ([a-z]+) \|", PAGE, re.MULTILINE))

    assert {step.kind for step in steps(Limits(4096, 8, 512))} <= rows
    assert all(re.search(rf"\b{path}\b", PAGE) for path in PATHS)


def test_every_variable_of_the_script_is_one_that_it_reads():
    """WARM_UP_… and VLLM_API_KEY as the page has them."""
    tree = ast.parse(script(steps(Limits(256, 2, 64)), "http://h", 1))
    read = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    named = set(re.findall(r"\b(?:WARM_UP_[A-Z]+|VLLM_API_KEY)\b", PAGE))

    assert {"WARM_UP_MARKER", "WARM_UP_WAIT", "WARM_UP_SECONDS", "VLLM_API_KEY"} == named
    assert named <= read
