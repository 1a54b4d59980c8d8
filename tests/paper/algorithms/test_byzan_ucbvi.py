"""Byzan-UCBVI against the pseudocode and against liars, and its robust mean against brute force over all sets."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from fed_ucbvi import ByzanUCBVI, gridworld
from fed_ucbvi.algorithms.base import FleetTables, Setting
from fed_ucbvi.algorithms.kernels import Ties, at_actions
from fed_ucbvi.core.indexing import UNREACHABLE
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper.algorithms.byzan_ucbvi import (
    FEW,
    ByzanReport,
    UpdateRule,
    largest_clique,
    pert_cow,
    trim,
)
from fed_ucbvi.problem.liars import ATTACKS
from matrices import first_of, in_turn
from model_free import Sizes, played_steps
from naive_byzan import NaiveByzan, all_largest_cliques, naive_cow
from problems import random_federation
from runs import finished

TOLERANCE = 1e-10
EPISODES = 3000
LIARS = 0.1
LOG_TERM = 0.01


def compare(naive: NaiveByzan, simulation: Simulation) -> None:
    estimates = simulation.server.estimates
    np.testing.assert_allclose(estimates.Q, naive.Q, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(estimates.V, naive.V, rtol=0, atol=TOLERANCE)
    assert estimates.served.tolist() == naive.sync_count
    np.testing.assert_array_equal(estimates.Q[at_actions(estimates.policy)], estimates.V[:-1])


@pytest.mark.parametrize(("alpha", "log_term"), in_turn([(0.0,), (0.2,), (0.4,)], [0.003, None, 0.5]))
def test_every_round_equals_the_pseudocode(alpha: float, log_term: float | None) -> None:
    rng = np.random.default_rng([1, int(10 * alpha), 0 if log_term is None else int(1000 * log_term)])
    for seed in range(3):
        S = int(rng.integers(1, 4))
        A = int(rng.integers(1, 3))
        H = int(rng.integers(1, 4))
        M = int(rng.integers(1, 7))
        f = random_federation(rng, M, S, A, H, stationary=bool(seed % 2), own_rewards=seed == 2)
        T = 80
        simulation = Simulation(ByzanUCBVI(alpha=alpha, delta=0.1, log_term=log_term), f, T, seed, "episodes")
        naive = NaiveByzan(Sizes(S, A, H, M, T), alpha, 0.1, log_term)
        compare(naive, simulation)
        while not simulation.done:
            policy = simulation.server.policy.copy()
            rounds = simulation.rounds
            simulation.advance()
            for i, steps in enumerate(played_steps(simulation, policy)):
                for step in steps:
                    naive.observe(i, step)
            assert naive.consider([naive.wants(i) for i in range(M)]) == (simulation.rounds > rounds)
            compare(naive, simulation)


# -------------------------------------------------------------------------------------- requests and the cap


def test_an_agent_that_asks_too_often_is_ignored() -> None:
    f = random_federation(np.random.default_rng(9), agents=5, states=2, actions=2, horizon=2)
    T = 400
    algorithm = ByzanUCBVI(log_term=0.1)
    served = math.floor(2 * 2 * 2 * math.log2(T)) + 1
    lying = f.with_liars(0.2, "spam")
    assert lying.liars is not None
    (liar,) = lying.liars.agents
    simulation = Simulation(algorithm, lying, T, 0, "episodes")
    while simulation.rounds < served:
        simulation.advance()
        assert simulation.rows[-1].length == 1
    assert simulation.server.estimates.served[liar] == served
    budgets = algorithm.budgets(simulation.agents, algorithm.broadcast(simulation.server)).limits
    assert (budgets[liar] == UNREACHABLE).all()
    honest = np.delete(budgets, liar, axis=0)
    assert (honest < UNREACHABLE).all()
    while not simulation.done:
        simulation.advance()
    assert simulation.server.estimates.served[liar] == served
    assert simulation.rounds < T / 2


def test_what_nobody_could_have_measured_counts_as_no_report() -> None:
    setting = Setting(1, 1, 1, 5, 100, 0.0, 0)
    algorithm = ByzanUCBVI(alpha=0.2, log_term=0.1)
    x = np.array([0.5, np.nan, np.inf, -1e300, 0.5]).reshape(5, 1, 1)
    n = np.array([9, 9, 9, 9, -4]).reshape(5, 1, 1)
    server = algorithm.new_server(setting)
    algorithm.aggregate(server, ByzanReport(x, n, np.zeros((5, 1), dtype=np.int8)), 0)
    assert server.estimates.Q[0, 0, 0] == 1.0
    x[1:4] = 0.5
    n[4] = 9
    x[1] = np.nan
    algorithm.aggregate(server, ByzanReport(x, n, np.zeros((5, 1), dtype=np.int8)), 0)
    mean, error = naive_cow([0.5] * 5, [9, 0, 9, 9, 9], 1, 0.2, 0.1, 0.1, 1 / 500)
    assert server.estimates.Q[0, 0, 0] == pytest.approx(min(1.0, mean + error + 1 / 500))


def test_a_fleet_finds_its_own_agents_among_those_the_server_ignores() -> None:
    f = random_federation(np.random.default_rng(10), agents=4)
    setting = Setting(f.states, f.actions, f.horizon, 4, 10, 0.0, 0)
    algorithm = ByzanUCBVI()
    fleet = algorithm.new_agents(setting, FleetTables(2, f.successors, f.rewards, first_agent=2))
    server = algorithm.new_server(setting)
    server.estimates.served[3] = 10**9
    budgets = algorithm.budgets(fleet, algorithm.broadcast(server)).limits
    assert (budgets[0] == 1).all()
    assert (budgets[1] > 10**9).all()


# ----------------------------------------------------------------------------------------- who withstands what


@functools.cache
def regret_under(algorithm: ByzanUCBVI, attack: str | None, seed: int) -> float:
    """The honest agents' regret on the paper's GridWorld with two liars among twenty agents."""
    grid = gridworld(agents=20)
    federation = grid if attack is None else grid.with_liars(LIARS, attack)
    result = finished(Simulation(algorithm, federation, EPISODES, seed, "auto")).result()
    return float(result.records["regret"].sum())


def ratio(algorithm: ByzanUCBVI, attack: str) -> float:
    """Regret with liars over regret without, the sums over two seeds."""
    seeds = (0, 1)
    clean = sum(regret_under(algorithm, None, seed) for seed in seeds)
    return sum(regret_under(algorithm, attack, seed) for seed in seeds) / clean


@pytest.mark.slow
@pytest.mark.parametrize("attack", first_of(list(ATTACKS)))
def test_byzan_ucbvi_stays_near_its_clean_regret_under_every_attack(attack: str) -> None:
    assert ratio(ByzanUCBVI(alpha=LIARS, log_term=LOG_TERM), attack) < 1.5


# ------------------------------------------------------------------------------------------- the robust mean


def clique_of(low: FloatArray, high: FloatArray) -> tuple[int, tuple[int, ...]]:
    point, size = largest_clique(low, high, np.empty_like(low), np.empty_like(high))
    return size, tuple(np.flatnonzero((low <= point) & (point <= high)).tolist())


def robust_mean(means: FloatArray, counts: CountArray, sigma: float, *bounds: float) -> tuple[float, float]:
    """By PERT-COW; ``bounds`` are alpha, epsilon and both logarithms."""
    alpha, epsilon, log_each, log_all = bounds
    rule = UpdateRule(alpha, epsilon, log_each, log_all, 0.0, Ties(False, np.uint64(0)))
    found: tuple[float, float] = pert_cow(means, counts.astype(float), sigma, rule, np.empty((5, len(means))))
    return found


def test_the_sweep_finds_a_largest_clique_as_trying_all_sets_does() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        m = int(rng.integers(1, 9))
        grid = rng.integers(0, 8, size=(2, m)).astype(float)
        low = np.minimum(*grid)
        high = np.maximum(*grid)
        size, members = clique_of(low, high)
        assert len(members) == size
        assert members in all_largest_cliques(list(zip(low.tolist(), high.tolist(), strict=True)))


@pytest.mark.parametrize(
    ("low", "high", "members"),
    [
        ((5.0, 0.0, 5.5, 0.5), (6.0, 1.0, 6.5, 1.5), (1, 3)),  # of two largest cliques the lower one
        ((0.0, 1.0, 5.0), (1.0, 2.0, 6.0), (0, 1)),  # intervals that touch have a point in common
        ((0.0, 1.0), (1.0, 2.0), (0, 1)),
    ],
)
def test_cliques_of_intervals_by_hand(
    low: tuple[float, ...], high: tuple[float, ...], members: tuple[int, ...]
) -> None:
    assert clique_of(np.array(low), np.array(high)) == (2, members)


@pytest.mark.parametrize("m", [FEW, FEW + 1, 300])
def test_many_intervals_are_swept_as_well_as_few(m: int) -> None:
    rng = np.random.default_rng(m)
    low = rng.normal(size=m)
    high = low + rng.exponential(0.3, size=m)
    covering = [int(((low <= x) & (x <= high)).sum()) for x in low]
    size, members = clique_of(low, high)
    assert size == len(members) == max(covering)


def test_pert_cow_equals_brute_force() -> None:
    rng = np.random.default_rng(3)
    for _ in range(400):
        m = int(rng.integers(1, 9))
        counts = rng.choice([0, 1, 2, 5, 5, 40, 1000], size=m)
        means = rng.normal(size=m) * rng.choice([0.1, 1.0, 10.0])
        sigma = float(rng.uniform(0.2, 3))
        log = float(rng.uniform(0.01, 4))
        alpha = float(rng.choice([0.0, 0.1, 0.3]))
        epsilon = float(rng.choice([0.0, 1e-3, 0.2]))
        found = robust_mean(means, counts, sigma, alpha, epsilon, log, 0.7 * log)
        naive = naive_cow(means.tolist(), counts.tolist(), sigma, alpha, log, 0.7 * log, epsilon)
        assert found == pytest.approx(naive)


@pytest.mark.parametrize("m", [20, FEW + 20])
def test_any_order_of_the_agents_gives_the_same_mean(m: int) -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        means = rng.normal(size=m)
        counts = rng.integers(1, 100, size=m)
        order = rng.permutation(m)
        first = robust_mean(means, counts, 1.0, 0.1, 1e-6, 0.5, 0.5)
        second = robust_mean(means[order], counts[order], 1.0, 0.1, 1e-6, 0.5, 0.5)
        assert first == pytest.approx(second, rel=1e-12)


@pytest.mark.parametrize("kind", ["far", "near", "opposite"])
def test_a_minority_of_liars_moves_the_mean_by_less_than_the_error(kind: str) -> None:
    rng = np.random.default_rng(5)
    m = 20
    f = 4
    sigma = 1.0
    delta = 0.01
    log_each = math.log(2 * m / delta)
    log_all = math.log(2 / delta)
    for _ in range(200):
        counts = rng.integers(1, 2000, size=m)
        means = 3.0 + sigma * rng.normal(size=m) / np.sqrt(counts)
        width = sigma * np.sqrt(2 * log_each / counts.max())
        means[:f] = {"far": 1e6, "near": 3.0 + 1.9 * width, "opposite": -3.0}[kind]
        counts[:f] = counts.max() if kind == "near" else 10**9
        mean, error = robust_mean(means, counts, sigma, f / m, 0.0, log_each, log_all)
        assert abs(mean - 3.0) < error


def test_no_agent_weighs_more_than_the_count_of_rank_two_f_plus_one() -> None:
    counts = np.array([7.0, 1_000_000, 3, 9, 0, 8])
    trimmed, scratch = np.zeros((2, 6))
    assert trim(counts, 1, trimmed, scratch) == 8
    assert trimmed.tolist() == [7, 8, 3, 8, 0, 8]
    assert trim(counts, 0, trimmed, scratch) == 1_000_000
    assert trim(counts, 3, trimmed, scratch) == 0


def test_the_error_is_infinite_if_too_few_agents_have_data() -> None:
    means = np.array([4.0, 5.0, 6.0])
    counts = np.array([9, 9, 0])
    assert robust_mean(means, counts, 1.0, 0.3, 0.1, 1.0, 1.0) == (0.0, math.inf)
