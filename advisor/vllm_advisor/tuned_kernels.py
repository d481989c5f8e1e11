"""The launches that `tuner kernels` found on this machine, handed to servers that run our plugin's kernels.

The tuner keeps its winners in one file; a server reads the file that ADVISOR_KERNEL_CONFIGS names. Which entries still
hold is the kernels' own judgement (source, device, Triton); here only a file without any for this kind of device is
left out.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor
from vllm_advisor.vllm import plugin


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.facts import Recommendation
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import LaunchCommand, Plan

VARIABLE = "ADVISOR_KERNEL_CONFIGS"
FILE = "kernel-configs.json"
_SCHEMA = 1


def place() -> Path:
    """Where `tuner kernels` leaves its winners unless told."""
    import platformdirs  # noqa: PLC0415  only a plan with our plugin asks

    return platformdirs.user_state_path("vllm-advisor", appauthor=False) / FILE


def handed(found: Recommendation, file: Path | None = None) -> Recommendation:
    """The answer with the variable in the commands of plans that our plugin serves on this very machine."""
    if found.facts.node.origin != "probe" or not any(plugin.serves(r.model, r.plan) for r in found.plans):
        return found
    path = file or place()
    if not holds(path, found.facts.node):
        return found
    return found._replace(
        plans=tuple(r._replace(command=with_file(r.command, r.model, r.plan, path)) for r in found.plans)
    )


def with_file(command: LaunchCommand, model: ModelSpec, plan: Plan, file: Path) -> LaunchCommand:
    """The command with the variable, where our plugin's kernels run."""
    if not plugin.serves(model, plan):
        return command
    return replace(command, env=(*command.env, (VARIABLE, str(file))))


def holds(file: Path, node: Node) -> bool:
    """Whether the file has a launch for such a device. A file that cannot be read has none."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        entries = document["entries"] if document["schema"] == _SCHEMA else []
        return any(_is_for(entry["op"], entry["arch"], node) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_for(op: str, arch: str, node: Node) -> bool:
    if node.gpu.vendor is Vendor.CPU:
        return op.startswith("cpu.")
    return arch == node.gpu.arch
