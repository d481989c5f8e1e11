"""A plan's command in the form that its reader runs: shell, files, a script, containers, a service.

All forms are written from the same LaunchCommand, so that none can say something else than the command; only `python`
is written from the plan, because `LLM()` has other defaults than `vllm serve`. Nothing here reads a file or a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.errors import UsageError


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import LaunchCommand, Plan
    from vllm_advisor.render.job import Job
    from vllm_advisor.vllm.surface import Surface
    from vllm_advisor.workload import Workload

FORMATS = ("command", "env", "json", "python", "yaml", "compose", "k8s", "systemd")


def render(
    fmt: str,
    command: LaunchCommand,
    *,
    plan: Plan,
    model: ModelSpec,
    node: Node,
    surface: Surface,
    workload: Workload | None = None,
    annotate: bool = False,
) -> str:
    """The text of one format, ending with a newline. `annotate` adds a comment for every flag and variable.

    `workload` matters to `python` only (what the model needs depends on it); None: the default one.
    Raises UsageError for an unknown format, and where a format cannot say what the plan needs (several nodes).
    """
    from vllm_advisor.render.job import Job  # noqa: PLC0415  only who renders pays for it
    from vllm_advisor.workload import Workload  # noqa: PLC0415

    job = Job(command, plan, model, node, surface, workload or Workload(), annotate)
    return _writer(fmt)(job)


def _writer(fmt: str) -> Callable[[Job], str]:
    """The module behind a format is imported when it is asked for: most of them need YAML, the command does not."""
    from importlib import import_module  # noqa: PLC0415

    if fmt not in FORMATS:
        raise UsageError(f"no format {fmt!r}", f"one of {', '.join(FORMATS)}")
    module, name = _WRITERS[fmt]
    writer: Callable[[Job], str] = getattr(import_module(f"vllm_advisor.render.{module}"), name)
    return writer


_WRITERS = {
    "command": ("shell", "command"),
    "env": ("shell", "env_file"),
    "json": ("shell", "as_json"),
    "python": ("script", "python"),
    "yaml": ("config", "config"),
    "compose": ("compose", "compose"),
    "k8s": ("kubernetes", "kubernetes"),
    "systemd": ("systemd", "systemd"),
}
