"""Foundations of Fed-KL-UCBVI's optimism: the mixture over bets (Lemma 2), coverage, and the order of the visits.

Most of it is exact: sums over all sequences, or over all counts that sequences can lead to. Lemma 1, duality, is
checked in tests/algorithms/test_kl_bound.py, Theorems 1 and 2 in runs of tests/algorithms/test_fed_kl_ucbvi.py.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from fed_ucbvi.algorithms.kl_bound import largest_mean, largest_rate
from fed_ucbvi.core.types import FloatArray

ALARM = 1e-6


def bound(p: FloatArray, V: FloatArray, c: float) -> float:
    """``U(p, V, c)``."""
    seen = p > 0
    top = float(V.max())
    return float(largest_mean(p[seen], top - V[seen], int(seen.sum()), top, c))


def beta(n: int, delta: float) -> float:
    """``log(1/delta) + log 2 + log(n+1)/2``: one pair of state and step."""
    return math.log(2 / delta) + math.log(n + 1) / 2


# ----------------------------------------------------------------------------- Lemma 2: the mixture over bets


def log_ratio(k: int, n: int) -> float:
    """``max_w w^k (1-w)^(n-k)`` over its mean under Beta(1/2,1/2), as a logarithm."""
    best = special.xlogy(k, k / n) + special.xlogy(n - k, (n - k) / n)
    return float(best - special.betaln(k + 0.5, n - k + 0.5) + math.log(math.pi))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 30, 200, 2_000])
def test_the_best_bet_on_a_binary_sequence_gains_at_most_twice_the_root_of_n_plus_1(
    n: int,
) -> None:
    """``<= sqrt(pi) n! / Gamma(n + 1/2) <= sqrt(pi (n + 1/2)) <= 2 sqrt(n + 1)``, with equality first at k = 0."""
    ratios = [log_ratio(k, n) for k in range(n + 1)]
    ends = 0.5 * math.log(math.pi) + math.lgamma(n + 1) - math.lgamma(n + 0.5)
    assert max(ratios) == pytest.approx(ends, abs=1e-9) == pytest.approx(ratios[0], abs=1e-9)
    assert ends <= 0.5 * math.log(math.pi * (n + 0.5)) <= math.log(2) + 0.5 * math.log(n + 1)


def bets(m: int) -> FloatArray:
    """Means over these are means under Beta(1/2,1/2) of polynomials of a degree below 2m (Gauss and Chebyshev)."""
    return np.asarray((1 + np.cos((2 * np.arange(m) + 1) * np.pi / (2 * m))) / 2)


def test_so_does_the_best_bet_on_any_sequence_of_real_numbers() -> None:
    """Gains ``y >= 0``, zeros and large ones among them; the mixture by exact quadrature."""
    random = np.random.default_rng(3)
    closest = 0.0
    grid = np.linspace(0, 1, 2_001)
    for _ in range(1_000):
        n = int(random.integers(1, 40))
        y = random.exponential(1.0, n) * 10 ** random.uniform(-2, 2) * (random.random(n) < random.uniform(0.1, 1))
        if random.random() < 0.3:
            y = np.minimum(y, 0.5)
        mixture = np.prod(1 - bets(n)[:, None] + bets(n)[:, None] * y, axis=1).mean()
        best = np.prod(1 - grid[:, None] + grid[:, None] * y, axis=1).max()
        assert best <= 2 * math.sqrt(n + 1) * mixture * (1 + 1e-12)
        closest = max(closest, best / (2 * math.sqrt(n + 1) * mixture))
    assert closest > 0.8


KERNELS = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
VALUES = np.array([0.0, 1.0, 2.5])


@pytest.mark.parametrize("chooser", ["one law", "two laws, chosen by what came before"])
def test_the_mixture_has_mean_one_or_less_by_adding_up_all_sequences(
    chooser: str,
) -> None:
    """Six visits. In the second case the mean is that of the law with the smaller one, and the sum stays below 1."""
    top = VALUES.max()
    mu = float((KERNELS @ VALUES).min())
    n = 6
    w = bets(n)
    total = 0.0
    for path in itertools.product(range(3), repeat=n):
        probability = 1.0
        wealth = np.ones(len(w))
        for j, state in enumerate(path):
            law = KERNELS[0 if chooser == "one law" else sum(path[:j]) % 2]
            probability *= law[state]
            wealth = wealth * (1 - w + w * (top - VALUES[state]) / (top - mu))
        total += probability * wealth.mean()
    if chooser == "one law":
        assert total == pytest.approx(1.0, abs=1e-12)
    else:
        assert 0.2 < total < 1.0


# ----------------------------------------------------------------------------------- coverage, all n together


def ever_below(p: float, delta: float, n_max: int, scale: float = 1.0) -> float:
    """The exact probability that ``U < p`` for some ``n <= n_max`` for Bernoulli values, by counts."""
    alive = np.array([1.0])
    failed = 0.0
    for n in range(1, n_max + 1):
        after = np.zeros(n + 1)
        after[:-1] += alive * (1 - p)
        after[1:] += alive * p
        k = 0
        while k <= n and largest_rate(k / n, scale * beta(n, delta) / n) < p:  # it grows with k
            k += 1
        failed += after[:k].sum()
        after[:k] = 0.0
        alive = after
    return float(failed)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_values_of_two_states_are_covered_for_all_n_at_once_exactly(p: float) -> None:
    delta = 0.2
    assert ever_below(p, delta, 600) <= delta
    assert ever_below(p, delta, 600, scale=0.1) > delta  # a bound that could not fail would prove nothing


def test_rewards_of_any_law_are_covered_by_the_bernoulli_divergence_exactly() -> None:
    """Rewards 0, 1/2 and 1: the probability over all pairs of counts, ``n <= 80``."""
    law = (0.3, 0.5, 0.2)
    delta = 0.2
    failed = 0.0
    mean = 0.45
    alive = np.ones((1, 1))
    for n in range(1, 81):
        after = np.zeros((n + 1, n + 1))  # how many halves, how many ones
        after[:-1, :-1] += law[0] * alive
        after[1:, :-1] += law[1] * alive
        after[:-1, 1:] += law[2] * alive
        for twice in range(2 * n + 1):
            if largest_rate(twice / (2 * n), beta(n, delta) / n) >= mean:
                break
            for ones in range(max(0, twice - n), twice // 2 + 1):
                failed += after[twice - 2 * ones, ones]
                after[twice - 2 * ones, ones] = 0.0
        alive = after
    assert 0 < failed <= delta


@pytest.mark.parametrize("differ", [False, True])
def test_values_of_four_states_are_covered_for_all_n_at_once(differ: bool) -> None:
    """H0: ``U < u`` for some ``n <= 200`` has a probability of at most delta = 0.2.

    One-sided binomial test on 200 sequences, false-alarm rate 1e-6; with a tenth of the radius H0 must be rejected.
    If agents differ, u is ``(1 - eps_p) P^c V``; which agent comes next depends on the state that came last.
    """
    random = np.random.default_rng(4)
    delta = 0.2
    eps_p = 0.1
    V = np.array([0.0, 1.0, 2.0, 3.0])
    common = np.array([0.4, 0.3, 0.2, 0.1])
    if differ:
        own = np.array([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    else:
        own = np.tile(common, (2, 1))
    laws = (1 - eps_p) * common + eps_p * own
    steps = np.cumsum(laws, axis=1)[:, :-1]
    u = float(common @ V) * ((1 - eps_p) if differ else 1.0)
    failures = {1.0: 0, 0.1: 0}
    for _ in range(200):
        counts = np.zeros(4)
        state = 0
        failed = dict.fromkeys(failures, False)
        for n in range(1, 201):
            state = int(np.searchsorted(steps[state % 2], random.random()))
            counts[state] += 1
            for scale in failures:
                failed[scale] |= bound(counts / n, V, scale * beta(n, delta) / n) < u
        for scale in failures:
            failures[scale] += failed[scale]
    rejected = {s: stats.binomtest(k, 200, delta, alternative="greater").pvalue < ALARM for s, k in failures.items()}
    assert not rejected[1.0]
    assert rejected[0.1] or differ


# ------------------------------------------------------------------------------------------ late reports


def test_reports_held_back_by_their_content_break_optimism() -> None:
    """300 agents with 1 000 visits each. A network that holds back the reports with a high mean biases the rest.

    Half the reports come in. Chosen by their content, their mean is 0.8 standard deviations of a report too low, more
    than the ball allows from about ``6 beta`` agents on; chosen blindly they are one long sequence. In 20 repetitions
    the first fails always. H0 of the second: it fails with a probability of at most delta = 0.05; with 13 failures or
    more the test raises an alarm, at a rate of 1e-12.
    """
    random = np.random.default_rng(5)
    agents = 300
    visits = 1_000
    delta = 0.05
    chosen = 0
    blind = 0
    for _ in range(20):
        good = random.binomial(visits, 0.5, agents)
        n = agents // 2 * visits
        c = beta(n, delta) / n
        chosen += largest_rate(np.sort(good)[: agents // 2].sum() / n, c) < 0.5
        blind += largest_rate(good[: agents // 2].sum() / n, c) < 0.5
    assert chosen == 20
    assert blind < 13
