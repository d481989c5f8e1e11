"""Settings that make the same server slower, each with its mechanism; no percentage is ever claimed.

What the decision matrix says of speed (AITER, links, arithmetic of converted weights) is not said twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.configuration import captures_nothing
from vllm_advisor.rules import predicates_quantization as quant
from vllm_advisor.rules import views
from vllm_advisor.units import count, gib
from vllm_advisor.vllm import archs
from vllm_advisor.vllm.defaults import serve_defaults
from vllm_advisor.vllm.schemes import weight_bits


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.configuration import Asked, Judged
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.hardware import Node

_EAGER, _TOKENS, _SEQS = "--enforce-eager", "--max-num-batched-tokens", "--max-num-seqs"
_DEEP_GEMM = "VLLM_USE_DEEP_GEMM"


def findings(given: Asked) -> tuple[Finding, ...]:
    """What the words alone tell."""
    return (*_graphs(given), *_prefixes(given), *_chunks(given), *_asynchronous(given), *_debugging(given))


def _graphs(given: Asked) -> Iterator[Finding]:
    """Eager mode, by its switch, its level, or its compilation mode."""
    if not captures_nothing(given):
        return
    if given.on(_EAGER):
        text = (
            f"{_EAGER}: nothing is compiled and no CUDA graph captured, so each step launches every kernel from Python"
        )
        yield mend.said("PRF-01", text, given, _EAGER, hint="leave it out unless you debug, or graphs do not fit")
        return
    text = "no CUDA graph is captured: each step launches every kernel from Python"
    yield mend.said("PRF-01", text, given, "--optimization-level", "--compilation-config")


def _prefixes(given: Asked) -> Iterator[Finding]:
    if given.off("--enable-prefix-caching"):
        text = "prefix caching is off: what prompts share (system text, earlier turns) is computed again each time"
        hint = "leave --no-enable-prefix-caching out unless you benchmark"
        yield mend.said("PRF-06", text, given, "--enable-prefix-caching", hint=hint)


def _chunks(given: Asked) -> Iterator[Finding]:
    if given.off("--enable-chunked-prefill"):
        text = "chunked prefill is off: while a long prompt is read, nobody else's next token comes"
        hint = "leave --no-enable-chunked-prefill out"
        yield mend.said("PRF-07", text, given, "--enable-chunked-prefill", hint=hint)


def _asynchronous(given: Asked) -> Iterator[Finding]:
    if given.off("--async-scheduling"):
        text = "asynchronous scheduling is off: the device waits while the next step is prepared"
        hint = "leave --no-async-scheduling out: vLLM turns it on where it works"
        yield mend.said("PRF-09", text, given, "--async-scheduling", hint=hint)


# Switches for debugging, and what each does to every launch or call.
_DEBUG = (
    ("CUDA_LAUNCH_BLOCKING", "the CPU waits for each kernel"),
    ("AMD_SERIALIZE_KERNEL", "the CPU waits for each kernel"),
    ("HIP_LAUNCH_BLOCKING", "the CPU waits for each kernel"),
    ("VLLM_TRACE_FUNCTION", "each call of a Python function is written to a file"),
    ("TORCH_COMPILE_DISABLE", "nothing is compiled, so no kernel is fused"),
)


def _debugging(given: Asked) -> Iterator[Finding]:
    for name, what in _DEBUG:
        if given.variable(name).strip() not in ("", "0"):
            text = f"{name} is set: {what}"
            yield mend.said("PRF-10", text, given, name, hint="for debugging only")


def of_node(given: Asked, node: Node) -> tuple[Finding, ...]:
    """What the words and the device tell."""
    return (*_batch(given, node), *_mode(given, node), *_links(given, node), *_offload(given, node))


def _batch(given: Asked, node: Node) -> Iterator[Finding]:
    default = serve_defaults(given.surface, node, world_size=given.tp * given.pp).max_num_batched_tokens
    if given.max_num_batched_tokens is not None and given.max_num_batched_tokens < default:
        text = (
            f"{_TOKENS} {count(given.max_num_batched_tokens)} is below the {count(default)} that vLLM "
            f"{given.surface.version} takes on {node.gpu.name}: prompts are read in more, smaller steps, each of which "
            "reads all weights again; tokens of running requests come more evenly"
        )
        yield mend.said("PRF-04", text, given, _TOKENS, hint="leave it out where throughput counts")


def _mode(given: Asked, node: Node) -> Iterator[Finding]:
    name = "--performance-mode"
    if given.value(name) != "throughput":
        return
    plain = serve_defaults(given.surface, node, world_size=given.tp * given.pp)
    doubled = [
        f"{option} {count(value)} → {count(2 * value)}"
        for option, value, asked in (
            (_TOKENS, plain.max_num_batched_tokens, given.max_num_batched_tokens),
            (_SEQS, plain.max_num_seqs, given.max_num_seqs),
        )
        if asked is None
    ]
    if doubled:
        what = "; ".join(doubled)
        text = f"{name} throughput doubles what is not given ({what}), and with it the memory that a step takes"
        yield mend.said("PRF-05", text, given, name)


def _links(given: Asked, node: Node) -> Iterator[Finding]:
    fast = next((link.kind for link in node.topology.links if link.kind in ("nvlink", "xgmi")), "")
    if given.tp == 1 or not fast:
        return
    if given.variable("NCCL_P2P_DISABLE").strip() not in ("", "0"):
        text = f"NCCL_P2P_DISABLE is set: the devices have {fast}, and every all-reduce goes through host memory"
        yield mend.said("PRF-11", text, given, "NCCL_P2P_DISABLE", hint="leave it out unless start-up hangs without it")
    if given.on("--disable-custom-all-reduce"):
        text = (
            f"--disable-custom-all-reduce: small all-reduces over {fast}, two in each layer of a decode step, go "
            "through NCCL or RCCL"
        )
        hint = "leave it out unless start-up hangs without it"
        yield mend.said("PRF-11", text, given, "--disable-custom-all-reduce", hint=hint)


def _offload(given: Asked, node: Node) -> Iterator[Finding]:
    name = "--cpu-offload-gb"
    text = given.value(name) or "0"
    if text.replace(".", "", 1).isdecimal() and float(text) > 0 and not node.gpu.unified_memory:
        says = f"{name} {text}: every step reads that many GiB of weights from the host's memory over the bus"
        yield mend.said("PRF-08", says, given, name, hint="fewer bits, more devices or a shorter context instead")


def of_plan(found: Judged) -> tuple[Finding, ...]:
    """What needs model and device."""
    return (*_deep_gemm(found), *_arithmetic(found), *_waiting(found))


def _deep_gemm(found: Judged) -> Iterator[Finding]:
    """DeepGEMM stands first for block-FP8 on Hopper and Blackwell (kernels/linear/__init__.py:497-506)."""
    given = found.asked
    if given.variable(_DEEP_GEMM).strip() != "0" or views.arch(found.case) not in archs.SM90 | archs.BLACKWELL:
        return
    if views.linear_scheme(found.case) == "fp8_block":
        text = f"{_DEEP_GEMM}=0: linear layers in block-FP8 fall to the next kernel, CUTLASS"
        yield mend.said("PRF-02", text, given, _DEEP_GEMM, hint="leave it out")


def _arithmetic(found: Judged) -> Iterator[Finding]:
    """Stored in few bits, multiplied in 16: a checkpoint's case; converted ones are the matrix's (QNT-23)."""
    case = found.case
    scheme = views.scheme(case)
    on_ada = quant.fp8_blocks_on_ada(case) is not None  # QNT-17 says it
    if scheme in ("bf16", "other") or views.converts_online(case) or on_ada:
        return
    how = views.main_arithmetic(case)
    if how.backend and how.compute_bits >= 16 and not how.emulated:
        text = (
            f"{case.facts.model.name} is stored in {weight_bits(scheme)} bits ({scheme.replace('_', ' ')}), and "
            f"{how.backend} multiplies it in BF16 on {views.arch(case)}: decode of few requests reads less memory, "
            "prompts and large batches gain nothing"
        )
        yield mend.said("PRF-03", text, found.asked, "--quantization")


def _waiting(found: Judged) -> Iterator[Finding]:
    """More sequences may run than the cache holds at the full length."""
    budget, plan, given = found.case.budget, found.case.plan, found.asked
    if budget.verdict != "fits" or given.max_num_seqs is None or found.case.facts.model.is_hybrid:
        return
    room = budget.kv_tokens // given.max_num_seqs
    if budget.max_concurrency < given.max_num_seqs and room < min(1024, plan.max_model_len):
        text = (
            f"{_SEQS} {count(given.max_num_seqs)} leaves {count(room)} tokens of the cache "
            f"({gib(budget.kv_cache.mid)}) for each: longer requests push others out, and those are computed again"
        )
        yield mend.said("PRF-12", text, given, _SEQS)
