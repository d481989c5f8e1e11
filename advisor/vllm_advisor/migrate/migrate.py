"""The whole of a migration: rewrite, say what changes, compare the memory, and see what the new version refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import report
from vllm_advisor.check.finding import ERROR
from vllm_advisor.migrate.changes import changes
from vllm_advisor.migrate.compare import judged, memory
from vllm_advisor.migrate.item import Migration
from vllm_advisor.migrate.rewrite import rewrite


if TYPE_CHECKING:
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.migrate.item import Item, Memory, Move


_TOKENS = "--max-num-batched-tokens"


def migrate(move: Move, notes: tuple[str, ...] = ()) -> Migration:
    """The command for the new version, and what changes for it. Without a node nothing of the hardware is compared."""
    after, rewritten = rewrite(move.before, move.old, move.new, move.model)
    items = (*rewritten, *changes(move, after))
    return Migration(move, after, items, _refused(move, after, rewritten), _memory(move, after), notes)


def _refused(move: Move, after: Invocation, rewritten: tuple[Item, ...]) -> tuple[Finding, ...]:
    """Errors that the new version has with the new command, those left out that an item says already."""
    said = {item.subject for item in rewritten if not item.carried}
    found = report.judge(after, move.new, move.node, move.model).findings
    return tuple(f for f in found if f.level == ERROR and f.subject not in said)


def _memory(move: Move, after: Invocation) -> tuple[Memory, ...]:
    """Before, after, and after with the old version's tokens a step where the default of them changed."""
    if move.node is None or move.model is None:
        return ()
    was = judged(move.before, move.old, move.node, move.model)
    now = judged(after, move.new, move.node, move.model)
    if was is None or now is None:
        return ()
    pair = (memory(was, move.old.version), memory(now, move.new.version))
    tokens = was.case.plan.max_num_batched_tokens
    if tokens == now.case.plan.max_num_batched_tokens or now.asked.last(_TOKENS):
        return pair
    held = after._replace(argv=(*after.argv, _TOKENS, str(tokens)))
    third = judged(held, move.new, move.node, move.model)
    return (*pair, memory(third, f"{move.new.version}, {_TOKENS} {tokens}")) if third else pair
