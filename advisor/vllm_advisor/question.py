"""A question as a person puts it, and its answer: what the command line and the wizard both ask.

The last place that reads files, devices or the network before the pure part. `Question` holds texts and numbers as they
were typed, so that it can be shown, kept, and turned into a command again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UsageError
from vllm_advisor.facts import Facts
from vllm_advisor.units import parse_tokens
from vllm_advisor.workload import PRESETS, Objective, Sensitivity, Sla, Workload


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.adoption import Match, Outcome
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.facts import Recommendation
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface


DEFAULT_VLLM = "0.33.0"


class Load(NamedTuple):
    """The workload flags as typed; None: the preset's value."""

    preset: str = "chat"
    input_tokens: str | None = None
    output_tokens: str | None = None
    concurrency: int | None = None
    context: str | None = None
    request_rate: float | None = None
    shared_prefix: str | None = None
    objective: str | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    sensitivity: str | None = None


class Question(NamedTuple):
    """What is asked of the engine, as typed. Neither `gpu` nor `node`: this machine."""

    model: str
    gpu: str | None
    node: Path | None
    vllm: str
    load: Load
    restrictions: Restrictions
    offline: bool = False
    revision: str | None = None


# How a load and limits are typed: the field, and its flag. Booleans are (flag, value that it stands for).
_LOAD_FLAGS = {
    "input_tokens": "--input-tokens", "output_tokens": "--output-tokens", "concurrency": "--concurrency",
    "context": "--context", "request_rate": "--request-rate", "shared_prefix": "--shared-prefix",
    "objective": "--objective", "ttft_ms": "--ttft-ms", "tpot_ms": "--tpot-ms", "sensitivity": "--sensitivity",
}  # fmt: skip
_LIMIT_FLAGS = {
    "quantization": "--quantization", "kv_cache_dtype": "--kv-cache-dtype", "tensor_parallel_size": "--tp",
    "pipeline_parallel_size": "--pp", "data_parallel_size": "--dp",
    "gpu_memory_utilization": "--gpu-memory-utilization", "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
}  # fmt: skip
_SWITCHES = {
    ("expert_parallel", True): "--ep",
    ("expert_parallel", False): "--no-ep",
    ("enforce_eager", True): "--enforce-eager",
    ("siblings", False): "--this-checkpoint",
    ("use_all", True): "--all-gpus",
    ("allow_plugin", True): "--allow-plugin",
}


def flags(asked: Question) -> tuple[str, ...]:
    """What to type behind `advisor recommend` or `advisor launch` for this very question; defaults are left out."""
    words = [asked.model]
    words += ["--gpu", asked.gpu] if asked.gpu else []
    words += ["--node", str(asked.node)] if asked.node else []
    words += ["--vllm", asked.vllm] if asked.vllm != DEFAULT_VLLM else []
    words += ["--workload", asked.load.preset] if asked.load.preset != Load().preset else []
    for values, names in ((asked.load, _LOAD_FLAGS), (asked.restrictions, _LIMIT_FLAGS)):
        for name, flag in names.items():
            value = getattr(values, name)
            words += [] if value is None else [flag, f"{value:.12g}" if isinstance(value, float) else str(value)]
    words += [flag for (name, value), flag in _SWITCHES.items() if getattr(asked.restrictions, name) is value]
    words += ["--revision", asked.revision] if asked.revision else []
    words += ["--offline"] if asked.offline else []
    return tuple(words)


class Answer(NamedTuple):
    """The answer, and what the store and the shipped profiles had to say of it."""

    found: Recommendation
    match: Match | None = None
    outcome: Outcome | None = None


_WIDE = 50  # plans that a measured correction may bring up


def _silent(_: str) -> None: ...


def answer(asked: Question, top: int, tell: Callable[[str], None] = _silent) -> Answer:
    """Read everything, decide, and put what was measured on this very machine first; `tell` gets remarks, a line each.

    Raises AdvisorError for whatever cannot be read or understood.
    """
    return decide(*read(asked, tell), asked, top, tell)


def read(asked: Question, tell: Callable[[str], None] = _silent) -> tuple[Facts, tuple[ModelSpec, ...]]:
    """Read everything that is asked about: the facts, and the model's other checkpoints."""
    load, vllm = workload(asked.load), surface(asked.vllm)
    spec = model(asked.model, asked.revision, offline=asked.offline, tell=tell)
    return facts(node(asked.gpu, asked.node), spec, load, vllm), siblings(spec)


def decide(
    found: Facts, others: tuple[ModelSpec, ...], asked: Question, top: int, tell: Callable[[str], None] = _silent
) -> Answer:
    """The answer from facts that were read: the store is asked, devices and network are not."""
    from vllm_advisor import profiles
    from vllm_advisor.recommend import recommend

    match = profiles.matching(found, None, others, asked.revision)
    if match is None:
        return Answer(_tuned(recommend(found, others, asked.restrictions, top), asked))
    for text in match.notes:
        tell(text)
    wide = recommend(found, others, asked.restrictions, max(top, _WIDE))
    outcome = profiles.apply(wide, match, asked.restrictions, top)
    return Answer(_tuned(outcome.answer, asked), match, outcome)


def _tuned(found: Recommendation, asked: Question) -> Recommendation:
    """With the launches that were tuned here, for plans of our plugin."""
    if not asked.restrictions.allow_plugin:
        return found
    from vllm_advisor import tuned_kernels

    return tuned_kernels.handed(found)


def workload(load: Load) -> Workload:
    """The preset with the user's own figures over it."""
    preset = PRESETS.get(load.preset)
    if preset is None:
        raise UsageError(f"no workload {load.preset!r}", f"one of {', '.join(PRESETS)}")
    tokens = {
        "input_tokens": load.input_tokens,
        "output_tokens": load.output_tokens,
        "context": load.context,
        "shared_prefix_tokens": load.shared_prefix,
    }
    changes: dict[str, object] = {name: parse_tokens(text) for name, text in tokens.items() if text is not None}
    changes |= {"concurrency": load.concurrency} if load.concurrency else {}
    changes |= {"request_rate": load.request_rate} if load.request_rate else {}
    changes |= {"objective": _one_of(Objective, load.objective)} if load.objective else {}
    changes |= {"sensitivity": _one_of(Sensitivity, load.sensitivity)} if load.sensitivity else {}
    asked = replace(preset, sla=Sla(load.ttft_ms, load.tpot_ms), **changes)  # type: ignore[arg-type]
    return _checked(asked)


def _one_of(kind: type[Objective | Sensitivity], text: str) -> Objective | Sensitivity:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"no {kind.__name__.lower()} {text!r}", f"one of {', '.join(kind)}") from None


def _checked(asked: Workload) -> Workload:
    need = asked.input_tokens + asked.output_tokens
    if asked.context and asked.context < need:
        raise UsageError(
            f"--context {asked.context:,} is shorter than input + output = {need:,} tokens",
            "raise --context, or lower --input-tokens or --output-tokens",
        )
    return asked


def node(gpu: str | None, file: Path | None) -> Node:
    """The machine: recorded in a file, named, or this one."""
    if gpu and file:
        raise UsageError("--gpu and --node both name a machine", "give one of them")
    if file:
        from vllm_advisor.probe import recorded

        return recorded.load(file)
    if gpu and gpu.strip().lower() != "cpu":
        from vllm_advisor.catalog import gpus

        return gpus.node(gpu)
    return _probed(cpu_only=bool(gpu))


def _probed(*, cpu_only: bool) -> Node:
    from vllm_advisor.probe import detect

    return detect.cpu_node() if cpu_only else detect.detect()


def model(name: str, revision: str | None, *, offline: bool, tell: Callable[[str], None] = _silent) -> ModelSpec:
    """A folder, a config.json, a catalog name, the Hugging Face cache, or the hub."""
    from vllm_advisor.catalog import hub, models

    is_repository = name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()
    if is_repository and not offline and models.find(name) is None:
        tell(f"{name} is not in the catalog: looking in the Hugging Face cache and on the hub")
    return hub.resolve(name, revision=revision, offline=offline)


def siblings(spec: ModelSpec) -> tuple[ModelSpec, ...]:
    """Other checkpoints of the same base model that the catalog knows."""
    from vllm_advisor.catalog import models

    return models.siblings(spec)


def surface(version: str) -> Surface:
    """What that vLLM version has."""
    from vllm_advisor.vllm import surface as surfaces

    return surfaces.load(version)


def facts(node: Node, spec: ModelSpec, load: Workload, vllm: Surface) -> Facts:
    """Everything a rule may look at; a context beyond the model's own is an error, not a plan."""
    need = max(load.context, load.input_tokens + load.output_tokens)
    if spec.max_position and need > spec.max_position:
        raise UsageError(
            f"{spec.name} is made for {spec.max_position:,} positions, {need:,} are asked for",
            f"ask for --context {spec.max_position} or less",
        )
    return Facts(node, spec, load, vllm)
