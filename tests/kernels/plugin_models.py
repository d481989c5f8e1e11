"""Make the model folders that the plugin is held against: python plugin_models.py SMOLLM2 TINY_MOE OUT

smollm2-fake, moe-fake      their matrices quantized to MXFP4 by the twins, and back to bf16
smollm2-packed, moe-packed  what `advisor-quantize` makes of them
gpt-oss, gpt-oss-plain      a tiny random gpt-oss with the MoE's tokenizer: experts in MXFP4, and the same in bf16
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from vllm_mx_kernels.checkpoint_plan import plan
from vllm_mx_kernels.layouts import to_gpt_oss
from vllm_mx_kernels.mxfp4 import dequantize_mxfp4_torch, quantize_mxfp4_torch
from vllm_mx_kernels.quantize_cli import main as quantize


HIDDEN, INNER, HEADS, KV_HEADS, HEAD, EXPERTS, LAYERS, VOCABULARY = 128, 128, 4, 2, 32, 4, 2, 320
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "swiglu_limit": 7.0,
    "hidden_act": "silu",
    "attention_bias": True,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def main():
    smollm2, tiny_moe, out = map(Path, sys.argv[1:])
    for name, source in (("smollm2", smollm2), ("moe", tiny_moe)):
        store(source, out / f"{name}-fake", fake_quantized(source))
        if quantize([str(source), str(out / f"{name}-packed")]):
            raise SystemExit(1)
    store(tiny_moe, out / "gpt-oss-plain", gpt_oss(packed=False), GPT_OSS)
    packed = GPT_OSS | {"quantization_config": {"quant_method": "mxfp4"}}
    store(tiny_moe, out / "gpt-oss", gpt_oss(packed=True), packed)


def store(like, out, tensors, config=None):
    shutil.copytree(like, out)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    if config:
        (out / "config.json").write_text(json.dumps(config))


def fake_quantized(model):
    tensors = load_file(model / "model.safetensors")
    for piece in (piece for shard in plan(model, ()).shards for piece in shard.pieces):
        tensors[piece.entry.name] = there_and_back(tensors[piece.entry.name])
    return tensors


def there_and_back(weight):
    return dequantize_mxfp4_torch(quantize_mxfp4_torch(weight), torch.bfloat16)


def gpt_oss(*, packed):
    torch.manual_seed(0)
    tensors = {"model.embed_tokens.weight": drawn(VOCABULARY, HIDDEN), "model.norm.weight": ones(HIDDEN)}
    tensors["lm_head.weight"] = drawn(VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        parts = attention() | experts(packed=packed)
        tensors |= {f"model.layers.{layer}.{name}": tensor.contiguous() for name, tensor in parts.items()}
    return tensors


def attention():
    parts = {"input_layernorm.weight": ones(HIDDEN), "post_attention_layernorm.weight": ones(HIDDEN)}
    for name, rows, columns in (
        ("q_proj", HEADS * HEAD, HIDDEN), ("k_proj", KV_HEADS * HEAD, HIDDEN), ("v_proj", KV_HEADS * HEAD, HIDDEN),
        ("o_proj", HIDDEN, HEADS * HEAD),
    ):  # fmt: skip
        parts[f"self_attn.{name}.weight"], parts[f"self_attn.{name}.bias"] = drawn(rows, columns), drawn(rows)
    return parts | {"self_attn.sinks": drawn(HEADS)}


def experts(*, packed):
    parts = {"mlp.router.weight": drawn(EXPERTS, HIDDEN), "mlp.router.bias": drawn(EXPERTS)}
    for name, rows, columns in (("gate_up_proj", 2 * INNER, HIDDEN), ("down_proj", HIDDEN, INNER)):
        weight = quantize_mxfp4_torch(drawn(EXPERTS, rows, columns) * 2)
        parts[f"mlp.experts.{name}_bias"] = drawn(EXPERTS, rows)
        if packed:
            parts[f"mlp.experts.{name}_blocks"], parts[f"mlp.experts.{name}_scales"] = to_gpt_oss(weight)
        else:  # gpt-oss keeps them transposed
            parts[f"mlp.experts.{name}"] = dequantize_mxfp4_torch(weight, torch.bfloat16).transpose(1, 2)
    return parts


def drawn(*shape):
    return (torch.randn(shape) / shape[-1] ** 0.5).bfloat16()


def ones(*shape):
    return torch.ones(shape, dtype=torch.bfloat16)


if __name__ == "__main__":
    main()
