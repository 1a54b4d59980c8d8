"""How a federation stands while it runs: what the server tells of rounds and of nodes."""

from __future__ import annotations

import asyncio
import math

import pytest

from fed_ucbvi import FedUCBVI, RoundRecord, run, synthetic
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.members import FederationStatus
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import FederationServer
from network import make_nodes, reach

pytestmark = pytest.mark.network

WORLD = synthetic(agents=4, eps_p=0.2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(nu=30)


def test_rounds_are_told_as_in_a_simulation_and_nodes_with_what_they_carried() -> None:
    told: list[RoundRecord] = []
    seen: list[FederationStatus] = []

    def look(coordinator: Coordinator) -> None:
        seen.append(coordinator.status())

    async def work() -> FederationServer:
        service = FederationServer(
            plan_for(ALGORITHM, WORLD, 40, seed=1), None, None, report=look, on_round=told.append
        )
        tasks = [run_node(node, reach(service)) for node in make_nodes(WORLD, (2, 2))]
        await asyncio.wait_for(asyncio.gather(service.run(), *tasks), 300)
        return service

    service = asyncio.run(work())
    expected: list[RoundRecord] = []
    run(ALGORITHM, WORLD, 40, seed=1, driver="episodes", on_round=expected.append)
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
        in_all = getattr(service.registry.wire, name)
        assert 0 < of_nodes < in_all, "the run's own count has the handshakes too"
