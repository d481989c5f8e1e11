"""Names, shapes, readers and defaults of vLLM's tuned files, against what each release's own functions answer."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Vendor
from vllm_advisor.plan import Plan
from vllm_advisor.vllm import surface
from vllm_tuner.vllm_configs import names, shipped
from vllm_tuner.vllm_configs.defaults import Where, default_config, segments
from vllm_tuner.vllm_configs.devices import device_names
from vllm_tuner.vllm_configs.names import ExpertsFile
from vllm_tuner.vllm_configs.readers import reader
from vllm_tuner.vllm_configs.shapes import Shape, shapes


DATA = Path(__file__).parents[1] / "data" / "vllm_configs"
RECORDED = json.loads((DATA / "defaults.json").read_text())
NAMES = json.loads((DATA / "names.json").read_text())["rows"]
QWEN, R1, GPTQ = "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3.5-35B-A3B-GPTQ-Int4"
R1_FILE = "E=256,N=256,device_name=x,dtype=fp8_w8a8,block_shape=[128,128].json"
TP8 = Plan("x", tensor_parallel_size=8)


def pair(block):
    """A block as the room holds it."""
    return tuple(block) if block else None


def shape_of(row):
    """The shape that a recorded row was asked about; what the defaults do not look at is any number."""
    return Shape(row["experts"], 1024, 4096, row["top_k"], 1024, row["dtype"], pair(row["block"]))


def asked(name, plan=None, version="0.33.0", arch="sm90"):
    """(reader, shapes) of a model in the catalog."""
    model, known = models.find(name), surface.load(version)
    plan = plan or Plan(name)
    by = reader(model, plan, known, arch)
    return by, shapes(model, plan, known, by.backend)


@pytest.mark.parametrize("row", NAMES, ids=lambda row: f"{row['device']}-{row['dtype']}-{row['versions'][0]}")
def test_name_is_what_the_release_s_own_function_makes(row):
    """Every device, dtype and release gives the name that vLLM's own function gave."""
    for version in row["versions"]:
        device = names.device_part(row["device"], surface.release_of(version))
        file = ExpertsFile(row["experts"], row["width"], device, row["dtype"], pair(row["block"]))
        assert row["name"] == file.name


@pytest.mark.parametrize("row", [r for r in NAMES if "/" not in r["name"]], ids=lambda row: row["name"])
def test_name_reads_back(row):
    """A name says what it was made of."""
    found = names.parsed(row["name"])
    assert (row["experts"], row["width"], row["dtype"], pair(row["block"])) == (
        found.experts, found.width, found.dtype, found.block
    )  # fmt: skip
    assert row["name"] == found.name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("E=8,N=64,device_name=cpu.json", "experts"),
        ("N=4096,K=512,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json", "linear"),
        ("headdim=64,dstate=128,device_name=NVIDIA_H20,cache_dtype=float16.json", "ssm"),
        *((f"NVIDIA_A100_SXM4_80GB_{op}.json", "lora") for op in ("SHRINK", "EXPAND_TRUE", "EXPAND_FALSE")),
        *(
            (f"NVIDIA_A100_SXM4_80GB_FUSED_MOE_LORA_{weight}_{op}.json", "lora")
            for weight in ("W13", "W2")
            for op in ("SHRINK", "EXPAND")
        ),
        ("E=384,N=256,device_name=AMD_Instinct_MI355X,dtype=int4_w4a16,backend=flydsl.json", "flydsl"),
        ("E=8,N=64,device=cpu.json", ""),
        ("E=8,N=64,device_name=cpu.json.bak", ""),
    ],
)
def test_kind_of_a_file(name, kind):
    """Files of other kernels are told apart from those for experts, and from what nobody looks for."""
    assert kind == names.kind(name)


@pytest.mark.parametrize("row", RECORDED["rows"], ids=lambda r: f"{r['vendor']}-{r['dtype']}-{r['versions'][0]}")
def test_default_is_what_the_release_s_own_function_answers(row):
    """For every release, maker, arithmetic and batch size, the default is vLLM's own."""
    expected = [dict(zip(RECORDED["keys"], values, strict=True)) for n, values in row["answers"] for _ in range(n)]
    expected = [{key: value for key, value in config.items() if value} for config in expected]
    for version in row["versions"]:
        where = Where(surface.release_of(version), Vendor(row["vendor"]))
        found = [default_config(where, shape_of(row), batch) for batch in RECORDED["batches"]]
        assert expected == found


@pytest.mark.parametrize("row", RECORDED["rows"], ids=lambda r: f"{r['vendor']}-{r['dtype']}-{r['versions'][0]}")
def test_segments_are_where_the_default_changes(row):
    """Neighbouring segments differ, and every batch size up to far beyond lies in the one that has its default."""
    where, shape = Where(surface.release_of(row["versions"][-1]), Vendor(row["vendor"])), shape_of(row)
    parts = segments(where, shape)
    assert (1, None) == (parts[0].first, parts[-1].last)
    for one, other in pairwise(parts):
        assert one.last + 1 == other.first
        assert one.config != other.config
    for batch in [*range(1, 1100), *range(129 * shape.experts - 3, 129 * shape.experts + 3)]:
        own = next(part for part in reversed(parts) if part.first <= batch)
        assert default_config(where, shape, batch) == own.config


def test_no_default_before_0_24():
    """Older releases have other rules, which are not known here."""
    with pytest.raises(ValueError, match=r"0\.23\.0"):
        default_config(Where((0, 23, 0), Vendor.NVIDIA), Shape(8, 64, 64, 2, 64), 1)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Plan(QWEN), "E=128,N=768"),
        (Plan(QWEN, tensor_parallel_size=4), "E=128,N=192"),
        (Plan(QWEN, tensor_parallel_size=2, data_parallel_size=4), "E=128,N=96"),
        (Plan(QWEN, tensor_parallel_size=4, enable_expert_parallel=True), "E=32,N=768"),
        (Plan(QWEN, tensor_parallel_size=2, data_parallel_size=4, enable_expert_parallel=True), "E=16,N=768"),
        (Plan(QWEN, quantization="fp8_per_block", tensor_parallel_size=4), "E=128,N=256"),
    ],
)
def test_split_decides_experts_and_width(plan, expected):
    """TP and DP split an expert together, EP splits their number, block scales round a share up to whole blocks."""
    assert expected == asked(QWEN, plan)[1][0].file("x").name.partition(",device")[0]


def test_uneven_experts_give_two_names():
    """The first ranks hold one expert more, and look for a name of their own."""
    found = asked(QWEN, Plan(QWEN, tensor_parallel_size=6, enable_expert_parallel=True))[1]
    assert [22, 21] == [shape.experts for shape in found]


def test_redundant_experts_are_counted():
    """EPLB's copies lie on the ranks too."""
    plan = Plan(QWEN, tensor_parallel_size=4, enable_expert_parallel=True, enable_eplb=True)
    found = shapes(models.find(QWEN), plan, surface.load("0.33.0"), "TRITON", redundant_experts=32)
    assert (40,) == tuple(shape.experts for shape in found)


@pytest.mark.parametrize(
    ("name", "plan", "says"),
    [
        ("Qwen/Qwen3-8B", Plan("x"), "has no experts"),
        (QWEN, Plan("x", tensor_parallel_size=5), "do not split 5 ways"),
        ("Qwen/Qwen3-30B-A3B-FP8", Plan("x", tensor_parallel_size=4), "no whole blocks of 128"),
        (QWEN, Plan("x", tensor_parallel_size=256, enable_expert_parallel=True), "do not reach 256 ranks"),
    ],
)
def test_split_that_vllm_refuses_is_one_line(name, plan, says):
    """What would not start has no file."""
    with pytest.raises(BadInput, match=says):
        asked(name, plan)


@pytest.mark.parametrize(
    ("name", "plan", "arch", "expected"),
    [
        (QWEN, None, "sm90", ("TRITON", "always", "E=128,N=768,device_name=x.json")),
        (R1, TP8, "sm90", ("TRITON", "always", R1_FILE)),
        (R1, TP8, "sm100", ("FLASHINFER_TRTLLM", "never", R1_FILE)),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", None, "sm90",
         ("VLLM_CUTLASS", "never", "E=16,N=8192,device_name=x,dtype=fp8_w8a8.json")),
        ("RedHatAI/Qwen3-30B-A3B-NVFP4", None, "gfx942", ("EMULATION", "always", "E=128,N=384,device_name=x.json")),
        (GPTQ, None, "gfx942", ("TRITON", "always", "E=256,N=512,device_name=x,dtype=int4_w4a16.json")),
        (GPTQ, None, "sm80", ("MARLIN", "never", "E=256,N=512,device_name=x,dtype=int4_w4a16.json")),
        ("openai/gpt-oss-120b", None, "gfx942", ("TRITON", "never", "E=128,N=2880,device_name=x.json")),
    ],
)  # fmt: skip
def test_reader_and_name_of_real_models(name, plan, arch, expected):
    """Who multiplies the experts decides whether the file is read, and how weights are held decides its name."""
    by, found = asked(name, plan, arch=arch)
    assert expected == (by.backend, by.reads, found[0].file("x").name)


def test_nvfp4_emulation_looked_with_the_unpacked_width_before_0_26():
    """The packed width came with the emulation's own launch."""
    old, new = (asked("RedHatAI/Qwen3-30B-A3B-NVFP4", None, v, "gfx942")[1][0].width for v in ("0.25.1", "0.26.0"))
    assert (768, 384) == (old, new)


@pytest.mark.parametrize(
    ("change", "reads"),
    [
        ({"moe_backend": "marlin"}, "never"),
        ({"moe_backend": "triton"}, "always"),
        ({"env": (("VLLM_BATCH_INVARIANT", "1"),)}, "never"),
        ({"moe_backend": "deep_gemm"}, "never"),
        ({"moe_backend": "deep_gemm", "env": (("VLLM_USE_DEEP_GEMM_E8M0", "0"),)}, "sometimes"),
    ],
)
def test_flags_decide_who_reads(change, reads):
    """A backend that is asked for takes the place of vLLM's choice, and two variables keep the file from being read."""
    plan = replace(Plan("deepseek-ai/DeepSeek-R1"), **change)
    assert reads == reader(models.find("deepseek-ai/DeepSeek-R1"), plan, surface.load("0.33.0"), "sm90").reads


def test_deepgemm_leaves_narrow_experts_to_triton():
    """Up to 512 columns a rank, whatever the batch."""
    plan = Plan("x", moe_backend="deep_gemm", env=(("VLLM_USE_DEEP_GEMM_E8M0", "0"),))
    found = reader(models.find("deepseek-ai/DeepSeek-R1"), plan, surface.load("0.33.0"), "sm90", intermediate=512)
    assert "always" == found.reads


def test_device_is_called_as_its_driver_calls_it():
    """An H100 is the driver's H100, every H200 is one, a probed name stands alone."""
    new = (0, 33, 0)
    assert "NVIDIA_H100_80GB_HBM3" == device_names(gpus.find("H100 SXM"), new)[0]
    assert ("NVIDIA_H200",) == device_names(gpus.find("H200 NVL"), new)
    assert "AMD_Instinct_MI300X" == device_names(gpus.find("MI300X"), new)[0]
    assert ("NVIDIA_H100",) == device_names(gpus.find("H100 SXM"), new, told="NVIDIA H100")
    assert ("cpu",) == device_names(gpus.find("cpu-avx512"), new)


def test_every_device_that_vllm_ships_for_is_named():
    """Names of shipped files are names that the catalog's devices get, two of other shops left out."""
    known = {name for gpu in gpus.all_gpus() for name in device_names(gpu, (0, 33, 0))}
    assert {"NVIDIA_L20Y", "Intel(R)_Arc(TM)_Pro_B70_Graphics"} == set(shipped.devices()) - known


def test_shipped_by_release():
    """What stands in all packages, what came later, and what came between two that were compared."""
    old = ExpertsFile(8, 1792, "NVIDIA_H100_80GB_HBM3")
    assert [True, True] == [shipped.is_shipped(old, r) for r in ((0, 24, 0), (0, 33, 0))]
    assert shipped.is_shipped(ExpertsFile(9, 1792, "NVIDIA_H100_80GB_HBM3"), (0, 33, 0)) is False
    assert shipped.is_shipped(ExpertsFile(256, 1024, "AMD_Instinct_MI325X", None, (128, 128)), (0, 24, 0))
    assert 330 == len(shipped._files())
    marked = [text for line in shipped.PATH.read_text().splitlines()[2:] for text in line.split()[1:] if "+" in text]
    assert (12, 1) == (sum(t.count("+") == 1 for t in marked), sum(t.count("+") == 2 for t in marked))
