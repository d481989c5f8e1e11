"""Layers that keep a fixed state a request instead of a growing cache: Mamba 1 and 2, gated delta net, KDA, lightning.

State shapes and dtypes are those of model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator and
MambaStateDtypeCalculator), without speculative slots and unsharded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model.spec import CacheGroup


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.sheet import Sheet


DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float": 4, "half": 2}
ROLE = "linear_attention"


def state(layers: Layers, *shapes: tuple[int, int]) -> CacheGroup:
    """A state group of (elements, dtype bytes) tensors, each split by TP."""
    return CacheGroup("state", layers, state_shapes=tuple((n, width, True) for n, width in shapes))


class Mamba2(NamedTuple):
    """Mamba 2 with `heads` × `dim` inner channels, `groups` of B and C of `state` elements, kernel `conv`."""

    heads: int
    dim: int
    groups: int
    state: int
    conv: int
    conv_bias: bool = True
    bias: bool = False
    norm: bool = True
    path: str = "mixer"
    ssm_bytes: int = 2

    def cache(self, layers: Layers) -> CacheGroup:
        inner = self.heads * self.dim
        channels = inner + 2 * self.groups * self.state
        return state(layers, (channels * (self.conv - 1), 2), (inner * self.state, self.ssm_bytes))


def mamba2(s: Sheet, layers: Layers, m: Mamba2) -> None:
    """Add Mamba 2 layers (layers/mamba/mamba_mixer2.py)."""
    inner, mixed = m.heads * m.dim, m.heads * m.dim + 2 * m.groups * m.state
    s.linear(ROLE, f"{m.path}.in_proj", inner + mixed + m.heads, s.hidden, layers, "column", bias=m.bias)
    s.vector(ROLE, mixed * (m.conv + int(m.conv_bias)), layers, "column")
    s.vector(ROLE, 3 * m.heads, layers, "column", width=4)
    s.vector(ROLE, inner if m.norm else 0, layers, "column")
    s.linear(ROLE, f"{m.path}.out_proj", s.hidden, inner, layers, "row", bias=m.bias)


class Mamba1(NamedTuple):
    """Mamba 1 of `inner` channels; `norms`: Jamba's norms over dt, B and C."""

    inner: int
    state: int
    conv: int
    dt_rank: int
    conv_bias: bool = True
    bias: bool = False
    norms: bool = False
    path: str = "mamba"

    def cache(self, layers: Layers) -> CacheGroup:
        return state(layers, (self.inner * (self.conv - 1), 2), (self.inner * self.state, 2))


def mamba1(s: Sheet, layers: Layers, m: Mamba1) -> None:
    """Add Mamba 1 layers (layers/mamba/mamba_mixer.py)."""
    s.linear(ROLE, f"{m.path}.in_proj", 2 * m.inner, s.hidden, layers, "column", bias=m.bias)
    s.vector(ROLE, m.inner * (m.conv + int(m.conv_bias)), layers, "column")
    s.linear(ROLE, f"{m.path}.x_proj", m.dt_rank + 2 * m.state, m.inner, layers, "row")
    s.linear(ROLE, f"{m.path}.dt_proj", m.inner, m.dt_rank, layers, "column", bias=True)
    s.vector(ROLE, m.inner * (m.state + 1), layers, "column", width=4)
    s.vector("norm", m.dt_rank + 2 * m.state if m.norms else 0, layers)
    s.linear(ROLE, f"{m.path}.out_proj", s.hidden, m.inner, layers, "row", bias=m.bias)


class DeltaNet(NamedTuple):
    """Gated delta net: `k_heads` × `k_dim` keys, `v_heads` × `v_dim` values. `split`: Qwen3.5's four projections."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    conv: int
    split: bool
    ssm_bytes: int = 2

    def cache(self, layers: Layers) -> CacheGroup:
        channels = 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim
        return state(layers, (channels * (self.conv - 1), 2), (self.v_heads * self.v_dim * self.k_dim, self.ssm_bytes))


def delta_net(s: Sheet, layers: Layers, g: DeltaNet) -> None:
    """Add gated delta net layers (layers/mamba/gdn/, qwen3_next.py)."""
    keys, values, path = g.k_heads * g.k_dim, g.v_heads * g.v_dim, "linear_attn"
    if g.split:
        s.linear(ROLE, f"{path}.in_proj_qkv", 2 * keys + values, s.hidden, layers, "column")
        s.linear(ROLE, f"{path}.in_proj_z", values, s.hidden, layers, "column")
        s.linear(ROLE, f"{path}.in_proj_b", g.v_heads, s.hidden, layers, "column")
        s.linear(ROLE, f"{path}.in_proj_a", g.v_heads, s.hidden, layers, "column")
    else:
        s.linear(ROLE, f"{path}.in_proj_qkvz", 2 * keys + 2 * values, s.hidden, layers, "column")
        s.linear(ROLE, f"{path}.in_proj_ba", 2 * g.v_heads, s.hidden, layers, "column")
    s.vector(ROLE, (2 * keys + values) * g.conv, layers, "column")
    s.vector(ROLE, 2 * g.v_heads, layers, "column", width=4)
    s.vector("norm", g.v_dim, layers)
    s.linear(ROLE, f"{path}.out_proj", s.hidden, values, layers, "row")


class Kda(NamedTuple):
    """Kimi delta attention: `heads` × `dim`; `full_gate`: the output gate is one full-rank projection (Kimi-K3)."""

    heads: int
    dim: int
    conv: int
    full_gate: bool = False
    path: str = "self_attn"

    def cache(self, layers: Layers) -> CacheGroup:
        inner = self.heads * self.dim
        return state(layers, (3 * inner * (self.conv - 1), 2), (inner * self.dim, 4))


def kda(s: Sheet, layers: Layers, a: Kda) -> None:
    """Add KDA layers (layers/kda.py; the two low-rank gate inputs f_a and g_a are replicated)."""
    inner, p = a.heads * a.dim, a.path
    for name in ("q_proj", "k_proj", "v_proj"):
        s.linear(ROLE, f"{p}.{name}", inner, s.hidden, layers, "column")
    s.vector(ROLE, 3 * inner * a.conv, layers, "column", width=4)
    s.linear(ROLE, f"{p}.b_proj", a.heads, s.hidden, layers, "column")
    s.linear(ROLE, f"{p}.f_a_proj", a.dim, s.hidden, layers, "replicated")
    s.linear(ROLE, f"{p}.f_b_proj", inner, a.dim, layers, "column")
    if a.full_gate:
        s.linear(ROLE, f"{p}.g_proj", inner, s.hidden, layers, "column")
    else:
        s.linear(ROLE, f"{p}.g_a_proj", a.dim, s.hidden, layers, "replicated")
        s.linear(ROLE, f"{p}.g_b_proj", inner, a.dim, layers, "column")
    s.vector(ROLE, a.heads + inner, layers, "column", width=4)
    s.vector("norm", a.dim, layers)
    s.linear(ROLE, f"{p}.o_proj", s.hidden, inner, layers, "row")


class Lightning(NamedTuple):
    """Lightning linear attention (MiniMax-01): one head_dim × head_dim matrix a head."""

    heads: int
    dim: int
    path: str = "self_attn"

    def cache(self, layers: Layers) -> CacheGroup:
        return state(layers, (self.heads * self.dim * self.dim, 2))


def lightning(s: Sheet, layers: Layers, a: Lightning) -> None:
    """Add lightning attention layers: fused qkv, output gate, norm, output."""
    inner = a.heads * a.dim
    s.linear(ROLE, f"{a.path}.qkv_proj", 3 * inner, s.hidden, layers, "column")
    s.linear(ROLE, f"{a.path}.output_gate", inner, s.hidden, layers, "column")
    s.vector("norm", inner, layers, "column")
    s.linear(ROLE, f"{a.path}.out_proj", s.hidden, inner, layers, "row")
