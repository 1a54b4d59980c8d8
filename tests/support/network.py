"""A federation inside one process: a server and its nodes on one event loop, in memory or over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from fed_ucbvi import Federation, FedUCBVI, Run, run
from fed_ucbvi.algorithms.base import FleetTables, Message, Setting
from fed_ucbvi.engine import parts
from fed_ucbvi.engine.drivers.base import Fleet, RoundEnd, collect
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.checks import Expected
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import ConnectionEndedError, ConnectionLostError, RejectedError
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import decode_down, decode_up
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import FederationServer, Outcome
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.network.transport import Connection, RemoteServer, StreamHandler
from fed_ucbvi.specifications.fields import field_names

SECONDS = 300
"""Longest time of a story in seconds."""
LOOPBACK = "127.0.0.1:0"
TLSByName = Callable[[str], TLSFiles]
Problem = Federation | LiveSource
T = TypeVar("T")
HIDDEN = {
    "requests",
    "agent",
    "step",
    "state",
    "action",
    "rule",
    "messages_up",
    "bytes_up",
    "regret",
}
"""Columns about requests, which secure sums hide, or not in full; and what the server does not know."""


def make_nodes(
    problem: Problem,
    split: Sequence[int],
    folder: Path | None = None,
    kind: Callable[..., Any] = Node,
    **options: Any,
) -> list[Any]:
    """Nodes ``node-0``, ``node-1``, ... that host so many agents each."""
    source = problem if isinstance(problem, LiveSource) else lambda M: problem
    nodes = []
    first = 0
    for number, agents in enumerate(split):
        name = f"node-{number}"
        own = {"terms": NodeTerms(send_trajectories=True), **options}
        nodes.append(
            kind(
                name,
                source,
                first,
                agents,
                None if folder is None else folder / name,
                **own,
            )
        )
        first += agents
    return nodes


def live_plan_of(algorithm: Any, setting: Setting, **rest: Any) -> RunPlan:
    """A plan of a live collection; ``rest`` are fields of the plan or of its rules."""
    rules = {name: value for name, value in rest.items() if name in field_names(FederationRules)}
    others = {name: value for name, value in rest.items() if name not in rules}
    return RunPlan(algorithm, setting, rules=FederationRules(collection="live", **rules), **others)


def live_plan(agents: int, episodes: int) -> RunPlan:
    """A live plan of agents in a :class:`gymnasium_problems.TableEnv`, whose rewards depend on the next state."""
    setting = Setting(4, 2, 4, agents, episodes, 0.0, 0, random_rewards=True)
    return live_plan_of(FedUCBVI(synchronisation="local"), setting)


def first_broadcast(plan: RunPlan) -> Message:
    """Message of a server in the first round."""
    server = plan.algorithm.new_server(plan.setting)
    return tuple(np.array(array) for array in plan.algorithm.broadcast(server))


def part_of(world: Federation, agents: int) -> Federation:
    """The first agents of a federation, with the same common MDP."""
    return replace(
        parts.part_of(world, 0, agents),
        description={**world.description, "agents": agents},
    )


def told_episodes(node: Node, report: Message | None = None) -> int:
    """Number of episodes of the transitions in a report of new counts; by default in the next one."""
    transitions = (node._reports.counts(with_logs=False) if report is None else report)[0]
    return int(transitions.sum()) // node._plan.setting.horizon


def check_report(report: Message, member: Member, length: int, expected: Expected) -> None:
    """Raise unless a node's report after a round of ``length`` episodes has its form and can be true."""
    expected.check_forms(report, member)
    expected.check_reports({member.name: report}, {member.name: member}, {member.name: length})


# --------------------------------------------------------------------------------------------------------- transport


class _MemoryEnd:
    """One end of a stream inside one process, without sockets or TLS."""

    def __init__(self, peer: str, certificate: bytes) -> None:
        self.peer = peer
        self.certificate = certificate
        self._arriving: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: _MemoryEnd
        self.closed = asyncio.Event()

    async def read(self) -> bytes:
        data = None if self.closed.is_set() else await self._arriving.get()
        if data is None:
            self.closed.set()
            raise ConnectionEndedError("the other side has closed the stream")
        return data

    async def write(self, data: bytes) -> None:
        if self.closed.is_set() or self.other.closed.is_set():
            raise ConnectionLostError("the stream is closed")
        self.other._arriving.put_nowait(data)

    def end(self) -> None:
        """End the stream; the other side still reads what has been written."""
        self.other._arriving.put_nowait(None)
        self.closed.set()


class InMemoryServer(RemoteServer):
    """A server in this very process, without sockets or TLS; a node shows its certificate all the same."""

    def __init__(self, server: StreamHandler, tls_files: TLSFiles | None = None) -> None:
        super().__init__("localhost:0", tls_files)
        self.server = server

    @asynccontextmanager
    async def connect(self, *, compressed: bool = True) -> AsyncIterator[Connection]:
        if self.tls_files is None:
            certificate = b""
        else:
            certificate = self.tls_files.read()[1]
        own = _MemoryEnd(self.address, b"")
        other = _MemoryEnd("here", certificate)
        own.other = other
        other.other = own
        session = asyncio.ensure_future(self._serve(other))
        try:
            yield own
        finally:
            own.end()
            session.cancel()
            await asyncio.wait([session])  # whoever cancels the node meanwhile is not missed
            if not session.cancelled() and (error := session.exception()) is not None:
                raise error

    async def _serve(self, end: _MemoryEnd) -> None:
        try:
            await self.server.session(end)
        finally:
            end.end()

    async def policy(self) -> bytes:
        try:
            return await self.server.policy(b"" if self.tls_files is None else self.tls_files.read()[1])
        except RejectedError as refused:
            raise ConnectionLostError(str(refused)) from refused


# ------------------------------------------------------------------------------------------------------- federations


def tell(story: Coroutine[Any, Any, T], seconds: float = SECONDS) -> T:
    """Run a story to its end, or fail."""
    return asyncio.run(asyncio.wait_for(story, seconds))


class Served:
    """A server and its nodes on one event loop, in memory, or over loopback if there is an ``address``.

    As a context manager it begins to run at once, and is stopped at the end.

    Args:
        plan: the run.
        folder: of its checkpoint, if it has one.
        tls_files: of server and nodes, by name.
        address: where to listen.
        options: further ones of the server.
    """

    def __init__(
        self,
        plan: RunPlan,
        folder: Path | None = None,
        tls_files: TLSByName | None = None,
        address: str | None = None,
        **options: Any,
    ) -> None:
        self._tls_files = tls_files
        self.joined: list[asyncio.Future[Any]] = []
        self.restart(plan, folder, address, **options)

    def restart(
        self,
        plan: RunPlan,
        folder: Path | None,
        address: str | None = None,
        **options: Any,
    ) -> None:
        """A server takes the place of one that has ended, and its nodes find it where that was."""
        own = None if self._tls_files is None else self._tls_files("server")
        self.server = FederationServer(plan, address, own, checkpoint=folder, **options)
        self.coordinator, self.registry = self.server.coordinator, self.server.registry
        self._serving: asyncio.Future[Outcome] | None = None

    async def session(self, connection: Connection) -> None:
        await self.server.session(connection)

    async def policy(self, certificate: bytes) -> bytes:
        return await self.server.policy(certificate)

    def remote(self, name: str = "") -> RemoteServer:
        """Address under which the node of this name reaches it."""
        own = None if self._tls_files is None else self._tls_files(name)
        if self.server.port:
            return RemoteServer(f"127.0.0.1:{self.server.port}", own)
        return InMemoryServer(self, own)

    def join(self, *nodes: Node, **options: Any) -> list[asyncio.Future[Any]]:
        return self.begin(*(run_node(node, self.remote(node.name), **options) for node in nodes))

    def begin(self, *stories: Coroutine[Any, Any, Any]) -> list[asyncio.Future[Any]]:
        """Begin what must have ended before the end of the run is told."""
        begun: list[asyncio.Future[Any]] = [asyncio.ensure_future(story) for story in stories]
        self.joined += begun
        return begun

    def start(self) -> asyncio.Future[Outcome]:
        self._serving = self._serving or asyncio.ensure_future(self.server.run())
        return self._serving

    async def reach(self, number: int) -> None:
        self.start()
        while self.coordinator.round < number:
            await asyncio.sleep(0)

    async def meet(self, nodes: int = 1) -> None:
        self.start()
        while self.registry.connected < nodes:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    async def finish(self) -> Outcome:
        """Run to the end, which all nodes hear."""
        outcome = await self.start()
        await asyncio.gather(*self.joined)
        return outcome

    async def finish_after(self, death: type[Exception], plan: RunPlan, folder: Path) -> Outcome:
        """Run to the end, each time that the server dies with another one from its checkpoint."""
        while True:
            with suppress(death):
                return await self.finish()
            self.restart(plan, folder)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


def federate(
    plan: RunPlan,
    nodes: Sequence[Node],
    tls_files: TLSByName | None = None,
    folder: Path | None = None,
    address: str | None = None,
    **options: Any,
) -> Outcome:
    """Run to the end with these nodes; the other arguments are those of :class:`Served`."""

    async def story() -> Outcome:
        served = Served(plan, folder, tls_files, address, **options)
        served.join(*nodes)
        return await served.finish()

    return tell(story())


def assert_same(one: Run, expected: Run, *unknown: str, regret: bool = True, secure: bool = False) -> None:
    """Equal policies, values, gaps, rounds, counts, bytes and regret, bit for bit; and rewards, but for rounding.

    Columns that the server does not know are left out. With ``secure`` sums it learns that somebody made a request,
    and no more.
    """
    assert one.complete
    assert expected.complete
    assert one.policy_kind == expected.policy_kind
    hidden = {*unknown, *(HIDDEN if secure else () if regret else ("regret",))}
    for name in {
        "policy",
        "exploring_policy",
        "V",
        "value",
        "estimated_value",
    } - hidden:
        np.testing.assert_array_equal(getattr(one, name), getattr(expected, name), name)
    for name in expected.recommendations.keys() - hidden:
        np.testing.assert_array_equal(one.recommendations[name], expected.recommendations[name], name)
    assert one.records.keys() == expected.records.keys()
    for name in expected.records.keys() - hidden - {"reward"}:
        np.testing.assert_array_equal(one.records[name], expected.records[name], name)
    # nodes report rewards on a grid
    np.testing.assert_allclose(one.records["reward"], expected.records["reward"], rtol=1e-9)
    if secure:
        assert np.array_equal(one.records["requests"], expected.records["requests"] > 0)
        assert all((one.records[name] == -1).all() for name in ("agent", "step", "state", "action", "rule"))


def assert_simulation(outcome: Outcome, plan: RunPlan, *, secure: bool = False) -> None:
    """It is the simulation of what was planned, and nothing has happened to the nodes."""
    setting = plan.setting
    world = plan.federation
    assert world is not None
    simulated = run(
        plan.algorithm,
        world,
        setting.episodes,
        seed=setting.seed,
        driver="episodes",
        progress=False,
    )
    added_alike = plan.algorithm.grid(plan.setting) is not None and world.pay_alike and len(world.rewards) == 1
    fixed = bool((world.initial == 1).any(axis=-1).all())
    assert_same(outcome.run, simulated, regret=added_alike or fixed, secure=secure)
    if not secure:
        np.testing.assert_allclose(
            outcome.run.records["regret"],
            simulated.records["regret"],
            rtol=1e-9,
            atol=1e-12,
        )
    assert outcome.events == []


def assert_simulated(algorithm: Any, world: Federation, episodes: int, seed: int, split: Sequence[int]) -> Outcome:
    """A federation of nodes with so many agents each is the simulation."""
    plan = plan_for(algorithm, world, episodes, seed=seed)
    outcome = federate(plan, make_nodes(world, split))
    assert_simulation(outcome, plan)
    return outcome


def played_by_hand(algorithm: Any, world: Federation, setting: Setting, playing: Sequence[int]) -> tuple[Any, ...]:
    """Rounds of some agents of a federation: how they ended, and the server.

    Every agent keeps its own counts and plays alone; the earliest request ends the round for all.
    """
    alone = {i: parts.part_of(world, i, 1) for i in playing}
    fleets = {i: Fleet.of(alone[i], setting.seed, i, counting=algorithm.counting) for i in playing}
    drivers = {i: EpisodesDriver(fleets[i]) for i in playing}
    server = algorithm.new_server(setting)
    agents = {
        i: algorithm.new_agents(setting, FleetTables(1, world.successors, alone[i].rewards, i)) for i in playing
    }
    rounds: list[RoundEnd] = []
    played = 0
    while played < setting.episodes:
        left = setting.episodes - played
        broadcast = algorithm.broadcast(server)
        budgets = {i: algorithm.budgets(agents[i], broadcast) for i in playing}
        stops = {i: collect(drivers[i], broadcast[0], budgets[i], played, left) for i in playing}
        length = min([stop.length for stop in stops.values() if stop.requests], default=left)
        requesting = [stop for stop in stops.values() if stop.requests and stop.length == length]
        for i in playing:
            never = budgets[i]._replace(limits=np.full_like(budgets[i].limits, 2**60))
            collect(drivers[i], broadcast[0], never, played, length)
            algorithm.absorb(agents[i], broadcast[0], drivers[i].transitions, drivers[i].visits)
        played += length
        first = requesting[0] if requesting else RoundEnd(length)
        rounds.append(first._replace(requests=len(requesting)))
        for exchange in range(algorithm.message_sizes(setting).exchanges if requesting else 0):
            query = algorithm.query(server, exchange)
            rows = [algorithm.report(agents[i], query, exchange) for i in playing]
            whole = tuple(np.concatenate(each) for each in zip(*rows, strict=True))
            algorithm.aggregate(server, whole, exchange)
    return rounds, server


def assert_run_of_the_others(result: Run, plan: RunPlan) -> None:
    """As played out by hand by all agents but the first."""
    setting = plan.setting
    world = plan.federation
    assert world is not None
    others = range(1, world.agents)
    rounds, server = played_by_hand(plan.algorithm, world, setting, others)
    for name in ("length", "requests", "agent", "step", "state"):
        assert result.records[name].tolist() == [getattr(stop, name) for stop in rounds]
    assert np.array_equal(result.exploring_policy, server.policy)
    assert np.array_equal(result.V, server.V)
    assert (result.records["agent_episodes"] == len(others) * result.records["length"]).all()


class Tap:
    """Listens to every stream that nodes open in memory: what goes up and what comes down, in order, by node."""

    def __init__(self, monkeypatch: Any) -> None:
        self.up: list[tuple[int, bytes]] = []
        """Number of the stream, and bytes."""
        self.down: list[tuple[int, bytes]] = []
        write = _MemoryEnd.write
        streams = list[_MemoryEnd]()

        async def said(end: _MemoryEnd, data: bytes) -> None:
            number = next(
                (i for i, own in enumerate(streams) if own in (end, end.other)),
                len(streams),
            )
            if number == len(streams):
                streams.append(end)  # a node speaks first
            (self.up if end is streams[number] else self.down).append((number, data))
            await write(end, data)

        monkeypatch.setattr(_MemoryEnd, "write", said)

    def messages(self, *, up: bool = True) -> Iterator[tuple[int, Any, bytes]]:
        """Messages up, or down: the number of the stream, the message and its bytes."""
        decode: Any = decode_up if up else decode_down
        for stream, data in self.up if up else self.down:
            yield stream, decode(data), data
