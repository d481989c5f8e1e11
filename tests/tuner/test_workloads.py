"""Sources of requests: seeded, of the lengths that were asked for, and never longer than the server takes."""

import json

import pytest

from vllm_advisor.errors import BadInput
from vllm_advisor.vllm.metrics import parse
from vllm_advisor.workload import Workload
from vllm_tuner import sources, traces
from vllm_tuner.workloads import Shape, Synthetic


SHAPE = Shape(vocab_size=1000, longest=4096)
LOAD = Workload(input_tokens=100, output_tokens=40, concurrency=4)


def words(text):
    return len(text.split())


def test_equal_seeds_give_equal_requests_and_others_equal_lengths():
    """What differs between two repeats is the prompts, never the work."""
    source = Synthetic(LOAD, SHAPE)
    first, again, other = source.requests(8, 1), source.requests(8, 1), source.requests(8, 2)

    assert first == again
    assert {r.prompt for r in first}.isdisjoint(r.prompt for r in other)
    for length in ("input_tokens", "output_tokens"):
        assert sorted(getattr(r, length) for r in first) == sorted(getattr(r, length) for r in other)


def test_lengths_spread_evenly_around_the_typical_one():
    """Eight requests of 100 ± 25 tokens: every sixth of a token, with the mean that was asked for."""
    taken = sorted(r.input_tokens for r in Synthetic(LOAD, SHAPE).requests(8, 1))

    assert [78, 84, 91, 97, 103, 109, 116, 122] == taken
    assert all(len(r.prompt) == r.input_tokens for r in Synthetic(LOAD, SHAPE).requests(8, 1))


def test_tokens_keep_away_from_the_ends_of_the_vocabulary():
    """Special tokens stand there."""
    tokens = {t for r in Synthetic(LOAD, SHAPE).requests(16, 3) for t in r.prompt}

    assert (True, True) == (min(tokens) >= 100, max(tokens) < 900)


def test_a_shared_prefix_is_the_same_for_all_seeds():
    """60 tokens in common, the rest of each prompt its own."""
    source = Synthetic(Workload(input_tokens=100, output_tokens=4, shared_prefix_tokens=60), SHAPE)
    prompts = [r.prompt for seed in (1, 2) for r in source.requests(4, seed)]

    assert 1 == len({p[:60] for p in prompts})
    assert 8 == len({p[60:] for p in prompts})


def test_no_request_is_longer_than_the_server_takes():
    """The answer gives way first, then the prompt."""
    tight = Synthetic(LOAD, Shape(1000, 90)).requests(8, 1)

    assert all(r.input_tokens + r.output_tokens <= 90 and r.output_tokens >= 1 for r in tight)


def test_a_rate_is_a_poisson_process():
    """1,000 requests at 50 a second take about 20 s, and the source says that it is timed."""
    source = Synthetic(Workload(input_tokens=2, output_tokens=2, request_rate=50.0), SHAPE)
    times = [r.at for r in source.requests(1000, 5)]

    assert (0.0, True) == (times[0], source.timed)
    assert sorted(times) == times
    assert pytest.approx(20, rel=0.1) == times[-1]


def test_conversations_become_a_prompt_and_the_answer_s_length(tmp_path):
    """The first two turns; what has no answer is left out."""
    file = tmp_path / "share.json"
    turns = [["how are you", "fine thanks and you"], ["alone"], ["hi", "hello there"]]
    file.write_text(json.dumps([{"conversations": [{"value": t} for t in row]} for row in turns]))
    source = sources.read(file, SHAPE, words)

    assert {("how are you", 3, 4), ("hi", 1, 2)} == {(r.prompt, r.input_tokens, r.output_tokens)
                                                     for r in source.requests(2, 1)}  # fmt: skip
    assert 5 == len(source.requests(5, 1))


def test_a_prompt_that_is_too_long_is_passed_over(tmp_path):
    """And with none left, that is said."""
    file = tmp_path / "share.json"
    file.write_text(json.dumps([{"conversations": [{"value": "a b c d"}, {"value": "e"}]}]))

    with pytest.raises(BadInput, match="no prompt below 3 tokens"):
        sources.read(file, Shape(1000, 3), words).requests(1, 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
         "2023-11-16 18:15:47.1805900,396,109\n")),
        ("m.jsonl", ('{"timestamp": 1000, "input_length": 374, "output_length": 44, "hash_ids": [1]}\n'
         '{"timestamp": 1500, "input_length": 396, "output_length": 109}\n')),
        ("o.jsonl", ('{"at": 7.0, "input_tokens": 374, "output_tokens": 44}\n\n'
         '{"at": 7.5, "input_tokens": 396, "output_tokens": 109}\n')),
    ],
)  # fmt: skip
def test_a_trace_keeps_its_lengths_and_gaps(tmp_path, name, text):
    """Azure's, Mooncake's and our own columns: half a second between the two, each spelling in its unit."""
    file = tmp_path / name
    file.write_text(text)
    source = sources.read(file, SHAPE, words)
    starts = [source.requests(2, seed) for seed in range(8)]

    assert source.timed
    assert {374: 44, 396: 109} == {r.input_tokens: r.output_tokens for r in starts[0]}
    assert {0.0, 0.5} == {round(two[1].at, 6) for two in starts}


def test_a_trace_without_times_is_a_closed_loop(tmp_path):
    """Lengths alone."""
    file = tmp_path / "t.jsonl"
    file.write_text('{"prompt_len": 5, "output_len": 6}\n')

    assert (False, (5, 6)) == (
        (source := sources.read(file, SHAPE, words)).timed,
        (source.requests(1, 0)[0].input_tokens, source.requests(1, 0)[0].output_tokens),
    )


def test_a_server_s_own_histograms_are_a_source(tmp_path):
    """Prompts of 1 to 10 tokens, answers of 20 to 50: drawn inside their buckets."""
    lines = []
    for name, buckets in {
        "request_prompt_tokens": ((1, 0), (10, 8)),
        "request_generation_tokens": ((20, 0), (50, 8)),
    }.items():
        lines += [f'vllm:{name}_bucket{{le="{bound}"}} {seen}' for bound, seen in (*buckets, ("+Inf", 8))]
        lines += [f"vllm:{name}_sum 80", f"vllm:{name}_count 8"]
    file = tmp_path / "metrics.txt"
    file.write_text("\n".join(lines))
    made = sources.read(file, SHAPE, words).requests(50, 1)

    assert (True, True) == (
        all(1 <= r.input_tokens <= 10 for r in made),
        all(20 <= r.output_tokens <= 50 for r in made),
    )


def test_metrics_without_requests_are_no_source():
    """An answer with the command that makes one."""
    with pytest.raises(BadInput, match="no histograms"):
        traces.of_metrics("x", parse("vllm:num_requests_running 1\n"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("x.json", "{"), ("x.json", '{"a": 1}'), ("x.json", "[]"), ("x.jsonl", ""), ("x.jsonl", '{"input_tokens": 0}'),
     ("x.csv", "a,b\n1,2\n"), ("x.jsonl", "[1]")],
)  # fmt: skip
def test_what_is_no_file_of_requests_is_one_line(tmp_path, name, text):
    """BadInput, whatever is wrong with it."""
    file = tmp_path / name
    file.write_text(text)

    with pytest.raises(BadInput):
        sources.read(file, SHAPE, words)


def test_a_file_that_is_missing_is_one_line(tmp_path):
    """With its name."""
    with pytest.raises(BadInput, match=r"gone\.json"):
        sources.read(tmp_path / "gone.json", SHAPE, words)
