"""Nodes with continuous environments: the server hands out the bins, and nobody plays with others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium
import houses
import numpy as np
import pytest
from msgspec.structs import replace

from commands import call
from fed_ucbvi import Bins, FedKLUCBVI, InputError, LiveFederation, Run, learn_bins, load_policy, make_finite, run
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.network.messages import Welcome, decode_down, encode
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.sources import LiveSource
from federation_processes import SERVER, Parties
from network import federate, make_nodes


@pytest.fixture(scope="module")
def bins() -> Bins:
    return learn_bins(
        houses.make(1),
        episodes=10,
        bins_per_dimension={"inside": 6, "outside": 2},
        actions_per_dimension=2,
        horizon=houses.STEPS,
    )


def plan(bins: Bins | None, episodes: int = 20, agents: int = 2, **rest: Any) -> RunPlan:
    sizes = (13, 2, houses.STEPS) if bins is None else (bins.states + 1, bins.number_of_actions, bins.horizon)
    setting = Setting(*sizes, agents, episodes, 0.0, 3)
    return RunPlan(FedKLUCBVI(), setting, collection="live", bins=bins, **rest)


def source(**rest: Any) -> LiveSource:
    return LiveSource(houses.make, None, name="houses", **rest)


def test_nodes_take_the_servers_bins_and_learn_what_they_learn_without_a_network(bins: Bins) -> None:
    """One node with all agents: nothing depends on timing, so the two runs are equal bit for bit."""
    over_the_network = federate(plan(bins), make_nodes(source(), [2])).run
    fleet = LiveFederation(lambda i: make_finite(houses.make(i), bins), 2, bins.horizon, bins.reward_range)
    alone = run(FedKLUCBVI(), fleet, 20, seed=3, progress=False)
    assert np.array_equal(over_the_network.policy, alone.policy)
    assert np.array_equal(over_the_network.V, alone.V)


def entered(task: RunPlan, node: Node) -> Any:
    """What a node answers to the server's welcome, as it comes over the wire."""
    welcome = decode_down(encode(task.welcome()))
    assert isinstance(welcome, Welcome)
    return node.enter(welcome)


def test_a_node_refuses_what_does_not_fit_the_servers_bins(bins: Bins) -> None:
    def refused(says: str, live: LiveSource, task: RunPlan) -> None:
        with pytest.raises(InputError, match=says):
            entered(task, Node("a", live, 0, 1))

    other = dataclasses.replace(bins, reward_range=(-9.0, 1.0))

    def own(agent: int) -> gymnasium.Env[Any, Any]:
        return make_finite(houses.make(agent), other)

    refused("only Discrete spaces can be tabulated", LiveSource(houses.make, (-9, 1)), plan(None))
    refused("reward_range is missing", source(horizon=houses.STEPS), plan(None))
    refused(r"bins are for episodes of 24 steps, this node's have 12", source(horizon=12), plan(bins))
    refused("leave out --reward-range", LiveSource(houses.make, (-9, 1)), plan(bins))
    refused("all nodes must use the same", LiveSource(own, None), plan(bins))
    refused("are for observations 'inside', 'outside'", LiveSource.of("FrozenLake-v1", reward_range=None), plan(bins))
    entered(plan(other), Node("a", LiveSource(own, None), 0, 1))


def test_bins_are_part_of_what_a_run_is(bins: Bins, tmp_path: Path) -> None:
    """A node that comes back, and a server that is started again, must have the same ones."""
    other = dataclasses.replace(bins, reward_range=(-9.0, 1.0))
    assert source().host(0, 1, bins).digest == source().host(0, 1, bins).digest
    assert source().host(0, 1, bins).digest != source().host(0, 1, other).digest
    node, task = Node("a", source(), 0, 1), plan(bins)
    entered(task, node)
    with pytest.raises(InputError, match="has changed the run"):
        entered(dataclasses.replace(task, bins=other), node)
    ServerCheckpoint(tmp_path / "kept", task).close()
    with pytest.raises(InputError, match="holds another run"):
        ServerCheckpoint(tmp_path / "kept", dataclasses.replace(task, bins=other))
    with pytest.raises(InputError, match="its bins make"):
        RunPlan(FedKLUCBVI(), Setting(9, 2, 24, 2, 5, 0.0, 0), collection="live", bins=bins)
    with pytest.raises(InputError, match="cannot play in lockstep"):
        RunPlan(FedKLUCBVI(), task.setting, bins=bins)


def test_a_servers_bins_are_read_with_suspicion(bins: Bins) -> None:
    welcome = plan(bins).welcome()
    for text, says in (
        (b"[]", "does not hold bins"),
        (welcome.bins[:-9], "is no JSON"),
        (welcome.bins.replace(b'"edges": [', b'"edges": [1e999, '), "must be a number"),
    ):
        with pytest.raises(InputError, match=says):
            Node("a", source(), 0, 1).enter(replace(welcome, bins=text))


@pytest.mark.slow
def test_two_houses_as_processes_with_learnt_bins(tmp_path: Path) -> None:
    """Learnt by one command, handed out by the server; the nodes know only how to make their environments."""
    file = tmp_path / "bins.json"
    told = call(
        *("bins", "houses:make", "--horizon", "24", "--bins", "2", "--bins-of", "inside=6", "--values", "2"),
        *("--episodes", "10", "--out", file, "--json"),
    )
    about = json.loads(told.stdout)
    assert (about["states"], about["actions"], about["horizon"]) == (13, 2, 24)
    assert Bins.load(file).digest == about["digest"]
    with Parties(tmp_path) as parties:
        parties.begin(
            *(SERVER, "serve", "--insecure", "--listen", "127.0.0.1:0", "--port-file", str(tmp_path / "port")),
            *("--bins", str(file), "--collection", "live", "--agents", "2", "--episodes", "6"),
            *("--algorithm", "fed-kl-ucbvi", "--out", str(tmp_path / "run"), "--json", "--quiet"),
        )
        for i in range(2):
            own = ("--name", f"house-{i}", "--first-agent", str(i), "--live", "houses:make")
            parties.begin(f"house-{i}", "join", parties.address, "--insecure", *own)
        parties.end()
    made = Run.load(tmp_path / "run")
    assert made.complete
    assert made.policy.shape == (24, 13)
    made.export_policy(tmp_path / "policy.json")
    policy = load_policy(tmp_path / "policy.json")
    kept = Bins.parse(json.dumps(policy.environment["bins"]))
    assert kept.digest == about["digest"]
    assert kept.reward_range == pytest.approx((policy.units.offset, policy.units.offset + policy.units.scale))
