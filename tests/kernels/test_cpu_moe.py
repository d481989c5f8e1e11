"""A mixture of MXFP4 experts on a CPU: the C++ product, expert by expert, against the twin."""

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from vllm_mx_kernels import moe  # noqa: E402
from vllm_mx_kernels.mxfp4 import quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.testing import assert_close  # noqa: E402


def layer(experts=5, hidden=96, inner=64, *, biased=True):
    made = torch.Generator().manual_seed(3)
    wide = quantize_mxfp4_torch(torch.randn(experts, 2 * inner, hidden, generator=made) * 0.3)
    narrow = quantize_mxfp4_torch(torch.randn(experts, hidden, inner, generator=made) * 0.3)
    biases = (torch.randn(experts, 2 * inner, generator=made), torch.randn(experts, hidden, generator=made))
    return moe.Experts(wide, narrow, *(biases if biased else (None, None)))


@pytest.mark.parametrize("gating", ["swiglu", "swiglu_oai"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_it_equals_the_twin(gating, biased, tokens):
    """With few tokens an expert and with many, within the rounding of bf16."""
    made = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, 96, generator=made).bfloat16()
    routing = moe.route(torch.randn(tokens, 5, generator=made), 2)
    experts = layer(biased=biased)

    expected = moe.moe_torch(x, experts, routing, gating)
    assert_close(moe.moe(x, experts, routing, gating), expected, largest=0.1, rms=0.02)


def test_a_choice_of_another_rank_adds_nothing():
    """Experts that are not here are left out."""
    x = torch.randn(4, 96).bfloat16()
    away = moe.Routing(torch.full((4, 2), -1), torch.full((4, 2), 0.5))

    assert 0 == moe.moe(x, layer(), away, "swiglu").abs().max()


def test_the_compiled_product_is_what_runs(monkeypatch):
    """Not the twin: it is never called where MXFP4 experts are multiplied in bf16."""
    monkeypatch.setattr(moe, "moe_torch", None)
    x = torch.randn(4, 96).bfloat16()
    routing = moe.route(torch.randn(4, 5), 2)

    assert (4, 96) == tuple(moe.moe(x, layer(), routing, "swiglu").shape)
