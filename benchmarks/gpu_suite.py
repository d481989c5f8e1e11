"""Is every kernel right on this GPU, and how fast is it: one command, nothing to install beside torch and Triton.

    python benchmarks/gpu_suite.py --json result.json      # a machine with a GPU; torch >= 2.11, Triton >= 3.6
    python benchmarks/gpu_suite.py --tiny                  # no GPU: tiny shapes in the interpreter, speeds mean nothing

First each op against its float64 twin on fresh data (the seed is printed; `--seed` repeats it). Then speed: CUDA events
around one call, the L2 cache flushed before it, the median of many; beside torch in bf16, `torch._scaled_mm`, a copy on
the device (the bandwidth limit) and a large bf16 product (the compute limit). Times of MXFP4 products with FP8 or MX
activations include quantizing them; those of FP8 products do not, on either side. Shapes are those of the models'
config.json.

It ends within its budget (8 minutes): what there was no time for is named. Exit status 1: a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple


# Triton reads this when it is first imported, which torch may do.
if "--tiny" in sys.argv and not (Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()):
    os.environ["TRITON_INTERPRET"] = "1"

import torch


sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))

from vllm_mx_kernels import kv_cache, moe
from vllm_mx_kernels.device import arch_of, fp8_format_of
from vllm_mx_kernels.fp8 import GRANULARITIES, Fp8, matmul_fp8, matmul_fp8_torch, quantize_fp8, quantize_fp8_torch
from vllm_mx_kernels.mxfp4 import (
    Mxfp4,
    dequantize_mxfp4,
    dequantize_mxfp4_torch,
    fold_mxfp4,
    matmul_mxfp4,
    matmul_mxfp4_torch,
    quantize_mxfp4,
    quantize_mxfp4_torch,
)
from vllm_mx_kernels.mxfp8 import quantize_mxfp8, quantize_mxfp8_torch
from vllm_mx_kernels.scales import SCALE_MODES
from vllm_mx_kernels.targets import NATIVE_FP8, NATIVE_MXFP4, NATIVE_MXFP8_BY_MXFP4
from vllm_mx_kernels.testing import assert_close, difficult, repair_interpreter


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Errors against the twin, of the output's RMS: outputs are rounded to bf16, and Hopper's FP8 sums keep about 14 bits.
PRODUCT = {"largest": 0.06, "rms": 0.01}
LAYER = {"largest": 0.15, "rms": 0.02}  # three such roundings one after the other
CHECK_SHARE = 0.5  # of the budget, at most, for correctness
RESERVE_S = 15.0  # kept for writing down what was found


class Dense(NamedTuple):
    """A linear layer: `n` output rows of `k`."""

    name: str
    n: int
    k: int


class Moe(NamedTuple):
    """A MoE layer: `experts` of which `top_k` are chosen, hidden size and inner size."""

    name: str
    experts: int
    top_k: int
    hidden: int
    inner: int
    gating: moe.Gating


class Attention(NamedTuple):
    """One layer's attention at decode: `length` tokens cached for each of `sequences`."""

    name: str
    heads: int
    kv_heads: int
    dim: int
    sequences: int
    length: int
    window: int


class Shapes(NamedTuple):
    """What is measured. Tokens of a decode batch, and of a prefill."""

    dense: tuple[Dense, ...]
    moe: tuple[Moe, ...]
    attention: tuple[Attention, ...]
    decode: tuple[int, ...]
    prefill: tuple[int, ...]
    limit: int  # side of the square product that stands for the compute limit
    copied: int  # bytes of the copy that stands for the bandwidth limit


FULL = Shapes(
    (
        Dense("Llama-70B qkv", 10240, 8192),
        Dense("Llama-70B gate_up", 57344, 8192),
        Dense("Llama-70B down", 8192, 28672),
        Dense("Qwen3-30B-A3B qkv", 5120, 2048),
        Dense("gpt-oss-120b qkv", 5120, 2880),
        Dense("gpt-oss-120b o", 2880, 4096),
    ),
    (
        Moe("Qwen3-30B-A3B experts", 128, 8, 2048, 768, "swiglu"),
        Moe("gpt-oss-120b experts", 128, 4, 2880, 2880, "swiglu_oai"),
    ),
    (
        Attention("Llama-70B", 64, 8, 128, 64, 4096, 0),
        Attention("Qwen3-30B-A3B", 32, 4, 128, 64, 4096, 0),
        Attention("gpt-oss-120b full", 64, 8, 64, 64, 4096, 0),
        Attention("gpt-oss-120b window", 64, 8, 64, 64, 4096, 128),
    ),
    (1, 16, 64),
    (4096,),
    8192,
    1 << 30,
)
TINY = Shapes(
    (Dense("tiny", 16, 64),),
    (Moe("tiny experts", 4, 2, 64, 32, "swiglu_oai"),),
    (Attention("tiny", 4, 2, 32, 1, 20, 8),),
    (1,),
    (3,),
    64,
    1 << 16,
)


class Clock:
    """What is left of the budget; an alarm ends even a compiler that does not come back."""

    def __init__(self, budget_s: float) -> None:
        self.end = time.monotonic() + budget_s
        self.budget_s = budget_s
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, max(budget_s - RESERVE_S / 2, 1.0))

    @staticmethod
    def _ring(*_: object) -> None:
        raise TimeoutError

    @property
    def left_s(self) -> float:
        """Seconds, the reserve taken off."""
        return self.end - time.monotonic() - RESERVE_S

    def stop(self) -> None:
        """No alarm any more."""
        signal.setitimer(signal.ITIMER_REAL, 0)


class Suite:
    """One run: the device, what was found, and what there was no time for."""

    def __init__(self, shapes: Shapes, device: str, seed: int, clock: Clock) -> None:
        self.shapes, self.device, self.clock = shapes, device, clock
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.arch = arch_of(torch.empty(0, device=device))
        self.fmt = fp8_format_of(torch.empty(0, device=device))
        self.checks: list[dict[str, Any]] = []
        self.speeds: list[dict[str, Any]] = []
        self.cut: list[str] = []
        self.limits = {"copy_gb_s": 0.0, "bf16_tflop_s": 0.0}
        self.flushed = torch.empty(1 << 29 if device == "cuda" else 1, dtype=torch.float32, device=device)

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Fresh Gaussian numbers."""
        return torch.randn(*shape, generator=self.generator, device=self.device, dtype=torch.float32).to(dtype)

    def run(self) -> None:
        """Everything, in the order of what must not be cut."""
        self._section(self.measure_limits, "limits", 1.0)
        self._section(self.check_all, "correctness", CHECK_SHARE)
        for name, items in (
            ("products, decode", lambda: self.products(self.shapes.decode)),
            ("experts, decode", lambda: self.experts(self.shapes.decode)),
            ("attention", self.attention),
            ("conversions", self.conversions),
            ("products, prefill", lambda: self.products(self.shapes.prefill)),
            ("experts, prefill", lambda: self.experts(self.shapes.prefill)),
        ):
            self._section(items, name, 1.0)

    def _section(self, items: Callable[[], Iterator[tuple[str, Callable[[], None]]]], name: str, share: float) -> None:
        """Run items until the section's share of the budget is used, then name those that are left."""
        until = min(self.clock.left_s, self.clock.budget_s * share)
        start = time.monotonic()
        for item, work in items():
            if time.monotonic() - start > until:
                self.cut.append(f"{name}: {item}")
                continue
            try:
                work()
            except TimeoutError:
                self.cut.append(f"{name}: {item}, and all that follows")
                raise
            except torch.OutOfMemoryError:
                self.cut.append(f"{name}: {item} (no memory)")
            except Exception as error:  # noqa: BLE001  a driver may raise anything; the rest is still worth knowing
                self._failed(f"{name}: {item}", error)

    def _failed(self, name: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        self.checks.append({"check": name, "passed": False, "says": text})
        print(f"FAILED {name}: {text}", flush=True)

    # -- speed ---------------------------------------------------------------------------------------------------------

    def time_ms(self, work: Callable[[], Any]) -> float:
        """The median of one call with a cold L2; compiled and warmed up before."""
        if self.device == "cpu":  # interpreted: that it runs is all that there is to see
            start = time.perf_counter()
            work()
            return (time.perf_counter() - start) * 1e3
        work()
        work()
        torch.cuda.synchronize()
        times: list[float] = []
        until = time.monotonic() + 0.25
        while len(times) < 5 or (len(times) < 50 and time.monotonic() < until):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flushed.zero_()  # 2 GiB: longer than Python takes to start what comes
            first.record()
            work()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last))
        return statistics.median(times)

    def measured(self, op: str, shape: str, work: Callable[[], Any], moved: float, flops: float = 0.0) -> float:
        """Time it, put it beside both limits, print a row; `moved` bytes and `flops` of one call. Returns ms."""
        ms = self.time_ms(work)
        gb_s, tflop_s = moved / ms / 1e6, flops / ms / 1e9
        row = {"op": op, "shape": shape, "ms": ms, "gb_s": gb_s, "tflop_s": tflop_s}
        row["of_copy"] = gb_s / self.limits["copy_gb_s"] if self.limits["copy_gb_s"] else 0.0
        row["of_bf16"] = tflop_s / self.limits["bf16_tflop_s"] if self.limits["bf16_tflop_s"] else 0.0
        self.speeds.append(row)
        print(f"{op:34} {shape:34} {ms * 1e3:10.1f} us {gb_s:8.0f} GB/s {row['of_copy']:6.1%} of copy "
              f"{tflop_s:8.1f} TFLOP/s {row['of_bf16']:6.1%} of bf16", flush=True)  # fmt: skip
        return ms

    def rival(self, op: str, shape: str, work: Callable[[], Any], moved: float, flops: float, *, ours: float) -> None:
        """The same for what we are compared with; what it cannot run is said and is no failure of ours."""
        try:
            ms = self.measured(op, shape, work, moved, flops)
        except (RuntimeError, NotImplementedError, ValueError, AttributeError, TypeError) as error:
            print(f"{op:34} {shape:34} does not run: {str(error).splitlines()[0][:90]}", flush=True)
            self.speeds.append({"op": op, "shape": shape, "says": str(error).splitlines()[0][:300]})
            return
        self.speeds[-1]["ours_is_faster_by"] = ms / ours

    def measure_limits(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The device copy and the bf16 product that the rest is held against."""
        yield "copy", self._copy
        yield "bf16 product", self._bf16

    def _copy(self) -> None:
        source = torch.empty(self.shapes.copied, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        ms = self.measured("copy", f"{self.shapes.copied} B", lambda: target.copy_(source), 2 * self.shapes.copied)
        self.limits["copy_gb_s"] = 2 * self.shapes.copied / ms / 1e6

    def _bf16(self) -> None:
        side = self.shapes.limit
        a, b = self.random(side, side), self.random(side, side)
        ms = self.measured("torch bf16", f"{side}^3", lambda: a @ b, 6 * side**2, 2 * side**3)
        self.limits["bf16_tflop_s"] = 2 * side**3 / ms / 1e9

    def products(self, tokens: tuple[int, ...]) -> Iterator[tuple[str, Callable[[], None]]]:
        """Dense layers: MXFP4 in every activation the device multiplies, FP8 by channel and block, torch beside."""
        for m in tokens:
            for layer in self.shapes.dense:
                yield f"{layer.name} M={m}", lambda layer=layer, m=m: self._product(layer, m)

    def _product(self, layer: Dense, m: int) -> None:
        shape = f"{layer.name} {m}x{layer.n}x{layer.k}"
        flops, out = 2.0 * m * layer.n * layer.k, 2.0 * m * (layer.n + layer.k)
        x, w = self.random(m, layer.k), self.random(layer.n, layer.k) * 0.02
        weight = quantize_mxfp4(w)
        packed = layer.n * layer.k * (4.25 / 8) + out
        best = min(
            self.measured(
                f"mxfp4 {a}", shape, lambda a=a, f=f: matmul_mxfp4(x, weight, activation=a, fold=f), packed, flops
            )
            for a, f in self._activations(weight)
        )
        self.rival("torch bf16", shape, lambda: x @ w.T, 2.0 * layer.n * layer.k + out, flops, ours=best)
        if self.arch in NATIVE_FP8:
            self._fp8_product(shape, x, w, layer.n * layer.k + out, flops)

    def _activations(self, weight: Mxfp4) -> Iterator[tuple[Any, Any]]:
        yield "bf16", None
        fold = fold_mxfp4(weight)
        if self.arch in NATIVE_FP8 and fold.whole:
            yield "fp8", fold
        if self.arch in NATIVE_MXFP4 and self.device == "cuda":
            yield "mxfp4", None
        if self.arch in NATIVE_MXFP8_BY_MXFP4 and self.device == "cuda":
            yield "mxfp8", None

    def _fp8_product(self, shape: str, x: torch.Tensor, w: torch.Tensor, moved: float, flops: float) -> None:
        a, b = quantize_fp8(x, "token", self.fmt), quantize_fp8(w, "channel", self.fmt)
        ours = self.measured("fp8 channel", shape, lambda: matmul_fp8(a, b), moved, flops)
        theirs = lambda: torch._scaled_mm(  # noqa: E731, SLF001  there is no public name for it
            a.elements, b.elements.T, scale_a=a.scales, scale_b=b.scales.T, out_dtype=torch.bfloat16
        )
        self.rival("torch._scaled_mm channel", shape, theirs, moved, flops, ours=ours)
        c, d = quantize_fp8(x, "group", self.fmt), quantize_fp8(w, "block", self.fmt)
        self.measured("fp8 block", shape, lambda: matmul_fp8(c, d), moved, flops)

    def experts(self, tokens: tuple[int, ...]) -> Iterator[tuple[str, Callable[[], None]]]:
        """MoE layers: folded FP8 where that is exact and native, bf16 otherwise; torch in bf16 beside."""
        for layer in self.shapes.moe:
            for m in tokens:
                yield f"{layer.name} T={m}", lambda layer=layer, m=m: self._layer(layer, m)

    def _layer(self, layer: Moe, m: int) -> None:
        shape = f"{layer.name} T={m}"
        experts, routing, x = self._made(layer, m)
        used = len(routing.experts.unique())
        weights = 3.0 * layer.hidden * layer.inner
        moved, flops = used * weights * (4.25 / 8) + 4.0 * m * layer.hidden, 2.0 * m * layer.top_k * weights
        ours = self.measured("moe mxfp4 bf16", shape, lambda: moe.moe(x, experts, routing, layer.gating), moved, flops)
        folds = moe.fold_experts(experts)
        if folds.whole and self.arch in NATIVE_FP8:
            folded = lambda: moe.moe(x, experts, routing, layer.gating, folds=folds)  # noqa: E731
            ours = min(ours, self.measured("moe mxfp4 fp8", shape, folded, moved, flops))
        wide, narrow = (dequantize_mxfp4(w, torch.bfloat16) for w in (experts.gate_up, experts.down))
        loop = lambda: _bf16_experts(x, wide, narrow, routing, layer.gating)  # noqa: E731
        self.rival("torch bf16, a loop of experts", shape, loop, used * weights * 2, flops, ours=ours)

    def _made(self, layer: Moe, m: int) -> tuple[moe.Experts, moe.Routing, torch.Tensor]:
        def weight(n: int, k: int) -> Mxfp4:
            parts = [quantize_mxfp4(self.random(n, k) * 0.02) for _ in range(layer.experts)]
            return Mxfp4(torch.stack([p.codes for p in parts]), torch.stack([p.scales for p in parts]))

        experts = moe.Experts(weight(2 * layer.inner, layer.hidden), weight(layer.hidden, layer.inner))
        logits = self.random(m, layer.experts, dtype=torch.float32)
        return experts, moe.route(logits, layer.top_k), self.random(m, layer.hidden)

    def attention(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Decode over a paged FP8 cache, and torch's attention over dense bf16 keys and values beside."""
        for layer in self.shapes.attention:
            yield layer.name, lambda layer=layer: self._attention(layer)

    def _attention(self, layer: Attention) -> None:
        shape = f"{layer.name} {layer.sequences}x{layer.length}"
        q, keys, values, at, _ = self._cached(layer)
        seen = min(layer.length, layer.window or layer.length)
        moved = 2.0 * layer.sequences * seen * layer.kv_heads * layer.dim
        flops = 4.0 * layer.sequences * seen * layer.heads * layer.dim
        ours = self.measured("kv decode fp8", shape, lambda: kv_cache.decode(q, keys, values, at), moved, flops)
        k = self.random(layer.sequences, layer.kv_heads, seen, layer.dim)
        v = torch.randn_like(k)
        dense = lambda: torch.nn.functional.scaled_dot_product_attention(q.unsqueeze(2), k, v, enable_gqa=True)  # noqa: E731
        self.rival("torch attention bf16, dense", shape, dense, 2 * moved, flops, ours=ours)

    def _cached(self, layer: Attention) -> tuple[Any, ...]:
        page = 16
        per = -(-layer.length // page)
        tables = torch.randperm(layer.sequences * per, generator=self.generator, device=self.device)
        tables = tables.int().view(layer.sequences, per)
        rows = torch.arange(layer.length, device=self.device)
        slots = (tables[:, rows // page].long() * page + rows % page).flatten()
        caches, dtype = [], {"e4m3fn": torch.float8_e4m3fn}.get(self.fmt.name, torch.float8_e4m3fnuz)
        for _ in range(2):
            cache = kv_cache.empty_cache(
                layer.sequences * per, page, layer.kv_heads, layer.dim, dtype=dtype, device=self.device
            )
            kv_cache.store(self.random(len(slots), layer.kv_heads, layer.dim), cache, slots)
            caches.append(cache)
        lengths = torch.full((layer.sequences,), layer.length, dtype=torch.int32, device=self.device)
        sinks = self.random(layer.heads) if layer.window else None
        at = kv_cache.Attention(tables, lengths, layer.dim**-0.5, layer.window, sinks)
        return self.random(layer.sequences, layer.heads, layer.dim), *caches, at, slots

    def conversions(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Quantizing and dequantizing, which a copy bounds."""
        yield "all", self._conversions

    def _conversions(self) -> None:
        layer = self.shapes.dense[-1]
        x = self.random(layer.n, layer.k)
        n, shape = x.numel(), f"{layer.n}x{layer.k}"
        weight = quantize_mxfp4(x)
        self.measured("quantize mxfp4", shape, lambda: quantize_mxfp4(x), n * (2 + 4.25 / 8))
        self.measured("dequantize mxfp4", shape, lambda: dequantize_mxfp4(weight), n * (2 + 4.25 / 8))
        if self.arch in NATIVE_FP8:
            self.measured("quantize mxfp8", shape, lambda: quantize_mxfp8(x, "floor", self.fmt), n * 3.03)
            for g in ("token", "group", "block"):
                self.measured(f"quantize fp8 {g}", shape, lambda g=g: quantize_fp8(x, g, self.fmt), n * 3.0)

    # -- correctness ---------------------------------------------------------------------------------------------------

    def check_all(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Every op against its twin, on this device, on data that nobody has seen."""
        yield from self._checks("quantize mxfp4", [(m, lambda m=m: self.check_quantize(m)) for m in SCALE_MODES])
        yield from self._checks("dequantize mxfp4", [("bf16", self.check_dequantize)])
        products = [(a, lambda a=a: self.check_product(a)) for a in ("bf16", "fp8", "mxfp4", "mxfp8") if self._has(a)]
        yield from self._checks("product mxfp4", products)
        kinds = ["mxfp4"] + (["folded", "channel", "block"] if self.arch in NATIVE_FP8 else [])
        for gating in ("swiglu", "swiglu_oai"):
            layers = [(k, lambda k=k, g=gating: self.check_layer(k, g)) for k in kinds]
            yield from self._checks(f"moe {gating}", layers)
        if self.arch in NATIVE_FP8:
            pairs = (("tensor", "tensor"), ("token", "channel"), ("group", "block"))
            yield from self._checks("quantize fp8", [(g, lambda g=g: self.check_fp8(g)) for g in GRANULARITIES])
            yield from self._checks("quantize mxfp8", [(m, lambda m=m: self.check_mxfp8(m)) for m in SCALE_MODES])
            yield from self._checks("product fp8", [(p[1], lambda p=p: self.check_fp8_product(*p)) for p in pairs])
            caches = [(w, lambda w=w: self.check_attention(w)) for w in (0, 7)]
            yield from self._checks("kv store and decode, window", caches)

    def _has(self, activation: str) -> bool:
        if self.device == "cpu" and activation.startswith("mx"):
            return False
        native = {"fp8": NATIVE_FP8, "mxfp4": NATIVE_MXFP4, "mxfp8": NATIVE_MXFP8_BY_MXFP4}
        return activation == "bf16" or self.arch in native[activation]

    def _checks(
        self, op: str, items: list[tuple[Any, Callable[[], None]]]
    ) -> Iterator[tuple[str, Callable[[], None]]]:  # fmt: skip
        for detail, work in items:
            name = f"{op} {detail}"

            def judged(name: str = name, work: Callable[[], None] = work) -> None:
                start = time.monotonic()
                work()
                self.checks.append({"check": name, "passed": True, "seconds": time.monotonic() - start})
                print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)

            yield name, judged

    def _size(self, small: int, large: int) -> int:
        return small if self.device == "cpu" else large

    def hard(self, rows: int, k: int) -> torch.Tensor:
        """Outliers, zeros, ties, −0, subnormals, huge numbers, a NaN and an Inf."""
        seed = int(torch.randint(1 << 30, (1,), generator=self.generator, device=self.device))
        x = difficult(rows, k, seed=seed).to(self.device)
        x[1, :4] = torch.tensor([2.0**-149, 3e38, float("nan"), 1.0])
        x[2, -1] = float("inf")
        x[3] *= 2.0**-130
        return x

    def check_quantize(self, mode: Any) -> None:
        x = self.hard(self._size(9, 257), self._size(96, 2080))
        same(quantize_mxfp4(x, mode), quantize_mxfp4_torch(x, mode))

    def check_mxfp8(self, mode: Any) -> None:
        x = self.hard(self._size(9, 257), self._size(96, 2080))
        same(quantize_mxfp8(x, mode, self.fmt), quantize_mxfp8_torch(x, mode, self.fmt))

    def check_fp8(self, granularity: Any) -> None:
        x = self.hard(self._size(9, 257), self._size(96, 2080))
        x = x.nan_to_num(0.0, 0.0, 0.0) if granularity == "tensor" else x
        same(quantize_fp8(x, granularity, self.fmt), quantize_fp8_torch(x, granularity, self.fmt))

    def check_dequantize(self) -> None:
        weight = quantize_mxfp4_torch(self.hard(self._size(9, 257), self._size(96, 2080)))
        ours, twin = dequantize_mxfp4(weight), dequantize_mxfp4_torch(weight, torch.bfloat16)
        torch.testing.assert_close(ours, twin, rtol=0, atol=0, equal_nan=True)

    def check_product(self, activation: Any) -> None:
        for m, n, k in ((self._size(3, 17), self._size(40, 1000), self._size(96, 2080)), (1, 72, 32)):
            x, bias = self.random(m, k), self.random(n)
            weight = quantize_mxfp4_torch(self.random(n, k))
            ours = matmul_mxfp4(x, weight, bias, activation, fold=fold_mxfp4(weight))
            assert_close(ours, matmul_mxfp4_torch(x, weight, bias, activation), **PRODUCT)
        if self.device == "cuda":  # a prefill: the other launch of the table
            x, weight = self.random(300, 1024), quantize_mxfp4_torch(self.random(520, 1024))
            ours = matmul_mxfp4(x, weight, None, activation, fold=fold_mxfp4(weight))
            assert_close(ours, matmul_mxfp4_torch(x, weight, None, activation), **PRODUCT)

    def check_fp8_product(self, x_granularity: Any, w_granularity: Any) -> None:
        for m in {self._size(3, 17), self._size(3, 300)}:
            n, k = self._size(40, 1000), self._size(160, 2080)
            a = quantize_fp8_torch(self.random(m, k), x_granularity, self.fmt)
            b = quantize_fp8_torch(self.random(n, k), w_granularity, self.fmt)
            bias = self.random(n)
            assert_close(matmul_fp8(a, b, bias), matmul_fp8_torch(a, b, bias), **PRODUCT)

    def check_layer(self, kind: str, gating: Any) -> None:
        e, hidden, inner, top_k = 4, self._size(64, 320), self._size(32, 192), 2
        for tokens in {self._size(3, 1), self._size(3, 200)}:
            quantize = _quantizer("mxfp4" if kind == "folded" else kind, self.fmt)
            wide = quantize(self.random(e, 2 * inner, hidden) * 0.2)
            narrow = quantize(self.random(e, hidden, inner) * 0.2)
            experts = moe.Experts(wide, narrow, self.random(e, 2 * inner), self.random(e, hidden))
            folds = moe.fold_experts(experts) if kind == "folded" else None
            routing = moe.route(self.random(tokens, e, dtype=torch.float32), top_k)
            x = self.random(tokens, hidden)
            ours = moe.moe(x, experts, routing, gating, folds=folds)
            assert_close(ours, moe.moe_torch(x, experts, routing, gating, fp8=folds is not None), **LAYER)

    def check_attention(self, window: int) -> None:
        layer = Attention("", 8, 2, self._size(32, 128), self._size(1, 3), self._size(20, 200), window)
        q, keys, values, at, slots = self._cached(layer)
        twin = kv_cache.PagedCache(
            torch.zeros_like(keys.pages.view(torch.uint8)).view(keys.pages.dtype), keys.scales * 0 + 1
        )
        ours = kv_cache.PagedCache(twin.pages.view(torch.uint8).clone().view(keys.pages.dtype), twin.scales.clone())
        x = self.random(len(slots), 2, layer.dim)
        x[1, 0, 0], x[2, 1, 1] = float("nan"), float("inf")
        kv_cache.store(x, ours, slots)
        kv_cache.store_torch(x, twin, slots)
        same(ours, twin)
        assert_close(kv_cache.decode(q, keys, values, at), kv_cache.decode_torch(q, keys, values, at), **PRODUCT)


def same(ours: tuple[torch.Tensor, ...], twin: tuple[torch.Tensor, ...]) -> None:
    """Bit for bit, but for the sign and payload of a NaN. Raises AssertionError with how many differ."""
    for a, b in zip(ours, twin, strict=True):
        if a.dtype.is_floating_point:
            equal = (a.view(_bits(a)) == b.view(_bits(b))) | (a.float().isnan() & b.float().isnan())
        else:
            equal = a == b
        if not bool(equal.all()):
            raise AssertionError(f"{int((~equal).sum())} of {equal.numel()} {a.dtype} differ from the twin")


def _bits(x: torch.Tensor) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()]


def _quantizer(kind: str, fmt: Any) -> Callable[[torch.Tensor], Any]:
    if kind == "mxfp4":
        return quantize_mxfp4_torch

    def stacked(w: torch.Tensor) -> Fp8:
        parts = [quantize_fp8_torch(e, kind, fmt) for e in w]  # type: ignore[arg-type]
        elements = torch.stack([p.elements.view(torch.uint8) for p in parts]).view(parts[0].elements.dtype)
        return Fp8(elements, torch.stack([p.scales for p in parts]))

    return stacked


def _bf16_experts(
    x: torch.Tensor, wide: torch.Tensor, narrow: torch.Tensor, routing: moe.Routing, gating: moe.Gating
) -> torch.Tensor:
    """What one writes in torch: each expert that is used, its tokens gathered, two products, added up."""
    out = torch.zeros_like(x)
    for expert in routing.experts.unique().tolist():
        tokens, choices = (routing.experts == expert).nonzero(as_tuple=True)
        inner = moe.gate_torch(x[tokens] @ wide[expert].T, gating).to(x.dtype)
        weights = routing.weights[tokens, choices].unsqueeze(1).to(x.dtype)
        out.index_add_(0, tokens, (inner @ narrow[expert].T) * weights)
    return out


def main(argv: list[str] | None = None) -> int:
    """Run what the machine has time for; 1 if a check failed, 2 without a GPU and without `--tiny`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=480.0, help="seconds for all of it")
    parser.add_argument("--json", type=Path, help="write what was found here")
    parser.add_argument("--seed", type=int, help="of the data; a fresh one if not given")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, in the interpreter where there is no GPU")
    asked = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not asked.tiny:
        print("no GPU that torch can use; --tiny runs tiny shapes in the interpreter", file=sys.stderr)
        return 2
    if device == "cpu":
        repair_interpreter()
    seed = random.SystemRandom().randrange(1 << 31) if asked.seed is None else asked.seed
    clock = Clock(asked.budget)
    suite = Suite(TINY if asked.tiny else FULL, device, seed, clock)
    print(f"{_name(device)}, torch {torch.__version__}, Triton {_triton()}, seed {seed}", flush=True)
    try:
        suite.run()
    except TimeoutError:
        print("out of time", flush=True)
    clock.stop()
    return _report(suite, device, seed, asked.json)


def _report(suite: Suite, device: str, seed: int, path: Path | None) -> int:
    failed = [c["check"] for c in suite.checks if not c["passed"]]
    found = {
        "device": _name(device), "arch": suite.arch, "torch": torch.__version__, "triton": _triton(), "seed": seed,
        "interpreted": device == "cpu", "limits": suite.limits, "checks": suite.checks, "speeds": suite.speeds,
        "cut": suite.cut, "failed": failed,
    }  # fmt: skip
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(suite.checks) - len(failed)} of {len(suite.checks)} checks passed, {len(suite.speeds)} speeds")
    for name in suite.cut:
        print(f"not measured: {name}")
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed else 0


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "Triton's interpreter (speeds mean nothing)"


def _triton() -> str:
    import triton  # noqa: PLC0415  after the variable that it reads

    return str(triton.__version__)


if __name__ == "__main__":
    sys.exit(main())
