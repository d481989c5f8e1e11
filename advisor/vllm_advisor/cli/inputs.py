"""What commands read before the pure part: the functions of `vllm_advisor.question`, their remarks told on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor import question
from vllm_advisor.cli.diagnostics import note
from vllm_advisor.question import Load, facts, node, siblings, surface, workload


if TYPE_CHECKING:
    from vllm_advisor.model import ModelSpec

__all__ = ["Load", "facts", "model", "node", "siblings", "surface", "workload"]


def model(name: str, revision: str | None, *, offline: bool) -> ModelSpec:
    """A folder, a config.json, a catalog name, the Hugging Face cache, or the hub."""
    return question.model(name, revision, offline=offline, tell=note)
