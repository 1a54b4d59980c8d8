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

from fed_ucbvi.algorithms.count_table import CountTable, mean_reward
from fed_ucbvi.core.compiling import compiled, embedded, inner
from fed_ucbvi.core.elementary import exp, expm1, log, log1p
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import FloatArray, IndexArray

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


# ------------------------------------------------------------------------- what a policy is worth at least

NOTHING = 1e-100
"""Values below this are taken for 0: they guarantee nothing, and logarithms need normal numbers."""


@compiled
def pessimistic_values(
    table: CountTable, policy: IndexArray, random_rewards: bool, delta: float, support: int, choose: bool = False
) -> FloatArray:
    """``V[H+1, S]``, below the values of ``policy[H, S]`` with probability ``1 - delta``, by counts alone.

    With N visits to (h,s,a), K possible next states and p the empirical distribution of the next state,

        N KL(p, P) <= log(S A H / delta) + (K-1) log( e (1 + N/(K-1)) )

    holds for all pairs and all N together with probability ``1 - delta``. The smallest mean over such a ball is the
    largest one turned round. A pair that was never visited is worth nothing. Where rewards are random, r is the least
    mean that the Bernoulli divergence allows, and half of ``delta`` is for them.

    Args:
        table: the counts of all agents.
        policy: one action for each step and state.
        random_rewards: whether rewards depend on chance.
        delta: the probability that some value is too large.
        support: K, how many next states a pair may have; S where nobody knows.
        choose: write the policy with the largest such values to ``policy``; of equals the action seen most.
    """
    (H, S), (steps, _, A), width = policy.shape, table.visits.shape, table.transitions.shape[3]
    V, p, d = np.zeros((H + 1, S)), np.empty(width), np.empty(width)
    union = log(S * A * H / (0.5 * delta if random_rewards else delta))
    for h in range(H - 1, -1, -1):
        hc, after = shared(h, steps), V[h + 1]
        bottom = after.min()
        for j in range(table.numbers[hc]):
            s, most = table.states[hc, j], 0
            for a in range(A):
                n = table.visits[hc, s, a]
                if n == 0 or not (choose or a == policy[h, s]):
                    continue
                value = _least_value((hc, s, a), table, after, bottom, union, support, random_rewards, p, d)
                if most == 0 or value > V[h, s] or (value == V[h, s] and n > most):
                    V[h, s], most, policy[h, s] = value, n, a
    return V


@inner
def _least_value(
    cell: tuple[int, int, int],
    table: CountTable,
    V: FloatArray,
    bottom: float,
    union: float,
    support: int,
    random_rewards: bool,
    p: FloatArray,
    d: FloatArray,
) -> float:
    """``r + inf q.V`` over the ball, where there are visits; ``bottom`` is the least V, p and d are to work in."""
    n, size, bits = table.visits[cell], int(table.seen[cell]), table.bits[0]
    N, more = float(n), float(support - 1)
    for k in range(size):
        p[k], d[k] = table.transitions[cell][k] / N, V[table.successors[cell][k]] - bottom
    c = (union + (more * (1.0 + log(1.0 + N / more)) if support > 1 else 0.0)) / N
    up = mean_reward(n, table.rewards[cell][0], table.rewards[cell][1], bits)
    r = max(0.0, up - 2.0 / float(1 << bits))  # it and its parts were rounded up to the grid
    if random_rewards:
        r = 1.0 - largest_rate(1.0 - r, (union + log(2.0) + 0.5 * log(N + 1.0)) / N)
    value = r - largest_mean(p, d, size, -bottom, c)
    return value if value > NOTHING else 0.0
