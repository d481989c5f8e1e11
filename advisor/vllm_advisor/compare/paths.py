"""What a format does to arithmetic and accuracy here: which kernel multiplies in what, and what the rules say."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.rules import views
from vllm_advisor.vllm import plugin, schemes


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.facts import Case, Finding
    from vllm_advisor.vllm.backends import Arithmetic

PLAIN, NATIVE, FEWER_BITS, WEIGHTS_ONLY, EMULATED, NONE = (
    "16 bits", "native", "in other bits", "weights only", "emulated", "no kernel",
)  # fmt: skip
_SIXTEEN = 16
# Rules that speak of what a format costs in accuracy, beside the ACC- family.
_ACCURACY = frozenset(("KV-03", "KV-05", "KV-10", "KV-11", "KV-16"))


class Path(NamedTuple):
    """One part of the model, the scheme that it is stored in, the kernel, and in how many `bits` it multiplies.

    `kind`: native: the device multiplies the stored format itself; weights only: the kernel unpacks them and multiplies
    in 16 bits; emulated: unpacked in a step of its own.
    """

    part: str
    scheme: str
    kernel: str
    bits: int
    kind: str


def paths(case: Case) -> tuple[Path, ...]:
    """The linear layers, one path a format that they have, and the experts."""
    return tuple(dict.fromkeys(_paths(case)))


def _paths(case: Case) -> Iterator[Path]:
    for scheme, how in zip(views.linear_schemes(case), views.linear_arithmetics(case), strict=True):
        yield _path("linear layers", scheme, how)
    experts = views.expert_arithmetic(case)
    if experts:
        yield _path("experts", views.expert_scheme(case), experts)


def _path(part: str, scheme: str, how: Arithmetic) -> Path:
    return Path(part, scheme, how.backend or "", how.compute_bits, _kind(scheme, how))


def _kind(scheme: str, how: Arithmetic) -> str:
    if how.backend is None:
        return NONE
    if scheme == "bf16":
        return PLAIN
    if how.emulated:
        return EMULATED
    if how.native:
        return NATIVE
    return WEIGHTS_ONLY if how.compute_bits >= _SIXTEEN else FEWER_BITS


def accuracy(case: Case, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """What the rules say of the answers' quality in this format, and what the weights are where they say nothing."""
    said = tuple(f.message for f in findings if f.rule.startswith("ACC-") or f.rule in _ACCURACY)
    return said or (_unsaid(case),)


def _unsaid(case: Case) -> str:
    model, scheme = case.facts.model, views.scheme(case)
    if scheme == "bf16":
        return "nothing is rounded"
    if not (views.converts_online(case) or plugin.serves(model, case.plan)) and model.base_model in ("", model.name):
        return f"its publisher made it in {scheme}: there is no finer one to lose against"
    bits = schemes.weight_bits(scheme)
    return f"rounded to {bits} bits from 16; no rule speaks against it for this work"
