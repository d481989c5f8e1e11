"""The FP8 key-value cache: what is stored, bit for bit, and what attention makes of it."""

import math

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")
pytest.importorskip("triton", reason="the interpreter is Triton's")

from vllm_mx_kernels import kv_cache as kv  # noqa: E402
from vllm_mx_kernels.testing import assert_close  # noqa: E402


BOUNDS = {"largest": 0.03, "rms": 0.005}  # shares of the softmax and the output are rounded to bf16
PAGES, PAGE, HEADS = 12, 8, 2
DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2]


def poisoned(dim, scale, dtype=torch.float8_e4m3fn):
    """A cache full of NaN, so that an element that nobody stored is seen when it is read."""
    cache = kv.empty_cache(PAGES, PAGE, HEADS, dim, dtype=dtype, scale=scale)
    cache.pages.view(torch.uint8).fill_(0x7F)
    if cache.per_token:
        cache.scales.fill_(math.nan)
    return cache


def on(device, parts):
    """The same named tuple on another device, with memory of its own."""
    return type(parts)(*(p.to(device, copy=True) if isinstance(p, torch.Tensor) else p for p in parts))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [None, 0.02])
@pytest.mark.parametrize("dim", [40, 64])
def test_store_is_the_twin(dim, scale, dtype, device):
    """Bytes and scales, slots of −1 left alone, from a view with gaps; the whole cache is compared."""
    generator = torch.Generator().manual_seed(dim)
    slots = torch.randperm(PAGES * PAGE, generator=generator)[:9]
    slots[3] = -1
    x = torch.full((9, HEADS, dim + 8), math.nan).bfloat16()
    x[..., :dim] = torch.randn(9, HEADS, dim, generator=generator) * 3
    x[0, 0, :dim], x[1, 1, 0], x[2, 0, 1], x[4, 1, 2] = 0.0, 1000.0, math.inf, math.nan
    twin, body = poisoned(dim, scale, dtype), on(device, poisoned(dim, scale, dtype))
    kv.store_torch(x[..., :dim], twin, slots)
    kv.store(x[..., :dim].to(device), body, slots.to(device))

    assert torch.equal(twin.pages.view(torch.uint8), body.pages.cpu().view(torch.uint8))
    torch.testing.assert_close(body.scales.cpu(), twin.scales, rtol=0, atol=0, equal_nan=True)


def test_stored_values_by_hand():
    """Element × scale is the value to FP8's precision; Inf and NaN come back as NaN, not as a number."""
    x = torch.tensor([[[1.0, -448.0]], [[math.inf, 1.0]]])
    own, fixed = kv.empty_cache(1, 2, 1, 2), kv.empty_cache(1, 2, 1, 2, scale=0.5)
    for cache in (own, fixed):
        kv.store_torch(x, cache, torch.tensor([0, 1]))

    assert [1.0, -448.0] == (own.pages[0, 0, 0].float() * own.scales[0, 0, 0]).tolist()
    assert [2.0, -448.0] == fixed.pages[0, 0, 0].float().tolist()  # −896 saturates
    assert (own.pages[0, 1, 0].float() * own.scales[0, 1, 0]).isnan().all()
    assert [True, False] == fixed.pages[0, 1, 0].float().isnan().tolist()


def filled(lengths, dim, scale, seed=0):
    """(keys, values, tables, lengths): only what a sequence has was stored; the rest of each page is NaN."""
    generator = torch.Generator().manual_seed(seed)
    tables = torch.randperm(PAGES, generator=generator)[: 4 * len(lengths)].int().reshape(len(lengths), 4)
    keys, values = poisoned(dim, scale), poisoned(dim, scale)
    for sequence, length in enumerate(lengths):
        tokens = torch.arange(length)
        slots = tables[sequence, tokens // PAGE].long() * PAGE + tokens % PAGE
        for cache in (keys, values):
            kv.store_torch(torch.randn(length, HEADS, dim, generator=generator), cache, slots)
    return keys, values, tables, torch.tensor(lengths, dtype=torch.int32)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("window", [0, 1, 7])
@pytest.mark.parametrize("lengths", [(1, 8, 9), (16, 31, 32)], ids=str)
@pytest.mark.parametrize(("scale", "dim"), [(None, 40), (0.02, 64)])
@pytest.mark.usefixtures("poison")
def test_attention_is_the_twin(scale, dim, lengths, window, sinks, device):  # noqa: PLR0917  one for each axis
    """Grouped queries at one token, at page edges and over them, with windows and sinks."""
    keys, values, tables, sizes = filled(lengths, dim, scale)
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(len(lengths), 4 * HEADS, dim, generator=generator).bfloat16()
    logits = torch.randn(4 * HEADS, generator=generator) if sinks else None
    at = kv.Attention(tables, sizes, dim**-0.5, window, logits)
    out = kv.decode(q.to(device), on(device, keys), on(device, values), on(device, at))

    assert_close(out.cpu(), kv.decode_torch(q, keys, values, at), **BOUNDS)


@pytest.mark.usefixtures("poison")
def test_a_sequence_without_tokens_gives_zeros(device):
    """A slot of the batch that is not in use reads nothing, whatever its table says."""
    keys, values, tables, sizes = filled((5, 3), 64, None)
    sizes[1], tables[1] = 0, -1
    at = kv.Attention(tables, sizes, 0.125)
    out = kv.decode(torch.randn(2, HEADS, 64).to(device), on(device, keys), on(device, values), on(device, at)).cpu()

    assert torch.equal(torch.zeros(HEADS, 64), out[1])
    assert not out[0].isnan().any()


def test_the_twin_is_attention():
    """Against torch's own, on what the cache holds: same keys, same values, no window, no sinks."""
    keys, values, tables, sizes = filled((19,), 64, None)
    q = torch.randn(1, 4 * HEADS, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    slots = tables[0, torch.arange(19) // PAGE].long() * PAGE + torch.arange(19) % PAGE
    k, v = (
        (c.pages.double() * c.scales.double().unsqueeze(-1)).flatten(0, 1)[slots].transpose(0, 1)
        for c in (keys, values)
    )
    expected = torch.nn.functional.scaled_dot_product_attention(
        q[0].unsqueeze(1), k.repeat_interleave(4, 0), v.repeat_interleave(4, 0), scale=0.125
    )

    torch.testing.assert_close(kv.decode_torch(q, keys, values, kv.Attention(tables, sizes, 0.125))[0], expected[:, 0])


def test_a_sink_takes_its_share():
    """One token with a score of 0 and a sink of 0: half the value."""
    keys, values = kv.empty_cache(1, 1, 1, 2, scale=1.0), kv.empty_cache(1, 1, 1, 2, scale=1.0)
    kv.store_torch(torch.tensor([[[1.0, 2.0]]]), values, torch.tensor([0]))
    at = kv.Attention(torch.tensor([[0]]), torch.tensor([1]), 1.0, sinks=torch.zeros(1))

    assert [[[0.5, 1.0]]] == kv.decode_torch(torch.ones(1, 1, 2), keys, values, at).tolist()


def test_keys_and_values_of_one_tensor(device):
    """vLLM holds both in one tensor, keys first: slices of it are served as they are."""
    keys, values, tables, sizes = filled((9, 12), 64, 0.02)
    both = torch.stack((keys.pages.view(torch.uint8), values.pages.view(torch.uint8))).view(keys.pages.dtype).to(device)
    q = torch.randn(2, HEADS, 64, generator=torch.Generator().manual_seed(4)).bfloat16()
    at = kv.Attention(tables, sizes, 0.125)
    sliced = [kv.PagedCache(both[i], keys.scales.to(device)) for i in (0, 1)]

    assert_close(kv.decode(q.to(device), *sliced, on(device, at)).cpu(), kv.decode_torch(q, keys, values, at), **BOUNDS)


KEYS = kv.empty_cache(2, 4, 2, 64)
AT = kv.Attention(torch.zeros(1, 2, dtype=torch.int32), torch.ones(1, dtype=torch.int32), 0.125)


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda: kv.store(torch.ones(3, 2, 32), KEYS, torch.zeros(3)), "does not fit 3 slots"),
        (lambda: kv.decode(torch.ones(1, 3, 64), KEYS, KEYS, AT), "do not fit caches"),
        (lambda: kv.decode(torch.ones(2, 2, 64), KEYS, KEYS, AT), "of 2 sequences"),
        (
            lambda: kv.decode(torch.ones(1, 2, 64), KEYS, kv.empty_cache(2, 4, 2, 64, scale=1.0), AT),
            "scaled differently",
        ),
        (lambda: kv.store(torch.ones(1, 2, 64), _interleaved(), torch.zeros(1)), "not laid out slot after slot"),
        (
            lambda: kv.store(torch.ones(1, 2, 64), KEYS._replace(scales=torch.ones(3)), torch.zeros(1)),
            "scales .3,. for pages",
        ),
    ],
)
def test_refusals(attempt, says):
    """What does not fit is refused with its numbers, in one line."""
    with pytest.raises(ValueError, match=says) as refused:
        attempt()

    assert "\n" not in str(refused.value)


def _interleaved():
    """Keys of a tensor that holds a page of keys, then a page of values."""
    both = torch.zeros(2, 2, 4, 2, 64, dtype=torch.uint8).view(torch.float8_e4m3fn)
    return kv.PagedCache(both[:, 0], torch.ones(()))
