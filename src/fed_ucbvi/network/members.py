"""Who takes part: the server's list of nodes, their agents and how far each has come."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.messages import Seat
from fed_ucbvi.network.wire_count import WireCount
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from fed_ucbvi.network.node_stream import NodeStream

HERE, AWAY, GONE, NEW, LEFT = "taking part", "away", "excluded", "joining", "left"


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
        reported: how many of them were in reports of a synchronisation.
        status: taking part, away (the others continue, it may come back), excluded, joining (it takes part from the
            next round on), or left (for good, by its own or the operator's wish).
        reports: the arrays of its last synchronisation, by exchange.
        stream: its open stream, if it has one.
        seat: its entry in the roster of secure sums: the signed key of its present process.
        latency: seconds from the last question to its answer; NaN before the first.
        kept: whether its status is on disk, where that matters to it.
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
    seat: Seat | None = None
    latency: float = math.nan
    kept: bool = True
    wire: WireCount = field(default_factory=WireCount)

    @property
    def out(self) -> bool:
        """Whether it does not take part any more, for good."""
        return self.status in (GONE, LEFT)

    @property
    def span(self) -> range:
        """The numbers of its agents."""
        return range(self.first_agent, self.first_agent + self.agents)

    def record(self) -> dict[str, Any]:
        """What a checkpoint keeps besides arrays."""
        return {
            "name": self.name,
            "first_agent": self.first_agent,
            "agents": self.agents,
            "digest": self.digest.hex(),
            "units": asdict(self.units),
            "base": self.base,
            "episodes": self.episodes,
            "reported": self.reported,
            "status": self.status,
        }

    @classmethod
    def of(cls, record: dict[str, Any]) -> Member:
        """Read back what :meth:`record` gave."""
        read = {"digest": bytes.fromhex(record["digest"]), "units": Units(**record["units"])}
        return cls(**{**record, **read})
