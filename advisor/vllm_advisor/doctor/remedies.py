"""The smallest change that answers a failure, as flags: from the log's own figures, or computed by the memory model.

Where the log says how much is missing, that figure decides; where the model, the machine and the version are known, the
memory model tries changes and keeps those that fit. A figure that neither gives is a rule of thumb, and called so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.doctor.command import arguments
from vllm_advisor.doctor.comparison import configuration
from vllm_advisor.doctor.failure import Change
from vllm_advisor.units import GIB, count
from vllm_advisor.vllm import history


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_advisor.doctor.failure import Diagnosis
    from vllm_advisor.estimate import Estimated
    from vllm_advisor.facts import Remedy
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.logs_facts import Facts

LOG, MODEL, RULE = "the log's own figures", "computed by the memory model", "a rule of thumb"
_STEP = 1024


class Fix(NamedTuple):
    """One way out: in words, as a change of the command, and what it rests on."""

    words: str
    change: Change
    basis: str


def fixes(found: Diagnosis, facts: Facts, estimated: Estimated | None) -> tuple[Fix, ...]:
    """Ways out of a failure, the smallest first; the row's own change where there is no better."""
    read = _RULES.get(found.failure.id)
    own = tuple(read(found, facts)) if read else ()
    computed = tuple(_computed(found, facts, estimated)) if found.failure.id in _OF_MEMORY and estimated else ()
    if not own and not computed and found.change:
        own = (Fix(found.fix, found.change, LOG if found.read else RULE),)
    certain = [fix for fix in own if fix.basis == LOG]
    seen: dict[Change, Fix] = {}
    for fix in (*certain, *computed, *own):
        seen.setdefault(fix.change, fix)
    return tuple(seen.values())[:4]


_OF_MEMORY = ("DOC-01", "DOC-02", "DOC-04", "DOC-05", "DOC-06", "DOC-11")


def _computed(found: Diagnosis, facts: Facts, estimated: Estimated) -> Iterator[Fix]:
    """What the memory model finds, with the KV cache as printed where the log prints it."""
    from vllm_advisor.errors import AdvisorError  # noqa: PLC0415
    from vllm_advisor.estimate import estimate  # noqa: PLC0415
    from vllm_advisor.estimate import fixes as remedies  # noqa: PLC0415

    answer = estimated
    available = _number(found.value("available"))
    if available is not None and available > 0:
        given = configuration(facts, int(available * GIB))
        try:
            answer = estimate(estimated.model, estimated.node, estimated.surface, given)
        except AdvisorError:
            return
    for remedy in remedies(answer):
        change = _difference(answer.plan, remedy)
        if change and (answer is estimated or all(flag in _BESIDE_A_GIVEN_CACHE for flag, _ in change.flags)):
            yield Fix(remedy.change, change, MODEL)


# With the cache as printed, only what changes its use tells: the model then does not know what other changes free.
_BESIDE_A_GIVEN_CACHE = ("--max-model-len", "--kv-cache-dtype", "--tensor-parallel-size", "--pipeline-parallel-size")


_FLAGS = (
    ("max_model_len", "--max-model-len"),
    ("kv_cache_dtype", "--kv-cache-dtype"),
    ("quantization", "--quantization"),
    ("tensor_parallel_size", "--tensor-parallel-size"),
    ("pipeline_parallel_size", "--pipeline-parallel-size"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
    ("max_num_seqs", "--max-num-seqs"),
    ("max_num_batched_tokens", "--max-num-batched-tokens"),
    ("enforce_eager", "--enforce-eager"),
)


def _difference(before: Plan, remedy: Remedy) -> Change:
    flags = []
    for field, flag in _FLAGS:
        value = getattr(remedy.plan, field)
        if value != getattr(before, field):
            flags.append((flag, "" if value is True else str(value)))
    return Change(tuple(flags))


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _setting(facts: Facts, name: str, otherwise: float) -> float:
    value = arguments(facts).get(name, facts.config.get(name))
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _utilization(facts: Facts) -> float:
    """The share that ran: as asked, else the default of that version (of the newest, where the log names none)."""
    release = history.parse(facts.version or "") or _NEWEST
    return _setting(facts, "gpu_memory_utilization", history.era(release).gpu_memory_utilization)


_NEWEST = (0, 33, 0)


def _one(flag: str, value: str | None, words: str, basis: str) -> Fix:
    return Fix(words, Change(((flag, value),)), basis)


def _less_share(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001 - all rules are called alike
    share = round(_utilization(facts) - 0.05, 2)
    if share > 0.05:
        yield _one(
            "--gpu-memory-utilization", f"{share:g}", "leave 5 % more of the device outside of vLLM's share", RULE
        )


def _graphs(found: Diagnosis, facts: Facts) -> Iterator[Fix]:
    yield from _less_share(found, facts)
    yield _one("--enforce-eager", "", "capture no graphs (slower decode)", RULE)


def _kv_too_small(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    most, length = _number(found.value("most")), _number(found.value("length"))
    if most and most >= 1:
        fits = int(most) // _STEP * _STEP or int(most)
        yield _one("--max-model-len", str(fits), f"at most {count(fits)} tokens a request", LOG)
        return
    needed, available = _number(found.value("needed")), _number(found.value("available"))
    if needed and available and length and 0 < available < needed:
        fits = int(length * available / needed * 0.9) // _STEP * _STEP
        if fits >= _STEP:
            yield _one("--max-model-len", str(fits), f"about {count(fits)} tokens a request", RULE)


def _share_of_free(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    free, total = _number(found.value("free")), _number(found.value("total"))
    if free and total:
        share = math.floor(free / total * 100 - 1) / 100
        if share >= 0.05:
            yield _one(
                "--gpu-memory-utilization", f"{share:g}", f"take only what is free: {share:.0%} of the device", LOG
            )


def _more_devices(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    tp = int(_setting(facts, "tensor_parallel_size", 1))
    yield _one("--tensor-parallel-size", str(tp * 2), f"spread the weights over {tp * 2} devices", RULE)
    if facts.config.get("quantization") is None and not arguments(facts).get("quantization"):
        yield _one("--quantization", "fp8", "load the weights in 8 bits (where the device has FP8)", RULE)


def _no_blocks(found: Diagnosis, facts: Facts) -> Iterator[Fix]:
    share = _utilization(facts)
    if share <= 0.85:
        yield _one("--gpu-memory-utilization", "0.92", "let vLLM use more of the device", RULE)
    yield from _more_devices(found, facts)


def _smaller_step(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    now = int(_setting(facts, "max_num_batched_tokens", facts.max_num_batched_tokens or 4096))
    if now >= 1024:
        step = now // 2
        yield _one("--max-num-batched-tokens", str(step), f"let a step take {count(step)} tokens", RULE)


def _fewer_sequences(found: Diagnosis, facts: Facts) -> Iterator[Fix]:
    requests = _number(found.value("requests")) or _setting(facts, "max_num_seqs", 256)
    half = max(1, int(requests) // 2)
    yield _one("--max-num-seqs", str(half), f"serve at most {half} sequences at once", RULE)
    yield from _less_share(found, facts)


def _dividing(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    heads, tp = _number(found.value("heads")), _number(found.value("tp"))
    if heads and tp:
        fits = next(n for n in range(int(tp), 0, -1) if heads % n == 0)
        yield _one("--tensor-parallel-size", str(fits), f"the largest size that divides {int(heads)} heads", LOG)


def _half_tp(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    tp = int(_setting(facts, "tensor_parallel_size", 1))
    if tp > 1:
        yield _one("--tensor-parallel-size", str(tp // 2), "cut the weights into larger shards", RULE)
    if any(part.startswith("MoE") for part, _ in facts.backends):
        yield _one("--enable-expert-parallel", "", "do not cut experts at all", RULE)


def _as_many_as_there_are(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    devices = _number(found.value("devices"))
    if devices and devices >= 1:
        yield _one("--tensor-parallel-size", str(int(devices)), f"use the {int(devices)} devices that there are", LOG)


def _next_port(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    port = int(_setting(facts, "port", 8000))
    yield _one("--port", str(port + 1), "listen on another port", RULE)


def _without(found: Diagnosis, facts: Facts) -> Iterator[Fix]:  # noqa: ARG001
    words = (found.value("flags") or "").split()
    flags = tuple((word.partition("=")[0], None) for word in words if word.startswith("-"))
    if flags:
        yield Fix("take away what this version does not have", Change(flags), LOG)


_RULES: dict[str, Callable[[Diagnosis, Facts], Iterator[Fix]]] = {
    "DOC-01": _kv_too_small,
    "DOC-02": _no_blocks,
    "DOC-03": _share_of_free,
    "DOC-04": _more_devices,
    "DOC-05": _smaller_step,
    "DOC-06": _graphs,
    "DOC-07": _fewer_sequences,
    "DOC-09": _less_share,
    "DOC-10": _less_share,
    "DOC-34": _as_many_as_there_are,
    "DOC-35": _dividing,
    "DOC-36": _half_tp,
    "DOC-41": _next_port,
    "DOC-67": _without,
    "DOC-75": _less_share,
}
