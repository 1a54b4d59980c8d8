"""A node that breaks the protocol is named. It stops the run, or is excluded where a quorum remains."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from faults import ALGORITHM, SPLIT, WORLD, CrashError, T, Turn, hello_of, long_fault, plan, turning
from fed_ucbvi import FedKLUCBVI
from fed_ucbvi.network.checks import Expected, ReportSchema
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import FederationStoppedError, RefusedError, ViolationError
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Decline, Joining, Played, Report, Request, encode, in_parts
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server import Outcome
from network import LOOPBACK, Served, assert_run_of_the_others, assert_simulation, check_report, federate, make_nodes


async def with_turned(
    task: RunPlan, turn: Turn, folder: Path | None = None, *, address: str | None = None
) -> tuple[Outcome, str]:
    """A run in which node-0 turns; the outcome, and what it was told at the end."""
    served = Served(task, None if folder is None else folder / "checkpoint", address=address)
    enemy, honest = make_nodes(WORLD, SPLIT, folder)
    (turned,) = served.begin(turning(enemy, served.remote(), turn))
    served.join(honest)
    return await served.finish(), await turned


def with_quorum(**rules: Any) -> RunPlan:
    """A run that one of two nodes can finish; the other one has a minute for each answer unless ``rules`` differ."""
    return plan(FedKLUCBVI(), **{"quorum": 1, "wait": 60.0, **rules})


def assert_excluded(outcome: Outcome, told: str, number: int, says: str) -> None:
    """node-0 was excluded in that round, for that reason, which it was told."""
    (event,) = outcome.events
    assert (event["round"], event["node"], event["done"]) == (number, "node-0", "excluded for good")
    assert re.search(says, event["what"])
    assert told == event["what"]


def _as_played(**changes: Any) -> Turn:
    return lambda answer: [encode(replace(answer, **changes) if isinstance(answer, Played) else answer)]


def _says(message: Any) -> Turn:
    return lambda _: [message if isinstance(message, bytes) else encode(message)]


INSTEAD = "when asked for round 1, episodes"
FIRST_ANSWERS: dict[str, tuple[Turn, str]] = {
    "random bytes": (_says(random.Random(3).randbytes(64)), "64 bytes that are no message"),
    "no bytes": (_says(b""), "0 bytes that are no message"),
    "a truncated message": (lambda answer: [encode(answer)[:-1]], "bytes that are no message"),
    "too long a message": (_says(b"x" * 70_000), "a message of 70000 bytes or more, above the limit of 65552"),
    "many parts": (lambda _: in_parts(b"x" * (20 << 16))[:3], "65537 bytes or more, above the limit of 65536"),
    "another hello": (_says(hello_of(make_nodes(WORLD, SPLIT)[0])), "a Hello in the middle"),
    "another ready": (_says(Joining(3, 2, 3, bytes(32), (0,))), "a Joining in the middle"),
    "an answer of a later round": (_as_played(round=2), f"answered round 2, episodes {INSTEAD}"),
    "a report": (_says(Report(1, 0, (np.zeros((1, 3, 2)),))), f"answered round 1, exchange 0 {INSTEAD}"),
    "a flood of old answers": (lambda _: [encode(Played(0, 0, ()))] * 17, "17 copies of earlier answers"),
    "too many episodes": (_as_played(played=T + 1), "played 121 episodes"),
    "no episodes": (_as_played(played=0, requests=()), "played 0 of [0-9]+ episodes without a request"),
    "a request out of thin air": (_as_played(played=0), "a request before the first episode"),
    "another's request": (_as_played(requests=(Request(1, 0, 0, 0, 0),)), "agent 1: request: not one of this node's"),
    "a request for no step": (_as_played(requests=(Request(0, 3, 0, 0, 0),)), "agent 0: request: no such step"),
    "a request for no rule": (_as_played(requests=(Request(0, 0, 0, 0, 9),)), "agent 0: request: no such step"),
    "a request for no action": (_as_played(requests=(Request(0, 0, 0, 7, 0),)), "action 7 is not the policy's"),
}


@pytest.mark.parametrize("kind", FIRST_ANSWERS)
async def test_with_a_quorum_a_node_that_answers_wrongly_is_excluded_and_the_others_finish(kind: str) -> None:
    turn, says = FIRST_ANSWERS[kind]
    task = with_quorum()
    outcome, told = await with_turned(task, turn)
    assert_excluded(outcome, told, 1, says)
    assert_run_of_the_others(outcome.run, task)


async def test_an_excluded_node_is_rejected_when_it_comes_back(tmp_path: Path) -> None:
    """Also by a server that resumes the run from its checkpoint."""

    def die(coordinator: Coordinator) -> None:
        if coordinator.engine.events:
            raise CrashError

    task = with_quorum()
    served = Served(task, tmp_path / "checkpoint", report=die)
    enemy, honest = make_nodes(WORLD, SPLIT, tmp_path)
    served.begin(turning(enemy, served.remote(), FIRST_ANSWERS["no bytes"][0]))
    served.join(honest)
    with pytest.raises(CrashError):
        await served.start()
    served.restart(task, tmp_path / "checkpoint")
    again = make_nodes(WORLD, SPLIT, tmp_path)[0]
    with pytest.raises(RefusedError, match="'node-0' has been excluded from this run in round 1: it sent 0 bytes"):
        await run_node(again, served.remote())
    outcome = await served.finish()
    assert outcome.ended
    assert_run_of_the_others(outcome.run, task)


def test_a_violation_stops_the_run_if_fewer_nodes_than_the_quorum_would_remain() -> None:
    says = "'node-0' broke the rules in round 1: .*, and without it 1 nodes are left of a quorum of 2"
    with pytest.raises(FederationStoppedError, match=says):
        asyncio.run(with_turned(with_quorum(quorum=2), FIRST_ANSWERS["no bytes"][0]))


def test_a_run_that_a_violation_has_stopped_goes_on_with_honest_nodes(tmp_path: Path) -> None:
    lie = in_reports(_set(0, (0, 1, 1), -1), 3)
    with pytest.raises(FederationStoppedError, match="'node-0' broke the rules in round 3: agent 0: n"):
        asyncio.run(with_turned(plan(), lie, tmp_path))
    honest = federate(plan(), make_nodes(WORLD, SPLIT, tmp_path), folder=tmp_path / "checkpoint")
    assert_simulation(honest, plan())


async def test_replayed_answers_are_passed_over_and_change_nothing() -> None:
    """Every answer comes twice, after copies of some of the earlier ones, out of order."""
    chance = random.Random(5)
    past: list[bytes] = []

    def turn(answer: Any) -> Iterable[bytes]:
        copies = chance.sample(past, min(len(past), 3))
        past.append(encode(answer))
        return [*copies, past[-1], past[-1]]

    outcome, told = await with_turned(plan(), turn)
    assert told == ""
    assert_simulation(outcome, plan())


async def test_with_a_quorum_a_round_closes_without_a_node_that_never_answers() -> None:
    task = with_quorum(deadline=2.0, wait=0.5)
    outcome, told = await with_turned(task, lambda _: ())
    assert told == "the round has closed without it"
    (event,) = outcome.events
    assert event == {"round": 1, "node": "node-0", "what": "has not answered", "done": "the round closes without it"}
    assert_run_of_the_others(outcome.run, task)


async def test_messages_that_are_cut_off_unread_are_a_violation_if_they_come_again_and_again() -> None:
    """Above eight times the limit gRPC ends the stream, as a dying process would; but this one lives on."""
    task = with_quorum()
    served = Served(task, address=LOOPBACK)
    enemy, honest = make_nodes(WORLD, SPLIT)

    async def insist() -> list[str]:
        told: list[str] = []
        while not told or not re.search("excluded|failed to connect", told[-1]):  # the run may be over by then
            told.append(await turning(enemy, served.remote(), lambda _: [b"x" * (9 * 65_536)]))
        return told

    served.begin(insist())
    served.join(honest)
    outcome = await served.finish()
    what = "it ended 5 streams where one answer was due"
    assert outcome.events == [{"round": 1, "node": "node-0", "what": what, "done": "excluded for good"}]
    assert_run_of_the_others(outcome.run, task)


async def test_a_node_that_talks_without_end_is_not_listened_to() -> None:
    """A stream is read when an answer is due; the rest waits on the line, and the sender with it."""

    def turn(answer: Any) -> Iterable[bytes]:
        yield encode(answer)
        for _ in range(100_000):
            yield long_fault(5_000)

    outcome, _ = await with_turned(with_quorum(wait=0.5), turn, address=LOOPBACK)
    done = "the round closes without it"
    assert [(event["round"], event["node"], event["done"]) for event in outcome.events] == [(1, "node-0", done)]
    assert outcome.ended
    assert not outcome.run.complete
    assert outcome.wire.bytes_up < 5_000_000


def in_reports(lie: Callable[[list[Any]], None], first_round: int = 1) -> Turn:
    """Change the arrays of reports, from some round on."""

    def turn(answer: Any) -> Iterable[bytes]:
        if isinstance(answer, Report) and answer.round >= first_round:
            arrays: list[Any] = [array.copy() for array in answer.arrays]
            lie(arrays)
            answer = replace(answer, arrays=tuple(arrays))
        return [encode(answer)]

    return turn


def _wrap_around(arrays: list[Any]) -> None:
    """Counts near 2^63 on three states whose sum, in 64 bits, is the honest one."""
    n = arrays[0]
    total = n.sum()
    largest = np.iinfo(np.int64).max
    n[0] = 0
    n[0, 0, 0] = n[0, 1, 0] = largest
    n[0, 2, 0] = total + 2


def _made(place: int, change: Callable[[Any], Any]) -> Callable[[list[Any]], None]:
    def lie(arrays: list[Any]) -> None:
        arrays[place] = change(arrays[place])

    return lie


def _off_policy(arrays: list[Any]) -> None:
    """All that was seen at the first pair visited is said to have been seen with the other action."""
    (s, a), *_ = np.argwhere(arrays[0][0])
    for array in arrays[:-1]:  # the last are rewards
        array[0, s, 1 - a] = array[0, s, a]
        array[0, s, a] = 0


def _set(place: int, index: Any, value: Any) -> Callable[[list[Any]], None]:
    def lie(arrays: list[Any]) -> None:
        arrays[place][index] = value

    return lie


def _claim_values(arrays: list[Any]) -> None:
    arrays[1][..., 0] += arrays[0] == 0


def _move(arrays: list[Any]) -> None:
    s, a = np.argwhere(arrays[0][0] > 0)[0]
    arrays[0][0, s, a] -= 1
    arrays[0][0, s, 1 - a] += 1


FALSE_REPORTS = [
    (1, _off_policy, r"agent 0: n at \(\d, \d\) is \d: changed where the policy did not go"),
    (1, _wrap_around, r"agent 0: n at \(0, 0\) is 9223372036854775807: does not add up"),
    (1, _made(0, lambda n: n.astype(np.int32)), r"agent 0: n is int32 \(1, 3, 2\), expected int64 \(1, 3, 2\)"),
    (1, _made(1, lambda X: np.repeat(X, 2, axis=0)), r"X is int64 \(2, 3, 2, 1\), expected int64 \(1, 3, 2, 1\)"),
    (3, _set(1, (0, 2, 0), 2**60), "agent 0: X .* outside n times"),  # a sum of values too large
    (3, _set(2, (0, 2, 0, 1), 2**60), "agent 0: Y .* outside n times"),  # a sum of squares too large
    (3, _set(2, (0, 2, 0, 0), 2**62), "agent 0: Y .* low word too large"),  # a low word too large
    (3, _set(3, (0, 2, 0), 2**60), "agent 0: Z .* outside n times"),  # rewards above one
    (3, _set(3, (0, 2, 0), -1), "agent 0: Z .* negative"),  # negative rewards
    (3, _claim_values, "agent 0: X .* outside n times"),  # values without visits
    (3, _set(0, (0, 1, 1), -1), "agent 0: n .* negative"),  # a negative count
    (3, _set(0, (0, 1, 1), 10**9), "agent 0: n .* does not add up"),  # too many visits
    (3, _move, "agent 0: n .* (smaller than before|changed where the policy did not go)"),  # visits that move
    (3, lambda arrays: arrays.insert(0, arrays.pop(1)), r"agent 0: n is int64 \(1, 3, 2, 1\)"),  # types exchanged
    (3, _made(2, lambda Y: Y.reshape(-1)), "agent 0: Y is int64"),  # another shape
    (3, _made(1, lambda X: X.astype(np.float64)), "agent 0: X is float64"),  # another type
    (3, lambda arrays: arrays.pop(), "agent 0: 3 arrays, expected 4"),  # one array fewer
]


def _instead_of_report(number: int, answer: Any) -> Turn:
    """Honest answers, whole, until that round's report of exchange 0."""

    def turn(honest: Any) -> Iterable[bytes]:
        due = isinstance(honest, Report) and (honest.round, honest.exchange) == (number, 0)
        return [encode(answer if due else honest)]

    return turn


FALSE_ANSWERS: list[tuple[int, Turn, str]] = [
    (1, _instead_of_report(1, Decline(1, "no", 0)), "declines to report: no"),  # nothing is masked
]


@pytest.mark.parametrize(
    ("number", "turn", "says"),
    [*((number, in_reports(lie, number), says) for number, lie, says in FALSE_REPORTS), *FALSE_ANSWERS],
)
def test_a_false_report_stops_the_run_by_agent_and_field(number: int, turn: Turn, says: str) -> None:
    """From the first round on, or later."""
    broke = f"'node-0' broke the rules in round {number}: "
    with pytest.raises(FederationStoppedError, match=f"{broke}.*{says}.*; finished rounds are kept"):
        asyncio.run(with_turned(plan(), turn))


async def test_with_a_quorum_a_false_report_is_dropped_and_the_rounds_after_it_are_those_of_the_others() -> None:
    outcome, told = await with_turned(with_quorum(), in_reports(_set(0, (0, 1), -1), 3))
    assert_excluded(outcome, told, 3, "agent 0: .* negative")
    assert outcome.ended
    assert not outcome.run.complete
    later = slice(2, None)
    assert (outcome.run.records["agent_episodes"][later] == 2 * outcome.run.records["length"][later]).all()


async def test_counts_that_fell_while_the_server_was_down_are_refused(tmp_path: Path) -> None:
    """The checkpoint holds what each node has reported last."""

    def die(coordinator: Coordinator) -> None:
        if coordinator.round == 12:
            raise CrashError

    served = Served(plan(), tmp_path / "checkpoint", report=die)
    gone, _ = served.join(*make_nodes(WORLD, SPLIT, tmp_path))
    with pytest.raises(CrashError):
        await served.start()
    gone.cancel()
    served.joined.remove(gone)
    served.restart(plan(), tmp_path / "checkpoint")
    enemy = make_nodes(WORLD, SPLIT, tmp_path)[0]
    served.begin(turning(enemy, served.remote(), in_reports(_move, 13)))
    says = "agent 0: n .*(smaller than before|changed where the policy did not go)"
    with pytest.raises(FederationStoppedError, match=f"'node-0' broke the rules in round 13: {says}"):
        await served.start()


@pytest.mark.parametrize("squares", [4, 3])
def test_squares_are_at_least_the_mean_squared(squares: int) -> None:
    """Two visits with values of 0 to 2 that add up to 2 sqrt(2): squares add up to 4 at least, up to 8 at most."""
    task = plan()
    schema = ReportSchema(task, ALGORITHM.new_server(task.setting))
    grid = schema.grid
    assert grid is not None
    V = np.array([0.0, 1.0, 2.0])
    policy = np.zeros((3, 3), dtype=np.int32)
    expected = Expected(schema, policy, (V,), 1)
    n, X, Y, Z = (np.zeros((1, *form.shape), dtype=np.int64) for form in expected.forms)
    n[0, 0, 0], X[0, 0, 0, 0] = 2, round(math.sqrt(8) * 2**grid.bits)
    Y[0, 0, 0] = (squares << 2 * grid.bits) % 2**grid.base, (squares << 2 * grid.bits) >> grid.base
    member = Member("node-0", 0, 1, b"")
    if squares == 4:
        check_report((n, X, Y, Z), member, 2, expected)
    else:
        with pytest.raises(ViolationError, match=r"Y .* less than the mean squared allows"):
            check_report((n, X, Y, Z), member, 2, expected)
