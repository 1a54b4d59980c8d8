"""What nodes tell of their rewards: exact sums, a curve with its spread, nothing from those who do not want to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedQHoeffding, FedUCBVI, RoundRecord, Run
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.messages import REWARDS_ALONE, Query, Report, Start
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.results.run_data import learning_curve
from gymnasium_problems import Shops
from network import TLSByName, first_broadcast
from network import federate as run_to_the_end

H, T, AGENTS = 4, 30, 3
LOW, HIGH = -1.5, 3.5
SETTING = Setting(4, 2, H, AGENTS, T, 0.0, 0)
GRID = RewardGrid.of(SETTING)


def started_in(shops: Shops) -> np.ndarray[Any, Any]:
    """How many episodes of all agents began in each state."""
    return np.bincount([log[0][0] for log in shops.episodes()], minlength=SETTING.states)


def rescaled(returns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As if every one of H steps, also those after the end, which pay 0, paid between 0 and 1."""
    return (returns - H * LOW) / (HIGH - LOW)


def federate(
    shops: Shops, algorithm: Any, silent: Sequence[int] = (), tls_files: TLSByName | None = None
) -> tuple[Run, list[RoundRecord]]:
    """Three nodes with an agent each; some do not tell what they are paid. With certificates sums are secure."""
    seen: list[RoundRecord] = []
    plan = RunPlan(algorithm, SETTING, collection="live", secure_sums=tls_files is not None)
    source = LiveSource(shops.make, (LOW, HIGH), H)
    nodes = [Node(f"node-{i}", source, i, 1, rewards=i not in silent) for i in range(AGENTS)]
    return run_to_the_end(plan, nodes, tls_files, on_round=seen.append).run, seen


@pytest.mark.parametrize("kind", ["in the open", "secure sums", "nobody tells rewards"])
@pytest.mark.parametrize("algorithm", [FedUCBVI(), FedKLUCBVI(), FedKLUCBVI(stationary=True)], ids=repr)
def test_the_server_has_the_gap_over_the_states_in_which_episodes_began(
    kind: str, algorithm: Any, tls_files: TLSByName
) -> None:
    if kind == "secure sums" and not algorithm.server_counts:
        pytest.skip("its reports are not what is new")
    certs = tls_files if kind == "secure sums" else None
    shops, silent = Shops(initial=(0.5, 0.5, 0.0)), range(AGENTS) if kind == "nobody tells rewards" else ()
    run, seen = federate(shops, algorithm, silent, certs)
    starts = started_in(shops)
    assert starts.sum() == AGENTS * T
    assert np.count_nonzero(starts) > 1
    told = starts @ run.V[0] / starts.sum()
    assert run.optimistic_value == pytest.approx(told, rel=1e-12 if certs is None else 0.05)  # but for the last few
    assert math.isfinite(run.estimated_value)
    assert run.original_units["gap"] == pytest.approx(seen[-1].gap)
    assert all(math.isfinite(record.gap) for record in seen)
    assert run.summary()["gap"] == run.gap
    assert run.recommendations["optimistic"][-1] == run.optimistic_value


@pytest.mark.parametrize("kind", ["in the open", "secure sums", "rows"])
def test_the_server_has_the_mean_and_the_spread_of_what_the_environments_paid(
    kind: str, tls_files: TLSByName
) -> None:
    certs = tls_files if kind == "secure sums" else None
    shops = Shops(initial=(0.5, 0.5, 0.0))
    algorithms = {"rows": FedQHoeffding(), "in the open": FedUCBVI(), "secure sums": FedKLUCBVI()}
    run, seen = federate(shops, algorithms[kind], tls_files=certs)
    paid = shops.returns(range(AGENTS))
    assert len(paid) == AGENTS * T
    if kind == "secure sums":  # of the last episodes fewer than three nodes may have something new to tell
        told = run.records["agent_episodes"][~np.isnan(run.records["reward"])].sum()
        assert 0.8 * len(paid) < told <= len(paid)
        assert learning_curve(run, 1).mean == pytest.approx(paid.mean(), abs=0.5)
        return
    curve = learning_curve(run, 1)
    assert curve.mean == pytest.approx(paid.mean(), rel=1e-9)
    assert run.average_reward == pytest.approx(rescaled(paid).mean(), rel=1e-9)
    assert run.original_units["average_reward"] == pytest.approx(paid.mean(), rel=1e-9)
    assert curve.error == pytest.approx(paid.std(ddof=1) / math.sqrt(len(paid)), rel=1e-6)
    weights = run.records["agent_episodes"]
    assert np.average([record.reward for record in seen], weights=weights) == pytest.approx(paid.mean(), rel=1e-9)
    spreads = (HIGH - LOW) * run.records["reward_sd"]
    assert [record.reward_sd for record in seen] == pytest.approx(spreads.tolist(), nan_ok=True)
    assert (np.isnan(run.records["reward_sd"]) == (weights < 2)).all()


def test_those_who_do_not_tell_are_not_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Paid] = []
    read = RewardGrid.read

    def note(grid: RewardGrid, numbers: Any) -> Paid:
        heard.append(read(grid, numbers))
        return heard[-1]

    monkeypatch.setattr(RewardGrid, "read", note)
    shops = Shops(initial=(0.5, 0.5, 0.0))
    _, seen = federate(shops, FedUCBVI(), silent=[1])
    told = rescaled(shops.returns([0, 2]))
    assert sum(paid.episodes for paid in heard) == len(told) == 2 * T
    assert sum(paid.total for paid in heard) == pytest.approx(told.sum(), rel=1e-9)
    assert np.array_equal(sum(paid.starts for paid in heard), started_in(shops))
    means = [H * LOW + (HIGH - LOW) * paid.total / paid.episodes if paid.episodes else math.nan for paid in heard]
    assert [record.reward for record in seen] == pytest.approx(means, nan_ok=True)
    run, seen = federate(Shops(initial=(0.5, 0.5, 0.0)), FedUCBVI(), silent=range(AGENTS))
    assert np.isnan(run.records["reward"]).all()
    assert all(math.isnan(record.reward) for record in seen)


def test_a_live_node_that_is_started_again_says_the_same(tmp_path: Path) -> None:
    task = RunPlan(FedUCBVI(), SETTING, collection="live")
    start = Start(1, 0, 0, T, T, first_broadcast(task))
    shops, found = Shops(initial=(0.5, 0.5, 0.0)), []
    for _ in range(2):
        node = Node("a", LiveSource(shops.make, (LOW, HIGH), H), 0, 2, tmp_path)
        node.enter(task.welcome())
        node.answer(start)
        while node.playing:
            node.play_on()
        answer = node.answer(Query(1, REWARDS_ALONE, (), rewards=True))
        assert isinstance(answer, Report)
        found.append(answer.arrays[0].tolist())
    paid = rescaled(shops.returns([0, 1]))
    assert found[0] == found[1]
    assert found[0][0][0] == len(paid)
    read = GRID.read(np.array(found[0]))
    assert (read.total, read.squares) == pytest.approx((paid.sum(), (paid**2).sum()), rel=1e-9)
    assert np.array_equal(read.starts, started_in(shops))


def paid_by(returns: Any, *starts: int) -> Paid:
    """Of episodes of which so many began in each state."""
    return Paid(len(returns), float(np.sum(returns)), np.array(starts), float(np.sum(np.square(returns))))


def test_numbers_of_any_grouping_add_up_and_none_overflows() -> None:
    rng = np.random.default_rng(3)
    for setting in (SETTING, replace(SETTING, agents=1000, episodes=10**12, horizon=500)):
        grid = RewardGrid.of(setting)
        n, most = setting.agents * setting.episodes, setting.horizon
        all_of_it = grid.report(Paid(n, float(n * most), np.array([n, 0, 0, 0]), float(n) * most**2))
        assert (all_of_it >= 0).all()
        grid.check(all_of_it, n)
    returns = rng.random(60) * H
    whole = paid_by(returns, 30, 18, 12, 0)
    parts = sum(GRID.report(paid_by(part, 10, 6, 4, 0)) for part in returns.reshape(3, 20))
    read = GRID.read(np.asarray(parts))
    assert np.array_equal(read.starts, whole.starts)
    assert (read.episodes, read.total, read.squares) == pytest.approx((60, whole.total, whole.squares), rel=1e-10)
    assert read.deviation == pytest.approx(returns.std(ddof=1), rel=1e-6)
    silent = GRID.report(whole, tell=False)
    assert silent.tolist() == [[0, 0, 0, 0, 30, 18, 12, 0]]
    assert GRID.read(silent).episodes == 0
    simulated = GRID.report(Paid(20, 3.0, np.array([20, 0, 0, 0])))
    assert math.isnan(GRID.read(simulated + GRID.report(paid_by([1.5, 1.5], 2, 0, 0, 0))).deviation)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([6, 0, 0, 0], "rewards of 6 episodes, where 5 were played"),
        ([3, 0, 0, 0], "rewards of 3 episodes, where 5"),
        ([-1, 0, 0, 0], "rewards of -1 episodes"),
        ([5, -1, 0, 0], "outside"),
        ([5, 21 << 40, 0, 0], "outside"),
        ([5, 0, 4, 0], "squared rewards of 4 episodes"),
        ([5, 0, 5, 81 << 40], "squared rewards of .* outside"),
        ([5, 15 << 40, 5, 40 << 40], "less than the mean reward allows"),
        ([5, 0, 0], "expected int64"),
    ],
)
def test_rewards_that_cannot_be_true_are_a_violation(numbers: list[int], says: str) -> None:
    starts = [3, 2, 0, 0]
    assert GRID.bits == GRID.square_bits == 40
    GRID.check(np.array([[5, 15 << 40, 5, 46 << 40, *starts]]), 5)
    with pytest.raises(ViolationError, match=says):
        GRID.check(np.array([[*numbers, *starts]]), 5)


@pytest.mark.parametrize("starts", [[3, 1, 0, 0], [3, 3, 0, 0], [6, -1, 0, 0], [2**62, 2**62, 2**62, 2**62 + 5]])
@pytest.mark.parametrize("some", [False, True])
def test_starts_that_are_not_those_of_the_episodes_are_a_violation(starts: list[int], some: bool) -> None:
    with pytest.raises(ViolationError, match="do not add up to the 5 played"):
        GRID.check(np.array([[0, 0, 0, 0, *starts]]), 5, some=some)
