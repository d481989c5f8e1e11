"""Which weights are quantized, by name."""

import pytest

from vllm_mx_kernels.checkpoint_rules import is_kept, matches, stack_of


KEPT = (
    "lm_head", "model.embed_tokens", "transformer.wte", "model.layers.3.mlp.gate", "model.layers.3.mlp.router",
    "model.layers.3.mlp.shared_expert_gate", "model.visual.blocks.0.attn.qkv", "vision_tower.encoder.layers.0.fc1",
    "multi_modal_projector.linear_1", "model.layers.0.linear_attn.in_proj_ba", "score",
)  # fmt: skip
TAKEN = (
    "model.layers.3.self_attn.q_proj", "model.layers.3.mlp.gate_proj", "model.layers.3.mlp.experts.7.down_proj",
    "model.layers.3.mlp.shared_experts.up_proj", "model.layers.0.linear_attn.in_proj_qkvz",
)  # fmt: skip


@pytest.mark.parametrize("module", KEPT)
def test_tables_heads_routers_and_other_modalities_stay(module):
    """They are never quantized, whatever the user asks."""
    assert is_kept(module)


@pytest.mark.parametrize("module", TAKEN)
def test_projections_are_quantized(module):
    """`gate_proj` is no router's `gate`."""
    assert not is_kept(module)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("layers.1", True),
        ("model.layers.1.mlp.up_proj", True),
        ("mlp", True),
        ("layers.11", False),
        ("ayers.1", False),
        ("up_*", True),
        ("mlp.*_proj", True),
        ("model.layers.[02].*", False),
        (r"re:.*\.1\..*", True),
        (r"re:layers\.1", False),
    ],
)
def test_pattern(pattern, expected):
    """Whole components, shell patterns for any end of the name, expressions for all of it."""
    assert expected == matches("model.layers.1.mlp.up_proj", [pattern])


def test_stacked_parts_share_a_name():
    """q, k and v are one layer of vLLM; so are gate and up, and all experts of a layer."""
    assert stack_of("m.1.self_attn.k_proj") == stack_of("m.1.self_attn.q_proj")
    assert stack_of("m.1.mlp.gate_proj") == stack_of("m.1.mlp.up_proj")
    assert stack_of("m.1.mlp.experts.0.w2") == stack_of("m.1.mlp.experts.5.w1")
    assert 4 == len({stack_of(f"m.1.{name}") for name in ("a.q_proj", "a.o_proj", "b.q_proj", "mlp.shared.up_proj")})
