"""The configuration that vLLM's gates may look into: a plain model, one GPU, every choice left to vLLM."""

from __future__ import annotations

from typing import Any

from vllm_advisor.vllm.extract_kernels_values import Instance, Native, Symbol


def configuration() -> Instance:
    """What `get_current_vllm_config()` returns."""
    text = _plain(
        "HfConfig", model_type="llama", index_topk=2048, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        kv_lora_rank=512, num_attention_heads=128,
    )  # fmt: skip
    model = _plain(
        "ModelConfig", hf_text_config=text, hf_config=text, quantization_config=None, dtype=Symbol("torch.bfloat16"),
        is_diffusion=False, is_mm_prefix_lm=False, rswa_window=None, attn_type="decoder", is_encoder_decoder=False,
        use_mla=False, get_num_attention_heads=Native(lambda *_: 128), get_num_kv_heads=Native(lambda *_: 8),
        get_head_size=Native(lambda *_: 128),
    )  # fmt: skip
    return _plain(
        "VllmConfig",
        model_config=model,
        parallel_config=_plain(
            "ParallelConfig", decode_context_parallel_size=1, prefill_context_parallel_size=1, tensor_parallel_size=1
        ),
        attention_config=_plain(
            "AttentionConfig",
            use_trtllm_attention=None,
            flash_attn_version=None,
            backend=None,
            disable_flashinfer_q_quantization=False,
        ),
        kernel_config=_plain("KernelConfig", linear_backend="auto", moe_backend="auto", linear_backend_per_quant={}),
        cache_config=_plain("CacheConfig", cache_dtype="auto", block_size=16),
    )


def _plain(name: str, **attributes: Any) -> Instance:
    return Instance(Symbol(f"vllm.{name}"), attributes)


def configure(config: Instance, *, cache_dtype: str = "auto", rope: bool = True, model_type: str = "llama") -> None:
    """Sets `--kv-cache-dtype`, the model's type, and whether MLA heads have a rotary part (64, else none)."""
    config.attributes["cache_config"].attributes["cache_dtype"] = cache_dtype
    text = config.attributes["model_config"].attributes["hf_text_config"].attributes
    text |= (
        {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128} if rope else {"qk_rope_head_dim": 0, "qk_nope_head_dim": 256}
    )
    text["model_type"] = model_type
