"""Which experts one rank holds under a plan: the numbers of the file's name, and those that vLLM's defaults hang on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_advisor.vllm import schemes
from vllm_tuner.vllm_configs.names import ExpertsFile


if TYPE_CHECKING:
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

_BLOCK = (128, 128)  # what an online fp8_per_block makes (quantization/online/fp8.py:300)
_GROUP = 128
_FP8 = ("fp8_tensor", "fp8_tensor_dynamic", "fp8_channel", "fp8_block")
_INT8_WEIGHT_ONLY = ("experts_int8", "int8_per_channel_weight_only")


class Shape(NamedTuple):
    """The problem of one rank's experts, as vLLM's loader and its defaults are asked about it.

    `experts` (E) on the rank; `width` (N) in the file's name; `hidden` (K) inputs of the first product; `top_k` experts
    a token; `intermediate`: an expert's real width on the rank, from which `width` differs where weights are packed.
    `dtype` as in the file's name. `block`: (n, k) of the scales; n is 0 for groups along k, and then not in the name.
    """

    experts: int
    width: int
    hidden: int
    top_k: int
    intermediate: int
    dtype: str | None = None
    block: tuple[int, int] | None = None

    def file(self, device: str) -> ExpertsFile:
        """The name for a device, given as it stands in a name (`names.device_part`)."""
        block = self.block if self.block and all(self.block) else None
        return ExpertsFile(self.experts, self.width, device, self.dtype, block)


def shapes(
    model: ModelSpec, plan: Plan, surface: Surface, backend: str | None, *, redundant_experts: int = 0
) -> tuple[Shape, ...]:
    """The shapes that ranks of this plan hold; two where experts do not divide evenly over the ranks.

    `backend`: the experts' kernel, since some hold weights in another form than stored. `redundant_experts`: copies
    that EPLB adds. Raises BadInput for a model without experts, and for experts that the ranks cannot share.
    """
    if model.moe is None:
        raise BadInput(
            f"{model.name} has no experts: vLLM's tuned files are for its MoE kernel", "nothing to tune here"
        )
    dtype, block = arithmetic(model, plan, backend)
    real = _intermediate(model, plan, block)
    width = real // 2 if _is_packed(model, plan, surface, backend) else real
    width = real * 2 if backend == "EMULATION" and dtype == "int4_w4a16" else width
    return tuple(
        Shape(local, width, model.hidden_size, model.moe.experts_per_token, real, dtype, block)
        for local in _local_experts(model.moe.num_experts + redundant_experts, plan.expert_parallel_size)
    )


def _local_experts(experts: int, ranks: int) -> tuple[int, ...]:
    """The first `experts % ranks` ranks hold one more (fused_moe/expert_map_manager.py:67-70)."""
    if experts < ranks:
        raise BadInput(f"{experts} experts do not reach {ranks} ranks", "use fewer ranks, or --no-ep")
    base, rest = divmod(experts, ranks)
    return (base + 1, base) if rest else (base,)


def _intermediate(model: ModelSpec, plan: Plan, block: tuple[int, int] | None) -> int:
    """One expert's width on a rank. Without expert parallelism TP and DP ranks split it all together.

    fused_moe/config.py:1106-1114: `flatten_tp_across_dp_and_pcp`; online block scales round it up to whole blocks
    (quantization/online/fp8.py:677-695).
    """
    size = model.moe.intermediate_size if model.moe else 0
    ranks = 1 if plan.enable_expert_parallel else plan.tensor_parallel_size * plan.data_parallel_size
    if size % ranks:
        raise BadInput(
            f"an expert's {size} columns do not split {ranks} ways", "choose a --tp that divides it, or --ep"
        )
    share = size // ranks
    if not block or not block[0] or share % block[0] == 0:
        return share
    if schemes.converts_online(model, plan):
        return -(-share // block[0]) * block[0]
    raise BadInput(
        f"an expert's {share} columns on a rank are no whole blocks of {block[0]}: vLLM refuses such a split",
        "choose a smaller --tp, or --ep",
    )


def _is_packed(model: ModelSpec, plan: Plan, surface: Surface, backend: str | None) -> bool:
    """NVFP4's emulation asks with the packed weight, two elements a byte; 0.24 and 0.25 unpacked it before asking.

    fused_moe/experts/nvfp4_emulation_moe.py:453-460.
    """
    nvfp4 = schemes.expert_scheme(model, plan).startswith("nvfp4")
    return backend == "EMULATION" and nvfp4 and surface.at_least(0, 26)


def arithmetic(model: ModelSpec, plan: Plan, backend: str | None = None) -> tuple[str | None, tuple[int, int] | None]:
    """(dtype as in the name, block of the scales) of the experts (fused_moe/config.py:42-73, :302-310).

    Formats that no name knows (INT8 activations, MXFP4, MXFP8, NVFP4) are asked for without a dtype.
    """
    scheme = schemes.expert_scheme(model, plan)
    if scheme in _FP8:
        return "fp8_w8a8", (model.quantization.block or _BLOCK) if scheme == "fp8_block" else None
    if scheme.startswith("int4"):
        group = 32 if scheme == "int4_g32" else model.quantization.group_size or _GROUP
        return "int4_w4a16", None if backend == "EMULATION" else (0, group)
    if _int8_weight_only(model, plan):
        return "int8_w8a16", (0, model.quantization.group_size) if model.quantization.group_size > 0 else None
    return ("float32" if scheme == "bf16" and model.dtype == "float32" else None), None


def _int8_weight_only(model: ModelSpec, plan: Plan) -> bool:
    stored = model.quantization
    online = plan.quantization in _INT8_WEIGHT_ONLY
    return online or (schemes.expert_scheme(model, plan) == "int8" and stored.activation_bits == 16)
