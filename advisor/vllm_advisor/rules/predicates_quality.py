"""Accuracy, and how well the facts themselves are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.rules import views
from vllm_advisor.workload import Sensitivity


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Case

# Below this the weights are a small part of what a device reads and holds; an estimate of ours.
_SMALL_MODEL = 2_000_000_000


def _demanding(case: Case) -> bool:
    return case.facts.workload.sensitivity in (Sensitivity.SENSITIVE, Sensitivity.RETRIEVAL)


def four_bits_online_for_sensitive_work(case: Case) -> Mapping[str, Any] | None:
    """Rounded to four bits while loading, with no calibration, for code or maths."""
    if not views.converts_online(case) or views.scheme(case) not in views.FOUR_BIT or not _demanding(case):
        return None
    return {"flag": case.plan.quantization, "work": str(case.facts.workload.sensitivity)}


def four_bits_online(case: Case) -> Mapping[str, Any] | None:
    """Rounded to four bits while loading, for anything else."""
    if not views.converts_online(case) or views.scheme(case) not in views.FOUR_BIT or _demanding(case):
        return None
    return {"flag": case.plan.quantization}


def _made_by_others(case: Case) -> bool:
    model = case.facts.model
    return bool(model.base_model) and views.publisher(model.name) != views.publisher(model.base_model)


def four_bit_checkpoint_for_sensitive_work(case: Case) -> Mapping[str, Any] | None:
    """A four-bit copy of a model that was trained in more, for code or maths."""
    model = case.facts.model
    if views.converts_online(case) or views.scheme(case) not in views.FOUR_BIT or not _demanding(case):
        return None
    return {"checkpoint": model.name, "base": model.base_model} if _is_four_bit_copy(case) else None


def full_precision_for_sensitive_work(case: Case) -> Mapping[str, Any] | None:
    """What the publisher trained, or 16 bits, for code or maths."""
    return {"scheme": "BF16"} if _demanding(case) and views.scheme(case) == "bf16" else None


def eight_bits_online_for_sensitive_work(case: Case) -> Mapping[str, Any] | None:
    """One scale a tensor, made while loading, for code or maths."""
    if not _demanding(case) or not views.converts_online(case) or views.scheme(case) != "fp8_tensor":
        return None
    return {"flag": case.plan.quantization}


def eight_bit_copy_for_sensitive_work(case: Case) -> Mapping[str, Any] | None:
    """Eight-bit weights of a model that was trained in more, for code or maths (retrieval asks more of the cache)."""
    if case.facts.workload.sensitivity is not Sensitivity.SENSITIVE or views.scheme(case) not in views.EIGHT_BIT:
        return None
    return {"scheme": views.scheme(case)} if _is_a_copy(case) else None


def _is_a_copy(case: Case) -> bool:
    """Whether the weights were trained in more bits: converted while loading, or another checkpoint's copy."""
    model = case.facts.model
    return views.converts_online(case) or bool(model.base_model and model.name != model.base_model)


def four_bit_copy(case: Case) -> Mapping[str, Any] | None:
    """A four-bit checkpoint of a model that was published in more, for work that forgives a little."""
    model = case.facts.model
    if case.facts.workload.sensitivity is not Sensitivity.NORMAL or views.scheme(case) not in views.FOUR_BIT:
        return None
    if views.converts_online(case) or not _is_four_bit_copy(case):
        return None
    return {"checkpoint": model.name, "base": model.base_model}


def _is_four_bit_copy(case: Case) -> bool:
    """A four-bit copy of a model that was published in more bits; one that was published in four loses little more."""
    model = case.facts.model
    return _is_a_copy(case) and dict(model.siblings).get(model.base_model) not in views.FOUR_BIT


def small_model_online(case: Case) -> Mapping[str, Any] | None:
    """A model with so few weights that there is little to save, and each counts for more."""
    params = case.facts.model.params
    if not views.converts_online(case) or not 0 < params < _SMALL_MODEL:
        return None
    return {"flag": case.plan.quantization, "params": f"{params / 1e9:.1f} billion"}


def sibling_is_ready(case: Case) -> Mapping[str, Any] | None:
    """A checkpoint in that precision exists: it was made, and perhaps calibrated, with more care than a load allows."""
    if not views.converts_online(case):
        return None
    family = views.FP8_SCHEMES if views.scheme(case) in views.FP8_SCHEMES else frozenset((views.scheme(case),))
    ready = next((name for name, scheme in case.facts.model.siblings if scheme in family), None)
    return {"sibling": ready, "flag": case.plan.quantization} if ready else None


def coarse_scale_online(case: Case) -> Mapping[str, Any] | None:
    """One scale for a whole weight matrix, where finer ones cost nothing."""
    if not views.converts_online(case) or views.scheme(case) != "fp8_tensor":
        return None
    return {"flag": case.plan.quantization}


def made_by_others(case: Case) -> Mapping[str, Any] | None:
    """Quantized by someone other than the model's publisher."""
    model = case.facts.model
    if model.quantization.method == "none" or not _made_by_others(case):
        return None
    return {"maker": model.name.partition("/")[0], "base": model.base_model}


def rare_experts_uncalibrated(case: Case) -> Mapping[str, Any] | None:
    """Four-bit experts: a calibration set may never have reached the rare ones."""
    moe = case.facts.model.moe
    if moe is None or views.scheme(case) not in views.FOUR_BIT or not _is_a_copy(case):
        return None
    return {"experts": moe.num_experts, "used": moe.experts_per_token}


def config_not_verbatim(case: Case) -> Mapping[str, Any] | None:
    """The model's description was put together from several sources."""
    provenance = case.facts.model.provenance
    return {"provenance": provenance} if provenance in ("assembled", "derived-quant") else None


def weight_bytes_derived(case: Case) -> Mapping[str, Any] | None:
    """Bytes follow from shapes, not from the files' own index."""
    model = case.facts.model
    return {} if model.exact_weight_bytes is None and not views.converts_online(case) else None
