"""The decision matrix of one GPU: what to serve in which precision, situation by situation, for one vLLM version.

Nothing is typed in: every way of storing the weights and the cache is judged by the same rules and kernel tables as a
real plan, on a stand-in model, and the best one is printed with what speaks for it. The stand-ins have no size: whether
something fits is a matter of a model and a plan, not of this table.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.facts import Case, Facts, MemoryBudget
from vllm_advisor.hardware import Node
from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, Quantization
from vllm_advisor.plan import Plan
from vllm_advisor.rules import views
from vllm_advisor.rules.engine import judge
from vllm_advisor.units import GIB, Interval
from vllm_advisor.vllm import archs, backends, plugin, schemes
from vllm_advisor.workload import Objective, Sensitivity, Workload


if TYPE_CHECKING:
    from vllm_advisor.facts import Finding
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.vllm.surface import Surface


class MatrixRow(NamedTuple):
    """One answer. `why` names kernels and what the rules said; `source` names tables and rule ids."""

    situation: str
    quantization: str
    kv_cache: str
    why: str
    source: str


class _Situation(NamedTuple):
    """`kv_share` is the cache's part of a decode step's time; `by` what the weights' part is measured by."""

    name: str
    load: Workload
    by: str  # accuracy, stored (bits read) or computed (bits multiplied in)
    kv_share: float = 0.05
    moe: bool = False
    schemes: frozenset[str] | None = None


class _Option(NamedTuple):
    scheme: str
    label: str
    method: str


class _Judged(NamedTuple):
    option: _Option
    kv: str
    case: Case
    findings: tuple[Finding, ...]
    score: float


# How a checkpoint of each scheme is usually made, so that method rules apply to it.
_OPTIONS = (
    _Option("bf16", "BF16", "none"),
    _Option("fp8_channel", "FP8 per channel", "compressed-tensors"),
    _Option("fp8_block", "FP8 in blocks of 128", "fp8"),
    _Option("int8", "INT8 (W8A8)", "compressed-tensors"),
    _Option("mxfp8", "MXFP8", "modelopt"),
    _Option("int4", "INT4 (AWQ, GPTQ)", "compressed-tensors"),
    _Option("nvfp4", "NVFP4", "modelopt"),
    _Option("mxfp4", "MXFP4", "compressed-tensors"),
)
_BITS = {"bf16": 16, "int4": 4, "nvfp4": 4, "mxfp4": 4}
# Named with their flag: rounding to four bits while loading is no default of ours, and online int8 is another scheme.
_ONLINE_LABELS = views.FP8_SCHEMES | {"mxfp8"}
_LONG = 100_000
# Shares of a decode step are estimates: short contexts read mostly weights, long ones mostly cache.
_SITUATIONS = (
    _Situation("accuracy first", Workload(sensitivity=Sensitivity.SENSITIVE), "accuracy"),
    _Situation("throughput", Workload(concurrency=256, objective=Objective.THROUGHPUT), "computed"),
    _Situation(
        "throughput, experts", Workload(concurrency=256, objective=Objective.THROUGHPUT), "computed", moe=True
    ),
    _Situation("latency", Workload(concurrency=1, objective=Objective.LATENCY), "stored"),
    _Situation("long context (> 64k)", Workload(input_tokens=_LONG, concurrency=8), "computed", kv_share=0.6),
    _Situation(
        "retrieval in a long context",
        Workload(input_tokens=_LONG, concurrency=8, sensitivity=Sensitivity.RETRIEVAL),
        "computed",
        kv_share=0.6,
    ),
    _Situation("code and maths", Workload(sensitivity=Sensitivity.SENSITIVE), "computed"),
    _Situation("4-bit weights", Workload(), "stored", moe=True, schemes=views.FOUR_BIT),
)  # fmt: skip
_NONE = Interval(0, 0, 0)
_FITS = MemoryBudget(
    total=80 * GIB,
    requested=73 * GIB,
    weights=16 * GIB,
    activation=_NONE,
    graphs=_NONE,
    non_torch=_NONE,
    kv_cache=Interval(50.0 * GIB, 50.0 * GIB, 50.0 * GIB),
    kv_bytes_per_token=131_072.0,
    block_size=16,
    num_blocks=100_000,
    kv_tokens=10**9,
    max_concurrency=1e6,
    max_context=10**9,
    verdict="fits",
)


def matrix(gpu: Gpu, surface: Surface, *, allow_plugin: bool = False) -> tuple[MatrixRow, ...]:
    """One row a situation; a single row with the reason where this vLLM does not support the device.

    `allow_plugin`: two rows more, of our own plugin for a dense model and for one with experts.
    """
    reason = backends.supported_arch(surface, gpu.arch)
    if reason:
        return (MatrixRow("any", "not supported", "not supported", reason, "QNT-01"),)
    ours = tuple(_our_row(gpu, surface, moe=moe) for moe in (False, True)) if allow_plugin else ()
    return tuple(_row(situation, gpu, surface) for situation in _SITUATIONS) + ours


_OUR_RULES = ("QNT-30", "QNT-31", "ACC-02")


def _our_row(gpu: Gpu, surface: Surface, *, moe: bool) -> MatrixRow:
    """Our plugin on a BF16 checkpoint, judged by the same rules, with vLLM's own kernel beside it."""
    name = f"our plugin, {'experts' if moe else 'dense'}"
    case = _case(_Situation(name, Workload(), "stored", moe=moe), _OPTIONS[0], "auto", gpu, surface)
    case = case._replace(plan=replace(case.plan, quantization=plugin.NAME))
    said = {f.rule: f for f in judge(case)}
    refused = [f for f in said.values() if f.level == "veto"]
    if refused:
        why, rules = "; ".join(f.message for f in refused), ", ".join(f.rule for f in refused)
        return MatrixRow(name, "none", "none", why, rules)
    takes = backends.attention(surface, gpu.arch, case.facts.model.caches[0], "auto")
    why = "; ".join(f.message for rule, f in said.items() if rule in _OUR_RULES)
    label = f"MXFP4 (online: --quantization {plugin.NAME}; ours: {plugin.INSTALL})"
    rules = ", ".join(rule for rule in said if rule in _OUR_RULES)
    return MatrixRow(name, label, f"16 bits (auto) through {takes[0]}", why, rules)


def _row(situation: _Situation, gpu: Gpu, surface: Surface) -> MatrixRow:
    tried = (_judge(situation, option, kv, gpu, surface) for option in _OPTIONS for kv in ("auto", "fp8"))
    judged = [found for found in tried if found]
    if not judged:
        why = f"no such checkpoint has a kernel for {'experts' if situation.moe else 'linear layers'} on {gpu.arch}"
        return MatrixRow(situation.name, "none", "none", why, "QNT-11, QNT-12, QNT-14")
    best = max(judged, key=lambda j: j.score)
    others = [j for j in judged if j.option is not best.option]
    following = max(others, key=lambda j: j.score, default=None)
    return MatrixRow(situation.name, _label(best), _cache_label(best), _why(best, following), _sources(best))


def _judge(situation: _Situation, option: _Option, kv: str, gpu: Gpu, surface: Surface) -> _Judged | None:
    """None where a rule vetoes it or the situation leaves it out."""
    if situation.schemes and option.scheme not in situation.schemes:
        return None
    case = _case(situation, option, kv, gpu, surface)
    findings = judge(case)
    if any(f.level == "veto" for f in findings):
        return None
    preference = math.prod(f.weight for f in findings)
    return _Judged(option, kv, case, findings, preference / _time(situation, case))


def _case(situation: _Situation, option: _Option, kv: str, gpu: Gpu, surface: Surface) -> Case:
    model = _model(option, moe=situation.moe)
    env = (("VLLM_ROCM_USE_AITER", "1"),) if gpu.arch in archs.MI3XX else ()
    tokens = situation.load.input_tokens + situation.load.output_tokens
    seqs = max(situation.load.concurrency, 1)
    plan = Plan(
        model.name, kv_cache_dtype=kv, max_model_len=tokens, max_num_seqs=seqs, max_num_batched_tokens=8192, env=env
    )
    return Case(Facts(Node((gpu,)), model, situation.load, surface), plan, _FITS)


def _model(option: _Option, *, moe: bool) -> ModelSpec:
    """A stand-in with head size 128, eight KV heads and no KV scales, as most checkpoints are."""
    bits = _BITS.get(option.scheme, 8)
    layers = tuple(range(32))
    return ModelSpec(
        name="the checkpoint",
        architecture="Qwen3MoeForCausalLM" if moe else "Qwen3ForCausalLM",
        model_type="qwen3_moe" if moe else "qwen3",
        dtype="bfloat16",
        hidden_size=4096,
        num_layers=32,
        vocab_size=151_936,
        max_position=1 << 20,
        attention_heads=32,
        kv_heads=8,
        caches=(CacheGroup("full", layers, 32, 8, 128, 128),),
        weights=(),
        intermediate_size=12_288,
        moe=Moe(128, 8, 0, 1536, layers) if moe else None,
        quantization=Quantization(option.method, option.scheme, bits, bits),
        base_model="" if option.scheme == "bf16" else "its model",
        exact_weight_bytes=1,
    )


def _time(situation: _Situation, case: Case) -> float:
    """Relative time of a decode step, BF16 being 1; an estimate that only ranks."""
    if situation.by == "accuracy":
        return 1.0
    kernel = views.main_arithmetic(case)
    stored = _BITS.get(views.scheme(case), 8)
    # Where reading decides, a kernel that also computes in fewer bits breaks the tie.
    bits = kernel.compute_bits if situation.by == "computed" else stored + kernel.compute_bits / 100
    cache = 0.5 if case.plan.kv_cache_dtype == "fp8" else 1.0
    return (1 - situation.kv_share) * bits / 16 + situation.kv_share * cache


def _label(judged: _Judged) -> str:
    """With the flag that makes it from a BF16 checkpoint, where this version and device take one."""
    facts = judged.case.facts
    plain = _model(_OPTIONS[0], moe=facts.model.moe is not None)
    offered = backends.online_quantizations(facts.vllm, facts.node.gpu.arch, plain)
    wanted = judged.option.scheme if judged.option.scheme in _ONLINE_LABELS else ""
    flag = next((name for name, scheme in offered if scheme == wanted), "")
    if judged.option.scheme == "bf16":
        return "FP16 (the device has no BF16)" if facts.node.gpu.arch == "sm75" else "BF16"
    return f"{judged.option.label} (online: --quantization {flag})" if flag else f"{judged.option.label} checkpoint"


def _cache_label(judged: _Judged) -> str:
    return f"{'16 bits (auto)' if judged.kv == 'auto' else 'fp8 (e4m3)'} through {_attention(judged)}"


def _attention(judged: _Judged) -> str:
    facts = judged.case.facts
    with_aiter = schemes.uses_aiter(judged.case.plan)
    return backends.attention(facts.vllm, facts.node.gpu.arch, facts.model.caches[0], judged.kv, aiter=with_aiter)[0]


def _why(best: _Judged, following: _Judged | None) -> str:
    kernel = views.main_arithmetic(best.case)
    said = [f.message for f in best.findings if f.level in ("prefer", "discourage")]
    parts = [f"{kernel.backend} multiplies in {kernel.compute_bits} bits", *said]
    parts += [f"next: {following.option.label}"] if following else []
    return "; ".join(parts)


def _sources(best: _Judged) -> str:
    where = "fused_moe/oracle" if best.case.facts.model.moe else "kernels/linear"
    return ", ".join((where, *(f.rule for f in best.findings if f.level in ("prefer", "discourage"))))
