"""UCBVI and Concurrent UCBVI against the pseudocode, and against another library's UCBVI."""

from __future__ import annotations

import copy
import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats

import rlberry_reference
from fed_ucbvi import UCBVI, Caution, ConcurrentUCBVI, InputError, gridworld, run
from fed_ucbvi.algorithms import make_algorithm, ucbvi
from fed_ucbvi.algorithms.base import FleetTables, Setting, exchange_messages
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.federation import Federation
from naive_ucbvi import NaiveUCBVI, Options, Step
from problems import budgets_of, random_federation

TOLERANCE = 1e-10
DRIVERS = ("episodes", "counts", "auto")


def steps_of(simulation: Simulation, policy: IndexArray) -> list[Step]:
    """The round's steps, all agents in turn, read from the driver's counts."""
    federation = simulation.federation
    found = []
    for i, h, s, k in np.argwhere(simulation.driver.transitions > 0).tolist():
        a = int(policy[h, s])
        successor = int(federation.successors[h if len(federation.successors) > 1 else 0, s, a, k])
        rewards = federation.rewards[i if len(federation.rewards) > 1 else 0]
        found.append(Step(h, s, a, float(rewards[h if len(rewards) > 1 else 0, s, a]), successor))
        assert simulation.driver.transitions[i, h, s, k] == 1
    return found


def small_federation(rng: np.random.Generator, agents: int | None = None) -> Federation:
    S, A, H, M = (int(rng.integers(1, high)) for high in (5, 4, 5, 5))
    return random_federation(
        rng, agents or M, S, A, H, stationary=bool(rng.integers(2)), own_rewards=bool(rng.integers(2))
    )


@pytest.mark.parametrize("bonus", ucbvi.BONUSES)
@pytest.mark.parametrize("clip", ucbvi.CLIPS)
@pytest.mark.parametrize("monotone", [True, False])
def test_every_variant_equals_the_pseudocode_episode_by_episode(bonus: str, clip: str, monotone: bool) -> None:
    rng = np.random.default_rng([1, ucbvi.BONUSES.index(bonus), ucbvi.CLIPS.index(clip), monotone])
    for repetition in range(4):
        f = small_federation(rng)
        third_term = ucbvi.THIRD_TERMS[repetition % 2]
        scale = float(rng.choice([1.0, 0.01]))
        algorithm = ConcurrentUCBVI(
            bonus=bonus, scale=scale, third_term=third_term, delta=0.1, monotone=monotone, clip=clip
        )
        T = 25
        simulation = Simulation(algorithm, f, T, repetition, "episodes")
        naive = NaiveUCBVI(
            Options(f.states, f.actions, f.horizon, f.agents, T, bonus, scale, third_term, 0.1, monotone, clip)
        )
        while not simulation.done:
            policy = simulation.server.policy.copy()
            simulation.advance()
            for step in steps_of(simulation, policy):
                naive.observe(step)
            naive.plan()
            estimates = simulation.server.estimates
            for (h, s, a), value in naive.Q.items():
                assert estimates.N[h, s, a] == len(naive.seen[h, s, a])
                assert estimates.Q[h, s, a] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE)
            for (h, s), value in naive.V.items():
                assert estimates.V[h, s] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE)
            chosen = np.take_along_axis(estimates.Q, estimates.policy[..., None], axis=2)[..., 0]
            np.testing.assert_array_equal(chosen, estimates.Q.max(axis=2))


@pytest.mark.parametrize("driver", DRIVERS)
def test_with_every_driver_every_episode_is_a_round(driver: str) -> None:
    f = random_federation(np.random.default_rng(3), agents=3)
    result = run(ConcurrentUCBVI(), f, 40, seed=2, driver=driver, progress=False)
    assert result.rounds == 40
    assert set(result.records["length"].tolist()) == {1}
    again = run(ConcurrentUCBVI(), f, 40, seed=2, driver=driver, progress=False)
    np.testing.assert_array_equal(result.V, again.V)
    np.testing.assert_array_equal(result.records["regret"], again.records["regret"])


def test_one_process_equals_message_by_message_to_the_last_bit() -> None:
    f = random_federation(np.random.default_rng(4), agents=4)
    simulation = Simulation(ConcurrentUCBVI(bonus="bernstein-freedman", scale=0.01), f, 30, 0, "episodes")
    for _ in range(29):
        simulation.advance()
    one, other = copy.deepcopy(simulation.server), copy.deepcopy(simulation.server)
    simulation.algorithm.synchronise(one, simulation.agents)
    exchange_messages(simulation.algorithm, other, simulation.agents, simulation.setting)
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name])


def test_reports_are_the_trajectories_that_were_played() -> None:
    f = random_federation(np.random.default_rng(5), agents=4, own_rewards=True)
    simulation = Simulation(ConcurrentUCBVI(), f, 30, 1, "episodes")
    H = f.horizon
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        states, rewards = simulation.agents.out
        for i, h in itertools.product(range(4), range(H)):
            s, y = int(states[i, h]), int(states[i, h + 1])
            assert simulation.driver.visits[i, h].tolist() == [int(s == x) for x in range(f.states)]
            (k,) = np.flatnonzero(simulation.driver.transitions[i, h, s])
            assert f.successors[h, s, policy[h, s], k] == y
            assert rewards[i, h] == f.rewards[i, h, s, policy[h, s]]


def test_the_bytes_are_those_of_the_trajectories() -> None:
    f = random_federation(np.random.default_rng(6), agents=3)
    records = run(ConcurrentUCBVI(), f, 5, progress=False).records
    H, request = f.horizon, 6 * 8
    assert set(records["bytes_up"].tolist()) == {3 * (request + 4 * (H + 1) + 8 * H)}
    assert set(records["messages_up"].tolist()) == {2 * 3}


def test_a_single_agent_is_the_same_with_either_name() -> None:
    f = random_federation(np.random.default_rng(7), agents=1)
    alone, pooled = (run(kind(), f, 60, seed=3, progress=False) for kind in (UCBVI, ConcurrentUCBVI))
    np.testing.assert_array_equal(alone.V, pooled.V)
    np.testing.assert_array_equal(alone.records["regret"], pooled.records["regret"])


def test_ucbvi_refuses_a_federation_and_names_the_concurrent_version() -> None:
    f = random_federation(np.random.default_rng(8), agents=2)
    with pytest.raises(InputError, match=r"this federation has 2.*concurrent-ucbvi"):
        run(UCBVI(), f, 5, progress=False)


def test_a_table_beyond_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(InputError, match=r"\(H, S, A, S\).*14\.9 GiB.*limit is 1 GiB"):
        ConcurrentUCBVI().new_server(Setting(10_000, 2, 10, 3, 100, 0.0, 0))


def test_a_round_of_several_episodes_is_refused() -> None:
    f = random_federation(np.random.default_rng(9), agents=2)
    algorithm = ConcurrentUCBVI()
    setting = Setting(f.states, f.actions, f.horizon, f.agents, 10, 0.0, 0)
    agents = algorithm.new_agents(setting, FleetTables(f.agents, f.successors, f.rewards))
    simulation = Simulation(algorithm, f, 10, 0, "episodes")
    policy = simulation.server.policy
    for length in (2, 3):
        simulation.driver.collect(policy, budgets_of(np.full((2, f.horizon, f.states), 10**9)), 0, length)
        with pytest.raises(InputError, match="longer round"):
            algorithm.absorb(agents, policy, simulation.driver.transitions, simulation.driver.visits)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"bonus": "simplifed"}, "did you mean 'simplified'"),
        ({"third_term": "on"}, "third term"),
        ({"clip": "none"}, "clip"),
        ({"scale": -1.0}, "scale must be"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"ties": "last"}, "ties"),
        ({"initial_policy": "best"}, "initial policy"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict[str, object], complaint: str) -> None:
    for name in ("ucbvi", "concurrent-ucbvi"):
        with pytest.raises(InputError, match=complaint):
            make_algorithm(name, parameters)


def test_a_caution_says_that_the_papers_bonus_is_hopeless_at_this_length() -> None:
    f = gridworld(agents=2)
    with pytest.warns(Caution, match="nothing can be learnt"):
        result = run(ConcurrentUCBVI(bonus="chernoff-hoeffding"), f, 20, progress=False)
    np.testing.assert_array_equal(result.V[:-1], float(f.horizon))


@pytest.mark.parametrize(("bonus", "scale"), [("chernoff-hoeffding", 0.02), ("bernstein-freedman", 0.1)])
@pytest.mark.parametrize("clip", ["horizon", "remaining"])
def test_values_stay_optimistic_and_within_bounds(bonus: str, scale: float, clip: str) -> None:
    rng = np.random.default_rng(10)
    for seed in range(5):
        f = random_federation(rng, agents=3, eps_p=0.0)
        best = f.common.solve()
        simulation = Simulation(ConcurrentUCBVI(bonus=bonus, scale=scale, clip=clip), f, 300, seed, "episodes")
        before = simulation.server.estimates.Q.copy()
        while not simulation.done:
            simulation.advance()
            Q, V = simulation.server.estimates.Q, simulation.server.estimates.V
            assert (before >= Q).all()
            assert (best.V - 1e-12 <= V).all()
            before = Q.copy()
        assert simulation.server.estimates.Q.min() < f.horizon


def test_every_bonus_gives_finite_values_however_long_the_run() -> None:
    f = random_federation(np.random.default_rng(11), agents=2)
    for bonus, clip in itertools.product(ucbvi.BONUSES, ucbvi.CLIPS):
        result = run(ConcurrentUCBVI(bonus=bonus, clip=clip, scale=1e-3), f, 2000, progress=False)
        assert np.isfinite(result.V).all()


def test_the_logarithm_is_that_of_the_stage_dependent_analysis() -> None:
    facts = ConcurrentUCBVI(delta=0.1).facts(Setting(3, 2, 4, 5, 100, 0.0, 0))
    assert facts["L"] == pytest.approx(math.log(5 * 3 * 2 * 4 * 5 * 100 * 4 / 0.1))


def test_a_state_carried_over_by_its_arrays_goes_on_the_same() -> None:
    f = random_federation(np.random.default_rng(12), agents=3)
    first, second = (Simulation(ConcurrentUCBVI(ties="random"), f, 60, 1, "episodes") for _ in range(2))
    for _ in range(30):
        first.advance()
    for one, other in ((first.server, second.server), (first.agents, second.agents)):
        for name, array in one.arrays().items():
            other.arrays()[name][...] = array
    second.set_clock(first.clock.copy())
    for _ in range(30):
        first.advance()
        second.advance()
        np.testing.assert_array_equal(first.server.policy, second.server.policy)
    np.testing.assert_array_equal(first.server.V, second.server.V)


# ------------------------------------------------------------------------------------------- rlberry-scool

RLBERRY = (200, 135.498, 2.768)
"""Number, mean and deviation of regrets of rlberry-scool 0.7.3, by ``python tests/rlberry_reference.py 200``."""
FALSE_ALARM = 1e-4


def our_regrets(number: int, **parameters: object) -> list[float]:
    """Regrets of single-agent UCBVI where :mod:`rlberry_reference` measures rlberry's."""
    f = gridworld(agents=1, horizon=rlberry_reference.HORIZON)
    algorithm = UCBVI(**{"bonus": "simplified", "monotone": False, "initial_policy": "first", **parameters})  # type: ignore[arg-type]
    regrets = []
    for seed in range(number):
        result = run(algorithm, f, rlberry_reference.EPISODES, seed=seed, progress=False)
        regrets.append(float(result.records["regret"].sum()))
    return regrets


def p_values(sample: list[float], size: int, mean: float, deviation: float) -> tuple[float, float]:
    """Of Welch's test of the means and the F test of the variances, two-sided."""
    ours = statistics.mean(sample), statistics.stdev(sample)
    means = stats.ttest_ind_from_stats(*ours, len(sample), mean, deviation, size, equal_var=False).pvalue
    tail = stats.f.cdf((ours[1] / deviation) ** 2, len(sample) - 1, size - 1)
    return float(means), float(2 * min(tail, 1 - tail))


def test_the_reference_world_is_the_papers_gridworld() -> None:
    P, R = rlberry_reference.tables()
    common = gridworld(agents=1, horizon=rlberry_reference.HORIZON).common
    dense = np.zeros_like(P)
    for s, a, k in np.ndindex(common.kernel.successors.shape[1:]):
        dense[s, a, common.kernel.successors[0, s, a, k]] += common.kernel.probabilities[0, s, a, k]
    np.testing.assert_allclose(dense, P, atol=1e-15)
    np.testing.assert_array_equal(common.rewards[0], R)
    assert rlberry_reference.value(P, R, None) == pytest.approx(common.initial @ common.solve().V[0])


@pytest.mark.slow
def test_regret_has_the_law_measured_from_rlberry() -> None:
    """Two tests with a false-alarm rate of 1e-4 each; Q unclipped and V clipped at H, as rlberry does."""
    assert min(p_values(our_regrets(200, clip="values"), *RLBERRY)) > FALSE_ALARM


def test_the_comparison_with_rlberry_would_notice_another_clipping() -> None:
    assert p_values(our_regrets(60, clip="horizon"), *RLBERRY)[0] < FALSE_ALARM


def test_regret_has_the_law_of_rlberry_where_it_is_installed() -> None:
    pytest.importorskip(
        "rlberry_scool", reason="rlberry-scool is not installed; the measured figures stand in for it"
    )
    theirs = [rlberry_reference.regret_of(seed) for seed in range(20)]
    measured = len(theirs), statistics.mean(theirs), statistics.stdev(theirs)
    assert min(p_values(our_regrets(100, clip="values"), *measured)) > FALSE_ALARM
