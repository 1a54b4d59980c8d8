"""The largest mean over a Kullback-Leibler ball against feasible points, its dual by SciPy, and closed forms.

A feasible q (checked by its own divergence) cannot have a larger mean than U. If U is that of some feasible q up to
rounding as well, it is the supremum, whatever one believes of duality.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy import optimize

from fed_ucbvi.algorithms.kl_bound import largest_mean, largest_rate
from fed_ucbvi.core.types import FloatArray

ROUNDING = 1e-11
"""Relative to ``top - U``: what U rounds up is ``2^-42``, about 2.3e-13."""


class Ball(NamedTuple):
    """A distribution ``p (S,)``, in which states may be unseen, the values of all states, and a radius."""

    p: FloatArray
    V: FloatArray
    c: float


def bound(ball: Ball) -> float:
    p, V, c = ball
    seen = p > 0
    top = float(V.max())
    size = int(seen.sum())
    return float(largest_mean(p[seen], top - V[seen], size, top, c))


def divergence(p: FloatArray, q: FloatArray) -> float:
    """KL(p, q), as ``sum q phi(p/q)`` with ``phi(1 + e) = (1 + e) log(1 + e) - e``, which loses little near p."""
    seen = p > 0
    e = p[seen] / q[seen] - 1.0
    return float((q[seen] * ((1.0 + e) * np.log1p(e) - e)).sum() + q[~seen].sum())


def random_ball(rng: np.random.Generator, least: float = -8.0, most: float = 1.5) -> Ball:
    """Two to eight states, unseen ones and ties among them; c from ``10^least`` to ``10^most``."""
    S = int(rng.integers(2, 9))
    p = rng.dirichlet(np.full(S, rng.choice([0.3, 1.0, 5.0]))) + 1e-4
    p[rng.permutation(S)[: int(rng.integers(0, S))]] = 0.0
    V = rng.uniform(0.0, rng.choice([1e-3, 1.0, 10.0, 1000.0]), S)
    if rng.random() < 0.3:
        V = V[rng.integers(0, S, S)]
    return Ball(p / p.sum(), V, float(10.0 ** rng.uniform(least, most)))


def best_point(ball: Ball) -> FloatArray:
    """``p/(nu - V)`` up to a factor, nu by SciPy's root finder; what is left over goes to the top."""
    p, V, c = ball
    seen = p > 0
    top = V.max()
    p = p[seen]
    d = top - V[seen]

    def f(y: float) -> float:
        """Written with logarithms of 1 and a little, for large y."""
        if y < d.max():
            return float((p * np.log(y + d)).sum() + math.log((p / (y + d)).sum()))
        return float((p * np.log1p(d / y)).sum() + math.log1p(-float((p * d / (y + d)).sum())))

    q = np.zeros(len(V))
    if d.max() == 0.0:
        return np.asarray(ball.p)
    if d.min() > 0.0 and f(0.0) <= c:
        kept = math.exp(f(0.0) - c)
        q[seen] = kept * (p / d) / (p / d).sum()
        q[V.argmax()] += 1.0 - kept
        return q
    high = 1.0
    while f(high) > c:
        high *= 8.0
    low = high
    while f(low) < c and low > 1e-290:  # if it is still so there, U is the top
        low /= 8.0
    y = low
    if f(low) >= c:
        root = optimize.brentq(lambda x: f(math.exp(x)) - c, math.log(low), math.log(high), xtol=1e-14)
        y = math.exp(root)
    q[seen] = (p / (y + d)) / (p / (y + d)).sum()
    return q


def test_the_bound_is_the_mean_of_a_feasible_point() -> None:
    """Both sides of the supremum, 4 000 times.

    A q found in floats has the divergence ``c (1 + e)`` for a small e. U is concave in c and begins at the mean, so
    that this is worth at most ``e (U - mean)``.
    """
    rng = np.random.default_rng(1)
    on_top = inside = 0
    for _ in range(4000):
        ball = random_ball(rng)
        U = bound(ball)
        q = best_point(ball)
        top = float(ball.V.max())
        assert abs(q.sum() - 1.0) < 1e-12
        # from the top; nothing cancels
        below = float(q @ (top - ball.V))
        mean = float(ball.p @ (top - ball.V))
        e = abs(divergence(ball.p, q) / ball.c - 1.0) if 1e-200 < below < mean else 0.0
        assert e < 1e-6
        worth = 1.01 * e * (mean - below) + 1e-15 * top
        assert top - U <= below + worth
        assert top - U >= below * (1.0 - ROUNDING) - worth
        on_top += (q > 0).sum() > (ball.p > 0).sum()
        inside += ball.p[ball.V.argmax()] > 0 and len(set(ball.V)) > 1
    assert min(on_top, inside) > 500, "both cases must occur"


def test_the_dual_function_is_nowhere_below_it() -> None:
    """``nu - exp(sum p log(nu - V) - c)`` is at least U for every nu, and SciPy's minimum of it is U."""
    rng = np.random.default_rng(4)
    for _ in range(1000):
        p, V, c = ball = random_ball(rng, -4.0, 1.0)
        U = bound(ball)
        seen = p > 0
        top = float(V.max())
        p = p[seen]
        d = top - V[seen]

        def dual(log_y: float, p: FloatArray = p, d: FloatArray = d, c: float = c) -> float:
            """``top - D(nu)``, which is to be as large as possible."""
            y = math.exp(log_y)
            return y * math.expm1(float((p * np.log1p(d / y)).sum()) - c)

        scale = float(d.max())
        if scale == 0.0:
            assert top == U
            continue
        found = optimize.minimize_scalar(
            lambda x, dual=dual: -dual(x), bounds=(math.log(scale) - 60, math.log(scale) + 15), method="bounded"
        )
        assert top - U == pytest.approx(max(-found.fun, 0.0), rel=1e-9, abs=1e-9 * scale)
        for log_y in rng.uniform(math.log(scale) - 10, math.log(scale) + 10, 5):
            assert dual(log_y) <= (top - U) * (1.0 + ROUNDING) + 1e-13 * scale


def test_a_point_mass_has_the_closed_form() -> None:
    """``top - (top - v) exp(-c)``: what is taken from the only state that was seen goes to the top."""
    rng = np.random.default_rng(5)
    for _ in range(500):
        V = rng.uniform(0.0, 9.0, 4)
        c = float(10.0 ** rng.uniform(-12, 2))
        below = (V.max() - V[0]) * math.exp(-c)
        got = V.max() - bound(Ball(np.array([1.0, 0.0, 0.0, 0.0]), V, c))
        assert below * (1.0 - ROUNDING) - 4e-15 <= got <= below * (1.0 + 1e-14) + 4e-15


def test_the_bound_grows_with_the_values() -> None:
    """Up to rounding; the proof of optimism needs it."""
    rng = np.random.default_rng(6)
    for _ in range(3000):
        ball = random_ball(rng)
        V = ball.V
        scale = float(V.max())
        raised = np.where(rng.random(len(V)) < 0.5, rng.uniform(0.0, scale, len(V)), 0.0)
        more = V + raised * rng.choice([1e-6, 1.0])
        assert bound(Ball(ball.p, more, ball.c)) >= bound(ball) - 1e-12 * scale


def test_the_bound_grows_with_the_radius() -> None:
    rng = np.random.default_rng(6)
    for _ in range(3000):
        ball = random_ball(rng)
        factor = 1.0 + float(rng.choice([1e-6, 0.01, 1.0]))
        wider = bound(Ball(ball.p, ball.V, ball.c * factor))
        assert wider >= bound(ball) - 1e-12 * float(ball.V.max())


def test_the_bound_lies_between_the_mean_and_the_largest_value() -> None:
    rng = np.random.default_rng(6)
    for _ in range(3000):
        ball = random_ball(rng)
        scale = float(ball.V.max())
        assert float(ball.p @ ball.V) - 1e-14 * scale <= bound(ball) <= scale


def test_two_seen_states_below_an_unseen_top_share_what_the_top_leaves() -> None:
    """By hand: p = (1/2, 1/2), V = (0, 1, 2), exp(f(top)) = (3/4) sqrt 2; U = 2 - sqrt(2) exp(-c) for larger c."""
    p = np.array([0.5, 0.5, 0.0])
    V = np.array([0.0, 1.0, 2.0])
    least = math.log(0.75 * math.sqrt(2.0))
    for c in (least, 0.1, 1.0, 5.0):
        assert bound(Ball(p, V, c)) == pytest.approx(2.0 - math.sqrt(2.0) * math.exp(-c), abs=1e-11)
    assert bound(Ball(p, V, 0.9 * least)) < 2.0 - math.sqrt(2.0) * math.exp(-0.9 * least)
    assert bound(Ball(p, np.array([0.0, 1.0, 1.0]), 1.0)) < bound(Ball(p, V, 1.0)), "a top that nobody saw counts"


def test_ties_count_as_one_state() -> None:
    rng = np.random.default_rng(8)
    for _ in range(300):
        p, V, c = random_ball(rng)
        split = rng.random()
        i = int(rng.integers(len(p)))
        parts = np.concatenate([np.delete(p, i), [split * p[i], (1.0 - split) * p[i]]])
        values = np.concatenate([np.delete(V, i), [V[i], V[i]]])
        top = V.max()
        assert top - bound(Ball(parts, values, c)) == pytest.approx(top - bound(Ball(p, V, c)), rel=1e-10, abs=1e-280)


def test_the_bound_of_equal_values_is_their_value() -> None:
    for c in (0.0, 1e-12, 0.5, 30.0, 1e3):
        assert bound(Ball(np.array([1.0]), np.array([3.7]), c)) == 3.7
        assert bound(Ball(np.array([0.2, 0.0, 0.8]), np.array([2.5, 2.5, 2.5]), c)) == 2.5
        assert bound(Ball(np.array([0.25, 0.75]), np.zeros(2), c)) == 0.0


def test_the_bound_at_extreme_radii() -> None:
    """The mean at 0, the largest value at 1000, and the first order of the expansion at 1e-12."""
    rng = np.random.default_rng(7)
    for _ in range(500):
        p, V, _ = random_ball(rng)
        mean = float(p @ V)
        top = float(V.max())
        deviation = math.sqrt(float(p @ (V - mean) ** 2))
        assert bound(Ball(p, V, 0.0)) == pytest.approx(mean, abs=1e-12 * top)
        assert bound(Ball(p, V, 1e3)) == top
        little = bound(Ball(p, V, 1e-12))
        first_order = mean + deviation * math.sqrt(2e-12)
        assert mean - 1e-15 * top <= little
        assert abs(little - first_order) <= 1e-12 * (4.0 * (top - mean) + top)  # the next term is of the order of c


def bernoulli_divergence(x: float, y: float) -> float:
    left = x * math.log(x / y) if x > 0 else 0.0
    return left + ((1.0 - x) * math.log((1.0 - x) / (1.0 - y)) if x < 1 else 0.0)


def test_the_largest_rate_is_that_of_a_bisection() -> None:
    rng = np.random.default_rng(9)
    for _ in range(1500):
        rate = float(rng.choice([rng.random(), rng.random() ** 8, 0.0, 1.0]))
        c = float(10.0 ** rng.uniform(-6, 1))
        low = rate
        high = 1.0
        for _ in range(80):
            middle = 0.5 * (low + high)
            inside = middle < 1.0 and bernoulli_divergence(rate, middle) <= c
            low, high = (middle, high) if inside else (low, middle)
        got = float(largest_rate(rate, c))
        assert low - 1e-9 * (1.0 - rate) <= got <= high + 1e-9
        assert rate <= got <= 1.0
    assert largest_rate(0.0, 0.0) == pytest.approx(0.0, abs=1e-12)
    assert largest_rate(1.0, 0.5) == 1.0
    assert largest_rate(0.0, 0.7) == pytest.approx(1.0 - math.exp(-0.7), abs=1e-12)
