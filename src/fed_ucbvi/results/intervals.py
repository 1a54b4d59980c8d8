"""Confidence intervals of a mean over a few runs."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fed_ucbvi._types import FloatArray
from fed_ucbvi.errors import InputError

LEVEL = 0.95


def student_quantile(level: float, freedom: int) -> float:
    """The t with ``P(|X| <= t) = level`` for X of Student's distribution with ``freedom`` degrees of freedom.

    With ``theta = atan(t / sqrt(freedom))`` the probability is a finite sum of powers of cos(theta) (Abramowitz
    and Stegun, 26.7.3 and 26.7.4); theta is found by bisection.

    >>> round(student_quantile(0.95, 4), 3)
    2.776
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(theta: float, freedom: int) -> float:
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = freedom % 2
    total, term = 0.0, cosine if odd else 1.0
    for j in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (j - 1) / j
    return 2 / math.pi * (theta + sine * total) if odd else sine * total


def mean_and_margin(samples: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Mean over the first axis and the half-width of its 95 % interval (Student's); 0 for a single run.

    >>> mean, margin = mean_and_margin([1.0, 2.0, 3.0])
    >>> float(mean), round(float(margin), 3)
    (2.0, 2.484)
    """
    values = np.asarray(samples, dtype=np.float64)
    n = values.shape[0] if values.ndim else 0
    if n == 0:
        raise InputError("a mean needs at least one run.")
    mean = np.asarray(values.mean(axis=0))
    if n == 1:
        return mean, np.zeros_like(mean)
    spread = values.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, np.asarray(student_quantile(LEVEL, n - 1) * spread)
