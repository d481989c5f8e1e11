"""Our own vLLM plugin: where it cannot serve, and what its owner has to know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm_advisor.rules import views
from vllm_advisor.rules.predicates_widths import TOWER, inputs
from vllm_advisor.vllm import backends, plugin


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Case


def plugin_refuses(case: Case) -> Mapping[str, Any] | None:
    """`advisor_mxfp4` for a version, device, model or layout that it does not serve."""
    model, plan = case.facts.model, case.plan
    if not plugin.serves(model, plan):
        return None
    reason = plugin.refusal(case.facts.vllm, views.arch(case), model) or _layout(case)
    return {"reason": reason} if reason else None


def _layout(case: Case) -> str:
    """What the layout asks of it in vain: a plain checkpoint's linear layers may stay in 16 bits, experts may not."""
    if case.plan.enable_eplb:
        return "it does not move experts between ranks (EPLB)"
    packed = case.facts.model.quantization.method == plugin.NAME
    for layer, width in inputs(case):
        if width % plugin.BLOCK and (layer == "an expert" or (packed and layer != TOWER)):
            return f"the input of {layer} is {width} on a rank, and {plugin.BLOCK} elements share a scale"
    return ""


def needs_our_plugin(case: Case) -> Mapping[str, Any] | None:
    """The weights are run by our plugin, not by vLLM."""
    if not plugin.serves(case.facts.model, case.plan):
        return None
    found = views.main_arithmetic(case)
    return {"kernel": found.backend, "bits": found.compute_bits, "beside": _own(case), "install": plugin.INSTALL}


def plugin_saves_memory_only(case: Case) -> Mapping[str, Any] | None:
    """Our plugin quantizes the weights, and has to multiply in BF16 all the same."""
    if not plugin.converts(case.facts.model, case.plan) or plugin.uses_fp8(views.arch(case)):
        return None
    return {"arch": views.arch(case)}


def _own(case: Case) -> str:
    """What vLLM itself would run these weights through in MXFP4."""
    model, arch = case.facts.model, views.arch(case)
    if model.quantization.method == plugin.NAME:
        return "vLLM itself does not read such a checkpoint"
    flag = "mxfp4" if plugin.converts(model, case.plan) else None
    offered = [name for name, _ in backends.online_quantizations(case.facts.vllm, arch, model)]
    if flag and flag not in offered:
        return f"vLLM itself has no MXFP4 for it on {arch}"
    found = views.main_arithmetic(case._replace(plan=replace(case.plan, quantization=flag)))
    return f"vLLM's own for MXFP4 on {arch} is {found.backend}, which multiplies in {found.compute_bits} bits"
