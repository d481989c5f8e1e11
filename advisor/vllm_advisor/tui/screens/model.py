"""Step 2: which model. The catalog, this disk and the Hugging Face cache; only Enter on a name asks the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.text import Text
from textual.containers import Horizontal, Vertical
from textual.widgets import Static
from textual.widgets.option_list import Option

from vllm_advisor.errors import AdvisorError
from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.screens.base import StepScreen
from vllm_advisor.tui.widgets import sheet
from vllm_advisor.tui.widgets.lists import Search, VimList
from vllm_advisor.tui.widgets.rows import grid


if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import Input, OptionList

    from vllm_advisor.model import ModelSpec
    from vllm_advisor.tui.state import State

_SHOWN = 80  # of a search; more are never read
_NEAREST = 5
_BILLION = 1e9
_PATHS = ("/", ".", "~")  # what a folder's name begins with
_NEAR, _FOLDER = "like", "dir"
_ROOMY = 56  # columns of the list from which it says the format too


class Offer(NamedTuple):
    """One row of the list: `name` is what is asked for, `said` (and `more`) stand before it; `reason` refuses it."""

    name: str
    said: str = ""
    more: str = ""
    reason: str = ""


class ModelStep(StepScreen):
    """A field to search with, what it finds, and the facts of the one under the cursor."""

    STEP = "model"
    AUTO_FOCUS = "#search"
    HELP = """Model

Type a part of a name: words in any order, over the catalog (no network), the Hugging Face cache of this machine, and,
where it begins with / ./ or ~, folders. Down goes to the list; its facts are on the right. Enter chooses; Enter on the
chosen one goes on.

A repository that is not in the catalog is looked up on the hub when you press Enter on its full name, owner/name, and
never before; owner/name@revision asks for a revision. "o" switches the network off altogether.

Memory is computed from what stands on the right. Whatever is unknown there makes the answer "cannot tell"."""
    BINDINGS: ClassVar[list[BindingType]] = [
        ("slash", "search", "Search"),
        ("o", "offline", "Offline"),
    ]

    _cached: tuple[str, ...] = ()
    _offers: tuple[Offer, ...] = ()
    _drawn: tuple[str, str] | None = None
    _asked = 0

    def body(self) -> ComposeResult:
        """Field, list, facts."""
        yield Static("Which model?", classes="title")
        with Horizontal(classes="line"):
            yield Static("Model ", classes="label")
            yield Search("#models", placeholder="qwen3 8b, or owner/name, or ./folder", id="search")
        yield Static(id="offline", classes="muted", markup=False)
        with Horizontal(id="model"):
            yield VimList(id="models", markup=False)
            with Vertical(id="facts"):
                yield Static(id="name", markup=False)
                yield Static(id="sheet", markup=False)

    def on_mount(self) -> None:
        """What the cache holds is read beside."""
        from vllm_advisor.catalog import hub_files

        self.work("", hub_files.kept, self._with_cache, group="cache")

    def _with_cache(self, found: tuple[str, ...]) -> None:
        self._cached = found
        self._search(self.query_one("#search", Search).value)

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - Textual's signature
        """Names are cut to the list's width."""
        self.call_after_refresh(lambda: self._list(self._offers))

    def show(self, state: State) -> None:
        """The chosen model's facts, where it is another than the one shown."""
        off = "offline: the network is never asked" if state.offline else ""
        self.query_one("#offline", Static).update(off)
        self.query_one("#offline", Static).display = bool(off)
        if not state.model:
            self._drawn = None
        elif self._drawn != (state.model, state.revision):
            self._drawn = (state.model, state.revision)
            self.work(f"reading {state.model}", lambda: self.wizard.asker.model(state), self._facts)

    # -- searching

    def on_input_changed(self, changed: Input.Changed) -> None:
        """The list follows what is typed."""
        self._search(changed.value)

    def _search(self, typed: str) -> None:
        text = typed.strip()
        if text.startswith(_PATHS):
            from vllm_advisor.catalog import hub_files

            self.work("", lambda: _folders(hub_files.folders(text)), self._list, group="search")
        else:
            self.workers.cancel_group(self, "search")
            self._list(_named(text, self._cached))

    def _list(self, offers: tuple[Offer, ...]) -> None:
        """Show these, the cursor on the first that can be chosen."""
        models, self._offers = self.query_one("#models", VimList), offers
        width, marks = max(24, models.size.width - 3), self.wizard.glyphs
        chosen, dots = self.wizard.state.model, "…" if marks == UTF8 else "~"
        signs = (marks.fails if offer.reason else marks.done if offer.name == chosen else " " for offer in offers)
        models.set_options([Option(_row(offer, width, sign, dots)) for offer, sign in zip(offers, signs, strict=True)])
        if offers:
            models.highlighted = next((i for i, offer in enumerate(offers) if offer.name == chosen), 0)

    def on_option_list_option_highlighted(self, highlighted: OptionList.OptionHighlighted) -> None:
        """Facts of what lies here; the network is not asked for a look."""
        if highlighted.option_index < len(self._offers) and self.query_one("#models", VimList).has_focus:
            self._look(self._offers[highlighted.option_index])

    def _look(self, offer: Offer) -> None:
        if offer.reason:
            self._facts(UnsupportedText(offer.name, offer.reason))
            return
        self.work("", lambda: _read(offer.name), self._facts, group="look")

    # -- choosing

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Enter in the field: the name itself where it is one, else on to what was found."""
        text = submitted.value.strip()
        exact = [offer for offer in self._offers if text.lower() in _spellings(offer.name)]
        is_whole = text.count("/") == 1 or text.startswith(_PATHS)
        if len(exact) == 1:
            self._choose(exact[0])
        elif text and (is_whole or not self._offers or self._offers[0].said == _NEAR):
            self._choose(Offer(text))
        else:
            self.query_one("#models", VimList).focus()

    def on_option_list_option_selected(self, selected: OptionList.OptionSelected) -> None:
        """Enter, or a click, in the list."""
        if selected.option_index < len(self._offers):
            self._choose(self._offers[selected.option_index])

    def _choose(self, offer: Offer) -> None:
        """Read it, and only then keep it: what cannot be read is not chosen."""
        if offer.reason:
            self.status(f"{self.wizard.glyphs.fails} {offer.name}: {offer.reason}", failed=True)
            return
        if offer.said == _FOLDER:
            self.action_search()
            self.query_one("#search", Search).value = f"{offer.name}/"
            return
        name, _, revision = offer.name.partition("@") if offer.name.count("/") == 1 else (offer.name, "", "")
        if (name, revision) == (self.wizard.state.model, self.wizard.state.revision):
            self.wizard.action_step(1)
            return
        asked = self.wizard.state._replace(model=name, revision=revision)
        self.work(f"reading {name}", lambda: self.wizard.asker.model(asked), lambda spec: self._chosen(asked, spec))

    def _chosen(self, asked: State, spec: ModelSpec) -> None:
        self._drawn = (asked.model, asked.revision)
        self.wizard.change(model=asked.model, revision=asked.revision)
        self._facts(spec)
        self._list(self._offers)
        self.query_one("#models", VimList).focus()

    def _facts(self, found: ModelSpec | AdvisorError) -> None:
        """The sheet on the right."""
        glyphs, chosen = self.wizard.glyphs, self.wizard.state.model
        if isinstance(found, AdvisorError):
            self.query_one("#name", Static).update(f"{glyphs.fails} not for us")
            self.query_one("#sheet", Static).update(f"{found.message}\n\n{found.hint}")
            return
        self.query_one("#name", Static).update(f"{glyphs.done if found.name == chosen else ' '} {found.name}")
        self.query_one("#sheet", Static).update(grid(sheet.facts(found, glyphs.warning)))

    # -- keys

    def action_search(self) -> None:
        """To the field."""
        self.query_one("#search", Search).focus()

    def action_offline(self) -> None:
        """Never, or again, ask the network."""
        self.wizard.change(offline=not self.wizard.state.offline)


class UnsupportedText(AdvisorError):
    """A model that the catalog knows and does not plan."""


def _read(name: str) -> ModelSpec | AdvisorError:
    """A model without the network, or why not."""
    from vllm_advisor import question

    try:
        return question.model(name, None, offline=True)
    except AdvisorError as error:
        return error


def _named(typed: str, cached: tuple[str, ...]) -> tuple[Offer, ...]:
    """What a typed text finds: on this disk, in the catalog, refused; else the names most like it."""
    from vllm_advisor.catalog import models

    words = [_squeezed(word) for word in typed.partition("@")[0].split()]

    def hit(name: str) -> bool:
        return all(word in _squeezed(name) for word in words)

    entries, refused = models.entries(), models.refused()
    rows = [Offer(name, "disk", "cached") for name in cached if hit(name) and name not in entries]
    known = sorted((name for name in entries if hit(name)), key=lambda name: (len(name) if words else 0, name))
    rows += [Offer(name, _size(entries[name].params), entries[name].scheme) for name in known[:_SHOWN]]
    rows += [Offer(name, "no", "refused", reason) for name, reason in refused.items() if words and hit(name)]
    return tuple(rows) or tuple(Offer(name, _NEAR) for name in models.nearest(typed, _NEAREST))


def _size(params: int) -> str:
    """`235B`, `8.2B`, `135M`: what people call a model by."""
    billions = params / _BILLION
    if billions < 1:
        return f"{billions * 1000:.0f}M"
    return f"{billions:.0f}B" if billions >= 10 else f"{billions:.1f}B"


def _folders(found: tuple[tuple[str, bool], ...]) -> tuple[Offer, ...]:
    """Folders with a model first."""
    rows = sorted(found, key=lambda row: (not row[1], row[0]))
    return tuple(Offer(path, "model" if is_model else _FOLDER) for path, is_model in rows[:_SHOWN])


def _row(offer: Offer, width: int, mark: str, dots: str) -> Text:
    """`✓ 8.2B bf16  Qwen/Qwen3-8B`, a long name cut in its middle: both ends tell models apart."""
    said = f"{mark} {offer.said:>5} " + (f"{offer.more:<10.10} " if width >= _ROOMY else "")
    room = width - len(said)
    name, head = offer.name, room // 4
    cut = name if len(name) <= room else f"{name[:head]}{dots}{name[head + 1 - room :]}"
    return Text(said + cut, no_wrap=True, overflow="crop")


def _spellings(name: str) -> tuple[str, str]:
    return name.lower(), name.lower().rpartition("/")[2]


def _squeezed(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
