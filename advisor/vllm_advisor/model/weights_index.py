"""The exact size of a checkpoint on disk, from its safetensors index or, without one, from the files' headers.

Exact on what is stored; a spec's own `weight_bytes` leaves out what vLLM does not load (draft layers). A repository's
size misleads where it holds several copies (gpt-oss keeps `original/` and `metal/`): only the folder itself is read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vllm_advisor.errors import BadInput


if TYPE_CHECKING:
    from pathlib import Path


INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 256 << 20  # the largest published index (Kimi-K2, 384 experts a layer) has about 10 MiB
MAX_HEADER_BYTES = 100 << 20  # the safetensors format's own limit on a header


def exact_bytes(folder: Path) -> int | None:
    """Bytes of all tensors of the checkpoint in `folder`; None when it has no safetensors files.

    Raises BadInput for an index or header that is broken.
    """
    index = folder / INDEX
    if index.is_file():
        total = _index_total(index)
        if total is not None:
            return total
    files = sorted(p for p in folder.glob("*.safetensors") if p.is_file())
    parts = [p for p in files if p.name.startswith("model")] or files
    return sum(header_bytes(p) for p in parts) if parts else None


def _index_total(index: Path) -> int | None:
    if index.stat().st_size > MAX_INDEX_BYTES:
        raise BadInput(f"{index.name} has {index.stat().st_size} bytes: no safetensors index is that large", _AGAIN)
    try:
        read = json.loads(index.read_bytes())
    except (ValueError, RecursionError):
        raise BadInput(f"{index.name} is not JSON", _AGAIN) from None
    metadata = read.get("metadata") if isinstance(read, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or total <= 0:
        return None
    return total


def header_bytes(file: Path) -> int:
    """Bytes of the tensors of one safetensors file: an 8-byte little-endian length, then a JSON header."""
    size = file.stat().st_size
    with file.open("rb") as handle:
        prefix = handle.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise BadInput(f"{file.name} has no safetensors header", _AGAIN)
        try:
            header = json.loads(handle.read(length))
        except (ValueError, RecursionError):
            raise BadInput(f"the header of {file.name} is not JSON", _AGAIN) from None
    if not isinstance(header, dict):
        raise BadInput(f"the header of {file.name} is not a JSON object", _AGAIN)
    return sum(_tensor_bytes(file.name, n, entry) for n, entry in header.items() if n != "__metadata__")


def _tensor_bytes(file: str, tensor: str, entry: object) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(isinstance(o, int) and not isinstance(o, bool) for o in offsets)
        or not 0 <= offsets[0] <= offsets[1]
    ):
        raise BadInput(f"{tensor[:80]} in {file} has no valid data_offsets", _AGAIN)
    return int(offsets[1] - offsets[0])


_AGAIN = "download the checkpoint again, or remove the broken file"
