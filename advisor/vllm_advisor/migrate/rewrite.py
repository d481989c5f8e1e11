"""The command in the words of another version: flags, values and variables that it lacks are translated or left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.check import fix
from vllm_advisor.check.finding import Change
from vllm_advisor.check.parse import parse
from vllm_advisor.migrate.fold import folded
from vllm_advisor.migrate.item import DROPPED, KEPT, TRANSLATED, Item
from vllm_advisor.vllm import surface as surfaces
from vllm_advisor.vllm.changes import choices_of, successor_of_choice, successor_of_env, successor_of_flag


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Invocation, Setting
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.changes import Successor
    from vllm_advisor.vllm.surface import Surface

_SURFACE = "the version's own parser (engine/arg_utils.py)"
_VARIABLES = "envs.py"


class Step(NamedTuple):
    """One thing that is rewritten: what is said of it and the change."""

    item: Item
    change: Change | None = None


def rewrite(
    invocation: Invocation, old: Surface, new: Surface, model: ModelSpec | None = None
) -> tuple[Invocation, tuple[Item, ...]]:
    """The command for `new`, and what was done to it, in the order of its words and then of its variables.

    The model decides what a value means that depends on the checkpoint (`--quantization fp8`); None: such a value
    stays as it is.
    """
    steps = [*_settings(invocation, old, new, model), *_variables(invocation, old, new)]
    after = fix.apply(invocation, _placed(invocation, [s.change for s in steps if s.change], new))
    return folded(parse(invocation, old), after, new), tuple(s.item for s in steps)


def _placed(invocation: Invocation, changes: list[Change], new: Surface) -> list[Change]:
    """Words that come from variables go to the end, once, and only where the command does not say them itself."""
    end = len(invocation.argv)
    given = {name for word in invocation.argv if (name := new.spelling(word)) and word.startswith("-")}
    inserted = [c for c in changes if c.words and c.word == c.end]
    words: list[str] = []
    for change in inserted:
        for option in _options(change.words):
            if new.spelling(option[0]) not in given or "." in option[0]:
                words += option
    others = [c for c in changes if c not in inserted]
    variables = [Change(env=c.env) for c in inserted if c.env]
    return [*others, *variables, *([Change(end, end, tuple(words))] if words else [])]


def _options(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Words by option: each flag with its values."""
    found: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--") or not found:
            found.append((word,))
        else:
            found[-1] = (*found[-1], word)
    return found


def _settings(invocation: Invocation, old: Surface, new: Surface, model: ModelSpec | None) -> Iterator[Step]:
    reading = parse(invocation, old)
    for setting in reading.settings:
        step = _setting(setting, invocation, new, model)
        if step is not None:
            yield step


def _setting(setting: Setting, invocation: Invocation, new: Surface, model: ModelSpec | None) -> Step | None:
    spelling = setting.spelling
    name = setting.flag.name if setting.flag else spelling.replace("_", "-")
    if new.has_flag(spelling):
        return _key(setting, new) or _value(setting, new, model)
    if setting.flag and name in new.flags:  # an alias, a prefix or an opposite that only the other version has
        words = (f"--no-{name[2:]}" if _negates(setting) else name, *_rest(setting, invocation))
        return _translated(setting, words, "the name in full", _SURFACE)
    found = successor_of_flag(spelling if setting.flag is None else _typed(setting, name), new, setting.value)
    if found is not None:
        return _succeeded(setting, found)
    if setting.flag is None and not _known(name):
        text = "neither version has it: it stays as it is, and vLLM will refuse it"
        return Step(Item(KEPT, spelling, _said(setting), _said(setting), text, _SURFACE, carried=False))
    return Step(
        Item(DROPPED, name, _said(setting), "", _why_gone(name, new), _SURFACE, carried=False),
        Change(setting.word, setting.end),
    )


def _negates(setting: Setting) -> bool:
    return setting.spelling.replace("_", "-").startswith("--no-")


def _typed(setting: Setting, name: str) -> str:
    """The flag's full name, with the keys or the negation that were typed."""
    spelling = setting.spelling.replace("_", "-") if "." not in setting.spelling else setting.spelling
    return spelling if "." in spelling or _negates(setting) else name


def _rest(setting: Setting, invocation: Invocation) -> tuple[str, ...]:
    """The words of a setting's value."""
    if setting.end - setting.word > 1:
        return invocation.argv[setting.word + 1 : setting.end]
    attached = "=" in invocation.argv[setting.word]
    return (setting.value,) if attached and setting.value is not None else ()


def _known(name: str) -> bool:
    return any(surfaces.load(version).has_flag(name) for version in surfaces.versions())


def _why_gone(name: str, new: Surface) -> str:
    """When it came or went, by the surfaces."""
    there = [v for v in surfaces.versions() if surfaces.load(v).has_flag(name)]
    if there and surfaces.release_of(there[0]) > new.release:
        return f"it came with {there[0]}; nothing does it before"
    return f"{there[-1]} was the last to have it; nothing stands in its place" if there else "nothing does it"


def _said(setting: Setting) -> str:
    return f"{setting.spelling} {setting.value}" if setting.value is not None else setting.spelling


def _succeeded(setting: Setting, found: Successor) -> Step:
    """The successor in the setting's place."""
    change = Change(setting.word, setting.end, found.words, found.env)
    after = " ".join((*found.words, *(f"{name}={value}" for name, value in found.env)))
    kind = TRANSLATED if after else DROPPED
    return Step(Item(kind, setting.spelling, _said(setting), after, found.text, found.source, found.keeps), change)


def _translated(setting: Setting, words: tuple[str, ...], text: str, source: str) -> Step:
    item = Item(TRANSLATED, setting.spelling, _said(setting), " ".join(words), text, source)
    return Step(item, Change(setting.word, setting.end, words))


def _value(setting: Setting, new: Surface, model: ModelSpec | None) -> Step | None:
    """A value that the new version lacks or deprecates; a value that only a run can tell is left alone."""
    name, value = new.spelling(setting.spelling), setting.value
    if name is None or value is None or "$" in value:
        return None
    known = choices_of(name, new)
    takes = not known or value in known or value.upper() in known
    found = successor_of_choice(name, value, new)
    if found is not None and (not takes or found.condition or name in ("--all2all-backend", "--mamba-cache-mode")):
        return _conditional(setting, found, model) if found.condition else _succeeded(setting, found)
    if takes:
        return None
    text = f"{name} does not take {value} in {new.version}: {', '.join(map(str, known[:12]))}"
    return Step(Item(KEPT, name, _said(setting), _said(setting), text, _SURFACE, carried=False))


def _conditional(setting: Setting, found: Successor, model: ModelSpec | None) -> Step | None:
    """A replacement that holds for an unquantized checkpoint; where the model is not known it is only said."""
    if model is not None:
        return _succeeded(setting, found) if model.quantization.method == "none" else None
    text = f"write {' '.join(found.words)}, {found.text}"
    return Step(Item(KEPT, setting.spelling, _said(setting), _said(setting), text, found.source))


def _key(setting: Setting, new: Surface) -> Step | None:
    """A dotted key of a configuration that is gone: `--attention-config.use_fp4_indexer_cache true`."""
    if "." in setting.spelling:
        found = successor_of_flag(setting.spelling.replace("-", "_").replace("_", "-"), new, setting.value)
        return _succeeded(setting, found) if found else None
    try:
        keys = json.loads(setting.value or "") if (setting.value or "").startswith("{") else {}
    except ValueError:
        return None
    name = new.spelling(setting.spelling)
    gone = {k: f for k, v in keys.items() if (f := successor_of_flag(_dotted(str(name), k), new, _plain(v)))}
    return _without(setting, keys, gone) if gone else None


def _dotted(name: str, key: str) -> str:
    return f"{name}.{key}".replace("_", "-")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _without(setting: Setting, keys: dict[str, object], gone: dict[str, Successor]) -> Step:
    """The JSON without the keys that are gone, and their successors beside it."""
    left = {key: value for key, value in keys.items() if key not in gone}
    words = tuple(word for found in gone.values() for word in found.words)
    kept = (setting.spelling, json.dumps(left)) if left else ()
    text = "; ".join(f"{key}: {found.text}" for key, found in gone.items())
    first = next(iter(gone.values()))
    item = Item(TRANSLATED, setting.spelling, _said(setting), " ".join((*kept, *words)), text, first.source,
                all(f.keeps for f in gone.values()))  # fmt: skip
    return Step(item, Change(setting.word, setting.end, (*kept, *words)))


def _variables(invocation: Invocation, old: Surface, new: Surface) -> Iterator[Step]:
    end = len(invocation.argv)
    for name, value in invocation.env:
        if name in new.env or not (name in old.env or name.startswith("VLLM_")):
            continue
        found, before = successor_of_env(name, new, value), f"{name}={value}"
        if found is not None:
            after = " ".join((*(f"{n}={v}" for n, v in found.env), *found.words))
            kind = TRANSLATED if after else DROPPED
            item = Item(kind, name, before, after, found.text, found.source, found.keeps)
            yield Step(item, Change(end, end, found.words, (*found.env, (name, None))))
        elif name in old.env or any(name in surfaces.load(v).env for v in surfaces.versions()):
            text = f"{new.version} does not read it, and nothing stands in its place"
            yield Step(Item(DROPPED, name, before, "", text, _VARIABLES, carried=False), Change(env=((name, None),)))
        else:
            text = "neither version reads it: vLLM warns, and stops with --fail-on-environ-validation"
            yield Step(Item(KEPT, name, before, before, text, _VARIABLES))
