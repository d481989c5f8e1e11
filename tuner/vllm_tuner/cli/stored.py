"""`tuner serve --profile ID`: exactly that plan with its flags, at the load that it was measured at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli.diagnostics import note
from vllm_advisor.errors import UsageError


if TYPE_CHECKING:
    from vllm_advisor.facts import Facts
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.profile import Profile
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.outcome import Outcome
    from vllm_tuner.spaces import Space
    from vllm_tuner.trial import Candidate


class Validation(NamedTuple):
    """What is to be measured again: the profile, as the store has it, and its plan on this machine's files."""

    profile: Profile
    candidate: Candidate
    space: Space


def find(store: str | None, number: str) -> Profile:
    """The profile. Raises StoreError."""
    from vllm_advisor import profiles

    return profiles.find(number, store)


def validation(profile: Profile, facts: Facts, *, offline: bool) -> Validation:
    """The profile as a space of one plan. Raises UsageError for a profile of another model, UnknownModel."""
    from vllm_tuner.estimated import ranked
    from vllm_tuner.spaces import Knob, Space
    from vllm_tuner.trial import Candidate

    if Path(profile.model or profile.plan.checkpoint).name != Path(facts.model.name).name:
        raise UsageError(f"profile {profile.id} is of {profile.model}", f"tuner serve {profile.model} --profile …")
    model = _loaded(profile.plan, facts, offline=offline)
    plan = replace(profile.plan, checkpoint=model.name)
    space = Space(facts, ((1, ranked(plan, model, facts)),), (Knob("plan", (1,), 1),))
    return Validation(profile, Candidate(plan, tuple(sorted(profile.flags))), space)


def _loaded(plan: Plan, facts: Facts, *, offline: bool) -> ModelSpec:
    """The checkpoint: of a folder an exported profile has only the last part of its name."""
    from vllm_advisor.cli import inputs

    if Path(plan.checkpoint).name == Path(facts.model.name).name:
        return facts.model
    beside = Path(facts.model.name).parent / plan.checkpoint
    return inputs.model(str(beside) if beside.is_dir() else plan.checkpoint, None, offline=offline)


def settle(outcome: Outcome, asked: Validation, store: ProfileStore, model: str) -> str:
    """Mark the profile as measured here, or say why it stays what it was; the id to show, "" where it failed.

    What was measured depends on this machine: a profile of another one is kept as one of ours besides.
    """
    from vllm_tuner.outcome import profile as profile_of

    trial = next((t for t in outcome.trials if t.id != outcome.incumbent.id), outcome.incumbent)
    refused = outcome.accuracy_of(trial)
    kept = profile_of(outcome, model, trial)
    if kept is None or refused.refused:
        why = refused.refused or trial.reason or f"{trial.state}"
        note(f"profile {asked.profile.id} stays what it was: {why}")
        return ""
    if refused.unchecked:
        note(f"profile {asked.profile.id} stays what it was: its accuracy was not checked ({refused.unchecked})")
        return ""
    store.validated(asked.profile.id, kept.measurement, kept.quality)
    if kept.fingerprint.same(asked.profile.fingerprint) and kept.plan == asked.profile.plan:
        return asked.profile.id
    return store.save_profile(kept)
