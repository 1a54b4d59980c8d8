"""Doors: who is let in before anything is read, how much a peer may send, and strangers that change nothing.

The health service that probes know is behind the same TLS as everything else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import random
import re
import shutil
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import grpc  # type: ignore[import-untyped]
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from msgspec.structs import replace

from faults import (
    SILENCE,
    SPLIT,
    WORLD,
    Arriving,
    hello_of,
    long_fault,
    outcome_of,
    plan,
    stream_to,
    unusual_certificate,
    without_usage,
)
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, synthetic
from fed_ucbvi.network import server, transport
from fed_ucbvi.network.certificates import TLSFiles, make_certificates, read_request, sign_request, write_request
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.members import NodeStream
from fed_ucbvi.network.messages import PART_BYTES, PROTOCOL, Fault, Hello, Part, Played, decode_down, encode, in_parts
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.transport import SERVICE, RemoteServer, WireCount
from network import LOOPBACK, Served, TLSByName, assert_simulated, assert_simulation, make_nodes


def served(certs: Path, name: str = "server", nodes: tuple[str, ...] | None = None) -> Served:
    """A server that waits for the nodes of the plan."""

    def files(party: str) -> TLSFiles:
        return TLSFiles.of(certs, name if party == "server" else party)

    return Served(plan(nodes=nodes), None, files, LOOPBACK)


# ------------------------------------------------------------------------------------------------- before reading


async def test_nothing_is_read_from_a_node_that_is_not_on_the_list(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["lost", "node-0"])
    long = in_parts(long_fault(2 * PART_BYTES))
    async with served(tmp_path, nodes=("node-0",)) as hub:
        for messages in ([], long):
            assert "'lost' is not on the list of nodes" in await outcome_of(hub.remote("lost"), messages)
        assert vars(hub.registry.wire) == vars(WireCount())


async def test_little_is_read_from_a_node_that_has_not_yet_joined(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["node-0"])
    long = in_parts(long_fault(2 * PART_BYTES))
    async with served(tmp_path) as hub:
        assert "above the limit of 65536" in await outcome_of(hub.remote("node-0"), long[:1])
        assert hub.registry.wire.bytes_up < 2 * PART_BYTES


async def test_a_certificate_that_does_not_say_what_it_is_for_opens_no_door(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["node-0"])
    without_usage(tmp_path, "vague", "node-0")
    (node,) = make_nodes(WORLD, [3])
    async with served(tmp_path) as hub:
        told = await outcome_of(hub.remote("vague"), [hello_of(node)])
        assert told == "the certificate is not one for nodes (its extended key usage lacks clientAuth)"
        assert vars(hub.registry.wire) == vars(WireCount())
    async with served(tmp_path, "vague") as hub:
        remote = RemoteServer(f"localhost:{hub.server.port}", TLSFiles.of(tmp_path, "node-0"))
        with pytest.raises(InputError, match=r"not one for servers \(its extended key usage lacks serverAuth\)"):
            await run_node(node, remote, patience=0.1)


UNUSUAL: list[tuple[dict[str, Any], str]] = [
    ({"key": rsa.generate_private_key(65537, 1024)}, "an RSA key of 1024 bits; RSA keys need 2048 bits or more"),
    ({"authority": True}, "may sign others (CA:true)"),
]
"""Certificates that no party should have, and how the other side calls them."""


@pytest.mark.parametrize(("unusual", "says"), UNUSUAL, ids=["RSA 1024", "CA:true"])
async def test_a_node_with_a_weak_or_an_authoritys_certificate_is_rejected(
    unusual: dict[str, Any], says: str, tmp_path: Path
) -> None:
    make_certificates(tmp_path, server="server")
    unusual_certificate(tmp_path, "node-0", **unusual)
    (node,) = make_nodes(WORLD, [3])
    async with served(tmp_path) as hub:
        assert says in await outcome_of(hub.remote("node-0"), [hello_of(node)])
        assert vars(hub.registry.wire) == vars(WireCount())


@pytest.mark.parametrize(("unusual", "says"), UNUSUAL, ids=["RSA 1024", "CA:true"])
async def test_a_node_leaves_a_server_with_a_weak_or_an_authoritys_certificate(
    unusual: dict[str, Any], says: str, tmp_path: Path
) -> None:
    make_certificates(tmp_path, nodes=["node-0"])
    unusual_certificate(tmp_path, "server", server=True, **unusual)
    (node,) = make_nodes(WORLD, [3])
    async with served(tmp_path) as hub:
        remote = RemoteServer(f"localhost:{hub.server.port}", TLSFiles.of(tmp_path, "node-0"))
        with pytest.raises(InputError, match=re.escape(says)):
            await run_node(node, remote, patience=0.1)
        assert vars(hub.registry.wire) == vars(WireCount())


async def test_a_node_with_an_rsa_key_of_2048_bits_is_let_in(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server")
    unusual_certificate(tmp_path, "node-0", key=rsa.generate_private_key(65537, 2048))
    async with served(tmp_path) as hub:
        hub.join(*make_nodes(WORLD, [3]))
        assert_simulation(await hub.finish(), plan())


async def test_a_server_that_shows_anothers_certificate_is_left_before_a_word_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a certificate that does not say what it is for, and shows the real server's, whose key it has not."""
    make_certificates(tmp_path, server="server", nodes=["node-0"])
    without_usage(tmp_path, "vague", "server")
    shown = AsyncMock(return_value=(tmp_path / "server.crt").read_bytes())
    monkeypatch.setattr(transport.Listener, "_certificate", shown)
    async with served(tmp_path, "vague") as hub:
        remote = RemoteServer(f"localhost:{hub.server.port}", TLSFiles.of(tmp_path, "node-0"))
        with pytest.raises(InputError, match="no connection"):
            await run_node(make_nodes(WORLD, [3])[0], remote, patience=0.1)
        assert shown.await_count
        assert vars(hub.registry.wire) == vars(WireCount())


async def test_a_name_with_line_breaks_is_logged_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_certificates(tmp_path, server="server")
    without_usage(tmp_path, "forged", "x\nroot: all is well\x1b[31m")
    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        async with served(tmp_path) as hub:
            told = await outcome_of(hub.remote("forged"), [])
    assert r"'x\nroot: all is well\x1b[31m' cannot be a node's name" in told
    assert all(message.isprintable() for message in caplog.messages)
    assert told in caplog.text


async def test_one_name_may_open_so_many_streams_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_certificates(tmp_path, server="server", nodes=["node-0", "node-1", "flood"])
    monkeypatch.setattr(server, "MAX_ATTEMPTS", 3)
    async with served(tmp_path) as hub:
        told = [await outcome_of(hub.remote("flood"), [b""]) for _ in range(5)]
        assert ["no message" in reason for reason in told] == [True, True, True, False, False]
        assert told[3] == told[4] == "too many streams in 60 s"
        assert hub.registry.wire.messages_up == 3
        await asyncio.gather(*hub.join(*make_nodes(WORLD, SPLIT)))


Told = list[tuple[str, str]]
"""What should have been said, and what was."""


async def beset(served: Served, attack: Callable[[], Awaitable[Told]]) -> None:
    """An honest run under attack: with one node there, before it begins, and again and again until it is over."""
    first, second = make_nodes(WORLD, SPLIT)
    served.join(first)
    await served.meet()
    for expected, told in await attack():
        assert expected in told
    served.join(second)
    attacks = 0
    serving = served.start()
    while not serving.done():
        answers = [told for _, told in await attack()]
        assert served.coordinator.done or SILENCE not in answers
        attacks += 1
    assert attacks
    assert_simulation(await served.finish(), plan())


async def test_strangers_are_rejected_by_certificate_and_name(tmp_path: Path, caplog: Any) -> None:
    ours = tmp_path / "ours"
    theirs = tmp_path / "theirs"
    make_certificates(ours, server="server", nodes=["node-0", "node-1", "guest"])
    make_certificates(ours, nodes=["late"], days=-1)
    make_certificates(theirs, server="server", nodes=["node-1"])
    shutil.copy(ours / "ca.crt", theirs / "real-ca.crt")
    own = make_nodes(WORLD, SPLIT)[1]
    forged = TLSFiles(theirs / "real-ca.crt", theirs / "node-1.crt", theirs / "node-1.key")
    cases: list[tuple[TLSFiles, Hello, str]] = [
        (forged, hello_of(own), "failed to connect"),
        (TLSFiles.of(ours, "late"), hello_of(own, node="late"), "failed to connect"),
        (TLSFiles.of(ours, "server"), hello_of(own, node="server"), "failed to connect"),
        (TLSFiles.of(theirs, "node-1"), hello_of(own), "failed to connect"),
        (TLSFiles.of(ours, "node-0"), hello_of(own), "the certificate is for node-0, not for 'node-1'"),
        (TLSFiles.of(ours, "guest"), hello_of(own), "'guest' is not on the list of nodes"),
        (TLSFiles.of(ours, "node-0"), hello_of(own, node="node-0"), "another process is connected as 'node-0'"),
    ]
    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        task = dataclasses.replace(plan(), rules=FederationRules(nodes=("node-0", "node-1")))
        files: TLSByName = partial(TLSFiles.of, ours)
        served = Served(task, None, files, LOOPBACK)
        address = f"127.0.0.1:{served.server.port}"

        async def attack() -> Told:
            return [(says, await outcome_of(RemoteServer(address, own), [hello])) for own, hello, says in cases]

        await beset(served, attack)
    for reason in ("'guest' is not on the list", "another process"):
        assert re.search(f"rejected: .*{reason}", caplog.text)


async def test_a_node_does_not_take_another_nodes_certificate_for_the_servers(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["localhost", "victim"])
    files = {"server": "localhost"}
    async with Served(plan(), None, lambda name: TLSFiles.of(tmp_path, files[name]), LOOPBACK) as impostor:
        victim = Node("victim", lambda M: WORLD, 0, 3)
        remote = RemoteServer(f"localhost:{impostor.server.port}", TLSFiles.of(tmp_path, "victim"))
        with pytest.raises(InputError, match="no connection"):
            await run_node(victim, remote, patience=0.2)


def _cut_short(port: int) -> None:
    """HTTP/2 by hand: a stream whose first gRPC frame announces more than follows, and goodbye."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload

    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{SERVICE}/Session",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in headers.items()
    )
    message = b"\0" + struct.pack(">I", 1000) + b"ten bytes."
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block))
        line.sendall(frame(0, 0, 1, message))
        line.recv(1)


def _noise(port: int) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(random.Random(7).randbytes(4096))
        line.recv(1)


async def test_strangers_who_talk_nonsense_are_told_so_and_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    own = make_nodes(WORLD, SPLIT)[1]
    hello = hello_of(own)
    own.enter(plan().welcome())
    ready = own.enter(plan().welcome())
    good = encode(hello)
    cases: list[tuple[Sequence[Any], str]] = [
        ([replace(hello, protocol=PROTOCOL + 1)], f"speaks protocol {PROTOCOL + 1}"),
        ([replace(hello, run="another")], "holds the state of run another"),
        ([replace(hello, first_agent=2)], "agents 2 to 3 are not all among this run's 0 to 2"),
        ([replace(hello, first_agent=2**64 - 1)], "not all among"),
        ([replace(hello, first_agent=2**63, agents=2**63)], "not all among"),
        ([replace(hello, node="../a")], "cannot be a node's name"),
        ([replace(hello, agents=0)], "not all among"),
        ([replace(hello, first_agent=0)], "overlap with those of 'node-0'"),
        ([replace(hello, node="node-0", first_agent=0, agents=1)], "another process is connected as 'node-0'"),
        ([replace(hello, incarnation=b"short")], "length >= 16"),
        ([replace(hello, node="a\nroot: all is well")], "'a root: all is well' cannot be a node's name"),
        ([ready], "the first message must be a hello, got Joining"),
        ([Played(1, 5, ())], "the first message must be a hello, got Played"),
        ([hello, hello], "a joining was expected, got Hello"),
        ([hello, replace(ready, states=4)], "the node's problem has (S, A, H) = (4, 2, 3)"),
        ([hello, replace(ready, digest=b"x" * 32)], "is not the one of this run"),
        ([hello, replace(ready, reward_offset=-1)], "a step of 'node-1' pays -1 to 0, one of this run 0 to 1"),
        ([hello, replace(ready, reward_scale=0.0)], "cannot pay"),
        ([hello, replace(ready, reward_offset=math.nan)], "cannot pay"),
        ([hello, replace(ready, rounds=())], "must resume after round 0 but holds rounds []"),
        ([b""], "0 bytes that are no message"),
        ([good[:-3]], "bytes that are no message of this protocol"),
        ([random.Random(1).randbytes(300)], "300 bytes that are no message of this protocol"),
        ([long_fault(PART_BYTES + 20)], "above the limit of 65552"),
        (in_parts(long_fault(PART_BYTES))[:1], "above the limit of 65536"),
        ([long_fault(3 * PART_BYTES)], "larger than max"),
    ]
    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        served = Served(plan(), address=LOOPBACK)

        async def attack() -> Told:
            for prank in (_cut_short, _noise):
                await asyncio.to_thread(prank, served.server.port)
            return [(says, await outcome_of(served.remote(), messages)) for messages, says in cases]

        await beset(served, attack)
    for _, says in cases[:-1]:
        assert says in caplog.text
    own_lines = [record.getMessage() for record in caplog.records if record.name.startswith("fed_ucbvi")]
    assert not any("\n" in line for line in own_lines)


async def test_a_flood_of_silent_streams_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One certificate is good for no more than its share of handshakes; there is room for each node besides."""
    make_certificates(tmp_path, server="server", nodes=["node-0", "node-1", "flood"])
    monkeypatch.setattr(server, "MAX_HANDSHAKES", 6)
    monkeypatch.setattr(server, "MAX_STREAMS", 6)
    served = Served(plan(), None, partial(TLSFiles.of, tmp_path), LOOPBACK)
    served.start()
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(stream_to(served.remote("flood"))) for _ in range(14)]
        answers = [asyncio.ensure_future(stream.hear()) for stream in streams]
        while sum(answer.done() for answer in answers) < 8:
            await asyncio.sleep(0.01)
        reasons = {getattr(answer.result(), "reason", "") for answer in answers if answer.done()}
        assert reasons == {"too many streams at one time"}
        served.join(*make_nodes(WORLD, SPLIT))
        outcome = await served.finish()
        for answer in answers:
            answer.cancel()
    assert_simulation(outcome, plan())


async def test_a_stream_that_never_says_hello_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELLO_SECONDS", 0.2)
    async with Served(plan(), address=LOOPBACK) as served:
        assert await outcome_of(served.remote(), []) == "the handshake took too long"


async def test_a_seat_is_free_again_if_its_node_leaves_before_the_run() -> None:
    served = Served(plan(), address=LOOPBACK)
    served.start()
    squatter = Node("squatter", lambda M: WORLD, 0, 2)
    honest = make_nodes(WORLD, SPLIT)
    async with stream_to(served.remote()) as stream:
        await stream.say(hello_of(squatter))
        welcome: Any = await stream.hear()
        await stream.say(squatter.enter(welcome))
        await served.meet()
        assert "overlap with those of 'squatter'" in await outcome_of(served.remote(), [hello_of(honest[0])])
    while served.registry.members:
        await asyncio.sleep(0.01)
    served.join(*honest)
    assert_simulation(await served.finish(), plan())


async def test_texts_of_others_are_cut_and_cleaned_before_they_are_shown() -> None:
    """The rounds a node says it holds, and the algorithm a server says it runs."""
    async with Served(plan(), address=LOOPBACK) as served:
        node = make_nodes(WORLD, SPLIT)[0]
        ready = replace(node.enter(plan().welcome()), rounds=tuple(range(10, 20_000)))
        told = await outcome_of(served.remote(), [hello_of(node, run=""), ready])
    assert "but holds rounds [..., 19996, 19997, 19998, 19999], and what it lacks" in told
    welcome = replace(plan().welcome(), version="fedq\n\x1b[31mroot: logged in" + "x" * 5_000)
    heard: Any = decode_down(encode(welcome))
    assert heard.version.isprintable()
    assert len(heard.version) == 500


async def test_endless_tls_handshakes_keep_no_node_out(tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fed_ucbvi.network.transport.HANDSHAKE_SECONDS", 3)
    served = Served(plan(), None, tls_files, LOOPBACK)
    served.start()
    await asyncio.sleep(0.1)
    idle = [socket.create_connection(("127.0.0.1", served.server.port), timeout=60) for _ in range(200)]
    for one in idle[::2]:
        one.sendall(b"\x16\x03\x01\x02\x00\x01")
    first, last = make_nodes(WORLD, SPLIT)
    served.join(first)
    await asyncio.wait_for(served.meet(), 60)
    for one in idle:
        with suppress(ConnectionError), one:
            await asyncio.to_thread(one.recv, 100)  # ends, or the test does
    served.join(last)
    await served.finish()


# ------------------------------------------------------------------------------------------------- messages in parts


def received(frames: Sequence[bytes], limit: int = 1 << 20) -> Any:
    """What a server's stream makes of these."""
    stream = NodeStream(Arriving(*frames), WireCount())
    stream.limits = {"Fault": limit}
    return asyncio.run(stream.receive())


def test_a_long_message_is_put_together_and_one_that_cannot_be_is_a_violation() -> None:
    fault = long_fault(3 * PART_BYTES)
    parts = in_parts(fault)
    assert [len(part) <= PART_BYTES + 16 for part in parts] == 4 * [True]
    assert isinstance(received(parts), Fault)
    assert in_parts(fault[:PART_BYTES]) == [fault[:PART_BYTES]]
    endless = encode(Part(fault[:PART_BYTES], more=True))
    nothing = encode(Part(b"x" * PART_BYTES, more=True))
    for frames, limit, says in (
        (parts, 3 * PART_BYTES, "above the limit of 196608"),
        (100 * [endless], 3 * PART_BYTES, "above the limit of 196608"),
        (100 * [nothing], 3 * PART_BYTES, "above the limit of 65536"),
        ([fault], 1 << 30, "above the limit of 65552"),
        (100 * [encode(Part(b"", more=True))], 1 << 20, "a part of 0 bytes where 65536 are due"),
        ([endless, encode(Fault("no"))], 1 << 20, "a Fault among the parts of another message"),
        ([endless, encode(Part(b"x", more=False))], 1 << 20, "no message of this protocol"),
        ([encode(Part(parts[-1], more=False))], 1 << 20, "parts of parts"),
    ):
        with pytest.raises(ViolationError, match=says):
            received(frames, limit)


def test_a_run_whose_reports_travel_in_parts_is_the_simulation() -> None:
    """A report has four numbers a pair: 77 kB."""
    world = synthetic(agents=2, eps_p=0.1, seed=1, states=300, actions=8, horizon=2)
    assert_simulated(FedUCBVI(synchronisation="local"), world, 3, 2, [1, 1])


# ------------------------------------------------------------------------------------------------- while a run lasts


@pytest.mark.parametrize("secure", [False, True], ids=["plain sums", "secure sums"])
async def test_a_node_with_a_new_certificate_of_its_name_is_the_same_node(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two rounds a node ends and starts again from its state folder, with a new key and certificate."""
    authority = tmp_path / "authority"
    old = tmp_path / "old"
    new = tmp_path / "new"
    make_certificates(authority, server="server", nodes=["node-1", "node-2"])

    def certify(own: Path) -> None:
        request, _ = write_request(own, "node-0")
        (authority / "node-0.crt").unlink(missing_ok=True)
        sign_request(authority, read_request(request.read_bytes()))
        shutil.copy(authority / "node-0.crt", own)
        shutil.copy(authority / "ca.crt", own)

    certify(old)
    folders = {"node-0": old}
    names = ("node-0", "node-1", "node-2")
    task = plan_for(FedKLUCBVI(), WORLD, 120, seed=4, patience=300.0, nodes=names, secure_sums=secure)
    nodes = make_nodes(WORLD, [1, 1, 1], tmp_path / "states")
    served = Served(task, tmp_path / "run", lambda name: TLSFiles.of(folders.get(name, authority), name), LOOPBACK)
    first, *_ = served.join(*nodes)
    advance = served.coordinator._advance

    async def advance_and_replace() -> Any:
        past = await advance()
        if served.coordinator.round == 5:
            served.joined.remove(first)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            certify(new)
            folders["node-0"] = new
            served.join(make_nodes(WORLD, [1], tmp_path / "states")[0])
        return past

    monkeypatch.setattr(served.coordinator, "_advance", advance_and_replace)
    outcome = await served.finish()
    assert (old / "node-0.crt").read_bytes() != (new / "node-0.crt").read_bytes()
    assert len(outcome.run.records["length"]) > 10
    assert_simulation(outcome, task, secure=secure)


async def test_a_run_goes_on_under_a_new_authority(tmp_path: Path) -> None:
    """All parties end and start again from checkpoint and state folders, with certificates of another authority."""
    names = ["node-0", "node-1"]
    folders = {"certs": tmp_path / "first"}
    make_certificates(folders["certs"], server="server", nodes=names)
    served = Served(plan(), tmp_path / "run", lambda name: TLSFiles.of(folders["certs"], name), LOOPBACK)
    before = served.join(*make_nodes(WORLD, SPLIT, tmp_path / "states"))
    await served.reach(5)
    await served.stop()
    for node in before:
        node.cancel()
    await asyncio.gather(*before, return_exceptions=True)
    served.joined.clear()
    folders["certs"] = tmp_path / "second"
    make_certificates(folders["certs"], server="server", nodes=names)
    served.restart(plan(), tmp_path / "run", LOOPBACK)
    served.join(*make_nodes(WORLD, SPLIT, tmp_path / "states"))
    assert_simulation(await served.finish(), plan())


async def test_a_process_keeps_the_certificate_that_it_started_with(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["node-0"])
    served_certificate = (tmp_path / "server.crt").read_bytes()
    async with served(tmp_path) as hub:
        remote = hub.remote("node-0")
        for name in ("server.crt", "server.key", "node-0.crt", "node-0.key"):
            (tmp_path / name).unlink()
        assert await remote.certificate() == served_certificate


# ------------------------------------------------------------------------------------------------------------ health

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def asking(service: str = "") -> Any:
    return health_pb2.HealthCheckRequest(service=service)


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call that is refused ends."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def test_a_monitor_with_a_certificate_is_told_and_a_stranger_is_not(tmp_path: Path) -> None:
    """The monitor is not on the list of nodes. It watches from before the first node comes to the end of the run."""
    names = ("node-0", "node-1")
    make_certificates(tmp_path, server="server", nodes=[*names, "monitor"])
    hub = Served(plan(nodes=names), None, partial(TLSFiles.of, tmp_path), LOOPBACK)
    own = TLSFiles.of(tmp_path, "monitor")
    hub.start()
    address = f"127.0.0.1:{hub.server.port}"
    authority = own.authority.read_bytes()
    async with (
        RemoteServer(address, own).open() as channel,
        grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority)) as stranger,
    ):
        monitor = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            assert (await monitor.Check(asking(name))).status == SERVING
        assert await code_of(monitor.Check(asking("grpc.health.v1.Other"))) == grpc.StatusCode.NOT_FOUND
        refused = health_pb2_grpc.HealthStub(stranger).Check(asking(), timeout=300)
        assert await code_of(refused) == grpc.StatusCode.UNAVAILABLE
        watch = monitor.Watch(asking())
        assert (await watch.read()).status == SERVING
        hub.join(*make_nodes(WORLD, SPLIT))
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        await hub.finish()


async def test_a_server_that_is_stopped_says_so_and_watchers_may_leave(caplog: pytest.LogCaptureFixture) -> None:
    """No error is logged about one that leaves."""
    hub = Served(plan(), address=LOOPBACK)
    run = hub.start()
    async with RemoteServer(f"127.0.0.1:{hub.server.port}").open() as channel:
        monitor = health_pb2_grpc.HealthStub(channel)
        watches = [monitor.Watch(asking(SERVICE)), monitor.Watch(asking("other"))]
        assert [(await watch.read()).status for watch in watches] == [SERVING, UNKNOWN]
        watches.pop().cancel()
        run.cancel()
        assert (await watches[0].read()).status == NOT_SERVING
        watches[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
