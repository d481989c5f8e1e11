"""What is wrong with a tuned file, each in one line: its name, its keys, its values.

Levels: error, vLLM would not find it or would fail with it; warning, it works otherwise than its writer may think.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_tuner.vllm_configs import names, table
from vllm_tuner.vllm_configs.defaults import OLDEST


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_tuner.vllm_configs.defaults import Config, Where
    from vllm_tuner.vllm_configs.names import ExpertsFile
    from vllm_tuner.vllm_configs.shapes import Shape
    from vllm_tuner.vllm_configs.table import Table

_TILES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
_SMALLEST = {"BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 16}  # 8: the smallest that vLLM ships
_LARGEST_TILE = 1024  # what the grouped CUDA kernel's own choice goes to (fused_moe.py:1279)
_ANY = frozenset((*_TILES, "GROUP_SIZE_M", "SPLIT_K", "num_warps", "num_stages", "num_ctas"))
# Options of Triton's AMD compiler; NVIDIA's refuses an option that it does not know.
_AMD_ONLY = frozenset(("waves_per_eu", "matrix_instr_nonkdim", "kpack"))
_GROUPED = ("int4_w4a16", "int8_w8a16")
_MOST_THREADS = 1024
_OTHERS = {
    "linear": "is for a linear layer: vLLM reads those from its own package only, never from VLLM_TUNED_CONFIG_FOLDER",
    "ssm": "is for Mamba's state update; not judged here",
    "lora": "is for LoRA's kernels; not judged here",
    "flydsl": "is for AITER's FlyDSL kernel, which reads from vLLM's package only",
    "": "is no name that vLLM looks for",
}


class Problem(NamedTuple):
    """One line about one file."""

    file: str
    level: str
    message: str


class Asked(NamedTuple):
    """What the files are for: shapes that the model's ranks hold, and the device's possible names in a file's name."""

    shapes: tuple[Shape, ...]
    devices: tuple[str, ...]
    where: Where


def problems(path: Path, asked: Asked) -> tuple[Problem, ...]:
    """Everything wrong with one file, the name first."""
    named = names.parsed(path.name)
    if named is None or names.kind(path.name) != "experts":
        kind = names.kind(path.name)
        return (Problem(path.name, "error" if kind in ("", "linear", "flydsl") else "warning", _OTHERS[kind]),)
    found = [Problem(path.name, "error", line) for line in _name(named, asked)]
    try:
        content = table.read(path)
    except BadInput as error:
        return (*found, Problem(path.name, "error", error.message.removeprefix(f"{path.name}: ")))
    found += [Problem(path.name, level, line) for level, line in _content(content, named, asked)]
    return tuple(found)


def _name(named: ExpertsFile, asked: Asked) -> Iterator[str]:
    """Why vLLM would not look for this name."""
    if named.dtype not in names.DTYPES:
        yield f"vLLM never looks for dtype={named.dtype}"
    if named.device not in asked.devices:
        yield f"it is for {named.device}, this device is {' or '.join(asked.devices)}"
    wanted = [shape.file(named.device) for shape in asked.shapes]
    if named not in wanted:
        yield f"no rank of this plan holds that shape; vLLM looks for {', '.join(file.name for file in wanted)}"


def _content(content: Table, named: ExpertsFile, asked: Asked) -> Iterator[tuple[str, str]]:
    for batch, config in content.entries:
        for level, line in config_problems(config, named.dtype, asked.where):
            yield level, f"batch size {batch}: {line}"
    shape = next((s for s in asked.shapes if s.file(named.device) == named), None)
    if shape is not None and asked.where.release >= OLDEST:
        stray = table.strayed(content, asked.where, shape, table.GRAPH_SIZES)
        if stray:
            yield "warning", _snapped(stray)


def _snapped(stray: Sequence[int]) -> str:
    shown = ", ".join(str(batch) for batch in stray[:4]) + (", …" if len(stray) > 4 else "")
    return (
        f"{len(stray)} of the {len(table.GRAPH_SIZES)} batch sizes of graphs are not in it and take the nearest entry "
        f"in place of vLLM's default: {shown}"
    )


def config_problems(config: Config, dtype: str | None, where: Where) -> Iterator[tuple[str, str]]:
    """What is wrong with one entry, as (level, line)."""
    yield from _missing(config, dtype)
    yield from _unknown(config, where)
    for name in _TILES:
        if name in config:
            yield from _tile(name, config[name], smallest=1 if dtype in _GROUPED else _SMALLEST[name])
    yield from _launch(config, where)
    if config.get("SPLIT_K", 1) != 1 and dtype not in _GROUPED:
        yield "warning", f"SPLIT_K {config['SPLIT_K']} is set back to 1 by vLLM (fused_moe.py:841)"


def _missing(config: Config, dtype: str | None) -> Iterator[tuple[str, str]]:
    """The grouped kernel fills in N and K itself, and its CUDA form needs no more than the M tile."""
    needed = ("BLOCK_SIZE_M",) if dtype in _GROUPED else (*_TILES, "GROUP_SIZE_M")
    absent = [name for name in needed if name not in config]
    if absent:
        yield "error", f"{', '.join(absent)} is missing"
    if dtype not in _GROUPED and not absent:
        unsaid = [name for name in ("num_warps", "num_stages") if name not in config]
        if unsaid:
            yield "warning", f"{' and '.join(unsaid)} not said: Triton's own default is used, not vLLM's"


def _unknown(config: Config, where: Where) -> Iterator[tuple[str, str]]:
    for name in config:
        if name in _AMD_ONLY and not where.is_rocm:
            yield "error", f"{name} is an option of AMD's compiler; the kernel would not start on another device"
        elif name not in _ANY | _AMD_ONLY:
            yield "error", f"{name} is no parameter of vLLM's kernel, which would not start"


def _tile(name: str, size: int, *, smallest: int) -> Iterator[tuple[str, str]]:
    if not _is_power_of_two(size) or not smallest <= size <= _LARGEST_TILE:
        yield "error", f"{name} {size}: a power of two from {smallest} to {_LARGEST_TILE} is expected"


def _launch(config: Config, where: Where) -> Iterator[tuple[str, str]]:
    """Warps are 32 threads wide, 64 on CDNA (gfx9); a block holds at most 1,024 threads."""
    most = _MOST_THREADS // (64 if where.arch.startswith("gfx9") else 32)
    warps = config.get("num_warps", 4)
    if not _is_power_of_two(warps) or warps > most:
        yield "error", f"num_warps {warps}: a power of two up to {most} is expected"
    if not 0 <= config.get("num_stages", 1) <= 10:
        yield "error", f"num_stages {config['num_stages']}: 0 to 10 are expected"
    for name in ("GROUP_SIZE_M", "SPLIT_K"):
        if config.get(name, 1) < 1:
            yield "error", f"{name} {config[name]}: 1 or more is expected"
    for name in ("waves_per_eu", "kpack", "matrix_instr_nonkdim"):
        if config.get(name, 0) < 0:
            yield "error", f"{name} {config[name]}: 0 or more is expected"


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
