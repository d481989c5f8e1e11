"""How ranks are arranged, by the words of the command: replicas, load balancing, EPLB, two batches at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.loaded import redundant_experts
from vllm_advisor.check.values import mapping
from vllm_advisor.hardware import Vendor


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec

_DP, _LOCAL, _RANK = "--data-parallel-size", "--data-parallel-size-local", "--data-parallel-rank"
_HYBRID, _EXTERNAL = "--data-parallel-hybrid-lb", "--data-parallel-external-lb"
_EPLB, _CONFIG = "--enable-eplb", "--eplb-config"


def findings(given: Asked, model: ModelSpec | None, node: Node | None) -> tuple[Finding, ...]:
    """All of them; `model` and `node` where they are known."""
    return (
        *_balancing(given, model),
        *_eplb(given, model),
        *_two_batches(given, node),
        *_contexts(given),
        *_experts(given),
    )


def _balancing(given: Asked, model: ModelSpec | None) -> Iterator[Finding]:
    local = given.value(_LOCAL) or ""
    if given.on(_HYBRID) and given.on(_EXTERNAL):
        yield mend.said("CFL-03", f"{_HYBRID} and {_EXTERNAL} exclude each other", given, _EXTERNAL)
    if local.isdecimal() and int(local) > given.dp:
        text = f"{_LOCAL} {local} is more than {_DP} {given.dp}"
        yield mend.said("CFL-04", text, given, _LOCAL, hint=f"raise {_DP}, or lower {_LOCAL}")
    if given.on(_EXTERNAL) and given.dp <= 1:
        text = f"{_EXTERNAL} needs {_DP} above 1"
        yield mend.said("CFL-05", text, given, _EXTERNAL, change=mend.drop(given, _EXTERNAL))
    elif given.on(_EXTERNAL) and not given.last(_RANK) and not given.last("--nnodes"):
        yield mend.said("CFL-06", f"{_EXTERNAL} needs {_RANK}", given, _EXTERNAL, hint=f"{_RANK} of this process")
    external = given.on(_EXTERNAL) or given.last(_RANK)
    if model and model.moe is None and external and given.dp > 1:
        text = f"{model.name} has no experts: vLLM {given.surface.version} refuses external data parallelism for it"
        hint = "start independent servers without --data-parallel options"
        yield mend.said("CFL-07", text, given, _EXTERNAL, _RANK, hint=hint)


# Keys of EPLBConfig and values of two of them (config/parallel.py:64-115; 0.24.0 :57-99).
_KEYS = frozenset((
    "window_size", "step_interval", "num_redundant_experts", "log_balancedness", "log_balancedness_interval",
    "use_async", "policy", "communicator",
))  # fmt: skip
_COMMUNICATORS = frozenset(("torch_nccl", "torch_gloo", "torch_xccl", "nixl", "pynccl"))
_NOT_ASYNC = ("torch_nccl", "pynccl")


def _eplb(given: Asked, model: ModelSpec | None) -> Iterator[Finding]:
    config = mapping(given.reading, _CONFIG)
    if config.get("num_redundant_experts") and not given.on(_EPLB):
        text = f"{_CONFIG} asks for {config['num_redundant_experts']} redundant experts, and EPLB is off"
        change = mend.add(given, _EPLB) if given.on("--enable-expert-parallel") else None
        yield mend.said("CFL-08", text, given, _CONFIG, hint=f"add {_EPLB}, or leave the key out", change=change)
    extra, ways = redundant_experts(given), given.tp * given.dp * given.pcp
    if model and model.moe and extra and given.on(_EPLB) and (model.moe.num_experts + extra) % ways:
        text = f"EPLB needs equal shares: {model.moe.num_experts} experts and {extra} redundant ones on {ways} ranks"
        more = -(model.moe.num_experts + extra) % ways
        hint = f"num_redundant_experts {extra + more}"
        yield mend.said("PAR-10", text, given, _CONFIG, hint=hint, source="fused_moe/layer.py:274-279")
    for fault, hint in _eplb_faults(config, given):
        yield mend.said("CFL-09", f"{_CONFIG}: {fault}", given, _CONFIG, hint=hint)


def _eplb_faults(config: Mapping[str, object], given: Asked) -> Iterator[tuple[str, str]]:
    known = _KEYS | ({"enable_migration_batching"} if given.surface.at_least(0, 33) else set())
    unknown = sorted(set(config) - known)
    if unknown:
        yield f"no such key: {', '.join(unknown)}", f"it takes {', '.join(sorted(known))}"
    communicator = config.get("communicator")
    if config.get("policy", "default") != "default":
        yield f"policy {config['policy']!r} does not exist", "the only one is default"
    if communicator is not None and communicator not in _COMMUNICATORS:
        yield f"communicator {communicator!r} does not exist", f"one of {', '.join(sorted(_COMMUNICATORS))}"
    elif communicator in _NOT_ASYNC and config.get("use_async", True):
        yield (
            f"communicator {communicator} cannot work beside the model (use_async is on)",
            "torch_gloo or nixl, or use_async false",
        )


# All-to-all backends that two batches at once take (config/vllm.py:2180-2196; 0.24.0 :1427-1433).
_OVERLAPS = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")


def _two_batches(given: Asked, node: Node | None) -> Iterator[Finding]:
    """On ROCm 0.33 also takes the default; without a device this is not said."""
    default = "allgather_reducescatter"
    chosen = given.value("--all2all-backend") or default
    chosen = default if chosen in ("naive", "pplx") else chosen
    size = given.value("--ubatch-size") or "0"
    if not given.on("--enable-dbo") and not (size.isdecimal() and int(size) > 1):
        return
    on_amd = node is None or node.gpu.vendor is Vendor.AMD
    if chosen in _OVERLAPS or (chosen == default and on_amd and given.surface.at_least(0, 33)):
        return
    text = f"two batches at once work with {', '.join(_OVERLAPS)}, not with {chosen}"
    hint = "--all2all-backend deepep_low_latency (for decode) or deepep_high_throughput, with their kernels installed"
    yield mend.said("CFL-10", text, given, "--enable-dbo", "--ubatch-size", hint=hint)


def _contexts(given: Asked) -> Iterator[Finding]:
    """DCP beside PCP (0.33); without PCP the decision matrix has the rules."""
    allowed = sorted({1, given.pcp, given.tp * given.pcp})
    if given.pcp > 1 and given.dcp not in allowed and given.surface.at_least(0, 33):
        text = (
            f"with prefill context parallelism {given.pcp} and TP {given.tp}, decode context parallelism is one of "
            f"{', '.join(map(str, allowed))}, not {given.dcp}"
        )
        yield mend.said("CFL-11", text, given, "--decode-context-parallel-size")


# Fall back to the default with a warning (config/parallel.py:537; 0.24.0 :449).
_GONE = ("pplx", "naive")
_OF_EXPERTS = ("--expert-placement-strategy", "--all2all-backend")


def _experts(given: Asked) -> Iterator[Finding]:
    chosen = given.value("--all2all-backend")
    if chosen in _GONE:
        text = f"--all2all-backend {chosen} is gone: vLLM warns and takes allgather_reducescatter"
        change = mend.put(given, "--all2all-backend", "allgather_reducescatter")
        yield mend.said("CFL-22", text, given, "--all2all-backend", change=change)
    routed = "--enable-return-routed-experts"
    if given.on(routed) and given.pp > 1:
        text = f"{routed} is refused with {given.pp} pipeline stages"
        yield mend.said("CFL-23", text, given, routed, hint="leave it out", change=mend.drop(given, routed))
    named = [name for name in _OF_EXPERTS if given.last(name)]
    if named and not given.on("--enable-expert-parallel"):
        text = f"{' and '.join(named)} is about expert parallelism, which is off"
        hint = "add --enable-expert-parallel, or leave it out"
        yield mend.said("CFL-21", text, given, *named, hint=hint)
