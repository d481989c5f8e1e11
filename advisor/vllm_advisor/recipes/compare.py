"""A recipe's command beside ours, setting by setting, each with the reason, and what of it this version refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import elsewhere, parse
from vllm_advisor.errors import AdvisorError
from vllm_advisor.recipes.read import FAMILY
from vllm_advisor.recipes.reasons import Reasons
from vllm_advisor.vllm import surface as surfaces
from vllm_advisor.vllm.changes import choices_of, successor_of_choice, successor_of_env, successor_of_flag


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_advisor.check.invocation import Setting
    from vllm_advisor.facts import Recommendation
    from vllm_advisor.recipes.read import Found
    from vllm_advisor.vllm.changes import Successor
    from vllm_advisor.vllm.surface import Surface

OTHER, RECIPE_ONLY, OURS_ONLY = "different", "recipe only", "ours only"


class Difference(NamedTuple):
    """One flag or variable that differs. `recipe` or `ours` None: it is not there; a switch is `on` or `off`."""

    kind: str
    name: str
    recipe: str | None
    ours: str | None
    reason: str


class Dead(NamedTuple):
    """What this version does not take: flag, variable or value, where it stands, and what takes its place."""

    name: str
    where: str
    text: str
    instead: str = ""


class Comparison(NamedTuple):
    """All of it. `ours`: whether there is a plan of ours. `too_old`: this vLLM is older than the recipe asks for."""

    found: Found
    version: str
    ours: bool
    same: tuple[str, ...]
    differences: tuple[Difference, ...]
    dead: tuple[Dead, ...]
    too_old: bool = False


def compare(found: Found, answer: Recommendation) -> Comparison:
    """The recipe against the best plan of an answer, in the version of the answer."""
    surface = answer.facts.vllm
    command = answer.plans[0].command if answer.plans else None
    theirs = _values(Invocation(found.command.argv, found.command.env), surface)
    ours = _values(Invocation(command.argv, command.env), surface) if command else {}
    reasons, dead = Reasons(answer, surface, other_model=found.nearness == FAMILY), _dead(found, surface)
    taken = {name: value for name, value in theirs.items() if f"{name} {value}" not in {d.name for d in dead}}
    differences = tuple(_differences(taken, ours, reasons)) if command else ()
    same = tuple(n for n, value in taken.items() if command and _is_same(n, value, ours, reasons))
    return Comparison(found, surface.version, command is not None, same, differences, dead, _too_old(found, surface))


def _is_same(name: str, value: str, ours: dict[str, str], reasons: Reasons) -> bool:
    """Whether ours has it too, or leaves it out because this version takes it by itself."""
    return ours[name] == value if name in ours else reasons.is_default(name, value)


def _values(command: Invocation, surface: Surface) -> dict[str, str]:
    """Name → value of what this version takes: flags under their full names, then variables."""
    values = {"checkpoint": command.argv[2]} if len(command.argv) > 2 else {}
    for setting in parse(command, surface).settings:
        if setting.flag is not None:
            values[_name(setting)] = _value(setting)
    return values | {name: value for name, value in command.env if surface.has_env(name)}


def _name(setting: Setting) -> str:
    """The full name, with the key of a dotted one: `--compilation-config.cudagraph_mode`."""
    assert setting.flag is not None  # noqa: S101  only settings with a flag are named
    return setting.flag.name + setting.spelling[len(setting.spelling.partition(".")[0]) :]


def _value(setting: Setting) -> str:
    negated = setting.spelling.replace("_", "-").startswith("--no-")
    return "off" if negated else setting.value if setting.value is not None else "on"


def _differences(theirs: dict[str, str], ours: dict[str, str], reasons: Reasons) -> Iterator[Difference]:
    """In the order of the recipe, then what only we have."""
    for name, value in theirs.items():
        mine = ours.get(name)
        if mine is None and not reasons.is_default(name, value):
            yield Difference(RECIPE_ONLY, name, value, None, reasons.against(name, value))
        elif mine is not None and mine != value:
            yield Difference(OTHER, name, value, mine, reasons.instead(name, value))
    for name, mine in ours.items():
        if name not in theirs:
            yield Difference(OURS_ONLY, name, None, mine, reasons.of_ours(name))


def _too_old(found: Found, surface: Surface) -> bool:
    try:
        return bool(found.minimum) and surfaces.release_of(found.minimum) > surface.release
    except AdvisorError:
        return False


def _dead(found: Found, surface: Surface) -> tuple[Dead, ...]:
    """Each dead thing once, the command first, then the guide's commands and its prose."""
    commands = [(Invocation(found.command.argv, found.command.env), "its command")]
    commands += [(said.invocation, f"guide, {said.heading}") for said in found.guide]
    dead = [d for command, where in commands for d in _of_command(command, where, surface)]
    dead += [d for flag, heading in found.mentioned for d in _mentioned(flag, f"guide, {heading}", surface)]
    return tuple(_once(dead))


def _once(dead: Iterable[Dead]) -> Iterator[Dead]:
    """The same thing at several places is one: the first, with how many more there are."""
    places: dict[str, list[Dead]] = {}
    for each in dead:
        places.setdefault(each.name, []).append(each)
    for found in places.values():
        others = len({each.where for each in found}) - 1
        more = f" and {others} more place{'s' if others > 1 else ''}" if others else ""
        yield found[0]._replace(where=found[0].where + more)


def _of_command(command: Invocation, where: str, surface: Surface) -> Iterator[Dead]:
    for setting in parse(command, surface).settings:
        name = setting.spelling.replace("_", "-")
        if setting.flag is None:
            yield _gone(name, where, surface, successor_of_flag(setting.spelling, surface, setting.value))
        elif "." not in name:
            yield from _refused(setting, where, surface)
    for variable, value in command.env:
        if not surface.has_env(variable):
            yield _gone(variable, where, surface, successor_of_env(variable, surface, value))


def _gone(name: str, where: str, surface: Surface, successor: Successor | None) -> Dead:
    verb = "does not take" if name.startswith("-") else "does not read"
    if successor is None:
        return Dead(name, where, f"vLLM {surface.version} {verb} it")
    words = " ".join((*(f"{n}={v}" for n, v in successor.env), *successor.words))
    return Dead(name, where, f"vLLM {surface.version} {verb} it: {successor.text}", words)


def _refused(setting: Setting, where: str, surface: Surface) -> Iterator[Dead]:
    """A value that is not among those that the version lists."""
    assert setting.flag is not None  # noqa: S101  the caller looked
    name, value = setting.flag.name, setting.value
    choices = choices_of(name, surface)
    if value is None or not choices or setting.flag.kind in ("list", "json"):
        return
    if value not in choices and value.lower() not in {str(c).lower() for c in choices}:
        successor = successor_of_choice(name, value, surface)
        text = f": {successor.text}" if successor else ""
        instead = " ".join(successor.words) if successor else ""
        yield Dead(f"{name} {value}", where, f"vLLM {surface.version} has no such value{text}", instead)


def _mentioned(flag: str, where: str, surface: Surface) -> Iterator[Dead]:
    """Prose names flags of other programs too: only those count that some vLLM had."""
    if surface.has_flag(flag):
        return
    successor = successor_of_flag(flag, surface)
    if successor is not None or elsewhere(flag) is not None:
        yield _gone(flag, where, surface, successor)


def lines(comparison: Comparison) -> list[str]:
    """The section of a text answer, without a width of its own."""
    found, command = comparison.found, comparison.found.command
    said = [f"Recipe of the vLLM project: {found.path} ({found.nearness}{_of(comparison)})"]
    said.append("  " + " ".join((*(f"{n}={v}" for n, v in command.env), *map(_quoted, command.argv))))
    said += [f"  note: {text}" for text in _notes(comparison)]
    if comparison.ours:
        same = ", ".join(comparison.same) or "nothing"
        said += [f"  same as ours: {same}"]
    said += [f"  {_shown(d)}: {d.reason}" for d in comparison.differences]
    said += [
        f"  dead: {d.name} ({d.where}): {d.text}" + (f" → {d.instead}" if d.instead else "") for d in comparison.dead
    ]
    if found.skipped:
        said.append(f"  skipped: {len(found.skipped)} that cannot be read; the first is {found.skipped[0]}")
    return said


def _of(comparison: Comparison) -> str:
    command = comparison.found.command
    parts = [p for p in (command.variant and f"variant {command.variant}", command.strategy) if p]
    return "".join(f", {part}" for part in parts)


def _notes(comparison: Comparison) -> Iterator[str]:
    found = comparison.found
    if not comparison.ours:
        yield "no plan of ours stands, so that there is nothing to compare with"
    if not found.hardware.id:
        yield "the recipes know no such hardware: it is written for none in particular"
    elif found.verified == "verified":
        yield f"its authors verified it on {found.hardware.id}"
    elif found.verified == "unsupported":
        yield f"its authors say that it does not run on {found.hardware.id}"
    else:
        yield f"it does not say that it was tried on {found.hardware.id}"
    if comparison.too_old:
        yield f"it asks for vLLM {found.minimum} or newer, this is {comparison.version}"


def _shown(difference: Difference) -> str:
    name = difference.name
    if difference.kind == RECIPE_ONLY:
        return f"recipe only  {name} {_short(difference.recipe)}"
    if difference.kind == OURS_ONLY:
        return f"ours only    {name} {_short(difference.ours)}"
    return f"different    {name} {_short(difference.recipe)} there, {_short(difference.ours)} here"


def _short(value: str | None) -> str:
    text = value or ""
    return text if len(text) <= 80 else text[:80] + "…"


def _quoted(word: str) -> str:
    import shlex  # noqa: PLC0415  only this line needs it

    return shlex.quote(word)


def document(comparison: Comparison) -> dict[str, object]:
    """The same as a JSON value."""
    found, command = comparison.found, comparison.found.command
    return {
        "path": found.path,
        "model": found.model,
        "nearness": found.nearness,
        "variant": command.variant or None,
        "strategy": command.strategy or None,
        "hardware": found.hardware.id or None,
        "verified": found.verified or None,
        "minimum_vllm": found.minimum or None,
        "too_old": comparison.too_old,
        "command": {"argv": list(command.argv), "env": dict(command.env)},
        "same": list(comparison.same),
        "differences": [d._asdict() for d in comparison.differences],
        "dead": [d._asdict() for d in comparison.dead],
        "skipped": list(found.skipped),
    }
