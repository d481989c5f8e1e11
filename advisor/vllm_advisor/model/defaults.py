"""What a config may leave out, because its class in transformers supplies it (defaults of transformers 5.19).

Only where published files do leave it out: a top-level config without a size is more likely broken than meant, so sizes
are supplied to nested text configs and towers alone (LLaVA, Gemma 3), and to all only the keys that old files lack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Mapping


_GEMMA3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
    "max_position_embeddings": 131072, "sliding_window": 4096,
}  # fmt: skip

ALWAYS: Mapping[str, Mapping[str, object]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8},
    "ministral3": {"num_key_value_heads": 8, "head_dim": 128},
    "gemma": {"head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3_text": _GEMMA3,
    "gemma3n_text": {"num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512},
    "gemma4_text": {"head_dim": 256, "sliding_window": 512},
    "gemma4_unified_text": {"use_bidirectional_attention": "vision"},
    "cohere2": {"sliding_window": 4096},
    "qwen3": {"head_dim": 128},
    "qwen3_vl_text": {"head_dim": 128},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128},
    "glm": {"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128, "attention_bias": True},
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192},
    "qwen3_next": {"num_key_value_heads": 2, "head_dim": 256},
    "qwen3_5_text": {"num_key_value_heads": 4, "head_dim": 256},
    "qwen3_5_moe_text": {"num_key_value_heads": 2, "head_dim": 256},
}

NESTED: Mapping[str, Mapping[str, object]] = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 131072,
    },
    "gemma3_text": {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
}  # fmt: skip

TOWERS: Mapping[str, Mapping[str, object]] = {
    "siglip_vision_model": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "patch_size": 16},
    "clip_vision_model": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "patch_size": 32},
    "pixtral": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 16},
    "internvl_vision": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14, "image_size": 448,
    },
    "gemma4_vision": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12,
    },
}  # fmt: skip
