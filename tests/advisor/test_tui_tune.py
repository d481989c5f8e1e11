"""Step 7 of the wizard, with a stand-in `tuner` that prints recorded events: progress, result, stopping, errors."""

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest


pytest.importorskip("textual")

from textual.widgets import Input, Static

from vllm_advisor.candidates import Restrictions
from vllm_advisor.launch import left
from vllm_advisor.probe import host
from vllm_advisor.question import Load
from vllm_advisor.testing import install_tuner, machine_files, write_tree
from vllm_advisor.tui import searched, testing, tuning
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import ASCII, UTF8
from vllm_advisor.tui.screens.tune import EFFORTS, FOREVER
from vllm_advisor.tui.state import State
from vllm_advisor.tui.testing import status, until
from vllm_advisor.tui.widgets.choice import Choice
from vllm_advisor.tui.widgets.keyed import KeyTable


DATA = Path(__file__).parents[1] / "data/tuner"
BETTER, NO_DEFAULTS = DATA / "search-better.jsonl", DATA / "search-no-defaults.jsonl"
NOW = 1_700_000_010.0  # while the fourth trial runs
LEFT = []


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The stand-in on the PATH, with a search that is won; run folders, answers and a processor of the test's own."""
    machine = write_tree(tmp_path / "machine", machine_files(nodes=1))
    for name in ("read", "cpu_gpu", "cpu_warnings"):  # another processor may have another best plan
        monkeypatch.setattr(host, name, partial(getattr(host, name), machine))
    monkeypatch.setenv("PATH", f"{install_tuner(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ADVISOR_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    monkeypatch.setenv("FAKE_EVENTS", str(BETTER))
    yield tmp_path
    for noted in left.found(tmp_path / "state/children"):
        left.stop(noted)
    while LEFT:
        LEFT.pop()._handle.wait()


def drive(place, steps, size=(80, 24), glyphs=UTF8, plain=False, **fields):
    """Run the wizard on its last step, hand its pilot to `steps`, and stop what it left."""

    async def run():
        state = State(**{"step": "tune", "gpu": "cpu", "model": "Qwen/Qwen3-0.6B", "offline": True, **fields})
        app = Wizard(state, file=place / "state/s.json", glyphs=glyphs, plain=plain)
        async with testing.opened(app, size, forever=FOREVER) as pilot:
            pilot.app.screen.clock = lambda: NOW
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


def said(pilot, name):
    return str(pilot.app.screen.query_one(f"#{name}", Static).content)


def trials(pilot):
    table = pilot.app.screen.query_one(KeyTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


async def over(pilot):
    """`s`, and its end."""
    await press(pilot, "s")
    await until(pilot, lambda: "ended" in said(pilot, "state"))


def argv(place):
    file = next((place / "home").rglob("errors.log"))
    return json.loads(file.read_text().partition("argv ")[2].splitlines()[0])


def folded(file, most=None):
    progress = tuning.Progress()
    for event in tuning.events(file.read_bytes().splitlines()[:most]):
        progress.take(event)
    return progress


# -- a search


def test_a_search_from_start_to_its_result(place):
    """Every trial, the gain with its interval, the profile, and the command that won, to be copied."""

    async def steps(pilot):
        await over(pilot)
        await press(pilot, "y")
        return trials(pilot), said(pilot, "result"), pilot.app.clipboard, pilot.app.processes.kept

    rows, result, copied, kept = drive(place, steps)
    assert 7 == len(rows)
    assert ["·", "1", "TP1, 128 seqs, 2048 tokens (defaults)", "116", "55.7 ms", "96.7 ms", "complete"] == rows[0]
    assert ["✓", "3", "TP1, 4 seqs, 2048 tokens"] == rows[2][:3]
    assert "✓ better: run trial 3" in result
    assert "trial 3 against vLLM's defaults: +135.6 % (+80.8 % to +157.2 %) in 11 rounds" in result
    assert "Kept as profile e995aa2fbb25: `advisor recommend` puts it first from now on" in result
    assert copied.startswith("vllm serve /models/tiny --max-model-len 256 --max-num-seqs 4")
    assert 1 == kept


@pytest.mark.slow
def test_a_search_by_mouse(place, monkeypatch):
    """Effort, start, stop: a click each."""
    monkeypatch.setenv("FAKE_LINES", "9")

    async def steps(pilot):
        await pilot.click("#effort", offset=(len("Effort  [quick] n"), 0))
        await pilot.click("#start")
        await until(pilot, lambda: len(trials(pilot)) == 4)
        await pilot.click("#stop")
        await until(pilot, lambda: "ended" in said(pilot, "state"))
        return argv(place), status(pilot)

    words, line = drive(place, steps)
    assert "normal" == words[words.index("--effort") + 1]
    assert "stopped: what was measured is kept, and the same search goes on from there" == line


def test_a_running_search_says_how_far_it_is(place, monkeypatch):
    """The trial that runs, the time that is left, and the best so far, which nobody calls proven."""
    monkeypatch.setenv("FAKE_LINES", "9")

    async def steps(pilot):
        await press(pilot, "s")
        await until(pilot, lambda: len(trials(pilot)) == 4)
        found = said(pilot, "state"), said(pilot, "time"), said(pilot, "best"), trials(pilot)[3]
        await press(pilot, "x")
        await until(pilot, lambda: "ended" in said(pilot, "state"))
        return *found, sorted((place / "state/children").glob("*"))

    state, time, best, row, noted = drive(place, steps)
    assert "● trial 4: TP1, 4 seqs, 512 tokens (3 of at most 6)" == state
    assert time.endswith("1% of the time is used, 14:49 left")
    assert (
        "Best so far: trial 3, TP1, 4 seqs, 2048 tokens: 310 tok/s out (+167% on vLLM's defaults, not proven yet)"
        == best
    )
    assert ["▶", "4", "TP1, 4 seqs, 512 tokens", "", "", "", "running"] == row
    assert [] == noted


@pytest.mark.slow
def test_what_was_said_of_a_trial_follows_the_cursor(place, monkeypatch):
    """A reason is longer than a cell."""
    monkeypatch.setenv("FAKE_EVENTS", str(NO_DEFAULTS))

    async def steps(pilot):
        await over(pilot)
        first = said(pilot, "why")
        await press(pilot, "j", "j")
        return first, said(pilot, "why"), said(pilot, "result")

    first, third, result = drive(place, steps)
    assert first.startswith("trial 1: infeasible: DOC-05: one step of max_num_batched_tokens does not fit")
    assert "trial 3: complete" == third
    assert "✓ defaults do not run: run trial 5" in result


def test_the_command_is_the_question_that_was_asked(place):
    """Load and limits that the tuner has; those that it lacks are named; effort, time and the plan's number."""
    load, limits = Load("code", concurrency=8), Restrictions(kv_cache_dtype="auto", gpu_memory_utilization=0.5)

    async def steps(pilot):
        await press(pilot, "e", "e")
        pilot.app.screen.query_one("#which-plans", Choice).action_by(1)
        field = pilot.app.screen.query_one("#budget", Input)
        field.focus()
        await press(pilot, *"30m", "enter")
        shown = said(pilot, "will")
        await over(pilot)
        return shown, argv(place)

    shown, words = drive(place, steps, load=load, limits=limits)
    asked = ["serve", "Qwen/Qwen3-0.6B", "--gpu", "cpu", "--workload", "code", "--concurrency", "8", "--kv-cache-dtype"]
    wanted = [*asked, "auto", "--offline", "--effort", "thorough", "--budget", "30m", "--only", "1", "--json-lines"]
    assert wanted == words
    assert "Not taken along: --gpu-memory-utilization 0.5" in shown


def test_a_folder_is_named_absolutely(place, monkeypatch):
    """The tuner runs elsewhere: a path must mean the same there; the link of an environment's Python is kept."""
    monkeypatch.chdir(place)
    (place / "model").mkdir()
    (place / "python").symlink_to(sys.executable)
    words = tuning.words(State(model="./model", vllm_python="python"), "quick", "", 0)
    assert ("serve", str(place / "model")) == words[:2]
    assert str(place / "python") == words[words.index("--vllm-python") + 1]


def test_efforts_are_the_tuners_own():
    """Trials and time, as `tuner serve --effort` has them."""
    effort = pytest.importorskip("vllm_tuner.effort")
    wanted = {
        name: f"{row.trials} trials, "
        + (f"{row.budget_s / 3600:g} h" if row.budget_s >= 3600 else f"{row.budget_s / 60:g} min")
        for name, row in effort.EFFORTS.items()
    }
    assert wanted == EFFORTS


def test_the_tuner_understands_our_words():
    """Every flag that can be handed over is one of `tuner serve`."""
    app = pytest.importorskip("vllm_tuner.cli.app").app
    import typer

    command = typer.main.get_command(app).get_command(None, "serve")
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    load = Load("rag", "4k", "1k", 3, "8k", 2.0, "1k", "latency", 100.0, 20.0, "normal")
    limits = Restrictions("fp8", "fp8", 2, 2, 2, True, 0.5, 9, 9, True, siblings=False, use_all=True)
    state = State(gpu="cpu", model="m", vllm="0.30.0", load=load, limits=limits, vllm_python="p", offline=True)
    words = tuning.words(state, "quick", "1h", 2)
    assert {word for word in words if word.startswith("--")} <= known
    assert {"--pp", "--dp", "--ep", "--enforce-eager", "--all-gpus"} <= set(tuning.left_behind(state))


# -- errors and ends


def test_a_tuner_that_fails_is_one_line(place, monkeypatch):
    """What it says on stderr, with its hint."""
    monkeypatch.setenv("FAKE_TUNER", "fails")

    async def steps(pilot):
        await over(pilot)
        return status(pilot)

    wanted = "✗ there is no vllm on the PATH, and a search needs a real one  (--vllm-python ~/vllm/bin/python)"
    assert wanted == drive(place, steps)


def test_no_tuner_is_one_line(place, monkeypatch):
    """And how to get it."""
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(sys, "executable", str(place / "python"))

    async def steps(pilot):
        await press(pilot, "s")
        return status(pilot)

    assert "the tuner is not installed here  (pip install 'vllm-advisor[tuner]')" in drive(place, steps)


@pytest.mark.slow
def test_another_machine_cannot_be_measured_here(place):
    """The plans are for one that was named: nothing is started."""

    async def steps(pilot):
        await press(pilot, "s")
        return status(pilot), said(pilot, "will"), pilot.app.processes.search

    line, will, search = drive(place, steps, gpu="8xH100")
    assert "the plans are for 8xH100, and a search measures this machine  (press 1 and choose this machine)" in line
    assert "the plans are for 8xH100" in will
    assert search is None


@pytest.mark.slow
def test_a_server_of_the_step_before_stands_in_the_way(place):
    """It holds the memory, and would be measured, too."""

    class Serves:
        def ended(self):
            return None

    async def steps(pilot):
        pilot.app.processes.server = Serves()
        await press(pilot, "s")
        pilot.app.processes.server = None
        return status(pilot)

    assert "stop it there first" in drive(place, steps)


def test_without_a_plan_nothing_is_searched(place):
    """Nor stopped, nor copied."""

    async def steps(pilot):
        lines = []
        for key in "sxy":
            await press(pilot, key)
            lines.append(status(pilot))
        return lines

    assert ["there is nothing to measure: press 4", "nothing runs here", "there is no winner yet"] == drive(
        place, steps, model=""
    )


@pytest.mark.slow
def test_another_search_begins_with_the_questions(place):
    """1. a result, 2. s: the fields again, 3. s: a second search. Result: its own trials."""

    async def steps(pilot):
        await over(pilot)
        await press(pilot, "s")
        between = pilot.app.screen.query_one("#setup").display, trials(pilot)
        await press(pilot, "s")
        await until(pilot, lambda: len(trials(pilot)) == 7)
        return between

    assert (True, []) == drive(place, steps)


@pytest.mark.slow
def test_a_search_goes_on_without_the_wizard(place, monkeypatch):
    """1. left running at the end, 2. the next wizard shows it from its first event, 3. stopped from there."""
    monkeypatch.setenv("FAKE_LINES", "9")

    async def leave(pilot):
        await press(pilot, "s")
        await until(pilot, lambda: len(trials(pilot)) == 4)
        LEFT.append(pilot.app.processes.search)
        await press(pilot, "ctrl+q")
        asked = testing.text(pilot.app)
        await pilot.press("l")
        await until(pilot, lambda: pilot.app._exit)
        return asked

    async def find(pilot):
        await until(pilot, lambda: "From an earlier wizard" in testing.text(pilot.app))
        await pilot.press("a")
        await until(pilot, lambda: pilot.app.state.step == "tune" and len(trials(pilot)) == 4)
        state = said(pilot, "state")
        await press(pilot, "x")
        await until(pilot, lambda: "ended" in said(pilot, "state"))
        return state, left.processes(LEFT[0].left)

    asked = drive(place, leave)
    state, alive = drive(place, find, step="hardware")
    assert "A search measures Qwen/Qwen3-0.6B" in asked
    assert state.endswith("found running")
    assert () == alive


# -- what events say


def test_events_are_folded_as_documented():
    """Defaults, best, gain and time; a line that is no event, and one that is not as it should be, change nothing."""
    progress = folded(BETTER, 11)
    assert (1, 3) == (progress.defaults, progress.best.trial)
    assert 309.82 / 116.13 - 1 == pytest.approx(progress.gain)
    assert (888.6, 899.9, 883.6) == (progress.left_s, progress.total_s, progress.left(1_700_000_015.9))
    before = dict(progress.rows)
    for event in (
        {},
        {"event": "trial"},
        {"event": "trial", "trial": "x"},
        {"event": "new", "message": 3, "left_s": True},
    ):
        progress.take(event)
    assert before == progress.rows
    assert [{"a": 1}] == tuning.events([b"no json", b"[1]", b'{"a": 1}'])


def test_known_trials_of_an_earlier_search_are_rows():
    """`known from before` has no figures of its own."""
    progress = tuning.Progress()
    progress.take({"event": "defaults", "message": "vLLM's defaults: TP1"})
    progress.take({"event": "trial", "message": "known from before: TP1", "trial": 4})
    assert (4, "known", "TP1") == (progress.defaults, progress.rows[4].state, progress.rows[4].label)


@pytest.mark.parametrize(
    ("gain", "said"), [((0.1, 0.2, None), "+20.0 % (+10.0 % to open)"), ((), "open (open to open)")]
)
def test_an_open_end_of_a_gain_is_said(gain, said):
    """JSON has no infinity."""
    assert said == searched._gain(gain)


def test_last_words_where_there_is_no_error(tmp_path):
    """A traceback, or nothing."""
    file = tmp_path / "errors.log"
    assert ("", "") == tuning.failure(file)
    file.write_text("Traceback\nValueError: hf_abcdefghijk\n")
    assert ("ValueError: hf_***", "") == tuning.failure(file)


# -- how it looks


def test_the_step_as_it_looks(place, monkeypatch):
    """Before, meanwhile, and at the end."""

    async def before(pilot):
        await testing.snapshots(pilot, "tune", forever=FOREVER)

    async def meanwhile(pilot):
        await press(pilot, "s")
        await until(pilot, lambda: len(trials(pilot)) == 4)
        await testing.snapshots(pilot, "tune-running", forever=FOREVER)

    async def after(pilot):
        await over(pilot)
        await testing.snapshots(pilot, "tune-result", forever=FOREVER)

    from vllm_advisor.tui.screens import planned

    monkeypatch.setattr(planned.Chosen, "says", "Plan 1 of 2: TP1 on this machine, vLLM 0.33.0")
    drive(place, before)
    drive(place, after)
    monkeypatch.setenv("FAKE_LINES", "9")
    drive(place, meanwhile)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(20, 5), (40, 10)])
def test_tiny_terminals_scroll(place, size):
    """Nothing crashes, whatever is shown."""

    async def steps(pilot):
        await over(pilot)
        await press(pilot, "j", "G", "l")
        return testing.text(pilot.app)

    assert drive(place, steps, size=size)


@pytest.mark.slow
def test_ascii_and_plain(place):
    """No sign that such a terminal lacks; a chart is figures for a screen reader."""

    async def steps(pilot):
        await over(pilot)
        return testing.text(pilot.app)

    shown = drive(place, steps, glyphs=ASCII)
    assert shown.isascii()
    assert "x better: run trial 3" in shown
    assert "█" not in searched.time_left(folded(BETTER, 9), NOW, UTF8, plain=True)


@pytest.mark.slow
def test_nothing_holds_the_event_loop(place):
    """A search of hundreds of trials is drawn as it comes."""

    async def steps(pilot):
        await over(pilot)
        screen = pilot.app.screen
        events = tuple(tuning.events(BETTER.read_bytes().splitlines()))

        async def scenario():
            screen.post_message(tuning.Told(screen.child, events))
            await press(pilot, "j", "G", "g")

        await testing.responsive(scenario)

    drive(place, steps)
