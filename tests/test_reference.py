"""The fast algorithms are those of the reading copy: at every synchronisation of real runs, and in law."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import Dynamics, Federation, FedKLUCBVI, FedUCBVI, garnet, gridworld, reference, run, synthetic
from fed_ucbvi.algorithms.base import Algorithm, Counting
from fed_ucbvi.algorithms.threshold import threshold_nu
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.policies import by_action
from known_problems import random_dynamics, random_laws
from matrices import first_of
from problems import dense_agents
from runs import counted_apart, federation_of, without_cautions
from solvers import largest_mean_by_optimisation

pytestmark = without_cautions


WORLDS = {
    "gridworld": gridworld(agents=5, eps_p=0.1),
    "synthetic": synthetic(agents=4, eps_p=0.1, eps_r=0.1, states=4, actions=3, horizon=4, seed=2),
    "garnet": garnet(agents=3, eps_p=0.2, states=6, actions=2, horizon=5, seed=1),
}


class Tables(NamedTuple):
    """Those that the reading copy takes, of all agents; outcomes are next states."""

    known: reference.Known
    laws: FloatArray
    rewards: FloatArray
    initial: FloatArray


def tables_of(federation: Federation, *, stationary: bool = False) -> Tables:
    M = federation.agents
    S = federation.states
    A = federation.actions
    H = federation.horizon
    kernels = dense_agents(federation)
    if not stationary:
        kernels = np.broadcast_to(kernels, (M, H, S, A, S))
    rewards = np.broadcast_to(federation.rewards, (M, H, S, A))
    return Tables(
        known=known_of(federation, stationary=stationary),
        laws=kernels.reshape(M, -1, S),
        rewards=np.broadcast_to(rewards[..., None], (M, H, S, A, S)),
        initial=federation.initial,
    )


def known_in_full(dynamics: Dynamics) -> reference.Known:
    """Known dynamics in tables with all axes."""
    steps = range(dynamics.horizon)
    return reference.Known(
        law_of=np.array([dynamics.laws_at(h) for h in steps], dtype=np.int64),
        next_state=np.array([dynamics.next_states_at(h) for h in steps], dtype=np.int64),
        rewards=np.array([dynamics.rewards_at(h) for h in steps]),
    )


def known_of(federation: Federation, *, stationary: bool) -> reference.Known:
    make = reference.Known.stationary if stationary else reference.Known.by_step
    return make(federation.horizon, federation.states, federation.actions)


def new_transitions(simulation: Simulation, policy: PolicyArray) -> CountArray:
    """The last round's transitions by next state, ``(M, steps, S, A, S)``."""
    driver = simulation.driver
    federation = federation_of(simulation)
    S = federation.states
    A = federation.actions
    moves = driver.transitions
    if simulation.algorithm.counting is Counting.POLICY:
        chosen = policy[..., None] == np.arange(A)
        moves = moves[:, :, :, None, :] * chosen[None, ..., None]
    n = np.zeros((*moves.shape[:4], S), dtype=np.int64)
    successors = np.broadcast_to(federation.successors, moves.shape[1:])
    for i, h, s, a, k in np.argwhere(moves):
        n[i, h, s, a, successors[h, s, a, k]] += moves[i, h, s, a, k]
    return n


def assert_same_plan(simulation: Simulation, plan: reference.Plan, within: float) -> None:
    """Q, V, the sets of actions where no other action is as near as that, and budgets.

    Fed-KL-UCBVI does not work out the Q of actions that are clearly no maximisers, but knows an upper bound.
    """
    server = simulation.server
    algorithm = simulation.algorithm
    M = simulation.setting.agents
    Q = server.estimates.Q
    V = server.V
    known = np.ones(Q.shape, dtype=np.bool_) if algorithm.counting is Counting.POLICY else server.estimates.best
    np.testing.assert_allclose(Q[known], plan.Q[known], rtol=0, atol=within)
    assert (plan.Q - within <= Q).all()
    np.testing.assert_allclose(V, plan.V, rtol=0, atol=within)
    near = plan.V[:-1, :, None] - plan.Q <= 2 * within
    policy = by_action(server.policy, Q.shape[2])
    assert (policy <= near).all()
    clear = near.sum(axis=2) == 1
    if algorithm.counting is not Counting.POLICY:  # sets: at the cap, what is near is equal
        clear |= plan.V[:-1] == np.arange(len(Q), 0, -1)[:, None]
    assert np.array_equal(policy[clear], plan.policy[clear])
    budgets = algorithm.budgets(simulation.agents, algorithm.broadcast(server)).limits
    if algorithm.counting is Counting.POLICY:
        by_cell = plan.budgets.reshape(M, *Q.shape)
        at_policy = np.take_along_axis(by_cell, np.asarray(server.policy)[None, ..., None], 3)[..., 0]
        assert np.array_equal(budgets, at_policy)
    else:
        assert np.array_equal(np.broadcast_to(budgets, (M, *budgets.shape[1:])).reshape(M, -1), plan.budgets)


def follow(
    algorithm: Algorithm[Any, Any], federation: Federation, episodes: int, planned: reference.Algorithm, within: float
) -> tuple[int, float]:
    """Compare at every synchronisation of a run; how many there were, and how far values have come down."""
    simulation = Simulation(algorithm, counted_apart(federation), episodes, 3)
    n = np.zeros_like(new_transitions(simulation, simulation.server.policy))
    known = known_of(federation, stationary=n.shape[1] == 1)
    rewards = tables_of(federation).rewards[:, : n.shape[1], ..., 0].reshape(len(n), -1)
    by_law = n.reshape(len(n), -1, federation.states)
    plan = planned(by_law, np.zeros(by_law.shape[:2]), known)
    while not simulation.done:
        policy = np.array(simulation.server.policy)
        simulation.advance()
        n += new_transitions(simulation, policy)
        if simulation.rows[-1].requests:
            plan = planned(by_law, by_law.sum(axis=2) * rewards, known)
            assert_same_plan(simulation, plan, within)
    caps = simulation.setting.horizon - np.arange(simulation.setting.horizon)
    return simulation.rounds, float((plan.V[:-1] < caps[:, None] - 1e-6).mean())


@pytest.mark.parametrize("radius", first_of([1.0, 0.25]))
@pytest.mark.parametrize(
    ("world", "stationary"), [("gridworld", False), ("gridworld", True), ("synthetic", False), ("garnet", True)]
)
def test_fed_kl_ucbvi_is_that_of_the_reading_copy(world: str, stationary: bool, radius: float) -> None:
    """Rewards are rounded up to the grid of exact sums, a little more than 2^-38 here."""
    federation = WORLDS[world]
    algorithm = FedKLUCBVI(stationary=stationary, radius=radius, delta=0.1)
    planned = partial(reference.fed_kl_ucbvi, delta=0.1, radius=radius)
    rounds, lower = follow(algorithm, federation, 400, planned, 1e-9)
    assert rounds > 15
    assert lower > 0.3, "values must have come down for this to say anything"


@pytest.mark.parametrize("nu", [40.0, None])
@pytest.mark.parametrize("world", WORLDS)
def test_fed_ucbvi_is_that_of_the_reading_copy(world: str, nu: float | None) -> None:
    """A variance that is a difference of floats near 0 is wrong by 1e-15, and its root by 1e-7."""
    federation = WORLDS[world]
    M = federation.agents
    S = federation.states
    A = federation.actions
    H = federation.horizon
    least = reference.threshold(S, A, H, M, 400, federation.eps_p) if nu is None else nu
    assert least == pytest.approx(nu or threshold_nu(S, A, H, M, 400, federation.eps_p, 0.05), rel=1e-12)
    planned = partial(reference.fed_ucbvi, nu=least)
    rounds, _ = follow(FedUCBVI(nu=nu, initial_policy="first"), federation, 400, planned, 1e-6)
    assert rounds > 40


def test_its_values_are_those_of_dynamic_programming() -> None:
    rng = np.random.default_rng(6)
    for federation in WORLDS.values():
        mdp = federation.common
        H = federation.horizon
        S = federation.states
        A = federation.actions
        kernel = np.broadcast_to(mdp.kernel.dense(), (H, S, A, S))
        rewards = np.broadcast_to(mdp.rewards, (H, S, A))
        policy = rng.random((H, S, A)) < 0.5
        policy[..., 0] |= ~policy.any(axis=2)
        np.testing.assert_allclose(reference.evaluate(kernel, rewards), mdp.solve().V, atol=1e-12)
        np.testing.assert_allclose(reference.evaluate(kernel, rewards, policy), mdp.evaluate(policy), atol=1e-12)


def simulated_counts(rng: np.random.Generator, dynamics: Dynamics, laws: FloatArray, visits: int) -> CountArray:
    """Outcomes ``(M, G, W)`` of visits to laws; some laws have none."""
    n = np.zeros(laws.shape, dtype=np.int64)
    for i, g in np.ndindex(laws.shape[:2]):
        n[i, g] = rng.multinomial(rng.integers(visits) * (rng.random() < 0.8), laws[i, g])
    return n


def test_fed_kl_ucbvi_with_known_dynamics_is_a_largest_mean_over_outcomes() -> None:
    """Q of every visited law, at all steps, states and actions; the solver is right to about 1e-6."""
    rng = np.random.default_rng(8)
    compared = 0
    for _ in range(4):
        dynamics = random_dynamics(rng, outcomes=3)
        n = simulated_counts(rng, dynamics, random_laws(rng, 2, dynamics), visits=40)
        known = known_in_full(dynamics)
        plan = reference.fed_kl_ucbvi(n, np.zeros(n.shape[:2]), known, delta=0.1)
        counts = n.sum(axis=0)
        for h, s, a in np.argwhere(counts.sum(axis=1)[known.law_of] > 0):
            seen = counts[known.law_of[h, s, a]]
            N = seen.sum()
            x = dynamics.rewards_at(h)[s, a] + plan.V[h + 1][known.next_state[h, s, a]]
            c = (np.log(2 * 9 / 0.1) + np.log(N + 1) / 2) / N
            assert plan.Q[h, s, a] == pytest.approx(largest_mean_by_optimisation(seen / N, x, c), abs=1e-5)
            compared += 1
    assert compared > 30


def test_fed_kl_ucbvi_with_known_dynamics_expects_the_best_outcome_where_nothing_was_seen() -> None:
    rng = np.random.default_rng(9)
    dynamics = random_dynamics(rng)
    known = known_in_full(dynamics)
    nothing = np.zeros((2, dynamics.laws, dynamics.outcomes), dtype=np.int64)
    plan = reference.fed_kl_ucbvi(nothing, np.zeros((2, dynamics.laws)), known)
    assert known.rewards is not None
    best = known.rewards[2].max(axis=(1, 2))
    np.testing.assert_array_equal(plan.V[2], best)
    for h in (1, 0):
        best = (known.rewards[h] + best[known.next_state[h]]).max(axis=(1, 2))
        np.testing.assert_allclose(plan.V[h], best, rtol=1e-15)


def test_fed_kl_ucbvi_with_known_dynamics_is_optimistic() -> None:
    """V >= V* at all synchronisations of 40 runs; the law of each run would allow a failure in one of 20."""
    failures = 0
    for seed in range(40):
        rng = np.random.default_rng([10, seed])
        dynamics = random_dynamics(rng, horizon=4, laws=4, outcomes=3)
        laws = np.repeat(random_laws(rng, 1, dynamics, zeros=0.3), 2, axis=0)
        federation = Federation.from_laws(dynamics, laws, initial=0)
        best = federation.common.solve().V
        known = known_in_full(dynamics)
        assert known.rewards is not None
        rewards = np.broadcast_to(known.rewards, (2, *known.law_of.shape, 3))
        rounds = reference.simulate(reference.fed_kl_ucbvi, known, laws, rewards, federation.initial, 60, rng)
        failures += any((best - 1e-12 > plan.V).any() for plan, _, _ in rounds)
    assert failures <= 2


RUNS = 60
ALARM = 1e-4


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", ["fed-kl-ucbvi", "fed-ucbvi", "fed-kl-ucbvi, stationary, Bernoulli rewards"])
def test_its_own_runs_have_the_law_of_the_fast_ones(name: str) -> None:
    """H0: regret, and the number of rounds, have the same law.

    Kolmogorov-Smirnov, asymptotic, which is conservative for ties: 60 runs each, false-alarm rate 1e-4 a test, six
    tests.
    """
    stationary = bernoulli = "Bernoulli" in name
    federation = garnet(agents=2, eps_p=0.1, states=3, actions=2, branching=2, horizon=3, seed=5)
    T = 60
    algorithm: Algorithm[Any, Any]
    if name == "fed-ucbvi":
        algorithm = FedUCBVI(nu=20, initial_policy="first")
        planned = partial(reference.fed_ucbvi, nu=20)
    else:
        algorithm = FedKLUCBVI(stationary=stationary)
        planned = partial(reference.fed_kl_ucbvi, random_rewards=bernoulli)
    tables = tables_of(federation, stationary=stationary)
    common = federation.common
    kernel = np.broadcast_to(common.kernel.dense(), tables.rewards.shape[1:])
    rewards = np.broadcast_to(common.rewards, tables.rewards.shape[1:4])
    slow: list[tuple[float, float]] = []
    for seed in range(RUNS):
        rng = np.random.default_rng([7, seed])
        rounds = list(reference.simulate(planned, *tables, T, rng, bernoulli=bernoulli))
        slow.append((reference.regret(iter(rounds), kernel, rewards), float(len(rounds))))
    world = federation.with_bernoulli_rewards() if bernoulli else federation
    runs = [run(algorithm, world, T, seed=seed, driver="episodes") for seed in range(RUNS)]
    fast = [(result.regret, float(len(result.records["start"]))) for result in runs]
    for mine, theirs in zip(zip(*slow, strict=True), zip(*fast, strict=True), strict=True):
        assert np.std(mine) > 0
        assert stats.ks_2samp(mine, theirs, method="asymp").pvalue > ALARM
