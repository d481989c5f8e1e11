"""KV cache layout: bytes a token, groups, blocks and concurrency, by hand from vLLM's own rules."""

from __future__ import annotations

import pytest

from vllm_advisor.memory import kv, pages
from vllm_advisor.memory.identity import Identity
from vllm_advisor.model import CacheGroup, ModelSpec


BF16 = kv.CacheFormat("bfloat16", 16, newer=False)
MIB = 1 << 20


def model(*caches: CacheGroup, layers: int, heads: int = 32, kv_heads: int = 8) -> ModelSpec:
    """A model that has nothing but caches."""
    return ModelSpec("m", "A", "a", "bfloat16", 4096, layers, 32000, 131072, heads, kv_heads, caches, ())


def layout(spec: ModelSpec, tp: int = 1, pp: int = 1, form: kv.CacheFormat = BF16) -> kv.KvLayout:
    return kv.layout(Identity(spec), tp, pp, form)


def pool(plan: kv.KvLayout, blocks: int = 0, in_flight: int = 8192, dcp: int = 1, state_blocks: int = 1) -> kv.Pool:
    return kv.Pool(plan, blocks, spare=0, in_flight=in_flight, dcp=dcp, state_blocks=state_blocks)


def full(layers: range, kv_heads: int = 8, dim: int = 128) -> CacheGroup:
    return CacheGroup("full", tuple(layers), 32, kv_heads, dim, dim)


def sliding(layers: list[int], window: int, kv_heads: int = 8, dim: int = 64) -> CacheGroup:
    return CacheGroup("sliding", tuple(layers), 64, kv_heads, dim, dim, window=window)


def gpt_oss(layers: int = 36) -> ModelSpec:
    """gpt-oss: every other layer has a window of 128, 8 KV heads of 64."""
    windowed, whole = list(range(0, layers, 2)), range(1, layers, 2)
    return model(sliding(windowed, 128), CacheGroup("full", tuple(whole), 64, 8, 64, 64), layers=layers, heads=64)


def gemma_3_27b() -> ModelSpec:
    """62 layers, each sixth of them global; 16 KV heads of 128, window 1024."""
    whole = [i for i in range(62) if i % 6 == 5]
    windowed = [i for i in range(62) if i % 6 != 5]
    return model(
        sliding(windowed, 1024, 16, 128), CacheGroup("full", tuple(whole), 32, 16, 128, 128), layers=62, kv_heads=16
    )


def test_llama_8b_keeps_128_kib_a_token():
    """32 layers × 8 heads × (128 + 128) × 2 bytes."""
    assert 128 * 1024 == pool(layout(model(full(range(32)), layers=32))).growth()


@pytest.mark.parametrize("tp", [1, 2, 8, 16])
def test_deepseek_v3_keeps_its_latent_whole_on_each_rank(tp):
    """61 layers × (512 + 64) × 2 bytes at any tensor parallelism."""
    spec = model(CacheGroup("mla", tuple(range(61)), 128, 1, 576, 0), layers=61, heads=128, kv_heads=1)
    assert 70_272 == pool(layout(spec, tp)).growth()


def test_kv_heads_are_split_by_tp_and_repeated_beyond():
    """Qwen3-235B has 4 KV heads: at TP8 each rank keeps one, 48,128 bytes a token and not 24,064."""
    spec = model(full(range(94), kv_heads=4), layers=94, heads=64, kv_heads=4)
    assert 48_128 == pool(layout(spec, 8)).growth()


def test_gpt_oss_grows_only_on_its_whole_layers():
    """18 of 36 layers: 18 × 8 × 128 × 2 bytes a token beyond the window."""
    assert 36_864 == pool(layout(gpt_oss())).growth()


def test_gemma_3_does_not_count_full_context_on_sliding_layers():
    """10 of 62 layers grow: 81,920 bytes a token, where all layers would take 507,904."""
    assert 81_920 == pool(layout(gemma_3_27b())).growth()


def test_gpt_oss_concurrency_is_what_vllm_0_22_printed():
    """TP2, 88.77 GiB of KV cache, 2,068 tokens, 8,192 batched: 1238.38x, 2,560,976 tokens (a start-up on H200)."""
    plan = layout(gpt_oss(), tp=2)
    blocks = int(88.77 * (1 << 30)) // plan.stage_block_bytes[0]
    need = pool(plan).need(2068)
    assert 261 == need
    assert 1238.38 == pytest.approx(blocks / need, rel=1e-4)
    assert 2_560_976 == pytest.approx(int(blocks / need * 2068), rel=1e-4)


def test_layers_are_grouped_as_wide_as_the_rarest_kind():
    """Gemma-3-27B: 10 global layers make one group, 52 sliding ones six (v1/core/kv_cache_utils.py)."""
    groups = {d.kind: d.groups for d in layout(gemma_3_27b()).demands}
    assert {"sliding": 6, "full": 1} == groups


def test_nearly_equal_kinds_are_padded_to_the_wider_one():
    """12 sliding and 13 full layers make two groups of 13, not three of 12."""
    spec = model(sliding(list(range(12)), 128), CacheGroup("full", tuple(range(12, 25)), 64, 8, 64, 64), layers=25)
    assert [1, 1] == [d.groups for d in layout(spec).demands]
    assert 13 * 16 * 8 * 128 * 2 == layout(spec).stage_block_bytes[0]


def test_smaller_pages_get_more_tokens_where_that_divides():
    """A sliding page half as large as the full one holds twice the tokens."""
    spec = model(sliding([0, 1], 1024, 4, 64), CacheGroup("full", (2, 3), 32, 8, 64, 64), layers=4)
    assert {"sliding": 32, "full": 16} == {d.kind: d.block_size for d in layout(spec).demands}


def test_a_sliding_layer_keeps_its_window_and_what_is_in_flight():
    """min(1024 - 1 + 2048, length) tokens in blocks of 16, and one block for where the window starts."""
    spec = model(sliding(list(range(4)), 1024), layers=4)
    assert 3071 // 16 + 1 + 1 == pool(layout(spec), in_flight=2048).need(100_000)
    assert 512 // 16 + 1 == pool(layout(spec), in_flight=2048).need(512)


def test_a_chunked_layer_keeps_its_chunk_and_what_is_in_flight():
    """Llama 4's local layers: min(8192 + 2048, length) tokens."""
    spec = model(CacheGroup("chunked", (0, 1), 40, 8, 128, 128, window=8192), layers=2)
    assert (8192 + 2048) // 16 == pool(layout(spec), in_flight=2048).need(1_000_000)


def hybrid() -> ModelSpec:
    """12 full layers of 2 KV heads × 256, 36 layers with a state of 1 MiB + 48 KiB (all of it divided by TP)."""
    state = CacheGroup("state", tuple(i for i in range(48) if i % 4 != 3), state_shapes=(
        (24_576, 2, True), (262_144, 4, True)))  # fmt: skip
    whole = CacheGroup("full", tuple(range(3, 48, 4)), 16, 2, 256, 256)
    return model(state, whole, layers=48, heads=16, kv_heads=2)


def test_a_hybrid_raises_the_attention_block_until_it_holds_a_state():
    """1,097,728 bytes of state over 2,048 bytes a token are 536 tokens, in steps of 16: 544."""
    plan = layout(hybrid())
    assert 544 == plan.block_size
    assert 12 * 544 * 2048 == plan.stage_block_bytes[0]


def test_a_hybrid_request_takes_a_block_from_each_state_group():
    """36 state layers make three groups of 12; 1,000 tokens take two blocks of 544; prefix caching doubles states."""
    plan = layout(hybrid())
    assert 3 + 2 == pool(plan).need(1000)
    assert 6 + 2 == pool(plan, state_blocks=2).need(1000)


def test_a_state_is_divided_by_tp_only_where_it_says_so():
    """A convolution that is kept whole stays whole."""
    group = CacheGroup("state", (0,), state_shapes=((1000, 4, True), (100, 2, False)))
    assert 1000 + 200 == pages.state_bytes(group, 4)


def test_dcp_shards_the_sequence():
    """Decode context parallelism of 4 needs a quarter of the blocks of a long request."""
    spec = model(CacheGroup("mla", tuple(range(61)), 128, 1, 576, 0), layers=61)
    assert 2500 // 16 + 1 == pool(layout(spec), dcp=4).need(10_000)
    assert 70_272 / 4 == pool(layout(spec), dcp=4).growth()


def test_pipeline_stages_hold_their_own_layers():
    """61 layers in 4 stages: the layer left over goes to the stage before the last (distributed/utils.py)."""
    spec = model(CacheGroup("mla", tuple(range(61)), 128, 1, 576, 0), layers=61)
    assert tuple(n * 16 * 1152 for n in (15, 15, 16, 15)) == layout(spec, pp=4).stage_block_bytes


@pytest.mark.parametrize(
    ("dtype", "per_token"),
    [
        ("bfloat16", 2 * 256),
        ("fp8", 256),
        ("fp8_e5m2", 256),
        ("fp8_per_token_head", 256 + 8),
        ("int8_per_token_head", 256 + 8),
        ("int4_per_token_head", 128 + 8),
        ("nvfp4", 2 * (64 + 8)),
        ("turboquant_k8v4", 128 + 64 + 4),
        ("turboquant_3bit_nc", 48 + 2 + 48 + 4),
    ],
)
def test_bytes_a_token_and_head_by_kv_dtype(dtype, per_token):
    """One KV head of 128: values, and the scales that the format keeps beside them."""
    group = CacheGroup("full", (0,), 1, 1, 128, 128)
    assert per_token == pages.token_bytes(group, dtype, 1)


def test_sparse_mla_in_fp8_has_its_own_layout():
    """DeepSeek-V3.2: 656 bytes a token and 132 of the indexer, 576 without an indexer."""
    latent = CacheGroup("mla", (0,), 128, 1, 576, 0)
    assert 656 == pages.token_bytes(latent, "fp8", 8, sparse=True)
    assert 576 == pages.token_bytes(latent, "fp8", 8)
    assert 1152 == pages.token_bytes(latent, "bfloat16", 8, sparse=True)
    assert 132 == pages.token_bytes(CacheGroup("indexer", (0,), 0, 1, 128, 0, fixed_bytes_per_token=132), "fp8", 8)


def test_an_indexer_shares_the_block_table_of_its_attention():
    """One group: a block of 64 tokens holds both pages of each layer."""
    caches = (
        CacheGroup("mla", tuple(range(61)), 128, 1, 576, 0),
        CacheGroup("indexer", tuple(range(61)), 0, 1, 128, 0, fixed_bytes_per_token=132),
    )
    plan = layout(model(*caches, layers=61), form=kv.CacheFormat("fp8", 64, newer=True))
    assert 61 * 64 * (656 + 132) == plan.stage_block_bytes[0]
    assert [1] == [d.groups for d in plan.demands]


def test_auto_takes_the_checkpoints_scheme_before_the_models_dtype():
    """`auto` is not 16-bit where the checkpoint carries KV scales."""
    spec = model(full(range(2)), layers=2)
    assert "bfloat16" == pages.kv_cache_dtype(spec, "auto")
    assert "fp8" == pages.kv_cache_dtype(spec, "fp8")


@pytest.mark.parametrize("blocks", [2, 17, 100, 5000])
def test_the_longest_request_fits_and_one_token_more_does_not(blocks):
    """`longest` is the edge: what `need` says of it and of the next length."""
    spaced = pool(layout(gemma_3_27b()), blocks, in_flight=2048)
    longest = spaced.longest(10**7)
    assert 0 == longest or spaced.need(longest) <= blocks
    assert spaced.need(longest + 1) > blocks


def test_a_model_without_caches_needs_no_blocks():
    """Nothing kept, nothing needed."""
    plan = layout(model(layers=4))
    assert 0 == pool(plan).need(4096)
    assert 0.0 == pool(plan).growth()


def deepseek_v4() -> ModelSpec:
    """DeepSeek-V4-Flash: 43 windows, 21 layers of ratio 4 with indexer, 20 of ratio 128, and compressor states."""
    layers = tuple(range(43))
    fours, many = layers[1:42:2], layers[2:42:2]
    return model(
        CacheGroup("sliding", layers, 64, 1, 512, 0, 128),
        CacheGroup("compressed", fours, 64, 1, 512, tokens_per_entry=4),
        CacheGroup("sliding", fours, 0, 1, 2048, 0, 8, fixed_bytes_per_token=8192),
        CacheGroup("indexer", fours, 64, 1, 128, tokens_per_entry=4, fixed_bytes_per_token=132),
        CacheGroup("sliding", fours, 0, 1, 512, 0, 8, fixed_bytes_per_token=2048),
        CacheGroup("compressed", many, 64, 1, 512, tokens_per_entry=128),
        CacheGroup("sliding", many, 0, 1, 1024, 0, 128, fixed_bytes_per_token=4096),
        layers=43,
    )


def test_deepseek_v4_concurrency_is_what_vllm_printed():
    """32.08 GiB at 4,096 tokens: 90,841 tokens (0.23 on H200), where 0.23 and 0.24 weigh groups by bytes."""
    plan = layout(deepseek_v4(), 2, form=kv.CacheFormat("fp8", 256, newer=False))
    assert (1_039_680,) == plan.stage_block_bytes
    blocks, need = int(32.08 * (1 << 30)) // 1_039_680, pool(plan).need(4096)
    assert 1494 == need
    assert 90_841 == pytest.approx(blocks / need * 4096, rel=2e-4)


def test_deepseek_v4_in_newer_versions_counts_each_group_as_one():
    """0.33: 16 blocks of entries, 2 × 65 of windows, 1,025 and 513 of compressor states."""
    plan = layout(deepseek_v4(), 2, form=kv.CacheFormat("fp8", 256, newer=True))
    assert (1_002_240,) == plan.stage_block_bytes
    assert 16 + 2 * 65 + 1025 + 513 == pool(plan).need(4096)
