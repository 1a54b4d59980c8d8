"""What nodes tell of their rewards: exact sums, a curve with its spread, their own units wherever they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedQHoeffding, FedUCBVI, Run, load_policy, reference, run, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.count_reporting import CountReporting
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.core.numbers import number
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.dashboard.metrics import Metrics
from fed_ucbvi.network.dashboard.state import LiveState, Subject
from fed_ucbvi.network.failures import RefusedError, ViolationError
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.members import FederationStatus
from fed_ucbvi.network.messages import REWARDS_ALONE, Query, Start
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server_checkpoint import POLICY_FILE
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.problem.units import PER_STEP, Units
from fed_ucbvi.results.round_record import RoundRecord
from fed_ucbvi.results.run_data import CallbackList, learning_curve
from fed_ucbvi.trackers import results_of
from gymnasium_problems import Corridors
from network import Served, TLSByName, first_broadcast, make_nodes
from network import federate as run_to_the_end

H = 4
T = 30
AGENTS = 3
LOW = -1.5
HIGH = 3.5
SETTING = Setting(4, 2, H, AGENTS, T, 0.0, 0, random_rewards=True)
GRID = RewardGrid.of(SETTING)


def started_in(corridors: Corridors) -> np.ndarray[Any, Any]:
    """How many episodes of all agents began in each state."""
    return np.bincount([log[0][0] for log in corridors.episodes()], minlength=SETTING.states)


def rescaled(returns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As if every one of H steps, also those after the end, which pay 0, paid between 0 and 1."""
    return (returns - H * LOW) / (HIGH - LOW)


def source(corridors: Corridors) -> LiveSource:
    return LiveSource(corridors.make, (LOW, HIGH), H)


def federate(
    corridors: Corridors, algorithm: Any, silent: Sequence[int] = (), tls_files: TLSByName | None = None
) -> tuple[Run, list[RoundRecord]]:
    """Three nodes with an agent each; some do not tell what they are paid. With certificates sums are secure."""
    seen: list[RoundRecord] = []
    plan = RunPlan(algorithm, SETTING, rules=FederationRules(collection="live", secure_sums=tls_files is not None))
    nodes = [
        Node(f"node-{i}", source(corridors), i, 1, terms=NodeTerms(no_rewards=i in silent)) for i in range(AGENTS)
    ]
    return run_to_the_end(plan, nodes, tls_files, on_round=seen.append).run, seen


@pytest.mark.parametrize("kind", ["in the open", "secure sums", "nobody tells rewards"])
@pytest.mark.parametrize("algorithm", [FedUCBVI(), FedKLUCBVI(), FedKLUCBVI(stationary=True)], ids=repr)
def test_the_gap_is_over_the_states_in_which_episodes_began(kind: str, algorithm: Any, tls_files: TLSByName) -> None:
    if kind == "secure sums" and not isinstance(algorithm, CountReporting):
        pytest.skip("its reports are not what is new")
    certs = tls_files if kind == "secure sums" else None
    corridors = Corridors()
    silent = range(AGENTS) if kind == "nobody tells rewards" else ()
    run, seen = federate(corridors, algorithm, silent, certs)
    starts = started_in(corridors)
    assert starts.sum() == AGENTS * T
    assert np.count_nonzero(starts) > 1
    n = int(starts.sum())
    events = SETTING.states * (2 * SETTING.horizon - 1) + 1
    delta = algorithm.delta / events if isinstance(algorithm, FedKLUCBVI) else 0.05
    c = np.array((math.log(2.0 / delta) + 0.5 * math.log(n + 1)) / n)
    told = float(reference.largest_mean(starts / n, run.V[0], c))
    assert run.optimistic_value == pytest.approx(told, rel=1e-6 if certs is None else 0.05)  # but for the last few
    assert math.isfinite(run.estimated_value)
    assert run.gap == pytest.approx(seen[-1].gap)
    assert all(math.isfinite(record.gap) for record in seen)
    assert run.summary()["gap"] == run.gap
    assert run.recommendations["optimistic"][-1] == run.optimistic_value


@pytest.mark.parametrize("kind", ["in the open", "secure sums", "rows"])
def test_the_server_has_mean_and_spread_of_what_environments_paid(kind: str, tls_files: TLSByName) -> None:
    certs = tls_files if kind == "secure sums" else None
    corridors = Corridors()
    algorithms = {"rows": FedQHoeffding(), "in the open": FedUCBVI(), "secure sums": FedKLUCBVI()}
    run, seen = federate(corridors, algorithms[kind], tls_files=certs)
    paid = corridors.returns(range(AGENTS))
    assert len(paid) == AGENTS * T
    if kind == "secure sums":  # of the last episodes fewer than three nodes may have something new to tell
        known = ~np.isnan(run.records["reward"])
        told = run.records["agent_episodes"][known].sum()
        assert 0.8 * len(paid) < told <= len(paid)
        mean = AGENTS * run.records["reward"][known].sum() / told
        assert mean == pytest.approx(paid.mean(), abs=0.5)
        return
    curve = learning_curve(run, 1)
    assert curve.mean == pytest.approx(paid.mean(), rel=1e-9)
    assert run.average_reward == pytest.approx(paid.mean(), rel=1e-9)
    assert run.in_units(PER_STEP).average_reward == pytest.approx(rescaled(paid).mean(), rel=1e-9)
    assert curve.error == pytest.approx(paid.std(ddof=1) / math.sqrt(len(paid)), rel=1e-6)
    weights = run.records["agent_episodes"]
    assert np.average([record.reward for record in seen], weights=weights) == pytest.approx(paid.mean(), rel=1e-9)
    spreads = run.records["reward_sd"]
    assert [record.reward_sd for record in seen] == pytest.approx(spreads.tolist(), nan_ok=True)
    assert (np.isnan(run.records["reward_sd"]) == (weights < 2)).all()


def test_those_who_do_not_tell_are_not_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Paid] = []
    read = RewardGrid.read

    def note(grid: RewardGrid, numbers: Any) -> Paid:
        heard.append(read(grid, numbers))
        return heard[-1]

    monkeypatch.setattr(RewardGrid, "read", note)
    corridors = Corridors()
    _, seen = federate(corridors, FedUCBVI(), silent=[1])
    told = rescaled(corridors.returns([0, 2]))
    assert sum(paid.episodes for paid in heard) == len(told) == 2 * T
    assert sum(paid.total for paid in heard) == pytest.approx(told.sum(), rel=1e-9)
    assert np.array_equal(sum(paid.starts for paid in heard), started_in(corridors))
    means = [H * LOW + (HIGH - LOW) * paid.total / paid.episodes if paid.episodes else math.nan for paid in heard]
    assert [record.reward for record in seen] == pytest.approx(means, nan_ok=True)
    run, seen = federate(Corridors(), FedUCBVI(), silent=range(AGENTS))
    assert np.isnan(run.records["reward"]).all()
    assert all(math.isnan(record.reward) for record in seen)


def test_a_live_node_that_is_started_again_says_the_same(tmp_path: Path) -> None:
    task = RunPlan(FedUCBVI(), SETTING, rules=FederationRules(collection="live"))
    start = Start(1, 0, 0, T, T, first_broadcast(task))
    corridors = Corridors()
    found = []
    for _ in range(2):
        node = Node("a", source(corridors), 0, 2, tmp_path)
        node.enter(task.welcome())
        node.answer(start)
        while node.playing:
            node.play_on()
        answer: Any = node.answer(Query(1, REWARDS_ALONE, (), rewards=True))
        found.append(answer.arrays[0].tolist())
    paid = rescaled(corridors.returns([0, 1]))
    assert found[0] == found[1]
    assert found[0][0][0] == len(paid)
    read = GRID.read(np.array(found[0]))
    assert (read.total, read.squares) == pytest.approx((paid.sum(), (paid**2).sum()), rel=1e-9)
    assert np.array_equal(read.starts, started_in(corridors))


def paid_by(returns: Any, *starts: int) -> Paid:
    """Of episodes of which so many began in each state."""
    return Paid(len(returns), float(np.sum(returns)), np.array(starts), float(np.sum(np.square(returns))))


def test_numbers_of_any_grouping_add_up_and_none_overflows() -> None:
    rng = np.random.default_rng(3)
    for setting in (SETTING, replace(SETTING, agents=1000, episodes=10**12, horizon=500)):
        grid = RewardGrid.of(setting)
        n = setting.agents * setting.episodes
        most = setting.horizon
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


STARTS = (3, 2, 0, 0)
WRONG_STARTS = ([3, 1, 0, 0], [3, 3, 0, 0], [6, -1, 0, 0], [2**62, 2**62, 2**62, 2**62 + 5])


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([6, 0, 0, 0, *STARTS], "rewards of 6 episodes, where 5 were played"),
        ([3, 0, 0, 0, *STARTS], "rewards of 3 episodes, where 5"),
        ([-1, 0, 0, 0, *STARTS], "rewards of -1 episodes"),
        ([5, -1, 0, 0, *STARTS], "outside"),
        ([5, 21 << 40, 0, 0, *STARTS], "outside"),
        ([5, 0, 4, 0, *STARTS], "squared rewards of 4 episodes"),
        ([5, 0, 5, 81 << 40, *STARTS], "squared rewards of .* outside"),
        ([5, 15 << 40, 5, 40 << 40, *STARTS], "less than the mean reward allows"),
        ([5, 0, 0, *STARTS], "expected int64"),
        *(([0, 0, 0, 0, *starts], "do not add up to the 5 played") for starts in WRONG_STARTS),
    ],
)
def test_rewards_that_cannot_be_true_are_a_violation(numbers: list[int], says: str) -> None:
    assert GRID.bits == GRID.square_bits == 40
    GRID.check(np.array([[5, 15 << 40, 5, 46 << 40, *STARTS]]), 5)
    for some in (False, True)[: 1 + ("add up" in says)]:
        with pytest.raises(ViolationError, match=says):
            GRID.check(np.array([numbers]), 5, some=some)


UNITS = Units(-1.5, 5.0)
PLAN = RunPlan(
    FedUCBVI(bonus_scale=0.1),
    Setting(4, 2, H, 2, 40, 0.0, 0, random_rewards=True),
    rules=FederationRules(collection="live"),
)


async def test_what_is_paid_is_shown_as_it_was_paid_everywhere(tmp_path: Path) -> None:
    corridors = Corridors(initial=(1.0, 0.0, 0.0))
    state = LiveState(Subject.of_plan(PLAN))
    metrics = Metrics()
    nodes = [Node(name, source(corridors), i, 1, tmp_path / name) for i, name in enumerate("ab")]
    served = Served(PLAN, tmp_path / "kept", on_round=CallbackList(state, metrics))
    async with state.following(served.coordinator):
        served.join(*nodes)
        run = (await served.finish()).run
    run.save(tmp_path / "result")
    run.export_policy(tmp_path / "policy.json")
    policies = [load_policy(tmp_path / name) for name in ("result", "policy.json", f"kept/{POLICY_FILE}")]
    for policy in (*policies, *(node.policy for node in nodes)):
        assert policy is not None
        assert policy.units == UNITS

    mean = corridors.returns().mean()
    assert run.average_reward == pytest.approx(mean, rel=1e-9)
    rows = summary_rows(run)[1]
    assert dict(rows)["paid"].startswith(f"{mean:,.4f} per episode")
    assert "rewards of -1.5 to 3.5 per step" in dict(rows)["setting"]
    assert dict(rows)["gap"].startswith(f"{run.gap:,.4f}")
    assert run.plot()[0].get_title("left") == f"Reward: {number(run.average_reward)} per episode (regret unknown)"
    assert results_of(run)["final_average_reward"] == run.average_reward
    assert results_of(run)["final_estimated_value"] == run.estimated_value
    per_round = 2 * run.records["reward"] / run.records["agent_episodes"]
    expected = per_round.tolist()
    content = state.snapshot()
    assert content["subject"]["units"] == "-1.5 to 3.5"
    assert [point[content["columns"].index("reward")] for point in content["points"]] == pytest.approx(expected)
    assert content["now"]["optimistic_value"] == pytest.approx(run.optimistic_value)
    assert content["now"]["gap"] == pytest.approx(run.gap)
    measured = dict(line.rsplit(" ", 1) for line in metrics.render().decode().splitlines() if line[0] != "#")
    assert float(measured["fed_ucbvi_reward"]) == pytest.approx(expected[-1])
    assert float(measured["fed_ucbvi_gap"]) == pytest.approx(run.gap)
    again = Served(PLAN, tmp_path / "kept").server.outcome().run
    assert again.average_reward == run.average_reward
    assert again.gap == run.gap


async def test_nodes_whose_rewards_have_other_units_are_refused() -> None:
    served = Served(PLAN)
    corridors = Corridors(initial=(1.0, 0.0, 0.0))
    served.join(Node("a", source(corridors), 0, 1))
    await served.meet()
    with pytest.raises(RefusedError) as refused:
        await run_node(Node("b", LiveSource(corridors.make, (-1.5, 4.0), H), 1, 1), served.remote())
    served.join(Node("b", source(corridors), 1, 1))
    assert (await served.finish()).run.complete
    says = str(refused.value)
    assert "a step of 'b' pays -1.5 to 4, one of this run -1.5 to 3.5" in says
    assert "the same --reward-range" in says


def test_rounds_are_told_as_in_a_simulation_and_nodes_with_what_they_carried() -> None:
    told: list[RoundRecord] = []
    seen: list[FederationStatus] = []

    def look(coordinator: Coordinator) -> None:
        seen.append(coordinator.status())

    world = synthetic(agents=4, eps_p=0.2, states=3, actions=2, horizon=3)
    algorithm = FedUCBVI(nu=30)

    plan = plan_for(algorithm, world, 40, seed=1)
    outcome = run_to_the_end(plan, make_nodes(world, (2, 2)), report=look, on_round=told.append)
    expected: list[RoundRecord] = []
    run(algorithm, world, 40, seed=1, driver="episodes", on_round=expected.append)
    timeless = [
        one._replace(seconds=0.0, regret=0.0, reward=0.0) for one in told
    ]  # where episodes began and what was paid, the nodes know
    assert timeless == [one._replace(seconds=0.0, regret=0.0, reward=0.0) for one in expected]
    assert len(seen) == len(told)
    last = seen[-1]
    assert [(node.first_agent, node.agents) for node in last.nodes] == [(0, 2), (2, 2)]
    assert all(node.connected and node.state == "present" and node.episodes == 40 for node in last.nodes)
    assert all(0 < node.latency < 60 and not math.isnan(node.latency) for node in last.nodes)
    assert (last.violations, last.events, last.secure_sums) == (0, (), False)
    for name in ("bytes_up", "bytes_down"):
        of_nodes = sum(getattr(node.wire, name) for node in last.nodes)
        in_all = getattr(outcome.wire, name)
        assert 0 < of_nodes < in_all, "the run's own count has the handshakes too"
