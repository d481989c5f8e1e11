"""How rules read a case: the words that many predicates share, each a cheap function of the case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.vllm import archs, backends, plugin, schemes


if TYPE_CHECKING:
    from vllm_advisor.facts import Case
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.model.spec import CacheGroup, ModelSpec
    from vllm_advisor.vllm.backends import Arithmetic

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


def attention(case: Case, cache: CacheGroup, dtype: str) -> tuple[str, ...]:
    """Backends that take this layer's cache in this dtype, in vLLM's order."""
    model, plan = case.facts.model, case.plan
    return backends.attention(
        case.facts.vllm,
        arch(case),
        cache,
        _resolved(case, dtype),
        aiter=schemes.uses_aiter(plan),
        sparse=is_sparse(case),
        mm_prefix=model.bidirectional_images,
        mixed_heads=model.model_type.startswith("gemma4") and _mixed_heads(model),
        tp=plan.tensor_parallel_size,
    )


def _mixed_heads(model: ModelSpec) -> bool:
    return len({cache.k_dim for cache in model.caches if cache.kind in HEADED}) > 1


def _resolved(case: Case, dtype: str) -> str:
    """The name by which vLLM's selector is asked.

    ModelOpt's FP8 is e4m3 to it (utils/torch_utils.py:78-81), and GLM's sparse attention takes that by itself on
    SM10x since 0.32 (models/config.py:88-100).
    """
    model = case.facts.model
    if dtype == "fp8" and case.plan.kv_cache_dtype == "auto" and model.quantization.method == "modelopt":
        return "fp8_e4m3"
    own = dtype == "auto" and model.model_type == "glm_moe_dsa" and arch(case) in archs.SM100F
    return "fp8_e4m3" if own and case.facts.vllm.at_least(0, 32) else dtype


def linear_schemes(case: Case) -> tuple[str, ...]:
    """Schemes of the linear layers, that of most layers first; bf16 where only the experts are quantized."""
    return schemes.linear_schemes(case.facts.model, case.plan)


def linear_scheme(case: Case) -> str:
    """Scheme of most linear layers that are quantized; bf16 where none is."""
    return linear_schemes(case)[0]


def expert_scheme(case: Case) -> str:
    """Scheme of the experts."""
    return schemes.expert_scheme(case.facts.model, case.plan)


def linear_arithmetic(case: Case) -> Arithmetic:
    """What most of the linear layers multiply in."""
    return _linear(case, linear_scheme(case))


def linear_arithmetics(case: Case) -> tuple[Arithmetic, ...]:
    """What the linear layers multiply in, one for each format that they have."""
    return tuple(_linear(case, scheme) for scheme in linear_schemes(case))


def _linear(case: Case, scheme: str) -> Arithmetic:
    model, plan = case.facts.model, case.plan
    if plugin.serves(model, plan):
        return plugin.arithmetic(arch(case), scheme)
    return backends.arithmetic(
        case.facts.vllm,
        arch(case),
        scheme,
        moe=False,
        aiter=schemes.uses_aiter(plan),
        model_type=model.model_type,
        method=schemes.method_of(model, plan),
    )


def expert_arithmetic(case: Case) -> Arithmetic | None:
    """What the experts multiply in, None for a dense model."""
    model = case.facts.model
    if model.moe is None:
        return None
    if plugin.serves(model, case.plan):
        return plugin.arithmetic(arch(case), expert_scheme(case))
    found = backends.arithmetic(
        case.facts.vllm,
        arch(case),
        expert_scheme(case),
        moe=True,
        aiter=schemes.aiter_experts(case.plan),
        activation=model.moe.activation,
        expert_parallel=case.plan.enable_expert_parallel,
        model_type=model.model_type,
    )
    return found._replace(compute_bits=16, native=False) if _unpacks_int8(case) else found


def _unpacks_int8(case: Case) -> bool:
    """INT8 experts whose inputs stay in 16 bits: the online flag's too (fused_moe/oracle/int8.py:204-212)."""
    if expert_scheme(case) != "int8":
        return False
    return converts_online(case) or case.facts.model.quantization.activation_bits == 16


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
