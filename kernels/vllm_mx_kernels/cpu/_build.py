"""Build the C++ path once for a torch and a source, and remember it in the user's cache.

The compiler runs in a process of its own: torch's builder needs setuptools and ninja on PATH, prints, and waits for
ever on the lock of a build that was killed. Here the lock is the kernel's, and falls with its holder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch


if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "vllm_mx_cpu"
SOURCES = Path(__file__).parent
# No -ffast-math: rounding, NaN and subnormals are what is promised. at::parallel_for is OpenMP in the caller's code.
FLAGS = ("-O3", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno")
LONGEST_BUILD_S = 600


class BuildError(RuntimeError):
    """There is no library, for the reason that the message gives in one line."""


def library() -> Path:
    """The shared library, built if it is not there yet. Raises BuildError."""
    try:
        folder = _cache() / _key()
        built = folder / f"{NAME}.so"
        if not built.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / "lock"):
                if not built.exists():
                    _build(folder / "build", built)
    except OSError as error:
        raise BuildError(str(error)) from error
    return built


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-advisor" / "kernels"


def _key() -> str:
    """Changes with torch, the processor's family, the flags and any source."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted(SOURCES.glob("*.cpp")) + sorted(SOURCES.glob("*.h")):
        digest.update(source.read_bytes())
    return f"torch-{torch.__version__}-{platform.machine()}-{digest.hexdigest()[:16]}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path, built: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # what a killed build left
    folder.mkdir()
    try:
        done = subprocess.run(  # noqa: S603  this file, by this interpreter
            [sys.executable, "-P", __file__, str(folder)],
            env=_environment(), capture_output=True, text=True, check=False, timeout=LONGEST_BUILD_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"the compiler took more than {LONGEST_BUILD_S} s") from error
    if done.returncode:
        raise BuildError(_reason(done.stdout + done.stderr))
    (folder / f"{NAME}.so").rename(built)  # in one step: no other process sees half a library
    shutil.rmtree(folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    """Ours, with the scripts beside this interpreter on PATH: a ninja from a wheel lies there."""
    return {**os.environ, "PATH": os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))}


def _reason(output: str) -> str:
    """The first line that names an error, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["the compiler said nothing"]
    return next((line for line in lines if "rror:" in line), lines[-1])[:200]


def main(folder: str) -> None:
    """Compile into `folder`, and load the result, which shows that it can be."""
    from torch.utils import cpp_extension  # here, as it imports setuptools

    sources = [str(source) for source in sorted(SOURCES.glob("*.cpp"))]
    cpp_extension.load(NAME, sources, extra_cflags=list(FLAGS), extra_ldflags=["-fopenmp"], build_directory=folder,
                       is_python_module=False)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
