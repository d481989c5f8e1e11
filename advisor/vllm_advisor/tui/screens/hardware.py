"""Step 1: which machine. The one here, probed; one of the catalog by name; or one that was recorded in a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Horizontal, Vertical
from textual.widgets import Static
from textual.widgets.option_list import Option

from vllm_advisor.catalog import gpus
from vllm_advisor.tui.screens.base import StepScreen
from vllm_advisor.tui.widgets.field import Field
from vllm_advisor.tui.widgets.kinds import scale
from vllm_advisor.tui.widgets.lists import Search, VimList
from vllm_advisor.tui.widgets.rows import grid
from vllm_advisor.units import gib


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import Input, OptionList

    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.tui.state import State

_HERE = "this machine"
_COUNTS = (1, 2, 4, 8, 16)
_COUNTED = re.compile(
    r"\s*(?P<machines>\d+\s*[x×*]\s*(?=\d))?(?:(?P<count>\d+)\s*[x×*]\s*)?(?P<name>.*)", re.IGNORECASE
)
_MAKERS = ("NVIDIA ", "AMD ")


class HardwareStep(StepScreen):
    """A field for a name or a file, the catalog below it, and beside it what the machine is."""

    STEP = "hardware"
    AUTO_FOCUS = "#machine"
    HELP = """Hardware

Leave the field empty to use the GPUs of this machine: they are probed now, without touching them.
Or name a machine that you do not have yet: 8xH100, MI300X, 2x8xH200 (two nodes), cpu. The list shows what the
name may mean while you type; Enter in the list takes a device, and the slider says how many of them.
Or name a file that `advisor probe --save` wrote on another machine.

The links between the devices decide whether one model may be split over them. What could not be read is
said to be unknown, and never guessed."""
    BINDINGS: ClassVar[list[BindingType]] = [
        ("slash", "search", "Search"),
        ("r", "again", "Read again"),
        ("w", "save", "Save"),
    ]

    _drawn: tuple[str, str] | None = None
    _node: Node | None = None
    _listed: str | None = None

    def body(self) -> ComposeResult:
        """The field and the catalog, then the machine."""
        yield Static("Which machine will serve?", classes="title")
        with Horizontal(classes="line"):
            yield Static("Machine ", classes="label")
            yield Search(
                "#catalog", placeholder=f"{_HERE}, or 8xH100, MI300X, cpu, or a recorded file.json", id="machine"
            )
        yield Field("GPUs", scale(_COUNTS, float), lambda text: f"{text} of them in one machine", id="count")
        with Horizontal(id="hardware"):
            yield VimList(id="catalog", markup=False)
            with Vertical(id="found"):
                yield Static(id="headline", markup=False)
                yield Static(id="node", markup=False)
                yield Static(id="warnings", classes="warning", markup=False)
                yield Static(id="about", markup=False)

    def show(self, state: State) -> None:
        """Read the machine of the state, where it is another than the one shown."""
        field, counted = self.query_one("#machine", Search), _COUNTED.fullmatch(state.gpu)
        if not field.has_focus or self._drawn is None:
            self._put(state.node or state.gpu)
        count = self.query_one("#count", Field)
        count.display = bool(state.gpu) and state.gpu.lower() != "cpu" and "," not in state.gpu
        count.show(counted["count"] or "" if counted else "", self._devices)
        if self._listed is None:
            self._list("")
        if self._drawn != (state.gpu, state.node):
            self._drawn = (state.gpu, state.node)
            what = f"reading {state.node or state.gpu or _HERE}"
            self.work(what, lambda: self.wizard.asker.node(state), self._found)

    @property
    def _devices(self) -> str:
        """How many the machine of that name has."""
        return str(len(self._node.gpus)) if self._node else "1"

    def _list(self, typed: str) -> None:
        """The catalog, as far as the typed name may mean it."""
        counted = _COUNTED.fullmatch(typed)
        words = (counted["name"] if counted else typed).lower().split()
        key = " ".join(words)
        if key == self._listed:
            return
        self._listed = key
        found = [gpu for gpu in gpus.all_gpus() if all(_squeezed(word) in _squeezed(gpu.name) for word in words)]
        here = [Option(_HERE, id="here"), Option("cpu, the processor", id="cpu")] if not words else []
        catalog = self.query_one("#catalog", VimList)
        catalog.set_options([*here, *(Option(_offer(gpu), id=f"gpu-{gpu.name}") for gpu in found)])
        if words and found:
            catalog.highlighted = 0

    def _found(self, node: Node) -> None:
        from vllm_advisor.hardware import Vendor
        from vllm_advisor.probe import detect
        from vllm_advisor.tui.widgets import topology

        self._node = node
        state, mark = self.wizard.state, self.wizard.glyphs.warning
        none = node.gpu.vendor is Vendor.CPU and not state.gpu and not state.node
        said = "No GPU was found: the processor is taken." if none else f"{node.label}"
        self.query_one("#headline", Static).update(f"{mark} {said}" if none else said)
        rows = [
            row for row in detect.describe(node) if row[0] in ("machine", "network", "driver", "host", "unverified")
        ]
        drawn = "\n".join(("", *topology.devices(node.gpus), *topology.matrix(node), ""))
        self.query_one("#node", Static).update(drawn)
        self.query_one("#about", Static).update(grid((label, text) for label, text in rows))
        self.query_one("#warnings", Static).update("".join(f"{mark} {warning}\n" for warning in node.warnings))
        self.query_one("#count", Field).show(self.query_one("#count", Field).value, self._devices)

    def on_input_changed(self, changed: Input.Changed) -> None:
        """The list follows what is typed."""
        if changed.input.has_focus:
            self._list(changed.value)

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Enter: take what was typed."""
        self._take(submitted.value.strip())

    def on_input_blurred(self, blurred: Input.Blurred) -> None:
        """Leaving the field for another is as good as Enter, except for the list: there the choice goes on."""
        if not self.query_one("#catalog", VimList).has_focus:
            self._take(blurred.value.strip())

    def on_option_list_option_selected(self, selected: OptionList.OptionSelected) -> None:
        """A device of the catalog, as many as were typed before it."""
        chosen = str(selected.option.id)
        typed = _COUNTED.fullmatch(self.query_one("#machine", Search).value)
        if not chosen.startswith("gpu-"):
            self._take("" if chosen == "here" else chosen)
        else:
            count = f"{typed['machines'] or ''}{typed['count']}x" if typed and typed["count"] else ""
            self._take(count + chosen.removeprefix("gpu-"))
        self._put(self.wizard.state.gpu)

    def on_field_changed(self, changed: Field.Changed) -> None:
        """Another number of the same devices."""
        counted = _COUNTED.fullmatch(self.wizard.state.gpu)
        if counted:
            count = f"{changed.value}x" if changed.value else ""
            self._take(f"{counted['machines'] or ''}{count}{counted['name']}")
            self._put(self.wizard.state.gpu)

    def _put(self, text: str) -> None:
        """Into the field, without a search for it."""
        field = self.query_one("#machine", Search)
        with field.prevent(Search.Changed):
            field.value = text

    def _take(self, text: str) -> None:
        is_file = bool(text) and (text.endswith(".json") or Path(text).is_file())
        text = "" if text == _HERE else text
        self.wizard.change(gpu="" if is_file else text, node=text if is_file else "")

    def action_search(self) -> None:
        """To the field."""
        self.query_one("#machine", Search).focus()

    def action_again(self) -> None:
        """Probe or read once more."""
        self.wizard.asker.forget("node")
        self._drawn = None
        self.show(self.wizard.state)

    def action_save(self) -> None:
        """Write the machine to node.json, as `advisor probe --save` does."""
        from vllm_advisor.probe import recorded

        node, file = self._node, Path("node.json")
        if node is None:
            self.status("there is nothing to save yet", failed=True)
        elif file.exists():
            self.status(f"{file} exists and is not overwritten: advisor probe --save NAME", failed=True)
        else:
            self.work("saving", lambda: recorded.save(node, file), lambda _: self.notify(f"wrote {file}"))


def _offer(gpu: Gpu) -> Text:
    """Memory first: names are long, and what distinguishes them stands at their end."""
    name = gpu.name
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return Text(f"{gib(gpu.memory_bytes):>9}  {name}", no_wrap=True, overflow="ellipsis")


def _squeezed(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
