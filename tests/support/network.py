"""A federation inside one process: a server and its nodes on one event loop, in memory or over loopback."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi import Federation, Run
from fed_ucbvi.algorithms.base import FleetTables, Message
from fed_ucbvi.engine.drivers.base import Fleet, collect
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.messages import Down, Up
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server import FederationServer, Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.network.transport import Connection, Remote, RemoteServer
from fed_ucbvi.results.round_record import OnRound
from in_memory import InMemoryServer

ASKED = {"requests", "agent", "step", "state", "action", "rule", "messages_up", "bytes_up", "regret"}
"""Columns about requests, which secure sums hide, or not in full; and what the server does not know."""


def make_nodes(
    problem: Federation | LiveSource, split: Sequence[int], folder: Path | None = None, *, trajectories: bool = True
) -> list[Node]:
    """Nodes ``node-0``, ``node-1``, ... that host so many agents each."""
    source = problem if isinstance(problem, LiveSource) else lambda M: problem
    nodes, first = [], 0
    for number, agents in enumerate(split):
        name = f"node-{number}"
        state = None if folder is None else folder / name
        nodes.append(Node(name, source, first, agents, state, trajectories=trajectories))
        first += agents
    return nodes


def part_of(world: Federation, agents: int) -> Federation:
    """The first agents of a federation, with the same common MDP."""
    rewards = world.rewards if len(world.rewards) == 1 else world.rewards[:agents]
    description = {**world.description, "agents": agents}
    return replace(
        world,
        probabilities=world.probabilities[:agents],
        rewards=rewards,
        initial=world.initial[:agents],
        description=description,
    )


def told_episodes(node: Node, report: Message | None = None) -> int:
    """How many episodes the transitions in a report of what is new are those of; by default in the next one."""
    transitions = (node._own_report((), 0) if report is None else report)[0]
    return int(transitions.sum()) // node._plan.setting.horizon


def reach(server: FederationServer, tls_files: TLSFiles | None = None) -> InMemoryServer:
    """How a node reaches a server in memory; another server may take the place of one that has died."""
    return InMemoryServer(server, tls_files)


async def federate_async(
    plan: RunPlan,
    nodes: Sequence[Node],
    tls_files: Callable[[str], TLSFiles] | None = None,
    server_checkpoint: ServerCheckpoint | None = None,
    on_round: OnRound | None = None,
    *,
    in_memory: bool = True,
) -> Outcome:
    """Run to the end, without sockets unless that is the point."""
    server = FederationServer(
        plan,
        None if in_memory else "127.0.0.1:0",
        None if tls_files is None else tls_files("server"),
        server_checkpoint=server_checkpoint,
        on_round=on_round,
    )
    tasks = []
    for node in nodes:
        own = None if tls_files is None else tls_files(node.name)
        reached = reach(server, own) if in_memory else RemoteServer(f"127.0.0.1:{server.port}", own)
        tasks.append(asyncio.ensure_future(run_node(node, reached)))
    try:
        outcome = await server.run()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return outcome


def federate(
    plan: RunPlan,
    nodes: Sequence[Node],
    tls_files: Callable[[str], TLSFiles] | None = None,
    server_checkpoint: ServerCheckpoint | None = None,
    on_round: OnRound | None = None,
    *,
    in_memory: bool = True,
) -> Outcome:
    """Run to the end, in two minutes at most."""
    run = federate_async(plan, nodes, tls_files, server_checkpoint, on_round, in_memory=in_memory)
    return asyncio.run(asyncio.wait_for(run, 300))


def assert_same(run: Run, expected: Run, *, regret: bool = True) -> None:
    """Equal policies, values, gaps, rounds, counts, bytes and, where all start in one state, regret, bit for bit."""
    assert np.array_equal(run.policy, expected.policy)
    assert run.policy_kind == expected.policy_kind
    assert np.array_equal(run.exploring_policy, expected.exploring_policy)
    for name, column in expected.recommendations.items():
        assert np.array_equal(run.recommendations[name], column, equal_nan=True), name
    np.testing.assert_equal(run.estimated_value, expected.estimated_value)
    assert np.array_equal(run.V, expected.V)
    assert run.complete
    assert expected.complete
    assert run.value == expected.value
    assert run.records.keys() == expected.records.keys()
    for name, column in expected.records.items():
        if name in ("reward", "cost", "allowed"):  # nodes report rewards on a grid
            np.testing.assert_allclose(run.records[name], column, rtol=1e-9, atol=1e-6)
        elif name != "regret" or regret:
            assert np.array_equal(run.records[name], column, equal_nan=True), name


def assert_same_but_for_requests(one: Run, expected: Run) -> None:
    """As :func:`assert_same`, for secure sums: the server learns that somebody asked, and no more."""
    assert one.complete
    for name in ("policy", "exploring_policy", "V"):
        assert np.array_equal(getattr(one, name), getattr(expected, name))
    for name, column in expected.recommendations.items():
        assert np.array_equal(one.recommendations[name], column, equal_nan=True), name
    for name, column in expected.records.items():
        if name == "reward":
            np.testing.assert_allclose(one.records[name], column, rtol=1e-9)
        elif name not in ASKED:
            assert np.array_equal(one.records[name], column, equal_nan=True), name
    asked = expected.records["requests"] > 0
    assert np.array_equal(one.records["requests"], asked)
    for name in ("agent", "step", "state", "action", "rule"):
        assert (one.records[name] == -1).all()


def assert_run_without_the_first_agent(run: Run, plan: RunPlan, *, requests: bool = True) -> None:
    """As played out by hand by all agents but the first, for algorithms with a local rule and weights by counts.

    ``requests`` says whether the server knows who asked, and where.
    """
    algorithm, setting, world = plan.algorithm, plan.setting, plan.federation
    assert world is not None
    others = world.agents - 1
    own = world.probabilities[1:], world.initial[1:]
    tables = (world.successors, *own)
    fleet = Fleet(*tables, world.horizon, setting.seed, first_agent=1, counting=algorithm.counting)
    driver = EpisodesDriver(fleet)
    server = algorithm.new_server(setting)
    agents = algorithm.new_agents(setting, FleetTables(others, world.successors, world.rewards, 1))
    rows, played = [], 0
    while played < setting.episodes:
        broadcast = algorithm.broadcast(server)
        budgets = algorithm.budgets(agents, broadcast)
        stop = collect(driver, broadcast[0], budgets, played, setting.episodes - played)
        algorithm.absorb(agents, broadcast[0], driver.transitions, driver.visits)
        played += stop.length
        rows.append(stop)
        if stop.requests:
            algorithm.synchronise(server, agents)
    for name in ("length", "requests", "agent", "step", "state") if requests else ("length",):
        assert run.records[name].tolist() == [getattr(stop, name) for stop in rows]
    assert np.array_equal(run.exploring_policy, server.policy)
    assert np.array_equal(run.V, server.V)
    assert (run.records["agent_episodes"] == others * run.records["length"]).all()


class CrashError(Exception):
    """The process dies here."""


class Fragile(Node):
    """A node that dies when it is about to give its ``dies_at``-th answer, or just after it has worked it out."""

    dies_at = -1
    after = False
    answers = 0

    def answer(self, message: Down) -> Up | None:
        self.answers += 1
        if self.answers == self.dies_at and not self.after:
            raise CrashError
        answer = super().answer(message)
        if self.answers == self.dies_at:
            raise CrashError
        return answer


async def keep_alive(make: Callable[[], Node], server: Remote) -> Node:
    """Start a node again, from its state folder, whenever it dies."""
    while True:
        node = make()
        try:
            await run_node(node, server)
        except CrashError:
            continue
        return node


class Tap:
    """Listens to every stream that nodes open in memory: what goes up and what comes down, in order, by node."""

    def __init__(self, monkeypatch: Any) -> None:
        self.up: list[tuple[int, bytes]] = []
        """Number of the stream, and bytes."""
        self.down: list[tuple[int, bytes]] = []
        streams, opened, tap = itertools.count(), InMemoryServer.connect, self

        class Tapped:
            def __init__(self, connection: Connection) -> None:
                self._connection, self._number = connection, next(streams)

            async def write(self, data: bytes) -> None:
                tap.up.append((self._number, data))
                await self._connection.write(data)

            async def read(self) -> bytes:
                data = await self._connection.read()
                tap.down.append((self._number, data))
                return data

            def __getattr__(self, name: str) -> Any:
                return getattr(self._connection, name)

        @asynccontextmanager
        async def connect(server: InMemoryServer) -> AsyncIterator[Tapped]:
            async with opened(server) as connection:
                yield Tapped(connection)

        monkeypatch.setattr(InMemoryServer, "connect", connect)
