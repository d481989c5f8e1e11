"""Checkpoints on this disk: a folder, a config.json, or what the Hugging Face cache keeps; read, never run.

Decision: a folder is somebody else's input. Only regular files of bounded size are opened, links may not lead out of
the checkpoint (the cache's own snapshots link to their blobs, and those are accepted), and whatever is not a
transformers checkpoint is named for what it is instead of failing on a missing key.
"""

from __future__ import annotations

import json
import os
import re
import stat
from itertools import islice
from pathlib import Path
from typing import Any

from vllm_advisor.errors import BadInput


CONFIG = "config.json"
QUANTIZATION = "hf_quant_config.json"
MAX_BYTES = 8 << 20
_MAX_LISTED = 2000
_MODEL = "models--"  # before the repository's name in the cache
_SUFFIX_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d+-of-(?P<of>\d+)\.safetensors")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OTHER_KINDS = (
    ("adapter_config.json", "a LoRA adapter", "plan its base model; vLLM takes the adapter with --enable-lora"),
    ("model_index.json", "a diffusers pipeline", "choose a text generation model"),
    ("params.json", "a checkpoint in Mistral's own format", "plan the repository that has a config.json"),
)
GGUF_HINT = "plan the repository with the safetensors files; GGUF is loaded by a plug-in, not by vLLM itself"


def config_of(folder: Path, shown: str) -> dict[str, Any]:
    """The config of a checkpoint's folder, with ModelOpt's own file under `hf_quant_config` where there is one.

    `shown` is what messages call the folder: what the user typed. Raises BadInput when it is no such folder.
    """
    listed = _listed(folder, shown)
    if any(n.lower().endswith(".gguf") for n in listed) and not any(n.endswith(_SUFFIX_WEIGHTS) for n in listed):
        raise BadInput(f"{shown!r} holds GGUF weights", GGUF_HINT)
    if CONFIG not in listed:
        raise _without_config(listed, shown)
    config = read_json(folder / CONFIG, f"{shown}/{CONFIG}", _home(folder))
    if QUANTIZATION in listed and "quantization_config" not in config:
        config["hf_quant_config"] = read_json(folder / QUANTIZATION, f"{shown}/{QUANTIZATION}", _home(folder))
    return config


def read_json(path: Path, shown: str, home: Path | None = None) -> dict[str, Any]:
    """The JSON object in a regular file of at most 8 MiB; a link may not lead out of `home`.

    Raises BadInput with the reason: not a file, too large, a link, no text, no JSON, not an object.
    """
    text = _read(path, shown, home)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise BadInput(f"{shown!r} is not JSON: {place}", "check the file, or download it again") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{shown!r} is not the JSON of a model config", "check the file, or download it again"
        ) from error
    if not isinstance(found, dict):
        raise BadInput(f"{shown!r} holds a JSON {type(found).__name__}, not an object", "is it a model's config.json?")
    return found


def folders(start: str) -> tuple[tuple[str, bool], ...]:
    """Folders whose path begins as typed, hidden ones left out, each with whether it holds a config.json.

    `~` is the home folder, and stays written so. () where nothing can be listed.
    """
    above, _, begin = start.rpartition("/")
    try:
        with os.scandir(Path(f"{above}/" if above or start.startswith("/") else ".").expanduser()) as entries:
            names = sorted(e.name for e in islice(entries, _MAX_LISTED) if _is_open_folder(e, begin))
    except (OSError, RuntimeError, ValueError):
        return ()
    paths = (start[: len(start) - len(begin)] + name for name in names)
    return tuple((path, (Path(path).expanduser() / CONFIG).is_file()) for path in paths)


def _is_open_folder(entry: os.DirEntry[str], begin: str) -> bool:
    return entry.name.startswith(begin) and not (entry.name.startswith(".") and not begin) and entry.is_dir()


def is_complete(folder: Path) -> bool:
    """Whether the safetensors files tell the whole size: an index is there, or no shard of a series is missing.

    A cache may hold the first of five shards, after a download that was broken off.
    """
    names = _listed(folder, folder.name)
    shards = [m for name in names if (m := _SHARD.fullmatch(name))]
    return _INDEX in names or all(len(shards) == int(m["of"]) for m in shards)


def cache_folder() -> Path | None:
    """Where huggingface_hub keeps repositories, by its own variables (huggingface_hub/constants.py); None: nowhere."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]) / "hub"
    try:
        above = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # no home directory for this user
        return None
    return Path(above) / "huggingface" / "hub"


def cached(repository: str, revision: str | None) -> Path | None:
    """The cache's snapshot of a repository that holds a config.json, or None.

    The layout is `models--org--name/{refs/REVISION, snapshots/COMMIT}`; without a revision it is `main`.
    """
    cache = cache_folder()
    if cache is None:
        return None
    home = cache / f"{_MODEL}{repository.replace('/', '--')}"
    commit = revision if revision and _COMMIT.fullmatch(revision) else _commit(home / "refs" / (revision or "main"))
    snapshot = home / "snapshots" / commit if commit else None
    return snapshot if snapshot and (snapshot / CONFIG).exists() else None


def kept() -> tuple[str, ...]:
    """The repositories of which the cache holds a config.json at `main`, sorted; the network is not asked."""
    cache = cache_folder()
    try:
        found = sorted(entry.name for entry in islice(os.scandir(cache), _MAX_LISTED)) if cache else []
    except OSError:
        return ()
    names = (name.removeprefix(_MODEL).replace("--", "/", 1) for name in found if name.startswith(_MODEL))
    return tuple(name for name in names if cached(name, None))


def _commit(ref: Path) -> str | None:
    try:
        text = ref.read_bytes()[:64].decode("ascii", "replace").strip()
    except OSError:
        return None
    return text if _COMMIT.fullmatch(text) else None


def _home(folder: Path) -> Path:
    """Links may lead anywhere inside this: the folder, or the whole repository for a snapshot of the cache."""
    real = folder.resolve()
    return real.parent.parent if real.parent.name == "snapshots" else real


def _listed(folder: Path, shown: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in islice(entries, _MAX_LISTED))
    except OSError as error:
        raise BadInput(
            f"the folder {shown!r} cannot be read: {error.strerror}", "check the path and its rights"
        ) from error


def _without_config(listed: frozenset[str], shown: str) -> BadInput:
    for marker, kind, hint in _OTHER_KINDS:
        if marker in listed:
            return BadInput(f"{shown!r} is {kind}, not a transformers checkpoint", hint)
    state = "holds no config.json" if listed else "is an empty folder"
    return BadInput(f"{shown!r} {state}", "give the folder that a model was downloaded to, or a repository's name")


def _read(path: Path, shown: str, home: Path | None) -> str:
    try:
        if home is not None and path.is_symlink() and home not in path.resolve(strict=True).parents:
            raise BadInput(f"{shown!r} is a link that leads out of the model's folder", "give the folder it leads to")
        raw = _bytes(path, shown)
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown!r} is not text", "is it a model's config.json?") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: pathlib of Python 3.11 on a loop of links
        reason = getattr(error, "strerror", None) or "a loop of links"
        raise BadInput(f"{shown!r} cannot be read: {reason}", "check the path and its rights") from error


def _bytes(path: Path, shown: str) -> bytes:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{shown!r} is not a regular file", "give a model's folder or its config.json")
    if found.st_size > MAX_BYTES:
        raise BadInput(
            f"{shown!r} has {found.st_size:,} bytes; a config has at most {MAX_BYTES:,}", "is it a config.json?"
        )
    with path.open("rb") as file:
        return file.read(MAX_BYTES)
