"""Fed-UCBVI against an independent implementation of the paper's pseudocode."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import MDP, FedUCBVI, gridworld, reference, run
from fed_ucbvi.algorithms.base import Array, FleetTables, Setting
from fed_ucbvi.algorithms.counting_agents import CountingAgents
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.fed_ucbvi import Synchronisation
from fed_ucbvi.algorithms.fed_ucbvi_server import Server
from fed_ucbvi.algorithms.kernels import Choice, at_actions
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.federation import Federation
from matrices import first_of
from model_free import reward_of, setting_of
from naive_fed_ucbvi import NaiveAgent, NaiveServer, Options, Sizes, synchronise, visits_until_ask
from problems import any_federation
from runs import without_cautions

pytestmark = without_cautions

BONUSES = ("practical", "theory", "corrected")
TOLERANCE = 1e-12
"""Of float arithmetic."""


EPISODES = 2_000_000
"""More than the problems below have visits."""


class Round(NamedTuple):
    """The counts of one round, as a driver hands them over."""

    policy: PolicyArray
    transitions: CountArray
    visits: CountArray


class Problem(NamedTuple):
    """A federation and the rounds its agents have been through."""

    federation: Federation
    rounds: list[Round]

    @property
    def setting(self) -> Setting:
        return setting_of(self.federation, EPISODES)

    def synchronised(self, algorithm: FedUCBVI) -> Server:
        """The server after one synchronisation."""
        server = algorithm.new_server(self.setting)
        algorithm.synchronise(server, self.fleet(algorithm), self.setting)
        return server

    def fleet(self, algorithm: FedUCBVI, setting: Setting | None = None) -> CountingAgents:
        """All agents with all they have been through."""
        f = self.federation
        agents = algorithm.new_agents(setting or self.setting, FleetTables(f.agents, f.successors, f.rewards))
        for played in self.rounds:
            algorithm.absorb(agents, *played)
        return agents

    def naive(self, options: Options, delta: float = 0.05) -> NaiveServer:
        f = self.federation
        return synchronise(self.naive_agents(), Sizes(f.states, f.actions, f.horizon, f.agents, delta), options)

    def naive_agents(self) -> list[NaiveAgent]:
        """The same, told step by step."""
        f = self.federation
        agents = [NaiveAgent() for _ in range(f.agents)]
        for policy, transitions, _ in self.rounds:
            for i, h, s, k in zip(*(axis.tolist() for axis in np.nonzero(transitions)), strict=True):
                a = int(policy[h, s])
                successor = int(f.successors[h % len(f.successors), s, a, k])
                agents[i].observe(h, s, a, reward_of(f, i, h, s, a), successor, int(transitions[i, h, s, k]))
        return agents


def random_problem(rng: np.random.Generator, agents: int = 0) -> Problem:
    """Random sizes, supports, rewards and counts; many pairs unvisited, by all agents or by some."""
    S, A, H, M = (int(rng.integers(1, high)) for high in (5, 4, 5, 6))
    M = agents or M
    federation = any_federation(rng, M, S, A, H)
    P = np.broadcast_to(federation.probabilities, (M, H, S, A, federation.probabilities.shape[-1]))
    rounds = []
    for _ in range(int(rng.integers(1, 5))):
        policy: PolicyArray = rng.integers(A, size=(H, S), dtype=np.int32)
        visits = rng.choice([0, 0, 1, 1, 2, 3, 40, 1000, 100_000], size=(M, H, S)).astype(np.int64)
        visits[:, rng.random((H, S)) < 0.3] = 0
        rounds.append(Round(policy, rng.multinomial(visits, P[(slice(None), *at_actions(policy))]), visits))
    return Problem(federation, rounds)


def algorithm_with(options: Options, **more: Any) -> FedUCBVI:
    given: dict[str, Any] = {"bonus": options.bonus, "bonus_scale": options.scale}
    return FedUCBVI(**given, **more)


def error_bound(problem: Problem, algorithm: FedUCBVI) -> list[float]:
    """By step, how far Q on the grid may be from real arithmetic: ``(H-h+1) exp(rho (H-h)) 2u``, h from 1.

    ``u = 2^-f``, ``rho = sqrt(k/2)/2`` with k the factor of Var/N under the root.
    """
    H = problem.federation.horizon
    rule = algorithm.update_rule(problem.setting)
    k = rule.per_variance
    each = 2 * rule.grid.unit
    return [(H - h) * math.exp(math.sqrt(k / 2) / 2 * (H - 1 - h)) * each + TOLERANCE for h in range(H)]


# ------------------------------------------------------------------------------------------ synchronisation


@pytest.mark.parametrize("bonus", BONUSES)
def test_a_synchronisation_is_the_one_of_the_pseudocode(bonus: str) -> None:
    rng = np.random.default_rng([1, BONUSES.index(bonus)])
    unclipped = fresh = visited_once = 0
    for _ in range(160):
        problem = random_problem(rng)
        scale = float(rng.choice([1.0, 1.0, 0.25, 0.0, 2.5]))
        options = Options(bonus, scale)
        delta = float(rng.choice([0.05, 0.5]))
        algorithm = algorithm_with(options, delta=delta)
        naive = problem.naive(options, delta)
        naive.assert_equals(problem.synchronised(algorithm).estimates, error_bound(problem, algorithm))
        inside = (naive.N > 1) & (problem.federation.horizon > naive.Q) & (naive.variance > 0)
        unclipped += int(inside.sum()) if options.scale > 0 else 0
        fresh = fresh + int((naive.N == 0).sum())
        visited_once = visited_once + int((naive.N == 1).sum())
    assert min(unclipped, fresh, visited_once) > 30, "the problems must reach every branch"


def integer(words: Array, grid: Grid) -> int:
    """The number that words of a report stand for."""
    return sum(int(word) << (grid.base * place) for place, word in enumerate(words))


def test_the_report_of_one_agent_is_the_message_of_the_pseudocode() -> None:
    """The sums divided by visits are ``P V``, ``P V^2`` and Q; rewards are rounded up to the grid."""
    rng = np.random.default_rng(2)
    algorithm = algorithm_with(Options("practical", 0.5))
    for _ in range(60):
        problem = random_problem(rng, agents=1)
        agents = problem.fleet(algorithm)
        server = algorithm.new_server(problem.setting)
        grid = algorithm.grid(problem.setting)
        naive = problem.naive(Options("practical", 0.5))
        H = problem.federation.horizon
        assert algorithm.message_sizes(problem.setting).exchanges == H
        for exchange in range(H):
            h = H - 1 - exchange
            report = algorithm.report(agents, algorithm.query(server, exchange), exchange)
            for s, a in np.argwhere(report.n[0] > 0).tolist():
                expected = naive.reports[0, h, s, a]
                n = int(report.n[0, s, a])
                PV = integer(report.X[0, s, a], grid) / n * grid.unit
                PV2 = integer(report.Y[0, s, a], grid) / n * grid.unit**2
                reward = integer(report.Z[0, s, a], grid) / n * grid.unit
                assert pytest.approx(float(expected.PV), rel=0, abs=1e-9) == PV
                assert pytest.approx(float(expected.PV2), rel=0, abs=1e-9 * H) == PV2
                assert reward + PV == pytest.approx(float(expected.Q), rel=0, abs=1e-9)
            assert np.array_equal(report.n[0], naive.N[h])
            algorithm.aggregate(server, report, exchange)


@pytest.mark.parametrize("episodes", first_of([EPISODES, 2**50]))
def test_a_fleet_reports_the_exact_sums_over_its_agents(episodes: int) -> None:
    """By Python's integers and fractions, transition by transition; with 2^50 episodes X and Z take two words."""
    rng = np.random.default_rng(12)
    algorithm = algorithm_with(Options("practical", 0.5))
    for _ in range(30):
        problem = random_problem(rng)
        f = problem.federation
        setting = Setting(f.states, f.actions, f.horizon, f.agents, episodes, f.eps_p, 11)
        grid = algorithm.grid(setting)
        assert grid.words == (1 if episodes == EPISODES else 2)
        agents = problem.fleet(algorithm, setting=setting)
        server = algorithm.new_server(setting)
        naive = problem.naive_agents()
        for exchange in range(f.horizon):
            h = f.horizon - 1 - exchange
            query = algorithm.query(server, exchange)
            v = [math.ceil(Fraction(float(value)) * 2**grid.bits) for value in query[0]]
            assert all(Fraction(float(value)) * 2**grid.bits == x for value, x in zip(query[0], v, strict=True))
            report = algorithm.report(agents, query, exchange)
            assert len(report.n) == 1
            for s, a in np.ndindex(f.states, f.actions):
                n = 0
                x = 0
                y = 0
                z = 0
                for agent in naive:
                    for (reward, successor), times in agent.seen[h, s, a].items():
                        n += times
                        x += times * v[successor]
                        y += times * v[successor] ** 2
                        z += times * math.ceil(Fraction(reward) * 2**grid.bits)
                assert report.n[0, s, a] == n
                assert integer(report.X[0, s, a], grid) == x
                assert integer(report.Y[0, s, a], grid) == y
                assert integer(report.Z[0, s, a], grid) == z
            algorithm.aggregate(server, report, exchange)


def test_values_lie_on_the_grid() -> None:
    problem = random_problem(np.random.default_rng(12))
    algorithm = FedUCBVI(bonus_scale=0.5)
    server = problem.synchronised(algorithm)
    scaled = server.V * 2.0 ** algorithm.grid(problem.setting).bits
    assert (np.ceil(scaled) == scaled).all()
    assert (server.estimates.Q.max(axis=2) <= server.V[:-1]).all()


# ------------------------------------------------------------------------------------- the first round, ties


def blank_tables(S: int, A: int) -> FleetTables:
    """One agent whose every move leads to state 0 and pays nothing."""
    successors = np.zeros((1, S, A, 1), dtype=np.int32)
    rewards = np.zeros((1, 1, S, A))
    for table in (successors, rewards):
        table.setflags(write=False)
    return FleetTables(1, successors, rewards)


def test_before_the_first_round_everything_is_optimistic() -> None:
    setting = Setting(states=3, actions=2, horizon=4, agents=2, episodes=10, eps_p=0.0, seed=0)
    N, Q, V, policy, *_, updates = FedUCBVI(initial_policy="first").new_server(setting).estimates
    assert not N.any()
    assert not policy.any()
    assert not updates.any()
    assert (Q == 4).all()
    assert (V[:4] == 4).all()
    assert (V[4] == 0).all()


def first_random_policy(seed: int) -> PolicyArray:
    setting = Setting(states=200, actions=3, horizon=30, agents=2, episodes=10, eps_p=0.0, seed=seed)
    return FedUCBVI().new_server(setting).policy


def test_the_seed_decides_the_random_initial_policy() -> None:
    assert np.array_equal(first_random_policy(1), first_random_policy(1))
    assert not np.array_equal(first_random_policy(1), first_random_policy(2))


def test_the_random_initial_policy_is_uniform() -> None:
    """Chi-square of 6000 independent uniform draws over 3 actions; false alarm in 1 of 10^4 seeds."""
    policy = first_random_policy(1)
    assert stats.chisquare(np.bincount(policy.ravel(), minlength=3)).pvalue > 1e-4


def policies_of_ties(ties: Choice) -> IndexArray:
    """Policies ``(2, 1, 1500)`` of two synchronisations; action 1 of 4 is known to be worth nothing, so 3 tie."""
    S = 1500
    A = 4
    setting = Setting(S, A, horizon=1, agents=1, episodes=10, eps_p=0.0, seed=3)
    visits = np.full((1, 1, S), 10_000, dtype=np.int64)
    algorithm = FedUCBVI(ties=ties)
    agents = algorithm.new_agents(setting, blank_tables(S, A))
    server = algorithm.new_server(setting)
    algorithm.absorb(agents, np.ones((1, S), dtype=np.int32), visits[..., None], visits)
    policies = []
    for _ in range(2):
        algorithm.synchronise(server, agents, setting)
        policies.append(server.policy.copy())
    return np.stack(policies)


def test_ties_go_to_the_first_action() -> None:
    assert not policies_of_ties("first").any()


def test_random_ties_are_drawn_anew_at_each_synchronisation() -> None:
    first, second = policies_of_ties("random")
    assert not np.array_equal(first, second)


def test_random_ties_are_uniform_among_the_best_actions() -> None:
    """Chi-square of 2 x 1500 draws, false alarm 1 in 10^4."""
    counts = np.bincount(policies_of_ties("random").ravel(), minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-4


# ---------------------------------------------------------------------------------------------------- budgets


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("synchronisation", ["mixture", "local", "global"])
def test_a_budget_is_the_first_visit_at_which_the_papers_condition_holds(
    synchronisation: Synchronisation, strict: bool
) -> None:
    rng = np.random.default_rng([7, strict])
    rules = set()
    at_threshold = 0
    for _ in range(80):
        federation, rounds = random_problem(rng)
        few = [np.minimum(moves, rng.integers(0, 9, size=moves.shape)) for _, moves, _ in rounds]
        seen = [Round(played, moves, moves.sum(axis=-1)) for (played, *_), moves in zip(rounds, few, strict=True)]
        M = federation.agents
        A = federation.actions
        H = federation.horizon
        S = federation.states
        policy = rng.integers(A, size=(H, S), dtype=np.int32)
        nu = float(rng.choice([0, 1, 3, 6, 10, 20, 1e9]))
        algorithm = FedUCBVI(synchronisation=synchronisation, strict=strict, nu=nu)
        agents = Problem(federation, seen).fleet(algorithm)
        n = np.zeros((M, H, S, A), dtype=np.int64)
        for played, _, visits in seen:
            n[(slice(None), *at_actions(played))] += visits
        N = n.sum(axis=0)
        visits, rule, _ = algorithm.budgets(agents, (policy, N))
        for i, h, s in np.ndindex(*visits.shape):
            a = policy[h, s]
            literal = visits_until_ask(int(n[i, h, s, a]), int(N[h, s, a]), M, nu, synchronisation, strict)
            assert (int(visits[i, h, s]), algorithm.rules[rule[h, s]]) == literal
            rules.add(literal[1])
            at_threshold += int(N[h, s, a]) == nu
    assert rules == {"local", "global"} if synchronisation == "mixture" else {synchronisation}
    assert at_threshold > 5, "the boundary N = nu must be among the cases"


def test_budgets_of_huge_counts_are_exact() -> None:
    """Where floats would round: N = 2^53 - 1 over 3 agents."""
    setting = Setting(states=1, actions=1, horizon=1, agents=3, episodes=10, eps_p=0.0, seed=0)
    N = np.array([[[2**53 - 1]]], dtype=np.int64)
    policy = np.zeros((1, 1), dtype=np.int32)
    for strict, expected in ((False, -((1 - 2**53) // 3)), (True, (2**53 - 1) // 3 + 1)):
        algorithm = FedUCBVI(synchronisation="global", strict=strict)
        budgets = algorithm.budgets(algorithm.new_agents(setting, blank_tables(1, 1)), (policy, N))
        assert budgets.limits.item() == expected


# ------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize("eps_p", [0.0, 0.1, 0.7])
def test_the_threshold_is_that_of_the_paper(eps_p: float) -> None:
    setting = Setting(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=eps_p, seed=0)
    expected = pytest.approx(reference.threshold(8, 4, 10, 20, 30_000, eps_p, 0.1), rel=1e-14)
    assert FedUCBVI(delta=0.1).facts(setting) == {"nu": expected}


def test_a_given_threshold_is_used() -> None:
    setting = Setting(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.1, seed=0)
    assert FedUCBVI(nu=5).facts(setting) == {"nu": 5.0}


# --------------------------------------------------------------------------------------- the numbering of actions


def renumbered(order: list[int]) -> Federation:
    """GridWorld with identical agents; action k is the one that was ``order[k]``."""
    world = gridworld(agents=1).agent(0)
    kernel = world.kernel.dense()[..., order, :]
    rewards = world.rewards[..., order]
    return Federation.from_mdps([MDP(kernel, rewards, world.initial, world.horizon)] * 20)


def regrets(ties: Choice, order: list[int], seeds: int) -> list[float]:
    """The common regret of each seed."""
    world = renumbered(order)
    return [run(FedUCBVI(ties=ties), world, 3000, seed=seed, progress=False).regret for seed in range(seeds)]


@pytest.mark.parametrize("ties", ["first", "random"])
def test_the_problem_is_the_same_however_actions_are_numbered(ties: Choice) -> None:
    assert renumbered([2, 0, 1, 3]).common.solve().V[0] == pytest.approx(gridworld(agents=1).common.solve().V[0])
    again = regrets(ties, [0, 1, 2, 3], 1)
    assert again == [run(FedUCBVI(ties=ties), gridworld(agents=20), 3000, seed=0, progress=False).regret]


@pytest.mark.parametrize(("ties", "matters"), [("first", True), ("random", False)])
def test_where_ties_go_to_the_first_action_their_numbering_matters(ties: Choice, matters: bool) -> None:
    """Hypothesis: both numberings have the same mean. Paired differences of 5 seeds, which are fixed.

    Under it Student's t with 4 degrees of freedom exceeds 8.6 with probability 0.001.
    """
    apart = np.subtract(regrets(ties, [0, 1, 2, 3], 5), regrets(ties, [1, 2, 0, 3], 5))
    assert (abs(apart.mean()) / (apart.std(ddof=1) / np.sqrt(5)) > 8.6) == matters
    assert abs(apart.mean()) > 10 or not matters


def q_after_visits_to_action_1(visits: int) -> FloatArray:
    """Q of one state with two actions, H = 2 and r = 1/4, after so many visits to action 1 at each step."""
    federation = Federation.mixture(
        [[[1.0], [1.0]]], [[[[1.0], [1.0]]]], 0.0, rewards=[[0.25, 0.25]], initial=0, horizon=2
    )
    ones = np.ones((1, 2, 1, 1), dtype=np.int64)
    once = Round(np.ones((2, 1), dtype=np.int32), ones, ones[..., 0])
    server = Problem(federation, [once] * visits).synchronised(FedUCBVI(bonus_scale=0.0))
    assert server.estimates.N.tolist() == [[[0, visits]], [[0, visits]]]
    return server.estimates.Q


def test_a_pair_without_visits_has_the_largest_q() -> None:
    assert (q_after_visits_to_action_1(1)[:, 0, 0] == 2.0).all()


def test_a_pair_visited_once_has_a_bonus_of_h() -> None:
    """Then r + P V + H is above the cap."""
    assert (q_after_visits_to_action_1(1)[:, 0, 1] == 2.0).all()


def test_the_scale_of_the_bonus_applies_from_two_visits_on() -> None:
    assert q_after_visits_to_action_1(2)[1, 0].tolist() == [2.0, 0.25]
