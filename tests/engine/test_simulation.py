"""The loop over rounds: exactly T episodes, honest books, regret by brute force; callbacks hear it."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path

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
from fed_ucbvi.core.types import IndexArray, PolicyArray
from fed_ucbvi.engine import simulation as module
from fed_ucbvi.engine.simulation import Simulation, drive
from fed_ucbvi.results.run_data import Subscriber
from problems import all_policies, brute_force_value, policies_in, random_federation, reward_of
from runs import finished, interrupt_after, same_bits

DRIVERS = ("episodes", "counts", "auto")
LOCAL = FedUCBVI(synchronisation="local")
"""Fed-UCBVI without the caution about nu."""


# --------------------------------------------------------------------------------------------------- episodes


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("agents", [1, 4])
@pytest.mark.parametrize("episodes", [1, 2, 37, 3000])
def test_a_run_plays_exactly_the_episodes_asked_for(driver: str, agents: int, episodes: int) -> None:
    result = run(LOCAL, synthetic(agents=agents, eps_p=0.1), episodes, seed=3, driver=driver)
    starts = result.records["start"]
    lengths = result.records["length"]
    assert result.complete
    assert result.episodes_played == episodes == lengths.sum()
    assert np.array_equal(result.records["agent_episodes"], agents * lengths)
    assert (lengths > 0).all()
    assert np.array_equal(starts, np.concatenate([[0], np.cumsum(lengths)[:-1]]))
    assert (result.records["requests"][:-1] > 0).all(), "only the last round may end without a request"
    assert result.rounds == (result.records["requests"] > 0).sum()
    assert result.regret == pytest.approx(result.records["regret"].sum(), rel=1e-12)
    assert result.regret >= 0


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("seed", range(6))
def test_every_visit_is_in_the_servers_books_or_in_the_last_round(driver: str, seed: int) -> None:
    M = 3
    T = 200 + seed
    simulation = finished(Simulation(LOCAL, synthetic(agents=M, eps_p=0.1), T, seed, driver))
    asked_at_the_end = simulation.rows[-1].requests > 0
    N = simulation.server.estimates.N
    rest = 0 if asked_at_the_end else simulation.driver.visits.sum(axis=(0, 2))
    assert (N.sum(axis=(1, 2)) + rest == M * T).all()
    own = simulation.agents.own_visits
    pool = simulation.agents.table
    assert (own.sum(axis=(2, 3)) == T).all()
    assert np.array_equal(own.sum(axis=0), pool.visits)
    assert np.array_equal(pool.transitions.sum(axis=3), pool.visits)
    if asked_at_the_end:
        assert np.array_equal(pool.visits, N)


def test_a_shorter_run_is_the_beginning_of_a_longer_one_trajectory_by_trajectory() -> None:
    """T enters in nu, which plays no part here, and in the grid, which is the finest there is for all of these T."""
    federation = gridworld(agents=3, eps_p=0.1)
    whole = run(LOCAL, federation, 400, seed=5, driver="episodes")
    ends = np.cumsum(whole.records["length"])
    for T in (1, int(ends[3]), int(ends[10]) + 1, 250):
        part = run(LOCAL, federation, T, seed=5, driver="episodes")
        kept = int((ends <= T).sum())
        for name in ("start", "length", "regret", "requests", "agent", "step", "state", "action", "rule"):
            assert np.array_equal(part.records[name][:kept], whole.records[name][:kept], equal_nan=True)


@pytest.mark.parametrize("driver", ["episodes", "auto"])
def test_a_request_at_the_very_last_episode_is_honoured_and_a_round_cut_short_is_not_synchronised(
    driver: str,
) -> None:
    algorithm = FedUCBVI(nu=40.0)
    federation = gridworld(agents=3, eps_p=0.1)
    whole = run(algorithm, federation, 400, seed=5, driver="episodes")
    ends = np.cumsum(whole.records["length"])
    lengths = whole.records["length"]
    index = next(k for k in range(5, len(lengths)) if lengths[k] > 1)
    before, asked, cut = (
        finished(Simulation(algorithm, federation, int(episodes), 5, driver))
        for episodes in (ends[index - 1], ends[index], ends[index] - 1)
    )
    assert asked.rounds == before.rounds + 1 == index + 1
    assert asked.rows[-1].requests > 0
    assert (asked.server.estimates.N.sum(axis=(1, 2)) == 3 * ends[index]).all()
    assert cut.rounds == before.rounds
    assert cut.rows[-1].requests == 0
    assert set(cut.rows[-1][8:13]) == {-1}, "agent, step, state, action and rule"
    assert same_bits(cut.server, before.server)
    assert not np.array_equal(asked.server.V, before.server.V)


def test_the_record_names_the_first_agent_that_asked_and_why() -> None:
    """Each request is checked against the visits before and during the round."""
    algorithm = FedUCBVI(nu=30.0)
    federation = synthetic(agents=3, eps_p=0.1)
    simulation = Simulation(algorithm, federation, 5000, 7, "episodes")
    rules = set()
    while not simulation.done:
        policy, N = (array.copy() for array in algorithm.broadcast(simulation.server))
        n = simulation.agents.own_visits.copy()
        simulation.advance()
        if not simulation.rows[-1].requests:
            continue
        agent, step, state, action, rule = simulation.rows[-1][8:13]
        assert action == policy[step, state]
        seen = int(simulation.driver.visits[agent, step, state])
        before = int(n[agent, step, state, action])
        total = int(N[step, state, action])
        if algorithm.rules[rule] == "local":
            assert total < 30
            assert before + seen >= 2 * before
        else:
            assert total >= 30
            assert total + 3 * seen >= 2 * total
        rules.add(rule)
    assert rules == {0, 1}


# ------------------------------------------------------------------------------------------------------- seeds


def test_the_largest_seed_is_a_seed() -> None:
    assert run(LOCAL, synthetic(agents=1), 5, seed=2**64 - 1).about.seed == 2**64 - 1


def test_rewards_that_differ_between_agents_are_learnt_and_paid_by_their_own() -> None:
    """Two agents, one state, two actions; the common reward is the mean (0.3, 0.5), so action 1 is best."""
    kernel = [[[1.0], [1.0]]]
    rewards = [[[[0.6, 0.2]]], [[[0.0, 0.8]]]]
    federation = Federation.mixture(kernel, [kernel, kernel], 0.0, rewards=rewards, initial=0, horizon=1)
    assert federation.eps_r == pytest.approx(0.6)
    result = run(LOCAL, federation, 4000, seed=0)
    assert result.policy.tolist() == [[1]]
    assert result.value == pytest.approx(0.5)
    assert result.about.eps_r == pytest.approx(0.6)
    plays_of_0 = result.regret / 0.2
    assert plays_of_0 == pytest.approx(round(plays_of_0), abs=1e-6)
    assert result.average_reward == pytest.approx((plays_of_0 * 0.3 + (4000 - plays_of_0) * 0.5) / 4000)
    spread = run(LOCAL, synthetic(agents=3, eps_r=0.3), 500, seed=1)
    assert spread.about.eps_r > 0.1
    assert spread.complete


# ------------------------------------------------------------------------------------------------------ regret


def drawn_value(mdp: MDP, policy: PolicyArray, s: int) -> float:
    """``V^pi_1(s)`` by summing over all paths; of sets of actions, the mean over all policies in them."""
    if policy.ndim == 2:
        return brute_force_value(mdp, policy, 0, s)
    return float(np.mean([brute_force_value(mdp, one, 0, s) for one in policies_in(policy)]))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("own_rewards", [False, True])
@pytest.mark.parametrize("algorithm", [LOCAL, FedKLUCBVI(), FedKLUCBVI(stationary=True)], ids=repr)
def test_regret_and_reward_of_a_round_are_sums_over_what_happened(
    algorithm: FedUCBVI | FedKLUCBVI, own_rewards: bool, driver: str
) -> None:
    """V of every policy by summing over all paths, V* by trying all policies, at the starts that occurred."""
    rng = np.random.default_rng([1, own_rewards])
    stationary = algorithm.counting is Counting.STATIONARY
    H = 3 if algorithm is LOCAL else 2
    federation = random_federation(rng, 2, 2, 2, H, own_rewards=own_rewards, own_starts=True, stationary=stationary)
    common = federation.common
    best = [max(brute_force_value(common, policy, 0, s) for policy in all_policies(common)) for s in range(2)]
    simulation = Simulation(algorithm, federation, 60, 1, driver)
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        gaps = [best[s] - drawn_value(common, policy, s) for s in range(2)]
        starts = simulation.driver.starts
        visits = simulation.driver.visits
        assert (starts.sum(axis=1) == visits.reshape((2, -1)).sum(axis=1) / H).all()
        if not stationary:
            assert np.array_equal(starts, visits[:, 0].reshape((2, 2, -1)).sum(axis=2))
        regret = sum(int(starts[i, s]) * gaps[s] for i in range(2) for s in range(2)) / 2
        reward = sum(
            int(visits[(i, h, s, *of_set)]) * reward_of(federation.agent(i), h, s, (*of_set, policy[h, s])[0])
            for i, h, s, *of_set in np.ndindex(*visits.shape)
        )
        assert simulation.rows[-1].regret == pytest.approx(regret, abs=1e-10)
        assert simulation.rows[-1].reward == pytest.approx(reward / 2, abs=1e-10)
    result = simulation.result()
    expected = sum(mu * v for mu, v in zip(common.initial, best, strict=True))
    assert result.about.optimal_value == pytest.approx(expected, abs=1e-12)
    value = sum(float(common.initial[s]) * drawn_value(common, result.policy, s) for s in range(2))
    assert result.value == pytest.approx(value, abs=1e-12)


# ---------------------------------------------------------------------------------------- cautions and refusals


@pytest.mark.parametrize("synchronisation", ["mixture", "local", "global"])
@pytest.mark.parametrize(
    ("nu", "reachable"), [(100.0, True), (99.5, True), (100.5, False), (1e9, False), (None, False)]
)
def test_a_caution_is_given_exactly_where_nu_is_given_and_the_global_rule_can_never_fire(
    synchronisation: Synchronisation, nu: float | None, reachable: bool
) -> None:
    """M T = 100."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(FedUCBVI(nu=nu, synchronisation=synchronisation), synthetic(agents=4), 25)
    expected = synchronisation == "mixture" and nu is not None and not reachable
    assert [warning.category for warning in caught] == [Caution] * expected
    assert len(result.about.cautions) == expected
    if expected:
        assert "M T = 100" in str(caught[0].message)
        assert caught[0].filename == __file__, "the warning points at the caller"


def test_a_default_run_begins_without_a_caution() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(FedUCBVI(), gridworld(), 10).about.cautions == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("episodes", value) for value in (0, -1, 1.5, math.nan, math.inf, "ten", True, None, 2**53 + 1)),
        *(("seed", value) for value in (-1, 2**64, 0.5, "one", True)),
    ],
)
def test_episodes_and_seeds_outside_their_range_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        run(LOCAL, synthetic(agents=1), **{"episodes": 10, name: value})  # type: ignore[arg-type]


def test_more_visits_than_can_be_counted_exactly_are_refused() -> None:
    with pytest.raises(InputError, match="2\\^53"):
        run(LOCAL, synthetic(agents=3), 2**53 // 3 + 1, driver="counts")
    assert Simulation(LOCAL, synthetic(agents=2), 2**52, 0, "counts").setting.episodes == 2**52


# ------------------------------------------------------------------------------------- progress and interruption


def test_progress_is_reported_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 0.0)
    reports = list[RoundRecord]()
    seen = list[RoundRecord]()
    run(LOCAL, gridworld(agents=2), 500, seed=1, progress=reports.append, on_round=seen.append)
    assert len(seen) > 1
    assert repr(reports) == repr(seen), "of every round"
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 3600.0)
    last = list[RoundRecord]()
    run(LOCAL, gridworld(agents=2), 500, seed=1, progress=last.append)
    assert [one._replace(seconds=0.0) for one in last] == [reports[-1]._replace(seconds=0.0)], "the whole run"


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_interrupted_run_carries_what_it_has_and_that_loads(driver: str, tmp_path: Path) -> None:
    federation = gridworld(agents=3, eps_p=0.1)
    whole = run(LOCAL, federation, 3000, seed=2, driver=driver)
    with pytest.raises(Interrupted, match="interrupted after") as caught:
        run(LOCAL, federation, 3000, seed=2, driver=driver, on_round=interrupt_after(rounds=20))
    partial = caught.value.partial
    assert isinstance(caught.value, KeyboardInterrupt)
    assert not partial.complete
    assert partial.rounds == 20
    assert 0 < partial.episodes_played < 3000 == partial.about.episodes
    for name, column in partial.records.items():
        assert np.array_equal(column, whole.records[name][: len(column)], equal_nan=True)
    partial.save(tmp_path / "partial")
    assert Run.load(tmp_path / "partial") == partial


@pytest.mark.parametrize("rounds", [0, 10])
def test_an_interrupt_in_the_middle_of_a_round_leaves_the_rounds_before_it(
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
    assert len(partial.records["start"]) == partial.rounds == rounds
    assert (partial.episodes_played > 0, partial.regret > 0) == (rounds > 0, rounds > 0)
    partial.save(tmp_path / "partial")
    assert Run.load(tmp_path / "partial") == partial


# ---------------------------------------------------------------------------------------- callbacks after every round


ALGORITHM = FedUCBVI(nu=100)
WORLD = synthetic(agents=3)
EPISODES = 200


def test_there_is_one_record_a_round_and_they_add_up_to_the_runs_own() -> None:
    seen: list[RoundRecord] = []
    result = run(ALGORITHM, WORLD, EPISODES, on_round=seen.append)
    records = result.records
    told = result.recommendations
    assert [one.round for one in seen] == list(range(1, len(records["start"]) + 1))
    assert [one.episodes for one in seen] == (records["start"] + records["length"]).tolist()
    for name, column in {"length": "length", "requests": "requests", "state": "state", "action": "action"}.items():
        assert [getattr(one, name) for one in seen] == records[column].tolist()
    np.testing.assert_allclose([one.regret for one in seen], np.cumsum(records["regret"]), rtol=1e-12)
    np.testing.assert_allclose([one.reward for one in seen], records["reward"] / records["length"], rtol=1e-12)
    assert [one.bytes_up for one in seen] == np.cumsum(records["bytes_up"]).tolist()
    assert [one.synchronisations for one in seen] == np.cumsum(records["requests"] > 0).tolist()
    assert {one.rule for one in seen if one.requests} == {name for name, n in result.rules_fired.items() if n}
    assert seen[-1].planned_episodes == EPISODES
    assert seen[-1].gap == told["optimistic"][-1] - told["estimated"][-1]
    assert not math.isnan(seen[0].gap), "a policy is recommended after the first round"
    assert seen[-1].seconds == pytest.approx(result.wall_seconds)


def test_a_run_that_is_resumed_goes_on_with_the_totals_it_had(tmp_path: Path) -> None:
    whole: list[RoundRecord] = []
    run(ALGORITHM, WORLD, EPISODES, on_round=whole.append)
    first: list[RoundRecord] = []

    def stop(record: RoundRecord) -> None:
        first.append(record)
        if record.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(ALGORITHM, WORLD, EPISODES, checkpoint=tmp_path / "c", checkpoint_every=1, on_round=stop)
    rest: list[RoundRecord] = []
    resume(tmp_path / "c", on_round=rest.append)
    timeless = [one._replace(seconds=0.0) for one in (*first, *rest)]
    assert timeless == [one._replace(seconds=0.0) for one in whole]


def test_a_subscriber_is_given_every_policy_that_is_recommended() -> None:
    class Watching(Subscriber):
        def __init__(self) -> None:
            self.rounds = 0
            self.policies = list[tuple[int, IndexArray]]()

        def __call__(self, record: RoundRecord) -> None:
            self.rounds = record.round

        def take_policy(self, policy: IndexArray) -> None:
            self.policies.append((self.rounds, policy))

    watching = Watching()
    result = run(ALGORITHM, WORLD, EPISODES, on_round=watching)
    assert [at for at, _ in watching.policies] == result.recommendations["round"].tolist()
    assert np.array_equal(watching.policies[-1][1], result.policy)
    assert not np.array_equal(watching.policies[0][1], result.policy), "they are not one and the same array"


def test_what_a_callback_raises_ends_the_run() -> None:
    def fail(record: RoundRecord) -> None:
        raise ValueError(f"round {record.round}")

    with pytest.raises(ValueError, match="round 1"):
        run(ALGORITHM, synthetic(agents=2), 50, on_round=fail)
