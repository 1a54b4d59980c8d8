"""Fed-KL-UCBVI over laws and outcomes: the reading copy, optimism, promises, files, and what is refused."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import battery_sites
import numpy as np
import pytest
import shops

from fed_ucbvi import (
    Dynamics,
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    Interrupted,
    evaluate,
    load_counts,
    reference,
    resume,
    run,
)
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.algorithms.count_reporting import as_count_reporting
from fed_ucbvi.algorithms.known_dynamics import FedKLUCBVIOverLaws, LawServer
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.engine.assumptions import Circumstances, slack_of_agents
from fed_ucbvi.engine.law_party import LawParty
from fed_ucbvi.engine.problems import KnownProblem
from fed_ucbvi.engine.simulation import Simulation
from known_problems import exogenous_dynamics, plan_of_means, random_dynamics, random_laws
from matrices import first_of
from runs import interrupt_after, same_bits, without_cautions
from solvers import largest_mean_by_optimisation

pytestmark = without_cautions


def random_world(seed: int, *, agents: int = 2, alike: bool = True, **sizes: Any) -> Federation:
    """A federation with laws shared at random across steps, states and actions."""
    rng = np.random.default_rng(seed)
    dynamics = random_dynamics(rng, **sizes)
    laws = random_laws(rng, 1 if alike else agents, dynamics, zeros=0.3 if alike else 0.0)
    return Federation.from_laws(dynamics, np.broadcast_to(laws, (agents, *laws.shape[1:])), initial=0)


def dynamics_of(federation: Federation) -> Dynamics:
    assert federation.dynamics is not None
    return federation.dynamics


def best_values(federation: Federation) -> FloatArray:
    """``V*`` of agent 0 by a loop over steps, states, actions and outcomes."""
    dynamics = dynamics_of(federation)
    assert federation.laws is not None
    law = federation.laws[0]
    V = np.zeros((dynamics.horizon + 1, dynamics.states))
    for h in reversed(range(dynamics.horizon)):
        for s in range(dynamics.states):
            best = -1.0
            for a in range(dynamics.actions):
                Q = 0.0
                for w in range(dynamics.outcomes):
                    to = dynamics.next_states_at(h)[s, a, w]
                    Q += law[dynamics.laws_at(h)[s, a], w] * (dynamics.rewards_at(h)[s, a, w] + V[h + 1, to])
                best = max(best, Q)
            V[h, s] = best
    return V


def synchronisations(simulation: Simulation) -> Iterator[CountArray]:
    """The outcomes of each agent ``(M, G, W)`` after every synchronisation, added up from the rounds."""
    dynamics = dynamics_of(simulation.problem.known)  # type: ignore[arg-type]
    counts: CountArray = np.zeros((simulation.setting.agents, dynamics.laws, dynamics.outcomes), dtype=np.int64)
    while not simulation.done:
        simulation.advance()
        counts += simulation.driver.transitions.reshape(counts.shape)
        if simulation.rows[-1].requests:
            yield counts.copy()


def counts_at_the_end(simulation: Simulation) -> CountArray:
    """The outcomes of each agent after the last synchronisation of the run."""
    *_, last = synchronisations(simulation)
    return last


def simulation_of(federation: Federation, episodes: int, seed: int = 0, **parameters: Any) -> Simulation:
    return Simulation(FedKLUCBVI(**parameters), KnownProblem(federation, pooled=False), episodes, seed)


# The rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [1.0, 0.25])
@pytest.mark.parametrize("seed", range(3))
def test_values_are_those_of_the_reading_copy(seed: int, radius: float) -> None:
    federation = random_world(seed, horizon=4, states=5, actions=3, laws=6, outcomes=4)
    dynamics = dynamics_of(federation)
    known = reference.Known(
        law_of=np.array([dynamics.laws_at(h) for h in range(4)], dtype=np.int64),
        next_state=np.array([dynamics.next_states_at(h) for h in range(4)], dtype=np.int64),
        rewards=np.array([dynamics.rewards_at(h) for h in range(4)]),
    )
    simulation = simulation_of(federation, 300, delta=0.1, radius=radius)
    compared = 0
    for counts in synchronisations(simulation):
        plan = reference.fed_kl_ucbvi(counts, np.zeros(counts.shape[:2]), known, delta=0.1, radius=radius)
        server = simulation.server
        np.testing.assert_allclose(server.V, plan.V, rtol=0, atol=1e-9)
        best = server.estimates.best
        np.testing.assert_allclose(server.estimates.Q[best], plan.Q[best], rtol=0, atol=1e-9)
        assert (server.estimates.Q >= plan.Q - 1e-9).all()
        assert (best <= (plan.V[:-1, :, None] - plan.Q <= 2e-9)).all()
        budgets = simulation.algorithm.budgets(simulation.agents, simulation.algorithm.broadcast(server))
        assert np.array_equal(budgets.limits.reshape(plan.budgets.shape), plan.budgets)
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_values_are_optimistic_at_every_synchronisation(delta: float) -> None:
    assert share_of_runs_that_are_not_optimistic(40, delta) <= delta


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_values_are_optimistic_at_every_synchronisation_of_a_thousand_runs(delta: float) -> None:
    assert share_of_runs_that_are_not_optimistic(1000, delta) <= delta


def share_of_runs_that_are_not_optimistic(runs: int, delta: float) -> float:
    failures = 0
    for seed in range(runs):
        federation = random_world(
            seed,
            horizon=2 + seed % 3,
            states=2 + seed % 4,
            laws=1 + seed % 4,
            outcomes=2 + seed % 3,
        )
        best = best_values(federation)
        simulation = simulation_of(federation, 60, seed, delta=delta)
        failures += any((best - 1e-12 > simulation.server.V).any() for _ in synchronisations(simulation))
    return failures / runs


def test_values_of_agents_that_differ_keep_their_factor() -> None:
    """``V_h >= (1 - eps_p)^(H-h+1) V*_h`` of the common laws, as rewards are weighed by the laws too (h from 1)."""
    for seed in range(20):
        federation = random_world(seed, agents=3, alike=False, horizon=3)
        factors = (1.0 - federation.eps_p) ** np.arange(3, -1, -1.0)
        bound = factors[:, None] * federation.common.solve().V
        simulation = simulation_of(federation, 60, seed)
        for _ in synchronisations(simulation):
            assert (bound - 1e-12 <= simulation.server.V).all()


def test_before_the_first_visit_every_law_brings_its_best_outcome() -> None:
    federation = random_world(1)
    dynamics = dynamics_of(federation)
    server = simulation_of(federation, 1).server
    V = np.zeros(dynamics.states)
    for h in reversed(range(dynamics.horizon)):
        V = (dynamics.rewards_at(h) + V[dynamics.next_states_at(h)]).max(axis=(1, 2))
        np.testing.assert_allclose(server.V[h], V, rtol=0, atol=1e-15)


def test_the_recommended_policy_is_the_best_one_for_the_empirical_laws() -> None:
    federation = random_world(2, horizon=4, states=5, laws=6, outcomes=4)
    simulation = simulation_of(federation, 50)
    counts = counts_at_the_end(simulation)
    expected = plan_of_means(dynamics_of(federation), counts.sum(axis=0))
    planner: Any = simulation.algorithm.new_planner(simulation.setting, simulation.server)
    assert np.array_equal(planner.policy, expected)


def test_pessimistic_values_are_smallest_means_over_balls_that_hold_the_laws() -> None:
    federation = random_world(3, horizon=2, outcomes=3)
    dynamics = dynamics_of(federation)
    simulation = simulation_of(federation, 40)
    counts = counts_at_the_end(simulation)
    totals = counts.sum(axis=0)
    policy = np.zeros((2, 3), dtype=np.int32)
    algorithm = as_count_reporting(simulation.algorithm, "does not report counts.")
    found = algorithm.pessimistic_values(simulation.setting, simulation.server, policy, 0.1)
    V = np.zeros(3)
    for h in (1, 0):
        below = np.zeros(3)
        for s in range(3):
            seen = totals[dynamics.laws_at(h)[s, 0]]
            worth = dynamics.rewards_at(h)[s, 0] + V[dynamics.next_states_at(h)[s, 0]]
            N = seen.sum()
            c = (np.log(dynamics.laws / 0.1) + 2 * (1 + np.log(1 + N / 2))) / N
            below[s] = -largest_mean_by_optimisation(seen / N, -worth, c)
        V = below
        np.testing.assert_allclose(found[h], V, rtol=0, atol=1e-4)


def test_pessimistic_values_are_below_the_value_of_the_recommended_policy() -> None:
    for seed in range(20):
        federation = random_world(seed)
        simulation = simulation_of(federation, 60, seed)
        counts_at_the_end(simulation)
        policy = simulation.plan().policy
        algorithm = as_count_reporting(simulation.algorithm, "does not report counts.")
        low = algorithm.pessimistic_values(simulation.setting, simulation.server, policy, 0.05)
        assert (low <= federation.agent(0).evaluate(policy) + 1e-12).all()


# By step and over all steps are two values ----------------------------------------------------------------------


@pytest.mark.parametrize("make", [Dynamics.by_step, Dynamics.stationary])
def test_counting_by_next_state_gives_the_same_run_as_without_known_dynamics(make: Any) -> None:
    rng = np.random.default_rng(4)
    dynamics = make(horizon=4, states=3, actions=2)
    laws = random_laws(rng, 2, dynamics)
    federation = Federation.from_laws(dynamics, laws, 0, rewards=rng.random((3, 2)))
    stationary = dynamics.laws == 6
    known = run(FedKLUCBVI(), federation, 200, progress=False)
    plain = run(FedKLUCBVI(stationary=stationary), federation.without_dynamics(), 200, progress=False)
    for name, column in plain.records.items():
        assert np.array_equal(known.records[name], column, equal_nan=True), name
    assert np.array_equal(known.V, plain.V)


# Drawn optimism -------------------------------------------------------------------------------------------------


def test_the_highest_level_is_that_of_certain_optimism() -> None:
    federation = random_world(16, agents=3)
    drawn = simulation_of(federation, 60, optimism="drawn")
    counts_at_the_end(drawn)
    certain = FedKLUCBVI().with_dynamics(dynamics_of(federation))
    server = certain.new_server(drawn.setting)
    server.table = drawn.server.table.copy()
    server.update()
    assert np.array_equal(server.V, drawn.server.V)
    assert np.array_equal(server.policy, drawn.server.policy[8])


def test_values_grow_with_the_level() -> None:
    simulation = simulation_of(random_world(17, agents=3), 60, optimism="drawn")
    for _ in synchronisations(simulation):
        values = [estimates.V for estimates in (*simulation.server.lower, simulation.server.estimates)]
        assert all((low <= high + 1e-12).all() for low, high in itertools.pairwise(values))


def test_the_lowest_level_is_the_best_policy_for_the_empirical_laws() -> None:
    federation = random_world(18, agents=3)
    simulation = simulation_of(federation, 60, optimism="drawn")
    counts = counts_at_the_end(simulation)
    expected = plan_of_means(dynamics_of(federation), counts.sum(axis=0))
    lowest = simulation.server.policy[0]
    assert np.take_along_axis(lowest, expected[..., None].astype(np.int64), axis=2).all()


def test_drawn_optimism_is_interrupted_without_a_trace(tmp_path: Path) -> None:
    federation = random_world(19, agents=3)
    algorithm = FedKLUCBVI(optimism="drawn")
    whole = run(algorithm, federation, 200, progress=False)
    with pytest.raises(Interrupted):
        run(
            algorithm,
            federation,
            200,
            checkpoint=tmp_path / "kept",
            checkpoint_every=1,
            progress=False,
            on_round=interrupt_after(rounds=5),
        )
    assert resume(tmp_path / "kept", progress=False).same_outcome(whole)


# Playing --------------------------------------------------------------------------------------------------------


def test_outcomes_have_the_frequencies_of_the_laws() -> None:
    """Chi-squared statistics of all laws together: false alarms 1e-6."""
    from scipy import stats

    federation = random_world(5, agents=3, alike=False, laws=4, outcomes=3)
    simulation = simulation_of(federation, 2000)
    counts = counts_at_the_end(simulation)
    assert federation.laws is not None
    visits = counts.sum(axis=2, keepdims=True)
    expected = visits * federation.laws
    reached = visits[..., 0] > 50
    statistic = ((counts - expected) ** 2 / expected)[reached].sum()
    assert reached.any()
    assert stats.chi2.sf(statistic, 2 * reached.sum()) > 1e-6


def test_agents_counted_in_one_table_give_the_same_run() -> None:
    federation = random_world(6, agents=3, alike=False)
    together = Simulation(FedKLUCBVI(), KnownProblem(federation), 100, 1)
    apart = Simulation(FedKLUCBVI(), KnownProblem(federation, pooled=False), 100, 1)
    for simulation in (together, apart):
        while not simulation.done:
            simulation.advance()
    assert same_bits(together.server, apart.server)
    assert together.result().same_outcome(apart.result())


@pytest.mark.parametrize("ahead", [1, 5])
def test_episodes_that_are_taken_back_leave_no_trace(ahead: int) -> None:
    federation = random_world(7)
    simulation = simulation_of(federation, 30)
    counts_at_the_end(simulation)
    algorithm = simulation.algorithm
    broadcast = algorithm.broadcast(simulation.server)
    parties = [LawParty(algorithm, simulation.setting, federation, pooled=False) for _ in range(2)]
    for party, played in zip(parties, (4, 4 + ahead), strict=True):
        party.start(broadcast, 0)
        party._move_to(played)
        party.stop(4)
    assert same_bits(parties[0].agents, parties[1].agents)
    assert np.array_equal(parties[0].driver.visits, parties[1].driver.visits)


def test_the_value_of_a_policy_lies_in_its_interval() -> None:
    federation = random_world(8)
    policy = np.zeros((3, 3), dtype=np.int32)
    interval = evaluate(policy, federation, 2000)
    value = float(federation.agent(0).evaluate(policy)[0, 0])
    assert interval.lower < value < interval.upper
    assert abs(interval.mean - value) < 0.1


def test_more_agents_than_memory_has_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = simulation_of(random_world(8), 1)
    monkeypatch.setattr("fed_ucbvi.core.memory.ALWAYS_AVAILABLE", 0)
    monkeypatch.setattr("fed_ucbvi.core.memory.available_memory", lambda: 100)
    with pytest.raises(InputError, match="The visits of 2 agents by step, state and action"):
        LawParty(simulation.algorithm, simulation.setting, random_world(8))


def test_agents_are_paid_by_their_own_rewards() -> None:
    """Two sites of three are paid nothing, and the third 1 at every step."""
    own = np.array([0.0, 0.0, 1.0]).reshape(3, 1, 1, 1, 1)
    dynamics = Dynamics(
        laws=1,
        outcomes=2,
        law_of=0,
        next_state=lambda h, s, a, w: w,
        reward=lambda h, s, a, w: own * np.ones_like(s),
        horizon=4,
        states=2,
        actions=2,
    )
    federation = Federation.from_laws(dynamics, np.full((3, 1, 2), 0.5), 0)
    result = run(FedKLUCBVI(), federation, 10, progress=False)
    assert result.records["reward"].sum() / 10 == pytest.approx(4 / 3)
    assert evaluate(np.zeros((4, 2), dtype=np.int32), federation, 5).mean == pytest.approx(4 / 3, abs=0.02)


# What runs can do -----------------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    federation = random_world(9)
    whole = run(FedKLUCBVI(), federation, 200, progress=False)
    with pytest.raises(Interrupted):
        run(
            FedKLUCBVI(),
            federation,
            200,
            checkpoint=tmp_path / "kept",
            checkpoint_every=1,
            progress=False,
            on_round=interrupt_after(rounds=5),
        )
    assert resume(tmp_path / "kept", progress=False).same_outcome(whole)


def test_a_run_may_start_from_the_outcomes_of_an_earlier_one(tmp_path: Path) -> None:
    federation = random_world(10)
    run(FedKLUCBVI(), federation, 100, checkpoint=tmp_path / "earlier", progress=False)
    counts = load_counts(tmp_path / "earlier")
    assert counts.visits.shape == (1, dynamics_of(federation).laws, 1)
    assert int(counts.visits.sum()) == 100 * 2 * 3
    warm = Simulation(FedKLUCBVI(), KnownProblem(federation), 10, 1, counts=counts)
    cold = Simulation(FedKLUCBVI(), KnownProblem(federation), 10, 1)
    assert float(warm.server.V[0, 0]) < float(cold.server.V[0, 0])


def test_counts_of_another_problem_cannot_start_a_run(tmp_path: Path) -> None:
    run(FedKLUCBVI(), random_world(10), 20, checkpoint=tmp_path / "earlier", progress=False)
    with pytest.raises(InputError, match="the counts to start from have"):
        run(FedKLUCBVI(), random_world(11, laws=5), 20, warm_start=tmp_path / "earlier", progress=False)


def test_a_better_policy_than_the_incumbent_is_promoted() -> None:
    """The incumbent earns nothing, so nothing can be lost: the account of exploring needs a positive worth."""
    federation = random_world(12, agents=4, horizon=4, laws=3)
    worst = np.argmin(federation.common.solve().Q, axis=2).astype(np.int32)
    result = run(FedKLUCBVI(), federation, 4000, incumbent=worst, loss=0.5, progress=False)
    kinds = [one.kind for one in result.certificates]
    assert "promotion" in kinds
    assert max(result.records["cost"] - result.records["allowed"]) <= 1e-9


def test_a_run_ends_once_its_gap_is_certified() -> None:
    federation = random_world(13, agents=4)
    result = run(FedKLUCBVI(), federation, 20_000, until_gap=0.4, progress=False)
    assert result.episodes_played < 20_000
    best = float(federation.common.solve().V[0, 0])
    assert best - float(federation.common.evaluate(result.policy)[0, 0]) <= 0.4


def test_certificates_say_what_is_assumed_of_known_dynamics() -> None:
    federation = random_world(13, agents=4)
    result = run(FedKLUCBVI(), federation, 20_000, until_gap=0.4, progress=False)
    assumptions = " ".join(result.certificates[-1].assumed)
    assert "drawn by one of 3 laws that the known dynamics name" in assumptions
    assert "stationary" not in assumptions


def test_the_slack_of_agents_that_differ_covers_rewards_by_outcome() -> None:
    """``V_1 >= V^k*_1 - eps_p H (H+1)/2 - H eps_r`` for every agent k, with rewards that are the same for all."""
    for seed in range(20):
        federation = random_world(seed, agents=3, alike=False, horizon=3)
        dynamics = dynamics_of(federation)
        facts = Circumstances.over_laws(dynamics, eps_p=federation.eps_p, warm_start=False)
        simulation = simulation_of(federation, 60, seed)
        slack = slack_of_agents(simulation.setting, facts.eps_r)
        assert slack == pytest.approx(federation.eps_p * 3 * 4 / 2)
        best = max(float(federation.agent(k).solve().V[0, 0]) for k in range(3))
        for _ in synchronisations(simulation):
            assert float(simulation.server.V[0, 0]) >= best - slack


def test_bytes_are_those_of_laws() -> None:
    federation = battery_sites.batteries()
    dynamics = dynamics_of(federation)
    known = FedKLUCBVI().with_dynamics(dynamics).message_sizes(simulation_of(federation, 1).setting)
    assert known.listed == (192 * 8,)
    assert known.broadcast == 24 * 80 * 5 // 8 + 8 * 192 + 8


# The shared examples --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", first_of([0, 1, 2]))
def test_batteries_are_near_the_best_after_ten_days(seed: int) -> None:
    result = run(FedKLUCBVI(), battery_sites.batteries(), 10, seed=seed, progress=False)
    assert result.recommendations["value"][-1] > -2.66


@pytest.mark.slow
@pytest.mark.full
def test_batteries_pay_at_most_2_8_euro_a_day_over_400_days() -> None:
    result = run(FedKLUCBVI(), battery_sites.batteries(), 400, progress=False)
    assert result.records["reward"].sum() / 400 > -2.8


def test_shops_are_recommended_118_euro_after_two_months() -> None:
    result = run(FedKLUCBVI(), shops.known_shops(), 2, progress=False)
    assert result.recommendations["value"][-1] > 118.0


def test_shops_earn_119_euro_a_month_over_a_thousand_months() -> None:
    result = run(FedKLUCBVI(), shops.known_shops(), 1000, progress=False)
    assert result.records["reward"].sum() / 1000 > 119.0


# What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"fed-kl-ucbvi", "fed-kl-ucbvi-fast"}))
def test_other_algorithms_refuse_known_dynamics(name: str) -> None:
    agents = 1 if ALGORITHMS[name].single_agent else 2
    with pytest.raises(InputError, match="cannot use known dynamics"):
        run(name, random_world(14, agents=agents), 5, progress=False)


def test_other_algorithms_take_the_tables_without_dynamics() -> None:
    assert run(FedUCBVI(), random_world(14).without_dynamics(), 5, progress=False).complete


@pytest.mark.parametrize("driver", ["counts", "cuda"])
def test_other_drivers_refuse_known_dynamics(driver: str) -> None:
    with pytest.raises(InputError, match=f"the driver {driver} counts visits by step, state and action"):
        run(FedKLUCBVI(), random_world(14), 5, driver=driver, progress=False)


def test_stationary_counts_refuse_other_known_dynamics() -> None:
    with pytest.raises(InputError, match="and so do the known dynamics of this problem"):
        run(FedKLUCBVI(stationary=True), random_world(14), 5, progress=False)


def test_rewards_that_are_to_be_learnt_are_refused_with_shared_laws() -> None:
    rng = np.random.default_rng(0)
    dynamics = random_dynamics(rng, known_rewards=False)
    federation = Federation.from_laws(dynamics, random_laws(rng, 2, dynamics), 0, rewards=rng.random((3, 2)))
    with pytest.raises(InputError, match="known dynamics must have known rewards too"):
        run(FedKLUCBVI(), federation, 5, progress=False)


def test_fleets_on_ray_refuse_known_dynamics() -> None:
    with pytest.raises(InputError, match="known dynamics are used by simulations in one process"):
        run(FedKLUCBVI(), random_world(14), 5, fleets="ray", progress=False)


def test_liars_are_refused() -> None:
    with pytest.raises(InputError, match="adds up the reports of all agents"):
        run(FedKLUCBVI(), random_world(14, agents=4).with_liars(0.25, "flip"), 5, progress=False)


def test_a_smaller_radius_certifies_nothing() -> None:
    algorithm = FedKLUCBVI(radius=0.5).with_dynamics(dynamics_of(random_world(14)))
    with pytest.raises(InputError, match="not proved to be optimistic"):
        algorithm.certifying(0.05)


def test_exogenous_dynamics_are_learnt_in_the_same_way() -> None:
    rng = np.random.default_rng(15)
    dynamics = exogenous_dynamics(rng)
    federation = Federation.from_laws(dynamics, random_laws(rng, 2, dynamics), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulation = Simulation(FedKLUCBVI(), KnownProblem(federation), 100, 0)
        while not simulation.done:
            simulation.advance()
    assert isinstance(simulation.algorithm, FedKLUCBVIOverLaws)
    assert isinstance(simulation.server, LawServer)
    assert simulation.result().value > 0.9 * float(federation.common.solve().V[0, 0])
