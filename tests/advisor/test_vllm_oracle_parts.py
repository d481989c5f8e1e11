"""The oracle's parts: the driver library without a driver, the model's folder, the verdict, the comparison."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_advisor.vllm.oracle_child import stub
from vllm_advisor.vllm.oracle_compare import Cell, cells
from vllm_advisor.vllm.oracle_model import CODE, renamed, write
from vllm_advisor.vllm.oracle_verdict import Chosen, Refusal, Verdict, verdict


CHILD = Path(stub.__file__).parent
LOADS = "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); print([lib[name]() for name in sys.argv[2:]])"

WRITES = """
import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])
import stub; stub.load(["cuInit"], Path(sys.argv[2]))
"""


@pytest.mark.parametrize("names", [["cuInit"], ["cuInit", "cuMemMap", "cuTensorMapEncodeTiled"]])
def test_stub_library_loads_and_has_no_device(names, tmp_path):
    """The linker takes the library that was written byte by byte, and each function returns CUDA_ERROR_NO_DEVICE."""
    if platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux":
        pytest.skip("the stand-in of the driver is a Linux library for x86-64 and ARM")
    (tmp_path / stub.NAME).write_bytes(stub.library(names, platform.machine()))
    done = subprocess.run(
        [sys.executable, "-c", LOADS, tmp_path / stub.NAME, *names], capture_output=True, text=True, check=True
    )
    assert str([100] * len(names)) == done.stdout.strip()


def test_stub_library_lacks_what_was_not_asked_for(tmp_path):
    """A name that is not exported is not found, whatever the hash chain says of it."""
    if platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux":
        pytest.skip("the stand-in of the driver is a Linux library for x86-64 and ARM")
    (tmp_path / stub.NAME).write_bytes(stub.library(["cuInit"], platform.machine()))
    argv = [sys.executable, "-c", LOADS, tmp_path / stub.NAME, "cuNothing"]
    assert "cuNothing" in subprocess.run(argv, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_stub_library_is_of_the_processor(machine, number):
    """The header names the processor, so that one for another is never loaded."""
    assert number == int.from_bytes(stub.library(["cuInit"], machine)[18:20], "little")


def test_unknown_processor_is_said():
    """Without code for a processor there is no library."""
    with pytest.raises(NotImplementedError, match="riscv64"):
        stub.library(["cuInit"], "riscv64")


def test_wanted_names_are_those_of_the_driver(tmp_path):
    """Driver functions are taken from string tables; the runtime's and cuBLAS's are not the driver's."""
    (tmp_path / "a.so").write_bytes(b"\0cuMemMap\0cudaMalloc\0cublasCreate\0xcuInit\0cuInit\0")
    (tmp_path / "b.so").write_bytes(b"\0cuCtxGetCurrent\0")
    assert ["cuCtxGetCurrent", "cuInit", "cuMemMap"] == stub.wanted(tmp_path)


def test_the_child_imports_nothing_of_ours():
    """It runs in another environment, where this package is not installed."""
    sources = {path.name: path.read_text() for path in CHILD.glob("*.py")}
    assert {"main.py", "stages.py", "layers.py", "device.py"} <= sources.keys()
    assert [] == [name for name, text in sources.items() if "vllm_advisor" in text]


def test_model_folder_holds_no_code_and_no_weights(tmp_path):
    """What names code is left out and said; ModelOpt's part lies in its own file; our remarks are gone."""
    config = {
        "model_type": "mimo",
        "auto_map": {"AutoConfig": "configuration_mimo.MiMoConfig"},
        "hf_quant_config": {"quantization": {"quant_algo": "FP8"}},
        "_provenance": "somebody",
    }
    folder = write(config, tmp_path / "model")
    assert {"model_type": "mimo", CODE: True} == json.loads((folder / "config.json").read_text())
    assert {"quantization": {"quant_algo": "FP8"}} == json.loads((folder / "hf_quant_config.json").read_text())
    names = {"config.json", "hf_quant_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert names == {path.name for path in folder.iterdir()}


def test_tokenizer_has_a_token_for_every_byte(tmp_path):
    """256 letters, all different, and the marks that vLLM's parsers look up after them."""
    made = json.loads((write({}, tmp_path) / "tokenizer.json").read_text())
    assert 256 == len(made["model"]["vocab"])
    assert list(range(256, 256 + len(made["added_tokens"]))) == [mark["id"] for mark in made["added_tokens"]]
    assert {"<think>", "</think>"} <= {mark["content"] for mark in made["added_tokens"]}


def test_command_is_about_the_folder():
    """Only the model's name changes."""
    assert ("vllm", "serve", "/f", "-tp", "2") == renamed(("vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2"), Path("/f"))


def layer(part, kind, backend, number, *, tower=False):
    return Chosen(part, kind, backend, number, tower=tower)


LAYERS = (
    layer("attention", "full", "FLASH_ATTN", 9),
    layer("attention", "sliding", "TRITON_ATTN", 39),
    layer("linear", "UnquantizedLinearMethod", "", 47),
    layer("linear", "Fp8LinearMethod", "CutlassFP8", 40),
    layer("linear", "Fp8LinearMethod", "MarlinFP8", 2),
    layer("linear", "Fp8LinearMethod", "TowerFP8", 99, tower=True),
    layer("experts", "Fp8MoEMethod", "TRITON", 47),
)


@pytest.mark.parametrize(
    ("part", "ours", "expected"),
    [
        ("attention", "FLASH_ATTN", Cell("attention", "FLASH_ATTN", ("FLASH_ATTN",))),
        ("sliding-window attention", "FLASH_ATTN", Cell("sliding-window attention", "FLASH_ATTN", ("TRITON_ATTN",))),
        ("latent attention", "FLASHMLA", Cell("latent attention", "FLASHMLA", ())),
        (
            "linear layers",
            "CutlassFP8, multiplies in 8 bits",
            Cell("linear layers", "CutlassFP8", ("CutlassFP8", "MarlinFP8")),
        ),
        ("experts", "TRITON", Cell("experts", "TRITON", ("TRITON",))),
    ],
)
def test_cells_compare_kind_by_kind(part, ours, expected):
    """Towers are no part of it, 16-bit layers do not hide quantized ones, the most frequent kernel comes first."""
    assert (expected,) == cells(((part, ours),), Verdict(layers=LAYERS))


def test_cells_agree_differ_or_are_silent():
    """The three answers of a comparison."""
    asked = (("attention", "FLASH_ATTN"), ("experts", "MARLIN"), ("latent attention", "FLASHMLA"))
    assert [True, False, None] == [cell.agrees for cell in cells(asked, Verdict(layers=LAYERS))]


@pytest.mark.parametrize(
    ("ours", "agrees"),
    [
        ("MarlinFP8, multiplies in 16 bits; CutlassFP8, multiplies in 8 bits", True),
        ("CutlassFP8, multiplies in 8 bits", True),
        ("MarlinFP8, multiplies in 16 bits", False),
        ("CutlassFP8, multiplies in 8 bits; Marlin, multiplies in 16 bits", False),
    ],
)
def test_several_kernels_of_one_part_are_all_compared(ours, agrees):
    """Linear layers in two formats have two kernels, in whatever order they are named."""
    assert agrees is cells((("linear layers", ours),), Verdict(layers=LAYERS))[0].agrees


@pytest.mark.parametrize(("method", "agrees"), [("AdvisorMxfp4OnlineMoEMethod", True), ("Mxfp4MoEMethod", False)])
def test_our_plugin_is_known_by_its_methods(method, agrees):
    """It has no kernel by a name of vLLM's, and whether a layer folds is told by weights alone."""
    verdict = Verdict(layers=(layer("experts", method, "", 47),))
    assert agrees is cells((("experts", "advisor_mxfp4 (folded FP8), multiplies in 8 bits"),), verdict)[0].agrees


def test_a_kernel_too_many_is_a_difference():
    """Two named where vLLM takes one."""
    assert not cells(
        (("experts", "TRITON, multiplies in 8 bits; MARLIN, multiplies in 16 bits"),), Verdict(layers=LAYERS)
    )[0].agrees


def test_model_without_quantized_layers_is_unquantized():
    """Where no linear layer has a kernel of its own, the pick is called as ours is."""
    found = Verdict(layers=(layer("linear", "UnquantizedLinearMethod", "", 144),))
    assert ("Unquantized",) == cells((("linear layers", "Unquantized"),), found)[0].theirs


@pytest.mark.parametrize(
    ("refusal", "accepted"),
    [
        (Refusal("ModuleNotFoundError", "No module named 'aiter'"), True),
        (Refusal("RuntimeError", "Found no NVIDIA driver on your system."), True),
        (Refusal("ValueError", "MXFP8 requires input_size_per_partition (4304) to be divisible by 32."), False),
    ],
)
def test_what_the_stand_in_lacks_is_no_refusal(refusal, accepted):
    """A missing driver or AITER is the stand-in's; everything else that stops the model is vLLM's own."""
    assert (accepted, accepted) == (Verdict(failed=refusal).accepted, bool(refusal.artefact))


def test_answer_without_layers_is_read():
    """A command that stopped at the configuration has no layers."""
    answer = {"parser": None, "configuration": {"error": "ValueError", "text": "no", "where": "x"}}
    assert Verdict(configuration=Refusal("ValueError", "no", "x")) == verdict(answer)


def test_stub_library_in_use_is_replaced_not_overwritten(tmp_path):
    """A process that has the old file mapped keeps it: the new one is another file of the same name."""
    (tmp_path / stub.NAME).write_bytes(b"in use")
    with (tmp_path / stub.NAME).open("rb") as mapped:
        subprocess.run([sys.executable, "-c", WRITES, CHILD, tmp_path], check=True)
        assert b"in use" == mapped.read()
    assert [stub.NAME] == [path.name for path in tmp_path.iterdir()]
