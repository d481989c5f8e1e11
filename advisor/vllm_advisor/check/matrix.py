"""Which rules of the decision matrix the owner of a command hears, at which level, and about which option.

The matrix ranks plans that we propose; here it judges one that somebody has. A veto is an error: vLLM refuses it. What
the matrix discourages is a warning where it costs correctness or much speed, else a note. Rules that are about a load,
a search, or that another part of `check` says better (`ELSEWHERE`) are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.finding import WARNING, Change, Finding
from vllm_advisor.check.loaded import redundant_experts
from vllm_advisor.check.shown import AITER, BLOCK, EP, EPLB, KV, LENGTH, QUANT, SEQS, SHOWN, TOKENS
from vllm_advisor.check.values import mapping
from vllm_advisor.hardware import Vendor
from vllm_advisor.rules.engine import judge
from vllm_advisor.vllm import plugin


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.configuration import Judged
    from vllm_advisor.facts import Finding as Said

# Said by `fit`, `scales`, `quantization`, or by the checks of options and variables; or about a load or a search.
ELSEWHERE = frozenset((
    "MEM-01", "MEM-02", "MEM-03", "MEM-04", "MEM-05", "MEM-06", "MEM-07", "MEM-08", "KV-02", "KV-05", "KV-10", "KV-11",
    "KV-14", "KV-15", "KV-19", "KV-20", "QNT-03", "QNT-08", "QNT-15", "QNT-19", "QNT-21", "QNT-22", "QNT-30", "ENV-03",
    "VER-01", "VER-02", "VER-03", "VER-04", "VER-05", "PAR-25", "PAR-26", "ACC-01", "ACC-03", "ACC-04", "ACC-05",
    "ACC-08", "ACC-09", "ACC-10", "ACC-11", "ACC-12", "BAT-03", "BAT-04", "BAT-05", "LNG-02", "LNG-03", "HW-01",
    "HW-04", "HW-05", "PRV-02",
))  # fmt: skip
# Rules about devices that are not there when the command needs more than the node has.
_TOPOLOGY = frozenset(("PAR-18", "PAR-19", "PAR-20", "PAR-21", "PAR-22", "PAR-27"))
# A rule that explains another one: with the first said, the second adds nothing.
_EXPLAINS = (
    ("KV-09", "KV-01"), ("KV-09", "KV-16"), ("KV-01", "KV-16"), ("KV-08", "KV-01"), ("KV-08", "KV-18"),
    ("KV-01", "KV-18"), ("KV-18", "KV-07"), ("KV-04", "KV-03"), ("QNT-01", "KV-01"), ("QNT-06", "QNT-09"),
    ("QNT-09", "QNT-11"), ("QNT-09", "QNT-12"), ("QNT-09", "QNT-24"),
    ("QNT-07", "QNT-11"), ("QNT-07", "QNT-12"), ("QNT-12", "QNT-16"),
    ("QNT-16", "ENV-01"), ("PAR-01", "PAR-02"), ("PAR-09", "PAR-14"), ("PAR-11", "PAR-10"), ("PAR-11", "PAR-14"),
    ("PAR-12", "PAR-13"), ("PAR-15", "PAR-16"), ("PAR-20", "PAR-03"),
)  # fmt: skip


def findings(found: Judged, known: tuple[str, ...]) -> tuple[Finding, ...]:
    """What the matrix says of the plan. `known`: "model", "node" or both; the rest of the case is a stand-in."""
    said = {f.rule: f for f in judge(found.case) if _is_shown(f.rule, found, known)}
    for first, second in _EXPLAINS:
        if first in said and second in said:
            del said[second]
    return tuple(_finding(rule, found) for rule in said.values())


def _is_shown(rule: str, found: Judged, known: tuple[str, ...]) -> bool:
    shown = SHOWN.get(rule)
    if shown is None or (found.stretched and rule in _TOPOLOGY):
        return False
    if rule == "QNT-29" and not _is_for_the_plugin(found):
        return False
    if rule == "PAR-10" and redundant_experts(found.asked):
        return False  # `ranks` counts them
    if rule == "KV-07" and found.case.plan.attention_backend:
        return False  # it does not move: KV-18 says whether the named one takes the cache
    if (rule == "QNT-18" and found.asked.value("--dtype")) or (rule == "HW-02" and not _has_gpu(found)):
        return False
    return shown.needs == "any" or shown.needs in known or len(known) == 2


def _is_for_the_plugin(found: Judged) -> bool:
    """Another release and another format are said for any device: by `plugin`, and as QNT-25."""
    model = found.case.facts.model
    return plugin.has_release(found.asked.surface) and (plugin.takes(model) or model.quantization.method == plugin.NAME)


def _has_gpu(found: Judged) -> bool:
    return found.case.facts.node.gpu.vendor is not Vendor.CPU


def _finding(rule: Said, found: Judged) -> Finding:
    if rule.rule == "LNG-01":
        return _longer(rule, found)
    change = next(iter(_mended(rule, found)), None)
    about = SHOWN[rule.rule].about
    hint = rule.hint or (_in_words(change, about) if change else "")
    return mend.said(rule.rule, rule.message, found.asked, *about, hint=hint, change=change, source=rule.source)


def _in_words(change: Change, about: tuple[str, ...]) -> str:
    return " ".join(change.words) or f"leave {about[0]} out"


_ALLOWED = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def _longer(rule: Said, found: Judged) -> Finding:
    """An error, unless the owner took it on: by the variable (nan beyond the trained length), or by other rotations."""
    given, most = found.asked, found.case.facts.model.max_position
    if given.set(_ALLOWED) or given.last("--hf-overrides") or mapping(given.reading, "--hf-overrides"):
        how = f"{_ALLOWED} lets it pass" if given.set(_ALLOWED) else "unless --hf-overrides stretches them"
        text = f"{rule.message}, {how}: what the model was not trained for may come out as nonsense"
        return mend.said(rule.rule, text, given, LENGTH, level=WARNING, source=rule.source)
    hint = f"{LENGTH} {most}; some models stretch by rope scaling in --hf-overrides, see their card"
    change = mend.put(given, LENGTH, str(most))
    return mend.said(rule.rule, rule.message, given, LENGTH, hint=hint, change=change, source=rule.source)


def _mended(rule: Said, found: Judged) -> Iterator[Change | None]:
    """The change that needs no decision of the owner."""
    given, plan = found.asked, found.case.plan
    if rule.rule in _LEFT_OUT:
        yield mend.drop(given, *_LEFT_OUT[rule.rule])
    elif rule.rule in _VALUES:
        yield mend.put(given, *_VALUES[rule.rule])
    elif rule.rule == "PAR-12":
        yield mend.add(given, EP) if found.case.facts.model.moe else mend.drop(given, EPLB)
    elif rule.rule == "BAT-01":
        yield mend.put(given, SEQS, str(found.case.budget.num_blocks))
    elif rule.rule == "BAT-02":
        yield mend.put(given, TOKENS, str(plan.max_num_seqs))
    elif rule.rule in ("ENV-01", "ENV-02", "QNT-16", "QNT-12"):
        yield _aiter(rule, found)


_LEFT_OUT = {
    "PAR-10": (EPLB,),
    "PAR-11": (EP,),
    "PAR-13": (EPLB,),
    "KV-08": (KV,),
    "KV-09": (KV,),
    "KV-12": (KV,),
}
_VALUES = {
    "KV-03": (KV, "fp8"),
    "KV-04": (KV, "fp8"),
    "KV-17": (BLOCK, "128"),
    "QNT-10": (QUANT, "fp8_per_tensor"),
}


def _aiter(rule: Said, found: Judged) -> Change | None:
    """The variables that this plan needs on this device, or the one that is in the way."""
    from vllm_advisor.vllm.environment import environment  # noqa: PLC0415  AMD only

    if rule.rule == "ENV-02":
        return mend.variable(AITER, None)
    if rule.rule == "QNT-12" and not rule.hint.startswith(AITER):
        return None
    facts = found.case.facts
    needed = environment(found.case.plan, facts.model, facts.node, facts.vllm)
    return Change(env=tuple((s.name, s.value) for s in needed)) if needed else None
