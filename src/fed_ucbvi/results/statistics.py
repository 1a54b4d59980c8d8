"""Means over runs and differences between runs, with their 95 % intervals; and how many seeds would decide.

All functions take arrays and return numbers. Intervals of differences and ratios are Student's, so they never
contradict each other: 0 lies in the interval of a difference exactly where 1 lies in that of the ratio. Those of
means that cannot be negative are made for a logarithmic axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray

LEVEL = 0.95
"""The level of every interval."""
POWER = 0.8
"""The probability of a decision for which :func:`seeds_needed` computes the number of seeds."""
INTERVAL_NAME = "95 % interval of the mean"
"""Name of the band of :func:`mean_interval` in pictures and tables."""
FAILING = 3.0
"""A run fails if its measure (a cost, such as regret) is more than this many times the median of its group."""


Band = tuple[FloatArray, FloatArray, FloatArray]
"""A mean and the two ends of its band."""


class Estimate(NamedTuple):
    """A figure with its uncertainty; ``low`` and ``high`` are ends, not distances."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, band: Iterable[FloatArray]) -> Estimate:
        mean, low, high = band
        return cls(mean=float(mean), low=float(low), high=float(high))


class Summary(NamedTuple):
    """Statistics of the runs of a group.

    ``low`` and ``high`` are the ends of the mean's 95 % interval (the mean itself for a single run), ``deviation``
    the standard deviation (NaN for a single run). ``failing`` runs have more than :data:`FAILING` times the median,
    which they do not move; ``failing_low`` and ``failing_high`` are the ends of the 95 % interval of their share.
    """

    runs: int
    mean: float
    low: float
    high: float
    deviation: float
    median: float
    worst: float
    failing: int
    failing_low: float
    failing_high: float

    @property
    def failing_text(self) -> str:
        return share_text(self.failing, self.runs)


class PairedDifference(NamedTuple):
    """Statistics of ``x - y`` over pairs: the mean over so many ``seeds``, and its 95 % interval.

    ``low`` and ``high`` are infinite for a single pair. No single pair decides the ``median`` of the differences;
    ``lower`` is the number of pairs in which x is lower than y. For ``seeds_needed`` see the function of this name.
    """

    mean: float
    low: float
    high: float
    median: float
    lower: int
    seeds: int
    seeds_needed: int | None

    @property
    def decided(self) -> bool:
        """True if the interval does not contain 0."""
        return self.low > 0 or self.high < 0

    @property
    def outcome(self) -> str:
        """``lower`` or ``higher`` if x is; ``equal`` if the pairs are, in each of several pairs; or ``undecided``."""
        if self.high < 0:
            return "lower"
        if self.low > 0:
            return "higher"
        if self.low == self.high == 0:
            return "equal"
        return "undecided"


def student_quantile(freedom: int) -> float:
    """The t with ``P(|X| <= t) = 0.95`` for X of Student's distribution with ``freedom`` degrees of freedom.

    >>> round(student_quantile(4), 3)
    2.776
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def student_interval(samples: npt.ArrayLike) -> Band:
    """Mean over the first axis (runs) with Student's 95 % interval, ``mean -+ t s / sqrt(n)``.

    Here s is the standard deviation of the n runs and t Student's quantile with n - 1 degrees of freedom. A single
    run has no interval: both ends are the run itself.

    >>> mean, low, high = student_interval([1.0, 2.0, 3.0])
    >>> float(mean), round(float(low), 3), round(float(high), 3)
    (2.0, -0.484, 4.484)
    """
    values = np.asarray(samples, dtype=np.float64)
    n = len(values) if values.ndim else 0
    if n == 0:
        raise InputError("a mean needs at least one run.")
    mean = np.asarray(values.mean(axis=0))
    if n > 1:
        margin = student_quantile(n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n)
    else:
        margin = 0.0
    return mean, np.asarray(mean - margin), np.asarray(mean + margin)


def mean_interval(samples: npt.ArrayLike) -> Band:
    """Mean over the first axis (runs) with its 95 % interval, as tables and pictures show it.

    Where no sample is negative and the mean is positive, the ends ``mean -+ m`` of Student's interval become
    ``mean exp(-+ m / mean)``: the interval of ``log mean`` to first order. It never reaches 0, fits a logarithmic
    axis, and equals Student's where m is small.

    >>> mean, low, high = mean_interval([9.0, 10.0, 11.0])
    >>> float(mean), round(float(low), 2), round(float(high), 2)
    (10.0, 7.8, 12.82)
    """
    mean, low, high = student_interval(samples)
    positive = (np.asarray(samples, dtype=np.float64).min(axis=0) >= 0) & (mean > 0)
    margin = np.where(positive, high - mean, 0.0)
    factor = np.exp(margin / np.where(positive, mean, 1.0))
    low_end = np.where(positive, mean / factor, low)
    high_end = np.where(positive, mean * factor, high)
    return mean, low_end, high_end


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a probability, Clopper and Pearson's: its coverage is at least 95 %.

    >>> [round(end, 3) for end in share_interval(0, 50)], [round(end, 2) for end in share_interval(5, 10)]
    ([0.0, 0.071], [0.19, 0.81])
    """
    from scipy.special import betaincinv

    tail = (1 - LEVEL) / 2
    low = 0.0
    high = 1.0
    if successes:
        low = float(betaincinv(successes, trials - successes + 1, tail))
    if successes < trials:
        high = float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


def share_text(successes: int, trials: int) -> str:
    """A count with the 95 % interval of its share.

    >>> share_text(1, 5), share_text(0, 50)
    ('1 of 5 [0.5, 72 %]', '0 of 50 [0, 7.1 %]')
    """
    low, high = share_interval(successes, trials)
    low_percent = 100 * low
    high_percent = 100 * high
    low_digits = int(0 < low_percent < 10)
    high_digits = int(high_percent < 10)
    return f"{successes} of {trials} [{low_percent:.{low_digits}f}, {high_percent:.{high_digits}f} %]"


def summarise(samples: npt.ArrayLike) -> Summary:
    """Mean with its interval, spread, median and share of failing runs, from one number per run.

    >>> found = summarise([1.0, 2.0, 2.0, 3.0, 40.0])
    >>> found.mean, found.median, found.failing
    (9.6, 2.0, 1)
    """
    values = np.asarray(samples, dtype=np.float64)
    n = len(values)
    mean = Estimate.of(mean_interval(values))
    median = float(np.quantile(values, 0.5))
    failing = 0
    if median >= 0:  # a cost is not negative
        failing = int((values > FAILING * median).sum())
    failing_low, failing_high = share_interval(failing, n)
    return Summary(
        runs=n,
        mean=mean.mean,
        low=mean.low,
        high=mean.high,
        deviation=float(values.std(ddof=1)) if n > 1 else math.nan,
        median=median,
        worst=float(values.max()),
        failing=failing,
        failing_low=failing_low,
        failing_high=failing_high,
    )


def paired_difference(x: npt.ArrayLike, y: npt.ArrayLike) -> PairedDifference:
    """The mean of ``x - y`` over pairs (runs with the same seed), with Student's 95 % interval for paired samples.

    >>> found = paired_difference([3.0, 5.0, 4.0, 6.0], [1.0, 2.0, 3.0, 4.0])
    >>> found.mean, round(found.low, 2), round(found.high, 2), found.decided
    (2.0, 0.7, 3.3, True)
    """
    a, b = _pairs(x, y)
    difference = a - b
    n = len(difference)
    mean, low, high = Estimate.of(student_interval(difference))
    needed = None
    if n == 1:
        low = -math.inf
        high = math.inf
    else:
        needed = seeds_needed(mean, float(difference.std(ddof=1)))
    return PairedDifference(
        mean=mean,
        low=low,
        high=high,
        median=float(np.median(difference)),
        lower=int((a < b).sum()),
        seeds=n,
        seeds_needed=needed,
    )


def paired_ratio(x: npt.ArrayLike, y: npt.ArrayLike) -> Estimate:
    """The ratio of means, ``mean(x) / mean(y)``, over pairs (runs with the same seed) with its 95 % interval.

    The interval is Fieller's: all rho for which 0 lies in the paired interval of ``x - rho y``. These lie between the
    roots of ``(y^2 - k Syy) rho^2 - 2 (x y - k Sxy) rho + (x^2 - k Sxx)`` with x and y the means, S the
    covariances and ``k = t^2 / n``. It has no ends (infinities) where the mean of y may be 0, or for a single pair.

    >>> ratio = paired_ratio([3.0, 5.0, 4.0, 6.0], [1.0, 2.0, 3.0, 4.0])
    >>> [round(number, 2) for number in ratio]
    [1.8, 1.21, 6.55]
    """
    a, b = _pairs(x, y)
    n = len(a)
    mean_a = float(a.mean())
    mean_b = float(b.mean())
    ratio = mean_a / mean_b if mean_b != 0 else math.nan
    unbounded = Estimate(ratio, -math.inf, math.inf)
    if n == 1:
        return unbounded
    scale = student_quantile(n - 1) ** 2 / n
    covariances = np.cov(a, b, ddof=1)
    square = mean_b**2 - scale * float(covariances[1, 1])
    middle = mean_a * mean_b - scale * float(covariances[0, 1])
    rest = mean_a**2 - scale * float(covariances[0, 0])
    if square <= 0:
        return unbounded
    root = math.sqrt(max(0.0, middle**2 - square * rest))
    return Estimate(ratio, (middle - root) / square, (middle + root) / square)


def _pairs(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    a = np.asarray(x, dtype=np.float64)
    b = np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) == 0:
        raise InputError(
            "a paired comparison needs two lists of equal length, one entry per seed; "
            f"got shapes {a.shape} and {b.shape}."
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InputError("a paired comparison needs finite numbers; some of these are unknown (NaN) or infinite.")
    return a, b


def seeds_needed(difference: float, deviation: float) -> int | None:
    """The number of pairs with which the 95 % interval excludes 0 with probability 80 %.

    ``n = (z_0.975 + z_0.8)^2 (deviation / difference)^2 + z_0.975^2 / 2``, rounded up, where z are quantiles of the
    normal distribution, ``difference`` is the true mean difference and ``deviation`` the standard deviation of the
    differences. The last term corrects for the deviation being estimated (Guenther 1981). Below a dozen pairs the
    formula can give one or two pairs too few; there n is increased until the exact power (noncentral Student) is
    reached.

    In practice the observed difference is used in place of the true one, so the number is only a guide. It is None if
    the difference is 0 or below a billionth of the deviation.

    >>> seeds_needed(1.0, 1.0), seeds_needed(0.1, 1.0), seeds_needed(0.0, 1.0)
    (10, 787, None)
    """
    from scipy.special import ndtri

    if abs(difference) <= 1e-9 * deviation or difference == 0:
        return None
    z = float(ndtri((1 + LEVEL) / 2))
    z_power = float(ndtri(POWER))
    n = max(2, math.ceil(((z + z_power) * deviation / difference) ** 2 + z**2 / 2))
    effect = abs(difference) / deviation if deviation else math.inf
    # An effect of 15 standard deviations is found with two pairs.
    while n < 20 and effect <= 15 and _power(n, effect) < POWER:
        n += 1
    return n


def _power(pairs: int, effect: float) -> float:
    """The probability that the interval of ``pairs`` pairs lies above 0; that it lies below is negligible."""
    from scipy.special import nctdtr

    return 1 - float(nctdtr(pairs - 1, math.sqrt(pairs) * effect, student_quantile(pairs - 1)))
