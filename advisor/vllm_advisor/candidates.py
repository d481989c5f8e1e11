"""The finite space worth judging: checkpoints × online quantization × KV dtype × layout, each as a complete Plan.

Everything here is worth a look, nothing is promised: the rules and the memory model say which plans stand.
Order is fixed, so that equal scores keep it and the same facts give the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UsageError
from vllm_advisor.hardware import Unknown, Vendor
from vllm_advisor.model.kv import kv_bytes_per_token, state_bytes
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB
from vllm_advisor.vllm import archs, backends, environment, plugin
from vllm_advisor.vllm.defaults import serve_defaults
from vllm_advisor.vllm.requirements import required_block_size
from vllm_advisor.workload import Objective


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.facts import Facts
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.defaults import Defaults

# CUDA graphs are captured at 1, 2, 4 and then in steps of 8 (vLLM 0.33 config/vllm.py:2573-2590): a sequence limit
# between two of them is padded up to the next anyway.
_GRAPH_STEP = 8
# Below this length decode-context parallelism has no cache worth splitting; an estimate of ours, not a vLLM limit.
_DCP_FROM_TOKENS = 32_768
# EPLB needs enough ranks for hot experts to meet idle ones; an estimate of ours.
_EPLB_FROM_RANKS = 16
_BF16_BYTES = 2


class Restrictions(NamedTuple):
    """What the user fixed; None: free. `use_all` keeps only plans that use every device of the node.

    `offline_llm`: the plan is for `vllm.LLM` in one process, which has other batch defaults, no data parallelism and
    one node. `allow_plugin`: our own quantization may be proposed, which the server's environment has to have.
    """

    quantization: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel: bool | None = None
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool | None = None
    siblings: bool = True
    use_all: bool = False
    offline_llm: bool = False
    allow_plugin: bool = False


class Layout(NamedTuple):
    """How ranks are arranged: TP × PP × DP, with or without EP, EPLB and DCP."""

    tp: int
    pp: int = 1
    dp: int = 1
    ep: bool = False
    eplb: bool = False
    dcp: int = 1


def candidates(
    facts: Facts, checkpoints: tuple[ModelSpec, ...], restrictions: Restrictions
) -> Iterator[tuple[Plan, ModelSpec]]:
    """Every plan worth judging with the checkpoint that it loads, in a fixed order."""
    for model in checkpoints:
        placed = [_sized(facts, model, layout, restrictions) for layout in layouts(facts, model, restrictions)]
        for quantization in _quantizations(facts, model, restrictions):
            for kv_cache_dtype in _kv_cache_dtypes(facts, model, restrictions):
                for plan in placed:
                    yield _with_formats(plan, facts, model, quantization, kv_cache_dtype), model


def layouts(facts: Facts, model: ModelSpec, restrictions: Restrictions) -> tuple[Layout, ...]:
    """Layouts on 1…n devices of a node, and across nodes where there are several; most devices first."""
    found = {
        variant: None
        for tp, pp, dp in _splits(facts.node)
        if _allowed(tp, pp, dp, facts.node, restrictions)
        for variant in _variants(Layout(tp, pp, dp), facts, model)
        if restrictions.expert_parallel in (None, variant.ep)
    }
    return tuple(found)


def _splits(node: Node) -> Iterator[tuple[int, int, int]]:
    """(TP, PP, DP): TP stays inside a node; the rest goes to DP or PP, which cross nodes better."""
    per_node, nodes = len(node.gpus), node.count
    for used in sorted((k for k in range(1, per_node + 1) if per_node % k == 0), reverse=True):
        for tp in sorted((k for k in range(1, used + 1) if used % k == 0), reverse=True):
            rest = used // tp * nodes
            for pp in (k for k in range(1, rest + 1) if rest % k == 0):
                if used == per_node or rest == pp == 1:
                    yield tp, pp, rest // pp


def _allowed(tp: int, pp: int, dp: int, node: Node, restrictions: Restrictions) -> bool:
    wanted = (
        (restrictions.tensor_parallel_size, tp),
        (restrictions.pipeline_parallel_size, pp),
        (restrictions.data_parallel_size, dp),
    )
    fixed = all(want in (None, have) for want, have in wanted)
    if restrictions.offline_llm and (dp > 1 or tp * pp > len(node.gpus)):
        return False
    return fixed and not (restrictions.use_all and tp * pp * dp != node.world)


def _variants(layout: Layout, facts: Facts, model: ModelSpec) -> Iterator[Layout]:
    yield layout
    if model.moe and layout.tp * layout.dp > 1:
        yield layout._replace(ep=True)
        if layout.tp * layout.dp >= _EPLB_FROM_RANKS:
            yield layout._replace(ep=True, eplb=True)
    if _needed_context(facts, model) >= _DCP_FROM_TOKENS and _dcp(layout, model) > 1:
        yield layout._replace(dcp=_dcp(layout, model))


def _dcp(layout: Layout, model: ModelSpec) -> int:
    """Ranks that hold copies of the same KV heads, which DCP turns into shares of the sequence."""
    growing = [c for c in model.caches if c.kind in ("full", "mla")]
    if len(growing) != len(model.caches) or layout.dp > 1 or layout.pp > 1:
        return 1
    return min((layout.tp // min(layout.tp, max(1, c.kv_heads)) for c in growing), default=1)


def _quantizations(facts: Facts, model: ModelSpec, restrictions: Restrictions) -> tuple[str | None, ...]:
    online = tuple(name for name, _ in backends.online_quantizations(facts.vllm, facts.node.gpu.arch, model))
    wanted = restrictions.quantization
    if wanted == plugin.NAME and not restrictions.allow_plugin:
        raise UsageError(f"{plugin.NAME} is our plugin and no part of vLLM", f"--allow-plugin, and {plugin.INSTALL}")
    if wanted is None:
        return (None, *online, *_ours(facts, model, restrictions))
    return (None,) if wanted in ("none", model.quantization.method, model.quantization.scheme) else (wanted,)


def _ours(facts: Facts, model: ModelSpec, restrictions: Restrictions) -> tuple[str, ...]:
    """Our plugin, where it was allowed and has something to do."""
    offered = restrictions.allow_plugin and plugin.takes(model)
    return (plugin.NAME,) if offered and not plugin.refusal(facts.vllm, facts.node.gpu.arch, model) else ()


def _kv_cache_dtypes(facts: Facts, model: ModelSpec, restrictions: Restrictions) -> tuple[str, ...]:
    """`auto` is what the checkpoint asks for; where that is quantized and the device has no FP8, 16 bits beside it."""
    if restrictions.kv_cache_dtype:
        return (restrictions.kv_cache_dtype,)
    gpu = facts.node.gpu
    if gpu.vendor is Vendor.CPU:
        return ("auto",)
    against_its_wish = model.quantization.kv_cache_dtype and gpu.arch not in archs.NATIVE_FP8
    return ("auto", "fp8", model.dtype) if against_its_wish else ("auto", "fp8")


def _needed_context(facts: Facts, model: ModelSpec) -> int:
    load = facts.workload
    return min(model.max_position or load.context, load.context) or load.input_tokens + load.output_tokens


def _sized(facts: Facts, model: ModelSpec, layout: Layout, restrictions: Restrictions) -> Plan:
    """The plan's batch and memory knobs: what vLLM would take, bounded by the load that was asked for."""
    world_size, offline = layout.tp * layout.pp, restrictions.offline_llm
    defaults = serve_defaults(facts.vllm, facts.node, world_size=world_size, offline_llm=offline)
    mode = _performance_mode(facts)
    batched = restrictions.max_num_batched_tokens or _batched_tokens(defaults, mode)
    return Plan(
        checkpoint=model.name,
        tensor_parallel_size=layout.tp,
        pipeline_parallel_size=layout.pp,
        data_parallel_size=layout.dp,
        decode_context_parallel_size=layout.dcp,
        enable_expert_parallel=layout.ep,
        enable_eplb=layout.eplb,
        max_model_len=facts.workload.context or model.max_position,
        max_num_seqs=restrictions.max_num_seqs or _sequences(facts, layout, defaults),
        max_num_batched_tokens=batched,
        gpu_memory_utilization=restrictions.gpu_memory_utilization or _utilization(facts.node, defaults),
        kv_cache_memory_bytes=None if restrictions.gpu_memory_utilization else _cpu_cache_bytes(facts, model),
        enforce_eager=bool(restrictions.enforce_eager),
        performance_mode=mode,
        block_size=required_block_size(model),
        num_nodes=facts.node.count if layout.tp * layout.pp * layout.dp > len(facts.node.gpus) else 1,
    )


def _performance_mode(facts: Facts) -> str | None:
    """VLLM's own switch, where it does more than a number of ours could: finer graphs, larger batches."""
    modes = {Objective.LATENCY: "interactivity", Objective.THROUGHPUT: "throughput"}
    wanted = modes.get(facts.workload.objective)
    on_gpu = facts.node.gpu.vendor is not Vendor.CPU
    return wanted if on_gpu and facts.vllm.has_flag("--performance-mode") else None


def _batched_tokens(defaults: Defaults, mode: str | None) -> int:
    """`--performance-mode throughput` doubles the default (0.33 engine/arg_utils.py:3186-3191)."""
    return defaults.max_num_batched_tokens * (2 if mode == "throughput" else 1)


def _sequences(facts: Facts, layout: Layout, defaults: Defaults) -> int:
    """The load's share of one DP rank, up to the next graph size: what is predicted is what may run."""
    share = -(-facts.workload.concurrency // layout.dp)
    rounded = share if share <= 4 else -(-share // _GRAPH_STEP) * _GRAPH_STEP
    limit = defaults.max_num_seqs * (2 if facts.workload.objective is Objective.THROUGHPUT else 1)
    return min(rounded, max(limit, 1))


def _utilization(node: Node, defaults: Defaults) -> float:
    """The default, or less where others hold memory: vLLM refuses to start otherwise (v1/worker/utils.py:724)."""
    shares = [g.free_bytes / g.memory_bytes for g in node.gpus if not isinstance(g.free_bytes, Unknown)]
    free = min(shares, default=1.0)
    return min(defaults.gpu_memory_utilization, max(0.05, int(free * 100 - 1) / 100))


def _cpu_cache_bytes(facts: Facts, model: ModelSpec) -> int | None:
    """On a CPU vLLM would take 0.92 of a memory that others use too, and refuse to start: the load's need is enough."""
    if facts.node.gpu.vendor is not Vendor.CPU:
        return None
    load = facts.workload
    tokens = max(load.context, load.concurrency * (load.input_tokens + load.output_tokens))
    need = tokens * kv_bytes_per_token(model, _BF16_BYTES) + load.concurrency * state_bytes(model)
    return (need // GIB + 1) * GIB


def _with_formats(plan: Plan, facts: Facts, model: ModelSpec, quantization: str | None, kv_cache_dtype: str) -> Plan:
    """The placed plan with its formats, and the environment that they need."""
    chosen = replace(plan, quantization=quantization, kv_cache_dtype=kv_cache_dtype)
    settings = environment.environment(chosen, model, facts.node, facts.vllm)
    return replace(chosen, env=tuple(sorted((s.name, s.value) for s in settings))) if settings else chosen
