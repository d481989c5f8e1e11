"""The number formats, exactly, as tables of plain Python: E2M1, E4M3 (fn and fnuz), E5M2 and the E8M0 scale.

Everything that rounds, packs or multiplies in this package is tested against these tables, so they are written from
the definitions (OCP Microscaling Formats v1.0, OCP 8-bit Floating Point v1.0; fnuz as in LLVM's APFloat) and never from
another implementation. No torch here.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple


# Elements that share one scale in an MX block, along the reduced dimension (OCP MX v1.0, section 5.2).
BLOCK = 32
# Bias of the E8M0 scale, and its one code that is no number (OCP MX v1.0, section 5.4.1).
E8M0_BIAS = 127
E8M0_NAN = 0xFF


class Format(NamedTuple):
    """One element format: 1 sign bit, `exponent` and `mantissa` bits.

    `specials` says which codes are no finite numbers: "none" (E2M1), "nan" (E4M3FN: S.1111.111 only), "ieee" (E5M2: the
    top exponent holds Inf and NaN) or "fnuz" (0x80 is the only NaN, and there is no −0).
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    specials: str

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return 1 + self.exponent + self.mantissa

    @property
    def codes(self) -> int:
        """How many codes there are."""
        return 1 << self.bits

    @property
    def max(self) -> float:
        """The largest finite value: 6, 448, 240 or 57344."""
        return _largest(self)

    @property
    def emax(self) -> int:
        """The exponent of the largest value: what a shared MX exponent is lowered by (2, 8, 7 or 15)."""
        return math.frexp(self.max)[1] - 1

    @property
    def top_significand(self) -> float:
        """The significand of the largest value, in [1, 2): 1.5 for E2M1, 1.75 for E4M3FN and E5M2."""
        return math.frexp(self.max)[0] * 2


E2M1 = Format("e2m1", 2, 1, 1, "none")
E4M3FN = Format("e4m3fn", 4, 3, 7, "nan")
E4M3FNUZ = Format("e4m3fnuz", 4, 3, 8, "fnuz")
E5M2 = Format("e5m2", 5, 2, 15, "ieee")
FP8_FORMATS = (E4M3FN, E4M3FNUZ, E5M2)


def decode(fmt: Format, code: int) -> float:
    """The value of one code; NaN and Inf where the format has them."""
    sign = -1.0 if code >> (fmt.bits - 1) else 1.0
    exponent = (code >> fmt.mantissa) & ((1 << fmt.exponent) - 1)
    fraction = code & ((1 << fmt.mantissa) - 1)
    special = _special(fmt, sign, exponent, fraction)
    if special is not None:
        return special
    if exponent == 0:  # subnormal
        return sign * math.ldexp(fraction, 1 - fmt.bias - fmt.mantissa)
    return sign * math.ldexp((1 << fmt.mantissa) + fraction, exponent - fmt.bias - fmt.mantissa)


def _special(fmt: Format, sign: float, exponent: int, fraction: int) -> float | None:
    top = exponent == (1 << fmt.exponent) - 1
    if fmt.specials == "fnuz":
        return math.nan if sign < 0 and exponent == fraction == 0 else None
    if fmt.specials == "nan":
        return math.nan if top and fraction == (1 << fmt.mantissa) - 1 else None
    if fmt.specials == "ieee" and top:
        return math.nan if fraction else sign * math.inf
    return None


@cache
def values(fmt: Format) -> tuple[float, ...]:
    """The value of every code, in order."""
    return tuple(decode(fmt, code) for code in range(fmt.codes))


@cache
def _largest(fmt: Format) -> float:
    return max(v for v in values(fmt) if math.isfinite(v))


def decode_e8m0(code: int) -> float:
    """2^(code − 127); NaN for 0xFF. 0x00 is 2^−127, a number that float32 holds only as a subnormal."""
    return math.nan if code == E8M0_NAN else math.ldexp(1.0, code - E8M0_BIAS)
