"""Bytes at random: whatever a node or a server is sent, it says what is wrong or does something sensible."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from enemies import hello_of
from fed_ucbvi import FedUCBVI, InputError, synthetic
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.network import client, transport
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.checks import Expected, check_played, check_report
from fed_ucbvi.network.client import take_part
from fed_ucbvi.network.health import Health
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import (
    PROTOCOL,
    Continue,
    Down,
    Played,
    Query,
    Refusal,
    Report,
    Start,
    Stop,
    Welcome,
    decode_down,
    encode,
)
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_registry import NodeRegistry
from fed_ucbvi.network.node_stream import NodeStream, StreamLostError
from fed_ucbvi.network.report_schema import ReportSchema
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.violation import ViolationError
from fed_ucbvi.network.wire_count import WireCount
from network import make_nodes

WORLD = synthetic(agents=3, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
PLAN = plan_for(FedUCBVI(nu=30), WORLD, 120, seed=4, run="the-run")
CHUNK = 5

many = settings(max_examples=300)


class Context:
    """The server's end of a stream on which these bytes arrive."""

    def __init__(self, *arriving: bytes) -> None:
        self.arriving, self.sent = list(arriving), list[bytes]()

    def peer(self) -> str:
        return "nowhere"

    async def read(self) -> Any:
        return self.arriving.pop(0) if self.arriving else grpc.aio.EOF

    async def write(self, data: bytes) -> None:
        self.sent.append(data)


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


def _opening() -> tuple[bytes, bytes]:
    (node,) = make_nodes(WORLD, [3])
    return encode(hello_of(node)), encode(node.enter(PLAN.welcome()))


HELLO, READY = _opening()


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

    async def attempt() -> tuple[NodeRegistry, list[Down]]:
        registry = NodeRegistry(PLAN, certified=False)
        context = Context(*arriving)
        session = asyncio.ensure_future(registry.session(None, context))
        for _ in range(20):
            await asyncio.sleep(0)
        seated = dict(registry.members)
        await registry.close()
        await session
        assert set(seated) <= {"node-0"}
        assert seated or arriving[:2] != [HELLO, READY]
        for member in seated.values():
            assert member.span == range(3)
            assert len(arriving) >= 2
        if not seated and arriving:
            assert lines
        return registry, [decode_down(data) for data in context.sent]

    try:
        _, sent = asyncio.run(attempt())
    finally:
        log.removeHandler(handler)
    assert all(isinstance(message, Welcome | Refusal) for message in sent)
    assert all("\n" not in line for line in lines)


def _member() -> Member:
    return Member("node-0", 0, 1, b"")


def _round() -> tuple[bytes, list[bytes], np.ndarray[Any, Any], list[Query]]:
    """An honest node's answers in its first round, with what it was asked."""
    node = Node("node-0", lambda M: WORLD, 0, 1)
    node.enter(PLAN.welcome())
    algorithm = PLAN.algorithm
    server = algorithm.new_server(PLAN.setting)
    broadcast = tuple(np.array(array) for array in algorithm.broadcast(server))
    played = node.answer(Start(1, 0, 0, 120, CHUNK, broadcast))
    assert isinstance(played, Played)
    node.answer(Stop(1, CHUNK))
    queries = [Query(1, exchange, tuple(algorithm.query(server, exchange))) for exchange in range(3)]
    reports = []
    for query in queries:
        report = node.answer(query)
        assert isinstance(report, Report)
        reports.append(encode(report))
    return encode(played), reports, broadcast[0], queries


PLAYED, REPORTS, POLICY, QUERIES = _round()
GRID = make_grid(PLAN.setting.agents, PLAN.setting.agents * PLAN.setting.episodes, PLAN.setting.horizon)
FORMS = ReportSchema(PLAN, PLAN.algorithm.new_server(PLAN.setting)).forms[0]


@many
@example(PLAYED, True)
@example(REPORTS[0], False)
@given(st.binary(max_size=100) | damaged(PLAYED, *REPORTS), st.booleans())
def test_an_answer_of_any_bytes_is_possible_or_refused(data: bytes, episodes: bool) -> None:
    """What passes the checks could be an honest node's: requests that exist, counts that add up, values in range."""

    async def attempt() -> None:
        stream, member, reason = NodeStream(Context(data), WireCount()), _member(), "possible"
        try:
            if episodes:
                played = await stream.expect_played(1)
                check_played(played, member, POLICY, PLAN.algorithm, CHUNK, early=False)
                assert played.played == CHUNK or played.requests
                assert all(POLICY[request.step, request.state] == request.action for request in played.requests)
            else:
                report = await stream.expect_report(1, 0)
                expected = Expected(FORMS, PLAN.setting, POLICY, QUERIES[0].arrays, 0, frozenset(), GRID)
                check_report(report.arrays, member, CHUNK, expected)
                n, X, Y, Z = report.arrays
                assert min(array.min() for array in report.arrays) >= 0
                assert n.sum() == CHUNK
                most = QUERIES[0].arrays[0].max() * 2.0**GRID.bits
                assert (X[..., 0] <= n * (most + 1e-3)).all()
                assert (Y[..., 1] * 2.0**GRID.base <= n * (most + 1e-3) ** 2).all()
                assert (Z[..., 0] <= n * (1 + 1e-6) * 2.0**GRID.bits).all()
        except (StreamLostError, ViolationError) as refused:
            reason = str(refused)
        assert reason
        if data == (PLAYED if episodes else REPORTS[0]):
            assert reason == "possible"

    asyncio.run(attempt())


# ------------------------------------------------------------------------------------------------- hostile servers


def _orders() -> Iterator[bytes]:
    policy, N = np.zeros((3, 3), dtype=np.int32), np.zeros((3, 3, 2), dtype=np.int64)
    yield from (encode(message) for message in (Start(1, 0, 0, 120, 5, (policy, N)), Continue(1, 9), Stop(1, 4)))
    yield encode(Query(1, 0, (np.zeros(3),)))
    yield encode(PLAN.welcome())
    yield encode(Refusal("no", retry=False))


ORDERS = tuple(_orders())


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


@given(st.fixed_dictionaries({}, optional={
    "algorithm": st.sampled_from(["", "fed-ucbvi", "ucbvi", "concurrent-ucbvi", "os.system"]),
    "parameters": st.sampled_from(["", "[]", "{", "{}", '{"nu": "x"}', '{"nu": -1}', '{"import": 1}', "[" * 10_000]),
    "states": st.integers(0, 2**64 - 1),
    "agents": st.integers(0, 2**64 - 1),
    "episodes": st.integers(0, 2**64 - 1),
    "eps_p": st.floats(),
    "seed": st.integers(0, 2**64 - 1),
    "collection": st.sampled_from(["", "live", "lockstep", "forever"]),
}))  # fmt: skip
def test_a_node_enters_only_runs_that_can_be(changes: dict[str, Any]) -> None:
    welcome = replace(PLAN.welcome(), **changes)
    node = Node("node-0", lambda M: WORLD, 0, 1)
    with suppress(InputError):
        node.enter(welcome)
        assert node.run == "the-run"
        assert 0 < welcome.agents * welcome.episodes < 2**62
        assert 0 <= welcome.eps_p <= 1
        return
    assert node.run == ""


class Impostor:
    """A server that says just this to every stream."""

    def __init__(self, *words: bytes, silent: bool = False) -> None:
        self._words, self._silent = words, silent

    async def session(self, _: Any, context: Any) -> None:
        await context.read()
        for data in self._words:
            await context.write(data)
        if self._silent:
            await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("impostor", "says"),
    [
        (Impostor(b"\xff\xff"), "2 bytes that are no message"),
        (Impostor(b""), "no known kind"),
        (
            Impostor(encode(replace(PLAN.welcome(), protocol=9))),
            f"the server speaks protocol 9, this node {PROTOCOL}",
        ),
        (Impostor(encode(replace(PLAN.welcome(), parameters="{"))), "parameters are no JSON"),
        (Impostor(encode(Stop(3, 1))), "speaks of round 3, which it has not started"),
        (Impostor(encode(Refusal("go\naway", retry=False))), r"turned 'node-0' away: go\?away"),
        (Impostor(silent=True), "no connection .* the server does not answer"),
        (Impostor(), "no connection .* the server has closed the stream"),
    ],
)
def test_a_node_leaves_a_server_that_makes_no_sense_and_says_why(
    impostor: Impostor, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WELCOME_SECONDS", 0.3)

    async def story() -> None:
        server, port = transport.open_server("127.0.0.1:0", impostor.session, None, Health(()))
        await server.start()
        try:
            await take_part(make_nodes(WORLD, [3])[0], f"127.0.0.1:{port}", None, patience=0.2)
        finally:
            await server.stop(0)

    with pytest.raises(InputError, match=says):
        asyncio.run(asyncio.wait_for(story(), 60))
