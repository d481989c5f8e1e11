"""What changed between two vLLM versions, as far as their surfaces tell: one row a change, in the order of the source.

Removed names carry their successor where `changes` knows one, so that a rename reads as a rename.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.changes import successor_of_env, successor_of_flag


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vllm_advisor.vllm.changes import Successor
    from vllm_advisor.vllm.surface import BatchTier, QuantizationMethod, Surface

ADDED, REMOVED, RENAMED, CHANGED = "added", "removed", "renamed", "changed"
# Lists of names that a surface holds, and what a group of them is called.
_NAMES = (
    ("quantizations", "quantization methods"),
    ("online_quantizations", "online quantizations"),
    ("deprecated_quantizations", "deprecated quantizations"),
    ("kv_cache_dtypes", "KV-cache dtypes"),
    ("attention_backends", "attention backends"),
    ("moe_backends", "MoE backends"),
    ("linear_backends", "linear backends"),
    ("all2all_backends", "all-to-all backends"),
    ("tokenizer_modes", "tokenizer modes"),
    ("reasoning_parsers", "reasoning parsers"),
    ("tool_parsers", "tool parsers"),
    ("architectures", "architectures"),
)
_LOGGED = ("debug", "text")  # levels whose lines no start-up log shows by itself


class Difference(NamedTuple):
    """One change. `before` and `after` are JSON values, None on the side that lacks it; `note` says what takes over."""

    group: str
    kind: str
    name: str
    before: Any = None
    after: Any = None
    note: str = ""


def diff(old: Surface, new: Surface) -> tuple[Difference, ...]:
    """Every change from one surface to another, by group."""
    named = (d for attribute, group in _NAMES for d in _names(group, getattr(old, attribute), getattr(new, attribute)))
    return (
        *_flags(old, new),
        *_choices(old, new),
        *_defaults(old, new),
        *_deprecations(old, new),
        *_tiers(old.batch_defaults, new.batch_defaults),
        *_environment(old, new),
        *named,
        *_methods(old.quantization_methods, new.quantization_methods),
        *_platforms(old.platform_quantizations, new.platform_quantizations),
        *_kernels(old.kernels, new.kernels),
        *_names("metrics", old.metrics, new.metrics),
        *_lines(old, new),
    )


def _plain(value: Any) -> Any:
    """A value as JSON; what is not known as its reason."""
    return f"unknown ({value.why})" if isinstance(value, Unknown) else list(value) if type(value) is tuple else value


def _names(group: str, old: Iterable[str], new: Iterable[str]) -> Iterator[Difference]:
    before, after = tuple(old), tuple(new)
    yield from (Difference(group, REMOVED, name) for name in before if name not in after)
    yield from (Difference(group, ADDED, name) for name in after if name not in before)


def _flags(old: Surface, new: Surface) -> Iterator[Difference]:
    gone = {name: successor_of_flag(name, new) for name in old.flags if name not in new.flags}
    yield from (_gone("flags", name, found) for name, found in gone.items())
    for name, flag in new.flags.items():
        if name not in old.flags:
            yield Difference("flags", ADDED, name, None, _plain(flag.default))


def _gone(group: str, name: str, found: Successor | None, before: Any = None) -> Difference:
    """A removal with what is known of it; with words or a variable in its place, a rename."""
    if found is None:
        return Difference(group, REMOVED, name, before)
    words = " ".join((*found.words, *(f"{n}={v}" for n, v in found.env)))
    note = f"{words}: {found.text}" if words else found.text
    return Difference(group, RENAMED if words else REMOVED, name, before, words or None, note)


def _choices(old: Surface, new: Surface) -> Iterator[Difference]:
    for name, flag in old.flags.items():
        other = new.flags.get(name)
        if other and flag.choices and other.choices and set(flag.choices) != set(other.choices):
            lost = [c for c in flag.choices if c not in other.choices]
            came = [c for c in other.choices if c not in flag.choices]
            yield Difference("choices", CHANGED, name, lost, came)
        elif other and bool(flag.choices) != bool(other.choices):
            note = "any value passes the parser now" if flag.choices else "the parser knows the values now"
            yield Difference("choices", CHANGED, name, list(flag.choices), list(other.choices), note)


def _defaults(old: Surface, new: Surface) -> Iterator[Difference]:
    for name, flag in old.flags.items():
        other = new.flags.get(name)
        if other and flag.default != other.default:
            yield Difference("defaults", CHANGED, name, _plain(flag.default), _plain(other.default))


def _deprecations(old: Surface, new: Surface) -> Iterator[Difference]:
    for name, until in new.deprecated_flags.items():
        if name not in old.deprecated_flags:
            yield Difference("deprecations", ADDED, name, None, until or None)


def _tiers(old: tuple[BatchTier, ...], new: tuple[BatchTier, ...]) -> Iterator[Difference]:
    """Defaults by card; a tier whose test changed is one that went and one that came."""
    before, after = {t.when: t for t in old}, {t.when: t for t in new}
    for when, tier in before.items():
        if when not in after:
            yield Difference("defaults by card", REMOVED, when, _sizes(tier))
        elif tier != after[when]:
            yield Difference("defaults by card", CHANGED, when, _sizes(tier), _sizes(after[when]))
    for when, tier in after.items():
        if when not in before:
            yield Difference("defaults by card", ADDED, when, None, _sizes(tier))


def _sizes(tier: BatchTier) -> dict[str, Any]:
    return {"tokens": dict(tier.tokens), "seqs": dict(tier.seqs)}


def _environment(old: Surface, new: Surface) -> Iterator[Difference]:
    for name, variable in old.env.items():
        if name not in new.env:
            yield _gone("environment", name, successor_of_env(name, new), _plain(variable.default))
        elif variable.default != new.env[name].default:
            yield Difference(
                "environment", CHANGED, name, _plain(variable.default), _plain(new.env[name].default), "default"
            )
    for name, variable in new.env.items():
        if name not in old.env:
            yield Difference("environment", ADDED, name, None, _plain(variable.default))


def _methods(old: Mapping[str, QuantizationMethod], new: Mapping[str, QuantizationMethod]) -> Iterator[Difference]:
    """What a method that both have says otherwise."""
    for name, method in old.items():
        for field in ("min_capability", "activations", "online", "checkpoint", "moe", "linear"):
            before, after = getattr(method, field), getattr(new.get(name, method), field)
            if before != after:
                yield Difference("quantization methods", CHANGED, name, _plain(before), _plain(after), field)


def _platforms(old: Mapping[str, tuple[str, ...]], new: Mapping[str, tuple[str, ...]]) -> Iterator[Difference]:
    for platform in dict.fromkeys((*old, *new)):
        yield from _names(f"quantizations allowed on {platform}", old.get(platform, ()), new.get(platform, ()))


def _kernels(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Kernels that are taken otherwise; devices whose choice changed alike are one row."""
    for table, group in (("moe", "MoE kernels"), ("linear", "linear kernels"), ("attention", "attention kernels")):
        before, after = _cells(old, table), _cells(new, table)
        alike: dict[tuple[str, str, str], list[str]] = {}
        for cell in before:
            if cell in after and before[cell] != after[cell]:
                scheme, device, case = cell
                label = f"{scheme} ({case})" if case else scheme
                alike.setdefault((label, before[cell], after[cell]), []).append(device)
        for (label, was, now), devices in alike.items():
            yield Difference(group, CHANGED, label, was, now, " ".join(devices))


def _cells(kernels: Mapping[str, Any], table: str) -> dict[tuple[str, str, str], str]:
    """(scheme, device, case) → kernels in their order, of one table (`extract_kernels.read` has the form)."""
    cells: dict[tuple[str, str, str], str] = {}
    devices: list[str] = kernels.get("devices", [])
    for scheme, rows in kernels.get(table, {}).items():
        for bits, choice in rows:
            for index, device in enumerate(devices):
                if bits >> index & 1:
                    cells |= {(scheme, device, case): names for case, names in _cases(choice)}
    return cells


def _cases(choice: Any) -> Iterator[tuple[str, str]]:
    """The cases of one row: of attention by cache dtype, of MoE by activation, of linear none."""
    if isinstance(choice, str):
        yield "", choice
        return
    for case in choice:
        first, *_, names = case
        yield from ((name, " > ".join(_bare(n) for n in str(names).split(">"))) for name in str(first).split())


def _bare(name: str) -> str:
    """A backend without its head sizes."""
    return name.partition(" ")[0]


def _lines(old: Surface, new: Surface) -> Iterator[Difference]:
    before, after = _formats(old), _formats(new)
    for event in dict.fromkeys((*before, *after)):
        gone = [text for text in before.get(event, ()) if text not in after.get(event, ())]
        came = [text for text in after.get(event, ()) if text not in before.get(event, ())]
        if gone or came:
            kind = CHANGED if gone and came else REMOVED if gone else ADDED
            yield Difference("log lines", kind, event, gone or None, came or None)


def _formats(surface: Surface) -> dict[str, tuple[str, ...]]:
    formats: dict[str, tuple[str, ...]] = {}
    for line in surface.log_lines:
        if line.level not in _LOGGED:
            formats[line.event] = tuple(dict.fromkeys((*formats.get(line.event, ()), line.format)))
    return formats
