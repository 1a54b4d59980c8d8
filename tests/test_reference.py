"""The fast algorithms are those of the reading copy: at every synchronisation of real runs, and in law."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, garnet, gridworld, reference, run, synthetic
from fed_ucbvi.algorithms.base import Algorithm, Counting
from fed_ucbvi.algorithms.threshold import threshold_nu
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.policies import by_action
from matrices import first_of
from problems import dense_agents
from runs import counted_apart, federation_of, without_cautions

pytestmark = without_cautions


WORLDS = {
    "gridworld": gridworld(agents=5, eps_p=0.1),
    "synthetic": synthetic(agents=4, eps_p=0.1, eps_r=0.1, states=4, actions=3, horizon=4, seed=2),
    "garnet": garnet(agents=3, eps_p=0.2, states=6, actions=2, horizon=5, seed=1),
}


class Tables(NamedTuple):
    """Those that the reading copy takes, of all agents."""

    kernels: FloatArray
    rewards: FloatArray
    initial: FloatArray


def tables_of(federation: Federation) -> Tables:
    M = federation.agents
    S = federation.states
    A = federation.actions
    H = federation.horizon
    kernels = np.broadcast_to(dense_agents(federation), (M, H, S, A, S))
    return Tables(kernels, np.broadcast_to(federation.rewards, (M, H, S, A)), federation.initial)


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
        at_policy = np.take_along_axis(plan.budgets, np.asarray(server.policy)[None, ..., None], 3)[..., 0]
        assert np.array_equal(budgets, at_policy)
    else:
        assert np.array_equal(np.broadcast_to(budgets, (M, *budgets.shape[1:])), plan.budgets)


def follow(
    algorithm: Algorithm[Any, Any], federation: Federation, episodes: int, planned: reference.Algorithm, within: float
) -> tuple[int, float]:
    """Compare at every synchronisation of a run; how many there were, and how far values have come down."""
    simulation = Simulation(algorithm, counted_apart(federation), episodes, 3)
    rewards = tables_of(federation).rewards
    n = np.zeros_like(new_transitions(simulation, simulation.server.policy))
    plan = planned(n, np.zeros(n.shape[:4]))
    while not simulation.done:
        policy = np.array(simulation.server.policy)
        simulation.advance()
        n += new_transitions(simulation, policy)
        if simulation.rows[-1].requests:
            plan = planned(n, n.sum(axis=4) * rewards[:, : n.shape[1]])
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
    planned = partial(reference.fed_kl_ucbvi, horizon=federation.horizon, delta=0.1, radius=radius)
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
    planned = partial(reference.fed_ucbvi, horizon=H, nu=least)
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
    H = federation.horizon
    T = 60
    algorithm: Algorithm[Any, Any]
    if name == "fed-ucbvi":
        algorithm = FedUCBVI(nu=20, initial_policy="first")
        planned = partial(reference.fed_ucbvi, horizon=H, nu=20)
    else:
        algorithm = FedKLUCBVI(stationary=stationary)
        planned = partial(reference.fed_kl_ucbvi, horizon=H, random_rewards=bernoulli)
    tables = tables_of(federation)
    common = federation.common
    kernel = np.broadcast_to(common.kernel.dense(), tables.kernels.shape[1:])
    rewards = np.broadcast_to(common.rewards, tables.rewards.shape[1:])
    slow: list[tuple[float, float]] = []
    for seed in range(RUNS):
        rng = np.random.default_rng([7, seed])
        rounds = list(reference.simulate(planned, *tables, T, rng, stationary=stationary, bernoulli=bernoulli))
        slow.append((reference.regret(iter(rounds), kernel, rewards), float(len(rounds))))
    world = federation.with_bernoulli_rewards() if bernoulli else federation
    runs = [run(algorithm, world, T, seed=seed, driver="episodes") for seed in range(RUNS)]
    fast = [(result.regret, float(len(result.records["start"]))) for result in runs]
    for mine, theirs in zip(zip(*slow, strict=True), zip(*fast, strict=True), strict=True):
        assert np.std(mine) > 0
        assert stats.ks_2samp(mine, theirs, method="asymp").pvalue > ALARM
