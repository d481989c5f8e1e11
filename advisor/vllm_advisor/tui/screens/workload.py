"""Step 3: what the server is for. A preset, and each of its figures to change, with what it means in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Collapsible, Static

from vllm_advisor.candidates import Restrictions
from vllm_advisor.errors import AdvisorError
from vllm_advisor.question import DEFAULT_VLLM, Load
from vllm_advisor.tui import knobs, meaning
from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.screens.base import StepScreen
from vllm_advisor.tui.widgets.field import Field
from vllm_advisor.tui.widgets.kinds import choices


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from vllm_advisor.tui.state import State
    from vllm_advisor.workload import Workload

_GROUPS = (
    ("Requests", ("input_tokens", "output_tokens", "concurrency", "context", "request_rate", "shared_prefix")),
    ("What counts", ("objective", "sensitivity", "ttft_ms", "tpot_ms")),
)


class WorkloadStep(StepScreen):
    """Fields, one a line; below them the whole load in a sentence."""

    STEP = "workload"
    AUTO_FOCUS = "#preset"
    HELP = """Workload

Begin with the preset that is nearest: it sets every figure, and each of them can be changed. Left and right (h and l)
move a slider, digits type a value (8k is 8,000, 8K is 8,192), Enter takes it, Backspace gives the preset's value back.
A star marks what you set. Up and down (k and j) walk the fields.

Lengths are in tokens, about three quarters of a word each. "At once" is how many requests are being answered at the
same moment, which is less than how many people use it. "Longest" is the longest request that must be served, question
and answer together. The limits for the first and for each later token rule plans out that cannot keep them.

Limits fix a choice that is otherwise free; the words are vLLM's own."""
    BINDINGS: ClassVar[list[BindingType]] = [("x", "limits", "Limits"), ("d", "defaults", "Defaults")]

    _offered: tuple[str, ...] = ()

    def body(self) -> ComposeResult:
        """The preset, two groups, the version, the limits, and the sentence."""
        signs = ("▶", "▼") if self.wizard.glyphs == UTF8 else (">", "v")
        yield Static(id="sentence", markup=False)
        yield knobs.field("preset", self._load)
        for title, names in _GROUPS:
            yield Static(title, classes="group")
            yield from (knobs.field(name, self._load) for name in names)
        yield Field("vLLM", choices(DEFAULT_VLLM), lambda _: "the version that will run", id="vllm")
        with Collapsible(title="Limits", id="limits", collapsed_symbol=signs[0], expanded_symbol=signs[1]):
            yield from (knobs.field(knob.name, self._load) for knob in knobs.LIMITS)

    def _load(self) -> Workload:
        return knobs.workload(self.wizard.state)[0]

    def on_mount(self) -> None:
        """Which versions there are."""
        from vllm_advisor.vllm import surface

        kind = choices(*surface.versions())
        self.query_one("#vllm", Field).show("", DEFAULT_VLLM, kind)

    def _offer(self, state: State) -> None:
        """What weights can be converted to rests on machine, model and version: it is looked up beside."""
        key = (state.gpu, state.node, state.model, state.revision, state.vllm, str(state.limits.allow_plugin))
        if not state.model or key == self._offered:
            return
        self._offered = key
        asker, kept = self.wizard.asker, state.limits.quantization

        def names() -> tuple[str, ...]:
            try:
                found = asker.quantizations(state)
            except AdvisorError:  # the steps before say it
                return ()
            return found if kept is None or kept in ("none", *found) else (*found, kept)

        self.work("", names, self._offers, group="offer")

    def _offers(self, names: tuple[str, ...]) -> None:
        shown = self.query_one("#quantization", Field)
        shown.show(shown.value, shown.default, knobs.quantizations(names))

    def show(self, state: State) -> None:
        """Each figure, the sentence, and what contradicts itself."""
        self._offer(state)
        knobs.show(self.query(Field), state)
        self.query_one("#vllm", Field).show("" if state.vllm == DEFAULT_VLLM else state.vllm, DEFAULT_VLLM)
        load, wrong = knobs.workload(state)
        self.query_one("#sentence", Static).update("" if wrong else meaning.summary(load))
        hint = f"  ({wrong.hint})" if wrong and wrong.hint else ""
        self.status(f"{self.wizard.glyphs.fails} {wrong.message}{hint}" if wrong else "", failed=bool(wrong))
        self.query_one("#limits", Collapsible).title = f"Limits: {limits(state)}"

    def on_field_changed(self, changed: Field.Changed) -> None:
        """Into the state."""
        if changed.field.id == "vllm":
            self.wizard.change(vllm=changed.value or DEFAULT_VLLM)
        else:
            self.wizard.change(**knobs.changed(self.wizard.state, changed))

    def on_field_refused(self, refused: Field.Refused) -> None:
        """What was typed is no such value."""
        hint = f"  ({refused.hint})" if refused.hint else ""
        self.status(f"{self.wizard.glyphs.fails} {refused.what}{hint}", failed=True)

    def action_limits(self) -> None:
        """Open or fold the limits."""
        folded = self.query_one("#limits", Collapsible)
        folded.collapsed = not folded.collapsed

    def action_defaults(self) -> None:
        """The preset's own figures, and no limits."""
        self.wizard.change(load=Load(self.wizard.state.load.preset), limits=Restrictions())


def limits(state: State) -> str:
    """Those that are set, in the words of the fields."""
    found = [(knob.label, knob.value(state)) for knob in knobs.LIMITS]
    return ", ".join(f"{label} {value}" for label, value in found if value) or "none, every choice is free"
