"""`advisor doctor`: a start-up log, or a running server, read and explained; a failure gets its smallest fix."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli.diagnostics import ExitCode


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.doctor.diagnosis import Finding
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec

app = o.single()


@app.command(
    epilog=o.examples(
        "advisor doctor serve.log",
        "advisor doctor serve.log --gpu 2xH100          # and compare with what we predict",
        "vllm serve Qwen/Qwen3-8B 2>&1 | tee serve.log; advisor doctor serve.log",
        "docker logs vllm 2>&1 | advisor doctor -       # kubectl logs, journalctl: the same",
        "advisor doctor --url http://127.0.0.1:8000     # a server that runs, read-only",
    )
)
def doctor(
    log: Annotated[str | None, typer.Argument(help="A log of vLLM; `-`, or nothing in a pipe: stdin.")] = None,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: Annotated[str | None, typer.Option("--vllm", help="The vLLM version, where the log does not say.")] = None,
    url: Annotated[str | None, typer.Option(help="A running server instead of a log: http://127.0.0.1:8000.")] = None,
    samples_apart: Annotated[
        float,
        typer.Option(
            "--samples-apart", "--interval", min=0.1, max=3600, help="With --url: seconds between the two readings."
        ),
    ] = 5.0,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", help="With --url: the variable that holds the server's API key.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Say what a start-up log or a running server shows, and the smallest fix. Exit 1: a failure, 2: no vLLM log."""
    from vllm_advisor.errors import UsageError

    if url is not None:
        if log is not None:
            raise UsageError("a log and --url are two patients", "give one of them")
        raise typer.Exit(_live(url, gpu, node, vllm, samples_apart, api_key_env, json=json))
    if api_key_env is not None:
        raise UsageError("--api-key-env goes with --url", "a log needs no key")
    raise typer.Exit(_log(log, _machine(gpu, node), vllm, json=json))


def _live(
    url: str, gpu: str | None, file: Path | None, vllm: str | None, apart: float, key: str | None, *, json: bool
) -> int:
    from vllm_advisor.cli import doctor_live

    return doctor_live.run(url, gpu=gpu, node=file, vllm=vllm, interval_s=apart, api_key_env=key, json=json)


def _machine(gpu: str | None, file: Path | None) -> Node | None:
    from vllm_advisor.cli import inputs

    return inputs.node(gpu, file) if gpu or file else None


def _log(name: str | None, node: Node | None, vllm: str | None, *, json: bool) -> int:
    from vllm_advisor.cli import doctor_report
    from vllm_advisor.doctor import comparison, diagnosis

    _check_version(vllm)
    found = _read(name)
    if found.verdict == diagnosis.NO_LOG:
        return _refuse(found)
    compared = comparison.compare(found.start.facts, node, vllm, _model)
    (doctor_report.show_json if json else doctor_report.show)(found, compared)
    return ExitCode.OK if found.verdict in (diagnosis.HEALTHY, diagnosis.UNFINISHED) else ExitCode.NO


def _check_version(vllm: str | None) -> None:
    """A version that is none is a mistake of the command line, whether it is needed or not."""
    if vllm is not None:
        from vllm_advisor.estimate import release

        release.named(vllm)


def _refuse(found: Finding) -> int:
    from vllm_advisor.errors import BadInput

    what = "it is empty" if not found.log.size else "no line in it is vLLM's"
    raise BadInput(f"this is no log of vLLM: {what}", "give the whole output of vllm serve, stderr too (2>&1)")


def _model(name: str) -> ModelSpec:
    """The model that a log names: here, in the catalog or in the cache; never the network."""
    from vllm_advisor.catalog import hub

    return hub.resolve(name, offline=True)


def _read(name: str | None) -> Finding:
    from vllm_advisor.doctor import diagnosis
    from vllm_advisor.errors import BadInput, UsageError

    if name in (None, "-"):
        if sys.stdin is None or (name is None and sys.stdin.isatty()):
            raise UsageError(
                "no log is given", "advisor doctor LOG, or pipe one in: docker logs vllm 2>&1 | advisor doctor -"
            )
        return diagnosis.read(sys.stdin.buffer, _progress(None))
    try:
        path = Path(str(name))
        with path.open("rb") as stream:
            return diagnosis.read(stream, _progress(path.stat().st_size))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{name} cannot be read: {reason}", "advisor doctor takes a file, or - for stdin") from None


def _progress(total: int | None) -> Callable[[int], None] | None:
    """A line on a terminal's stderr for what takes more than a second."""
    if not sys.stderr.isatty():
        return None
    import time

    begun, shown = time.monotonic(), [0.0]

    def tell(done: int) -> None:
        now = time.monotonic()
        if now - begun > 1 and now - shown[0] > 0.2:
            shown[0] = now
            part = f" of {total >> 20}" if total else ""
            sys.stderr.write(f"\rread {done >> 20}{part} MiB")
        if shown[0] and total and done >= total:
            sys.stderr.write("\r\x1b[K")

    return tell
