"""Tuned tables: written so that nothing untuned changes, read strictly, and judged a line at a time."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Vendor
from vllm_tuner.vllm_configs import legal, table
from vllm_tuner.vllm_configs.defaults import Where, default_config
from vllm_tuner.vllm_configs.shapes import Shape
from vllm_tuner.vllm_configs.table import Table, Tuned


H100 = Where((0, 33, 0), Vendor.NVIDIA, "sm90")
MI300 = Where((0, 33, 0), Vendor.AMD, "gfx942")
PLAIN = Shape(8, 1792, 4096, 2, 1792)
BLOCKS = Shape(256, 256, 7168, 8, 256, "fp8_w8a8", (128, 128))
GROUPS = Shape(128, 768, 2048, 8, 768, "int4_w4a16", (0, 128))
OURS = {
    "BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 16, "num_warps": 8, "num_stages": 5,
}  # fmt: skip
DEVICE = "NVIDIA_H100_80GB_HBM3"
ASKED = legal.Asked((PLAIN,), (DEVICE,), H100)


@st.composite
def ranges(draw):
    """Batch sizes in rising order, cut into ranges that do not meet."""
    edges = sorted(draw(st.lists(st.integers(1, 3000), min_size=2, max_size=8, unique=True)))
    return [Tuned(first, last, OURS) for first, last in zip(edges[::2], edges[1::2], strict=False)]


@given(
    ranges(), st.sampled_from([PLAIN, BLOCKS, GROUPS]), st.sampled_from([H100, MI300, Where((0, 24, 0), Vendor.CPU)])
)
@settings(max_examples=60, deadline=None)
def test_only_what_was_tuned_changes(tuned, shape, where):
    """Whatever is tuned, the nearest key gives it there, and vLLM's own default at every other batch size."""
    written = table.complete(tuned, where, shape)
    for batch in [*range(1, 700), *range(700, 3100, 7), 129 * shape.experts - 1, 129 * shape.experts, 10**6]:
        ours = any(one.first <= batch <= one.last for one in tuned)
        assert (OURS if ours else default_config(where, shape, batch)) == written.nearest(batch)


def test_a_bare_table_would_change_others():
    """The reason for all that: four keys alone move almost every other batch size of a graph."""
    bare = Table(tuple((batch, OURS) for batch in (1, 16, 64, 256)))
    kept = table.complete([Tuned(b, b, OURS) for b in (1, 16, 64, 256)], H100, PLAIN)
    assert 47 == len(table.strayed(bare, H100, PLAIN, table.GRAPH_SIZES))
    assert () == table.strayed(kept, H100, PLAIN, table.GRAPH_SIZES)


def test_two_equally_near_keys_give_the_first_in_the_file():
    """As `min` over the file's order does in vLLM."""
    assert [8, 16] == [
        Table(entries).nearest(12)["m"]
        for entries in (((8, {"m": 8}), (16, {"m": 16})), ((16, {"m": 16}), (8, {"m": 8})))
    ]


@pytest.mark.parametrize(
    ("tuned", "says"),
    [
        ([Tuned(4, 9, OURS), Tuned(9, 12, OURS)], "9 is tuned twice"),
        ([Tuned(9, 4, OURS)], "no range"),
        ([Tuned(0, 4, OURS)], "no range"),
    ],
)
def test_ranges_that_overlap_are_refused(tuned, says):
    """One batch size has one configuration."""
    with pytest.raises(ValueError, match=says):
        table.complete(tuned, H100, PLAIN)


def test_written_file_reads_back(tmp_path):
    """Under vLLM's name, with the Triton that it was made with, and nothing else in the folder."""
    written = table.complete([Tuned(16, 16, OURS)], H100, PLAIN, triton="3.9.0")
    path = table.write(tmp_path / "new", PLAIN.file(DEVICE), written)
    assert f"E=8,N=1792,device_name={DEVICE}.json" == path.name
    assert [path] == list(path.parent.iterdir())
    assert written == table.read(path)
    assert "3.9.0" == json.loads(path.read_text())["triton_version"]
    assert () == legal.problems(path, ASKED)


def test_folder_that_cannot_be_written_is_one_line(tmp_path):
    """A file where the folder should be."""
    (tmp_path / "full").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        table.write(tmp_path / "full", PLAIN.file(DEVICE), Table(((1, OURS),)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "no JSON"),
        ("[" * 9999, "no JSON"),
        ("[]", "no batch size"),
        ("{}", "no batch size"),
        ("3", "no JSON object"),
        ('{"triton_version": "3.9.0"}', "no batch size"),
        ('{"16": {"BLOCK_SIZE_M": 16}, "16": {"BLOCK_SIZE_M": 32}}', "16 stands there twice"),
        ('{"sixteen": {}}', "'sixteen' is no batch size"),
        ('{"0": {}}', "'0' is no batch size"),
        ('{"-4": {}}', "'-4' is no batch size"),
        ('{"16": 3}', "16 has no object of tiles"),
        ('{"16": {"BLOCK_SIZE_M": 16.0}}', "BLOCK_SIZE_M is 16.0"),
        ('{"16": {"BLOCK_SIZE_M": true}}', "BLOCK_SIZE_M is True"),
        ('{"16": {"BLOCK_SIZE_M": "16"}}', "BLOCK_SIZE_M is '16'"),
    ],
)
def test_file_that_would_stop_a_server_is_one_line(tmp_path, text, says):
    """What vLLM's loader or its kernel would fail with is said before."""
    path = tmp_path / PLAIN.file(DEVICE).name
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        table.read(path)
    assert says in caught.value.message
    assert 1 == len(legal.problems(path, ASKED))


def problems_of(tmp_path, config, shape=PLAIN, where=H100, device=DEVICE):
    """(level, message) of a file that holds one entry for every graph size, so that nothing snaps."""
    path = tmp_path / shape.file(device).name
    path.write_text(json.dumps({"1": config}))
    found = legal.problems(path, legal.Asked((shape,), (device,), where))
    return [(p.level, p.message) for p in found if "batch sizes of graphs" not in p.message]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"BLOCK_SIZE_M": 24}, "BLOCK_SIZE_M 24: a power of two from 8 to 1024 is expected"),
        ({"BLOCK_SIZE_K": 8}, "BLOCK_SIZE_K 8: a power of two from 16 to 1024 is expected"),
        ({"BLOCK_SIZE_N": 2048}, "BLOCK_SIZE_N 2048: a power of two from 16 to 1024 is expected"),
        ({"GROUP_SIZE_M": 0}, "GROUP_SIZE_M 0: 1 or more is expected"),
        ({"num_warps": 3}, "num_warps 3: a power of two up to 32 is expected"),
        ({"num_warps": 64}, "num_warps 64: a power of two up to 32 is expected"),
        ({"num_stages": -1}, "num_stages -1: 0 to 10 are expected"),
        (
            {"waves_per_eu": 2},
            "waves_per_eu is an option of AMD's compiler; the kernel would not start on another device",
        ),
        ({"BLOCK_M": 16}, "BLOCK_M is no parameter of vLLM's kernel, which would not start"),
    ],
)
def test_illegal_value_is_an_error(tmp_path, change, line):
    """Each illegal value is one line that names the batch size."""
    assert [("error", f"batch size 1: {line}")] == problems_of(tmp_path, OURS | change)


def test_missing_keys_are_errors_or_warnings(tmp_path):
    """Tiles must be there; warps and stages would be Triton's default and not vLLM's."""
    assert [("error", "batch size 1: BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M is missing")] == problems_of(
        tmp_path, {"BLOCK_SIZE_M": 16}
    )
    bare = {key: value for key, value in OURS.items() if not key.startswith("num_")}
    said = "batch size 1: num_warps and num_stages not said: Triton's own default is used, not vLLM's"
    assert [("warning", said)] == problems_of(tmp_path, bare)


def test_split_k_is_said_to_be_set_back(tmp_path):
    """vLLM writes 1 over it."""
    (found,) = problems_of(tmp_path, OURS | {"SPLIT_K": 4})
    assert ("warning", True) == (found[0], "set back to 1" in found[1])


def test_grouped_weights_need_the_m_tile_only(tmp_path):
    """Their kernel fills in the other two, and a tile of one row is legal there."""
    assert [] == problems_of(tmp_path, {"BLOCK_SIZE_M": 1, "SPLIT_K": 1}, GROUPS)


def test_amd_options_are_legal_on_amd(tmp_path):
    """And a wavefront of 64 leaves half as many warps."""
    amd = OURS | {"waves_per_eu": 2, "matrix_instr_nonkdim": 16, "kpack": 2}
    device = "AMD_Instinct_MI300X"
    assert [] == problems_of(tmp_path, amd, where=MI300, device=device)
    (found,) = problems_of(tmp_path, amd | {"num_warps": 32}, where=MI300, device=device)
    assert "batch size 1: num_warps 32: a power of two up to 16 is expected" == found[1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("E=8,N=1792,device_name=NVIDIA_H100.json", "it is for NVIDIA_H100, this device is NVIDIA_H100_80GB_HBM3"),
        (f"E=8,N=896,device_name={DEVICE}.json", f"vLLM looks for E=8,N=1792,device_name={DEVICE}.json"),
        (f"E=8,N=1792,device_name={DEVICE},dtype=bf16.json", "vLLM never looks for dtype=bf16"),
        (f"E=8,N=1792,device_name={DEVICE},dtype=fp8_w8a8.json", "no rank of this plan holds that shape"),
        (f"N=1792,K=4096,device_name={DEVICE},dtype=fp8_w8a8,block_shape=[128,128].json", "from its own package only"),
        ("notes.json", "is no name that vLLM looks for"),
        (f"{DEVICE}_SHRINK.json", "is for LoRA's kernels"),
    ],
)
def test_wrong_name_says_what_it_should_be(tmp_path, name, says):
    """A file that vLLM would never open."""
    path = tmp_path / name
    path.write_text(table.text(table.complete([], H100, PLAIN)))
    assert any(says in problem.message for problem in legal.problems(path, ASKED))


def test_table_that_snaps_is_warned_of(tmp_path):
    """A few keys alone: how many batch sizes lose vLLM's default."""
    path = tmp_path / PLAIN.file(DEVICE).name
    path.write_text(json.dumps({"1": OURS, "64": OURS}))
    (found,) = legal.problems(path, ASKED)
    assert "warning" == found.level
    assert "49 of the 51 batch sizes of graphs are not in it" in found.message


def test_missing_file_is_one_line():
    """Gone between the listing and the reading."""
    with pytest.raises(BadInput, match="No such file"):
        table.read(Path("/nowhere") / PLAIN.file(DEVICE).name)
