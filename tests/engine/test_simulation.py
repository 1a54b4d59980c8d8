"""The loop over rounds: numbers of episodes and visits, regret by brute force, cautions, interruption, callbacks."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fed_ucbvi import (
    MDP,
    Caution,
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    InputError,
    Interrupted,
    RoundRecord,
    Run,
    gridworld,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms.base import Counting
from fed_ucbvi.algorithms.fed_ucbvi import Synchronisation
from fed_ucbvi.core.types import CountArray, IndexArray, PolicyArray
from fed_ucbvi.engine import simulation as module
from fed_ucbvi.engine.simulation import Simulation, drive
from fed_ucbvi.results.run_data import Subscriber
from problems import all_policies, brute_force_value, policies_in, random_federation, reward_of
from runs import finished, interrupt_after, same_bits

DRIVERS = ("episodes", "counts", "auto")
LOCAL = FedUCBVI(synchronisation="local")
"""Fed-UCBVI without the caution about nu."""


# --------------------------------------------------------------------------------------------------- episodes


def played(driver: str, agents: int, episodes: int) -> Run:
    """A run in the synthetic environment."""
    federation = synthetic(agents=agents, eps_p=0.1)
    return run(LOCAL, federation, episodes, seed=3, driver=driver)


many_runs = pytest.mark.parametrize(
    ("driver", "agents", "episodes"),
    list(itertools.product(DRIVERS, [1, 4], [1, 2, 37, 3000])),
)


@many_runs
def test_a_run_plays_exactly_the_episodes_asked_for(driver: str, agents: int, episodes: int) -> None:
    result = played(driver, agents, episodes)
    lengths = result.records["length"]
    assert result.complete
    assert result.episodes_played == episodes
    assert lengths.sum() == episodes
    assert (lengths > 0).all()
    assert np.array_equal(result.records["agent_episodes"], agents * lengths)


@many_runs
def test_a_round_starts_where_the_one_before_it_ended(driver: str, agents: int, episodes: int) -> None:
    records = played(driver, agents, episodes).records
    ends = np.cumsum(records["length"])
    assert records["start"][0] == 0
    assert np.array_equal(records["start"][1:], ends[:-1])


@many_runs
def test_only_the_last_round_may_end_without_a_request(driver: str, agents: int, episodes: int) -> None:
    result = played(driver, agents, episodes)
    requested = result.records["requests"] > 0
    assert requested[:-1].all()
    assert result.rounds == requested.sum()


@many_runs
def test_the_regret_of_a_run_is_the_sum_over_its_rounds(driver: str, agents: int, episodes: int) -> None:
    result = played(driver, agents, episodes)
    assert result.regret == pytest.approx(result.records["regret"].sum(), rel=1e-12)
    assert result.regret >= 0


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("seed", range(6))
def test_every_visit_is_in_the_counts_of_the_server_or_in_the_last_round(driver: str, seed: int) -> None:
    M = 3
    T = 200 + seed
    simulation = finished(Simulation(LOCAL, synthetic(agents=M, eps_p=0.1), T, seed, driver))
    N = simulation.server.estimates.N
    by_step = N.sum(axis=(1, 2))
    if not simulation.rows[-1].requests:
        by_step = by_step + simulation.driver.visits.sum(axis=(0, 2))
    assert (by_step == M * T).all()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("seed", range(6))
def test_the_counts_of_agents_add_up_to_the_pooled_counts(driver: str, seed: int) -> None:
    M = 3
    T = 200 + seed
    simulation = finished(Simulation(LOCAL, synthetic(agents=M, eps_p=0.1), T, seed, driver))
    own_visits = simulation.agents.own_visits
    pooled = simulation.agents.table
    assert (own_visits.sum(axis=(2, 3)) == T).all()
    assert np.array_equal(own_visits.sum(axis=0), pooled.visits)
    assert np.array_equal(pooled.transitions.sum(axis=3), pooled.visits)
    if simulation.rows[-1].requests:
        assert np.array_equal(pooled.visits, simulation.server.estimates.N)


def test_a_shorter_run_is_the_beginning_of_a_longer_one() -> None:
    """T enters in nu, which is not used here, and in the grid, which is the finest there is for all of these T."""
    federation = gridworld(agents=3, eps_p=0.1)
    whole = run(LOCAL, federation, 400, seed=5, driver="episodes")
    ends = np.cumsum(whole.records["length"])
    names = ("start", "length", "regret", "requests", "agent", "step", "state", "action", "rule")
    for T in (1, int(ends[3]), int(ends[10]) + 1, 250):
        part = run(LOCAL, federation, T, seed=5, driver="episodes")
        whole_rounds = int((ends <= T).sum())
        for name in names:
            in_part = part.records[name][:whole_rounds]
            in_whole = whole.records[name][:whole_rounds]
            assert np.array_equal(in_part, in_whole, equal_nan=True)


class EndOfRound(NamedTuple):
    """Runs that end one round early, with a round, and one episode before its end."""

    round: int
    episodes: int
    before: Simulation
    complete: Simulation
    cut: Simulation


@pytest.fixture(params=["episodes", "auto"])
def end_of_round(request: pytest.FixtureRequest) -> EndOfRound:
    algorithm = FedUCBVI(nu=40.0)
    federation = gridworld(agents=3, eps_p=0.1)
    whole = run(algorithm, federation, 400, seed=5, driver="episodes")
    lengths = whole.records["length"]
    ends = np.cumsum(lengths)
    index = 5
    while lengths[index] == 1:
        index += 1

    def run_until(episodes: int) -> Simulation:
        return finished(Simulation(algorithm, federation, episodes, 5, request.param))

    return EndOfRound(
        round=index + 1,
        episodes=int(ends[index]),
        before=run_until(int(ends[index - 1])),
        complete=run_until(int(ends[index])),
        cut=run_until(int(ends[index]) - 1),
    )


def test_a_request_at_the_last_episode_is_synchronised(end_of_round: EndOfRound) -> None:
    complete = end_of_round.complete
    assert complete.rounds == end_of_round.round
    assert complete.rows[-1].requests > 0
    assert (complete.server.estimates.N.sum(axis=(1, 2)) == 3 * end_of_round.episodes).all()
    assert not np.array_equal(complete.server.V, end_of_round.before.server.V)


def test_a_round_that_is_cut_short_is_not_synchronised(end_of_round: EndOfRound) -> None:
    cut = end_of_round.cut
    last = cut.rows[-1]
    assert cut.rounds == end_of_round.before.rounds == end_of_round.round - 1
    assert last.requests == 0
    assert {last.agent, last.step, last.state, last.action, last.rule} == {-1}
    assert same_bits(cut.server, end_of_round.before.server)


def test_a_record_names_the_first_agent_with_a_request() -> None:
    """Each request is checked against the visits before and during the round."""
    algorithm = FedUCBVI(nu=30.0)
    federation = synthetic(agents=3, eps_p=0.1)
    simulation = Simulation(algorithm, federation, 5000, 7, "episodes")
    rules = set()
    while not simulation.done:
        broadcast = algorithm.broadcast(simulation.server)
        policy = broadcast[0].copy()
        N = broadcast[1].copy()
        n = simulation.agents.own_visits.copy()
        simulation.advance()
        row = simulation.rows[-1]
        if not row.requests:
            continue
        assert row.action == policy[row.step, row.state]
        seen = int(simulation.driver.visits[row.agent, row.step, row.state])
        before = int(n[row.agent, row.step, row.state, row.action])
        total = int(N[row.step, row.state, row.action])
        if algorithm.rules[row.rule] == "local":
            assert total < 30
            assert before + seen >= 2 * before
        else:
            assert total >= 30
            assert total + 3 * seen >= 2 * total
        rules.add(row.rule)
    assert rules == {0, 1}


# ------------------------------------------------------------------------------------------------------- seeds


def test_the_largest_seed_is_accepted() -> None:
    assert run(LOCAL, synthetic(agents=1), 5, seed=2**64 - 1).about.seed == 2**64 - 1


# ----------------------------------------------------------------------------------------------------- rewards


@pytest.fixture(scope="module")
def two_agents_with_own_rewards() -> Federation:
    """One state, two actions; the common reward is the mean (0.3, 0.5), so action 1 is best."""
    kernel = [[[1.0], [1.0]]]
    rewards = [[[[0.6, 0.2]]], [[[0.0, 0.8]]]]
    return Federation.mixture(kernel, [kernel, kernel], 0.0, rewards=rewards, initial=0, horizon=1)


def test_a_run_learns_the_mean_of_rewards_that_differ_between_agents(two_agents_with_own_rewards: Federation) -> None:
    result = run(LOCAL, two_agents_with_own_rewards, 4000, seed=0)
    assert result.policy.tolist() == [[1]]
    assert result.value == pytest.approx(0.5)


def test_agents_are_paid_their_own_rewards(two_agents_with_own_rewards: Federation) -> None:
    result = run(LOCAL, two_agents_with_own_rewards, 4000, seed=0)
    plays_of_0 = result.regret / 0.2
    plays_of_1 = 4000 - plays_of_0
    assert plays_of_0 == pytest.approx(round(plays_of_0), abs=1e-6)
    assert result.average_reward == pytest.approx((plays_of_0 * 0.3 + plays_of_1 * 0.5) / 4000)


def test_a_run_states_how_much_rewards_differ_between_agents(two_agents_with_own_rewards: Federation) -> None:
    assert two_agents_with_own_rewards.eps_r == pytest.approx(0.6)
    assert run(LOCAL, two_agents_with_own_rewards, 10, seed=0).about.eps_r == pytest.approx(0.6)
    assert run(LOCAL, synthetic(agents=3, eps_r=0.3), 500, seed=1).about.eps_r > 0.1


# ------------------------------------------------------------------------------------------------------ regret


class ScoredProblem(NamedTuple):
    """Two agents with two states and actions, and the optimal values in their common MDP."""

    federation: Federation
    best: list[float]
    stationary: bool


def drawn_value(mdp: MDP, policy: PolicyArray, s: int) -> float:
    """``V^pi_1(s)`` by summing over all paths; of sets of actions, the mean over all policies in them."""
    if policy.ndim == 2:
        return brute_force_value(mdp, policy, 0, s)
    values = [brute_force_value(mdp, one, 0, s) for one in policies_in(policy)]
    return float(np.mean(values))


def optimal_value(mdp: MDP, s: int) -> float:
    """``V*_1(s)`` by trying all policies."""
    return max(brute_force_value(mdp, policy, 0, s) for policy in all_policies(mdp))


def scored_problem(algorithm: FedUCBVI | FedKLUCBVI, *, own_rewards: bool) -> ScoredProblem:
    stationary = algorithm.counting is Counting.STATIONARY
    federation = random_federation(
        np.random.default_rng([1, own_rewards]),
        2,
        2,
        2,
        3 if algorithm is LOCAL else 2,
        own_rewards=own_rewards,
        own_starts=True,
        stationary=stationary,
    )
    best = [optimal_value(federation.common, s) for s in range(2)]
    return ScoredProblem(federation, best, stationary)


def total_reward(federation: Federation, policy: PolicyArray, visits: CountArray) -> float:
    """Rewards of all visits, counted one by one."""
    total = 0.0
    for place in np.ndindex(*visits.shape):
        i, h, s = place[:3]
        action = int(place[3] if len(place) > 3 else policy[h, s])
        total += int(visits[place]) * reward_of(federation.agent(i), h, s, action)
    return total


scored_runs = [
    pytest.mark.parametrize("driver", DRIVERS),
    pytest.mark.parametrize("own_rewards", [False, True]),
    pytest.mark.parametrize("algorithm", [LOCAL, FedKLUCBVI(), FedKLUCBVI(stationary=True)], ids=repr),
]


def for_scored_runs(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test for each driver, for shared and own rewards, and for each way of counting."""
    for mark in scored_runs:
        test = mark(test)
    return test


@for_scored_runs
def test_the_regret_of_a_round_is_the_loss_at_the_starts_that_occurred(
    algorithm: FedUCBVI | FedKLUCBVI, own_rewards: bool, driver: str
) -> None:
    problem = scored_problem(algorithm, own_rewards=own_rewards)
    simulation = Simulation(algorithm, problem.federation, 60, 1, driver)
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        starts = simulation.driver.starts.sum(axis=(0, 1))
        regret = 0.0
        for s in range(2):
            gap = problem.best[s] - drawn_value(problem.federation.common, policy, s)
            regret += int(starts[s]) * gap / 2
        assert simulation.rows[-1].regret == pytest.approx(regret, abs=1e-10)


@for_scored_runs
def test_the_reward_of_a_round_is_the_sum_over_its_visits(
    algorithm: FedUCBVI | FedKLUCBVI, own_rewards: bool, driver: str
) -> None:
    federation = scored_problem(algorithm, own_rewards=own_rewards).federation
    simulation = Simulation(algorithm, federation, 60, 1, driver)
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        reward = total_reward(federation, policy, simulation.driver.visits)
        assert simulation.rows[-1].reward == pytest.approx(reward / 2, abs=1e-10)


@for_scored_runs
def test_starts_are_the_visits_to_the_first_step(
    algorithm: FedUCBVI | FedKLUCBVI, own_rewards: bool, driver: str
) -> None:
    problem = scored_problem(algorithm, own_rewards=own_rewards)
    simulation = Simulation(algorithm, problem.federation, 60, 1, driver)
    while not simulation.done:
        simulation.advance()
        starts = simulation.driver.starts[:, 0]
        visits = simulation.driver.visits
        visits_per_episode = visits.reshape((2, -1)).sum(axis=1) / problem.federation.horizon
        assert (starts.sum(axis=1) == visits_per_episode).all()
        if not problem.stationary:
            at_first_step = visits[:, 0].reshape((2, 2, -1)).sum(axis=2)
            assert np.array_equal(starts, at_first_step)


@for_scored_runs
def test_values_of_a_run_are_means_over_the_common_initial_states(
    algorithm: FedUCBVI | FedKLUCBVI, own_rewards: bool, driver: str
) -> None:
    problem = scored_problem(algorithm, own_rewards=own_rewards)
    common = problem.federation.common
    result = finished(Simulation(algorithm, problem.federation, 60, 1, driver)).result()
    values = [drawn_value(common, result.policy, s) for s in range(2)]
    assert result.about.optimal_value == pytest.approx(float(common.initial @ problem.best), abs=1e-12)
    assert result.value == pytest.approx(float(common.initial @ values), abs=1e-12)


# ---------------------------------------------------------------------------------------- cautions and refusals


@pytest.mark.parametrize("synchronisation", ["mixture", "local", "global"])
@pytest.mark.parametrize(
    ("nu", "reachable"), [(100.0, True), (99.5, True), (100.5, False), (1e9, False), (None, False)]
)
def test_a_caution_is_given_exactly_where_the_global_rule_of_a_given_nu_cannot_apply(
    synchronisation: Synchronisation, nu: float | None, reachable: bool
) -> None:
    """M T = 100."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(FedUCBVI(nu=nu, synchronisation=synchronisation), synthetic(agents=4), 25)
    expected = synchronisation == "mixture" and nu is not None and not reachable
    assert [warning.category for warning in caught] == [Caution] * expected
    assert len(result.about.cautions) == expected


def test_a_caution_gives_the_number_of_episodes_at_the_line_of_the_caller() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(FedUCBVI(nu=1e9), synthetic(agents=4), 25)
    assert "M T = 100" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_a_default_run_begins_without_a_caution() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(FedUCBVI(), gridworld(), 10).about.cautions == ()


@pytest.mark.parametrize("episodes", [0, -1, 1.5, math.nan, math.inf, "ten", True, None, 2**53 + 1])
def test_numbers_of_episodes_outside_their_range_are_refused(episodes: object) -> None:
    with pytest.raises(InputError, match="episodes"):
        run(LOCAL, synthetic(agents=1), episodes)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, "one", True])
def test_seeds_outside_their_range_are_refused(seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        run(LOCAL, synthetic(agents=1), 10, seed=seed)  # type: ignore[arg-type]


def test_more_visits_than_can_be_counted_exactly_are_refused() -> None:
    with pytest.raises(InputError, match="2\\^53"):
        run(LOCAL, synthetic(agents=3), 2**53 // 3 + 1, driver="counts")


def test_2_to_the_53_episodes_of_all_agents_are_accepted() -> None:
    simulation = Simulation(LOCAL, synthetic(agents=2), 2**52, 0, "counts")
    assert simulation.setting.episodes == 2**52


# ------------------------------------------------------------------------------------- progress and interruption


def test_progress_reports_every_round_if_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 0.0)
    reports: list[RoundRecord] = []
    rounds: list[RoundRecord] = []
    run(LOCAL, gridworld(agents=2), 500, seed=1, progress=reports.append, on_round=rounds.append)
    assert len(rounds) > 1
    assert repr(reports) == repr(rounds)


def test_progress_reports_the_end_of_a_run_even_if_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 3600.0)
    reports: list[RoundRecord] = []
    rounds: list[RoundRecord] = []
    run(LOCAL, gridworld(agents=2), 500, seed=1, progress=reports.append, on_round=rounds.append)
    assert repr(reports) == repr(rounds[-1:])


def interrupted_run(federation: Federation, driver: str) -> Interrupted:
    """Ctrl-C after 20 synchronisations."""
    with pytest.raises(Interrupted, match="interrupted after") as caught:
        run(LOCAL, federation, 3000, seed=2, driver=driver, on_round=interrupt_after(rounds=20))
    return caught.value


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_interrupted_run_has_the_rounds_before_the_interruption(driver: str) -> None:
    federation = gridworld(agents=3, eps_p=0.1)
    whole = run(LOCAL, federation, 3000, seed=2, driver=driver)
    interruption = interrupted_run(federation, driver)
    partial = interruption.partial
    assert isinstance(interruption, KeyboardInterrupt)
    assert not partial.complete
    assert partial.rounds == 20
    assert partial.about.episodes == 3000
    assert 0 < partial.episodes_played < 3000
    for name, column in partial.records.items():
        assert np.array_equal(column, whole.records[name][: len(column)], equal_nan=True)


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_interrupted_run_can_be_saved(driver: str, tmp_path: Path) -> None:
    partial = interrupted_run(gridworld(agents=3, eps_p=0.1), driver).partial
    partial.save(tmp_path / "partial")
    assert Run.load(tmp_path / "partial") == partial


@pytest.mark.parametrize("rounds", [0, 10])
def test_an_interruption_during_a_round_leaves_the_rounds_before_it(
    rounds: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    simulation = Simulation(LOCAL, gridworld(agents=3), 3000, 2, "episodes")
    extend = simulation.driver.extend
    calls = itertools.count()

    def interrupted(*arguments: object) -> tuple[int, bool]:
        if next(calls) == rounds:
            raise KeyboardInterrupt
        return extend(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(simulation.driver, "extend", interrupted)
    with pytest.raises(Interrupted) as caught:
        drive(simulation, progress=False)
    partial = caught.value.partial
    assert partial.rounds == rounds
    assert len(partial.records["start"]) == rounds
    assert (partial.episodes_played > 0) == (rounds > 0)
    assert (partial.regret > 0) == (rounds > 0)
    partial.save(tmp_path / "partial")
    assert Run.load(tmp_path / "partial") == partial


# ---------------------------------------------------------------------------------------- callbacks after every round


ALGORITHM = FedUCBVI(nu=100)
WORLD = synthetic(agents=3)
EPISODES = 200


class ReportedRun(NamedTuple):
    """A run, and the records that its callback received."""

    result: Run
    rounds: list[RoundRecord]


@pytest.fixture(scope="module")
def reported_run() -> ReportedRun:
    rounds: list[RoundRecord] = []
    result = run(ALGORITHM, WORLD, EPISODES, on_round=rounds.append)
    return ReportedRun(result, rounds)


def reported(rounds: list[RoundRecord], name: str) -> list[float]:
    return [getattr(record, name) for record in rounds]


def test_a_callback_receives_one_record_per_round(reported_run: ReportedRun) -> None:
    records = reported_run.result.records
    numbers = list(range(1, len(records["start"]) + 1))
    ends = records["start"] + records["length"]
    assert reported(reported_run.rounds, "round") == numbers
    assert reported(reported_run.rounds, "episodes") == ends.tolist()


@pytest.mark.parametrize("name", ["length", "requests", "state", "action"])
def test_records_of_callbacks_are_those_of_the_run(reported_run: ReportedRun, name: str) -> None:
    assert reported(reported_run.rounds, name) == reported_run.result.records[name].tolist()


def test_records_of_callbacks_have_totals(reported_run: ReportedRun) -> None:
    records = reported_run.result.records
    rounds = reported_run.rounds
    synchronisations = np.cumsum(records["requests"] > 0)
    np.testing.assert_allclose(reported(rounds, "regret"), np.cumsum(records["regret"]), rtol=1e-12)
    np.testing.assert_allclose(reported(rounds, "reward"), records["reward"] / records["length"], rtol=1e-12)
    assert reported(rounds, "bytes_up") == np.cumsum(records["bytes_up"]).tolist()
    assert reported(rounds, "synchronisations") == synchronisations.tolist()


def test_records_of_callbacks_name_the_rules_that_applied(reported_run: ReportedRun) -> None:
    in_records = {record.rule for record in reported_run.rounds if record.requests}
    in_run = {name for name, number in reported_run.result.rules_fired.items() if number}
    assert in_records == in_run


def test_the_last_record_describes_the_run(reported_run: ReportedRun) -> None:
    result = reported_run.result
    last = reported_run.rounds[-1]
    gaps = result.recommendations["optimistic"] - result.recommendations["estimated"]
    assert last.planned_episodes == EPISODES
    assert last.gap == gaps[-1]
    assert last.seconds == pytest.approx(result.wall_seconds)


def test_a_policy_is_recommended_after_the_first_round(reported_run: ReportedRun) -> None:
    assert not math.isnan(reported_run.rounds[0].gap)


def without_seconds(rounds: list[RoundRecord]) -> list[RoundRecord]:
    return [record._replace(seconds=0.0) for record in rounds]


def test_a_resumed_run_continues_its_totals(tmp_path: Path, reported_run: ReportedRun) -> None:
    first: list[RoundRecord] = []

    def stop(record: RoundRecord) -> None:
        first.append(record)
        if record.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(ALGORITHM, WORLD, EPISODES, checkpoint=tmp_path / "c", checkpoint_every=1, on_round=stop)
    rest: list[RoundRecord] = []
    resume(tmp_path / "c", on_round=rest.append)
    assert without_seconds(first + rest) == without_seconds(reported_run.rounds)


class Watching(Subscriber):
    """Keeps the recommended policies, and the number of rounds after which each was recommended."""

    def __init__(self) -> None:
        self.rounds = 0
        self.recommended_after: list[int] = []
        self.policies: list[IndexArray] = []

    def __call__(self, record: RoundRecord) -> None:
        self.rounds = record.round

    def take_policy(self, policy: IndexArray) -> None:
        self.recommended_after.append(self.rounds)
        self.policies.append(policy)


def test_a_subscriber_receives_every_recommended_policy() -> None:
    watching = Watching()
    result = run(ALGORITHM, WORLD, EPISODES, on_round=watching)
    assert watching.recommended_after == result.recommendations["round"].tolist()
    assert np.array_equal(watching.policies[-1], result.policy)
    assert not np.array_equal(watching.policies[0], result.policy), "each policy is an array of its own"


def test_an_exception_in_a_callback_ends_the_run() -> None:
    def fail(record: RoundRecord) -> None:
        raise ValueError(f"round {record.round}")

    with pytest.raises(ValueError, match="round 1"):
        run(ALGORITHM, synthetic(agents=2), 50, on_round=fail)
