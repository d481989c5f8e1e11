"""What the tuner found, for the server: one JSON file of launches, each with what it holds for.

    {"schema": 1, "entries": [{
        "op": "mxfp4.w4a16",        # or "cpu.mxfp4.linear", "moe.w4a8", …: the names of `launch.TABLE`
        "arch": "sm90",             # of `targets`; for a CPU its instruction set: "avx512"
        "device": "NVIDIA H100",    # as the driver (the kernel, for a CPU) names it
        "tokens": 16,               # the bucket: 9 … 16 tokens; buckets end at powers of two, the last has no end
        "n": 4096, "k": 4096,       # rows and reduced dimension of the weight; of gate_up [E, n, k] in a MoE
        "experts": 0, "top_k": 0,
        "source": "9f0c…",          # `source_hash` of the kernel bodies
        "triton": "3.8.0", "driver": "575.57", "runtime": "CUDA 13.0",
        "launch": {"block_m": 16, …}   # a Launch; or "tile": a CpuTile; a number that is left out is the default
    }]}

ADVISOR_KERNEL_CONFIGS names the file. It is read once a process, when the first product asks. An entry counts where
arch, device, source and Triton are those of the machine; driver and runtime are recorded for the tuner, which times an
old winner again. A bucket without an entry keeps its default: taking the nearest one's can be slower than that.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mx_kernels.tiles import CpuTile, Launch


if TYPE_CHECKING:
    from collections.abc import Iterable

ENVIRONMENT = "ADVISOR_KERNEL_CONFIGS"
SCHEMA = 1
LAST_BUCKET = 8192
CPU_LINEAR = "cpu.mxfp4.linear"
_LOGGER = logging.getLogger("vllm.advisor_mxfp4.configs")  # a child of vLLM's own, so that its handler and level apply
_HERE = Path(__file__).parent
_BODIES = {
    "mxfp4": ("_mxfp4_triton.py",),
    "moe": ("_moe_triton.py", "_mxfp4_triton.py"),
    "fp8": ("_fp8_triton.py", "_mxfp4_triton.py"),
    "kv": ("_kv_triton.py",),
    "cpu": ("cpu/*.cpp", "cpu/*.h"),
}


class HandoffError(ValueError):
    """A file that is no hand-off, for the reason that the message gives in one line."""


class Key(NamedTuple):
    """What an entry is looked up by; `tokens` is the bucket's last number of tokens."""

    op: str
    arch: str
    tokens: int
    n: int
    k: int
    experts: int = 0
    top_k: int = 0


class Entry(NamedTuple):
    """One winner, and the facts that it holds for."""

    key: Key
    device: str
    source: str
    triton: str
    driver: str
    runtime: str
    launch: Launch | CpuTile


def token_bucket(tokens: int) -> int:
    """The last number of tokens of the bucket: 1, 2, 4, … 8192, the last one for all beyond."""
    return min(1 << max(tokens - 1, 0).bit_length(), LAST_BUCKET)


@cache
def source_hash(op: str) -> str:
    """Sixteen hexadecimal digits that change with the kernel bodies of an op. Raises KeyError for an unknown op."""
    digest = hashlib.sha256()
    for pattern in _BODIES[op.partition(".")[0]]:
        for path in sorted(_HERE.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def write_configs(path: Path | str, entries: Iterable[Entry]) -> None:
    """Replace the file, in one step: sorted, so that the same entries are the same bytes. Raises OSError.

    Of entries with one key and device the last one counts.
    """
    path = Path(path)
    kept = {(entry.key, entry.device): entry for entry in entries}
    document = {"schema": SCHEMA, "entries": [_as_json(kept[key]) for key in sorted(kept)]}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(json.dumps(document, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    _keep_rename(path.parent)


def _keep_rename(folder: Path) -> None:
    with suppress(OSError):  # not every file system syncs folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _as_json(entry: Entry) -> dict[str, Any]:
    facts = {name: getattr(entry, name) for name in _FACTS}
    form = "launch" if isinstance(entry.launch, Launch) else "tile"
    return {**entry.key._asdict(), **facts, form: entry.launch._asdict()}


_FACTS = ("device", "source", "triton", "driver", "runtime")


def read_configs(path: Path | str) -> tuple[Entry, ...]:
    """All entries of a file, stale ones included. Raises HandoffError for a file that is missing or no hand-off."""
    try:
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise HandoffError(error.strerror or str(error)) from error
    except ValueError as error:
        raise HandoffError(f"no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("entries"), list):
        raise HandoffError("no object with entries")
    if document.get("schema") != SCHEMA:
        raise HandoffError(f"schema {document.get('schema')!r}, and this release reads {SCHEMA}")
    return tuple(_entry(number, one) for number, one in enumerate(document["entries"]))


def _entry(number: int, one: Any) -> Entry:
    if not isinstance(one, dict):
        raise HandoffError(f"entry {number} is no object")
    numbers = {"tokens", "n", "k", "experts", "top_k"}
    key = Key(**{name: _typed(number, one, name, int if name in numbers else str) for name in Key._fields})
    facts = {name: _typed(number, one, name, str) for name in _FACTS}
    return Entry(key, **facts, launch=_launch(number, one))


def _typed(number: int, one: dict[str, Any], name: str, kind: type) -> Any:
    value = one.get(name, 0 if name in {"experts", "top_k"} else None)
    if type(value) is not kind:
        raise HandoffError(f"entry {number}: {name} is {value!r}")
    return value


def _launch(number: int, one: dict[str, Any]) -> Launch | CpuTile:
    form = CpuTile if "tile" in one else Launch
    values = one.get("tile", one.get("launch"))
    if not isinstance(values, dict) or not set(values) <= set(form._fields):
        raise HandoffError(f"entry {number}: no launch or tile of known numbers")
    if any(type(value) is not int for value in values.values()):
        raise HandoffError(f"entry {number}: a launch or tile is made of whole numbers")
    return form(**values)


# What a process has read ---------------------------------------------------------------------------------------


class Table(NamedTuple):
    """The entries that hold on this machine, where they come from, and the ops that have taken one."""

    launches: dict[Key, Launch | CpuTile]
    path: str
    used: set[str]


_EMPTY = Table({}, "", set())


def tuned(key: Key) -> Launch | CpuTile | None:
    """The launch of a bucket that was tuned on this machine, or None. Says once for each op that it was taken."""
    table = configs()
    found = table.launches.get(key) if table.launches else None
    if found is not None and key.op not in table.used:
        table.used.add(key.op)
        _LOGGER.info("%s: tile %s for %s, from %s", key.op, found.tile, bucket_text(key), table.path)
    return found


def bucket_text(key: Key) -> str:
    """`m<=16 n4096 k4096`, with ` e32 top4` for a mixture of experts."""
    tokens = f"m>{LAST_BUCKET // 2}" if key.tokens >= LAST_BUCKET else f"m<={key.tokens}"
    return f"{tokens} n{key.n} k{key.k}" + (f" e{key.experts} top{key.top_k}" if key.experts else "")


@cache
def configs() -> Table:
    """The file of ADVISOR_KERNEL_CONFIGS, read at the first call, and a line of the log about it. Never raises."""
    path = os.environ.get(ENVIRONMENT, "")
    if not path:
        return _EMPTY
    try:
        entries = read_configs(path)
        stale = [why_stale(entry) for entry in entries]
    except Exception as error:  # noqa: BLE001  somebody's server runs here
        reason = str(error).partition("\n")[0] or type(error).__name__
        _LOGGER.warning("%s: default launches for all products: %s: %s", ENVIRONMENT, path, reason)
        return _EMPTY
    taken = {entry.key: entry.launch for entry, why in zip(entries, stale, strict=True) if not why}
    counts = Counter(filter(None, stale))
    ignored = ", ".join(f"{count} {why}" for why, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])))
    _LOGGER.info("%s: took %d entries of %s, ignored %d%s", ENVIRONMENT, len(taken), path, counts.total(),
                 f" ({ignored})" if ignored else "")  # fmt: skip
    return Table(taken, path, set())


def forget() -> None:
    """Read the file again at the next product: for tests, and for a process that has just written it."""
    configs.cache_clear()


def why_stale(entry: Entry) -> str:
    """Why an entry does not hold here: `for another device`; "" where it does."""
    from vllm_mx_kernels import machine

    op = entry.key.op
    if op.partition(".")[0] not in _BODIES:
        return "for an unknown op"
    if isinstance(entry.launch, CpuTile) != op.startswith("cpu."):
        return "of the wrong kind"
    if entry.device != machine.device(op):
        return "for another device"
    if entry.source != source_hash(op):
        return "for other kernels"
    return "" if entry.triton == machine.triton_version(op) else "for another Triton"
