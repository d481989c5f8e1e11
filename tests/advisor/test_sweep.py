"""Every catalog model on every reference machine and version: an answer with reasons, and the same bytes twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]


def sweep(seed: str, *args: str) -> subprocess.Popen[str]:
    argv = [sys.executable, str(ROOT / "benchmarks" / "sweep.py"), *args]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "advisor")}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)


def both(*args: str) -> tuple[list[str], list[str]]:
    """Two runs side by side with different hash seeds: their lines."""
    runs = [sweep("1", *args), sweep("2", *args)]
    first, second = (run.communicate()[0].splitlines() for run in runs)
    assert [0, 0] == [run.returncode for run in runs]
    return first, second


def check(lines: list[str], least: int) -> None:
    assert least <= len({line.split("\t")[0] for line in lines})
    verdicts = [line.split("\t")[3].split(" ")[0] for line in lines]
    assert {"plan", "no"} == set(verdicts)
    assert [] == [line for line in lines if "SILENT" in line or "\terror:" in line]


def test_a_few_models_everywhere():
    """The short form of the sweep below, for each run of the suite."""
    first, second = both("--models", "12")

    assert first == second
    check(first, 12)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_model_on_every_machine_and_version():
    """A plan, or a no with a veto for each rejected plan; never a traceback; two runs print the same bytes."""
    first, second = both()

    assert first == second
    check(first, 150)
