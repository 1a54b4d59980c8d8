"""One open stream from the server's side: messages out, messages in, bytes counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fed_ucbvi.network.arrays import DeltaCache, WireError
from fed_ucbvi.network.failures import ConnectionLostError, ViolationError
from fed_ucbvi.network.messages import (
    PART_BYTES,
    REWARDS_ALONE,
    Continue,
    Decline,
    Down,
    Fault,
    Part,
    Played,
    Query,
    Report,
    Roster,
    Start,
    Stop,
    ToMany,
    Up,
    decode_up,
    keep_taken,
)
from fed_ucbvi.network.transcript import NOBODY, Conversation, Transcript
from fed_ucbvi.network.transport import Connection, WireCount

FRAME = 5
"""Bytes gRPC puts before every message: a flag and its length."""
STALE = 16
"""How many late copies of earlier answers are ignored in a row; one more is a violation."""
PART_HEADER = 16
"""Bytes that a part may have beside its data."""
EPISODES = -1
"""Comes before the exchanges of a round."""

Answer = Played | Report | Decline


class NodeStream:
    """A stream, and what it has carried: the start of round ``prepared``, and that round's stop.

    What cannot be an answer of an honest node (no message, too long a one, one that was not asked for) is a
    violation; what breaks the stream is not. A message has at most ``most_bytes``, which is little until the node
    is let in.
    """

    def __init__(self, connection: Connection, count: WireCount, transcript: Transcript = NOBODY) -> None:
        self._connection, self.most_bytes = connection, PART_BYTES
        self.conversation = Conversation(transcript)
        self.counts = [count]
        """What this stream's messages are added to: the run's count, and once the node is let in also its own."""
        self.closed = asyncio.Event()
        self.farewell = ""
        self.prepared, self.stopped = -1, False
        self._sent, self._taken = DeltaCache(), DeltaCache()
        self._sending = asyncio.Lock()

    @property
    def certificate(self) -> bytes:
        return self._connection.certificate

    def close(self, reason: str = "") -> None:
        """Close the stream; what waits on it is woken."""
        self.farewell = self.farewell or reason
        self.closed.set()

    async def send(self, message: Down | ToMany) -> Down:
        """Put one message on the stream, after those that are being sent; the message itself."""
        many = message if isinstance(message, ToMany) else ToMany(message)
        async with self._sending:
            self._check_open()
            data = many.encode(self._sent)
            for count in self.counts:
                count.messages_down += 1
                count.bytes_down += len(data) + FRAME
            self.conversation.sent(many.message, data)
            await self.write(data)
            if isinstance(many.message, Start):
                self.prepared, self.stopped = many.message.round, False
            elif isinstance(many.message, Stop):
                self.stopped = True
            return many.message

    async def write(self, data: bytes) -> None:
        """Put bytes on the line, also if the stream is closed."""
        try:
            await self._connection.write(data)
        except BaseException:
            self.conversation.doubt(data)
            raise

    def _check_open(self) -> None:
        if self.closed.is_set():
            raise ConnectionLostError(self.farewell or "the stream is closed")

    async def receive(self) -> Up:
        """The next message of the node, put together if it comes in parts."""
        data = await self._read()
        for count in self.counts:
            count.messages_up += 1
        message = self._decoded(data)
        if not isinstance(message, Part):
            self.conversation.received(message, data)
            return message
        whole = bytearray(message.data)
        while message.more:
            if len(message.data) != PART_BYTES:
                raise ViolationError(f"it sent a part of {len(message.data)} bytes where {PART_BYTES} are due")
            self._check_size(len(whole) + 1, self.most_bytes)
            message = self._decoded(await self._read())
            if not isinstance(message, Part):
                raise ViolationError(f"it sent a {type(message).__name__} among the parts of another message")
            whole += message.data
        self._check_size(len(whole), self.most_bytes)
        put_together = self._decoded(bytes(whole))
        if isinstance(put_together, Part):
            raise ViolationError("it sent parts of parts")
        self.conversation.received(put_together, whole)
        return put_together

    async def _read(self) -> bytes:
        """What comes next on the line; nothing that a stream brings after it was closed counts."""
        self._check_open()
        data = await self._connection.read()
        self._check_open()
        for count in self.counts:
            count.bytes_up += len(data) + FRAME
        self._check_size(len(data), PART_BYTES + PART_HEADER)
        return data

    @staticmethod
    def _check_size(size: int, limit: int) -> None:
        if size > limit:
            raise ViolationError(f"it sent a message of {size} bytes or more, above the limit of {limit}")

    def _decoded(self, data: bytes) -> Up:
        try:
            return decode_up(data, self._taken)
        except WireError as error:
            self.conversation.received(None, data)
            raise ViolationError(f"it sent {str(error).rstrip('.')}") from error

    async def ask(self, messages: Iterable[Down | ToMany]) -> Answer | None:
        """Send messages one by one, each after the answer to the one before; the last answer."""
        answer = None
        for message in messages:
            match await self.send(message):
                case Start() | Continue() as play:
                    answer = await self.expect(play.round)
                case Query() as query:
                    answer = await self.expect(query.round, query.exchange)
                case Roster() as roster:
                    answer = await self.expect(roster.round, 0)
        return answer

    async def expect(self, round_number: int, exchange: int = EPISODES) -> Answer:
        """The answer to a start or a continue, or to a query.

        A few copies of earlier answers do no harm; anything else does not belong here.
        """
        key = round_number, exchange
        for _ in range(1 + STALE):
            message = await self.receive()
            if isinstance(message, Fault):
                raise ConnectionLostError(f"the node cannot continue: {message.reason}")
            if not isinstance(message, Answer):
                raise ViolationError(f"it sent a {type(message).__name__} in the middle of a round")
            found = message.round, EPISODES if isinstance(message, Played) else getattr(message, "exchange", 0)
            if found == key:
                keep_taken(message, self._taken)
                return message
            if _order(*found) > _order(*key):
                raise ViolationError(f"it answered {_describe(*found)} when asked for {_describe(*key)}")
        raise ViolationError(f"it sent {1 + STALE} copies of earlier answers where one of {_describe(*key)} was due")


def _order(round_number: int, exchange: int) -> tuple[int, int, int]:
    """By which answers of a stream follow each other: episodes, rewards alone, exchanges."""
    return round_number, (exchange != EPISODES) + (exchange not in (EPISODES, REWARDS_ALONE)), exchange


def _describe(round_number: int, exchange: int) -> str:
    return f"round {round_number}, {'episodes' if exchange == EPISODES else f'exchange {exchange}'}"
