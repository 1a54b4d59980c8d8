"""The bounds on the regret and the rounds of Fed-KL-UCBVI: the lemmas behind them, their algebra, and runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from fed_ucbvi import Federation, FedKLUCBVI, InputError, garnet, synthetic
from fed_ucbvi.algorithms.kl_bound import largest_mean
from fed_ucbvi.core.types import FloatArray, MaskArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper.bounds import (
    BALL,
    KAPPA,
    _log_binomial,
    kl_regret_bound,
    nontrivial_from,
    regret_bound_terms,
    rounds_bound,
)

DELTA = 0.05


# ------------------------------------------------------------------------------------------ the inequalities


def deviation(p: FloatArray, f: FloatArray) -> float:
    return math.sqrt(max(0.0, float(p @ f**2 - (p @ f) ** 2)))


def test_moments_of_two_laws_differ_by_no_more_than_their_divergence_allows() -> None:
    """``|(p - P) f| <= sqrt(2 Var_P(f) k) + B k/3`` and ``sd_p(f) <= sd_P(f) + B sqrt(k/2)``, ``k = KL(p, P)``."""
    random = np.random.default_rng(1)
    for _ in range(20_000):
        S = int(random.integers(2, 6))
        p = random.dirichlet(np.full(S, 0.4))
        P = random.dirichlet(np.full(S, 0.4)) + 1e-9
        P /= P.sum()
        f = random.uniform(0, 1, S) ** random.choice([1, 5])
        k = float(special.rel_entr(p, P).sum())
        B = float(np.ptp(f))
        assert abs((p - P) @ f) <= deviation(P, f) * math.sqrt(2 * k) + B * k / 3 + 1e-9
        assert deviation(p, f) <= deviation(P, f) + B * math.sqrt(k / 2) + 1e-9


def test_the_ball_reaches_no_further_than_a_bernstein_bonus() -> None:
    """``U - p.V <= sqrt(2 c Var_p(V)) + (4/3 + sqrt(5/3)) c B``; without the second term it is false."""
    random = np.random.default_rng(2)
    beyond_the_root = 0
    for _ in range(20_000):
        S = int(random.integers(2, 6))
        c = 10 ** random.uniform(-5, 1)
        p = random.dirichlet(np.full(S, 0.4))
        V = random.uniform(0, 3, S + 1)
        d = V.max() - V[:-1]
        gain = largest_mean(p, d, S, float(V.max()), c) - p @ V[:-1]
        root = math.sqrt(2 * c) * deviation(p, V[:-1])
        assert gain <= root + BALL * c * np.ptp(V) + 1e-9
        beyond_the_root += bool(gain > root)
    assert beyond_the_root > 1_000


def test_visits_follow_their_expectation_by_two_supermartingales() -> None:
    """``E exp(d/kappa - X) <= 1`` and ``E exp(X - (e-1) d) <= 1`` for X in [0,1] of mean d; binary X are extreme."""
    for d in np.linspace(0, 1, 101):
        assert math.exp(d / KAPPA) * (1 - d + d / math.e) <= 1 + 1e-12
        assert math.exp(-(math.e - 1) * d) * (1 - d + d * math.e) <= 1 + 1e-12


@pytest.mark.parametrize(("S", "n"), [(2, 9), (3, 8), (4, 6)])
def test_the_likeliest_law_gains_at_most_a_binomial_over_the_uniform_mixture(S: int, n: int) -> None:
    for counts in itertools.product(range(n + 1), repeat=S):
        if sum(counts) != n:
            continue
        best = math.prod((k / n) ** k for k in counts)
        mixture = math.prod(map(math.factorial, counts)) * math.factorial(S - 1) / math.factorial(n + S - 1)
        assert best <= math.comb(n + S - 1, S - 1) * mixture * (1 + 1e-12)


# --------------------------------------------------------------------------------------------------- regret


def test_the_bound_by_hand() -> None:
    """``S = A = H = M = 2``, ``T = 100``, ``delta = 0.3``: n = 200, binomial(201, 1) = 201."""
    kappa = 1 / (1 - 1 / math.e)
    beta = math.log(4 / 0.3) + math.log(201) / 2
    bernstein = math.log(12 * 200 / 0.3)
    kernel = math.log(12 / 0.3) + math.log(201)
    visits = math.log(24 / 0.3)
    D = 4 * kappa * 4 * math.log(100) / 2
    a = math.sqrt(2 * beta) + math.sqrt(2 * bernstein)
    K = math.sqrt(beta * kernel) + 2.6243 * beta + bernstein / 3 + kernel / 3
    X = kappa * 4 * 2 * 3 * (1 + visits / 2) + a * math.sqrt(100 * D) + K * D
    Y = (a + math.sqrt(2 * kernel)) * math.sqrt(D)
    bound = kl_regret_bound(2, 2, 2, 2, 100, 0.3)
    assert bound.exploration == pytest.approx(a * math.sqrt(100 * D), rel=1e-12)
    assert bound.common == pytest.approx(X + Y * math.sqrt(bound.common), rel=1e-5)


@pytest.mark.parametrize("stationary", [False, True])
def test_the_bound_falls_with_the_number_of_agents(stationary: bool) -> None:
    bounds = []
    for M in (1, 2, 20, 500, 10**5):
        bounds.append(kl_regret_bound(8, 4, 10, M, 10**9, DELTA, stationary=stationary).common)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[2] < bounds[0] / 4


@pytest.mark.parametrize("stationary", [False, True])
def test_the_bound_grows_slowly_as_delta_falls(stationary: bool) -> None:
    loose = kl_regret_bound(8, 4, 10, 20, 10**9, 0.5, stationary=stationary).common
    tight = kl_regret_bound(8, 4, 10, 20, 10**9, 1e-9, stationary=stationary).common
    assert loose < tight < 2 * loose


@pytest.mark.parametrize("stationary", [False, True])
def test_the_bound_is_finite_for_huge_sizes(stationary: bool) -> None:
    bound = kl_regret_bound(1000, 50, 100, 10**6, 2**200, 1e-9, stationary=stationary)
    assert math.isfinite(bound.common)


def test_the_bound_for_one_step_does_not_grow_with_episodes() -> None:
    long = kl_regret_bound(3, 2, 1, 5, 10**12, DELTA)
    short = kl_regret_bound(3, 2, 1, 5, 10, DELTA)
    assert long.common == short.common


def test_the_public_function_has_it_for_agents_that_are_alike() -> None:
    sizes = (8, 4, 10, 20, 10**8)
    assert regret_bound_terms(*sizes, 0, 0, DELTA, proof="kl") == kl_regret_bound(*sizes, DELTA)
    pooled = regret_bound_terms(*sizes, 0, 0, DELTA, proof="kl", stationary=True)
    assert pooled.common < kl_regret_bound(*sizes, DELTA).common / 4
    with pytest.raises(InputError, match="all alike"):
        regret_bound_terms(*sizes, 0.1, 0, DELTA, proof="kl")


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("agents", [1, 6])
def test_every_step_of_the_proof_holds_in_runs(agents: int, stationary: bool) -> None:
    """With probability 0.9 by the theorem; in truth its inequalities are generous, and seeds are fixed."""
    make: Callable[..., Federation] = garnet if stationary else synthetic
    for seed in range(2):
        world = make(agents=agents, seed=seed, states=3, actions=2, horizon=3)
        follow_the_proof(world, 4_000, seed, stationary)


def follow_the_proof(world: Federation, T: int, seed: int, stationary: bool) -> None:
    """Play a run, with the exact occupancy d of every round's policy, and check each of the proof's inequalities.

    They are about e, what Q exceeds its Bellman equation by: ``sum d e`` over all steps is the regret, early ones are
    those with few expected visits, and of late ones ``sum d/N`` is bounded.
    """
    mdp = world.common
    M = world.agents
    H = world.horizon
    S = world.states
    A = world.actions
    P = np.broadcast_to(mdp.kernel.dense(), (H, S, A, S))
    rewards = np.broadcast_to(mdp.rewards, (H, S, A))
    if stationary:
        per, cells, n = (H, S * A, M * T * H)
    else:
        per, cells, n = (1, S * A * H, M * T)
    beta = math.log(2 * S * (H - 1) / DELTA) + math.log(n + 1) / 2
    bernstein = math.log(3 * S * A * (H - 1) * n / DELTA)
    kernel = math.log(3 * (cells if stationary else cells - S * A) / DELTA) + math.log(math.comb(n + S - 1, S - 1))
    a = math.sqrt(2 * beta) + math.sqrt(2 * bernstein)
    last = np.arange(H - 1, -1, -1)[:, None, None]
    K = last * (math.sqrt(beta * kernel) + BALL * beta + (bernstein + kernel) / 3)
    enough = 2 * KAPPA * per * (M + math.log(3 * cells / DELTA))

    def mean(f: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("hsax,hx->hsa", P, f))

    best = mdp.solve().V
    expected = np.zeros((H, S, A))
    simulation = Simulation(FedKLUCBVI(stationary=stationary), world, T, seed, "episodes")
    regret = errors = inverse = early = 0.0
    while not simulation.done:
        arrays = simulation.server.arrays()
        began = simulation.played
        Q, V, counts = (np.array(arrays[name], dtype=float) for name in ("Q", "V", "table_visits"))
        policy: MaskArray = np.array(arrays["best"], dtype=np.bool_)
        simulation.advance()
        assert (simulation.server.arrays()["table_visits"] <= 2 * counts + M * per).all()
        own = mdp.evaluate(policy)
        N = np.broadcast_to(counts, (H, S, A))
        d = mdp.occupancy(policy)[:, :, None] * policy / policy.sum(axis=2, keepdims=True)
        e = Q - rewards - mean(V[1:])
        assert mdp.initial @ (V[0] - own[0]) == pytest.approx(float((d * e).sum()), abs=1e-9)

        some = np.maximum(N, 1)
        deviations = np.sqrt(np.maximum(mean(own[1:] ** 2) - mean(own[1:]) ** 2, 0))
        ahead = np.sqrt(last * np.maximum(mean(V[1:] - own[1:]), 0))
        allowed = (a * deviations + (a + math.sqrt(2 * kernel)) * ahead) / np.sqrt(some) + K / some
        assert (e <= allowed + 1e-9)[N > 0].all()
        cost = d * np.maximum(e, 0)
        for _ in range(simulation.played - began):
            expected += M * (d.sum(axis=0) if stationary else d)
            late = expected >= enough
            assert (expected / (4 * KAPPA) <= N)[late].all()
            regret += float(mdp.initial @ (best[0] - own[0]))
            errors += float(cost.sum())
            inverse += float((d / some)[late].sum())
            early += float(cost[~late].sum())
    assert inverse <= 4 * KAPPA * cells * math.log(T) / M
    visits = math.log(3 * cells / DELTA)
    assert early <= KAPPA * S * A * H * (2 * H if stationary else H + 1) * (1 + visits / M)
    assert 0 < regret <= errors <= kl_regret_bound(S, A, H, M, T, DELTA, stationary=stationary).common


# --------------------------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize("M", [1, 2, 3, 10, 100])
def test_requests_that_grow_n_as_little_as_they_can_are_no_more_than_the_bound(
    M: int,
) -> None:
    """One cell; every request adds the least that is sure, or from ``k M`` visits on the least that is likely."""
    for T in (10, 1_000, 10**5, 10**8):
        k = 8 * math.log(2 * M * T / DELTA)
        requests = {False: 0, True: 0}
        for likely in requests:
            N = 1
            while N <= M * T:
                requests[likely] += 1
                N += max(-(-N // M), math.ceil(N / 4) if likely and k * M <= N else 0)
        assert requests[False] <= M + (M + 0.5) * math.log(T)
        assert min(T, requests[True]) <= rounds_bound(1, 1, 1, M, T, 0.0, DELTA, rule="global")


def test_a_request_above_k_m_visits_adds_a_quarter() -> None:
    """``(N - M b)/e - b >= N/4`` for ``N >= 8 M b`` and ``M >= 2``."""
    for M in (2, 3, 10, 1000):
        for N in 8 * M * np.array([1.0, 1.5, 10, 1e6]):  # in units of b
            assert (N - M) / math.e - 1 >= N / 4


@pytest.mark.parametrize("growth", [0.001, 0.01, 0.1, 0.5, 3.0])
def test_rounds_that_last_a_share_of_what_was_played_are_few_whatever_the_number_of_agents(
    growth: float,
) -> None:
    """Every round ends as soon as it may."""
    for T in (1, 2, 7, 1_000, 10**6):
        t = 0
        rounds = 0
        while t < T:
            t = t + max(1, math.ceil(growth * t))
            rounds = rounds + 1
        for M in (1, 10**6):
            bound = rounds_bound(100, 100, 100, M, T, 0.0, DELTA, rule="global", min_round_growth=growth)
            assert rounds <= math.ceil(bound) <= math.ceil(2 + math.log(T) / math.log1p(growth))


def test_figures_of_the_document() -> None:
    assert kl_regret_bound(8, 4, 10, 20, 10**8, DELTA).common == pytest.approx(1.29e8, rel=0.01)
    assert kl_regret_bound(8, 4, 10, 20, 10**8, DELTA, stationary=True).common == pytest.approx(2.52e7, rel=0.01)
    assert kl_regret_bound(8, 4, 10, 500, 10**8, DELTA).common == pytest.approx(1.26e7, rel=0.01)
    assert nontrivial_from(8, 4, 10, 20, 0, 0, DELTA, proof="kl") == pytest.approx(7.4e6, rel=0.01)
    assert pytest.approx(2.6243, rel=1e-4) == BALL


@pytest.mark.parametrize("n", [1, 50, 10**6, 10**14])
@pytest.mark.parametrize("S", [1, 2, 9_999, 10_000, 10_001, 10_002, 60_000])
def test_log_binomial_is_the_sum_of_its_terms(n: int, S: int) -> None:
    summed = math.fsum(math.log1p(n / j) for j in range(1, S))
    assert _log_binomial(n, S) == pytest.approx(summed, rel=1e-14, abs=1e-14)


def test_log_binomial_of_a_billion_states_is_that_of_the_closed_form() -> None:
    """``binomial(S + 1, 2) = S (S + 1) / 2``."""
    S = 10**9
    assert _log_binomial(2, S) == pytest.approx(math.log(S) + math.log(S + 1) - math.log(2), rel=1e-13)
