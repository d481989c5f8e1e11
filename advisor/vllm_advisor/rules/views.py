"""How rules read a case: the words that many predicates share, each a cheap function of the case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.vllm import backends, schemes


if TYPE_CHECKING:
    from vllm_advisor.facts import Case
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.vllm.backends import Arithmetic

# Converts experts only; linear layers stay as they are (quantization/online/base.py `_ONLINE_LINEAR_METHODS`).
EXPERTS_ONLY = frozenset(("int8_per_channel_weight_only", "nvfp4_per_token"))
# Methods whose checkpoints hold quantized experts and unquantized linear layers (quantization/mxfp4.py:55).
EXPERT_METHODS = frozenset(("mxfp4", "gpt_oss_mxfp4", "experts_int8"))
FOUR_BIT = frozenset(("int4", "nvfp4", "nvfp4_mixed", "mxfp4"))
FP8_SCHEMES = frozenset(("fp8_tensor", "fp8_channel", "fp8_block"))
EIGHT_BIT = FP8_SCHEMES | {"int8", "mxfp8"}
FP8_KV = frozenset(("fp8", "fp8_e4m3", "fp8_e5m2"))
SIXTEEN_BIT_KV = frozenset(("auto", "float16", "bfloat16"))
# Attention of one KV head a group of query heads; `mla` and `compressed` keep one latent for all heads instead.
HEADED = frozenset(("full", "sliding", "chunked"))


_last: list[tuple[Node, Gpu]] = []


def gpu(case: Case) -> Gpu:
    """The device that limits; the last answer is kept, since a search asks about one node very often."""
    node = case.facts.node
    if not _last or _last[0][0] is not node:
        _last[:] = [(node, node.gpu)]
    return _last[0][1]


def arch(case: Case) -> str:
    """Architecture of the device that limits."""
    return gpu(case).arch


def scheme(case: Case) -> str:
    """How the weights are stored while serving: by the online flag, or else by the checkpoint."""
    return schemes.scheme_of(case.facts.model, case.plan)


def converts_online(case: Case) -> bool:
    """Whether vLLM quantizes the weights while loading."""
    return schemes.converts_online(case.facts.model, case.plan)


def kv_dtype(case: Case) -> str:
    """The cache's dtype: `auto` follows what the checkpoint asks for (utils/torch_utils.py:498-516)."""
    asked = case.plan.kv_cache_dtype
    return (case.facts.model.quantization.kv_cache_dtype or "auto") if asked == "auto" else asked


def is_sparse(case: Case) -> bool:
    """Whether an indexer picks which tokens attention reads (DeepSeek V3.2, MiniMax-M3)."""
    for cache in case.facts.model.caches:  # noqa: SIM110 - any() is three times slower, and this runs for every plan
        if cache.kind == "indexer":
            return True
    return False


def linear_scheme(case: Case) -> str:
    """Scheme of the linear layers: BF16 where only the experts are quantized."""
    only = case.plan.quantization in EXPERTS_ONLY if converts_online(case) else _experts_only(case)
    return "bf16" if only else scheme(case)


def _experts_only(case: Case) -> bool:
    return case.facts.model.quantization.method in EXPERT_METHODS


def linear_arithmetic(case: Case) -> Arithmetic:
    """What the linear layers multiply in."""
    return backends.arithmetic(
        case.facts.vllm, arch(case), linear_scheme(case), moe=False, aiter=schemes.uses_aiter(case.plan)
    )


def expert_arithmetic(case: Case) -> Arithmetic | None:
    """What the experts multiply in, None for a dense model."""
    model = case.facts.model
    if model.moe is None:
        return None
    return backends.arithmetic(
        case.facts.vllm,
        arch(case),
        scheme(case),
        moe=True,
        aiter=schemes.aiter_experts(case.plan),
        activation=model.moe.activation,
        expert_parallel=case.plan.enable_expert_parallel,
        model_type=model.model_type,
    )


def main_arithmetic(case: Case) -> Arithmetic:
    """Of the part that holds most weights: the experts where there are any."""
    return expert_arithmetic(case) or linear_arithmetic(case)


def needed_tokens(case: Case) -> int:
    """The longest request that the workload names."""
    load = case.facts.workload
    return max(load.context, load.input_tokens + load.output_tokens)


def publisher(name: str) -> str:
    """`Qwen` of `Qwen/Qwen3-32B-FP8`."""
    return name.partition("/")[0].lower()
