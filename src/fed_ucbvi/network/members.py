"""Nodes as the server knows them: their streams, their agents, how far each has come, and how all of them stand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network import messages
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.failures import ConnectionLostError, ViolationError
from fed_ucbvi.network.transport import Connection, WireCount
from fed_ucbvi.problem.units import Units

HERE = "taking part"
AWAY = "away"
GONE = "excluded"
FRAME = 5
"""Bytes gRPC puts before every message: a flag and its length."""
STALE = 16
"""Largest number of late copies of earlier answers in a row that are ignored; one more is a violation."""
PART_HEADER = 16
"""Bytes that a part may have beside its data."""
EPISODES = -1
"""Comes before the exchanges of a round."""

Answer = messages.Played | messages.Ready | messages.Report | messages.Decline


class NodeStream:
    """A stream, and what it has carried: the start of round ``prepared``, and that round's stop and signature.

    What cannot be an answer of an honest node (no message, too long a one, one that was not asked for) is a
    violation; what breaks the stream is not. ``limits`` are the most bytes of a message by its kind; a message of
    another kind, and every message of a node that is not let in yet, has at most 64 KiB.
    ``certified`` is the name in its certificate, and its messages are added to ``counts``: the run's, and the node's
    own.
    """

    def __init__(self, connection: Connection, count: WireCount) -> None:
        self.connection = connection
        self.limits: Mapping[str, int] = {}
        self.counts = [count]
        self.certified: str | None = None
        self.closed = asyncio.Event()
        self.farewell = ""
        self.prepared = -1
        self.stopped = False
        self.signed = False
        self._sending = asyncio.Lock()

    def close(self, reason: str = "") -> None:
        self.farewell = self.farewell or reason
        self.closed.set()

    async def send(self, message: messages.Down | messages.ToMany) -> messages.Down:
        """Put one message on the stream, after those that are being sent; the message itself."""
        many = message if isinstance(message, messages.ToMany) else messages.ToMany(message)
        async with self._sending:
            self._check_open()
            data = many.data
            for count in self.counts:
                count.messages_down += 1
                count.bytes_down += len(data) + FRAME
            await self.connection.write(data)
            if isinstance(many.message, messages.Start):
                self.prepared = many.message.round
                self.stopped = False
                self.signed = False
            elif isinstance(many.message, messages.Stop):
                self.stopped = True
            return many.message

    def _check_open(self) -> None:
        if self.closed.is_set():
            raise ConnectionLostError(self.farewell or "the stream is closed")

    async def receive(self) -> messages.Up:
        """The next message of the node, put together if it comes in parts."""
        data = await self._read()
        for count in self.counts:
            count.messages_up += 1
        message = self._decoded(data)
        if not isinstance(message, messages.Part):
            return message
        whole = bytearray(message.data)
        limit = self.limits.get(messages.kind_of(message.data), messages.PART_BYTES)
        while message.more:
            if len(message.data) != messages.PART_BYTES:
                raise ViolationError(
                    f"it sent a part of {len(message.data)} bytes where {messages.PART_BYTES} are due"
                )
            self._check_size(len(whole) + 1, limit)
            message = self._decoded(await self._read())
            if not isinstance(message, messages.Part):
                raise ViolationError(f"it sent a {type(message).__name__} among the parts of another message")
            whole += message.data
        self._check_size(len(whole), limit)
        put_together = self._decoded(bytes(whole))
        if isinstance(put_together, messages.Part):
            raise ViolationError("it sent parts of parts")
        return put_together

    async def _read(self) -> bytes:
        """The next bytes on the line; nothing that arrives after the stream was closed counts."""
        self._check_open()
        data = await self.connection.read()
        self._check_open()
        for count in self.counts:
            count.bytes_up += len(data) + FRAME
        self._check_size(len(data), messages.PART_BYTES + PART_HEADER)
        return data

    @staticmethod
    def _check_size(size: int, limit: int) -> None:
        if size > limit:
            raise ViolationError(f"it sent a message of {size} bytes or more, above the limit of {limit}")

    def _decoded(self, data: bytes) -> messages.Up:
        try:
            return messages.decode_up(data)
        except WireError as error:
            raise ViolationError(f"it sent {str(error).rstrip('.')}") from error

    async def ask(self, script: Iterable[messages.Down | messages.ToMany]) -> Any:
        """Send the messages of a script one by one, each after the answer to the one before; the last answer."""
        answer: Answer | None = None
        for message in script:
            sent = await self.send(message)
            if isinstance(sent, messages.Start | messages.Continue):
                answer = await self.expect(sent.round)
            elif isinstance(sent, messages.Query | messages.Sign | messages.Roster):
                answer = await self.expect(sent.round, sent.exchange)
        return answer

    async def expect(self, round_number: int, exchange: int = EPISODES) -> Answer:
        """The answer to a start or a continue, or to a question; a few copies of earlier answers do no harm."""
        key = round_number, exchange
        for _ in range(1 + STALE):
            message = await self.receive()
            if isinstance(message, messages.Fault):
                raise ConnectionLostError(f"the node cannot continue: {message.reason}")
            if not isinstance(message, Answer):
                raise ViolationError(f"it sent a {type(message).__name__} in the middle of a round")
            answered = EPISODES if isinstance(message, messages.Played) else message.exchange
            found = message.round, answered
            if found == key:
                return message
            if _order(*found) > _order(*key):
                raise ViolationError(f"it answered {_describe(*found)} when asked for {_describe(*key)}")
        raise ViolationError(f"it sent {1 + STALE} copies of earlier answers where one of {_describe(*key)} was due")


FIRST_QUESTIONS = (messages.REWARDS_ALONE, messages.SIGNATURE)
"""Numbers of the questions that precede the exchanges of a round."""


def _order(round_number: int, exchange: int) -> tuple[int, int, int]:
    """Place of an answer on a stream: episodes, rewards alone or a signature, exchanges."""
    return round_number, (exchange != EPISODES) + (exchange not in (EPISODES, *FIRST_QUESTIONS)), exchange


def _describe(round_number: int, exchange: int) -> str:
    return f"round {round_number}, {'episodes' if exchange == EPISODES else f'exchange {exchange}'}"


RECORDED = (
    "name",
    "first_agent",
    "agents",
    "digest",
    "units",
    "base",
    "episodes",
    "status",
    "reported_round",
    "reported_episodes",
    "logged_episodes",
    "logged_steps",
)
"""Fields of a member that a checkpoint keeps."""


@dataclass
class Member:
    """A node as the server knows it.

    Attributes:
        digest: digest of its problem, pinned when it first came.
        incarnation: identifies the node's process that is connected now.
        base: the last round in which it took part.
        episodes: number of episodes that each of its agents has played up to the end of that round.
        reported_round: the last round in which a report of it was used; -1 if it has logs that no report has had.
        reported_episodes: number of episodes of each of its agents whose counts the server has.
        status: taking part, away (the others continue, it may come back), or excluded for good.
        reports: the arrays of its last synchronisation, by exchange.
        certificate: under secure sums, the certificate of its stream.
        before: number of episodes that it says it has counted in rounds that closed without it.
        latency: seconds from the last question to its answer; NaN before the first.
        heard_end: True once it has been sent the end of the run.
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
    reported_round: int = 0
    reported_episodes: int = 0
    status: str = HERE
    reports: dict[int, Message] = field(default_factory=dict)
    stream: NodeStream | None = None
    certificate: bytes = b""
    before: int = 0
    logged_episodes: int = 0
    logged_steps: int = 0
    latency: float = math.nan
    heard_end: bool = False
    wire: WireCount = field(default_factory=WireCount)

    @property
    def connected(self) -> bool:
        return self.stream is not None

    @property
    def span(self) -> range:
        return range(self.first_agent, self.first_agent + self.agents)

    @property
    def about(self) -> dict[str, str]:
        return {"node": self.name}

    @property
    def new_logs(self) -> int:
        """Number of steps of its logs that no report has had."""
        return self.logged_steps if self.reported_round < 0 else 0

    @property
    def state(self) -> str:
        """State in one word: ``present``, ``away``, ``excluded`` or ``finished``.

        A node is present if it is connected and takes part, and finished once it has received the end of the run.
        """
        if self.status == GONE:
            return self.status
        if self.heard_end:
            return "finished"
        return "present" if self.connected and self.status != AWAY else "away"

    def record(self) -> Any:
        """As JSON has it; msgspec makes it a member again."""
        return msgspec.to_builtins({name: getattr(self, name) for name in RECORDED})


def describe_agents(span: range) -> str:
    return f"agent {span[0]}" if len(span) == 1 else f"agents {span[0]} to {span[-1]}"


class FederationStatus(NamedTuple):
    """State of a federation for the live page, metrics, and a line on a terminal.

    Attributes:
        secure_sums: True if summands are secret; then nothing about single nodes should be shown to others.
        nodes: copies of what the server knows of them, in the order of their agents.
        wire: messages on all streams since this server was started, and their bytes before compression.
        violations: how often a node has broken the rules since then.
        events: that were not planned, each with ``round``, ``node``, ``what`` and ``done``.
    """

    run: str
    secure_sums: bool
    nodes: tuple[Member, ...]
    wire: WireCount
    violations: int
    events: tuple[Mapping[str, Any], ...]
