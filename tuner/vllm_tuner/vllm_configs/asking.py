"""One question to a script of `child`, run by the Python of an environment with vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import EngineError
from vllm_advisor.launch.log import last_words, scrub


if TYPE_CHECKING:
    from collections.abc import Mapping

CHILD = Path(__file__).with_name("child")
HINT = "--vllm-python takes the Python of an environment with vLLM"
NO_GPU = "this machine has no GPU that PyTorch can use: tiles cannot be timed here"  # child/timer.py
FOLDER = "VLLM_TUNED_CONFIG_FOLDER"
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_FIXED = {
    "PYTHONSAFEPATH": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HAS_FLASHINFER_CUBIN": "1",  # else FlashInfer asks the network for its kernels
}


def ask(
    python: Path, script: str, question: Mapping[str, Any], env: Mapping[str, str], *, allowed_s: float = 300.0
) -> dict[str, Any]:
    """The script's answer. Raises EngineError for a Python without vLLM, a child that fails, and one that is silent."""
    with tempfile.TemporaryDirectory(prefix="vllm-tuner-child-") as folder:
        try:
            done = subprocess.run(  # noqa: S603 - the interpreter that the user named
                [python.absolute(), CHILD / script], cwd=folder, env=environment(folder, env), check=False,
                input=json.dumps(question) + "\n", capture_output=True, text=True, timeout=allowed_s,
            )  # fmt: skip
        except OSError as error:
            raise EngineError(f"{python} does not run: {error.strerror}", HINT) from error
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"vLLM was silent for {allowed_s:g} s", "give it more time") from error
    return _answer(python, done)


def environment(home: str, env: Mapping[str, str]) -> dict[str, str]:
    """What a child gets: nothing of the caller's but paths and the choice of devices."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {"HOME": home} | _FIXED | dict(env)


def _answer(python: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: Any = None
    with suppress(ValueError, IndexError):
        found = json.loads(done.stdout.strip().splitlines()[-1])
    if not isinstance(found, dict):
        raise EngineError(f"vLLM's process ended with {done.returncode}: {_words(done.stderr)}", HINT)
    if "failed" in found:
        raise failed(python, found["failed"])
    return found


def failed(python: Path, failure: Mapping[str, str]) -> EngineError:
    """What a child raised, as one line."""
    error, said = failure.get("error", ""), " ".join(failure.get("text", "").split())[:300]
    if error == "ModuleNotFoundError" and "vllm" in said:
        return EngineError(f"no vllm in the environment of {python}", HINT)
    if said == NO_GPU:
        return EngineError(said, "run it on the machine that will serve, with the Python that vLLM runs in")
    return EngineError(f"vLLM could not be asked: {error}: {said}", HINT)


def _words(said: str) -> str:
    return scrub(last_words(said))[:300]
