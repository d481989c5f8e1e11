"""docs/rules.md and docs/seed.md, generated: `python -m vllm_advisor.rules.document docs` writes both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.rules.seed import SEED_CLAIMS, SEED_ROWS
from vllm_advisor.rules.table import RULES


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.rules.rule import Rule, Verdict
    from vllm_advisor.rules.seed import SeedAnswer

_FAMILIES = {
    "MEM": "Memory", "PAR": "Parallelism", "QNT": "Weights", "KV": "KV cache", "ACC": "Accuracy", "BAT": "Batching",
    "ENV": "Environment", "LNG": "Length", "HW": "Hardware", "PRV": "Provenance", "VER": "Version",
}  # fmt: skip

_RULES_HEAD = """# The rules

Generated from `vllm_advisor/rules/table.py` by `python -m vllm_advisor.rules.document docs`; do not edit.

A rule looks at one plan on one machine for one model, load and vLLM version. **veto**: the plan is rejected, with every
reason. **discourage** and **prefer**: the plan's score is multiplied by the factor. **info**: said, nothing more.
Factors are our advice: they decide between plans that the speed estimate cannot tell apart.

Sources: a path is a file inside the `vllm` package, of 0.33.0 unless a version stands before it; paths under
`quantization/`, `fused_moe/`, `kernels/` and `oracle/` are in `model_executor/layers/` or `model_executor/`.
*public measurements* are what issues, logs and benchmark reports printed, gathered as figures for this product.
*catalog* is our own list of devices and models. *advice* is our judgement.
"""

_SEED_HEAD = """# The text this began from, answered

Generated from `vllm_advisor/rules/seed.py` by `python -m vllm_advisor.rules.document docs`; do not edit.

An article on vLLM 0.24.0 proposed a decision matrix for MXFP4 and FP8, a memory comparison, three pitfalls, and two
commands for MiniMax-M3. Each is restated here in our words, with what the source of vLLM says.
"""


def rules() -> str:
    """The text of docs/rules.md."""
    parts = [_RULES_HEAD]
    for family, title in _FAMILIES.items():
        members = [r for r in RULES if r.id.startswith(f"{family}-")]
        parts += [f"## {title}\n", *_table(("Rule", "When", "Verdict", "Says", "Source"), map(_rule, members))]
    return "\n".join(parts) + "\n"


def _rule(rule: Rule) -> tuple[str, ...]:
    then = hint(rule)
    says = f"{rule.says}. *Then:* {then}" if then else rule.says
    return rule.id, when(rule), verdict(rule.verdict), says, rule.source


def when(rule: Rule) -> str:
    """When a rule speaks, in words."""
    return (rule.when.__doc__ or "").strip().splitlines()[0]


def hint(rule: Rule) -> str:
    """What to do then; "" where there is nothing to do."""
    return "what would help" if rule.hint == "{hint}" else rule.hint


def verdict(given: Verdict) -> str:
    """`veto`, or `prefer × 1.1`."""
    return f"{given.level} × {given.weight:g}" if given.level in ("discourage", "prefer") else given.level


def seed() -> str:
    """The text of docs/seed.md."""
    parts = [_SEED_HEAD, "## Its matrix\n"]
    for row in SEED_ROWS:
        parts.append(
            f"### {row.situation}\n\nIt says: weights {row.quantization}, cache {row.kv_cache} ({row.reason}).\n"
        )
        if row.old == row.new:
            parts.append(_answer("vLLM 0.24.0 and 0.33.0", row.old))
        else:
            parts += [_answer("vLLM 0.24.0", row.old), _answer("vLLM 0.33.0", row.new)]
    parts.append("## Its other statements\n")
    head = ("Topic", "It says", "0.24.0", "0.33.0", "Answer", "Source")
    parts += _table(head, ((c.topic, c.says, c.old, c.new, c.answer, c.source) for c in SEED_CLAIMS))
    return "\n".join(parts) + "\n"


def _answer(version: str, answer: SeedAnswer) -> str:
    return f"- **{version}: we {answer.verdict}.** {answer.advice} {answer.why} *({answer.source})*\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body, ""]


def write(folder: Path) -> None:
    """Write both documents into a folder."""
    (folder / "rules.md").write_text(rules(), encoding="utf-8")
    (folder / "seed.md").write_text(seed(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
