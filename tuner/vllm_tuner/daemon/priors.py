"""What the store knows of a machine like this: the profile that may be running, and news that promise more than it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tuner.daemon import kept
from vllm_tuner.daemon.drift_reason import Prior


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.profile import Fingerprint, Profile
    from vllm_advisor.store.profile_store import ProfileStore

_SPEED = "output_tok_s"


def running(store: ProfileStore, node: str, known: str, *, managed: bool) -> tuple[str, bool]:
    """The profile that runs, "" for none, and whether it may be guessed. Raises StoreError.

    `known`: adopted or configured. A unit says by itself what it runs. What an unmanaged server runs is guessed once:
    of what is stored later, most comes from searches of our own and runs nowhere.
    """
    if known or managed:
        return known, False
    before = store.kept(kept.RUNS, node)
    return before or "", before is None


def look(store: ProfileStore, here: Fingerprint, runs: str, *, guess: bool) -> tuple[str, Prior | None]:
    """The id of what runs, and the prior that promises most. Raises StoreError.

    `guess`: where it is not known what runs, the best match is taken for it.
    """
    found = store.matching(here)
    number = runs or (best_match(found, here) if guess else "")
    return number, best(found, store.profile(number)) if number else None


def best_match(found: Sequence[Profile], here: Fingerprint) -> str:
    """The id of the best profile that was measured on exactly this, "" for none. `found`: as the store sorts them."""
    exact = (one for one in found if here.same(one.fingerprint) and one.is_truth and one.accurate)
    return next((one.id for one in exact), "")


def best(found: Sequence[Profile], runs: Profile) -> Prior | None:
    """The prior that promises most at the load that the running plan was measured at; None: none is comparable."""
    return better(*(_prior(one, runs) for one in found))


def better(*news: Prior | None) -> Prior | None:
    """The one that promises most; None: there is none."""
    return max((one for one in news if one is not None), key=lambda prior: (prior.gain, prior.id), default=None)


def _prior(one: Profile, runs: Profile) -> Prior | None:
    """Only what was not measured here counts as news: what was, has been in a contest already."""
    load, own = one.measurement.workload, runs.measurement.workload
    speed, now = one.measurement.figure(_SPEED), runs.measurement.figure(_SPEED)
    if one.is_truth or one.id == runs.id or load is None or own is None or not speed or not now or now.mid <= 0:
        return None
    from vllm_advisor.adoption import same_load  # brings the whole of `recommend`: only where there is a prior

    if not same_load(load, own):
        return None
    return Prior(one.id, speed.mid / now.mid - 1, f"profile {one.id} ({one.provenance.origin})")
