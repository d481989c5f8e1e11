"""Options themselves: whether this version has them, had them or will have them, and how they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import options
from vllm_advisor.check.finding import Change, Finding
from vllm_advisor.check.ids import BY_ID
from vllm_advisor.check.nearest import nearest
from vllm_advisor.check.parse import start_length
from vllm_advisor.check.values import is_judged, is_unresolved
from vllm_advisor.vllm.changes import successor_of_flag


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Reading, Setting
    from vllm_advisor.vllm.changes import Successor
    from vllm_advisor.vllm.surface import Surface

_DASHES = "–—−"
# Stands in a successor where no value was given to it.
_MARK = "VALUE"
_OFF = ("false", "0", "no", "off")


def findings(reading: Reading, surface: Surface) -> tuple[Finding, ...]:
    """Every fault of options and words themselves: unknown ones first, then how they are written, then the model."""
    found = [*_unknown(reading, surface), *_written(reading, surface), *_surplus(reading, surface)]
    found += [*_model(reading), *_config(reading, surface), *_unresolved(reading)]
    return tuple(found)


def _unknown(reading: Reading, surface: Surface) -> Iterator[Finding]:
    for setting in reading.settings:
        if setting.flag is None:
            option = options.read(reading.invocation.argv[setting.word], surface)
            yield _missing(setting, option or options.Option(setting.spelling), surface, reading)


def _missing(setting: Setting, option: options.Option, surface: Surface, reading: Reading) -> Finding:
    """One option that this version's parser refuses."""
    name = option.name.partition(".")[0]
    if name in options.HELP:
        return _finding("FLG-17", setting, f"{name} prints text and starts no server", "", _without(setting))
    if option.candidates:
        text = f"{setting.spelling} could be {', '.join(option.candidates[:6])}"
        return _finding("FLG-04", setting, text, "write it in full")
    there = released(name)
    if there and _release(there[0]) > surface.release:
        text = f"{setting.spelling} came with vLLM {there[0]}; {surface.version} does not have it"
        later = _finding("FLG-03", setting, text, f"leave it out, or run vLLM {there[0]}", _without(setting))
        return _succeeded(later, setting, name, surface) or later
    text = f"{setting.spelling} is gone from vLLM {surface.version}"
    if there:
        text = f"{text}: {there[-1]} was the last to have it"
    gone = _finding("FLG-02", setting, text, "leave it out", _without(setting))
    return _succeeded(gone, setting, name, surface) or (gone if there else _unheard(setting, name, surface, reading))


def _succeeded(finding: Finding, setting: Setting, name: str, surface: Surface) -> Finding | None:
    """The finding with what stands in the option's place; None where nobody wrote that down."""
    found = successor_of_flag(name, surface, setting.value)
    if found is None:
        return None
    hint, change = instead(found, setting.word, setting.end)
    return finding._replace(hint=hint, change=change, source=found.source)


def instead(found: Successor, word: int, end: int) -> tuple[str, Change | None]:
    """What to do and the change, for a successor of the words [word, end); no change where a question is open."""
    settings = [f"{name}={value}" for name, value in found.env]
    new = " ".join([*found.words, *settings])
    hint = f"write {new}: {found.text}" if new else f"leave it out: {found.text}"
    if found.condition:
        return f"{hint} (if the checkpoint is {found.condition})", None
    if any(_MARK in part for part in (*found.words, *settings)):
        return hint, None
    return hint, Change(word, end, found.words, found.env)


def _unheard(setting: Setting, name: str, surface: Surface, reading: Reading) -> Finding:
    """No version that we know has it: a slip."""
    near = nearest(name if name.startswith("--") else f"-{name}", options.strings(surface))
    text = f"vLLM {surface.version} has no {setting.spelling}"
    if not near:
        return _finding("FLG-01", setting, text, "leave it out", _without(setting))
    return _finding("FLG-01", setting, text, f"did you mean {near}?", _renamed(setting, near, reading, surface))


def released(name: str) -> tuple[str, ...]:
    """The versions that we know whose parser has that option string, oldest first."""
    from vllm_advisor.vllm import surface as surfaces  # noqa: PLC0415

    return tuple(v for v in surfaces.versions() if name in options.strings(surfaces.load(v)))


def _release(version: str) -> tuple[int, int, int]:
    from vllm_advisor.vllm.surface import release_of  # noqa: PLC0415

    return release_of(version)


def _without(setting: Setting) -> Change:
    return Change(setting.word, setting.end)


def _renamed(setting: Setting, name: str, reading: Reading, surface: Surface) -> Change:
    """The same values under another name; a switch keeps none."""
    meant = options.strings(surface).get(name)
    words = reading.invocation.argv[setting.word : setting.end]
    if meant and options.takes(meant[0]) == "0":
        return Change(setting.word, setting.end, (name,))
    equals = words[0].partition("=")
    first = f"{name}={equals[2]}" if equals[1] else name
    return Change(setting.word, setting.end, (first, *words[1:]))


def _written(reading: Reading, surface: Surface) -> Iterator[Finding]:
    """Options that the parser takes: abbreviated, deprecated, twice."""
    for setting in reading.settings:
        if setting.flag is None:
            continue
        option = options.read(reading.invocation.argv[setting.word], surface)
        if option and setting.spelling != "-O" and _is_short(option, surface):
            full = _full(option, surface)
            text = f"{setting.spelling} is an abbreviation of {full}"
            yield _finding("FLG-05", setting, text, f"write {full}", _renamed(setting, full, reading, surface))
        since = surface.deprecated_flags.get(setting.flag.name)
        if since:
            yield _finding("FLG-06", setting, f"{setting.flag.name} is deprecated in vLLM {surface.version}")
    yield from _twice(reading)
    yield from _dotted(reading)


def _is_short(option: options.Option, surface: Surface) -> bool:
    known = options.strings(surface)
    return option.name not in known and option.name.partition(".")[0] not in known


def _full(option: options.Option, surface: Surface) -> str:
    """The option string that an abbreviation stands for."""
    fitting = [name for name in options.strings(surface) if name.startswith(option.name)]
    return fitting[0] if fitting else option.flag.name if option.flag else option.name


def _twice(reading: Reading) -> Iterator[Finding]:
    """The last one counts; a config file's option under the command line's own is meant so."""
    last: dict[str, Setting] = {}
    for setting in reading.settings:
        if setting.flag is None or "." in setting.spelling or setting.flag.name == "--middleware":
            continue
        before = last.get(setting.flag.name)
        if before and (before.word in reading.invocation.joined) == (setting.word in reading.invocation.joined):
            same = (before.value, before.spelling) == (setting.value, setting.spelling)
            says = "with the same value" if same else f"{_text(before)} and {_text(setting)}: the last one counts"
            yield _finding("FLG-07", before, f"{setting.flag.name} is given twice, {says}", "", _without(before))
        last[setting.flag.name] = setting


def _text(setting: Setting) -> str:
    """As written, but for a key, which no finding repeats."""
    secret = setting.flag is not None and setting.flag.name == "--api-key"
    return setting.spelling if setting.value is None or secret else f"{setting.spelling} {setting.value}"


def _dotted(reading: Reading) -> Iterator[Finding]:
    dotted = {s.flag.name for s in reading.settings if s.flag and "." in s.spelling}
    for setting in reading.settings:
        if setting.flag and setting.flag.name in dotted and "." not in setting.spelling:
            text = f"{setting.flag.name}: the dotted keys replace this JSON, they are not added to it"
            yield _finding("FLG-15", setting, text, "give all of it one way")


def _surplus(reading: Reading, surface: Surface) -> Iterator[Finding]:
    """Words that argparse calls unrecognized arguments."""
    argv = reading.invocation.argv
    ends = {s.end: s for s in reading.settings if s.flag and options.takes(s.flag) == "0"}
    is_module = argv[start_length(argv) - 1 :][:1] != ("serve",)
    for number, word in enumerate(reading.surplus):
        switch = ends.get(word)
        if is_module and number == 0 and not switch:
            yield _ignored_model(reading, word)
        elif switch and switch.flag:
            off = argv[word].lower() in _OFF and switch.flag.kind == "bool"
            name = f"--no-{switch.flag.name[2:]}" if off else switch.spelling
            text = f"{switch.flag.name} is a switch: {argv[word]!r} behind it is an unrecognized argument"
            yield _at("VAL-02", word, text, f"write {name} alone", Change(switch.word, word + 1, (name,)))
        else:
            yield _stray(word, argv[word], surface)


def _stray(word: int, text: str, surface: Surface) -> Finding:
    if text[:1] in _DASHES:
        name = f"--{text.lstrip(_DASHES)}"
        known = options.read(name, surface)
        change = Change(word, word + 1, (name,)) if known and known.flag else None
        return _at("FLG-08", word, f"{text} begins with a dash of a word processor", f"write {name}", change)
    says = f"{text!r} is neither an option, nor a value, nor the model"
    return _at("FLG-08", word, says, "take it away, or put quotes around what belongs together")


def _ignored_model(reading: Reading, word: int) -> Finding:
    text = reading.invocation.argv[word]
    says = (
        f"python -m …api_server reads --model only: {text} is ignored, {reading.model or 'Qwen/Qwen3-0.6B'} is served"
    )
    change = Change(word, word + 1, ("--model", text)) if reading.model is None else None
    return _at("FLG-11", word, says, f"--model {text}", change)


def _model(reading: Reading) -> Iterator[Finding]:
    """How the model is given, if at all."""
    argv = reading.invocation.argv
    head = start_length(argv)
    serves = argv[head - 1 :][:1] == ("serve",)
    named = [s for s in reading.settings if s.flag and s.flag.name == "--model" and s.value is not None]
    typed = [s for s in named if s.word not in reading.invocation.joined]
    if serves and typed:
        text = "with `vllm serve`, --model will be removed"
        change = Change(head, typed[0].end, (typed[0].value or "", *argv[head : typed[0].word]))
        yield _finding("FLG-09", typed[0], text, f"write: vllm serve {typed[0].value}", change)
    elif reading.model is None and not (reading.surplus and not serves):
        yield from _no_model(reading)


def _no_model(reading: Reading) -> Iterator[Finding]:
    names = [s for s in reading.settings if s.flag and s.flag.name == "--served-model-name"]
    if "--config" in reading.invocation.argv:  # it may name the model
        return
    if names and not reading.invocation.config:
        text = "--served-model-name names a model that is not given: vLLM stops"
        yield _finding("FLG-18", names[0], text, "write: vllm serve MODEL --served-model-name …")
    else:
        yield _at("FLG-10", -1, "no model is given: vLLM serves Qwen/Qwen3-0.6B", "write: vllm serve MODEL …")


def _config(reading: Reading, surface: Surface) -> Iterator[Finding]:
    """`--config`, and what a config file loses on the way."""
    argv = reading.invocation.argv
    for setting in reading.settings:
        if setting.flag and setting.flag.name == "--config" and setting.value is not None:
            yield _config_file(setting, argv)
    if not surface.at_least(0, 28):
        for word in reading.invocation.falses:
            if options.read(argv[word], surface) and (option := options.read(argv[word], surface)) and option.flag:
                key = argv[word].removeprefix("--no-")
                text = f"`{key}: false` is dropped by vLLM {surface.version}: the default stays"
                yield _at("FLG-14", word, text, f"write `no-{key}: true`")


def _config_file(setting: Setting, argv: tuple[str, ...]) -> Finding:
    value = setting.value or ""
    if setting.end - setting.word == 1:
        says = f"--config={value} in one word is not read, and no error tells"
        return _finding("FLG-12", setting, says, "write it as two words", _two_words(setting, value))
    if argv.count("--config") > 1:
        return _finding("FLG-12", setting, "more than one --config: vLLM stops", "join the files")
    if not value.endswith((".yaml", ".yml")) and not is_unresolved(value):
        return _finding("FLG-12", setting, f"--config {value}: the name must end in .yaml or .yml")
    return _finding("FLG-13", setting, f"{value} is not here: what it says is not judged")


def _two_words(setting: Setting, value: str) -> Change:
    return Change(setting.word, setting.end, ("--config", value))


def _unresolved(reading: Reading) -> Iterator[Finding]:
    """One note for all that only a run can tell."""
    names = [_text(s) for s in reading.settings if s.flag and is_judged(s.flag) and is_unresolved(s.value)]
    names += [reading.model] if reading.model and is_unresolved(reading.model) else []
    if names:
        yield _at("FLG-16", -1, f"only a run can tell: {', '.join(names[:8])}", "set the variables in the same file")


def _at(finding_id: str, word: int, text: str, hint: str = "", change: Change | None = None) -> Finding:
    row = BY_ID[finding_id]
    return Finding(finding_id, row.level, text, row.source, hint, "", word, change)


def _finding(finding_id: str, setting: Setting, text: str, hint: str = "", change: Change | None = None) -> Finding:
    subject = setting.flag.name if setting.flag else setting.spelling.replace("_", "-")
    return _at(finding_id, setting.word, text, hint, change)._replace(subject=subject)
