"""Step 4: the plans, ranked again while a slider moves, and all that is known of the one under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widgets import Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from vllm_advisor.tui import knobs
from vllm_advisor.tui.messages import Answered
from vllm_advisor.tui.screens.base import StepScreen
from vllm_advisor.tui.widgets import told
from vllm_advisor.tui.widgets.bar import MemoryBar
from vllm_advisor.tui.widgets.field import Field
from vllm_advisor.tui.widgets.lists import VimList, VimTable
from vllm_advisor.tui.widgets.plot import Plot


if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.timer import Timer
    from textual.widgets import DataTable, OptionList

    from vllm_advisor.facts import Miss, Ranked, Remedy
    from vllm_advisor.pareto import Point
    from vllm_advisor.question import Answer, Question
    from vllm_advisor.tui.messages import Failed
    from vllm_advisor.tui.state import State

_KNOBS = ("concurrency", "context", "objective")
_PANES = {"m": "memory", "s": "speed", "p": "pareto", "w": "why", "n": "kernels"}
_SAID_AFTER = 0.2  # seconds: an answer that comes sooner needs no "ranking …"


class PlansStep(StepScreen):
    """Three sliders, the table, and panes: side by side where there is room, else one at a time."""

    STEP = "plans"
    AUTO_FOCUS = "#plans"
    HELP = """Plans

Every way to serve the model here that stands, best first. Speeds are estimates for the workload, in the middle of an
interval that "speed" shows; a plan that was measured on this very machine says so, and comes first.

Move a slider and the table ranks again; the rest of the workload is one step back. The cursor stays on the same plan.
Enter takes the plan under the cursor and goes on to its command. "x" lists the plans that were rejected, each with
every reason. Where nothing fits, the nearest misses stand in place of the table: Enter on a remedy applies it, and
undo takes it back.

The plot has a dot for every plan at every load: further right is faster for one user, further up is more a GPU."""
    BINDINGS: ClassVar[list[BindingType]] = [
        ("x", "rejected", "Why not"),
        *(Binding(key, f"pane({name!r})", name.title(), show=False) for key, name in _PANES.items()),
        Binding("v", "next_pane", "View"),
        Binding("t", "table", "To the table", show=False),
    ]

    _asked: tuple[Question, int] | None = None  # and how much was to be read again then
    _answer: Answer | None = None
    _points: tuple[Point, ...] = ()
    _remedies: tuple[tuple[Miss, Remedy], ...] = ()
    _late: Timer | None = None
    _heard = 0

    def body(self) -> ComposeResult:
        """Sliders, what was found, table or remedies, panes."""
        yield Static(id="said", markup=False)
        with Container(id="knobs"):
            yield from (knobs.field(name, lambda: knobs.workload(self.wizard.state)[0]) for name in _KNOBS)
        yield VimTable(id="plans", cursor_type="row", cell_padding=0, zebra_stripes=False)
        yield Static(id="missing", markup=False)
        yield VimList(id="remedies", markup=False)
        yield Static(id="panes", markup=True)
        with Container(id="details"):
            with Vertical(id="left"):
                yield MemoryBar(id="memory")
                yield Static(id="speed", markup=False)
                yield Static(id="why", markup=False)
            with Vertical(id="right"):
                yield Plot("tok/s a user", "tok/s a GPU", id="pareto")
                yield Static(id="kernels", markup=False)

    def on_mount(self) -> None:
        """The pane to begin with."""
        self.action_pane("memory")

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - Textual's signature
        """Names have more room, or less."""
        if self._answer and self._answer.found.plans:
            self._fill(self._answer, self.query_one("#plans", VimTable).cursor_row)

    def _fill(self, answer: Answer, at: int) -> None:
        table, wide = self.query_one("#plans", VimTable), self.app.size.width
        heads = told.columns(wide)
        if [str(column.label) for column in table.ordered_columns] != list(heads):
            table.clear(columns=True)
            table.add_columns(*heads)
        table.fill(told.rows(answer, self.wizard.glyphs, wide), at)

    # -- asking

    def show(self, state: State) -> None:
        """Rank again where the question is another; otherwise only the fields."""
        knobs.show(self.query(Field), state)
        if not state.model:
            self._nothing("no model is chosen yet: step 2")
        elif self._asked != (state.question, self.wizard.asker.forgotten):
            self._ask(state)

    def _ask(self, state: State) -> None:
        self._asked = (state.question, self.wizard.asker.forgotten)
        self._say_late()
        asker = self.wizard.asker
        self.work("", lambda: asker.answer(state, _cancelled), lambda answer: self._answered(state, answer))

    def _say_late(self) -> None:
        if self._late is None:
            self._late = self.set_timer(_SAID_AFTER, self._say)

    def _say(self) -> None:
        """Still waiting: said once it is worth reading."""
        if self._late is not None:  # the timer may be stopped with its call already on the way
            self.query_one("#said", Static).update("ranking …")

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.stop()
            self._late = None

    def on_failed(self, failed: Failed) -> None:
        """No answer to this question: the table would be of another."""
        self._in_time()
        self._nothing("")
        super().on_failed(failed)

    def _nothing(self, why: str) -> None:
        self._answer, self._asked, self.wizard.answer = None, None, None
        self.query_one("#said", Static).update(why)
        self._arrange(plans=False, misses=False)

    def _answered(self, state: State, answer: Answer) -> None:
        self._in_time()
        self.status("")
        before, self._answer, self.wizard.answer = self._at_cursor(), answer, answer
        self.query_one("#said", Static).update(told.headline(answer))
        self._arrange(plans=bool(answer.found.plans), misses=not answer.found.plans)
        if answer.found.plans:
            self._rank(answer, before, state.plan)
        else:
            self._misses(answer)
        self._remark()
        self.mark()
        self.post_message(Answered(state, answer))

    def _remark(self) -> None:
        """What the store could not tell, each once."""
        remarks = self.wizard.asker.remarks
        for text in remarks[self._heard :]:
            self.notify(text, severity="warning", markup=False)
        self._heard = len(remarks)

    def _arrange(self, *, plans: bool, misses: bool) -> None:
        for selector in ("#plans", "#panes", "#details"):
            self.query_one(selector).set_class(not plans, "gone")
        for selector in ("#missing", "#remedies"):
            self.query_one(selector).set_class(not misses, "gone")

    # -- the table

    def _at_cursor(self) -> Ranked | None:
        plans = self._answer.found.plans if self._answer else ()
        row = self.query_one("#plans", VimTable).cursor_row
        return plans[row] if 0 <= row < len(plans) else None

    def _rank(self, answer: Answer, before: Ranked | None, plan: int) -> None:
        """The rows, the cursor on the plan where it was, or on the chosen one."""
        plans = answer.found.plans
        same = next(
            (i for i, ranked in enumerate(plans) if before and told.kind(ranked) == told.kind(before)), plan - 1
        )
        self._fill(answer, same)
        self._tell()
        asker, state = self.wizard.asker, self.wizard.state
        self.work("", lambda: asker.points(state, _cancelled), self._charted, group="pareto")

    def _charted(self, points: tuple[Point, ...]) -> None:
        self._points = points
        self._plot()

    def on_data_table_row_highlighted(self, highlighted: DataTable.RowHighlighted) -> None:  # noqa: ARG002 - Textual's
        """Everything of the plan under the cursor."""
        self._tell()

    def on_data_table_row_selected(self, selected: DataTable.RowSelected) -> None:
        """Take it."""
        if self._answer and selected.cursor_row < len(self._answer.found.plans):
            self.wizard.change(plan=selected.cursor_row + 1)
            self.wizard.action_go("command")

    def _tell(self) -> None:
        ranked, answer = self._at_cursor(), self._answer
        if ranked is None or answer is None:
            return
        row = self.query_one("#plans", VimTable).cursor_row
        self.query_one("#memory", MemoryBar).show(ranked.budget, told.devices(ranked, answer.found.facts.node))
        self.query_one("#speed", Static).update(told.speed(answer, row))
        self.query_one("#why", Static).update(told.why(ranked))
        self.query_one("#kernels", Static).update(told.kernels(ranked))
        self._plot()

    def _plot(self) -> None:
        self.query_one("#pareto", Plot).show(told.spots(self._points, self._at_cursor()), "looking at every load …")

    # -- nothing fits

    def _misses(self, answer: Answer) -> None:
        """The nearest misses, and each remedy as something to choose."""
        self._remedies = tuple((miss, remedy) for miss in answer.found.misses for remedy in miss.remedies)
        self.query_one("#missing", Static).update("\n".join(told.misses(answer, self.wizard.glyphs)))
        remedies = self.query_one("#remedies", VimList)
        remedies.set_options([Option(told.remedy(miss, remedy)) for miss, remedy in self._remedies])
        remedies.set_class(not self._remedies, "gone")
        if self._remedies:
            remedies.highlighted = 0
            if self.focused is None or self.focused.id == "plans":
                remedies.focus()

    def on_option_list_option_selected(self, selected: OptionList.OptionSelected) -> None:
        """Apply a remedy: undo takes it back."""
        from vllm_advisor import remedy as remedies
        from vllm_advisor.errors import AdvisorError

        if self._answer is None:
            return
        miss, remedy = self._remedies[selected.option_index]
        state = self.wizard.state
        try:
            asked = remedies.applied(state.question, self._answer.found.facts, miss, remedy)
        except AdvisorError as error:
            super().on_failed(told.failed(error))
            return
        self.wizard.change(
            model=asked.model, revision=asked.revision or "", gpu=asked.gpu or "", load=asked.load,
            limits=asked.restrictions,
        )  # fmt: skip
        self.query_one("#plans", VimTable).focus()

    # -- keys

    def on_field_changed(self, changed: Field.Changed) -> None:
        """A slider of this screen: into the state, which ranks again."""
        self.wizard.change(**knobs.changed(self.wizard.state, changed))

    def on_field_refused(self, refused: Field.Refused) -> None:
        """What was typed is no such value."""
        hint = f"  ({refused.hint})" if refused.hint else ""
        self.status(f"{self.wizard.glyphs.fails} {refused.what}{hint}", failed=True)

    def action_pane(self, name: str) -> None:
        """Bring one pane to the front, where only one has room."""
        for pane in _PANES.values():
            self.query_one(f"#{pane}").set_class(pane == name, "chosen")
        names = (
            f"[b reverse] {pane} [/]" if pane == name else f"[@click=screen.pane('{pane}')] [u]{key}[/u] {pane} [/]"
            for key, pane in _PANES.items()
        )
        self.query_one("#panes", Static).update("".join(names) + "   [i]= cannot be told from 1[/]")

    def action_next_pane(self) -> None:
        """The next pane."""
        names = list(_PANES.values())
        at = next(i for i, pane in enumerate(names) if self.query_one(f"#{pane}").has_class("chosen"))
        self.action_pane(names[(at + 1) % len(names)])

    def action_table(self) -> None:
        """To the table."""
        self.query_one("#plans", VimTable).focus()

    def action_rejected(self) -> None:
        """The plans that will not be proposed, each with every reason."""
        from vllm_advisor.tui.screens.rejected import RejectedPlans

        if self._answer is None:
            self.status("there is no answer yet", failed=True)
        elif not self._answer.found.rejected:
            self.notify("no plan was rejected", timeout=3)
        else:
            self.app.push_screen(RejectedPlans(self._answer.found))


def _cancelled() -> bool:
    """Whether the worker that asks is still waited for."""
    return get_current_worker().is_cancelled
