"""Load an overlay into vLLM's own model with vLLM's own loader, without an engine, and print the scales that it holds.

    python overlay_child.py FOLDER RESULT.json

An FP8 cache does not start on a CPU without AVX-512, so the model is built with its own cache dtype; the layers are
then told that theirs is FP8, and vLLM's method of the scales runs: once as on this platform, once as on one with
e4m3fnuz.
"""

import json
import os
import sys
import tempfile
from pathlib import Path


os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform


def main():
    torch.set_num_threads(1)
    config = EngineArgs(model=sys.argv[1], max_model_len=128, enforce_eager=True).create_engine_config()
    with set_current_vllm_config(config), tempfile.TemporaryDirectory() as folder:
        init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        found = {name: run(config, fnuz) for name, fnuz in (("fn", False), ("fnuz", True))}
    Path(sys.argv[2]).write_text(json.dumps(found))


def run(config, fnuz):
    type(current_platform).is_fp8_fnuz = classmethod(lambda _: fnuz)
    config.compilation_config.static_forward_context.clear()
    torch.set_default_dtype(config.model_config.dtype)
    model = initialize_model(config)
    get_model_loader(config.load_config).load_weights(model, config.model_config)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, Attention)}
    others = {type(m.quant_method).__name__ for m in model.modules() if hasattr(m, "quant_method")}
    return {"methods": sorted(others), "scales": {name: scales(layer) for name, layer in layers.items()}}


def scales(layer):
    layer.kv_cache_dtype = "fp8"
    layer.quant_method.process_weights_after_loading(layer)
    return [float(scale) for scale in (layer._k_scale, layer._v_scale, layer._q_scale)]


if __name__ == "__main__":
    main()
