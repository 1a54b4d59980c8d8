"""Parties that do not keep to the protocol: streams on which anything can be said, and nodes that turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from fed_ucbvi import FedUCBVI, Run, run, synthetic
from fed_ucbvi.network import certificates
from fed_ucbvi.network.certificates import PEM, SigningRequest, TLSFiles, read_authority
from fed_ucbvi.network.failures import ConnectionEndedError, ConnectionLostError
from fed_ucbvi.network.messages import PROTOCOL, DeltaCache, Down, Hello, Refusal, Up, Welcome, decode_down, encode
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.transport import Connection, RemoteServer

INCARNATION = b"enemy and friend"
SILENCE = "ended without a word"
Turn = Callable[[Up], Iterable[bytes]]
"""What is sent instead of an answer."""

WORLD = synthetic(agents=3, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(synchronisation="local")
T, SEED = 120, 4
SPLIT = [1, 2]


def plan(**rules: Any) -> RunPlan:
    """The task, with a patience that no test outlives unless it says so."""
    return plan_for(ALGORITHM, WORLD, T, seed=SEED, run="the-run", **{"patience": 300.0, **rules})


def simulated() -> Run:
    return run(ALGORITHM, WORLD, T, seed=SEED, driver="episodes")


class Stream:
    """A node's stream, for whatever one likes to say on it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._taken = DeltaCache()

    async def say(self, *messages: Up | bytes) -> None:
        for message in messages:
            await self._connection.write(message if isinstance(message, bytes) else encode(message))

    async def hear(self) -> Down | None:
        """The server's next message; None at the end."""
        try:
            message = decode_down(await self._connection.read(), self._taken)
        except ConnectionEndedError:
            return None
        self._taken.keep(message)
        return message


class Arriving:
    """The server's end of a stream on which these bytes arrive."""

    peer, certificate = "nowhere", b""

    def __init__(self, *arriving: bytes) -> None:
        self.arriving, self.sent = list(arriving), list[bytes]()

    async def read(self) -> bytes:
        if not self.arriving:
            raise ConnectionEndedError("it has ended")
        return self.arriving.pop(0)

    async def write(self, data: bytes) -> None:
        self.sent.append(data)

    async def finish(self) -> None:
        pass


@asynccontextmanager
async def stream_to(server: RemoteServer) -> AsyncIterator[Stream]:
    """Open a stream to a server; a certificate that is not the server's does not matter here."""
    async with server.connect() as connection:
        yield Stream(connection)


async def outcome_of(server: RemoteServer, messages: Iterable[Up | bytes]) -> str:
    """Why the server ends a stream on which just this is said; in gRPC's words if it has no say in it."""
    try:
        async with stream_to(server) as stream:
            await stream.say(*messages)
            while (message := await stream.hear()) is not None:
                if isinstance(message, Refusal):
                    return message.reason
    except ConnectionLostError as lost:
        return str(lost)
    return SILENCE


def long_fault(length: int) -> bytes:
    """A fault with a reason of so many letters, which an honest node would cut short."""
    return msgspec.msgpack.encode(["Fault", "x" * length])


def hello_of(party: Node, **changes: Any) -> Hello:
    """The hello of a node, or one that is a little different."""
    hello = Hello(PROTOCOL, "0", party.name, INCARNATION, party.first_agent, party.agents, party.run)
    return replace(hello, **changes)


async def turning(node: Node, server: RemoteServer, turn: Turn) -> str:
    """A node that says ``turn(answer)`` for every answer; why it was dismissed, or an empty text at the end."""
    async with stream_to(server) as stream:
        try:
            await stream.say(hello_of(node))
            while not node.finished and (message := await stream.hear()) is not None:
                if isinstance(message, Refusal):
                    return message.reason
                if isinstance(message, Welcome):
                    await stream.say(node.enter(message))
                elif (answer := node.answer(message)) is not None:
                    await stream.say(*turn(answer))
        except ConnectionLostError as lost:
            return str(lost)
    return ""


def without_usage(folder: Path, name: str, common_name: str) -> TLSFiles:
    """A certificate of the federation's authority that does not say what it is for, as other programs make them."""
    authority, key = read_authority(folder), ec.generate_private_key(ec.SECP256R1())
    request = SigningRequest(common_name, key.public_key())
    host = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = certificates._signed(request, authority.certificate.subject, authority.key, 1, host)
    own = TLSFiles.of(folder, name)
    certificates._write(own.certificate, made.public_bytes(PEM), own.key, certificates._private(key))
    return own
