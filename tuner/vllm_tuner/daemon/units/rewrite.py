"""The command that an operator wrote, with the plan's flags in the place of its own, and all others as they were.

A plan says all of the knobs that it knows: one of them that it leaves out is at its default, so the operator's value
goes. What a plan knows nothing of (names, ports, keys, parsers, adapters) stays. Clients go on asking for the name
that they know: where another checkpoint is loaded, the old name is kept as the served one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.store.exchange import TUNABLE
from vllm_advisor.vllm.command import PLAN_FLAGS


if TYPE_CHECKING:
    from collections.abc import Sequence

# What `vllm.command` writes for a plan and what a search turns beside it; and short forms (0.33.0 engine/arg_utils.py).
OURS = PLAN_FLAGS.union(TUNABLE)
_SHORT = {
    "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size", "-q": "--quantization", "-ep": "--enable-expert-parallel",
}  # fmt: skip
_FLAG = re.compile(r"--?[A-Za-z]")
_SERVED, _MODEL = "--served-model-name", "--model"


class Item(NamedTuple):
    """One flag with its values, as written; `name` in vLLM's long form, "" for words before any flag."""

    name: str
    words: tuple[str, ...]


class Parsed(NamedTuple):
    """A command in three: what starts the server, the model, and the flags."""

    start: tuple[str, ...]
    model: str
    items: tuple[Item, ...]


def parse(argv: Sequence[str]) -> Parsed:
    """Raises UsageError for what is no command of a vLLM server."""
    if "serve" in argv:
        place = list(argv).index("serve") + 1
        rest = list(argv[place:])
        model = rest.pop(0) if rest and not _FLAG.match(rest[0]) else ""
        items = _items(rest)
    else:
        place = next((i for i, word in enumerate(argv) if _FLAG.match(word) and word != "-m"), len(argv))
        items, model = _items(argv[place:]), ""
        if not any("vllm" in word for word in argv[:place]):
            raise UsageError(f"not a command of a vLLM server: {' '.join(argv[:3])}")
    named = next((item for item in items if item.name == _MODEL), None)
    model = model or (_value(named) if named else "")
    if not model:
        raise UsageError(f"the command names no model: {' '.join(argv[:4])}")
    return Parsed(tuple(argv[:place]), model, tuple(item for item in items if item is not named))


def _items(words: Sequence[str]) -> list[Item]:
    items: list[Item] = []
    for word in words:
        if _FLAG.match(word):
            items.append(Item(name_of(word), (word,)))
        elif items:
            items[-1] = items[-1]._replace(words=(*items[-1].words, word))
        else:
            items.append(Item("", (word,)))
    return items


def name_of(word: str) -> str:
    """`--max-num-seqs` of that, of `--max_num_seqs=8` and of `--no-…`; short forms in their long one."""
    bare = word.partition("=")[0]
    bare = _SHORT.get(bare, bare)
    return bare.replace("_", "-") if bare.startswith("--") else bare


def _value(item: Item) -> str:
    return item.words[1] if len(item.words) > 1 else item.words[0].partition("=")[2]


def _known(name: str) -> bool:
    return name in OURS or f"--{name.removeprefix('--no-')}" in OURS or name.replace("--", "--no-", 1) in OURS


def stripped(own: LaunchCommand, *names: str) -> LaunchCommand:
    """The command less some flags. Raises UsageError."""
    before = parse(own.argv)
    words = [word for item in before.items if item.name not in names for word in item.words]
    place = (before.model,) if before.start[-1:] == ("serve",) else (_MODEL, before.model)
    return LaunchCommand((*before.start, *place, *words), own.env)


def rewrite(own: LaunchCommand, plan: LaunchCommand) -> LaunchCommand:
    """The operator's command with the plan. Raises UsageError."""
    before, wanted = parse(own.argv), parse(plan.argv)
    given = {item.name for item in wanted.items}
    kept = [item for item in before.items if item.name not in given and not _known(item.name)]
    names = [word for item in (*kept, *wanted.items) for word in item.words]
    other = wanted.model != before.model and not any(item.name == _SERVED for item in kept)
    served = (_SERVED, before.model) if other else ()
    place = (wanted.model,) if before.start[-1:] == ("serve",) else (_MODEL, wanted.model)
    env = dict(own.env) | dict(plan.env)
    return LaunchCommand((*before.start, *place, *names, *served), tuple(sorted(env.items())))
