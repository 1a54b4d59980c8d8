"""The bounds of the variant with proof: the algebra, the lemmas behind it, and how often N can grow."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, InputError, gridworld, synthetic
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.theory.bounds import regret_bound_terms
from fed_ucbvi.theory.constants import beta_max
from fed_ucbvi.theory.proved import BONUSES, proved_regret_bound, proved_rounds_bound

E = math.e


# ------------------------------------------------------------------------------------------------ regret


@pytest.mark.parametrize(
    ("bonus", "leading", "lower", "square"), [("tight", 33.4, 190.0, 96.0), ("corrected", 39.2, 391.0, 140.0)]
)
def test_the_constants_are_those_of_the_theorem(bonus: str, leading: float, lower: float, square: float) -> None:
    S, A, H, M, T, delta = 8, 4, 10, 20, 10**9, 0.05
    b = beta_max(S, A, H, M, T, delta)
    bound = proved_regret_bound(S, A, H, M, T, delta, bonus=bonus)
    assert bound.exploration <= leading * E * b * math.sqrt(H**3 * S * A * T / M)
    stated = (lower * E + square * E**2) * b**2 * H**3 * S**2 * A / M + 2 * E * S * A * H * (H + 1)
    assert 0.99 * stated <= bound.burn_in <= stated * 1.0001


def largest_solution(right_hand_side: Callable[[float], float]) -> float:
    """The largest U with ``U <= F(U)`` for a concave, increasing F with F(0) > 0."""
    high = 1.0
    while right_hand_side(high) > high:
        high *= 2
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if right_hand_side(middle) > middle else (low, middle)
    return high


def recursion(
    S: int, A: int, H: int, M: int, T: int, delta: float, bonus: str, stationary: bool, hard: float
) -> Callable[[float], float]:
    """The right-hand side of ``U <= F(U)`` before any simplification: steps 1 to 3 of the module's text."""
    k, K = BONUSES[bonus]
    b = beta_max(S, A, H, M, T * H if stationary else T, delta)
    triplets = S * A if stationary else S * A * H
    per_visit = 1 + 2 * hard  # N~ <= (1 + 2 f) N
    inverse = per_visit * b * triplets  # sum of 1/N, with ln T <= b
    inverse_root = 2 * math.sqrt(per_visit) * math.sqrt(triplets * M * T * H)  # sum of 1/sqrt N
    early = (1 + hard) * M * S * A * (H * H if stationary else H * (H + 1) / 2)

    def right_hand_side(U: float) -> float:
        kernel = H**2 * math.sqrt(2 * S * b) * inverse_root / M
        variances = 2 * H**2 * T + 2 * H**2 * U + kernel + 2 * math.sqrt(8 * H**5 * T * b / M) + 6 * H**3 * b / M
        roots = (math.sqrt(4 * b) + math.sqrt(k * b)) * math.sqrt(inverse * M * variances) / M
        martingale = math.sqrt(8 * H**2 * T * (H + 1) * b / M)
        return E * (roots + K * H**2 * S * b * inverse / M + martingale + early / M)

    return right_hand_side


@pytest.mark.parametrize("bonus", sorted(BONUSES))
@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("hard", [1.0, 8.0])
def test_no_regret_that_satisfies_the_recursion_exceeds_the_bound(bonus: str, stationary: bool, hard: float) -> None:
    """The inequality is solved numerically for U, at sizes of every kind."""
    random = np.random.default_rng(1)
    for _ in range(300):
        S, A, H, M = (int(2 ** random.uniform(1, high)) for high in (6, 4, 6, 10))
        T, delta = int(10 ** random.uniform(1, 12)), 0.05
        bound = proved_regret_bound(S, A, H, M, T, delta, bonus=bonus, stationary=stationary, hard_factor=hard)
        assert largest_solution(recursion(S, A, H, M, T, delta, bonus, stationary, hard)) <= bound.common


def test_the_burn_in_falls_with_the_number_of_agents_where_the_published_one_does_not() -> None:
    few, many = (proved_regret_bound(8, 4, 10, M, 10**9, 0.05).burn_in for M in (1, 1000))
    published = regret_bound_terms(8, 4, 10, 1000, 10**9, 0.0, 0.0, 0.05).burn_in
    assert many < few / 300
    assert many < published / 300


# -------------------------------------------------------------------------------------- what optimism rests on


def next_value_with_bonus(P: np.ndarray, V: np.ndarray, alpha: float, B: float) -> float:
    """``P V + max(sqrt(alpha Var V), alpha B)``."""
    mean = float(P @ V)
    variance = max(0.0, float(P @ V**2) - mean**2)
    return mean + max(math.sqrt(alpha * variance), alpha * B)


def test_a_larger_next_value_never_gives_a_smaller_bound() -> None:
    """Monotone in V on [0, B], for every alpha: random kernels, V raised in random places."""
    random = np.random.default_rng(2)
    for _ in range(20_000):
        S = int(random.integers(2, 6))
        P = random.dirichlet(np.full(S, 0.5))
        B = random.uniform(0.1, 5)
        low = random.uniform(0, B, S)
        high = np.minimum(B, low + random.exponential(B, S) * (random.random(S) < 0.5))
        alpha = 10 ** random.uniform(-4, 1)
        assert next_value_with_bonus(P, high, alpha, B) >= next_value_with_bonus(P, low, alpha, B) - 1e-12


def test_without_the_second_argument_of_the_maximum_it_would() -> None:
    """``P V + sqrt(alpha Var V)`` alone is not monotone, so the maximum is needed."""
    P, alpha = np.array([0.9, 0.1]), 40.0
    low, high = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    assert next_value_with_bonus(P, high, alpha, 0.0) < next_value_with_bonus(P, low, alpha, 0.0)


def test_the_one_sided_empirical_bernstein_bound_holds_exactly_for_bernoulli_variables() -> None:
    """``P(p - mean > sqrt(2 l Var/(n-1)) + 7 l/(3 (n-1))) <= delta``, l = ln(2/delta), by adding up binomials."""
    from scipy.stats import binom

    for n in (2, 3, 5, 10, 30, 100, 300):
        counts = np.arange(n + 1)
        means = counts / n
        variances = means * (1 - means)  # divided by n, so n - 1 below the root
        for delta in (0.5, 0.1, 0.01):
            log = math.log(2 / delta)
            margin = np.sqrt(2 * log * variances / (n - 1)) + 7 * log / (3 * (n - 1))
            for p in np.linspace(0.01, 0.99, 99):
                assert binom.pmf(counts, n, p)[p - means > margin].sum() <= delta


# ------------------------------------------------------------------------------------------------- rounds


def test_a_request_above_k_m_visits_makes_n_grow_by_0458() -> None:
    """``7/9 (N - 11 M b) - 7/8 M T eps H - 11 b >= 0.458 N`` for ``N >= (44 b + 4 eps H T) M`` and M >= 2."""
    random = np.random.default_rng(3)
    for _ in range(10_000):
        M, b = int(random.integers(2, 1000)), random.uniform(1, 100)
        drift = random.choice([0.0, 10 ** random.uniform(-3, 4)])  # eps H T
        N = (44 * b + 4 * drift) * M * (1 + random.exponential())
        growth = 7 / 9 * (N - 11 * M * b) - 7 / 8 * M * drift - 11 * b
        assert growth - 0.458 * N >= 0


@pytest.mark.parametrize("M", [1, 2, 3, 10, 100])
def test_requests_that_grow_n_as_little_as_they_can_are_no_more_than_the_bound(M: int) -> None:
    """One triplet, every request adds the least the lemmas allow until N reaches ``M T``."""
    for T in (10, 1_000, 10**5, 10**8):
        sizes = {"S": 1, "A": 1, "H": 1, "M": M, "T": T, "eps_p": 0.0, "delta": 0.05}
        k = 44 * math.log(48 * E * M * T * (2 * M * T + 1) / 0.05)
        N, requests = 0, 0
        while N < M * T:
            least = max(1, -(-N // M))
            if M > 1 and k * M <= N:
                least = max(least, math.ceil(0.458 * N))
            N += least
            requests += N <= M * T
        assert min(requests, T) <= proved_rounds_bound(**sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("agents", [1, 3, 20])
def test_runs_by_the_global_rule_keep_to_the_counting_and_to_the_bound_on_rounds(agents: int) -> None:
    """``N_end <= 2 N + M - 1``, or M from 0, at every synchronisation; the bound is below T."""
    T, delta = 1_000_000, 0.05
    algorithm = FedUCBVI(bonus="corrected", clip="remaining", synchronisation="global", delta=delta)
    for world in (synthetic(agents=agents, seed=1), gridworld(agents=agents, seed=2)):
        simulation = Simulation(algorithm, world, T, 0, "auto")
        most = 0.0
        while not simulation.done:
            before = simulation.server.estimates.N.copy()
            simulation.advance()
            after = simulation.server.estimates.N
            allowed = np.where(before > 0, 2 * before + agents - 1, agents)
            assert (after <= allowed).all()
            most = max(most, float((after / allowed).max()))
        assert most > 0.9
        bound = proved_rounds_bound(world.states, world.actions, world.horizon, agents, T, 0.0, delta)
        assert simulation.rounds <= bound < T


def test_with_rest_rounds_do_not_depend_on_the_number_of_agents_but_for_the_hard_ones() -> None:
    """A schedule that ends every round as soon as it has lasted ``gamma t`` episodes has no more than the bound."""
    gamma, T = 0.1, 30_000
    t, rounds = 1, 0
    while t <= T:
        t += max(1, math.ceil(gamma * t))
        rounds += 1
    soft = math.ceil(1 / gamma) + 1 + math.log(gamma * T) / math.log1p(gamma)
    assert rounds <= soft
    bound = proved_rounds_bound(1, 1, 1, 20, T, 0.0, 0.05, rest=gamma, hard_factor=1e6)
    assert soft <= bound <= soft + 3


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InputError, match="bonus"):
        proved_regret_bound(8, 4, 10, 20, 1000, 0.05, bonus="loose")
    with pytest.raises(InputError, match="hard_factor"):
        proved_regret_bound(8, 4, 10, 20, 1000, 0.05, hard_factor=0.5)
    with pytest.raises(InputError, match="hard_factor"):
        proved_rounds_bound(8, 4, 10, 20, 1000, 0.0, 0.05, rest=0.1, hard_factor=2)
