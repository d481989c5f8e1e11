"""What a failed start teaches: which other points must fail the same way, so that nobody waits for them to.

A row says for one diagnosis (`advisor doctor`'s number) what makes it no better: what must be equal, what may only be
more, what only less. It is conservative: a row prunes only what asks for at least as much of the very thing that was
missing, and a failure that time or another process could mend (a busy device, a dead link) teaches nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_tuner.spaces import label


if TYPE_CHECKING:
    from vllm_tuner.trial import Candidate

_GRAPHS, _SPECULATIVE = "--max-cudagraph-capture-size", "--speculative-config"
# The ceiling of captured sizes without a flag: config/vllm.py _set_cudagraph_sizes, min(2 × max_num_seqs, 512).
_LARGEST_GRAPH = 512
# KV dtypes by bytes. `auto` is the checkpoint's own wish: never below fp8, never above 16 bits.
_KV_ORDER = {"nvfp4": 0, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "auto": 2, "bfloat16": 3, "float16": 3, "half": 3}
# Flags that no tensor on the device depends on: the scheduler's own (v1/core/sched).
_HOST_ONLY = frozenset(("--async-scheduling", "--no-async-scheduling"))

_WEIGHTS = ("checkpoint", "quantization", "split", "env", "other flags")
_SAME = (*_WEIGHTS, "kernels", "block size", "mode")
_STEP = ("tokens", "seqs", "draft")


class Rule(NamedTuple):
    """One diagnosis: the traits that are `same`, those that are `more` (or equal), those that are `less` (or equal)."""

    id: str
    same: tuple[str, ...]
    more: tuple[str, ...]
    less: tuple[str, ...]
    why: str


RULES = (
    #    id        same                                  more                                       less       why
    Rule("DOC-01", (*_SAME, "pinned"), (*_STEP, "length", "kv bits", "graphs"), ("room",),
         "a longer context, a larger step or less memory leaves the cache no larger"),
    Rule("DOC-02", (*_SAME, "pinned"), (*_STEP, "length", "kv bits", "graphs"), ("room",),
         "a larger step or less memory leaves nothing for the cache either"),
    # Without a frame a log's stage is a guess: so the step must be as large as well.
    Rule("DOC-04", ("checkpoint", "quantization", "env", "other flags", "rest of split"), _STEP, ("tp", "pp"),
         "as many weights a device do not fit, however they are served"),
    Rule("DOC-05", (*_SAME, "eager"), (*_STEP, "length"), (),
         "a step of as many tokens needs as much beside the weights; the profile run comes before the cache"),
    Rule("DOC-06", (*_SAME, "eager", "tokens", "pinned"), ("seqs", "draft", "graphs", "room"), (),
         "as many graphs do not fit beside a cache that leaves no more"),
    Rule("DOC-07", (*_SAME, "eager", "tokens", "pinned", "graphs"), ("seqs", "draft", "room"), (),
         "the logits of as many sequences do not fit beside a cache that leaves no more"),
    Rule("DOC-08", (*_SAME, "eager"), ("tokens", "draft"), (), "the encoder's largest item stays as large"),
    Rule("DOC-09", (*_SAME, "eager", "tokens", "pinned", "graphs"), ("seqs", "draft", "room"), (),
         "a cache sized by as large a share does not fit beside the same"),
    Rule("DOC-11", (*_SAME, "pinned", "kv bits"), _STEP, ("room",), "no more blocks for as many sequences"),
    Rule("DOC-13", ("checkpoint", "quantization"), (), (), "the device stays as old"),
    Rule("DOC-14", ("quantization",), (), (), "the version does not learn it"),
    Rule("DOC-15", ("checkpoint", "quantization", "other flags"), (), (), "the same dtype and quantization"),
    Rule("DOC-16", ("checkpoint", "other flags"), (), (), "the device stays as old"),
    Rule("DOC-17", ("checkpoint", "kv dtype", "kernels"), (), (), "the same sinks and KV dtype"),
    Rule("DOC-18", ("checkpoint", "kv dtype", "kernels"), (), (), "the same KV dtype and device"),
    Rule("DOC-19", ("checkpoint", "kv dtype", "kernels", "block size"), (), (), "the same demands on a backend"),
    Rule("DOC-20", ("checkpoint", "kv dtype"), (), (), "the same checkpoint and KV dtype"),
    Rule("DOC-34", (), ("world",), (), "the machine gets no more devices"),
    Rule("DOC-35", ("checkpoint", "tp"), (), (), "the same heads and ranks"),
    Rule("DOC-36", ("checkpoint", "quantization", "split"), (), (), "the same blocks and ranks"),
    Rule("DOC-37", ("checkpoint", "draft"), ("pp",), (), "a model that is not cut once is not cut more often"),
    Rule("DOC-38", ("checkpoint", "split"), (), (), "the same heads and ranks"),
    Rule("DOC-58", ("checkpoint",), (), (), "the version does not learn the architecture"),
    Rule("DOC-63", ("checkpoint", "env", "other flags"), ("length",), (), "the model's own length stays"),
    Rule("DOC-64", ("checkpoint", "other flags"), (), ("tokens",), "the item is larger than a smaller step too"),
    Rule("DOC-66", ("checkpoint", "speculation"), (), (), "the same draft"),
    Rule("DOC-71", ("length", "other flags"), ("seqs",), ("tokens",), "the step is no larger and the limit no smaller"),
    Rule("DOC-72", ("checkpoint", "quantization", "kernels"), (), (), "the same weights and kernels"),
)  # fmt: skip
_BY_ID = {rule.id: rule for rule in RULES}


class Lesson(NamedTuple):
    """One failure, as far as it says something of others. `flag` is what vLLM's parser refused, "" for a rule."""

    rule: Rule
    traits: dict[str, Any]
    name: str
    flag: str = ""


class Lessons:
    """What was learnt so far, in the order of the failures."""

    def __init__(self) -> None:
        self._learnt: list[Lesson] = []

    @property
    def number(self) -> int:
        """How many failures taught something; a __len__ would make a search without failures one without lessons."""
        return len(self._learnt)

    def learn(self, candidate: Candidate, diagnosis: str) -> None:
        """A start that failed with `ID: cause`; what teaches nothing of others is passed over."""
        number, _, cause = diagnosis.partition(":")
        if number in _REFUSED:
            self._learnt += _refused(candidate, number, cause)
        elif number in _BY_ID:
            self._learnt.append(Lesson(_BY_ID[number], traits(candidate), label(candidate)))

    def objection(self, candidate: Candidate) -> str:
        """Why it must fail as another did; "" where nothing says so."""
        mine = traits(candidate)
        for lesson in self._learnt:
            if lesson.flag in dict(candidate.flags) if lesson.flag else _no_better(lesson, mine):
                return f"{lesson.rule.id} again, as with {lesson.name}: {lesson.rule.why}"
        return ""


_REFUSED = {"DOC-67": "the version does not take the flag", "DOC-68": "the version does not take the flag's value"}


def _refused(candidate: Candidate, number: str, cause: str) -> list[Lesson]:
    """A flag that the parser refused, where it is one of the candidate's own."""
    named = set(re.findall(r"--[a-z][a-z-]+", cause))
    rule = Rule(number, (), (), (), _REFUSED[number])
    return [Lesson(rule, {}, label(candidate), flag) for flag, _ in candidate.flags if flag in named]


def _no_better(lesson: Lesson, mine: dict[str, Any]) -> bool:
    rule, theirs = lesson.rule, lesson.traits
    return (
        all(mine[name] == theirs[name] for name in rule.same)
        and all(_at_least(mine[name], theirs[name]) for name in rule.more)
        and all(_at_least(theirs[name], mine[name]) for name in rule.less)
    )


def _at_least(one: float | None, other: float | None) -> bool:
    """Whether one is known to be no less; what has no order is not."""
    return one is not None and other is not None and one >= other


def traits(candidate: Candidate) -> dict[str, Any]:
    """Everything that a rule compares. `room`: memory that vLLM may use, as bytes of cache where those are `pinned`."""
    plan, flags = candidate.plan, dict(candidate.flags)
    known = {_GRAPHS, _SPECULATIVE, *_HOST_ONLY}
    rest = (plan.data_parallel_size, plan.decode_context_parallel_size, plan.enable_expert_parallel, plan.enable_eplb)
    pinned = plan.kv_cache_memory_bytes
    return {
        "checkpoint": plan.checkpoint,
        "quantization": plan.quantization,
        "split": (plan.tensor_parallel_size, plan.pipeline_parallel_size, *rest, plan.num_nodes),
        "rest of split": (*rest, plan.num_nodes),
        "tp": plan.tensor_parallel_size,
        "pp": plan.pipeline_parallel_size,
        "world": plan.world_size,
        "env": plan.env,
        "other flags": tuple((name, value) for name, value in candidate.flags if name not in known),
        "kernels": (plan.attention_backend, plan.moe_backend),
        "block size": plan.block_size,
        "mode": plan.performance_mode,
        "eager": plan.enforce_eager,
        "tokens": plan.max_num_batched_tokens,
        "seqs": plan.max_num_seqs,
        "length": plan.max_model_len,
        "kv dtype": plan.kv_cache_dtype,
        "kv bits": _KV_ORDER.get(plan.kv_cache_dtype),
        "graphs": 0 if plan.enforce_eager else flags.get(_GRAPHS) or min(2 * plan.max_num_seqs, _LARGEST_GRAPH),
        "speculation": flags.get(_SPECULATIVE),
        "draft": int(_SPECULATIVE in flags),
        "pinned": pinned is not None,
        "room": plan.gpu_memory_utilization if pinned is None else pinned,
    }
