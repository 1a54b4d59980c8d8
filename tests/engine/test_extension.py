"""Extended runs: more episodes than planned, and a start from the counts of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fed_ucbvi import (
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    InputError,
    Interrupted,
    Run,
    reference,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.base import NOT_DECLARED, Array, Counting
from fed_ucbvi.algorithms.count_reporting import CountReporting
from fed_ucbvi.algorithms.count_table import CountTable, table_of_lists
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.engine.checkpoint import load_counts, open_checkpoint
from fed_ucbvi.engine.simulation import Simulation
from live_world import AGENTS, World
from matrices import in_turn
from naive_fed_ucbvi import NaiveAgent, Options, Sizes, synchronise, visits_until_ask
from problems import random_federation
from runs import federation_of, finished, interrupt_after, without_cautions

pytestmark = without_cautions

SHORT = 60
LONG = 150
SEED = 5
SMALL: dict[str, Any] = {"states": 3, "actions": 2, "horizon": 3}
WORLD = synthetic(agents=3, eps_p=0.1, seed=2, **SMALL)
OWN_REWARDS = synthetic(agents=3, eps_p=0.1, eps_r=0.3, seed=2, **SMALL)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ALGORITHMS},
    "fedq-advantage, each agent on its own": ("fedq-advantage", {"forced_synchronisation": False}),
}
KEEP_COUNTS: dict[str, tuple[Any, Federation]] = {
    "published": (FedUCBVI(nu=30), WORLD),
    "rewards of their own": (FedKLUCBVI(), OWN_REWARDS),
    "random rewards": (FedKLUCBVI(), WORLD.with_bernoulli_rewards()),
    "stationary": (FedKLUCBVI(stationary=True), random_federation(np.random.default_rng(3), stationary=True)),
    "small radius": (FedKLUCBVI.fast(), WORLD),
    "random rewards, moments": (FedUCBVI(nu=30), WORLD.with_bernoulli_rewards()),
}


def begin(algorithm: Any, federation: Federation, folder: Path, stop: int = SHORT) -> None:
    """A run of few episodes, or the part of it up to an interruption."""
    options: dict[str, Any] = {"seed": SEED, "checkpoint": folder, "checkpoint_every": 1}
    if stop < SHORT:
        with pytest.raises(Interrupted):
            run(algorithm, federation, SHORT, on_round=interrupt_after(episodes=stop), **options)
    else:
        run(algorithm, federation, SHORT, **options)


# ------------------------------------------------------------------------------------------------------ more episodes


def extended(variant: str, stop: int, folder: Path) -> Run:
    """A run that was begun with few episodes, up to ``stop`` of them, and extended in one go."""
    algorithm, world = extendable(variant)
    begin(algorithm, world, folder, stop)
    return resume(folder, episodes=LONG)


def extendable(variant: str) -> tuple[Any, Federation]:
    """The algorithm, if it can be extended, and a problem for it."""
    name, parameters = VARIANTS[variant]
    algorithm = make_algorithm(name, parameters)
    if algorithm.extension.episodes:
        pytest.skip(f"{name} refuses")
    world = synthetic(agents=1, **SMALL) if algorithm.single_agent else OWN_REWARDS
    return algorithm, world


extended_runs = pytest.mark.parametrize(
    ("variant", "stop"), in_turn([(variant,) for variant in VARIANTS], [SHORT // 2, SHORT])
)


@extended_runs
def test_an_extended_run_plays_all_its_episodes(variant: str, stop: int, tmp_path: Path) -> None:
    result = extended(variant, stop, tmp_path / "run")
    assert result.complete
    assert result.about.episodes == LONG
    assert result.episodes_played == LONG
    assert result.recommendations["episodes"][-1] == LONG


@extended_runs
def test_an_extended_run_does_not_depend_on_interruptions(variant: str, stop: int, tmp_path: Path) -> None:
    algorithm, world = extendable(variant)
    begin(algorithm, world, tmp_path / "in parts", stop)
    with pytest.raises(Interrupted):
        resume(tmp_path / "in parts", episodes=LONG, on_round=interrupt_after(episodes=LONG // 2))
    with pytest.raises(Interrupted):
        resume(tmp_path / "in parts", on_round=interrupt_after(episodes=3 * LONG // 4))
    in_parts = resume(tmp_path / "in parts", episodes=LONG)
    assert in_parts.same_outcome(extended(variant, stop, tmp_path / "at once"))


def assert_continued(before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
    """Check that a table begins with the rows of another."""
    for name, column in before.items():
        assert np.array_equal(after[name][: len(column)], column, equal_nan=True), name


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_extended_run_continues_the_records_of_the_shorter_one(variant: str, tmp_path: Path) -> None:
    algorithm, world = extendable(variant)
    begin(algorithm, world, tmp_path / "run")
    before = resume(tmp_path / "run")
    after = resume(tmp_path / "run", episodes=LONG)
    assert before.complete
    assert_continued(before.records, after.records)
    assert_continued(before.recommendations, after.recommendations)


def test_a_run_cannot_be_resumed_with_fewer_episodes(tmp_path: Path) -> None:
    begin(FedUCBVI(), WORLD, tmp_path / "run")
    resume(tmp_path / "run", episodes=LONG)
    with pytest.raises(InputError, match=f"with {LONG} episodes; it cannot continue with {SHORT}"):
        resume(tmp_path / "run", episodes=SHORT)


@pytest.fixture
def undeclared(tmp_path: Path) -> Path:
    """A checkpoint of an algorithm that does not declare whether it can be extended."""
    algorithm = make_algorithm("examples.epsilon_greedy:EpsilonGreedy", {})
    run(algorithm, WORLD, 20, checkpoint=tmp_path / "run")
    return tmp_path / "run"


def test_an_algorithm_that_does_not_declare_it_cannot_be_extended(undeclared: Path) -> None:
    with pytest.raises(InputError, match=f"cannot be extended with more episodes than planned: {NOT_DECLARED}"):
        resume(undeclared, episodes=40)


def test_no_run_can_start_from_the_counts_of_an_algorithm_that_does_not_declare_it(undeclared: Path) -> None:
    with pytest.raises(InputError, match=f"no run can start from the counts of epsilon-greedy: {NOT_DECLARED}"):
        load_counts(undeclared)


def naive_agent(moves: CountArray, rewards: FloatArray) -> NaiveAgent:
    """An agent that observed so many transitions ``[H,S,A,S]`` and these rewards ``[H,S,A]``, one by one."""
    agent = NaiveAgent()
    for h, s, a, to in np.argwhere(moves).tolist():
        agent.observe(h, s, a, float(rewards[h, s, a]), to, int(moves[h, s, a, to]))
    return agent


def naive_of(simulation: Simulation, earlier: CountTable | None = None) -> list[NaiveAgent]:
    """All that was counted, as one agent, and the counts of an earlier run as another."""
    moves = simulation.agents.table.dense()
    rewards = np.broadcast_to(federation_of(simulation).rewards[0], moves.shape[:3])
    agents = [naive_agent(moves, rewards)]
    if earlier is not None:
        agents.append(naive_agent(earlier.dense(), earlier.mean_rewards()))
    return agents


def test_the_plan_of_an_extended_run_is_from_all_counts(tmp_path: Path) -> None:
    algorithm = FedUCBVI(bonus_scale=0.02)
    begin(algorithm, WORLD, tmp_path / "run")
    store, simulation = open_checkpoint(tmp_path / "run", 10**9)
    with store:
        for _ in range(5):
            simulation.advance()
            assert simulation.rows[-1].requests > 0
        expected = synchronise(naive_of(simulation), Sizes(3, 2, 3, 3, 0.05), Options(scale=0.02))
        expected.assert_equals(simulation.server.estimates, 5e-8)


def test_the_budgets_of_an_extended_run_are_those_of_the_larger_t(tmp_path: Path) -> None:
    """Nu grows with T, and differs from that of the smaller T by far."""
    longer = 10**9
    nu = reference.threshold(3, 2, 3, 3, longer, 0.1)
    assert nu > reference.threshold(3, 2, 3, 3, SHORT, 0.1) + 1
    begin(FedUCBVI(bonus_scale=0.02), WORLD, tmp_path / "run")
    store, simulation = open_checkpoint(tmp_path / "run", longer)
    with store:
        for _ in range(5):
            simulation.advance()
        algorithm = simulation.algorithm
        policy, N = algorithm.broadcast(simulation.server)
        budgets = algorithm.budgets(simulation.agents, (policy, N))
        own = simulation.agents.own_visits
        for i, h, s in np.ndindex(budgets.limits.shape):
            a = policy[h, s]
            limit, rule = visits_until_ask(int(own[i, h, s, a]), int(N[h, s, a]), 3, nu, "mixture", strict=False)
            assert budgets.limits[i, h, s] == limit
            assert algorithm.rules[budgets.rule[h, s]] == rule


def test_a_grid_that_is_kept_has_room_for_all_sums_or_is_refused() -> None:
    rng = np.random.default_rng(7)
    kept = refused = wrongly = two = 0
    for _ in range(500):
        M = int(rng.integers(1, 1000))
        H = int(rng.integers(1, 100))
        T = int(2 ** rng.uniform(0, 30))
        factor = int(2 ** rng.uniform(0, 25))
        random = bool(rng.integers(2))
        more = M + int(rng.integers(3))
        first = make_grid(M, M * T, H, random_rewards=random)
        N = more * T * factor
        most = H + random
        squares = N * (most << first.bits) ** 2 >= 2 ** (62 + 62 - (more - 1).bit_length() - 4)
        try:
            grid = make_grid(more, N, H, random_rewards=random, kept=first.bits)
        except InputError:
            refused += squares or (random and N << first.bits >= 2**61)
            wrongly += not (squares or (random and N << first.bits >= 2**61))
            continue
        assert grid.bits == first.bits
        largest = 2**63 if grid.words == 1 else 2 ** (63 + grid.base)
        assert N * most << grid.bits < largest
        assert N * (most << grid.bits) ** 2 < 2 ** (63 + grid.base)
        assert not random or N << grid.bits < 2**63
        kept = kept + 1
        two = two + (grid.words > first.words)
    assert not wrongly, "there was room"
    assert min(kept, refused, two) > 20, "the problems must reach every branch"


def test_counters_of_32_bits_get_64_where_t_needs_them(tmp_path: Path) -> None:
    begin(FedUCBVI(), WORLD, tmp_path / "run")
    store, simulation = open_checkpoint(tmp_path / "run", 2**33)
    with store:
        assert simulation.agents.own_visits.dtype == np.int64
        assert simulation.agents.own_visits[:, 0].sum() == 3 * SHORT


def begin_live(folder: Path) -> None:
    run(FedUCBVI(), World().live(), 20, seed=SEED, checkpoint=folder, checkpoint_every=1)


def test_a_live_run_can_be_extended(tmp_path: Path) -> None:
    begin_live(tmp_path / "run")
    result = resume(tmp_path / "run", World(20).live(), episodes=50)
    assert result.complete
    assert result.episodes_played == 50


def test_an_extended_live_run_does_not_depend_on_interruptions(tmp_path: Path) -> None:
    begin_live(tmp_path / "at once")
    begin_live(tmp_path / "in parts")
    with pytest.raises(Interrupted):
        resume(tmp_path / "in parts", World(20).live(), episodes=50, on_round=interrupt_after(episodes=30))
    played = int(load_counts(tmp_path / "in parts").visits[0].sum()) // AGENTS
    in_parts = resume(tmp_path / "in parts", World(played).live())
    at_once = resume(tmp_path / "at once", World(20).live(), episodes=50)
    assert in_parts.same_outcome(at_once)


# --------------------------------------------------------------------------------------------------------- warm start


def counts_of(simulation: Simulation) -> CountTable:
    """The counts of a run, including those that were not reported to the server."""
    counts: CountTable = simulation.algorithm.counts_of(simulation.server, simulation.agents)
    return counts


class EarlierRun(NamedTuple):
    """A run of 400 episodes, its checkpoint, and its counts."""

    algorithm: Any
    world: Federation
    result: Run
    folder: Path
    counts: CountTable

    def transitions(self, episodes: int) -> int:
        """Number of transitions that are counted together in so many episodes of each agent."""
        together = self.algorithm.counting is Counting.STATIONARY
        steps = self.world.horizon if together else 1
        return self.world.agents * episodes * steps


@pytest.fixture(params=KEEP_COUNTS)
def earlier_run(request: pytest.FixtureRequest, tmp_path: Path) -> EarlierRun:
    algorithm, world = KEEP_COUNTS[request.param]
    result = run(algorithm, world, 400, seed=1, checkpoint=tmp_path / "earlier")
    counts = load_counts(tmp_path / "earlier")
    return EarlierRun(algorithm, world, result, tmp_path / "earlier", counts)


def test_the_counts_of_a_run_have_all_its_transitions(earlier_run: EarlierRun) -> None:
    by_step = earlier_run.counts.transitions.sum(axis=(1, 2, 3))
    assert (by_step == earlier_run.transitions(400)).all()


def test_counts_can_be_saved(earlier_run: EarlierRun, tmp_path: Path) -> None:
    earlier_run.counts.save(tmp_path / "counts.npz")
    assert CountTable.load(tmp_path / "counts.npz").equals(earlier_run.counts)


def test_a_warm_start_plans_what_the_earlier_run_recommended(earlier_run: EarlierRun) -> None:
    earlier = earlier_run.result
    simulation = Simulation(earlier_run.algorithm, earlier_run.world, 400, 2, "episodes", counts=earlier_run.counts)
    plan = simulation.plan()
    assert np.array_equal(plan.policy, earlier.policy)
    assert simulation.initial_value(plan.V) == pytest.approx(earlier.estimated_value, rel=0, abs=1e-6)


def test_a_warm_start_from_a_file_is_that_from_the_checkpoint(earlier_run: EarlierRun, tmp_path: Path) -> None:
    earlier_run.counts.save(tmp_path / "counts.npz")
    algorithm = earlier_run.algorithm
    world = earlier_run.world
    from_file = run(algorithm, world, 100, seed=3, warm_start=tmp_path / "counts.npz")
    from_checkpoint = run(algorithm, world, 100, seed=3, warm_start=earlier_run.folder)
    assert from_file.same_outcome(from_checkpoint)


def test_a_run_states_the_largest_count_of_its_warm_start(earlier_run: EarlierRun) -> None:
    warm = run(earlier_run.algorithm, earlier_run.world, 100, seed=3, warm_start=earlier_run.counts)
    assert warm.about.facts["earlier_visits"] == earlier_run.counts.most


def test_the_counts_after_a_warm_start_are_those_that_the_server_keeps(
    earlier_run: EarlierRun, tmp_path: Path
) -> None:
    """A server that keeps counts has those of the earlier run too."""
    algorithm = earlier_run.algorithm
    run(algorithm, earlier_run.world, 100, warm_start=earlier_run.counts, checkpoint=tmp_path / "warm")
    by_step = load_counts(tmp_path / "warm").transitions.sum(axis=(1, 2, 3))
    episodes = 500 if isinstance(algorithm, CountReporting) else 100
    assert (by_step == earlier_run.transitions(episodes)).all()


def test_a_run_with_a_warm_start_can_be_extended(earlier_run: EarlierRun, tmp_path: Path) -> None:
    counts = earlier_run.counts
    run(earlier_run.algorithm, earlier_run.world, 100, warm_start=counts, checkpoint=tmp_path / "warm")
    longer = resume(tmp_path / "warm", episodes=200)
    assert longer.complete
    assert longer.about.facts["earlier_visits"] == counts.most


@pytest.mark.parametrize("rounds", [0, 3])
def test_plans_after_a_warm_start_are_from_all_counts(rounds: int, tmp_path: Path) -> None:
    algorithm = FedUCBVI(bonus="corrected", bonus_scale=0.001, synchronisation="global")
    run(algorithm, WORLD, 200, seed=1, checkpoint=tmp_path / "earlier")
    counts = load_counts(tmp_path / "earlier")
    simulation = Simulation(algorithm, WORLD, 300, 2, "episodes", counts=counts)
    for _ in range(rounds):
        simulation.advance()
        assert simulation.rows[-1].requests > 0
    options = Options(bonus="corrected", scale=0.001)
    expected = synchronise(naive_of(simulation, counts), Sizes(3, 2, 3, 1, 0.05), options)
    expected.assert_equals(simulation.server.estimates, 5e-8)


def test_a_warm_start_saves_regret() -> None:
    """Fixed seeds; ten times is far from what chance does."""
    algorithm = FedKLUCBVI()
    counts = counts_of(finished(Simulation(algorithm, WORLD, 2000, 1, "episodes")))
    cold = run(algorithm, WORLD, 500, seed=2)
    warm = run(algorithm, WORLD, 500, seed=2, warm_start=counts)
    assert warm.regret < cold.regret / 10


def stationary_counts(algorithm: FedKLUCBVI) -> CountTable:
    """Counts of a run on a problem whose tables are the same at every step."""
    _, world = KEEP_COUNTS["stationary"]
    return counts_of(finished(Simulation(algorithm, world, 100, 1, "episodes")))


def test_counts_over_all_steps_are_those_by_step_added_up() -> None:
    counts = stationary_counts(FedKLUCBVI())
    added = counts.over_all_steps()
    sums = counts.mean_rewards() * counts.visits
    assert np.array_equal(added.dense()[0], counts.dense().sum(axis=0))
    assert_allclose(added.mean_rewards() * added.visits, sums.sum(axis=0, keepdims=True))


def test_a_stationary_run_can_start_from_counts_by_step() -> None:
    algorithm, world = KEEP_COUNTS["stationary"]
    counts = stationary_counts(FedKLUCBVI())
    start = Simulation(algorithm, world, 100, 1, "episodes", counts=counts)
    assert np.array_equal(start.server.table.visits, counts.over_all_steps().visits)


def test_a_run_that_is_not_stationary_cannot_start_from_counts_over_all_steps() -> None:
    _, world = KEEP_COUNTS["stationary"]
    counts = stationary_counts(FedKLUCBVI(stationary=True))
    with pytest.raises(InputError, match="over all steps together"):
        Simulation(FedKLUCBVI(), world, 100, 1, "episodes", counts=counts)


@pytest.fixture(scope="module")
def few_counts() -> CountTable:
    simulation = Simulation(FedUCBVI(), WORLD, 50, 1, "episodes")
    simulation.advance()
    return counts_of(simulation)


def test_counts_of_a_problem_of_another_size_are_refused(few_counts: CountTable) -> None:
    larger = synthetic(agents=2, states=4, actions=2, horizon=3)
    with pytest.raises(InputError, match=r"\(S, A, steps\) = \(3, 2, 3\), this run has \(S, A, H\) = \(4, 2, 3\)"):
        run(FedUCBVI(), larger, 10, warm_start=few_counts)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("byzan-ucbvi", "robust means"), ("fedq-hoeffding", "no counts of transitions")],
)
def test_algorithms_that_cannot_use_counts_refuse_them(name: str, reason: str, few_counts: CountTable) -> None:
    with pytest.raises(InputError, match=f"{name} cannot start from the counts of an earlier run: .*{reason}"):
        run(make_algorithm(name, {}), WORLD, 10, warm_start=few_counts)


def test_counts_of_transitions_that_the_problem_does_not_have_are_refused() -> None:
    lists = {
        "cells": np.zeros(1, np.int64),
        "seen": np.ones(1, np.int32),
        "successors": np.full(1, 2, np.int32),
        "transitions": np.full(1, 5),
        "rewards": np.zeros((1, 2), np.uint64),
    }
    counts = table_of_lists((3, 3, 2), 40, lists)
    world = random_federation(np.random.default_rng(1), 2, 3, 2, 3)
    without_moves = np.zeros_like(world.successors)
    message = r"from \(step, state, action\) = \(0, 0, 0\) they have transitions to state 2"
    with pytest.raises(InputError, match=message):
        counts.check_support(without_moves)


def test_a_warm_start_on_a_gpu_is_refused(few_counts: CountTable) -> None:
    with pytest.raises(InputError, match="fleets='local'"):
        run(FedUCBVI(), WORLD, 10, warm_start=few_counts, driver="cuda")


def test_a_file_of_another_program_is_refused_as_counts(tmp_path: Path) -> None:
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"is not a \.npz file of counts that fed-ucbvi saved"):
        load_counts(tmp_path / "other.npz")


def test_a_missing_file_is_refused_as_counts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        load_counts(tmp_path / "missing.npz")
