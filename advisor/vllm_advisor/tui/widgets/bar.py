"""One GPU's memory as a bar, each part by its own sign, and in text what each part is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from rich.text import Text
from textual.widget import Widget

from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.units import count, gib


if TYPE_CHECKING:
    from textual.geometry import Size

    from vllm_advisor.facts import MemoryBudget
    from vllm_advisor.tui.app import Wizard

_SIGNS, _ASCII = "█▓▒░▚·", "#%+:K."
_COLOURS = ("blue", "magenta", "yellow", "cyan", "green", "")
_TWO_COLUMNS = 72


class Part(NamedTuple):
    """One term: its name, bytes, and an interval in words where it is modelled."""

    name: str
    size: float
    note: str = ""


def parts(budget: MemoryBudget) -> tuple[Part, ...]:
    """The terms of a device's memory in the order in which vLLM takes them; they add up to the whole."""
    modelled = (
        ("activations", budget.activation),
        ("CUDA graphs", budget.graphs),
        ("libraries", budget.non_torch),
        ("KV cache", budget.kv_cache),
    )
    return (
        Part("weights", budget.weights),
        *(Part(name, max(0.0, v.mid), f"{_plain(v.low)}-{_plain(v.high)}") for name, v in modelled),
        Part("left free", max(0, budget.total - budget.requested)),
    )


def _plain(n_bytes: float) -> str:
    return gib(max(0.0, n_bytes)).removesuffix(" GiB")


class MemoryBar(Widget):
    """`show` a budget; `devices` says in words whose memory it is."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own word
        super().__init__(id=id)
        self._budget: MemoryBudget | None = None
        self._devices = ""

    def show(self, budget: MemoryBudget | None, devices: str = "") -> None:
        """Draw it; None: nothing."""
        self._budget, self._devices = budget, devices
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        """As many lines as `render` makes."""
        return len(self._lines(width)) if self._budget else 0

    def render(self) -> Text:
        """Title, bar, legend, and what the KV cache holds."""
        return Text("\n").join(self._lines(self.size.width)) if self._budget else Text()

    def _lines(self, width: int) -> list[Text]:
        budget, wizard = self._budget, cast("Wizard", self.app)
        if budget is None:
            return []
        signs = _SIGNS if wizard.glyphs == UTF8 else _ASCII
        may = f" (vLLM may take {gib(budget.requested)})" if width >= _TWO_COLUMNS else ""
        title = Text(f"Memory of {self._devices}{may}", "bold")
        bar = [] if wizard.plain else [_bar(parts(budget), width, signs)]
        legend = _legend(parts(budget), signs, width, plain=wizard.plain)
        holds = Text(
            f"KV cache: {count(budget.kv_tokens)} tokens, {budget.max_concurrency:.1f} requests of full length"
        )
        lines = [title, *bar, *legend, holds]
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return lines


def _bar(found: tuple[Part, ...], width: int, signs: str) -> Text:
    """Cells in proportion; a part that exists has at least one, taken from the largest."""
    total = sum(part.size for part in found) or 1
    cells = [max(round(part.size / total * width), 1 if part.size > 0 else 0) for part in found]
    cells[cells.index(max(cells))] += width - sum(cells)
    line = Text()
    for n, sign, colour in zip(cells, signs, _COLOURS, strict=True):
        line.append(sign * n, colour or "dim")
    return line


def _legend(found: tuple[Part, ...], signs: str, width: int, *, plain: bool) -> list[Text]:
    """`█ weights 37.2 GiB`, two a line where there is room."""
    cells = []
    for part, sign, colour in zip(found, signs, _COLOURS, strict=True):
        cell = Text()
        cell.append("" if plain else f"{sign} ", colour or "dim")
        note = f" ({part.note})" if part.note and part.size else ""
        cell.append(f"{part.name:<11} {gib(part.size):>10}{note}")
        cells.append(cell)
    if width < _TWO_COLUMNS or plain:
        return cells
    half = width // 2
    for cell in cells[:3]:
        cell.pad_right(max(0, half - cell.cell_len))
    return [left + right for left, right in zip(cells[:3], cells[3:], strict=True)]
