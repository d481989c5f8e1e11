"""Seconds of one engine step: what is read, computed, sent and launched, for tokens that decode and tokens of prompts.

Memory and compute of a matrix product overlap as (memory^p + compute^p)^(1/p), p fitted: exact far from the ridge of
the roofline, and above both near it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.throughput.traits import EIGHT, EMULATED, FOUR, PLAIN, WEIGHT_ONLY


if TYPE_CHECKING:
    from vllm_advisor.throughput.parameters import Parameters
    from vllm_advisor.throughput.traits import Kernel, Traits, Wire

_MICRO = 1e-6
# Part of a collective's start that grows with the number of ranks (custom all-reduce: each rank polls each other one).
_FAST = ("nvlink", "xgmi", "c2c")
# Stages wait for each other: their batches are never equally long. From one public pair (gpt-oss-120b on two H100, vLLM
# 0.10: 7,649 tok/s at TP2, 5,338 at PP2).
_BUBBLES = 0.4
# All emulated experts are read, written in 16 bits and read again, for four and a quarter bits that are stored.
_UNPACKED = (4.25 + 16 + 16) / 4.25
_GROUPED_TOKENS = 128  # deep_gemm_moe.py _valid_deep_gemm: below, Triton's kernel is taken
_NETWORK = 3.0  # a hop between nodes against one between slots (an estimate)


class Machine(NamedTuple):
    """All that a step's time depends on besides its batch: seconds, seconds a token, and rates already multiplied out.

    `dense_read` and `experts_read` are seconds to read all of the weights once, `…_token` seconds of compute a token.
    """

    traits: Traits
    dense_read: float
    dense_token: float
    experts_read: float
    experts_token: float
    expert_half: float
    uneven: float
    grouped: float
    luck: float
    kv_second: float
    decode_attention: float
    prefill_attention: float
    overlap: float
    skew: float
    wire_start: float
    wire_token: float
    exchange_start: float
    exchange_token: float
    stage_start: float
    stage_token: float
    decode_launch: float
    prefill_launch: float
    eager_launch: float
    base: float
    per_request: float
    stream: float
    token_factor: float


class Step(NamedTuple):
    """Seconds of the parts of a step."""

    weights: float
    kv: float
    compute: float
    communication: float
    overhead: float
    seconds: float

    @property
    def bound(self) -> str:
        """What the step waits for most."""
        return max(zip(self, self._fields[:5], strict=False))[1]


def machine(t: Traits, p: Parameters) -> Machine:
    """The plan's coefficients under the parameters."""
    w, near = t.work, p.family(t.family)
    amd = p.amd_overhead if t.family in ("cdna3", "cdna4", "radeon") else 1.0
    dense_read, dense_token = _product(t, t.dense, p, p.weight_only_share)
    experts_read, experts_token = _product(t, t.experts, p, 1.0)
    share = t.per_token / t.num_experts if t.num_experts else 0.0
    reached = p.expert_share * t.expert_width / (t.expert_width + p.narrow_width) if t.num_experts else 1.0
    quantized = {EIGHT: p.quantize_us, FOUR: p.quantize_four_us}.get(t.dense.kind, 0.0)
    launch = t.layers * (p.layer_us + quantized) + t.routed_layers * p.routed_layer_us
    launch += t.recurrent_layers * p.recurrent_layer_us
    eager = t.layers * p.eager_layer_us if t.eager else 0.0
    engine = p.v0_factor / t.steps_together if t.engine_v0 else 1.0
    host = p.step_us * (p.async_left if t.overlapped else engine)
    start, token, exchange_start, exchange_token = _collectives(t, p)
    return Machine(
        traits=t,
        dense_read=w.dense_bytes * dense_read / near,
        dense_token=2 * w.dense_params * dense_token / near,
        experts_read=w.expert_bytes * experts_read / near * (_UNPACKED if t.experts.kind == EMULATED else 1.0),
        experts_token=2 * w.expert_params * share * t.dp * experts_token / near / reached,
        expert_half=p.expert_half * reached,
        uneven=p.ep_uneven if t.ep > 1 else 1.0,
        grouped=p.grouped if t.grouped else 1.0,
        luck=p.ep_luck * math.sqrt(2 * math.log(t.ep)) if t.ep > 1 else 0.0,
        kv_second=1 / (t.bandwidth * p.kv_share * near),
        decode_attention=1 / (t.plain_peak * p.latent_share * near),
        prefill_attention=1 / (t.plain_peak * p.attention_share * near),
        overlap=p.overlap,
        skew=p.routing_skew,
        wire_start=start,
        wire_token=token,
        exchange_start=exchange_start,
        exchange_token=exchange_token,
        stage_start=(t.pp - 1) * _start(t.stage_wire, 2, p),
        stage_token=(t.pp - 1) * t.hidden_bytes / (t.stage_wire.bandwidth * p.link_share),
        decode_launch=launch * amd * _MICRO,
        eager_launch=eager * amd * _MICRO,
        prefill_launch=t.layers * p.prefill_layer_us * amd * _MICRO,
        base=host * _MICRO,
        per_request=p.request_us * engine * _MICRO,
        stream=p.stream_us * _MICRO,
        token_factor=sum(p.accepted**i for i in range(t.draft + 1)),
    )


def _product(t: Traits, kernel: Kernel, p: Parameters, unpacked: float) -> tuple[float, float]:
    """Seconds a byte read, and seconds an operation, of a product; `unpacked`: what weight-only kernels reach.

    Experts stored in few bits run in Marlin, which is no worse than the Triton kernel that others run in.
    """
    share = {PLAIN: 1.0, EIGHT: p.eight_share, FOUR: p.four_share, WEIGHT_ONLY: unpacked,
             EMULATED: p.emulated_share}[kernel.kind]  # fmt: skip
    read = p.weight_only_read if kernel.kind in (WEIGHT_ONLY, EMULATED) else 1.0
    return 1 / (t.bandwidth * p.weights_share * read), 1 / (kernel.peak * p.dense_share * share)


def _collectives(t: Traits, p: Parameters) -> tuple[float, float, float, float]:
    """(start, seconds a token) of tensor parallelism's all-reduces, and of gathering among data-parallel ranks."""
    exchanges = 2 * t.routed_layers if t.exchanged else 0
    reduces = 2 * t.layers - (t.routed_layers if t.exchanged else 0)
    rate = t.wire.bandwidth * p.link_share
    start = token = exchange_start = exchange_token = 0.0
    if t.tp > 1:
        start = reduces * _start(t.wire, t.tp, p)
        token = reduces * 2 * (t.tp - 1) / t.tp * t.hidden_bytes / rate
    if t.dcp > 1:
        # Queries are gathered before attention, partial results combined behind it (v1/attention/ops/dcp.py:471).
        start += 2 * t.layers * _start(t.wire, t.dcp, p)
    if exchanges:
        ranks = t.tp * t.dp
        exchange_start = exchanges * _start(t.wire, ranks, p)
        exchange_token = exchanges * t.hidden_bytes * t.dp * (ranks - 1) / ranks / rate
    return start, token, exchange_start, exchange_token


def _start(wire: Wire, ranks: int, p: Parameters) -> float:
    """Seconds of one small collective: a part that is always there, and a part that grows with the ranks."""
    hop = p.fast_hop_us if wire.kind in _FAST else p.slow_hop_us * (_NETWORK if wire.kind == "network" else 1.0)
    return hop * (0.4 + 0.2 * math.log2(ranks)) * _MICRO


def step(m: Machine, running: float, context: float, prompt: float = 0.0, before: float = 0.0) -> Step:
    """A step of `running` decoding requests at `context` tokens each, and `prompt` tokens of prompts.

    `before` is the context that a prompt's token sees in the mean. Speculative decoding makes tokens of guesses.
    """
    t, w = m.traits, m.traits.work
    tokens = running * (t.draft + 1) + prompt
    routed = tokens * t.dp
    weights = m.dense_read
    compute = m.dense_token * tokens
    seconds = _joined(m.dense_read, compute, m.overlap)
    if t.num_experts:
        touched = 1 - (1 - t.per_token / t.num_experts) ** (routed * m.skew)
        touched = 1.0 if t.experts.kind == EMULATED else touched
        luck = _luck(m, routed) if t.ep > 1 else 0.0
        read = (1 + luck) * m.experts_read * touched
        each = routed * t.per_token / t.num_experts
        padded = m.grouped if tokens >= _GROUPED_TOKENS else 1.0
        work_ = padded * (m.uneven + luck) * m.experts_token * tokens * (1 + m.expert_half / (each + 1))
        weights, compute = weights + read, compute + work_
        seconds += _joined(read, work_, m.overlap)
    kv = running * w.context_bytes(context) * m.kv_second if running else 0.0
    attend = running * (t.draft + 1) * w.attention_operations(context) * m.decode_attention if running else 0.0
    seconds += _joined(kv, attend, m.overlap)
    if prompt:
        extra = prompt * w.prefill_operations(before) * m.prefill_attention
        attend, seconds = attend + extra, seconds + extra
    send = m.wire_start + m.wire_token * tokens + m.exchange_start + m.exchange_token * tokens
    send += m.stage_start + m.stage_token * tokens
    launch = m.decode_launch + (m.prefill_launch if prompt else 0.0)
    overhead = launch + t.pp * (m.base + m.per_request * running)  # the host schedules each stage's batch
    drafts = 1 + t.draft * 1.5 / t.layers if prompt == 0 else 1.0
    bubbles = 1 + _BUBBLES * (t.pp - 1) / t.pp
    device = _joined((seconds + send + launch) * drafts * bubbles, m.eager_launch, m.overlap)
    whole = device + overhead - launch
    streamed = t.pp * running * m.token_factor * m.stream
    return Step(weights, kv, compute + attend, send, overhead, _joined(whole, streamed, m.overlap))


def _luck(m: Machine, tokens: float) -> float:
    """What chance adds to the fullest expert-parallel rank where tokens are few, over the mean.

    The largest of R Poisson counts of mean n exceeds it by about sqrt(2 n ln R).
    """
    t = m.traits
    return min(t.ep - 1.0, m.luck / math.sqrt(max(1.0, tokens * t.per_token / t.ep)))


def _joined(a: float, b: float, power: float) -> float:
    """(a^p + b^p)^(1/p), without overflow."""
    big, small = (a, b) if a > b else (b, a)
    if big <= 0:
        return 0.0
    return big * math.pow(1 + math.pow(small / big, power), 1 / power)
