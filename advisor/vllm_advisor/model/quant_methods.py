"""One reader for each `quant_method`: what its config keys say about storage.

Sources are vLLM's own loaders under model_executor/layers/quantization: fp8.py, fbgemm_fp8.py, auto_awq.py,
auto_gptq.py, compressed_tensors/, modelopt.py, mxfp4.py, quark/, inc.py (auto-round), torchao.py, and
models/deepseek_v4/quant_config.py.
bitsandbytes is read although vLLM 0.33.0 no longer loads it: 0.24.0 does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.patterns import Patterns
from vllm_advisor.model.quant_compressed import read_groups
from vllm_advisor.model.quantization import (
    BNB_INT8,
    BNB_NF4,
    FBGEMM,
    FP8_CHANNEL,
    FP8_TENSOR,
    MXFP4,
    MXFP8,
    NVFP4,
    NVFP4_W4A16,
    Format,
    Recipe,
    grouped_int,
)
from vllm_advisor.model.spec import Quantization


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm_advisor.model.fields import Fields


EXPERTS = Patterns(("experts",))
_IGNORE_KEYS = (
    "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude", "llm_int8_skip_modules",
)  # fmt: skip
_SUBSTRING_METHODS = frozenset(("awq", "auto_awq", "awq_marlin", "bitsandbytes", "bnb"))


def read_method(q: Fields, text: Fields) -> Recipe:
    """The recipe of one quantization config. An unknown method is a recipe that says so."""
    method = _method_name(q)
    ignored = tuple(name for key in _IGNORE_KEYS for name in _ignore_list(q, key))
    patterns = Patterns(ignored, substring=method in _SUBSTRING_METHODS)
    reader = _READERS.get(method)
    if reader is None:
        spec = Quantization(method, "other", 0, 16, ignored=ignored, kv_cache_dtype=_kv_dtype(q))
        return Recipe(spec, None, patterns, (), f"quantization method {method[:40]!r} is not known")
    default, named, dropped = reader(q, text)
    if q.has("moe_quant_algo"):  # what this list ignores is left in the base checkpoint's FP8, not in 16 bits
        patterns = Patterns(())
    elif dropped:
        patterns = Patterns((*ignored, *dropped), substring=method in _SUBSTRING_METHODS)
    main = _main_format(default, named)
    if method == "fp8" and text.text("model_type").startswith("deepseek_v4"):
        method = "deepseek_v4_fp8"  # as vLLM renames it (models/config.py:467)
    block = main.block if main and main.scheme == "fp8_block" else None
    spec = Quantization(
        method=method,
        scheme=_scheme(default, named),
        weight_bits=main.bits if main else 16,
        activation_bits=main.activation_bits if main else 16,
        group_size=main.block[1] if main and main.block[0] == 1 else 0,
        block=block,
        kv_cache_dtype=_kv_dtype(q),
        ignored=(*ignored, *dropped),
    )
    return Recipe(spec, default, patterns, tuple(named))


Read = tuple["Format | None", "list[tuple[Patterns, Format]]", "tuple[str, ...]"]


def _method_name(q: Fields) -> str:
    method = q.text("quant_method").lower().replace("_", "-") or ("modelopt" if q.has("quant_algo") else "unnamed")
    if method == "fp8" and q.text("quant_algo"):  # modelopt's DeepSeek-V4 experts in a file that says fp8
        return "modelopt"
    return _ALIASES.get(method, method)


_ALIASES: Mapping[str, str] = {
    "fbgemm-fp8": "fbgemm_fp8", "gpt-oss-mxfp4": "mxfp4", "modelopt-fp4": "modelopt", "modelopt-mxfp8": "modelopt",
    "modelopt-mixed": "modelopt", "deepseek-v4-fp8": "fp8", "auto-awq": "awq", "awq-marlin": "awq", "auto-gptq": "gptq",
    "gptq-marlin": "gptq", "compressed-sparse": "compressed-tensors", "experts-int8": "experts_int8",
    "inc": "auto-round", "intel/auto-round": "auto-round", "bnb": "bitsandbytes", "advisor-mxfp4": "advisor_mxfp4",
}  # fmt: skip


def _ignore_list(q: Fields, key: str) -> tuple[str, ...]:
    return (q.text(key),) if isinstance(q.raw(key), str) else q.texts(key)


def _kv_dtype(q: Fields) -> str | None:
    """What the checkpoint asks of the KV cache; `auto` resolves to it (vllm/utils/torch_utils.py:498-516)."""
    algo, scheme = q.raw("kv_cache_quant_algo"), q.raw("kv_cache_scheme")
    if isinstance(algo, str):
        return {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}.get(algo.upper(), algo.lower())
    if isinstance(scheme, str):
        return "fp8"
    if isinstance(scheme, dict):
        bits, kind = scheme.get("num_bits"), scheme.get("type")
        return "fp8" if (bits, kind) == (8, "float") else "nvfp4" if (bits, kind) == (4, "float") else "int8"
    export = q.raw("export")
    return "fp8" if isinstance(export, dict) and export.get("kv_cache_group") and scheme else None


def _main_format(default: Format | None, named: list[tuple[Patterns, Format]]) -> Format | None:
    if default is not None and not named:
        return default
    formats = [f for _, f in named] + ([default] if default else [])
    return min(formats, key=lambda f: f.bits) if formats else None


def _scheme(default: Format | None, named: list[tuple[Patterns, Format]]) -> str:
    schemes = {f.scheme for _, f in named} | ({default.scheme} if default else set())
    if not schemes:
        return "bf16"
    if len(schemes) == 1:
        return next(iter(schemes))
    return "nvfp4_mixed" if "nvfp4" in schemes else "mxfp4" if "mxfp4" in schemes else "other"


def _fp8(q: Fields, text: Fields) -> Read:
    block = q.ints("weight_block_size", 2, 1, 1 << 16)
    # DeepSeek V4: experts are FP4 unless said otherwise, and scales are one byte where they are
    # (models/deepseek_v4/quant_config.py); V3.2 says ue8m0 too, but stores fp32 scales.
    v4 = "fp4" if text.text("model_type").startswith("deepseek_v4") else ""
    fp4 = (q.text("expert_dtype") or text.text("expert_dtype") or v4) == "fp4"
    scale = 1.0 if fp4 and v4 else 4.0
    default = Format("fp8_block", 8, 8, (block[0], block[1]), scale) if block else FP8_TENSOR
    return default, [(EXPERTS, MXFP4)] if fp4 else [], ()


def _fbgemm(_q: Fields, _text: Fields) -> Read:
    return FBGEMM, [], ()


def _awq(q: Fields, _text: Fields) -> Read:
    bits = q.count("bits", "w_bit", default=4, high=16)
    group = _group(q, "group_size", "q_group_size")
    return grouped_int(bits, group, zeros=True), [], ()


def _gptq(q: Fields, _text: Fields) -> Read:
    bits, group = q.count("bits", default=4, high=16), _group(q, "group_size")
    default = grouped_int(bits, group, zeros=True, index=4)
    dynamic = q.sub("dynamic")
    named, dropped = [], []
    for rule in dynamic.keys() if dynamic else ():
        changed = dynamic.sub(rule) if dynamic else None
        if rule.startswith("-:"):
            dropped.append(f"re:{rule[2:]}")
        elif changed and changed.has("bits"):
            other = grouped_int(changed.count("bits", high=16), group, zeros=True, index=4)
            named.append((Patterns((f"re:{rule.removeprefix('+:')}",)), other))
    return default, named, tuple(dropped)


def _auto_round(q: Fields, _text: Fields) -> Read:
    bits, group = q.count("bits", default=4, high=16), _group(q, "group_size")
    named, dropped = [], []
    extra = q.sub("extra_config")
    for module in extra.keys() if extra else ():
        own = extra.sub(module) if extra else None
        if own and own.count("bits", default=bits, high=32) >= 16:
            dropped.append(module)
        elif own and own.count("bits", default=bits, high=32) != bits:
            named.append((Patterns((module,)), grouped_int(own.count("bits", high=32), group, zeros=True)))
    return grouped_int(bits, group, zeros=True), named, tuple(dropped)


def _group(q: Fields, *keys: str) -> int:
    """A group size; -1 or absent is one group along the whole input."""
    group = q.count(*keys, default=-1, low=-1)
    return max(0, group)


def _compressed_tensors(q: Fields, _text: Fields) -> Read:
    default, named = read_groups(q)
    return default, named, ()


_ALGOS: Mapping[str, Format | None] = {
    "FP8": FP8_TENSOR, "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL, "FP8_PB_WO": Format("fp8_block", 8, 8, (128,
    128), 4.0), "NVFP4": NVFP4, "W4A16_NVFP4": NVFP4_W4A16, "NVFP4_AWQ": NVFP4, "W4A8_NVFP4_FP8": NVFP4, "MXFP8":
    MXFP8, "MXFP4": MXFP4, "W4A8_MXFP4_FP8": MXFP4, "W4A16_AWQ": Format("int4", 4, 16, (1, 128), 2.0), "INT8_SQ":
    Format("int8", 8, 8, (1, 0), 4.0), "W4A8_AWQ": Format("int4", 4, 8, (1, 128), 2.0),
}  # fmt: skip


def _modelopt(q: Fields, text: Fields) -> Read:
    algo = q.text("quant_algo").upper()
    if algo == "NVFP4" and text.text("model_type") == "nemotron_h" and not any(q.has(k) for k in _IGNORE_KEYS):
        return None, list(_NEMOTRON_NVFP4), ("mtp",)
    if algo != "MIXED_PRECISION":
        return (_ALGOS.get(algo) or (NVFP4 if not algo else FP8_TENSOR)), [], ()
    by_algo: dict[str, list[str]] = {}
    layers = q.sub("quantized_layers")
    for module in layers.keys() if layers else ():
        if ".experts." in module and ".experts.0." not in module:
            continue  # one expert of a layer speaks for all
        own = layers.raw(module) if layers else None
        name = own.get("quant_algo") if isinstance(own, dict) else None
        if isinstance(name, str):
            by_algo.setdefault(name.upper(), []).append(module)
    named = [(Patterns(tuple(v)), stored) for k, v in by_algo.items() if (stored := _ALGOS.get(k))]
    # DeepSeek-V4: only the experts are modelopt's; the rest is the base checkpoint's block FP8 and is in `ignore`.
    moe = _ALGOS.get(q.text("moe_quant_algo").upper())
    block = q.ints("weight_block_size", 2, 1, 1 << 16)
    rest = Format("fp8_block", 8, 8, (block[0], block[1]), 1.0) if block and moe else None
    if not named and not moe:
        return NVFP4, [], ()
    return rest, named, ()


# Trimmed copies of NVIDIA's Nemotron 3 configs say NVFP4 without their module lists. This split, and drafts in 16 bits,
# gives Nemotron-3-Ultra-NVFP4 its published 328.13 GiB; NVFP4 throughout would be 9 % less.
_NEMOTRON_NVFP4 = (
    (Patterns(("mixer.experts",)), NVFP4),
    (Patterns(("mixer.in_proj", "mixer.out_proj", "mixer.shared_experts")), FP8_TENSOR),
)


def _mxfp4(_q: Fields, _text: Fields) -> Read:
    return None, [(EXPERTS, MXFP4)], ()


def _advisor_mxfp4(_q: Fields, _text: Fields) -> Read:
    return MXFP4, [], ()  # what stays in 16 bits is in `ignore` (vllm_mx_kernels/checkpoint_plan.py)


def _quark(q: Fields, _text: Fields) -> Read:
    glob = q.sub("global_quant_config")
    weight = glob.raw("weight") if glob else q.raw("weight")
    if isinstance(weight, list) and weight:
        weight = weight[0]
    text = str(weight.get("dtype")) if isinstance(weight, dict) else str(weight)[:40]
    per_channel = isinstance(weight, dict) and "channel" in str(weight.get("qscheme"))
    if "fp4" in text:
        return MXFP4._replace(activation_bits=4), [], ()
    if "fp8" in text:
        return (FP8_CHANNEL if per_channel else FP8_TENSOR), [], ()
    return (Format("int4", 4, 16, (1, 128), 2.5) if "int4" in text else Format("int8", 8, 8, (1, 0), 4.0)), [], ()


def _bitsandbytes(q: Fields, _text: Fields) -> Read:
    return (BNB_INT8 if q.flag("load_in_8bit") else BNB_NF4), [], ()


def _torchao(q: Fields, _text: Fields) -> Read:
    name = str(q.raw("quant_type")).lower()[:400]
    if "float8" in name:
        return (FP8_CHANNEL if "perrow" in name.replace("_", "") else FP8_TENSOR), [], ()
    if "int4" in name or "uint4" in name:
        return Format("int4", 4, 16, (1, 128), 4.0), [], ()
    return Format("int8", 8, 8 if "dynamic" in name else 16, (1, 0), 4.0), [], ()


def _experts_int8(_q: Fields, _text: Fields) -> Read:
    return None, [(EXPERTS, Format("int8", 8, 16, (1, 0), 4.0))], ()


def _mxfp8(_q: Fields, _text: Fields) -> Read:
    return MXFP8, [], ()


_READERS: Mapping[str, Callable[[Fields, Fields], Read]] = {
    "fp8": _fp8, "fbgemm_fp8": _fbgemm, "awq": _awq, "gptq": _gptq, "auto-round": _auto_round, "modelopt": _modelopt,
    "compressed-tensors": _compressed_tensors, "mxfp4": _mxfp4, "quark": _quark, "bitsandbytes": _bitsandbytes,
    "torchao": _torchao, "experts_int8": _experts_int8, "mxfp8": _mxfp8,
    "advisor_mxfp4": _advisor_mxfp4,
}  # fmt: skip
