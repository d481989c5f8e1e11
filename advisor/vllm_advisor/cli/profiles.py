"""`advisor profiles`: what was measured and kept; as text to carry elsewhere, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli.diagnostics import ExitCode


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.profile import Profile

app = typer.Typer(
    name="profiles",
    help="List, show, compare, carry and remove measured deployments.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The first digits of a profile's id.")]
IdOrFile = Annotated[str, typer.Argument(metavar="ID|FILE", help="A profile of the store, or an exported file.")]
Store = Annotated[
    str | None,
    typer.Option("--store", help="Another store: a file, sqlite:///… or postgresql://… .", show_default=False),
]
Key = Annotated[Path | None, typer.Option("--key", help="A file with the secret of HMAC signatures, 16 bytes or more.")]


@app.command("list", epilog=o.examples("advisor profiles list", "advisor profiles list --shipped"))
def list_(
    model: Annotated[str | None, typer.Option(help="Only those of this model.")] = None,
    shipped: Annotated[bool, typer.Option("--shipped", help="What ships with this release instead: priors.")] = False,
    store: Store = None,
    json: o.Json = False,
) -> None:
    """List the profiles, the newest first."""
    from vllm_advisor import profiles
    from vllm_advisor.cli import output, profiles_view

    if shipped:
        import vllm_profiles

        rows = [row for row in vllm_profiles.load_all() if model in (None, row.get("model"))]
        output.write_json({"schema": 1, "profiles": rows}) if json else output.write(profiles_view.shipped(rows))
        return
    found = profiles.stored(store, model)
    if json:
        output.write_json({"schema": 1, "profiles": [profiles_view.document(profile) for profile in found]})
    else:
        _listed(found)


@app.command(epilog=o.examples("advisor profiles show 4f1c", "advisor profiles show seed-mi300x"))
def show(number: Id, store: Store = None, json: o.Json = False) -> None:
    """Show one profile: plan, figures, accuracy, what they depend on, where it comes from."""
    from vllm_advisor.cli import output, profiles_view

    shipped = _shipped(number)
    if shipped:
        output.write_json({"schema": 1, "profile": shipped}) if json else output.write(profiles_view.plain(shipped))
        return
    found = _found(number, store)
    if json:
        output.write_json({"schema": 1, "profile": profiles_view.document(found)})
    else:
        output.write(profiles_view.shown(found))


@app.command(epilog=o.examples("advisor profiles diff 4f1c 90ab", "advisor profiles diff 4f1c theirs.toml"))
def diff(old: IdOrFile, new: IdOrFile, store: Store = None, json: o.Json = False) -> None:
    """Say what differs between two profiles: plan, figures, machine and software. Exit 1 where something does."""
    from vllm_advisor.cli import output, profiles_view

    rows = profiles_view.differences(_either(old, store), _either(new, store))
    if json:
        names = ("part", "name", "old", "new")
        output.write_json({"schema": 1, "differences": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        output.write(profiles_view.compared(rows))
    raise typer.Exit(ExitCode.NO if rows else ExitCode.OK)


@app.command(epilog=o.examples("advisor profiles export 4f1c > h100.toml", "advisor profiles export 4f1c --key KEY"))
def export(
    number: Id,
    out: Annotated[Path | None, typer.Option("--out", help="Write here instead of stdout.")] = None,
    key: Key = None,
    store: Store = None,
    json: o.Json = False,
) -> None:
    """Write a profile as TOML with its provenance and a digest; no token, host name or home folder leaves with it."""
    from vllm_advisor.cli import output
    from vllm_advisor.store import exchange

    found = _found(number, store)
    text = exchange.export(found, exchange.read_key(key))
    if json:
        content = exchange.document(found)
        output.write_json({"schema": exchange.SCHEMA, "digest": exchange.digest(content), **content})
    elif out is None:
        output.write([text.rstrip("\n")])
    if out is not None:
        _written(out, text)


@app.command(
    "import", epilog=o.examples("advisor profiles import h100.toml", "advisor profiles import *.toml --key KEY")
)
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Exported profiles.")],
    key: Key = None,
    store: Store = None,
    json: o.Json = False,
) -> None:
    """Check exported profiles and keep them as priors: all of them, or none where one is not what it claims to be."""
    from vllm_advisor import profiles
    from vllm_advisor.cli import output
    from vllm_advisor.store import exchange

    secret = exchange.read_key(key)
    read = [exchange.read(path, secret) for path in files]
    kept = [(path, profiles.keep(profile, store)) for path, profile in zip(files, read, strict=True)]
    if json:
        output.write_json({"schema": 1, "imported": [{"file": str(path), "id": number} for path, number in kept]})
    else:
        output.write(f"{number}  imported from {path.name}, a prior" for path, number in kept)


@app.command(
    epilog=o.examples(
        "advisor profiles validate theirs.toml              # the file alone",
        "advisor profiles validate 4f1c                     # is it a truth on this machine?",
        "advisor profiles validate 4f1c --measure           # measure it here: runs `tuner serve`",
    )
)
def validate(
    number: IdOrFile,
    measure: Annotated[bool, typer.Option("--measure", help="Start the server and measure, by `tuner serve`.")] = False,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    key: Key = None,
    store: Store = None,
    json: o.Json = False,
) -> None:
    """Say whether a profile holds on this machine, and what keeps it from it. Exit 1: it is a prior only."""
    from vllm_advisor.cli import output, profiles_view

    found = _either(number, store, key)
    if measure:
        raise typer.Exit(_measured(found, store))
    why = "it is a file: advisor profiles import" if not found.id else _difference(found, gpu, node)
    if json:
        output.write_json({"schema": 1, "valid": True, "truth": not why, "why": why or None})
    else:
        output.write(profiles_view.verdict(found, why))
    raise typer.Exit(ExitCode.NO if why and found.id else ExitCode.OK)


@app.command(epilog=o.examples("advisor profiles rm 4f1c 90ab"))
def rm(
    numbers: Annotated[list[str], typer.Argument(metavar="ID…", help="The first digits of their ids.")],
    store: Store = None,
    json: o.Json = False,
) -> None:
    """Remove profiles; their trials stay in the store. Nothing goes where one of them is not there."""
    from vllm_advisor import profiles
    from vllm_advisor.cli import output

    gone = [profile.id for profile in profiles.remove(numbers, store)]
    output.write_json({"schema": 1, "removed": gone}) if json else output.write(f"{number}  removed" for number in gone)


def _listed(found: Sequence[Profile]) -> None:
    from vllm_advisor.cli import output, profiles_view
    from vllm_advisor.cli.diagnostics import note

    if found:
        output.write(profiles_view.listed(found))
    else:
        note("no profiles yet: `tuner serve MODEL` measures one, `advisor profiles import FILE` takes one")


def _found(number: str, store: str | None) -> Profile:
    from vllm_advisor import profiles

    return profiles.find(number, store)


def _either(name: str, store: str | None, key: Path | None = None) -> Profile:
    """A file that is there, else a profile of the store. Raises BadInput or StoreError."""
    from vllm_advisor.store import exchange

    if Path(name).suffix or Path(name).is_file():
        return exchange.read(Path(name), exchange.read_key(key))
    return _found(name, store)


def _shipped(name: str) -> dict[str, object] | None:
    import vllm_profiles

    try:
        return vllm_profiles.load(name)
    except KeyError:
        return None


def _written(out: Path, text: str) -> None:
    from vllm_advisor.errors import BadInput

    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}", "advisor profiles export ID > FILE") from None


def _difference(found: Profile, gpu: str | None, node: Path | None) -> str:
    """Why the profile is no truth on this machine, "" where it is one."""
    from vllm_advisor import fingerprint, profiles
    from vllm_advisor.cli import inputs

    if not found.is_truth:
        return profiles.difference(found, None)

    spec = inputs.model(found.plan.checkpoint, None, offline=True)
    software = fingerprint.installed()
    vllm = software.vllm if isinstance(software.vllm, str) else o.DEFAULT_VLLM
    files = fingerprint.checkpoint(found.plan.checkpoint)
    here = fingerprint.fingerprint(inputs.node(gpu, node), spec, vllm.partition("+")[0], software, files)
    return profiles.difference(found, here)


def _measured(found: Profile, store: str | None) -> int:
    """Hand over to the tuner, as a process of its own: it measures, judges accuracy, and marks the profile."""
    import shutil
    import subprocess

    from vllm_advisor.errors import UsageError

    tuner = shutil.which("tuner")
    if not found.id or tuner is None:
        what = "there is no `tuner` command here" if found.id else "a file cannot be measured"
        hint = "pip install 'vllm-advisor[tuner]'" if found.id else "advisor profiles import FILE"
        raise UsageError(what, hint)
    where = ["--store", store] if store else []
    return subprocess.run([tuner, "serve", found.model, "--profile", found.id, *where], check=False).returncode  # noqa: S603
