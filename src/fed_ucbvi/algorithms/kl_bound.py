"""The largest and the smallest mean over a Kullback-Leibler ball around an empirical distribution.

``U(p, V, c) = sup { q.V : q a distribution on all states, KL(p, q) <= c }``. With ``top`` the largest value of all
states, seen or not, duality gives

    U = min over nu >= top of  nu - exp( sum_i p_i log(nu - V_i) - c ),

a convex function of nu. By weak duality *every* ``nu >= top`` gives a number that is at least U. So the iteration
below only decides how close the result is to U, never on which side it lies; a last rounding up pays for the errors
of the logarithms. The derivative vanishes where ``f(nu) = c`` with

    f(nu) = sum_i p_i log(nu - V_i) + log sum_i p_i / (nu - V_i),

and if ``f(top) <= c``, the minimum is at ``nu = top``. Everything is written in ``y = nu - top`` and in the distances
``d_i = top - V_i``, so that nothing cancels.
"""

from __future__ import annotations

import math

import numpy as np

from fed_ucbvi.core.compiling import compiled, embedded
from fed_ucbvi.core.elementary import exp, expm1, log, log1p
from fed_ucbvi.core.types import FloatArray

MAX_STEPS = 100
CLOSE = 1e-5
"""Relative change of y at which the iteration ends; the error of U is of the order of its square."""
ROUND_UP = 1.0 - 2.0**-42
"""Factor on ``top - U``: larger than what rounding can do to it."""
CLEAR = 1e-9
"""Far more than what rounding can do to a logarithm."""
LARGEST_RADIUS = 600.0
"""Beyond this c nothing keeps q from the top, to the last bit."""


@compiled
def largest_mean(p: FloatArray, d: FloatArray, size: int, top: float, c: float) -> float:
    """U, or a little more.

    Args:
        p: the first ``size`` entries are probabilities above 0 that add up to 1.
        d: ``top - V`` of the same next states.
        size: how many next states were seen.
        top: the largest V of all states.
        c: the radius of the ball, at least 0.
    """
    logs = np.zeros(size)
    for i in range(size):
        if d[i] > 0.0:
            logs[i] = log(d[i])
    base, factor, x = parts_of_largest_mean(p, d, logs, size, top, c)
    return base - factor * exp(x)


@embedded
def parts_of_largest_mean(
    p: FloatArray, d: FloatArray, log_d: FloatArray, size: int, top: float, c: float
) -> tuple[float, float, float]:
    """The same as ``(base, factor, x)``, which stand for ``base - factor exp(x)``: many are then worked out at once.

    ``log_d`` are the logarithms of d, of no meaning where d is 0.
    """
    mean, least, most, nearest = 0.0, float(d[0]), float(d[0]), 0
    for i in range(size):
        mean += p[i] * d[i]
        most = max(most, d[i])
        if d[i] < least:
            least, nearest = float(d[i]), i
    if most == 0.0 or c > LARGEST_RADIUS:
        return top, 0.0, 0.0
    if least == most:  # a point mass, as far as values go
        return top, ROUND_UP * most, -c
    if c <= 0.0:
        return top - ROUND_UP * mean, 0.0, 0.0
    if least > 0.0:
        logs, weights = 0.0, 0.0
        for i in range(size):
            logs += p[i] * log_d[i]
        if logs - log_d[nearest] < c - CLEAR:  # f(top) is less, for no weight is larger
            return top, ROUND_UP, logs - c
        for i in range(size):
            weights += p[i] / d[i]
        if logs + log(weights) <= c:
            return top, ROUND_UP, logs - c
    y = _stationary_point(p, d, size, mean, most, c)
    logs = 0.0
    for i in range(size):
        logs += p[i] * log1p(d[i] / y)
    return top - ROUND_UP * max(0.0, y * expm1(logs - c)), 0.0, 0.0


@compiled
def _stationary_point(p: FloatArray, d: FloatArray, size: int, mean: float, most: float, c: float) -> float:
    """About the y with ``f = c``, by Newton's method on ``f^(-1/2)``, which is nearly linear in y, within a bracket.

    For large y, ``f = Var / (2 (y + mean)^2)`` to first order; that gives the start.
    """
    variance = 0.0
    for i in range(size):
        variance += p[i] * (d[i] - mean) * (d[i] - mean)
    guess = math.sqrt(variance / (2.0 * c))
    y, low, high = max(guess - mean, 0.1 * guess), 0.0, math.inf
    for _ in range(MAX_STEPS):
        logs, first, second = 0.0, 0.0, 0.0
        for i in range(size):
            distance = y + d[i]
            weight = p[i] / distance
            logs += p[i] * log(distance)
            first += weight
            second += weight / distance
        f, slope = logs + log(first), first - second / first
        if f > c:
            low = y
        else:
            high = y
        after = -1.0
        if f > 0.0 and slope < 0.0:
            after = y + 2.0 * f * (1.0 - math.sqrt(f / c)) / slope
        if not low < after < high:
            after = y / 16.0 if low == 0.0 else 4.0 * y if high == math.inf else 0.5 * (low + high)
        if abs(after - y) <= CLOSE * after or after < 1e-30 * most:
            return after
        y = after
    return y


@compiled
def largest_rate(rate: float, c: float) -> float:
    """The largest x with ``kl(rate, x) <= c`` for Bernoulli distributions, or a little more.

    It bounds the mean of any law on [0,1] from its empirical mean, by convexity.
    """
    if rate >= 1.0:
        return 1.0
    p, d, log_d = np.empty(2), np.empty(2), np.zeros(2)
    p[0], d[0] = 1.0 - rate, 1.0
    p[1], d[1] = rate, 0.0
    base, factor, x = parts_of_largest_mean(p, d, log_d, 2 if rate > 0.0 else 1, 1.0, c)
    return base - factor * exp(x)
