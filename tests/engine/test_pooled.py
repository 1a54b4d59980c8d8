"""One table for all agents, agent by agent, message by message, in fleets of any split: the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, gridworld, run
from fed_ucbvi.algorithms import counters
from fed_ucbvi.algorithms.base import Counting, Setting
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers.base import Fleet, collect
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.engine.parts import part_of
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.play_ahead import AskReport, PartyMessage
from fed_ucbvi.engine.problems import SimulatedProblem
from fed_ucbvi.engine.ray_fleets import Fleets
from fed_ucbvi.engine.simulated_party import SimulatedParty
from fed_ucbvi.engine.simulation import Simulation
from matrices import first_of
from problems import any_federation, budgets_of, random_play
from runs import counted_apart, same_bits, without_cautions

pytestmark = without_cautions

SAME = ("start", "length", "requests", "agent", "step", "state", "action", "rule", "bytes_up", "bytes_down")


def random_world(seed: int) -> tuple[Federation, np.random.Generator]:
    rng = np.random.default_rng([77, seed])
    M = int(rng.integers(1, 8))
    S = int(rng.integers(1, 6))
    A = int(rng.integers(1, 4))
    H = int(rng.integers(1, 6))
    return any_federation(rng, M, S, A, H), rng


def random_algorithm(rng: np.random.Generator, federation: Federation) -> FedUCBVI | FedKLUCBVI:
    if rng.integers(2):
        by_step = max(federation.successors.shape[0], federation.rewards.shape[1]) > 1
        return FedKLUCBVI(
            radius=float(rng.choice([1.0, 0.5, 0.05])),
            stationary=bool(rng.integers(2)) and not by_step,
            min_round_growth=float(rng.choice([0.0, 0.2, 1.0])),
        )
    parameters: dict[str, Any] = {
        "bonus": str(rng.choice(["practical", "practical", "theory", "corrected"])),
        "bonus_scale": float(rng.choice([1.0, 0.1, 0.003])),
        "synchronisation": str(rng.choice(["mixture", "local", "global"])),
        "nu": float(rng.choice([1, 10, 1e9])),
        "strict": bool(rng.integers(2)),
        "ties": str(rng.choice(["first", "random"])),
    }
    return FedUCBVI(**parameters)


def test_random_algorithms_are_of_all_kinds() -> None:
    bonuses = set()
    sets = set()
    for seed in range(60):
        federation, rng = random_world(seed)
        algorithm = random_algorithm(rng, federation)
        if isinstance(algorithm, FedUCBVI):
            bonuses.add((algorithm.bonus, algorithm.synchronisation))
        else:
            sets.add((algorithm.counting, algorithm.radius < 1, bool(algorithm.min_round_growth)))
    assert len(bonuses) == 9
    assert len(sets) == 8


class Shuffled:
    """A transport to parties in this process; reports come in an order that changes."""

    def __init__(self, parties: Sequence[Party], order: np.random.Generator) -> None:
        self._parties = parties
        self._order = order

    def ask_all(self, message: PartyMessage) -> list[Any]:
        answers = [party.answer(message) for party in self._parties]
        if isinstance(message, AskReport):
            return [answers[k] for k in self._order.permutation(len(answers))]
        return answers


class InFleets(SimulatedProblem):
    """A problem whose agents are dealt out to fleets in this process."""

    def __init__(self, federation: Federation, parts: list[tuple[int, int]], order: np.random.Generator) -> None:
        super().__init__(federation, "episodes")
        self._parts = parts
        self._order = order

    def party(self, algorithm: Any, setting: Setting) -> Fleets:
        fleets = []
        for first, agents in self._parts:
            own = part_of(self.known, first, agents)
            fleets.append(SimulatedParty(algorithm, setting, own, first_agent=first))
        ask_all = Shuffled(fleets, self._order).ask_all
        return Fleets(algorithm, setting, self.known, self._parts, ask_all, ExitStack())


def in_fleets(
    algorithm: Any, federation: Federation, episodes: int, seed: int, cuts: list[int], order: np.random.Generator
) -> Simulation:
    """A run whose agents are dealt out to fleets in this process; each reports one row."""
    parts = [(begin, end - begin) for begin, end in itertools.pairwise(cuts)]
    return Simulation(algorithm, InFleets(federation, parts, order), episodes, seed)


def random_cuts(rng: np.random.Generator, agents: int) -> list[int]:
    """Where a federation is split into fleets, from 0 to the number of agents."""
    inner: list[int] = []
    if agents > 1:
        inner = rng.choice(np.arange(1, agents), size=rng.integers(0, agents), replace=False).tolist()
    return [0, *sorted(inner), agents]


def assert_same_servers(one: Simulation, other: Simulation) -> None:
    """Play both to the end, and compare the servers after each round."""
    while not one.done:
        one.advance()
        other.advance()
        assert same_bits(one.server, other.server)


@given(st.integers(0, 10**6))
def test_a_run_in_fleets_of_any_split_is_that_of_one_table_bit_for_bit(seed: int) -> None:
    federation, rng = random_world(seed)
    T = int(rng.integers(1, 80))
    algorithm = random_algorithm(rng, federation)
    cuts = random_cuts(rng, federation.agents)
    pooled = Simulation(algorithm, federation, T, seed, "episodes")
    split = in_fleets(algorithm, federation, T, seed, cuts, rng)
    assert_same_servers(pooled, split)
    assert split.result().same_outcome(pooled.result())


@given(st.integers(0, 10**6))
def test_a_run_counted_agent_by_agent_is_that_of_one_table_bit_for_bit(seed: int) -> None:
    """Regret and reward are added up in another order."""
    federation, rng = random_world(seed)
    T = int(rng.integers(1, 80))
    algorithm = random_algorithm(rng, federation)
    pooled = Simulation(algorithm, federation, T, seed, "episodes")
    by_agent = Simulation(algorithm, counted_apart(federation), T, seed)
    assert_same_servers(pooled, by_agent)
    together = pooled.records()
    apart = by_agent.records()
    for name in (*SAME, "value"):
        assert np.array_equal(together[name], apart[name])
    for name in ("regret", "reward"):
        assert np.allclose(together[name], apart[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("driver", ["counts", "auto"])
def test_counting_agent_by_agent_gives_the_same_run_with_other_drivers(driver: str, seed: int) -> None:
    federation, rng = random_world(1000 + seed)
    algorithm = random_algorithm(rng, federation)
    pooled = Simulation(algorithm, federation, 3000, seed, driver)
    by_agent = Simulation(algorithm, counted_apart(federation, driver), 3000, seed)
    assert_same_servers(pooled, by_agent)
    for name in SAME:
        assert np.array_equal(pooled.records()[name], by_agent.records()[name])


def rounds_with_threads(counting: Counting) -> Iterator[Fleet]:
    """Fleets after random rounds, in which threads may have taken episodes back."""
    rng = np.random.default_rng(5)
    for trial in range(20):
        federation, _ = random_world(trial)
        if counting is Counting.STATIONARY and federation.successors.shape[0] > 1:
            continue
        H = federation.horizon
        S = federation.states
        A = federation.actions
        fleet = Fleet.of(federation, trial, pooled=True, counting=counting)
        driver = EpisodesDriver(fleet, cores=int(rng.integers(1, 4)))
        driver._alone = 1
        policy = random_play(rng, counting, H, S, A)
        budgets: CountArray = rng.integers(2, 60, size=(federation.agents, *counting.shape(H, S, A)))
        for first in (0, 1000):
            growth = float(rng.choice([0.0, 0.01]))
            collect(driver, policy, budgets_of(budgets, growth), first, 100)
            yield fleet
        driver.clear()
        assert not fleet.visits.any()
        assert not fleet.transitions.any()
        assert not fleet.touched.all_visits.any()


@pytest.mark.parametrize("counting", first_of(list(Counting)))
def test_every_cell_that_an_agent_visited_is_listed_once(counting: Counting) -> None:
    for fleet in rounds_with_threads(counting):
        touched = fleet.touched
        for i, visits in enumerate(fleet.visits):
            listed = touched.cells[i, : touched.numbers[i]]
            assert sorted(listed.tolist()) == np.flatnonzero(visits).tolist()


@pytest.mark.parametrize("counting", first_of(list(Counting)))
def test_every_cell_that_any_agent_visited_is_listed_once(counting: Counting) -> None:
    for fleet in rounds_with_threads(counting):
        touched = fleet.touched
        listed = touched.all_cells[: touched.number[0]]
        assert sorted(listed.tolist()) == np.flatnonzero(touched.all_visits).tolist()


@pytest.mark.parametrize("counting", first_of(list(Counting)))
def test_counts_of_a_pooled_fleet_are_sums_over_agents(counting: Counting) -> None:
    for fleet in rounds_with_threads(counting):
        all_visits = fleet.touched.all_visits[0]
        assert np.array_equal(all_visits, fleet.visits.sum(axis=0))
        assert np.array_equal(all_visits, fleet.transitions[0].sum(axis=-1))


@pytest.mark.parametrize(
    "algorithm", [FedUCBVI(), FedKLUCBVI(), FedKLUCBVI(stationary=True)], ids=["one action", "sets", "stationary"]
)
@pytest.mark.full
def test_counters_of_16_bits_give_the_same_run(
    algorithm: FedUCBVI | FedKLUCBVI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Budgets of which every agent has its own have as many bits."""
    world = gridworld(agents=5)
    episodes = np.iinfo(np.int16).max - 1
    if algorithm.counting is Counting.STATIONARY:
        episodes = episodes // world.horizon
    expected = run(algorithm, world, episodes, seed=2)
    monkeypatch.setattr(counters, "MAX_IN_CACHES", 0)
    simulation = Simulation(algorithm, world, episodes, 2, "auto")
    assert simulation.driver.visits.dtype == np.int16
    assert run(algorithm, world, episodes, seed=2).same_outcome(expected)
    longer = Simulation(algorithm, world, episodes + 1, 2, "auto")
    assert longer.driver.visits.dtype == np.int32
    if isinstance(algorithm, FedUCBVI):
        assert [one.agents.asks.limits.dtype for one in (simulation, longer)] == [np.int16, np.int32]


def test_counters_have_room_for_the_budgets_that_a_warm_start_brings() -> None:
    """By the global rule a budget is N/M, whatever this run adds."""
    setting = Setting(states=2, actions=2, horizon=2, agents=4, episodes=100, eps_p=0.0, seed=0)
    for earlier, kind in ((0, np.int16), (4 << 20, np.int32), (4 << 40, np.int64)):
        assert counters.counter_type(replace(setting, earlier_visits=earlier), rows=1 << 30) == kind


def test_agents_with_the_same_mdp_are_evaluated_once() -> None:
    assert gridworld(agents=6, eps_p=0.0).kind_tables.initial.shape[1] == 1
    assert gridworld(agents=3, eps_p=0.2).kind_tables.initial.shape[1] == 3


def test_the_value_of_agents_that_are_evaluated_once_is_their_mean() -> None:
    federation = gridworld(agents=6, eps_p=0.0)
    simulation = Simulation(FedUCBVI(), federation, 50, 1, "episodes")
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        values = [federation.initial[i] @ federation.agent(i).evaluate(policy)[0] for i in range(6)]
        assert simulation.records()["value"][-1] == pytest.approx(np.mean(values), rel=1e-14)
