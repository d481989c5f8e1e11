"""What is told of towers beyond their weight: widths that quantization meets, and how images attend."""

from __future__ import annotations

import pytest

from vllm_advisor.catalog import models
from vllm_advisor.model.config import read


TEXT = {
    "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 1000,
    "max_position_embeddings": 4096, "sliding_window": 1024,
}  # fmt: skip


def siglip(intermediate_size):
    """Gemma 3 with a SigLIP tower of that feed-forward width."""
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": intermediate_size,
        "num_attention_heads": 16, "num_hidden_layers": 2, "patch_size": 14, "image_size": 896,
    }  # fmt: skip
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"}
    return read(outer | {"text_config": TEXT, "vision_config": vision})


def test_siglip_keeps_a_feed_forward_of_odd_width_in_16_bits():
    """4304 is no multiple of 64: only the attention is converted; 4352 is one."""
    assert (1152,) == siglip(4304).tower_widths
    assert (1152, 4352) == siglip(4352).tower_widths


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("Qwen/Qwen3.5-9B", (1152, 4096, 4304)),
        ("Qwen/Qwen2.5-VL-7B-Instruct", (1280, 3420, 3584)),
        ("google/gemma-4-31B-it", ()),
        ("Qwen/Qwen2-Audio-7B-Instruct", ()),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", ()),
        ("Qwen/Qwen3-8B", ()),
    ],
)
def test_widths_of_towers_that_a_flag_converts(name, widths):
    """Towers of vLLM's own layers have widths; those that get no quantization, and models without one, have none."""
    assert widths == models.find(name).tower_widths


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("google/gemma-3-4b-it", True),
        ("google/gemma-3-1b-it", False),
        ("google/gemma-4-31B-it", True),
        ("google/gemma-4-E2B-it", False),
        ("Qwen/Qwen3.5-9B", False),
    ],
)
def test_images_that_attend_in_both_directions(name, expected):
    """Gemma 3 with its tower always, Gemma 4 where the config says `vision`."""
    assert expected == models.find(name).bidirectional_images
