"""A node's side of the network: connect, say hello, answer, and reconnect when the connection is lost."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.lock import FolderLock
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.certificate_checks import check_pair
from fed_ucbvi.network.copies import Copies
from fed_ucbvi.network.messages import (
    PROTOCOL,
    End,
    Fault,
    Hello,
    Refusal,
    Start,
    Up,
    Welcome,
    decode_down,
    encode,
    in_parts,
    keep_taken,
    one_line,
)
from fed_ucbvi.network.names import check_name, has_left
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_state_store import stored_run
from fed_ucbvi.network.node_stream import BROKEN
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.transport import (
    TLSFiles,
    ask_certificate,
    ask_policy_file,
    check_address,
    open_channel,
    open_stream,
)
from fed_ucbvi.results.policy import LearntPolicy, load_policy, policy_of_bytes

with needed("grpcio"):
    import grpc  # type: ignore[import-untyped]

log = logging.getLogger("fed_ucbvi.federation")

FIRST_PAUSE, MAX_PAUSE = 0.2, 5.0
"""Seconds between attempts to connect: doubled every time, and varied at random."""
WELCOME_SECONDS = 60.0
"""How long a server may take to answer a hello; after that it speaks when it has something to say."""
FAREWELL_SECONDS = 2.0
"""How long a node waits for the server to hear why it ends the stream."""
DISK_PAUSE = 1.0
"""Seconds before a node whose disk is full comes back."""
ANOTHER_AUTHORITY = "CERTIFICATE_VERIFY_FAILED"
"""In gRPC's words where a server has a certificate of somebody else."""

TROUBLE = (OSError, WireError, InputError)
"""What can keep a node from answering: its disk, or what the server says."""


class RefusedError(InputError):
    """The server does not want this node."""


class LeftError(RefusedError):
    """The node has left the run for good while it took part."""


class _StreamEndedError(Exception):
    """The stream ended; try again."""


async def take_part(
    node: Node,
    address: str,
    tls_files: TLSFiles | None,
    *,
    server_name: str | None = None,
    patience: float = 600.0,
    first_patience: float | None = None,
    result: Path | None = None,
    only_run: bool = False,
) -> LearntPolicy | None:
    """Take part in the run at ``HOST:PORT`` until it is over; then ``node.policy`` is the policy to deploy.

    Args:
        node: the node.
        address: of the server.
        tls_files: the node's certificate; none: insecure, on this machine only.
        server_name: the name in the server's certificate, if it is not the host.
        patience: seconds to keep trying while the server cannot be reached.
        first_patience: the same, until the server has been reached for the first time.
        result: the file with the policy that the server signed at the end; looked for while there is no connection.
        only_run: the authority is this run's alone, so a server that has certificates of another one means that the
            run is over.

    Returns:
        The signed policy, if the node heard of the end by its file and not from the server.

    Raises:
        LeftError: if the node leaves for good.
        InputError: if the server turns the node away, or stays away too long.
    """
    _check_party(node.name, address, tls_files)
    if tls_files is not None:
        node.identify(tls_files, server_name or _host(address))
    with nullcontext() if node.folder is None else FolderLock(node.folder):
        left = patience if first_patience is None else first_patience
        return await _stay(node, address, tls_files, server_name, patience, left, result, only_run)


async def leave_run(
    name: str, address: str, tls_files: TLSFiles | None, *, server_name: str | None = None, patience: float = 60.0
) -> LearntPolicy | None:
    """Leave the run at ``HOST:PORT`` for good, as the node of this name; the policy recommended so far, if any.

    Raises:
        InputError: if the node cannot leave, or the server stays away too long.
    """
    _check_party(name, address, tls_files)
    hello = Hello(PROTOCOL, __version__, name, secrets.token_bytes(16), 0, 1, "", leaving=True)
    end, pause = time.monotonic() + patience, FIRST_PAUSE
    while True:
        try:
            async with _channel_to(address, tls_files, server_name) as channel:
                stream = open_stream(channel)
                await stream.write(encode(hello))
                content = await _heard_farewell(stream, name)
                return None if content is None else _checked(content, address, tls_files, server_name)
        except (_StreamEndedError, *BROKEN) as error:
            if time.monotonic() > end:
                raise InputError(f"'{name}' could not leave at {address}: {one_line(_plain(error))}.") from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)


def _check_party(name: str, address: str, tls_files: TLSFiles | None) -> None:
    """Raise what no later attempt can mend."""
    check_name(name)
    check_address(address)
    if tls_files is not None:
        check_pair(*tls_files.read()[1:])


async def _heard_farewell(stream: Any, name: str) -> bytes | None:
    """What the server answers a node that leaves: a policy as a file, if there is one."""
    policy: bytes | None = None
    while True:
        data = await stream.read()
        if data is grpc.aio.EOF:
            raise _StreamEndedError(await stream.details() or "the server has closed the stream")
        message = decode_down(data)
        if isinstance(message, End):
            policy = message.policy
        elif isinstance(message, Refusal) and message.reason == has_left(name):
            return policy
        elif isinstance(message, Refusal) and not message.retry:
            raise RefusedError(f"'{name}' cannot leave: {message.reason}.")
        else:
            raise _StreamEndedError(message.reason if isinstance(message, Refusal) else "no farewell")


async def _stay(
    node: Node,
    address: str,
    tls_files: TLSFiles | None,
    server_name: str | None,
    patience: float,
    left: float,
    result: Path | None,
    only_run: bool,
) -> LearntPolicy | None:
    """Connect again and again until the run is over."""
    incarnation = secrets.token_bytes(16)
    pause, alone_since = FIRST_PAUSE, time.monotonic()
    while not node.finished:
        if result is not None and result.exists():
            return _take_result(node, result, tls_files, server_name or _host(address))
        met = asyncio.Event()
        try:
            async with _channel_to(address, tls_files, server_name) as channel:
                await _session(node, open_stream(channel), incarnation, met)
        except (_StreamEndedError, *BROKEN) as error:
            reason = one_line(_plain(error))
            if only_run and ANOTHER_AUTHORITY in reason:
                raise InputError(f"this run is over: another one is served at {address} by now.") from error
            if met.is_set():
                left, pause, alone_since = patience, FIRST_PAUSE, time.monotonic()
            if time.monotonic() - alone_since > left:
                raise InputError(
                    f"no connection to {address} for {left:g} s: {reason.rstrip('.')}. If the server is only down, "
                    "start this node again by the same command once it is back. If the run is over, ask those who "
                    "run the server for the signed policy (policy.json in its checkpoint) and add --result FILE."
                ) from error
            log.warning("%s: %s; next attempt in %.1f s", node.name, reason, pause, extra={"node": node.name})
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, MAX_PAUSE)
    return None


@asynccontextmanager
async def _channel_to(address: str, tls_files: TLSFiles | None, server_name: str | None) -> AsyncIterator[Any]:
    """A channel to a server whose certificate is one for servers."""
    server = None
    if tls_files is not None:
        try:
            server = await ask_certificate(address, tls_files, server_name=server_name)
        except InputError as error:
            raise _StreamEndedError(str(error)) from error
    channel = open_channel(address, tls_files, server_name=server_name, server=server)
    try:
        yield channel
    finally:
        await channel.close()


def _take_result(node: Node, path: Path, tls_files: TLSFiles | None, host: str) -> LearntPolicy:
    """Learn of the end from the policy that the server signed then, if it is that of this node's run."""
    if tls_files is None:
        raise InputError("a signed policy is checked by the authority's certificate; say --certs DIR.")
    result = load_policy(path, authority=tls_files.authority, server=host)
    if not result.final:
        raise InputError(f"{path} is a policy of round {result.rounds} of run {result.run}, which was not its last.")
    own = node.run or (None if node.folder is None else stored_run(node.folder))
    if own not in (None, result.run):
        raise InputError(f"{path} is the policy of run {result.run}; this node holds the state of run {own}.")
    node.policy, node.finished = result, True
    return result


async def ask_policy(address: str, tls_files: TLSFiles | None, *, server_name: str | None = None) -> LearntPolicy:
    """The policy that the server at ``HOST:PORT`` recommended last, checked; the run goes on undisturbed.

    Args:
        address: of the server.
        tls_files: a node's certificate; none: insecure, on this machine only.
        server_name: the name in the server's certificate, if it is not the host.
    """
    check_address(address)
    try:
        async with _channel_to(address, tls_files, server_name) as channel:
            content = await ask_policy_file(channel)
    except (_StreamEndedError, *BROKEN) as error:
        raise InputError(f"no policy from {address}: {one_line(_plain(error)).rstrip('.')}.") from error
    return _checked(content, address, tls_files, server_name)


def _checked(content: bytes, address: str, tls_files: TLSFiles | None, server_name: str | None) -> LearntPolicy:
    """A policy that the server sent, if it is one, signed by the server where there are certificates."""
    policy = policy_of_bytes(content, f"what {address} sent")
    if tls_files is not None:
        policy.check_signature(tls_files.read()[0], server_name or _host(address))
    return policy


def _host(address: str) -> str:
    """HOST of ``HOST:PORT``."""
    return address.rpartition(":")[0].strip("[]")


async def _tell(stream: Any, error: Exception) -> NoReturn:
    """Tell the server why this node cannot continue, and raise the error."""
    if isinstance(error, RefusedError):
        raise error
    if isinstance(error, OSError):
        await _complain(stream, f"cannot keep its state: {error}")
        await asyncio.sleep(DISK_PAUSE)
        raise _StreamEndedError(f"cannot keep the state: {error}") from error
    await _complain(stream, str(error))
    raise InputError(one_line(str(error))) from error


async def _read_playing(node: Node, stream: Any) -> Any:
    """Play on, episode by episode, until the node has something to say or the server has."""
    reading = asyncio.ensure_future(stream.read())
    try:
        while node.playing and not reading.done():
            try:
                played = node.play_on()
            except TROUBLE as error:
                await _tell(stream, error)
            if played is not None:
                await _say(node, stream, played)
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
    await _say(node, stream, hello)
    sent, taken = Copies(), Copies()
    in_round = False  # a round begun on an earlier stream goes on once the server asks for it again
    while not node.finished:
        if met.is_set():
            data = await (_read_playing(node, stream) if in_round and node.playing else stream.read())
        else:
            data = await _read_welcome(stream)
        if data is grpc.aio.EOF:
            status = await stream.details()
            raise _StreamEndedError(status or "the server has closed the stream")
        try:
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
        except TROUBLE as error:
            await _tell(stream, error)
        met.set()
        if answer is not None:
            await _say(node, stream, answer, sent)


async def _read_welcome(stream: Any) -> Any:
    """What a server says first; it must not take long."""
    try:
        async with asyncio.timeout(WELCOME_SECONDS):
            return await stream.read()
    except TimeoutError:
        raise _StreamEndedError("the server does not answer") from None


async def _say(node: Node, stream: Any, message: Up, sent: Copies | None = None) -> None:
    """Send a message, in parts if it is long; if the server has given up this stream, hear what it said last."""
    try:
        for part in in_parts(encode(message, sent)):
            await stream.write(part)
    except BROKEN:
        with suppress(*BROKEN, TimeoutError, WireError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                while isinstance(last := await stream.read(), bytes):
                    message_down = decode_down(last)
                    if isinstance(message_down, Refusal):
                        _leave(node, message_down)
        raise


def _leave(node: Node, refusal: Refusal) -> None:
    """The server has ended the stream: come back later, or not."""
    if refusal.retry:
        raise _StreamEndedError(f"the server has ended the stream: {refusal.reason}")
    if node.run and refusal.reason == has_left(node.name):
        raise LeftError(f"{refusal.reason}.")
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
