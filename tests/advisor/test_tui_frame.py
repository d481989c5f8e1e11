"""What all screens share: the way between steps, help, palette, looks, tiny terminals, and how it ends."""

import asyncio
import os
import re
import subprocess
import sys
import threading
import unicodedata

import pytest


pytest.importorskip("textual")

from textual.theme import BUILTIN_THEMES
from typer.testing import CliRunner

from vllm_advisor.cli.wizard import _command
from vllm_advisor.cli.wizard import app as command
from vllm_advisor.errors import AdvisorError
from vllm_advisor.tui import ascii as ascii_signs
from vllm_advisor.tui import crash, keep, testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import ASCII, UTF8
from vllm_advisor.tui.screens.aside import ASIDES
from vllm_advisor.tui.screens.help import Help
from vllm_advisor.tui.state import STEPS, State


READY = State(gpu="8xH100", model="Qwen/Qwen3-32B", offline=True)
FOREVER = ("live",)


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """No store and no state of a developer."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", str(tmp_path / "none.db"))
    monkeypatch.setenv("ADVISOR_WIZARD_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def drive(steps, state=READY, size=(80, 24), **look):
    """Run the wizard, hand the pilot to `steps`, and return what it returned."""

    async def run():
        wizard = Wizard(state, **({"glyphs": UTF8} | look))
        async with testing.opened(wizard, size, forever=FOREVER) as pilot:
            return await steps(pilot)

    return asyncio.run(run())


async def press(pilot, *keys):
    for key in keys:
        await pilot.press(key)
        await testing.settled(pilot, forever=FOREVER)


async def through(pilot, look):
    """Every step and everything beside them, looked at."""
    found = {}
    for step in STEPS:
        pilot.app.action_go(step)
        await testing.settled(pilot, forever=FOREVER)
        found[step] = look(pilot.app)
    for name, (key, _) in ASIDES.items():
        await press(pilot, key)
        found[name] = look(pilot.app)
    await press(pilot, "question_mark" if pilot.app.focused is None else "f1")
    return found | {"help": look(pilot.app)}


# -- between the steps


@pytest.mark.slow
def test_keys_go_through_all_steps_and_back():
    """At either end nothing happens; the state knows where it is. Alt and an arrow do the same: tmux has Ctrl+B."""

    async def steps(pilot):
        seen = [pilot.app.current_mode]
        for key in (*["ctrl+n"] * len(STEPS), *["ctrl+b"] * len(STEPS), "alt+right", "alt+left"):
            await press(pilot, key)
            seen.append(pilot.app.current_mode)
        return seen, keep.load(keep.place()).step

    seen, kept = drive(steps)
    assert [*STEPS, STEPS[-1], *reversed(STEPS[:-1]), STEPS[0], STEPS[1], STEPS[0]] == seen
    assert STEPS[0] == kept


def test_the_rail_and_numbers_lead_to_any_step():
    """A click on a stop, and its number where no field has the cursor."""

    async def steps(pilot):
        seen = []
        for step in ("workload", "hardware", "model"):
            await pilot.click(f"#stop-{step}")
            await testing.settled(pilot, forever=FOREVER)
            seen.append(pilot.app.current_mode)
        pilot.app.screen.set_focus(None)
        await press(pilot, "3")
        return [*seen, pilot.app.current_mode]

    assert ["workload", "hardware", "model", "workload"] == drive(steps)


def test_an_edit_is_taken_back_and_done_again_from_any_step():
    """Ctrl+Z and Ctrl+Y; with nothing left they say so."""

    async def steps(pilot):
        pilot.app.change(gpu="2xL40S")
        pilot.app.action_go("workload")
        await press(pilot, "ctrl+z")
        undone = pilot.app.state
        await press(pilot, "ctrl+y", "ctrl+y", "ctrl+z", "ctrl+z")
        return undone, pilot.app.state, [n.message for n in pilot.app._notifications]

    undone, last, said = drive(steps)
    assert ("8xH100", "workload") == (undone.gpu, undone.step)
    assert "8xH100" == last.gpu
    assert {"nothing to redo", "nothing to undo"} == set(said)


# -- help and palette


def test_an_answer_that_comes_while_the_screen_goes_is_dropped():
    """A thread ends when its screen is being taken down: no crash, and nothing is drawn."""
    drawn, go = [], threading.Event()

    async def steps(pilot):
        screen = pilot.app.screen
        screen.work("waiting", lambda: go.wait(30), drawn.append, group="late")
        await screen.query_one("#status").remove()
        go.set()
        await pilot.app.workers.wait_for_complete([worker for worker in pilot.app.workers if worker.group == "late"])
        return pilot.app.is_running

    assert (True, []) == (drive(steps), drawn)


def test_help_names_every_key_the_screens_own_first():
    """Its own keys, then those of what has the cursor, then those that work anywhere; any of four keys closes it."""

    async def steps(pilot):
        pilot.app.screen.set_focus(None)
        await press(pilot, "question_mark")
        lines = pilot.app.screen._lines
        shut = []
        for key in ("escape", "q", "question_mark", "f1"):
            await press(pilot, key)
            shut.append(not isinstance(pilot.app.screen, Help))
            await press(pilot, "f1")
        await testing.snapshots(pilot, "help")
        return lines, shut

    lines, shut = drive(steps)
    own, everywhere = lines.index("Keys of this screen"), lines.index("Everywhere")
    assert own < everywhere
    assert any("Read again" in line for line in lines[own:everywhere])
    assert all(any(word in line for line in lines[everywhere:]) for word in ("Next", "Undo", "Profiles", "Daemon"))
    assert [True] * 4 == shut


def test_the_palette_opens_steps_and_what_lies_beside_them():
    """Typed words and Enter."""

    async def choose(pilot, words):
        await press(pilot, "ctrl+p", *words)
        palette = pilot.app.screen
        while palette.is_current:  # its search answers in its own time
            await press(pilot, "enter")

    async def steps(pilot):
        await choose(pilot, "matrix")
        first = type(pilot.app.screen).__name__
        await choose(pilot, "workload")
        return first, pilot.app.current_mode

    assert ("MatrixAside", "workload") == drive(steps)


# -- looks


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["textual-light", "textual-dark", "ansi-dark", "ansi-light"])
def test_every_screen_is_drawn_in_every_kind_of_theme(theme, monkeypatch):
    """Light, dark, and the terminal's own colours; F6 goes between light and dark."""
    monkeypatch.delenv("NO_COLOR")
    if theme not in BUILTIN_THEMES:
        pytest.skip("this Textual has no such theme")

    async def steps(pilot):
        pilot.app.theme = theme
        found = await through(pilot, testing.text)
        await press(pilot, "escape", "f6")
        return found, pilot.app.theme

    found, after = drive(steps)
    assert all(found.values())
    assert after == ("textual-dark" if theme == "textual-light" else "textual-light")


SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize("size", [(20, 5), (40, 10), (1, 1)])
def test_a_tiny_terminal_is_no_reason_to_end(size):
    """Every screen is drawn, whatever can be seen of it, and grows with the terminal."""

    async def steps(pilot):
        found = await through(pilot, testing.text)
        await pilot.resize_terminal(80, 24)
        await testing.settled(pilot, forever=FOREVER)
        return found, testing.text(pilot.app)

    found, after = drive(steps, size=size)
    assert len(STEPS) + len(ASIDES) + 1 == len(found)
    assert "Keys of this screen" in after


@pytest.mark.slow
def test_without_utf8_and_colour_everything_is_grey_ascii():
    """Borders, bars, scroll bars, and every sign of our own; NO_COLOR is set for tests, and every colour is a grey."""

    async def steps(pilot):
        return await through(pilot, lambda app: (testing.text(app), testing.picture(app)))

    drawn = re.compile(r"wizard-r\d+ \{ fill: #([0-9a-f]{6})|fill=\"#([0-9a-f]{6})\"[^>]*shape-rendering")
    for name, (text, svg) in drive(steps, glyphs=ASCII).items():
        colours = {"".join(found) for found in drawn.findall(svg)} - {"c5c8c6"}  # the picture's own
        assert text.isascii(), (name, {sign for sign in text if not sign.isascii()})
        assert len(colours) > 2
        assert all(colour[:2] == colour[2:4] == colour[4:] for colour in colours), (name, colours)


def test_ascii_keeps_the_width_of_every_sign():
    """A wide sign becomes two, an accent goes, and what has no relative is a question mark."""
    assert "cafe -> ?? x" == ascii_signs.plain("café -> 世 ✓")
    assert '"a" -+|...' == ascii_signs.plain("“a” ─┼│..…")[:10]


@SLOW
def test_plain_mode_draws_nothing_but_text():
    """For a screen reader: no boxes, no blocks, no bars."""

    async def steps(pilot):
        return await through(pilot, testing.text)

    drawn = re.compile("[\u2500-\u259f\u2800-\u28ff]")
    for name, text in drive(steps, plain=True, size=(120, 40)).items():
        lines = [line for line in text.splitlines()[:-1] if drawn.search(line)]
        assert [] == lines, name


# -- an end that nobody expected


class Broken(Wizard):
    """Fails on a key, in a handler or in a worker."""

    CSS_PATH = None
    BINDINGS = [("f9", "fail"), ("f10", "fail_later")]  # noqa: RUF012

    def action_fail(self):
        try:
            {}["hf_" + "a" * 30]
        except KeyError as error:
            raise ValueError(f"cannot read {keep.Path.home()}/secret/model") from error

    def action_fail_later(self):
        self.run_worker(self.action_fail, thread=True)


@pytest.mark.parametrize("key", ["f9", "f10"])
def test_an_unexpected_error_keeps_the_state_and_tells_no_secrets(key, tmp_path):
    """A short report beside the state: both errors with where they were, no key, no home folder, no values."""

    async def run():
        async with testing.opened(wizard) as pilot:
            await pilot.press(key)
            await testing.settled(pilot)

    wizard = Broken(READY, glyphs=UTF8)
    with pytest.raises(Exception, match=r"secret|failed"):
        asyncio.run(run())
    text = wizard.crash.file.read_text(encoding="utf-8")
    assert wizard.crash.file.parent == tmp_path
    assert READY == keep.load(keep.place())
    assert "ValueError: cannot read" in wizard.crash.said
    assert all(word in text for word in ("KeyError", "which led to", "action_fail", "vllm-advisor", "textual"))
    home = str(keep.Path.home())
    assert not any(home in said or "a" * 30 in said for said in (text, wizard.crash.said))


def test_a_few_reports_are_kept(tmp_path):
    """The oldest go."""
    for _ in range(8):
        last = crash.write(ValueError("why"), tmp_path)
    assert 5 == len(list(tmp_path.glob("wizard-crash-*")))
    assert last.exists()


def test_a_state_that_cannot_be_kept_is_a_warning(tmp_path):
    """A full or closed disk does not end the wizard."""
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")

    async def steps(pilot):
        pilot.app.change(gpu="2xL40S")
        await testing.settled(pilot)
        return [n.message for n in pilot.app._notifications], pilot.app.state.gpu

    said, gpu = drive(steps, file=blocked / "state.json")
    assert "2xL40S" == gpu
    assert any("the state is not kept" in text for text in said)


# -- the command


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gpu", "H100", "--node", "n.json"], "both name a machine"),
        (["--resume", "org/model"], "takes everything from the last wizard"),
        ([], "needs a terminal"),
    ],
)
def test_what_the_command_refuses(words, says):
    """One expected error each."""
    result = CliRunner().invoke(command, words)
    assert isinstance(result.exception, AdvisorError)
    assert says in result.exception.message


@pytest.mark.parametrize(("missing", "words", "says"), [
    ("textual", "", "textual is not installed"),
    ("textual_serve", "--web", "textual-serve is not installed"),
])  # fmt: skip
def test_a_missing_extra_is_named(missing, words, says):
    """With what to install; in a process of its own, where it was never imported."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from typer.testing import CliRunner;"
        f"from vllm_advisor.cli.wizard import app; print(repr(CliRunner().invoke(app, {words.split()}).exception))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TEXTUAL_DRIVER": "none"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert says in done.stdout


def test_what_a_browser_runs_is_the_same_wizard():
    """Every option that was given, quoted for a shell."""
    given = {"model": "org/m", "gpu": "2xL40S", "node": "", "vllm": "0.30.0", "vllm_python": "/a b", "offline": True}
    words = _command(given, resume=False, plain=True)
    assert words.endswith("wizard org/m --gpu 2xL40S --vllm 0.30.0 --vllm-python '/a b' --offline --plain")
    assert _command(given | {"model": ""}, resume=True, plain=False).endswith("wizard --offline --resume")


@SLOW
def test_the_loop_is_never_held_on_the_way_through_all_steps():
    """From hardware to tune and back, and the help: no callback takes more than 50 ms of this machine."""

    async def steps(pilot):
        async def scenario():
            await press(pilot, *["ctrl+n"] * 6, *["ctrl+b"] * 6, "f1", "escape")

        await scenario()  # screens are made once
        return await testing.responsive(scenario)

    assert drive(steps).calls > 50


def test_unusual_signs_are_of_one_width():
    """What a rail or a bar is made of takes one cell each, in both alphabets."""
    for glyphs in (UTF8, ASCII):
        assert all(unicodedata.east_asian_width(sign) not in ("W", "F") for text in glyphs for sign in text)
