"""A calibration's memory: what a layer needs, not what the model has."""

import json
import subprocess
import sys

import pytest


LAYERS, HIDDEN, INNER, VOCAB = 12, 512, 2048, 2048
MODEL_BYTES = 4 * (LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER) + 2 * VOCAB * HIDDEN)
CHILD = """
import json, resource, sys
import torch
from pathlib import Path
from vllm_tuner.calibrate.run import Settings, calibrate
from vllm_tuner.calibrate import testing
torch.set_num_threads(1)
small, large = map(Path, sys.argv[1:])
def run(folder):
    ids = testing.prompts(2, 32, 2048)
    return calibrate(folder, ids, Settings(compared_tokens=32, formats=("fp8",)), lambda _: None)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run(small)
before = peak()
found = run(large)
print(json.dumps({"grown": peak() - before, "layers": len(found.scales), "modules": len(found.module_losses)}))
"""


def test_peak_is_a_fraction_of_the_model(tmp_path):
    """A model of some 210 MB is calibrated, losses included, with less than a quarter of it beside the libraries.

    A tiny model goes first, so that what torch itself loads is not counted.
    """
    pytest.importorskip("torch", reason="torch is not installed")
    from vllm_tuner.calibrate import testing

    shape = {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "vocab_size": VOCAB,
             "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}  # fmt: skip
    tiny = testing.LLAMA | {"vocab_size": VOCAB}
    large = testing.LLAMA | shape | {"tie_word_embeddings": False}
    folders = [
        testing.write_model(tmp_path / name, config, testing.tensors(config))
        for name, config in (("small", tiny), ("large", large))
    ]
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{CHILD}"
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, check=False)
    (tmp_path / "large" / "model.safetensors").unlink()
    assert 0 == done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout)

    assert (LAYERS, LAYERS * 7) == (found["layers"], found["modules"])
    assert found["grown"] < MODEL_BYTES / 4
