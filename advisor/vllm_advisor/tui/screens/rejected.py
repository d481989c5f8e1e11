"""`x` on the plans: the ones that will not be proposed, and everything that speaks against the one under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from vllm_advisor.tui.widgets import told
from vllm_advisor.tui.widgets.lists import VimTable


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import DataTable

    from vllm_advisor.facts import Recommendation


class RejectedPlans(ModalScreen[None]):
    """A table above, the reasons below."""

    HELP = """Rejected plans

None of these will be proposed. Walk the table: every reason against the plan under the cursor is said below it, with
its rule and where the rule comes from."""
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,x", "dismiss", "Close")]

    def __init__(self, found: Recommendation) -> None:
        super().__init__()
        self._found = found

    def compose(self) -> ComposeResult:
        """Title, table, reasons."""
        with Vertical(id="rejected"):
            yield Static(f"Rejected plans ({len(self._found.rejected)})", classes="title")
            yield VimTable(id="against", cursor_type="row", cell_padding=0)
            with VerticalScroll(id="reasons"):
                yield Static(id="reason", markup=False)

    def on_mount(self) -> None:
        """All of them."""
        table = self.query_one("#against", VimTable)
        heads, rows = told.rejected(self._found)
        table.add_columns(*heads)
        table.fill(rows)
        table.focus()

    def on_data_table_row_highlighted(self, highlighted: DataTable.RowHighlighted) -> None:
        """Its reasons."""
        if highlighted.cursor_row < len(self._found.rejected):
            self.query_one("#reason", Static).update(told.reasons(self._found, highlighted.cursor_row))

    async def action_dismiss(self, result: None = None) -> None:
        """Back to the plans."""
        self.dismiss(result)
