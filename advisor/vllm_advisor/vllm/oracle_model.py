"""A folder that vLLM takes for a model: its config.json and a tokenizer of bytes; no weights, no code of a repository.

A configuration class that only the repository has (`auto_map`) is never run: the child puts a plain one in its place,
which holds the published values and computes nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


# Read by the child: the repository brings code for this configuration.
CODE = "needs_repository_code"
# How Kimi's image processor cuts pictures: asked for while configuring, of no weight for any kernel. Sizes as in its
# vision_config where that has them; the limits are round numbers.
_PICTURES = {
    "patch_size": 14, "merge_kernel_size": 2, "temporal_merge_kernel_size": 4, "in_patch_limit": 4096,
    "in_patch_limit_each_frame": 4096, "in_patch_limit_video": 4096, "patch_limit_on_one_side": 512,
    "fixed_output_tokens": None, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "sample_fps": 2.0,
    "max_num_frames_each_video": None, "timestamp_mode": "hh:mm:ss.fff",
}  # fmt: skip
# ModelOpt up to 0.29 wrote its part into a file of its own (transformers_utils/config.py:955); as a key it is meant so.
_BESIDE = "hf_quant_config"
# What vLLM's reasoning and tool parsers look up in a vocabulary when they are made (vllm/reasoning, vllm/tool_parsers).
_MARKS = (
    "<think>", "</think>", "<seed:think>", "</seed:think>", "<mm:think>", "</mm:think>", "[THINK]", "[/THINK]",
    "<|channel>", "<channel|>", "<|channel|>", "<|start|>", "<|message|>", "<|end|>", "<|START_THINKING|>",
    "<|END_THINKING|>", "<response>", "</response>", "<tool_call>", "</tool_call>", "<|tool_call|>", "[TOOL_CALLS]",
    "<|begin_of_box|>", "<|end_of_box|>", "<|eom|>", "<|eot|>", "<|open|>", "<|close|>", "<|sep|>", "<eos>", "<bos>",
)  # fmt: skip


def write(config: Mapping[str, Any], folder: Path) -> Path:
    """Write the config of a model as published, less what names code, and a tokenizer; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in config.items() if not name.startswith("_") and name != "auto_map"}
    kept |= {CODE: True} if config.get("auto_map") else {}
    beside = kept.pop(_BESIDE, None)
    for name, value in (
        ("config.json", kept),
        *(((f"{_BESIDE}.json", beside),) if beside else ()),
        *((("preprocessor_config.json", {"media_proc_cfg": _PICTURES}),) if "vision_config" in config else ()),
        ("tokenizer.json", _tokenizer()),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"}),
    ):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def renamed(argv: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """`vllm serve MODEL flags…` about the folder instead of the name."""
    return (*argv[:2], str(folder), *argv[3:])


def _tokenizer() -> dict[str, Any]:
    """One token a byte, and the marks: any text has tokens, and no parser misses its own."""
    letters = _byte_letters()
    first = len(letters)
    marks = [
        {"id": first + i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, text in enumerate(_MARKS)
    ]  # fmt: skip
    by_byte = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": marks,
        "normalizer": None,
        "pre_tokenizer": by_byte,
        "post_processor": None,
        "decoder": by_byte,
        "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(letters)}, "merges": []},
    }


def _byte_letters() -> list[str]:
    """The letter of each byte in byte-level BPE: itself if it prints, else one from 256 on."""
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printing]
    return [chr(b) for b in printing] + [chr(256 + i) for i in range(len(others))]
