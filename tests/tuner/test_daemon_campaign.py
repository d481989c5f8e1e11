"""The campaign of faults in its short form: benchmarks/fault_campaign.py is the long one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


CAMPAIGN = Path(__file__).parents[2] / "benchmarks/fault_campaign.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("faults", "more"), [(25, []), (12, ["--stop-unit"])])
def test_random_faults(tmp_path, faults, more):
    """Until plans were adopted and worse ones refused: nothing is lost, left or made worse; what made way serves."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    words = ("--faults", str(faults), "--seed", "11", "--folder", str(tmp_path / "campaign"), *more)
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *words], capture_output=True, text=True, env=environment, check=False
    )
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert sum(found["faults"].values()) >= faults
    assert found["most_ticks"] <= 2
    assert found["adopted"]
    assert found["refused_worse"] >= 1
    assert found["attempts"] >= 2
