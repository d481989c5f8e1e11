"""Linear layers in MXFP4: column, row, merged and replicated ones, split by tensor parallelism as vLLM does.

Sharded inputs are cut between blocks: K of a rank has to divide by 32. Where it does not, a plain checkpoint's layer
stays in bf16 (one line of the log), and a packed one cannot be loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.linear import (  # type: ignore[import-not-found]
    LinearMethodBase,
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.model_loader.reload.layerwise import (  # type: ignore[import-not-found]
    initialize_online_processing,
)
from vllm.model_executor.parameter import (  # type: ignore[import-not-found]
    GroupQuantScaleParameter,
    ModelWeightParameter,
    PackedvLLMParameter,
)
from vllm.model_executor.utils import replace_parameter  # type: ignore[import-not-found]

from vllm_mx_kernels import vllm_ops
from vllm_mx_kernels.checkpoint_rules import NAME
from vllm_mx_kernels.formats import BLOCK
from vllm_mx_kernels.mxfp4 import Mxfp4
from vllm_mx_kernels.vllm_loading import LOGGER, folded_exponents, quantize_rows


if TYPE_CHECKING:
    from vllm_mx_kernels.vllm_config import AdvisorMxfp4Config

# vLLM clears a flag of this name before it loads a layer again.
_DONE = "_already_called_process_weights_after_loading"


@register_weight_loader_v2_supported_method
class AdvisorMxfp4LinearMethod(LinearMethodBase):  # type: ignore[misc]
    """The layers of a checkpoint that `advisor-quantize` wrote: `weight` and `weight_scale`, both uint8."""

    def __init__(self, config: AdvisorMxfp4Config) -> None:
        self.config = config

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        """VLLM's hook. Raises ValueError where a rank's share of K is no whole number of blocks."""
        del output_size
        if input_size_per_partition % BLOCK:
            message = f"{input_size} inputs split into {input_size_per_partition} a rank, and a block is {BLOCK}"
            raise ValueError(f"{NAME}: {layer.prefix} cannot be split like this: {message}")
        _describe(layer, input_size_per_partition, output_partition_sizes, params_dtype)
        self._create(layer, sum(output_partition_sizes), input_size_per_partition, params_dtype, extra["weight_loader"])
        self.config.tally.created += 1

    def _create(self, layer: torch.nn.Module, n: int, k: int, dtype: torch.dtype, loader: Any) -> None:
        del dtype
        dims = {"input_dim": 1, "output_dim": 0, "weight_loader": loader}
        codes, scales = (torch.empty(n, k // per, dtype=torch.uint8) for per in (2, BLOCK))
        layer.register_parameter("weight", PackedvLLMParameter(data=codes, packed_dim=1, packed_factor=2, **dims))
        layer.register_parameter("weight_scale", GroupQuantScaleParameter(data=scales, **dims))

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """VLLM's hook; it may come again for a layer that is ready."""
        if getattr(layer, _DONE, False):
            return
        self._finish(layer, Mxfp4(layer.weight.data, layer.weight_scale.data))

    def _finish(self, layer: torch.nn.Module, weight: Mxfp4) -> None:
        replace_parameter(layer, "weight", weight.codes)
        replace_parameter(layer, "weight_scale", weight.scales)
        exponents = folded_exponents([weight]) if self.config.may_fold else []
        if exponents:
            replace_parameter(layer, "weight_row_exponents", exponents[0])
        self.config.tally.add([weight], folded=bool(exponents))
        setattr(layer, _DONE, True)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """X [..., K] → [..., N] in x's dtype."""
        exponents = getattr(layer, "weight_row_exponents", None)
        y = vllm_ops.linear_mxfp4(x.reshape(-1, x.shape[-1]), layer.weight, layer.weight_scale, bias, exponents)
        return y.view(*x.shape[:-1], y.shape[-1])


@register_weight_loader_v2_supported_method
class AdvisorMxfp4OnlineLinearMethod(AdvisorMxfp4LinearMethod):
    """The layers of a bf16 or fp16 checkpoint: made on the meta device, quantized one by one as they arrive."""

    uses_meta_device = True

    def create_weights(self, layer: torch.nn.Module, input_size_per_partition: int, *sizes: Any, **extra: Any) -> None:
        """VLLM's hook. A layer whose share of K is no whole number of blocks becomes an unquantized one."""
        if input_size_per_partition % BLOCK == 0:
            super().create_weights(layer, input_size_per_partition, *sizes, **extra)
            return
        LOGGER.warning("%s: %s stays in bf16: %d inputs a rank", NAME, layer.prefix, input_size_per_partition)
        layer.quant_method = UnquantizedLinearMethod()
        layer.quant_method.create_weights(layer, input_size_per_partition, *sizes, **extra)

    def _create(self, layer: torch.nn.Module, n: int, k: int, dtype: torch.dtype, loader: Any) -> None:
        data = torch.empty(n, k, dtype=dtype, device="meta")
        weight = ModelWeightParameter(data=data, input_dim=1, output_dim=0, weight_loader=loader)
        layer.register_parameter("weight", weight)
        initialize_online_processing(layer)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """VLLM's hook, called when the last piece of the layer has arrived, and again at the end."""
        if getattr(layer, _DONE, False):
            return
        self._finish(layer, quantize_rows(layer.weight.data, self.config.scale_mode))


def _describe(layer: torch.nn.Module, k: int, widths: list[int], dtype: torch.dtype) -> None:
    """What other parts of vLLM read from a layer."""
    layer.logical_widths = widths
    layer.input_size_per_partition = k
    layer.output_size_per_partition = sum(widths)
    layer.orig_dtype = dtype
