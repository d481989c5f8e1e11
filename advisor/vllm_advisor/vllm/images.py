"""The container image of a vLLM version and a vendor, pinned by tag.

The patterns stand in public material: `vllm/vllm-openai:vVERSION` (docs.vllm.ai, deployment/docker),
`vllm/vllm-openai-rocm:vVERSION` (pushed by vLLM's release script, tags up to v0.30.0 in use) and
`vllm/vllm-openai-cpu:vVERSION` (the same script; a manifest for x86_64 and arm64, tags up to v0.31.0 in use). AMD also
publishes `rocm/vllm`, whose tags name ROCm and PyTorch and do not follow from a vLLM version. That the tag of a given
version exists cannot be confirmed without a network: `verified` says for which ones we saw it in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node
    from vllm_advisor.vllm.surface import Surface

_REPOSITORIES = {
    Vendor.NVIDIA: "vllm/vllm-openai",
    Vendor.AMD: "vllm/vllm-openai-rocm",
    Vendor.CPU: "vllm/vllm-openai-cpu",
}
# Tags that a public source shows in use, of the versions that we have a surface of.
_SEEN = frozenset({"vllm/vllm-openai:v0.24.0", "vllm/vllm-openai:v0.32.0", "vllm/vllm-openai-rocm:v0.24.0"})


def image(surface: Surface, node: Node) -> str:
    """`repository:tag` for this node's vendor; the entry point of each is `vllm serve`, its arguments follow."""
    return f"{_REPOSITORIES[node.gpu.vendor]}:v{surface.version}"


def verified(name: str) -> bool:
    """Whether a public source shows this very tag; the others follow the same published pattern."""
    return name in _SEEN
