"""Run by vLLM's Python: what vLLM's own loader makes of a folder of tuned files. One JSON in, one JSON out.

Nothing here knows what the answer should be: vLLM's functions are called as its layers call them, and what they return
is handed back. The device is the machine's own, or one that vLLM is made to believe in (`oracle_child` of the advisor,
whose path is given).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


FUSED_MOE = "vllm.model_executor.layers.fused_moe.fused_moe"


class Opened:
    """Stands before `open` in vLLM's module: which files the loader opens, whatever it logs or does not."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, path: Any, *rest: Any, **named: Any) -> Any:
        self.paths.append(str(path))
        return open(path, *rest, **named)  # noqa: PTH123 - in place of vLLM's own


def load_file(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def device(asked: dict[str, Any]) -> dict[str, Any]:
    """Which vLLM answers, and for which device."""
    if asked["device"] is None:
        platform = importlib.import_module("vllm.platforms").current_platform
        version = importlib.import_module("vllm").__version__
        return {"vllm": version, "platform": type(platform).__name__, "device": platform.get_device_name()}
    installed: dict[str, Any] = importlib.import_module("oracle_child.device").install(asked["device"])
    return installed


def answer(fused_moe: Any, opened: Opened, asked: dict[str, Any]) -> dict[str, Any]:
    """One shape: the name, the table, the file that was opened, and the tiles for each batch size."""
    block = asked["block"]
    block_n, block_k = block or (0, 0)
    opened.paths.clear()
    named_block = [block_n, block_k] if block_n and block_k else None
    name = fused_moe.get_config_file_name(asked["experts"], asked["width"], asked["dtype"], named_block)
    table = fused_moe.get_moe_configs(asked["experts"], asked["width"], asked["dtype"], block_n, block_k)
    path = opened.paths[-1] if opened.paths else ""
    packed = asked["width"] // 2 if asked["dtype"] == "int4_w4a16" else asked["width"]
    w1 = (asked["experts"], 2 * asked["intermediate"], asked["hidden"])
    w2 = (asked["experts"], asked["hidden"], packed)

    def chosen(batch: int) -> Any:
        return fused_moe.try_get_optimal_moe_config(w1, w2, asked["top_k"], asked["dtype"], batch, block)

    def default(batch: int) -> Any:
        return fused_moe.get_default_config(
            batch, asked["experts"], asked["width"], asked["hidden"], asked["top_k"], asked["dtype"], block
        )

    return {
        "name": name,
        "table": table and {str(key): value for key, value in table.items()},
        "path": path,
        "chosen": [chosen(batch) for batch in asked["batches"]],
        "default": [default(batch) for batch in asked["batches"]],
    }


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    oracle = load_file("oracle_main", Path(asked["oracle"]) / "main.py")
    oracle.package()
    answers = oracle.aside()
    try:
        hello = device(asked)
        fused_moe: Any = importlib.import_module(FUSED_MOE)
        fused_moe.open = opened = Opened()
        oracle.reply(answers, {**hello, "shapes": [answer(fused_moe, opened, shape) for shape in asked["shapes"]]})
    except Exception as error:  # noqa: BLE001 - whatever vLLM raises is its answer
        oracle.reply(answers, {"failed": oracle.failure(error)})


if __name__ == "__main__":
    main()
