"""Going on otherwise than planned: more episodes, and a start from the counts of an earlier run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, InputError, Interrupted, reference, resume, run, synthetic
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.base import NOT_DECLARED, Counting
from fed_ucbvi.algorithms.count_table import CountTable, table_of_lists
from fed_ucbvi.algorithms.exact_sums import make_grid
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


@pytest.mark.parametrize(("variant", "stop"), in_turn([(variant,) for variant in VARIANTS], [SHORT // 2, SHORT]))
def test_a_longer_run_continues_the_records_and_does_not_depend_on_interruptions(
    variant: str, stop: int, tmp_path: Path
) -> None:
    name, parameters = VARIANTS[variant]
    algorithm = make_algorithm(name, parameters)
    if algorithm.extension.episodes:
        pytest.skip(f"{name} refuses")
    world = synthetic(agents=1, **SMALL) if algorithm.single_agent else OWN_REWARDS
    for folder in ("at once", "in parts"):
        begin(algorithm, world, tmp_path / folder, stop)
    before = resume(tmp_path / "at once", on_round=interrupt_after(episodes=0)) if stop == SHORT else None
    whole = resume(tmp_path / "at once", episodes=LONG)
    with pytest.raises(Interrupted):
        resume(tmp_path / "in parts", episodes=LONG, on_round=interrupt_after(episodes=LONG // 2))
    with pytest.raises(InputError, match=f"with {LONG} episodes; it cannot continue with {SHORT}"):
        resume(tmp_path / "in parts", episodes=SHORT)
    with pytest.raises(Interrupted):
        resume(tmp_path / "in parts", on_round=interrupt_after(episodes=3 * LONG // 4))
    assert resume(tmp_path / "in parts", episodes=LONG).same_outcome(whole)
    assert whole.complete
    assert whole.about.episodes == whole.episodes_played == LONG
    assert whole.recommendations["episodes"][-1] == LONG
    if before is not None:
        assert before.complete
        for column, values in before.records.items():
            assert np.array_equal(whole.records[column][: len(values)], values, equal_nan=True), column
        for column, values in before.recommendations.items():
            assert np.array_equal(whole.recommendations[column][: len(values)], values, equal_nan=True), column


def test_an_algorithm_whose_author_has_not_said_so_does_not_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(make_algorithm("examples.epsilon_greedy:EpsilonGreedy", {}), WORLD, 20, checkpoint=folder)
    with pytest.raises(InputError, match=f"cannot be extended with more episodes than planned: {NOT_DECLARED}"):
        resume(folder, episodes=40)
    with pytest.raises(InputError, match=f"no run can start from the counts of epsilon-greedy: {NOT_DECLARED}"):
        load_counts(folder)


def naive_of(simulation: Simulation, *earlier: CountTable) -> list[NaiveAgent]:
    """All that was counted, as one agent, told transition by transition; and the counts of an earlier run."""
    moves = simulation.agents.table.dense()
    told = []
    rewards = np.broadcast_to(federation_of(simulation).rewards[0], moves.shape[:3])
    for n, paid in ((moves, rewards), *((counts.dense(), counts.mean_rewards()) for counts in earlier)):
        told.append(NaiveAgent())
        for h, s, a, to in np.argwhere(n).tolist():
            told[-1].observe(h, s, a, float(paid[h, s, a]), to, int(n[h, s, a, to]))
    return told


def test_budgets_are_those_of_the_larger_t_from_then_on(tmp_path: Path) -> None:
    """Nu grows with T, and differs from that of the smaller T by far."""
    algorithm = FedUCBVI(bonus_scale=0.02)
    begin(algorithm, WORLD, tmp_path / "run")
    longer = 10**9
    store, simulation = open_checkpoint(tmp_path / "run", longer)
    with store:
        for _ in range(5):
            simulation.advance()
            assert simulation.rows[-1].requests > 0, "somebody asked"
        sizes = Sizes(3, 2, 3, 3, 0.05)
        synchronise(naive_of(simulation), sizes, Options(scale=0.02)).assert_equals(simulation.server.estimates, 5e-8)
        nu = reference.threshold(3, 2, 3, 3, longer, 0.1)
        assert nu > reference.threshold(3, 2, 3, 3, SHORT, 0.1) + 1
        policy, N = simulation.algorithm.broadcast(simulation.server)
        visits, rule, _ = simulation.algorithm.budgets(simulation.agents, (policy, N))
        own = simulation.agents.own_visits
        for i, h, s in np.ndindex(visits.shape):
            a = policy[h, s]
            limits = visits_until_ask(int(own[i, h, s, a]), int(N[h, s, a]), 3, nu, "mixture", strict=False)
            assert (int(visits[i, h, s]), simulation.algorithm.rules[rule[h, s]]) == limits


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


def test_a_live_run_goes_on_with_more_episodes(tmp_path: Path) -> None:
    def begun(folder: str) -> Path:
        run(FedUCBVI(), World().live(), 20, seed=SEED, checkpoint=tmp_path / folder, checkpoint_every=1)
        return tmp_path / folder

    whole = resume(begun("at once"), World(20).live(), episodes=50)
    folder = begun("in parts")
    with pytest.raises(Interrupted):
        resume(folder, World(20).live(), episodes=50, on_round=interrupt_after(episodes=30))
    played = int(load_counts(folder).visits[0].sum()) // AGENTS
    assert resume(folder, World(played).live()).same_outcome(whole)
    assert whole.complete
    assert whole.episodes_played == 50


# --------------------------------------------------------------------------------------------------------- warm start


def counts_of(simulation: Simulation) -> CountTable:
    """What a run has counted, whether a synchronisation has told the server of it or not."""
    counts: CountTable = simulation.algorithm.counts_of(simulation.server, simulation.agents)
    return counts


@pytest.mark.parametrize("variant", KEEP_COUNTS)
def test_a_warm_start_plans_what_the_earlier_run_recommended(variant: str, tmp_path: Path) -> None:
    algorithm, world = KEEP_COUNTS[variant]
    earlier = run(algorithm, world, 400, seed=1, checkpoint=tmp_path / "earlier")
    counts = load_counts(tmp_path / "earlier")
    steps = 1 if algorithm.counting is Counting.STATIONARY else world.horizon
    assert (counts.transitions.sum(axis=(1, 2, 3)) == world.agents * 400 * world.horizon // steps).all()
    counts.save(tmp_path / "counts.npz")
    assert CountTable.load(tmp_path / "counts.npz").equals(counts)
    again = Simulation(algorithm, world, 400, 2, "episodes", counts=counts)
    assert np.array_equal(again.plan().policy, earlier.policy)
    assert again.initial_value(again.plan().V) == pytest.approx(earlier.estimated_value, rel=0, abs=1e-6)
    warm = run(algorithm, world, 100, seed=3, warm_start=tmp_path / "counts.npz", checkpoint=tmp_path / "warm")
    assert warm.same_outcome(run(algorithm, world, 100, seed=3, warm_start=tmp_path / "earlier"))
    assert warm.about.facts["earlier_visits"] == counts.most
    told = 500 if algorithm.server_counts else 100  # a server's table has the earlier run's too
    assert (
        load_counts(tmp_path / "warm").transitions.sum(axis=(1, 2, 3)) == world.agents * told * world.horizon // steps
    ).all()
    longer = resume(tmp_path / "warm", episodes=200)
    assert longer.complete
    assert longer.about.facts["earlier_visits"] == counts.most


def test_the_first_plan_and_those_after_it_are_from_all_counts(tmp_path: Path) -> None:
    algorithm = FedUCBVI(bonus="corrected", bonus_scale=0.001, synchronisation="global")
    run(algorithm, WORLD, 200, seed=1, checkpoint=tmp_path / "earlier")
    counts = load_counts(tmp_path / "earlier")
    simulation = Simulation(algorithm, WORLD, 300, 2, "episodes", counts=counts)
    options = Options(bonus="corrected", scale=0.001)
    sizes = Sizes(3, 2, 3, 1, 0.05)
    synchronise(naive_of(simulation, counts), sizes, options).assert_equals(simulation.server.estimates, 5e-8)
    for _ in range(3):
        simulation.advance()
        assert simulation.rows[-1].requests > 0, "somebody asked"
    synchronise(naive_of(simulation, counts), sizes, options).assert_equals(simulation.server.estimates, 5e-8)


def test_a_warm_start_saves_regret() -> None:
    """Fixed seeds; ten times is far from what chance does."""
    algorithm = FedKLUCBVI()
    counts = counts_of(finished(Simulation(algorithm, WORLD, 2000, 1, "episodes")))
    cold = run(algorithm, WORLD, 500, seed=2)
    warm = run(algorithm, WORLD, 500, seed=2, warm_start=counts)
    assert warm.regret < cold.regret / 10


def test_counts_over_all_steps_are_those_by_step_added_up() -> None:
    algorithm, world = KEEP_COUNTS["stationary"]
    both = (finished(Simulation(one, world, 100, 1, "episodes")) for one in (FedKLUCBVI(), algorithm))
    counts, own = map(counts_of, both)
    added = counts.over_all_steps()
    assert np.array_equal(added.dense()[0], counts.dense().sum(axis=0))
    assert_allclose(
        added.mean_rewards() * added.visits, (counts.mean_rewards() * counts.visits).sum(axis=0, keepdims=True)
    )
    start = Simulation(algorithm, world, 100, 1, "episodes", counts=counts)
    assert np.array_equal(start.server.table.visits, added.visits)
    with pytest.raises(InputError, match="over all steps together"):
        Simulation(FedKLUCBVI(), world, 100, 1, "episodes", counts=own)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    simulation = Simulation(FedUCBVI(), WORLD, 50, 1, "episodes")
    simulation.advance()
    counts = counts_of(simulation)
    with pytest.raises(InputError, match=r"\(S, A, steps\) = \(3, 2, 3\), this run has \(S, A, H\) = \(4, 2, 3\)"):
        run(FedUCBVI(), synthetic(agents=2, states=4, actions=2, horizon=3), 10, warm_start=counts)
    for name, reason in (("byzan-ucbvi", "robust means"), ("fedq-hoeffding", "no counts of transitions")):
        with pytest.raises(InputError, match=f"{name} cannot start from the counts of an earlier run: .*{reason}"):
            run(make_algorithm(name, {}), WORLD, 10, warm_start=counts)
    five = {"cells": np.zeros(1, np.int64), "seen": np.ones(1, np.int32), "successors": np.full(1, 2, np.int32)}
    five |= {"transitions": np.full(1, 5), "rewards": np.zeros((1, 2), np.uint64)}
    narrow = table_of_lists((3, 3, 2), 40, five)
    one_way = random_federation(np.random.default_rng(1), 2, 3, 2, 3)
    blocked = replace(one_way, successors=np.zeros_like(one_way.successors))
    with pytest.raises(
        InputError, match=r"from \(step, state, action\) = \(0, 0, 0\) they have transitions to state 2"
    ):
        narrow.check_support(blocked.successors)
    with pytest.raises(InputError, match="fleets='local'"):
        run(FedUCBVI(), WORLD, 10, warm_start=counts, driver="cuda")
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"is not a \.npz file of counts that fed-ucbvi saved"):
        load_counts(tmp_path / "other.npz")
    with pytest.raises(InputError, match="is not a file"):
        load_counts(tmp_path / "missing.npz")
