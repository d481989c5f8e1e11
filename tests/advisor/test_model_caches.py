"""What a request leaves in the cache, by kind of layer, and the state of layers that do not grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vllm_advisor.model.config import read
from vllm_advisor.model.kv import kv_bytes_per_token


if TYPE_CHECKING:
    from vllm_advisor.model import CacheGroup, ModelSpec


DATA = Path(__file__).parent.parent / "data" / "model"
ROWS = {r["name"]: r for f in sorted(DATA.glob("*.json")) for r in json.loads(f.read_text(encoding="utf-8"))}


def spec(name: str) -> ModelSpec:
    return read(ROWS[name]["config"], name=name)


def caches(name: str, kind: str) -> list[CacheGroup]:
    return [c for c in spec(name).caches if c.kind == kind]


def only(name: str, kind: str) -> CacheGroup:
    (group,) = caches(name, kind)
    return group


@pytest.mark.parametrize(
    ("name", "bytes_"),
    [
        ("deepseek-ai/DeepSeek-V3", 576 * 61 * 2),
        ("moonshotai/Kimi-K2-Instruct", 576 * 61 * 2),
        ("meta-llama/Llama-3.1-8B", 131_072),
        ("meta-llama/Llama-3.3-70B-Instruct", 327_680),
        ("Qwen/Qwen3-30B-A3B", 98_304),
        ("Qwen/Qwen3-235B-A22B", 192_512),
        ("mistralai/Mixtral-8x7B-v0.1", 131_072),
        ("MiniMaxAI/MiniMax-M2.7", 253_952),
        ("openai/gpt-oss-120b", 36_864),
        ("google/gemma-3-27b-it", 81_920),
        ("deepseek-ai/DeepSeek-V3.2", 576 * 61 * 2 + 132 * 61),
        ("MiniMaxAI/MiniMax-M3", 122_880 + 57 * 128 * 2),
    ],
)
def test_bytes_a_token_in_bf16(name: str, bytes_: int) -> None:
    """Growing groups only, unsharded, K and V by KV head, one latent for MLA, index keys beside them."""
    assert bytes_ == kv_bytes_per_token(spec(name), 2)


def test_eight_bit_cache_halves_keys_but_not_index_entries() -> None:
    """The indexer's 132 bytes are fixed; the latent of DeepSeek-V3.2 halves."""
    assert 576 * 61 + 132 * 61 == kv_bytes_per_token(spec("deepseek-ai/DeepSeek-V3.2"), 1)


def test_gemma3_has_ten_global_layers_of_62() -> None:
    """Gemma-3-27B: each sixth layer sees everything, the others 1,024 tokens."""
    full, near = only("google/gemma-3-27b-it", "full"), only("google/gemma-3-27b-it", "sliding")
    assert tuple(range(5, 62, 6)) == full.layers
    assert (52, 1024, 16, 128) == (len(near.layers), near.window, near.kv_heads, near.k_dim)


def test_gpt_oss_alternates_and_has_sinks() -> None:
    """gpt-oss: windows of 128 on even layers, sinks on all."""
    near, full = only("openai/gpt-oss-120b", "sliding"), only("openai/gpt-oss-120b", "full")
    assert tuple(range(0, 36, 2)) == near.layers
    assert (128, True, True, 64) == (near.window, near.sinks, full.sinks, near.q_heads)


def test_latent_attention_is_one_vector() -> None:
    """DeepSeek-V3: one KV head of 512 + 64 elements, no values, 128 query heads."""
    latent = only("deepseek-ai/DeepSeek-V3", "mla")
    assert (1, 576, 0, 128, 61) == (latent.kv_heads, latent.k_dim, latent.v_dim, latent.q_heads, len(latent.layers))


def test_shared_indexers_own_no_cache() -> None:
    """GLM-5.2 lets most layers reuse the choice of an earlier one: only `full` layers keep index keys."""
    kinds = ROWS["zai-org/GLM-5.2-FP8"]["config"]["indexer_types"]
    full = tuple(i for i, kind in enumerate(kinds) if kind == "full")
    assert 0 < len(full) < 78
    assert full == only("zai-org/GLM-5.2-FP8", "indexer").layers


def test_deepseek_v4_keeps_a_window_and_compressed_entries() -> None:
    """DeepSeek-V4-Flash: 43 windows of 128, 21 layers of one entry in 4 tokens with an index, 20 of one in 128."""
    name = "deepseek-ai/DeepSeek-V4-Flash-0731"
    by_ratio = {c.tokens_per_entry: len(c.layers) for c in caches(name, "compressed")}
    assert {4: 21, 128: 20} == by_ratio
    windows = [c for c in caches(name, "sliding") if c.window == 128 and c.k_dim == 512 and not c.fixed_bytes_per_token]
    assert [43] == [len(c.layers) for c in windows]
    assert 21 * (1024 // 4 + 132 // 4) + 20 * 1024 // 128 == kv_bytes_per_token(spec(name), 2)
    assert spec(name).uses_mla


def test_deepseek_v41_shares_its_compressed_cache() -> None:
    """DeepSeek-V4.1: 4 of 40 layers own entries and index keys for all, one of them uncompressed."""
    name = "deepseek-ai/DeepSeek-V4.1-Flash"
    owners = {c.tokens_per_entry: c.layers for c in caches(name, "compressed")}
    assert owners == {c.tokens_per_entry: c.layers for c in caches(name, "indexer")}
    assert (2, 8, 14, 20) == tuple(sorted(i for layers in owners.values() for i in layers))
    entries = sum(len(layers) / ratio for ratio, layers in owners.items())
    assert entries * (1024 + 132) == kv_bytes_per_token(spec(name), 2)
    assert {40} == {len(c.layers) for c in caches(name, "sliding") if c.window == 128}


def test_chunks_of_llama4() -> None:
    """Llama-4: rotary layers attend in chunks of 8,192, each fourth layer to everything."""
    chunked, full = (only("meta-llama/Llama-4-Maverick-17B-128E-Instruct", k) for k in ("chunked", "full"))
    assert tuple(range(3, 48, 4)) == full.layers
    assert (36, 8192) == (len(chunked.layers), chunked.window)


def test_gemma4_has_two_head_shapes() -> None:
    """Gemma-4-31B: full layers 512 wide with 4 KV heads, sliding layers 256 wide with 16."""
    full, near = only("google/gemma-4-31B-it", "full"), only("google/gemma-4-31B-it", "sliding")
    assert ((512, 4, 10), (256, 16, 50)) == (
        (full.k_dim, full.kv_heads, len(full.layers)),
        (near.k_dim, near.kv_heads, len(near.layers)),
    )


def test_layers_that_borrow_a_cache_own_none() -> None:
    """Gemma-4-E2B: the last 20 of 35 layers read the keys of earlier ones."""
    owners = sorted(i for c in spec("google/gemma-4-E2B-it").caches for i in c.layers)
    assert list(range(15)) == owners


def test_values_narrower_than_keys() -> None:
    """MiMo-V2: 192 key and 128 value elements; windows have twice the KV heads, and sinks."""
    full, near = only("XiaomiMiMo/MiMo-V2-Flash", "full"), only("XiaomiMiMo/MiMo-V2-Flash", "sliding")
    assert ((192, 128, 4, False), (192, 128, 8, True)) == tuple(
        (c.k_dim, c.v_dim, c.kv_heads, c.sinks) for c in (full, near)
    )


def test_a_uniform_window_is_on_every_layer() -> None:
    """Mistral-7B-v0.1 has one window of 4,096 for all layers, and Qwen2.5's unused one is no window."""
    assert (32, 4096) == (
        len(only("mistralai/Mistral-7B-v0.1", "sliding").layers),
        only("mistralai/Mistral-7B-v0.1", "sliding").window,
    )
    assert [] == caches("Qwen/Qwen2.5-7B-Instruct", "sliding")


def test_layers_without_attention_keep_nothing() -> None:
    """Nemotron-Super-49B drops attention in 31 of 80 layers."""
    full = only("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "full")
    assert (49, 8) == (len(full.layers), full.kv_heads)


def test_minimax_m3_adds_index_keys_on_sparse_layers() -> None:
    """57 of 60 layers of MiniMax-M3 keep 128 more elements a token."""
    index = only("MiniMaxAI/MiniMax-M3", "indexer")
    assert (tuple(range(3, 60)), 128, 1) == (index.layers, index.k_dim, index.kv_heads)


# (elements, bytes of one) of convolution and recurrent state, by MambaStateShapeCalculator's formulas, worked by hand.
STATES = [
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 36, ((3 * 8192, 2), (32 * 128 * 128, 2))),
    ("Qwen/Qwen3.5-9B", 24, ((3 * 8192, 2), (32 * 128 * 128, 4))),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 23, ((3 * (4096 + 2 * 8 * 128), 2), (64 * 64 * 128, 4))),
    ("tiiuae/Falcon-H1-34B-Instruct", 72, ((3 * (4096 + 2 * 2 * 256), 2), (32 * 128 * 256, 2))),
    ("ibm-granite/granite-4.0-h-small", 36, ((3 * (8192 + 2 * 128), 2), (128 * 64 * 128, 2))),
    ("ai21labs/AI21-Jamba-1.5-Mini", 28, ((3 * 8192, 2), (8192 * 16, 2))),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 20, ((3 * 3 * 4096, 2), (32 * 128 * 128, 4))),
    ("zai-org/GLM-5.3-Flash-BF16", 34, ((3 * 3 * 8192, 2), (64 * 128 * 128, 4))),
    ("MiniMaxAI/MiniMax-M1-80k", 70, ((64 * 128 * 128, 2),)),
]


@pytest.mark.parametrize(("name", "layers", "shapes"), STATES, ids=[s[0].split("/")[1] for s in STATES])
def test_state_shapes(name: str, layers: int, shapes: tuple[tuple[int, int], ...]) -> None:
    """States have the shapes and dtypes that vLLM allocates, on the layers that keep them, split by TP."""
    state = only(name, "state")
    assert (layers, tuple((n, b, True) for n, b in shapes)) == (len(state.layers), state.state_shapes)
    assert spec(name).is_hybrid


def test_attention_and_state_in_one_layer() -> None:
    """Falcon-H1 keeps both in each of its 72 layers."""
    assert only("tiiuae/Falcon-H1-34B-Instruct", "full").layers == only("tiiuae/Falcon-H1-34B-Instruct", "state").layers
