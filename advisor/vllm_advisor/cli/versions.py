"""`advisor vllm`: which versions are known, what one takes, and what changed between two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_advisor.cli import options as o


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.vllm.diff import Difference
    from vllm_advisor.vllm.surface import Surface

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=o.examples(
        "advisor vllm list",
        "advisor vllm diff 0.24.0 0.33.0",
        "pip download --no-deps vllm==0.33.0; advisor vllm extract vllm-0.33.0-*.whl --out 0.33.0.json",
    ),
)


_CARDS = "defaults by card"


@app.command("list", epilog=o.examples("advisor vllm list", "advisor vllm list --json"))
def list_(json: o.Json = False) -> None:
    """List the vLLM versions that are known, and how much of each."""
    from vllm_advisor.cli import document, output
    from vllm_advisor.vllm import surface as surfaces

    rows = [_counts(surfaces.load(version)) for version in surfaces.versions()]
    if json:
        output.write_json({"schema": document.SCHEMA, "versions": rows})
    else:
        output.write(output.table([tuple(rows[0]), *(tuple(str(v) for v in row.values()) for row in rows)]))


def _counts(surface: Surface) -> dict[str, Any]:
    return {
        "version": surface.version,
        "flags": len(surface.flags),
        "variables": len(surface.env),
        "architectures": len(surface.architectures),
        "quantizations": len(surface.quantizations),
        "KV dtypes": len(surface.kv_cache_dtypes),
        "metrics": len(surface.metrics),
        "unread": len(surface.not_read),
    }


@app.command(
    epilog=o.examples(
        "advisor vllm extract vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl",
        "advisor vllm extract /opt/vllm/bin/python --out installed.json   # the vLLM of an environment",
        "advisor vllm diff 0.33.0 installed.json                          # what it changes",
    )
)
def extract(
    source: Annotated[str, typer.Argument(metavar="WHEEL|FOLDER|PYTHON", help="Where a vLLM release lies.")],
    version: Annotated[str | None, typer.Option(help="Its version, where the release does not say it.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write here; a folder gets both files as they are shipped.")] = None,
) -> None:
    """Read what a release takes from its source, without importing it, and print it as JSON."""
    from vllm_advisor.cli.diagnostics import note
    from vllm_advisor.vllm import package
    from vllm_advisor.vllm.extract import extract as read

    with package.opened(source) as found:
        note("reading; which kernels are chosen on each device takes a minute or two")
        surface = read(found.folder, _version(version, found.version))
    _written(surface, out)
    unread = [*surface["unread"], *surface["unread_more"]]
    if unread:
        note(f"{len(unread)} things were not read from the source; they stand under `unread` and `unread_more`")


def _version(given: str | None, found: str | None) -> str:
    """As given, else as found; raises UsageError or UnknownVllm."""
    from vllm_advisor.errors import UsageError
    from vllm_advisor.vllm.surface import release_of

    chosen = given or found
    if chosen is None:
        raise UsageError("the release does not say its version", "add --version 0.33.0")
    release_of(chosen)
    return chosen


def _written(surface: dict[str, Any], out: Path | None) -> None:
    from vllm_advisor.cli import output
    from vllm_advisor.errors import BadInput
    from vllm_advisor.vllm import extract as extraction

    if out is None:
        output.write(extraction.dumps(surface).splitlines())
    elif out.is_dir():
        extraction.write(surface, out)
    else:
        try:
            out.write_text(extraction.dumps(surface), encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{out} cannot be written: {error.strerror}") from None


@app.command(epilog=o.examples("advisor vllm diff 0.24.0 0.33.0", "advisor vllm diff 0.33.0 installed.json --json"))
def diff(
    old: Annotated[str, typer.Argument(help="A version, or a file that `advisor vllm extract` wrote.")],
    new: Annotated[str, typer.Argument(help="The version or file to compare with it.")],
    json: o.Json = False,
) -> None:
    """Say what changed between two versions: flags, choices, defaults, variables, kernels, metrics, log lines."""
    from vllm_advisor.cli import document, output
    from vllm_advisor.vllm import diff as differences

    before, after = _surface(old), _surface(new)
    found = differences.diff(before, after)
    if json:
        rows = [row._asdict() for row in found]
        output.write_json({"schema": document.SCHEMA, "from": before.version, "to": after.version, "changes": rows})
    else:
        output.write(_shown(before.version, after.version, found))


def _surface(name: str) -> Surface:
    """A shipped version, or a file. Raises UnknownVllm or BadInput."""
    import json

    from vllm_advisor.cli import inputs
    from vllm_advisor.errors import BadInput
    from vllm_advisor.vllm.surface import surface_of

    path = Path(name)
    if path.suffix != ".json" and not path.is_file():
        return inputs.surface(name)
    try:
        return surface_of(json.loads(path.read_bytes()))
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"{name} is no surface", "write one: advisor vllm extract WHEEL --out FILE") from None


def _shown(before: str, after: str, found: tuple[Difference, ...]) -> list[str]:
    from vllm_advisor.cli import output

    lines = [output.bold(f"vLLM {before} → {after}")]
    for group in dict.fromkeys(d.group for d in found):
        rows = [d for d in found if d.group == group and not _is_quiet(d)]
        if rows:
            lines += ["", output.bold(f"{group[0].upper()}{group[1:]}"), *_rows(rows)]
    return lines if found else [*lines, "  no difference"]


def _is_quiet(row: Difference) -> bool:
    """A change of kernels below the first: it is in --json."""
    if not row.group.endswith(" kernels"):
        return False
    first, second = (str(side).partition(">")[0].strip() for side in (row.before, row.after))
    return first == second


def _rows(rows: list[Difference]) -> Iterator[str]:
    """Names that need no more said in one paragraph, the rest one a line."""
    for kind, sign in (("removed", "-"), ("added", "+")):
        bare = [r.name for r in rows if r.kind == kind and not r.note and r.group != _CARDS]
        bare = bare if len(bare) > 1 else []
        if bare:
            yield from _wrapped(f"  {sign} ", ", ".join(bare))
        for row in rows:
            if row.kind == kind and row.name not in bare:
                yield from _wrapped(f"  {sign} ", f"{row.name}{_said(row)}")
    for row in rows:
        if row.kind in ("renamed", "changed"):
            yield from _wrapped("  ~ ", f"{row.name}{_said(row)}")


def _wrapped(sign: str, text: str) -> list[str]:
    """Lines of a terminal's width; a name with hyphens stays whole, to be copied."""
    import shutil
    import textwrap

    width = max(60, min(120, shutil.get_terminal_size().columns))
    return textwrap.wrap(
        text, width, initial_indent=sign, subsequent_indent=" " * len(sign), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


def _said(row: Difference) -> str:
    """What stands behind a name."""
    if row.kind == "renamed":
        return f" → {row.note}"
    if row.group == "choices":
        return " " + _choices(row)
    value = f": {_text(row.before)} → {_text(row.after)}" if row.kind == "changed" else ""
    if row.kind == "added" and row.after is not None:
        value = f": {_sizes(row.after)}" if row.group == _CARDS else f" (default {_text(row.after)})"
    return value + (f" ({row.note})" if row.note else "")


def _choices(row: Difference) -> str:
    if row.note:
        return f"({row.note})"
    return ", ".join([*(f"-{c}" for c in row.before or ()), *(f"+{c}" for c in row.after or ())])


def _sizes(tier: dict[str, Any]) -> str:
    """A server's defaults on a class of cards."""
    return f"{tier['tokens'].get('server', '–')} tokens and {tier['seqs'].get('server', '–')} sequences a step"


def _text(value: Any) -> str:
    """A JSON value short enough for a line."""
    import json

    if isinstance(value, list) and len(value) == 1:
        return _text(value[0])
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:197] + "…"
