"""The load client against a real process with real HTTP, and its figures against values computed by hand."""

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from typing import ClassVar

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.launch import Server
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.vllm.metrics import parse
from vllm_advisor.workload import Sla
from vllm_tuner import load, metrics, report
from vllm_tuner.load import Answer, Played, Request, Target
from vllm_tuner.testing import install
from vllm_tuner.trial import BudgetSpent


# Keys of a result of `vllm bench serve --save-result --save-detailed --percentile-metrics ttft,tpot,itl,e2el
# --metric-percentiles 50,90,99` (0.32.0, run on the CPU), in its order.
BENCH_KEYS = [
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens",
    "total_output_tokens", "request_throughput", "request_goodput", "output_throughput",
    "total_token_throughput", "input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors",
    "max_output_tokens_per_s", "max_concurrent_requests", "rtfx", "mean_ttft_ms", "median_ttft_ms",
    "std_ttft_ms", "p50_ttft_ms", "p90_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "std_tpot_ms",
    "p50_tpot_ms", "p90_tpot_ms", "p99_tpot_ms", "mean_itl_ms", "median_itl_ms", "std_itl_ms", "p50_itl_ms",
    "p90_itl_ms", "p99_itl_ms", "mean_e2el_ms", "median_e2el_ms", "std_e2el_ms", "p50_e2el_ms", "p90_e2el_ms",
    "p99_e2el_ms",
]  # fmt: skip
TWO = Played(
    (
        Answer(0.0, 0.1, (0.2, 0.3), 0.6, 10, 3, "abc"),
        Answer(0.5, 0.3, (0.1,), 0.4, 20, 2, "de"),
    ),
    2.0,
)


@contextmanager
def stand_in(tmp_path, *flags):
    folder = install(tmp_path / "bin")
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    before, os.environ["PATH"] = os.environ["PATH"], path
    try:
        with Server(LaunchCommand(("vllm", "serve", "m", *flags)), run_folder=tmp_path / "run") as server:
            server.wait_until_ready()
            yield Target(server.url, server.model)
    finally:
        os.environ["PATH"] = before


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """One stand-in for the module."""
    with stand_in(tmp_path_factory.mktemp("load"), "--max-num-seqs", "4") as running:
        yield running


def requests(number, output=3, gap=0.0):
    return [Request((1, 2, 3), 3, output, gap * i) for i in range(number)]


def test_every_request_is_answered_token_by_token(target):
    """Six requests of three tokens, two at once: lengths, words and times of each."""
    played = load.play(target, requests(6), concurrency=2)

    assert [(3, 3, "xxx", 2, "")] * 6 == [
        (a.input_tokens, a.output_tokens, a.text, len(a.itls), a.error) for a in played.answers
    ]
    assert all(0 < a.ttft < a.latency for a in played.answers)
    assert all(a.latency == pytest.approx(a.ttft + sum(a.itls)) for a in played.answers)


def test_a_closed_loop_keeps_as_many_in_flight_as_asked(target):
    """One at a time: no request starts before the one before has ended."""
    one = load.play(target, requests(4), concurrency=1).answers
    assert all(b.start >= a.start + a.latency for a, b in pairwise(one))

    together = load.play(target, requests(4), concurrency=4).answers
    assert max(a.start for a in together) < min(a.start + a.latency for a in together)


def test_an_open_loop_keeps_its_own_times(target):
    """Each request starts at its time, whether or not others have ended."""
    answers = load.play(target, requests(4, gap=0.1)).answers

    for i, answer in enumerate(answers):
        assert 0.1 * i <= answer.start - answers[0].start + 0.05


def test_a_refusal_is_an_answer_with_its_reason(target):
    """A wrong name is a 404 with vLLM's own words, and no figures are made of it."""
    played = load.play(target._replace(model="other"), requests(2), concurrency=2)

    assert ['status 404: {"error": "not found"}'] * 2 == [a.error for a in played.answers]
    with pytest.raises(EngineError, match=r"2 of 2 requests failed; the first: status 404"):
        report.figures(played, Sla())


def test_a_server_that_is_gone_is_an_answer_with_its_reason():
    """A refused connection is no exception."""
    played = load.play(Target("http://127.0.0.1:9", "m"), requests(1), concurrency=1)

    assert played.answers[0].error.startswith("ConnectError")


def test_nothing_runs_beyond_the_end(target):
    """The end comes first: BudgetSpent at once, and the server has nobody left to serve."""
    begun = time.monotonic()
    with pytest.raises(BudgetSpent):
        load.play(target, requests(8, output=100_000), concurrency=8, end=begun + 0.3)

    assert time.monotonic() - begun < 10
    idle = load.play(target, requests(1), concurrency=1)
    assert idle.answers[0].good


def test_a_signal_s_exception_cancels_what_is_in_flight(tmp_path):
    """SIGINT during a load: KeyboardInterrupt arrives in the caller, and no thread of the load is left."""
    program = """
import os, signal, sys, threading
from vllm_tuner.load import Request, Target, play
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    play(Target(sys.argv[1], "m"), [Request((1,), 1, 100_000)] * 4, concurrency=4)
except KeyboardInterrupt:
    print("interrupted", [t.name for t in threading.enumerate() if t.name == "load"])
"""
    with stand_in(tmp_path) as running:
        argv = [sys.executable, "-c", program, running.url]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert "interrupted []\n" == done.stdout, done.stderr


def test_the_server_counts_a_text(target):
    """POST /tokenize."""
    assert 3 == load.token_count(target, "three short words")


def test_counters_tell_what_happened_between(target):
    """Preemptions and the time in the queue of a server that counts them; what it does not tell is left out."""
    before = metrics.read(target.url)
    load.play(target, requests(1), concurrency=1)

    found = dict(metrics.between(before, metrics.read(target.url)))
    assert ({"preemptions", "queue_ms"}, 0.0) == (set(found), found["preemptions"])
    assert found["queue_ms"] >= 0
    assert () == metrics.between(metrics.read("http://127.0.0.1:9"), metrics.read("http://127.0.0.1:9"))


def test_shares_are_of_what_grew_between():
    """Half of the drafted tokens since the first reading were accepted; of nothing drafted there is no share."""

    def reading(drafted, accepted):
        lines = (f"spec_decode_num_draft_tokens_total {drafted}", f"spec_decode_num_accepted_tokens_total {accepted}")
        return parse("".join(f"vllm:{line}\n" for line in lines))

    assert (("drafts_accepted", 0.5),) == metrics.between(reading(100, 90), reading(300, 190))
    assert () == metrics.between(reading(100, 90), reading(100, 90))


def test_figures_are_those_of_the_answers():
    """Two answers in two seconds, computed by hand: 5 tokens out, 30 in, a tpot of 0.25 and 0.1 s."""
    found = report.figures(TWO, Sla(ttft_ms=200))

    assert (2.5, 17.5, 1.0, 0.5) == tuple(
        found[name] for name in ("output_tok_s", "total_tok_s", "request_s", "goodput_s")
    )
    assert pytest.approx({"ttft": 200, "tpot": 175, "itl": 200, "e2el": 500}) == {
        name: found[f"{name}_ms"] for name in ("ttft", "tpot", "itl", "e2el")
    }
    assert pytest.approx(298) == found["p99_ttft_ms"]


def test_limits_count_request_by_request():
    """The first has a slow token, the second a slow first token."""
    first, second = TWO.answers

    assert (False, True) == (report.within(first, Sla(tpot_ms=200)), report.within(second, Sla(tpot_ms=200)))
    assert (True, False) == (report.within(first, Sla(ttft_ms=200)), report.within(second, Sla(ttft_ms=200)))


def test_an_answer_of_one_token_has_no_time_between():
    """As `vllm bench serve` counts: 0 for goodput, left out of the mean."""
    one = Answer(0.0, 0.1, (), 0.1, 5, 1)

    assert 0.0 == one.tpot
    assert 0.0 == report.figures(Played((one,), 1.0), Sla())["tpot_ms"]


def test_the_document_has_the_keys_of_vllm_bench_serve():
    """Key for key, in its order, and JSON."""
    made = report.document(TWO, Target("http://h", "m"), Sla(), rate=None, concurrency=2)

    assert BENCH_KEYS == list(made)
    assert ("inf", 2, None) == (made["request_rate"], made["max_concurrency"], made["request_goodput"])
    assert made == json.loads(json.dumps(made))


def test_the_fullest_second_is_counted_as_vllm_does():
    """Tokens at 0.1, 0.3, 0.6 | 0.8, 0.9 s: all in second 0; both requests fly in it."""
    made = report.document(TWO, Target("http://h", "m"), Sla(), rate=1.0, concurrency=None)

    assert (5.0, 2) == (made["max_output_tokens_per_s"], made["max_concurrent_requests"])


@pytest.mark.parametrize(("share", "value"), [(0, 1.0), (50, 2.5), (90, 3.7), (100, 4.0)])
def test_percentiles_are_interpolated(share, value):
    """Of 1, 2, 3, 4, as numpy's default."""
    assert pytest.approx(value) == report.percentile([4.0, 1.0, 3.0, 2.0], share)


def test_a_few_failures_do_not_spoil_a_run():
    """One of forty is let pass; three of forty are not."""
    good, bad = TWO.answers[0], Answer(0.0, error="reset")

    assert 39 == report.figures(Played((good,) * 39 + (bad,), 1.0), Sla())["request_s"]
    with pytest.raises(EngineError, match="3 of 40"):
        report.figures(Played((good,) * 37 + (bad,) * 3, 1.0), Sla())


class _Odd(http.server.BaseHTTPRequestHandler):
    """Streams three tokens in two pieces, cut within a character, with what str.splitlines would split at."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[set] = set()

    def do_POST(self):
        self.connections.add(self.client_address)
        self.rfile.read(int(self.headers["Content-Length"]))
        events = [{"choices": [{"index": 0, "text": text}]} for text in ("a\u2028b", "\x85é", "\x1cz")]
        usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}}
        text = "".join(f"data: {json.dumps(e, ensure_ascii=False)}\n\n" for e in [*events, usage])
        body = f": ping\n\n{text}data: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = body.index("é".encode()) + 1
        for piece in (body[:cut], body[cut:]):
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def odd():
    """A server of such streams; connections stay open."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    server.daemon_threads = True
    _Odd.connections.clear()
    threading.Thread(target=server.serve_forever, name="odd", daemon=True).start()
    yield Target(f"http://127.0.0.1:{server.server_port}", "m")
    server.shutdown()
    server.server_close()


def test_a_token_may_hold_any_character(odd):
    """Line separators of Unicode within a token, a character in two pieces, a comment: three arrivals, all good."""
    answer = load.play(odd, requests(1), concurrency=1).answers[0]

    assert ("", "a\u2028b\x85é\x1cz", 2) == (answer.error, answer.text, len(answer.itls))


def test_tokens_are_what_the_server_counts_and_arrivals_what_came(odd):
    """Several tokens in a chunk, as with drafts: 7 by usage in 3 arrivals, as `vllm bench serve` has it."""
    answer = load.play(odd, requests(1), concurrency=1).answers[0]

    assert (7, 3) == (answer.output_tokens, answer.input_tokens)
    assert pytest.approx((answer.latency - answer.ttft) / 6) == answer.tpot


def test_connections_are_used_again(odd):
    """Twelve requests by two workers: two connections, for a handshake is no part of a first token."""
    load.play(odd, requests(12), concurrency=2)

    assert 2 == len(_Odd.connections)


def test_a_late_client_is_seen(target):
    """Each request's own lateness; the figure is its 99th percentile; a closed loop has none."""
    timed = load.play(target, requests(4, gap=0.05))

    assert all(0 <= a.late < 5 for a in timed.answers)
    assert pytest.approx(1990) == report.lateness_ms(
        Played(tuple(TWO.answers[0]._replace(late=x) for x in (1, 2)), 1.0)
    )
    assert {0.0} == {a.late for a in load.play(target, requests(2), concurrency=2).answers}


def test_a_slow_server_delays_no_request_that_has_its_own_time(tmp_path):
    """One place in the batch, answers of 30 tokens every 20 ms: sent in time all the same, and the queue is in TTFT."""
    with stand_in(tmp_path, "--max-num-seqs", "1") as slow:
        answers = load.play(slow, requests(6, output=30, gap=0.02)).answers

    assert max(a.late for a in answers) < answers[-1].ttft / 2
    assert 2 * answers[0].ttft < answers[-1].ttft


def test_no_thread_is_left_behind(target):
    """After a run the process is as it was."""
    load.play(target, requests(1), concurrency=1)

    assert [] == [thread for thread in threading.enumerate() if thread.name == "load"]
