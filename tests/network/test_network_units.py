"""Rewards keep their units from the node to the page, the metrics, the saved run and the policy file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fed_ucbvi import FedUCBVI, LiveFederation, Run, load_policy, run
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.core.numbers import number
from fed_ucbvi.dashboard.folders import state_of_folder, state_of_run
from fed_ucbvi.dashboard.metrics import Metrics
from fed_ucbvi.dashboard.state import LiveState
from fed_ucbvi.dashboard.subject import Subject
from fed_ucbvi.dashboard.watching import following
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import RefusedError
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.server_checkpoint import POLICY_FILE, ServerCheckpoint
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.subscriber import CallbackList
from fed_ucbvi.trackers.tracker import results_of
from gymnasium_problems import TableEnv
from network import reach

H, T = 4, 40
RANGE = (-1.5, 3.5)
UNITS = Units(-1.5, 5.0)
PLAN = RunPlan(FedUCBVI(bonus_scale=0.1), Setting(4, 2, H, 2, T, 0.0, 0), collection="live")


class Shops:
    """Environments that remember what they paid."""

    def __init__(self) -> None:
        self.made: list[TableEnv] = []

    def make(self, agent: int) -> Any:
        self.made.append(TableEnv(noise=0.5))
        return self.made[-1]

    @property
    def mean(self) -> float:
        """Of an episode."""
        returns = [sum(step[2] for step in log) for env in self.made for log in env.log if log]
        return sum(returns) / len(returns)


async def serve(
    plan: RunPlan, nodes: Sequence[Node], checkpoint: ServerCheckpoint | None = None
) -> tuple[Run, LiveState, Metrics]:
    """A run with a page and metrics."""
    state, metrics = LiveState(Subject.of_plan(plan)), Metrics()
    on_round = CallbackList(state, metrics)
    service = FederationServer(plan, None, None, server_checkpoint=checkpoint, on_round=on_round)
    async with following(state, service.coordinator):
        parties = [run_node(node, reach(service)) for node in nodes]
        await asyncio.wait_for(asyncio.gather(service.run(), *parties), 300)
    return service.outcome().run, state, metrics


def test_what_is_paid_is_shown_as_it_was_paid_everywhere(tmp_path: Path) -> None:
    shops, ledger = Shops(), ServerCheckpoint(tmp_path / "kept")
    nodes = [Node(name, LiveSource(shops.make, RANGE, H), i, 1, tmp_path / name) for i, name in enumerate("ab")]
    run, state, metrics = asyncio.run(serve(ledger.adopt(PLAN), nodes, ledger))

    run.save(tmp_path / "result")
    run.export_policy(tmp_path / "policy.json")
    policies = [load_policy(tmp_path / name) for name in ("result", "policy.json", f"kept/{POLICY_FILE}")]
    for policy in (*policies, *(node.policy for node in nodes)):
        assert policy is not None
        assert policy.units == UNITS

    own = run.original_units
    assert own["average_reward"] == pytest.approx(shops.mean, rel=1e-9)
    rows = summary_rows(run)[1]
    said = " ".join(text for name, text in rows if name == "in its own units")
    assert f"paid {shops.mean:,.4g} an episode" in said
    assert "rewards of -1.5 to 3.5 a step rescaled to [0, 1]" in dict(rows)["setting"]
    assert f"gap {own['gap']:,.4g}" in said
    assert run.plot().panels[0].title == f"Reward: {number(own['average_reward'])} an episode (regret unknown)"
    assert results_of(run)["final_average_reward"] == own["average_reward"]
    assert results_of(run)["final_estimated_value"] == own["estimated_value"]
    per_round = 2 * run.records["reward"] / run.records["agent_episodes"]
    expected = [UNITS.original_return(reward, H) for reward in per_round]
    watched, _ = state_of_folder(tmp_path / "kept")
    for page in (state, watched, state_of_run(Run.load(tmp_path / "result"))):
        content = page.snapshot()
        assert content["subject"]["units"] == "-1.5 to 3.5"
        assert [point[content["columns"].index("reward")] for point in content["points"]] == pytest.approx(expected)
        assert content["now"]["optimistic_value"] == pytest.approx(own["optimistic_value"])
        assert content["now"]["gap"] == pytest.approx(own["gap"])
    measured = dict(line.rsplit(" ", 1) for line in metrics.render().decode().splitlines() if line[0] != "#")
    assert float(measured["fed_ucbvi_reward"]) == pytest.approx(expected[-1])
    assert float(measured["fed_ucbvi_gap"]) == pytest.approx(own["gap"])

    async def start_again() -> Run:
        again = ServerCheckpoint(tmp_path / "kept")
        try:
            return FederationServer(again.adopt(PLAN), None, None, server_checkpoint=again).outcome().run
        finally:
            again.close()

    assert asyncio.run(start_again()).original_units == pytest.approx(own, nan_ok=True)


def test_a_run_over_the_network_has_the_figures_of_one_in_one_process() -> None:
    shops = Shops()
    node = Node("a", LiveSource(shops.make, RANGE, H), 0, 2)
    served = asyncio.run(serve(PLAN, [node]))[0]
    live = LiveFederation(lambda i: TableEnv(noise=0.5), 2, H, RANGE)
    alone = run(PLAN.algorithm, live, T, seed=0, progress=False)
    assert served.original_units == pytest.approx(alone.original_units, nan_ok=True)


def test_nodes_whose_rewards_have_other_units_are_refused() -> None:
    async def story() -> str:
        service = FederationServer(PLAN, None, None)
        serving = asyncio.ensure_future(service.run())
        shops, address = Shops(), reach(service)
        first = asyncio.ensure_future(run_node(Node("a", LiveSource(shops.make, RANGE, H), 0, 1), address))
        await service.registry.wait_until(lambda: "a" in service.registry.members, 30)
        with pytest.raises(RefusedError) as refused:
            await run_node(Node("b", LiveSource(shops.make, (-1.5, 4.0), H), 1, 1), address)
        good = run_node(Node("b", LiveSource(shops.make, RANGE, H), 1, 1), address)
        await asyncio.gather(serving, first, good)
        assert service.outcome().run.complete
        return str(refused.value)

    says = asyncio.run(asyncio.wait_for(story(), 300))
    assert "a step of 'b' pays -1.5 to 4, one of this run -1.5 to 3.5" in says
    assert "the same --reward-range" in says
