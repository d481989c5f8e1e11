"""`tuner serve --against`: what runs now, as the id of a profile or as the command that started it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli.diagnostics import note
from vllm_advisor.errors import UsageError
from vllm_tuner.cli import stored
from vllm_tuner.trial import Candidate


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Reading, Setting
    from vllm_advisor.facts import Facts, Ranked
    from vllm_advisor.profile import Scalar

# Options of vLLM's API server, which answer and log but do not compute, and those that a plan says itself.
_SERVER_GROUPS = ("Frontend", "BaseFrontend", "")
_NAMES = ("--served-model-name", "--model", "--revision", "--tokenizer", "--seed")


class Running(NamedTuple):
    """What has to be beaten, and its plan with its memory and predicted speed, as those that are recommended."""

    candidate: Candidate
    ranked: Ranked


def running(text: str, facts: Facts, store: str | None, *, offline: bool) -> Running:
    """From `--against`. Raises StoreError, UsageError for another model, BadInput for what starts no server."""
    from vllm_advisor.check.asked import split

    words = split(text)
    if len(words) > 1:
        return of_command(words, facts)
    found = stored.validation(stored.find(store, text.strip()), facts, offline=offline)
    return Running(found.candidate, found.space.plans[0][1])


def of_command(words: list[str], facts: Facts) -> Running:
    """The plan that a command comes to on this version and machine; further options of the engine go along as flags."""
    from vllm_advisor.check import configuration, read
    from vllm_advisor.check.parse import parse
    from vllm_tuner.estimated import ranked

    reading = parse(read.command_line(words), facts.vllm)
    if reading.model is None or Path(reading.model).name != Path(facts.model.name).name:
        raise UsageError(f"--against serves {reading.model or 'no model'}", f"tuner serve {reading.model or 'MODEL'} …")
    for setting in reading.settings:
        if setting.flag is None:  # of a plugin, or of a newer build: it runs, so it is no reason to stop
            note(f"--against: vLLM {facts.vllm.version} has no {setting.spelling}: it is left out of the comparison")
    plan = configuration.judged(configuration.asked(reading, facts.vllm), facts.node, facts.model).case.plan
    return Running(Candidate(plan, tuple(sorted(_flags(reading)))), ranked(plan, facts.model, facts))


def _flags(reading: Reading) -> Iterator[tuple[str, Scalar]]:
    """What the engine is told beyond a plan. Folders stay out: they name a person, and speed does not hang on them."""
    from vllm_advisor.vllm.command import PLAN_FLAGS

    last = {setting.flag.name: setting for setting in reading.settings if setting.flag}
    for name, setting in last.items():
        if setting.flag is None or setting.flag.group in _SERVER_GROUPS or name in (*_NAMES, *PLAN_FLAGS):
            continue
        value = _value(setting)
        if not isinstance(value, str) or "/" not in value:
            yield (setting.spelling if value is True else name), value


def _value(setting: Setting) -> Scalar:
    return True if setting.value is None else setting.value
