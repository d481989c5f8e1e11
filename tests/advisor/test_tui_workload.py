"""Step 3 of the wizard: every figure of the load by keys and by mouse, what it means, and what cannot be."""

import pytest


pytest.importorskip("textual")

from textual.widgets import Collapsible, Static

from vllm_advisor.errors import UsageError
from vllm_advisor.tui import knobs, meaning, testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.state import State
from vllm_advisor.tui.testing import click, press, status
from vllm_advisor.tui.widgets.field import Field
from vllm_advisor.tui.widgets.kinds import choices, scale
from vllm_advisor.units import parse_tokens
from vllm_advisor.workload import PRESETS


def drive(tmp_path, steps, plain=False, **fields):
    """Run the wizard on its third step, and return what `steps` returned."""
    state = State(**({"gpu": "2xL40S", "step": "workload", "model": "Qwen/Qwen3-8B"} | fields))
    return testing.drive(Wizard(state, file=tmp_path / "state.json", glyphs=UTF8, plain=plain), steps)


def field(pilot, name):
    return pilot.app.screen.query_one(f"#{name}", Field)


def test_keys_alone_set_a_load_and_its_limits(tmp_path):
    """Walk the fields, slide, type, open the limits: the command is what a person would have typed."""

    async def steps(pilot):
        await press(pilot, "right", "j", "8", "K", "enter", "j", "l", "down", "left")
        field(pilot, "objective").focus()
        await press(pilot, "l", "l")
        await press(pilot, "x")
        field(pilot, "tensor_parallel_size").focus()
        await press(pilot, "right", "right")
        field(pilot, "expert_parallel").focus()
        await press(pilot, "enter", "enter")
        return pilot.app.state.recommend()[5:]

    words = drive(tmp_path, steps)
    assert ("--workload", "code", "--input-tokens", "8K", "--output-tokens", "2048", "--concurrency", "8",
            "--objective", "latency", "--tp", "2", "--no-ep") == words  # fmt: skip


def test_the_mouse_sets_the_same(tmp_path):
    """A click on an option, one on the slider, a drag along it."""

    async def steps(pilot):
        await click(pilot, "#objective", (27, 0))
        await click(pilot, "#concurrency", (15, 0))
        once = pilot.app.state.load
        await pilot.mouse_down("#context", offset=(16, 0))
        await pilot.hover("#context", offset=(25, 0))
        await pilot.mouse_up("#context", offset=(25, 0))
        await testing.settled(pilot)
        return once, pilot.app.state.load.context

    once, context = drive(tmp_path, steps)
    assert ("throughput", 1) == (once.objective, once.concurrency)
    assert parse_tokens(context) > 2048


def test_a_preset_changes_what_was_not_set_by_hand(tmp_path):
    """What was typed stays, and Backspace gives the preset's value back."""

    async def steps(pilot):
        field(pilot, "concurrency").focus()
        await press(pilot, "7", "enter")
        field(pilot, "preset").focus()
        await press(pilot, "l")
        shown = (field(pilot, "input_tokens").shown, field(pilot, "concurrency").shown)
        field(pilot, "concurrency").focus()
        await press(pilot, "backspace")
        return shown, field(pilot, "concurrency").shown, pilot.app.state.load

    shown, back, load = drive(tmp_path, steps)
    assert ("4096", "7") == shown
    assert "16" == back
    assert ("code", None) == (load.preset, load.concurrency)


def test_choosing_the_default_by_hand_is_no_edit(tmp_path):
    """There and back is the preset again: nothing is typed behind the command."""

    async def steps(pilot):
        field(pilot, "concurrency").focus()
        await press(pilot, "right", "left")
        return pilot.app.state.load.concurrency, pilot.app.state.recommend()

    assert (None, ("advisor", "recommend", "Qwen/Qwen3-8B", "--gpu", "2xL40S")) == drive(tmp_path, steps)


def test_what_is_no_value_is_refused_in_a_line(tmp_path):
    """The field keeps what it had."""

    async def steps(pilot):
        field(pilot, "input_tokens").focus()
        await press(pilot, "8", ".", ".", "enter")
        return status(pilot), pilot.app.state.load.input_tokens

    assert ("✗ '8..' is not a number of tokens  (write 131072, 128k (decimal) or 128K (binary))", None) == drive(
        tmp_path, steps
    )


def test_figures_that_contradict_each_other_are_said(tmp_path):
    """A longest request shorter than question and answer; mending it clears the line."""

    async def steps(pilot):
        field(pilot, "context").focus()
        await press(pilot, "1", "0", "2", "4", "enter")
        said = status(pilot)
        await press(pilot, "end")
        return said, status(pilot)

    said, after = drive(tmp_path, steps)
    assert said.startswith("✗ --context 1,024 is shorter than input + output = 1,536 tokens")
    assert "" == after


def test_escape_gives_a_typed_value_up_and_undo_takes_one_back(tmp_path):
    """Digits are the field's while it has the focus; elsewhere they are steps."""

    async def steps(pilot):
        field(pilot, "concurrency").focus()
        await press(pilot, "9", "9", "escape")
        first = pilot.app.state.load.concurrency
        await press(pilot, "6", "4", "enter")
        second = pilot.app.state.load.concurrency
        await press(pilot, "ctrl+z")
        return first, second, pilot.app.state.load.concurrency, pilot.app.state.step

    assert (None, 64, None, "workload") == drive(tmp_path, steps)


def test_another_version_is_chosen_and_the_default_is_no_flag(tmp_path):
    """The versions are those that we have a surface of."""

    async def steps(pilot):
        field(pilot, "vllm").focus()
        await press(pilot, "left")
        older = pilot.app.state.vllm
        await press(pilot, "right")
        return older, pilot.app.state.recommend()

    older, words = drive(tmp_path, steps)
    assert "0.32.0" == older
    assert "--vllm" not in words


def test_the_limits_are_named_while_folded_and_one_key_frees_them(tmp_path):
    """`d` goes back to the preset's own figures and no limits."""

    async def steps(pilot):
        await press(pilot, "x")
        field(pilot, "siblings").focus()
        await press(pilot, "right")
        field(pilot, "gpu_memory_utilization").focus()
        await press(pilot, "0", ".", "8", "5", "enter")
        title = str(pilot.app.screen.query_one("#limits", Collapsible).title)
        limits = pilot.app.state.limits
        await press(pilot, "d")
        return title, limits, str(pilot.app.screen.query_one("#limits", Collapsible).title)

    title, limits, after = drive(tmp_path, steps)
    assert "Limits: Memory share 0.85, Only this one yes" == title
    assert (0.85, False) == (limits.gpu_memory_utilization, limits.siblings)
    assert "Limits: none, every choice is free" == after


def test_weights_may_be_converted_to_what_machine_and_version_can(tmp_path):
    """The choice is that of the engine, for this model on these devices."""

    async def steps(pilot):
        stops = field(pilot, "quantization").kind.stops
        await press(pilot, "x")
        field(pilot, "quantization").focus()
        await press(pilot, "right", "right")
        return stops, pilot.app.state.limits.quantization

    stops, chosen = drive(tmp_path, steps)
    assert ("", "none") == stops[:2]
    assert {"fp8_per_channel", "fp8_per_block"} <= set(stops)
    assert stops[2] == chosen


def test_in_text_mode_there_is_no_slider(tmp_path):
    """A value, and from where to where it goes."""

    async def steps(pilot):
        return testing.text(pilot.app)

    text = drive(tmp_path, steps, plain=True)
    assert "At once       32 (1 to 1,024)" in text
    assert "●" not in text


def test_the_whole_load_is_said_in_a_sentence(tmp_path):
    """In words that need no knowledge of tokens."""

    async def steps(pilot):
        return str(pilot.app.screen.query_one("#sentence", Static).content)

    assert (
        "32 answers written at once; each sends about 1.5 pages and reads about a page. "
        "Better means: fast, for one and all."
    ) == drive(tmp_path, steps)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (meaning.tokens(1), "about a word"),
        (meaning.tokens(80), "about 60 words"),
        (meaning.tokens(700), "about a page"),
        (meaning.tokens(2048), "about 3.1 pages"),
        (meaning.tokens(131_072), "about 200 pages, a book"),
        (meaning.tokens(0), "nothing"),
        (meaning.concurrency(1), "one request at a time"),
        (meaning.rate(0.5), "about 1,800 an hour"),
        (meaning.shared(8192, 16_384), "50 % of a prompt is always the same"),
        (meaning.first_token(500), "an answer begins within 0.50 s"),
        (meaning.each_token(50), "20 tokens a s, 3.8 × reading"),
        (meaning.each_token(None), "any speed will do"),
    ],
)
def test_numbers_have_a_plain_meaning(said, words):
    """Rough, and never more exact than it is."""
    assert words == said


TOKENS = scale((256, 512, 1024), parse_tokens, "none")


@pytest.mark.parametrize(
    ("kind", "text", "by", "expected"),
    [
        (TOKENS, "512", 1, "1024"),
        (TOKENS, "1024", 1, "1024"),
        (TOKENS, "600", 1, "1024"),
        (TOKENS, "600", -1, "512"),
        (TOKENS, "1K", -1, "512"),
        (TOKENS, "", 1, "256"),
        (TOKENS, "256", -1, ""),
        (TOKENS, "9K", -1, "1024"),
        (choices("a", "b"), "b", 1, "b"),
        (choices("a", "b"), "unheard", 1, "b"),
    ],
)
def test_a_step_goes_to_the_next_stop_on_its_side(kind, text, by, expected):
    """Also from a typed value between two of them."""
    assert expected == kind.beside(text, by)


@pytest.mark.parametrize("knob", [*knobs.LOAD, *knobs.LIMITS], ids=lambda knob: knob.name)
def test_every_stop_of_every_knob_is_kept_as_it_is_shown(knob):
    """Into the state and out of it again, and its meaning is said."""
    state, load = State(), PRESETS["chat"]
    for stop in knob.kind.stops:
        changed = state._replace(**knob.change(state, stop, load))
        expected = "" if stop == knob.default(load) else stop
        assert expected == knob.value(changed)
        assert knobs.says(knob.name, stop, load)


@pytest.mark.parametrize(("name", "text"), [("concurrency", "0"), ("concurrency", "1.5"), ("request_rate", "0"),
                                            ("gpu_memory_utilization", "1.2"), ("ttft_ms", ".")])  # fmt: skip
def test_values_out_of_their_range_are_refused(name, text):
    """With what to write instead."""
    with pytest.raises(UsageError) as caught:
        knobs.BY_NAME[name].kind.read(text)
    assert caught.value.hint


def test_pictures(tmp_path):
    """The preset of agents with limits set, at every size."""

    async def steps(pilot):
        await testing.snapshots(pilot, "workload")

    load = State().load._replace(preset="agent", concurrency=64, ttft_ms=500.0)
    drive(tmp_path, steps, load=load, limits=State().limits._replace(tensor_parallel_size=2))
