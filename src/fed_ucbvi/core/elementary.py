"""Logarithm and exponential from IEEE additions, multiplications and divisions alone.

The machine's mathematical library may round these functions differently from one processor or version to the next.
These do not: the same argument gives the same bits everywhere. Their error is a few units in the last place.
"""

from __future__ import annotations

import math

import numpy as np

from fed_ucbvi.core.compiling import compiled

_LN2_A = 3048493539143.0 * 2.0**-42
_LN2_B = 5.497923018708371e-14
"""ln 2 in two parts; the first has 42 bits, so that its product with an exponent is exact."""
_ONE_OVER_LN2 = 1.4426950408889634
_SQRT2 = 1.4142135623730951
_MANTISSA = (1 << 52) - 1
_ONE_BITS = 1023 << 52
_BIAS = 1023
_SHIFT = 52


@compiled
def _twice_atanh(s: float) -> float:
    """``2 atanh(s)`` for ``|s| <= 0.1716`` by its series; the first term left out is below half a unit of the sum."""
    z = s * s
    series = 1.0 / 15.0 + z * (1.0 / 17.0 + z * (1.0 / 19.0 + z * (1.0 / 21.0 + z / 23.0)))
    series = 1.0 / 7.0 + z * (1.0 / 9.0 + z * (1.0 / 11.0 + z * (1.0 / 13.0 + z * series)))
    series = 1.0 / 3.0 + z * (1.0 / 5.0 + z * series)
    return 2.0 * (s + s * z * series)


@compiled
def log(x: float) -> float:
    """The natural logarithm of a positive normal number."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> _SHIFT) - _BIAS
    mantissa = np.int64((bits & _MANTISSA) | _ONE_BITS).view(np.float64)
    if mantissa > _SQRT2:
        mantissa = 0.5 * mantissa
        exponent = exponent + 1
    part = _twice_atanh((mantissa - 1.0) / (mantissa + 1.0))
    return float(exponent) * _LN2_A + (part + float(exponent) * _LN2_B)


@compiled
def log1p(x: float) -> float:
    """``log(1 + x)`` for ``x >= 0``, with a small relative error where x is small, too."""
    if x < 0.41:
        return _twice_atanh(x / (2.0 + x))
    return log(1.0 + x)


@compiled
def _scale_and_rest(x: float) -> tuple[float, float]:
    """``2^k`` and ``exp(r) - 1`` with ``x = k ln 2 + r`` and ``|r| <= ln(2)/2``, by Taylor's series."""
    k = math.floor(x * _ONE_OVER_LN2 + 0.5)
    r = (x - k * _LN2_A) - k * _LN2_B
    tail = 1.0 / 39916800.0 + r * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0 + r / 87178291200.0))
    tail = 1.0 / 40320.0 + r * (1.0 / 362880.0 + r * (1.0 / 3628800.0 + r * tail))
    tail = 1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0 + r * tail))
    rest = r + r * r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * tail)))
    return np.int64((np.int64(k) + _BIAS) << _SHIFT).view(np.float64), rest


@compiled
def expm1(x: float) -> float:
    """``exp(x) - 1`` for ``|x| <= 700``, with a small relative error where x is small, too."""
    scale, rest = _scale_and_rest(x)
    return scale * rest + (scale - 1.0)


@compiled
def exp(x: float) -> float:
    """``exp(x)`` for ``x <= 700``; 0 below -700."""
    if x < -700.0:
        return 0.0
    scale, rest = _scale_and_rest(x)
    return scale + scale * rest
