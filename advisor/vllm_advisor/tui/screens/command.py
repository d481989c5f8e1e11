"""Step 5: the plan as something to run: in the format of its reader, flag by flag explained, to copy or to save."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from vllm_advisor.errors import UsageError
from vllm_advisor.render import FORMATS
from vllm_advisor.tui.screens.planned import Chosen, PlannedStep, choose
from vllm_advisor.tui.widgets.choice import Choice


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.content import Content

    from vllm_advisor.render.job import Job
    from vllm_advisor.tui.asking import Asker
    from vllm_advisor.tui.state import State

# What a format is written in, and what its file is called; `{name}` as the render room calls the deployment.
_LANGUAGES = {
    "command": "bash", "env": "bash", "json": "json", "python": "python",
    "yaml": "yaml", "compose": "yaml", "k8s": "yaml", "systemd": "ini",
}  # fmt: skip
_FILES = {
    "command": "{name}.sh", "env": "{name}.env", "json": "{name}.json", "python": "{name}.py",
    "yaml": "{name}.yaml", "compose": "compose.yaml", "k8s": "{name}-k8s.yaml", "systemd": "{name}.service",
}  # fmt: skip
_LONGEST = 34


class Page(NamedTuple):
    """One format of one plan, ready to be shown."""

    chosen: Chosen
    fmt: str
    text: str
    coloured: Content
    parts: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    file: str


class CommandStep(PlannedStep):
    """Formats above, the text below, then what each part of it does, and the commands that say the same."""

    STEP = "command"
    HELP = """Command

This is the chosen plan as a `vllm serve` command, or in the form that its reader takes: variables alone, JSON,
Python (vllm.LLM), a config file for vLLM, Docker Compose, Kubernetes, a systemd unit.

Below it stands why each flag is there; a flag that equals vLLM's own default is left out. The last lines are
what you would type to get the same answer without the wizard.

Copying needs a terminal that takes OSC 52 (most do; in tmux: set -g set-clipboard on)."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,c", "copy", "Copy"),
        Binding("Y", "copy_question", "Copy `advisor …`", show=False),
        Binding("w", "save", "Save"),
        Binding("f", "fmt(1)", "Format"),
        Binding("F", "fmt(-1)", "Format before", show=False),
        Binding("a", "annotate", "Comments"),
    ]
    page: Page | None = None
    is_annotated = False
    _drawn: tuple[Chosen, str, bool] | None = None

    def body(self) -> ComposeResult:
        """From the plan to its text and its reasons."""
        yield Static(id="which", classes="title", markup=False)
        yield Choice(*FORMATS, label="Format", id="format")
        with Vertical(id="deployment"):
            yield Static(id="text", markup=False)
            yield Static(id="parts")
        yield Static(id="same", markup=False)

    def show(self, state: State) -> None:
        """The plan, then its text where the format is another one."""
        self.query_one("#format", Choice).show(state.fmt)
        super().show(state)
        if self.chosen is not None:
            self._put(self.chosen)

    def planned(self, chosen: Chosen) -> None:
        """The text of the plan."""
        self._put(chosen)

    def unplanned(self) -> None:
        """Nothing to show."""
        self.page, self._drawn = None, None
        for name in ("which", "text", "parts", "same"):
            self.query_one(f"#{name}", Static).update("")

    def _put(self, chosen: Chosen) -> None:
        state, annotate = self.wizard.state, self.is_annotated
        key = (chosen, state.fmt, annotate)
        if self._drawn is not None and self._drawn[0] is chosen and self._drawn[1:] == key[1:]:
            return
        self._drawn = key
        asker = self.wizard.asker
        self.work("writing", lambda: page(asker, state, chosen, annotate=annotate), self._show, group="writing")

    def _show(self, made: Page) -> None:
        from vllm_advisor.tui.widgets.pairs import pairs

        self.page = made
        self.query_one("#which", Static).update(f"{made.chosen.ranked.model.name}\n{made.chosen.says}")
        self.query_one("#text", Static).update(made.coloured)
        self.query_one("#parts").display = not self.is_annotated
        rows = [*made.parts, *(("", text) for text in made.remarks)]
        self.query_one("#parts", Static).update(pairs(rows, "What each part does") if rows else "")
        self.query_one("#same", Static).update("\n".join(self._same(made)))

    def _same(self, made: Page) -> list[str]:
        state = self.wizard.state
        there = f"   (plan {state.plan} there)" if state.plan > 1 else ""
        asks = [f"The same answer:  {shlex.join(self._question(made))}{there}"]
        return asks if made.fmt == "python" else [*asks, f"Start it:         {shlex.join(state.launch())}"]

    def _question(self, made: Page) -> tuple[str, ...]:
        state = self.wizard.state
        words = state.recommend()
        if made.fmt == "command" or state.plan > 1:
            return words
        return (*words, "--format", made.fmt)

    def on_choice_chosen(self, chosen: Choice.Chosen) -> None:
        """Another format."""
        self.wizard.change(fmt=chosen.word)

    def action_fmt(self, by: int) -> None:
        """The format beside."""
        at = FORMATS.index(self.wizard.state.fmt) if self.wizard.state.fmt in FORMATS else 0
        self.wizard.change(fmt=FORMATS[(at + by) % len(FORMATS)])

    def action_annotate(self) -> None:
        """With the reasons as comments in the text, or without."""
        self.is_annotated = not self.is_annotated
        if self.chosen is not None:
            self._put(self.chosen)

    def action_copy(self) -> None:
        """The text as it is, whatever the terminal folds."""
        if self.page is None:
            self.status("there is nothing to copy yet", failed=True)
            return
        self.app.copy_to_clipboard(self.page.text)
        self.notify(f"{self.page.fmt}: copied to the clipboard", timeout=3)

    def action_copy_question(self) -> None:
        """The command that gives the same answer."""
        if self.page is None:
            self.status("there is nothing to copy yet", failed=True)
            return
        self.app.copy_to_clipboard(shlex.join(self._question(self.page)))
        self.notify("copied: advisor recommend …", timeout=3)

    def action_save(self) -> None:
        """Ask for a name; what exists is replaced only when that was said."""
        from vllm_advisor.tui.widgets.ask import Prompt

        if (made := self.page) is None:
            self.status("there is nothing to save yet", failed=True)
            return
        self.app.push_screen(
            Prompt(f"Save as {made.fmt} to which file?", made.file), lambda name: self._named(made, name)
        )

    def _named(self, made: Page, name: str | None) -> None:
        from vllm_advisor.tui.widgets.ask import Confirm

        if not name:
            return
        file = Path(name).expanduser()

        def answered(yes: bool | None) -> None:
            if yes:
                self._write(made, file, replace=True)

        if file.exists():
            self.app.push_screen(Confirm(f"{file} exists. Replace it?", "Replace", "Keep"), answered)
        else:
            self._write(made, file, replace=False)

    def _write(self, made: Page, file: Path, *, replace: bool) -> None:
        self.work(
            "saving",
            lambda: write(made.text, file, replace=replace),
            lambda _: self.notify(f"wrote {file}", markup=False),
            group="saving",
        )


def page(asker: Asker, state: State, chosen: Chosen, *, annotate: bool) -> Page:
    """The plan in the state's format. `vllm.LLM` in one process is another question, with a best plan of its own."""
    from textual.highlight import highlight

    from vllm_advisor.render import render
    from vllm_advisor.render.job import Job

    fmt = state.fmt if state.fmt in FORMATS else FORMATS[0]
    if fmt == "python":
        alone = state._replace(limits=state.limits._replace(offline_llm=True), plan=1)
        chosen = choose(asker, alone)
    ranked, facts = chosen.ranked, chosen.answer.found.facts
    text = render(
        fmt, ranked.command, plan=ranked.plan, model=ranked.model, node=facts.node, surface=facts.vllm,
        workload=facts.workload, annotate=annotate,
    )  # fmt: skip
    job = Job(ranked.command, ranked.plan, ranked.model, facts.node, facts.vllm, facts.workload, annotate=False)
    remarks = tuple(why for name, why in ranked.command.notes if not name)
    coloured = highlight(text.rstrip("\n"), language=_LANGUAGES[fmt])
    if _LANGUAGES[fmt] == "bash":
        coloured = _shell(coloured)
    return Page(chosen, fmt, text, coloured, parts(job), remarks, _FILES[fmt].format(name=job.name))


_WORDS = re.compile(r"(?m)^(?!\s*#)(?:\s*(?P<flag>--[\w-]+)|(?:export )?(?P<name>\w+)(?==)|(?P<run>vllm serve))")


def _shell(text: Content) -> Content:
    """Names of flags and variables, and the program, stand out: to a shell's grammar they are words like all others."""
    styles = {"flag": "$text-accent", "name": "$text-accent", "run": "bold $text-success"}
    for found in _WORDS.finditer(text.plain):
        kind = found.lastgroup or "flag"
        text = text.stylize(styles[kind], *found.span(kind))
    return text


def parts(job: Job) -> tuple[tuple[str, str], ...]:
    """Each variable and each flag with its why; a flag without a note is said to be what was asked for."""
    named = [(f"{name}={value}", job.why(name)) for name, value in job.command.env]
    named += [(" ".join((flag.name, *flag.values)), job.why(flag.name)) for flag in job.flags]
    return tuple((_short(what), why or "as it was asked for") for what, why in named)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def write(text: str, file: Path, *, replace: bool) -> None:
    """Write a file, whole or not at all. Raises UsageError where it cannot be, or exists unasked."""
    import os

    try:
        if not replace:
            with file.open("x", encoding="utf-8") as new:
                new.write(text)
            return
        beside = file.with_name(f".{file.name}.{os.getpid()}.new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    except FileExistsError:
        raise UsageError(f"{file} exists and was not replaced", "save once more and say so") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}", "choose another place") from error
