"""What a newer advisor promises: its surfaces and its model know more than the one that a profile was found with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from vllm_advisor import __version__
from vllm_tuner.daemon.drift_reason import Prior


if TYPE_CHECKING:
    from vllm_advisor.facts import Facts
    from vllm_advisor.profile import Profile


def advice(runs: Profile, facts: Facts) -> Prior | None:
    """The best plan of this advisor at the load of a profile that an older one found; None: nothing clearly better.

    Both sides are estimates of the same model, so that what it does not know cancels; within the ratio of a tie
    nothing is promised. The same advisor has said all that it knows. Raises UnknownModel for what the profile loads.
    """
    from vllm_advisor import question
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.recommend import recommend
    from vllm_advisor.score import TIE, worth
    from vllm_tuner.estimated import ranked

    load = runs.measurement.workload
    if load is None or runs.provenance.by.endswith(f" {__version__}"):
        return None
    facts = facts._replace(workload=load)
    found = recommend(facts, question.siblings(facts.model), Restrictions(), 1).plans
    if not found:
        return None
    loaded = runs.plan.checkpoint
    model = facts.model if loaded == facts.model.name else question.model(loaded, None, offline=True)
    sides = (found[0], ranked(runs.plan, model, facts))
    best, now = (worth(load, side.estimate, side.plan.world_size) for side in sides)
    if best <= TIE * now:
        return None
    number = hashlib.sha256(repr(found[0].plan).encode()).hexdigest()[:12]
    source = f"advisor {__version__} for vLLM {facts.vllm.version}, by its estimates,"
    return Prior(f"advisor:{__version__}:{facts.vllm.version}:{number}", best / now - 1, source)
