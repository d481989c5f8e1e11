"""From what was typed to Facts: the last place that reads files, devices or the network before the pure part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli.diagnostics import note
from vllm_advisor.errors import UsageError
from vllm_advisor.facts import Facts
from vllm_advisor.units import parse_tokens
from vllm_advisor.workload import PRESETS, Objective, Sla, Workload


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface


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
    changes |= {"objective": _objective(load.objective)} if load.objective else {}
    asked = replace(preset, sla=Sla(load.ttft_ms, load.tpot_ms), **changes)  # type: ignore[arg-type]
    return _checked(asked)


def _objective(text: str) -> Objective:
    try:
        return Objective(text)
    except ValueError:
        raise UsageError(f"no objective {text!r}", f"one of {', '.join(Objective)}") from None


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


def model(name: str, revision: str | None, *, offline: bool) -> ModelSpec:
    """A folder, a config.json, a catalog name, the Hugging Face cache, or the hub."""
    from vllm_advisor.catalog import hub, models

    is_repository = name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()
    if is_repository and not offline and models.find(name) is None:
        note(f"{name} is not in the catalog: looking in the Hugging Face cache and on the hub")
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
