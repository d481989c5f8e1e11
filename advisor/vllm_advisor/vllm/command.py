"""A Plan as `vllm serve` of one version: argv, environment and a reason for each, and the same as `LLM(...)`.

Two rules. Only what that version takes is written, in its own spelling. What was predicted is what runs: a knob is
left out only where the version's default on that device is the plan's own value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput, UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.units import count
from vllm_advisor.vllm import environment, plugin
from vllm_advisor.vllm.defaults import serve_defaults
from vllm_advisor.vllm.requirements import requirements


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.defaults import Defaults
    from vllm_advisor.vllm.surface import Surface
    from vllm_advisor.workload import Workload

# Every flag that is written for a plan's own fields.
PLAN_FLAGS = frozenset(
    (
        "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--decode-context-parallel-size",
        "--enable-expert-parallel", "--enable-eplb", "--quantization", "--kv-cache-dtype", "--max-model-len",
        "--max-num-seqs", "--max-num-batched-tokens", "--kv-cache-memory-bytes", "--gpu-memory-utilization",
        "--block-size", "--attention-backend", "--moe-backend", "--performance-mode", "--enforce-eager",
    )
)  # fmt: skip
# Stands where the user writes the first node's address (shell-safe, so that it can be found and replaced).
HEAD_ADDRESS = "HEAD_NODE_ADDRESS"
# Options of `vllm serve` that `LLM()` does not take: they belong to the API server.
_SERVER_GROUPS = ("Frontend", "BaseFrontend", "")
# Names of one method: 0.33 warns that `fp8` means `fp8_per_tensor` (model_executor/model_loader/weight_utils.py:356).
_QUANTIZATION_NAMES = {"fp8": "fp8_per_tensor"}

# Values that the parser lets through and the configuration refuses: where the version's names stand.
_NAMED = {"--kv-cache-dtype": "kv_cache_dtypes", "--attention-backend": "attention_backends"}


class Setting(NamedTuple):
    """One flag to write: `value` True is a switch; `why` is its note."""

    flag: str
    value: object
    why: str


def build(plan: Plan, model: ModelSpec, node: Node, surface: Surface, workload: Workload) -> LaunchCommand:
    """The command of a plan. `model` is the checkpoint that the plan loads.

    argv is ("vllm", "serve", CHECKPOINT, flags…) in a fixed order; `notes` has a (flag or variable, why) for each,
    then ("", remark) for what only the user can decide.
    Raises BadInput where the version lacks a flag, a value or a variable of the plan.
    """
    settings = _settings(plan, model, node, surface, workload)
    argv = ["vllm", "serve", plan.checkpoint]
    for setting in settings:
        argv += [setting.flag] if setting.value is True else [setting.flag, _text(setting.value)]
    notes = tuple((s.flag, s.why) for s in settings) + _remarks(plan, model, node, surface, workload)
    return LaunchCommand(tuple(argv), _registered(plan.env, surface), notes)


def llm_kwargs(
    plan: Plan, model: ModelSpec, node: Node, surface: Surface, workload: Workload
) -> tuple[tuple[str, object], ...]:
    """The same deployment as keyword arguments of `vllm.LLM`, whose batch defaults differ from the server's.

    `model` comes first; what belongs to the API server (tool parsers) is left out. Raises UsageError for a plan with
    data parallelism or several nodes, which one Python process cannot hold (entrypoints/llm.py:281 raises too).
    """
    if plan.data_parallel_size > 1 or plan.num_nodes > 1:
        raise UsageError(f"LLM() runs in one process; {plan.layout} needs a server", "use --format command")
    settings = _settings(plan, model, node, surface, workload, offline_llm=True)
    flags = ((surface.flags[s.flag], s.value) for s in settings)
    return (("model", plan.checkpoint), *((f.field, v) for f, v in flags if f.group not in _SERVER_GROUPS))


def _settings(
    plan: Plan, model: ModelSpec, node: Node, surface: Surface, workload: Workload, *, offline_llm: bool = False
) -> tuple[Setting, ...]:
    """Every flag in the order of reading: layout, formats, limits, engine, then what the model needs."""
    defaults = serve_defaults(
        surface,
        node,
        world_size=plan.tensor_parallel_size * plan.pipeline_parallel_size,
        offline_llm=offline_llm,
        performance_mode=plan.performance_mode,
    )
    chosen = [*_layout(plan), *_formats(plan, surface), *_limits(plan, model, defaults), *_engine(plan)]
    needed = [Setting(r.flag, r.value or True, f"{r.why} ({r.source})") for r in requirements(model, surface, workload)]
    better = {(s.flag, str(s.value)): s for s in needed}
    present = {s.flag for s in chosen}
    chosen = [better.get((s.flag, str(s.value)), s) for s in chosen]
    chosen += [s for s in needed if s.flag and s.flag not in present]
    return tuple(_spelled(s, surface) for s in chosen)


def _layout(plan: Plan) -> Iterator[Setting]:
    if plan.tensor_parallel_size > 1:
        yield Setting("--tensor-parallel-size", plan.tensor_parallel_size, "each layer is split over this many GPUs")
    if plan.pipeline_parallel_size > 1:
        yield Setting("--pipeline-parallel-size", plan.pipeline_parallel_size, "stages of layers, one after another")
    if plan.data_parallel_size > 1:
        yield Setting("--data-parallel-size", plan.data_parallel_size, "engines side by side behind one API server")
    if plan.decode_context_parallel_size > 1:
        dcp = plan.decode_context_parallel_size
        yield Setting("--decode-context-parallel-size", dcp, "splits the KV cache by token where TP would copy it")
    if plan.enable_expert_parallel:
        why = f"whole experts on {plan.expert_parallel_size} ranks instead of a slice of each"
        yield Setting("--enable-expert-parallel", True, why)
    if plan.enable_eplb:
        yield Setting("--enable-eplb", True, "moves busy experts between ranks while serving")
    if plan.num_nodes > 1:
        yield from _nodes(plan.num_nodes)


def _nodes(num_nodes: int) -> Iterator[Setting]:
    """The launcher without Ray that all versions here have (engine/arg_utils.py, 0.24.0:1910, 0.33.0:2399)."""
    yield Setting("--nnodes", num_nodes, "one command a node, no Ray needed")
    others = f"the others run it with --node-rank 1…{num_nodes - 1} --headless"
    yield Setting("--node-rank", 0, f"this is the first node; {others}")
    yield Setting("--master-addr", HEAD_ADDRESS, "write the first node's address here, the same on every node")


def _formats(plan: Plan, surface: Surface) -> Iterator[Setting]:
    if plan.quantization:
        name = quantization_name(plan.quantization, surface)
        why = f"our plugin ({plugin.INSTALL})" if name == plugin.NAME else "converts the weights while loading"
        yield Setting("--quantization", name, why)
    if plan.kv_cache_dtype != "auto":
        yield Setting("--kv-cache-dtype", plan.kv_cache_dtype, "element type of the KV cache")


def quantization_name(quantization: str, surface: Surface) -> str:
    """The version's name of an online quantization, or that of our plugin; raises BadInput where it has none."""
    name = _QUANTIZATION_NAMES.get(quantization, quantization)
    if name in surface.quantizations or (name == plugin.NAME and plugin.has_release(surface)):
        return name
    hint = f"online in this version: {', '.join(surface.online_quantizations)}"
    raise BadInput(f"vLLM {surface.version} has no quantization {quantization}", hint)


def _limits(plan: Plan, model: ModelSpec, defaults: Defaults) -> Iterator[Setting]:
    if plan.auto_max_model_len:
        why = f"vLLM takes the longest context that fits (we expect about {count(plan.max_model_len)})"
        yield Setting("--max-model-len", "auto", why)
    elif plan.max_model_len != model.max_position:
        why = f"longest request, input and output (the model's own limit is {count(model.max_position)})"
        yield Setting("--max-model-len", plan.max_model_len, why)
    tokens, seqs = effective_batch(plan, defaults)
    if plan.max_num_seqs != seqs:
        yield Setting("--max-num-seqs", plan.max_num_seqs, f"requests in one batch (default here {count(seqs)})")
    if plan.max_num_batched_tokens != tokens:
        why = f"tokens in one step (default here {count(tokens)})"
        yield Setting("--max-num-batched-tokens", plan.max_num_batched_tokens, why)
    if plan.kv_cache_memory_bytes is not None:
        why = "the KV cache is as large as the load needs; the rest of the memory stays free"
        yield Setting("--kv-cache-memory-bytes", plan.kv_cache_memory_bytes, why)
    elif plan.gpu_memory_utilization != defaults.gpu_memory_utilization:
        why = f"share of device memory (default {defaults.gpu_memory_utilization:g})"
        yield Setting("--gpu-memory-utilization", plan.gpu_memory_utilization, why)


def effective_batch(plan: Plan, defaults: Defaults) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) that vLLM would take if it were not told, for this plan's other values.

    vLLM caps the default tokens by max_num_seqs × max_model_len, and the default sequences by the tokens
    (0.24.0 engine/arg_utils.py:2570-2690, 0.33.0:3218-3235).
    """
    tokens = min(defaults.max_num_batched_tokens, plan.max_num_seqs * plan.max_model_len)
    return tokens, min(defaults.max_num_seqs, plan.max_num_batched_tokens)


def _engine(plan: Plan) -> Iterator[Setting]:
    if plan.block_size is not None:
        yield Setting("--block-size", plan.block_size, "tokens in a KV block")
    if plan.attention_backend:
        yield Setting("--attention-backend", plan.attention_backend, "instead of vLLM's own pick")
    if plan.moe_backend:
        yield Setting("--moe-backend", plan.moe_backend, "instead of vLLM's own pick")
    if plan.performance_mode not in (None, "balanced"):
        yield Setting("--performance-mode", plan.performance_mode, "vLLM's own switch for batch limits and graphs")
    if plan.enforce_eager:
        yield Setting("--enforce-eager", True, "no CUDA graphs, no compilation")


def _spelled(setting: Setting, surface: Surface) -> Setting:
    """The setting under the version's own name; raises BadInput where it lacks the flag or the value."""
    flag = surface.flag(setting.flag)
    if flag is None:
        raise BadInput(f"vLLM {surface.version} has no {setting.flag}", "choose another --vllm version")
    allowed = flag.choices or getattr(surface, _NAMED.get(flag.name, ""), ())
    if allowed and setting.value not in allowed:
        hint = f"it takes {', '.join(map(str, allowed))}"
        raise BadInput(f"vLLM {surface.version} has no {flag.name} {setting.value}", hint)
    return setting._replace(flag=flag.name)


def _registered(env: tuple[tuple[str, str], ...], surface: Surface) -> tuple[tuple[str, str], ...]:
    """The plan's variables; raises BadInput for one that the version would only warn about."""
    for name, _ in env:
        if not surface.has_env(name):
            raise BadInput(f"vLLM {surface.version} does not know the variable {name}", "it would be ignored; drop it")
    return env


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _remarks(
    plan: Plan, model: ModelSpec, node: Node, surface: Surface, workload: Workload
) -> tuple[tuple[str, str], ...]:
    """Why for each variable; then, under no flag, what only the user can decide."""
    settings = {s.name: f"{s.why} ({s.source})" for s in environment.environment(plan, model, node, surface)}
    variables = tuple((name, settings.get(name, "set by the plan")) for name, _ in plan.env)
    needs = tuple(f"{r.why} ({r.source})" for r in requirements(model, surface, workload) if not r.flag)
    host = tuple(f"{n.name}={n.value} {n.why} ({n.source})" for n in environment.notes(plan, model, node, surface))
    ours = (plugin.REMARK,) if plugin.serves(model, plan) else ()
    return variables + tuple(("", text) for text in ours + needs + host)
