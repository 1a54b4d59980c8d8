"""What is told of a run while it goes on and afterwards; rewards keep their units wherever they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from fed_ucbvi import FedUCBVI, LiveFederation, RoundRecord, Run, load_policy, run, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.core.numbers import number
from fed_ucbvi.dashboard.metrics import Metrics
from fed_ucbvi.dashboard.state import LiveState, Subject
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import RefusedError
from fed_ucbvi.network.members import FederationStatus
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server_checkpoint import POLICY_FILE
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run_data import CallbackList
from fed_ucbvi.trackers import results_of
from gymnasium_problems import Shops, TableEnv
from network import Served, federate, make_nodes, tell

H, T = 4, 40
RANGE = (-1.5, 3.5)
UNITS = Units(-1.5, 5.0)
PLAN = RunPlan(FedUCBVI(bonus_scale=0.1), Setting(4, 2, H, 2, T, 0.0, 0), collection="live")


def serve(plan: RunPlan, nodes: Sequence[Node], folder: Path | None = None) -> tuple[Run, LiveState, Metrics]:
    """A run with a page and metrics."""
    state, metrics = LiveState(Subject.of_plan(plan)), Metrics()

    async def story() -> Run:
        served = Served(plan, folder, on_round=CallbackList(state, metrics))
        async with state.following(served.coordinator):
            served.join(*nodes)
            return (await served.finish()).run

    return tell(story()), state, metrics


def test_what_is_paid_is_shown_as_it_was_paid_everywhere(tmp_path: Path) -> None:
    shops = Shops()
    nodes = [Node(name, LiveSource(shops.make, RANGE, H), i, 1, tmp_path / name) for i, name in enumerate("ab")]
    run, state, metrics = serve(PLAN, nodes, tmp_path / "kept")

    run.save(tmp_path / "result")
    run.export_policy(tmp_path / "policy.json")
    policies = [load_policy(tmp_path / name) for name in ("result", "policy.json", f"kept/{POLICY_FILE}")]
    for policy in (*policies, *(node.policy for node in nodes)):
        assert policy is not None
        assert policy.units == UNITS

    own, mean = run.original_units, shops.returns().mean()
    assert own["average_reward"] == pytest.approx(mean, rel=1e-9)
    rows = summary_rows(run)[1]
    said = " ".join(text for name, text in rows if name == "in its own units")
    assert f"paid {mean:,.4g} an episode" in said
    assert "rewards of -1.5 to 3.5 a step rescaled to [0, 1]" in dict(rows)["setting"]
    assert f"gap {own['gap']:,.4g}" in said
    assert run.plot().panels[0].title == f"Reward: {number(own['average_reward'])} an episode (regret unknown)"
    assert results_of(run)["final_average_reward"] == own["average_reward"]
    assert results_of(run)["final_estimated_value"] == own["estimated_value"]
    per_round = 2 * run.records["reward"] / run.records["agent_episodes"]
    expected = [UNITS.original_return(reward, H) for reward in per_round]
    content = state.snapshot()
    assert content["subject"]["units"] == "-1.5 to 3.5"
    assert [point[content["columns"].index("reward")] for point in content["points"]] == pytest.approx(expected)
    assert content["now"]["optimistic_value"] == pytest.approx(own["optimistic_value"])
    assert content["now"]["gap"] == pytest.approx(own["gap"])
    measured = dict(line.rsplit(" ", 1) for line in metrics.render().decode().splitlines() if line[0] != "#")
    assert float(measured["fed_ucbvi_reward"]) == pytest.approx(expected[-1])
    assert float(measured["fed_ucbvi_gap"]) == pytest.approx(own["gap"])
    again = Served(PLAN, tmp_path / "kept").server.outcome().run
    assert again.original_units == pytest.approx(own, nan_ok=True)


def test_a_run_over_the_network_has_the_figures_of_one_in_one_process() -> None:
    shops = Shops()
    node = Node("a", LiveSource(shops.make, RANGE, H), 0, 2)
    served, _, _ = serve(PLAN, [node])
    live = LiveFederation(lambda i: TableEnv(noise=0.5), 2, H, RANGE)
    alone = run(PLAN.algorithm, live, T, seed=0, progress=False)
    assert served.original_units == pytest.approx(alone.original_units, nan_ok=True)


async def test_nodes_whose_rewards_have_other_units_are_refused() -> None:
    served, shops = Served(PLAN), Shops()
    served.join(Node("a", LiveSource(shops.make, RANGE, H), 0, 1))
    await served.meet()
    with pytest.raises(RefusedError) as refused:
        await run_node(Node("b", LiveSource(shops.make, (-1.5, 4.0), H), 1, 1), served.remote())
    served.join(Node("b", LiveSource(shops.make, RANGE, H), 1, 1))
    assert (await served.finish()).run.complete
    says = str(refused.value)
    assert "a step of 'b' pays -1.5 to 4, one of this run -1.5 to 3.5" in says
    assert "the same --reward-range" in says


def test_rounds_are_told_as_in_a_simulation_and_nodes_with_what_they_carried() -> None:
    told: list[RoundRecord] = []
    seen: list[FederationStatus] = []

    def look(coordinator: Coordinator) -> None:
        seen.append(coordinator.status())

    world, algorithm = synthetic(agents=4, eps_p=0.2, states=3, actions=2, horizon=3), FedUCBVI(nu=30)

    plan = plan_for(algorithm, world, 40, seed=1)
    outcome = federate(plan, make_nodes(world, (2, 2)), report=look, on_round=told.append)
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
