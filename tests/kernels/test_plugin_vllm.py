"""The proof: `advisor_mxfp4` on a real vLLM, from bf16 weights, from a saved checkpoint and from gpt-oss's own.

The plugin is found by its entry point, as in an installed package: PYTHONPATH has the kernels and a folder with the
metadata. ADVISOR_VLLM_PYTHON and ADVISOR_TEST_MODELS are those of tests/advisor/test_proof_vllm.py.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from vllm_advisor.launch import Server, complete
from vllm_advisor.plan import LaunchCommand
from vllm_mx_kernels.checkpoint_plan import plan


pytestmark = pytest.mark.vllm
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MAKE = ROOT / "benchmarks/make_test_models.py"
QUANTIZED = {"quantization": "advisor_mxfp4"}
EAGER = {"enforce_eager": True}
# name: (folder, vLLM's options, letters of the text: the tiny models read bytes, layers that stay in bf16)
JOBS = {
    "bf16": ("smollm2", EAGER, 1500, ""),
    "fake": ("smollm2-fake", EAGER, 1500, ""),
    "online": ("smollm2", EAGER | QUANTIZED, 1500, ""),
    "packed": ("smollm2-packed", EAGER, 1500, ""),
    "moe fake": ("moe-fake", EAGER, 400, ""),
    "moe online": ("tiny-moe", EAGER | QUANTIZED, 400, ""),
    "moe packed": ("moe-packed", EAGER, 400, ""),
    "moe compiled": ("tiny-moe", QUANTIZED, 400, ""),
    "oss plain": ("gpt-oss-plain", EAGER, 400, ""),
    "oss packed": ("gpt-oss", EAGER | QUANTIZED, 400, ""),
    "oss online": ("gpt-oss-plain", EAGER | QUANTIZED, 400, "self_attn"),
}
PAIRS = (
    ("bf16", "fake"), ("bf16", "online"), ("bf16", "packed"), ("fake", "online"), ("moe fake", "moe online"),
    ("moe fake", "moe packed"), ("moe fake", "moe compiled"), ("oss plain", "oss packed"), ("oss plain", "oss online"),
)  # fmt: skip
# Between two ways to compute the same model in bf16: rounding only. Quantizing itself costs a hundred times more.
SAME = 2e-3


@pytest.fixture(scope="module")
def run(vllm_python, search_path, tmp_path_factory):
    """Run a script on that interpreter with the plugin on its path; its output shows when it fails."""
    folder = tmp_path_factory.mktemp("log")

    def run(script, *arguments):
        log = folder / f"{script.stem}.log"
        with log.open("w") as file:
            done = subprocess.run(
                [vllm_python, script, *arguments], env=os.environ | {"PYTHONPATH": search_path, "PYTHONSAFEPATH": "1"},
                stdout=file, stderr=subprocess.STDOUT, cwd=folder, check=False,
            )  # fmt: skip
        assert 0 == done.returncode, log.read_text()[-3000:]
        return log.read_text()

    return run


@pytest.fixture(scope="module")
def models(run, tmp_path_factory):
    """Folder name → path, of all models of JOBS."""
    out = tmp_path_factory.mktemp("models")
    kept = os.environ.get("ADVISOR_TEST_MODELS")
    plain = {name: (Path(kept) if kept else out).absolute() / name for name in ("smollm2", "tiny-moe")}
    for name, path in plain.items():
        run(MAKE, name, path)
    run(HERE / "plugin_models.py", *plain.values(), out)
    return {path.name: path for path in out.iterdir()} | plain


@pytest.fixture(scope="module")
def served(run, models, tmp_path_factory):
    """Everything of JOBS and PAIRS, served one after the other in one process; and its log."""
    folder = tmp_path_factory.mktemp("offline")
    jobs = [
        {"name": name, "model": str(models[model]), "options": options, "letters": letters, "ignore": ignore}
        for name, (model, options, letters, ignore) in JOBS.items()
    ]
    (folder / "asked.json").write_text(json.dumps({"jobs": jobs, "pairs": PAIRS}))
    log = run(HERE / "plugin_offline.py", folder / "asked.json", folder / "results.json")
    return json.loads((folder / "results.json").read_text()) | {"log": log}


@pytest.mark.parametrize("name", ["bf16", "online", "packed"])
def test_capital_of_france(served, name):
    """The greedy answer is Paris, in bf16 and in MXFP4."""
    assert "Paris" in served["jobs"][name]["text"]


@pytest.mark.parametrize("name", ["online", "packed"])
def test_loss_is_that_of_the_format(served, name):
    """Mean KL a token against bf16 is within 1.05 × that of exactly quantized weights, which is not nothing."""
    kl = served["kl"]
    assert 0.01 < kl["bf16 fake"]
    assert 1.05 * kl["bf16 fake"] >= kl[f"bf16 {name}"]


@pytest.mark.parametrize(
    "pair",
    ["fake online", "moe fake moe online", "moe fake moe packed", "moe fake moe compiled", "oss plain oss packed",
     "oss plain oss online"],
)  # fmt: skip
def test_same_weights_give_the_same_model(served, pair):
    """Our products and vLLM's own of the same values agree: dense, routed, compiled, and gpt-oss's gate with biases."""
    assert SAME > served["kl"][pair]


@pytest.mark.parametrize(("name", "model"), [("online", "smollm2"), ("packed", "smollm2"), ("moe online", "tiny-moe")])
def test_resident_weights(served, models, name, model):
    """Linear weights and experts hold at most 0.30 of their bytes in bf16: 4.25 bits of 16."""
    plain = 2 * sum(piece.rows * piece.k for shard in plan(models[model], ()).shards for piece in shard.pieces)
    assert 17 / 64 * plain == served["jobs"][name]["bytes"]
    assert 17 / 64 <= 0.30


def test_log_says_what_was_done(served):
    """One line a model: how many layers, how many bytes, how many fold."""
    lines = [line for line in served["log"].splitlines() if "advisor_mxfp4: 120 layers hold 56401920 bytes" in line]
    assert 2 == len(lines)
    assert all("0 of 120 multiply in FP8" in line for line in lines)


def test_server_finds_the_plugin(models, search_path, vllm_python, tmp_path):
    """1. vllm serve --quantization advisor_mxfp4 of a bf16 folder, 2. ask. Result: Paris."""
    flags = ("--quantization", "advisor_mxfp4", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "4")
    command = LaunchCommand(
        ("vllm", "serve", str(models["smollm2"]), *flags, "--kv-cache-memory-bytes", str(1 << 28)),
        (("PYTHONPATH", search_path),),
    )
    with Server(command, run_folder=tmp_path / "run", vllm_python=vllm_python) as server:
        server.wait_until_ready()
        assert "Paris" in complete(server, "The capital of France is", 16)
