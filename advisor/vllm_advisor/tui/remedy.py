"""What a remedy of the doctor sets in the state: nothing where it is no limit of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.remedy import by_flags


if TYPE_CHECKING:
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.doctor.remedies import Fix
    from vllm_advisor.tui.screens.planned import Chosen
    from vllm_advisor.tui.state import State


def fields(fix: Fix, state: State, chosen: Chosen | None) -> dict[str, Any]:
    """Fields of the state to change; {} where somebody has to do it by hand."""
    flags = fix.change.flags
    if fix.change.env or not flags:
        return {}
    if len(flags) == 1 and flags[0][0] == "--port":
        port = flags[0][1] or ""
        return {"port": int(port)} if port.isdigit() else {}
    found = by_flags(state.question._replace(restrictions=_pinned(state, chosen)), flags)
    return {"load": found.load, "limits": found.restrictions} if found else {}


def _pinned(state: State, chosen: Chosen | None) -> Restrictions:
    """The limits; of a plan that was chosen by hand its layout, too, so that the remedy is one of this plan."""
    if chosen is None or chosen.number == 1:
        return state.limits
    plan = chosen.ranked.plan
    return state.limits._replace(
        tensor_parallel_size=plan.tensor_parallel_size,
        pipeline_parallel_size=plan.pipeline_parallel_size,
        data_parallel_size=plan.data_parallel_size,
        quantization=plan.quantization or state.limits.quantization,
    )
