"""Limits on the size of a message that follow from the sizes of a run, in both directions."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from faults import Arriving
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, synthetic
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import NodeStream
from fed_ucbvi.network.message_sizes import BEFORE_WELCOME, WELCOME_BYTES, check_size, up_limits
from fed_ucbvi.network.messages import (
    MAX_SIGNED_BYTES,
    PART_BYTES,
    Continue,
    Down,
    End,
    Hello,
    Played,
    Query,
    Ready,
    Refusal,
    Report,
    Request,
    Roster,
    RosterEntry,
    Sign,
    Start,
    Stop,
    encode,
    in_parts,
    kind_of,
)
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import Connection, WireCount
from fed_ucbvi.results.policy import LearntPolicy
from network import InMemoryServer, Served, first_broadcast, make_nodes, tell

LARGE: dict[str, Any] = {"states": 300, "actions": 8, "horizon": 4}
"""Sizes at which a report and a start are longer than 64 KiB."""
WORLD = synthetic(agents=2, eps_p=0.1, seed=1, **LARGE)
IN_THE_OPEN = plan_for(FedUCBVI(synchronisation="local"), WORLD, 3)
IN_SUMS = plan_for(FedKLUCBVI(), WORLD, 3)
SLACK = 4096
"""Bytes by which a limit may be above the longest honest message."""
LARGEST = 2**63 - 1


def received(data: bytes, limits: Any) -> Any:
    """The message that a server's stream reads."""
    stream = NodeStream(Arriving(*in_parts(data)), WireCount())
    stream.limits = limits
    return asyncio.run(stream.receive())


def padded(message: Any, length: int) -> bytes:
    """A message with one more array, which makes it so long."""
    more = length - len(encode(message))
    for numbers in range(more - 24, more):
        longer = type(message)(
            *(
                (*message.arrays, np.zeros(numbers, dtype=np.int8)) if name == "arrays" else getattr(message, name)
                for name in message.__struct_fields__
            )
        )
        if len(encode(longer)) == length:
            return encode(longer)
    raise AssertionError("no array makes it so long")


def zeros(forms: Any, rows: int) -> Message:
    return tuple(np.zeros((rows, *form.shape), dtype=form.dtype) for form in forms)


def longest_report(plan: RunPlan, agents: int) -> tuple[Report, Any]:
    """The longest report of a node with so many agents, and the limits on its messages."""
    schema = FederationServer(plan, None, None).registry.report_schema
    rows = agents if schema.grid is None else 1
    most = max((zeros(forms, rows) for forms in schema.forms), key=lambda report: sum(a.nbytes for a in report))
    rewards = np.zeros((1, schema.rewards._replace(judged=(1, 2)).numbers), dtype=np.int64)
    return Report(LARGEST, LARGEST, (*most, rewards)), up_limits(schema, agents)


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("plan", [IN_THE_OPEN, IN_SUMS], ids=["rows", "sums"])
def test_report_of_the_size_of_the_run_fits_its_limit_closely(plan: RunPlan, agents: int) -> None:
    report, limits = longest_report(plan, agents)
    length = len(encode(report))
    assert length > PART_BYTES
    assert length <= limits["Report"] <= length + SLACK


def test_report_at_the_limit_is_read() -> None:
    report, limits = longest_report(IN_THE_OPEN, 1)
    assert isinstance(received(padded(report, limits["Report"]), limits), Report)


def test_report_one_byte_above_the_limit_is_a_violation() -> None:
    report, limits = longest_report(IN_THE_OPEN, 1)
    limit = limits["Report"]
    with pytest.raises(
        ViolationError, match=f"it sent a message of {limit + 1} bytes or more, above the limit of {limit}"
    ):
        received(padded(report, limit + 1), limits)


def test_limit_of_a_report_is_none_for_another_kind_of_message() -> None:
    _, limits = longest_report(IN_THE_OPEN, 2)
    other = Query(1, 0, (np.zeros(PART_BYTES, dtype=np.int8),))
    with pytest.raises(ViolationError, match=f"above the limit of {PART_BYTES}"):
        received(encode(other), limits)


def test_requests_of_all_agents_of_a_node_fit_their_limit() -> None:
    agents = 3000
    _, limits = longest_report(plan_for(FedUCBVI(), synthetic(agents=agents, eps_p=0.0), 3), agents)
    requests = tuple(Request(agent, LARGEST, LARGEST, LARGEST, LARGEST) for agent in range(agents))
    data = encode(Played(1, 3, requests))
    assert PART_BYTES < len(data) <= limits["Played"] <= 46 * agents + 5 * SLACK
    assert isinstance(received(data, limits), Played)
    with pytest.raises(ViolationError, match="above the limit of"):
        received(encode(Played(1, 3, 2 * requests)), limits)


async def test_server_limits_the_messages_of_a_node_once_it_is_let_in() -> None:
    async with Served(IN_THE_OPEN) as served:
        served.join(*make_nodes(WORLD, [1, 1]))
        await served.meet(2)
        for member in served.registry.everyone:
            assert member.stream is not None
            assert member.stream.limits == up_limits(served.registry.report_schema, 1)
        await served.finish()


# ---------------------------------------------------------------------------------------------------- to the node


def entered(plan: RunPlan) -> Any:
    """A node that knows the run."""
    (node,) = make_nodes(WORLD, [2])
    node.enter(plan.welcome())
    return node


def longest_down(plan: RunPlan) -> dict[str, Down]:
    """The longest messages of a server of this run."""
    policy, *others = first_broadcast(plan)
    drawn = np.zeros(policy.shape)
    server = plan.algorithm.new_server(plan.setting)
    queries = [plan.algorithm.query(server, exchange) for exchange in range(plan.exchanges)]
    asked = max(queries, key=lambda query: sum(array.nbytes for array in query))
    digest = bytes(32)
    start = Start(
        round=LARGEST,
        base=LARGEST,
        first=LARGEST,
        most=LARGEST,
        chunk=LARGEST,
        arrays=(drawn, *others),
        confirmed=LARGEST,
        playing=LARGEST,
        judged=(LARGEST, LARGEST),
    )
    ready = Ready(
        round=LARGEST,
        digest=digest,
        episodes=LARGEST,
        rewards=True,
        key=digest,
        signature=bytes(MAX_SIGNED_BYTES),
    )
    certificate = bytes(MAX_SIGNED_BYTES)
    name = "n" * 63
    entry = RosterEntry(name, LARGEST, LARGEST, certificate, ready)
    nodes = plan.setting.agents
    roster = Roster(LARGEST, (entry,) * nodes)
    return {"Start": start, "Query": Query(LARGEST, LARGEST, asked, rewards=True), "Roster": roster}


@pytest.mark.parametrize("plan", [IN_THE_OPEN, IN_SUMS], ids=["rows", "sums"])
@pytest.mark.parametrize("kind", ["Start", "Query", "Roster"])
def test_messages_of_an_honest_server_fit_their_limits(plan: RunPlan, kind: str) -> None:
    data = encode(longest_down(plan)[kind])
    check_size(data, entered(plan).limits)


def test_limit_of_a_start_is_close_to_the_longest_one() -> None:
    length = len(encode(longest_down(IN_THE_OPEN)["Start"]))
    assert length > PART_BYTES
    assert length <= entered(IN_THE_OPEN).limits["Start"] <= length + SLACK


def test_policy_at_the_end_fits_its_limit() -> None:
    made = LearntPolicy(np.zeros((4, 300), dtype=np.int32), 8, {"name": "synthetic"}, math.nan)
    data = encode(End(1, 3, made.to_bytes()))
    check_size(data, entered(IN_THE_OPEN).limits)


def test_welcome_of_the_run_fits_its_limit() -> None:
    check_size(encode(IN_SUMS.welcome()), BEFORE_WELCOME)


def test_welcome_above_its_limit_is_refused_before_it_is_decoded() -> None:
    data = encode(IN_SUMS.welcome())
    with pytest.raises(WireError, match=f"above the limit of {WELCOME_BYTES}"):
        check_size(data + bytes(WELCOME_BYTES), BEFORE_WELCOME)


def test_start_at_the_limit_is_decoded_and_one_byte_more_is_refused() -> None:
    limits = entered(IN_THE_OPEN).limits
    start = longest_down(IN_THE_OPEN)["Start"]
    check_size(padded(start, limits["Start"]), limits)
    with pytest.raises(WireError, match=f"{limits['Start'] + 1} bytes, above the limit of {limits['Start']}"):
        check_size(padded(start, limits["Start"] + 1), limits)


class Oversized:
    """A server that welcomes a node and sends it one message."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def session(self, connection: Connection) -> None:
        await connection.read()
        await connection.write(encode(IN_THE_OPEN.welcome()))
        await connection.read()
        await connection.write(self._data)
        await connection.read()

    async def policy(self, certificate: bytes) -> bytes:
        raise NotImplementedError


def test_node_ends_with_one_sentence_on_a_message_above_the_limit() -> None:
    limit = entered(IN_THE_OPEN).limits["Query"]
    data = padded(longest_down(IN_THE_OPEN)["Query"], limit + 1)
    (node,) = make_nodes(WORLD, [2])
    with pytest.raises(InputError) as refused:
        tell(run_node(node, InMemoryServer(Oversized(data)), patience=0.1))
    assert str(refused.value) == f"the server sent a message of {limit + 1} bytes, above the limit of {limit}."


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, "2", "node", bytes(16), 0, 1, ""),
        IN_SUMS.welcome(),
        Refusal("no", False),
        Start(1, 0, 0, 3, 1, (np.zeros(3),)),
        Roster(1, ()),
        Sign(1),
        Ready(1, bytes(32), 2, True, bytes(32), b""),
        Query(1, 0, ()),
        Continue(1, 2),
        Stop(1, 2),
        Played(1, 2, ()),
        Report(1, 0, (np.zeros(3),)),
        End(1, 2, b"{}"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_kind_of_a_message_is_known_from_its_first_bytes(message: Any) -> None:
    assert kind_of(encode(message)[:32]) == type(message).__name__


@pytest.mark.parametrize("data", [b"", b"\x9f", b"\x92\x01", b"\xdc\x00\x02\xa4Stop", b"{}"])
def test_kind_of_other_bytes_is_empty(data: bytes) -> None:
    assert kind_of(data) == ""
