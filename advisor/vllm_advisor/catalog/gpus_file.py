"""Reads `gpus.toml` one table at a time, because a full TOML parse costs more than the whole lookup may.

The file keeps to a subset that a line reader understands (one `key = value` a line, no escapes, no nesting);
`tests/advisor/test_catalog_gpus_file.py` holds this reader equal to tomllib for every table.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from vllm_advisor.catalog import gpus_names
from vllm_advisor.hardware import Gpu, Vendor


PATH = Path(__file__).with_name("gpus.toml")

MIB = 1 << 20

NAMES = ("spellings", "driver", "machines")  # the lists that are no `[value, source]`

Value = str | float | bool | list[str | float | bool]
Entry = dict[str, Value]

# field of Gpu: its line in the file
_FIELDS = (
    ("arch", "arch"),
    ("memory_bytes", "memory_mib"),
    ("bandwidth", "bandwidth_gb_s"),
    ("tflops_bf16", "tflops_bf16"),
    ("tflops_fp8", "tflops_fp8"),
    ("tflops_fp4", "tflops_fp4"),
)


@lru_cache(maxsize=1)
def blocks() -> tuple[str, ...]:
    """The text of every device table, in file order, without the brackets of its header."""
    tables = PATH.read_text(encoding="utf-8").split("\n[")[1:]
    return tuple(table for table in tables if not table.startswith("sources]"))


@lru_cache(maxsize=1)
def _heads() -> tuple[str, ...]:
    """The lines that name each device, lower case; they stand before `arch`."""
    return tuple(block.partition("\narch = ")[0].lower() for block in blocks())


def matching(name: str) -> list[int]:
    """Which tables carry this name in any spelling: none, one, or several where it is ambiguous."""
    wanted = gpus_names.key(name)
    if not wanted:
        return []
    rare = gpus_names.rarest(wanted)
    return [i for i, head in enumerate(_heads()) if rare in head and wanted in map(gpus_names.key, _quoted(head))]


def machine_count(index: int, name: str) -> int | None:
    """How many devices the cloud machine of that name has, None where the name is not a machine's."""
    wanted = gpus_names.key(name)
    for machine in strings(entry(index), "machines"):
        spelled, _, count = machine.partition("=")
        if gpus_names.key(spelled) == wanted:
            return int(count)
    return None


def _quoted(head: str) -> list[str]:
    return [text.partition("=")[0] for text in head.split('"')[1::2]]


@lru_cache(maxsize=256)
def entry(index: int) -> Entry:
    """One table as a mapping, equal to what tomllib reads."""
    lines = blocks()[index].splitlines()[1:]
    pairs = (line.partition(" = ") for line in lines if line and not line.startswith("#"))
    return {key: _value(text) for key, _, text in pairs}


def _value(text: str) -> Value:
    if text.startswith("["):
        return [_scalar(item) for item in text[1:-1].split(", ")]
    return _scalar(text)


def _scalar(text: str) -> str | float | bool:
    if text.startswith('"'):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    return float(text) if "." in text else int(text)


def number(table: Entry, key: str) -> float | None:
    """The figure of a `[value, source]` line or a plain number, None where the table has no such line."""
    value = table.get(key)
    if isinstance(value, list):
        value = value[0]
    return None if value is None else float(value)


def source(table: Entry, key: str) -> str:
    """The source key of a `[value, source]` line."""
    value = table[key]
    return str(value[1]) if isinstance(value, list) else ""


def is_unverified(table: Entry, key: str) -> bool:
    """Whether a `[value, source]` line is marked so."""
    value = table.get(key)
    return isinstance(value, list) and len(value) > 2


def strings(table: Entry, key: str) -> list[str]:
    """A list of strings, empty where the table has no such line."""
    value = table.get(key, [])
    return [str(item) for item in value] if isinstance(value, list) else []


def device(index: int) -> Gpu:
    """One table as the Gpu that the rest of the program reads."""
    table = entry(index)
    known = [(field, key) for field, key in _FIELDS if key in table]
    arch = table["arch"]
    return Gpu(
        name=str(table["name"]),
        vendor=Vendor(str(table["vendor"])),
        arch=str(arch[0] if isinstance(arch, list) else arch),
        memory_bytes=int((number(table, "memory_mib") or 0) * MIB),
        bandwidth=(number(table, "bandwidth_gb_s") or 0.0) * 1e9,
        tflops_bf16=number(table, "tflops_bf16") or 0.0,
        tflops_fp8=number(table, "tflops_fp8"),
        tflops_fp4=number(table, "tflops_fp4"),
        unified_memory=bool(table.get("unified_memory", False)),
        unverified=tuple(field for field, key in known if is_unverified(table, key)),
        source="; ".join(f"{field}: {source(table, key)}" for field, key in known),
    )
