"""Mixture of experts: the grouped kernels against the loop over experts, and the routing that feeds them."""

import math

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")
pytest.importorskip("triton", reason="the interpreter is Triton's")

from vllm_mx_kernels import moe as m  # noqa: E402
from vllm_mx_kernels.fp8 import Fp8, quantize_fp8_torch  # noqa: E402
from vllm_mx_kernels.mxfp4 import Mxfp4, quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.testing import assert_close  # noqa: E402


# Three roundings to bf16 (up, gate, each slot) and FP8 activations that may round the other way after the first.
BOUNDS = {"largest": 0.12, "rms": 0.015}
E, I, H = 4, 64, 96  # noqa: E741


def made(tokens, kind, top_k=2, seed=0, bias=True):
    """(x, experts, routing) with weights in MXFP4 or FP8 by channel or block."""
    generator = torch.Generator().manual_seed(seed)
    random = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    wide, narrow = random(E, 2 * I, H) * 0.3, random(E, H, I) * 0.3
    biases = (random(E, 2 * I), random(E, H)) if bias else (None, None)
    quantize = quantize_mxfp4_torch if kind == "mxfp4" else lambda w: stacked([quantize_fp8_torch(e, kind) for e in w])
    routing = m.route(random(tokens, E), top_k)
    return random(tokens, H).bfloat16(), m.Experts(quantize(wide), quantize(narrow), *biases), routing


def stacked(parts):
    """FP8 matrices as one of three dimensions; torch stacks FP8 only by its bytes."""
    elements = torch.stack([p.elements.view(torch.uint8) for p in parts]).view(parts[0].elements.dtype)
    return Fp8(elements, torch.stack([p.scales for p in parts]))


def on(device, value):
    """A named tuple of tensors, and of such tuples, on another device."""
    if isinstance(value, tuple):
        return type(value)(*(on(device, v) for v in value))
    return value.to(device) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("tokens", [1, 3, 17])
@pytest.mark.parametrize("gating", ["swiglu", "swiglu_oai"])
@pytest.mark.parametrize("kind", ["mxfp4", "folded", "channel", "block"])
@pytest.mark.usefixtures("poison")
def test_layer_is_the_twin(kind, gating, tokens, device):
    """All weights and gatings; with one token most experts have none."""
    x, experts, routing = made(tokens, "mxfp4" if kind == "folded" else kind)
    folds = m.fold_experts(on(device, experts)) if kind == "folded" else None
    y = m.moe(x.to(device), on(device, experts), on(device, routing), gating, folds=folds)

    assert_close(y.cpu(), m.moe_torch(x, experts, routing, gating, fp8=folds is not None), **BOUNDS)


@pytest.mark.parametrize("top_k", [1, 3, 4])
@pytest.mark.usefixtures("poison")
def test_any_number_of_choices(top_k, device):
    """One expert a token, three, or all of them; no biases."""
    x, experts, routing = made(5, "mxfp4", top_k, bias=False)
    y = m.moe(x.to(device), on(device, experts), on(device, routing), "swiglu")

    assert_close(y.cpu(), m.moe_torch(x, experts, routing, "swiglu"), **BOUNDS)


@pytest.mark.parametrize("kind", ["mxfp4", "channel"])
@pytest.mark.usefixtures("poison")
def test_choices_outside_add_nothing(kind, device):
    """Experts of another rank (−1, or beyond the last) are left out, in the body and in the twin."""
    x, experts, routing = made(5, kind)
    chosen = routing.experts.clone()
    chosen[0], chosen[1, 0], chosen[2, 1] = -1, E, -1
    outside = m.Routing(chosen, routing.weights)
    y = m.moe(x.to(device), on(device, experts), on(device, outside), "swiglu").cpu()

    assert torch.equal(torch.zeros(H), y[0].float())
    assert_close(y, m.moe_torch(x, experts, outside, "swiglu"), **BOUNDS)


def test_the_twin_is_the_sum_over_choices():
    """Written out for one token: gate of the up product, down product, weighted, summed."""
    x, experts, routing = made(1, "channel", bias=False)
    expected = torch.zeros(H, dtype=torch.float64)
    for expert, weight in zip(routing.experts[0].tolist(), routing.weights[0].tolist(), strict=True):
        up = (experts.gate_up.elements[expert].float() * experts.gate_up.scales[expert]).double()
        down = (experts.down.elements[expert].float() * experts.down.scales[expert]).double()
        gate, value = (up @ x[0].double()).chunk(2)
        expected += weight * (down @ (gate / (1 + (-gate).exp()) * value))

    # FP8 activations on the way cost up to 2^−4 of an element each.
    assert_close(m.moe_torch(x, experts, routing, "swiglu")[0], expected, largest=0.3, rms=0.06)


def test_gates_by_hand():
    """silu(gate) × up of halves; of alternating rows with both limited to 7 and one added to up."""
    x = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
    silu = lambda v, a=1.0: v / (1 + math.exp(-a * v))  # noqa: E731

    torch.testing.assert_close(torch.tensor([[silu(1.0) * 3, silu(-2.0) * 0.5]]), m.gate_torch(x, "swiglu"))
    torch.testing.assert_close(
        torch.tensor([[silu(1.0, 1.702) * -1, silu(3.0, 1.702) * 1.5]]), m.gate_torch(x, "swiglu_oai")
    )
    limited = torch.tensor([[9.0, -9.0, 7.0, 8.0]])
    torch.testing.assert_close(
        torch.tensor([[silu(7.0, 1.702) * -6, silu(7.0, 1.702) * 8]]), m.gate_torch(limited, "swiglu_oai")
    )


@pytest.mark.parametrize("gating", ["swiglu", "swiglu_oai"])
def test_nan_is_not_limited_away(gating, device):
    """A token with a NaN comes out as NaN, not as the limit, and its neighbours come out whole."""
    x, experts, routing = made(3, "mxfp4", bias=False)
    x[1, 5] = math.nan
    y = m.moe(x.to(device), on(device, experts), on(device, routing), gating).cpu()

    assert [False, True, False] == y.isnan().all(1).tolist()
    assert [False, True, False] == y.isnan().any(1).tolist()


@pytest.mark.parametrize(
    ("experts", "tokens", "top_k", "block"), [(4, 5, 2, 16), (8, 1, 1, 16), (3, 40, 3, 16), (16, 64, 4, 8)]
)
def test_every_slot_is_listed_once_in_a_block_of_its_expert(experts, tokens, top_k, block):
    """Blocks belong to one expert, places beyond are filled with the number of slots, and the count is fixed."""
    generator = torch.Generator().manual_seed(tokens)
    chosen = torch.randint(-1, experts + 1, (tokens, top_k), generator=generator)
    listed = m.sort_by_expert(chosen, experts, block)
    slots, owners = listed.slots.reshape(-1, block), listed.experts
    found = {}
    for owner, block_slots in zip(owners.tolist(), slots.tolist(), strict=True):
        real = [s for s in block_slots if s < tokens * top_k]
        assert real if owner >= 0 else not real
        for slot in real:
            found.setdefault(slot, []).append(owner)

    inside = {i: [e] for i, e in enumerate(chosen.flatten().tolist()) if 0 <= e < experts}
    assert inside == found
    assert min(tokens * top_k, experts + tokens * top_k // block) == len(owners)


def test_sorting_never_waits_for_the_device():
    """Nothing in it depends on data for its shape: fake tensors, which have none, pass. CUDA graphs need that."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        listed = m.sort_by_expert(torch.zeros(8, 4, dtype=torch.int64), 16, 16)

    assert ((18 * 16,), (18,)) == (tuple(listed.slots.shape), tuple(listed.experts.shape))


def test_routing():
    """Softmax over all, the largest first, ties to the lower index, weights of the chosen summing to one."""
    logits = torch.tensor([[0.0, 1.0, 1.0, -1.0]])
    shares = logits.softmax(-1)[0]
    plain, own = m.route(logits, 2, renormalize=False), m.route(logits, 2)

    assert [[1, 2]] == plain.experts.tolist()
    torch.testing.assert_close(shares[1:3].unsqueeze(0), plain.weights)
    torch.testing.assert_close(torch.tensor([[0.5, 0.5]]), own.weights)


def test_no_tokens(device):
    """An empty batch gives an empty output."""
    x, experts, routing = made(1, "mxfp4")
    none = m.Routing(routing.experts[:0].to(device), routing.weights[:0].to(device))

    assert (0, H) == tuple(m.moe(x[:0].to(device), on(device, experts), none, "swiglu").shape)


def _unfoldable(experts):
    scales = experts.down.scales.clone()
    scales[0, 0, 0], scales[0, 0, 1] = 90, 127
    return experts._replace(down=Mxfp4(experts.down.codes, scales))


X, EXPERTS, ROUTING = made(2, "mxfp4")
CHANNEL = made(2, "channel")[1]


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda: m.route(torch.ones(2, 4), 5), "5 of 4 experts"),
        (lambda: m.moe(X[:, :64], EXPERTS, ROUTING, "swiglu"), "do not go together"),
        (lambda: m.moe(X[:1], EXPERTS, ROUTING, "swiglu"), "choices and"),
        (lambda: m.moe(X, EXPERTS._replace(down_bias=torch.ones(E, 3)), ROUTING, "swiglu"), "a bias of .4, 3."),
        (
            lambda: m.moe(
                X, CHANNEL._replace(down=CHANNEL.down._replace(scales=torch.ones(E, 3, 3))), ROUTING, "swiglu"
            ),
            "scales .4, 3, 3. do not fit",
        ),
        (lambda: m.fold_experts(CHANNEL), "need no folding"),
        (
            lambda: m.moe(X, _unfoldable(EXPERTS), ROUTING, "swiglu", folds=m.fold_experts(_unfoldable(EXPERTS))),
            "rows that do: 99.7%",
        ),
    ],
)
def test_refusals(attempt, says):
    """What does not fit is refused with its numbers, in one line."""
    with pytest.raises(ValueError, match=says) as refused:
        attempt()

    assert "\n" not in str(refused.value)
