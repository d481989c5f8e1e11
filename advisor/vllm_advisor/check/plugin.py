"""Our own quantization in a command: whether the environment that will run it has the plugin that brings it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.finding import ERROR, WARNING
from vllm_advisor.check.values import is_unresolved
from vllm_advisor.errors import EngineError
from vllm_advisor.vllm.plugin import GROUP, INSTALL, NAME, VARIABLE, has_release


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.check.finding import Change, Finding
    from vllm_advisor.model import ModelSpec

_QUANT = "--quantization"
# No import of vLLM: that takes seconds. Up to Python 3.11 one entry point may be listed twice.
_ASK = f"import importlib.metadata as m; print(*sorted({{e.name for e in m.entry_points(group={GROUP!r})}}), sep='\\n')"
_ASK_TIMEOUT_S = 60


def findings(given: Asked, model: ModelSpec | None, plugins: tuple[str, ...] | None) -> Iterator[Finding]:
    """One finding where the plugin is missing, shut out, or may be. `plugins`: of the environment, None: not asked."""
    by_checkpoint = model is not None and model.quantization.method == NAME
    if given.quantization != NAME and not by_checkpoint:
        return
    if not has_release(given.surface):
        text = f"{NAME} is our plugin, and it supports vLLM 0.32 and 0.33, not {given.surface.version}"
        yield mend.said("QNT-32", text, given, _QUANT, level=ERROR)
    elif _is_shut_out(given):
        text = f"{VARIABLE} lets only the plugins through that it names, and {NAME} is not one of them"
        yield mend.said("QNT-32", text, given, VARIABLE, hint=f"name {NAME} in it", change=_let_in(given), level=ERROR)
    elif plugins is None:
        text = f"{NAME} is our plugin and no part of vLLM: the server's environment has to have it"
        yield mend.said("QNT-32", text, given, _QUANT, hint=f"{INSTALL}; --vllm-python PY asks it", level=WARNING)
    elif NAME not in plugins:
        text = f"{NAME} is our plugin, and the server's environment does not have it"
        yield mend.said("QNT-32", text, given, _QUANT, hint=INSTALL, level=ERROR)


def _listed(given: Asked) -> str | None:
    value = dict(given.reading.invocation.env).get(VARIABLE)
    return None if is_unresolved(value) else value


def _is_shut_out(given: Asked) -> bool:
    """As vLLM reads it: names between commas, without spaces taken off (envs.py VLLM_PLUGINS)."""
    value = _listed(given)
    return value is not None and NAME not in value.split(",")


def _let_in(given: Asked) -> Change:
    return mend.variable(VARIABLE, ",".join(filter(None, (_listed(given), NAME))))


def installed(python: Path) -> tuple[str, ...]:
    """Names of the vLLM plugins in an environment. Raises EngineError where its Python does not run."""
    hint = "--vllm-python takes the Python of the environment that vLLM is installed in"
    try:
        asked = subprocess.run(  # noqa: S603  the interpreter that the user named
            [python, "-c", _ASK],
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{python} does not run: {error}", hint) from error
    if asked.returncode:
        raise EngineError(f"{python} does not list its plugins: {asked.stderr.strip()[-200:]}", hint)
    return tuple(asked.stdout.split())
