"""UCB-Advantage and its concurrent version against an independent implementation of the pseudocode."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import ConcurrentUCBAdvantage, InputError, UCBAdvantage, gridworld, synthetic
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.advantage import Server
from fed_ucbvi.algorithms.base import FleetTables, Setting, exchange_messages
from fed_ucbvi.algorithms.ucb_advantage import UCBAdvantageReport
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.engine.checkpoint import Checkpoint
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.liars import ATTACKS
from naive_advantage import Learner, NaiveUCB, Sizes, Step, stage_ends
from problems import random_federation

TOLERANCE = 1e-10


def episodes_of(simulation: Simulation, policy: IndexArray) -> list[list[Step]]:
    """Each agent's episode of the round just played: its steps with count 1, sorted by time."""
    f, transitions = simulation.federation, simulation.driver.transitions
    told: list[list[Step]] = [[] for _ in range(f.agents)]
    for i, h, s, k in zip(*(axis.tolist() for axis in np.nonzero(transitions)), strict=True):
        assert transitions[i, h, s, k] == 1
        a = int(policy[h, s])
        successor = int(f.successors[h if len(f.successors) > 1 else 0, s, a, k])
        rewards = f.rewards[i if len(f.rewards) > 1 else 0]
        told[i].append(Step(h, s, a, float(rewards[h if len(rewards) > 1 else 0, s, a]), successor))
    for episode in told:
        episode.sort()
        assert [step.h for step in episode] == list(range(f.horizon))
        assert all(one.successor == two.s for one, two in itertools.pairwise(episode))
    return told


def naive_learner(simulation: Simulation, algorithm: UCBAdvantage) -> NaiveUCB:
    f, facts = simulation.federation, algorithm.facts(simulation.setting)
    H = f.horizon
    lower_order = algorithm.constants == "published"
    sizes = Sizes(f.states, f.actions, H, f.agents, facts["iota"], facts["reference_after"], lower_order)
    learner = Learner(sizes)
    learner.start([float(H - h) for h in range(H)], [float(H)] * H)
    return NaiveUCB(learner, stage_ends(H, f.agents * simulation.setting.episodes))


def assert_server_equals(server: Server, learner: Learner) -> None:
    e = server.estimates
    for (h, s, a), expected in learner.Q.items():
        assert e.Q[h, s, a] == pytest.approx(expected, rel=0, abs=TOLERANCE)
        assert e.N[h, s, a] == learner.visits((h, s, a))
        assert e.y[h, s, a] == len(learner.stage[h, s, a])
    for (h, s), value in learner.V.items():
        assert e.V[h, s] == pytest.approx(value, rel=0, abs=TOLERANCE)
        assert e.V_ref[h, s] == pytest.approx(learner.V_ref[h, s], rel=0, abs=TOLERANCE)
        if h < learner.sizes.horizon:
            assert bool(e.settled[h, s]) == ((h, s) in learner.settled)
            if any(learner.lengths[h, s, a] for a in range(learner.sizes.actions)):
                assert learner.Q[h, s, int(e.policy[h, s])] >= value - TOLERANCE


def small_federation(seed: int, *, agents: int = 4, eps_p: float = 0.2, **more: bool) -> Federation:
    return random_federation(np.random.default_rng(seed), agents, 3, 2, 3, eps_p=eps_p, **more)


def finished(algorithm: UCBAdvantage, federation: Federation, episodes: int, seed: int, driver: str) -> Simulation:
    simulation = Simulation(algorithm, federation, episodes, seed, driver)
    while not simulation.done:
        simulation.advance()
    return simulation


# ----------------------------------------------------------------------------------------------- pseudocode


@pytest.mark.parametrize("constants", ["practical", "published"])
@pytest.mark.parametrize("kind", ["single", "discard", "keep"])
def test_every_round_is_the_one_of_the_pseudocode(kind: str, constants: str) -> None:
    ended = won = settled = dropped = 0
    for seed in range(3):
        algorithm: UCBAdvantage
        if kind == "single":
            algorithm = UCBAdvantage(constants=constants, reference_after=25, ties="random")
        else:
            algorithm = ConcurrentUCBAdvantage(constants=constants, reference_after=25, discard=kind == "discard")
        federation = small_federation(
            seed,
            agents=1 if kind == "single" else 3 + seed,
            stationary=seed == 1,
            own_rewards=seed == 2,
            own_starts=seed == 0,
        )
        simulation = Simulation(algorithm, federation, 150, seed, "episodes")
        naive = naive_learner(simulation, algorithm)
        while not simulation.done:
            policy = simulation.server.policy.copy()
            simulation.advance()
            used = naive.synchronise(episodes_of(simulation, policy), discard=kind == "discard")
            dropped += federation.agents - used
            assert_server_equals(simulation.server, naive.learner)
        ended += sum(len(lengths) for lengths in naive.learner.lengths.values())
        won += naive.learner.second_bound_won
        settled += len(naive.learner.settled)
    assert ended > 60
    assert settled > 10
    assert (dropped > 50) == (kind == "discard")
    if constants == "practical":
        assert won > 5, "the reference-advantage bound must have decided something"


def test_discarding_uses_the_trajectories_up_to_the_first_that_changes_q() -> None:
    algorithm = ConcurrentUCBAdvantage()
    setting = Setting(1, 1, 2, 5, 100, 0.0, 0)
    server = algorithm.new_server(setting)
    report = UCBAdvantageReport(np.zeros((5, 3), dtype=np.int32), np.full((5, 2), 0.5))
    totals = []
    for _ in range(4):
        algorithm.aggregate(server, report, 0)
        totals.append(int((server.estimates.N + server.estimates.y)[0].sum()))
    assert totals == [2, 5, 9, 14], "stages of 2, 3, 4, then 6 visits, of which one round brings 5"


def test_the_trajectory_a_report_tells_is_the_one_that_was_played() -> None:
    for seed, driver in enumerate(("episodes", "counts", "auto")):
        federation = small_federation(seed, own_rewards=True, own_starts=True)
        algorithm = ConcurrentUCBAdvantage()
        simulation = Simulation(algorithm, federation, 60, seed, driver)
        while not simulation.done:
            policy = simulation.server.policy.copy()
            simulation.advance()
            states, rewards = algorithm.report(simulation.agents, (), 0)
            for i, episode in enumerate(episodes_of(simulation, policy)):
                assert states[i].tolist() == [step.s for step in episode] + [episode[-1].successor]
                assert rewards[i].tolist() == [step.reward for step in episode]


def test_messages_and_the_compiled_synchronisation_agree_to_the_last_bit() -> None:
    for discard in (True, False):
        algorithm = ConcurrentUCBAdvantage(reference_after=30, discard=discard)
        one, other = (Simulation(algorithm, small_federation(6), 200, 6, "episodes") for _ in range(2))
        while not one.done:
            policy = other.server.policy.copy()
            one.advance()
            algorithm.absorb(other.agents, policy, one.driver.transitions, one.driver.visits)
            exchange_messages(algorithm, other.server, other.agents, other.setting)
            for name, array in one.server.arrays().items():
                assert array.tobytes() == other.server.arrays()[name].tobytes(), name


def test_a_fleet_cut_in_two_sends_the_same_messages() -> None:
    algorithm = ConcurrentUCBAdvantage()
    federation = small_federation(7, agents=5, own_rewards=True)
    simulation = Simulation(algorithm, federation, 40, 7, "episodes")
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        for part in (slice(0, 2), slice(2, 5)):
            tables = FleetTables(part.stop - part.start, federation.successors, federation.rewards[part])
            fleet = algorithm.new_agents(simulation.setting, tables)
            driver = simulation.driver
            algorithm.absorb(fleet, policy, driver.transitions[part].copy(), driver.visits[part].copy())
            assert fleet.out.states.tobytes() == simulation.agents.out.states[part].tobytes()
            assert fleet.out.rewards.tobytes() == simulation.agents.out.rewards[part].tobytes()


@pytest.mark.parametrize("discard", [True, False])
def test_with_one_agent_the_concurrent_version_is_the_single_one(discard: bool) -> None:
    federation = small_federation(8, agents=1)
    one = finished(UCBAdvantage(reference_after=30), federation, 300, 8, "episodes")
    other = finished(ConcurrentUCBAdvantage(reference_after=30, discard=discard), federation, 300, 8, "episodes")
    assert one.rows == other.rows
    for name, array in one.server.arrays().items():
        assert array.tobytes() == other.server.arrays()[name].tobytes(), name


@pytest.mark.parametrize("H", [1, 2, 3, 7])
def test_stages_have_the_lengths_of_the_paper(H: int) -> None:
    algorithm = UCBAdvantage()
    server = algorithm.new_server(Setting(1, 1, H, 1, 1000, 0.0, 0))
    report = UCBAdvantageReport(np.zeros((1, H + 1), dtype=np.int32), np.zeros((1, H)))
    ends = stage_ends(H, 1000)
    for n in range(1, 1001):
        algorithm.aggregate(server, report, 0)
        assert ((server.estimates.y == 0) == (n in ends)).all()
        assert (server.estimates.N + server.estimates.y == n).all()


# ---------------------------------------------------------------------------------------------------- values


def test_with_the_published_constants_q_is_optimistic_and_never_rises() -> None:
    for seed in range(3):
        federation = small_federation(seed, eps_p=0.0)
        algorithm = ConcurrentUCBAdvantage(constants="published", reference_after=60)
        simulation = Simulation(algorithm, federation, 4000, seed, "episodes")
        best = federation.common.solve()
        H, e = federation.horizon, simulation.server.estimates
        start = e.V.copy()
        while not simulation.done:
            Q = e.Q.copy()
            simulation.advance()
            assert (e.Q <= Q).all()
            assert (e.V >= best.V - 1e-9).all()
            assert (e.V[:-1] <= H - np.arange(H)[:, None]).all()
        assert not np.array_equal(e.V, start)


def test_it_learns_a_nearly_optimal_policy() -> None:
    federation = synthetic(agents=5, horizon=4)
    result = finished(ConcurrentUCBAdvantage(discard=False), federation, 4000, 0, "episodes").result()
    assert result.value > 0.97 * result.about.optimal_value


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_lies_never_make_a_nan(attack: str) -> None:
    federation = gridworld(agents=4).with_liars(0.25, attack)
    simulation = finished(ConcurrentUCBAdvantage(reference_after=20), federation, 200, 0, "auto")
    assert all(bool(np.isfinite(array).all()) for array in simulation.server.arrays().values())


# --------------------------------------------------------------------------------------- runs and parameters


@pytest.mark.parametrize("driver", ["episodes", "counts", "auto"])
def test_every_episode_is_a_round_and_the_same_seed_gives_the_same_run(driver: str) -> None:
    algorithm = ConcurrentUCBAdvantage(ties="random")
    one, other = (finished(algorithm, small_federation(9), 200, 3, driver) for _ in range(2))
    assert one.rounds == 200
    assert one.rows == other.rows
    assert all(np.array_equal(a, b) for a, b in zip(one.server.estimates, other.server.estimates, strict=True))


def test_the_bytes_are_those_of_the_trajectories() -> None:
    federation = gridworld(agents=3)
    records = finished(ConcurrentUCBAdvantage(), federation, 5, 0, "episodes").records()
    H, S = federation.horizon, federation.states
    assert (records["bytes_up"] == 3 * (4 * (H + 1) + 8 * H) + 3 * 6 * 8).all()
    assert (records["bytes_down"][:-1] == 3 * (4 * H * S + 16 + 16)).all()


def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    simulation = Simulation(ConcurrentUCBAdvantage(reference_after=30), small_federation(10), 150, 3, "auto")
    store = Checkpoint.create(tmp_path / "kept", simulation, 10)
    for _ in range(60):
        simulation.advance()
    store.write(simulation)
    store.close()
    _, resumed = Checkpoint.open(tmp_path / "kept")
    while not simulation.done:
        simulation.advance()
        resumed.advance()
    np.testing.assert_array_equal(simulation.rows, resumed.rows)
    for name, array in simulation.server.arrays().items():
        assert np.array_equal(array, resumed.server.arrays()[name])


def test_the_algorithm_for_one_agent_refuses_several_and_names_the_one_to_take() -> None:
    with pytest.raises(InputError, match=r"has 4\..*concurrent-ucb-advantage"):
        Simulation(UCBAdvantage(), small_federation(0), 10, 0, "auto")


@pytest.mark.parametrize("kind", [UCBAdvantage, ConcurrentUCBAdvantage])
def test_both_are_registered_under_their_names(kind: type[UCBAdvantage]) -> None:
    assert ALGORITHMS[kind.name] is kind
    assert kind.single_agent == (kind is UCBAdvantage)
    assert make_algorithm(kind.name, {"c4": 2.0}) == kind(c4=2.0)


def test_facts_hold_the_constants_in_force() -> None:
    setting = Setting(5, 4, 3, 1, 1000, 0.0, 0)
    assert UCBAdvantage().facts(setting) == {"iota": 1.0, "reference_after": 200.0}
    iota = math.log(2 / 0.1)
    published = UCBAdvantage(constants="published", delta=0.1, c4=2.0)
    expected = 2 * 5 * 4 * 3**5 * iota * 3
    assert published.facts(setting) == pytest.approx({"iota": iota, "reference_after": expected})
    coarse = UCBAdvantage(constants="published", delta=0.1, c4=2.0, beta=1.0)
    assert coarse.facts(setting)["reference_after"] == pytest.approx(expected / 3)


def test_it_warns_where_the_reference_can_never_be_set() -> None:
    setting = Setting(5, 4, 3, 10, 1000, 0.0, 0)
    (text,) = ConcurrentUCBAdvantage(constants="published").cautions(setting)
    assert "M T = 10,000" in text
    assert ConcurrentUCBAdvantage().cautions(setting) == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"constants": "theory"}, "unknown constants"),
        ({"initial_policy": "best"}, "initial policy"),
        ({"ties": "last"}, "ties"),
        ({"delta": 0.0}, "delta"),
        ({"c4": 0.0}, "c4"),
        ({"beta": -1.0}, "beta"),
        ({"reference_after": 0}, "reference_after"),
        ({"discard": "yes"}, "true or false"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ConcurrentUCBAdvantage(**parameters)
