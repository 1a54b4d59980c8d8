"""Strangers and turned nodes are named and turned away, and the honest nodes' run is what it would have been."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import shutil
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enemies import INCARNATION, NO_REASON, Turn, hello_of, outcome_of, stream_to, turning
from fed_ucbvi import FedUCBVI, InputError, run, synthetic
from fed_ucbvi.deployment import hub, links
from fed_ucbvi.deployment.asking import FederationStoppedError
from fed_ucbvi.deployment.certificates import make_certificates, revoke, revoked_names
from fed_ucbvi.deployment.coordinator import Coordinator
from fed_ucbvi.deployment.joining import take_part
from fed_ucbvi.deployment.ledger import Ledger
from fed_ucbvi.deployment.messages import Fault, Hello, Played, Ready, Report, Request, Up, Welcome, encode
from fed_ucbvi.deployment.node import Node
from fed_ucbvi.deployment.plan import Plan, Rules, plan_for
from fed_ucbvi.deployment.serving import Outcome, Service
from fed_ucbvi.deployment.transport import SERVICE, Papers
from network import assert_run_without_the_first_agent, assert_same, make_nodes

WORLD = synthetic(agents=3, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(synchronisation="local")
T, SEED = 120, 4
SPLIT = [1, 2]
SECONDS = 100


def plan(**rules: Any) -> Plan:
    return plan_for(ALGORITHM, WORLD, T, seed=SEED, run="the-run", rules=Rules(**{"patience": 30.0, **rules}))


def simulated() -> Any:
    return run(ALGORITHM, WORLD, T, seed=SEED, driver="episodes")


Told = list[tuple[str, str]]
"""What should have been said, and what was."""


async def beset(
    service: Service, papers: Callable[[str], Papers] | None, attack: Callable[[], Awaitable[Told]]
) -> None:
    """An honest run under attack: with one node there, before it begins, and again and again until it is over."""
    address = f"127.0.0.1:{service.port}"
    nodes = make_nodes(WORLD, SPLIT)
    serving = asyncio.ensure_future(service.run())

    def join(node: Node) -> asyncio.Future[None]:
        return asyncio.ensure_future(take_part(node, address, None if papers is None else papers(node.name)))

    joined = [join(nodes[0])]
    while not service.hub.members:
        await asyncio.sleep(0.01)
    for expected, told in await attack():
        assert expected in told
    joined.append(join(nodes[1]))
    attacks = 0
    while not serving.done():
        answers = [told for _, told in await attack()]
        assert service.hub.over or NO_REASON not in answers
        attacks += 1
    assert attacks
    await asyncio.gather(*joined)
    outcome = await serving
    assert outcome.events == []
    assert_same(outcome.run, simulated(), regret=False)


# ---------------------------------------------------------------------------------------------------------- strangers


def test_strangers_are_turned_away_by_certificate_and_name_and_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make_certificates(ours, server="server", nodes=["node-0", "node-1", "lost", "guest"])
    make_certificates(ours, nodes=["late"], days=-1)
    make_certificates(theirs, server="server", nodes=["node-1"])
    shutil.copy(ours / "ca.crt", theirs / "real-ca.crt")
    revoke(ours, ["lost"])
    own = make_nodes(WORLD, SPLIT)[1]
    forged = Papers(theirs / "real-ca.crt", theirs / "node-1.crt", theirs / "node-1.key")
    cases: list[tuple[Papers, Hello, str]] = [
        (forged, hello_of(own), "UNAVAILABLE"),
        (Papers.of(ours, "late"), hello_of(own, node="late"), "UNAVAILABLE"),
        (Papers.of(ours, "server"), hello_of(own, node="server"), "UNAVAILABLE"),
        (Papers.of(theirs, "node-1"), hello_of(own), "UNAVAILABLE"),
        (Papers.of(ours, "guest"), hello_of(own), "the certificate is for guest, not for 'node-1'"),
        (Papers.of(ours, "guest"), hello_of(own, node="guest"), "'guest' is not on the list of nodes"),
        (Papers.of(ours, "lost"), hello_of(own, node="lost"), "the certificate of 'lost' has been revoked"),
        (Papers.of(ours, "node-0"), hello_of(own, node="node-0"), "another process is connected as 'node-0'"),
    ]

    async def story() -> None:
        service = Service(
            replace(plan(), names=("node-0", "node-1", "lost")),
            "127.0.0.1:0",
            Papers.of(ours, "server"),
            revoked=lambda: revoked_names(ours),
        )

        async def attack() -> Told:
            address = f"127.0.0.1:{service.port}"
            return [(says, await outcome_of(address, [hello], papers)) for papers, hello, says in cases]

        await beset(service, lambda name: Papers.of(ours, name), attack)

    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        asyncio.run(asyncio.wait_for(story(), SECONDS))
    for name, reason in (
        ("guest", "is for guest"),
        ("guest", "not on the list"),
        ("lost", "revoked"),
        ("node-0", "ano"),
    ):
        assert re.search(rf"\({name}\): turned away: .*{reason}", caplog.text)


def test_a_node_does_not_take_another_nodes_certificate_for_the_servers(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["localhost", "victim"])

    async def story() -> None:
        impostor = Service(plan(), "127.0.0.1:0", Papers.of(tmp_path, "localhost"))
        serving = asyncio.ensure_future(impostor.run())
        victim = Node("victim", lambda M: WORLD, 0, 3)
        try:
            papers = Papers.of(tmp_path, "victim")
            with pytest.raises(InputError, match="no connection"):
                await take_part(victim, f"localhost:{impostor.port}", papers, patience=0.2)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(asyncio.wait_for(story(), SECONDS))


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


def test_strangers_who_talk_nonsense_are_told_so_and_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    own = make_nodes(WORLD, SPLIT)[1]
    hello = hello_of(own)
    own.enter(plan().welcome())
    ready = own.enter(plan().welcome())
    good = encode(hello)
    cases: list[tuple[Sequence[Up | bytes], str]] = [
        ([replace(hello, protocol=2)], "speaks protocol 2"),
        ([replace(hello, run="another")], "holds the state of run another"),
        ([replace(hello, first_agent=2)], "agents 2 to 3 are not all among this run's 0 to 2"),
        ([replace(hello, first_agent=2**64 - 1)], "not all among"),
        ([replace(hello, agents=0)], "not all among"),
        ([replace(hello, first_agent=0)], "overlap with those of 'node-0'"),
        ([replace(hello, node="node-0", first_agent=0, agents=1)], "another process is connected as 'node-0'"),
        ([replace(hello, incarnation=b"short")], "16 bytes"),
        ([replace(hello, node="a\nroot: all is well")], r"'a?root: all is well' cannot be a node's name"),
        ([ready], "the first message must be a hello, got Ready"),
        ([Played(1, 5, ())], "the first message must be a hello, got Played"),
        ([hello, hello], "a ready was expected, got Hello"),
        ([hello, replace(ready, states=4)], "the node's problem has (S, A, H) = (4, 2, 3)"),
        ([hello, replace(ready, digest=b"x" * 32)], "is not the one of this run"),
        ([hello, replace(ready, rounds=())], "must go on after round 0 but holds rounds []"),
        ([b""], "a message of no known kind"),
        ([good[:-3]], "bytes that are no message of this protocol"),
        ([random.Random(1).randbytes(300)], "300 bytes that are no message of this protocol"),
        ([Fault("x" * links.SMALLEST_LIMIT)], "above the limit of 65536"),
        ([Fault("x" * (20 * links.SMALLEST_LIMIT))], "RESOURCE_EXHAUSTED"),
    ]

    async def story() -> None:
        service = Service(plan(), "127.0.0.1:0", None)

        async def attack() -> Told:
            for prank in (_cut_short, _noise):
                await asyncio.to_thread(prank, service.port)
            address = f"127.0.0.1:{service.port}"
            return [(says, await outcome_of(address, messages)) for messages, says in cases]

        await beset(service, None, attack)

    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        asyncio.run(asyncio.wait_for(story(), SECONDS))
    for _, says in cases[:-1]:
        assert says in caplog.text
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_a_flood_of_silent_streams_leaves_the_door_open_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node's certificate is good for no more than its share of handshakes."""
    make_certificates(tmp_path, server="server", nodes=["node-0", "node-1", "flood"])
    monkeypatch.setattr(hub, "MOST_UNKNOWN", 12)
    monkeypatch.setattr(hub, "MOST_OF_A_NAME", 6)

    async def story() -> Outcome:
        service = Service(plan(), "127.0.0.1:0", Papers.of(tmp_path, "server"))
        address = f"127.0.0.1:{service.port}"
        serving = asyncio.ensure_future(service.run())
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(stream_to(address, Papers.of(tmp_path, "flood"))) for _ in range(14)
            ]
            for stream in streams:
                await stream.say()
            answers = [asyncio.ensure_future(stream.hear()) for stream in streams]
            while sum(answer.done() for answer in answers) < 8:
                await asyncio.sleep(0.01)
            assert {getattr(answer.result(), "reason", "") for answer in answers if answer.done()} == {
                "too many streams at one time"
            }
            nodes = make_nodes(WORLD, SPLIT)
            joined = [take_part(node, address, Papers.of(tmp_path, node.name)) for node in nodes]
            await asyncio.gather(*joined)
            outcome = await serving
            for answer in answers:
                answer.cancel()
        return outcome

    assert_same(asyncio.run(asyncio.wait_for(story(), SECONDS)).run, simulated(), regret=False)


def test_a_stream_that_never_says_hello_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HELLO_SECONDS", 0.2)

    async def story() -> str:
        service = Service(plan(), "127.0.0.1:0", None)
        serving = asyncio.ensure_future(service.run())
        try:
            return await outcome_of(f"127.0.0.1:{service.port}", [])
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    assert asyncio.run(asyncio.wait_for(story(), SECONDS)) == "the handshake took too long"


def test_a_seat_is_free_again_if_its_node_leaves_before_the_run() -> None:
    async def story() -> None:
        service = Service(plan(), "127.0.0.1:0", None)
        serving = asyncio.ensure_future(service.run())
        address = f"127.0.0.1:{service.port}"
        squatter = Node("squatter", lambda M: WORLD, 0, 2)
        async with stream_to(address) as stream:
            await stream.say(hello_of(squatter))
            welcome = await stream.hear()
            assert isinstance(welcome, Welcome)
            await stream.say(squatter.enter(welcome))
            while not service.hub.members:
                await asyncio.sleep(0.01)
            assert "overlap with those of 'squatter'" in await outcome_of(
                address, [hello_of(make_nodes(WORLD, SPLIT)[0])]
            )
        while service.hub.members:
            await asyncio.sleep(0.01)
        await asyncio.gather(*(take_part(node, address, None) for node in make_nodes(WORLD, SPLIT)))
        assert_same((await serving).run, simulated(), regret=False)

    asyncio.run(asyncio.wait_for(story(), SECONDS))


# ------------------------------------------------------------------------------------------------------ turned nodes


async def with_turned(task: Plan, turn: Turn) -> tuple[Outcome, str]:
    """A run in which node-0 turns; the outcome, and what it was told at the end."""
    service = Service(task, "127.0.0.1:0", None)
    address = f"127.0.0.1:{service.port}"
    enemy, honest = make_nodes(WORLD, SPLIT)
    turned = asyncio.ensure_future(turning(enemy, address, turn))
    steady = asyncio.ensure_future(take_part(honest, address, None))
    try:
        outcome = await service.run()
        await steady
        return outcome, await turned
    finally:
        turned.cancel()
        steady.cancel()


def _as_played(**changes: Any) -> Turn:
    return lambda answer: [encode(replace(answer, **changes) if isinstance(answer, Played) else answer)]


FIRST_ANSWERS: dict[str, tuple[Turn, str]] = {
    "random bytes": (lambda _: [random.Random(3).randbytes(64)], "64 bytes that are no message"),
    "no bytes": (lambda _: [b""], "a message of no known kind"),
    "a truncated message": (lambda answer: [encode(answer)[:-1]], "bytes that are no message"),
    "too long a message": (lambda _: [b"x" * 70_000], "a message of 70000 bytes, above the limit of 65536"),
    "another hello": (lambda _: [encode(Hello(1, "", "node-0", INCARNATION, 0, 1, ""))], "a Hello in the middle"),
    "another ready": (lambda _: [encode(Ready(3, 2, 3, b"", (0,)))], "a Ready in the middle"),
    "an answer of a later round": (
        _as_played(round=2),
        "answered round 2, episodes when asked for round 1, episodes",
    ),
    "a report before the episodes": (
        lambda _: [encode(Report(1, 0, (np.zeros((1, 3, 2)),)))],
        "answered round 1, exchange 0 when asked for round 1, episodes",
    ),
    "a flood of old answers": (lambda _: [encode(Played(0, 0, ()))] * 17, "17 copies of earlier answers"),
    "too many episodes": (_as_played(played=T + 1), "played 121 episodes"),
    "no episodes": (_as_played(played=0, requests=()), "played 0 of [0-9]+ episodes, and nobody asked"),
    "a request out of thin air": (_as_played(played=0), "asked before the first episode"),
    "another node's request": (
        _as_played(requests=(Request(1, 0, 0, 0, 0),)),
        "agent 1: request: not one of this node's",
    ),
    "a request for no step": (_as_played(requests=(Request(0, 3, 0, 0, 0),)), "agent 0: request: no such step"),
    "a request for no rule": (_as_played(requests=(Request(0, 0, 0, 0, 9),)), "agent 0: request: no such step"),
    "a request for no action": (_as_played(requests=(Request(0, 0, 0, 7, 0),)), "action 7 is not the policy's"),
}


@pytest.mark.parametrize("kind", FIRST_ANSWERS)
def test_a_node_that_answers_wrongly_is_dropped_by_name_and_the_run_is_that_of_the_others(kind: str) -> None:
    turn, says = FIRST_ANSWERS[kind]
    task = plan(violation="drop")
    outcome, told = asyncio.run(asyncio.wait_for(with_turned(task, turn), SECONDS))
    (event,) = outcome.events
    assert (event["round"], event["node"], event["done"]) == (1, "node-0", "drop")
    assert re.search(says, event["what"])
    assert told == event["what"]
    assert_run_without_the_first_agent(outcome.run, task)


@pytest.mark.parametrize("kind", ["random bytes", "an answer of a later round"])
def test_a_node_that_answers_wrongly_stops_the_run_if_that_is_the_policy(kind: str) -> None:
    turn, says = FIRST_ANSWERS[kind]
    with pytest.raises(FederationStoppedError, match=f"'node-0' broke the rules in round 1: it .*{says}"):
        asyncio.run(asyncio.wait_for(with_turned(plan(), turn), SECONDS))


def test_replayed_answers_are_passed_over_and_change_nothing() -> None:
    """Every answer comes twice, after copies of some of the earlier ones, out of order."""
    chance = random.Random(5)
    past: list[bytes] = []

    def turn(answer: Up) -> Iterable[bytes]:
        copies = chance.sample(past, min(len(past), 3))
        past.append(encode(answer))
        return [*copies, past[-1], past[-1]]

    outcome, told = asyncio.run(asyncio.wait_for(with_turned(plan(), turn), SECONDS))
    assert told == ""
    assert outcome.events == []
    assert_same(outcome.run, simulated(), regret=False)


def test_a_node_that_never_answers_is_done_without_after_deadline_and_patience() -> None:
    task = plan(away="exclude", deadline=0.5, patience=1.0)
    outcome, told = asyncio.run(asyncio.wait_for(with_turned(task, lambda _: ()), SECONDS))
    assert told == "no answer within 0.5 s"
    (event,) = outcome.events
    assert event == {"round": 1, "node": "node-0", "what": "away for 1 s", "done": "exclude"}
    assert_run_without_the_first_agent(outcome.run, task)


def test_a_node_that_talks_without_end_is_not_listened_to() -> None:
    """A stream is read when an answer is due; the rest waits on the line, and the sender with it."""

    def turn(answer: Up) -> Iterable[bytes]:
        yield encode(answer)
        for _ in range(100_000):
            yield encode(Fault("a" * 5_000))

    task = plan(violation="drop", away="exclude", patience=0.5)
    outcome, _ = asyncio.run(asyncio.wait_for(with_turned(task, turn), SECONDS))
    assert [(event["round"], event["node"], event["done"]) for event in outcome.events] == [(1, "node-0", "exclude")]
    assert outcome.run.complete
    assert outcome.wire.bytes_up < 5_000_000


# ----------------------------------------------------------------------------------------------------- false reports


def in_reports(lie: Callable[[list[Any], int], None]) -> Turn:
    """Change the arrays of a report, given its exchange."""

    def turn(answer: Up) -> Iterable[bytes]:
        if isinstance(answer, Report):
            arrays: list[Any] = [array.copy() for array in answer.arrays]
            lie(arrays, answer.exchange)
            answer = replace(answer, arrays=tuple(arrays))
        return [encode(answer)]

    return turn


def _wrap_around(arrays: list[Any], _: int) -> None:
    """Counts near 2^63 on three states whose sum, in 64 bits, is the honest one."""
    n = arrays[0]
    total, largest = n.sum(), np.iinfo(np.int64).max
    n[0] = 0
    n[0, 0, 0] = n[0, 1, 0] = largest
    n[0, 2, 0] = total + 2


def _wrong_type(arrays: list[Any], _: int) -> None:
    arrays[0] = arrays[0].astype(np.int32)


def _one_agent_more(arrays: list[Any], _: int) -> None:
    arrays[1] = np.repeat(arrays[1], 2, axis=0)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (_wrap_around, r"agent 0: n at \(0, 0\) is 9223372036854775807: does not add up"),
        (_wrong_type, r"agent 0: n is int32 \(1, 3, 2\), expected int64 \(1, 3, 2\)"),
        (_one_agent_more, r"agent 0: PV is float64 \(2, 3, 2\), expected float64 \(1, 3, 2\)"),
    ],
)
def test_a_false_report_is_refused_by_agent_and_field(lie: Any, says: str) -> None:
    outcome, told = asyncio.run(asyncio.wait_for(with_turned(plan(violation="drop"), in_reports(lie)), SECONDS))
    (event,) = outcome.events
    assert (event["round"], event["node"], event["done"]) == (1, "node-0", "drop")
    assert re.search(says, event["what"])
    assert told == event["what"]
    assert outcome.run.complete


class StopError(Exception):
    """The server dies here."""


def test_counts_that_fell_while_the_server_was_down_are_refused(tmp_path: Path) -> None:
    """The checkpoint holds what each node has reported last."""

    def die(coordinator: Coordinator) -> None:
        if coordinator.round == 12:
            raise StopError

    moved = False

    def move(arrays: list[Any], _: int) -> None:
        """A visit that was reported before the server went down is now said to have been to another action."""
        nonlocal moved
        if not moved:
            moved = True
            state, action = np.argwhere(arrays[0][0] > 1)[0]
            arrays[0][0, state, action] -= 1
            arrays[0][0, state, 1 - action] += 1

    async def story() -> Outcome:
        first, second = (Ledger(tmp_path / "checkpoint") for _ in range(2))
        service = Service(first.adopt(plan()), "127.0.0.1:0", None, ledger=first, report=die)
        address = f"127.0.0.1:{service.port}"
        nodes = make_nodes(WORLD, SPLIT, tmp_path)
        tasks = [asyncio.ensure_future(take_part(node, address, None)) for node in nodes]
        with pytest.raises(StopError):
            await service.run()
        tasks[0].cancel()
        service = Service(second.adopt(plan(violation="drop")), address, None, ledger=second)
        enemy = make_nodes(WORLD, SPLIT, tmp_path)[0]
        turned = asyncio.ensure_future(turning(enemy, address, in_reports(move)))
        outcome = await service.run()
        await tasks[1]
        await turned
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), SECONDS))
    (event,) = outcome.events
    assert (event["round"], event["node"], event["done"]) == (13, "node-0", "drop")
    assert re.search("agent 0: n .*(smaller than before|changed where the policy did not go)", event["what"])
