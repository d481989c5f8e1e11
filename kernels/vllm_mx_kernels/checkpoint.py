"""The checkpoint writer: a bf16 model folder becomes one that `advisor_mxfp4` serves, a piece of a tensor at a time.

A finished shard appears under its name in one step and is noted, with its digest, in a state file; a run that was
killed goes on with the first shard that is missing or no longer what it was. config.json comes last, so that nobody
serves half a model. Nothing of the model is imported or executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import torch

from vllm_mx_kernels.checkpoint_files import BadFileError, Entry, layout, read_bytes, replacing, write_json
from vllm_mx_kernels.checkpoint_plan import INDEX, Piece, Plan, Shard
from vllm_mx_kernels.checkpoint_rules import FORMAT, NAME
from vllm_mx_kernels.formats import BLOCK, E8M0_NAN
from vllm_mx_kernels.mxfp4 import dequantize_mxfp4, quantize_mxfp4


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vllm_mx_kernels.scales import ScaleMode

STATE = "advisor-quantize.json"
PIECE = 1 << 22  # elements in memory at a time
_COPY_BYTES = 1 << 24
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
# Kept beside the weights: tokenizer, generation defaults, processors, chat template, licence.
_COPIED = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "LICENSE*", "README.md")


class Loss(NamedTuple):
    """What quantizing cost a weight: ‖w − q(w)‖ / ‖w‖."""

    module: str
    relative_rms: float


class Result(NamedTuple):
    """What was written: `errors` of every weight in order; `resumed` shards were there from an earlier run."""

    bytes_before: int
    bytes_after: int
    errors: tuple[Loss, ...]
    kept: tuple[str, ...]
    resumed: int

    @property
    def relative_rms(self) -> float:
        """The root mean square over all weights, each counting once."""
        return math.sqrt(sum(e.relative_rms**2 for e in self.errors) / max(len(self.errors), 1))

    def worst(self, count: int) -> list[Loss]:
        """The weights with the largest error, the largest first."""
        return sorted(self.errors, key=lambda e: (-e.relative_rms, e.module))[:count]


def write(source: Path, out: Path, plan: Plan, mode: ScaleMode, tell: Callable[[str], None]) -> Result:
    """Write what `plan` says into `out`, going on where an earlier run stopped. `tell` gets a line a shard.

    Raises BadFileError when `out` holds something else or a source changed in between; OSError as the disk does.
    """
    finished = _open(source, out, plan, mode)
    _check_space(out, plan)
    resumed = 0
    for number, shard in enumerate(plan.shards, 1):
        if _is_intact(out / shard.name, finished.get(shard.name)):
            resumed += 1
            tell(f"{number}/{len(plan.shards)} {shard.name}: there already, verified")
            continue
        losses = _write_shard(source, out, shard, mode)
        finished[shard.name] = {"sha256": _digest(out / shard.name), "errors": losses}
        _save(source, out, plan, mode, finished)
        tell(f"{number}/{len(plan.shards)} {shard.name}: {len(shard.pieces)} weights quantized")
    _finish(source, out, plan, mode)
    errors = tuple(Loss(*error) for shard in plan.shards for error in finished[shard.name]["errors"])
    return Result(plan.bytes_before, plan.bytes_after, errors, plan.kept, resumed)


def _open(source: Path, out: Path, plan: Plan, mode: ScaleMode) -> dict[str, Any]:
    """The finished shards of an earlier run of the same job."""
    out.mkdir(parents=True, exist_ok=True)
    if out.resolve() == source.resolve():
        raise BadFileError(f"{out} is the model itself; name another folder")
    state = _state(out)
    if state is None:
        if any(out.iterdir()):
            raise BadFileError(f"{out} is not empty, and nothing of ours; name an empty folder")
        _save(source, out, plan, mode, {})
        return {}
    if state["job"] != _job(source, plan, mode):
        raise BadFileError(f"{out} was begun from other weights or with other options; name an empty folder")
    return dict(state["shards"])


def _state(out: Path) -> dict[str, Any] | None:
    try:
        state = json.loads((out / STATE).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        state = {}
    if not (isinstance(state, dict) and isinstance(state.get("shards"), dict) and "job" in state):
        raise BadFileError(f"{out / STATE} cannot be read; empty the folder")
    return state


def _save(source: Path, out: Path, plan: Plan, mode: ScaleMode, finished: dict[str, Any]) -> None:
    write_json(out / STATE, {"job": _job(source, plan, mode), "shards": finished})


def _job(source: Path, plan: Plan, mode: ScaleMode) -> str:
    """A digest of all that the result depends on: files by size and time, what is quantized, and how."""
    stats = [(source / shard.name).stat() for shard in plan.shards]
    parts = [mode, [(s.st_size, s.st_mtime_ns) for s in stats], [shard.tensors() for shard in plan.shards]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _check_space(out: Path, plan: Plan) -> None:
    needed = sum(shard.bytes_after for shard in plan.shards if not (out / shard.name).exists())
    free = shutil.disk_usage(out).free
    if needed > free:
        raise BadFileError(f"{out} has {free / 2**30:.2f} GiB free, and {needed / 2**30:.2f} GiB are to be written")


def _is_intact(path: Path, noted: dict[str, Any] | None) -> bool:
    return noted is not None and path.is_file() and _digest(path) == noted["sha256"]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_shard(source: Path, out: Path, shard: Shard, mode: ScaleMode) -> list[Loss]:
    header, entries = layout(shard.tensors())
    places = {entry.name: entry.begin for entry in entries}
    with (source / shard.name).open("rb") as read, replacing(out / shard.name) as written:
        written.write(header)
        for entry in shard.copied:
            _copy(read, entry, written, places[entry.name])
        return [_quantize(read, piece, written, places, mode) for piece in shard.pieces]


def _copy(read: IO[bytes], entry: Entry, written: IO[bytes], place: int) -> None:
    written.seek(place)
    for start in range(0, entry.size, _COPY_BYTES):
        written.write(read_bytes(read, entry.begin + start, min(_COPY_BYTES, entry.size - start)))


def _quantize(read: IO[bytes], piece: Piece, written: IO[bytes], places: dict[str, int], mode: ScaleMode) -> Loss:
    place = places[f"{piece.module}.weight"], places[f"{piece.module}.weight_scale"]
    noise = signal = 0.0
    for first, rows in _row_blocks(read, piece):
        weight = quantize_mxfp4(rows, mode)
        if (weight.scales == E8M0_NAN).any():
            raise BadFileError(f"{piece.module}.weight holds NaN or infinity")
        widths = (piece.k // 2, piece.k // BLOCK)
        for begin, width, part in zip(place, widths, weight, strict=True):
            written.seek(begin + first * width)
            written.write(part.contiguous().numpy().tobytes())
        exact = rows.float()
        noise += float((dequantize_mxfp4(weight, torch.float32) - exact).double().square().sum())
        signal += float(exact.double().square().sum())
    return Loss(piece.module, math.sqrt(noise / signal) if signal else 0.0)


def _row_blocks(read: IO[bytes], piece: Piece) -> Iterator[tuple[int, torch.Tensor]]:
    """(row within the piece, [rows, K]) a bounded number of elements at a time."""
    dtype = _DTYPES[piece.entry.dtype]
    row_bytes = piece.k * dtype.itemsize
    step = max(PIECE // piece.k, 1)
    for first in range(0, piece.rows, step):
        rows = min(step, piece.rows - first)
        data = read_bytes(read, piece.entry.begin + (piece.first + first) * row_bytes, rows * row_bytes)
        yield first, torch.frombuffer(data, dtype=dtype).view(rows, piece.k)


def _finish(source: Path, out: Path, plan: Plan, mode: ScaleMode) -> None:
    """The index, the files beside the weights, and last config.json."""
    if len(plan.shards) > 1:
        held = {name: shard.name for shard in plan.shards for name in shard.tensors()}
        write_json(out / INDEX, {"metadata": {"total_size": plan.bytes_after}, "weight_map": held})
    for path in sorted({path for pattern in _COPIED for path in source.glob(pattern)}):
        if path.is_file() and path.name not in {"config.json", STATE} and not path.name.endswith(".index.json"):
            with replacing(out / path.name) as file, path.open("rb") as read:
                shutil.copyfileobj(read, file)
    write_json(out / "config.json", plan.config | {"quantization_config": quantization_config(plan, mode)})


def quantization_config(plan: Plan, mode: ScaleMode) -> dict[str, Any]:
    """What config.json says of the weights; the plugin's `from_config` reads it."""
    return {
        "quant_method": NAME, "format": FORMAT, "group_size": BLOCK, "scale_mode": mode, "ignore": list(plan.kept),
    }  # fmt: skip
