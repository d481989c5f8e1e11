"""One given configuration: the plan that it comes to, its memory, whether it starts, and what would make it.

`recommend` searches; this answers for one configuration that somebody already has. What is not given takes the
default of that vLLM version on that device, and every such default is said, so that nothing is assumed in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UsageError
from vllm_advisor.facts import Case, Facts
from vllm_advisor.memory.budget import budget as budget_of
from vllm_advisor.memory.weights import ONLINE_BITS
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB, count
from vllm_advisor.vllm import history
from vllm_advisor.vllm import surface as surfaces
from vllm_advisor.vllm.defaults import Prompts, serve_defaults
from vllm_advisor.workload import Workload


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.facts import Finding, MemoryBudget, Remedy
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.vllm.defaults import Defaults
    from vllm_advisor.vllm.history import Era
    from vllm_advisor.vllm.surface import Surface


class Configuration(NamedTuple):
    """What somebody runs, as `vllm serve` flags; None: not given.

    `kv_cache_memory_bytes` takes the place of `gpu_memory_utilization`. `env` are environment variables by name.
    `adapted`: LoRA or a draft model, which kept V0 from chunking prompts by itself. `performance_mode` "throughput"
    doubles both batch limits. The backends are the values of their flags.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    expert_parallel: bool = False
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    block_size: int | None = None
    kv_cache_memory_bytes: int | None = None
    env: tuple[tuple[str, str], ...] = ()
    adapted: bool = False
    eplb: bool = False
    attention_backend: str | None = None
    moe_backend: str | None = None
    performance_mode: str | None = None


class Estimated(NamedTuple):
    """The answer: the plan with every default filled in, its memory, and in words what was assumed."""

    model: ModelSpec
    node: Node
    surface: Surface
    plan: Plan
    budget: MemoryBudget
    assumed: tuple[str, ...] = ()


def estimate(model: ModelSpec, node: Node, surface: Surface, given: Configuration) -> Estimated:
    """The memory of one configuration of `model` on `node`.

    Raises UsageError where the configuration cannot be one (no context known, more devices than the node has).
    """
    plan, assumed = plan_of(model, node, surface, given)
    return Estimated(model, node, surface, plan, budget_of(model, plan, node, surface), assumed)


def objections(model: ModelSpec, plan: Plan, node: Node, surface: Surface, budget: MemoryBudget) -> tuple[Finding, ...]:
    """What else stops a start than memory: vetoes of the decision matrix, for the versions whose source was read.

    Left out are rules of memory (the budget says it with its numbers), of requests (there are none here), of devices
    (checked before) and of flags (nothing is written).
    """
    from vllm_advisor.rules.engine import judge  # noqa: PLC0415  a batch asks for memory alone

    if surface.version not in surfaces.versions():
        return ()
    found = judge(Case(Facts(node, model, Workload(context=plan.max_model_len), surface), plan, budget))
    return tuple(f for f in found if f.level == "veto" and not f.rule.startswith(_NOT_HERE))


_NOT_HERE = ("MEM-", "VER-", "BAT-01", "LNG-02", "PAR-18")


def fixes(answer: Estimated, siblings: Sequence[ModelSpec] = ()) -> tuple[Remedy, ...]:
    """Changes that make a configuration fit, the smallest first; () where it fits, or none does.

    Each was computed again, and none is one that this version or device would refuse for another reason.
    """
    from vllm_advisor.memory.remedies import remedies  # noqa: PLC0415  most answers need none

    model, node, surface = answer.model, answer.node, answer.surface
    found = remedies(model, answer.plan, node, surface, answer.budget, siblings)
    known = {s.name: s for s in siblings}
    return tuple(
        r for r in found if not objections(known.get(r.plan.checkpoint, model), r.plan, node, surface, r.budget)
    )


def plan_of(model: ModelSpec, node: Node, surface: Surface, given: Configuration) -> tuple[Plan, tuple[str, ...]]:
    """The plan with that version's defaults, and the defaults in words."""
    if given.tp * given.pp * given.dp > node.world:
        raise UsageError(
            f"TP {given.tp} × PP {given.pp} × DP {given.dp} need {given.tp * given.pp * given.dp} devices, "
            f"{node.label} has {node.world}",
            "name a larger machine, or lower --tp, --pp or --dp",
        )
    _check_cache_dtype(surface, given.kv_cache_dtype)
    length = given.max_model_len or model.max_position
    if not length:
        raise UsageError(f"the configuration of {model.name} names no longest context", "give --max-model-len")
    facts = _facts(model, node.gpu, surface, given)
    defaults = serve_defaults(
        surface,
        node,
        world_size=given.tp * given.pp,
        performance_mode=given.performance_mode,
        prompts=_prompts(model, given, length),
        era=facts,
    )
    tokens, seqs = _batch(given, defaults, length)
    plan = Plan(
        checkpoint=model.name,
        quantization=_online(model, given.quantization),
        kv_cache_dtype=given.kv_cache_dtype or "auto",
        tensor_parallel_size=given.tp,
        pipeline_parallel_size=given.pp,
        data_parallel_size=given.dp,
        decode_context_parallel_size=given.dcp,
        enable_expert_parallel=given.expert_parallel,
        enable_eplb=given.eplb,
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        gpu_memory_utilization=given.gpu_memory_utilization or defaults.gpu_memory_utilization,
        kv_cache_memory_bytes=given.kv_cache_memory_bytes,
        enforce_eager=given.enforce_eager,
        block_size=given.block_size,
        attention_backend=given.attention_backend,
        moe_backend=given.moe_backend,
        performance_mode=given.performance_mode,
        env=_with_engine(given.env, facts, surface),
    )
    return plan, _assumed(given, plan, surface)


_ENGINE = "VLLM_USE_V1"


def _facts(model: ModelSpec, gpu: Gpu, surface: Surface, given: Configuration) -> Era:
    """What that version does for this configuration, on the engine that was asked for or that it takes by itself."""
    asked = dict(given.env).get(_ENGINE)
    if asked == "0" and history.era(surface.release).v0_is_left:
        return history.on_v0(surface.release)
    if asked == "1":
        return history.era(max(surface.release, _FIRST_V1))
    return history.era_of(
        surface.release,
        gpu,
        has_states=model.is_hybrid,
        pipeline_parallel_size=given.pp,
        kv_cache_dtype=given.kv_cache_dtype or "auto",
        quantization=given.quantization or model.quantization.method,
    )


_FIRST_V1 = (0, 8, 0)  # the first release whose default it is; before, a variable chose it


def _with_engine(env: tuple[tuple[str, str], ...], facts: Era, surface: Surface) -> tuple[tuple[str, str], ...]:
    """The environment, with the engine that the version falls back to by itself."""
    if facts.engine != "V0" or history.era(surface.release).engine == "V0" or dict(env).get(_ENGINE):
        return env
    return tuple(sorted((*env, (_ENGINE, "0"))))


def _prompts(model: ModelSpec, given: Configuration, length: int) -> Prompts:
    return Prompts(
        length,
        multimodal=bool(set(model.modalities) - {"text"}),
        latent=model.uses_mla,
        windowed=any(c.kind == "sliding" for c in model.caches),
        adapted=given.adapted,
    )


def _check_cache_dtype(surface: Surface, dtype: str | None) -> None:
    """A dtype that no version has ever had is a mistake; one that this version lacks is said as a veto."""
    if dtype in (None, "auto", *surface.kv_cache_dtypes):
        return
    known = dict.fromkeys(name for version in surfaces.versions() for name in surfaces.load(version).kv_cache_dtypes)
    if dtype not in known:
        raise UsageError(f"{dtype!r} is no KV cache dtype", f"one of {', '.join(known)}")


def _online(model: ModelSpec, flag: str | None) -> str | None:
    """The flag where it converts weights; naming the method that the checkpoint already has changes nothing."""
    own = model.quantization.method
    if flag is None or own.replace("-", "_") in (flag.replace("-", "_"), flag.removesuffix("_marlin")):
        return None
    if flag not in ONLINE_BITS:
        raise UsageError(
            f"{model.name} is stored as {own}, and --quantization {flag} converts no weights while loading",
            f"name a checkpoint in {flag}, or one of {', '.join(ONLINE_BITS)}",
        )
    return flag


def _batch(given: Configuration, defaults: Defaults, length: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs): a default never exceeds what the other one allows.

    engine/arg_utils.py _set_default_max_num_seqs_and_batched_tokens_args (0.24.0:2638 and 2651).
    """
    seqs = given.max_num_seqs or defaults.max_num_seqs
    tokens = given.max_num_batched_tokens or min(seqs * length, defaults.max_num_batched_tokens)
    return tokens, given.max_num_seqs or min(seqs, tokens)


def _assumed(given: Configuration, plan: Plan, surface: Surface) -> tuple[str, ...]:
    said = []
    if given.max_model_len is None:
        said.append(f"max_model_len {count(plan.max_model_len)}: the model's own")
    if given.gpu_memory_utilization is None and given.kv_cache_memory_bytes is None:
        said.append(f"gpu_memory_utilization {plan.gpu_memory_utilization}: default of vLLM {surface.version}")
    said += [
        f"{name} {count(value)}: default of vLLM {surface.version} on this device"
        for name, asked, value in (
            ("max_num_seqs", given.max_num_seqs, plan.max_num_seqs),
            ("max_num_batched_tokens", given.max_num_batched_tokens, plan.max_num_batched_tokens),
        )
        if asked is None
    ]
    if dict(plan.env).get(_ENGINE) == "0" and _ENGINE not in dict(given.env):
        said.append(f"engine V0: what vLLM {surface.version} falls back to for this configuration")
    if given.kv_cache_memory_bytes is not None:
        said.append(f"the KV cache is given: {given.kv_cache_memory_bytes / GIB:.2f} GiB")
    return tuple(said)
