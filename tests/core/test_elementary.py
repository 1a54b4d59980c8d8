"""Logarithm and exponential against Python's decimal arithmetic, which is exact to as many digits as one asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest

from fed_ucbvi.core import elementary
from fed_ucbvi.core.types import FloatArray

MAX_ULPS = 2.5
_RNG = np.random.default_rng(7)
_TINY_TO_HUGE = 10 ** _RNG.uniform(-300, 300, 1500)
_ABOUT_ONE = np.concatenate([_RNG.uniform(0.5, 2, 1500), 1 + _RNG.uniform(-1e-6, 1e-6, 300), [1.0]])
_SMALL = np.concatenate([10 ** _RNG.uniform(-20, 20, 1500), _RNG.uniform(0, 2, 1500), [0.0, 0.41]])
_EXPONENTS = np.concatenate([_RNG.uniform(-690, 690, 1500), _RNG.uniform(-2, 2, 1500), [0.0, -0.0]])
_LITTLE = np.concatenate([_EXPONENTS, 10 ** _RNG.uniform(-20, 0, 800), -(10 ** _RNG.uniform(-20, 0, 800))])

Exact = Callable[[Decimal], Decimal]


@pytest.mark.parametrize(
    ("function", "exact", "arguments"),
    [
        (elementary.log, lambda x: x.ln(), np.concatenate([_TINY_TO_HUGE, _ABOUT_ONE])),
        (elementary.log1p, lambda x: (1 + x).ln(), _SMALL),
        (elementary.exp, lambda x: x.exp(), _EXPONENTS),
        (elementary.expm1, lambda x: x.exp() - 1, _LITTLE),
    ],
    ids=["log", "log1p", "exp", "expm1"],
)
def test_functions_are_exact_to_a_few_units_in_the_last_place(
    function: Callable[[float], float], exact: Exact, arguments: FloatArray
) -> None:
    with localcontext() as context:
        context.prec = 60
        for x in arguments.tolist():
            truth = exact(Decimal(x))
            error = abs(Decimal(function(x)) - truth)
            assert error <= Decimal(MAX_ULPS) * Decimal(math.ulp(float(truth))), x


def test_known_bits_do_not_change() -> None:
    """Equal bits on all machines: these figures were computed once, and other machines must give the same ones."""
    bits = [function(x).hex() for function in (elementary.log, elementary.expm1) for x in (3.0, 0.1)]
    assert bits == [
        "0x1.193ea7aad030bp+0",
        "-0x1.26bb1bbb55515p+1",
        "0x1.315e5bf6fb106p+4",
        "0x1.aec7b35a00d3ap-4",
    ]


def test_an_exponential_below_the_smallest_is_zero() -> None:
    assert elementary.exp(-701.0) == 0.0
