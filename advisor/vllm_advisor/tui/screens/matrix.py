"""F3: what to serve in which precision on a GPU, the rules that say so, and an article's matrix answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.containers import Container, Horizontal
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label, Static, Tab, Tabs

from vllm_advisor import question
from vllm_advisor.catalog import gpus
from vllm_advisor.errors import AdvisorError
from vllm_advisor.tui.screens.aside import Aside
from vllm_advisor.tui.widgets.keyed import KeyTable, VimScroll
from vllm_advisor.tui.widgets.page import page


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from vllm_advisor.rules.matrix import MatrixRow
    from vllm_advisor.rules.rule import Rule
    from vllm_advisor.rules.seed import SeedRow
    from vllm_advisor.tui.state import State
    from vllm_advisor.vllm.surface import Surface

_ANY_GPU = "H100"  # where the machine has none
_HEADS = {
    "situations": ("situation", "weights", "KV cache"),
    "rules": ("rule", "verdict", "when"),
    "article": ("situation", "it says", "we"),
}


class Entry(NamedTuple):
    """One row of the table, the page that it opens, and the rules that it names."""

    row: tuple[str, ...]
    page: list[tuple[str, list[tuple[str, str]]]]
    rules: tuple[str, ...] = ()


class Read(NamedTuple):
    """All three tables for one GPU and version."""

    heading: str
    situations: list[Entry]
    rules: list[Entry]
    article: list[Entry]


class MatrixAside(Aside):
    """GPU, version and a search above three tables, and the page of the row under the cursor."""

    HEADING = "The decision matrix"
    HELP = """The decision matrix

Situations: what to serve in which precision on this GPU with this vLLM, judged by the same rules and kernel tables as
a real plan, on a stand-in model. Enter on a row shows the rules that spoke for it.

Rules: every rule with its predicate, its verdict, what it says, and where that comes from: a path is a file inside the
vllm package, advice is our own judgement.

Article: a published matrix for vLLM 0.24.0, and where we differ and why."""
    BINDINGS: ClassVar[list[BindingType]] = [("t", "turn", "Next table"), ("slash", "find", "Find")]

    _asked: tuple[str, str] | None = None
    _read: Read | None = None

    def body(self) -> ComposeResult:
        """Three fields in a line, the tables, the page."""
        with Horizontal(id="asked"):
            yield Label("GPU")
            yield Input(id="gpu", compact=True, suggester=SuggestFromList(gpus.names(), case_sensitive=False))
            yield Label("vLLM")
            yield Input(self.wizard.state.vllm, id="version", compact=True)
            yield Label("find")
            yield Input(id="find", compact=True, placeholder="a rule, a word")
        yield Tabs(*(Tab(name.title(), id=name) for name in _HEADS), id="tables")
        with Container(id="pair"):
            for name, heads in _HEADS.items():
                yield KeyTable(*heads, id=f"table-{name}")
            with VimScroll(id="page"):
                yield Static(id="shown", markup=False)

    def show(self, state: State) -> None:
        """Begin with the state's machine and version."""
        if self._asked is None:
            self._asked = ("", state.vllm)
            self._show_table()
            self.work("reading the matrix", lambda: self._first(state), self._drawn)

    def _first(self, state: State) -> Read:
        try:
            node = self.wizard.asker.node(state)
            name = node.gpu.name if node.gpus else _ANY_GPU
            return read(name, state.vllm)
        except AdvisorError:
            return read(_ANY_GPU, state.vllm)

    def _drawn(self, found: Read) -> None:
        self._read = found
        field = self.query_one("#gpu", Input)
        field.value = field.value or found.heading.partition(" (")[0]
        self._asked = (field.value, self.query_one("#version", Input).value)
        self._fill()
        self.query_one(f"#table-{self._here}").focus()

    @property
    def _here(self) -> str:
        return self.query_one("#tables", Tabs).active or "situations"

    def _entries(self) -> list[Entry]:
        if self._read is None:
            return []
        entries: list[Entry] = getattr(self._read, self._here)
        words = self.query_one("#find", Input).value.lower().replace(",", " ").split()
        if self._here == "rules" and words and all("-" in word for word in words):
            return [entry for entry in entries if entry.rules[0].lower() in words]
        return [entry for entry in entries if all(word in _searched(entry) for word in words)]

    def _fill(self) -> None:
        table = self.query_one(f"#table-{self._here}", KeyTable)
        entries = self._entries()
        table.put([entry.row for entry in entries], [str(number) for number in range(len(entries))])
        table.move_cursor(row=0, animate=False)
        self.query_one(".title", Static).update(f"{self.HEADING}: {self._read.heading}" if self._read else self.HEADING)
        self._page()

    def _page(self) -> None:
        key = self.query_one(f"#table-{self._here}", KeyTable).key
        entries = self._entries()
        at = int(key) if key else -1
        found = page(entries[at].page) if 0 <= at < len(entries) else "nothing of that kind"
        self.query_one("#shown", Static).update(found)
        self.query_one("#page", VimScroll).scroll_home(animate=False)

    def _show_table(self) -> None:
        for name in _HEADS:
            self.query_one(f"#table-{name}").display = name == self._here

    def on_tabs_tab_activated(self) -> None:
        """Another table."""
        self._show_table()
        self._fill()

    def on_data_table_row_highlighted(self) -> None:
        """The page follows the cursor."""
        self._page()

    def on_data_table_row_selected(self) -> None:
        """Enter: the rules that spoke."""
        key = self.query_one(f"#table-{self._here}", KeyTable).key
        rules = self._entries()[int(key)].rules if key else ()
        if self._here != "rules" and rules:
            self.query_one("#find", Input).value = " ".join(rules)
            self.query_one("#tables", Tabs).active = "rules"
            self.query_one("#table-rules").focus()

    def on_input_changed(self, changed: Input.Changed) -> None:
        """The search narrows while it is typed."""
        if changed.input.id == "find":
            self._fill()

    def on_input_submitted(self) -> None:
        """Enter in a field: another GPU or version."""
        asked = (self.query_one("#gpu", Input).value.strip(), self.query_one("#version", Input).value.strip())
        if asked != self._asked:
            self.work(f"reading the matrix of {asked[0]}", lambda: read(*asked), self._drawn)
        else:
            self.query_one(f"#table-{self._here}").focus()

    def action_turn(self) -> None:
        """The next table."""
        names = list(_HEADS)
        self.query_one("#tables", Tabs).active = names[(names.index(self._here) + 1) % len(names)]
        self.query_one(f"#table-{self._here}").focus()

    def action_find(self) -> None:
        """To the search."""
        self.query_one("#find").focus()


def _searched(entry: Entry) -> str:
    return " ".join((*entry.row, *(text for _, rows in entry.page for pair in rows for text in pair))).lower()


def read(name: str, version: str) -> Read:
    """The three tables. Raises UnknownGpu, UnknownVllm."""
    from vllm_advisor.rules.matrix import matrix
    from vllm_advisor.rules.seed import SEED_ROWS
    from vllm_advisor.rules.table import RULES

    gpu, surface = gpus.find(name), question.surface(version)
    ids = frozenset(rule.id for rule in RULES)
    return Read(
        f"{gpu.name} ({gpu.arch}), vLLM {surface.version}",
        [_situation(row, ids) for row in matrix(gpu, surface)],
        [_rule(rule) for rule in RULES],
        [_answered(row, surface) for row in SEED_ROWS],
    )


def _situation(row: MatrixRow, ids: frozenset[str]) -> Entry:
    spoke = tuple(word for word in row.source.replace(",", " ").split() if word in ids)
    rows = [("weights", row.quantization), ("KV cache", row.kv_cache), ("why", row.why), ("source", row.source)]
    rows += [("Enter", f"shows {', '.join(spoke)}")] if spoke else []
    weights, online, _ = row.quantization.partition(" (online")
    shown = f"{weights}, online" if online else weights.removesuffix(" checkpoint")
    return Entry((row.situation, shown, row.kv_cache.partition(" (")[0]), [(row.situation, rows)], spoke)


def _rule(rule: Rule) -> Entry:
    from vllm_advisor.rules import document

    verdict, when, then = document.verdict(rule.verdict), document.when(rule), document.hint(rule)
    rows = [("when", when), ("verdict", verdict), ("says", rule.says), *([("then", then)] if then else [])]
    return Entry((rule.id, verdict, when), [(rule.id, [*rows, ("source", rule.source)])], (rule.id,))


def _answered(row: SeedRow, surface: Surface) -> Entry:
    ours, says = row.answer(surface), f"weights {row.quantization}, KV {row.kv_cache}"
    rows = [("it says", f"{says} ({row.reason})"), ("we", ours.verdict), ("instead", ours.advice), ("why", ours.why)]
    return Entry((row.situation, says, ours.verdict), [(row.situation, [*rows, ("source", ours.source)])])
