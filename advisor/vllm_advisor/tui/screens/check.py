"""F4: a `vllm serve` command that somebody pastes, judged while it is typed, and mended on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding
from textual.containers import Container, Horizontal
from textual.widgets import Input, Label, Static, TextArea

from vllm_advisor.tui.screens.aside import Aside
from vllm_advisor.tui.widgets.keyed import KeyTable, VimScroll
from vllm_advisor.tui.widgets.page import page


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from vllm_advisor.check.asked import Judged
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.hardware import Node
    from vllm_advisor.tui.state import State

_EMPTY = """Paste a vllm serve command, a script, a Compose file, a Kubernetes manifest or a systemd unit above.

It is judged for this vLLM version and this machine: unknown flags, wrong values, what the device or the model cannot
do, what will not fit. Nothing is executed."""
_SIGNS = {"error": "fails", "warning": "warning", "note": "open"}


class Asked(NamedTuple):
    """What the fields say: everything that a judgement depends on."""

    text: str
    vllm: str
    machine: str


class CheckAside(Aside):
    """A field for the command, two for version and machine, the findings, and the page of one finding."""

    HEADING = "Check a command"
    HELP = """Check

Paste what you have: `vllm serve …` with its variables, a shell script, a Compose file, a manifest, a unit. It is read
as that vLLM version would read it, and judged for the machine. Leave the version empty to take that of the image's
tag, and the machine empty to judge nothing of the hardware.

An error is refused by vLLM, or serves something else than was meant; a warning costs speed, memory or accuracy.
Mend writes the changes that need no question into the field; Ctrl+Z takes them back."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "mend", "Mend", priority=True),
        Binding("ctrl+l", "copy", "Copy", priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._drawn: Asked | None = None
        self._wanted: Asked | None = None
        self._judged: tuple[Judged, ...] = ()

    def body(self) -> ComposeResult:
        """The command, what it is judged for, and what was found."""
        state = self.wizard.state
        yield TextArea(id="command", soft_wrap=True, tab_behavior="focus")
        with Horizontal(id="asked"):
            yield Label("vLLM")
            yield Input(state.vllm, id="version", compact=True, placeholder="the image's")
            yield Label("on")
            yield Input(state.node or state.gpu, id="machine", compact=True, placeholder="no machine")
        with Container(id="pair"):
            yield KeyTable("", "id", "finding", id="findings")
            with VimScroll(id="page"):
                yield Static(_EMPTY, id="shown", markup=False)

    def show(self, state: State) -> None:
        """Begin with the state's version and machine."""
        if self._drawn is None:
            self._drawn = Asked("", state.vllm, state.node or state.gpu)
            self.query_one("#command").focus()

    def on_text_area_changed(self) -> None:
        """A letter."""
        self._ask()

    def on_input_changed(self) -> None:
        """Another version or machine."""
        self._ask()

    def _fields(self) -> Asked:
        version, machine = (self.query_one(name, Input).value.strip() for name in ("#version", "#machine"))
        return Asked(self.query_one("#command", TextArea).text.strip(), version, machine)

    def _ask(self) -> None:
        """Judge what the fields say now; while one is being judged, only the last wish is kept."""
        asked = self._fields()
        if asked == self._drawn and self._wanted is None:
            return
        busy, self._wanted = self._wanted is not None, asked
        if not busy:
            self._judge(asked)

    def _judge(self, asked: Asked) -> None:
        if asked.text:
            offline = self.wizard.state.offline
            self.work("judging", lambda: judge(asked, offline=offline), lambda found: self._found(asked, found))
        else:
            self._found(asked, ((), ""))

    def _found(self, asked: Asked, result: tuple[tuple[Judged, ...], str]) -> None:
        """Draw it, then judge what was typed meanwhile."""
        self._judged, wrong = result
        self._drawn, wanted, self._wanted = asked, self._wanted, None
        self.status(f"{self.wizard.glyphs.fails} {wrong}" if wrong else "", failed=bool(wrong))
        self._fill()
        if wanted is not None and wanted != asked:
            self._wanted = wanted
            self._judge(wanted)

    def _findings(self) -> list[Finding]:
        return [finding for one in self._judged for finding in one.report.findings]

    def _fill(self) -> None:
        found, glyphs = self._findings(), self.wizard.glyphs
        rows = [(getattr(glyphs, _SIGNS[f.level]), f.id, f.text) for f in found]
        self.query_one("#findings", KeyTable).put(rows, [str(number) for number in range(len(rows))])
        self.query_one(".title", Static).update(f"{self.HEADING}{self._sum()}")
        if not found:
            said = "Nothing to say against it." if self._judged else _EMPTY if not self._fields().text else ""
            self.query_one("#shown", Static).update(said)
        self._follow()

    def _sum(self) -> str:
        levels = [(sum(one.report.count(level) for one in self._judged), level) for level in _SIGNS]
        said = ", ".join(f"{n} {level}{'' if n == 1 else 's'}" for n, level in levels if n)
        return f": {said}" if said else ""

    def on_data_table_row_highlighted(self) -> None:
        """The page follows the cursor."""
        self._follow()

    def _follow(self) -> None:
        key, found = self.query_one("#findings", KeyTable).key, self._findings()
        if key and int(key) < len(found):
            self.query_one("#shown", Static).update(page([_page(found[int(key)])]))
            self.query_one("#page", VimScroll).scroll_home(animate=False)

    def action_mend(self) -> None:
        """Write the mended command into the field."""
        if not self._judged or self._wanted is not None:
            self.status("there is nothing to mend", failed=True)
            return
        judged = self._judged
        self.work("mending", lambda: mended(judged), self._mended)

    def _mended(self, text: str) -> None:
        field = self.query_one("#command", TextArea)
        if text.strip() == field.text.strip():
            self.status("what is left needs a decision of yours", failed=True)
        else:
            field.replace(text, (0, 0), field.document.end, maintain_selection_offset=False)

    def action_copy(self) -> None:
        """The field's text to the clipboard, through the terminal."""
        self.app.copy_to_clipboard(self.query_one("#command", TextArea).text)
        self.notify("copied", timeout=2)


def judge(asked: Asked, *, offline: bool) -> tuple[tuple[Judged, ...], str]:
    """Every server of the text, judged; or nothing, and why it cannot be read."""
    from vllm_advisor.check import asked as room
    from vllm_advisor.errors import AdvisorError

    try:
        node = machine(asked.machine) if asked.machine else None
        found = room.pasted(asked.text)
        return tuple(room.judge(one, asked.vllm or None, node, offline=offline) for one in found), ""
    except AdvisorError as error:
        return (), f"{error.message}{f'  ({error.hint})' if error.hint else ''}"


def machine(text: str) -> Node:
    """A machine by name, or a recorded one."""
    from pathlib import Path

    from vllm_advisor import question

    is_file = text.endswith(".json")
    return question.node(None if is_file else text, Path(text) if is_file else None)


def mended(judged: tuple[Judged, ...]) -> str:
    """The commands with every change that needs no question."""
    from vllm_advisor.check import asked as room
    from vllm_advisor.check.fix import shell

    return "\n".join(shell(room.mended(one).report.invocation) for one in judged)


def _page(finding: Finding) -> tuple[str, list[tuple[str, str]]]:
    rows = [("", finding.text), ("then", finding.hint), ("about", finding.subject), ("source", finding.source)]
    rows += [("Ctrl+R", "mends it")] if finding.change else []
    return f"{finding.id}: {finding.level}", [(name, value) for name, value in rows if value]
