"""What a model needs to work at all, beyond memory: parsers, block size, and what only the user can decide.

A flag stands here only where the version registers it and its value. What we do not add by ourselves is a remark:
code of a model repository (`--trust-remote-code`) and the loss of a modality (`--language-model-only`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm.families import TEMPLATES, family_of, repository_code


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface
    from vllm_advisor.workload import Workload

# Where vLLM keeps its example chat templates; the wheel has none, the container image does.
_EXAMPLES = "vLLM's examples folder, which the image has and the wheel lacks"
# Where a config was read as it was published; the catalog's own entries may be flattened or assembled.
_AS_PUBLISHED = ("", "local", "hub")
_DEPRECATED_METHODS = frozenset(("fbgemm_fp8", "fp_quant"))
_TEMPLATE_SOURCE = "docs/features/tool_calling.md"


class Requirement(NamedTuple):
    """One flag that a model needs. `value` "" is a flag without one; `flag` "" is a remark and no flag."""

    flag: str
    value: str
    why: str
    source: str


def requirements(model: ModelSpec, surface: Surface, workload: Workload) -> tuple[Requirement, ...]:  # noqa: ARG001
    """What the command must carry for this model, in the order in which it is written; remarks last."""
    found = (
        *_block_size(model),
        *_deprecated_method(model),
        *_parsers(model, surface),
        *_repository_code(model),
        *_modalities(model, surface),
        *_registry(model, surface),
    )
    flags = tuple(r for r in found if r.flag and surface.has_flag(r.flag))
    return flags + tuple(r for r in found if not r.flag)


def required_block_size(model: ModelSpec) -> int | None:
    """Tokens of a KV block that the model's attention insists on, None: vLLM chooses."""
    return 128 if model.architecture.startswith("MiniMaxM3") else None


def _block_size(model: ModelSpec) -> Iterator[Requirement]:
    size = required_block_size(model)
    if size:
        why = "sparse attention selects whole blocks of 128 tokens; 0.24 would take 16 from the first dense layer"
        source = "models/minimax_m3/common/sparse_attention.py (get_supported_kernel_block_sizes)"
        yield Requirement("--block-size", str(size), why, source)


def _deprecated_method(model: ModelSpec) -> Iterator[Requirement]:
    """Checkpoints of a method that vLLM is about to drop start only with their owner's word (0.24.0 to 0.33.0)."""
    method = model.quantization.method
    if method in _DEPRECATED_METHODS:
        why = f"vLLM refuses {method} checkpoints without it, and will drop them: plan for another checkpoint"
        source = "config/model.py:1472-1485; quantization/__init__.py (DEPRECATED_QUANTIZATION_METHODS)"
        yield Requirement("--allow-deprecated-quantization", "", why, source)


def _parsers(model: ModelSpec, surface: Surface) -> Iterator[Requirement]:
    family = family_of(model)
    if family is None:
        return
    reasoning = _first(family.reasoning, surface.reasoning_parsers)
    if reasoning:
        why = "separates the model's thinking from its answer"
        yield Requirement("--reasoning-parser", reasoning, why, _source(family.source))
    tools = _first(family.tools, surface.tool_parsers)
    if tools:
        yield Requirement("--enable-auto-tool-choice", "", "lets the model call tools", _source(family.source))
        yield Requirement("--tool-call-parser", tools, "reads this family's tool calls", _source(family.source))
    if tools in TEMPLATES:
        why = f"tool calls need --chat-template {TEMPLATES[tools]} from {_EXAMPLES}"
        yield Requirement("", "", why, _TEMPLATE_SOURCE)
    for wanted, got, kind in ((family.reasoning, reasoning, "reasoning"), (family.tools, tools, "tool-call")):
        if wanted and not got:
            why = f"vLLM {surface.version} has no {kind} parser for this family (a newer one has {wanted})"
            yield Requirement("", "", why, _source(family.source))


def _source(short: str) -> str:
    """The table's short source in full: vLLM's documentation, a recipe, or a path in vLLM."""
    if short == "docs":
        return "vLLM docs/features/tool_calling.md, reasoning_outputs.md"
    return short if short.endswith(".py") else f"vllm-project/recipes models/{short}.yaml"


def _first(names: str, known: tuple[str, ...]) -> str:
    return next((n for n in names.split() if n in known), "")


def _repository_code(model: ModelSpec) -> Iterator[Requirement]:
    """Code of the repository that has to run: said, never switched on."""
    found = repository_code(model)
    if found:
        what, source = found
        why = f"{what} is code in the model's repository: read it, then add --trust-remote-code or its plugin yourself"
        yield Requirement("", "", why, _source(source))


def _modalities(model: ModelSpec, surface: Surface) -> Iterator[Requirement]:
    if model.modalities and surface.has_flag("--language-model-only"):
        kinds = " and ".join(model.modalities)
        why = f"takes {kinds} too; where requests are text only, add --language-model-only to free encoder memory"
        yield Requirement("", "", why, "config/multimodal.py (language_model_only)")


def _registry(model: ModelSpec, surface: Surface) -> Iterator[Requirement]:
    """An architecture that vLLM has no implementation of."""
    name = model.architecture
    if not name or surface.has_architecture(name) or _is_our_name(model, surface):
        return
    last = surface.removed_architectures.get(name)
    gone = f" (the last version that had it: {last})" if last else ""
    why = (
        f"{name} is not in the model registry of vLLM {surface.version}{gone}; it may run on transformers' own "
        "implementation. --trust-remote-code would run the repository's code: never added by us"
    )
    yield Requirement("", "", why, "model_executor/models/registry.py")


def _is_our_name(model: ModelSpec, surface: Surface) -> bool:
    """A catalog entry may carry a name of our own for the text part: a registered name of its stem stands for it."""
    stem = model.architecture.partition("For")[0]
    stems = (a.partition("For")[0] for a in surface.architectures)
    return model.provenance not in _AS_PUBLISHED and any(s.startswith(stem) or stem.startswith(s) for s in stems if s)
