"""One open stream from the server's side: messages out, messages in, bytes counted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from fed_ucbvi.deployment.arrays import WireError
from fed_ucbvi.deployment.messages import Fault, Played, Report, Up, decode_up
from fed_ucbvi.deployment.packages import needed

with needed("grpcio"):
    import grpc  # type: ignore[import-untyped]

BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""What gRPC raises on a stream that has ended."""
FRAME = 5
"""Bytes gRPC puts before every message: a flag and its length."""
STALE = 16
"""So many late copies of earlier answers are passed over before a stream is given up."""


@dataclass
class WireCount:
    """Messages and bytes that really crossed the line, gRPC's own headers included, TLS and TCP not."""

    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class LinkLostError(Exception):
    """The stream is of no use any more; the node may open another."""


class Link:
    """A stream; ``prepared`` is the round whose start it has carried, ``stopped`` whether its stop too."""

    def __init__(self, context: Any, count: WireCount, peer: str) -> None:
        self._context, self._count, self.peer = context, count, peer
        self.closed = asyncio.Event()
        self.farewell = ""
        self.prepared, self.stopped = -1, False

    def close(self, reason: str = "") -> None:
        """Let go of the stream; what waits on it is woken."""
        self.farewell = self.farewell or reason
        self.closed.set()

    async def send(self, data: bytes) -> None:
        """Put one message on the stream."""
        if self.closed.is_set():
            raise LinkLostError(self.farewell or "the stream is closed")
        self._count.messages_down += 1
        self._count.bytes_down += len(data) + FRAME
        try:
            await self._context.write(data)
        except BROKEN as error:
            raise LinkLostError(f"cannot write: {error}") from error

    async def receive(self) -> Up:
        """The next message of the node; raises :class:`LinkLostError` where there is none or it is no message."""
        if self.closed.is_set():
            raise LinkLostError(self.farewell or "the stream is closed")
        try:
            data = await self._context.read()
        except BROKEN as error:
            raise LinkLostError(f"cannot read: {error}") from error
        if data is grpc.aio.EOF:
            raise LinkLostError("the node has gone")
        self._count.messages_up += 1
        self._count.bytes_up += len(data) + FRAME
        try:
            return decode_up(data)
        except WireError as error:
            raise LinkLostError(f"the node sent {error}") from error

    async def expect_played(self, round_number: int) -> Played:
        """The answer to a start or a continue."""
        for _ in range(STALE):
            message = await self._next()
            if isinstance(message, Played) and message.round == round_number:
                return message
            self._pass_over(message, (round_number, -1))
        raise LinkLostError("the node repeats itself")

    async def expect_report(self, round_number: int, exchange: int) -> Report:
        """The answer to a query."""
        for _ in range(STALE):
            message = await self._next()
            if isinstance(message, Report) and (message.round, message.exchange) == (round_number, exchange):
                return message
            self._pass_over(message, (round_number, exchange))
        raise LinkLostError("the node repeats itself")

    async def _next(self) -> Up:
        message = await self.receive()
        if isinstance(message, Fault):
            raise LinkLostError(f"the node cannot go on: {message.reason}")
        return message

    @staticmethod
    def _pass_over(message: Up, key: tuple[int, int]) -> None:
        """A copy of an earlier answer does no harm; anything else ends the stream."""
        if isinstance(message, Played | Report):
            exchange = message.exchange if isinstance(message, Report) else -1
            if (message.round, exchange) < key:
                return
            raise LinkLostError(
                f"an answer for round {message.round}, exchange {exchange}, where {key} was asked for"
            )
        raise LinkLostError(f"a {type(message).__name__} in the middle of a round")
