"""Bounds for what a policy is worth, from the returns of episodes in which it was played, valid at all times at once.

With p the empirical distribution of n returns in [0, H] and ``b = log(1/delta) + log 2 + (1/2) log(n+1)``,

    upper = sup { mean of q : q on [0, H],  n KL(p, q) <= b },    lower = H - upper of H - G

each hold for all n together with probability ``1 - delta``; any narrower range that the owner of the environments
states may stand for [0, H]. Nothing is assumed but that episodes are drawn alike;
``docs/kl_proofs.md`` has the argument for values, which is the same for returns. Where agents differ and have all
played the same number of episodes, the bounds hold for the mean of their values.

Returns are kept as a histogram of integers, which can be added up over agents, under masks too. A return between two
nodes of the grid counts for both, in the proportion that keeps its mean. By Jensen's inequality that only widens the
bounds, for the logarithm of a bet is concave in the return: by the spread of half a bin, and not by a whole bin as
rounding would.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.kl_bound import largest_mean
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.elementary import log
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.problem.units import Units

BINS = 256
"""Equal parts of the range."""
ROUNDING = 1e-9
"""How far outside its range a return may lie, as a share of H, and still count as rounding error."""
UNIT = 1 << 16
"""What one episode adds to a histogram, in all."""


class Interval(NamedTuple):
    """Interval of the value of a policy, which holds at all times together with probability ``1 - delta``.

    Attributes:
        mean: of the returns; NaN if there are none.
        episodes: how many there are.
        delta: the probability that the value lies outside at any time.
    """

    lower: float
    upper: float
    mean: float
    episodes: int
    delta: float


def new_histogram() -> CountArray:
    """Make the histogram of no returns: one number for each of the ``BINS + 1`` nodes."""
    return np.zeros(BINS + 1, dtype=np.int64)


@compiled
def add_returns(histogram: CountArray, returns: FloatArray, high: float, low: float = 0.0) -> None:
    """Add returns in ``[low, high]``."""
    for G in returns:
        x = min(max((G - low) / (high - low), 0.0), 1.0) * BINS
        i = min(int(x), BINS - 1)
        above = int((x - i) * UNIT)
        histogram[i] += UNIT - above
        histogram[i + 1] += above


def record_returns(
    histogram: CountArray, returns: FloatArray, within: tuple[float, float] | None, units: Units, horizon: int
) -> None:
    """Add returns; raise unless they lie ``within`` the range that was stated, if one was, up to rounding."""
    low, high = within or (0.0, float(horizon))
    slack = math.inf if within is None else ROUNDING * horizon
    outside = returns[~((low - slack <= returns) & (returns <= high + slack))]
    if len(outside):
        paid, *ends = (units.original_return(float(x), horizon) for x in (outside[0], low, high))
        raise InputError(
            f"an episode paid {paid:.12g}, outside return_range ({ends[0]:.12g}, {ends[1]:.12g}), on which what is "
            "promised rests. State a range that holds what every episode pays, whatever is played."
        )
    add_returns(histogram, returns, high, low)


def episodes_in(histogram: CountArray) -> int:
    """Number of returns that were added."""
    return int(histogram.sum()) // UNIT


@compiled
def _upper(weights: CountArray, c: float) -> float:
    """The upper bound as a share of the range, from the weights of the nodes, 0 first."""
    p = np.empty(BINS + 1)
    d = np.empty(BINS + 1)
    size = 0
    total = weights.sum()
    for i in range(len(weights)):
        if weights[i] > 0:
            p[size], d[size] = weights[i] / total, 1.0 - i / BINS
            size += 1
    return largest_mean(p, d, size, 1.0, c)


def radius(episodes: int, delta: float) -> float:
    """``b``: what ``n KL`` may be."""
    return log(1.0 / delta) + log(2.0) + 0.5 * log(episodes + 1.0)


def interval_of(histogram: CountArray, high: float, delta: float, low: float = 0.0) -> Interval:
    """The interval whose ends each fail with probability ``delta / 2``.

    Weights are rounded down to units, which moves a return by at most a unit's share of a bin; the upper end has it.

    >>> seen = new_histogram()
    >>> add_returns(seen, np.array([1.0, 2.0] * 500), 4.0)
    >>> interval = interval_of(seen, 4.0, delta=0.05)
    >>> round(interval.lower, 3), interval.mean, round(interval.upper, 3)
    (1.438, 1.5, 1.562)
    """
    n = episodes_in(histogram)
    if n == 0:
        return Interval(low, high, math.nan, 0, delta)
    c = radius(n, delta / 2.0) / n
    rounding = 1.0 / (BINS * UNIT)
    mean = float(histogram @ np.arange(BINS + 1)) / (n * UNIT * BINS)
    upper = min(1.0, _upper(histogram, c) + rounding)
    lower = max(0.0, 1.0 - _upper(histogram[::-1].copy(), c))
    ends = [low + (high - low) * share for share in (lower, upper, mean)]
    return Interval(ends[0], ends[1], ends[2], n, delta)
