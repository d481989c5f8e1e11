"""Our own forward pass of a decoder, in float32 on the CPU (or wherever torch is told), one layer at a time.

Shapes: hidden states are [tokens, hidden]; heads come first in attention, [heads, tokens, head_dim].
Everything that watches or changes the pass (statistics, a simulated cache, quantized weights) is a `Hooks`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_tuner.calibrate.config import ModelConfig, Rope
    from vllm_tuner.calibrate.weights import Weights

    Each = Callable[["Layer", list[torch.Tensor], list[torch.Tensor]], None] | None

HEAD_ROWS = 16_384  # of the output matrix in memory at a time
TOKENS = 4096  # in a feed-forward layer at a time


class Hooks:
    """What may watch or change one pass over one layer. These do nothing."""

    def prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        """The token ids that come next; rows of all later tensors are those of all prompts, one after another."""

    def cached(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one prompt as attention reads them back, [kv heads, tokens, head_dim], after rotation."""
        del layer, q
        return k, v

    def weight(self, module: str, weight: torch.Tensor) -> torch.Tensor:
        """A linear layer's matrix [out, in] as it is multiplied."""
        del module
        return weight

    def linear(self, module: str, x: torch.Tensor, y: torch.Tensor) -> None:
        """What went into a linear layer, [tokens, in], and came out, without the bias."""

    def routed(self, layer: int, logits: torch.Tensor, chosen: torch.Tensor) -> None:
        """A router's logits [tokens, experts] and the experts it took [tokens, top_k]."""


class Layer:
    """One decoder layer. A matrix is in memory while it is multiplied, for all prompts at once; experts one by one."""

    def __init__(self, weights: Weights, config: ModelConfig, index: int) -> None:
        self.config, self.index = config, index
        self.prefix = f"model.layers.{index}."
        self._weights = weights

    def forward(self, prompts: Sequence[torch.Tensor], hooks: Hooks) -> list[torch.Tensor]:
        """[tokens, hidden] a prompt → the same."""
        lengths = [x.shape[0] for x in prompts]
        x = torch.cat(list(prompts))
        x = x + self._attention(self._norm(x, "input_layernorm"), lengths, hooks)
        x = x + self._feed_forward(self._norm(x, "post_attention_layernorm"), hooks)
        return list(x.split(lengths))

    @property
    def has_experts(self) -> bool:
        """Whether tokens are routed in this layer."""
        return self.config.moe is not None and self.config.moe.routes(self.index)

    def _get(self, name: str) -> torch.Tensor:
        return self._weights.get(self.prefix + name)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, self._get(f"{name}.weight"), self.config.eps)

    def _linear(self, name: str, hooks: Hooks) -> Callable[[torch.Tensor], torch.Tensor]:
        module = self.prefix + name
        weight = hooks.weight(module, self._get(f"{name}.weight")).T
        bias = self._weights.maybe(f"{module}.bias")

        def multiply(x: torch.Tensor) -> torch.Tensor:
            y = x @ weight
            hooks.linear(module, x, y)
            return y if bias is None else y + bias

        return multiply

    def _attention(self, x: torch.Tensor, lengths: list[int], hooks: Hooks) -> torch.Tensor:
        q, k, v = (self._heads(name, x, hooks).split(lengths, 1) for name in "qkv")
        outs = [self._attend(*heads, hooks) for heads in zip(q, k, v, strict=True)]
        return self._linear("self_attn.o_proj", hooks)(torch.cat(outs))

    def _heads(self, name: str, x: torch.Tensor, hooks: Hooks) -> torch.Tensor:
        y = self._linear(f"self_attn.{name}_proj", hooks)(x)
        heads = y.unflatten(-1, (-1, self.config.head_dim)).transpose(0, 1)
        norm = self._weights.maybe(f"{self.prefix}self_attn.{name}_norm.weight")
        return heads if norm is None else rms_norm(heads, norm, self.config.eps)

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hooks: Hooks) -> torch.Tensor:
        q, k = rotate(q, self.config.rope), rotate(k, self.config.rope)
        k, v = hooks.cached(self.index, q, k, v)
        return attend(q, k, v, self.config.window).transpose(0, 1).flatten(1)

    def _feed_forward(self, x: torch.Tensor, hooks: Hooks) -> torch.Tensor:
        if not self.has_experts:
            return self._gated("mlp.", x, hooks)
        return self._routed(x, hooks) + self._shared(x, hooks)

    def _gated(self, prefix: str, x: torch.Tensor, hooks: Hooks) -> torch.Tensor:
        gate, up, down = (self._linear(f"{prefix}{name}", hooks) for name in self.config.names.up)
        return torch.cat([down(functional.silu(gate(part)) * up(part)) for part in x.split(TOKENS)])

    def _routed(self, x: torch.Tensor, hooks: Hooks) -> torch.Tensor:
        moe = self.config.moe
        if moe is None:
            raise ValueError("a dense model has no router")
        scores = x @ self._get(f"{self.config.names.gate}.weight").T
        shares, chosen = scores.softmax(-1).topk(moe.top_k, -1)
        hooks.routed(self.index, scores, chosen)
        if moe.renormalize:
            shares = shares / shares.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for expert in chosen.unique().tolist():
            tokens, place = (chosen == expert).nonzero(as_tuple=True)
            part = self._gated(f"{self.config.names.experts}.{expert}.", x[tokens], hooks)
            out.index_add_(0, tokens, part * shares[tokens, place].unsqueeze(-1))
        return out

    def _shared(self, x: torch.Tensor, hooks: Hooks) -> torch.Tensor | float:
        """Qwen2-MoE's expert that every token takes, weighted by a gate of its own."""
        gate = self._weights.maybe(f"{self.prefix}mlp.shared_expert_gate.weight")
        return 0.0 if gate is None else torch.sigmoid(x @ gate.T) * self._gated("mlp.shared_expert.", x, hooks)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Divide by the root mean square of the last dimension, times weight."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 0) -> torch.Tensor:
    """Causal attention, [heads, tokens, head_dim]; with a window each token sees only the last so many."""
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    tokens = q.shape[1]
    if not window or window >= tokens:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    places = torch.arange(tokens, device=q.device)
    seen = (places[:, None] >= places) & (places[:, None] - places < window)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def rotate(x: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Rotary embedding of [heads, tokens, dim]: the two halves of a head rotate against each other."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), frequencies(half, rope)).to(x.device)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def frequencies(half: int, rope: Rope) -> torch.Tensor:
    """Radians a token of each pair, [half]."""
    plain = rope.theta ** (-torch.arange(half, dtype=torch.float32) / half)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind != "llama3":
        return plain
    length = 2 * math.pi / plain
    # Llama 3.1: short waves stay, long ones are stretched by the factor, those between are blended.
    blend = ((rope.original / length - rope.low) / (rope.high - rope.low)).clamp(0, 1)
    return plain * (blend + (1 - blend) / rope.factor)


def embed(weights: Weights, prompts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Token ids → [tokens, hidden] a prompt; only the rows that occur are read."""
    name = "model.embed_tokens.weight"
    known = sorted({token for prompt in prompts for token in prompt})
    table = torch.cat([weights.rows(name, token, 1) for token in known])
    place = {token: index for index, token in enumerate(known)}
    return [table[torch.tensor([place[token] for token in prompt])] for prompt in prompts]


def logits(weights: Weights, config: ModelConfig, hidden: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The last layer's [tokens, hidden] a prompt → [tokens, vocab]; the head is read a block of rows at a time."""
    norm = weights.get("model.norm.weight")
    tied = config.tied and "lm_head.weight" not in weights
    name = "model.embed_tokens.weight" if tied else "lm_head.weight"
    normed = [rms_norm(x, norm, config.eps) for x in hidden]
    rows = weights.shape(name)[0]
    blocks: list[list[torch.Tensor]] = [[] for _ in hidden]
    for first in range(0, rows, HEAD_ROWS):
        table = weights.rows(name, first, min(HEAD_ROWS, rows - first)).T
        for parts, x in zip(blocks, normed, strict=True):
            parts.append(x @ table)
    return [torch.cat(parts, -1) for parts in blocks]


def run(
    weights: Weights,
    config: ModelConfig,
    prompts: Sequence[Sequence[int]],
    variants: Sequence[Hooks],
    each: Each = None,
) -> list[list[torch.Tensor]]:
    """All prompts through all layers, once a variant, the first variant first: hidden states a variant and prompt.

    `each` is called after every layer with it, and the first variant's states before and after it.
    """
    for hooks in variants:
        hooks.prompts(prompts)
    streams = [embed(weights, prompts)] * len(variants)
    with torch.inference_mode():
        for index in range(config.layers):
            layer = Layer(weights, config, index)
            before = streams[0]
            streams = [layer.forward(stream, hooks) for stream, hooks in zip(streams, variants, strict=True)]
            if each is not None:
                each(layer, before, streams[0])
    return streams
