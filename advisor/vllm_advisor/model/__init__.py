"""What a model is made of: `ModelSpec`, and how it is read from a Hugging Face config (`vllm_advisor.model.config`)."""

from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, Quantization, WeightGroup


__all__ = ["CacheGroup", "ModelSpec", "Moe", "Quantization", "WeightGroup"]
