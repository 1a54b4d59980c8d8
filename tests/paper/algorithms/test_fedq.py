"""FedQ against an independent implementation of the pseudocode."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fed_ucbvi import FedQBernstein, FedQHoeffding, gridworld, run
from fed_ucbvi.algorithms.base import Budgets, FleetTables, Setting
from fed_ucbvi.algorithms.kernels import at_actions
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.federation import Federation
from model_free import Sizes, asked, played_steps, setting_of, steps_of
from naive_fedq import NaiveFedQ, visits_until_ask
from problems import random_federation

TOLERANCE = 1e-10
NEARLY_EQUAL = 1e-9
"""Two actions whose Q are this close may change places."""

VARIANTS = [
    FedQHoeffding(),
    FedQHoeffding(bonus="published", c=0.3),
    FedQBernstein(),
    FedQBernstein(c=1.0, c_bernstein=0.7, bernstein_after=5),
    FedQBernstein(c=0.5, c_bernstein=0.5, bernstein_after=0),
    FedQBernstein(bonus="published", c_bernstein=0.4, delta=0.2),
]
variants = pytest.mark.parametrize("algorithm", VARIANTS, ids=lambda a: f"{a.name}-{a.bonus}")


def random_small(rng: np.random.Generator, *, own_rewards: bool = False) -> Federation:
    S, A, H, M = (int(rng.integers(1, high)) for high in (4, 4, 4, 5))
    return random_federation(rng, M, S, A, H, stationary=bool(rng.integers(2)), own_rewards=own_rewards)


@variants
def test_every_round_of_a_run_is_the_one_of_the_pseudocode(algorithm: FedQHoeffding) -> None:
    rng = np.random.default_rng(1)
    second_case = long_rounds = by_variance = 0
    for problem in range(8):
        federation = random_small(rng, own_rewards=problem % 2 == 1)
        simulation = Simulation(algorithm, federation, 250, problem, "episodes")
        sizes = Sizes.of(simulation.setting)
        naive = NaiveFedQ(sizes, algorithm)
        while not simulation.done:
            server = simulation.server
            policy = server.policy.copy()
            budgets = algorithm.budgets(simulation.agents, algorithm.broadcast(server)).limits
            for (h, s), a in np.ndenumerate(policy):
                assert (budgets[:, h, s] == visits_until_ask(naive.N[h, s, int(a)], sizes)).all()
            simulation.advance()
            if not asked(simulation):
                break
            visited = naive.N[at_actions(policy)][simulation.driver.visits.any(axis=0)]
            second_case += visited.max() >= 2 * sizes.agents * sizes.horizon * (sizes.horizon + 1)
            long_rounds += int(simulation.driver.visits.max() > 1)
            naive.update(played_steps(simulation, policy))
            compare(simulation, naive)
        by_variance += sum(naive.variance(key) > 0.01 for key in naive.samples)
    assert second_case > 50
    assert long_rounds > 20
    assert by_variance > 5 or getattr(algorithm, "bernstein_after", 9) > 5


def compare(simulation: Simulation, naive: NaiveFedQ) -> None:
    N, _, Q, V, policy = simulation.server.estimates[:5]
    assert np.array_equal(N, naive.N)
    assert_allclose(Q, naive.Q, rtol=0, atol=TOLERANCE)
    assert_allclose(V, naive.V, rtol=0, atol=TOLERANCE)
    assert (naive.Q[at_actions(policy)] >= naive.Q.max(axis=2) - NEARLY_EQUAL).all()
    assert np.array_equal(simulation.algorithm.broadcast(simulation.server)[1], N[at_actions(policy)])


@variants
def test_long_rounds_from_large_counts_are_those_of_the_pseudocode(algorithm: FedQHoeffding) -> None:
    """Thousands of visits at once, where sums over visits are integrals."""
    rng = np.random.default_rng(2)
    federation = random_federation(rng, 3, 3, 1, 2, stationary=False)
    setting = setting_of(federation)
    server = algorithm.new_server(setting)
    agents = algorithm.new_agents(setting, FleetTables(3, federation.successors, federation.rewards))
    naive = NaiveFedQ(Sizes.of(setting), algorithm)
    policy = np.zeros((2, 3), dtype=np.int32)
    for visits in (*[1] * 12, 20, 400, 4000, 3000):
        algorithm.budgets(agents, algorithm.broadcast(server))
        n = np.full((3, 2, 3), visits, dtype=np.int64)
        transitions = rng.multinomial(n, federation.probabilities[:, :, :, 0]).astype(np.int64)
        algorithm.absorb(agents, policy, transitions, n)
        algorithm.synchronise(server, agents, setting)
        naive.update(steps_of(federation, policy, transitions))
        assert np.array_equal(server.estimates.N, naive.N)
        assert_allclose(server.estimates.Q, naive.Q, rtol=0, atol=1e-8)
    assert server.V[1].max() > server.V[1].min() + 0.01


def test_a_report_of_several_visits_in_the_first_case_takes_as_many_places_in_the_order() -> None:
    """Only a liar sends one; it counts like visits in a row with the same value."""
    algorithm = FedQBernstein(bernstein_after=0)
    setting = Setting(states=1, actions=1, horizon=1, agents=3, episodes=10, eps_p=0.0, seed=0)
    at_once = algorithm.new_server(setting)
    one_by_one = algorithm.new_server(setting)
    table = np.zeros((3, 1, 1))
    r = table + 0.25
    v = table.copy()
    n = np.zeros((3, 1, 1), dtype=np.int64)
    v[:, 0, 0] = [0.1, 0.9, 0.4]
    n[:, 0, 0] = [2, 5, 1]
    algorithm.aggregate(at_once, (n, r, v, v * v), 0)
    for i in (0, 0, 1, 1, 1, 1, 1, 2):
        single = np.zeros_like(n)
        single[i] = 1
        algorithm.aggregate(one_by_one, (single, r, v, v * v), 0)
    assert at_once.estimates.N[0, 0, 0] == one_by_one.estimates.N[0, 0, 0] == 8
    assert at_once.estimates.Q[0, 0, 0] == pytest.approx(one_by_one.estimates.Q[0, 0, 0], rel=1e-12)


def budgets_of_counts(counts: list[int]) -> Budgets:
    """Budgets of three agents with H = 1, for states with these counts."""
    limits = np.zeros((1, 1, len(counts)), dtype=np.int64)
    rule = np.zeros((1, len(counts)), dtype=np.int8)
    FedQHoeffding().fill_budgets({"N": np.array([counts])}, 3, limits, rule)
    return Budgets(limits, rule)


def test_budgets_of_huge_counts_are_exact() -> None:
    assert budgets_of_counts([11, 12, 2**53 - 1]).limits.tolist() == [[[1, 2, (2**53 - 1) // 6]]]


def test_budgets_name_the_regime_of_their_rule() -> None:
    rule = budgets_of_counts([11, 12, 2**53 - 1]).rule
    assert [FedQHoeffding.rules[number] for number in rule[0]] == ["first-visit", "growth", "growth"]


def test_retuned_constants_halve_the_regret() -> None:
    """On the paper's GridWorld the retuned variant has less than half the regret of the one the authors ran."""
    federation = gridworld(agents=5)
    as_run = run(FedQBernstein(), federation, 3000, progress=False)
    retuned = run(FedQBernstein(c=1, c_bernstein=1, bernstein_after=10), federation, 3000, progress=False)
    assert retuned.regret < 0.5 * as_run.regret
