"""What `advisor doctor --url` makes of two readings, and the command itself against a server that speaks HTTP."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.cli import doctor_live
from vllm_advisor.doctor import live, live_gain, live_plan
from vllm_advisor.doctor.live_facts import LIFETIME, WINDOW, observe
from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.estimate.configuration import Configuration, estimate
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.live import Live, Served
from vllm_advisor.vllm.metrics import Metrics, parse
from vllm_advisor.vllm.surface import load


DATA = Path(__file__).parents[1] / "data/metrics"
V33 = load("0.33.0")
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
EIGHT = "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8"
BIG = "meta-llama/Llama-3.3-70B-Instruct"


def recorded(name):
    """A reading of the CPU server that the data was recorded from."""
    return (DATA / f"cpu-0.32.0-{name}.txt").read_text()


def histogram(name, mean, requests, engine="0"):
    """A histogram in which every observation is the mean."""
    low, high = int(mean), int(mean) + 1
    labels = f'engine="{engine}",model_name="m"'
    rows = [(low, 0), (high, requests), ("+Inf", requests)]
    lines = [f'vllm:{name}_bucket{{{labels},le="{bound}"}} {seen}' for bound, seen in rows]
    return [*lines, f"vllm:{name}_sum{{{labels}}} {mean * requests}", f"vllm:{name}_count{{{labels}}} {requests}"]


def reading(
    *, requests=1000, running=8, waiting=0, usage=0.3, prompt=1000, answer=250, tpot=0.02, preempted=0, engines=("0",),
    cache='kv_cache_size_tokens="400000",gpu_memory_utilization="0.92",cache_dtype="auto",enable_prefix_caching="True"',
):  # fmt: skip
    """The /metrics of a server in that state, spread evenly over its engines."""
    lines = []
    for engine in engines:
        labels, share = f'engine="{engine}",model_name="m"', len(engines)
        lines += [
            f"vllm:cache_config_info{{{labels},{cache}}} 1.0",
            f"vllm:num_requests_running{{{labels}}} {running / share}",
            f"vllm:num_requests_waiting{{{labels}}} {waiting / share}",
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {waiting / share}',
            f"vllm:kv_cache_usage_perc{{{labels}}} {usage}",
            f"vllm:num_preemptions_total{{{labels}}} {preempted / share}",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {requests / share}',
            f"vllm:prompt_tokens_total{{{labels}}} {requests * prompt / share}",
            f"vllm:generation_tokens_total{{{labels}}} {requests * answer / share}",
            f"vllm:prefix_cache_queries_total{{{labels}}} {requests * prompt / share}",
            f"vllm:prefix_cache_hits_total{{{labels}}} {requests * prompt / share / 4}",
            *histogram("request_prompt_tokens", prompt, requests / share, engine),
            *histogram("request_generation_tokens", answer, requests / share, engine),
            *histogram("time_to_first_token_seconds", 0.2, requests / share, engine),
            *histogram("request_time_per_output_token_seconds", tpot, requests / share, engine),
            *histogram("request_queue_time_seconds", 0.1, requests / share, engine),
            *histogram("e2e_request_latency_seconds", 0.2 + answer * tpot, requests / share, engine),
        ]
    return parse("\n".join(lines) + "\n")


def seen_live(first, second, *, root=LLAMA, length=32_768, version="0.33.0"):
    """A server that was read twice."""
    return Live("http://h:8000", True, version, (Served("m", root, length),), first, second, 10.0)


def held_by(model, machine, **flags):
    """The cache labels of a server that has exactly what we predict of such a configuration."""
    found = estimate(models.find(model), gpus.node(machine), V33, Configuration(max_model_len=32_768, **flags))
    return f'kv_cache_size_tokens="{found.budget.kv_tokens}",gpu_memory_utilization="0.92",cache_dtype="auto"'


def diagnosed(model, machine, **state):
    """The diagnosis of a busy server on that machine."""
    before = reading(**state | {"requests": 500})
    found = seen_live(before, reading(**state), root=model)
    return live.diagnose(found, live.Setting(models.find(model), gpus.node(machine), V33))


def answer(found, topic):
    """One answer of a diagnosis."""
    return next(a for a in found.answers if a.topic == topic)


def test_a_recorded_server_is_read_as_it_was():
    """Load, lengths and queue of the recorded CPU server, which ran four at once while others waited."""
    found = observe(seen_live(parse(recorded("first")), parse(recorded("second"))))
    assert found.running == 4.0
    assert {"capacity": 2.0} == found.waiting_by
    assert (46_592, 364, 128, True) == (
        found.cache.tokens, found.cache.blocks, found.cache.block_size, found.cache.prefix_caching,
    )  # fmt: skip
    assert (38, WINDOW) == (found.input_tokens.requests, found.input_tokens.scope)
    assert pytest.approx(145.5) == found.input_tokens.mean
    assert live_plan.batch_limit(found) == 4


def test_few_requests_between_the_readings_leave_the_lifetime():
    """Fewer than twenty ended: the distributions are those of the server's life, and say so."""
    found = observe(seen_live(reading(requests=990), reading()))
    assert (1000, LIFETIME) == (found.ttft.requests, found.ttft.scope)


def test_engines_are_added_up():
    """Two data-parallel engines: gauges add, the fullest one's cache counts, histograms merge."""
    found = observe(seen_live(reading(requests=500, engines="01"), reading(engines="01", running=10, usage=0.5)))
    assert (2, 9.0, 0.5) == (found.replicas, found.running, found.usage)
    assert found.input_tokens.requests == 500


def test_what_a_version_does_not_count_is_unknown():
    """A server with one gauge: nothing else is zero."""
    found = observe(seen_live(*[parse("vllm:num_requests_running 1\n")] * 2))
    assert found.running == 1.0
    for value in (found.waiting, found.usage, found.preemptions, found.finished, found.ttft, found.cache.tokens):
        assert isinstance(value, Unknown)
    assert {} == found.rejections


def test_old_names_are_found():
    """Versions before 0.10 wrote gpu_cache_usage_perc, gpu_prefix_cache_… and time_per_output_token_seconds."""
    old = parse((DATA / "older-names.txt").read_text())
    found = observe(seen_live(old, old))
    assert found.usage == 0.42
    assert (0.25, LIFETIME) == found.prefix_hits
    assert pytest.approx(0.03) == found.tpot.mean


def test_a_server_that_was_started_again_counts_from_there():
    """Counters that fell back are counted from their new start."""
    found = observe(seen_live(reading(requests=5000, preempted=9), reading(requests=30, preempted=2)))
    assert (30, 30) == found.finished
    assert (2, 2) == found.preemptions


def test_an_idle_server_is_not_judged():
    """Nothing in flight and nothing written: the lengths stand, the changes do not."""
    quiet = reading(running=0)
    found = live.diagnose(seen_live(quiet, quiet), live.Setting(models.find(LLAMA), gpus.node("H100"), V33))
    assert "too little traffic to judge" in found.considered.why
    assert "1,000 in the mean" in answer(found, "lengths").text


def test_a_new_server_is_not_judged():
    """Nineteen requests in all are too few."""
    found = live.diagnose(seen_live(reading(requests=10), reading(requests=19)), live.Setting(*[Unknown("x")] * 3))
    assert "19 requests" in found.judged.why


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_the_cache_tells_the_layout(tp):
    """A 70-billion model on eight H100s: the size of the KV cache says how many hold it."""
    found = diagnosed(BIG, "8xH100", cache=held_by(BIG, "8xH100", tp=tp), tpot=0.03)
    assert tp == found.inferred.plan.tensor_parallel_size
    assert pytest.approx(1.0) == found.inferred.off
    assert any(f"TP{tp}: explains the size of the KV cache" in text for text in found.inferred.assumed)


def test_a_cache_that_no_plan_explains_leaves_the_changes_out():
    """A third of the cache that any layout should have: nothing is predicted of a plan that does not run."""
    found = diagnosed(LLAMA, "H100", cache='kv_cache_size_tokens="120000",cache_dtype="auto"')
    assert found.considered.why.startswith("its KV cache is 0.2")
    assert answer(found, "capacity").level == "watch"


def test_a_batch_limit_that_holds_requests_back_is_the_first_change():
    """Sixteen run, forty-eight wait, the cache is nearly empty: a larger batch gains, surely."""
    found = diagnosed(LLAMA, "H100", cache=held_by(LLAMA, "H100"), running=16, waiting=48, usage=0.1, tpot=0.009)
    first = found.considered.changes[0]
    assert found.inferred.plan.max_num_seqs == 16
    assert first.candidate.flags in ("--max-num-seqs 64", "--max-num-seqs 128")
    assert 1 < first.output.low < first.output.mid < first.output.high
    assert pytest.approx(live_gain.ERRORS["batch"].output) == first.output.high / first.output.mid


def test_a_server_that_does_well_is_left_alone():
    """Eight requests of a model in FP8, none waits, the cache is a third full: no change has a sure gain."""
    found = diagnosed(EIGHT, "H100", cache=held_by(EIGHT, "H100"), tpot=0.007)
    assert () == found.considered.changes
    assert any(text.startswith("an FP8 KV cache: predicted") for text in found.considered.others)


def test_a_doubtful_estimate_widens_every_gain():
    """A time per token four times above our interval: the interval of each gain is four times as wide."""
    state = {"cache": held_by(LLAMA, "H100"), "running": 16, "waiting": 48, "usage": 0.1}
    near = diagnosed(LLAMA, "H100", **state, tpot=0.009)
    sure = live_gain.consider(near.inferred)
    unsure = live_gain.consider(near.inferred, 4 * near.inferred.speed.tpot_ms.high)
    assert (1.0, 4.0) == (sure.doubt, pytest.approx(unsure.doubt))
    assert len(unsure.changes) < len(sure.changes)


def test_a_server_without_graphs_shows():
    """A time per token that only a server without CUDA graphs has: graphs are among the changes looked at."""
    found = diagnosed(LLAMA, "H100", cache=held_by(LLAMA, "H100"), running=1, tpot=0.06)
    assert found.inferred.eager
    assert any("--enforce-eager" in text for text in found.inferred.assumed)


def test_an_instinct_is_told_of_aiter():
    """On an MI300X with default variables AITER's kernels are looked at."""
    found = diagnosed(LLAMA, "MI300X", cache=held_by(LLAMA, "MI300X"), running=64, tpot=0.02)
    words = [c.candidate.words for c in found.considered.changes] + list(found.considered.others)
    assert any(text.startswith("AITER's kernels") for text in words)


def test_preemptions_ask_for_action():
    """Preempted while we looked: the answer is to act, with both counts."""
    found = observe(seen_live(reading(requests=500, preempted=2), reading(preempted=7)))
    said = live.answers(seen_live(Metrics({}), Metrics({})), found, Unknown("x"))
    topic = next(a for a in said if a.topic == "preemptions")
    assert topic.level == "act"
    assert topic.text.startswith("5 in 10.0 s, 7 since the server started")


def test_prefix_caching_that_is_off_has_no_invented_gain():
    """A server without it does not count what prompts share."""
    cache = held_by(LLAMA, "H100") + ',enable_prefix_caching="False"'
    found = diagnosed(LLAMA, "H100", cache=cache)
    assert "no gain can be predicted" in answer(found, "prefix cache").text


class Recorded(BaseHTTPRequestHandler):
    """Answers GET from the server's table of path → (status, body); whatever else is asked is remembered."""

    def do_GET(self):
        self.server.asked.append(("GET", self.path, self.headers.get("Authorization")))
        bodies = self.server.table.get(self.path, [(404, "")])
        status, body = bodies.pop(0) if len(bodies) > 1 else bodies[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self):
        self.server.asked.append(("POST", self.path, None))

    def log_message(self, *args):
        """Say nothing."""


@contextmanager
def serving(**changes):
    """The recorded server on a port of its own: its address, and what it was asked."""
    listed = {"data": [{"id": "smol", "root": "smol", "max_model_len": 2048}]}
    table = {
        "/health": [(200, "")],
        "/version": [(200, '{"version": "0.32.0"}')],
        "/v1/models": [(200, json.dumps(listed))],
        "/metrics": [(200, recorded("first")), (200, recorded("second"))],
    } | {f"/{name}": [answer] for name, answer in changes.items()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorded)
    server.table, server.asked = table, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(url, **options):
    """The command with its defaults, readings a moment apart."""
    defaults = {"gpu": "cpu", "node": None, "vllm": None, "interval_s": 0.01, "api_key_env": None, "json": False}
    return doctor_live.run(url, **defaults | options)


def test_only_reading_calls_are_made(capsys):
    """Four kinds of GET, the counters twice, and nothing else."""
    with serving() as (url, asked):
        assert run(url) == 0
    paths = ["/health", "/version", "/v1/models", "/metrics", "/metrics"]
    assert [("GET", path, None) for path in paths] == asked
    out = capsys.readouterr().out
    assert "vLLM 0.32.0 serves smol" in out
    assert "2.50 requests wait (2 capacity)" in out


def test_json_is_one_document(capsys):
    """The same as a value: what is not known is null."""
    with serving() as (url, _):
        run(f"{url}/v1/", json=True)
    document = json.loads(capsys.readouterr().out)
    assert (url, "0.32.0", ["0"]) == (document["url"], document["vllm"], document["engines"])
    assert document["observed"]["cache"]["tokens"] == 46_592
    assert document["inferred"] is None
    assert document["verdict"].startswith("no configuration of smol is known here")


def test_the_key_is_sent_and_never_shown(capsys, monkeypatch):
    """It comes from a variable, goes into the header, and into no output."""
    monkeypatch.setenv("MY_KEY", "sk-secret-1")
    with serving() as (url, asked):
        run(url, api_key_env="MY_KEY")
    assert {"Bearer sk-secret-1"} == {key for *_, key in asked}
    shown = capsys.readouterr()
    assert "secret" not in shown.out + shown.err


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-secret\x00", "sk-secret-ü"])
def test_a_key_that_no_header_carries_is_not_shown(key, monkeypatch):
    """A stray line break in the variable: exit 2, and the message does not repeat it."""
    monkeypatch.setattr("os.environ", {"MY_KEY": key})
    with pytest.raises(UsageError) as caught:
        run("http://127.0.0.1:9", api_key_env="MY_KEY", gpu=None)
    assert "secret" not in caught.value.message + caught.value.hint


def test_a_missing_key_is_asked_for(capsys):
    """/v1/models answers 401: the rest is answered, and the note says how to give a key."""
    with serving(**{"v1/models": (401, "{}")}) as (url, _):
        assert run(url) == 0
    assert "--api-key-env" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["", "ftp://h", "http://", "http://h:99999", "http://h:x", "h h", "http://a\nb"])
def test_a_bad_address_is_a_usage_error(url):
    """Exit 2: what is no address of a server."""
    with pytest.raises(UsageError):
        run(url)


def test_a_bad_variable_and_interval_are_usage_errors():
    """Exit 2 as well."""
    with pytest.raises(UsageError, match="NOT_SET_1"):
        run("http://h", api_key_env="NOT_SET_1")
    with pytest.raises(UsageError, match="interval"):
        run("http://h", interval_s=0)


def test_nobody_there_is_an_engine_error():
    """Exit 5 with a hint, and no password of the address in either."""
    with serving() as (url, _):
        dead = url.replace("//", "//user:secret@")
    with pytest.raises(EngineError) as caught:
        run(dead)
    assert (5, True) == (caught.value.exit_code, bool(caught.value.hint))
    assert "secret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("body", ["", "<html>hello</html>", "\x00\xff" * 1000, "python_info 1\n", "vllm:" * 5000])
def test_what_is_no_vllm_is_an_engine_error(body):
    """A server that answers something else."""
    with serving(metrics=(200, body)) as (url, _), pytest.raises(EngineError, match="without one of vLLM's series"):
        run(url)


def test_a_huge_answer_is_cut(capsys):
    """9 MB of counters: what was read is judged, the rest is said to be missing."""
    body = recorded("second") + "vllm:more_total 1\n" * (9 << 20 >> 4)
    with serving(metrics=(200, body)) as (url, _):
        assert run(url) == 0
    shown = capsys.readouterr()
    assert "longer than what is read" in shown.err
    assert "46,592 tokens" in shown.out


def test_words_of_a_server_do_not_steer_the_terminal(capsys):
    """Escape sequences in names are dropped."""
    listed = {"data": [{"id": "a\x1b[31mb", "root": "x\x1by"}]}
    with serving(**{"v1/models": (200, json.dumps(listed))}, version=(200, '{"version": "1\\u001b[0m"}')) as (url, _):
        run(url)
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err


def test_another_hosts_folder_is_not_read(tmp_path, monkeypatch):
    """A server elsewhere that names a path gets no file of this host opened."""
    monkeypatch.setattr("vllm_advisor.catalog.hub.resolve", lambda *_, **__: pytest.fail("read"))
    elsewhere = seen_live(Metrics({}), Metrics({}))._replace(models=(Served("~/x", str(tmp_path), 1),))
    assert isinstance(doctor_live._model(elsewhere), Unknown)
