"""The door to the Hugging Face hub: config.json and the size of the tensors, by the hub's own client.

Decision: `huggingface_hub` is imported here and only inside functions (it costs more than all of `recommend`). It
finds the token itself (HF_TOKEN or a login); nothing here reads, keeps or prints one. Each of its failures becomes one
line of ours, and no text of the client or the server is passed on, since it may quote a request's headers.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.catalog.hub_files import CONFIG, MAX_BYTES, QUANTIZATION, cache_folder, read_json
from vllm_advisor.errors import AdvisorError, BadInput, UnknownModel


if TYPE_CHECKING:
    from collections.abc import Callable


_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
# DeepSeek-V3's index, of the largest there are, has 8.9 MB; beyond this the size is not worth the transfer.
_MAX_INDEX = 16 << 20
_TIMEOUT = 10.0
_TRUE = frozenset(("1", "ON", "YES", "TRUE"))


class _NoSuchFile(BadInput):
    """The repository is there, the file is not."""


def offline_by_environment() -> bool:
    """Whether HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids the network, as the client itself reads them."""
    return any(os.environ.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def download(repository: str, revision: str | None) -> Path:
    """Fetch a repository's config.json (and ModelOpt's, where there is one) into the cache; the snapshot's folder.

    Raises UnknownModel where there is no such repository or no hub, BadInput where there is one without our file.
    """
    _quiet()
    config = _fetch(repository, CONFIG, revision)
    if "quantization_config" not in read_json(config, f"{repository}/{CONFIG}"):
        with suppress(_NoSuchFile):  # as vLLM does (transformers_utils/config.py:956); most repositories have none
            _fetch(repository, QUANTIZATION, revision)
    return config.parent


def fetch_index(repository: str, revision: str | None) -> bool:
    """Whether the index of the safetensors files now lies in the cache beside the config; never raises."""
    with suppress(Exception):  # a size is nice to have: without it the bytes are computed from the shapes
        return _file(repository, _INDEX, revision, _MAX_INDEX).is_file()
    return False


def single_file_bytes(repository: str, revision: str | None) -> int | None:
    """Bytes of all tensors of a checkpoint in one safetensors file, from the file's header alone; None: not told."""
    from huggingface_hub import HfApi  # noqa: PLC0415

    with suppress(Exception):
        found = HfApi(endpoint=_endpoint()).parse_safetensors_file_metadata(repository, _SINGLE, revision=revision)
        return max(tensor.data_offsets[1] for tensor in found.tensors.values())
    return None


def _fetch(repository: str, name: str, revision: str | None) -> Path:
    try:
        return _file(repository, name, revision, MAX_BYTES)
    except AdvisorError:
        raise
    except Exception as error:  # noqa: BLE001  by version the client raises httpx's, requests' or its own errors
        raise _translated(error, repository, revision) from None


def _file(repository: str, name: str, revision: str | None, limit: int) -> Path:
    """One file through the cache, after a look at its size."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url  # noqa: PLC0415

    url = hf_hub_url(repository, name, revision=revision, endpoint=_endpoint())
    size = get_hf_file_metadata(url, timeout=_timeout()).size
    if size is not None and size > limit:
        raise BadInput(f"{name} of {repository!r} has {size:,} bytes; at most {limit:,} are read", "is it a model?")
    path = hf_hub_download(
        repository, name, revision=revision, cache_dir=cache_folder(), endpoint=_endpoint(), etag_timeout=_timeout()
    )
    return Path(path)


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _timeout() -> float:
    """Seconds, by the client's own variable; a value that is no number counts as not set."""
    try:
        return float(os.environ["HF_HUB_ETAG_TIMEOUT"])
    except (KeyError, ValueError):
        return _TIMEOUT


def _quiet() -> None:
    """No progress bars and no notes: stderr is ours."""
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if os.environ.get("HF_HUB_DISABLE_PROGRESS_BARS") is None:
        disable_progress_bars()


def _translated(error: Exception, repository: str, revision: str | None) -> AdvisorError:
    """The client's error as one of ours: most specific class first."""
    from huggingface_hub import errors  # noqa: PLC0415

    table: tuple[tuple[type[Exception], Callable[[], AdvisorError]], ...] = (
        (errors.GatedRepoError, lambda: _gated(repository)),
        (errors.RepositoryNotFoundError, lambda: _absent(repository)),
        (errors.RevisionNotFoundError, lambda: _no_revision(repository, revision)),
        (errors.OfflineModeIsEnabled, lambda: unreachable(repository, "the network is switched off (HF_HUB_OFFLINE)")),
        (errors.LocalEntryNotFoundError, lambda: unreachable(repository, "the hub does not answer")),
        (errors.EntryNotFoundError, lambda: _no_config(repository)),
        (errors.HFValidationError, lambda: _absent(repository)),
        (errors.HfHubHTTPError, lambda: _status(error, repository)),
    )
    return next((make() for kind, make in table if isinstance(error, kind)), unreachable(repository, _cause(error)))


def unreachable(repository: str, why: str) -> UnknownModel:
    """A name that neither the catalog nor this disk knows, while the hub cannot be asked."""
    return UnknownModel(
        f"{repository!r} is neither in the catalog nor on this disk, and {why}",
        "give a local folder or config.json, or run it where the hub can be reached",
    )


def _cause(error: Exception) -> str:
    timed_out = isinstance(error, TimeoutError) or "Timeout" in type(error).__name__
    return (
        f"the hub did not answer in {_timeout():g} s"
        if timed_out
        else f"the hub cannot be reached ({type(error).__name__})"
    )


def _gated(repository: str) -> BadInput:
    return BadInput(
        f"{repository!r} is gated: its owner wants its terms accepted first",
        f"accept them at https://huggingface.co/{repository} and set HF_TOKEN, or give a local folder",
    )


def _absent(repository: str) -> UnknownModel:
    return UnknownModel(
        f"no model {repository!r} in the catalog, on this disk or on the hub",
        "check the spelling; a private repository needs HF_TOKEN",
    )


def _no_revision(repository: str, revision: str | None) -> BadInput:
    return BadInput(f"{repository!r} has no revision {revision!r}", "give a branch, a tag or a commit, or leave it out")


def _no_config(repository: str) -> BadInput:
    return _NoSuchFile(
        f"{repository!r} has no config.json, so it is not a transformers checkpoint (GGUF, LoRA, diffusers, …)",
        "give the repository of the base model",
    )


def _status(error: Exception, repository: str) -> AdvisorError:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in {401, 403}:
        return BadInput(f"the hub refuses {repository!r} to this token ({status})", "check HF_TOKEN and its rights")
    if status == 429:
        return unreachable(repository, "the hub limits the rate of requests (429): try again later")
    return unreachable(repository, f"the hub answers {status or 'with an error'}")
