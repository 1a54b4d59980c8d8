"""Strangers are named and rejected, and the run is what it would have been."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import re
import shutil
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from enemies import NO_REASON, SPLIT, WORLD, hello_of, long_fault, outcome_of, plan, simulated, stream_to
from fed_ucbvi import InputError
from fed_ucbvi.network import server
from fed_ucbvi.network.certificates import TLSFiles, make_certificates, revoke, revoked_names
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.messages import PART_BYTES, PROTOCOL, Hello, Played, Up, Welcome, decode_down, encode, in_parts
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.transport import SERVICE, RemoteServer
from network import LOOPBACK, Served, TLSByName, assert_same, make_nodes

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
    attacks, serving = 0, served.start()
    while not serving.done():
        answers = [told for _, told in await attack()]
        assert served.coordinator.done or NO_REASON not in answers
        attacks += 1
    assert attacks
    outcome = await served.finish()
    assert outcome.events == []
    assert_same(outcome.run, simulated(), regret=False)


async def test_strangers_are_rejected_by_certificate_and_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make_certificates(ours, server="server", nodes=["node-0", "node-1", "lost", "guest"])
    make_certificates(ours, nodes=["late"], days=-1)
    make_certificates(theirs, server="server", nodes=["node-1"])
    shutil.copy(ours / "ca.crt", theirs / "real-ca.crt")
    revoke(ours, ["lost"])
    own = make_nodes(WORLD, SPLIT)[1]
    forged = TLSFiles(theirs / "real-ca.crt", theirs / "node-1.crt", theirs / "node-1.key")
    cases: list[tuple[TLSFiles, Hello, str]] = [
        (forged, hello_of(own), "failed to connect"),
        (TLSFiles.of(ours, "late"), hello_of(own, node="late"), "failed to connect"),
        (TLSFiles.of(ours, "server"), hello_of(own, node="server"), "failed to connect"),
        (TLSFiles.of(theirs, "node-1"), hello_of(own), "failed to connect"),
        (TLSFiles.of(ours, "node-0"), hello_of(own), "the certificate is for node-0, not for 'node-1'"),
        (TLSFiles.of(ours, "guest"), hello_of(own), "'guest' is not on the list of nodes"),
        (TLSFiles.of(ours, "lost"), hello_of(own), "the certificate of 'lost' has been revoked"),
        (TLSFiles.of(ours, "node-0"), hello_of(own, node="node-0"), "another process is connected as 'node-0'"),
    ]
    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        task = dataclasses.replace(plan(), nodes=("node-0", "node-1", "lost"))
        files: TLSByName = partial(TLSFiles.of, ours)
        served = Served(task, None, files, LOOPBACK, revoked=lambda: revoked_names(ours))
        address = f"127.0.0.1:{served.server.port}"

        async def attack() -> Told:
            return [(says, await outcome_of(RemoteServer(address, own), [hello])) for own, hello, says in cases]

        await beset(served, attack)
    for reason in ("'guest' is not on the list", "'lost' has been revoked", "another process"):
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
    cases: list[tuple[Sequence[Up | bytes], str]] = [
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
        ([replace(hello, node="a\nroot: all is well")], r"'a?root: all is well' cannot be a node's name"),
        ([ready], "the first message must be a hello, got Joining"),
        ([Played(1, 5, ())], "the first message must be a hello, got Played"),
        ([hello, hello], "a joining was expected, got Hello"),
        ([hello, replace(ready, states=4)], "the node's problem has (S, A, H) = (4, 2, 3)"),
        ([hello, replace(ready, digest=b"x" * 32)], "is not the one of this run"),
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
    assert_same(outcome.run, simulated(), regret=False)


async def test_a_stream_that_never_says_hello_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELLO_SECONDS", 0.2)
    async with Served(plan(), address=LOOPBACK) as served:
        assert await outcome_of(served.remote(), []) == "the handshake took too long"


async def test_a_seat_is_free_again_if_its_node_leaves_before_the_run() -> None:
    served = Served(plan(), address=LOOPBACK)
    served.start()
    squatter, honest = Node("squatter", lambda M: WORLD, 0, 2), make_nodes(WORLD, SPLIT)
    async with stream_to(served.remote()) as stream:
        await stream.say(hello_of(squatter))
        welcome = await stream.hear()
        assert isinstance(welcome, Welcome)
        await stream.say(squatter.enter(welcome))
        await served.meet()
        assert "overlap with those of 'squatter'" in await outcome_of(served.remote(), [hello_of(honest[0])])
    while served.registry.members:
        await asyncio.sleep(0.01)
    served.join(*honest)
    assert_same((await served.finish()).run, simulated(), regret=False)


async def test_texts_of_others_are_cut_and_cleaned_before_they_are_shown() -> None:
    """The rounds a node says it holds, and the algorithm a server says it runs."""
    async with Served(plan(), address=LOOPBACK) as served:
        node = make_nodes(WORLD, SPLIT)[0]
        ready = replace(node.enter(plan().welcome()), rounds=tuple(range(10, 20_000)))
        told = await outcome_of(served.remote(), [hello_of(node, run=""), ready])
    assert "but holds rounds [..., 19996, 19997, 19998, 19999], and what it lacks" in told
    welcome = replace(plan().welcome(), version="fedq\n\x1b[31mroot: logged in" + "x" * 5_000)
    heard = decode_down(encode(welcome))
    assert isinstance(heard, Welcome)
    assert heard.version.isprintable()
    assert len(heard.version) == 500
