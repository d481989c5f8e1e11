"""Which kernels one vLLM release takes on which device: its own selection, run on devices that are not here.

For every architecture of `archs.py`, with and without AITER on AMD, the release's selectors are interpreted from source
(`extract_kernels_run`), never imported. The result is a table of choices, with those that rest on a gate which the
source does not tell marked. `backends.py` reads it; the form is described at `read`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm import archs, extract_kernels_linear, extract_kernels_moe
from vllm_advisor.vllm.extract_kernels_attention import CASES, Attention
from vllm_advisor.vllm.extract_kernels_linear import Linear
from vllm_advisor.vllm.extract_kernels_moe import Experts, Verdict
from vllm_advisor.vllm.extract_kernels_run import Program
from vllm_advisor.vllm.extract_kernels_stub import configuration
from vllm_advisor.vllm.extract_kernels_values import Raised, UnreadableError
from vllm_advisor.vllm.extract_kernels_world import World
from vllm_advisor.vllm.source import Reader


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.vllm.source import Package

# Devices that differ in nothing that a gate asks: run once. No gate asks for 8.6 or 12.1, nor for one RDNA4 chip; RDNA3
# is asked for as gfx11, gfx1100, gfx1151 and gfx115x.
_SAME = {
    "sm86": "sm80", "sm87": "sm80", "sm121": "sm120", "gfx1102": "gfx1101", "gfx1103": "gfx1101", "gfx1152": "gfx1150",
    "gfx1153": "gfx1150", "gfx1200": "gfx1201",
}  # fmt: skip
DEVICES = tuple(sorted((archs.CUDA | archs.ROCM | archs.CPU) - set(_SAME)))
_UNUSED = frozenset(("SILU_NO_MUL", "GELU_NO_MUL", "GELU_TANH_NO_MUL"))  # no model of vLLM's has such experts
_DEEP = 8000  # frames: a call of the program that is read takes about fifteen of ours
_FAILURES = (
    Raised,
    UnreadableError,
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


def read(package: Package) -> dict[str, Any]:
    """The tables of one release, as JSON values.

    `devices`: the names that bit 0, 1, … of a set stand for; `+aiter` is the device with VLLM_ROCM_USE_AITER=1.
    `same`: devices that are judged as another one. `moe`: scheme → rows [devices, [[acts, ep, kernels], …]], `acts` the
    activations' text or "*" for all, `ep` 0, 1 or 2 for both. `linear`: scheme → rows [devices, kernels].
    `attention`: case → rows [devices, [[cache dtypes, backends], …]], a backend as `NAME heads|heads with sinks`.
    Kernels are joined by `>`, in the order in which they would be taken. `unread`: rows [table, device, expression].
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP))
    try:
        return _tables(package, worlds())
    except _FAILURES as error:  # a package that is not vLLM's, or a syntax that we do not know
        package.problems.append(f"kernels: {type(error).__name__}: {error}")
        return {}
    finally:
        sys.setrecursionlimit(limit)


def worlds() -> list[World]:
    """Every device, AMD's GPUs also with AITER."""
    plain = [World(arch, config=configuration()) for arch in DEVICES]
    return plain + [World(arch, aiter=True, config=configuration()) for arch in DEVICES if arch in archs.ROCM]


def _tables(package: Package, devices: list[World]) -> dict[str, Any]:
    """The tables of some devices."""
    names = [w.arch + ("+aiter" if w.aiter else "") for w in devices]
    unread: list[list[str]] = []
    moe, linear, attention = [], [], []
    for world, name in zip(devices, names, strict=True):
        moe.append(_moe(Program(package, world), name, unread))
        linear.append(_linear(Program(package, world), name, unread))
        attention.append(_attention(Program(package, world), name, unread))
    return {
        "devices": names,
        "same": _SAME,
        "moe": _joined(moe),
        "linear": _joined(linear),
        "attention": _joined(attention),
        "unread": sorted(unread),
    }


def _joined(columns: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Each key's rows [devices, value], devices of one value together."""
    found: dict[str, dict[str, list[Any]]] = {}
    for i, column in enumerate(columns):
        for key, value in column.items():
            row = found.setdefault(key, {}).setdefault(repr(value), [0, value])
            row[0] |= 1 << i
    return {key: list(rows.values()) for key, rows in found.items()}


def _moe(program: Program, name: str, unread: list[list[str]]) -> dict[str, Any]:
    experts = Experts(program)
    table: dict[str, Any] = {}
    for scheme, asked in extract_kernels_moe.SCHEMES.items():
        cells: dict[tuple[str, int], str] = {}
        for act, member in experts.activations.items():
            if act in _UNUSED:
                continue
            for ep in (0, 1):
                verdict = _runnable(name, experts.verdict(asked, act, expert_parallel=bool(ep)))
                cells[str(member.value), ep] = ">".join(verdict.backends)
                unread += _noted(unread, f"moe/{scheme}", name, verdict.unread)
        if rows := _grouped(cells):
            table[scheme] = rows
    return table


def _runnable(name: str, verdict: Verdict) -> Verdict:
    """Without what needs Triton where there is none: EMULATION on a CPU (experts/*_emulation_moe.py: TritonExperts)."""
    if not name.startswith("cpu"):
        return verdict
    return verdict._replace(backends=tuple(b for b in verdict.backends if b != "EMULATION"))


def _noted(unread: list[list[str]], table: str, name: str, notes: Iterable[str]) -> list[list[str]]:
    rows = [[table, name, note] for note in notes]
    return [row for row in rows if row not in unread]


def _grouped(cells: dict[tuple[str, int], str]) -> list[list[Any]]:
    """(activation, EP) → kernels as rows [acts, ep, kernels]; what most activations get stands last, with acts `*`."""
    by_pair: dict[tuple[str, str], list[str]] = {}
    for act in dict.fromkeys(a for a, _ in cells):
        by_pair.setdefault((cells[act, 0], cells[act, 1]), []).append(act)
    pairs = sorted(by_pair.items(), key=lambda item: len(item[1]))
    rows = []
    for (plain, spread), acts in pairs:
        named = "*" if acts == pairs[-1][1] else " ".join(acts)
        rows += [[named, 2, plain]] if plain == spread else [[named, 0, plain], [named, 1, spread]]
    return rows if any(kernels for *_, kernels in rows) else []


def _linear(program: Program, name: str, unread: list[list[str]]) -> dict[str, Any]:
    choice = Linear(program)
    table: dict[str, Any] = {}
    for scheme in extract_kernels_linear.SCHEMES:
        verdict = choice.verdict(scheme)
        unread += _noted(unread, f"linear/{scheme}", name, verdict.unread)
        if verdict.backends:
            table[scheme] = ">".join(verdict.backends)
    return table


def _attention(program: Program, name: str, unread: list[list[str]]) -> dict[str, Any]:
    choice = Attention(program)
    dtypes = _cache_dtypes(program)
    table: dict[str, Any] = {}
    for case in CASES:
        rows: dict[str, list[str]] = {}
        for dtype in dtypes:
            backends = ">".join(f"{n} {plain}|{sinks}" for n, plain, sinks in choice.table(case, dtype))
            if backends:
                rows.setdefault(backends, []).append(dtype)
        if rows:
            table[case] = [[" ".join(group), backends] for backends, group in rows.items()]
    unread += _noted(unread, "attention", name, (f"{who}: {what}" for who, what in choice.notes.items()))
    return table


def _cache_dtypes(program: Program) -> tuple[str, ...]:
    """The values of `--kv-cache-dtype` of this release."""
    module = program.package.module("config.cache")
    node = module.names.get("CacheDType") if module else None
    return tuple(dict.fromkeys(Reader(module).literals(node))) if module and node else ()
