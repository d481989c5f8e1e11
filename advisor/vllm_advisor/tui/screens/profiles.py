"""F2: what was measured and kept; one opened, two compared, one written to a file or removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container
from textual.widgets import Static

from vllm_advisor import profiles, profiles_text
from vllm_advisor.tui.screens.aside import Aside
from vllm_advisor.tui.widgets.ask import Confirm, Prompt
from vllm_advisor.tui.widgets.keyed import KeyTable, VimScroll
from vllm_advisor.tui.widgets.page import grid, page


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from vllm_advisor.profile import Profile
    from vllm_advisor.tui.state import State

_NONE = """There are no profiles yet.

`tuner serve MODEL` measures one (step 7 runs it for you), `advisor profiles import FILE` takes one from elsewhere."""
# The order of columns where there may be little room: what tells two profiles apart comes first.
_SHOWN = ("model", "machine", "tok/s out", "plan", "KV", "load", "is", "on", "id")


class ProfilesAside(Aside):
    """The list, and below or beside it the profile under the cursor or a comparison."""

    HEADING = "Profiles: what was measured and kept"
    HELP = """Profiles

Every deployment that `tuner serve` measured on this machine, and those that were imported. A measured one is a truth
here while machine, driver, model and software are the same; an imported one is a prior until it is measured here.

Mark one with Space and put the cursor on another: d shows what differs. Export writes a TOML file without tokens,
host names or home folders. Remove asks first; the trials behind a profile stay in the store."""
    BINDINGS: ClassVar[list[BindingType]] = [
        ("space", "mark", "Mark"),
        ("d", "diff", "Diff"),
        ("e", "export", "Export"),
        ("x,delete", "remove", "Remove"),
        ("r", "again", "Read again"),
    ]

    _read = False

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, Profile] = {}
        self._marked = ""

    def body(self) -> ComposeResult:
        """The list and the page."""
        with Container(id="pair"):
            yield KeyTable("", *_SHOWN, id="profiles")
            with VimScroll(id="page"):
                yield Static(id="shown", markup=False)

    def show(self, state: State) -> None:  # noqa: ARG002 - the store is the same for every state
        """Read the store once; `r` reads it again."""
        if not self._read:
            self._read = True
            self.work("reading the profiles", profiles.stored, self._listed)

    def _listed(self, found: tuple[Profile, ...]) -> None:
        self._found = {profile.id: profile for profile in found}
        self._marked = self._marked if self._marked in self._found else ""
        self._fill()
        if found:
            self.query_one("#profiles").focus()
        else:
            self.query_one("#shown", Static).update(_NONE)

    def _fill(self) -> None:
        rows = []
        for profile in self._found.values():
            named = dict(zip(profiles_text.HEAD, profiles_text.row(profile), strict=True))
            mark = self.wizard.glyphs.dot if profile.id == self._marked else " "
            rows.append((mark, *(named[name].replace("NVIDIA ", "") for name in _SHOWN)))
        self.query_one("#profiles", KeyTable).put(rows, list(self._found))
        self._follow()

    def on_data_table_row_highlighted(self) -> None:
        """The page follows the cursor."""
        self._follow()

    def _follow(self) -> None:
        here = self._found.get(self.query_one("#profiles", KeyTable).key)
        if here is not None:
            self._page(page([(f"{here.id}  {here.model}", []), *profiles_text.sections(here)]))

    def _page(self, content: object) -> None:
        self.query_one("#shown", Static).update(content)  # type: ignore[arg-type]
        self.query_one("#page", VimScroll).scroll_home(animate=False)

    def _here(self) -> Profile | None:
        found = self._found.get(self.query_one("#profiles", KeyTable).key)
        if found is None:
            self.status("there is no profile to choose", failed=True)
        return found

    def action_mark(self) -> None:
        """Mark the one under the cursor, or take its mark away."""
        here = self._here()
        if here is not None:
            self._marked = "" if self._marked == here.id else here.id
            self._fill()

    def action_diff(self) -> None:
        """What differs between the marked one and the one under the cursor."""
        new, old = self._here(), self._found.get(self._marked)
        if new is None:
            return
        if old is None or old.id == new.id:
            self.status("mark one with Space, put the cursor on another, then d", failed=True)
            return
        rows = profiles_text.differences(old, new)
        self.status("")
        self._page(grid(("part", "name", old.id[:8], new.id[:8]), rows or [("no difference", "", "", "")]))

    def action_export(self) -> None:
        """Write it to a file."""
        here = self._here()
        if here is not None:
            name = f"{here.model.rstrip('/').rpartition('/')[2]}-{here.id[:8]}.toml"
            self.app.push_screen(
                Prompt(f"Write profile {here.id[:8]} to which file?", name), lambda to: self._export(here.id, to)
            )

    def _export(self, number: str, name: str | None) -> None:
        if name:
            file = Path(name).expanduser()
            self.work("writing", lambda: profiles.export(number, file), lambda _: self._said(f"wrote {file}"))

    def action_remove(self) -> None:
        """Take it out of the store, once that was confirmed."""
        here = self._here()
        if here is not None:
            text = (
                f"Remove profile {here.id[:8]} of {here.model}?\n\nIts trials stay in the store. This cannot be undone."
            )
            self.app.push_screen(Confirm(text, "Remove", "Keep"), lambda yes: self._remove(here.id, yes))

    def _remove(self, number: str, yes: bool | None) -> None:
        if yes:
            self.work("removing", lambda: list(profiles.remove([number])), lambda _: self._gone(number))

    def _gone(self, number: str) -> None:
        self._said(f"removed {number[:8]}")
        self.action_again()

    def _said(self, text: str) -> None:
        self.notify(text, markup=False)

    def action_again(self) -> None:
        """Read the store once more."""
        self._read = False
        self.show(self.wizard.state)
