"""The values that a version takes for an option, wherever it lists them, and which of them somebody meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check.nearest import nearest


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.check.invocation import Setting
    from vllm_advisor.vllm.surface import Flag, Surface

# Values that the parser takes as any text, and the configuration looks up.
_NAMED: dict[str, Callable[[Surface], tuple[str, ...]]] = {
    "--kv-cache-dtype": lambda surface: surface.kv_cache_dtypes,
    "--attention-backend": lambda surface: ("auto", *surface.attention_backends),
    "--quantization": lambda surface: surface.quantizations,
    "--optimization-level": lambda _: ("0", "1", "2", "3"),
    "--reasoning-parser": lambda surface: surface.reasoning_parsers,
    "--tool-call-parser": lambda surface: surface.tool_parsers,
}


def named(name: str, surface: Surface) -> tuple[str, ...]:
    """The values of an option that only the configuration looks up, () for all others."""
    return _NAMED[name](surface) if name in _NAMED else ()


def is_judged(flag: Flag) -> bool:
    """Whether anything is asked of the option's value; of a host, a key or a path nothing is."""
    return bool(flag.choices) or flag.kind in ("int", "float", "json") or flag.name in _NAMED


# Names that another program or version has for the same thing.
_SAME = {
    "fp8_e4m3fn": "fp8_e4m3", "e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2", "bf16": "bfloat16", "fp16": "float16",
    "ptpc_fp8": "fp8_per_channel", "fp32": "float32",
}  # fmt: skip


def near_choice(value: str, names: list[str]) -> str:
    """The choice that is surely meant: another case, `-` for `_`, a known other name, or a slip of the hand."""
    flat = {n.lower().replace("-", "_"): n for n in names}
    key = value.lower().replace("-", "_")
    same = flat.get(key) or _SAME.get(key, "")
    return same if same in names else nearest(value, names)


def elsewhere(setting: Setting, value: str, surface: Surface) -> str:
    """Which other versions take the value."""
    from vllm_advisor.vllm import surface as surfaces  # noqa: PLC0415

    name = setting.flag.name if setting.flag else ""
    others = [surfaces.load(v) for v in surfaces.versions()]
    taking = [s for s in others if (f := s.flags.get(name)) and value in map(str, f.choices or named(name, s))]
    if not taking:
        return ""
    first, last = taking[0], taking[-1]
    came = first.release > surface.release
    return f": it came with {first.version}" if came else f": {last.version} was the last to have it"
