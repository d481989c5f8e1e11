"""Which reader knows which model_type or architecture. What is not here is unknown, and said to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model import families_deepseek_v4 as v4
from vllm_advisor.model import families_deepseek_v41 as v41
from vllm_advisor.model import families_dense as dense
from vllm_advisor.model import families_gemma as gemma
from vllm_advisor.model import families_hybrid as hybrid
from vllm_advisor.model import families_kda as kda
from vllm_advisor.model import families_mixed as mixed
from vllm_advisor.model import families_mla as mla
from vllm_advisor.model import families_moe as moe


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


class Family(NamedTuple):
    """A reader: fills a sheet from the outer config and the text config."""

    read: Callable[[Sheet, Fields, Fields], None]


def _row(row: dense.Dense) -> Family:
    return Family(lambda s, config, f: dense.dense(s, config, f, row))


READERS: Mapping[str, Callable[[Sheet, Fields, Fields], None]] = {
    "qwen2": dense.qwen2, "mimo": dense.mimo, "opt": dense.opt, "gpt2": dense.gpt2, "falcon": dense.falcon,
    "chatglm": dense.chatglm, "nemotron-nas": dense.nemotron_nas, "deci": dense.nemotron_nas, "qwen2_vl":
    dense.qwen2, "qwen2_5_vl": dense.qwen2, "qwen2_5_omni_text": dense.qwen2, "mixtral": moe.mixtral, "qwen2_moe":
    moe.qwen2_moe, "qwen3_moe": moe.qwen3_moe, "qwen3_vl_moe_text": moe.qwen3_moe, "qwen3_omni_moe_text":
    moe.qwen3_moe, "glm4_moe": moe.glm4_moe, "glm4v_moe_text": moe.glm4_moe, "gpt_oss": moe.gpt_oss, "llama4_text":
    moe.llama4, "llama4": moe.llama4, "minimax_m2": mixed.minimax_m2, "minimax_m3": mixed.minimax_m3,
    "minimax_m3_vl": mixed.minimax_m3, "mimo_v2_flash": mixed.mimo_v2, "mimo_v2": mixed.mimo_v2, "ernie4_5_moe":
    moe.ernie4_5_moe, "granitemoe": moe.granitemoe, "granitemoeshared": moe.granitemoe, "hunyuan_v1_moe":
    moe.hunyuan_moe, "olmoe": moe.olmoe, "phimoe": moe.phimoe, "step3p5": mixed.step3p5, "step3p7": mixed.step3p5,
    "deepseek_v2": mla.deepseek, "deepseek_v3": mla.deepseek, "deepseek_v32": mla.deepseek, "kimi_k2": mla.deepseek,
    "glm_moe_dsa": mla.deepseek, "glm4_moe_lite": mla.deepseek, "mistral4": mla.deepseek, "minicpm3": mla.minicpm3,
    "deepseek_v4": v4.deepseek_v4, "deepseek_v41_text": v41.deepseek_v41, "deepseek_v41": v41.deepseek_v41,
    "qwen3_next": hybrid.qwen3_next, "qwen3_5_text": hybrid.qwen3_5, "qwen3_5_moe_text": hybrid.qwen3_5,
    "nemotron_h": hybrid.nemotron_h, "falcon_h1": hybrid.falcon_h1, "granitemoehybrid": hybrid.granite_hybrid,
    "jamba": hybrid.jamba, "mamba": hybrid.mamba, "falcon_mamba": hybrid.mamba, "mamba2": hybrid.pure_mamba2,
    "minimax_m1": mixed.minimax_01, "minimax_text_01": mixed.minimax_01, "minimax": mixed.minimax_01, "kimi_linear":
    kda.kimi_linear, "glm5_next_text": kda.glm5_next, "gemma4_text": gemma.gemma4, "gemma4_unified_text":
    gemma.gemma4, "gemma4": gemma.gemma4, "gemma3n_text": gemma.gemma3n,
}  # fmt: skip

# For configs with a model_type of their own; vLLM goes by the architecture (model_executor/models/registry.py).
ARCHITECTURES: Mapping[str, str] = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM":
    "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe", "MixtralForCausalLM": "mixtral", "DeepseekV2ForCausalLM":
    "deepseek_v2", "DeepseekV3ForCausalLM": "deepseek_v3", "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3_text",
    "GptOssForCausalLM": "gpt_oss", "Phi3ForCausalLM": "phi3", "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "NemotronHForCausalLM": "nemotron_h", "DeciLMForCausalLM": "nemotron-nas", "InternLM3ForCausalLM":
    "internlm3", "IQuestCoderForCausalLM": "llama", "LLaMAForCausalLM": "llama", "TeleChat3ForCausalLM": "llama",
    "MiniMaxM3SparseForCausalLM": "minimax_m3",
}  # fmt: skip


def find(model_type: str, architecture: str) -> Family | None:
    """The family of a model, by its model_type, else by its architecture; None when neither is known."""
    for key in (model_type, ARCHITECTURES.get(architecture, "")):
        if key in READERS:
            return Family(READERS[key])
        if key in dense.DENSE:
            return _row(dense.DENSE[key])
    return None
