"""Parameter counts, stored bytes and their sharding, against counts and checkpoint sizes that others published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vllm_advisor.model.config import read


if TYPE_CHECKING:
    from vllm_advisor.model import ModelSpec, WeightGroup


DATA = Path(__file__).parent.parent / "data" / "model"
GIB = 1 << 30

# Published sizes that a config cannot give, and why.
INEXACT = {
    "google/gemma-4-E2B-it": "the config has no audio tower, the checkpoint has (0.6 GiB)",
}


def rows() -> list[dict]:
    return [row for file in sorted(DATA.glob("*.json")) for row in json.loads(file.read_text(encoding="utf-8"))]


ROWS = {row["name"]: row for row in rows()}


def spec(name: str) -> ModelSpec:
    return read(ROWS[name]["config"], name=name)


def draft_bytes(of: ModelSpec) -> int:
    return sum(g.bytes for g in of.weights if g.role == "mtp")


def group(of: ModelSpec, role: str, sharding: str) -> WeightGroup:
    (found,) = [g for g in of.weights if g.role == role and g.sharding == sharding and g.bits < 32]
    return found


@pytest.mark.parametrize("name", [n for n, r in ROWS.items() if "params_b" in r])
def test_parameters_match_the_published_count(name: str) -> None:
    """Parameters, drafts excluded, are within half a percent of the count of another implementation."""
    assert ROWS[name]["params_b"] == pytest.approx(spec(name).params / 1e9, rel=0.005)


@pytest.mark.parametrize("name", [n for n, r in ROWS.items() if "file_bytes" in r and n not in INEXACT])
def test_bytes_match_the_published_checkpoint(name: str) -> None:
    """Stored bytes are within one percent of the published size, with draft layers where the file has them."""
    read_as = spec(name)
    sizes = (read_as.weight_bytes, read_as.weight_bytes + draft_bytes(read_as))
    known = ROWS[name]["file_bytes"]
    assert known == pytest.approx(min(sizes, key=lambda s: abs(s - known)), rel=0.01)


def test_at_least_forty_models_are_checked() -> None:
    """The sample covers the families: seventy counts and 28 sizes at least."""
    assert len([r for r in ROWS.values() if "params_b" in r]) >= 70
    assert len([r for r in ROWS.values() if "file_bytes" in r]) >= 28


@pytest.mark.parametrize(
    ("name", "bytes_"),
    [
        ("openai/gpt-oss-120b", 65_248_815_744),
        ("openai/gpt-oss-20b", 13_761_264_768),
        ("Qwen/Qwen3-32B", 65_524_246_528),
        ("Qwen/Qwen3-30B-A3B", 61_064_245_248),
        ("meta-llama/Llama-3.1-8B", 16_060_522_496),
    ],
)
def test_some_checkpoints_are_exact_to_the_byte(name: str, bytes_: int) -> None:
    """Where nothing is rounded on either side, the sum of tensors is the index's total_size."""
    assert bytes_ == spec(name).weight_bytes


@pytest.mark.parametrize(
    ("name", "gib"),
    [("openai/gpt-oss-120b", 60.8), ("Qwen/Qwen3-235B-A22B", 437.9), ("MiniMaxAI/MiniMax-M3", 793.8)],
)
def test_anchor_weights(name: str, gib: float) -> None:
    """The anchors of the product: gpt-oss-120b, Qwen3-235B and MiniMax-M3 in bf16."""
    assert gib == pytest.approx(spec(name).weight_bytes / GIB, rel=0.01)


def test_drafts_are_in_the_file_but_not_in_the_weights() -> None:
    """DeepSeek-V3 stores 641.29 GiB, of which vLLM loads 626.92 without speculative decoding."""
    v3 = spec("deepseek-ai/DeepSeek-V3")
    assert 688_574_839_360 == pytest.approx(v3.weight_bytes + draft_bytes(v3), rel=1e-4)
    assert v3.mtp_layers == 1
    assert round(v3.weight_bytes / GIB, 2) == 626.92


@pytest.mark.parametrize(
    ("name", "billions"),
    [("openai/gpt-oss-120b", 5.1), ("deepseek-ai/DeepSeek-V3", 36.6), ("Qwen/Qwen3-235B-A22B", 21.6)],
)
def test_active_parameters(name: str, billions: float) -> None:
    """A token uses its experts only, and not the embedding table (model cards: 5.1 B, 37 B, 22 B with it)."""
    assert billions == pytest.approx(spec(name).active_params / 1e9, rel=0.01)


def test_grouped_heads_are_replicated_by_kv_head() -> None:
    """K and V of Llama-3.1-8B are one group that knows its 8 KV heads, apart from Q (column) and O (row)."""
    llama = spec("meta-llama/Llama-3.1-8B")
    kv = group(llama, "attention", "kv")
    assert (2 * 1024 * 4096 * 32, 8, tuple(range(32))) == (kv.params, kv.kv_heads, kv.layers)
    assert group(llama, "attention", "column").params == 4096 * 4096 * 32
    assert group(llama, "attention", "row").quantizable


def test_latent_down_projections_are_replicated() -> None:
    """DeepSeek-V3 keeps q_a and kv_a (1536 + 576 rows) on every rank and splits the up-projections."""
    down = group(spec("deepseek-ai/DeepSeek-V3"), "attention", "replicated")
    assert (1536 + 576) * 7168 * 61 == down.params


def test_experts_carry_their_layers() -> None:
    """The three leading dense layers of DeepSeek-V3 hold no experts."""
    v3 = spec("deepseek-ai/DeepSeek-V3")
    assert tuple(range(3, 61)) == group(v3, "experts", "expert").layers
    moe = v3.moe
    assert moe is not None
    assert (256, 8, 1, 2048) == (
        moe.num_experts,
        moe.experts_per_token,
        moe.shared_experts,
        moe.intermediate_size,
    )


def test_tied_embeddings_have_no_head() -> None:
    """Qwen3-0.6B ties: no lm_head group, and the flag says so."""
    tied, apart = spec("Qwen/Qwen3-0.6B"), spec("Qwen/Qwen3-32B")
    assert tied.tied_embeddings
    assert not apart.tied_embeddings
    assert [g.role for g in tied.weights].count("lm_head") == 0
    assert group(apart, "lm_head", "vocab").params == 151_936 * 5120


def test_towers_are_counted_and_never_quantized() -> None:
    """Kimi-K2.5's vision tower is 16 bits in a 4-bit checkpoint, and counts as an image modality."""
    kimi = spec("moonshotai/Kimi-K2.5")
    tower = group(kimi, "vision", "column")
    assert (16, False, ("image",)) == (tower.bits, tower.quantizable, kimi.modalities)
    assert 0.4e9 < tower.params < 0.5e9


def test_audio_towers_are_counted() -> None:
    """Qwen2-Audio's encoder is its own role."""
    assert 0.6e9 < group(spec("Qwen/Qwen2-Audio-7B-Instruct"), "audio", "replicated").params < 0.7e9


def test_interleaved_experts() -> None:
    """Llama-4-Maverick has experts in each second layer only, the first being dense."""
    maverick = spec("meta-llama/Llama-4-Maverick-17B-128E-Instruct")
    assert maverick.moe is not None
    assert tuple(range(1, 48, 2)) == maverick.moe.layers


def test_latent_experts_keep_a_replicated_projection() -> None:
    """Nemotron 3 Super's experts work in 1,024 dimensions between two projections that each rank holds whole."""
    super_ = spec("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    assert 2 * 1024 * 4096 * 40 == group(super_, "experts", "replicated").params


def test_engram_tables_are_lookups() -> None:
    """DeepSeek-V4.1's two n-gram tables are 197 of its 749 billion parameters, and no token multiplies by them."""
    flash = spec("deepseek-ai/DeepSeek-V4.1-Flash")
    tables = [g for g in flash.weights if g.role == "embedding" and g.layers]
    assert [(1,), (14,)] == [g.layers for g in tables]
    assert (384_006_168 + 384_016_682) * 256 == sum(g.params for g in tables)
    assert 14e9 < flash.active_params < 18e9


def test_one_kind_of_storage_a_group() -> None:
    """Layers that a checkpoint leaves in 16 bits are a group of their own: layers of a role are never counted twice."""
    for name in ROWS:
        for role in ("mlp", "experts", "attention"):
            seen = [
                (g.sharding, g.bits, g.kv_heads, g.quantizable, g.layers) for g in spec(name).weights if g.role == role
            ]
            assert len(seen) == len(set(seen))
