"""The quantization config that vLLM knows as `advisor_mxfp4`: which layer of a model gets which method.

Three kinds of checkpoints: plain bf16 or fp16 (quantized while it loads), what `advisor-quantize` wrote, and gpt-oss's
own MXFP4 (experts packed, everything else bf16). Options come from the checkpoint's `quantization_config`, from
`--hf-overrides` under the same key, and from the environment:

ADVISOR_MXFP4_IGNORE       layers left in bf16: patterns of `checkpoint_rules.matches`, separated by commas
ADVISOR_MXFP4_ACTIVATION   `bf16`: never round activations to FP8, also where the weights fold into it
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts  # type: ignore[import-not-found]
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (  # type: ignore[import-not-found]
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod  # type: ignore[import-not-found]
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig  # type: ignore[import-not-found]

from vllm_mx_kernels.checkpoint_rules import FORMAT, NAME, is_kept, matches
from vllm_mx_kernels.scales import SCALE_MODES
from vllm_mx_kernels.vllm_linear import AdvisorMxfp4LinearMethod, AdvisorMxfp4OnlineLinearMethod
from vllm_mx_kernels.vllm_loading import LOGGER, Tally
from vllm_mx_kernels.vllm_moe import (
    AdvisorMxfp4MoEMethod,
    AdvisorMxfp4OnlineMoEMethod,
    AdvisorMxfp4StackedMoEMethod,
    why_not,
)


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_mx_kernels.scales import ScaleMode

GPT_OSS = "gpt_oss_mxfp4"  # vLLM's name for that layout; its loaders ask the config for it
_ACTIVATIONS = ("auto", "bf16")


class AdvisorMxfp4Config(QuantizationConfig):  # type: ignore[misc]
    """`layout`: "" quantizes while loading; `FORMAT` and `GPT_OSS` are checkpoints that hold MXFP4 already."""

    def __init__(
        self, layout: str = "", ignore: Iterable[str] = (), scale_mode: ScaleMode = "floor", activation: str = "auto"
    ) -> None:
        super().__init__()
        activation = os.environ.get("ADVISOR_MXFP4_ACTIVATION", activation)
        _one_of("scale_mode", scale_mode, SCALE_MODES)
        _one_of("activation", activation, _ACTIVATIONS)
        _one_of("format", layout, ("", FORMAT, GPT_OSS))
        self.layout = layout
        self.ignore = [*ignore, *filter(None, os.environ.get("ADVISOR_MXFP4_IGNORE", "").split(","))]
        self.scale_mode = scale_mode
        self.may_fold = activation == "auto"
        self.tally = Tally()

    def get_name(self) -> str:
        """`advisor_mxfp4`, but gpt-oss's name for its layout, which vLLM's loader of that model asks for."""
        return self.layout if self.layout == GPT_OSS else NAME

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        """bfloat16 and float16."""
        return [torch.bfloat16, torch.half]

    @classmethod
    def get_min_capability(cls) -> int:
        """80: bf16 on the matrix unit (Ampere; every ROCm target is above)."""
        return 80

    @staticmethod
    def get_config_filenames() -> list[str]:
        """None: the options stand in config.json."""
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AdvisorMxfp4Config:
        """From a `quantization_config`. Raises ValueError for an option that is not one of those known."""
        layout = GPT_OSS if config.get("quant_method") in {"mxfp4", GPT_OSS} else config.get("format", "")
        options = {key: config[key] for key in ("scale_mode", "activation") if key in config}
        return cls(layout, config.get("ignore") or config.get("modules_to_not_convert") or (), **options)

    @classmethod
    def from_config_dict_json(cls, text: str) -> AdvisorMxfp4Config:
        """From `--hf-overrides '{"quantization_config_dict_json": "…"}'`."""
        return cls.from_config(json.loads(text))

    @classmethod
    def override_quantization_method(
        cls, hf_quant_cfg: dict[str, Any] | None, user_quant: str | None, hf_config: Any = None
    ) -> str | None:
        """Take over a gpt-oss checkpoint when the user asks for `advisor_mxfp4`."""
        if user_quant != NAME or getattr(hf_config, "model_type", None) != "gpt_oss":
            return None
        return NAME if (hf_quant_cfg or {}).get("quant_method") in {"mxfp4", GPT_OSS} else None

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """Put the checkpoint's module names into vLLM's."""
        # The mapper looks for `.part.`; a pattern may begin or end with one.
        mapped = hf_to_vllm_mapper.apply_list([f".{pattern}." for pattern in self.ignore])
        self.ignore = [*dict.fromkeys((*self.ignore, *(pattern.strip(".") for pattern in mapped)))]

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        """The method of a linear layer or of routed experts; None (vLLM's default) for everything else."""
        if isinstance(layer, LinearBase):
            plain = self.layout == GPT_OSS or self._keeps(prefix) or type(layer).__name__ == "GateLinear"
            return UnquantizedLinearMethod() if plain else self._linear_method()
        if isinstance(layer, RoutedExperts):
            return self._moe_method(layer, prefix)
        return None

    def _linear_method(self) -> Any:
        return AdvisorMxfp4LinearMethod(self) if self.layout else AdvisorMxfp4OnlineLinearMethod(self)

    def _moe_method(self, layer: Any, prefix: str) -> Any:
        reason = "" if self._keeps(prefix) else why_not(layer)
        if reason and self.layout:
            raise ValueError(f"{prefix} cannot be served in {NAME}: {reason}")
        if reason:
            LOGGER.warning("%s: %s stays in bf16: %s", NAME, prefix, reason)
        if reason or self._keeps(prefix):
            return UnquantizedFusedMoEMethod(layer.moe_config)
        if self.layout:
            return AdvisorMxfp4MoEMethod(layer.moe_config, self)
        stacked = type(layer).__name__ == "GptOssRoutedExperts"
        return (AdvisorMxfp4StackedMoEMethod if stacked else AdvisorMxfp4OnlineMoEMethod)(layer.moe_config, self)

    def _keeps(self, prefix: str) -> bool:
        return any(is_kept(name) or matches(name, self.ignore) for name in self._parts_of(prefix))

    def _parts_of(self, prefix: str) -> list[str]:
        """The layer, and what the checkpoint calls the parts of a stacked one."""
        parent, _, last = prefix.rpartition(".")
        return [prefix, *(f"{parent}.{part}" for part in self.packed_modules_mapping.get(last, ()))]


def _one_of(option: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise ValueError(f"{NAME}: {option} is {value!r}, not one of {', '.join(filter(None, known))}")
