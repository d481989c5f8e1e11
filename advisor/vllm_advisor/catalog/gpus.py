"""The GPU catalog: from what people and drivers call a device to its numbers, each with its source.

`find` and `node` read one table of `gpus.toml`, not the file (see gpus_file.py); a name that could mean two devices is
an error that names both, never a guess. Bare names have a documented default (`h100` is the SXM one, `a100` the 80 GB
SXM one): it stands in the catalog as a spelling.
"""

from __future__ import annotations

import re
from dataclasses import replace

from vllm_advisor.catalog import gpus_file, gpus_names, gpus_node
from vllm_advisor.errors import UnknownGpu, UsageError
from vllm_advisor.hardware import Gpu, Node, Vendor


_COUNT = re.compile(r"\s*([0-9]{1,3})\s*[x×*]\s*(?=\S)", re.IGNORECASE)
_TRAILING_COUNT = re.compile(r"[0-9a-z]\s*[x×*:]\s*[0-9]{1,2}\s*$", re.IGNORECASE)
_SEPARATOR = re.compile(r",|\s\+\s")
_SIZE = re.compile(r"(?<![0-9a-z])([0-9]{1,3})\s*gi?b?(?![0-9a-z])", re.IGNORECASE)
_ASIDE = re.compile(r"\([^()]*\)")
_MIG = re.compile(r"\s+MIG\s+([0-9]+)g\.([0-9]+)gb.*", re.IGNORECASE)
_RATES = ("bandwidth", "tflops_bf16", "tflops_fp8", "tflops_fp4")


def find(name: str) -> Gpu:
    """The device that people, clouds or drivers call so, in any usual spelling.

    Raises UnknownGpu: no such device (the three nearest names are in the hint), hardware of another maker, or a name
    that could be two devices.
    """
    return gpus_file.device(_index(name))


def node(text: str, *, count: int = 1, memory_bytes: int | None = None) -> Node:
    """A machine as written: `8xH100`, `h100`, `2x8xMI300X` (two machines of eight), `2xL40S,2xA10`, `cpu`.

    `count` is the number of machines where the text gives none. `memory_bytes` replaces the memory of each device
    (for `cpu`, where the catalog can only assume). Raises UnknownGpu, or UsageError for impossible counts and mixes.
    """
    if count < 1:
        raise UsageError(f"{count} machines are no deployment", "give 1 or more")
    machines, parts = _parts(text)
    if machines > 1 and count > 1 and machines != count:
        raise UsageError(f"{text!r} says {machines} machines, {count} were asked for", "give the number once")
    members = [index for index, devices in parts for _ in range(devices)]
    machines = max(machines, count)
    return Node(
        gpus=tuple(_with_memory(gpus_file.device(index), memory_bytes) for index in members),
        topology=gpus_node.topology(members),
        count=machines,
        network_gb_s=gpus_node.network(members[0]),
        origin="catalog",
        warnings=gpus_node.warnings(members, machines),
    )


def names() -> tuple[str, ...]:
    """The canonical name of every device, in catalog order."""
    return tuple(gpu.name for gpu in all_gpus())


def all_gpus() -> tuple[Gpu, ...]:
    """Every device of the catalog, in catalog order; assumed processors come last."""
    return tuple(gpus_file.device(i) for i in range(len(gpus_file.blocks())))


def match_probed(name: str, arch: str, memory_bytes: int) -> Gpu | None:
    """The rates of a device that a probe found, or None: then the probe has to say that they are not known.

    `name` as NVML or amdsmi print it, `arch` as in Gpu.arch ("" where not known), `memory_bytes` as CUDA or HIP report
    it (0 where it could not be read: the catalog's stands in). Where one name covers several devices, the nearest
    memory decides. MIG instances and AMD partitions get their share of the rates, marked unverified.
    """
    sliced = _MIG.search(name)
    found = [gpus_file.device(i) for i in gpus_file.matching(name[: sliced.start()] if sliced else name)]
    found = [gpu for gpu in found if arch in ("", gpu.arch)] or _only_unified(arch)
    if not found:
        return None
    gpu = min(found, key=lambda g: abs(g.memory_bytes - memory_bytes))
    part = _eighths(gpu, memory_bytes)
    if sliced:
        return _share(gpu, memory_bytes, compute=int(sliced[1]) / 7, bandwidth=part)
    if gpu.arch.startswith(("gfx94", "gfx95")) and part <= 0.5:
        return _share(gpu, memory_bytes, compute=part, bandwidth=part)
    return _with_memory(gpu, memory_bytes)


def _index(name: str) -> int:
    found = gpus_file.matching(name) or gpus_file.matching(_ASIDE.sub(" ", name)) or _with_size(name)
    if len(found) == 1:
        return found[0]
    raise _ambiguous(name, found) if found else _unknown(name)


def _with_size(name: str) -> list[int]:
    """Tables for a name that repeats the memory on the box, as in `L4 24GB`; another size is another device."""
    size = _SIZE.search(name)
    if not size:
        return []
    found = gpus_file.matching(name[: size.start()] + name[size.end() :])
    return [i for i in found if gpus_file.number(gpus_file.entry(i), "marketed_gb") == int(size[1])]


def _ambiguous(name: str, found: list[int]) -> UnknownGpu:
    which = [str(gpus_file.entry(i)["name"]) for i in found]
    return UnknownGpu(f"{name!r} could be {' or '.join(which)}", f"write one of: {', '.join(which)}")


def _unknown(name: str) -> UnknownGpu:
    vendor = gpus_names.other_vendor(name)
    if vendor is not None:
        message = f"{_short(name)} is {vendor} hardware, which is not supported"
        return UnknownGpu(message, "supported are NVIDIA and AMD GPUs, and processors (write cpu)")
    hint = f"the nearest names are: {', '.join(gpus_names.nearest(name, _spellings()))}"
    if _TRAILING_COUNT.search(name):
        hint += "; a count comes first, as in 8xH100"
    return UnknownGpu(f"no GPU named {_short(name)} in the catalog", hint)


def _short(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:60] + "…")


def _spellings() -> dict[str, str]:
    tables = [gpus_file.entry(i) for i in range(len(gpus_file.blocks()))]
    return {
        spelling: str(table["name"])
        for table in tables
        for spelling in [str(table["name"]), *gpus_file.strings(table, "spellings")]
    }


def _parts(text: str) -> tuple[int, list[tuple[int, int]]]:
    """How many machines, and the (table, devices) that each holds."""
    pieces = _SEPARATOR.split(text)
    if len(pieces) == 1:
        return _one_kind(text)
    parts = [_one_kind(piece) for piece in pieces]
    if any(machines > 1 for machines, _ in parts):
        hint = "write the devices of one machine, as in 2xL40S,2xA10"
        raise UsageError(f"{text!r} mixes devices and counts machines", hint)
    mixed = [kind for _, kinds in parts for kind in kinds]
    vendors = {gpus_file.device(index).vendor for index, _ in mixed}
    if len(vendors) > 1 or Vendor.CPU in vendors:
        raise UsageError(f"{text!r} mixes makers: one vLLM runs on one of them", "name devices of one maker")
    return 1, mixed


def _one_kind(text: str) -> tuple[int, list[tuple[int, int]]]:
    counts: list[int] = []
    rest = text
    while len(counts) < 2 and (found := _COUNT.match(rest)):
        counts.append(int(found[1]))
        rest = rest[found.end() :]
    name = rest.strip()
    index = _index(name)
    devices = counts[-1] if counts else gpus_file.machine_count(index, name) or 1
    gpus_node.check_count(index, devices)
    if len(counts) == 2 and counts[0] < 1:
        raise UsageError(f"{counts[0]} machines are no deployment", "write 2x8xH100 for two machines of eight")
    return (counts[0] if len(counts) == 2 else 1), [(index, devices)]


def _only_unified(arch: str) -> list[Gpu]:
    """The one device with that arch whose memory is the host's: drivers give these integrated parts generic names."""
    found = [gpu for gpu in all_gpus() if gpu.arch == arch and gpu.unified_memory and gpu.vendor is not Vendor.CPU]
    return [replace(gpu, unverified=_RATES) for gpu in found] if len(found) == 1 else []


def _eighths(gpu: Gpu, memory_bytes: int) -> float:
    """The part of the memory, in eighths as MIG and AMD partitions are cut; all of it where it could not be read."""
    return 1.0 if memory_bytes <= 0 else max(1, round(8 * memory_bytes / gpu.memory_bytes)) / 8


def _share(gpu: Gpu, memory_bytes: int, *, compute: float, bandwidth: float) -> Gpu:
    """A slice of a device: rates in proportion, which no maker promises, so they are unverified."""
    part = _with_memory(gpu, memory_bytes)
    return replace(
        part,
        bandwidth=part.bandwidth * bandwidth,
        tflops_bf16=part.tflops_bf16 * compute,
        tflops_fp8=None if part.tflops_fp8 is None else part.tflops_fp8 * compute,
        tflops_fp4=None if part.tflops_fp4 is None else part.tflops_fp4 * compute,
        unverified=_RATES,
    )


def _with_memory(gpu: Gpu, memory_bytes: int | None) -> Gpu:
    if memory_bytes is None or memory_bytes <= 0:
        return gpu
    return replace(gpu, memory_bytes=memory_bytes, unverified=tuple(u for u in gpu.unverified if u != "memory_bytes"))
