"""Which changes of behaviour and of defaults concern one command: a predicate for each, on command, model and device.

`None` instead of a model or a device means that it is not known: a change is then said wherever it may concern, for
what is not said is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.check.values import mapping
from vllm_advisor.hardware import Vendor
from vllm_advisor.units import GIB


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.model import ModelSpec


class Case(NamedTuple):
    """A command as its old version reads it, with what is known of model and device."""

    asked: Asked
    model: ModelSpec | None
    gpu: Gpu | None

    def on(self, *vendors: Vendor) -> bool:
        """Whether the device is of these vendors, or not known."""
        return self.gpu is None or self.gpu.vendor in vendors

    def gives(self, *names: str) -> bool:
        """Whether the command gives one of these options, or sets one of these variables."""
        return any(self.asked.last(n) if n.startswith("-") else self.asked.variable(n) for n in names)

    def kinds(self, *kinds: str) -> bool:
        """Whether the model has a layer of these kinds; not where it is unknown."""
        return self.model is not None and any(c.kind in kinds for c in self.model.caches)


def _amd(case: Case) -> bool:
    return case.gpu is not None and case.gpu.vendor is Vendor.AMD


def _capability(case: Case, *values: int) -> bool:
    nvidia = case.gpu is not None and case.gpu.vendor is Vendor.NVIDIA
    return nvidia and case.gpu is not None and case.gpu.capability in values


def _large(case: Case) -> bool:
    gpu = case.gpu
    if case.gives("--max-num-batched-tokens"):
        return False
    return gpu is None or (gpu.vendor is not Vendor.CPU and gpu.memory_bytes >= 160 * GIB)


def _eager(case: Case) -> bool:
    from vllm_advisor.check.configuration import captures_nothing  # noqa: PLC0415

    return captures_nothing(case.asked)


def _quantizes(case: Case, *names: str) -> bool:
    return case.asked.quantization in names


def _unquantized(case: Case) -> bool:
    return case.model is None or case.model.quantization.method == "none"


def _caches_prefixes(case: Case) -> bool:
    return not case.asked.off("--enable-prefix-caching")


def _drafts(case: Case, *methods: str) -> bool:
    given = mapping(case.asked.reading, "--speculative-config").get("method") or case.asked.value("--spec-method")
    return given in methods


# Model types by the kind of their states, as `memory.era` has them.
_MAMBA2 = ("nemotron_h", "zamba2", "granitemoehybrid", "falcon_h1", "bamba")
_GATED = ("qwen3_next", "qwen3_5")


def _type(case: Case, names: tuple[str, ...]) -> bool:
    return case.model is not None and case.model.model_type.startswith(names)


# By id of `changes_behaviour.BEHAVIOURS`; what only concerns a reader of logs is for everybody.
CONCERNS: dict[str, Callable[[Case], bool]] = {
    "rocm-gptq-marlin": lambda c: c.on(Vendor.AMD) and _quantizes(c, "gptq_marlin"),
    "rocm-graphs": lambda c: _amd(c) and not _eager(c),
    "in-flight": lambda c: c.kinds("sliding", "chunked"),
    "hybrid-prefixes": lambda c: c.kinds("state") and not c.gives("--enable-prefix-caching"),
    "summary": lambda _: True,
    "moe-padding": lambda c: c.model is not None and c.model.moe is not None and not c.gives("VLLM_MOE_SKIP_PADDING"),
    "accounting": lambda c: c.on(Vendor.NVIDIA, Vendor.AMD),
    "modelopt-fp8": lambda c: _capability(c, 80, 86, 87) and _quantizes(c, "modelopt"),
    "batch-160": _large,
    "capture-1024": lambda c: _capability(c, 100, 103) and not _eager(c),
    "mamba-align": lambda c: _type(c, _MAMBA2) and _caches_prefixes(c),
    "mxfp4-online": lambda c: _quantizes(c, "mxfp4") and _unquantized(c),
    "bitsandbytes": lambda c: (
        _quantizes(c, "bitsandbytes") or (c.model is not None and c.model.quantization.method == "bitsandbytes")
    ),
    "kv-scales": lambda _: False,  # said of --calculate-kv-scales
    "kv-line": lambda _: True,
    "rocm-inc": lambda c: _amd(c) and _quantizes(c, "inc"),
    "null-block": lambda _: False,  # said by the memory of both versions
    "flashinfer-allreduce": lambda c: (
        c.gpu is not None and c.on(Vendor.NVIDIA) and c.asked.tp > 1 and not c.gives("VLLM_ALLREDUCE_USE_FLASHINFER")
    ),
    "fp8-online": lambda _: False,  # said of the flag
    "slow-tokenizer": lambda _: False,  # said of the flag
    "cascade": lambda _: False,  # said of the flag
    "cors": lambda c: not c.gives("--allowed-origins"),
    "deepep-hybrid": lambda c: c.asked.value("--all2all-backend") == "deepep_v2",
    "nvfp4-kv-cards": lambda c: c.asked.kv_cache_dtype == "nvfp4" and not _capability(c, 100, 103),
    "humming-hopper": lambda c: _capability(c, 90) and c.model is not None and c.model.quantization.method != "none",
    "mamba2-checkpoint": lambda c: _type(c, _MAMBA2) and _caches_prefixes(c),
    "gdn-checkpoint": lambda c: _type(c, _GATED) and _capability(c, 90, 100, 103, 120, 121) and _caches_prefixes(c),
    "gb10": lambda c: _capability(c, 121) and not c.gives("--max-num-batched-tokens", "--max-num-seqs"),
    "aiter-bmm": lambda c: (
        _amd(c)
        and c.asked.set("VLLM_ROCM_USE_AITER")
        and c.kinds("mla", "compressed")
        and not c.gives("VLLM_ROCM_USE_AITER_FP8BMM", "VLLM_ROCM_USE_AITER_FP4BMM")
    ),
    "float-kv": lambda c: c.asked.kv_cache_dtype in ("float16", "bfloat16"),
    "kv-dtype-parser": lambda _: False,  # a misspelling is a finding of its own
    "mamba-mode": lambda _: False,  # said of the flag
    "medusa": lambda c: _drafts(c, "medusa", "mlp_speculator"),
}


# Defaults that changed without a row of their own, by flag and variable: whom they concern.
DEFAULTS: dict[str, Callable[[Case], bool]] = {
    "--dcp-comm-backend": lambda c: c.asked.dcp > 1,
    "--cp-kv-cache-interleave-size": lambda c: c.asked.dcp > 1 or c.asked.pcp > 1,
    "VLLM_ROCM_AITER_MLA_DCP_VERIFY": lambda c: _amd(c) and c.asked.dcp > 1,
}
# Told by a row of behaviour, or of no effect.
TOLD = frozenset((
    "--allowed-origins", "--disable-cascade-attn", "--mamba-cache-mode", "--log-config-file", "--tool-strict-level",
    "--prefix-cache-retention-interval", "--mm-hasher-algorithm", "VLLM_MOE_SKIP_PADDING",
    "VLLM_ALLREDUCE_USE_FLASHINFER", "VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE", "VLLM_ROCM_USE_AITER_FP8BMM",
    "VLLM_ROCM_USE_AITER_FP4BMM",
))  # fmt: skip
