"""What `advisor recommend`, `advisor profiles` and the wizard do with profiles: the door to the store for all three.

Looking for a match costs `recommend` a look whether the store exists, and one query where it does; only what writes or
lists loads the database library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_advisor.adoption import Match, Outcome
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.facts import Facts, Recommendation
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.profile import Event, Fingerprint, Profile


def matching(
    facts: Facts,
    path: Path | str | None = None,
    siblings: Sequence[ModelSpec] = (),
    revision: str | None = None,
) -> Match | None:
    """What was measured of this model, or of `siblings` that may be loaded instead, on such a machine; None: nothing.

    `path` is the store (None: the user's own). Never raises: a store that cannot be read is one of the match's notes.
    """
    from vllm_advisor.store.schema import may_exist  # noqa: PLC0415 - nothing is loaded where nothing is asked

    checkpoints = (facts.model, *siblings)
    measured, note = _measured(facts, checkpoints, path) if may_exist(path) else ((), "")
    reported = _reported(facts, checkpoints)
    if not (measured or note or reported):
        return None
    return _split(facts, [_here(profile, checkpoints) for profile in measured], checkpoints, revision)._replace(
        reported=reported, notes=(note,) if note else ()
    )


def _measured(facts: Facts, checkpoints: Sequence[ModelSpec], path: Path | str | None) -> tuple[Sequence[Profile], str]:
    """The store's profiles of such a machine, and why there are none where it cannot be read."""
    from vllm_advisor import fingerprint  # noqa: PLC0415 - nothing is loaded where nothing was measured
    from vllm_advisor.store import lookup  # noqa: PLC0415 - nothing is loaded where nothing was measured

    wanted = [fingerprint.loose(facts.node, model, facts.vllm.version) for model in checkpoints]
    return lookup.profiles_like(wanted, path)


def _here(profile: Profile, checkpoints: Sequence[ModelSpec]) -> Profile:
    """Of a folder an exported profile has only the last part of its name: the one here that ends so is meant."""
    from dataclasses import replace  # noqa: PLC0415 - nothing is loaded where nothing was measured

    known = profile.plan.checkpoint
    ends = [model.name for model in checkpoints if model.name.rstrip("/").rpartition("/")[2] == known]
    if len(ends) != 1 or profile.provenance.origin != "imported":
        return profile
    return profile._replace(plan=replace(profile.plan, checkpoint=ends[0]))


def _split(facts: Facts, found: Sequence[Profile], checkpoints: Sequence[ModelSpec], revision: str | None) -> Match:
    """Truths and priors, each prior with what keeps it from being a truth."""
    from vllm_advisor.adoption import Match  # noqa: PLC0415 - nothing is loaded where nothing was measured

    here = _fingerprints(facts, {profile.plan.checkpoint for profile in found}, checkpoints, revision)
    truths, priors = [], []
    for profile in found:
        why = difference(profile, here.get(profile.plan.checkpoint))
        if why:
            priors.append((profile, why))
        else:
            truths.append(profile)
    return Match(tuple(truths), tuple(priors), tuple(checkpoints))


def _fingerprints(
    facts: Facts, loaded: set[str], checkpoints: Sequence[ModelSpec], revision: str | None
) -> dict[str, Fingerprint]:
    """What is here now, for each checkpoint that a profile loads."""
    from vllm_advisor import fingerprint  # noqa: PLC0415 - nothing is loaded where nothing was measured

    models = [model for model in checkpoints if model.name in loaded]
    software = fingerprint.installed() if models else None
    return {
        model.name: fingerprint.fingerprint(
            facts.node, model, facts.vllm.version, software,
            fingerprint.checkpoint(model.name, revision if model is facts.model else None),
        )
        for model in models
    }  # fmt: skip


def difference(profile: Profile, here: Fingerprint | None) -> str:
    """Why a profile is no truth here, in words; "" where it is one."""
    if not profile.is_truth:
        return f"it was {profile.provenance.origin} and not measured here (advisor profiles validate {profile.id})"
    if here is None:
        return f"it loads {profile.plan.checkpoint}"
    for name, value in here.strict:
        was = profile.fingerprint.reading(name)
        for side, when in ((value, "now"), (was, "then")):
            if isinstance(side, Unknown):
                return f"{name} was not read {when} ({side.why})"
        if value != was:
            return f"{name} is {_short(value)}, it was {_short(was)}"
    return "" if here.same(profile.fingerprint) else "other things were recorded of it than are now"


def _short(value: str | Unknown) -> str:
    text = str(value)
    return text if len(text) <= 32 else text[:29] + "…"


def _reported(facts: Facts, checkpoints: Sequence[ModelSpec]) -> tuple[str, ...]:
    """What public sources measured of these models on this kind of device."""
    import vllm_profiles  # noqa: PLC0415 - nothing is loaded where nothing was measured

    names = tuple(model.name for model in checkpoints)
    return tuple(reported_line(row) for row in vllm_profiles.of(names, facts.node.gpu.name))


def reported_line(row: dict[str, Any]) -> str:
    """One shipped profile in a line, with its source."""
    from vllm_advisor.store import form  # noqa: PLC0415 - nothing is loaded where nothing was measured
    from vllm_advisor.units import count, rate  # noqa: PLC0415 - nothing is loaded where nothing was measured

    load, machine = row["workload"], row["machine"]
    figure = row["measurement"]["figures"]["output_tok_s"]
    layout = form.plan_from(row["plan"]).layout
    return (
        f"{row['model']} on {machine['devices']}x{machine['gpu']}, vLLM {row['vllm']}, {layout}: "
        f"{rate(figure)} out at {count(load['input_tokens'])} in, {count(load['output_tokens'])} out, "
        f"{load['concurrency']} at once ({row['provenance']['source']})"
    )


def apply(found: Recommendation, match: Match, restrictions: Restrictions | None = None, top: int = 5) -> Outcome:
    """`adoption.apply`: the measured plan first, the estimates corrected."""
    from vllm_advisor import adoption  # noqa: PLC0415 - nothing is loaded where nothing was measured

    return adoption.apply(found, match, restrictions, top)


def lines(outcome: Outcome, match: Match) -> list[str]:
    """What `advisor recommend` says of profiles, below its answer; plain text, nothing where there is nothing."""
    from vllm_advisor.profiles_text import summary  # noqa: PLC0415 - nothing is loaded where nothing was measured

    said = (
        [f"  plan 1 was measured {summary(outcome.measured)}: profile {outcome.measured.id}"]
        if outcome.measured
        else []
    )
    said += [f"  {remark}" for remark in outcome.remarks]
    said += [f"  reported by others: {line}" for line in match.reported]
    return ["", "Measured before", *said] if said else []


def document(outcome: Outcome, match: Match) -> dict[str, Any]:
    """The same for `--json`, under the key `profiles`."""
    from vllm_advisor.store import form  # noqa: PLC0415 - nothing is loaded where nothing was measured

    measured = outcome.measured
    return {
        "measured_plan": 1 if measured else None,
        "profile": measured.id if measured else None,
        "measurement": {"kind": "measurement", **form.measurement_to(measured.measurement)} if measured else None,
        "remarks": list(outcome.remarks),
        "priors": [profile.id for profile, _ in match.priors],
        "reported": list(match.reported),
    }


def stored(url: str | Path | None = None, model: str | None = None) -> tuple[Profile, ...]:
    """Every profile, the newest first; () where there is no store yet. Raises StoreError."""
    if not _exists(url):
        return ()
    with _opened(url) as store:
        found: tuple[Profile, ...] = store.profiles(model)
        return found


def find(prefix: str, url: str | Path | None = None) -> Profile:
    """The profile whose id begins so. Raises StoreError."""
    from vllm_advisor.errors import StoreError  # noqa: PLC0415 - nothing is loaded where nothing was measured

    if not _exists(url):
        raise StoreError(f"there is no profile {prefix!r}: the store is empty", "tuner serve MODEL measures one")
    with _opened(url) as store:
        found: Profile = store.profile(prefix)
        return found


def keep(profile: Profile, url: str | Path | None = None) -> str:
    """Save one profile; returns its id. Raises StoreError."""
    with _opened(url) as store:
        return str(store.save_profile(profile))


def remove(prefixes: Sequence[str], url: str | Path | None = None) -> Iterator[Profile]:
    """Remove them all, or none where one is not there; yields what went. Raises StoreError."""
    gone = {profile.id: profile for profile in (find(prefix, url) for prefix in prefixes)}
    with _opened(url) as store:
        for number, profile in gone.items():
            store.remove_profile(number)
            yield profile


def _exists(url: str | Path | None) -> bool:
    from vllm_advisor.store import schema  # noqa: PLC0415 - nothing is loaded where nothing was measured

    place = schema.place(url)
    return place.path is None or place.path.exists()


def _opened(url: str | Path | None) -> Any:
    from vllm_advisor.store.profile_store import ProfileStore  # noqa: PLC0415 - nothing is loaded where nothing was measured

    return ProfileStore.open(url)


def export(prefix: str, file: Path, url: str | Path | None = None) -> str:
    """Write a profile as text to carry elsewhere; its id. Nothing is overwritten. Raises StoreError, BadInput."""
    from vllm_advisor.errors import BadInput  # noqa: PLC0415 - nothing is loaded where nothing was measured
    from vllm_advisor.store import exchange  # noqa: PLC0415 - nothing is loaded where nothing was measured

    found = find(prefix, url)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(exchange.export(found))
    except FileExistsError:
        raise BadInput(f"{file} exists and is not overwritten", "give another name") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}", "give another folder") from None
    return found.id


def history(last: int = 200, url: str | Path | None = None) -> tuple[Event, ...]:
    """What tuner and daemon did and why, the newest first; () where there is no store yet. Raises StoreError."""
    if not _exists(url):
        return ()
    with _opened(url) as store:
        found: tuple[Event, ...] = store.events(last)
        return found
