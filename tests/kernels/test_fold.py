"""Folding MXFP4 into FP8: where it is exact, found by trying every shift; and what is said where it is not."""

import pytest

from vllm_mx_kernels.formats import E2M1, E4M3FN, E4M3FNUZ, E5M2, values


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from vllm_mx_kernels.mxfp4 import (  # noqa: E402
    FOLD_SHIFTS,
    Mxfp4,
    dequantize_mxfp4_torch,
    fold_mxfp4,
    fold_to_fp8_torch,
    quantize_mxfp4_torch,
)


@pytest.mark.parametrize("fmt", [E4M3FN, E4M3FNUZ], ids=lambda f: f.name)
def test_every_shift_is_tried(fmt):
    """E2M1 × 2^s is E4M3 for 15 neighbouring exponents s and no others; these are the table's."""
    there = set(values(fmt))
    exact = [s for s in range(-40, 41) if all(v * 2.0**s in there for v in values(E2M1))]

    assert list(range(FOLD_SHIFTS[fmt][0], FOLD_SHIFTS[fmt][1] + 1)) == exact
    assert 15 == len(exact)


def spanning(*codes):
    """One row of full blocks with these scale codes."""
    row = torch.arange(16, dtype=torch.uint8).repeat(len(codes))
    return Mxfp4((row | (7 << 4)).unsqueeze(0), torch.tensor([codes], dtype=torch.uint8))


@pytest.mark.parametrize("fmt", [E4M3FN, E4M3FNUZ], ids=lambda f: f.name)
@pytest.mark.parametrize("base", [0, 1, 100, 127, 240])
def test_a_span_of_fourteen_folds_without_loss(base, fmt):
    """Every span from 0 to 14, at the ends of E8M0 too: folded × 2^(row exponent − 127) is the weight itself."""
    for span in range(15):
        weight = spanning(base, base + span)
        fold = fold_mxfp4(weight, fmt)
        back = torch.ldexp(fold_to_fp8_torch(weight, fold).double(), (fold.row_exponents - 127).unsqueeze(-1))
        assert fold.whole
        assert torch.equal(dequantize_mxfp4_torch(weight, torch.float64), back)


def test_a_span_of_fifteen_does_not():
    """One octave more and some element would be rounded: the row is not exact, and the others stay so."""
    weight = Mxfp4(*(torch.cat(p) for p in zip(spanning(100, 115), spanning(100, 114), strict=True)))
    fold = fold_mxfp4(weight)

    assert [False, True] == fold.exact.tolist()
    assert (0.5, False) == (fold.share, fold.whole)
    assert not torch.equal(
        dequantize_mxfp4_torch(weight, torch.float64),
        torch.ldexp(fold_to_fp8_torch(weight, fold).double(), (fold.row_exponents - 127).unsqueeze(-1)),
    )


def test_blocks_of_zeros_do_not_count():
    """A block of zeros (scale 0) lies far from any other, and multiplies to zero at any exponent."""
    w = torch.randn(4, 96, generator=torch.Generator().manual_seed(0))
    w[1, :32], w[2] = 0.0, 0.0
    weight = quantize_mxfp4_torch(w)
    fold = fold_mxfp4(weight)
    back = torch.ldexp(fold_to_fp8_torch(weight, fold).double(), (fold.row_exponents - 127).unsqueeze(-1))

    assert fold.whole
    assert torch.equal(dequantize_mxfp4_torch(weight, torch.float64), back)


def test_nan_never_folds():
    """A block with scale 0xFF keeps its row from folding, whatever its codes are."""
    weight = Mxfp4(torch.zeros(2, 32, dtype=torch.uint8), torch.tensor([[127, 255], [127, 127]], dtype=torch.uint8))

    assert [False, True] == fold_mxfp4(weight).exact.tolist()


def test_share_of_gaussian_weights():
    """Ordinary weights fold whole: the share is a measured number, and 1.0 here."""
    w = torch.randn(256, 512, generator=torch.Generator().manual_seed(1)) * 0.02

    assert (1.0, True) == (fold_mxfp4(quantize_mxfp4_torch(w)).share, fold_mxfp4(quantize_mxfp4_torch(w)).whole)


def test_experts_fold_by_row():
    """Three dimensions give a row exponent an expert and row."""
    weight = quantize_mxfp4_torch(torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(2)))

    assert (3, 5) == tuple(fold_mxfp4(weight).row_exponents.shape)


def test_only_e4m3():
    """E5M2 has one bit of mantissa more than E2M1, but is not what these units multiply."""
    with pytest.raises(ValueError, match="fold into e4m3, not e5m2"):
        fold_mxfp4(spanning(100), E5M2)
