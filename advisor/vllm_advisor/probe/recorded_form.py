"""The JSON form of a machine, field by field: what each may hold, and what is wrong with one that does not.

Decision: a table of readers per object. A key that no table has is an error, since a typo would otherwise change
nothing in silence; a missing one takes the default of its type, where it has one.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Gpu, Host, Link, Node, Topology, Unknown, Vendor


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Reader = Callable[[Any, str], Any]


SCHEMA = "vllm-advisor/node/1"
MAX_DEVICES = 256
MAX_TEXT = 1000
_MAX_BYTES = 1 << 50
_KINDS = ("nvlink", "xgmi", "pcie", "c2c", "host")
_ARCH = {
    Vendor.NVIDIA: r"sm[0-9]{2,3}",
    Vendor.AMD: r"gfx[0-9a-f]{3,4}",
    Vendor.CPU: r"cpu-(x86_64|avx512|amx|aarch64)",
}


class Broken(Exception):
    """What is wrong with a mapping, in words; becomes BadInput with the file's name."""


def no_constant(name: str) -> float:
    """NaN and Infinity are not JSON, though Python reads them."""
    raise Broken(f"{name} is no number")


def node(mapping: Any) -> Node:
    """The machine, with origin `recorded`. Raises Broken."""
    if not isinstance(mapping, dict) or "schema" not in mapping:
        raise Broken('it has no "schema", so it is not a recorded machine')
    _check_schema(mapping["schema"])
    found = _fields(mapping, _NODE, "")
    gpus = found["gpus"]
    return Node(
        gpus=gpus,
        topology=Topology(_links(found.get("links", []), len(gpus))),
        host=found.get("host", Host()),
        driver=found.get("driver", ""),
        runtime=found.get("runtime", ""),
        count=found.get("count", 1),
        network_gb_s=found.get("network_gb_s", 50.0),
        origin="recorded",
        warnings=found.get("warnings", ()),
    )


def _check_schema(schema: Any) -> None:
    if schema == SCHEMA:
        return
    if isinstance(schema, str) and re.fullmatch(r"vllm-advisor/node/[0-9]{1,4}", schema):
        raise Broken(f"it has the form {schema}, this version reads {SCHEMA}")
    raise Broken(f"its schema is {_short(schema)}, not {SCHEMA}")


def _fields(mapping: Any, readers: Mapping[str, Reader], where: str) -> dict[str, Any]:
    if not isinstance(mapping, dict):
        raise Broken(f"{where} is {_short(mapping)}, not an object")
    prefix = f"{where}." if where else ""
    for key in mapping:
        if key not in readers:
            raise Broken(f"{prefix}{_short(key)[1:-1]} is no field; known are {', '.join(readers)}")
    for key in _REQUIRED & readers.keys() - mapping.keys():
        raise Broken(f"{prefix}{key} is missing")
    return {key: readers[key](value, prefix + key) for key, value in mapping.items()}


def _gpu(value: Any, where: str) -> Gpu:
    gpu = Gpu(**_fields(value, GPU, where))
    if not re.fullmatch(_ARCH[gpu.vendor], gpu.arch):
        raise Broken(f"{where}.arch is {_short(gpu.arch)}, which is no {gpu.vendor} architecture")
    return gpu


def _gpus(value: Any, where: str) -> tuple[Gpu, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_DEVICES:
        raise Broken(f"{where} is not a list of 1 to {MAX_DEVICES} devices")
    return tuple(_gpu(item, f"{where}[{i}]") for i, item in enumerate(value))


def _host(value: Any, where: str) -> Host:
    return Host(**_fields(value, HOST, where))


def _raw_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise Broken(f"{where} is {_short(value)}, not a list")
    return value


def _links(runs: list[Any], devices: int) -> tuple[Link, ...]:
    found: list[Link] = []
    for i, item in enumerate(runs):
        run = _fields(item, _RUN, f"links[{i}]")
        found += (Link(*_pair(pair, devices, i), run["kind"], run["gb_s"]) for pair in run["pairs"].split())
    if len({frozenset((link.a, link.b)) for link in found}) < len(found):
        raise Broken("links name a pair of devices twice")
    return tuple(found)


def _pair(text: str, devices: int, run: int) -> tuple[int, int]:
    first, _, second = text.partition("-")
    good = text.isascii() and first.isdecimal() and second.isdecimal() and len(text) <= 7
    a, b = (int(first), int(second)) if good else (0, 0)
    if a == b or max(a, b) >= devices:
        raise Broken(f"links[{run}].pairs has {_short(text)}, which are no two of {devices} devices")
    return a, b


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise Broken(f"{where} is {_short(value)}, not a line of text")
    return value


def _name(value: Any, where: str) -> str:
    if not _text(value, where).strip():
        raise Broken(f"{where} is empty")
    return str(value)


def _pairs(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Broken(f"{where} is {_short(value)}, not pairs such as 0-1 0-2")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    return tuple(_text(item, f"{where}[{i}]") for i, item in enumerate(_raw_list(value, where)))


def _one_of(words: Iterable[str]) -> Reader:
    def read(value: Any, where: str) -> str:
        if value not in tuple(words):
            raise Broken(f"{where} is {_short(value)}, not one of {', '.join(words)}")
        return str(value)

    return read


def _vendor(value: Any, where: str) -> Vendor:
    return Vendor(_one_of(tuple(Vendor))(value, where))


def _whole(low: int, high: int) -> Reader:
    def read(value: Any, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Broken(f"{where} is {_short(value)}, not a whole number from {low} to {high}")
        return value

    return read


def _number(high: float, *, zero: bool = False) -> Reader:
    def read(value: Any, where: str) -> float:
        good = type(value) in (int, float) and 0 <= value <= high and math.isfinite(value)
        if not good or (value == 0 and not zero):
            raise Broken(f"{where} is {_short(value)}, not a number {'from' if zero else 'above'} 0 to {high:g}")
        return float(value)

    return read


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise Broken(f"{where} is {_short(value)}, not true or false")
    return value


def _or_null(read: Reader) -> Reader:
    return lambda value, where: None if value is None else read(value, where)


def _or_unknown(read: Reader) -> Reader:
    def either(value: Any, where: str) -> Any:
        if isinstance(value, dict):
            return Unknown(_fields(value, {"unknown": _text}, where).get("unknown", "not recorded"))
        return read(value, where)

    return either


def _short(value: Any) -> str:
    """A value as it may stand in a message: printable, on one line, not long, quoted where it is text."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:59]}…{text[0] if isinstance(value, str) else ''}"


_BYTES = _whole(0, _MAX_BYTES)
_RATE = _number(1e6)  # TFLOP/s or GB/s; the largest device of 2026 has 2e4
_REQUIRED = {
    "gpus", "name", "vendor", "arch", "memory_bytes", "bandwidth", "tflops_bf16", "kind", "gb_s", "pairs",
}  # fmt: skip
GPU: dict[str, Reader] = {
    "name": _name,
    "vendor": _vendor,
    "arch": _name,
    "memory_bytes": _whole(1, _MAX_BYTES),
    "bandwidth": _number(1e15),
    "tflops_bf16": _RATE,
    "tflops_fp8": _or_null(_RATE),
    "tflops_fp4": _or_null(_RATE),
    "free_bytes": _or_unknown(_BYTES),
    "unified_memory": _flag,
    "unverified": _texts,
    "source": _text,
    "other_processes_bytes": _BYTES,
    "power_cap_watts": _or_null(_number(1e5)),
    "pci_bus_id": _text,
    "ecc": _or_null(_flag),
    "partition": _text,
}
HOST: dict[str, Reader] = {
    "cpu": _text,
    "cores": _or_unknown(_whole(1, 1 << 16)),
    "memory_bytes": _or_unknown(_BYTES),
    "shm_bytes": _or_unknown(_BYTES),
    "numa_nodes": _or_unknown(_whole(1, 1 << 10)),
    "cpu_flags": _texts,
}
_RUN: dict[str, Reader] = {"kind": _one_of(_KINDS), "gb_s": _number(1e6, zero=True), "pairs": _pairs}
_NODE: dict[str, Reader] = {
    "schema": _text,
    "origin": _text,
    "gpus": _gpus,
    "links": _raw_list,
    "host": _host,
    "driver": _text,
    "runtime": _text,
    "count": _whole(1, 10_000),
    "network_gb_s": _number(1e6),
    "warnings": _texts,
}
