"""A warm-up played to a server that counts: what it sends, when it stops, what it refuses to touch, and the script."""

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.calibrate import warm_up_run as run
from vllm_tuner.calibrate.warm_up import Ask, Limits, Step, steps
from vllm_tuner.calibrate.warm_up_script import script
from vllm_tuner.calibrate.warm_up_send import Door, body, send
from vllm_tuner.testing import facts, install
from vllm_tuner.trial import BudgetSpent


START = "from vllm_tuner.cli.app import main; main()"
BOUNDS = Limits(max_model_len=256, max_num_seqs=4, max_num_batched_tokens=64)
FOREVER = float("inf")


class Fake(ThreadingHTTPServer):
    """Answers as vLLM does, and keeps what it was asked. `busy`: others' requests. `hold`: completions wait for it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies, self.keys, self.most, self.running, self.busy = [], set(), 0, 0, 0
        self.template, self.hold, self.lock = True, threading.Event(), threading.Lock()
        self.hold.set()
        self.entered = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """A client that left."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    def log_message(self, *_):
        """Nothing on stderr."""

    def do_GET(self):
        owner = self.server
        texts = {
            "/health": "",
            "/version": '{"version": "0.33.0"}',
            "/v1/models": json.dumps({"data": [{"id": "fake", "root": "nowhere", "max_model_len": 256}]}),
            "/metrics": f'vllm:num_requests_running{{engine="0"}} {float(owner.busy + owner.running)}\n'
            'vllm:num_requests_waiting{engine="0"} 0.0\n',
        }
        self._say(200 if self.path in texts else 404, texts.get(self.path, "{}"))

    def do_POST(self):
        owner = self.server
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/chat/completions") and not owner.template:
            self._say(400, '{"error": {"message": "no chat template"}}')
            return
        with owner.lock:
            owner.bodies.append(asked)
            owner.keys.add(self.headers.get("Authorization"))
            owner.running += 1
            owner.most = max(owner.most, owner.running)
        owner.entered.set()
        owner.hold.wait(20)
        time.sleep(0.002)
        with owner.lock:
            owner.running -= 1
        self._say(200, 'data: {"choices": [{"text": "x"}]}\n\ndata: [DONE]\n\n')

    def _say(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def fake():
    """A server in a thread."""
    server = Fake()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.hold.set()
    server.shutdown()
    server.server_close()
    thread.join()


def chance():
    return Random(0)  # noqa: S311 - repeatable


def door(fake):
    return Door(fake.url, "fake")


def play(fake, todo, seconds=60.0, **how):
    return list(run.play(door(fake), todo, time.monotonic() + seconds, chance(), **how))


def test_all_steps_are_sent(fake):
    """Every request of every step, by length and number of answers; each prompt is another one."""
    todo = steps(BOUNDS)
    done = play(fake, todo)
    completions = [b for b in fake.bodies if "prompt" in b]

    assert todo == tuple(one.step for one in done)
    assert {""} == {one.error for one in done}
    asked = Counter((a.input_tokens, a.answers) for s in todo for a in s.asks if a.path != "chat")
    assert asked == Counter((len(b["prompt"]), b["n"]) for b in completions)
    assert len(completions) == len({tuple(b["prompt"]) for b in completions})
    assert all(b["stream"] for b in fake.bodies)
    assert 1 == sum("messages" in b for b in fake.bodies)
    assert all(one.ttft_s > 0 for one in done)


def test_requests_of_a_step_are_in_flight_together_and_steps_are_not(fake):
    """A step of three has three at once; between two steps there are none."""
    three, one = (Step("mixed", str(n), (Ask(16, 4),) * n) for n in (3, 1))
    fake.hold.clear()
    threading.Thread(target=lambda: _release(fake, 3), daemon=True).start()
    play(fake, [three, one, one])

    assert 3 == fake.most


def _release(fake, wanted):
    while fake.running < wanted:
        time.sleep(0.005)
    fake.hold.set()


def test_paths_say_what_they_need():
    """What makes a path: logprobs, a schema, penalties; a batch of answers is never greedy, which vLLM refuses."""
    bodies = {name: body(Ask(16, 8, path=name), "m", chance())[1] for name in ("logprobs", "structured", "penalties")}

    assert 5 == bodies["logprobs"]["logprobs"]
    assert ("json_schema", False) == (
        bodies["structured"]["response_format"]["type"],
        bodies["structured"]["ignore_eos"],
    )
    assert bodies["penalties"]["repetition_penalty"] > 1
    batches = [body(a, "m", chance())[1] for s in steps(BOUNDS) for a in s.asks if a.answers > 1]
    assert batches
    assert all(b["temperature"] > 0 for b in batches)


def test_busy_server_is_left_alone(fake):
    """One request of somebody's is enough: nothing is sent, and the hint names --force."""
    fake.busy = 1
    with pytest.raises(UsageError, match="is busy: 1 requests run or wait") as caught:
        run.check_idle(door(fake))

    assert "--force" in caught.value.hint
    assert [] == fake.bodies


def test_it_stops_when_somebody_comes(fake, monkeypatch):
    """After two steps a user's request is there: the third step is not sent."""
    monkeypatch.setattr(run, "_SETTLE_S", 0.1)
    playing = run.play(door(fake), steps(BOUNDS), FOREVER, chance())
    two = [next(playing), next(playing)]
    fake.busy = 1
    with pytest.raises(UsageError, match="is busy"):
        next(playing)

    assert len(two) == len(fake.bodies)


def test_force_goes_on_beside_users(fake):
    """With alone=False nobody is asked."""
    fake.busy = 5

    assert 2 == len(play(fake, steps(BOUNDS)[:2], alone=False))


def test_server_without_counters_is_not_taken_for_idle(fake):
    """No counters are no zero, and an address where nobody answers is an engine's failure."""
    with pytest.raises(UsageError, match="does not tell whether it is busy"):
        run.check_idle(Door(f"{fake.url}/elsewhere", "m"))
    with pytest.raises(EngineError, match="does not answer"):
        run.check_idle(Door("http://127.0.0.1:9", "m"))


def test_time_is_a_limit(fake):
    """A request that does not end is cancelled when the time is up, and nothing is in flight afterwards."""
    fake.hold.clear()
    begun = time.monotonic()
    with pytest.raises(BudgetSpent):
        send(door(fake), [Ask(16, 4)], chance(), begun + 0.3)

    assert time.monotonic() - begun < 15


def test_refused_step_is_noted_and_a_dead_server_ends_it(fake):
    """No chat template: that step says so, the others go on. No server: one line."""
    fake.template = False
    done = {one.step.name: one.error for one in play(fake, steps(BOUNDS, ("chat", "greedy"))[:9])}
    with pytest.raises(EngineError, match="broke off at length 13 tokens"):
        list(run.play(Door("http://127.0.0.1:9", "m"), steps(BOUNDS), FOREVER, chance(), alone=False))

    assert done["chat"].startswith("status 400")
    assert {""} == {error for name, error in done.items() if name != "chat"}


def tuner(*args, path="", **env):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | env
    if path:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    argv = [sys.executable, "-c", START, "calibrate", "warm-up", *map(str, args)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def result(program, code=0):
    out, err = program.communicate(timeout=120)
    assert "Traceback" not in err
    assert code == program.returncode, err
    return out, err


def test_command_warms_a_server_by_its_address(fake):
    """The server's own context, the limits as given, progress with the time left, one JSON document, the key sent."""
    flags = ("--gpu", "cpu", "--max-num-seqs", "2", "--max-num-batched-tokens", "64", "--json")
    out, err = result(tuner("--url", fake.url, *flags, "--api-key-env", "KEY", KEY="secret"))
    value = json.loads(out)

    assert (fake.url, [], "") == (value["url"], value["left_out"], value["stopped"])
    assert 252 == max(len(b.get("prompt", ())) for b in fake.bodies)
    assert {1, 2} == {b.get("n", 1) for b in fake.bodies}
    assert {"Bearer secret"} == fake.keys
    assert f"1 of {len(value['steps'])}: length 13 tokens" in err
    assert "s left]" in err
    assert "secret" not in out + err


def test_command_refuses_a_busy_server(fake):
    """Exit 2, one line, nothing sent."""
    fake.busy = 3
    _, err = result(tuner("--url", fake.url, "--gpu", "cpu"), code=2)

    assert "is busy: 3 requests run or wait" in err
    assert [] == fake.bodies


def test_command_names_what_the_time_left_out(fake):
    """A server that hangs: the steps that were not made are named, and it exits in time."""
    fake.hold.clear()
    out, _ = result(tuner("--url", fake.url, "--gpu", "cpu", "--budget", "1s", "--paths", "greedy"))

    assert "stopped: the time (1s) was up" in out
    assert "length 13 tokens" in out


def test_ctrl_c_says_what_was_done(fake):
    """SIGINT while a request is in flight: exit 130, the finished steps are shown, no traceback."""
    fake.hold.clear()
    program = tuner("--url", fake.url, "--gpu", "cpu")
    assert fake.entered.wait(60)
    program.send_signal(signal.SIGINT)
    out, _ = result(program, code=130)

    assert "stopped: interrupted" in out


def test_unknown_path_and_no_command_are_one_line(tmp_path):
    """A path that does not exist, nothing to derive from, a folder that is not there."""
    _, err = result(tuner("--paths", "greedy,beam", "--url", "x"), code=2)
    assert "no sampling path 'beam'" in err
    _, err = result(tuner("--script", tmp_path / "x.py"), code=2)
    assert "nothing to derive a warm-up from" in err


@pytest.fixture
def written(fake, tmp_path):
    """A script for a tiny model's server, and how to run it."""
    facts(tmp_path / "tiny")
    path = tmp_path / "warm_up.py"
    serve = ("vllm", "serve", tmp_path / "tiny", "--max-num-seqs", "4", "--max-model-len", "256")
    result(
        tuner(
            "--script", path, "--url", fake.url, "--gpu", "cpu", "--offline", "--paths", "greedy,logprobs", "--", *serve
        )
    )

    def call(**env):
        program = [sys.executable, "-I", "-S", path]
        return subprocess.run(program, capture_output=True, text=True, env=os.environ | env, timeout=60, check=False)

    return path, call


def test_script_needs_nothing_of_ours_and_sends_the_same(fake, written):
    """Only the standard library; the requests are those of the steps; it can be executed as it is."""
    path, call = written
    tree = ast.parse(path.read_text())
    imported = {a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    done = call()

    assert imported <= sys.stdlib_module_names
    assert os.access(path, os.X_OK)
    assert 0 == done.returncode, done.stderr
    expected = steps(Limits(256, 4, 2048), ("greedy", "logprobs"))
    assert len(expected) == sum(
        line.split()[0] in ("length", "batch", "mixed", "path") for line in done.stderr.splitlines()
    )
    asked = Counter((a.input_tokens, a.answers) for s in expected for a in s.asks)
    assert asked == Counter((len(b["prompt"]), b["n"]) for b in fake.bodies)


def test_script_leaves_a_busy_server_alone(fake, written):
    """Exit 2 and nothing sent."""
    fake.busy = 1
    done = written[1]()

    assert (2, []) == (done.returncode, fake.bodies)
    assert "is busy" in done.stderr


def test_probe_of_a_busy_server_is_well_and_leaves_no_marker(fake, written, tmp_path):
    """Users are served already: a health check must not fail for it."""
    fake.busy = 1
    done = written[1](WARM_UP_MARKER=str(tmp_path / "warm"))

    assert (0, [], False) == (done.returncode, fake.bodies, (tmp_path / "warm").exists())


def test_script_with_a_marker_warms_up_once(fake, written, tmp_path):
    """A probe calls it again and again: the second call only asks /health; a dead server fails the probe."""
    marker = tmp_path / "warm"
    first = written[1](WARM_UP_MARKER=str(marker))
    count = len(fake.bodies)
    again = written[1](WARM_UP_MARKER=str(marker))

    assert (0, 0) == (first.returncode, again.returncode)
    assert marker.exists()
    assert count == len(fake.bodies) > 0


def test_script_keeps_to_its_time_and_waits_for_the_server(fake, written):
    """No seconds: nothing is sent. Nobody there: it gives up, exit 1."""
    assert 0 == written[1](WARM_UP_SECONDS="0").returncode
    assert [] == fake.bodies
    text = script(steps(BOUNDS), "http://127.0.0.1:9", 5)
    program, now = [sys.executable, "-c", text], os.environ | {"WARM_UP_WAIT": "0"}
    done = subprocess.run(program, capture_output=True, text=True, env=now, timeout=60, check=False)
    assert (1, True) == (done.returncode, "does not answer /health" in done.stderr)


def test_address_cannot_leave_its_string():
    """A quote in an address stays inside the script's string."""
    text = script(steps(BOUNDS), 'http://h/"+__import__("os").getcwd()+"', 5)
    (assigned,) = [n for n in ast.parse(text).body if isinstance(n, ast.Assign) and n.targets[0].id == "URL"]

    assert 'http://h/"+__import__("os").getcwd()+"' in [
        n.value for n in ast.walk(assigned) if isinstance(n, ast.Constant)
    ]


def test_comparison_starts_twice_with_empty_caches(tmp_path):
    """Both servers are ours, each with caches of its own, gone afterwards; every kind has its four figures."""
    facts(tmp_path / "tiny")
    bench = run.Bench(LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "4")), tmp_path / "runs")
    bounds = Limits(256, 4, 128)
    with on_path(install(tmp_path / "bin")):
        found = run.compare(bench, run.probes(bounds, ("greedy", "chat", "logprobs")), steps(bounds, ("greedy",)),
                            end=time.monotonic() + 100, warm_up_s=50, seed=0, tell=lambda _: None)  # fmt: skip

    assert ["12 tokens", "51 tokens", "201 tokens", "logprobs"] == [row.name for row in found.firsts]
    assert all(min(row[1:]) > 0 for row in found.firsts)
    assert steps(bounds, ("greedy",)) == tuple(one.step for one in found.done)
    assert {"with-warm-up", "without-warm-up"} == {p.name for p in (tmp_path / "runs").iterdir()}


@contextmanager
def on_path(folder):
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
