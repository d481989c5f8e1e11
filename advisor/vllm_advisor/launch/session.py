"""A server in the foreground: started, announced, watched until it ends or somebody presses Ctrl-C."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vllm_advisor.errors import EngineError
from vllm_advisor.launch.child import Server
from vllm_advisor.launch.log import scrub
from vllm_advisor.launch.signals import borrowed_signals


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.plan import LaunchCommand

# A child that dies is noticed at once, and a person can press Ctrl-C: this only ends a start that nobody watches.
ALLOWANCE_S = 3600.0


def serve(
    command: LaunchCommand,
    *,
    vllm_python: Path | None = None,
    port: int | None = None,
    run_folder: Path | None = None,
    host: str = "127.0.0.1",
    allowance_s: float = ALLOWANCE_S,
) -> int:
    """Run the command until it ends; 0 when it ended well. What happens is told on stderr, a line each.

    Raises UsageError for a port in use, EngineError when vLLM does not start or dies. A signal stops all of it and is
    then sent again, so that SIGINT arrives here as KeyboardInterrupt once nothing is left running.
    """
    server = Server(
        command, run_folder=run_folder, vllm_python=vllm_python, host=host, port=port, allowance_s=allowance_s
    )
    with borrowed_signals(), server:
        _say(f"starting vLLM for {server.model}, process {server.pid}; log: {scrub(str(server.log))}")
        seconds = server.wait_until_ready()
        _say(f"ready after {seconds:.0f} s: {server.url}/v1 (Ctrl-C stops it)")
        code = server.wait()
        if code:
            raise EngineError(f"vLLM died ({server.ended(code)}): {server.reason()}", f"read {scrub(str(server.log))}")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  narration, like all that the command line says there
