"""Step 4 of the wizard: ranking while a slider moves, all that is told of a plan, and what helps where nothing fits."""

import io
import time
from itertools import pairwise

import pytest


pytest.importorskip("textual")

from rich.console import Console
from textual.widgets import Static

from vllm_advisor import question
from vllm_advisor.adoption import Match, Outcome
from vllm_advisor.candidates import Restrictions
from vllm_advisor.profile import Fingerprint, Measurement, Origin, Profile, Provenance
from vllm_advisor.question import Load, Question
from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import ASCII, UTF8
from vllm_advisor.tui.state import State
from vllm_advisor.tui.testing import click, press, status
from vllm_advisor.tui.widgets import bar, told
from vllm_advisor.tui.widgets.field import Field
from vllm_advisor.tui.widgets.lists import VimTable
from vllm_advisor.tui.widgets.plot import Plot, Spot, axis, drawn
from vllm_advisor.units import Interval
from vllm_advisor.workload import PRESETS


FITS = {"gpu": "2xL40S", "model": "Qwen/Qwen3-8B"}
TIGHT = {"gpu": "L4", "model": "Qwen/Qwen3-32B"}
NOTHING = {"gpu": "L4", "model": "Qwen/Qwen3-235B-A22B"}


def drive(tmp_path, steps, size=(80, 24), plain=False, glyphs=UTF8, **fields):
    """Run the wizard on its fourth step, and return what `steps` returned."""
    app = Wizard(State(step="plans", **fields), file=tmp_path / "state.json", glyphs=glyphs, plain=plain)
    return testing.drive(app, steps, size)


def answer(gpu, model, load=None, limits=None):
    return question.answer(Question(model, gpu, None, "0.33.0", load or Load(), limits or Restrictions()), 50)


def cells(pilot, row=0):
    return [str(cell).strip() for cell in pilot.app.screen.query_one("#plans", VimTable).get_row_at(row)]


def said(pilot, name="said"):
    return str(pilot.app.screen.query_one(f"#{name}", Static).content)


def printed(renderable, width=100):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


# -- the table


def test_the_table_is_the_engines_answer(tmp_path):
    """Every plan that stands, in its order, with the figures that `advisor recommend` prints."""

    async def steps(pilot):
        table = pilot.app.screen.query_one("#plans", VimTable)
        return table.row_count, cells(pilot), said(pilot)

    found = answer(FITS["gpu"], FITS["model"]).found
    count, first, headline = drive(tmp_path, steps, **FITS)
    assert len(found.plans) == count
    assert found.plans[0].plan.layout == first[1]
    assert (
        f"{found.accepted} plans ({len(found.rejected)} rejected), Qwen/Qwen3-8B, 2xNVIDIA L40S, vLLM 0.33.0"
        == headline
    )


def test_a_slider_ranks_again_and_the_cursor_stays_on_its_plan(tmp_path):
    """Other figures, in the order of another load; the plan under the cursor is found again wherever it went."""

    async def steps(pilot):
        await press(pilot, "j", "j")
        screen = pilot.app.screen
        table, before = screen.query_one("#plans", VimTable), cells(pilot, 2)[1:4]
        first = cells(pilot)
        screen.query_one("#concurrency", Field).focus()
        await press(pilot, "right", "right")
        return before, cells(pilot, table.cursor_row)[1:4], first, cells(pilot), pilot.app.state.load.concurrency

    before, after, first, then, concurrency = drive(tmp_path, steps, **FITS)
    assert before == after
    assert first != then
    assert 64 == concurrency


def test_enter_takes_the_plan_and_goes_on(tmp_path):
    """The number is that of `advisor launch --plan`; another question begins with its first plan again."""

    async def steps(pilot):
        await press(pilot, "down", "enter")
        chosen = pilot.app.state
        pilot.app.change(load=Load(concurrency=8))
        return chosen, pilot.app.state.plan

    chosen, after = drive(tmp_path, steps, **FITS)
    assert (2, "command", 1) == (chosen.plan, chosen.step, after)


def test_the_mouse_moves_sliders_the_cursor_and_the_panes(tmp_path):
    """A click each."""

    async def steps(pilot):
        await click(pilot, "#concurrency", (15, 0))
        once = pilot.app.state.load.concurrency
        await click(pilot, "#plans", (6, 2))
        row = pilot.app.screen.query_one("#plans", VimTable).cursor_row
        await click(pilot, "#panes", (12, 0))
        return once, row, pilot.app.screen.query_one("#speed").has_class("chosen")

    assert (1, 1, True) == drive(tmp_path, steps, **FITS)


def test_every_pane_tells_its_part_of_the_plan(tmp_path):
    """One at a time in a small terminal, by its key."""

    async def steps(pilot):
        texts = []
        for key in "mspwn":
            await press(pilot, key)
            texts.append(testing.text(pilot.app))
        return texts

    memory, speed, pareto, why, kernels = drive(tmp_path, steps, **FITS)
    assert "Memory of" in memory
    assert "KV cache:" in memory
    assert "Speed (an estimate, not a measurement)" in speed
    assert "limited by" in speed
    assert "tok/s a user" in pareto
    assert "◆" in pareto
    assert "MEM-07" in why
    assert "FLASH" in kernels


def test_all_panes_stand_side_by_side_where_there_is_room(tmp_path):
    """And nothing has to be opened."""

    async def steps(pilot):
        return testing.text(pilot.app)

    text = drive(tmp_path, steps, size=(160, 50), **FITS)
    assert all(part in text for part in ("Memory of", "Speed (an", "Why", "Kernels that", "tok/s a GPU"))


def test_rejected_plans_say_every_reason(tmp_path):
    """`x` opens them, the reasons follow the cursor, and Escape closes."""

    async def steps(pilot):
        await press(pilot, "x")
        first = testing.text(pilot.app)
        await press(pilot, "G")
        last = testing.text(pilot.app)
        await testing.snapshots(pilot, "rejected")
        await press(pilot, "escape")
        return first, last, type(pilot.app.screen).__name__

    first, last, below = drive(tmp_path, steps, **TIGHT)
    assert "Rejected plans (" in first
    assert "MEM-" in first
    assert "veto:" in first
    assert first != last
    assert "PlansStep" == below


def test_no_rejected_plan_is_said(tmp_path):
    """And nothing opens."""

    async def steps(pilot):
        await press(pilot, "x")
        return type(pilot.app.screen).__name__

    assert "PlansStep" == drive(tmp_path, steps, gpu="8xH100", model="Qwen/Qwen3-8B")


def test_the_rail_knows_which_question_was_answered(tmp_path):
    """Another load is not answered yet; taking it back is."""

    async def steps(pilot):
        app = pilot.app
        seen = ["plans" in app.answered()]
        app.action_go("workload")
        await testing.settled(pilot)
        app.change(load=Load(concurrency=8))
        seen.append("plans" in app.answered())
        await press(pilot, "ctrl+z")
        return [*seen, "plans" in app.answered()]

    assert [True, False, True] == drive(tmp_path, steps, **FITS)


# -- no answer


def test_without_a_model_it_says_which_step(tmp_path):
    """And shows no table."""

    async def steps(pilot):
        return said(pilot), pilot.app.screen.query_one("#plans").display

    assert ("no model is chosen yet: step 2", False) == drive(tmp_path, steps, gpu="L4")


def test_a_question_that_cannot_be_is_one_line_and_no_old_table(tmp_path):
    """A context beyond the model's own; undo gives the table back."""

    async def steps(pilot):
        pilot.app.screen.query_one("#context", Field).focus()
        await press(pilot, "end")
        wrong, shown = status(pilot), pilot.app.screen.query_one("#plans").display
        await press(pilot, "ctrl+z")
        return wrong, shown, status(pilot), pilot.app.screen.query_one("#plans").display

    wrong, shown, after, again = drive(tmp_path, steps, **FITS)
    assert "is made for 40,960 positions" in wrong
    assert (False, "", True) == (shown, after, again)


def test_where_nothing_fits_a_remedy_is_applied_and_undone(tmp_path):
    """The nearest misses with their reasons; Enter takes the first remedy, and its plan stands."""

    async def steps(pilot):
        text = testing.text(pilot.app)
        await testing.snapshots(pilot, "nothing-fits")
        await press(pilot, "enter")
        state, rows = pilot.app.state, pilot.app.screen.query_one("#plans", VimTable).row_count
        await press(pilot, "ctrl+z")
        return text, state, rows, pilot.app.state.gpu, said(pilot)

    text, state, rows, gpu, headline = drive(tmp_path, steps, **NOTHING)
    assert "MEM-01: weights need" in text
    assert "which needs 7 more NVIDIA L4" in text
    assert ("8xNVIDIA L4", 8) == (state.gpu, state.limits.tensor_parallel_size)
    assert rows > 0
    assert "L4" == gpu
    assert headline.startswith("no plan fits")


def test_a_remedy_is_chosen_by_the_mouse(tmp_path):
    """The second one, by a click."""

    async def steps(pilot):
        await click(pilot, "#remedies", (4, 2))
        return pilot.app.state

    state = drive(tmp_path, steps, **NOTHING)
    assert 8 == state.limits.tensor_parallel_size


def test_a_store_that_cannot_be_read_is_said_and_stops_nothing(tmp_path, monkeypatch):
    """The plans stand, as estimates."""
    broken = tmp_path / "advisor.db"
    broken.write_bytes(b"this is no database" * 100)
    monkeypatch.setenv("ADVISOR_DATABASE_URL", str(broken))

    async def steps(pilot):
        return (
            pilot.app.screen.query_one("#plans", VimTable).row_count,
            pilot.app.asker.remarks,
            len(pilot.app._notifications),
        )

    rows, remarks, shown = drive(tmp_path, steps, **FITS)
    assert rows > 0
    assert 1 == len(remarks) == shown


# -- what is told


def measured(found):
    """The answer with its first plan measured here."""
    figures = (("output_tok_s", Interval(1900.0, 2000.0, 2100.0)), ("tpot_ms", Interval(14.0, 15.0, 16.0)))
    run = Measurement(figures, PRESETS["chat"], 5, 60.0, "vllm bench serve", 1_767_225_600.0)
    plan = found.found.plans[0].plan
    profile = Profile(Fingerprint((), ()), plan, run, (), Provenance(Origin.MEASURED, at=1.8e9), plan.checkpoint)
    return found._replace(match=Match(), outcome=Outcome(found.found, profile, ()))


def test_a_measured_plan_is_marked_and_its_measurement_is_no_estimate():
    """By a letter in the table and a word in the pane; the others stay estimates."""
    found = measured(answer("2xL40S", "Qwen/Qwen3-8B"))
    rows = told.rows(found, UTF8, 80)
    assert "m" == str(rows[0][0]).strip()[0]
    assert all(str(row[0]).strip()[0] != "m" for row in rows[1:])
    first = printed(told.speed(found, 0))
    assert "MEASURED" in first
    assert "2,000 tok/s" in first
    assert "MEASURED" not in printed(told.speed(found, 1))


def test_the_bar_shows_all_of_a_device_and_every_part_of_it():
    """Parts add up to the memory, and the smallest still has a cell."""
    budget = answer("2xL40S", "Qwen/Qwen3-8B").found.plans[0].budget
    parts = bar.parts(budget)
    assert pytest.approx(budget.total, rel=0.01) == sum(part.size for part in parts)
    line = bar._bar(parts, 60, bar._ASCII).plain
    assert 60 == len(line)
    assert all(sign in line for part, sign in zip(parts, bar._ASCII, strict=True) if part.size)


SPOTS = (Spot(10, 1000, "best"), Spot(100, 100, "best"), Spot(20, 50, "other"), Spot(50, 200, "here"))


@pytest.mark.parametrize("utf8", [True, False])
def test_the_plot_keeps_its_size_and_joins_the_best(utf8):
    """A floor, ticks, both ends of the frontier at their corners, and a line between them."""
    lines = drawn(SPOTS, ("x", "y"), 60, 9, utf8=utf8).plain.split("\n")
    best, here = ("●", "◆") if utf8 else ("*", "@")
    assert 12 == len(lines)
    assert all(len(line) <= 60 for line in lines)
    grid = "\n".join(lines[1:-2])
    assert (2, 1) == (grid.count(best), grid.count(here))
    assert grid.index(best) < grid.index(here) < grid.rindex(best)
    assert utf8 or grid.isascii()


def test_an_axis_of_one_value_has_room():
    """A single plan is drawn in the middle."""
    assert pytest.approx(0.5) == axis([40.0]).at(40.0)


def test_in_text_mode_the_plot_is_rows_of_figures(tmp_path):
    """The frontier, best a GPU first, and where the plan under the cursor lies."""

    async def steps(pilot):
        await press(pilot, "p")
        return str(pilot.app.screen.query_one("#pareto", Plot).render())

    text = drive(tmp_path, steps, plain=True, **FITS)
    assert text.startswith("tok/s a GPU against tok/s a user (estimates)")
    assert "the plan under the cursor" in text
    assert "●" not in text


def test_nothing_but_ascii_leaves_an_ascii_terminal(tmp_path):
    """Table, bar and plot included."""

    async def steps(pilot):
        await press(pilot, "p")
        return testing.picture(pilot.app)

    rows = testing.rows(drive(tmp_path, steps, glyphs=ASCII, **FITS))
    assert all(row.isascii() for row in rows)


@pytest.mark.parametrize("size", [(20, 5), (40, 12), (60, 18)])
def test_small_terminals_scroll_and_nothing_breaks(tmp_path, size):
    """The cursor and the panes work there too."""

    async def steps(pilot):
        await press(pilot, "j", "v", "v", "x", "escape")
        return pilot.app.screen.query_one("#plans", VimTable).cursor_row

    assert 1 == drive(tmp_path, steps, size=size, **FITS)


# -- how fast


def test_the_engine_ranks_an_eight_gpu_node_in_time():
    """100 ms of a machine of 2020, as `testing.slowness` compares this one to it; the least of some runs."""
    asked = Question("Qwen/Qwen3-32B", "8xH100", None, "0.33.0", Load(), Restrictions())
    facts, siblings = question.read(asked)
    spent = []
    for concurrency in (8, 16, 48, 64, 96):
        moved = facts._replace(workload=question.workload(Load(concurrency=concurrency)))
        start = time.thread_time()
        assert question.decide(moved, siblings, asked, 50).found.plans
        spent.append(time.thread_time() - start)
    assert min(spent) <= 0.100 * testing.slowness()


def test_a_moving_slider_holds_the_loop_for_no_longer_than_allowed(tmp_path):
    """Fifty rows change while the engine works in a thread."""

    async def steps(pilot):
        pilot.app.screen.query_one("#concurrency", Field).focus()
        await testing.settled(pilot)

        async def slide():
            await press(pilot, "right", "right", "left", "left")

        watch = await testing.responsive(slide)
        return watch.calls

    assert drive(tmp_path, steps, gpu="8xH100", model="Qwen/Qwen3-32B") > 0


def test_pictures(tmp_path):
    """Eight devices, at every size."""

    async def steps(pilot):
        await testing.snapshots(pilot, "plans")

    drive(tmp_path, steps, gpu="8xH100", model="Qwen/Qwen3-32B")


def test_a_late_word_never_overwrites_the_answer(tmp_path):
    """What says that it still ranks comes too late where the answer is there already."""

    async def steps(pilot):
        pilot.app.screen._say()
        return said(pilot)

    assert drive(tmp_path, steps, **FITS).endswith("vLLM 0.33.0")


def test_a_machine_that_was_read_again_is_ranked_again(tmp_path):
    """The same question, asked of another reading."""

    async def steps(pilot):
        before = pilot.app.answer
        await press(pilot, "1")
        await press(pilot, "down", "r")
        await press(pilot, "4")
        return before is pilot.app.answer, pilot.app.answer.found == before.found

    assert (False, True) == drive(tmp_path, steps, **FITS)


def test_the_line_of_a_plot_goes_through_its_points():
    """A frontier from corner to corner leaves no gap between its cells."""
    spots = (Spot(1, 100, "best"), Spot(100, 1, "best"))
    lines = drawn(spots, ("x", "y"), 40, 9, utf8=True).plain.split("\n")[1:-2]
    filled = [[i for i, sign in enumerate(line) if ord(sign) > 0x2800 or sign == "●"] for line in lines]
    kept = [columns for columns in filled if columns]
    assert all(max(above) + 1 >= min(below) for above, below in pairwise(kept))
    assert len(kept) >= 8
