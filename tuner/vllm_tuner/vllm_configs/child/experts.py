"""Run by vLLM's Python: one problem of vLLM's fused experts, its inputs and its launches.

Everything that is multiplied goes through vLLM's own entry points: `fused_experts` under `override_config` on a device,
`invoke_fused_moe_triton_kernel` under Triton's interpreter, where the operations around it do not exist.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "vllm.model_executor.layers.fused_moe"
_SETS = 4  # inputs and routings that launches rotate over: no batch finds its tokens in a cache
_LAUNCHES = 8  # in one graph, so that the launch itself is not what is timed
_SPREAD = 0.05  # of weights: results of a few units


class Problem:
    """One rank's experts with random weights. `shape` as in `vllm_configs.shapes.Shape`, as a mapping.

    `scheme` as in `Quantization.scheme`: INT8 with INT8 activations has no dtype in a shape, FP8 scales may be by row.
    """

    def __init__(self, shape: dict[str, Any], device: str, seed: int = 0, scheme: str = "") -> None:
        self.torch: Any = importlib.import_module("torch")
        self.fused_moe: Any = importlib.import_module(f"{PACKAGE}.fused_moe")
        self.config: Any = importlib.import_module(f"{PACKAGE}.config")
        self.shape, self.device, self.scheme = shape, device, scheme
        self.kind = "int8_w8a8" if scheme == "int8" and shape["dtype"] is None else shape["dtype"]
        self.by_row = scheme == "fp8_channel" or self.kind == "int8_w8a8"
        self.torch.manual_seed(seed)
        self.dtype = self.torch.float32 if shape["dtype"] == "float32" else self.torch.bfloat16
        self.w1, self.s1 = self._weight(2 * shape["intermediate"], shape["hidden"])
        self.w2, self.s2 = self._weight(shape["hidden"], shape["intermediate"])
        self.quant = self._quant()

    def _weight(self, n: int, k: int) -> tuple[Any, Any]:
        """[experts, n, k] as stored, and its scales (None for unquantized weights)."""
        kind, experts = self.kind, self.shape["experts"]
        if kind in (None, "float32"):
            return self._random(experts, n, k, dtype=self.dtype) * _SPREAD, None
        if kind == "fp8_w8a8":
            eight = importlib.import_module("vllm.platforms").current_platform.fp8_dtype()
            return self._random(experts, n, k, dtype=self.dtype).to(eight), self._scales(n, k)
        if kind in ("int8_w8a16", "int8_w8a8"):
            weight = self._integers(experts, n, k)
            return weight if self.shape["block"] else weight.view(self.torch.int8), self._scales(n, k)
        if kind == "int4_w4a16":
            return self._integers(experts, n, k // 2), self._scales(n, k)
        raise ValueError(f"no weights of kind {kind}")

    def _random(self, *size: int, dtype: Any) -> Any:
        return self.torch.randn(*size, dtype=dtype, device=self.device)

    def _integers(self, *size: int) -> Any:
        return self.torch.randint(0, 256, size, dtype=self.torch.uint8, device=self.device)

    def _scales(self, n: int, k: int) -> Any:
        """One an expert, one a row, one a block or one a group, as the shape's block says."""
        torch, experts, block = self.torch, self.shape["experts"], self.shape["block"]
        grouped = self.kind in ("int8_w8a16", "int4_w4a16")
        size: tuple[int, ...]
        if self.by_row:
            size = (experts, n, 1)
        elif block is None:
            size = (experts, n) if grouped else (experts,)
        elif block[0]:
            size = (experts, -(-n // block[0]), -(-k // block[1]))
        else:
            size = (experts, n, k // block[1])
        kind = self.dtype if grouped else torch.float32
        return torch.full(size, _SPREAD, dtype=kind, device=self.device)

    def _quant(self) -> Any:
        """VLLM's description of the arithmetic; None: unquantized."""
        kind, block = self.kind, self.shape["block"]
        if kind in (None, "float32"):
            return None
        make = getattr(self.config, f"{kind}_moe_quant_config")
        if kind == "int8_w8a8":
            return make(self.s1, self.s2, None, None, per_act_token_quant=True)
        rows = {"per_act_token_quant": True, "per_out_ch_quant": True} if self.by_row else {}
        return make(w1_scale=self.s1, w2_scale=self.s2, block_shape=list(block) if block else None, **rows)

    def routing(self, batch: int, number: int) -> tuple[Any, Any, Any]:
        """Tokens [batch, hidden], weights [batch, top_k] in float32, and experts: distinct ones for each token."""
        torch = self.torch
        tokens = torch.Generator(device=self.device).manual_seed(1_000 + number)
        x = torch.randn(batch, self.shape["hidden"], generator=tokens, device=self.device).to(self.dtype)
        scores = torch.rand(batch, self.shape["experts"], generator=tokens, device=self.device)
        weights, experts = torch.topk(scores.softmax(-1), self.shape["top_k"], dim=-1)
        return x, weights.float(), experts.to(torch.int32)

    @contextmanager
    def tiles(self, config: dict[str, int]) -> Iterator[None]:
        """Through vLLM's own door for a benchmark: these tiles, whatever file there is."""
        with importlib.import_module(PACKAGE).override_config(config):
            yield

    def run(self, batch: tuple[Any, Any, Any]) -> Any:
        """The layer's result [batch, hidden], through vLLM's entry point."""
        x, weights, experts = batch
        return self.fused_moe.fused_experts(x, self.w1, self.w2, weights, experts, quant_config=self.quant)

    def default(self, batch: int) -> dict[str, int]:
        """The tiles of vLLM where no file is found."""
        s = self.shape
        block = list(s["block"]) if s["block"] else None
        return dict(
            self.fused_moe.get_default_config(
                batch, s["experts"], s["width"], s["hidden"], s["top_k"], s["dtype"], block
            )
        )

    def error(self, batch: int, config: dict[str, int]) -> float:
        """The largest difference from what vLLM's default tiles give, as a share of the largest result."""
        inputs = self.routing(batch, 0)
        with self.tiles(self.default(batch)):
            expected = self.run(inputs).float()
        with self.tiles(config):
            found = self.run(inputs).float()
        if not bool(self.torch.isfinite(found).all()):
            return float("inf")
        return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-9))

    def graph(self, batch: int, config: dict[str, int]) -> Any:
        """Several launches over rotated inputs as one graph, ready to be replayed."""
        torch, inputs = self.torch, [self.routing(batch, number) for number in range(_SETS)]
        with self.tiles(config):
            for one in inputs:  # compiles, and fills caches
                self.run(one)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for number in range(_LAUNCHES):
                    self.run(inputs[number % _SETS])
        graph.replay()
        torch.cuda.synchronize()
        return graph, inputs  # inputs live as long as the graph reads them

    def replayed_us(self, graph: Any) -> float:
        """Microseconds of one launch."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph[0].replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1000 / _LAUNCHES

    def first_product(self, batch: int, config: dict[str, int]) -> float:
        """The error of the kernel's first product against PyTorch's: for the interpreter, unquantized weights only."""
        torch = self.torch
        x, weights, experts = self.routing(batch, 0)
        ids, owners, padded = align(torch, experts, config["BLOCK_SIZE_M"], self.shape["experts"])
        out = torch.zeros(batch, experts.shape[1], self.w1.shape[1], dtype=self.dtype)
        language = importlib.import_module("triton.language")
        self.fused_moe.invoke_fused_moe_triton_kernel(
            x, self.w1, out, None, None, weights, ids, owners, padded, mul_routed_weight=False,
            top_k=experts.shape[1], config=config, compute_type=language.float32, use_fp8_w8a8=False,
            use_int8_w8a8=False, use_int8_w8a16=False, use_int4_w4a16=False, per_channel_quant=False,
        )  # fmt: skip
        expected = torch.einsum("mk,mtnk->mtn", x.double(), self.w1.double()[experts.long()])
        return float((out.double() - expected).abs().max() / expected.abs().max())


def align(torch: Any, experts: Any, tile: int, count: int) -> tuple[Any, Any, Any]:
    """Token slots sorted by expert, each expert's padded to whole tiles; what vLLM's CUDA operation makes.

    [slots], the expert of each tile, and the number of slots as a tensor; padding is the number of real slots.
    """
    flat = experts.flatten().tolist()
    slots: list[int] = []
    owners: list[int] = []
    for expert in range(count):
        own = [slot for slot, owner in enumerate(flat) if owner == expert]
        tiles = -(-len(own) // tile)
        slots += own + [len(flat)] * (tiles * tile - len(own))
        owners += [expert] * tiles
    whole = torch.tensor(slots, dtype=torch.int32), torch.tensor(owners, dtype=torch.int32)
    return *whole, torch.tensor([len(slots)], dtype=torch.int32)
