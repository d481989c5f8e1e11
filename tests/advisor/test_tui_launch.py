"""Step 6 of the wizard, with a stand-in `vllm` that is run for real: started, watched, asked, mended, stopped, left."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest


pytest.importorskip("textual")

from textual.widgets import Input, Static

from vllm_advisor.launch import left
from vllm_advisor.testing import install_vllm
from vllm_advisor.tui import processes, serving, testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import ASCII, UTF8
from vllm_advisor.tui.screens.launch import FOREVER
from vllm_advisor.tui.state import State
from vllm_advisor.tui.testing import status, until
from vllm_advisor.tui.widgets.choice import Choice
from vllm_advisor.tui.widgets.lists import VimList
from vllm_advisor.tui.widgets.log import MOST, LogView
from vllm_advisor.tui.widgets.panes import Panes


DATA = Path(__file__).parents[1] / "data"
MODEL = "Qwen/Qwen3-8B"
LEFT = []  # children that a wizard of this very process left running: its own handles are no other wizard's


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The stand-in on the PATH; its log, counters and name; run folders and answers of the test's own."""
    monkeypatch.setenv("PATH", f"{install_vllm(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ADVISOR_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    monkeypatch.setenv("FAKE_LOG", str(DATA / "logs/healthy-0.33.log"))
    monkeypatch.setenv("FAKE_METRICS", str(DATA / "metrics/cpu-0.32.0-second.txt"))
    monkeypatch.setenv("FAKE_NAME", f"{MODEL}-FP8")
    yield tmp_path
    for noted in left.found(tmp_path / "state/children"):
        left.stop(noted)
    while LEFT:
        LEFT.pop()._handle.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wizard(place, glyphs=UTF8, plain=False, **fields):
    state = {"step": "launch", "gpu": "2xH100", "model": MODEL, "offline": True, "port": free_port(), **fields}
    return Wizard(State(**state), file=place / "state/s.json", glyphs=glyphs, plain=plain)


def drive(place, steps, size=(80, 24), **fields):
    """Run the wizard on its sixth step, hand its pilot to `steps`, and stop what it left."""

    async def run():
        app = wizard(place, **fields)
        async with testing.opened(app, size, forever=FOREVER) as pilot:
            try:
                return await steps(pilot)
            finally:
                for child in app.processes.running():
                    if child not in LEFT:
                        await asyncio.to_thread(child.stop)

    return asyncio.run(run())


async def press(pilot, *keys):
    await pilot.press(*keys)
    await testing.settled(pilot, forever=FOREVER)


async def click(pilot, selector):
    await pilot.click(selector)
    await testing.settled(pilot, forever=FOREVER)


def said(pilot, name):
    return str(pilot.app.screen.query_one(f"#{name}", Static).content)


def log(pilot):
    return [shown.short for shown in pilot.app.screen.query_one(LogView)._shown]


async def started(pilot):
    """Pressed `s`, and ready."""
    await press(pilot, "s")
    await until(pilot, lambda: "ready" in said(pilot, "state"))
    return pilot.app.processes.server


async def failed(pilot, key="s"):
    """Pressed `s`, and dead."""
    await press(pilot, key)
    await until(pilot, lambda: "ended" in said(pilot, "state"))


# -- a start that goes well


def test_from_start_to_the_first_words_by_keyboard(place):
    """1. start, 2. ready, 3. Enter in the prompt, 4. stop. Result: what the model says, and nothing runs any more."""

    async def steps(pilot):
        child = await started(pilot)
        phases, alive = said(pilot, "phases"), left.processes(child.left)
        await press(pilot, "enter")
        answer = said(pilot, "answer")
        await press(pilot, "escape", "x")
        await until(pilot, lambda: "ended" in said(pilot, "state"))
        return phases, len(alive), answer, left.processes(child.left), sorted((place / "state/children").glob("*"))

    phases, alive, answer, after, noted = drive(place, steps)
    assert phases.startswith("✓ settings  ✓ weights  ✓ KV cache  ✓ warm-up  ✓ serving")
    assert "1,753,632 tokens" in phases
    assert 2 == alive
    assert answer.startswith("The capital of France is Paris.\n(")
    assert ((), []) == (after, noted)


@pytest.mark.slow
def test_the_plans_own_command_is_what_runs(place):
    """The argv of the chosen plan with our address; the state's port."""

    async def steps(pilot):
        await started(pilot)
        return log(pilot)[0], pilot.app.screen.chosen.ranked.command.argv, pilot.app.state.port

    line, argv, port = drive(place, steps, plan=2)
    words = __import__("json").loads(line.partition(" ")[2])
    assert [*argv[1:], "--host", "127.0.0.1", "--port", str(port)] == words


@pytest.mark.slow
def test_start_and_stop_by_mouse(place):
    """The same with two clicks, and the panes by a third."""

    async def steps(pilot):
        await click(pilot, "#start")
        await until(pilot, lambda: "ready" in said(pilot, "state"))
        pilot.app.screen.query_one("#pane", Choice).show("log")
        row = pilot.app.screen.query_one("#pane").region
        await pilot.click("#pane", offset=(len("View  log  m"), 0))
        pane = pilot.app.screen.query_one("#pane", Choice).chosen
        await click(pilot, "#stop")
        await until(pilot, lambda: "ended" in said(pilot, "state"))
        return row.height, pane

    assert (1, "memory") == drive(place, steps)


@pytest.mark.slow
def test_memory_stands_beside_the_estimate(place):
    """As vLLM printed it, what was expected, and how far off."""

    async def steps(pilot):
        await started(pilot)
        await press(pilot, "escape", "v")
        return [" ".join(line.split()) for line in testing.text(pilot.app).splitlines()]

    shown = drive(place, steps, size=(100, 30))
    assert "Memory: as vLLM reports it, beside our estimate" in shown
    assert "weights, GiB 7.64 7.64 -0.0 %" in shown
    assert "KV cache, GiB 60.21 62.4 (61.0–64.0) +3.6 %" in shown


@pytest.mark.slow
def test_counters_are_read_again_and_again(place, monkeypatch):
    """Running, waiting, the cache: from the server's own /metrics."""
    monkeypatch.setattr(serving, "METRICS_S", 0.01)
    rounds = []

    async def steps(pilot):
        monkeypatch.setattr(Panes, "measured", lambda _, found, __: rounds.append(found))
        await started(pilot)
        await until(pilot, lambda: len(rounds) > 2)

    drive(place, steps)
    assert [4.0] * 3 == [found.seen.running for found in rounds[:3]]


@pytest.mark.slow
def test_a_server_without_counters_says_so(place, monkeypatch):
    """--disable-log-stats turns them off: one line instead of figures, and everything else works."""
    monkeypatch.setenv("FAKE_METRICS", "/dev/null")

    async def steps(pilot):
        await started(pilot)
        await until(pilot, lambda: "no counters" in testing.text(pilot.app))
        return testing.text(pilot.app)

    assert "no counters" in drive(place, steps, size=(120, 30))


@pytest.mark.slow
def test_leaving_the_step_keeps_the_server(place):
    """1. start, 2. another step, 3. back. Result: the same process, still ready."""

    async def steps(pilot):
        child = await started(pilot)
        await press(pilot, "escape", "5")
        away, alive = pilot.app.state.step, child.ended()
        await press(pilot, "6")
        return away, alive, said(pilot, "state"), pilot.app.processes.server is child

    away, alive, state, same = drive(place, steps)
    assert ("command", None, True) == (away, alive, same)
    assert "ready after" in state


@pytest.mark.slow
def test_a_second_start_is_refused(place):
    """One server a wizard: the first has to be stopped."""

    async def steps(pilot):
        await started(pilot)
        await press(pilot, "escape", "s")
        return status(pilot)

    assert "it runs already: x stops it" == drive(place, steps)


@pytest.mark.slow
def test_the_address_is_copied(place):
    """For a client."""

    async def steps(pilot):
        await started(pilot)
        await press(pilot, "escape", "c")
        return pilot.app.clipboard, pilot.app.state.port

    copied, port = drive(place, steps)
    assert f"http://127.0.0.1:{port}/v1" == copied


# -- the log


def test_the_log_is_searched(place):
    """`/`, the text, Enter; n and N walk; Escape ends it; what is not there is said."""

    async def steps(pilot):
        await started(pilot)
        await press(pilot, "escape")
        view = pilot.app.screen.query_one(LogView)
        await press(pilot, "slash", *"worker", "enter")
        first = view.match
        await press(pilot, "N")
        before, line = view.match, said(pilot, "log-state")
        await press(pilot, "slash")
        pilot.app.screen.query_one("#search", Input).value = "no such words"
        await press(pilot, "enter")
        nothing = status(pilot)
        await press(pilot, "escape")
        return first, before, line, nothing, view.match, pilot.app.screen.query_one("#search").display

    first, before, line, nothing, after, shown = drive(place, steps)
    assert first[0] == first[1] > 5
    assert (first[1] - 1, first[1]) == before
    assert f"match {before[0]} of {before[1]} (n, N)" in line
    assert "'no such words' is not in the log" == nothing
    assert ((0, 0), False) == (after, shown)


@pytest.mark.slow
def test_reading_back_stops_the_following(place):
    """`g` goes to the top and stays there; G follows again; w shows whole lines."""

    async def steps(pilot):
        await started(pilot)
        await press(pilot, "escape", "g")
        view = pilot.app.screen.query_one(LogView)
        top = said(pilot, "log-state")
        view.write([processes.Shown("", "new", "whole new")])
        await press(pilot)
        stays = view.scroll_offset.y
        await press(pilot, "G")
        end, follows = view.scroll_offset.y, view.is_followed
        await press(pilot, "w")
        return top, stays, end == view.max_scroll_y, follows, "whole new" in testing.text(pilot.app)

    top, stays, at_end, follows, whole = drive(place, steps)
    assert "paused: G follows" in top
    assert (0, True, True, True) == (stays, at_end, follows, whole)


def test_a_log_is_bounded(place):
    """The last lines are kept, all are counted, and whoever reads stays where he is."""

    async def steps(pilot):
        view = LogView()
        await pilot.app.screen.mount(view)
        lines = [processes.Shown("", f"line {n}", "") for n in range(MOST + 10)]
        view.write(lines[:MOST])
        view.write(lines[MOST:])
        return len(view._shown), view.line_count, view._shown[0].short

    assert (MOST, MOST + 10, "line 10") == drive(place, steps)


def test_a_log_shows_no_secret_and_steers_no_terminal(monkeypatch):
    """Tokens, the home folder, escape sequences, carriage returns and control characters."""
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-s3cr3t")
    raw = b"\x1b[32mINFO 11-29 08:00:01 [a.py:1] hf_abcdefghij12 s3cr3t-s3cr3t \x1b]0;title\x07\x08x\x1b[0m\r\n"
    first, second = processes.Lines().take(raw + b"50%\r100%\n")
    assert ("INFO", "hf_*** ***  x") == (first.level, first.short)
    assert "100%" == second.short


# -- a start that fails


def test_a_failure_is_explained_and_its_remedy_applied(place, monkeypatch):
    """1. vLLM dies for want of cache, 2. the doctor names it, 3. Enter, 4. start. Result: the shorter context runs."""
    monkeypatch.setenv("FAKE_LOG", str(DATA / "logs/kv-too-small.log"))
    monkeypatch.setenv("FAKE", "dies")

    async def steps(pilot):
        await failed(pilot)
        assert () == left.processes(pilot.app.screen.child.left)  # its engine was still there when it died
        reading, phases = said(pilot, "diagnosis"), said(pilot, "phases")
        rows = [str(option.prompt) for option in pilot.app.screen.query_one("#fixes", VimList).options]
        await press(pilot, "enter")
        context, argv = pilot.app.state.load.context, pilot.app.screen.chosen.ranked.command.argv
        monkeypatch.setenv("FAKE", "ready")
        monkeypatch.setenv("FAKE_LOG", str(DATA / "logs/healthy-0.33.log"))
        await started(pilot)
        return reading, phases, rows, context, argv, log(pilot)[0], said(pilot, "diagnosis")

    reading, phases, rows, context, argv, line, after = drive(place, steps)
    assert reading.startswith(
        "✗ It did not start: the KV cache is too small for one request (DOC-01).\n  One request of"
    )
    assert "✓ weights  ✗ KV cache" in phases
    assert rows == ["At most 38,912 tokens a request: --max-model-len 38912  (the log's own figures; Enter applies it)"]
    assert "38912" == context
    assert "38912" in argv
    assert '"--max-model-len", "38912"' in line
    assert "" == after


@pytest.mark.slow
def test_an_applied_remedy_can_be_undone(place, monkeypatch):
    """It is an edit like any other."""
    monkeypatch.setenv("FAKE_LOG", str(DATA / "logs/kv-too-small.log"))
    monkeypatch.setenv("FAKE", "dies")

    async def steps(pilot):
        await failed(pilot)
        await press(pilot, "enter")
        await press(pilot, "ctrl+z")
        return pilot.app.state.load.context

    assert drive(place, steps) is None


@pytest.mark.slow
def test_a_plan_chosen_by_hand_keeps_its_layout(place, monkeypatch):
    """The remedy is one of that plan, not of the best one."""
    monkeypatch.setenv("FAKE_LOG", str(DATA / "logs/kv-too-small.log"))
    monkeypatch.setenv("FAKE", "dies")

    async def steps(pilot):
        plan = pilot.app.screen.chosen.ranked.plan
        await failed(pilot)
        await press(pilot, "enter")
        return plan, pilot.app.state.limits, pilot.app.state.plan

    plan, limits, number = drive(place, steps, plan=3)
    assert plan.tensor_parallel_size == limits.tensor_parallel_size
    assert plan.data_parallel_size == limits.data_parallel_size
    assert 1 == number


@pytest.mark.slow
def test_an_unknown_failure_shows_the_last_words(place, monkeypatch):
    """And the token in them is not shown."""
    monkeypatch.delenv("FAKE_LOG")
    monkeypatch.setenv("FAKE", "dies")

    async def steps(pilot):
        await failed(pilot)
        return said(pilot, "diagnosis"), said(pilot, "state"), testing.text(pilot.app)

    reading, state, shown = drive(place, steps)
    assert "the engine died and the reason is not in this log (DOC-84)" in reading
    assert "Its last words:\n  RuntimeError: Engine core initialization failed." in reading
    assert "○ ended (exit code 1)" == state
    assert "hf_abcdefghij" not in shown


@pytest.mark.slow
def test_a_server_that_dies_while_it_serves_is_seen(place):
    """The signal is named; a new start is possible."""

    async def steps(pilot):
        child = await started(pilot)
        os.killpg(child.pid, signal.SIGKILL)
        await until(pilot, lambda: "ended" in said(pilot, "state"))
        return said(pilot, "state"), pilot.app.processes.server, pilot.app.screen.query_one("#start").display

    assert ("○ ended (SIGKILL)", None, True) == drive(place, steps)


def test_a_port_in_use_is_one_line(place):
    """Nothing is started, and the button works again."""

    async def steps(pilot):
        await press(pilot, "s")
        return status(pilot), pilot.app.screen.query_one("#start").disabled

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line, disabled = drive(place, steps, port=port)
    assert f"port {port} on 127.0.0.1 cannot be used: Address already in use  (choose another one with --port)" in line
    assert not disabled
    assert [] == list((place / "state/children").glob("*"))


def test_no_vllm_is_one_line(place, monkeypatch):
    """And which option finds another one."""
    monkeypatch.setenv("PATH", str(place))

    async def steps(pilot):
        await press(pilot, "s")
        return status(pilot)

    assert "vllm cannot be started: No such file or directory  (install vLLM" in drive(place, steps)


@pytest.mark.slow
def test_a_python_that_does_not_run_is_one_line(place):
    """As `--vllm-python` says it."""

    async def steps(pilot):
        pilot.app.screen.query_one("#python", Input).focus()
        await press(pilot, *"no_such", "enter")
        kept = pilot.app.state.vllm_python
        await press(pilot, "enter")
        return kept, status(pilot)

    kept, line = drive(place, steps)
    assert "no_such" == kept
    assert "no_such does not run" in line


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["0", "70000", ""])
def test_what_is_no_port_is_refused(place, typed):
    """The state keeps the last good one."""

    async def steps(pilot):
        field, before = pilot.app.screen.query_one("#port", Input), pilot.app.state.port
        field.focus()
        field.value = typed
        await press(pilot, "enter")
        return status(pilot), before == pilot.app.state.port

    assert (f"{typed!r} is no port: 1 to 65535", True) == drive(place, steps)


def test_without_a_plan_nothing_can_be_started(place):
    """Nor stopped, nor asked."""

    async def steps(pilot):
        why = status(pilot)
        await press(pilot, "s")
        start = status(pilot)
        await press(pilot, "x")
        return why, start, status(pilot)

    why, start, stop = drive(place, steps, model="")
    assert "no model is chosen yet" in why
    assert ("there is no plan to start: press 4", "nothing runs here") == (start, stop)


@pytest.mark.slow
def test_a_plan_for_another_machine_is_warned_about(place):
    """It may be meant; it may not."""

    async def steps(pilot):
        return said(pilot, "will")

    assert "! This plan is for 2xNVIDIA H100 SXM; here it may not start." in drive(place, steps)
    assert "!" not in drive(place, steps, gpu="cpu", model="Qwen/Qwen3-0.6B")


# -- the end, and what comes after


def test_quitting_asks_and_stops(place):
    """1. a server runs, 2. Ctrl-Q, 3. s. Result: the app is gone, and so is the server."""

    async def steps(pilot):
        child = await started(pilot)
        await press(pilot, "escape", "ctrl+q")
        asked = testing.text(pilot.app)
        await press(pilot, "ctrl+q")  # a second one asks nothing anew
        await pilot.press("s")
        await until(pilot, lambda: pilot.app._exit)
        return asked, left.processes(child.left), pilot.app.return_value

    asked, alive, state = drive(place, steps)
    assert "What becomes of it?" in asked
    assert "vLLM serves" in asked
    assert () == alive
    assert MODEL == state.model


def test_quitting_can_leave_it_and_the_next_wizard_finds_it(place):
    """1. leave it running, 2. the next wizard offers it, 3. shown there: ready, with its log; 4. stopped from there."""

    async def leave(pilot):
        child = await started(pilot)
        await press(pilot, "escape", "ctrl+q")
        await pilot.press("l")
        await until(pilot, lambda: pilot.app._exit)
        LEFT.append(child)
        return child.left

    async def find(pilot):
        await until(pilot, lambda: "From an earlier wizard" in testing.text(pilot.app))
        asked = testing.text(pilot.app)
        await pilot.press("a")
        await until(pilot, lambda: "ready" in said(pilot, "state"))
        state, lines = said(pilot, "state"), len(log(pilot))
        await press(pilot, "enter")
        answer = said(pilot, "answer")
        await press(pilot, "escape", "x")
        await until(pilot, lambda: "ended" in said(pilot, "state"))
        return asked, state, lines, answer

    child = drive(place, leave)
    asked, state, lines, answer = drive(place, find, step="hardware")
    assert child.url in asked
    assert f"ready, found running: {child.url}/v1, process {child.pid}" in state
    assert lines > 30
    assert "Paris." in answer
    assert () == left.processes(child)


def test_a_found_server_is_shown_where_its_step_is_there_already(place):
    """As after a kill in the step of launch: it is drawn before the answer arrives, and once more after that."""

    async def leave(pilot):
        LEFT.append(await started(pilot))
        pilot.app.processes.server = None

    async def find(pilot):
        app, loop = pilot.app, asyncio.get_running_loop()
        await until(pilot, lambda: "From an earlier wizard" in testing.text(app))
        soon = app.call_next  # which brings the answer to the app, while the screen hears that it is on top again
        app.call_next = lambda callback, *args: loop.call_later(0.3, partial(soon, callback, *args))
        await pilot.press("a")
        del app.call_next
        await until(pilot, lambda: "ready" in said(pilot, "state"))
        await press(pilot, "escape", "x")
        await until(pilot, lambda: "ended" in said(pilot, "state"))

    drive(place, leave)
    drive(place, find)


@pytest.mark.slow
def test_a_found_server_can_be_stopped_or_left_alone(place):
    """Escape leaves it as it is, `s` ends it."""

    async def leave(pilot):
        LEFT.append(await started(pilot))
        pilot.app.processes.server = None
        return LEFT[-1].left

    async def alone(pilot):
        await until(pilot, lambda: "From an earlier wizard" in testing.text(pilot.app))
        await press(pilot, "escape")

    async def stop(pilot):
        await until(pilot, lambda: "From an earlier wizard" in testing.text(pilot.app))
        await press(pilot, "s")

    child = drive(place, leave)
    drive(place, alone)
    assert left.is_alive(child)
    drive(place, stop)
    assert not left.is_alive(child)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.state import State

async def run():
    state = State(step="launch", gpu="2xH100", model="Qwen/Qwen3-8B", offline=True, port=int(sys.argv[2]))
    app = Wizard(state, file=Path(sys.argv[1]))
    async with testing.opened(app, forever=("log", "metrics")) as pilot:
        await pilot.press("s")
        await testing.until(pilot, lambda: app.processes.server)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(run())
"""


def test_a_killed_wizard_leaves_no_server_unnoticed(place):
    """1. start, 2. kill -9 of the wizard. Result: the server lives, the next wizard finds its note and stops it."""
    argv = [sys.executable, "-c", KILLED, str(place / "state/s.json"), str(free_port())]
    done = subprocess.run(argv, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert -signal.SIGKILL == done.returncode
    (child,) = processes.Children(place / "state/children").orphans("server")
    assert f"{MODEL}-FP8" == child.model
    assert 2 == len(left.processes(child.left))
    child.stop()
    assert () == left.processes(child.left)
    assert [] == list((place / "state/children").glob("*"))


# -- how it looks


class Recorded:
    """A server that is none: its log and counters were recorded."""

    def __init__(self, name):
        self.left = left.Left("server", "/runs/1", 4242, f"{MODEL}-FP8", "http://127.0.0.1:8000")
        self.raw = (DATA / "logs" / name).read_bytes()
        self.url, self.model, self.pid, self.log = self.left.url, self.left.model, 4242, Path("/runs/1/server.log")
        self.is_found = False

    def ended(self):
        return None


async def recorded(pilot, monkeypatch, name):
    """The screen with that log read, and no process behind it."""
    monkeypatch.setattr(serving, "follow", lambda *_: None)
    monkeypatch.setattr(serving, "measure", lambda *_: None)
    screen, child = pilot.app.screen, Recorded(name)
    screen.clock = lambda: 0.0
    facts, model = screen.chosen.answer.found.facts, screen.chosen.ranked.model
    screen._watch(child)
    await testing.settled(pilot)
    from vllm_advisor.doctor.diagnosis import Watch

    watch = Watch()
    watch.feed(child.raw)
    comparing = serving._Comparing(lambda: serving.Expected(facts.node, facts.vllm.version, model))
    lines = tuple(processes.Lines().take(child.raw))
    screen.post_message(serving.Grew(child, lines, comparing.read(watch.finding())))
    await testing.settled(pilot)
    return screen, child


@pytest.mark.slow
def test_a_healthy_start_as_it_looks(place, monkeypatch):
    """Log, memory, first words and counters: one after the other, or side by side."""
    from vllm_advisor.doctor.live import answers
    from vllm_advisor.doctor.live_facts import observe
    from vllm_advisor.hardware import Unknown
    from vllm_advisor.vllm.live import Live
    from vllm_advisor.vllm.metrics import parse

    first, second = (parse((DATA / f"metrics/cpu-0.32.0-{n}.txt").read_text()) for n in ("first", "second"))

    async def steps(pilot):
        screen, child = await recorded(pilot, monkeypatch, "healthy-0.33.log")
        await testing.snapshots(pilot, "launch-log")
        await pilot.resize_terminal(80, 24)
        screen.post_message(serving.Answering(child))
        live = Live(child.url, True, "0.33.0", (), first, second, 2.0)
        seen = observe(live)
        screen.post_message(serving.Measured(child, seen, answers(live, seen, Unknown(""))))
        screen.query_one(Panes).answer("The capital of France is Paris.\n(0.4 s)")
        await testing.settled(pilot)
        await testing.snapshots(pilot, "launch-try")
        await press(pilot, "escape", "v")
        await pilot.resize_terminal(80, 24)
        await testing.settled(pilot)
        testing.snapshot(pilot.app, "launch-memory")

    drive(place, steps, port=8000)


def test_a_failed_start_as_it_looks(place, monkeypatch):
    """The cause and its remedy above the log."""

    async def steps(pilot):
        screen, child = await recorded(pilot, monkeypatch, "kv-too-small.log")
        screen.post_message(serving.Ended(child, "exit code 1"))
        await testing.settled(pilot)
        await testing.snapshots(pilot, "launch-failed")

    drive(place, steps, port=8000)


def test_before_the_start_as_it_looks(place):
    """Where, on which port, and what would run."""

    async def steps(pilot):
        await testing.snapshots(pilot, "launch")

    drive(place, steps, port=8000)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(20, 5), (40, 10)])
def test_tiny_terminals_scroll(place, monkeypatch, size):
    """Nothing crashes, whatever is shown."""

    async def steps(pilot):
        await recorded(pilot, monkeypatch, "kv-too-small.log")
        await press(pilot, "v", "v", "escape", "j", "k", "G")
        return testing.text(pilot.app)

    assert drive(place, steps, size=size)


@pytest.mark.slow
def test_ascii_and_plain(place, monkeypatch):
    """No sign that such a terminal lacks; no box for a screen reader."""

    async def steps(pilot):
        await recorded(pilot, monkeypatch, "healthy-0.33.log")
        return testing.text(pilot.app)

    shown = drive(place, steps, glyphs=ASCII)
    assert shown.isascii()
    assert "x settings  x weights" in shown
    assert "╭" not in drive(place, steps, plain=True)


@pytest.mark.slow
def test_nothing_holds_the_event_loop(place, monkeypatch):
    """A long log arrives at once, is searched, and walked through."""

    async def steps(pilot):
        screen, child = await recorded(pilot, monkeypatch, "healthy-0.33.log")
        lines = tuple(processes.Lines().take(child.raw * 100))

        async def scenario():
            screen.post_message(serving.Grew(child, lines, screen.reading))
            await press(pilot, "slash", *"backend", "enter", "n", "g", "G")

        await testing.responsive(scenario)

    drive(place, steps)
