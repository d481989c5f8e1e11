"""Step 5 of the wizard: the plan in every format, its parts explained, copied, saved, and as a command to type."""

import pytest


pytest.importorskip("textual")

from textual.widgets import Static

from vllm_advisor import question
from vllm_advisor.candidates import Restrictions
from vllm_advisor.question import Load, Question
from vllm_advisor.render import FORMATS, render
from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import ASCII, UTF8
from vllm_advisor.tui.screens import command
from vllm_advisor.tui.state import State
from vllm_advisor.tui.testing import click, press, status
from vllm_advisor.tui.widgets.choice import Choice


FITS = {"gpu": "2xL40S", "model": "Qwen/Qwen3-8B", "offline": True}


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    """No profile of this machine changes an answer, and files are saved in the test's folder."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    monkeypatch.chdir(tmp_path)


def drive(tmp_path, steps, size=(80, 24), plain=False, glyphs=UTF8, **fields):
    """Run the wizard on its fifth step, and return what `steps` returned."""
    state = State(**{"step": "command", **FITS, **fields})
    return testing.drive(Wizard(state, file=tmp_path / "state/s.json", glyphs=glyphs, plain=plain), steps, size)


def best(limits=None):
    return question.answer(
        Question("Qwen/Qwen3-8B", "2xL40S", None, "0.33.0", Load(), limits or Restrictions()), 50
    ).found


def rendered(fmt, plan=0, annotate=False):
    found = best(Restrictions(offline_llm=True) if fmt == "python" else None)
    ranked, facts = found.plans[plan], found.facts
    return render(
        fmt, ranked.command, plan=ranked.plan, model=ranked.model, node=facts.node, surface=facts.vllm,
        workload=facts.workload, annotate=annotate,
    )  # fmt: skip


def said(pilot, name):
    return str(pilot.app.screen.query_one(f"#{name}", Static).content)


def test_every_format_is_what_the_command_line_prints(tmp_path):
    """`f` goes through all eight and comes back to the first; the text is the render room's, byte for byte."""

    async def steps(pilot):
        texts = {}
        for _ in FORMATS:
            texts[pilot.app.state.fmt] = pilot.app.screen.page.text
            await press(pilot, "f")
        return texts, pilot.app.state.fmt

    texts, last = drive(tmp_path, steps)
    assert {fmt: rendered(fmt) for fmt in FORMATS} == texts
    assert "command" == last


def test_arrows_and_the_mouse_choose_a_format(tmp_path):
    """The chosen one stands in brackets."""

    async def steps(pilot):
        pilot.app.screen.query_one("#format", Choice).focus()
        await press(pilot, "right", "right")
        by_arrow = pilot.app.state.fmt
        await press(pilot, "h")
        by_vim = pilot.app.state.fmt
        row = next(line for line in testing.text(pilot.app).splitlines() if " Format" in line)
        await click(pilot, "#format", (row.index("compose") - 2, 0))
        return by_arrow, by_vim, pilot.app.state.fmt, testing.text(pilot.app)

    *chosen, text = drive(tmp_path, steps)
    assert ["json", "env", "compose"] == chosen
    assert "[compose]" in text
    assert "services:" in text


def test_each_part_has_its_why(tmp_path):
    """Every flag of the command is explained with the note that `--annotate` prints."""

    async def steps(pilot):
        return pilot.app.screen.page.parts, testing.text(pilot.app)

    parts, text = drive(tmp_path, steps, size=(200, 60))
    ranked = best().plans[0]
    flags = [word for word in ranked.command.argv if word.startswith("--")]
    assert flags == [what.split(" ")[0] for what, _ in parts]
    assert dict(ranked.command.notes)["--tensor-parallel-size"] == dict(parts)["--tensor-parallel-size 2"]
    assert "each layer is split over this many GPUs" in text


@pytest.mark.slow
def test_comments_come_and_go(tmp_path):
    """`a` writes the reasons into the text."""

    async def steps(pilot):
        await press(pilot, "a")
        with_reasons = pilot.app.screen.page.text
        await press(pilot, "a")
        return with_reasons, pilot.app.screen.page.text

    assert (rendered("command", annotate=True), rendered("command")) == drive(tmp_path, steps)


def test_copying_takes_the_text_as_it_is(tmp_path):
    """`y` the deployment, `Y` the command that gives the same answer."""

    async def steps(pilot):
        await press(pilot, "y")
        text = pilot.app.clipboard
        await press(pilot, "Y")
        first = pilot.app.clipboard
        await press(pilot, "f", "f", "Y")
        return text, first, pilot.app.clipboard

    text, first, then = drive(tmp_path, steps)
    assert rendered("command") == text
    assert "advisor recommend Qwen/Qwen3-8B --gpu 2xL40S --offline" == first
    assert f"{first} --format json" == then


@pytest.mark.slow
def test_the_same_answer_is_named_with_the_number_of_the_plan(tmp_path):
    """A plan that is not the first is launched by its number."""

    async def steps(pilot):
        return said(pilot, "same"), said(pilot, "which")

    same, which = drive(tmp_path, steps, plan=2)
    assert "advisor recommend Qwen/Qwen3-8B --gpu 2xL40S --offline   (plan 2 there)" in same
    assert "advisor launch Qwen/Qwen3-8B --gpu 2xL40S --offline --plan 2" in same
    assert f"Plan 2 of {best().accepted}: " in which


def test_saving_asks_for_a_name(tmp_path):
    """The format's own name is offered; Enter takes it, Escape does not."""

    async def steps(pilot):
        await press(pilot, "w")
        await press(pilot, "escape")
        nothing = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
        await press(pilot, "w")
        await press(pilot, "enter")
        return nothing

    assert [] == drive(tmp_path, steps)
    assert rendered("command") == (tmp_path / "vllm-qwen3-8b.sh").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("key", "kept"), [("n", True), ("y", False)])
def test_saving_replaces_only_what_was_said_so(tmp_path, key, kept):
    """A file that exists is asked about; no keeps it, yes replaces it."""
    file = tmp_path / "vllm-qwen3-8b.sh"
    file.write_text("mine")

    async def steps(pilot):
        await press(pilot, "w")
        await press(pilot, "enter")
        asked = testing.text(pilot.app)
        await press(pilot, key)
        return asked

    assert "vllm-qwen3-8b.sh exists. Replace it?" in drive(tmp_path, steps)
    assert ("mine" if kept else rendered("command")) == file.read_text()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    """The name, why, and what helps."""

    async def steps(pilot):
        await press(pilot, "w")
        pilot.app.screen.query_one("Input").value = str(tmp_path / "no/such/folder.sh")
        await press(pilot, "enter")
        return status(pilot)

    found = drive(tmp_path, steps)
    assert "folder.sh cannot be written: No such file or directory  (choose another place)" in found


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"model": ""}, "no model is chosen yet  (press 2 for the model step)"),
        ({"gpu": "L4", "model": "Qwen/Qwen3-235B-A22B"}, "no plan fits Qwen/Qwen3-235B-A22B on 1xNVIDIA L4"),
        ({"plan": 50_000}, "there is no plan 50000:"),
        ({"gpu": "H1000"}, "H1000"),
    ],
)
def test_without_a_plan_it_says_why_and_shows_nothing_old(tmp_path, fields, line):
    """And there is nothing to copy or to save."""

    async def steps(pilot):
        why = status(pilot)
        await press(pilot, "y")
        copied = status(pilot)
        await press(pilot, "w")
        return why, said(pilot, "text"), copied, status(pilot)

    why, text, copied, saved = drive(tmp_path, steps, **fields)
    assert line in why
    assert ("", "there is nothing to copy yet", "there is nothing to save yet") == (text, copied, saved)


@pytest.mark.slow
def test_a_plan_that_comes_to_stand_is_shown(tmp_path):
    """1. nothing fits, 2. the machine is another one. Result: its command, and no error any more."""

    async def steps(pilot):
        pilot.app.change(gpu="8xH100")
        await testing.settled(pilot)
        return pilot.app.screen.page.text, status(pilot), "command" in pilot.app.answered()

    text, line, is_answered = drive(tmp_path, steps, gpu="L4", model="Qwen/Qwen3-235B-A22B")
    assert text.startswith(("export", "vllm serve Qwen/Qwen3-235B"))
    assert ("", True) == (line, is_answered)


@pytest.mark.slow
def test_a_format_that_cannot_say_the_plan_is_one_line(tmp_path):
    """Compose describes one machine; a plan over two says so."""

    async def steps(pilot):
        return status(pilot)

    line = drive(tmp_path, steps, gpu="2x8xH100", model="deepseek-ai/DeepSeek-V3", fmt="compose")
    assert "describes one machine" in line


@pytest.mark.slow
def test_vim_keys_scroll_a_long_text(tmp_path):
    """j and k, as in tables and lists."""

    async def steps(pilot):
        body = pilot.app.screen.query_one("#body")
        await press(pilot, "j", "j", "j")
        down = body.scroll_offset.y
        await press(pilot, "k")
        return down, body.scroll_offset.y

    assert (3, 2) == drive(tmp_path, steps, fmt="k8s")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(20, 5), (40, 10)])
def test_tiny_terminals_scroll(tmp_path, size):
    """Nothing crashes, and the keys work."""

    async def steps(pilot):
        await press(pilot, "f", "a", "j", "question_mark", "escape")
        return pilot.app.screen.page.fmt

    assert "env" == drive(tmp_path, steps, size=size)


@pytest.mark.slow
def test_plain_has_no_box_and_ascii_nothing_else(tmp_path):
    """For screen readers, and for terminals without UTF-8."""

    async def steps(pilot):
        return testing.text(pilot.app)

    assert "╭" not in drive(tmp_path, steps, plain=True)
    shown = drive(tmp_path, steps, glyphs=ASCII)
    assert shown.isascii()
    assert "vllm serve Qwen/Qwen3-8B" in shown


def test_long_values_are_cut_in_the_explanation_only():
    """A JSON value would leave no room for its why."""
    assert 34 == len(command._short("--speculative-config " + "x" * 100))
    assert "--tp 2" == command._short("--tp 2")


def test_an_unwritten_file_is_never_half_of_one(tmp_path):
    """Between the question and the answer somebody else made it: it stays."""
    file = tmp_path / "x"
    file.write_text("theirs")
    with pytest.raises(command.UsageError, match="exists and was not replaced"):
        command.write("ours", file, replace=False)
    command.write("ours", file, replace=True)
    assert (["x"], "ours") == (sorted(p.name for p in tmp_path.iterdir()), file.read_text())


@pytest.mark.slow
def test_nothing_holds_the_event_loop(tmp_path):
    """Formats change without a pause that is felt."""

    async def steps(pilot):
        async def formats():
            await press(pilot, *"ffff")

        await testing.responsive(formats)

    drive(tmp_path, steps)


def test_the_screen_as_it_looks(tmp_path):
    """At three sizes; with comments, too."""

    async def steps(pilot):
        await testing.snapshots(pilot, "command")

    drive(tmp_path, steps)
