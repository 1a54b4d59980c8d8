"""A node's side of the network: connect, say hello, answer, and reconnect when the connection is lost."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import secrets
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.folder_lock import folder_lock
from fed_ucbvi.network import messages
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.certificates import check_name, check_pair
from fed_ucbvi.network.failures import ConnectionLostError, DismissedError, RefusedError
from fed_ucbvi.network.message_sizes import check_size
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_state_store import stored_run
from fed_ucbvi.network.transport import Connection, RemoteServer
from fed_ucbvi.results.policy import LearntPolicy, policy_of_bytes
from fed_ucbvi.results.run import load_policy

log = logging.getLogger("fed_ucbvi.federation")

FIRST_PAUSE = 0.2
MAX_PAUSE = 5.0
"""Seconds between attempts to connect: doubled every time, and varied at random."""
WELCOME_SECONDS = 60.0
"""Time for a server to answer a hello; afterwards it may be silent for any length of time."""
FAREWELL_SECONDS = 2.0
"""Time for the server to read why a node ends the stream."""
DISK_PAUSE = 1.0
"""Seconds before a node whose disk is full comes back."""
ANOTHER_AUTHORITY = "CERTIFICATE_VERIFY_FAILED"
"""In gRPC's words where a server has a certificate of somebody else."""

CONNECTION_ERRORS = (OSError, WireError, InputError)
"""Errors that keep a node from answering: of its disk, or of messages of the server."""


async def run_node(
    node: Node,
    server: RemoteServer,
    *,
    patience: float = 600.0,
    first_patience: float | None = None,
    result: Path | None = None,
    only_run: bool = False,
) -> LearntPolicy | None:
    """Take part in the run of a server until it is over; then ``node.policy`` is the policy to deploy.

    Args:
        node: the node.
        server: how to reach it.
        patience: seconds to keep trying while the server cannot be reached.
        first_patience: the same, until the server has been reached for the first time.
        result: the file with the policy that the server signed at the end; looked for while there is no connection.
        only_run: the authority is this run's alone, so a server that has certificates of another one means that the
            run is over.

    Returns:
        The signed policy, if the node heard of the end by its file and not from the server.

    Raises:
        InputError: if the server rejects the node, or stays away too long.
    """
    _check_party(node.name, server)
    node.identify(server.tls_files, server.host)
    incarnation = secrets.token_bytes(16)
    pause = FIRST_PAUSE
    alone_since = time.monotonic()
    left = patience if first_patience is None else first_patience
    told = ""
    streams = itertools.count()
    lock = nullcontext() if node.folder is None else folder_lock(node.folder)
    with lock:
        while not node.finished:
            if result is not None and result.exists():
                return _read_result(node, result, server)
            met = asyncio.Event()
            try:
                async with server.connect(compressed=not node.masks) as connection:
                    await _Session(node, connection).run(incarnation, next(streams), met)
            except ConnectionLostError as error:
                reason = messages.one_line(str(error))
                if only_run and ANOTHER_AUTHORITY in reason:
                    raise InputError(
                        f"this run is over: another one is served at {server.address} by now."
                    ) from error
                told = f" Before that: {reason.rstrip('.')}." if isinstance(error, DismissedError) else told
                if met.is_set():
                    left = patience
                    pause = FIRST_PAUSE
                    alone_since = time.monotonic()
                if time.monotonic() - alone_since > left:
                    raise InputError(
                        f"no connection to {server.address} for {left:g} s: {reason.rstrip('.')}.{told} If the "
                        "server is only down, start this node again by the same command once it is back. If the run "
                        "is over, ask those who run the server for the signed policy (policy.json in its checkpoint) "
                        "and add --result FILE."
                    ) from error
                log.warning("%s: %s; next attempt in %.1f s", node.name, reason, pause, extra={"node": node.name})
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, MAX_PAUSE)
    return None


async def ask_policy(server: RemoteServer) -> LearntPolicy:
    """The policy that a server recommended last, checked; the run goes on undisturbed."""
    try:
        content = await server.policy()
    except ConnectionLostError as error:
        raise InputError(f"no policy from {server.address}: {messages.one_line(str(error)).rstrip('.')}.") from error
    return _checked(content, server)


def _check_party(name: str, server: RemoteServer) -> None:
    """Raise what no later attempt can mend."""
    check_name(name)
    if server.tls_files is not None:
        check_pair(*server.tls_files.read()[1:])


def _checked(content: bytes, server: RemoteServer) -> LearntPolicy:
    """A policy that the server sent, if it is one, signed by the server where there are certificates."""
    authority = None if server.tls_files is None else server.tls_files.read()[0]
    return policy_of_bytes(content, f"what {server.address} sent", authority=authority, server=server.host)


def _read_result(node: Node, path: Path, server: RemoteServer) -> LearntPolicy:
    """Learn of the end from the policy that the server signed then, if it is that of this node's run."""
    if server.tls_files is None:
        raise InputError("a signed policy is checked by the authority's certificate; pass --certs DIR.")
    result = load_policy(path, authority=server.tls_files.authority, server=server.host)
    if not result.final:
        raise InputError(f"{path} is a policy of round {result.rounds} of run {result.run}, which was not its last.")
    own = node.run or (None if node.folder is None else stored_run(node.folder))
    if own not in (None, result.run):
        raise InputError(f"{path} is the policy of run {result.run}; this node holds the state of run {own}.")
    node.policy = result
    node.finished = True
    return result


class _Session:
    """One stream of a node, from its hello to its end."""

    def __init__(self, node: Node, connection: Connection) -> None:
        self._node = node
        self._connection = connection

    async def run(self, incarnation: bytes, number: int, met: asyncio.Event) -> None:
        """Answer the server; raises :class:`ConnectionLostError` unless the run is over.

        The process of this incarnation has opened ``number`` streams before; ``met`` is set once the server has let
        the node in.
        """
        node = self._node
        who = node.name, incarnation, node.first_agent, node.agents, node.run
        try:
            await self._say(messages.Hello(messages.PROTOCOL, __version__, *who, stream=number))
            await self._answer_all(met)
        except RefusedError:
            raise
        except CONNECTION_ERRORS as error:
            await self._tell(error)

    async def _answer_all(self, met: asyncio.Event) -> None:
        # what began on another stream goes on once the server asks
        node = self._node
        in_round = False
        while not node.finished:
            try:
                async with asyncio.timeout(None if met.is_set() else WELCOME_SECONDS):
                    data = await (self._read_playing() if in_round and node.playing else self._connection.read())
            except TimeoutError:
                raise ConnectionLostError("the server does not answer") from None
            message = self._heard(data)
            in_round = in_round or isinstance(message, messages.Start)
            answer: Any = node.enter(message) if isinstance(message, messages.Welcome) else node.answer(message)
            met.set()
            if answer is not None:
                await self._say(answer)

    def _heard(self, data: bytes) -> messages.Down:
        """Decode a message of the server; raise if it ends the stream."""
        check_size(data, self._node.limits)
        message = messages.decode_down(data)
        if not isinstance(message, messages.Refusal):
            return message
        if message.retry:
            raise DismissedError(f"the server has ended the stream: {message.reason}")
        raise RefusedError(f"the server rejected '{self._node.name}': {message.reason}.")

    async def _read_playing(self) -> bytes:
        """Play on, episode by episode, until the node has something to say or the server has."""
        reading = asyncio.ensure_future(self._connection.read())
        try:
            while self._node.playing and not reading.done():
                played = self._node.play_on()
                if played is not None:
                    await self._say(played)
                await asyncio.sleep(0)
            return await reading
        finally:
            reading.cancel()

    async def _say(self, message: messages.Up) -> None:
        """Send a message, in parts if it is long; if the server has closed this stream, hear what it said last."""
        data = messages.encode(message)
        try:
            for part in messages.in_parts(data):
                await self._connection.write(part)
        except ConnectionLostError as lost:
            try:
                async with asyncio.timeout(FAREWELL_SECONDS):
                    while True:
                        self._heard(await self._connection.read())
            except DismissedError:
                raise
            except (ConnectionLostError, TimeoutError, WireError):
                raise lost from None

    async def _tell(self, error: Exception) -> NoReturn:
        """Tell the server why this node cannot continue, if it still listens, and raise the error.

        Under secure sums only the kind of the error is told: what an environment says may be about the data.
        """
        kind = type(error.__cause__ or error).__name__ if self._node.secret else str(error)
        fault = messages.Fault(f"cannot keep its state: {kind}" if isinstance(error, OSError) else kind)
        with suppress(ConnectionLostError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._connection.write(messages.encode(fault))
                while True:  # until the server has heard it
                    await self._connection.read()
        if isinstance(error, OSError):
            await asyncio.sleep(DISK_PAUSE)
            raise ConnectionLostError(f"cannot keep the state: {error}") from error
        raise InputError(messages.one_line(str(error))) from error
