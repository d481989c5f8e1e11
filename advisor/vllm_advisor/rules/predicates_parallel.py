"""How ranks are arranged: what divides, what crosses which link, what is kept twice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Vendor
from vllm_advisor.rules import views


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Case
    from vllm_advisor.hardware import Link, Topology
    from vllm_advisor.model.spec import CacheGroup


def heads_not_divisible(case: Case) -> Mapping[str, Any] | None:
    """Attention heads do not split into TP equal parts."""
    heads, tp = case.facts.model.attention_heads, case.plan.tensor_parallel_size
    return {"heads": heads, "tp": tp} if heads % tp else None


def _headed_cache(case: Case) -> CacheGroup | None:
    """The first cache that keeps keys and values by KV head, None for MLA and pure state models."""
    return next((c for c in case.facts.model.caches if c.kind in views.HEADED and c.kv_heads), None)


def kv_heads_do_not_divide(case: Case) -> Mapping[str, Any] | None:
    """KV heads are neither split evenly nor repeated evenly."""
    tp = case.plan.tensor_parallel_size
    if tp == 1 or (cache := _headed_cache(case)) is None:
        return None
    larger, smaller = max(cache.kv_heads, tp), min(cache.kv_heads, tp)
    return {"kv_heads": cache.kv_heads, "tp": tp} if larger % smaller else None


def kv_heads_replicated(case: Case) -> Mapping[str, Any] | None:
    """More TP ranks than KV heads: the cache is kept several times."""
    tp = case.plan.tensor_parallel_size
    if tp == 1 or case.plan.decode_context_parallel_size > 1 or (cache := _headed_cache(case)) is None:
        return None
    return {"kv_heads": cache.kv_heads, "tp": tp, "copies": tp // cache.kv_heads} if tp > cache.kv_heads else None


def latent_replicated(case: Case) -> Mapping[str, Any] | None:
    """MLA keeps its whole latent on each TP rank."""
    plan = case.plan
    if plan.tensor_parallel_size == 1 or plan.decode_context_parallel_size > 1 or not case.facts.model.uses_mla:
        return None
    return {"tp": plan.tensor_parallel_size}


def _expert_width(case: Case) -> int:
    """Columns of one expert on one rank; 0 where experts are whole (EP, one rank) or absent."""
    moe, ways = case.facts.model.moe, _expert_ways(case)
    return moe.intermediate_size // ways if moe and ways > 1 else 0


def _expert_ways(case: Case) -> int:
    """Slices of an expert: without EP over TP × DP ranks (fused_moe/config.py flatten_tp_across_dp_and_pcp)."""
    plan = case.plan
    return 1 if plan.enable_expert_parallel else plan.tensor_parallel_size * plan.data_parallel_size


def _block(case: Case) -> int:
    quantization = case.facts.model.quantization
    return quantization.block[0] if quantization.block else 0


def expert_block_cut(case: Case) -> Mapping[str, Any] | None:
    """A TP slice of an expert cuts through a block of scales, and no finer block exists for it."""
    block = _block(case)
    if not block or not (width := _expert_width(case)) or width % block == 0:
        return None
    if case.facts.vllm.at_least(0, 29) and math.gcd(block, width, case.facts.model.hidden_size) >= 32:
        return None
    return {"width": width, "block": block, "ways": _expert_ways(case)}


def expert_block_refined(case: Case) -> Mapping[str, Any] | None:
    """0.33 refines the scales at load, which only Triton's kernels read."""
    block = _block(case)
    if not block or not (width := _expert_width(case)) or width % block == 0 or not case.facts.vllm.at_least(0, 29):
        return None
    finer = math.gcd(block, width, case.facts.model.hidden_size)
    return {"width": width, "block": block, "finer": finer} if finer >= 32 else None


def dense_block_cut(case: Case) -> Mapping[str, Any] | None:
    """A TP slice of a dense feed-forward layer cuts through a block of scales."""
    block, model = _block(case), case.facts.model
    if not block or case.plan.tensor_parallel_size == 1 or not model.intermediate_size:
        return None
    if model.moe and len(model.moe.layers) >= model.num_layers:
        return None
    width = model.intermediate_size // case.plan.tensor_parallel_size
    return {"width": width, "block": block, "tp": case.plan.tensor_parallel_size} if width % block else None


def group_cut(case: Case) -> Mapping[str, Any] | None:
    """A TP slice cuts through a group of scales along the input."""
    group = case.facts.model.quantization.group_size
    moe, tp = case.facts.model.moe, case.plan.tensor_parallel_size
    ways = _expert_ways(case) if moe else tp
    if group <= 1 or ways == 1 or views.scheme(case) == "mxfp4":
        return None  # MXFP4 experts are padded (oracle/mxfp4.py `mxfp4_round_up_…`)
    width = _expert_width(case) if moe else _dense_width(case)
    return {"width": width, "group": group, "ways": ways} if width % group else None


def _dense_width(case: Case) -> int:
    return case.facts.model.intermediate_size // case.plan.tensor_parallel_size


def experts_uneven(case: Case) -> Mapping[str, Any] | None:
    """Ranks hold different numbers of experts."""
    moe, plan = case.facts.model.moe, case.plan
    if moe is None or not plan.enable_expert_parallel or plan.enable_eplb:
        return None
    ranks = plan.expert_parallel_size
    return {"experts": moe.num_experts, "ranks": ranks} if moe.num_experts % ranks else None


def eplb_experts_uneven(case: Case) -> Mapping[str, Any] | None:
    """EPLB insists on equal numbers."""
    moe, plan = case.facts.model.moe, case.plan
    if moe is None or not plan.enable_eplb or not plan.enable_expert_parallel:
        return None
    ranks = plan.expert_parallel_size
    return {"experts": moe.num_experts, "ranks": ranks} if moe.num_experts % ranks else None


def experts_of_a_dense_model(case: Case) -> Mapping[str, Any] | None:
    """Expert parallelism without experts."""
    return {} if case.plan.enable_expert_parallel and case.facts.model.moe is None else None


def eplb_without_ep(case: Case) -> Mapping[str, Any] | None:
    """Load balancing between experts that nobody spreads."""
    return {} if case.plan.enable_eplb and not case.plan.enable_expert_parallel else None


def eplb_on_one_rank(case: Case) -> Mapping[str, Any] | None:
    """Load balancing with one rank."""
    plan = case.plan
    return {} if plan.enable_eplb and plan.tensor_parallel_size * plan.data_parallel_size <= 1 else None


def ep_adds_latency(case: Case) -> Mapping[str, Any] | None:
    """Expert parallelism on a few ranks of one node."""
    plan = case.plan
    if not plan.enable_expert_parallel or plan.num_nodes > 1 or plan.data_parallel_size > 1:
        return None
    return {"ranks": plan.expert_parallel_size}


def dcp_not_dividing_tp(case: Case) -> Mapping[str, Any] | None:
    """Decode context parallelism reuses the TP ranks."""
    dcp, tp = case.plan.decode_context_parallel_size, case.plan.tensor_parallel_size
    return {"dcp": dcp, "tp": tp} if dcp > 1 and tp % dcp else None


def dcp_beyond_kv_heads(case: Case) -> Mapping[str, Any] | None:
    """With KV heads, DCP may use only the ranks that hold copies."""
    dcp, tp = case.plan.decode_context_parallel_size, case.plan.tensor_parallel_size
    if dcp == 1 or case.facts.model.uses_mla or (cache := _headed_cache(case)) is None:
        return None
    most = tp // cache.kv_heads if tp > cache.kv_heads else 1
    return {"dcp": dcp, "most": most, "kv_heads": cache.kv_heads, "tp": tp} if dcp > most else None


def dcp_uneven_queries(case: Case) -> Mapping[str, Any] | None:
    """Query heads of one KV head do not split over the DCP ranks."""
    dcp = case.plan.decode_context_parallel_size
    if dcp == 1 or case.facts.model.uses_mla or (cache := _headed_cache(case)) is None:
        return None
    queries = cache.q_heads // cache.kv_heads
    return {"queries": queries, "dcp": dcp} if queries % dcp else None


def more_ranks_than_devices(case: Case) -> Mapping[str, Any] | None:
    """The layout needs devices that are not there."""
    ranks, devices = case.plan.world_size, case.facts.node.world
    return {"ranks": ranks, "devices": devices, "layout": case.plan.layout} if ranks > devices else None


# The last topology asked: it is the same object for all candidates of a search.
_memo: list[tuple[Topology, int, int, tuple[Link | None, ...]]] = []


def _fast_island(topology: Topology, devices: int) -> int:
    """Devices in the largest group joined by NVLink or xGMI."""
    return _known(topology, devices)[2]


def _slowest(topology: Topology, devices: int, group: int) -> Link | None:
    return _known(topology, devices)[3][group] if group <= devices else None


def _known(topology: Topology, devices: int) -> tuple[Topology, int, int, tuple[Link | None, ...]]:
    if not _memo or _memo[0][0] is not topology or _memo[0][1] != devices:
        slowest = tuple(topology.slowest(tuple(range(n))) for n in range(devices + 1))
        _memo[:] = [(topology, devices, len(topology.islands(devices)[0]), slowest)]
    return _memo[0]


def tp_leaves_the_island(case: Case) -> Mapping[str, Any] | None:
    """Some pairs of TP ranks have no NVLink or xGMI although others have."""
    tp, node = case.plan.tensor_parallel_size, case.facts.node
    devices = len(node.gpus)
    if tp == 1 or tp > devices:
        return None
    island = _fast_island(node.topology, devices)
    return {"tp": tp, "island": island} if 1 < island < tp else None


def tp_over_pcie(case: Case) -> Mapping[str, Any] | None:
    """No pair of devices has a fast link: every all-reduce goes through PCIe or the host."""
    tp, node = case.plan.tensor_parallel_size, case.facts.node
    devices = len(node.gpus)
    if tp == 1 or tp > devices or _fast_island(node.topology, devices) > 1:
        return None
    link = _slowest(node.topology, devices, tp)
    return {"tp": tp, "link": f"{link.kind}, {link.gb_s:g} GB/s one way" if link else "the host"}


def tp_inside_the_island(case: Case) -> Mapping[str, Any] | None:
    """All TP ranks are joined by fast links."""
    tp, node = case.plan.tensor_parallel_size, case.facts.node
    devices = len(node.gpus)
    if tp == 1 or tp > devices or _fast_island(node.topology, devices) < tp:
        return None
    link = _slowest(node.topology, devices, tp)
    return {"tp": tp, "link": f"{link.kind}, {link.gb_s:g} GB/s one way"} if link else None


def ranks_over_mig_slices(case: Case) -> Mapping[str, Any] | None:
    """NVIDIA's slices have no path to each other, and a process sees one of them."""
    gpu, ranks = views.gpu(case), case.plan.world_size
    if ranks == 1 or not gpu.partition or gpu.vendor is not Vendor.NVIDIA:
        return None
    return {"ranks": ranks, "partition": gpu.partition}


def tp_leaves_the_node(case: Case) -> Mapping[str, Any] | None:
    """TP spans nodes: every layer waits for the network."""
    tp, node = case.plan.tensor_parallel_size, case.facts.node
    here = len(node.gpus)
    if node.count == 1 or tp <= here:
        return None
    return {"tp": tp, "here": here, "network": f"{node.network_gb_s:g} GB/s"}


def pp_where_tp_would_do(case: Case) -> Mapping[str, Any] | None:
    """Stages inside one node although as many TP ranks would divide the heads and share a fast link."""
    plan, node = case.plan, case.facts.node
    if plan.pipeline_parallel_size == 1 or plan.num_nodes > 1:
        return None
    ways = plan.tensor_parallel_size * plan.pipeline_parallel_size
    devices = len(node.gpus)
    if ways > devices or _fast_island(node.topology, devices) < ways or case.facts.model.attention_heads % ways:
        return None
    return {"ways": ways, "pp": plan.pipeline_parallel_size}


def more_stages_than_layers(case: Case) -> Mapping[str, Any] | None:
    """A stage would be empty."""
    pp, layers = case.plan.pipeline_parallel_size, case.facts.model.num_layers
    return {"pp": pp, "layers": layers} if pp > max(1, layers) else None


def stages_uneven(case: Case) -> Mapping[str, Any] | None:
    """The longest stage sets the pace."""
    pp, layers = case.plan.pipeline_parallel_size, case.facts.model.num_layers
    return {"pp": pp, "layers": layers, "longest": -(-layers // pp)} if pp > 1 and layers % pp else None


def replicas_hold_all_weights(case: Case) -> Mapping[str, Any] | None:
    """Data parallel replicas each keep all that is not an expert: experts are shared out, with EP or without."""
    dp = case.plan.data_parallel_size
    if dp == 1:
        return None
    return {"dp": dp, "what": "all weights but the experts" if case.facts.model.moe else "all the weights"}
