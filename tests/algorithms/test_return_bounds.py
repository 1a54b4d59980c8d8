"""Intervals for a policy that is played: the bounds by another method, their coverage, the source of returns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fed_ucbvi import (
    FedKLUCBVI,
    InputError,
    LiveFederation,
    best_common_policy,
    evaluate,
    gridworld,
    make_environment,
)
from fed_ucbvi.algorithms import return_bounds
from fed_ucbvi.algorithms.return_bounds import BINS, UNIT, add_returns, episodes_in, interval_of, new_histogram
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.engine.drivers.base import Fleet
from fed_ucbvi.engine.drivers.episodes import SimulatedReturns
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.gymnasium_environments import TabularEnv
from fed_ucbvi.results.policy import as_policy
from matrices import first_of


def upper_by_duality(returns: FloatArray, H: float, b: float) -> float:
    """``min over nu >= H of nu - exp(mean of log(nu - G) - b/n)``, by SciPy, from the returns themselves."""

    def value(log_gap: float) -> float:
        nu = H + np.exp(log_gap)
        return float(nu - np.exp(np.log(nu - returns).mean() - b / len(returns)))

    best = minimize_scalar(value, bounds=(-40, 12), method="bounded", options={"xatol": 1e-10})
    return min(float(best.fun), H)


@pytest.mark.parametrize("n", [1, 10, 300])
def test_the_ends_are_those_of_the_divergence_ball_widened_by_the_spread_of_half_a_bin(n: int) -> None:
    rng = np.random.default_rng(n)
    H = 10.0
    delta = 0.05
    returns = H * rng.beta(2, 3, n)
    histogram = new_histogram()
    add_returns(histogram, returns, H)
    interval = interval_of(histogram, H, delta)
    b = np.log(2 / delta) + np.log(2) + 0.5 * np.log(n + 1)
    upper = upper_by_duality(returns, H, b)
    lower = H - upper_by_duality(H - returns, H, b)
    assert interval.episodes == n
    assert interval.mean == pytest.approx(returns.mean(), abs=H / (BINS * UNIT))
    assert upper - 1e-9 <= interval.upper <= upper + 0.1 * H / BINS
    assert lower - 0.1 * H / BINS <= interval.lower <= lower + 1e-9


def test_histograms_add_up_over_agents() -> None:
    returns = np.random.default_rng(1).random(50)
    parts = [new_histogram() for _ in range(3)]
    for part, some in zip(parts[:2], np.split(returns, [20]), strict=True):
        add_returns(part, some, 1.0)
    add_returns(parts[2], returns, 1.0)
    assert np.array_equal(parts[0] + parts[1], parts[2])
    assert episodes_in(parts[2]) == 50


_upper = return_bounds._upper


@compiled
def _misses(returns: FloatArray, value: float, radii: FloatArray) -> int:
    """How many federations ``returns[f, t, agent]`` in [0, 1] had a bound on the wrong side after some episode."""
    wrong = 0
    for f in range(returns.shape[0]):
        histogram = np.zeros(BINS + 1, dtype=np.int64)
        for t in range(returns.shape[1]):
            add_returns(histogram, returns[f, t], 1.0)
            upper = _upper(histogram, radii[t]) + 1.0 / (BINS * UNIT)
            lower = 1.0 - _upper(histogram[::-1].copy(), radii[t])
            if not lower <= value <= upper:
                wrong += 1
                break
    return wrong


def misses(federations: int, episodes: int, agents: int, delta: float, seed: int) -> int:
    """The same of federations whose agents have different laws of returns, a fifth of them each of five families."""
    rng = np.random.default_rng(seed)
    wrong = 0
    n = agents * np.arange(1, episodes + 1)
    radii = np.array([return_bounds.radius(int(k), delta / 2) / k for k in n])
    size = (federations // 5, episodes, agents)
    means = np.linspace(0.05, 0.6, agents)
    laws = [
        ((rng.random(size) < means).astype(float), means.mean()),
        ((rng.random(size) < 0.02).astype(float), 0.02),
        (rng.beta(means, 1 - means, size), means.mean()),
        (rng.beta(20 * means, 20 * (1 - means), size), means.mean()),
        (1.0 - 0.1 * (rng.random(size) < means), 1.0 - 0.1 * means.mean()),
    ]
    for returns, value in laws:
        wrong += _misses(returns, float(value), radii)
    return wrong


@pytest.mark.parametrize(("federations", "episodes"), first_of([(500, 40), (10_000, 100)]))
def test_the_interval_holds_after_every_episode_in_at_least_95_of_100_federations(
    federations: int, episodes: int
) -> None:
    """Hypothesis: at most 5 % ever miss. Rates of 2 % and 4.3 % would fail once in a million and in a thousand."""
    assert misses(federations, episodes, 5, delta=0.05, seed=7) <= 0.05 * federations


@pytest.mark.parametrize("random_rewards", [False, True])
def test_returns_in_simulation_are_those_of_the_episodes_that_are_counted(random_rewards: bool) -> None:
    world = make_environment("riverswim", states=4, horizon=7, agents=3, eps_p=0.2, bernoulli_rewards=random_rewards)
    simulation = Simulation(FedKLUCBVI(), world, 30, 5, "episodes")
    policy = as_policy(np.array([0, 1, 1, 1]), 7, 4, 2)
    sets = policy[..., None] == np.arange(2)
    party = simulation.party
    party.start((sets, *FedKLUCBVI().broadcast(simulation.server)[1:]), 4)
    party.driver.extend(sets, party.budgets.limits, 4, 20, False)
    fleet = Fleet.of(world, 5, random_rewards=random_rewards)
    histogram = new_histogram()
    SimulatedReturns(fleet, world).add(sets, 4, 20, histogram)
    pays = world.rewards[0]
    if random_rewards:
        K = world.successors.shape[-1]
        paid = party.driver.transitions[..., K:].sum(axis=(0, -1))
        total = float((paid * world.payments.amounts.max(axis=0)).sum())  # type: ignore[union-attr]
    else:
        total = float((party.driver.visits.sum(axis=0) * pays).sum())
    assert episodes_in(histogram) == 60
    assert interval_of(histogram, 7.0, 0.05).mean * 60 == pytest.approx(total, abs=60 * 7 / (BINS * UNIT))


def test_intervals_of_evaluate_cover_the_exact_value() -> None:
    """Each of the two intervals may miss with probability 1e-6."""
    world = gridworld(agents=4)
    policy = best_common_policy(world).policy
    value = float(np.mean([world.agent(i).initial @ world.agent(i).evaluate(policy)[0] for i in range(4)]))
    live = LiveFederation(lambda i: TabularEnv("gridworld", agent=i, agents=4), 4, world.horizon, (0, 1))
    for where, episodes in ((world, 3000), (live, 100)):
        interval = evaluate(policy, where, episodes, delta=1e-6)
        assert interval.lower <= value <= interval.upper
        assert interval.episodes == 4 * episodes
        assert interval.upper - interval.lower < (0.5 if episodes == 3000 else 3.0)


def test_policies_that_cannot_be_played_are_rejected() -> None:
    world = gridworld(agents=2)
    for wrong, reason in (
        (np.zeros((3, 2)), r"floats, which are probabilities of actions, .*Give actions as integers"),
        (np.full(world.states, 7), "takes actions that do not exist: 7 at step 0 in state 0, where there are 0 to 3"),
        (np.full(world.states, "1"), "something else"),
        (lambda step, state: 1 // state, "fails for some step and state: ZeroDivisionError"),
    ):
        with pytest.raises(InputError, match=reason):
            evaluate(wrong, world, 1)
