"""`advisor check`: a command or a file judged for one vLLM version, shown as text, JSON or SARIF, and mended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli.diagnostics import ExitCode, note


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.asked import Judged
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.check.invocation import Invocation

app = o.single(ignore_unknown_options=True)


@app.command(
    epilog=o.examples(
        "advisor check -- vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2",
        "advisor check --vllm 0.24.0 --gpu 8xMI300X -- VLLM_ROCM_USE_AITER=1 vllm serve openai/gpt-oss-120b -tp 8",
        "advisor check serve.sh                        # also Compose, Kubernetes, systemd, a --config YAML",
        "advisor check compose.yaml --sarif check.sarif",
        "advisor check --fix -- vllm serve Qwen/Qwen3-8B --swap-space 4",
    )
)
def check(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] | -- [NAME=VALUE …] vllm serve …", help="A file, or a command behind `--`."),
    ] = None,
    vllm: Annotated[
        str | None,
        typer.Option("--vllm", help=f"The vLLM version that will run; else the image's tag, else {o.DEFAULT_VLLM}."),
    ] = None,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm_python: o.ServerPython = None,
    json: o.Json = False,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0 to a file; `-`: to stdout.")] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Print only the corrected command; the rest to stderr.")] = False,
    offline: o.Offline = False,
) -> None:
    """Judge a vllm serve command, script, Compose file or manifest, and correct it. Exit 1: errors were found."""
    from vllm_advisor.check import asked
    from vllm_advisor.check.plugin import installed
    from vllm_advisor.cli import inputs

    _one_answer(json=json, fix=fix, sarif=sarif)
    invocations, texts = _read(words or [])
    machine = inputs.node(gpu, node) if gpu or node else None
    plugins = installed(vllm_python) if vllm_python else None
    judged = [asked.judge(one, vllm, machine, plugins, offline=offline, tell=note) for one in invocations]
    if sarif is not None:
        _write_sarif(judged, texts, sarif)
    if fix:
        judged = [_fixed(one) for one in judged]
    elif json:
        _show_json(judged)
    elif sarif is None or str(sarif) != "-":
        _show(judged)
    errors = sum(one.report.count("error") for one in judged)
    raise typer.Exit(ExitCode.NO if errors else ExitCode.OK)


def _one_answer(*, json: bool, fix: bool, sarif: Path | None) -> None:
    from vllm_advisor.errors import UsageError

    asked = [name for name, on in (("--json", json), ("--fix", fix), ("--sarif -", str(sarif) == "-")) if on]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} both write to stdout", "ask for one of them")


def _read(words: list[str]) -> tuple[tuple[Invocation, ...], dict[str, str]]:
    """The commands, and the texts of the files they stand in."""
    from vllm_advisor.check import read
    from vllm_advisor.check.asked import is_file, split
    from vllm_advisor.errors import UsageError

    if not words:
        raise UsageError("nothing to check", "advisor check FILE, or advisor check -- vllm serve MODEL …")
    if not is_file(words[0]) and (len(words) > 1 or " " in words[0]):
        found: tuple[Invocation, ...] = (read.command_line(words if len(words) > 1 else split(words[0])),)
    elif len(words) > 1:
        raise UsageError(
            f"{words[0]} is a file; {' '.join(words[1:4])} behind it is not understood", "advisor check -h"
        )
    else:
        found = read.file(Path(words[0]))
    names = {words[0], *(one.config for one in found)}
    return found, {name: _text(name) for name in sorted(names) if is_file(name)}


def _text(name: str) -> str:
    return Path(name).read_text(encoding="utf-8-sig", errors="replace")


def _fixed(judged: Judged) -> Judged:
    """The corrected command on stdout, and on stderr what is left to say about it."""
    from vllm_advisor.check import asked
    from vllm_advisor.check.fix import shell
    from vllm_advisor.cli import output

    mended = asked.mended(judged)
    after, place = mended.report, judged.report.invocation.place
    heading = [] if place == "command line" else [f"# {place}"]
    output.write([*heading, shell(after.invocation).rstrip()])
    for finding in after.findings:
        note(" ".join([f"{finding.level} {finding.id}", *_said(finding)]))
    return mended


def _said(finding: Finding) -> list[str]:
    return [finding.text, *([f"({finding.hint})"] if finding.hint else []), f"[{finding.source}]"]


def _show(judged: list[Judged]) -> None:
    from vllm_advisor.cli import output

    lines: list[str] = []
    for one in judged:
        lines += [*_heading(one), *_listed(one), *([output.dim(f"  {one.unjudged}")] if one.unjudged else []), ""]
    output.write([*lines, _sum(judged)])


def _heading(one: Judged) -> Iterator[str]:
    from vllm_advisor.cli import output

    device = f" on {one.node.label}" if one.node else ""
    model = one.report.reading.model or "no model"
    yield output.bold(
        f"{one.report.invocation.place}: {model}{device}, vLLM {one.report.surface.version} ({one.chosen})"
    )


def _listed(one: Judged) -> Iterator[str]:
    from vllm_advisor.check.report import where
    from vllm_advisor.cli import output

    for finding in one.report.findings:
        name, line = where(one.report.invocation, finding)
        place = f" ({name}:{line})" if line else ""
        yield from output.wrapped(f"  {finding.level:<7} {finding.id}  ", f"{finding.text}{place}")
        if finding.hint:
            yield from output.wrapped(" " * 18, f"→ {finding.hint}")
        yield from (output.dim(text) for text in output.wrapped(" " * 18, finding.source))


def _sum(judged: list[Judged]) -> str:
    counts = [(sum(one.report.count(level) for one in judged), level) for level in ("error", "warning", "note")]
    said = ", ".join(f"{n} {level}{'' if n == 1 else 's'}" for n, level in counts if n)
    return said or "nothing to say against it"


def _show_json(judged: list[Judged]) -> None:
    from vllm_advisor import __version__
    from vllm_advisor.cli import document, output

    levels = {f"{level}s": sum(one.report.count(level) for one in judged) for level in ("error", "warning", "note")}
    commands = [_as_json(one) for one in judged]
    output.write_json({"schema": document.SCHEMA, "advisor": __version__, **levels, "commands": commands})


def _as_json(one: Judged) -> dict[str, Any]:
    from vllm_advisor.check import asked

    invocation = one.report.invocation
    after = asked.mended(one).report.invocation
    return {
        "place": invocation.place,
        "vllm": one.report.surface.version,
        "vllm_from": one.chosen,
        "node": one.node.label if one.node else None,
        "model": one.report.reading.model,
        "argv": list(invocation.argv),
        "env": dict(invocation.env),
        "findings": [_finding(invocation, f) for f in one.report.findings],
        "model_unknown": one.unjudged or None,
        "fixed": {"argv": list(after.argv), "env": dict(after.env)},
    }


def _finding(invocation: Invocation, finding: Finding) -> dict[str, Any]:
    from vllm_advisor.check.report import where

    name, line = where(invocation, finding)
    return {
        "id": finding.id,
        "level": finding.level,
        "text": finding.text,
        "hint": finding.hint or None,
        "source": finding.source,
        "subject": finding.subject or None,
        "word": finding.word if finding.word >= 0 else None,
        "where": name,
        "line": line or None,
        "fixable": finding.change is not None,
    }


def _write_sarif(judged: list[Judged], texts: dict[str, str], target: Path) -> None:
    import json

    from vllm_advisor import __version__
    from vllm_advisor.check import sarif
    from vllm_advisor.cli import output
    from vllm_advisor.errors import BadInput

    value = sarif.document([one.report for one in judged], texts, __version__)
    if str(target) == "-":
        output.write_json(value)
        return
    try:
        target.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror}") from None
