"""Bytes at random: whatever a node or a server is sent, it says what is wrong or does something sensible."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from faults import WORLD, Arriving, hello_of
from fed_ucbvi import FedUCBVI, InputError
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.network import client, messages
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.checks import Expected, ReportSchema, check_played
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import ConnectionLostError, ViolationError
from fed_ucbvi.network.members import Member, NodeStream
from fed_ucbvi.network.messages import Played, Query, Report, Start, Stop, Welcome, decode_down, encode
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import Connection, WireCount
from network import InMemoryServer, check_report, first_broadcast, make_nodes

PLAN = plan_for(FedUCBVI(nu=30), WORLD, 120, seed=4, run="the-run")
CHUNK = 5

many = settings(max_examples=300)


@st.composite
def damaged(draw: st.DrawFn, *originals: bytes) -> bytes:
    """A message with some of its bytes replaced, cut out, doubled or made up; or none at all."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("replace", "cut", "insert", "double", "end"))):
            case "replace" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 8))]
            case "insert":
                data[at:at] = draw(st.binary(max_size=8))
            case "double":
                data[at:at] = data[:at]
            case _:
                del data[at:]
    return bytes(data)


(HONEST,) = make_nodes(WORLD, [3])
HELLO = encode(hello_of(HONEST))
READY = encode(HONEST.enter(PLAN.welcome()))


@many
@example([HELLO, READY])
@given(st.lists(st.binary(max_size=300) | damaged(HELLO, READY) | st.sampled_from([HELLO, READY]), max_size=4))
def test_the_door_survives_any_bytes_and_seats_nobody_who_has_not_said_the_right_ones(arriving: list[bytes]) -> None:
    """Every stream ends with a reason or with the node's own end; nobody is seated but by a hello and a ready."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("fed_ucbvi.federation")
    log.addHandler(handler)

    async def attempt() -> list[Any]:
        server = FederationServer(PLAN, None, None)
        connection = Arriving(*arriving)
        registry = server.registry
        session = asyncio.ensure_future(server.session(connection))
        for _ in range(20):
            await asyncio.sleep(0)
        seated = dict(registry.members)
        await server.close()
        await session
        assert set(seated) <= {"node-0"}
        assert seated or arriving[:2] != [HELLO, READY]
        for member in seated.values():
            assert member.span == range(3)
            assert len(arriving) >= 2
        if not seated and arriving:
            assert lines
        return [decode_down(data) for data in connection.sent]

    try:
        sent = asyncio.run(attempt())
    finally:
        log.removeHandler(handler)
    assert all(isinstance(message, Welcome | messages.Refusal) for message in sent)
    assert all("\n" not in line for line in lines)


def _round() -> tuple[bytes, list[bytes], np.ndarray[Any, Any], list[Query]]:
    """An honest node's answers in its first round, with what it was asked."""
    node: Any = Node("node-0", lambda M: WORLD, 0, 1)
    node.enter(PLAN.welcome())
    server = PLAN.algorithm.new_server(PLAN.setting)
    broadcast = first_broadcast(PLAN)
    played = encode(node.answer(Start(1, 0, 0, 120, CHUNK, broadcast)))
    node.answer(Stop(1, CHUNK))
    queries = [Query(1, exchange, tuple(PLAN.algorithm.query(server, exchange))) for exchange in range(3)]
    return played, [encode(node.answer(query)) for query in queries], broadcast[0], queries


PLAYED, REPORTS, POLICY, QUERIES = _round()
GRID = make_grid(PLAN.setting.agents, PLAN.setting.agents * PLAN.setting.episodes, PLAN.setting.horizon)
SCHEMA = ReportSchema(PLAN, PLAN.algorithm.new_server(PLAN.setting))


@many
@example(PLAYED, True)
@example(REPORTS[0], False)
@given(st.binary(max_size=100) | damaged(PLAYED, *REPORTS), st.booleans())
def test_an_answer_of_any_bytes_is_possible_or_refused(data: bytes, episodes: bool) -> None:
    """What passes the checks could be an honest node's: requests that exist, counts that add up, values in range."""

    async def attempt() -> None:
        stream = NodeStream(Arriving(data), WireCount())
        member = Member("node-0", 0, 1, b"")
        reason = "possible"
        try:
            if episodes:
                played = await stream.expect(1)
                assert isinstance(played, Played)
                check_played(played, member, POLICY, PLAN, CHUNK)
                assert played.played == CHUNK or played.requests
                assert all(POLICY[request.step, request.state] == request.action for request in played.requests)
            else:
                report = await stream.expect(1, 0)
                assert isinstance(report, Report)
                expected = Expected(SCHEMA, POLICY, QUERIES[0].arrays)
                check_report(report.arrays, member, CHUNK, expected)
                n, X, Y, Z = report.arrays
                assert min(array.min() for array in report.arrays) >= 0
                assert n.sum() == CHUNK
                most = QUERIES[0].arrays[0].max() * 2.0**GRID.bits
                assert (X[..., 0] <= n * (most + 1e-3)).all()
                assert (Y[..., 1] * 2.0**GRID.base <= n * (most + 1e-3) ** 2).all()
                assert (Z[..., 0] <= n * (1 + 1e-6) * 2.0**GRID.bits).all()
        except (ConnectionLostError, ViolationError) as refused:
            reason = str(refused)
        assert reason
        if data == (PLAYED if episodes else REPORTS[0]):
            assert reason == "possible"

    asyncio.run(attempt())


ORDERED = np.zeros((3, 3), dtype=np.int32), np.zeros((3, 3, 2), dtype=np.int64)
ORDERS = tuple(
    encode(message)
    for message in (
        Start(1, 0, 0, 120, 5, ORDERED),
        messages.Continue(1, 9),
        Stop(1, 4),
        Query(1, 0, (np.zeros(3),)),
        PLAN.welcome(),
        messages.Refusal("no", retry=False),
    )
)


@many
@given(st.lists(st.binary(max_size=100) | damaged(*ORDERS) | st.sampled_from(ORDERS), max_size=6))
def test_a_node_obeys_or_says_what_is_wrong_whatever_the_server_sends(orders: list[bytes]) -> None:
    """And what it answers is about its own agents alone, in the shapes of the algorithm."""
    node = Node("node-0", lambda M: WORLD, 0, 1)
    node.enter(PLAN.welcome())
    for data in orders:
        answer: object = None
        with suppress(InputError, WireError):
            message = decode_down(data)
            answer = node.enter(message) if isinstance(message, Welcome) else node.answer(message)
        if isinstance(answer, Report):
            shapes = [array.shape for array in answer.arrays]
            assert shapes == [(1, 3, 2), (1, 3, 2, 1), (1, 3, 2, 2), (1, 3, 2, 1)]
        elif isinstance(answer, Played):
            assert answer.played <= PLAN.setting.episodes


NUMBERS = st.integers(-1, 2**64 - 1)


@given(st.fixed_dictionaries({}, optional={
    "algorithm": st.sampled_from(["", "fed-ucbvi", "ucbvi", "concurrent-ucbvi", "os.system", "os:system", 7]),
    "parameters": st.sampled_from(["", [], {}, {"nu": "x"}, {"nu": -1}, {"import": 1}, [[[]]]]),
    "sizes": st.none() | st.lists(NUMBERS, max_size=4),
    "agents": st.none() | NUMBERS,
    "episodes": NUMBERS,
    "seed": NUMBERS,
    "collection": st.sampled_from(["", "live", "lockstep", "forever"]),
    "environment": st.sampled_from([None, "os:system", "gridworld"]),
    "unknown": st.just(1),
}), st.floats() | st.floats(0, 1), st.sampled_from([None, b"", b"[]", b"{", b"[" * 10_000, b"\xff"]))  # fmt: skip
def test_a_node_enters_only_runs_that_can_be(fields: dict[str, Any], eps_p: float, spec: bytes | None) -> None:
    welcome = PLAN.welcome()
    respelt = json.dumps({**json.loads(welcome.spec), **fields}).encode()
    welcome = replace(welcome, spec=respelt if spec is None else spec, eps_p=eps_p)
    node = Node("node-0", lambda M: WORLD, 0, 1)
    with suppress(InputError):
        node.enter(welcome)
        told = json.loads(welcome.spec)
        assert node.run == "the-run"
        assert told["sizes"] == [3, 2, 3]
        assert 0 < told["agents"] * told["episodes"] <= 2**53
        assert 0 <= welcome.eps_p <= 1
        return
    assert node.run == ""


class Impostor:
    """A server that says just this to every stream."""

    def __init__(self, *words: bytes, silent: bool = False) -> None:
        self._words = words
        self._silent = silent

    async def session(self, connection: Connection) -> None:
        await connection.read()
        for data in self._words:
            await connection.write(data)
        if self._silent:
            await asyncio.sleep(60)

    async def policy(self, certificate: bytes) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("impostor", "says"),
    [
        (Impostor(b"\xff\xff"), "2 bytes that are no message"),
        (Impostor(b""), "0 bytes that are no message"),
        (Impostor(encode(replace(PLAN.welcome(), protocol=99))), "server speaks protocol 99, this node [0-9]+"),
        (Impostor(encode(replace(PLAN.welcome(), spec=b"{"))), "spec is no JSON"),
        (Impostor(encode(Stop(3, 1))), "names round 3, which it has not started"),
        (Impostor(encode(messages.Refusal("go\naway", retry=False))), "rejected 'node-0': go away"),
        (Impostor(silent=True), "no connection .* the server does not answer"),
        (Impostor(), "no connection .* has closed the stream"),
    ],
)
def test_a_node_leaves_a_server_without_sense(impostor: Impostor, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WELCOME_SECONDS", 0.3)

    with pytest.raises(InputError, match=says):
        asyncio.run(run_node(make_nodes(WORLD, [3])[0], InMemoryServer(impostor), patience=0.2))
