"""A load as a server counted it or as a log tells it: its lengths, rate and times come back as requests."""

import json
import tracemalloc
from pathlib import Path

import pytest

from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.live import Live
from vllm_advisor.vllm.metrics import Histogram, parse
from vllm_advisor.workload import Workload
from vllm_tuner import sources, traces, traces_log
from vllm_tuner.traces import Recorded
from vllm_tuner.workloads import Shape, Synthetic


METRICS = Path(__file__).parents[1] / "data/metrics"
SHAPE = Shape(vocab_size=1000, longest=4096)
INF = float("inf")
LENGTHS = Histogram(((100.0, 50.0), (200.0, 100.0), (INF, 100.0)), 10_000.0, 100.0)
ANSWERS = Histogram(((10.0, 0.0), (20.0, 100.0), (INF, 100.0)), 1500.0, 100.0)
LOAD = Recorded("r", LENGTHS, ANSWERS)
BASE = Workload(input_tokens=7, output_tokens=7, concurrency=3)


def read(path, lengths=None):
    return sources.read(path, SHAPE, len, lengths)


def written(tmp_path, name, *lines):
    file = tmp_path / name
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def live():
    """The two recorded readings of a real server, 20 s apart, under seven clients."""
    first, second = (parse((METRICS / f"cpu-0.32.0-{name}.txt").read_text()) for name in ("first", "second"))
    return Live("http://h:8000", True, "0.32.0", (), first, second, 20.0)


def test_two_readings_make_the_load_of_the_time_between(live):
    """What ended in it over its seconds is the rate, and the means are its own, as the server's sums have them."""
    found = traces.of_live(live)
    before, after = (reading.histogram("request_prompt_tokens") for reading in (live.first, live.second))

    assert (
        pytest.approx((live.second.total("request_success") - live.first.total("request_success")) / 20) == found.rate
    )
    assert after.observed - before.observed == found.requests
    assert pytest.approx(7, rel=0.01) == found.in_flight  # Little's law finds the clients; the gauges' mean is 6.5
    load = found.workload(BASE)
    assert round((after.total - before.total) / (after.observed - before.observed)) == load.input_tokens
    assert (7, found.rate) == (load.concurrency, load.request_rate)


def test_one_reading_has_no_rate():
    """Its lengths are those of the server's life; a rate is not guessed, so the load is a closed loop."""
    found = traces.of_metrics("m", parse((METRICS / "cpu-0.32.0-second.txt").read_text()))

    assert (None, None) == (found.rate, found.workload(BASE).request_rate)
    assert found.requests > 20
    assert not found.source(SHAPE).timed


def test_an_idle_server_is_no_load():
    """It counted no request: one line with the command that makes a reading."""
    with pytest.raises(BadInput, match="counted no request yet") as caught:
        traces.of_metrics("idle.txt", parse((METRICS / "cpu-0.32.0-idle.txt").read_text()))
    assert "curl" in caught.value.hint


def test_drawn_lengths_are_the_histogram_s():
    """Half of the prompts up to 100, the other half up to 200; all answers between 10 and 20; order by the seed."""
    first, other = (LOAD.source(SHAPE).requests(40, seed) for seed in (1, 2))

    assert 20 == sum(r.input_tokens <= 100 for r in first)
    assert all(10 <= r.output_tokens <= 20 and len(r.prompt) == r.input_tokens <= 200 for r in first)
    assert sorted(r.input_tokens for r in first) == sorted(r.input_tokens for r in other)
    assert first == LOAD.source(SHAPE).requests(40, 1)
    assert first != other


def test_a_rate_makes_arrivals():
    """Four a second: 200 requests take about 50 s."""
    times = [r.at for r in LOAD._replace(rate=4.0).source(SHAPE).requests(200, 1)]

    assert sorted(times) == times
    assert pytest.approx(50, rel=0.25) == times[-1]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_the_prefix_hits_as_often_as_it_did(share):
    """The tokens that all prompts have in common make up the recorded share of all of them."""
    prompts = [r.prompt for r in LOAD._replace(prefix_hits=share).source(SHAPE).requests(64, 1)]
    prefix = max(prompts, key=len)[: LOAD._replace(prefix_hits=share).prefix_tokens([len(p) for p in prompts])]
    common = sum(len(prefix[: len(p)]) for p in prompts if p[: len(prefix)] == prefix[: len(p)])

    assert pytest.approx(share, abs=0.02) == common / sum(len(p) for p in prompts)


def test_a_recorded_load_is_a_file_and_comes_back(tmp_path, live):
    """Saved, read as a source of requests, equal; without any text of a request."""
    found, file = traces.of_live(live), tmp_path / "load.json"
    traces.save(found, file)

    assert found.source(SHAPE) == read(file)
    assert traces.of_metrics("x", live.second).source(SHAPE) != read(file)


def test_a_file_of_a_recorded_load_is_told_from_others(tmp_path):
    """A saved load and a page of /metrics are one; conversations and traces are none; a large file is not read."""
    saved, share = tmp_path / "load.json", tmp_path / "share.json"
    traces.save(LOAD, saved)
    share.write_text(json.dumps([{"conversations": [{"value": "a"}, {"value": "b"}]}]))
    large = tmp_path / "large.txt"
    with large.open("wb") as stream:
        stream.truncate(9 << 20)

    assert (LOAD.inputs, None) == (sources.recorded(saved).inputs, sources.recorded(share))
    assert sources.recorded(METRICS / "cpu-0.32.0-second.txt").requests > 20
    assert sources.recorded(tmp_path / "x.jsonl") is None
    with pytest.raises(BadInput, match="9 MiB are more than a page"):
        sources.recorded(large)


def test_a_trace_is_a_load_to_plan_for(tmp_path):
    """Its means in place of the preset's, and its rate: three requests, two gaps of half a second."""
    rows = [f'{{"at": {at}, "input_tokens": {n}, "output_tokens": 6}}' for at, n in ((0, 10), (0.5, 20), (1, 33))]
    load = read(written(tmp_path, "a.jsonl", *rows)).workload(BASE)

    assert (21, 6, 2.0, BASE.concurrency) == (
        load.input_tokens, load.output_tokens, load.request_rate, load.concurrency
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"schema": 9}, {"prefix_hits": 2}, {"request_rate": -1}, {"input_tokens": {}}, {"label": None, "in_flight": "x"},
     {"output_tokens": {"sum": 1, "count": 1, "buckets": [[2, 5], [1, 9]]}}],
)  # fmt: skip
def test_a_broken_load_is_one_line(tmp_path, change):
    """Whatever is wrong with it."""
    file = tmp_path / "load.json"
    traces.save(LOAD, file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    with pytest.raises(BadInput, match=r"load\.json is no file of requests"):
        read(file)


def test_a_log_of_another_program_is_read_by_its_names(tmp_path):
    """OpenAI's usage inside of a row, dates with and without a zone, rows in the order of their ends."""
    rows = [
        '{"time": "2026-11-29T10:00:02.5+00:00", "usage": {"prompt_tokens": 20, "completion_tokens": 4}}',
        '{"time": "2026-11-29T10:00:00", "prompt_tokens": 10, "completion_tokens": 2}',
    ]
    source = read(written(tmp_path, "proxy.jsonl", *rows))
    begun = next(seed for seed in range(20) if source.requests(2, seed)[0].input_tokens == 10)

    assert [(10, 2, 0.0), (20, 4, 2.5)] == [(r.input_tokens, r.output_tokens, r.at) for r in source.requests(2, begun)]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(1500, 1.5), (1_764_410_400, 1_764_410_400), (1_764_410_400_500, 1_764_410_400.5), ("1970-01-01", 0)],
)
def test_a_timestamp_is_in_the_unit_that_its_size_tells(value, seconds):
    """Mooncake's milliseconds from 0, seconds and milliseconds since 1970, a date."""
    assert seconds == traces_log._seconds({"timestamp": value})


def test_a_torn_line_is_passed_over_and_a_file_of_them_is_not(tmp_path):
    """One of 200 is what rotation does; the first bad row of more is named."""
    good = '{"input_tokens": 5, "output_tokens": 6}'

    assert 200 == len(read(written(tmp_path, "a.jsonl", *[good] * 200, '{"input_tok')).rows)
    with pytest.raises(BadInput, match="2 of 22 rows are no requests; the first: row 1: no JSON object"):
        read(written(tmp_path, "b.jsonl", "torn", *[good] * 20, "[1]"))


def test_a_night_without_requests_is_not_waited_for(tmp_path):
    """A gap of eight hours is played as half a minute."""
    rows = [f'{{"at": {at}, "input_tokens": 5, "output_tokens": 6}}' for at in (0, 1, 28_801, 28_802)]
    source = read(written(tmp_path, "a.jsonl", *rows))

    assert 32.0 == max(r.at for seed in range(9) for r in source.requests(4, seed))


ACCESS = '(APIServer pid=101) INFO:     10.0.0.7:53212 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def vllm_line(time):
    return f"(APIServer pid=101) INFO {time} [loggers.py:257] Engine 000: Avg prompt throughput: 3.2 tokens/s"


def test_access_lines_of_vllm_lie_between_its_timed_lines(tmp_path):
    """Three requests in ten seconds: at 2.5, 5 and 7.5 s; refused and other requests are none."""
    others = [ACCESS.replace("200 OK", "400 Bad Request"), ACCESS.replace("chat/completions", "models")]
    file = written(tmp_path, "server.log", ACCESS, vllm_line("11-29 10:00:00"), ACCESS, *others, ACCESS, ACCESS,
                   vllm_line("11-29 10:00:10"))  # fmt: skip
    source = read(file, Synthetic(Workload(input_tokens=8, output_tokens=2), SHAPE))

    assert (2.5, 5.0, 7.5) == tuple(at - source.at[0] + 2.5 for at in source.at)
    assert (False, True) == (source.exact, source.timed)
    assert {0.0, 2.5, 5.0} == {r.at for seed in range(9) for r in source.requests(2, seed)} | {5.0}
    assert all(6 <= r.input_tokens <= 10 for r in source.requests(3, 1))


@pytest.mark.parametrize(
    "form",
    ["2026-11-29T10:00:{:02}.000000000Z " + ACCESS,
     '10.0.0.7 - - [29/Nov/2026:10:00:{:02} +0000] "POST /v1/completions HTTP/1.1" 200 512',
     "2026-11-29T10:00:{:02}+0000 host vllm[1]: " + ACCESS],
    ids=["docker", "nginx", "journald"],
)  # fmt: skip
def test_lines_with_times_of_their_own_are_exact(tmp_path, form):
    """Each known way to have them."""
    source = read(written(tmp_path, "a.log", *[form.format(s) for s in (0, 2, 7)]), Synthetic(BASE, SHAPE))

    assert (0.0, 2.0, 7.0) == tuple(at - source.at[0] for at in source.at)
    assert source.exact


def test_new_year_is_no_step_back(tmp_path):
    """Lines of vLLM have no year: two requests around midnight are 20 s apart."""
    times = ("12-31 23:59:40", "12-31 23:59:50", "01-01 00:00:10", "01-01 00:00:20")
    file = written(tmp_path, "a.log", *[line for t in times for line in (vllm_line(t), ACCESS)], vllm_line(times[-1]))
    source = read(file, Synthetic(BASE, SHAPE))

    assert 15.0 + 20.0 >= source.at[-1] - source.at[0] >= 15.0


@pytest.mark.parametrize(
    ("lines", "said"),
    [([ACCESS], "1 requests without a time"), (["nothing"], "no line of a served request"), ([], "no line of")],
)
def test_a_log_without_times_or_requests_is_one_line(tmp_path, lines, said):
    """With the command that keeps them."""
    with pytest.raises(BadInput, match=said) as caught:
        read(written(tmp_path, "a.log", *lines), Synthetic(BASE, SHAPE))
    assert "docker logs --timestamps" in caught.value.hint


@pytest.mark.parametrize("name", ["big.jsonl", "big.log"])
def test_a_large_log_costs_no_more_memory_than_a_small_one(tmp_path, monkeypatch, name):
    """60,000 rows of which 500 are kept: far less than the file is held, and the last ones count."""
    monkeypatch.setattr(traces_log, "_MOST_ROWS", 500)
    form = '{"at": %d, "input_tokens": 5, "output_tokens": 6}' if name == "big.jsonl" else "2026-11-29T10:00:00Z %d"
    form = form if name == "big.jsonl" else form + ACCESS
    file = written(tmp_path, name, *[form % i for i in range(60_000)])
    tracemalloc.start()
    source = read(file, Synthetic(BASE, SHAPE))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert 500 == len(source.rows if name == "big.jsonl" else source.at)
    assert peak < 1 << 20 < file.stat().st_size
    if name == "big.jsonl":
        assert 59_999 == source.rows[-1][2]


def test_a_line_without_an_end_is_read_in_pieces(tmp_path):
    """Three mebibytes of nothing: refused, and never held at once."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"x" * (3 << 20))

    assert [1 << 20] * 3 == [len(line) for line in traces_log.lines(file)]
    with pytest.raises(BadInput, match="no JSON object"):
        read(file)


def test_conversations_are_read_one_after_the_other(tmp_path, monkeypatch):
    """An array that is larger than a chunk; elements that a chunk cuts come whole."""
    monkeypatch.setattr(traces_log, "_CHUNK", 7)
    rows = [{"conversations": [{"value": f"question {i}"}, {"value": "x]},["}]} for i in range(20)]
    file = tmp_path / "share.json"
    file.write_text(json.dumps(rows, indent=2))

    assert rows == list(traces_log.elements(file))
    file.write_text(json.dumps(rows)[:-5])
    with pytest.raises(ValueError, match="ends within an element"):
        list(traces_log.elements(file))


def test_a_server_that_keeps_no_statistics_says_so():
    """No histograms at all."""
    live = Live("http://h", True, Unknown("x"), (), parse(""), parse("vllm:num_requests_running 1\n"), 5.0)

    with pytest.raises(BadInput, match="no histograms of request lengths"):
        traces.of_live(live)
