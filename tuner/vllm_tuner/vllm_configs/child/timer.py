"""Run by vLLM's Python: times tiles of vLLM's fused experts. A JSON line in, a JSON line out, until stdin ends.

The first line describes the problem. Without a GPU it is refused, unless Triton's interpreter is asked for, which is
right or wrong but never fast: then only `correct` is answered.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


NO_GPU = "this machine has no GPU that PyTorch can use: tiles cannot be timed here"


def load_file(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interpreted() -> None:
    """Have vLLM's CPU build take the real Triton, whose interpreter runs kernels on tensors of the processor.

    vLLM hides Triton where it finds no driver for it (triton_utils/importing.py); the interpreter needs none.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    backends = importlib.import_module("triton.backends").backends
    driver = type("NoDriver", (), {"is_active": staticmethod(lambda: False)})
    backends.setdefault("cpu", type("Backend", (), {"driver": driver})())


def opened(asked: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The problem, and who answers."""
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError("no vllm in this environment")
    if asked["interpret"]:
        interpreted()
    torch = importlib.import_module("torch")
    if not asked["interpret"] and not asked["dry"] and not torch.cuda.is_available():
        raise RuntimeError(NO_GPU)
    vllm = importlib.import_module("vllm").__version__
    platform = importlib.import_module("vllm.platforms").current_platform
    experts = load_file("vllm_configs_experts", Path(__file__).with_name("experts.py"))
    device = "cuda" if torch.cuda.is_available() and not asked["dry"] else "cpu"
    problem = experts.Problem(asked["shape"], device, asked["seed"], asked["scheme"])
    triton = getattr(importlib.import_module("triton"), "__version__", "")
    return problem, {"vllm": vllm, "device": platform.get_device_name(), "triton": triton}


def done(problem: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """One order: correct, time, pair, default or describe."""
    batch, order = asked.get("batch", 1), asked["do"]
    if order == "describe":
        return described(type(problem)(asked["shape"], problem.device, scheme=asked["scheme"]))
    if order == "default":
        return {"config": problem.default(batch)}
    if order == "correct":
        check = problem.first_product if asked.get("interpret") else problem.error
        return {"error": check(batch, asked["config"])}
    if order == "time":
        graph = problem.graph(batch, asked["config"])
        for _ in range(asked["warmup"]):
            problem.replayed_us(graph)
        return {"us": [problem.replayed_us(graph) for _ in range(asked["repeats"])]}
    if order == "pair":
        return {"pairs": pairs(problem, batch, asked)}
    raise ValueError(f"no order {order!r}")


def pairs(problem: Any, batch: int, asked: dict[str, Any]) -> list[list[float]]:
    """Both in turn, A B, B A, …, so that a clock that drifts hurts both alike."""
    graphs = [problem.graph(batch, asked[side]) for side in ("a", "b")]
    rounds = []
    for number in range(asked["rounds"]):
        times = [0.0, 0.0]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side] = problem.replayed_us(graphs[side])
        rounds.append(times)
    return rounds


def described(problem: Any) -> dict[str, Any]:
    """What was built, for a machine where it cannot run."""
    tensors = {"w1": problem.w1, "w2": problem.w2, "s1": problem.s1, "s2": problem.s2}
    return {
        "tensors": {name: [list(t.shape), str(t.dtype)] for name, t in tensors.items() if t is not None},
        "dtype": problem.config._get_config_dtype_str(  # noqa: SLF001 - the name that vLLM will look for
            dtype=problem.dtype,
            **({f"use_{problem.kind}": True} if problem.shape["dtype"] not in (None, "float32") else {}),
        ),
        "block": problem.quant.block_shape if problem.quant else None,
        "by_row": bool(problem.quant and problem.quant.per_act_token_quant),
    }


def main() -> None:
    first = json.loads(sys.stdin.readline())
    oracle = load_file("oracle_main", Path(first["oracle"]) / "main.py")
    answers = oracle.aside()
    try:
        problem, hello = opened(first)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        oracle.reply(answers, {"failed": oracle.failure(error)})
        return
    oracle.reply(answers, hello)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            oracle.reply(answers, done(problem, asked))
        except Exception as error:  # noqa: BLE001 - tiles that do not fit are an answer
            oracle.reply(answers, {"raised": oracle.failure(error)})


if __name__ == "__main__":
    main()
