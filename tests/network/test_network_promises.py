"""Incumbents and certified gaps over the network: the same as in simulation, and with real environments."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, Run, gridworld, run
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.engine.assurance import Promises
from fed_ucbvi.gymnasium_environments import TabularEnv
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.results.round_record import INCUMBENT
from network import assert_same, federate, make_nodes

ALGORITHM = FedKLUCBVI(stationary=True)
WORLD = gridworld(agents=4)
SIZES = WORLD.horizon, WORLD.states, WORLD.actions


def incumbent() -> IndexArray:
    """The best policy for half an episode."""
    policy = np.zeros(SIZES[:2], dtype=np.int32)
    policy[:6] = WORLD.common.solve().policy[:6]
    return policy


def promised(**asked: Any) -> Promises | None:
    wanted = {"incumbent": None, "loss": None, "until_gap": None, **asked}
    return Promises.of(wanted["incumbent"], wanted["loss"], wanted["until_gap"], SIZES)


@pytest.mark.parametrize("asked", [{"incumbent": incumbent(), "loss": 0.1}, {"until_gap": 1.5}])
def test_nodes_keep_the_promises_of_a_simulation_round_by_round(asked: dict[str, Any]) -> None:
    plan = plan_for(ALGORITHM, WORLD, 400, seed=3, promises=promised(**asked))
    nodes = make_nodes(WORLD, (1, 3))
    over_the_network = federate(plan, nodes).run
    expected = run(ALGORITHM, WORLD, 400, seed=3, driver="episodes", progress=False, **asked)
    assert_same(over_the_network, expected)
    assert expected.certificates
    for one, other in zip(over_the_network.certificates, expected.certificates, strict=True):
        assert one.at_least == other.at_least
        assert one.compared_with == other.compared_with
    for node in nodes:
        assert node.policy is not None
        assert node.policy.guarantee == over_the_network.certificate


def live_plan(**more: Any) -> tuple[RunPlan, list[Node]]:
    """Two nodes with real environments, which stop where the server's word reaches them."""
    setting = Setting(WORLD.states + 1, WORLD.actions, WORLD.horizon, 4, 60, 0.0, 5, eps_p_known=False)
    source = LiveSource(lambda agent: TabularEnv("gridworld", agent=agent, agents=4), (0.0, 1.0), WORLD.horizon)
    policy = np.concatenate([incumbent(), np.zeros((WORLD.horizon, 1), dtype=np.int32)], axis=1)
    promises = Promises.of(policy, 0.2, None, (WORLD.horizon, WORLD.states + 1, WORLD.actions))
    plan = RunPlan(ALGORITHM, setting, collection="live", promises=promises, **more)
    return plan, make_nodes(source, (2, 2))


def kept(result: Run) -> bool:
    """Whether no exploring round has ended with more cost than was allowed."""
    records = result.records
    return bool((records["cost"] <= records["allowed"] + 1e-9)[records["playing"] != INCUMBENT].all())


def test_real_environments_on_nodes_keep_the_promise() -> None:
    plan, nodes = live_plan()
    result = federate(plan, nodes).run
    assert result.complete
    assert set(result.records["playing"].tolist()) > {INCUMBENT}
    assert kept(result)


def test_a_server_resumes_with_the_promises_it_was_begun_with(tmp_path: Path) -> None:
    asked = {"incumbent": incumbent(), "loss": 0.1}
    plan = plan_for(ALGORITHM, WORLD, 100, seed=3, promises=promised(**asked))
    nodes = make_nodes(WORLD, (2, 2), tmp_path)
    checkpoint = ServerCheckpoint(tmp_path / "server")
    with closing(checkpoint):
        federate(checkpoint.adopt(plan), nodes, server_checkpoint=checkpoint)
    other = plan_for(ALGORITHM, WORLD, 300, seed=3)
    with pytest.raises(InputError, match="holds another run"):
        ServerCheckpoint(tmp_path / "server").adopt(other)
    longer = plan_for(ALGORITHM, WORLD, 300, seed=3, promises=promised(**asked))
    checkpoint = ServerCheckpoint(tmp_path / "server")
    with closing(checkpoint):
        nodes = make_nodes(WORLD, (2, 2), tmp_path)
        result = federate(checkpoint.adopt(longer), nodes, server_checkpoint=checkpoint).run
    assert result.episodes_played == 300
    assert kept(result)


def test_what_cannot_be_promised_over_the_network_is_refused() -> None:
    promises = promised(incumbent=incumbent())
    with pytest.raises(InputError, match="learns only from what its own policy plays"):
        plan_for(FedUCBVI(), WORLD, 10, promises=promises)
    with pytest.raises(InputError, match="leave out --secure-sums"):
        plan_for(ALGORITHM, WORLD, 10, promises=promises, secure_sums=True)
    nodes = [Node(f"node-{i}", lambda M: WORLD, 2 * i, 2, rewards=i == 0) for i in range(2)]
    with pytest.raises(InputError, match="some agents do not say"):
        federate(plan_for(ALGORITHM, WORLD, 10, promises=promises), nodes)
