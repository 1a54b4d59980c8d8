"""Members of a federation: asking them, waiting for them, and leaving out those that are away or break the rules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from fed_ucbvi.network.checks import ReportSchema
from fed_ucbvi.network.failures import (
    ConnectionEndedError,
    ConnectionLostError,
    FederationStoppedError,
    ViolationError,
)
from fed_ucbvi.network.members import AWAY, GONE, HERE, Member, NodeStream
from fed_ucbvi.network.messages import Down, Played
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.transport import WireCount

log = logging.getLogger("fed_ucbvi.federation")

MAX_ENDS = 5
"""Number of streams that a process may end in place of one answer; gRPC has cut off its messages then."""

AnswerT = TypeVar("AnswerT")
Tasks = dict[asyncio.Task[AnswerT | None], Member]
Question = Callable[[Member, NodeStream], Coroutine[Any, Any, AnswerT | None]]
"""Asks a node on its stream; None if it cannot be asked now, or does not answer that.

Raises :class:`ViolationError` if what it says cannot be true.
"""
OnExchange = Callable[[float], None]
"""Called after every exchange that has a deadline, with the seconds of its slowest answer."""


class Waiting(Protocol):
    """Limit on the time for an answer of a node.

    Attributes:
        has_deadline: True if the time to an answer says how fast the node is.
    """

    has_deadline: bool

    async def answer(self, asking: Coroutine[Any, Any, AnswerT], stream: NodeStream) -> AnswerT:
        """The answer of the node on this stream; raises :class:`TimeoutError` if it comes too late."""


class Deadline:
    """Waits so many seconds for an answer."""

    has_deadline = True

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def answer(self, asking: Coroutine[Any, Any, AnswerT], stream: NodeStream) -> AnswerT:
        async with asyncio.timeout(self._seconds):
            return await asking


class UntilHalted:
    """Waits for nodes that play until the agents of one of them request a synchronisation.

    Until then an answer may take any length of time while the connection lives. Afterwards the other nodes are sent
    ``halt``, and have so many seconds to answer.
    """

    has_deadline = False

    def __init__(self, halt: Down, seconds: float) -> None:
        self._halt = halt
        self._seconds = seconds
        self._halted = asyncio.Event()

    async def answer(self, asking: Coroutine[Any, Any, AnswerT], stream: NodeStream) -> AnswerT:
        answering = asyncio.ensure_future(asking)
        halting = asyncio.ensure_future(self._halted.wait())
        try:
            await asyncio.wait((answering, halting), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await stream.send(self._halt)
            async with asyncio.timeout(self._seconds):
                answer = await answering
        finally:
            answering.cancel()
            halting.cancel()
        if isinstance(answer, Played) and answer.asked:
            self._halted.set()
        return answer


class NodeRegistry:
    """All members; asks those that take part, all at once, and tells those who wait when nodes come or go."""

    def __init__(self, plan: RunPlan, engine: NetworkEngine, on_exchange: OnExchange | None) -> None:
        self.plan = plan
        self.engine = engine
        self._on_exchange = on_exchange
        self.report_schema = ReportSchema(plan, engine.server)
        self.members: dict[str, Member] = {}
        self.wire = WireCount()
        """Messages and bytes of all streams."""
        self.violations = 0
        self._round = 0
        self._changed = asyncio.Condition()

    @property
    def everyone(self) -> list[Member]:
        """All members, in the order of their agents."""
        return sorted(self.members.values(), key=lambda member: member.first_agent)

    @property
    def active(self) -> list[Member]:
        """Members that have not been excluded, in the order of their agents."""
        return [member for member in self.everyone if member.status != GONE]

    @property
    def present(self) -> list[Member]:
        """Members that take part, in the order of their agents."""
        return [member for member in self.everyone if member.status == HERE]

    @property
    def connected(self) -> int:
        return sum(member.connected for member in self.members.values())

    def complete(self) -> bool:
        """True if all agents have joined; those of excluded nodes are not waited for."""
        known = sum(member.agents for member in self.members.values())
        absent = not all(member.connected for member in self.present)
        return known == self.plan.setting.agents and self.connected > 0 and not absent

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for nodes to come or go until ``condition`` holds; False if it does not in time."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    async def give_up(self, member: Member, stream: NodeStream | None, reason: str) -> None:
        """End a stream, if there is one; the node may open another."""
        if stream is not None:
            stream.close(reason)
            if member.stream is stream:
                member.stream = None
                log.warning("%s: stream closed: %s", member.name, reason, extra=member.about)
        await self.notify()

    # ---------------------------------------------------------------------------------------------------- asking them

    def begin(self, round_number: int) -> None:
        """Begin a round, in which nodes that were away and have come back take part again."""
        self._round = round_number
        for member in self.everyone:
            if member.status == AWAY and member.stream is not None:
                self.note(member, "came back", "takes part again")
                member.status = HERE

    async def ask_all(self, question: Question[AnswerT], waiting: Waiting | None = None) -> dict[str, AnswerT]:
        """Ask every node that takes part, at once; answers by name, without those that turned out to be away.

        By default each node has the deadline of the run to answer.
        """
        if waiting is None:
            waiting = Deadline(self.plan.rules.deadline)
        tasks = {asyncio.create_task(self._ask(member, question, waiting)): member for member in self.present}
        try:
            if self.plan.rules.quorum is not None:
                await self._in_time(tasks, self.plan.rules.quorum)
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        self._check_present()
        answered = {m.name: answer for m, answer in zip(tasks.values(), answers, strict=True) if answer is not None}
        if self._on_exchange is not None and waiting.has_deadline and answered:
            self._on_exchange(max(self.members[name].latency for name in answered))
        return answered

    async def _in_time(self, tasks: Tasks[AnswerT], quorum: int) -> None:
        """Wait for all answers, or for those of a quorum and a while longer; who is late is away for this round."""
        heard = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                for answer in asyncio.as_completed(tasks):
                    heard += await answer is not None
                    if heard >= quorum and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + self.plan.rules.wait)
        for task in [task for task in tasks if not task.done()]:
            task.cancel()
            member = tasks.pop(task)
            member.status = AWAY
            self.note(member, "has not answered", "the round closes without it")
            await self.give_up(member, member.stream, "the round has closed without it")

    def _check_present(self) -> None:
        if not self.present:
            raise FederationStoppedError(f"no node is left in round {self._round}.")

    async def _ask(self, member: Member, question: Question[AnswerT], waiting: Waiting) -> AnswerT | None:
        """Ask one node, again after every reconnection, until it answers or patience ends."""
        away_since: float | None = None
        ends: list[bytes] = []
        while member.status == HERE:
            stream = member.stream
            if stream is None or away_since is not None:
                away_since = away_since or time.monotonic()
                patience = self._patience
                left = away_since + patience - time.monotonic()
                if left <= 0:
                    await self._stayed_away(member)
                    continue
            if stream is None:

                def changed(most: float = patience) -> bool:
                    """True if it is back or excluded, or if the time to wait for it has become shorter."""
                    return member.connected or member.status == GONE or self._patience < most

                await self.wait_until(changed, left)
                continue
            try:
                began = time.perf_counter()
                answer = await waiting.answer(question(member, stream), stream)
                if answer is not None:
                    member.latency = time.perf_counter() - began
                return answer
            except ConnectionLostError as lost:
                await self.give_up(member, stream, str(lost))
                ends += [member.incarnation] if isinstance(lost, ConnectionEndedError) else []
                if ends.count(member.incarnation) >= MAX_ENDS:
                    await self.violated(member, f"it ended {MAX_ENDS} streams where one answer was due")
            except TimeoutError:
                await self.give_up(member, stream, f"no answer within {self.plan.rules.deadline:g} s")
            except ViolationError as violation:
                await self.violated(member, str(violation))
            away_since = away_since or time.monotonic()
        return None

    @property
    def _patience(self) -> float:
        """Seconds to wait for a node: few if this round lacks a quorum that is there by now, for the next one."""
        plan = self.plan
        here = sum(member.connected for member in self.present)
        some_back = plan.rules.quorum is not None and here < plan.rules.quorum <= self.connected
        return min(plan.rules.wait, plan.rules.patience) if some_back else plan.rules.patience

    async def _stayed_away(self, member: Member) -> None:
        """Continue without a node that has not come back if a quorum is connected; otherwise stop the run."""
        plan = self.plan
        if plan.rules.quorum is not None and plan.rules.quorum <= self.connected:
            member.status = AWAY
            self.note(member, "is away, and others are back", "the round closes without it")
            return
        raise FederationStoppedError(
            f"'{member.name}' has stayed away, or has not answered, for {plan.rules.patience:g} s in round "
            f"{self._round}; finished rounds are kept. Start the server again once the node can take part, or begin "
            "a new run without it from the counts of this one (serve --warm-start)."
        )

    async def violated(self, member: Member, what: str) -> None:
        """Exclude a node whose answer cannot be true if a quorum remains; otherwise stop the run."""
        log.error("%s: %s", member.name, what, extra={**member.about, "round": self._round})
        self.violations += 1
        quorum = self.plan.rules.quorum
        others = len(self.active) - 1
        if quorum is None or others < quorum:
            fewer = "" if quorum is None else f", and without it {others} nodes are left of a quorum of {quorum}"
            raise FederationStoppedError(
                f"'{member.name}' broke the rules in round {self._round}: {what}{fewer}; finished rounds are kept."
            )
        self.note(member, what, "excluded for good")
        member.status = GONE
        await self.give_up(member, member.stream, what)
        self._check_present()

    def note(self, member: Member, what: str, done: str) -> None:
        log.warning("%s: %s: %s", member.name, what, done, extra={**member.about, "round": self._round})
        self.record(member.name, what, done)

    def record(self, node: str, what: str, done: str) -> None:
        """Put on record what was not planned, of a node or of all."""
        self.engine.events.append({"round": self._round, "node": node, "what": what, "done": done})
