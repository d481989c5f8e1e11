"""Beside the steps: profiles, the decision matrix, `check` and the daemon, by keys, by mouse, and where they fail."""

import asyncio
import os
import sqlite3
import sys

import pytest


pytest.importorskip("textual")

from textual.widgets import Input, Static, TextArea

from vllm_advisor import profiles
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Event, Fingerprint, Measurement, Origin, Profile, Provenance, QualityResult
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.screens.aside import Aside
from vllm_advisor.tui.state import State
from vllm_advisor.tui.widgets.keyed import KeyTable
from vllm_advisor.units import Interval
from vllm_advisor.workload import PRESETS


BROKEN = "VLLM_USE_V1=1 vllm serve Qwen/Qwen3-8B --tensor-parallel-size 3 --swap-space 4"


def profile(output, **plan):
    """A measured one that is the same on every machine."""
    print_ = Fingerprint((("gpus", "2xNVIDIA L40S"), ("vllm", "0.33.0"), ("driver", "580.95")), (("gpus", "L40S"),))
    figures = (("output_tok_s", Interval(output, output, output)), ("tpot_ms", Interval(14.0, 15.0, 16.0)))
    measured = Measurement(figures, PRESETS["chat"], 5, 60.0, "vllm bench serve", 1_767_225_600.0)
    check = QualityResult("kl", Interval(0.0, 0.01, 0.02), 0.05, passed=True)
    name = "Qwen/Qwen3-8B"
    return Profile(print_, Plan(name, **plan), measured, (check,), Provenance(Origin.MEASURED, at=1.8e9), name)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with two profiles and two events, made once."""
    file = tmp_path_factory.mktemp("store") / "advisor.db"
    with ProfileStore.open(file, now=lambda: 1_767_225_600.0) as store:
        store.save_profile(profile(2000.0))
        store.save_profile(profile(2500.0, tensor_parallel_size=2))
        store.record(Event("search", "12 trials, the best is TP2", "gpu-7", (("trials", 12), ("gain", 1.25))))
        store.record(Event("gate", "kept the incumbent", "gpu-7", (("p", 0.4),)))
    return file


@pytest.fixture
def database(kept, tmp_path, monkeypatch):
    """A copy of it, as the user's own store."""
    file = tmp_path / "advisor.db"
    file.write_bytes(kept.read_bytes())
    monkeypatch.setenv("ADVISOR_DATABASE_URL", str(file))
    return file


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """No store and no tuner."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", str(tmp_path / "none.db"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


@pytest.fixture
def tuner(tmp_path, monkeypatch):
    """A `tuner` in the PATH that answers `status --json` with a text, and says why where it has none."""
    script = tmp_path / "bin" / "tuner"
    script.parent.mkdir()
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")

    def answers(stdout="", stderr="", code=0):
        text = f"import sys; print({stdout!r}); print({stderr!r}, file=sys.stderr); sys.exit({code})"
        script.write_text(f"#!{sys.executable}\n{text}\n", encoding="utf-8")
        script.chmod(0o755)

    return answers


def drive(tmp_path, steps, size=(80, 24), **fields):
    """Run the wizard, hand the pilot to `steps`, and return what it returned."""

    async def run():
        app = Wizard(State(**({"gpu": "2xL40S"} | fields)), file=tmp_path / "state.json", glyphs=UTF8)
        async with testing.opened(app, size) as pilot:
            return await steps(pilot)

    return asyncio.run(run())


async def press(pilot, *keys):
    """Keys, one after the other, each handled to its end."""
    for key in keys:
        await pilot.press(key)
        await testing.settled(pilot)


async def click(pilot, selector, **where):
    await pilot.click(selector, **where)
    await testing.settled(pilot)


def shown(pilot):
    """The text of the screen, folded words joined again."""
    return " ".join(testing.text(pilot.app).split())


def status(pilot):
    return str(pilot.app.screen.query_one("#status", Static).content)


def table(pilot, name):
    return pilot.app.screen.query_one(f"#{name}", KeyTable)


# -- profiles


def test_two_profiles_are_listed_compared_and_one_is_removed(tmp_path, database):
    """By keys: the page follows the cursor, a mark and d compare, x asks, n keeps, y removes."""

    async def steps(pilot):
        await press(pilot, "f2")
        first, pages = table(pilot, "profiles").key, [shown(pilot)]
        await press(pilot, "space", "j", "d")
        pages.append(shown(pilot))
        await press(pilot, "x", "n")
        assert 2 == table(pilot, "profiles").row_count
        await press(pilot, "x", "y")
        await testing.snapshots(pilot, "profiles")
        return first, pages, table(pilot, "profiles").key

    first, pages, left = drive(tmp_path, steps)
    assert first == left
    assert "output_tok_s" in pages[0]
    assert "tensor_parallel_size" in pages[1]
    assert [first] == [found.id for found in profiles.stored(database)]


@pytest.mark.usefixtures("database")
def test_a_profile_is_exported_and_nothing_is_overwritten(tmp_path, monkeypatch):
    """Enter takes the offered name; the second time the file is there, and stays as it is."""
    monkeypatch.chdir(tmp_path)

    async def steps(pilot):
        await press(pilot, "f2", "e", "enter")
        (file,) = tmp_path.glob("*.toml")
        text = file.read_text(encoding="utf-8")
        await press(pilot, "e", "enter")
        again = status(pilot)
        await press(pilot, "e", "escape")
        return file, text, again

    file, text, again = drive(tmp_path, steps)
    assert text.startswith("# A measured vLLM deployment")
    assert text == file.read_text(encoding="utf-8")
    assert "is not overwritten" in again


def test_profiles_by_mouse(tmp_path, database):
    """A click on a row opens it; the buttons of the question answer it."""

    async def steps(pilot):
        await press(pilot, "f2")
        await click(pilot, "#profiles", offset=(10, 2))
        second = table(pilot, "profiles").key
        await press(pilot, "x")
        await click(pilot, "#no")
        await press(pilot, "x")
        await click(pilot, "#yes")
        return second, table(pilot, "profiles").row_count

    second, rows = drive(tmp_path, steps)
    assert 1 == rows
    assert second not in [found.id for found in profiles.stored(database)]


@pytest.mark.usefixtures("nothing")
def test_no_profiles_say_how_to_get_some_and_keys_do_no_harm(tmp_path):
    """An empty store: a hint, and every key is an error in one line."""

    async def steps(pilot):
        await press(pilot, "f2")
        said = shown(pilot)
        await press(pilot, "d", "e", "x", "space", "r", "escape")
        return said, pilot.app.screen.STEP

    said, step = drive(tmp_path, steps)
    assert "There are no profiles yet." in said
    assert "hardware" == step


def test_a_locked_store_is_one_line(tmp_path, database, monkeypatch):
    """Another process holds the database: removing fails with its reason, and the screen goes on."""
    from vllm_advisor.store import schema

    monkeypatch.setattr(schema, "BUSY_MS", 50)

    async def steps(pilot):
        await press(pilot, "f2")
        with sqlite3.connect(database, isolation_level=None) as other:
            other.execute("BEGIN EXCLUSIVE")
            await press(pilot, "x", "y")
            said = status(pilot)
            other.execute("ROLLBACK")
        await press(pilot, "r")
        return said, status(pilot), table(pilot, "profiles").row_count

    said, after, rows = drive(tmp_path, steps)
    assert "locked" in said
    assert ("", 2) == (after, rows)


def test_a_store_that_is_none_is_one_line(tmp_path, database):
    """A file that is no database."""
    database.write_bytes(b"no database at all" * 100)

    async def steps(pilot):
        await press(pilot, "f2")
        return status(pilot)

    assert drive(tmp_path, steps).startswith("✗ ")


# -- the matrix


def test_the_matrix_leads_to_the_rules_behind_a_row(tmp_path):
    """Enter on a situation shows the rules that spoke, with when, verdict and source."""

    async def steps(pilot):
        await press(pilot, "f3")
        await testing.snapshots(pilot, "matrix")
        await pilot.resize_terminal(80, 24)
        await press(pilot, "enter")
        return table(pilot, "table-rules").key, shown(pilot), pilot.app.screen.query_one("#find", Input).value

    key, text, found = drive(tmp_path, steps, gpu="8xH100")
    assert "ACC-04" in found.split()
    assert key
    assert all(word in text for word in ("when", "verdict", "source"))


def test_another_gpu_and_version_give_another_matrix(tmp_path):
    """Typed and entered; an unknown one is an error with its nearest names, and the old matrix stays."""

    async def steps(pilot):
        await press(pilot, "f3")
        before = pilot.app.screen._read
        gpu = pilot.app.screen.query_one("#gpu", Input)
        gpu.focus()
        gpu.value = "MI300X"
        await press(pilot, "enter")
        after = pilot.app.screen._read
        gpu.focus()
        gpu.value = "H1000"
        await press(pilot, "enter")
        return before, after, status(pilot), pilot.app.screen._read

    before, after, said, last = drive(tmp_path, steps)
    assert "L40S" in before.heading
    assert "MI300X" in after.heading
    assert before.situations != after.situations
    assert "H1000" in said
    assert after is last


def test_the_matrix_by_mouse_and_its_search(tmp_path):
    """A click on a tab turns the table; the search narrows it while it is typed, and may find nothing."""

    async def steps(pilot):
        await press(pilot, "f3")
        await click(pilot, "#tables #article")
        article = shown(pilot)
        await press(pilot, "t", "t", "slash", "k", "v", "-", "0", "1")
        rules = table(pilot, "table-rules").row_count
        await press(pilot, *"zzz")
        return article, rules, shown(pilot)

    article, rules, none = drive(tmp_path, steps)
    assert "it says" in article
    assert 1 == rules
    assert "nothing of that kind" in none


@pytest.mark.parametrize(("machine", "says"), [("cpu", "CPU"), ("H1000", "H100 SXM")])
def test_every_machine_has_a_matrix_to_look_at(tmp_path, machine, says):
    """A processor its own; one that cannot be read that of a usual device, named."""

    async def steps(pilot):
        await press(pilot, "f3")
        return pilot.app.screen._read.heading

    assert says in drive(tmp_path, steps, gpu=machine)


# -- check


async def paste(pilot, text):
    pilot.app.screen.query_one("#command", TextArea).load_text(text)
    await testing.settled(pilot)


def test_a_pasted_command_is_judged_and_mended(tmp_path):
    """Findings by level; the page of one; Ctrl+R mends what needs no question, Ctrl+Z takes that back."""

    async def steps(pilot):
        await press(pilot, "f4")
        await paste(pilot, BROKEN)
        ids = [finding.id for finding in pilot.app.screen._findings()]
        await testing.snapshots(pilot, "check")
        await press(pilot, "ctrl+r")
        field = pilot.app.screen.query_one("#command", TextArea)
        mended = field.text
        await press(pilot, "ctrl+z")
        return ids, mended, field.text

    ids, mended, back = drive(tmp_path, steps, gpu="8xH100")
    assert {"FLG-02", "PAR-01", "ENV-11"} <= set(ids)
    assert "--swap-space" not in mended
    assert BROKEN == back


@pytest.mark.slow
def test_typing_is_judged_as_it_is_at_the_end(tmp_path):
    """Letters that come while one text is judged lead to one more judgement, of the last text."""

    async def steps(pilot):
        await press(pilot, "f4")
        for letter in "vllm serve Qwen/Qwen3-8B --nope":
            await pilot.press(letter if letter.isalnum() else {" ": "space", "-": "minus", "/": "slash"}[letter])
        await testing.settled(pilot)
        return [finding.subject for finding in pilot.app.screen._findings()]

    assert "--nope" in drive(tmp_path, steps)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ls -l", "no vLLM server starts in it"),
        ("vllm serve 'open", "close the quote"),
        ("services:\n  a: [", "cannot read the text"),
    ],
)
def test_a_text_that_starts_no_server_is_one_line(tmp_path, text, says):
    """With what helps; mending it is an error, too."""

    async def steps(pilot):
        await press(pilot, "f4")
        await paste(pilot, text)
        said = status(pilot)
        await press(pilot, "ctrl+r")
        return said, status(pilot)

    said, mending = drive(tmp_path, steps)
    assert says in said
    assert "nothing to mend" in mending


def test_a_good_command_and_an_unknown_machine(tmp_path):
    """Nothing against it but what no machine tells; then a machine that is none."""

    async def steps(pilot):
        await press(pilot, "f4")
        await paste(pilot, "vllm serve Qwen/Qwen3-8B --host 127.0.0.1")
        errors = [finding.level for finding in pilot.app.screen._findings()]
        pilot.app.screen.query_one("#machine", Input).value = "H1000"
        await testing.settled(pilot)
        return errors, status(pilot)

    errors, said = drive(tmp_path, steps)
    assert "error" not in errors
    assert "H1000" in said


# -- the daemon


@pytest.mark.usefixtures("nothing")
def test_without_a_tuner_the_history_still_stands(tmp_path, database, monkeypatch):
    """The status says what is missing; the events are listed, and one is opened with its numbers."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", str(database))

    async def steps(pilot):
        await press(pilot, "f5")
        await testing.snapshots(pilot, "daemon")
        await press(pilot, "j")
        return shown(pilot)

    text = drive(tmp_path, steps)
    assert "The tuner is not installed here" in text
    assert all(word in text for word in ("search", "12 trials, the best is TP2", "gain"))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"stdout": '{"mode": "advise", "deployment": {"up": true, "url": null}, "reasons": []}'}, "mode advise"),
        ({"stderr": "error: no daemon answers\nhint: start it", "code": 3}, "No daemon runs here (no daemon answers)"),
        ({"stdout": "garbage"}, "cannot be understood"),
        ({"stdout": "[]"}, "No daemon runs here"),
    ],
)
def test_what_the_daemon_says_of_itself(tmp_path, tuner, monkeypatch, answer, says):
    """Its status, its absence, and what is no status."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", str(tmp_path / "none.db"))
    tuner(**answer)

    async def steps(pilot):
        await press(pilot, "f5", "r")
        return shown(pilot)

    text = drive(tmp_path, steps)
    assert says in text
    assert "Nothing was tuned on this machine yet" in text


# -- all of them


@pytest.mark.usefixtures("nothing")
@pytest.mark.slow
def test_each_opens_from_every_other_and_escape_goes_back(tmp_path):
    """By keys: another one takes its place, and one Escape is enough."""

    async def steps(pilot):
        seen = []
        for key in ("f2", "f3", "f4", "f5", "f5", "f2"):
            await press(pilot, key)
            seen.append(type(pilot.app.screen).__name__)
        await press(pilot, "escape")
        return seen, isinstance(pilot.app.screen, Aside), pilot.app.screen.STEP

    seen, aside, step = drive(tmp_path, steps)
    assert ["ProfilesAside", "MatrixAside", "CheckAside", "DaemonAside", "DaemonAside", "ProfilesAside"] == seen
    assert (False, "hardware") == (aside, step)


@pytest.mark.usefixtures("nothing")
def test_a_step_is_left_for_another_from_beside_it(tmp_path):
    """A click on the rail, or Ctrl+N, goes to the step; nothing stays in between."""

    async def steps(pilot):
        await press(pilot, "f3")
        await click(pilot, "#stop-workload")
        first = pilot.app.screen.STEP
        await press(pilot, "f2", "ctrl+b")
        second = pilot.app.screen.STEP
        await press(pilot, "ctrl+n")
        return first, second, pilot.app.screen.STEP

    assert ("workload", "model", "workload") == drive(tmp_path, steps)


@pytest.mark.slow
@pytest.mark.usefixtures("database")
def test_the_loop_is_never_held_by_them(tmp_path):
    """Every screen opened, walked and closed: no callback takes more than 50 ms of this machine."""

    async def steps(pilot):
        async def scenario():
            await press(pilot, "f2", "j", "f3", "j", "t", "f4")
            await paste(pilot, BROKEN)
            await press(pilot, "f5", "escape")

        await press(pilot, "f2", "f3", "f4", "f5", "escape")  # the first time, modules are imported
        return await testing.responsive(scenario)

    assert drive(tmp_path, steps).calls > 50
