"""Every op at its default launches, target by target: what `compile --all` builds and `docs/kernels.md` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_mx_kernels import _fp8_triton as fp8
from vllm_mx_kernels import _kv_triton as kv
from vllm_mx_kernels import _moe_triton as moe
from vllm_mx_kernels import _mxfp4_triton as mxfp4
from vllm_mx_kernels import _quantize_triton as quantize
from vllm_mx_kernels.compile import Case
from vllm_mx_kernels.formats import E2M1, E4M3FN, E4M3FNUZ
from vllm_mx_kernels.launch import Launch, default_launch
from vllm_mx_kernels.scales import carry_from
from vllm_mx_kernels.targets import FNUZ, NATIVE_FP8, NATIVE_MXFP4, NATIVE_MXFP8_BY_MXFP4


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mx_kernels.targets import Target

_TOKENS = {"decode": 16, "prefill": 4096}
_WEIGHT = {"codes": "u8", "scales": "u8"}
_OUT = {"bias": "bf16", "y": "bf16"}
_ROUTED = {"weights": "fp32", "sorted_slots": "i32", "block_experts": "i32"}
_EVEN = {"HAS_BIAS": False, "EVEN_K": True}
_MOE = {"SLOTS_PER_ROW": 4, "WEIGHTED": False, "HAS_BIAS": True, "EVEN_K": True}

# What a build has to contain (KERNELS: the instruction that Triton 3.8 makes where the chip has one).
_FP8_UNIT = {
    "sm89": r"e4m3\.e4m3", "sm90": r"wgmma.*e4m3\.e4m3", "sm100": r"kind::f8f6f4", "sm103": r"kind::f8f6f4",
    "sm120": r"e4m3\.e4m3", "gfx942": "fp8_fp8", "gfx950": "f8f6f4", "gfx1201": "fp8_fp8",
}  # fmt: skip
_MXFP4_UNIT = {
    "sm100": r"kind::mxf4\b", "sm103": r"kind::mxf4\b", "sm120": "kind::mxf4", "gfx950": "v_mfma_scale.*f8f6f4",
}  # fmt: skip
_MXFP8_UNIT = {"sm100": "kind::mxf8f6f4", "sm103": "kind::mxf8f6f4", "gfx950": "v_mfma_scale.*f8f6f4"}


def cases(target: Target) -> Iterator[Case]:
    """The ops that a target has, each at its decode and its prefill launch."""
    for phase, tokens in _TOKENS.items():
        yield from (c._replace(name=f"{c.name} {phase}") for c in _products(target.name, tokens))
        yield from (c._replace(name=f"{c.name} {phase}") for c in _experts(target.name, tokens))
    yield from _conversions(target.name)
    yield from _cache(target.name)


def _fp8_type(name: str) -> str:
    return "fp8e4b8" if name in FNUZ else "fp8e4nv"


def _case(
    op: str, name: str, tokens: int, kernel: Any, pointers: dict[str, str], constants: dict[str, Any], needs: str
) -> Case:
    return Case(op, kernel, pointers, constants, default_launch(op, name, tokens), needs)


def _products(name: str, tokens: int) -> Iterator[Case]:
    plain = {"x": "bf16"} | _WEIGHT | _OUT
    yield _case("mxfp4.w4a16", name, tokens, mxfp4.w4a16_kernel, plain, _EVEN, "bf16|kind::f16")
    if name in NATIVE_FP8:
        element = _fp8_type(name)
        folded = {"x": element, "x_scales": "fp32", "row_exponents": "i32"} | _WEIGHT | _OUT
        yield _case("mxfp4.w4a8", name, tokens, mxfp4.w4a8_kernel, folded, _EVEN, _FP8_UNIT[name])
        both = {"x": element, "w": element, "x_scales": "fp32", "w_scales": "fp32"} | _OUT
        for x_scales, w_scales in (("tensor", "tensor"), ("token", "channel"), ("block", "block")):
            flags = _EVEN | {"X_SCALES": x_scales, "W_SCALES": w_scales}
            yield _case(f"fp8.{w_scales}", name, tokens, fp8.fp8_matmul_kernel, both, flags, _FP8_UNIT[name])
    for op, element, form, units, native in (
        ("mxfp4.w4a4", "u8", "e2m1", _MXFP4_UNIT, NATIVE_MXFP4),
        ("mxfp4.w4a8mx", "fp8e4nv", "e4m3", _MXFP8_UNIT, NATIVE_MXFP8_BY_MXFP4),
    ):
        if name in native:
            scaled = {"x": element, "x_scales": "u8"} | _WEIGHT | _OUT
            yield _case(op, name, tokens, mxfp4.w4a4_kernel, scaled, _EVEN | {"X_FORMAT": form}, units[name])


def _experts(name: str, tokens: int) -> Iterator[Case]:
    common = {"x_scales": "fp32"} | _WEIGHT | _OUT | _ROUTED
    plain = common | {"x": "bf16", "row_exponents": "i32"}
    yield _case("moe.w4a16", name, tokens, moe.moe_mxfp4_kernel, plain, _MOE | {"FP8": False}, "bf16|kind::f16")
    if name in NATIVE_FP8:
        folded = plain | {"x": _fp8_type(name)}
        yield _case("moe.w4a8", name, tokens, moe.moe_mxfp4_kernel, folded, _MOE | {"FP8": True}, _FP8_UNIT[name])
        both = {"x": _fp8_type(name), "w": _fp8_type(name), "x_scales": "fp32", "w_scales": "fp32"} | _OUT | _ROUTED
        for op, w_scales in (("moe.fp8", "channel"), ("moe.fp8_block", "block")):
            flags = _MOE | {"W_SCALES": w_scales}
            yield _case(op, name, tokens, moe.moe_fp8_kernel, both, flags, _FP8_UNIT[name])


def _conversions(name: str) -> Iterator[Case]:
    four = {"EMAX": E2M1.emax, "CARRY_FROM": carry_from(E2M1, "floor"), "ROWS": 8, "WIDTH": 256}
    packed = {"x": "bf16"} | _WEIGHT
    yield Case("mxfp4.quantize", quantize.quantize_mxfp4_kernel, packed, four, Launch())
    unpacked = {"y": "bf16"} | _WEIGHT
    yield Case("mxfp4.dequantize", quantize.dequantize_mxfp4_kernel, unpacked, {"ROWS": 8, "WIDTH": 256}, Launch())
    if name in NATIVE_FP8:
        fmt = E4M3FNUZ if name in FNUZ else E4M3FN
        eight = {"EMAX": fmt.emax, "CARRY_FROM": carry_from(fmt, "floor"), "LARGEST": fmt.max, "ROWS": 8, "WIDTH": 256}
        pointers = {"x": "bf16", "elements": _fp8_type(name), "scales": "u8"}
        yield Case("mxfp8.quantize", quantize.quantize_mxfp8_kernel, pointers, eight, Launch())
        pointers = {"x": "bf16", "elements": _fp8_type(name), "scales": "fp32", "scale": "fp32"}
        flags = {"LARGEST": fmt.max, "WIDTH": 1024}
        yield Case("fp8.quantize token", quantize.quantize_fp8_rows_kernel, pointers, flags, Launch())
        yield Case("fp8.quantize tensor", quantize.scale_fp8_kernel, pointers, flags, Launch())
        for rows, granularity in ((1, "group"), (128, "block")):
            tile = {"LARGEST": fmt.max, "ROWS": rows, "WIDTH": 128}
            launch = Launch(num_warps=8 if rows > 1 else 1)
            yield Case(f"fp8.quantize {granularity}", quantize.quantize_fp8_tiles_kernel, pointers, tile, launch)
    gate = {"ALPHA": 1.702, "LIMIT": 7.0, "OAI": True, "WIDTH": 512}
    yield Case("moe.gate", moe.gated_kernel, {"x": "bf16", "y": "bf16"}, gate, Launch())
    yield Case("moe.combine", moe.combine_kernel, {"x": "bf16", "y": "bf16"}, {"TOP_K": 4, "WIDTH": 512}, Launch())


def _cache(name: str) -> Iterator[Case]:
    if name not in NATIVE_FP8:
        return
    element = _fp8_type(name)
    largest = (E4M3FNUZ if name in FNUZ else E4M3FN).max
    head = {"DIM": 128, "WIDTH": 128, "PER_TOKEN": True}
    store = {"x": "bf16", "cache": element, "scales": "fp32", "slots": "i64"}
    yield Case("kv.store", kv.store_kernel, store, head | {"LARGEST": largest}, Launch(num_warps=1))
    launch = default_launch("kv.decode", name, 64)
    pointers = {
        "q": "bf16", "keys": element, "values": element, "key_scales": "fp32", "value_scales": "fp32", "sinks": "bf16",
        "tables": "i32", "lengths": "i32", "out": "bf16",
    }  # fmt: skip
    flags = head | {"GROUP_HEADS": 8, "HEADS": 16, "WINDOW": 0, "HAS_SINKS": True, "BLOCK_T": launch.block_n}
    yield Case("kv.decode", kv.decode_kernel, pointers, flags, launch, "", {"softmax_scale": "fp32"})
