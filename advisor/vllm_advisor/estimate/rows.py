"""A batch: one row in, one row out, in order; a row that cannot be answered says why and stops no other.

Figures are GiB on the rank that limits, under the names that `advisor estimate --batch` documents. Everything that
rows share (a configuration, a device, a version) is read once.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import AdvisorError, BadInput, UnknownGpu, UnknownModel, UnknownVllm, UnsupportedModel
from vllm_advisor.estimate import fields, flags, release, speed
from vllm_advisor.estimate.asked import as_memory_row, names_a_load
from vllm_advisor.estimate.asked import asked as asked_of
from vllm_advisor.estimate.configuration import Configuration, Estimated, estimate
from vllm_advisor.estimate.machine import machine as machine_named
from vllm_advisor.memory.identity import Identity
from vllm_advisor.units import GIB


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_advisor.estimate.checkpoint import Checkpoint, Shelf
    from vllm_advisor.estimate.fields import Request
    from vllm_advisor.estimate.machine import Machine
    from vllm_advisor.vllm.surface import Surface

_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]+)')
_UNANSWERABLE = (UnknownGpu, UnknownModel, UnknownVllm, UnsupportedModel)


class Unsupported(AdvisorError):
    """A row that asks for something that is not modelled: an answer, not a mistake of the row."""


class Parallel(NamedTuple):
    """Ranks of a row: TP may have to be told from the devices that it names."""

    tp: int
    devices: int
    assumed: tuple[str, ...] = ()


def answers(lines: Iterable[bytes], shelf: Shelf, *, given_kv: bool = False) -> Iterator[str]:
    """One JSON object a line of `lines`, blank lines skipped.

    `given_kv`: take the KV cache's size from the row's `kv_mem_gib`, and predict only what it holds.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield json.dumps(_answer(line, number, shelf, given_kv=given_kv), allow_nan=False)


def _answer(line: bytes, number: int, shelf: Shelf, *, given_kv: bool) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return {"id": _rescued(line), "error": f"line {number} is no JSON: {str(error)[:120]}"}
    if not isinstance(row, dict):
        return {"id": None, "error": f"line {number} is no JSON object"}
    return predict(row, shelf, given_kv=given_kv)


def predict(row: dict[str, Any], shelf: Shelf, *, given_kv: bool = False) -> dict[str, Any]:
    """The figures of one row, or `unsupported` or `error` with why; never raises for what a row holds."""
    name = row.get("id")
    try:
        return {"id": name, **_answered(row, shelf, given_kv=given_kv)}
    except (Unsupported, *_UNANSWERABLE) as error:
        return {"id": name, "unsupported": error.message}
    except AdvisorError as error:
        return {"id": name, "error": error.message}
    except Exception as error:  # noqa: BLE001  whatever a row holds, the rows after it are answered
        return {"id": name, "error": f"could not be estimated ({type(error).__name__}: {str(error)[:200]})"}


def server(row: dict[str, Any], shelf: Shelf) -> speed.Server:
    """What the speed of a measured row is computed from. Raises AdvisorError where it cannot be told."""
    found, given = _estimated(as_memory_row(row), shelf, given_kv=False, ran=True)
    return speed.server(found, given, asked_of(row))


def _answered(row: dict[str, Any], shelf: Shelf, *, given_kv: bool) -> dict[str, Any]:
    """Memory, and speed where the row names lengths or a load."""
    if not names_a_load(row):
        found, _ = _estimated(row, shelf, given_kv=given_kv)
        return _figures(found)
    load = asked_of(row)
    found, given = _estimated(as_memory_row(row), shelf, given_kv=given_kv, ran=True)
    found = found._replace(assumed=found.assumed + load.assumed)
    return _figures(found) | speed.figures(found, given, load)


def _estimated(
    row: dict[str, Any], shelf: Shelf, *, given_kv: bool, ran: bool = False
) -> tuple[Estimated, Configuration]:
    """A row's memory, and the configuration that it named. `ran`: the row is of a server that somebody measured."""
    asked = fields.request(row)
    named, gpu = _named(asked)
    loaded = shelf.checkpoint(named, asked.config, asked.quantization, flags.draft(asked.other_flags))
    if loaded.spec.unknowns:
        raise Unsupported("; ".join(loaded.spec.unknowns))
    version = release.of_row(asked.vllm_version, asked.date)
    if ran:
        stored = speed.stored_as(Identity(loaded.spec), asked.quantization or "")
        loaded = loaded._replace(spec=stored)
    found, given = _on_devices(asked, gpu, loaded, version.surface, _given_kv(row) if given_kv else None, ran=ran)
    assumed = version.assumed + loaded.assumed + found.assumed
    return found._replace(assumed=assumed + flags.unmodelled(asked.other_flags)), given


def _on_devices(
    asked: Request, gpu: str, loaded: Checkpoint, surface: Surface, kv_bytes: int | None, *, ran: bool
) -> tuple[Estimated, Configuration]:
    """On the devices that the row counts; a measured one whose row counts none had the fewest that hold it."""
    counts = (1, 2, 4, 8) if ran and not (asked.devices or asked.tp) else (asked.devices,)
    for count in counts:
        counted = asked._replace(devices=count)
        ranks = _ranks(counted, machine_named(gpu, count, asked.memory_bytes))
        machine = machine_named(gpu, ranks.devices, asked.memory_bytes)
        given = _configuration(asked, ranks.tp, loaded.online)
        given = given._replace(kv_cache_memory_bytes=kv_bytes or given.kv_cache_memory_bytes)
        found = estimate(loaded.spec, machine.node, surface, given)
        if found.budget.fits:
            break
    return found._replace(assumed=machine.assumed + ranks.assumed + found.assumed), given


def _named(asked: Request) -> tuple[str, str]:
    """The model and the GPU of a row that can be answered."""
    if asked.wide:
        raise Unsupported("float32 weights are not modelled")
    if not asked.model:
        raise Unsupported("no model named")
    if not asked.gpu:
        raise Unsupported("no GPU named")
    return asked.model, asked.gpu


def _given_kv(row: dict[str, Any]) -> int | None:
    value = row.get("kv_mem_gib")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput("kv_mem_gib is not a number")
    return int(value * GIB) if value > 0 else None


def _ranks(asked: Request, machine: Machine) -> Parallel:
    """TP as given; else all devices that the row or the machine's name counts; never more than DP and PP leave."""
    others = asked.pp * asked.dp
    devices = asked.devices or machine.node.world
    if asked.tp:
        return Parallel(asked.tp, max(devices, asked.tp * others))
    tp = max(1, devices // others)
    words = (f"tensor_parallel_size {tp}: all devices that are named",) if tp > 1 else ("tensor_parallel_size 1",)
    return Parallel(tp, max(devices, tp * others), words)


def _configuration(asked: Request, tp: int, online: str | None) -> Configuration:
    return Configuration(
        tp,
        asked.pp,
        asked.dp,
        asked.dcp,
        asked.expert_parallel,
        online,
        asked.kv_cache_dtype,
        asked.max_model_len,
        asked.gpu_memory_utilization,
        asked.max_num_seqs,
        asked.max_num_batched_tokens,
        asked.enforce_eager,
        asked.block_size,
        asked.kv_cache_memory_bytes,
        asked.env,
        flags.is_adapted(asked.other_flags),
    )


def _figures(found: Estimated) -> dict[str, Any]:
    budget = found.budget
    return {
        "weights_gib": _gib(budget.weights),
        "kv_cache_gib": _gib(budget.kv_cache.mid),
        "kv_cache_gib_low": _gib(budget.kv_cache.low),
        "kv_cache_gib_high": _gib(budget.kv_cache.high),
        "kv_tokens": budget.kv_tokens,
        "max_concurrency": round(budget.max_concurrency, 4),
        "cuda_graph_gib": _gib((budget.captured or budget.graphs).mid),
        "activation_gib": _gib(budget.activation.mid),
        "non_torch_gib": _gib(budget.non_torch.mid),
        "outcome": "ok" if budget.fits else "fail",
        "reasons": list(budget.limits),
        "vllm": found.surface.version,
        "assumed": list(found.assumed),
    }


def _gib(size: float) -> float:
    return round(size / GIB, 4)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _rescued(line: bytes) -> Any:
    """The id of a line that is broken elsewhere, None where it cannot be read."""
    found = _ID.search(line)
    try:
        return json.loads(found[1]) if found else None
    except ValueError:
        return None
