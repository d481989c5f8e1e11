"""A remedy taken: from the question that no plan answers to the one that the remedy's plan answers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import UsageError


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vllm_advisor.facts import Facts, Miss, Remedy
    from vllm_advisor.hardware import Node
    from vllm_advisor.question import Question

# What a remedy of `memory.remedies` may change in a plan and a limit of the same name fixes.
_FIXABLE = (
    "quantization", "kv_cache_dtype", "enforce_eager", "gpu_memory_utilization", "max_num_seqs",
    "max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size",
)  # fmt: skip


def applied(asked: Question, facts: Facts, miss: Miss, remedy: Remedy) -> Question:
    """The question with what the remedy changes asked for; the rest stays as free as it was.

    Raises UsageError for devices that this machine does not have and that its name cannot add.
    """
    before, after = miss.rejected.plan, remedy.plan
    limits: dict[str, Any] = {
        name: getattr(after, name) for name in _FIXABLE if getattr(before, name) != getattr(after, name)
    }
    other = before.checkpoint != after.checkpoint
    shorter = before.max_model_len != after.max_model_len
    return asked._replace(
        model=after.checkpoint if other else asked.model,
        revision=None if other else asked.revision,
        gpu=_larger(asked, facts.node, after.world_size) if after.world_size > facts.node.world else asked.gpu,
        load=asked.load._replace(context=str(after.max_model_len)) if shorter else asked.load,
        restrictions=asked.restrictions._replace(**limits),
    )


def _larger(asked: Question, node: Node, devices: int) -> str:
    """The machine's name with more devices. Raises UsageError where it was not named, or is of several kinds."""
    if asked.gpu is None or node.count > 1 or len({gpu.name for gpu in node.gpus}) > 1:
        raise UsageError(
            f"this needs {devices} devices, {node.label} has {node.world}", "name a larger machine: --gpu, or step 1"
        )
    return f"{devices}x{node.gpu.name}"


# The flags of vLLM that are limits of ours: the field, and how its text is read. The context belongs to the load.
_FLAGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--quantization": ("quantization", str), "--kv-cache-dtype": ("kv_cache_dtype", str),
    "--tensor-parallel-size": ("tensor_parallel_size", int), "--data-parallel-size": ("data_parallel_size", int),
    "--pipeline-parallel-size": ("pipeline_parallel_size", int), "--enable-expert-parallel": ("expert_parallel", bool),
    "--gpu-memory-utilization": ("gpu_memory_utilization", float), "--max-num-seqs": ("max_num_seqs", int),
    "--max-num-batched-tokens": ("max_num_batched_tokens", int), "--enforce-eager": ("enforce_eager", bool),
}  # fmt: skip
_CONTEXT = "--max-model-len"


def by_flags(asked: Question, flags: Iterable[tuple[str, str | None]]) -> Question | None:
    """The question with these flags fixed, as the doctor names them ("": a switch); None where one is no limit here."""
    load, limits = asked.load, asked.restrictions
    for flag, value in flags:
        if value is None or not (flag in _FLAGS or flag == _CONTEXT):
            return None
        if flag == _CONTEXT:
            load = load._replace(context=value)
            continue
        name, read = _FLAGS[flag]
        try:
            fixed: dict[str, Any] = {name: read(value or "on")}
        except ValueError:
            return None
        limits = limits._replace(**fixed)
    return asked._replace(load=load, restrictions=limits)
