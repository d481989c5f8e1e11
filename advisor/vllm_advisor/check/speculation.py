"""The speculative configuration: method, number of tokens, keys, and whether the checkpoint has the draft it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.loaded import draft
from vllm_advisor.check.nearest import nearest


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.model import ModelSpec

_CONFIG, _METHOD = "--speculative-config", "--spec-method"
# config/speculative.py SpeculativeMethod: 0.24.0 :34-69, 0.33.0 :38-82. Names that end in _mtp are old ones of mtp.
_COMMON = ("ngram", "ngram_gpu", "draft_model", "suffix", "custom_class", "eagle", "eagle3", "extract_hidden_states",
           "mtp", "dflash")  # fmt: skip
_UNTIL_32, _SINCE_33 = ("medusa", "mlp_speculator"), ("dspark",)
_MTP = (
    "deepseek_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp", "glm4_moe_lite_mtp", "glm_ocr_mtp", "ernie_mtp",
    "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp", "qwen3_next_mtp", "qwen3_5_mtp", "longcat_flash_mtp",
    "minimax_m3_mtp", "pangu_ultra_moe_mtp", "step3p5_mtp", "hy_v3_mtp", "gemma4_mtp",
)  # fmt: skip
_MTP_33 = (
    "dots3_note_mtp", "qwen4_exp_mtp", "bailing_hybrid_v3_mtp", "bailing_hybrid_mtp", "kimi_k3_mtp", "step5_mtp",
    "hy_v4_mtp", "inkling_mtp", "glm5_next_mtp",
)  # fmt: skip
# Fields of SpeculativeConfig that a user sets: 0.24.0 :75, and what 0.33.0 :407 added.
_KEYS = frozenset((
    "enforce_eager", "num_speculative_tokens", "model", "method", "draft_tensor_parallel_size", "tensor_parallel_size",
    "quantization", "moe_backend", "attention_backend", "max_model_len", "revision", "code_revision",
    "disable_padded_drafter_batch", "use_local_argmax_reduction", "prompt_lookup_max", "prompt_lookup_min",
    "parallel_drafting", "num_speculative_tokens_per_batch_size", "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
    "draft_load_config", "rejection_sample_method", "synthetic_acceptance_rates", "synthetic_acceptance_length",
    "draft_sample_method", "target_model_config", "target_parallel_config", "draft_model_config",
    "draft_parallel_config",
))  # fmt: skip
_KEYS_33 = frozenset((
    "kv_cache_dtype", "index_share_for_mtp_iteration", "disable_eagle_block_drop", "disable_lookahead_block_hashes",
    "draft_lm_head_quantization", "use_heterogeneous_vocab", "enable_adaptive_verification", "dspark_draft_topk",
    "xpress_topc", "fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k",
))  # fmt: skip
_NEEDS_NO_MODEL = ("mtp", "ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "dspark")
# Methods that know the number themselves: suffix (config/speculative.py:1299…), and a draft's own n_predict.
_KNOWS_NUMBER = ("suffix", "mtp", "dspark", "dflash", "mlp_speculator", "extract_hidden_states", "custom_class")


def findings(given: Asked, model: ModelSpec | None) -> tuple[Finding, ...]:
    """All of them; nothing where no speculation is asked for."""
    config = given.speculative
    if config is None:
        return ()
    return (*_method(given, config), *_number(given, config), *_keys(given, config), *_layers(given, model))


def _method(given: Asked, config: Mapping[str, object]) -> Iterator[Finding]:
    """Names checked where both ends of our surfaces agree, or the version is one of the ends."""
    method = config.get("method")
    if not isinstance(method, str):
        return
    if method in (*_MTP, *_MTP_33):
        text = f"speculative method {method} is an old name of mtp"
        change = mend.put(given, _METHOD, "mtp") if given.last(_METHOD) else None
        yield mend.said("SPC-02", text, given, _METHOD, _CONFIG, hint='"method": "mtp"', change=change)
    elif method not in _known(given):
        text = f"vLLM {given.surface.version} has no speculative method {method!r}"
        near = nearest(method, _known(given))
        hint = f"did you mean {near}?" if near else f"one of {', '.join(_known(given))}"
        yield mend.said("SPC-01", text, given, _METHOD, _CONFIG, hint=hint)


def _known(given: Asked) -> tuple[str, ...]:
    """Between 0.24 and 0.33 either end's names are taken: which release made the change was not read."""
    newest, oldest = given.surface.at_least(0, 33), given.surface.release[:2] == (0, 24)
    return (*_COMMON, "[ngram]", *(() if newest else _UNTIL_32), *(() if oldest else _SINCE_33))


def _number(given: Asked, config: Mapping[str, object]) -> Iterator[Finding]:
    method, has_model = str(config.get("method") or ""), bool(config.get("model"))
    counted = config.get("num_speculative_tokens") is not None
    known = draft(given) in _KNOWS_NUMBER or bool(config.get("num_speculative_tokens_per_batch_size"))
    if not counted and not known and (has_model or method):
        text = "speculative decoding without num_speculative_tokens"
        yield mend.said("SPC-03", text, given, _CONFIG, _METHOD, hint='"num_speculative_tokens": 3, for a start')
    if not has_model and draft(given) not in _NEEDS_NO_MODEL and method in ("", "eagle", "eagle3", "draft_model"):
        text = f"speculative method {method or 'draft_model'} needs a draft: no model is given"
        yield mend.said("SPC-06", text, given, _CONFIG, _METHOD, hint='"model": the draft\'s repository')


def _keys(given: Asked, config: Mapping[str, object]) -> Iterator[Finding]:
    known = _KEYS if given.surface.release[:2] == (0, 24) else _KEYS | _KEYS_33
    for key in sorted(set(config) - known):
        near = nearest(key, known)
        hint = f"did you mean {near}?" if near else "leave it out"
        text = f"{_CONFIG} has no key {key!r} in vLLM {given.surface.version}"
        yield mend.said("SPC-04", text, given, _CONFIG, hint=hint)


def _layers(given: Asked, model: ModelSpec | None) -> Iterator[Finding]:
    if model and draft(given) == "mtp" and not model.mtp_layers and not (given.speculative or {}).get("model"):
        text = f"speculative method mtp: {model.name} has no draft layers"
        hint = "eagle3 or draft_model with a draft, or ngram, which needs none"
        yield mend.said("SPC-05", text, given, _CONFIG, _METHOD, hint=hint)
