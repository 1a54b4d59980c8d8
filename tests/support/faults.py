"""Parties that do not do as they should: nodes that die at a chosen moment or turn, and streams for any words."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

from fed_ucbvi import FedUCBVI, synthetic
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network import certificates, messages
from fed_ucbvi.network.certificates import PEM, SigningRequest, TLSFiles, read_authority
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import ConnectionEndedError, ConnectionLostError
from fed_ucbvi.network.messages import PROTOCOL, Down, Hello, Refusal, Up, encode
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.transport import Connection, RemoteServer
from network import Problem, Served, TLSByName, make_nodes, tell

WorkT = TypeVar("WorkT")
INCARNATION = b"enemy and friend"
SILENCE = "ended without a word"
Turn = Callable[[Up], Iterable[bytes]]
"""A message that is sent instead of an answer."""

WORLD = synthetic(agents=3, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(synchronisation="local")
T = 120
SEED = 4
SPLIT = [1, 2]


def plan(algorithm: Any = ALGORITHM, **rules: Any) -> RunPlan:
    """The task, with a patience that no test outlives unless it says so."""
    return plan_for(algorithm, WORLD, T, seed=SEED, run="the-run", **{"patience": 300.0, **rules})


class Stream:
    """A node's stream, for whatever one likes to say on it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def say(self, *messages: Up | bytes) -> None:
        for message in messages:
            await self._connection.write(message if isinstance(message, bytes) else encode(message))

    async def hear(self) -> Down | None:
        """The server's next message; None at the end."""
        try:
            return messages.decode_down(await self._connection.read())
        except ConnectionEndedError:
            return None


class Arriving:
    """The server's end of a stream on which these bytes arrive."""

    peer = "nowhere"
    certificate = b""

    def __init__(self, *arriving: bytes) -> None:
        self.arriving = list(arriving)
        self.sent = list[bytes]()

    async def read(self) -> bytes:
        if not self.arriving:
            raise ConnectionEndedError("it has ended")
        return self.arriving.pop(0)

    async def write(self, data: bytes) -> None:
        self.sent.append(data)


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
    hello = Hello(
        PROTOCOL,
        "0",
        party.name,
        INCARNATION,
        party.first_agent,
        party.agents,
        party.run,
    )
    return replace(hello, **changes)


async def turning(node: Node, server: RemoteServer, turn: Turn) -> str:
    """A node that says ``turn(answer)`` for every answer; why it was dismissed, or an empty text at the end."""
    async with stream_to(server) as stream:
        try:
            await stream.say(hello_of(node))
            while not node.finished and (message := await stream.hear()) is not None:
                if isinstance(message, Refusal):
                    return message.reason
                if isinstance(message, messages.Welcome):
                    await stream.say(node.enter(message))
                elif (answer := node.answer(message)) is not None:
                    await stream.say(*turn(answer))
        except ConnectionLostError as lost:
            return str(lost)
    return ""


def without_usage(folder: Path, name: str, common_name: str) -> TLSFiles:
    """A certificate of the federation's authority that does not say what it is for, as other programs make them."""
    authority = read_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    request = SigningRequest(common_name, key.public_key())
    host = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = certificates._signed(request, authority.certificate.subject, authority.key, 1, host)
    certificates._write(folder, name, "crt", made.public_bytes(PEM), certificates._private(key))
    return TLSFiles.of(folder, name)


def unusual_certificate(
    folder: Path,
    name: str,
    *,
    key: CertificateIssuerPrivateKeyTypes | None = None,
    authority: bool = False,
    digest: hashes.SHA224 | hashes.SHA256 | None = None,
    server: bool = False,
) -> TLSFiles:
    """A certificate that another program made and the federation's authority signed; its files are in ``folder``."""
    issuer = read_authority(folder)
    own = key or ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    if server:
        usage = ExtendedKeyUsageOID.SERVER_AUTH
    else:
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    made = builder.sign(issuer.key, digest or hashes.SHA256())
    (folder / f"{name}.crt").write_bytes(made.public_bytes(PEM))
    plain = serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(own.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain))
    return TLSFiles.of(folder, name)


class CrashError(Exception):
    """The process dies here."""


class Fragile(Node):
    """A node that dies when it has been given something to do for the ``dies_at``-th time, or just after that."""

    dies_at = -1
    after = False
    calls = 0

    def answer(self, message: Down) -> Up | None:
        return self._survive(self._is_last(message), lambda: super(Fragile, self).answer(message))

    def play_on(self) -> messages.Played | None:
        return self._survive(self._is_last(None), super().play_on)

    def _is_last(self, message: Down | None) -> bool:
        self.calls += 1
        return self.calls == self.dies_at

    def _survive(self, last: bool, work: Callable[[], WorkT]) -> WorkT:
        if last and not self.after:
            raise CrashError
        done = work()
        if last:
            raise CrashError
        return done


class Noting(Fragile):
    """A node that notes its counts before they are masked; it dies at a roster of round ``dies_in`` or later."""

    dies_in = -1

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reports: dict[int, Message] = {}

    def _is_last(self, message: Down | None) -> bool:
        return isinstance(message, messages.Roster) and 0 < self.dies_in <= message.round

    def _contribute(self, roster: messages.Roster) -> messages.Report | messages.Decline:
        answer = super()._contribute(roster)
        counts = self._reports.counts(with_logs=roster.round == 0)
        self.reports[roster.round] = tuple(array.copy() for array in counts)
        return answer


async def keep_alive(make: Callable[[], Node], server: RemoteServer) -> None:
    """Start a node again, from its state folder if it has one, whenever it dies."""
    while True:
        with suppress(CrashError):
            await run_node(make(), server)
            return


def mortal(
    problem: Problem,
    split: Sequence[int],
    folder: Path | None,
    deaths: list[int],
    *after: bool,
    **options: Any,
) -> Callable[[], Node]:
    """Makes node-0 again and again; it dies after so many answers, before or after work, until no death is left."""
    in_turn = itertools.cycle(after or (False,))

    def born() -> Node:
        node: Fragile = make_nodes(problem, split, folder, Fragile, **options)[0]
        node.dies_at = deaths.pop(0) if deaths else -1
        node.after = next(in_turn)
        return node

    return born


def with_deaths(
    plan: RunPlan,
    problem: Problem,
    split: Sequence[int],
    folder: Path,
    deaths: Sequence[int],
    *after: bool,
    others: Sequence[Node] | None = None,
    tls_files: TLSByName | None = None,
    **options: Any,
) -> Outcome:
    """A run in which node-0 dies all these deaths, and comes back from its folder each time."""
    left = list(deaths)

    async def story() -> Outcome:
        served = Served(plan, None, tls_files)
        make = mortal(problem, split, folder, left, *after, **options)
        served.begin(keep_alive(make, served.remote("node-0")))
        served.join(*(make_nodes(problem, split)[1:] if others is None else others))
        return await served.finish()

    outcome = tell(story())
    assert left == []
    return outcome


def one_vanishes(plan: RunPlan, nodes: Sequence[Node], tls_files: TLSByName) -> Outcome:
    """A run to the end in which the first of the nodes dies and does not come back."""

    async def story() -> Outcome:
        served = Served(plan, None, tls_files)

        async def vanish() -> None:
            with pytest.raises(CrashError):
                await run_node(nodes[0], served.remote(nodes[0].name))

        served.begin(vanish())
        served.join(*nodes[1:])
        return await served.finish()

    return tell(story())


def failing(
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    calls: Sequence[int],
    error: Exception,
    *,
    after: bool = False,
) -> list[int]:
    """Have these calls of a function raise an error, before or after their work; the list grows with every call."""
    original = getattr(place, name)
    made = list[int]()

    def sometimes(*arguments: Any, **options: Any) -> Any:
        made.append(len(made) + 1)
        fails = made[-1] in calls
        done = None if fails and not after else original(*arguments, **options)
        if fails:
            raise error
        return done

    monkeypatch.setattr(place, name, sometimes)
    return made
