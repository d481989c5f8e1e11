"""What `advisor-quantize` will do with a model folder, known from headers alone, before a weight is read."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mx_kernels.checkpoint_files import BadFileError, Entry, read_header
from vllm_mx_kernels.checkpoint_rules import is_kept, matches, stack_of
from vllm_mx_kernels.formats import BLOCK


if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDEX = "model.safetensors.index.json"
FLOATS = ("BF16", "F16", "F32")
_FUSED = ("experts.gate_up_proj", "experts.down_proj")


class Piece(NamedTuple):
    """One module's weight inside a stored tensor: `first` row and `rows` of [.., K], written as `module`.weight."""

    module: str
    entry: Entry
    first: int
    rows: int

    @property
    def k(self) -> int:
        """The reduced dimension."""
        return self.entry.shape[-1]


class Shard(NamedTuple):
    """A file, its tensors that are copied and those that are quantized."""

    name: str
    copied: tuple[Entry, ...]
    pieces: tuple[Piece, ...]

    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """What the new file holds: name → dtype, shape."""
        held = {entry.name: (entry.dtype, entry.shape) for entry in self.copied}
        for piece in self.pieces:
            held[f"{piece.module}.weight"] = ("U8", (piece.rows, piece.k // 2))
            held[f"{piece.module}.weight_scale"] = ("U8", (piece.rows, piece.k // BLOCK))
        return held

    @property
    def bytes_after(self) -> int:
        """Of the tensors of the new file."""
        return sum(Entry(name, dtype, shape, 0).size for name, (dtype, shape) in self.tensors().items())


class Plan(NamedTuple):
    """All shards; `kept` are the modules with a matrix that stays as it is, `bytes_before` the tensors' bytes."""

    config: dict[str, Any]
    shards: tuple[Shard, ...]
    kept: tuple[str, ...]

    @property
    def bytes_before(self) -> int:
        """Of all tensors that are read."""
        stored = {p.entry.name: p.entry.size for s in self.shards for p in s.pieces}
        return sum(stored.values()) + sum(e.size for s in self.shards for e in s.copied)

    @property
    def bytes_after(self) -> int:
        """Of all tensors that are written."""
        return sum(shard.bytes_after for shard in self.shards)

    @property
    def pieces(self) -> int:
        """Weights that are quantized."""
        return sum(len(shard.pieces) for shard in self.shards)


def plan(folder: Path, ignore: Iterable[str]) -> Plan:
    """Decide for every tensor of a local model folder. Raises BadFileError for what is no plain checkpoint."""
    config = read_config(folder)
    files = {name: read_header(folder / name) for name in shard_names(folder)}
    pieces = {e.name: _pieces(e, files, config) for entries in files.values() for e in entries}
    found = [piece for parts in pieces.values() for piece in parts]
    stays = _kept_stacks(found, files, tuple(ignore))
    shards = tuple(_shard(name, entries, pieces, stays) for name, entries in files.items())
    if not any(shard.pieces for shard in shards):
        raise BadFileError(f"{folder} has no weights to quantize: matrices in {', '.join(FLOATS)} that are not ignored")
    return Plan(config, shards, _kept_modules(shards))


def read_config(folder: Path) -> dict[str, Any]:
    """config.json. Raises BadFileError without one, or when the weights are quantized already."""
    config = _read_table(folder / "config.json")
    inner = config.get("text_config")
    for holder in (config, inner if isinstance(inner, dict) else {}):
        done = holder.get("quantization_config") or holder.get("compression_config")
        if done:
            method = done.get("quant_method", "some method") if isinstance(done, dict) else done
            raise BadFileError(f"{folder} is quantized already ({method}); start from its bf16 weights")
    return config


def _read_table(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadFileError(f"{path.parent} has no {path.name}: a local Hugging Face model folder is needed") from None
    except ValueError as error:
        raise BadFileError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadFileError(f"{path} is no table")
    return value


def shard_names(folder: Path) -> list[str]:
    """The index's files; without an index, the folder's. Raises BadFileError when there are none, or one is missing."""
    index = folder / INDEX
    if index.exists():
        names = sorted({str(name) for name in dict(_read_table(index).get("weight_map", {})).values()})
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        if "model.safetensors" in names:
            names = ["model.safetensors"]
    if not names:
        raise BadFileError(f"{folder} has no safetensors files")
    for name in names:
        if "/" in name or "\\" in name or not (folder / name).is_file():
            raise BadFileError(f"{folder} lacks {name}, which its index names")
    return names


def _pieces(entry: Entry, files: dict[str, tuple[Entry, ...]], config: dict[str, Any]) -> tuple[Piece, ...]:
    """The weights in a tensor that could be quantized: one of a matrix, two or one an expert of a fused stack."""
    if entry.dtype not in FLOATS:
        return ()
    if len(entry.shape) == 2 and entry.name.endswith(".weight"):
        return (Piece(entry.name.removesuffix(".weight"), entry, 0, entry.shape[0]),)
    if len(entry.shape) == 3 and entry.name.removesuffix(".weight").endswith(_FUSED):
        return _experts(entry, files, config)
    return ()


def _experts(entry: Entry, files: dict[str, tuple[Entry, ...]], config: dict[str, Any]) -> tuple[Piece, ...]:
    """Of [E, 2 I, H] (gates, then ups) or [E, H, I]; nothing of another layout, such as transposed or alternating."""
    name = entry.name.removesuffix(".weight")
    before, _, last = name.rpartition(".")
    text = config.get("text_config") or config
    shapes = {e.name.removesuffix(".weight"): e.shape for entries in files.values() for e in entries}
    wide, narrow = shapes.get(f"{before}.gate_up_proj", ()), shapes.get(f"{before}.down_proj", ())
    hidden = text.get("hidden_size")
    if len(wide) != 3 or len(narrow) != 3 or f"{before}.gate_up_proj_bias" in shapes:
        return ()
    if wide[1:] != (2 * narrow[2], hidden) or narrow[1] != hidden or wide[1] == hidden:
        return ()
    parts = ("gate_proj", "up_proj") if last == "gate_up_proj" else ("down_proj",)
    rows = entry.shape[1] // len(parts)
    return tuple(
        Piece(f"{before}.{expert}.{part}", entry, (expert * len(parts) + i) * rows, rows)
        for expert in range(entry.shape[0])
        for i, part in enumerate(parts)
    )


def _kept_stacks(found: list[Piece], files: dict[str, tuple[Entry, ...]], ignore: tuple[str, ...]) -> set[str]:
    """Stacks that stay because one of their parts does; also that of experts in a layout that is not known."""
    stays = {stack_of(p.module) for p in found if p.k % BLOCK or is_kept(p.module) or matches(p.module, ignore)}
    known = {piece.entry.name for piece in found}
    unknown = (e.name for es in files.values() for e in es if len(e.shape) > 2 and e.name not in known)
    return stays | {stack_of(name) for name in unknown if ".experts." in name}


def _shard(name: str, entries: tuple[Entry, ...], pieces: dict[str, tuple[Piece, ...]], stays: set[str]) -> Shard:
    taken = {e.name: tuple(p for p in pieces[e.name] if stack_of(p.module) not in stays) for e in entries}
    copied = tuple(entry for entry in entries if not taken[entry.name])
    return Shard(name, copied, tuple(piece for entry in entries for piece in taken[entry.name]))


def _kept_modules(shards: tuple[Shard, ...]) -> tuple[str, ...]:
    """The names that `quantization_config.ignore` needs: whatever has a matrix and is not quantized."""
    matrices = (e.name for s in shards for e in s.copied if math.prod(e.shape) > max(e.shape, default=0))
    modules = (name.removesuffix(".weight") for name in matrices)
    return tuple(sorted({stack_of(m) if ".experts." in m else m for m in modules}))
