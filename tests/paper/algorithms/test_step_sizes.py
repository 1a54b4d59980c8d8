"""Step sizes against exact fractions, explicit products and explicit sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fed_ucbvi.paper.algorithms.step_sizes import FEW_VISITS, SMOOTH_FROM, advance_sum, step_size

HORIZONS = [1, 2, 5, 10, 40]


def kept(n0: int, n1: int, H: int) -> Fraction:
    """``prod_{t=n0+1}^{n1} (1 - (H+1)/(H+t))``, one factor after the other."""
    product = Fraction(1)
    for t in range(n0 + 1, n1 + 1):
        product *= 1 - Fraction(H + 1, H + t)
    return product


def kept_at_once(n0: int, n1: int, H: int) -> Fraction:
    """The same by rising factorials, exactly."""
    return Fraction(math.prod(n0 + i for i in range(H + 1)), math.prod(n1 + i for i in range(H + 1)))


def explicit_sum(n0: int, n1: int, H: int, p: int, q: float, x: float = 0.0) -> float:
    """``x <- (1-alpha)^p x + alpha^p t^-q``, visit by visit."""
    for t in range(n0 + 1, n1 + 1):
        alpha = (H + 1) / (H + t)
        x = (1 - alpha) ** p * x + alpha**p * t**-q
    return x


def sum_of_squares(n: int, H: int) -> Fraction:
    """``sum_{i=1}^n (theta_n^i)^2``, exactly and without a loop over i.

    ``theta_n^i = (H+1) (i)_H / (n)_{H+1}``; products of falling factorials of ``i+H-1`` are sums of such with
    positive coefficients, and those sum by parts.
    """
    total = Fraction(0)
    falling = 1
    for j in range(H + 1):
        total += Fraction(math.comb(H, j) ** 2 * math.factorial(H - j), H + j + 1) * falling
        falling *= n - 1 - j
    return (H + 1) ** 2 * total / math.prod(n + i for i in range(H + 1))


@pytest.mark.parametrize("H", HORIZONS)
def test_several_visits_keep_the_product_of_what_each_keeps(H: int) -> None:
    for n0, n1 in ((0, 1), (0, 7), (1, 2), (3, 4), (3, 50), (100, 101), (100, 300)):
        exact = kept(n0, n1, H)
        assert exact == kept_at_once(n0, n1, H)
        keep, step = step_size(n0, n1, H)
        assert keep == pytest.approx(float(exact), rel=1e-13, abs=0)
        assert step == pytest.approx(float(1 - exact), rel=1e-13, abs=0)


@pytest.mark.parametrize("H", HORIZONS)
@pytest.mark.parametrize("n0", [10**6, 10**9, 10**12])
def test_step_sizes_lose_no_digits_however_large_the_counts(n0: int, H: int) -> None:
    for n in (1, 1000, n0 // (H * (H + 1)), 5 * n0):
        exact = kept_at_once(n0, n0 + n, H)
        keep, step = step_size(n0, n0 + n, H)
        assert keep == pytest.approx(float(exact), rel=1e-13, abs=0)
        assert step == pytest.approx(float(1 - exact), rel=1e-13, abs=0)


@pytest.mark.parametrize("visits", [1, 10**9])
def test_the_first_visits_replace_everything(visits: int) -> None:
    assert step_size(0, visits, 5) == (0.0, 1.0)


def test_no_visit_replaces_nothing() -> None:
    assert step_size(17, 17, 5) == (1.0, 0.0)


@pytest.mark.parametrize(("p", "q"), [(1, 0.0), (1, 0.5), (2, 0.0)])
@pytest.mark.parametrize("H", HORIZONS)
def test_sums_over_a_round_are_the_explicit_sums(H: int, p: int, q: float) -> None:
    smooth = SMOOTH_FROM * (H + 1)
    cases = [(0, 1), (0, 2), (5, 5 + FEW_VISITS), (5, 300), (0, 2 * smooth), (smooth, smooth + FEW_VISITS + 1)]
    cases += [(smooth - 3, smooth + 500), (smooth, 4 * smooth), (100_000, 100_000 + 100_000 // (H * (H + 1)))]
    for n0, n1 in cases:
        for x in (0.0, 0.3):
            assert advance_sum(x, n0, n1, H, p, q) == pytest.approx(explicit_sum(n0, n1, H, p, q, x), rel=1e-9)


@pytest.mark.parametrize("H", HORIZONS)
def test_the_sum_of_squared_weights_is_its_closed_form_up_to_a_million_million_visits(H: int) -> None:
    for n in (1, 2, H, H + 1, 37):
        weights = [Fraction((H + 1) * math.prod(i + k for k in range(H))) for i in range(1, n + 1)]
        scale = math.prod(n + k for k in range(H + 1))
        assert sum_of_squares(n, H) == sum(w * w for w in weights) / scale**2
    x = 0.0
    n = 0
    for end in (1, 10, 1000, 10**5, 10**7, 10**7 + 1, 10**9, 10**12, 10**12 + 10**10):
        x = advance_sum(x, n, end, H, 2, 0.0)
        n = end
        assert x == pytest.approx(float(sum_of_squares(end, H)), rel=1e-9, abs=0)


@pytest.mark.parametrize("H", HORIZONS)
def test_sums_of_weights_over_roots_have_the_right_limit_at_huge_counts(H: int) -> None:
    """``(n+H) x_n = (n-1) x_{n-1} + (H+1) n^-q`` is solved by ``x = C n^-q (1 + a/n + ...)``, here with q = 1/2."""
    q = 0.5
    C = (H + 1) / (H + 1 - q)
    a = -q * (1 - q) / (2 * (H - q))
    x = 0.0
    n = 0
    for end in (10**8, 10**8 + 10**6, 10**10, 10**12):
        x = advance_sum(x, n, end, H, 1, q)
        n = end
        assert x == pytest.approx(C * end**-q * (1 + a / end), rel=1e-9, abs=0)


def test_weights_obey_the_inequalities_the_analysis_rests_on() -> None:
    """``1/sqrt(n) <= sum theta t^-1/2 <= 2/sqrt(n)`` and ``sum theta^2 <= 2 H / n`` (Jin et al., Lemma 4.1)."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        H = int(rng.integers(1, 50))
        n = int(10 ** rng.uniform(0, 12))
        assert 1 - 1e-9 <= advance_sum(0.0, 0, n, H, 1, 0.5) * math.sqrt(n) <= 2 + 1e-9
        assert advance_sum(0.0, 0, n, H, 2, 0.0) <= 2 * H / n * (1 + 1e-9)
        assert advance_sum(0.0, 0, n, H, 1, 0.0) == pytest.approx(1.0, rel=1e-9)
