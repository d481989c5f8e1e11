"""Settings of one command against each other: what vLLM refuses, and what silently gives way.

Only what the words of the command tell, or the words and the model; no device is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.configuration import SPECULATIVE_OPTIONS
from vllm_advisor.check.finding import ERROR
from vllm_advisor.check.loaded import draft
from vllm_advisor.check.values import mapping
from vllm_advisor.units import count


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.configuration import Asked, Judged
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.model import ModelSpec

_EAGER, _COMPILATION = "--enforce-eager", "--compilation-config"
_GRAPHS = ("--cudagraph-capture-sizes", "--max-cudagraph-capture-size")


def findings(given: Asked) -> tuple[Finding, ...]:
    """What the words alone tell."""
    return (
        *_eager(given),
        *_cache(given),
        *_twice(given),
        *_needed(given),
        *_adapters(given),
        *_scheduling(given),
    )


def _eager(given: Asked) -> Iterator[Finding]:
    """Eager mode overrides all that is said of graphs."""
    if not given.on(_EAGER):
        return
    named = [name for name in _GRAPHS if given.last(name)]
    keys = mapping(given.reading, _COMPILATION)
    named += [f"{_COMPILATION} {key}" for key in ("cudagraph_mode", "cudagraph_capture_sizes", "mode") if key in keys]
    if named and str(keys.get("cudagraph_mode", "")).upper() != "NONE":
        text = f"{_EAGER} captures no graphs and compiles nothing: {', '.join(named)} changes nothing"
        change = mend.drop(given, *_GRAPHS) if not keys else None
        yield mend.said(
            "CFL-01",
            text,
            given,
            *_GRAPHS,
            _COMPILATION,
            hint=f"leave out one of them: {_EAGER}, or the rest",
            change=change,
        )


def _cache(given: Asked) -> Iterator[Finding]:
    """The size in bytes wins; the share is still asked of the device before anything is loaded."""
    share, size = "--gpu-memory-utilization", "--kv-cache-memory-bytes"
    if given.last(share) and given.last(size):
        text = f"{size} sizes the KV cache; {share} no longer does, and only says how much must be free at the start"
        yield mend.said("CFL-02", text, given, share, hint="leave one of them out")


def _twice(given: Asked) -> Iterator[Finding]:
    """An option and the JSON key that says the same (engine/arg_utils.py raises)."""
    pairs = [
        ("--attention-backend", "--attention-config", "backend"),
        *((name, _COMPILATION, name[2:].replace("-", "_")) for name in _GRAPHS),
        *((name, "--speculative-config", key) for name, key in SPECULATIVE_OPTIONS),
    ]
    for option, whole, key in pairs:
        if given.last(option) and mapping(given.reading, whole).get(key) is not None:
            text = f"{option} and {whole} {key} say the same, and vLLM refuses both together"
            same = str(mapping(given.reading, whole)[key]).lower() == str(given.value(option)).lower()
            change = mend.drop(given, option) if same else None
            yield mend.said("CFL-12", text, given, option, hint="leave one of them out", change=change)


# Option, what it needs, and whether that one is a switch.
_NEEDS = (
    ("--enable-auto-tool-choice", "--tool-call-parser"),
    ("--enable-log-outputs", "--enable-log-requests"),
)


def _needed(given: Asked) -> Iterator[Finding]:
    for option, other in _NEEDS:
        switch = other.startswith("--enable")
        has = given.on(other) if switch else bool(given.reading.value(other))
        if given.on(option) and not has:
            change = mend.add(given, other) if switch else None
            yield mend.said("CFL-16", f"{option} needs {other}", given, option, hint=f"add {other}", change=change)


def _adapters(given: Asked) -> Iterator[Finding]:
    if given.last("--lora-modules") and not given.on("--enable-lora"):
        text = "--lora-modules names adapters: without --enable-lora loading them fails, and the start with it"
        yield mend.said(
            "CFL-18", text, given, "--lora-modules", hint="add --enable-lora", change=mend.add(given, "--enable-lora")
        )
    most, device = _whole(given, "--max-cpu-loras"), _whole(given, "--max-loras") or 1
    if given.on("--enable-lora") and most is not None and most < device:
        text = f"--max-cpu-loras {most} is below --max-loras {device}"
        change = mend.put(given, "--max-cpu-loras", str(device))
        yield mend.said("CFL-17", text, given, "--max-cpu-loras", hint=f"at least {device}", change=change)


def _whole(given: Asked, name: str) -> int | None:
    text = given.value(name) or ""
    return int(text) if text.isdecimal() else None


# Speculation that asynchronous scheduling allows (config/vllm.py:1655-1663; 0.24.0 :945-951).
_ASYNC_DRAFTS = ("eagle", "eagle3", "mtp", "ngram_gpu", "draft_model", "extract_hidden_states", "dflash", "dspark", "")


def _scheduling(given: Asked) -> Iterator[Finding]:
    """--async-scheduling asked for, with what makes vLLM raise. Since 0.33 the newer runner takes more than the old."""
    if not given.on("--async-scheduling"):
        return
    method = draft(given)
    old_runner = not given.surface.at_least(0, 33) or given.variable("VLLM_USE_V2_MODEL_RUNNER") == "0"
    if method not in _ASYNC_DRAFTS and old_runner:
        text = f"--async-scheduling with {method} speculation is refused"
        change = mend.drop(given, "--async-scheduling")
        yield mend.said("CFL-19", text, given, "--async-scheduling", hint="leave it out: vLLM decides", change=change)


def of_model(given: Asked, model: ModelSpec) -> tuple[Finding, ...]:
    """What the words and the model tell."""
    return tuple(_whole_windows(given, model))


def _whole_windows(given: Asked, model: ModelSpec) -> Iterator[Finding]:
    switch = "--disable-hybrid-kv-cache-manager"
    windowed = sum(len(c.layers) for c in model.caches if c.kind in ("sliding", "chunked"))
    if not given.on(switch):
        return
    change = mend.drop(given, switch)
    if model.is_hybrid:
        text = f"{switch}: attention and fixed states of {model.name} cannot share one kind of cache, and vLLM stops"
        yield mend.said("CFL-20", text, given, switch, hint="leave it out", change=change, level=ERROR)
    elif windowed:
        text = f"{switch} keeps whole sequences for {windowed} layers that look at a window: fewer requests fit"
        yield mend.said("CFL-20", text, given, switch, hint="leave it out", change=change)


def of_plan(found: Judged) -> tuple[Finding, ...]:
    """Batches and lengths, with the version's defaults where nothing is given."""
    return (*_one_step(found), *_large_batch(found), *_threshold(found))


def _one_step(found: Judged) -> Iterator[Finding]:
    given, plan = found.asked, found.case.plan
    if given.off("--enable-chunked-prefill") and plan.max_num_batched_tokens < plan.max_model_len:
        text = (
            f"without chunked prefill a prompt must fit one step: max_num_batched_tokens "
            f"{count(plan.max_num_batched_tokens)} is below max_model_len {count(plan.max_model_len)}"
        )
        hint = "leave --no-enable-chunked-prefill out, or raise --max-num-batched-tokens"
        change = mend.drop(given, "--enable-chunked-prefill")
        yield mend.said("CFL-13", text, given, "--enable-chunked-prefill", hint=hint, change=change)


def _large_batch(found: Judged) -> Iterator[Finding]:
    given, plan = found.asked, found.case.plan
    most = plan.max_num_seqs * plan.max_model_len
    if given.max_num_batched_tokens and plan.max_num_batched_tokens > most:
        tokens = count(plan.max_num_batched_tokens)
        text = f"--max-num-batched-tokens {tokens} is more than all sequences hold ({count(most)})"
        change = mend.put(given, "--max-num-batched-tokens", str(most))
        yield mend.said("CFL-14", text, given, "--max-num-batched-tokens", hint=f"at most {most}", change=change)


def _threshold(found: Judged) -> Iterator[Finding]:
    given, name = found.asked, "--long-prefill-token-threshold"
    asked, most = _whole(given, name), found.case.plan.max_model_len
    checked = given.surface.at_least(0, 33) or (_whole(given, "--max-num-partial-prefills") or 1) > 1
    if asked is not None and asked > most and checked:
        text = f"{name} {count(asked)} is above max_model_len {count(most)}"
        yield mend.said("CFL-15", text, given, name, hint=f"at most {most}", change=mend.put(given, name, str(most)))
