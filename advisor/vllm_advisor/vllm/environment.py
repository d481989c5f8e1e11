"""The environment variables that a plan needs beyond vLLM's own defaults, each with its reason and source.

Nothing that restates a default, nothing that the version does not register, nothing that only sounds fast: a
variable is set because the version's source shows what it switches. What depends on the host (an air-gapped machine,
cards without peer access, a slow disk) is a note for its owner, not a setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.units import GIB, gib
from vllm_advisor.vllm import backends, plugin, schemes


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface


class EnvSetting(NamedTuple):
    """One variable, its value, why (or, for a note, when), and where the source says so."""

    name: str
    value: str
    why: str
    source: str


# gfx942: MI300X, MI300A, MI325X; gfx950: MI350X, MI355X. CDNA2 (gfx90a) has no AITER kernels: 0.24.0
# _aiter_ops.py:91-111 (on_mi3xx), 0.33.0:203-226 (CDNA version above 2). RDNA4 has only its Triton part, since 0.33.
AITER_ARCHS = ("gfx942", "gfx950")
AITER = EnvSetting(
    "VLLM_ROCM_USE_AITER",
    "1",
    "off by default; takes AITER's kernels for attention, experts and linear layers. Without the aiter package, "
    "which the ROCm image has, it changes nothing",
    "_aiter_ops.py (is_aiter_found_and_supported)",
)
_NO_EXPERTS = EnvSetting(
    "VLLM_ROCM_USE_AITER_MOE",
    "0",
    "AITER has no kernel for this model's experts, and with it on vLLM takes AITER or stops",
    "model_executor/layers/fused_moe/oracle/fp8.py:541-556; 0.24 oracle/unquantized.py:233",
)
_OFFLINE = EnvSetting(
    "VLLM_HAS_FLASHINFER_CUBIN",
    "1",
    "on a host without internet: else vLLM asks NVIDIA's server for kernels and gives up TRT-LLM attention; "
    "needs the flashinfer-cubin package",
    "utils/flashinfer.py (has_nvidia_artifactory, supports_trtllm_attention)",
)
_PEERLESS = EnvSetting(
    "NCCL_P2P_DISABLE",
    "1",
    "if start-up hangs or results are wrong: GeForce drivers have no peer access over PCIe",
    "distributed/device_communicators/custom_all_reduce.py (peer test); NCCL user guide",
)
# vLLM gives an engine 600 s to become ready. From this size on a disk below about 0.3 GB/s takes longer: our estimate.
_SLOW_TO_LOAD_BYTES = 200 * GIB
_READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"


def environment(plan: Plan, model: ModelSpec, node: Node, surface: Surface) -> tuple[EnvSetting, ...]:
    """What to set for this plan on this node, sorted by name; every name is registered by that version."""
    gpu = node.gpu
    if gpu.vendor is not Vendor.AMD or gpu.arch not in AITER_ARCHS or not surface.has_env(AITER.name):
        return ()
    return (AITER, _NO_EXPERTS) if _refuses_experts(plan, model, gpu.arch, surface) else (AITER,)


def _refuses_experts(plan: Plan, model: ModelSpec, arch: str, surface: Surface) -> bool:
    if model.moe is None or plugin.serves(model, plan):
        return False
    scheme = schemes.expert_scheme(model, plan)
    return backends.aiter_refuses_experts(surface, arch, scheme, model.moe.activation, model.model_type)


def notes(plan: Plan, model: ModelSpec, node: Node, surface: Surface) -> tuple[EnvSetting, ...]:
    """What the host's owner may have to set, with the case in which; sorted by name, none of it set by us."""
    found = (*_offline(node), *_peerless(plan, node), *_slow(model))
    return tuple(sorted(n for n in found if surface.has_env(n.name)))


def _offline(node: Node) -> Iterator[EnvSetting]:
    if node.gpu.capability in (100, 103):
        yield _OFFLINE


def _peerless(plan: Plan, node: Node) -> Iterator[EnvSetting]:
    linked = any(link.kind == "nvlink" for link in node.topology.links)
    if plan.world_size > 1 and "geforce" in node.gpu.name.lower() and not linked:
        yield _PEERLESS


def _slow(model: ModelSpec) -> Iterator[EnvSetting]:
    size = model.exact_weight_bytes or model.weight_bytes
    if size > _SLOW_TO_LOAD_BYTES:
        why = f"if {gib(size)} of weights take more than 10 minutes to load: vLLM gives up after 600 s"
        yield EnvSetting(_READY_TIMEOUT, "3600", why, "v1/engine/core_client.py (VLLM_ENGINE_READY_TIMEOUT_S)")
