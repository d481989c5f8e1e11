"""What the new version does otherwise for one command: behaviour, defaults and deprecations that concern it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vllm_advisor.check.configuration import asked
from vllm_advisor.check.parse import parse
from vllm_advisor.hardware import Unknown, Vendor
from vllm_advisor.migrate.concerns import CONCERNS, DEFAULTS, TOLD, Case
from vllm_advisor.migrate.item import BEHAVIOUR, DEFAULT, DEPRECATED, DROPPED, Item
from vllm_advisor.vllm.changes_behaviour import BEHAVIOURS
from vllm_advisor.vllm.defaults import serve_defaults


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.hardware import Node
    from vllm_advisor.migrate.item import Move
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface

_PARSER = "engine/arg_utils.py"
# How to have the old behaviour in the new version: nothing for who goes back to it.
_WAY_BACK = re.compile(r" \([^()]*: as before\)")


def changes(move: Move, after: Invocation) -> Iterator[Item]:
    """Every change that concerns the command; going to an older version, the same changes the other way round."""
    old, new, node = move.old, move.new, move.node
    case = Case(asked(parse(move.before, old), old), move.model, node.gpu if node else None)
    yield from _architecture(move.model, old, new)
    if node is not None:
        yield from _batch(case, old, new, node)
    yield from _behaviours(case, old, new, told=node is not None)
    yield from _flags(case, old, new)
    yield from _variables(case, old, new)
    yield from _deprecated(after, new)


def _architecture(model: ModelSpec | None, old: Surface, new: Surface) -> Iterator[Item]:
    """A model that the new version does not have; where neither has it, the old one does not run it either."""
    if model is None or model.architecture in new.architectures or model.architecture not in old.architectures:
        return
    last = new.removed_architectures.get(model.architecture)
    text = f"vLLM {new.version} has no {model.architecture}" + (f": {last} was the last" if last else "")
    yield Item(DROPPED, model.name, "served", "not served", f"{text}; --model-impl transformers may run it",
               "model_executor/models/registry.py", carried=False)  # fmt: skip


def _batch(case: Case, old: Surface, new: Surface, node: Node) -> Iterator[Item]:
    """Tokens and sequences of a step, where the command does not say them."""
    mode = case.asked.value("--performance-mode")
    world = case.asked.tp * case.asked.pp
    was, now = (serve_defaults(s, node, world_size=world, performance_mode=mode) for s in (old, new))
    for name, flag in (("max_num_batched_tokens", "--max-num-batched-tokens"), ("max_num_seqs", "--max-num-seqs")):
        first, second = getattr(was, name), getattr(now, name)
        if first != second and not case.gives(flag):
            text = f"on {node.gpu.name}; {flag} {first} is as before"
            yield Item(DEFAULT, flag, str(first), str(second), text, f"{_PARSER} get_batch_defaults")


def _behaviours(case: Case, old: Surface, new: Surface, *, told: bool) -> Iterator[Item]:
    up = old.release <= new.release
    low, high = sorted((old.release, new.release))
    for row in BEHAVIOURS:
        if not low < row.release <= high or not CONCERNS[row.id](case) or (told and row.id in ("batch-160", "gb10")):
            continue
        before, after = (row.before, row.after) if up else (_WAY_BACK.sub("", row.after), row.before)
        yield Item(BEHAVIOUR, row.concerns, before, after, f"{'since' if up else 'before'} {row.since}", row.source)


def _flags(case: Case, old: Surface, new: Surface) -> Iterator[Item]:
    """Defaults of flags that the command leaves alone."""
    for name, flag in old.flags.items():
        other = new.flags.get(name)
        if other is None or name in TOLD or case.gives(name) or flag.default == other.default:
            continue
        concerns = DEFAULTS.get(name)
        if not isinstance(other.default, Unknown) and (concerns is None or concerns(case)):
            yield Item(DEFAULT, name, _text(flag.default), _text(other.default), "the default changed", _PARSER)


def _variables(case: Case, old: Surface, new: Surface) -> Iterator[Item]:
    """Defaults of variables that the command leaves alone; those of another vendor's devices do not concern it."""
    for name, variable in old.env.items():
        other = new.env.get(name)
        if other is None or name in TOLD or case.gives(name) or variable.default == other.default:
            continue
        concerns = DEFAULTS.get(name)
        if concerns(case) if concerns else _is_for(name, case):
            yield Item(DEFAULT, name, _text(variable.default), _text(other.default), "the default changed", "envs.py")


def _is_for(name: str, case: Case) -> bool:
    """By the variable's name: VLLM_ROCM_… is AMD's, VLLM_CPU_… a CPU's; others are for all."""
    owners = {"VLLM_ROCM_": Vendor.AMD, "VLLM_CPU_": Vendor.CPU}
    owner = next((vendor for prefix, vendor in owners.items() if name.startswith(prefix)), None)
    strangers = name.startswith(("VLLM_XPU_", "VLLM_TPU_"))
    return not strangers and (owner is None or case.on(owner))


def _text(value: object) -> str:
    if isinstance(value, Unknown):
        return f"({value.why})"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _deprecated(after: Invocation, new: Surface) -> Iterator[Item]:
    """Options of the new command that the new version announces to drop."""
    names = dict.fromkeys(s.flag.name for s in parse(after, new).settings if s.flag)
    for name in names:
        if name in new.deprecated_flags:
            until = new.deprecated_flags[name]
            text = f"{new.version} announces its end" + (f" for {until}" if until else "")
            yield Item(DEPRECATED, name, name, name, text, _PARSER)
