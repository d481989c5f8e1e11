"""A checkpoint beside the model's: the same weights by link, plus the scales that vLLM takes only from a checkpoint.

Two forms. `fp8` (the default) is right on every target: quant_method fp8 with every matrix in its ignore list, so that
nothing but the cache is FP8 and vLLM's Fp8KVCacheMethod loads the scales, doubling them itself where the hardware has
e4m3fnuz. `compressed-tensors` has a kv_cache_scheme and no groups, as llm-compressor writes it; with it the cache
becomes FP8 without a flag, but its method (CompressedTensorsKVCacheMethod, 0.24 to 0.33) does not double the scales, so
on gfx94x keys beyond 240 × scale saturate.

The original folder is only read. In the new one weights are symbolic links, the scales one small shard, and
config.json, which makes it a model, comes last.
"""

from __future__ import annotations

import json
import shutil
import struct
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import BadInput
from vllm_tuner import kernels


if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vllm_tuner.calibrate.scales import LayerScales

SHARD = "kv-scales.safetensors"
INDEX = "model.safetensors.index.json"
RECORD = "calibration.json"
# Beside the weights: tokenizer, generation defaults, chat template, licence.
_BESIDE = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "LICENSE*", "README.md")
KV_CACHE_SCHEME = {
    "num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True, "observer": "minmax",
}  # fmt: skip


class Form(StrEnum):
    """How the scales are declared in config.json."""

    FP8 = "fp8"
    COMPRESSED_TENSORS = "compressed-tensors"


def tensor_names(layer: int) -> tuple[str, str, str]:
    """k, v and q scale of a layer: vLLM puts `.attn` in front of the last part (maybe_remap_kv_scale_name)."""
    k, v, q = (f"model.layers.{layer}.self_attn.{kind}_scale" for kind in "kvq")
    return k, v, q


def write(
    source: Path, out: Path, scales: Sequence[LayerScales], form: Form = Form.FP8, *, record: Any = None,
    copy: bool = False,
) -> None:  # fmt: skip
    """Write the overlay. `record` goes into calibration.json: what was measured. `copy`: no links, whole files.

    Raises BadInput when `out` holds something or the model is no plain one, OSError as the disk does.
    """
    files: Any = kernels.module("checkpoint_files")
    check_free(out)
    shards, entries = _entries(source)
    out.mkdir(parents=True, exist_ok=True)
    for path in _beside(source, shards):
        _place(path, out / path.name, copy=copy)
    _write_shard(out / SHARD, scales)
    files.write_json(out / INDEX, _index(entries, scales))
    if record is not None:
        files.write_json(out / RECORD, record)
    config = json.loads((source / "config.json").read_bytes())
    matrices = [entry.name for _, entry in entries if len(entry.shape) > 1]
    files.write_json(out / "config.json", config | {"quantization_config": quantization(form, matrices)})


def check_free(out: Path) -> None:
    """Raises BadInput unless `out` is a folder that is new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is there already and holds something", "name a new folder, or an empty one")


def _entries(source: Path) -> tuple[list[str], list[tuple[str, Any]]]:
    """The model's shards, and each tensor with the shard that it is in."""
    files: Any = kernels.module("checkpoint_files")
    try:
        shards: list[str] = kernels.module("checkpoint_plan").shard_names(source)
        return shards, [(shard, entry) for shard in shards for entry in files.read_header(source / shard)]
    except ValueError as error:
        raise BadInput(str(error)) from error


def _place(path: Path, new: Path, *, copy: bool) -> None:
    if copy:
        shutil.copyfile(path, new)
    else:
        new.symlink_to(path.resolve())


def _index(entries: Sequence[tuple[str, Any]], scales: Sequence[LayerScales]) -> dict[str, Any]:
    names = [name for layer in scales for name in tensor_names(layer.layer)]
    size = sum(entry.size for _, entry in entries) + 4 * len(names)
    held = {entry.name: shard for shard, entry in entries} | dict.fromkeys(names, SHARD)
    return {"metadata": {"total_size": size}, "weight_map": held}


def _beside(source: Path, shards: Sequence[str]) -> list[Path]:
    beside = {path.name: path for pattern in _BESIDE for path in source.glob(pattern) if path.is_file()}
    for ours in ("config.json", INDEX, RECORD):
        beside.pop(ours, None)
    return [*(source / shard for shard in shards), *(beside[name] for name in sorted(beside))]


def _write_shard(path: Path, scales: Sequence[LayerScales]) -> None:
    """One float32 a scale, of shape [1], which the loaders of both forms take."""
    files: Any = kernels.module("checkpoint_files")
    values = {name: value for s in scales for name, value in zip(tensor_names(s.layer), (s.k, s.v, s.q), strict=True)}
    header, entries = files.layout(dict.fromkeys(values, ("F32", (1,))))
    with files.replacing(path) as file:
        file.write(header)
        for entry in entries:
            file.seek(entry.begin)
            file.write(struct.pack("<f", values[entry.name]))


def quantization(form: Form, matrices: Sequence[str]) -> dict[str, Any]:
    """The `quantization_config`. `matrices`: the names of all weights that might be quantized, and are not."""
    if form is Form.COMPRESSED_TENSORS:
        return {
            "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
            "config_groups": {}, "ignore": [], "kv_cache_scheme": KV_CACHE_SCHEME,
        }  # fmt: skip
    return {
        "quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ignored(matrices),
        "kv_cache_scheme": KV_CACHE_SCHEME,
    }  # fmt: skip


def ignored(matrices: Sequence[str]) -> list[str]:
    """Every module, and each stack of experts by the name that vLLM's layer has."""
    modules = {name.removesuffix(".weight") for name in matrices}
    stacks = {f"{module.partition('.experts.')[0]}.experts" for module in modules if ".experts." in module}
    return sorted({module for module in modules if ".experts." not in module} | stacks)


def serve_command(out: str) -> str:
    """The command that uses the scales; `out` as the shell takes it."""
    return f"vllm serve {out} --kv-cache-dtype fp8"
