"""However a product is divided on a CPU, it is the twin's: every tile, odd shapes, one thread and two."""

import itertools

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from vllm_mx_kernels import cpu  # noqa: E402
from vllm_mx_kernels.autotune_cpu import MOST_PRODUCTS  # noqa: E402
from vllm_mx_kernels.mxfp4 import dequantize_mxfp4_torch, quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.testing import assert_close  # noqa: E402
from vllm_mx_kernels.tiles import CpuTile  # noqa: E402


CODES = CpuTile(fused_tokens=1 << 20)
DECODED = CpuTile(fused_tokens=0)
LARGEST = {torch.float32: 2e-5, torch.bfloat16: 2e-2}  # as in test_cpu: rounding of the sums, and of the result


@pytest.fixture(autouse=True)
def _built(request, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("vllm-mx-kernels")))
    if not cpu.available():
        pytest.skip("no C++ compiler that torch can use")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def operands(m, n, k, dtype, seed=0):
    """(x, weight, bias, the sum in float64)."""
    made = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(m, k, generator=made).to(dtype), quantize_mxfp4_torch(torch.randn(n, k, generator=made))
    bias = torch.randn(n, generator=made).to(dtype)
    return x, weight, bias, x.double() @ dequantize_mxfp4_torch(weight, torch.float64).T + bias.double()


def assert_twin(operands, tile):
    x, weight, bias, expected = operands
    bound = LARGEST[x.dtype]
    actual = cpu.linear(x, *weight, bias, tile)
    assert x.dtype == actual.dtype
    assert_close(actual, expected, largest=bound, rms=bound)


@pytest.mark.parametrize("name", ["plain", "avx2", "avx512", "neon"])
@pytest.mark.usefixtures("two_threads")
def test_every_register_tile_is_exact(name, monkeypatch):
    """Every number of rows and tokens side by side, with every remainder of both and of K, on every instruction set."""
    if name not in cpu.instruction_sets():
        pytest.skip(f"this processor has no {name}")
    monkeypatch.setenv("ADVISOR_MX_ISA", name)
    for m, n, k in ((1, 7, 160), (3, 6, 96), (7, 9, 1056), (11, 5, 256)):
        made = operands(m, n, k, torch.float32)
        for rows, tokens, scaled, prefetch in itertools.product((1, 2, 4), (1, 2, 4, 8), (0, 1, 2), (0, 16)):
            tile = CODES._replace(rows=rows, tokens=tokens, scaled_sums=scaled, prefetch=prefetch)
            assert_twin(made, tile)


@pytest.mark.parametrize("dtype", list(LARGEST))
@pytest.mark.usefixtures("two_threads")
def test_every_division_of_a_decoded_product_is_exact(dtype):
    """Pieces of less than a row up to more than all, batches that do not divide, threads together or each its own."""
    for m, n, k in ((1, 3, 32), (5, 33, 96), (19, 70, 1056)):
        made = operands(m, n, k, dtype)
        for decoded, batch, own, wide in itertools.product((1, 500, 4096, 1 << 22), (0, 1, 4, 16), (0, 1), (0, 1)):
            assert_twin(made, DECODED._replace(decoded=decoded, batch=batch, own_tiles=own, float32=wide))


TILES = st.builds(
    CpuTile, st.integers(0, 40), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2),
    st.integers(0, 64), st.integers(0, 100), st.integers(1, 1 << 23), st.integers(0, 50), st.integers(0, 1),
    st.integers(0, 1),
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(TILES, st.integers(1, 40), st.integers(1, 90), st.integers(1, 20), st.sampled_from(list(LARGEST)))
def test_any_tile_of_any_shape_is_exact(tile, m, n, blocks, dtype):
    """Whatever the numbers say, within what they may be."""
    assert_twin(operands(m, n, 32 * blocks, dtype, seed=m), tile)


@pytest.mark.parametrize(
    "wrong",
    [{"rows": 3}, {"rows": 0}, {"tokens": 16}, {"scaled_sums": 3}, {"prefetch": -1}, {"prefetch": 65},
     {"task_rows": -1}, {"decoded": 0}, {"batch": -1}, {"own_tiles": 2}, {"float32": 2}, {"fused_tokens": -1}],
    ids=str,
)  # fmt: skip
def test_a_tile_that_cannot_be_is_refused(wrong):
    """Numbers out of range raise ValueError and touch no memory."""
    x, weight, _, _ = operands(2, 4, 64, torch.float32)
    with pytest.raises(ValueError, match="no tile"):
        cpu.linear(x, *weight, None, CpuTile()._replace(**wrong))


def test_a_tile_has_ten_numbers():
    """Another length is refused, too."""
    x, weight, _, _ = operands(2, 4, 64, torch.float32)
    with pytest.raises(ValueError, match="10 numbers"):
        torch.ops.vllm_mx.linear_mxfp4(x, *weight, None, (16, 2, 8))


@pytest.mark.parametrize("m", [1, 2, 5, 16, 17])
def test_the_default_tile_is_what_runs_without_one(m):
    """Bit for bit, and so are the values that do the same."""
    x, weight, bias, _ = operands(m, 33, 1056, torch.bfloat16)

    expected = torch.ops.vllm_mx.linear_mxfp4(x, *weight, bias)
    assert torch.equal(expected, cpu.linear(x, *weight, bias, CpuTile()))
    assert torch.equal(expected, cpu.linear(x, *weight, bias))


@pytest.mark.usefixtures("two_threads")
def test_a_division_changes_no_bit_where_sums_stay_as_they_are():
    """Who computes a row, and what is fetched early, does not matter to it."""
    x, weight, bias, _ = operands(16, 300, 1056, torch.float32)
    expected = cpu.linear(x, *weight, bias)
    for rows, tasks, prefetch, batch in itertools.product((1, 2), (0, 1, 32), (0, 4), (0, 8)):
        tile = CpuTile(rows=rows, task_rows=tasks, prefetch=prefetch, batch=batch)
        if rows * 8 <= MOST_PRODUCTS[cpu.instruction_set()]:
            assert torch.equal(expected, cpu.linear(x, *weight, bias, tile))


@pytest.mark.usefixtures("two_threads")
def test_threads_of_a_decoded_product_see_inference_mode():
    """Tensors made in inference mode, and x that wants gradients, go through each thread's own pieces."""
    tile = DECODED._replace(decoded=1024, own_tiles=1)
    x, weight, bias, expected = operands(20, 64, 96, torch.float32)
    with torch.inference_mode():
        inside = cpu.linear(x.clone(), *(part.clone() for part in weight), bias.clone(), tile)
    assert_close(inside, expected, largest=2e-5, rms=2e-5)
    with torch.no_grad():
        wanting = cpu.linear(x.clone().requires_grad_(), *weight, bias, tile)
    assert not wanting.requires_grad


def test_compiled_products_take_a_tile():
    """The shape that torch.compile is told does not depend on it."""
    x, weight, _, _ = operands(3, 8, 64, torch.float32)
    tile = tuple(CpuTile(rows=4))
    with torch._subclasses.FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) if hasattr(mode, "from_tensor") else t for t in (x, *weight)]
        assert (3, 8) == tuple(torch.ops.vllm_mx.linear_mxfp4(*fake, None, tile).shape)
