"""From what a user typed to a ModelSpec: this disk first, then the catalog, the Hugging Face cache and the hub.

Decision: whatever is nearest answers. A folder is what the user has; the catalog needs no network; the cache is what
was fetched before; the hub comes last, and only when it is allowed. Nothing from a repository is executed: only
JSON is read, and `auto_map` is ignored.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.catalog import hub_files, models
from vllm_advisor.errors import BadInput, UnknownModel


if TYPE_CHECKING:
    from vllm_advisor.model.spec import ModelSpec


# huggingface_hub/utils/_validators.py: at most 96 characters of [\w.-] a part, no "--" and no "..".
_REPOSITORY = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_][\w.-]{0,95}(?:/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_REVISION = re.compile(r"(?!.*\.\.)[\w][\w./+-]{0,199}", re.ASCII)


def resolve(name: str, *, revision: str | None = None, offline: bool = False, trust_local: bool = True) -> ModelSpec:
    """The model that `name` means: a folder, a config.json, a catalog name, or a Hugging Face repository.

    `revision` (branch, tag or commit) other than `main` skips the catalog, which knows only the current files.
    `offline` never touches the network; `trust_local=False` never reads a path of this machine.
    Raises UnknownModel (with the nearest names), UnsupportedModel, or BadInput for a broken folder or config.
    """
    if trust_local and (path := _path(name)) is not None:
        return _from_path(path, name)
    if revision in {None, "main"} and (known := models.find(name)) is not None:
        return known
    _check(name, revision)
    return _from_cache(name, revision) or _from_hub(name, revision, offline=offline)


def _path(name: str) -> Path | None:
    """The existing path of that name, if there is one."""
    try:
        path = Path(name)
        return path if name and (path.exists() or path.is_symlink()) else None
    except (OSError, ValueError):  # longer than a path can be, or with a NUL
        return None


def _from_path(path: Path, name: str) -> ModelSpec:
    if path.suffix.lower() == ".gguf":
        raise BadInput(f"{name!r} is a GGUF file", hub_files.GGUF_HINT)
    if path.is_dir():
        return _from_folder(path, name, source="a local folder", provenance="local")
    config = hub_files.read_json(path, name)
    return _read(config, name, "a local config.json", "local")


def _from_folder(folder: Path, name: str, *, source: str, provenance: str) -> ModelSpec:
    spec = _read(hub_files.config_of(folder, name), name, source, provenance)
    return replace(spec, exact_weight_bytes=_exact_bytes(folder, name))


def _exact_bytes(folder: Path, name: str) -> int | None:
    from vllm_advisor.model.weights_index import exact_bytes  # noqa: PLC0415  the catalog's names never need it

    try:
        return exact_bytes(folder) if hub_files.is_complete(folder) else None
    except OSError as error:
        raise BadInput(f"the weights of {name!r} cannot be read: {error.strerror}", "check the rights") from error


def _from_cache(name: str, revision: str | None) -> ModelSpec | None:
    snapshot = hub_files.cached(name, revision)
    if snapshot is None:
        return None
    return models.adopt(_from_folder(snapshot, name, source=_source("cache", revision), provenance="hub"))


def _from_hub(name: str, revision: str | None, *, offline: bool) -> ModelSpec:
    from vllm_advisor.catalog import hub_remote  # noqa: PLC0415  only a name that nothing here knows comes so far

    try:
        if offline or hub_remote.offline_by_environment():
            raise hub_remote.unreachable(name, "the network is switched off")
        snapshot = hub_remote.download(name, revision)
    except UnknownModel as error:
        raise _with_nearest(error, name) from None
    indexed = hub_remote.fetch_index(name, revision)
    spec = _from_folder(snapshot, name, source=_source("hub", revision), provenance="hub")
    if not indexed and spec.exact_weight_bytes is None:
        spec = replace(spec, exact_weight_bytes=hub_remote.single_file_bytes(name, revision))
    return models.adopt(spec)


def _read(config: object, name: str, source: str, provenance: str) -> ModelSpec:
    from vllm_advisor.model.config import read  # noqa: PLC0415  the catalog's names never need it

    return read(config, name=name, source=source, provenance=provenance)


def _source(place: str, revision: str | None) -> str:
    return f"the Hugging Face {place}" + (f", revision {revision}" if revision else "")


def _check(name: str, revision: str | None) -> None:
    """Refuse what can be no repository, before it becomes part of a path or an address."""
    if not _REPOSITORY.fullmatch(name):
        raise _with_nearest(UnknownModel(f"{_short(name)!r} is no folder or file here, and no repository's name"), name)
    if revision is not None and not _REVISION.fullmatch(revision):
        raise BadInput(f"{_short(revision)!r} is no revision", "give a branch, a tag or a commit")


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."


def _with_nearest(error: UnknownModel, name: str) -> UnknownModel:
    near = ", ".join(models.nearest(name[:200]))
    return UnknownModel(error.message, f"nearest in the catalog: {near}" + (f"; {error.hint}" if error.hint else ""))
