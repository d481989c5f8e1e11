"""docs/wizard.md: its keys exist, its pictures are what the wizard shows, and the first paint is fast."""

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest


pytest.importorskip("textual")

from textual.binding import Binding

from vllm_advisor.tui import screens, testing, widgets
from vllm_advisor.tui.app import Wizard


ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "wizard.md").read_text(encoding="utf-8")
PICTURES = ROOT / "docs" / "pictures"
NAMES = {"?": "question_mark", "/": "slash"}


def script(name, *words):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    argv = [sys.executable, ROOT / "benchmarks" / name, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


def bound():
    """Every key that the app, a screen or a widget of ours listens to."""
    found = {key for binding in Binding.make_bindings([*Wizard.BINDINGS, *super(Wizard, Wizard).BINDINGS])
             for key in binding.key.split(",")}  # fmt: skip
    for package in (screens, widgets):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for made in vars(importlib.import_module(module.name)).values():
                if isinstance(made, type) and "BINDINGS" in vars(made):
                    found |= {key for binding in Binding.make_bindings(made.BINDINGS) for key in binding.key.split(",")}
    return found | {Wizard.COMMAND_PALETTE_BINDING, "enter"}


def test_every_key_of_the_page_exists():
    """As the app calls it: `Ctrl+N` is ctrl+n, `?` question_mark, a letter itself."""
    table = PAGE[PAGE.index("| Keys |") : PAGE.index("## Terminals")].splitlines()[2:]
    named = [key for row in table if row.startswith("|") for key in re.findall(r"`([^`]+)`", row)]
    known = bound()
    plain = [NAMES.get(key, key if len(key) == 1 else key.lower()) for key in named]
    assert len(plain) > 40
    assert [] == [key for key in plain if key not in known]


def test_every_picture_and_link_of_the_page_is_there():
    """Nothing is linked that was not made, and nothing was made that is not shown or known to be extra."""
    linked = set(re.findall(r"\((pictures/[\w.-]+)\)", PAGE))
    assert [] == [name for name in linked if not (ROOT / "docs" / name).is_file()]
    assert len(linked) >= 8


def test_the_pictures_load_nothing_and_name_no_place():
    """Self-contained, and without a folder of whoever made them."""
    for file in PICTURES.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org|www\.textualize\.io)|/home/|/root|/tmp/", text), file.name


def test_the_cast_is_one():
    """Version 2: a head, then printed text at times that go on."""
    lines = [json.loads(line) for line in (PICTURES / "wizard.cast").read_text(encoding="utf-8").splitlines()]
    times = [at for at, kind, _ in lines[1:] if kind == "o"]
    assert 2 == lines[0]["version"]
    assert len(lines) - 1 == len(times)
    assert sorted(times) == times
    assert "The same answer without the wizard" in "".join(text for _, _, text in lines[1:])


def test_the_script_takes_a_picture(tmp_path):
    """In a process of its own, without a store, a cache or a network: what stands in docs."""
    done = script("wizard_pictures.py", str(tmp_path), "--only", "matrix")
    assert 0 == done.returncode, done.stderr
    made = testing.rows((tmp_path / "matrix.svg").read_text(encoding="utf-8"))
    assert testing.rows((PICTURES / "matrix.svg").read_text(encoding="utf-8")) == made


@pytest.mark.slow
def test_all_pictures_are_what_the_wizard_shows(tmp_path):
    """Taken anew, they say the same."""
    done = script("wizard_pictures.py", str(tmp_path), "--cast")
    assert 0 == done.returncode, done.stderr
    made = {file.name: testing.rows(file.read_text(encoding="utf-8")) for file in tmp_path.glob("*.svg")}
    kept = {file.name: testing.rows(file.read_text(encoding="utf-8")) for file in PICTURES.glob("*.svg")}
    assert kept == made
    assert "The same answer without the wizard" in (tmp_path / "wizard.cast").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_first_paint_is_fast():
    """0.4 s of the processor beyond Python and Textual, times how slow this machine is at present."""
    done = script("wizard_start.py", "--runs", "7", "--check")
    assert 0 == done.returncode, done.stdout + done.stderr
