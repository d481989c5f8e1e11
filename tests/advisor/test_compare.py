"""Formats side by side: what each holds, why one does not run, which layout, and what the kernels make of it."""

import pytest

from vllm_advisor.candidates import Restrictions
from vllm_advisor.catalog import gpus, models
from vllm_advisor.compare import Format, compare, formats, parse
from vllm_advisor.errors import UsageError
from vllm_advisor.facts import Facts
from vllm_advisor.units import GIB
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS, Workload


USUAL = ("bf16", "fp8", "fp8+fp8", "mxfp4")
TYPED = ",".join(USUAL)


def facts(name="Qwen/Qwen3-8B", machine="H100", vllm="0.33.0", **load):
    workload = Workload(**load) if load else PRESETS["chat"]
    return Facts(gpus.node(machine), models.find(name), workload, surface.load(vllm))


def compared(asked, wanted=TYPED, fixed=None):
    return compare(asked, (asked.model, *models.siblings(asked.model)), parse(wanted), fixed)


def by_key(found):
    return {row.format.key: row for row in found.rows}


def gib(row):
    return round(row.budget.weights / GIB, 1)


@pytest.fixture(scope="module")
def qwen():
    """Qwen3-8B on one H100, the usual four."""
    return by_key(compared(facts()))


def test_weights_shrink_and_the_total_does_not(qwen):
    """16 to 8 and 4 bits of Qwen3-8B (embedding and head stay): what is saved goes to the KV cache, to the byte."""
    assert [15.3, 8.8, 8.8, 5.8] == [gib(qwen[key]) for key in USUAL]
    totals = {
        round(row.budget.weights + row.budget.kv_cache.mid + row.budget.activation.mid + row.budget.graphs.mid)
        for row in qwen.values()
    }
    assert 1 == len(totals)


def test_an_fp8_cache_halves_a_token_and_doubles_the_requests(qwen):
    """36 layers, 8 KV heads of 128, K and V: 147,456 bytes in 16 bits; weights in FP8 change nothing of it."""
    assert [147_456, 147_456, 73_728, 147_456] == [qwen[key].budget.kv_bytes_per_token for key in USUAL]
    assert 2 * qwen["fp8"].together == pytest.approx(qwen["fp8+fp8"].together, rel=1e-4)


def test_requests_are_counted_at_the_load_s_length(qwen):
    """Chat asks for 1,024 + 512 tokens: 56.35 GiB of BF16's cache hold 267 of them, 40,960 tokens is the longest."""
    row = qwen["bf16"]
    assert row.budget.kv_cache.mid / (147_456 * 1536) == pytest.approx(row.together, rel=0.01)
    assert (267, 40_960) == (round(row.together), row.budget.max_context)


def test_a_published_checkpoint_is_loaded_as_it_is(qwen):
    """FP8 is the publisher's own here; MXFP4 is converted while loading, and its note says uncalibrated."""
    assert [("Qwen/Qwen3-8B-FP8", None), ("Qwen/Qwen3-8B", "mxfp4")] == [
        (qwen[key].plan.checkpoint, qwen[key].plan.quantization) for key in ("fp8", "mxfp4")
    ]
    assert ("nothing is rounded",) == qwen["bf16"].accuracy
    assert any("no calibration" in note for note in qwen["mxfp4"].accuracy)


def test_four_bits_save_no_arithmetic_on_h100(qwen):
    """The text says MXFP4 saves compute: H100 multiplies FP8 itself, and MXFP4 in 16 bits after unpacking it."""
    assert [("native", 8), ("weights only", 16)] == [(p.kind, p.bits) for k in ("fp8", "mxfp4") for p in qwen[k].paths]
    assert qwen["fp8+fp8"].estimate.output_tok_s.mid > qwen["mxfp4"].estimate.output_tok_s.mid


def test_fp8_is_weights_only_on_a100():
    """No FP8 unit on sm80: Marlin unpacks, so the estimate gains little; memory is what an H100 saves."""
    rows = by_key(compared(facts(machine="A100")))

    assert [("weights only", 16, "MarlinFP8")] == [(p.kind, p.bits, p.kernel) for p in rows["fp8"].paths]
    assert 8.8 == gib(rows["fp8"])
    assert rows["fp8"].estimate.output_tok_s.mid < 1.1 * rows["bf16"].estimate.output_tok_s.mid


@pytest.mark.parametrize(("vllm", "verdict"), [("0.24.0", "not supported"), ("0.33.0", "fits")])
def test_a_version_that_cannot_convert_says_so(vllm, verdict):
    """0.24.0 reads MXFP4 only from a checkpoint; the rule that refuses is the reason, and no memory is shown."""
    row = by_key(compared(facts(vllm=vllm)))["mxfp4"]

    assert verdict == row.verdict
    assert (verdict == "fits") == (row.budget is not None)
    assert ([] if verdict == "fits" else ["QNT-09"]) == [f.rule for f in row.reasons]


@pytest.mark.parametrize("vllm", ["0.24.0", "0.33.0"])
def test_e5m2_beside_an_fp8_checkpoint_is_refused(vllm):
    """The seed's "least memory" is FP8 with fp8_e5m2: vLLM refuses it for FP8 checkpoints (rule KV-04)."""
    asked = facts("Qwen/Qwen3-8B-FP8", vllm=vllm)
    row = compare(asked, (asked.model,), parse("fp8+fp8_e5m2")).rows[0]

    assert ("not supported", ["KV-04"]) == (row.verdict, [f.rule for f in row.reasons])


def test_gpt_oss_exists_in_mxfp4_alone():
    """Published in MXFP4: nothing else of it is known or can be made; MI355X multiplies its experts in 16 bits."""
    found = compared(facts("openai/gpt-oss-120b", "MI355X"))
    rows = by_key(found)

    assert ["not published"] * 3 + ["fits"] == [rows[key].verdict for key in USUAL]
    assert (68.6, "mxfp4") == (gib(rows["mxfp4"]), found.base.format.key)
    assert [("linear layers", "16 bits"), ("experts", "weights only")] == [
        (p.part, p.kind) for p in rows["mxfp4"].paths
    ]
    assert "its publisher made it in mxfp4" in rows["mxfp4"].accuracy[0]
    assert [f.rule for f in rows["fp8"].reasons] == ["QNT-08"]


def test_minimax_m3_in_bf16_needs_sixteen_h100():
    """About 800 GiB on eight cards of 80 GB: BF16 is shown at the others' layout, with what would hold it."""
    found = compared(facts("MiniMaxAI/MiniMax-M3", "8xH100"))
    rows = by_key(found)

    assert ("does not fit", 16, ["MEM-01"]) == (
        rows["bf16"].verdict,
        rows["bf16"].needs,
        [f.rule for f in rows["bf16"].reasons],
    )
    assert ["fits"] * 3 == [rows[key].verdict for key in USUAL[1:]]
    assert {found.layout} == {row.plan.layout for row in found.rows}
    assert 0.51 == round(rows["fp8"].replica_weights / rows["bf16"].replica_weights, 2)


def test_the_indexer_s_keys_stay_in_sixteen_bits():
    """An FP8 cache does not halve MiniMax-M3's token: the sparse indexer's part does not follow the flag."""
    rows = by_key(compared(facts("MiniMaxAI/MiniMax-M3", "8xH100")))

    assert 0.66 == round(rows["fp8+fp8"].budget.kv_bytes_per_token / rows["fp8"].budget.kv_bytes_per_token, 2)


def test_blackwell_shows_nvfp4_without_being_asked():
    """Where the device has the unit and a checkpoint exists; elsewhere only `--all` shows it."""

    def keys(machine, *, every=False):
        asked = facts("MiniMaxAI/MiniMax-M3", machine)
        known = (asked.model, *models.siblings(asked.model))
        return [f.key for f in formats(asked, known, every=every, ours=False)]

    assert [*USUAL, "nvfp4"] == keys("8xB200")
    assert list(USUAL) == keys("8xH100")
    assert "nvfp4+fp8" in keys("8xH100", every=True)
    assert "int8" in keys("8xH100", every=True)
    row = compared(facts("MiniMaxAI/MiniMax-M3", "8xB200"), "nvfp4").rows[0]
    assert [("experts", "native", 4)] == [(p.part, p.kind, p.bits) for p in row.paths if p.part == "experts"]


def test_nothing_fits():
    """Qwen3-32B on an L4 of 22 GiB: BF16 wants four of them, FP8 two; four bits alone hold a short request."""
    rows = by_key(compared(facts("Qwen/Qwen3-32B", "L4", input_tokens=6000, output_tokens=2000, concurrency=1)))

    assert [("does not fit", 4), ("does not fit", 2), ("does not fit", 2)] == [
        (rows[key].verdict, rows[key].needs) for key in USUAL[:3]
    ]
    assert "does not fit" == rows["mxfp4"].verdict
    assert rows["fp8"].plan.checkpoint == "Qwen/Qwen3-32B-FP8"
    assert all(row.estimate is None and row.command is None for row in rows.values())


def test_a_fixed_layout_that_is_too_small_moves():
    """--tp 1 --pp 1 on four L4: what does not fit takes the best layout that does, and says that it moved."""
    one = Restrictions(tensor_parallel_size=1, pipeline_parallel_size=1)
    found = compared(facts("Qwen/Qwen3-32B", "4xL4"), fixed=one)
    rows = by_key(found)

    assert found.layout.startswith("TP1")
    assert (True, True, False) == (rows["bf16"].moved, rows["fp8"].moved, rows["mxfp4"].moved)
    assert rows["bf16"].fits
    assert 4 == rows["bf16"].plan.world_size


def test_our_plugin_is_a_column_where_it_is_allowed():
    """`advisor_mxfp4` on a version that vLLM's own conversion does not reach an A100's kernels in 8 bits either."""
    asked = facts(machine="A100")
    wanted = formats(asked, (asked.model,), every=False, ours=True)
    row = compare(asked, (asked.model,), wanted).rows[-1]

    assert (Format("advisor_mxfp4"), "fits", "advisor_mxfp4") == (row.format, row.verdict, row.plan.quantization)
    assert all("weights only" == p.kind for p in row.paths)


def test_the_same_facts_give_the_same_rows():
    """Pure: nothing of a run is in the next."""
    assert compared(facts()) == compared(facts())


@pytest.mark.parametrize(
    ("text", "keys"),
    [("bf16,fp8+fp8", ["bf16", "fp8+fp8"]), ("awq, none,gptq", ["int4", "bf16"]), ("FP8+auto", ["fp8"])],
)
def test_formats_are_read_as_people_type_them(text, keys):
    """Other names for the same weights are one format; a 16-bit cache is no part of a name."""
    assert keys == [f.key for f in parse(text)]


@pytest.mark.parametrize("text", ["fp9", "", " , ", "fp8+"])
def test_a_format_that_is_none_is_an_error(text):
    """With what there is."""
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize(
    ("key", "label"),
    [("fp8+fp8", "FP8 + FP8 KV"), ("fp8_per_block", "fp8_per_block"), ("bf16+fp8_e5m2", "BF16 + fp8_e5m2 KV")],
)
def test_labels_are_what_people_say(key, label):
    """A flag's own name stays as it is."""
    assert label == parse(key)[0].label


def test_where_nothing_fits_the_widest_split_is_shown():
    """MiniMax-M3 on four H100 as the seed typed it: TP4, the weights of FP8 alone exceed 79.2 GiB a card."""
    found = compared(facts("MiniMaxAI/MiniMax-M3", "4xH100", "0.24.0"))

    assert found.layout.startswith("TP4")
    assert [("does not fit", 16), ("does not fit", 8), ("does not fit", 8), ("not supported", 0)] == [
        (row.verdict, row.needs) for row in found.rows
    ]
    assert 100.2 == gib(found.rows[1])
