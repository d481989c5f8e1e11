"""The catalog's own form of a ModelSpec loses nothing, is small, and says so when it is not of this form."""

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.catalog import models
from vllm_advisor.catalog.models_codec import SCHEMA, decode, encode, pack_layers, unpack_layers
from vllm_advisor.errors import BadInput
from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, Quantization, WeightGroup


SMALL = ModelSpec(
    name="acme/Small",
    architecture="LlamaForCausalLM",
    model_type="llama",
    dtype="bfloat16",
    hidden_size=64,
    num_layers=4,
    vocab_size=1000,
    max_position=2048,
    attention_heads=4,
    kv_heads=2,
    caches=(CacheGroup("full", (0, 1, 2, 3), q_heads=4, kv_heads=2, k_dim=16, v_dim=16),),
    weights=(WeightGroup("embedding", 64000, 128000, "vocab"),),
)

counts = st.integers(0, 2**48)
texts = st.text(max_size=12)
layers = st.lists(st.integers(0, 200), unique=True, max_size=40).map(lambda n: tuple(sorted(n)))
caches = st.builds(
    CacheGroup,
    kind=st.sampled_from(["full", "sliding", "mla", "state"]),
    layers=layers,
    q_heads=counts,
    kv_heads=counts,
    k_dim=counts,
    window=counts,
    tokens_per_entry=st.integers(1, 128),
    state_shapes=st.lists(st.tuples(counts, st.sampled_from([1, 2, 4]), st.booleans()), max_size=3).map(tuple),
    sinks=st.booleans(),
)
weights = st.builds(
    WeightGroup,
    role=st.sampled_from(["experts", "norm", "mtp"]),
    params=counts,
    bytes=counts,
    sharding=st.sampled_from(["expert", "replicated"]),
    layers=layers,
    bits=st.sampled_from([4, 8, 16]),
    quantizable=st.booleans(),
)
quantizations = st.builds(
    Quantization,
    method=texts,
    scheme=texts,
    block=st.none() | st.tuples(counts, counts),
    kv_cache_dtype=st.none() | texts,
    ignored=st.lists(texts, max_size=4).map(tuple),
)
specs = st.builds(
    replace,
    st.just(SMALL),
    caches=st.lists(caches, max_size=3).map(tuple),
    weights=st.lists(weights, max_size=4).map(tuple),
    moe=st.none() | st.builds(Moe, counts, counts, counts, counts, layers),
    quantization=quantizations,
    siblings=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    modalities=st.lists(texts, max_size=2).map(tuple),
    unknowns=st.lists(texts, max_size=2).map(tuple),
    exact_weight_bytes=st.none() | counts,
    tied_embeddings=st.booleans(),
)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((7,), "7"),
        ((0, 1, 2), "0-2"),
        (tuple(range(36)), "0-35"),
        (tuple(range(0, 60, 2)), "0-58:2"),
        ((0, 4, 5, 6, 9), "0,4-6,9"),
        ((0, 1), "0,1"),
        ((3, 2, 1), "3,2,1"),
        ((0, 1, 2, 3, 4, 6, 7, 8, 9, 10), "0-4,6-10"),
    ],
)
def test_layers_are_written_as_runs(numbers, text):
    """Three or more in equal steps become a run; order and single numbers are kept."""
    assert (text, numbers) == (pack_layers(numbers), unpack_layers(text))


@given(st.lists(st.integers(0, 500), max_size=60))
def test_any_list_of_layers_comes_back(numbers):
    """Runs are only a spelling, even of numbers that are unsorted or repeated."""
    assert tuple(numbers) == unpack_layers(pack_layers(numbers))


def test_a_negative_layer_is_refused():
    """A minus sign is the run's dash, so a negative number must not be written silently."""
    with pytest.raises(ValueError, match="start at 0"):
        pack_layers((-1, 0))


@given(specs)
def test_any_spec_comes_back_through_json(spec):
    """Written, printed, parsed and decoded, a spec is equal to itself."""
    assert spec == decode(json.loads(json.dumps(encode(spec))))


def test_defaults_are_left_out():
    """A field that holds its default costs no byte."""
    written = encode(SMALL)
    assert SCHEMA == written["schema"]
    assert {"kind": "full", "layers": "0-3", "q_heads": 4, "kv_heads": 2, "k_dim": 16, "v_dim": 16} == written[
        "caches"
    ][0]
    assert not {"moe", "quantization", "siblings", "unknowns", "mtp_layers"} & written.keys()


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"schema": None},
        {"caches": 3},
        {"weights": [{"role": "norm"}]},
        {"caches": [{"kind": "full", "layers": "0-x"}]},
        {"no_such_field": 1},
        {"moe": []},
    ],
)
def test_another_form_is_bad_input(change):
    """A file of another version or a damaged one is one line, never a traceback."""
    with pytest.raises(BadInput):
        decode({**encode(SMALL), **change})


def test_a_missing_field_is_bad_input():
    """Each field without a default must be there."""
    written = encode(SMALL)
    for field in [key for key in written if key != "schema"]:
        with pytest.raises(BadInput):
            decode({key: value for key, value in written.items() if key != field})


def test_the_largest_entry_decodes_within_a_millisecond():
    """The best of twenty runs on the entry with the largest file; the bound is a fifth of what `find` may take."""
    largest = max(models.FOLDER.glob("*--*.json"), key=lambda path: path.stat().st_size)
    mapping = json.loads(largest.read_bytes())
    runs = []
    for _ in range(20):
        start = time.perf_counter()
        decode(mapping)
        runs.append(time.perf_counter() - start)
    assert min(runs) < 1e-3
