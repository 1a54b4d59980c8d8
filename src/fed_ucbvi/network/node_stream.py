"""One open stream from the server's side: messages out, messages in, bytes counted."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.copies import Copies
from fed_ucbvi.network.messages import (
    PART_BYTES,
    REWARDS_ALONE,
    Down,
    Fault,
    Part,
    Played,
    Report,
    ToMany,
    Up,
    decode_up,
    encode,
    keep_taken,
)
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.violation import ViolationError
from fed_ucbvi.network.wire_count import WireCount

with needed("grpcio"):
    import grpc  # type: ignore[import-untyped]

BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""What gRPC raises on a stream that has ended."""
FRAME = 5
"""Bytes gRPC puts before every message: a flag and its length."""
STALE = 16
"""How many late copies of earlier answers are ignored in a row; one more is a violation."""
PART_HEADER = 16
"""Bytes that a part may have beside its data."""
EPISODES = -1
"""Comes before the exchanges of a round."""


class StreamLostError(Exception):
    """The stream is of no use any more; the node may open another."""


class StreamEndedError(StreamLostError):
    """The stream ended without a word: a process died, a line was cut, or gRPC cut off far too long a message."""


class NodeStream:
    """A stream; ``prepared`` is the round whose start it has carried, ``stopped`` whether its stop too.

    ``roster`` is the fingerprint of the last roster it has carried.

    What cannot be an answer of an honest node (no message, too long a one, one that was not asked for) is a
    violation; what breaks the stream is not. A message has at most ``most_bytes``, which is little until the node
    is let in.
    """

    def __init__(self, context: Any, count: WireCount) -> None:
        self._context, self.most_bytes = context, PART_BYTES
        self.counts = [count]
        """What this stream's messages are added to: the run's count, and once the node is let in also its own."""
        self.closed = asyncio.Event()
        self.farewell = ""
        self.prepared, self.stopped, self.roster = -1, False, b""
        self._sent, self._taken = Copies(), Copies()

    def close(self, reason: str = "") -> None:
        """Let go of the stream; what waits on it is woken."""
        self.farewell = self.farewell or reason
        self.closed.set()

    async def send(self, message: Down | ToMany) -> None:
        """Put one message on the stream."""
        if self.closed.is_set():
            raise StreamLostError(self.farewell or "the stream is closed")
        data = message.encode(self._sent) if isinstance(message, ToMany) else encode(message, self._sent)
        for count in self.counts:
            count.messages_down += 1
            count.bytes_down += len(data) + FRAME
        try:
            await self._context.write(data)
        except BROKEN as error:
            raise StreamLostError(f"cannot write: {error}") from error

    async def receive(self) -> Up:
        """The next message of the node, put together if it comes in parts."""
        data = await self._read()
        for count in self.counts:
            count.messages_up += 1
        message = self._decoded(data)
        if not isinstance(message, Part):
            return message
        parts, size = [message], len(message.data)
        while message.more:
            if len(message.data) != PART_BYTES:
                raise ViolationError(f"it sent a part of {len(message.data)} bytes where {PART_BYTES} are due")
            self._check_size(size + 1)
            message = self._decoded(await self._read())
            if not isinstance(message, Part):
                raise ViolationError(f"it sent a {type(message).__name__} among the parts of another message")
            parts.append(message)
            size += len(message.data)
        self._check_size(size)
        whole = self._decoded(b"".join(part.data for part in parts))
        if isinstance(whole, Part):
            raise ViolationError("it sent parts of parts")
        return whole

    async def _read(self) -> bytes:
        """What comes next on the line; nothing that a stream brings after it was closed counts."""
        try:
            data = None if self.closed.is_set() else await self._context.read()
        except BROKEN as error:
            raise StreamLostError(f"cannot read: {error}") from error
        if data is None or self.closed.is_set():
            raise StreamLostError(self.farewell or "the stream is closed")
        if data is grpc.aio.EOF:
            raise StreamEndedError("the stream has ended; the node has gone, or sent what gRPC does not let through")
        for count in self.counts:
            count.bytes_up += len(data) + FRAME
        self._check_size(len(data), PART_BYTES + PART_HEADER)
        return cast(bytes, data)

    def _check_size(self, size: int, limit: int | None = None) -> None:
        limit = self.most_bytes if limit is None else limit
        if size > limit:
            raise ViolationError(f"it sent a message of {size} bytes or more, above the limit of {limit}")

    def _decoded(self, data: bytes) -> Up:
        try:
            return decode_up(data, self._taken)
        except WireError as error:
            raise ViolationError(f"it sent {str(error).rstrip('.')}") from error

    async def expect_played(self, round_number: int) -> Played:
        """The answer to a start or a continue."""
        return cast(Played, await self._answer((round_number, EPISODES)))

    async def expect_report(self, round_number: int, exchange: int) -> Report:
        """The answer to a query."""
        return cast(Report, await self._answer((round_number, exchange)))

    async def _answer(self, key: tuple[int, int]) -> Played | Report:
        """The answer with this key; a few copies of earlier ones do no harm, anything else does not belong here."""
        for _ in range(1 + STALE):
            message = await self.receive()
            if isinstance(message, Report):
                found = message.round, message.exchange
            elif isinstance(message, Played):
                found = message.round, EPISODES
            elif isinstance(message, Fault):
                raise StreamLostError(f"the node cannot go on: {message.reason}")
            else:
                raise ViolationError(f"it sent a {type(message).__name__} in the middle of a round")
            if found == key:
                keep_taken(message, self._taken)
                return message
            if _order(*found) > _order(*key):
                raise ViolationError(f"it answered {_place(*found)} when asked for {_place(*key)}")
        raise ViolationError(f"it sent {1 + STALE} copies of earlier answers where one of {_place(*key)} was due")


def _order(round_number: int, exchange: int) -> tuple[int, int, int]:
    """By which answers of a stream follow each other: episodes, rewards alone, exchanges."""
    return round_number, (exchange != EPISODES) + (exchange not in (EPISODES, REWARDS_ALONE)), exchange


def _place(round_number: int, exchange: int) -> str:
    return f"round {round_number}, {'episodes' if exchange == EPISODES else f'exchange {exchange}'}"
