"""Who takes part: the server's list of nodes, their agents, how far each has come, and how the federation stands."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.messages import Ready
from fed_ucbvi.network.transport import WireCount
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from fed_ucbvi.network.node_stream import NodeStream

log = logging.getLogger("fed_ucbvi.federation")

HERE, AWAY, GONE, NEW, LEFT = "taking part", "away", "excluded", "joining", "left"


RECORDED = (
    *("name", "first_agent", "agents", "base", "episodes", "reported", "status"),
    *("confirmed", "roster", "missed", "missed_roster", "logged_episodes", "logged_steps"),
)
"""What a checkpoint keeps of a member as it is."""


@dataclass
class Member:
    """A node as the server knows it.

    Attributes:
        name: as in its certificate.
        first_agent: the number of its first agent.
        agents: how many it hosts.
        digest: of its problem, pinned when it first came.
        units: of its rewards.
        incarnation: identifies the node's process that is connected now.
        base: the last round in which its reports were used.
        episodes: how many episodes its agents have played in such rounds.
        reported: how many of them were in reports that were used.
        confirmed: the last round in which its report was used, under secure sums with the digest of its roster; -1 if
            it has logs that no report has brought yet.
        missed: a round in which it did not answer a roster, with the digest, until it has been asked for a denial.
        status: taking part, away (the others continue, it may come back), excluded, joining (it takes part from the
            next round on), or left (for good, by its own or the operator's wish).
        reports: the arrays of its last synchronisation, by exchange.
        stream: its open stream, if it has one.
        certificate: that its stream bears, under secure sums.
        ready: what it has signed for this round, likewise.
        before: episodes that it says it has counted in rounds that closed without it.
        logged_episodes, logged_steps: of its logs.
        latency: seconds from the last question to its answer; NaN before the first.
        kept: whether its status is on disk, where that matters to it.
        heard_end: whether it has been told that the run is over.
        wire: what its streams have carried since this server was started, without their first three messages.
    """

    name: str
    first_agent: int
    agents: int
    digest: bytes
    units: Units = field(default_factory=Units)
    incarnation: bytes = b""
    base: int = 0
    episodes: int = 0
    reported: int = 0
    status: str = HERE
    reports: dict[int, Message] = field(default_factory=dict)
    stream: NodeStream | None = None
    certificate: bytes = b""
    ready: Ready | None = None
    confirmed: int = 0
    roster: str = ""
    missed: int = 0
    missed_roster: str = ""
    before: int = 0
    logged_episodes: int = 0
    logged_steps: int = 0
    latency: float = math.nan
    kept: bool = True
    heard_end: bool = False
    wire: WireCount = field(default_factory=WireCount)

    @property
    def out(self) -> bool:
        """Whether it does not take part any more, for good."""
        return self.status in (GONE, LEFT)

    @property
    def span(self) -> range:
        return range(self.first_agent, self.first_agent + self.agents)

    @property
    def new_logs(self) -> int:
        """Steps of its logs that are in its next report."""
        return self.logged_steps if self.confirmed < 0 else 0

    @property
    def state(self) -> str:
        """In one word, for those who look on: :attr:`NodeStatus.state`."""
        if self.out:
            return self.status
        if self.heard_end:
            return "finished"
        return "present" if self.stream is not None and self.status != AWAY else "away"

    def record(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in RECORDED}
        return {**plain, "digest": self.digest.hex(), "units": asdict(self.units)}

    @classmethod
    def of(cls, record: dict[str, Any]) -> Member:
        return cls(**{**record, "digest": bytes.fromhex(record["digest"]), "units": Units(**record["units"])})


def describe_agents(span: range) -> str:
    return f"agent {span[0]}" if len(span) == 1 else f"agents {span[0]} to {span[-1]}"


class NodeRegistry:
    """All members and what their streams have carried; tells those who wait when nodes come or go."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.wire = WireCount()
        self._changed = asyncio.Condition()

    @property
    def everyone(self) -> list[Member]:
        """All members, in the order of their agents."""
        return sorted(self.members.values(), key=lambda member: member.first_agent)

    @property
    def active(self) -> list[Member]:
        """Members that are neither excluded nor have left, in the order of their agents."""
        return [member for member in self.everyone if not member.out]

    @property
    def present(self) -> list[Member]:
        """Members that take part, in the order of their agents."""
        return [member for member in self.everyone if member.status == HERE]

    @property
    def connected(self) -> int:
        return sum(member.stream is not None for member in self.members.values())

    @property
    def agents(self) -> int:
        return sum(member.agents for member in self.members.values())

    def complete(self, agents: int) -> bool:
        """Whether all agents have joined, except those of nodes that the others do without."""
        absent = any(member.stream is None for member in self.present)
        return self.agents == agents and self.connected > 0 and not absent

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for nodes to come or go until ``condition`` holds; False if it does not in time."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    async def give_up(self, member: Member, stream: NodeStream, reason: str) -> None:
        """Close a stream that is of no use any more."""
        stream.close(reason)
        if member.stream is stream:
            member.stream = None
            log.warning("%s: stream closed: %s", member.name, reason, extra={"node": member.name})
            await self.notify()

    async def part_with(self, member: Member, status: str, reason: str) -> None:
        """Continue without a node for good: it is excluded, or has left."""
        member.status = status
        if member.stream is not None:
            await self.give_up(member, member.stream, reason)
        await self.notify()

    async def keep(self) -> None:
        """What has become of the members is on disk."""
        for member in self.members.values():
            member.kept = True
        await self.notify()


class NodeStatus(NamedTuple):
    """One node, for the live page, for metrics, for a line on a terminal.

    Attributes:
        name: as in its certificate.
        first_agent: the number of its first agent.
        agents: how many it hosts.
        connected: whether it has an open stream.
        state: ``present`` (it takes part, or will from the next round on, and is connected), ``away``, ``excluded``,
            ``left`` (for good) or ``finished`` (it has heard of the end of the run).
        episodes: that its agents have played in rounds that count.
        latency: seconds from the last question to its answer; NaN before the first.
        wire: what its streams have carried since this server was started, without their first three messages.
    """

    name: str
    first_agent: int
    agents: int
    connected: bool
    state: str
    episodes: int
    latency: float
    wire: WireCount

    @classmethod
    def of(cls, member: Member) -> NodeStatus:
        m = member
        return cls(m.name, m.first_agent, m.agents, m.stream is not None, m.state, m.episodes, m.latency, m.wire)


class FederationStatus(NamedTuple):
    """A federation, likewise.

    Attributes:
        run: its identifier.
        secure_sums: whether summands are secret; then nothing about single nodes should be told to others.
        nodes: in the order of their agents.
        wire: what all streams have carried since this server was started.
        violations: how often a node has broken the rules since then.
        events: that were not planned, each with ``round``, ``node``, ``what`` and ``done``.
    """

    run: str
    secure_sums: bool
    nodes: tuple[NodeStatus, ...]
    wire: WireCount
    violations: int
    events: tuple[Mapping[str, Any], ...]
