"""Routed experts in MXFP4, for vLLM's router: top-k choices and their weights come in, the weighted sum goes out.

With expert parallelism a rank holds some experts; choices of others count nothing here, and vLLM adds the ranks up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase  # type: ignore[import-not-found]
from vllm.model_executor.layers.fused_moe.activation import MoEActivation  # type: ignore[import-not-found]
from vllm.model_executor.layers.quantization.online.moe_base import (  # type: ignore[import-not-found]
    OnlineMoEMethodBase,
)
from vllm.model_executor.utils import replace_parameter, set_weight_attrs  # type: ignore[import-not-found]

from vllm_mx_kernels import vllm_ops
from vllm_mx_kernels.formats import BLOCK
from vllm_mx_kernels.moe import OAI_ALPHA, OAI_LIMIT
from vllm_mx_kernels.mxfp4 import Mxfp4
from vllm_mx_kernels.vllm_loading import folded_exponents, quantize_rows


if TYPE_CHECKING:
    from vllm_mx_kernels.vllm_config import AdvisorMxfp4Config

_DONE = "_already_called_process_weights_after_loading"
_OAI = (MoEActivation.SWIGLUOAI, MoEActivation.SWIGLUOAI_UNINTERLEAVE)


def why_not(layer: Any) -> str:
    """The reason why these experts cannot run in our kernels; "" when they can."""
    config = layer.moe_config
    if config.hidden_dim % BLOCK or config.intermediate_size_per_partition % BLOCK:
        return f"{config.hidden_dim} × {config.intermediate_size_per_partition} a rank are no blocks of {BLOCK}"
    if layer.apply_router_weight_on_input:
        return "router weights are applied before the experts"
    limit = getattr(layer, "swiglu_limit", None)
    if layer.activation == MoEActivation.SILU:
        return "" if limit is None else f"SwiGLU with a limit of {limit}"
    if layer.activation not in _OAI:
        return f"activation {layer.activation.value}"
    alpha, beta = getattr(layer, "swiglu_alpha", None), getattr(layer, "swiglu_beta", None)
    usual = limit in {None, OAI_LIMIT} and alpha in {None, OAI_ALPHA} and beta in {None, 1.0}
    return "" if usual else f"SwiGLU-OAI with limit {limit}, alpha {alpha}, beta {beta}"


class _Served(FusedMoEMethodBase):  # type: ignore[misc]
    """What both kinds share: the layer is ready, and now it serves."""

    config: AdvisorMxfp4Config

    @property
    def supports_eplb(self) -> bool:
        """Whether vLLM may move experts between ranks: not between ours."""
        return False

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> None:
        """None: vLLM's own kernels are not used."""
        del layer

    def finish(self, layer: Any, gate_up: Mxfp4, down: Mxfp4) -> None:
        """Keep the quantized weights, gate and up rows alternating where the activation takes them so."""
        if layer.activation == MoEActivation.SWIGLUOAI_UNINTERLEAVE:
            gate_up = Mxfp4(*map(_alternate, gate_up))
            if getattr(layer, "w13_bias", None) is not None:
                replace_parameter(layer, "w13_bias", _alternate(layer.w13_bias.data))
        for name, weight in (("w13", gate_up), ("w2", down)):
            replace_parameter(layer, f"{name}_weight", weight.codes)
            replace_parameter(layer, f"{name}_weight_scale", weight.scales)
        layer.row_exponents = folded_exponents([gate_up, down]) if self.config.may_fold else []
        self.config.tally.add([gate_up, down], folded=bool(layer.row_exponents))
        setattr(layer, _DONE, True)

    def apply(  # type: ignore[override]
        self,
        layer: Any,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any,
        shared_experts_input: torch.Tensor | None,
    ) -> torch.Tensor:
        """X [T, H] → [T, H]. Shared experts are the runner's."""
        del shared_experts, shared_experts_input
        choices = topk_ids if layer.expert_map is None else layer.expert_map[topk_ids.long()]
        weights = [layer.w13_weight, layer.w13_weight_scale, layer.w2_weight, layer.w2_weight_scale]
        biases = [getattr(layer, "w13_bias", None), getattr(layer, "w2_bias", None)]
        oai = layer.activation in _OAI
        return vllm_ops.moe_mxfp4(x, weights, biases, choices, topk_weights.float(), oai, layer.row_exponents)


class AdvisorMxfp4MoEMethod(_Served):
    """Experts that come packed: of `advisor-quantize`, one by one, or of gpt-oss, all of a layer in one tensor."""

    weight_dtype = "gpt_oss_mxfp4"  # vLLM's gpt-oss loader asks for it, and for nothing else

    def __init__(self, moe: Any, config: AdvisorMxfp4Config) -> None:
        super().__init__(moe)
        self.config = config

    def create_weights(
        self,
        layer: Any,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        """VLLM's hook."""
        wide = self.moe.w13_num_shards * intermediate_size_per_partition
        self._add(layer, "w13", (num_experts, wide, hidden_size), params_dtype, extra)
        self._add(layer, "w2", (num_experts, hidden_size, intermediate_size_per_partition), params_dtype, extra)
        self.config.tally.created += 1

    def _add(
        self, layer: Any, name: str, shape: tuple[int, int, int], dtype: torch.dtype, extra: dict[str, Any]
    ) -> None:
        tensors = self._stored(shape, dtype)
        if self.moe.has_bias:
            tensors["bias"] = torch.zeros(shape[:2], dtype=dtype)
        for kind, tensor in tensors.items():
            parameter = torch.nn.Parameter(tensor, requires_grad=False)
            layer.register_parameter(f"{name}_{kind}", parameter)
            set_weight_attrs(parameter, extra)
            if kind == "weight_scale":
                parameter.quant_method = "block"  # one of vLLM's FusedMoeWeightScaleSupported

    @staticmethod
    def _stored(shape: tuple[int, int, int], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        del dtype
        e, n, k = shape
        codes, scales = (torch.zeros(e, n, k // per, dtype=torch.uint8) for per in (2, BLOCK))
        return {"weight": codes, "weight_scale": scales}

    def process_weights_after_loading(self, layer: Any) -> None:
        """VLLM's hook."""
        if not getattr(layer, _DONE, False):
            gate_up = Mxfp4(layer.w13_weight.data, layer.w13_weight_scale.data)
            self.finish(layer, gate_up, Mxfp4(layer.w2_weight.data, layer.w2_weight_scale.data))


class AdvisorMxfp4StackedMoEMethod(AdvisorMxfp4MoEMethod):
    """Experts of a gpt-oss checkpoint in bf16: quantized when the whole model is loaded.

    vLLM's loader of that model copies stacked experts into the parameters past their loaders (models/gpt_oss.py,
    `_load_weights_other`), which on the meta device would be lost.
    """

    weight_dtype = "bfloat16"

    @staticmethod
    def _stored(shape: tuple[int, int, int], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        return {"weight": torch.zeros(shape, dtype=dtype)}

    def process_weights_after_loading(self, layer: Any) -> None:
        """Quantize: vLLM's hook, called when the whole model is loaded."""
        if not getattr(layer, _DONE, False):
            _quantize(self, layer)


class AdvisorMxfp4OnlineMoEMethod(_Served, OnlineMoEMethodBase):  # type: ignore[misc]
    """Experts of a bf16 or fp16 checkpoint, quantized layer by layer as they arrive."""

    def __init__(self, moe: Any, config: AdvisorMxfp4Config) -> None:
        super().__init__(moe)
        self.config = config

    def create_weights(self, *sizes: Any, **extra: Any) -> None:
        """VLLM's hook."""
        super().create_weights(*sizes, **extra)
        self.config.tally.created += 1

    def process_weights_after_loading(self, layer: Any) -> None:
        """VLLM's hook, called when the last expert has arrived, and again at the end."""
        if getattr(layer, _DONE, False):
            return
        self._zero_padding(layer)
        _quantize(self, layer)


def _quantize(method: _Served, layer: Any) -> None:
    gate_up = quantize_rows(layer.w13_weight.data, method.config.scale_mode)
    replace_parameter(layer, "w13_weight", gate_up.codes)  # frees the bf16 half before the other is quantized
    method.finish(layer, gate_up, quantize_rows(layer.w2_weight.data, method.config.scale_mode))


def _alternate(x: torch.Tensor) -> torch.Tensor:
    """[E, 2 I, …] with all gates before all ups → gate, up, gate, up."""
    return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2).contiguous()
