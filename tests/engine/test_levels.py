"""Rounds whose policy has several levels, of which each agent draws one for every episode."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fed_ucbvi import Federation, FedKLUCBVI, LiveFederation, riverswim, run
from fed_ucbvi.algorithms.base import Budgets, Counting
from fed_ucbvi.core.sampling.levels import (
    LEVELS,
    LevelLaw,
    kept_levels,
    level_of,
    level_of_episode,
    level_probabilities,
)
from fed_ucbvi.core.types import CountArray, MaskArray
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Driver, Fleet, collect
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.gymnasium_environments import TabularEnv
from problems import random_federation
from runs import finished

NEVER = 1 << 40
ALARM = 1e-4
"""Probability of a false alarm of each statistical test."""
STATES = 4
ACTIONS = 3
HORIZON = 3
AGENTS = 3


def world(stationary: bool) -> Federation:
    rng = np.random.default_rng(1)
    return random_federation(rng, AGENTS, STATES, ACTIONS, HORIZON, own_starts=True, stationary=stationary)


def levels_of_policy() -> MaskArray:
    """A set of actions for every level, step and state; no set is empty."""
    rng = np.random.default_rng(2)
    sets: MaskArray = rng.random((LEVELS, HORIZON, STATES, ACTIONS)) < 0.5
    sets[..., 0] |= ~sets.any(axis=-1)
    return sets


def fleet_of(federation: Federation, counting: Counting, share: float, seed: int = 5) -> Fleet:
    return Fleet.of(federation, seed, counting=counting, levels=LevelLaw(number=LEVELS, share=share))


def play(driver: Driver, counting: Counting, first: int, episodes: int) -> None:
    """Play a round that ends after so many episodes."""
    shape = counting.shape(HORIZON, STATES, ACTIONS)
    limits = np.full((1, *shape), NEVER, dtype=np.int64)
    budgets = Budgets(limits, np.zeros(shape, dtype=np.int8))
    collect(driver, levels_of_policy(), budgets, first, episodes)


def played_levels(federation: Federation, seed: int, share: float, first: int, episodes: int) -> CountArray:
    """The level of every agent and episode, ``(M, episodes)``."""
    levels = np.zeros((federation.agents, episodes), dtype=np.int64)
    kept = kept_levels(np.uint64(seed), 0, federation.agents, first)
    for i, t in np.ndindex(*levels.shape):
        levels[i, t] = level_of_episode(np.uint64(seed), share, np.uint64(i), np.uint64(first + t), int(kept[i]))
    return levels


# -------------------------------------------------------------------------------------------------- the draws


def test_a_level_is_an_exponential_number_rounded() -> None:
    numbers = np.linspace(0.0, 1.0, 2001)[:-1]
    expected = np.minimum(LEVELS - 1, np.round(-np.log1p(-numbers)))
    assert [level_of(u) for u in numbers] == expected.tolist()


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_levels_have_their_probabilities(share: float) -> None:
    """H0: given the kept level, levels of episodes are drawn by ``level_probabilities``."""
    federation = world(stationary=False)
    levels = played_levels(federation, seed=3, share=share, first=7, episodes=20_000)
    kept = kept_levels(np.uint64(3), 0, federation.agents, 7)
    law = level_probabilities(LevelLaw(number=LEVELS, share=share))
    for i in range(federation.agents):
        expected = law[kept[i]] * levels.shape[1]
        found = np.bincount(levels[i], minlength=LEVELS)
        assert chisquare(found, expected).pvalue > ALARM


def test_kept_levels_change_from_round_to_round() -> None:
    rounds = [tuple(kept_levels(np.uint64(1), 0, 20, first)) for first in range(5)]
    assert len(set(rounds)) == 5


def test_without_fresh_draws_an_agent_plays_the_level_that_it_keeps() -> None:
    federation = world(stationary=False)
    levels = played_levels(federation, seed=4, share=0.0, first=0, episodes=50)
    assert (levels == kept_levels(np.uint64(4), 0, federation.agents, 0)[:, None]).all()


# -------------------------------------------------------------------------------------------------- the drivers


@pytest.mark.parametrize("counting", [Counting.PAIRS, Counting.STATIONARY])
def test_starts_are_counted_by_the_level_of_the_episode(counting: Counting) -> None:
    federation = world(counting is Counting.STATIONARY)
    driver = EpisodesDriver(fleet_of(federation, counting, share=0.5))
    play(driver, counting, first=11, episodes=400)
    levels = played_levels(federation, seed=5, share=0.5, first=11, episodes=400)
    expected = [np.bincount(own, minlength=LEVELS) for own in levels]
    assert np.array_equal(driver.starts.sum(axis=2), expected)


@pytest.mark.parametrize("counting", [Counting.PAIRS, Counting.STATIONARY])
def test_an_episode_plays_the_policy_of_its_level(counting: Counting) -> None:
    """One episode at a time, which visits only actions of its level's sets."""
    federation = world(counting is Counting.STATIONARY)
    policy = levels_of_policy()
    driver = EpisodesDriver(fleet_of(federation, counting, share=0.5))
    for first in range(200):
        play(driver, counting, first=first, episodes=1)
        levels = played_levels(federation, seed=5, share=0.5, first=first, episodes=1)[:, 0]
        for i in range(federation.agents):
            possible = policy[levels[i]]
            if counting is Counting.STATIONARY:
                possible = possible.any(axis=0, keepdims=True)
            assert not driver.visits[i][~possible].any()


def test_several_threads_play_the_levels_of_one() -> None:
    federation = random_federation(np.random.default_rng(3), 20, STATES, ACTIONS, HORIZON)
    drivers = [EpisodesDriver(fleet_of(federation, Counting.PAIRS, share=0.3), cores=cores) for cores in (1, 2)]
    for driver in drivers:
        driver._alone = 2  # threads take over after two episodes
        play(driver, Counting.PAIRS, first=0, episodes=300)
    assert np.array_equal(drivers[0].transitions, drivers[1].transitions)
    assert np.array_equal(drivers[0].starts, drivers[1].starts)


def test_episodes_that_are_taken_back_leave_no_trace() -> None:
    federation = world(stationary=False)
    driver = EpisodesDriver(fleet_of(federation, Counting.PAIRS, share=0.3))
    play(driver, Counting.PAIRS, first=4, episodes=10)
    limits = np.full((1, HORIZON, STATES, ACTIONS), NEVER, dtype=np.int64)
    driver.rewind(levels_of_policy(), limits, 10, 4)
    left = driver.transitions.copy()
    play(driver, Counting.PAIRS, first=4, episodes=6)
    assert np.array_equal(driver.transitions, left)


@pytest.mark.parametrize("counting", [Counting.PAIRS, Counting.STATIONARY])
def test_blocks_are_divided_among_levels_by_their_probabilities(counting: Counting) -> None:
    """H0: the episodes of a block of the counts driver are multinomial over levels."""
    federation = world(counting is Counting.STATIONARY)
    driver = make_driver("counts", fleet_of(federation, counting, share=0.4))
    play(driver, counting, first=3, episodes=100_000)
    kept = kept_levels(np.uint64(5), 0, federation.agents, 3)
    law = level_probabilities(LevelLaw(number=LEVELS, share=0.4))
    for i in range(federation.agents):
        assert chisquare(driver.starts[i].sum(axis=1), law[kept[i]] * 100_000).pvalue > ALARM


@pytest.mark.parametrize("counting", [Counting.PAIRS, Counting.STATIONARY])
def test_visits_of_a_block_have_the_law_of_single_episodes(counting: Counting) -> None:
    """H0: mean visits per cell of the counts driver are those of the policies of the levels, by their probabilities.

    The deviation of each cell's mean is compared with six standard errors, bounded by H^2 / 4 per episode.
    """
    federation = world(counting is Counting.STATIONARY)
    episodes = 200_000
    driver = make_driver("counts", fleet_of(federation, counting, share=0.4))
    play(driver, counting, first=3, episodes=episodes)
    kept = kept_levels(np.uint64(5), 0, federation.agents, 3)
    law = level_probabilities(LevelLaw(number=LEVELS, share=0.4))
    policy = levels_of_policy()
    for i in range(federation.agents):
        expected = np.zeros(counting.shape(HORIZON, STATES, ACTIONS))
        for level in range(LEVELS):
            expected += law[kept[i], level] * occupancy(federation, i, policy[level], counting)
        error = np.abs(driver.visits[i] / episodes - expected)
        assert error.max() < 6 * HORIZON / 2 / np.sqrt(episodes)


def occupancy(federation: Federation, agent: int, policy: MaskArray, counting: Counting) -> Any:
    """Expected visits to every cell in one episode, by a plain forward pass."""
    mdp = federation.agent(agent)
    kernel = mdp.kernel.dense()
    state = mdp.initial.copy()
    visits = np.zeros(counting.shape(HORIZON, STATES, ACTIONS))
    for h in range(HORIZON):
        chances = state[:, None] * policy[h] / policy[h].sum(axis=1, keepdims=True)
        visits[h if counting is Counting.PAIRS else 0] += chances
        state = np.einsum("sa,sat->t", chances, kernel[h if len(kernel) > 1 else 0])
    return visits


# ------------------------------------------------------------------------------------------------------ whole runs


def test_live_environments_play_the_levels_that_agents_draw() -> None:
    """The same seed draws the same levels for live environments as in a simulation."""
    live = LiveFederation(lambda i: TabularEnv("riverswim", agent=i, agents=2), 2, 20, (0.0, 1.0))
    algorithm = FedKLUCBVI(optimism="drawn", fresh_share=0.5)
    simulation = Simulation(algorithm, live, 3, seed=6)
    simulation.advance()
    played = simulation.party.driver.starts.sum(axis=2)
    episodes = simulation.rows[0].length
    levels = played_levels(riverswim(agents=2), seed=6, share=0.5, first=0, episodes=episodes)
    assert np.array_equal(played, [np.bincount(own, minlength=LEVELS) for own in levels])


@pytest.mark.parametrize("stationary", [False, True])
def test_drivers_agree_on_the_regret_of_drawn_levels(stationary: bool) -> None:
    """Regret of several seeds by episodes and by counts; a difference above four standard errors is an alarm."""
    federation = riverswim(agents=5)
    algorithm = FedKLUCBVI(optimism="drawn", stationary=stationary)
    regrets = {
        driver: [run(algorithm, federation, 300, seed=seed, driver=driver).regret for seed in range(24)]
        for driver in ("episodes", "counts")
    }
    means = [np.mean(found) for found in regrets.values()]
    errors = [np.var(found) / len(found) for found in regrets.values()]
    assert abs(means[0] - means[1]) < 4 * np.sqrt(sum(errors))


def test_regret_is_the_sum_over_the_levels_that_were_played() -> None:
    federation = riverswim(agents=4)
    simulation = Simulation(FedKLUCBVI(optimism="drawn"), federation, 200, 2, "episodes")
    best = federation.common.solve().V[0]
    total = 0.0
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        starts = simulation.driver.starts.sum(axis=0)
        for level, s in itertools.product(range(LEVELS), range(federation.states)):
            if starts[level, s]:
                total += starts[level, s] * (best[s] - federation.common.evaluate(policy[level])[0, s])
    assert simulation.result().regret == pytest.approx(total / 4, rel=1e-9)


def test_a_resumed_run_draws_what_an_uninterrupted_one_draws() -> None:
    algorithm = FedKLUCBVI(optimism="drawn")
    whole = finished(Simulation(algorithm, riverswim(agents=3), 200, 1))
    half = Simulation(algorithm, riverswim(agents=3), 200, 1)
    for _ in range(len(whole.rows) // 2):
        half.advance()
    resumed = Simulation(algorithm, riverswim(agents=3), 200, 1)
    resumed.restore(half.saved())
    assert finished(resumed).result().same_outcome(whole.result())
