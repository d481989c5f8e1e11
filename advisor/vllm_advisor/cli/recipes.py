"""`advisor recommend --recipes DIR`: the vLLM project's recipe beside our plan, from the user's own clone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.facts import Recommendation
    from vllm_advisor.recipes.compare import Comparison
    from vllm_advisor.recipes.read import Missing


def section(found: Recommendation, folder: Path) -> list[str]:
    """The lines to print below the plan. Raises BadInput where the folder holds no recipes."""
    from vllm_advisor.cli import output
    from vllm_advisor.recipes.compare import Comparison, lines

    compared = _compared(found, folder)
    if not isinstance(compared, Comparison):
        return [output.bold(_none(found, compared)), *(f"  skipped: {line}" for line in compared.skipped[:1])]
    title, command, *rest = lines(compared)
    return [output.bold(title), command, *(part for line in rest for part in output.wrapped("  ", line.strip()))]


def document(found: Recommendation, folder: Path) -> dict[str, Any]:
    """The same as a JSON value; `path` null: no recipe."""
    from vllm_advisor.recipes.compare import Comparison
    from vllm_advisor.recipes.compare import document as of

    compared = _compared(found, folder)
    if isinstance(compared, Comparison):
        return of(compared)
    return {"path": None, "looked_at": compared.looked_at, "skipped": list(compared.skipped)}


def _compared(found: Recommendation, folder: Path) -> Comparison | Missing:
    from vllm_advisor.recipes.compare import compare
    from vllm_advisor.recipes.read import Missing, find

    checkpoint = found.plans[0].plan.checkpoint if found.plans else None
    recipe = find(folder, found.facts.model, found.facts.node, checkpoint)
    return recipe if isinstance(recipe, Missing) else compare(recipe, found)


def _none(found: Recommendation, missing: Missing) -> str:
    broken = f", {len(missing.skipped)} of them cannot be read" if missing.skipped else ""
    return f"No recipe for {found.facts.model.name} among {missing.looked_at}{broken}"
