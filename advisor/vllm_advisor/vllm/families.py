"""Which reasoning and tool-call parser a model family speaks: a table, the first row that fits wins.

A parser turns a model's own markup into the API's `reasoning` and `tool_calls`; vLLM picks none by itself (but for
gpt-oss, whose reasoning parser its config class sets: 0.33.0 model_executor/models/config.py:546). Where a family has
several names, the first that the version registers is taken.

Sources: `docs` are docs/features/tool_calling.md and reasoning_outputs.md of vLLM; `org/name` is that file below
models/ of vllm-project/recipes; `*.py` is a path in vLLM.
"""

# ruff: noqa: E501  (an aligned row a family)

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.model import ModelSpec

# A pretrained model has no chat template, and so nothing that a parser could read.
_PRETRAINED = re.compile(r"-(base|pt)\b", re.IGNORECASE)


class Family(NamedTuple):
    """`architectures` are prefixes, `pattern` must be found in the checkpoint's or the base model's name (any case).

    `reasoning`, `tools`: names in order of preference; "" is none. All but `pattern` and `source` are lists of words.
    """

    architectures: str
    pattern: str
    reasoning: str
    tools: str
    source: str


# fmt: off
_QWEN3 = "Qwen3For Qwen3MoeFor Qwen3NextFor Qwen3VLFor Qwen3VLMoeFor"
_MISTRAL = "MistralFor Mistral3For MistralLarge3 Mixtral Pixtral"
_GLM4 = "Glm4Moe Glm4vMoe"
_DEEPSEEK = "DeepseekV3For"
_GRANITE = "GraniteFor GraniteMoeHybrid"
FAMILIES = (
    #      architectures          name                     reasoning        tools                    source
    Family("GptOss",              r"",                     "",              "openai",                "docs"),
    Family("LlamaFor Qwen2For Qwen3For", r"R1-Distill|R1-0528-", "deepseek_r1", "",                "docs"),
    Family(_DEEPSEEK,             r"Kimi-K2-Thinking",     "kimi_k2",       "kimi_k2",               "reasoning/kimi_k2_reasoning_parser.py"),
    Family(_DEEPSEEK,             r"Kimi-K2",              "",              "kimi_k2",               "docs"),
    Family(_DEEPSEEK,             r"R1-0528",              "deepseek_r1",   "deepseek_v3",           "docs"),
    Family(_DEEPSEEK,             r"DeepSeek-R1",          "deepseek_r1",   "",                      "docs"),
    Family(_DEEPSEEK,             r"V3\.1",                "deepseek_v3",   "deepseek_v31",          "docs"),
    Family(_DEEPSEEK,             r"V3-0324",              "",              "deepseek_v3",           "docs"),
    Family("DeepseekV32",         r"V3\.2(?!-Exp)",        "deepseek_v3",   "deepseek_v32",          "deepseek-ai/DeepSeek-V3.2"),
    Family("DeepseekV41",         r"",                     "deepseek_v41",  "deepseek_v41",          "reasoning/__init__.py"),
    Family("DeepseekV4For",       r"",                     "deepseek_v4",   "deepseek_v4",           "reasoning/__init__.py"),
    Family("Qwen3_5",             r"",                     "qwen3",         "qwen3_xml qwen3_coder", "Qwen/Qwen3.6-35B-A3B"),
    Family(_QWEN3,                r"Coder",                "",              "qwen3_xml qwen3_coder", "docs"),
    Family(_QWEN3,                r"Instruct",             "",              "hermes",                "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    Family(_QWEN3,                r"Qwen3",                "qwen3",         "hermes",                "Qwen/Qwen3-30B-A3B"),
    Family("Qwen2For",            r"QwQ",                  "deepseek_r1",   "hermes",                "docs"),
    Family("Qwen2For",            r"Qwen2\.5.*Instruct",   "",              "hermes",                "docs"),
    Family(_GLM4,                 r"4\.7",                 "glm47 glm45",   "glm47",                 "docs"),
    Family(_GLM4,                 r"",                     "glm45",         "glm45",                 "docs"),
    Family("GlmMoeDsa Glm5Next",  r"",                     "glm47 glm45",   "glm47",                 "zai-org/GLM-5.1"),
    Family("KimiK25",             r"",                     "kimi_k2",       "kimi_k2",               "reasoning/kimi_k2_reasoning_parser.py"),
    Family("KimiK3",              r"",                     "kimi_k3",       "kimi_k3",               "reasoning/__init__.py"),
    Family("MiniMaxM2",           r"",                     "minimax_m2",    "minimax_m2",            "MiniMaxAI/MiniMax-M2.5"),
    Family("MiniMaxM3",           r"",                     "minimax_m3",    "minimax_m3",            "MiniMaxAI/MiniMax-M3"),
    Family(_MISTRAL,              r"Magistral|Reasoning",  "mistral",       "mistral",               "mistralai/Ministral-3-8B-Reasoning-2512"),
    Family(_MISTRAL,              r"Small-4|Medium-3\.5",  "mistral",       "mistral",               "mistralai/Mistral-Medium-3.5-128B"),
    Family(_MISTRAL,              r"Ministral-.*Instruct", "",              "mistral",               "docs"),
    Family(_MISTRAL,              r"Mistral-(Small|Large|Nemo).*Instruct", "", "mistral",            "docs"),
    Family(_MISTRAL,              r"Instruct-v0\.3",       "",              "mistral",               "docs"),
    Family("Gemma4",              r"-it\b",                "gemma4",        "gemma4",                "reasoning/gemma4_engine_reasoning_parser.py"),
    Family("SeedOss",             r"Instruct",             "seed_oss",      "seed_oss",              "reasoning/__init__.py"),
    Family("Ernie4_5",            r"Thinking",             "ernie45",       "ernie45",               "docs"),
    Family("HunYuanMoEV1",        r"Instruct",             "hunyuan_a13b",  "hunyuan_a13b",          "docs"),
    Family("NemotronH",           r"Nemotron-3",           "nemotron_v3",   "qwen3_xml qwen3_coder", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"),
    Family("Step3p",              r"",                     "step3p5",       "step3p5",               "stepfun-ai/Step-3.5-Flash"),
    Family("MiMoV2",              r"",                     "qwen3",         "qwen3_xml qwen3_coder", "XiaomiMiMo/MiMo-V2-Flash"),
    Family(_GRANITE,              r"granite-4",            "",              "granite4",              "docs"),
    Family(_GRANITE,              r"granite-3.*instruct",  "",              "granite",               "docs"),
    Family("Jamba",               r"Jamba-1\.5",           "",              "jamba",                 "docs"),
    Family("Phi3For Phi4",        r"Phi-4-mini",           "",              "phi4_mini_json",        "tool_parsers/phi4mini_tool_parser.py"),
    Family("Llama4",              r"Instruct",             "",              "llama4_pythonic",       "docs"),
    Family("LlamaFor",            r"Hermes-[234]",         "",              "hermes",                "docs"),
    Family("LlamaFor Mllama",     r"Llama-3\.[123].*Instruct", "",          "llama3_json",           "docs"),
)
# fmt: on

# Tool calls of these names need one of vLLM's example chat templates (docs/features/tool_calling.md).
TEMPLATES = {
    "deepseek_v31": "tool_chat_template_deepseekv31.jinja",
    "deepseek_v3": "tool_chat_template_deepseekv3.jinja, or …deepseekr1.jinja for R1",
    "llama4_pythonic": "tool_chat_template_llama4_pythonic.jinja",
    "llama3_json": "tool_chat_template_llama3.1_json.jinja",
}

# Families whose repository holds code that vLLM asks leave to run: (architectures, name, what the code is, source).
REPOSITORY_CODE = (
    ("DeepseekV3For KimiK25 KimiLinear KimiK3", r"Kimi", "the tokenizer", "moonshotai/Kimi-Linear-48B-A3B-Instruct"),
    ("NemotronH", r"Nano-\d+B-v2", "the reasoning and tool-call parser", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"),
)


def family_of(model: ModelSpec) -> Family | None:
    """The family of a checkpoint, None where we know of no parser (or the model is only pretrained)."""
    if _PRETRAINED.search(_names(model)):
        return None
    return next((f for f in FAMILIES if _fits(model, f.architectures, f.pattern)), None)


def repository_code(model: ModelSpec) -> tuple[str, str] | None:
    """(what of the repository is code that has to run, source) where we know of it."""
    rows = (row for row in REPOSITORY_CODE if _fits(model, row[0], row[1]))
    return next(((what, source) for _, _, what, source in rows), None)


def _fits(model: ModelSpec, architectures: str, pattern: str) -> bool:
    prefixes = tuple(architectures.split())
    return model.architecture.startswith(prefixes) and bool(re.search(pattern, _names(model), re.IGNORECASE))


def _names(model: ModelSpec) -> str:
    return f"{model.name} {model.base_model}"
