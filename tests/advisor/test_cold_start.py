"""The command answers in a fraction of a second: ratios against two libraries' import, taken in one run."""

import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_help_and_a_full_recommendation_start_fast():
    """Medians of 10: `--help` at most 1.2 times, a whole recommendation at most twice `import typer, rich.table`."""
    argv = [sys.executable, str(ROOT / "benchmarks" / "cold_start.py"), "--runs", "10", "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout
