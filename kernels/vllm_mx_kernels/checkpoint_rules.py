"""Which weights are quantized, by name: shared by the checkpoint writer and the vLLM plugin. No torch here.

Always left as they are: embeddings and the output head, router gates, the encoders of other modalities, and the narrow
projections that steer a state space; they are a small share of the bytes, and errors in them spread to all the rest.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "advisor_mxfp4"
FORMAT = "mxfp4-packed"  # `weight` uint8 [N, K / 2], low nibble first; `weight_scale` uint8 [N, K / 32]

# Matched against each dotted component of a module's name.
_KEPT = re.compile(
    r".*embed.*|.*embd.*|lm_head|wte|wpe|output_projection|score"  # tables of the vocabulary, heads
    r"|gate|router|wg|.*expert_gate|gate_wg"  # routers
    r"|visual|vision_.*|vision|audio_.*|.*projector|.*connector"  # other modalities
    r"|in_proj_a|in_proj_b|in_proj_ba|dt_proj|x_proj"  # decay and step of linear attention and Mamba
)
# vLLM stacks these into one layer, quantized as a whole or not at all (`packed_modules_mapping` of its models).
_STACKED = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("in_proj_qkv", "in_proj_z"),
)
_GROUP = {part: stacked[0] for stacked in _STACKED for part in stacked}


def is_kept(module: str) -> bool:
    """Whether a module of this name is never quantized."""
    return any(_KEPT.fullmatch(part) for part in module.split("."))


def matches(module: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns names the module or something that it belongs to.

    `re:…` is a regular expression for the whole name; `*`, `?` and `[…]` work as in a shell, against the name or any
    end of it; anything else is a run of whole components: `layers.1` is in `model.layers.1.mlp`, not in `layers.11`.
    """
    return any(_matches(module, pattern) for pattern in patterns)


def _matches(module: str, pattern: str) -> bool:
    if pattern.startswith("re:"):
        return re.fullmatch(pattern[3:], module) is not None
    if any(sign in pattern for sign in "*?["):
        return fnmatchcase(module, pattern) or fnmatchcase(module, f"*.{pattern}")
    return f".{pattern}." in f".{module}."


def stack_of(module: str) -> str:
    """The name that all modules share which vLLM loads into one layer: q, k, v; gate, up; all experts of a layer."""
    before, experts, _ = module.partition(".experts.")
    if experts:
        return f"{before}.experts"
    parent, _, last = module.rpartition(".")
    return f"{parent}.{_GROUP.get(last, last)}" if parent else module
