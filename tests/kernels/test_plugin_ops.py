"""The products as torch operators, and what is done to a weight when it is loaded."""

import importlib
import logging

import pytest


torch = pytest.importorskip("torch", reason="operators are torch's")

from vllm_mx_kernels import vllm_loading, vllm_ops  # noqa: E402
from vllm_mx_kernels.formats import E4M3FN  # noqa: E402
from vllm_mx_kernels.moe import Experts, Routing, moe_torch  # noqa: E402
from vllm_mx_kernels.mxfp4 import Mxfp4, fold_mxfp4, matmul_mxfp4_torch, quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.testing import assert_close  # noqa: E402
from vllm_mx_kernels.vllm_loading import Tally, folded_exponents, quantize_rows  # noqa: E402


@pytest.fixture
def random():
    """bf16 tensors of a shape, from one seed."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator).bfloat16()


def test_linear_is_the_product(random):
    """The operator gives `matmul_mxfp4`, within bf16's rounding of the twin."""
    x, weight, bias = random(5, 64), quantize_mxfp4_torch(random(48, 64)), random(48)
    y = vllm_ops.linear_mxfp4(x, *weight, bias, None)
    torch.testing.assert_close(y, matmul_mxfp4_torch(x, weight, bias), rtol=2**-7, atol=2**-7)


def test_linear_has_a_shape_for_the_compiler(random):
    """torch's own checks of schema, fake tensors and dispatch."""
    weight = quantize_mxfp4_torch(random(48, 64))
    torch.library.opcheck(vllm_ops.linear_mxfp4.default, (random(5, 64), *weight, None, None))


@pytest.fixture
def experts(random):
    """A layer of four experts."""
    gate_up, down = quantize_mxfp4_torch(random(4, 128, 96)), quantize_mxfp4_torch(random(4, 96, 64))
    return Experts(gate_up, down, random(4, 128), random(4, 96))


@pytest.fixture
def interpreted(monkeypatch):
    """Ops on the CPU take the Triton bodies, as on a GPU with an FP8 unit."""
    pytest.importorskip("triton", reason="the bodies are Triton's")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    testing = importlib.import_module("vllm_mx_kernels.testing")
    testing.repair_interpreter()


@pytest.mark.usefixtures("interpreted")
def test_folded_products_run_in_fp8(random, experts):
    """With row exponents, activations are rounded to FP8 a token, and the weights lose nothing."""
    weight, x = quantize_mxfp4_torch(random(48, 64)), random(5, 64)
    y = vllm_ops.linear_mxfp4(x, *weight, None, fold_mxfp4(weight).row_exponents)
    torch.testing.assert_close(y, matmul_mxfp4_torch(x, weight, None, "fp8"), rtol=2**-7, atol=2**-5)
    exponents = [fold_mxfp4(part).row_exponents for part in experts[:2]]
    routing = Routing(torch.tensor([[0, 1], [3, -1]]), torch.full((2, 2), 0.5))
    x, arguments = random(2, 96), ([*experts.gate_up, *experts.down], [*experts[2:]], *routing, False, exponents)
    expected = moe_torch(x, experts, routing, "swiglu", fp8=True)
    torch.testing.assert_close(vllm_ops.moe_mxfp4(x, *arguments), expected, rtol=2**-5, atol=2**-3)


@pytest.mark.parametrize("oai", [False, True])
def test_moe_leaves_other_ranks_out(random, experts, oai):
    """A choice of −1 is an expert of another rank; it adds nothing."""
    x, shares = random(3, 96), torch.tensor([[0.75, 0.25]] * 3)
    choices = torch.tensor([[0, -1], [3, 2], [-1, -1]])
    y = vllm_ops.moe_mxfp4(x, [*experts.gate_up, *experts.down], [*experts[2:]], choices, shares, oai, [])
    expected = moe_torch(x, experts, Routing(choices, shares), "swiglu_oai" if oai else "swiglu")
    assert_close(y, expected, largest=0.1, rms=0.02)
    assert not y[2].any()


def test_moe_has_a_shape_for_the_compiler(random, experts):
    """torch's own checks of schema, fake tensors and dispatch."""
    choices, shares = torch.tensor([[0, 1]] * 3), torch.full((3, 2), 0.5)
    arguments = ([*experts.gate_up, *experts.down], [None, None], choices, shares, False, [])
    torch.library.opcheck(vllm_ops.moe_mxfp4.default, (random(3, 96), *arguments))


def test_known_fold_asks_no_tensor(random):
    """A fold that was found whole stays so without a look at the device, and keeps its numbers."""
    found = fold_mxfp4(quantize_mxfp4_torch(random(8, 64)), E4M3FN)
    known = vllm_ops.known_fold(found.row_exponents.to("meta"))
    assert known.whole
    assert found.whole
    assert torch.equal(found.row_exponents, vllm_ops.known_fold(found.row_exponents).row_exponents)


def test_pieces_quantize_like_the_whole(random, monkeypatch):
    """A weight that is quantized some rows at a time is the same weight, with leading dimensions kept."""
    weight = random(3, 7, 64)
    monkeypatch.setattr(vllm_loading, "PIECE", 5 * 64)
    assert all(map(torch.equal, quantize_mxfp4_torch(weight, "rceil"), quantize_rows(weight, "rceil")))


def test_nothing_folds_on_a_cpu(random):
    """FP8 products are a matrix unit's; without one, W4A16."""
    assert [] == folded_exponents([quantize_mxfp4_torch(random(8, 64))])


def test_tally_speaks_once_all_layers_are_there(caplog):
    """One line with bytes and the share that folds: 4.25 of 16 bits are 26.6 %."""
    caplog.set_level(logging.INFO)
    weight = Mxfp4(*(torch.zeros(64, width, dtype=torch.uint8) for width in (32, 2)))
    tally = Tally(created=2)
    tally.add([weight], folded=True)
    assert [] == caplog.messages
    tally.add([weight, weight], folded=False)
    text = "advisor_mxfp4: 2 layers hold 6528 bytes of weights in place of 24576 in bf16 (26.6%); "
    assert [text + "1 of 2 multiply in FP8, folded without loss"] == caplog.messages
