"""`advisor migrate`: a command for another vLLM version, and what changes for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli.diagnostics import ExitCode


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.hardware import Node
    from vllm_advisor.migrate.item import Item, Memory, Migration
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface

app = o.single(ignore_unknown_options=True)


@app.command(
    epilog=o.examples(
        "advisor migrate --from 0.24.0 --to 0.33.0 -- vllm serve Qwen/Qwen3-8B --calculate-kv-scales",
        "advisor migrate --from 0.24.0 --gpu 8xMI300X -- VLLM_ROCM_USE_AITER=1 vllm serve openai/gpt-oss-120b -tp 8",
        "advisor migrate --from 0.33.0 --to 0.28.0 serve.sh       # and back; also Compose, Kubernetes, systemd",
    )
)
def migrate(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] | -- [NAME=VALUE …] vllm serve …", help="A file, or a command behind `--`."),
    ] = None,
    old: Annotated[
        str | None, typer.Option("--from", help="The version that it runs on now; else the image's tag.")
    ] = None,
    new: Annotated[str, typer.Option("--to", help="The version that it shall run on.")] = o.DEFAULT_VLLM,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """Rewrite a vllm serve command for another vLLM version, and say what changes. Exit 1: not all is carried over."""
    from vllm_advisor.cli import inputs

    invocations = _read(words or [])
    machine = inputs.node(gpu, node) if gpu or node else None
    target = inputs.surface(new)
    done = [_migrated(one, old, target, machine, offline=offline) for one in invocations]
    _show_json(done) if json else _show(done)
    raise typer.Exit(ExitCode.OK if all(one.complete for one in done) else ExitCode.NO)


def _read(words: list[str]) -> tuple[Invocation, ...]:
    """The commands of a file or of the line. Raises UsageError or BadInput."""
    import shlex

    from vllm_advisor.check import read
    from vllm_advisor.errors import BadInput, UsageError

    if not words:
        raise UsageError("nothing to migrate", "advisor migrate --from 0.24.0 -- vllm serve MODEL …, or a file")
    if len(words) == 1 and " " not in words[0]:
        return read.file(Path(words[0]))
    try:
        return (read.command_line(words if len(words) > 1 else shlex.split(words[0])),)
    except ValueError as error:
        raise BadInput(f"cannot read the command: {error}", "close the quote") from None


def _migrated(invocation: Invocation, old: str | None, new: Surface, node: Node | None, *, offline: bool) -> Migration:
    from vllm_advisor.check.parse import parse
    from vllm_advisor.migrate.item import Move
    from vllm_advisor.migrate.migrate import migrate as move_to

    before, assumed = _old(invocation, old)
    reading = parse(invocation, before)
    model, unknown = _model(reading.model, reading.value("--revision"), offline=offline)
    notes = (*assumed, *([unknown] if unknown else []), *([] if node else [_NO_DEVICE]))
    return move_to(Move(invocation, before, new, node, model), notes)


_NO_DEVICE = "no device is named: add --gpu or --node for what depends on it"


def _old(invocation: Invocation, old: str | None) -> tuple[Surface, tuple[str, ...]]:
    """The surface of the version before; one older than the oldest that is known takes that one's names."""
    from vllm_advisor.errors import UsageError
    from vllm_advisor.estimate import release

    version = old or invocation.version
    if version is None:
        raise UsageError("no version to migrate from", "add --from 0.24.0")
    found = release.named(version)
    return found.surface, found.assumed


def _model(name: str | None, revision: str | None, *, offline: bool) -> tuple[ModelSpec | None, str]:
    """The model, or why it is not known."""
    from vllm_advisor.check.values import is_unresolved
    from vllm_advisor.cli import inputs
    from vllm_advisor.errors import AdvisorError

    if name is None or is_unresolved(name):
        return None, "the command names no model: what depends on it is not compared"
    try:
        return inputs.model(name, revision, offline=offline), ""
    except (AdvisorError, OSError, ValueError) as error:
        reason = error.message if isinstance(error, AdvisorError) else f"{name!r} cannot be looked up"
        return None, f"{reason}: what depends on the model is not compared"


def _show(done: list[Migration]) -> None:
    from vllm_advisor.check.fix import shell
    from vllm_advisor.cli import output

    lines: list[str] = []
    for one in done:
        move = one.move
        device = f" on {move.node.label}" if move.node else ""
        title = f"{move.before.place}: vLLM {move.old.version} → {move.new.version}{device}"
        lines += [output.bold(title), "", shell(one.after).rstrip(), "", *_items(one), *_memory(one.memory)]
        lines += [*_refused(one), *(output.dim(f"  {note}") for note in one.notes), _verdict(one), ""]
    output.write(lines[:-1])


_TITLES = (
    ("Written otherwise", ("translated", "dropped", "kept")),
    ("Done otherwise by the new version", ("default", "behaviour")),
    ("Announced", ("deprecated",)),
)


def _items(one: Migration) -> Iterator[str]:
    from vllm_advisor.cli import output

    for title, kinds in _TITLES:
        rows = [item for item in one.items if item.kind in kinds]
        if rows:
            yield output.bold(title)
            for item in rows:
                yield from _item(item)
            yield ""


def _item(item: Item) -> list[str]:
    from vllm_advisor.cli import output

    sign = "  " if item.carried else "! "
    if item.kind in ("translated", "default"):
        name = f"{item.subject}: " if item.kind == "default" else ""
        said = f"{name}{item.before} → {item.after}: {item.text}"
    elif item.kind == "behaviour":
        said = f"{item.subject}: {item.before} → {item.after} ({item.text})"
    else:
        said = f"{item.before}: {item.text}" + (" (left out)" if item.kind == "dropped" else "")
    return [*output.wrapped(f"{sign}- ", said), *(output.dim(t) for t in output.wrapped("      ", item.source))]


def _memory(found: tuple[Memory, ...]) -> list[str]:
    """The versions' figures side by side."""
    from vllm_advisor.cli import output

    if not found:
        return []
    rows = [("", *(m.version for m in found)), *_figures(found)]
    return [output.bold("Memory of one rank (estimates)"), *output.table(rows), ""]


def _figures(found: tuple[Memory, ...]) -> Iterator[tuple[str, ...]]:
    """Rows; GiB with two digits, as vLLM's log has them."""
    from vllm_advisor.units import GIB, count

    counts = (("tokens a step", "max_num_batched_tokens"), ("sequences a step", "max_num_seqs"))
    sizes = (("weights", "weights"), ("activations", "activation"), ("graphs, taken off first", "graphs"),
             ("KV cache", "kv_cache"), ("of it one longest request", "request_bytes"))  # fmt: skip
    yield from ((name, *(count(getattr(m, field)) for m in found)) for name, field in counts)
    yield from ((name, *(f"{getattr(m, field) / GIB:.2f} GiB" for m in found)) for name, field in sizes)
    yield "KV tokens", *(count(m.kv_tokens) for m in found)
    yield "longest requests at once", *(f"{m.max_concurrency:.2f}" for m in found)
    yield "verdict", *(m.verdict for m in found)


def _refused(one: Migration) -> list[str]:
    from vllm_advisor.cli import output

    if not one.refused:
        return []
    rows = [
        line
        for f in one.refused
        for line in output.wrapped("! - ", f"{f.text}{f' ({f.hint})' if f.hint else ''} [{f.id}]")
    ]
    return [output.bold(f"What vLLM {one.move.new.version} refuses in it"), *rows, ""]


def _verdict(one: Migration) -> str:
    if one.complete:
        return "all is carried over"
    lost = sum(not item.carried for item in one.items) + len(one.refused)
    return f"{lost} thing{'' if lost == 1 else 's'} could not be carried over (marked with !)"


def _show_json(done: list[Migration]) -> None:
    from vllm_advisor import __version__
    from vllm_advisor.cli import document, output

    rows = [_document(one) for one in done]
    output.write_json({"schema": document.SCHEMA, "advisor": __version__, "commands": rows})


def _document(one: Migration) -> dict[str, Any]:
    move = one.move
    return {
        "place": move.before.place,
        "from": move.old.version,
        "to": move.new.version,
        "node": move.node.label if move.node else None,
        "model": move.model.name if move.model else None,
        "complete": one.complete,
        "before": {"argv": list(move.before.argv), "env": dict(move.before.env)},
        "after": {"argv": list(one.after.argv), "env": dict(one.after.env)},
        "items": [item._asdict() for item in one.items],
        "refused": [{"id": f.id, "text": f.text, "hint": f.hint or None, "source": f.source} for f in one.refused],
        "memory": [memory._asdict() for memory in one.memory],
        "notes": list(one.notes),
    }
