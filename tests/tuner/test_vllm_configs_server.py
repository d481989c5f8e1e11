"""A tuned table against the server: kept where the server with it wins and read it, taken away where not."""

import math
import sys
import time

import pytest

from vllm_advisor.errors import BadInput
from vllm_tuner.effort import EFFORTS
from vllm_tuner.serving import Bench
from vllm_tuner.testing import facts, small_space
from vllm_tuner.vllm_configs.at_server import play
from vllm_tuner.vllm_configs.names import ExpertsFile
from vllm_tuner.workloads import Shape, Synthetic


FILE = ExpertsFile(8, 128, "NVIDIA_H100")
# A `vllm` that says what vLLM says of a file in the folder, and whose steps take as much longer or less as told:
# tens of milliseconds, so that a busy machine does not blur which side is faster.
VLLM = """#!{python} -S
import os, runpy, sys
sys.path.append({tuner!r})
folder = os.environ.get("VLLM_TUNED_CONFIG_FOLDER")
from vllm_tuner import stand_in
if folder and {says!r}:
    print("INFO [fused_moe.py:1153] Using configuration from " + folder + "/{name} for MoE layer.", flush=True)
made = stand_in.Engine.__init__
def other(self, *args, **kwargs):
    made(self, *args, **kwargs)
    self.step_s *= 5 * ({factor} if folder else 1)
stand_in.Engine.__init__ = other
import asyncio
asyncio.run(stand_in._main(sys.argv[1:]))
"""


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Play with a server that the files change as told; (what came of it, the file)."""

    def run(factor, *, says=True):
        script = tmp_path / "bin/vllm"
        script.parent.mkdir()
        tuner = next(path for path in sys.path if path.rstrip("/").endswith("tuner"))
        made = VLLM.format(python=sys.executable, tuner=tuner, says=says, name=FILE.name, factor=factor)
        script.write_text(made)
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
        found = facts(tmp_path / "tiny", concurrency=4)
        room = small_space(found, 1)
        requests = Synthetic(found.workload, Shape(1000, 256))
        bench = Bench(room, lambda _: requests, EFFORTS["quick"], tmp_path / "runs")
        folder = tmp_path / "tuned"
        folder.mkdir()
        (folder / FILE.name).write_text("{}")
        plan = room.plans[0][1].plan
        return play(bench, plan, folder, [FILE], end=time.monotonic() + 120, told=lambda _: None), folder / FILE.name

    return run


@pytest.mark.slow
def test_files_of_a_server_that_wins_are_kept(played):
    """Seven rounds won in a row, and the log says that the file was read."""
    found, file = played(0.2)
    assert (True, "read") == (found.kept.kept, found.verdicts[0].state), found
    assert file.is_file()


@pytest.mark.slow
def test_files_of_a_server_that_does_not_win_are_taken_away(played):
    """Slower with them: a null result that is said."""
    found, file = played(2.5)
    assert (False, False) == (found.kept.kept, file.exists())
    assert found.kept.says.startswith("null result")


@pytest.mark.slow
def test_a_win_with_a_file_that_nobody_read_is_none(played):
    """Faster by luck: the server never opened the file."""
    found, file = played(0.2, says=False)
    assert (True, False) == (found.decision.adopted, found.kept.kept)
    assert "never read it" in found.kept.says
    assert not file.exists()


def test_a_folder_without_such_a_file_is_an_error(tmp_path):
    """Nothing is started."""
    with pytest.raises(BadInput, match="no file"):
        play(None, None, tmp_path, [FILE], end=math.inf, told=lambda _: None)
