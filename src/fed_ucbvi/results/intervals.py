"""The mean over runs and how far it can be trusted: Student's interval, the bootstrap, or the plain deviation."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi._types import FloatArray
from fed_ucbvi.errors import InputError

LEVEL = 0.95
BOOTSTRAP_FROM = 20
"""Runs from which on an interval is bootstrapped; with fewer the bootstrap is too narrow."""
RESAMPLES = 4000
RESAMPLING_SEED = 2025


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


class Spread(NamedTuple):
    """A mean and the two ends of its band."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray


def mean_and_spread(samples: npt.ArrayLike) -> Spread:
    """Mean over the first axis with the band that so many runs allow; see :func:`spread_name`.

    >>> mean, low, high = mean_and_spread([1.0, 2.0, 3.0])
    >>> float(mean), float(low), float(high)
    (2.0, 1.0, 3.0)
    """
    values = np.asarray(samples, dtype=np.float64)
    mean, _ = mean_and_margin(values)
    if values.shape[0] >= BOOTSTRAP_FROM:
        return Spread(mean, *bootstrap_ends(values))
    deviation = values.std(axis=0, ddof=1) if values.shape[0] > 1 else np.zeros_like(mean)
    return Spread(mean, mean - deviation, mean + deviation)


def spread_name(runs: int) -> str:
    """What the band of :func:`mean_and_spread` is: the paper's for a few runs, a 95 % interval for many.

    >>> spread_name(5), spread_name(50)
    ('\u00b1 one standard deviation', '95 % bootstrap interval of the mean')
    """
    return "95 % bootstrap interval of the mean" if runs >= BOOTSTRAP_FROM else "\u00b1 one standard deviation"


def bootstrap_ends(samples: npt.ArrayLike, level: float = LEVEL) -> tuple[FloatArray, FloatArray]:
    """Ends of the bootstrap interval of the mean over the first axis, bias-corrected and accelerated (BCa).

    Runs are drawn again with replacement, whole: a curve stays a curve. With ``z0`` the normal quantile of the share
    of means drawn below the mean and ``a`` a sixth of the skewness over ``sqrt(n)``, the ends are the quantiles at
    ``Phi(z0 + (z0 + z)/(1 - a (z0 + z)))`` for the two normal z of the level (Efron 1987). The same samples give
    the same ends.
    """
    values = np.asarray(samples, dtype=np.float64)
    n = values.shape[0] if values.ndim else 0
    if n < 2:
        raise InputError("the bootstrap needs at least two runs.")
    shape, values = values.shape[1:], values.reshape(n, -1)
    mean = values.mean(axis=0)
    draws = np.random.default_rng(RESAMPLING_SEED).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    means = np.sort(draws @ values / n, axis=0)
    apart = values - mean
    squares = (apart**2).sum(axis=0)
    normal = NormalDist()
    ends = np.empty((2, values.shape[1]))
    for k in range(values.shape[1]):
        share = ((means[:, k] < mean[k]).sum() + (means[:, k] <= mean[k]).sum()) / (2 * RESAMPLES)
        if squares[k] <= 1e-24 * max(1.0, mean[k] ** 2) or not 0 < share < 1:
            ends[:, k] = mean[k]
            continue
        z0, acceleration = normal.inv_cdf(share), float((apart[:, k] ** 3).sum() / (6 * squares[k] ** 1.5))
        for side, z in enumerate((normal.inv_cdf((1 - level) / 2), normal.inv_cdf((1 + level) / 2))):
            at = normal.cdf(z0 + (z0 + z) / (1 - acceleration * (z0 + z)))
            ends[side, k] = np.interp(at * (RESAMPLES - 1), np.arange(RESAMPLES), means[:, k])
    return ends[0].reshape(shape), ends[1].reshape(shape)
