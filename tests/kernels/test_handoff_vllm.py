"""The proof: a real vLLM serves an MXFP4 checkpoint with a tuned tile from the file that its environment names.

The plugin is found and the models are made as in `test_plugin_vllm.py`.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from vllm_advisor.launch import Server, complete
from vllm_advisor.plan import LaunchCommand


pytestmark = pytest.mark.vllm
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Both shapes of the tiny model, attention's and the experts', at every number of tokens; and one of other kernels.
WRITE = """
import sys
from vllm_mx_kernels import autotune, handoff
from vllm_mx_kernels.tiles import CpuTile
problems = [autotune.Problem(handoff.CPU_LINEAR, "cpu", 1 << i, n, 128) for i in range(14) for n in (256, 128)]
tile = CpuTile(rows=4, task_rows=16)
entries = [autotune.entry(p, autotune.default_point(p))._replace(launch=tile) for p in problems]
stale = entries[0]._replace(key=entries[0].key._replace(n=64), source="0")
handoff.write_configs(sys.argv[1], [*entries, stale])
"""


@pytest.fixture(scope="module")
def prepared(vllm_python, search_path, tmp_path_factory):
    """(the tiny MoE in MXFP4, the file of tiles), both made by that environment."""
    out = tmp_path_factory.mktemp("handoff")
    kept = os.environ.get("ADVISOR_TEST_MODELS")
    plain, packed, configs = (Path(kept) if kept else out).absolute() / "tiny-moe", out / "packed", out / "configs.json"
    for arguments in (
        (ROOT / "benchmarks/make_test_models.py", "tiny-moe", plain),
        ("-m", "vllm_mx_kernels.quantize_cli", plain, packed),
        ("-c", WRITE, configs),
    ):
        done = subprocess.run(
            [vllm_python, *arguments], env=os.environ | {"PYTHONPATH": search_path, "PYTHONSAFEPATH": "1"}, text=True,
            capture_output=True, cwd=out, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr[-2000:]
    return packed, configs


def test_a_server_takes_tuned_tiles(prepared, search_path, vllm_python, tmp_path):
    """1. Name the file, 2. serve the checkpoint, 3. ask. Result: an answer, and the log names the file and the tile."""
    packed, configs = prepared
    flags = (
        "--enforce-eager",
        "--max-model-len",
        "256",
        "--max-num-seqs",
        "2",
        "--kv-cache-memory-bytes",
        str(1 << 26),
    )
    command = LaunchCommand(
        ("vllm", "serve", str(packed), *flags),
        (("PYTHONPATH", search_path), ("ADVISOR_KERNEL_CONFIGS", str(configs))),
    )
    with Server(command, run_folder=tmp_path / "run", vllm_python=vllm_python) as server:
        server.wait_until_ready()
        answer = complete(server, "abc", 4)
        log = server.log.read_text()

    assert answer
    took = f"ADVISOR_KERNEL_CONFIGS: took 28 entries of {configs}, ignored 1 (1 for other kernels)"
    assert 1 == log.count(took)
    chosen = rf"cpu\.mxfp4\.linear: tile rows=4 task_rows=16 for m<=\d+ n(256|128) k128, from {re.escape(str(configs))}"
    assert re.search(chosen, log)
