"""A node's side of the wire: connect, say hello, answer, and come back when the connection is lost."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.lock import FolderLock
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.copies import Copies
from fed_ucbvi.network.messages import (
    PROTOCOL,
    Fault,
    Hello,
    Refusal,
    Start,
    Welcome,
    decode_down,
    encode,
    keep_taken,
    one_line,
)
from fed_ucbvi.network.names import check_name
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_stream import BROKEN
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.transport import TLSFiles, open_channel, open_stream

with needed("grpcio"):
    import grpc  # type: ignore[import-untyped]

log = logging.getLogger("fed_ucbvi.federation")

FIRST_PAUSE, MAX_PAUSE = 0.2, 5.0
"""Seconds between attempts to connect: doubled every time, with some chance in it."""
WELCOME_SECONDS = 60.0
"""How long a server may take to answer a hello; after that it speaks when it has something to say."""
FAREWELL_SECONDS = 2.0
"""How long a node waits for the server to hear why it ends the stream."""
DISK_PAUSE = 1.0
"""Seconds before a node whose disk is full comes back."""


class RefusedError(InputError):
    """The server does not want this node."""


class _StreamEndedError(Exception):
    """The stream ended; try again."""


async def take_part(
    node: Node,
    address: str,
    tls_files: TLSFiles | None,
    *,
    server_name: str | None = None,
    patience: float = 600.0,
) -> None:
    """Take part in the run at ``HOST:PORT`` until it is over; then ``node.recommended`` is the policy to deploy.

    Args:
        node: the node.
        address: of the server.
        tls_files: the node's certificate; none: insecure, on this machine only.
        server_name: the name in the server's certificate, if it is not the host.
        patience: seconds to go on trying while the server cannot be reached.

    Raises:
        InputError: if the server turns the node away, or stays away too long.
    """
    check_name(node.name)
    if tls_files is not None:
        node.identify(tls_files)
    with nullcontext() if node.folder is None else FolderLock(node.folder):
        await _stay(node, address, tls_files, server_name, patience)


async def _stay(
    node: Node, address: str, tls_files: TLSFiles | None, server_name: str | None, patience: float
) -> None:
    """Connect again and again until the run is over."""
    incarnation = secrets.token_bytes(16)
    pause, alone_since = FIRST_PAUSE, time.monotonic()
    while not node.finished:
        met = asyncio.Event()
        channel = open_channel(address, tls_files, server_name=server_name)
        try:
            await _session(node, open_stream(channel), incarnation, met)
        except (_StreamEndedError, *BROKEN) as error:
            reason = one_line(_plain(error))
            if met.is_set():
                pause, alone_since = FIRST_PAUSE, time.monotonic()
            if time.monotonic() - alone_since > patience:
                raise InputError(f"no connection to {address} for {patience:g} s: {reason}.") from error
            log.warning("%s: %s; next attempt in %.1f s", node.name, reason, pause)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, MAX_PAUSE)
        finally:
            await channel.close()


@asynccontextmanager
async def _telling(stream: Any) -> AsyncIterator[None]:
    """Tell the server why this node cannot go on."""
    try:
        yield
    except RefusedError:
        raise
    except OSError as error:
        await _complain(stream, f"cannot keep its state: {error}")
        await asyncio.sleep(DISK_PAUSE)
        raise _StreamEndedError(f"cannot keep the state: {error}") from error
    except (WireError, InputError) as error:
        await _complain(stream, str(error))
        raise InputError(one_line(str(error))) from error


async def _read_playing(node: Node, stream: Any) -> Any:
    """Play on, episode by episode, until the node has something to say or the server has."""
    reading = asyncio.ensure_future(stream.read())
    try:
        while node.playing and not reading.done():
            async with _telling(stream):
                played = node.play_on()
            if played is not None:
                await _send(node, stream, encode(played))
            await asyncio.sleep(0)
        return await reading
    finally:
        reading.cancel()


async def _session(node: Node, stream: Any, incarnation: bytes, met: asyncio.Event) -> None:
    """One stream from hello to its end; raises :class:`_StreamEndedError` unless the run is over.

    ``met`` is set once the server has let this node in.
    """
    run = node.run
    hello = Hello(PROTOCOL, __version__, node.name, incarnation, node.first_agent, node.agents, run)
    await stream.write(encode(hello))
    sent, taken = Copies(), Copies()
    in_round = False  # a round begun on an earlier stream goes on once the server asks for it again
    while not node.finished:
        try:
            async with asyncio.timeout(None if met.is_set() else WELCOME_SECONDS):
                data = await (_read_playing(node, stream) if in_round and node.playing else stream.read())
        except TimeoutError:
            raise _StreamEndedError("the server does not answer") from None
        if data is grpc.aio.EOF:
            status = await stream.details()
            raise _StreamEndedError(status or "the server has closed the stream")
        async with _telling(stream):
            message = decode_down(data, taken)
            if isinstance(message, Refusal):
                _leave(node, message)
            if isinstance(message, Welcome):
                if message.protocol != PROTOCOL:
                    raise InputError(f"the server speaks protocol {message.protocol}, this node {PROTOCOL}.")
                answer: Any = node.enter(message)
            else:
                in_round = in_round or isinstance(message, Start)
                answer = node.answer(message)
                keep_taken(message, taken)
            met.set()
        if answer is not None:
            await _send(node, stream, encode(answer, sent))


async def _send(node: Node, stream: Any, data: bytes) -> None:
    """Answer the server; if it has given up this stream, hear what it said last."""
    try:
        await stream.write(data)
    except BROKEN:
        with suppress(*BROKEN, TimeoutError, WireError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                while isinstance(last := await stream.read(), bytes):
                    message = decode_down(last)
                    if isinstance(message, Refusal):
                        _leave(node, message)
        raise


def _leave(node: Node, refusal: Refusal) -> None:
    """The server has ended the stream: come back later, or not."""
    if refusal.retry:
        raise _StreamEndedError(f"the server has ended the stream: {refusal.reason}")
    raise RefusedError(f"the server turned '{node.name}' away: {refusal.reason}.")


def _plain(error: BaseException) -> str:
    """Why a stream ended, in words."""
    if isinstance(error, _StreamEndedError):
        return str(error)
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else ""
    return details or "the server has given up this stream, or the connection to it is lost"


async def _complain(stream: Any, reason: str) -> None:
    """Tell the server what is wrong, if it still listens, and give it time to hear."""
    with suppress(*BROKEN, TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS):
            await stream.write(encode(Fault(reason)))
            await stream.done_writing()
            await stream.code()
