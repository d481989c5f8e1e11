"""Why ours differs from a recipe: from the notes of our command, the plans that we ranked or rejected, and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.defaults import serve_defaults


if TYPE_CHECKING:
    from vllm_advisor.facts import Recommendation
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

# Flags that are a knob of ours: the field of a Plan.
_KNOBS = {
    "checkpoint": "checkpoint",
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "--data-parallel-size": "data_parallel_size",
    "--decode-context-parallel-size": "decode_context_parallel_size",
    "--enable-expert-parallel": "enable_expert_parallel",
    "--enable-eplb": "enable_eplb",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--quantization": "quantization",
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--enforce-eager": "enforce_eager",
    "--block-size": "block_size",
    "--attention-backend": "attention_backend",
    "--moe-backend": "moe_backend",
}
_SEARCHED = frozenset((
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
    "enable_expert_parallel", "enable_eplb", "kv_cache_dtype", "quantization", "checkpoint",
))  # fmt: skip
# What is neither speed nor memory, so that no plan of ours decides it.
_API = "a choice of what the API offers, not of how it runs"
_ADDRESS = "where it listens: a choice of the deployment"
_ABOUT = {
    "--tool-call-parser": _API,
    "--enable-auto-tool-choice": _API,
    "--reasoning-parser": _API,
    "--chat-template": _API,
    "--served-model-name": _API,
    "--host": _ADDRESS,
    "--port": _ADDRESS,
    "--speculative-config": "a draft model: our plans are without one",
}


class Reasons:
    """Answers for one recommendation."""

    def __init__(self, answer: Recommendation, surface: Surface, *, other_model: bool = False) -> None:
        """`other_model`: the recipe is that of a relative."""
        self.answer, self.surface, self.other_model = answer, surface, other_model
        self.best = answer.plans[0] if answer.plans else None
        self.notes = dict(self.best.command.notes) if self.best else {}

    def is_default(self, name: str, value: str) -> bool:
        """Whether the recipe's value is what this version takes by itself."""
        default = self._default(name)
        if isinstance(default, Unknown) or default is None:
            return False
        if isinstance(default, bool):
            return value == ("on" if default else "off")
        return value == str(default) or _number(value) == _number(str(default)) is not None

    def _default(self, name: str) -> object:
        """The version's default on this device, where the device decides it."""
        by_device = {"--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization"}
        if name in by_device and self.best is not None:
            plan = self.best.plan
            world = plan.tensor_parallel_size * plan.pipeline_parallel_size
            found = serve_defaults(self.surface, self.answer.facts.node, world_size=world)
            return getattr(found, _KNOBS[name])
        if name in self.surface.env:
            return self.surface.env[name].default
        flag = self.surface.flags.get(name)
        return flag.default if flag else None

    def against(self, name: str, value: str) -> str:
        """Why ours is without it."""
        if name == "--trust-remote-code" and self.surface.has_architecture(self.answer.facts.model.architecture):
            return "runs code from the model's repository; this version has the architecture itself"
        return _ABOUT.get(name) or self._judged(name, value) or self._defaulted(name)

    def instead(self, name: str, value: str) -> str:
        """Why ours has another value."""
        if name == "checkpoint" and self.other_model:
            return "the recipe is that of another model: sizes and limits of it may not fit this one"
        return self._judged(name, value) or self._noted(name)

    def of_ours(self, name: str) -> str:
        """Why ours has it."""
        return self._noted(name)

    def _noted(self, name: str) -> str:
        return self.notes.get(name) or "our plan's value"

    def _defaulted(self, name: str) -> str:
        default = self._default(name)
        if name in _KNOBS and default is not None and not isinstance(default, Unknown):
            return f"ours keeps the default of vLLM {self.surface.version} ({_shown(default)}), which was predicted"
        if name in self.surface.env or name.isupper():
            return "no rule of ours sets it"
        return "no rule of ours asks for it"

    def _judged(self, name: str, value: str) -> str:
        """What became of plans with the recipe's value: lower in the ranking, or rejected with the reason."""
        field = _KNOBS.get(name, "")
        if field not in _SEARCHED:
            return ""
        for number, ranked in enumerate(self.answer.plans[1:], 2):
            if _has(ranked.plan, field, value):
                return f"plan {number} of ours has it: {ranked.trade}"
        rejected = [r for r in self.answer.rejected if _has(r.plan, field, value)]
        if rejected and self.answer.accepted and not self._stands(field, value):
            veto = next((f for f in rejected[0].findings if f.level == "veto"), None)
            return f"rejected ({veto.rule}): {veto.message}" if veto else ""
        return "among the plans that stand, ours is ranked first"

    def _stands(self, field: str, value: str) -> bool:
        return any(_has(ranked.plan, field, value) for ranked in self.answer.plans)


def _has(plan: Plan, field: str, value: str) -> bool:
    mine = getattr(plan, field)
    return mine is (value == "on") if isinstance(mine, bool) else str(mine) == value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shown(default: object) -> str:
    return {True: "on", False: "off"}.get(default, str(default)) if isinstance(default, bool) else str(default)
