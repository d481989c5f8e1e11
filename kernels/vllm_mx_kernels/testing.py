"""What the tests of this package, and of what builds on it, share: closeness, difficult inputs, a sound interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch


if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np


def assert_close(actual: torch.Tensor, expected: torch.Tensor, *, largest: float, rms: float) -> None:
    """Fail unless errors stay below `largest` and `rms`, both relative to the root mean square of `expected`.

    Shapes must agree, and a NaN on one side must be one on the other. Raises AssertionError with the figures.
    """
    assert actual.shape == expected.shape, f"shapes {tuple(actual.shape)} and {tuple(expected.shape)}"  # noqa: S101
    a, e = actual.double(), expected.double()
    assert torch.equal(a.isnan(), e.isnan()), "NaN in different places"  # noqa: S101
    error = (a - e).nan_to_num(0.0)
    size = e.nan_to_num(0.0).square().mean().sqrt().clamp_min(1e-30)
    worst, typical = float(error.abs().max() / size), float(error.square().mean().sqrt() / size)
    assert worst <= largest, f"largest error {worst:.2e} of the RMS, at most {largest:.2e} allowed"  # noqa: S101
    assert typical <= rms, f"RMS error {typical:.2e} of the RMS, at most {rms:.2e} allowed"  # noqa: S101


def difficult(rows: int, columns: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[rows, columns] with outliers, a row of zeros, a wide range of row magnitudes, −0 and built ties of E2M1."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=made)
    x *= torch.exp2(torch.randint(-12, 13, (rows, 1), generator=made).float())
    x[torch.rand(rows, columns, generator=made) < 0.01] *= 50
    x[0] = 0.0
    x[-1, : min(8, columns)] = torch.tensor([0.25, 0.75, 1.25, -1.75, 2.5, 3.5, 5.0, -0.0])[:columns]
    return x.to(dtype)


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An output full of NaN (of 0xAA where there is none), so that whatever is not written is seen."""
    if dtype.is_floating_point:
        return torch.full(shape, torch.nan).to(dtype)
    return torch.full(shape, 0xAA).to(dtype)


def repair_interpreter() -> None:
    """Make Triton's interpreter (TRITON_INTERPRET=1) compute bf16 and FP8 as a GPU does; once, for the whole process.

    Triton 3.8 and 3.9 multiply the bit patterns of bf16, and their casts to FP8 lose the carry of rounding. Casts go
    through torch instead, saturating where the instruction does, products of bf16 and FP8 through float32.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    if getattr(builder, "repaired", False):
        return
    original = builder.create_fmul
    interpreter._convert_float = _converter(interpreter)  # noqa: SLF001  there is no other door
    builder.create_dot = _dot
    builder.create_fmul = lambda self, a, b: _times(a, b) if _is_bf16(a) else original(self, a, b)
    builder.repaired = True


def _torch_types() -> dict[Any, torch.dtype]:
    import triton.language as tl

    return {
        tl.bfloat16: torch.bfloat16, tl.float16: torch.float16, tl.float32: torch.float32, tl.float64: torch.float64,
        tl.float8e4nv: torch.float8_e4m3fn, tl.float8e4b8: torch.float8_e4m3fnuz, tl.float8e5: torch.float8_e5m2,
        tl.float8e5b16: torch.float8_e5m2fnuz,
    }  # fmt: skip


_SATURATING = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.float8_e4m3fnuz: 240.0}


def _as_torch(data: np.ndarray[Any, Any], kind: Any) -> torch.Tensor:
    """An array of bit patterns or of numbers, as torch holds that type."""
    import numpy as np

    wanted = _torch_types()[kind]
    raw = np.ascontiguousarray(data)
    bits = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[wanted.itemsize]
    return torch.from_numpy(raw.view(bits).copy()).view(wanted)


def _converter(interpreter: ModuleType) -> Any:
    original = interpreter._convert_float  # noqa: SLF001  there is no other door
    known = _torch_types()

    def convert(data: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
        import numpy as np

        if source not in known or target not in known:
            return original(data, source, target, rounding_mode)
        value, wanted = _as_torch(data, source), known[target]
        if wanted in _SATURATING:
            most = _SATURATING[wanted]
            value = torch.where(value.float().isnan(), torch.nan, value.float().clamp(-most, most))
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[wanted.itemsize]
        unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[wanted.itemsize]
        return value.to(wanted).view(bits).numpy().view(unsigned).reshape(np.shape(data))

    return convert


def _is_bf16(handle: Any) -> bool:
    import triton.language as tl

    return bool(handle.dtype.scalar == tl.bfloat16)


def _times(a: Any, b: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle

    kind = a.dtype.scalar
    product = (_as_torch(a.data, kind).float() * _as_torch(b.data, kind).float()).bfloat16()
    return TensorHandle(product.view(torch.int16).numpy().view("uint16"), kind)


def _dot(_: Any, a: Any, b: Any, d: Any, __: Any, ___: Any) -> Any:
    import numpy as np
    from triton.runtime.interpreter import TensorHandle

    left = _as_torch(a.data, a.dtype.scalar).float().numpy()
    right = _as_torch(b.data, b.dtype.scalar).float().numpy()
    return TensorHandle(np.matmul(left, right, dtype=np.float32) + d.data, d.dtype.scalar)
