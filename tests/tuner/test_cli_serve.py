"""`tuner serve` as it is typed: events, result, exit codes, and what is left after a kill or Ctrl-C."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from vllm_advisor.launch.child import _process_stats
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Fingerprint, Measurement, Origin, Profile, Provenance, TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.units import Interval
from vllm_advisor.workload import Objective, Workload
from vllm_tuner.testing import KNEE, SHIFT, facts, install


START = "from vllm_tuner.cli.app import main; main()"
LOAD = ("--input-tokens", "32", "--output-tokens", "4", "--concurrency", "8", "--context", "256")


@pytest.fixture
def place(tmp_path):
    """A folder with the stand-in, a tiny model and room for results."""
    install(tmp_path / "bin")
    facts(tmp_path / "tiny")
    return tmp_path


def command(place, *more):
    argv = [
        sys.executable,
        "-c",
        START,
        "serve",
        str(place / "tiny"),
        "--gpu",
        "cpu",
        "--offline",
        "--vllm",
        "0.33.0",
        "--tool",
        "own",
    ]
    where = ["--store", str(place / "s.db"), "--folder", str(place / "runs")]
    return [*argv, *LOAD, *where, "--objective", "throughput", "--effort", "quick", "--only", "1", *more]


def environment(place):
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": path}


def tuner(place, *more, code=0):
    done = subprocess.run(
        command(place, *more), capture_output=True, text=True, env=environment(place), timeout=180, check=False
    )
    assert "Traceback" not in done.stderr
    assert code == done.returncode, done.stderr
    return done


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def begun(place, count):
    """The program after `count` trials have ended."""
    program = subprocess.Popen(
        command(place, "--json-lines"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(place),
    )
    for line in program.stdout:
        count -= json.loads(line).get("message") == "complete"
        if not count:
            return program
    raise AssertionError(program.stderr.read())


def servers(place):
    """Stand-ins of this place that still run."""
    numbers = [int(stat.partition(" ")[0]) for stat in _process_stats()]
    commands = []
    for number in numbers:
        try:
            commands.append(Path(f"/proc/{number}/cmdline").read_bytes().decode())
        except OSError:
            continue
    return [c for c in commands if str(place / "bin" / "vllm") in c]


def leases(place):
    """Who has each node, as host and process; "" for nobody."""
    with closing(sqlite3.connect(place / "s.db")) as store:
        return [found.rpartition(":")[0] for (found,) in store.execute("SELECT lease_owner FROM nodes")]


def kept(place):
    with ProfileStore.open(place / "s.db") as store:
        return store.trials(), store.profiles()


@pytest.mark.slow
def test_events_are_json_lines_and_the_last_is_the_result(place):
    """A program can follow: every line is JSON; the result names the best, its gain and its command."""
    events = lines(tuner(place, "--json-lines").stdout)
    result = events[-1]

    assert ("opened", "defaults", "trial") == tuple(event["event"] for event in events[:3])
    assert (1, "result", "better") == (result["schema"], result["event"], result["verdict"])
    assert f"--max-num-seqs {KNEE}" in " ".join(result["argv"])
    assert result["gain"][0] > 0.3
    trials, profiles = kept(place)
    assert {t.id for t in trials} == {t["trial"] for t in result["trials"]}
    assert (result["profile"], True) == (profiles[0].id, result["chosen"] in profiles[0].provenance.trials)
    assert [] == servers(place)


@pytest.mark.slow
def test_the_text_has_the_trials_the_chart_and_the_command(place):
    """For people: progress with the time left on stderr, the answer on stdout; a second run measures nothing anew."""
    first = tuner(place, "--budget", "2m", "--svg", str(place / "chart.svg"))
    again = tuner(place, "--budget", "2m")

    assert re.search(r"^\[1:\d\d left\] trial 2 started \(1 of at most 6\): TP1", first.stderr, re.MULTILINE)
    assert re.search(r"\* +\d+ +TP1, 4 seqs", first.stdout)
    assert "(vLLM's defaults)" in first.stdout
    assert re.search(r"^vllm serve .*--max-num-seqs 4", first.stdout, re.MULTILINE)
    assert "kept as profile" in first.stdout
    assert (place / "chart.svg").read_text().startswith("<svg ")
    assert "started" not in again.stderr
    assert "known from before" in again.stderr


@pytest.mark.slow
def test_a_killed_search_loses_at_most_the_running_trial(place):
    """1. kill -9 after two trials, 2. the same command again. Result: both are known, the lost one has its reason."""
    program = begun(place, 2)
    program.kill()
    program.communicate()
    events = lines(tuner(place, "--json-lines").stdout)
    trials, _ = kept(place)

    assert 2 <= sum(event.get("message", "").startswith("known from before") for event in events)
    assert "better" == events[-1]["verdict"]
    assert TrialState.RUNNING not in {trial.state for trial in trials}
    assert {"its process ended without a result"} >= {t.reason for t in trials if t.state is TrialState.FAILED}
    assert [] == servers(place)


@pytest.mark.slow
def test_ctrl_c_keeps_all_and_leaves_nothing_running(place):
    """SIGINT in a trial: exit code 130, one line that says how to go on, the trial ABORTED, no server left."""
    program = begun(place, 2)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=60)
    trials, profiles = kept(place)

    assert 130 == program.returncode, err
    assert "finished trials are kept: run the same command again" in err
    assert 2 <= sum(trial.state is TrialState.COMPLETE for trial in trials)
    assert TrialState.RUNNING not in {trial.state for trial in trials}
    assert ((), []) == (profiles, servers(place))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--only", "9"), "there is no plan 9"),
        (("--only", "x"), "'x' is no list of plans"),
        (("--gpu", "H100"), "--gpu H100: a search measures this machine"),
        (("--budget", "0m"), "'0m' is no time"),
        (("--effort", "heroic"), "no effort 'heroic'"),
        (("--objective", "fun"), "no objective 'fun'"),
        (("--quality", "some"), "no level of quality 'some'"),
    ],
)
def test_what_cannot_be_is_one_line(place, more, says):
    """Exit code 2, before anything is started."""
    done = tuner(place, *more, code=2)

    assert (f"error: {says}", "") == (done.stderr.splitlines()[-2][: len(f"error: {says}")], done.stdout)
    assert not (place / "runs").exists()


def test_two_searches_do_not_measure_each_other(place):
    """The node's lease: the second one is told who measures."""
    with ProfileStore.open(place / "s.db") as store:
        assert store.acquire(socket.gethostname(), seconds=600)
        done = tuner(place, code=2)
    assert "another search measures on" in done.stderr


def test_without_a_vllm_there_is_nothing_to_measure(place):
    """One line with the option that helps."""
    (place / "bin" / "vllm").unlink()
    done = subprocess.run(
        command(place), capture_output=True, text=True, env=environment(place) | {"PATH": "/usr/bin:/bin"}, check=False
    )

    assert (2, True, True) == (done.returncode, "no vllm on the PATH" in done.stderr, "--vllm-python" in done.stderr)


def test_help_is_fast_to_read_and_names_the_command():
    """`tuner --help` and `tuner serve --help` import neither optuna, torch nor a database."""
    program = f"""
import sys
sys.argv[1:] = ["serve", "--help"]
try:
    {START.replace("; ", chr(10) + "    ")}
except SystemExit:
    print([m for m in ("optuna", "torch", "sqlmodel", "httpx", "vllm") if m in sys.modules])
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=True)

    assert "[]" == done.stdout.splitlines()[-1]
    assert "--json-lines" in done.stdout


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_signal_ends_it_in_order(place, number, times):
    """SIGTERM and Ctrl-C, once or twice, the second in the clean-up: what ended is kept, nothing runs on or is held."""
    program = begun(place, 1)
    assert [f"{socket.gethostname()}:{program.pid}"] == leases(place)
    for _ in range(times):
        program.send_signal(number)
    _, err = program.communicate(timeout=60)
    trials, profiles = kept(place)
    assert [""] == leases(place)

    assert (130 if number is signal.SIGINT else -number) == program.returncode, err
    assert 1 <= sum(trial.state is TrialState.COMPLETE for trial in trials)
    assert {TrialState.COMPLETE, TrialState.ABORTED} >= {trial.state for trial in trials}
    assert ((), []) == (profiles, servers(place))


def imported(place, **changes):
    """A profile from elsewhere in a new store: the plan that the stand-in likes best, with a flag beside it."""
    load = Workload("test", 32, 4, 8, context=256, objective=Objective.THROUGHPUT)
    plan = Plan("tiny", max_model_len=256, max_num_seqs=KNEE, kv_cache_memory_bytes=1 << 30, **changes)
    figures = (("output_tok_s", Interval(1.0, 1.0, 1.0)),)
    print_ = Fingerprint((("gpus", "another"),), (("gpus", "another"),))
    flags = (("--no-enable-prefix-caching", True),)
    made = Profile(print_, plan, Measurement(figures, load), (), Provenance(Origin.IMPORTED), "tiny", flags=flags)
    with ProfileStore.open(place / "s.db") as store:
        return store.save_profile(made)


@pytest.mark.slow
def test_a_stored_profile_is_measured_as_it_is(place):
    """1. a profile from elsewhere, 2. --profile --json. Result: that plan and flag, validated, and one of ours."""
    number = imported(place)
    done = tuner(place, "--profile", number[:8], "--json", "--budget", "2m")
    result = json.loads(done.stdout)
    trials, profiles = kept(place)
    by_id = {profile.id: profile for profile in profiles}
    theirs, ours = by_id[number], by_id[result["profile"]]

    assert (1, "result", True) == (result["schema"], result["event"], " left] trial " in done.stderr)
    assert [{}, {"--no-enable-prefix-caching": True}] == [dict(trial.settings) for trial in trials]
    assert KNEE == trials[1].plan.max_num_seqs
    assert "--no-enable-prefix-caching" in result["argv"]
    assert (True, True) == (theirs.is_truth, theirs.provenance.validated_at > 0)
    assert theirs.measurement.figure("output_tok_s").mid > 1.0
    assert (Origin.MEASURED, theirs.flags, str(place / "tiny")) == (
        ours.provenance.origin,
        ours.flags,
        ours.plan.checkpoint,
    )


@pytest.mark.slow
def test_what_runs_has_to_be_beaten(place):
    """Against a command of one sequence at a time: it is measured as the incumbent, and what is better is kept."""
    running = f"vllm serve {place / 'tiny'} --max-num-seqs 1 --api-key secret"
    done = tuner(place, "--against", running, "--json", "--budget", "2m")
    result = json.loads(done.stdout)
    trials, profiles = kept(place)

    assert ("better", 1) == (result["verdict"], trials[0].plan.max_num_seqs)
    assert 1 < profiles[0].plan.max_num_seqs
    assert "secret" not in done.stderr + done.stdout
    assert "the plan that runs: TP1, 1 seqs" in done.stderr


@pytest.mark.slow
def test_a_stored_profile_that_answers_worse_stays_a_prior(place, monkeypatch):
    """Half a nat off: exit code 1, the reason in a line, nothing validated and nothing of it stored."""
    monkeypatch.setenv(SHIFT, "0.5")
    number = imported(place, quantization="fp8_per_channel")
    done = tuner(place, "--profile", number, "--json", "--budget", "2m", code=1)
    _, profiles = kept(place)

    assert f"profile {number} stays what it was: KL divergence is" in done.stderr
    assert [(number, False)] == [(profile.id, profile.is_truth) for profile in profiles]


def test_a_stored_profile_needs_its_own_model(place):
    """Of another model: exit code 2; without one of that id: 4."""
    number = imported(place)
    facts(place / "other")
    argv = command(place, "--profile", number)
    argv[argv.index(str(place / "tiny"))] = str(place / "other")
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(place), check=False)

    assert (2, True) == (done.returncode, "is of tiny" in done.stderr)
    assert "no profile" in tuner(place, "--profile", "ffff", code=4).stderr


def advisor(place, store, *arguments):
    """`advisor …` beside the stand-in, with another store; what it printed."""
    environment_ = environment(place) | {"ADVISOR_DATABASE_URL": f"sqlite:///{place / store}"}
    argv = [sys.executable, "-m", "vllm_advisor", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment_, cwd=place, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_recommendation_rests_on_what_was_measured(place):
    """1. search, 2. recommend: the plan is first, 3. export, import elsewhere, recommend: it is a prior there."""
    (place / "bin" / "python").symlink_to(sys.executable)
    for name in ("vllm-0.33.0", "torch-2.13.0"):
        (place / "lib" / "python3.11" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    (place / "tiny" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    result = json.loads(tuner(place, "--json", "--trials", "3", "--budget", "2m").stdout)
    question = ("recommend", place / "tiny", "--gpu", "cpu", "--offline", "--vllm", "0.33.0", *LOAD)
    question = (*question, "--objective", "throughput", "--json")
    first = json.loads(advisor(place, "s.db", *question))
    advisor(place, "s.db", "profiles", "export", result["profile"], "--out", "carried.toml")
    advisor(place, "new.db", "profiles", "import", "carried.toml")
    second = json.loads(advisor(place, "new.db", *question))
    (prior,) = second["profiles"]["priors"]

    assert (1, result["profile"]) == (first["profiles"]["measured_plan"], first["profiles"]["profile"])
    assert result["argv"] == first["plans"][0]["command"]["argv"]
    assert None is second["profiles"]["measured_plan"]
    assert f"profile {prior} is a prior only: it was imported" in second["profiles"]["remarks"][0]
    # Where this machine is so busy that the figures are beyond belief, the estimate stays as it was.
    corrected = {"corrected by 1 measurement on machines like this one"}
    assert corrected >= set(second["plans"][0]["estimate"]["notes"])
