"""The README shows what the program prints, word by word."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


README = Path(__file__).resolve().parents[1] / "README.md"
SHOWN = re.compile(r"<!-- output: (?P<command>.*?) -->\n```\n(?P<text>.*?)```", re.DOTALL)


def shown() -> list[tuple[str, str]]:
    return [(m["command"], m["text"]) for m in SHOWN.finditer(README.read_text(encoding="utf-8"))]


def printed(command: str) -> str:
    argv = [sys.executable, "-m", "vllm_advisor", *command.split()]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=README.parent).stdout


@pytest.mark.parametrize(("command", "text"), shown(), ids=[command for command, _ in shown()])
def test_the_readme_shows_real_output(command, text):
    """Each output block is what its command prints now; `python tests/test_readme.py` writes them anew."""
    assert printed(command) == text


def test_there_is_something_to_compare():
    """The README shows a plan and a no."""
    assert 7 == len(shown())


def main() -> None:
    """Write each block anew."""
    text = README.read_text(encoding="utf-8")
    fresh = SHOWN.sub(lambda m: f"<!-- output: {m['command']} -->\n```\n{printed(m['command'])}```", text)
    README.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
