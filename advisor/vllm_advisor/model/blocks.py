"""The pieces that decoder layers are made of, each adding its tensors and its cache to a sheet.

How a tensor is split over ranks is vLLM's choice of layer class: ColumnParallelLinear and MergedColumnParallelLinear
(column), RowParallelLinear (row), QKVParallelLinear's K and V part (kv: replicated when TP exceeds the KV heads,
model_executor/layers/linear.py), ReplicatedLinear and disable_tp=True (replicated), FusedMoE (expert).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model.spec import CacheGroup, Moe


if TYPE_CHECKING:
    from vllm_advisor.model.sheet import Sheet


Layers = tuple[int, ...]


class Attention(NamedTuple):
    """Multi-head attention with `q` query and `kv` key-value heads, `d` wide (V: `dv`, 0 meaning the same).

    `qk_norm`: elements of the q and k norms of one layer. `gate`: the query projection is twice as wide (Qwen3-Next).
    `shared_kv`: K and V come from one projection (Gemma 4). `fused`: names of a fused qkv projection in the files.
    """

    q: int
    kv: int
    d: int
    dv: int = 0
    bias: bool = False
    o_bias: bool = False
    qk_norm: int = 0
    gate: bool = False
    sinks: bool = False
    shared_kv: bool = False
    path: str = "self_attn"
    fused: str = ""

    def cache(self, layers: Layers, kind: str = "full", window: int = 0) -> CacheGroup:
        """The KV cache of these layers."""
        return CacheGroup(kind, layers, self.q, self.kv, self.d, self.dv or self.d, window, sinks=self.sinks)


def attention(s: Sheet, layers: Layers, a: Attention, *, own_kv: bool = True) -> None:
    """Add the projections, norms and sinks of attention layers (`own_kv` False: another layer's keys are used)."""
    h, dv = s.hidden, a.dv or a.d
    q_path, kv_path = (f"{a.path}.{a.fused or name}" for name in ("q_proj", "k_proj"))
    s.linear("attention", q_path, a.q * a.d * (2 if a.gate else 1), h, layers, "column", bias=a.bias)
    if own_kv:
        s.linear("attention", kv_path, a.kv * a.d, h, layers, "kv", bias=a.bias, kv_heads=a.kv)
        if not a.shared_kv:
            v_path = f"{a.path}.{a.fused or 'v_proj'}"
            s.linear("attention", v_path, a.kv * dv, h, layers, "kv", bias=a.bias, kv_heads=a.kv)
    s.linear("attention", f"{a.path}.o_proj", h, a.q * dv, layers, "row", bias=a.o_bias)
    s.vector("norm", a.qk_norm, layers)
    s.vector("attention", a.q if a.sinks else 0, layers, "column")


def embeddings(s: Sheet, vocab: int, *, tied: bool, norm: int = 1, width: int = 0, lm_bias: bool = False) -> None:
    """Add the embedding, the output head unless it is tied, and `norm` vectors of the final norm (2 with a bias)."""
    width = width or s.hidden
    s.linear("embedding", "embed_tokens", vocab, width, (), "vocab", quantized=False)
    if not tied:
        s.linear("lm_head", "lm_head", vocab, width, (), "vocab", bias=lm_bias)
    s.vector("norm", norm * s.hidden, ())


def mlp(
    s: Sheet, layers: Layers, size: int, *, gated: bool = True, bias: bool = False, path: str = "mlp", role: str = "mlp"
) -> None:
    """Add a feed-forward network of intermediate `size`."""
    h = s.hidden
    if gated:
        s.linear(role, f"{path}.gate_proj", size, h, layers, "column", bias=bias)
    s.linear(role, f"{path}.up_proj", size, h, layers, "column", bias=bias)
    s.linear(role, f"{path}.down_proj", h, size, layers, "row", bias=bias)


class Experts(NamedTuple):
    """Routed experts of `size`, `n` in number, `k` of them for a token.

    `shared`: total width of the experts that every token uses. `latent`: the width that routed experts work in
    (Nemotron 3), 0 for the hidden size. `correction`: a fp32 router bias. `gate_width`: bytes of a router weight.
    """

    n: int
    k: int
    size: int
    shared: int = 0
    shared_count: int = 0
    shared_gate: bool = False
    correction: bool = False
    bias: bool = False
    router_bias: bool = False
    gated: bool = True
    latent: int = 0
    path: str = "mlp"
    gate: str = "gate"
    shared_path: str = "shared_experts"
    activation: str = "silu"
    gate_width: int = 2


def experts(s: Sheet, layers: Layers, e: Experts) -> None:
    """Add routed experts with their router, and the experts that every token uses."""
    if not layers:
        return
    h, inner = s.hidden, e.latent or s.hidden
    s.linear(
        "router",
        f"{e.path}.{e.gate}",
        e.n,
        h,
        layers,
        "replicated",
        bias=e.router_bias,
        quantized=False,
        width=e.gate_width,
    )
    s.vector("router", e.n if e.correction else 0, layers, width=4)
    inside = f"{e.path}.experts.0"
    if e.gated:
        s.linear("experts", f"{inside}.gate_proj", e.size, inner, layers, "expert", count=e.n, bias=e.bias)
    s.linear("experts", f"{inside}.up_proj", e.size, inner, layers, "expert", count=e.n, bias=e.bias)
    s.linear("experts", f"{inside}.down_proj", inner, e.size, layers, "expert", count=e.n, bias=e.bias)
    if e.shared:
        mlp(s, layers, e.shared, gated=e.gated, path=f"{e.path}.{e.shared_path}", role="shared_expert")
    if e.shared_gate:
        s.linear("router", f"{e.path}.shared_expert_gate", 1, h, layers, "replicated", quantized=False)
    if s.moe is None:
        s.moe = Moe(e.n, e.k, e.shared_count or (1 if e.shared else 0), e.size, layers, e.activation)


class Latent(NamedTuple):
    """Multi-head latent attention: ranks and head widths as DeepSeek names them; `q_rank` 0 is a direct projection."""

    heads: int
    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    v: int
    path: str = "self_attn"

    def cache(self, layers: Layers) -> CacheGroup:
        """One latent vector a token, the same on every TP rank (mla_attention.py:1395)."""
        return CacheGroup("mla", layers, self.heads, 1, self.kv_rank + self.rope)


def latent_attention(s: Sheet, layers: Layers, a: Latent) -> None:
    """Add MLA projections: down-projections replicated, up-projections split by head (deepseek_v2.py)."""
    h, p = s.hidden, a.path
    q_out = a.heads * (a.nope + a.rope)
    if a.q_rank:
        s.linear("attention", f"{p}.q_a_proj", a.q_rank, h, layers, "replicated")
        s.vector("norm", a.q_rank, layers)
        s.linear("attention", f"{p}.q_b_proj", q_out, a.q_rank, layers, "column")
    else:
        s.linear("attention", f"{p}.q_proj", q_out, h, layers, "column")
    s.linear("attention", f"{p}.kv_a_proj_with_mqa", a.kv_rank + a.rope, h, layers, "replicated")
    s.vector("norm", a.kv_rank, layers)
    s.linear("attention", f"{p}.kv_b_proj", a.heads * (a.nope + a.v), a.kv_rank, layers, "column")
    s.linear("attention", f"{p}.o_proj", h, a.heads * a.v, layers, "row")


def norms(s: Sheet, layers: Layers, each: int) -> None:
    """Add `each` vectors of the hidden size a layer (a LayerNorm with bias counts as two)."""
    s.vector("norm", each * s.hidden, layers)
