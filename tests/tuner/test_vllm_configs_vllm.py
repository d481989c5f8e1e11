"""The room against a real vLLM: its own loader, its own names and defaults, and its kernel under Triton's interpreter.

ADVISOR_VLLM_PYTHON names the Python of an environment with vLLM for the CPU; ADVISOR_VLLM_CUDA_PYTHON one of the CUDA
build, of which only Python functions run, under a stand-in of a device.
"""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from vllm_advisor.catalog import gpus
from vllm_advisor.errors import EngineError
from vllm_advisor.hardware import Vendor
from vllm_advisor.vllm import surface
from vllm_advisor.vllm.oracle_device import stand_in
from vllm_tuner.vllm_configs import legal, names, shipped, table
from vllm_tuner.vllm_configs.defaults import Where
from vllm_tuner.vllm_configs.prove import prove
from vllm_tuner.vllm_configs.shapes import Shape
from vllm_tuner.vllm_configs.table import Tuned
from vllm_tuner.vllm_configs.timing import Session, Unfit


pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
OURS = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "num_warps": 8, "num_stages": 5}
SHAPES = [
    Shape(8, 1792, 4096, 2, 1792),
    Shape(128, 96, 2048, 8, 96),
    Shape(16, 512, 1024, 1, 512, "float32"),
    Shape(60, 1408, 2048, 4, 1408, "fp8_w8a8"),
    Shape(256, 256, 7168, 8, 256, "fp8_w8a8", (128, 128)),
    Shape(64, 256, 1024, 6, 256, "fp8_w8a8", (32, 32)),
    Shape(128, 768, 2048, 8, 768, "int4_w4a16", (0, 128)),
    Shape(64, 1024, 2048, 4, 1024, "int8_w8a16", (0, 128)),
    Shape(16, 1024, 2048, 4, 1024, "int8_w8a16"),
]
BF16, FP8, FLOAT = "torch.bfloat16", "torch.float8_e4m3fn", "torch.float32"
# dtype, block, scheme → scales by row, the first weight and its scales: (8 experts, 2 x 64 rows, 96 columns)
BUILT = [
    (None, None, "bf16", False, [[8, 128, 96], BF16], None),
    ("fp8_w8a8", None, "fp8_tensor", False, [[8, 128, 96], FP8], [[8], FLOAT]),
    ("fp8_w8a8", None, "fp8_channel", True, [[8, 128, 96], FP8], [[8, 128, 1], FLOAT]),
    ("fp8_w8a8", (32, 32), "fp8_block", False, [[8, 128, 96], FP8], [[8, 4, 3], FLOAT]),
    ("int4_w4a16", (0, 32), "int4", False, [[8, 128, 48], "torch.uint8"], [[8, 128, 3], BF16]),
    ("int8_w8a16", None, "int8", False, [[8, 128, 96], "torch.int8"], [[8, 128], BF16]),
    (None, None, "int8", True, [[8, 128, 96], "torch.int8"], [[8, 128, 1], FLOAT]),
]
TINY = Shape(8, 64, 96, 2, 64, "float32")


def python(variable):
    """The interpreter that a variable names."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} names no Python with vLLM")
    return Path(named)


def proved(interpreter, folder, version, where, device, driver):  # noqa: PLR0917 - all of one case
    """Write a table for every shape but the last, and have vLLM read them."""
    part = names.device_part(driver, surface.release_of(version))
    made = [table.complete([Tuned(16, 48, OURS)], where, shape, triton="3.9.0") for shape in SHAPES[:-1]]
    for shape, one in zip(SHAPES, made, strict=False):
        table.write(folder, shape.file(part), one)
    heard = prove(interpreter, device, folder, [*zip(SHAPES, [*made, None], strict=True)], allowed_s=600)
    assert (version, driver) == (heard.vllm.partition("+")[0], heard.device)
    assert [shape.file(part).name for shape in SHAPES] == [proof.name for proof in heard.proofs]
    assert [()] * len(SHAPES) == [proof.wrong for proof in heard.proofs]
    assert [()] * len(SHAPES) == [proof.untuned for proof in heard.proofs]


def test_vllm_reads_what_was_written(tmp_path):
    """On the CPU build: the loader opens our files under the names that were predicted, and takes our tiles."""
    where = Where((0, 32, 0), Vendor.CPU)
    proved(python("ADVISOR_VLLM_PYTHON"), tmp_path, "0.32.0", where, None, "cpu")


@pytest.mark.parametrize(
    ("gpu", "driver"),
    [("H200", "NVIDIA H200 NVL"), ("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"), ("MI300X", "AMD Instinct MI300X")],
)
def test_cuda_build_reads_what_was_written(tmp_path, gpu, driver):
    """Under stand-ins of NVIDIA's and AMD's devices, whose names the files must have and whose defaults they keep."""
    interpreter = python("ADVISOR_VLLM_CUDA_PYTHON")
    node = gpus.node(gpu)
    where = Where((0, 33, 0), node.gpu.vendor, node.gpu.arch)
    proved(interpreter, tmp_path, "0.33.0", where, stand_in(node)._replace(name=driver), driver)


def test_kernel_is_right_under_the_interpreter_and_its_arguments_are_vllm_s():
    """VLLM's own kernel with our tiles gives PyTorch's product; each arithmetic is built as vLLM names it."""
    interpreter = python("ADVISOR_VLLM_PYTHON")
    with Session(interpreter, TINY, interpret=True, allowed_s=600) as session:
        assert ("0.32.0", "cpu") == (session.vllm, session.device)
        assert [True] * 2 == [session.error(5, OURS | {"BLOCK_SIZE_N": n}) < 1e-5 for n in (32, 64)]
        with pytest.raises(Unfit):
            session.error(5, OURS | {"BLOCK_SIZE_N": 48})
        built = [session.describe(TINY._replace(dtype=kind, block=block), scheme) for kind, block, scheme, *_ in BUILT]
    for (kind, block, _, by_row, w1, s1), found in zip(BUILT, built, strict=True):
        said = [found[name] for name in ("dtype", "block", "by_row")]
        assert [kind, list(block) if block else None, by_row] == said
        assert [w1, s1] == [found["tensors"].get(name) for name in ("w1", "s1")]


def test_without_a_gpu_tiles_are_not_timed():
    """One line, before vLLM is imported."""
    interpreter = python("ADVISOR_VLLM_PYTHON")
    with pytest.raises(EngineError, match="this machine has no GPU that PyTorch can use"), Session(interpreter, TINY):
        pass


def test_files_that_vllm_ships_are_known_and_legal():
    """Every file of the package is in our list; the strict reader objects to nothing but what vLLM cannot find."""
    where = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
    package = subprocess.run(
        [python("ADVISOR_VLLM_PYTHON"), "-c", where], check=True, capture_output=True, text=True
    ).stdout.strip()
    said = Counter()
    for path in sorted((Path(package) / shipped.FOLDER).glob("E=*.json")):
        if names.kind(path.name) == "flydsl":
            continue
        file = names.parsed(path.name)
        assert shipped.is_shipped(file, (0, 32, 0))
        amd = "AMD" in file.device or "Radeon" in file.device
        shape = Shape(file.experts, file.width, 4096, 8, file.width, file.dtype, file.block)
        defaults = Where((0, 32, 0), Vendor.AMD if amd else Vendor.NVIDIA)
        found = legal.problems(path, legal.Asked((shape,), (file.device,), defaults))
        said.update(
            problem.message.partition(": ")[2] or problem.message for problem in found if problem.level == "error"
        )
    intel = "grf_mode is '256', a whole number is expected"
    never = {f"vLLM never looks for dtype={dtype}": n for dtype, n in (("bf16", 2), ("float8", 2), ("int8_w8a8", 5))}
    assert never | {intel: 3} == said
