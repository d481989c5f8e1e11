"""ModelSpec: what a planner must know of a model, and nothing that only a forward pass needs.

Two lists carry it. `caches` says what one request leaves on the device, by kind of layer. `weights` says what
the checkpoint is made of, by role, with how vLLM splits that role over ranks. KV dtype and weight dtype are
independent: `quantization` speaks of weights, `Quantization.kv_cache_dtype` of what the checkpoint asks for.
"""

from __future__ import annotations

from dataclasses import dataclass


# A cache kind is what vLLM makes a KVCacheSpec of (v1/kv_cache_interface.py).
#   full      every token, K and V a KV head
#   sliding   the last `window` tokens          chunked   the current chunk of `window` tokens
#   mla       every token, one latent vector (never split by TP)
#   indexer   every token, the sparse indexer's keys (DeepSeek V3.2, MiniMax-M3), beside its attention layer
#   compressed  DeepSeek V4: one entry for every `tokens_per_entry` tokens
#   state     a fixed state a request (Mamba, GDN, KDA, linear, short convolution): no growth with length
CACHE_KINDS = ("full", "sliding", "chunked", "mla", "indexer", "compressed", "state")


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers that keep the same thing for a request.

    `layers` are the decoder's layer numbers that own a cache (layers that share another's cache, or keep none, are in
    no group).

    full, sliding, chunked: `kv_heads` × (`k_dim` + `v_dim`) elements a token; `q_heads` are the query heads.
    mla, indexer, compressed: kv_heads 1, `k_dim` elements a token, `v_dim` 0.
    state: `state_shapes` are (elements, dtype bytes, divides by TP) a layer and request: convolution and SSM state.
    `fixed_bytes_per_token` overrides element count × dtype where the layout has its own (indexer: 132).
    """

    kind: str
    layers: tuple[int, ...]
    q_heads: int = 0
    kv_heads: int = 0
    k_dim: int = 0
    v_dim: int = 0
    window: int = 0
    tokens_per_entry: int = 1
    fixed_bytes_per_token: int = 0
    state_shapes: tuple[tuple[int, int, bool], ...] = ()
    sinks: bool = False


# Roles, and what `sharding` does to one on TP ranks (EP: see memory.weights):
#   vocab       split by TP, vocabulary padded to 64            (embedding, lm_head)
#   column/row  split by TP                                     (attention, mlp, shared_expert, linear attention)
#   kv          split by min(TP, kv_heads): replicated beyond   (K and V projections)
#   expert      split by TP, or by EP where it is on            (experts)
#   replicated  the same on each rank                           (norms, router, MLA down-projections, most towers)
SHARDINGS = ("vocab", "column", "row", "kv", "expert", "replicated")
ROLES = (
    "embedding",
    "lm_head",
    "attention",
    "linear_attention",
    "mlp",
    "experts",
    "shared_expert",
    "router",
    "norm",
    "vision",
    "audio",
    "mtp",
    "other",
)


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Tensors of one role.

    `params` and `bytes` are whole-model totals, scales and zero points included in bytes;
    `bytes` is as stored in this checkpoint. `layers`: the decoder layers they lie in, equally;
    () is outside of the stack (embedding and towers: first PP stage; lm_head, final norm, mtp: last).
    `quantizable`: linear weights that an online quantization would convert. `bits` of the stored element (16, 8, 4).
    """

    role: str
    params: int
    bytes: int
    sharding: str
    layers: tuple[int, ...] = ()
    bits: int = 16
    quantizable: bool = False
    kv_heads: int = 0


@dataclass(frozen=True, slots=True)
class Moe:
    """Mixture of experts, per MoE layer. `intermediate_size` of one routed expert."""

    num_experts: int
    experts_per_token: int
    shared_experts: int
    intermediate_size: int
    layers: tuple[int, ...]
    activation: str = "silu"


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the checkpoint's linear weights are stored.

    `method`: none, fp8, awq, gptq, compressed-tensors, modelopt, mxfp4, quark, bitsandbytes, torchao, fbgemm_fp8, …
    (vLLM's names). `scheme` is our one vocabulary over all of them:
    bf16, fp8_tensor, fp8_channel, fp8_block, int8, int4, nvfp4, mxfp4, mxfp8, nvfp4_mixed, other.
    `activation_bits`: 16 is weight-only. `block`: (n, k) of a 2-D block scale. `ignored`: module patterns left as is.
    `linear_schemes`: of the decoder's linear layers, that of most layers first, where they are not all in `scheme`;
    bf16 where none is quantized. `expert_scheme`: of the experts, "" where it is `scheme`. Both know two forms more:
    int4_g32 (a scale for 32 weights), nvfp4_w4a16 (activations stay in 16 bits).
    """

    method: str = "none"
    scheme: str = "bf16"
    weight_bits: int = 16
    activation_bits: int = 16
    group_size: int = 0
    block: tuple[int, int] | None = None
    kv_cache_dtype: str | None = None
    ignored: tuple[str, ...] = ()
    linear_schemes: tuple[str, ...] = ()
    expert_scheme: str = ""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One checkpoint.

    `unknowns` says in words what could not be told (an unknown architecture or layer kind, a missing number): when it
    is not empty, memory answers "cannot tell". `provenance` is verbatim, assembled, derived-quant, local or hub;
    `exact_weight_bytes` comes from a safetensors index or headers. `siblings` name other checkpoints of the same base
    model as (repository, scheme). `mtp_layers` are multi-token-prediction draft layers in the files.
    `tower_widths`: inputs of the vision tower's linear layers that an online quantization converts, before TP splits
    them. `bidirectional_images`: tokens of an image see each other in both directions (vLLM's `is_mm_prefix_lm`).
    """

    name: str
    architecture: str
    model_type: str
    dtype: str
    hidden_size: int
    num_layers: int
    vocab_size: int
    max_position: int
    attention_heads: int
    kv_heads: int
    caches: tuple[CacheGroup, ...]
    weights: tuple[WeightGroup, ...]
    intermediate_size: int = 0
    moe: Moe | None = None
    quantization: Quantization = Quantization()
    tied_embeddings: bool = False
    modalities: tuple[str, ...] = ()
    mtp_layers: int = 0
    base_model: str = ""
    siblings: tuple[tuple[str, str], ...] = ()
    exact_weight_bytes: int | None = None
    unknowns: tuple[str, ...] = ()
    provenance: str = ""
    source: str = ""
    tower_widths: tuple[int, ...] = ()
    bidirectional_images: bool = False

    @property
    def params(self) -> int:
        """All parameters that are loaded, drafts (mtp) excluded: vLLM loads those only for speculative decoding."""
        return sum(g.params for g in self.weights if g.role != "mtp")

    @property
    def weight_bytes(self) -> int:
        """Bytes of the checkpoint's tensors that are loaded (mtp excluded)."""
        return sum(g.bytes for g in self.weights if g.role != "mtp")

    @property
    def active_params(self) -> int:
        """Parameters that one token uses: experts count by experts_per_token, the embedding lookup not at all."""
        share = self.moe.experts_per_token / self.moe.num_experts if self.moe else 1.0
        used = {"embedding": 0.0, "experts": share, "vision": 0.0, "audio": 0.0, "mtp": 0.0}
        return int(sum(g.params * used.get(g.role, 1.0) for g in self.weights)) + self._tied_head_params

    @property
    def _tied_head_params(self) -> int:
        return self.vocab_size * self.hidden_size if self.tied_embeddings else 0

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.moe is not None

    @property
    def uses_mla(self) -> bool:
        """Whether attention keeps a latent vector (multi-head latent attention)."""
        return any(c.kind in ("mla", "compressed") for c in self.caches)

    @property
    def is_hybrid(self) -> bool:
        """Whether some layers keep a fixed state (Mamba, GDN, linear attention)."""
        return any(c.kind == "state" for c in self.caches)
