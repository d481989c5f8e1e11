"""The numbers of the speed model that no datasheet gives; `priors` says what each means, `fitted` what it came to.

All are global: none belongs to a model, and a family of devices has one (how near its kernels come to its peaks).
"""

from __future__ import annotations

from typing import NamedTuple


class Parameters(NamedTuple):
    """Shares of a peak are fractions, times are in the unit of the name."""

    weights_share: float
    kv_share: float
    dense_share: float
    eight_share: float
    four_share: float
    weight_only_share: float
    weight_only_read: float
    emulated_share: float
    expert_share: float
    narrow_width: float
    expert_half: float
    attention_share: float
    latent_share: float
    overlap: float
    layer_us: float
    routed_layer_us: float
    recurrent_layer_us: float
    quantize_us: float
    quantize_four_us: float
    eager_layer_us: float
    prefill_layer_us: float
    step_us: float
    request_us: float
    v0_factor: float
    async_left: float
    stream_us: float
    tokenize_us: float
    frontend_ms: float
    first_token_ms: float
    fast_hop_us: float
    slow_hop_us: float
    link_share: float
    grouped: float
    ep_uneven: float
    ep_luck: float
    dp_wait: float
    routing_skew: float
    bunching: float
    spread_tail: float
    spread_skew: float
    accepted: float
    ampere: float
    blackwell: float
    geforce: float
    cdna3: float
    cdna4: float
    radeon: float
    amd_overhead: float

    def family(self, name: str) -> float:
        """How near a family's kernels come to their peaks, Hopper being 1."""
        return 1.0 if name == "hopper" else getattr(self, name, _CPU_FAMILY)


_CPU_FAMILY = 0.7  # of a CPU's figures (an estimate; no public measurement was read)
