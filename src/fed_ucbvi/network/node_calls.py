"""Asking nodes, waiting for them, and what is done about those that do not answer or break the rules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from fed_ucbvi.network.failures import (
    ConnectionEndedError,
    ConnectionLostError,
    FederationStoppedError,
    ViolationError,
)
from fed_ucbvi.network.members import AWAY, GONE, HERE, NEW, Answer, Member, NodeRegistry, NodeStream
from fed_ucbvi.network.messages import Continue, Down, Played, ToMany
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.transcript import NOBODY, Transcript
from fed_ucbvi.run_spec import FederationRules

log = logging.getLogger("fed_ucbvi.federation")

MAX_ENDS = 5
"""If a process ends this many streams in place of one answer, gRPC has cut off its messages: a violation."""

AnswerT = TypeVar("AnswerT", covariant=True)
Tasks = dict[asyncio.Task[AnswerT | None], Member]


class Call(Protocol[AnswerT]):
    """One question to all nodes. It neither sends nor waits.

    ``halt`` is what the others are told once one node's agents have requested a synchronisation. The question may
    then take as long as it likes while the connection lives; the deadline counts from there.
    """

    halt: Continue | None

    def script(self, member: Member, stream: NodeStream) -> list[Down | ToMany]:
        """What this stream must carry, the question last; nothing if this node cannot be asked now."""

    def read(self, member: Member, answer: Any) -> AnswerT | None:
        """What an answer says, None if it is none; raises :class:`ViolationError` where it cannot be one."""


class NodeCalls:
    """Asks all nodes at once and knows which of them are away."""

    def __init__(
        self,
        registry: NodeRegistry,
        engine: NetworkEngine,
        rules: FederationRules,
        on_exchange: Callable[[float], None] | None = None,
        transcript: Transcript = NOBODY,
    ) -> None:
        self._transcript = transcript
        self._registry, self._engine, self._rules = registry, engine, rules
        self._on_exchange = on_exchange
        self._round = 0
        self.violations = 0

    def begin(self, round_number: int) -> None:
        """A new round: nodes that were away and have come back take part again, and new ones from here on."""
        self._round = round_number
        for member in self._registry.everyone:
            if member.stream is None or member.status not in (AWAY, NEW):
                continue
            if member.status == AWAY:
                self.note(member, "came back", "takes part again")
            else:
                self._engine.joined[member.span] = self._engine.played if self._engine.together else 0
                self.note(member, f"joined with {member.agents} new agents", "takes part from this round on")
            member.status = HERE

    async def ask_all(self, call: Call[AnswerT]) -> dict[str, AnswerT]:
        """Ask every node that takes part, at once; answers by name, without those that turned out to be away."""
        halted = asyncio.Event()
        tasks = {asyncio.create_task(self._ask(member, call, halted)): member for member in self._registry.present}
        try:
            if self._rules.quorum is not None:
                tasks = await self._in_time(tasks, self._rules.quorum)
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        self._check_present()
        answered = {m.name: answer for m, answer in zip(tasks.values(), answers, strict=True) if answer is not None}
        if self._on_exchange is not None and call.halt is None and answered:
            self._on_exchange(max(self._registry.members[name].latency for name in answered))
        return answered

    async def _in_time(self, tasks: Tasks[AnswerT], quorum: int) -> Tasks[AnswerT]:
        """Wait for all answers, or for those of a quorum and a while longer; who is late is away for this round."""
        pending, loop = set(tasks), asyncio.get_running_loop()
        end: float | None = None
        while pending:
            left = None if end is None else max(0.0, end - loop.time())
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() is not None for task in done) or (end is not None and not done):
                break
            if end is None and sum(task not in pending and task.result() is not None for task in tasks) >= quorum:
                end = loop.time() + self._rules.wait
        late = pending if end is not None else set()
        for task in late:
            task.cancel()
            member = tasks[task]
            member.status = AWAY
            self.note(member, "has not answered", "the round closes without it")
            if member.stream is not None:
                await self._registry.give_up(member, member.stream, "the round has closed without it")
        return {task: member for task, member in tasks.items() if task not in late}

    def _check_present(self) -> None:
        if not self._registry.present:
            raise FederationStoppedError(f"no node is left in round {self._round}.")

    async def violated(self, violation: ViolationError) -> None:
        await self._violated(self._registry.members[violation.node], violation)
        self._check_present()

    async def _ask(self, member: Member, call: Call[AnswerT], halted: asyncio.Event) -> AnswerT | None:
        """Ask one node, again after every reconnection, until it answers or patience ends."""
        rules = self._rules
        away_since: float | None = None
        ends: list[bytes] = []
        while member.status == HERE:
            stream = member.stream
            if stream is None or away_since is not None:
                away_since, patience = away_since or time.monotonic(), self._patience
                left = away_since + patience - time.monotonic()
                if left <= 0:
                    await self._stayed_away(member)
                    continue
            if stream is None:
                await self._registry.wait_until(self._changed(member, patience), left)
                continue
            try:
                script, began = call.script(member, stream), time.perf_counter()
                if not script:
                    return None
                if call.halt is None:
                    async with asyncio.timeout(rules.deadline):
                        said = await stream.ask(script)
                else:
                    said = await self._ask_until(halted, stream, script, call.halt)
                answer = call.read(member, said)
                member.latency = time.perf_counter() - began
                if isinstance(said, Played) and said.asked:
                    halted.set()
                return answer
            except ConnectionLostError as lost:
                await self._registry.give_up(member, stream, str(lost))
                ends += [member.incarnation] if isinstance(lost, ConnectionEndedError) else []
                if ends.count(member.incarnation) >= MAX_ENDS:
                    again = ViolationError(f"it ended {MAX_ENDS} streams where one answer was due")
                    await self._violated(member, again)
            except TimeoutError:
                await self._registry.give_up(member, stream, f"no answer within {rules.deadline:g} s")
            except ViolationError as violation:
                await self._violated(member, violation)
            away_since = away_since or time.monotonic()
        return None

    async def _ask_until(
        self, halted: asyncio.Event, stream: NodeStream, script: list[Down | ToMany], halt: Down
    ) -> Answer | None:
        """The answer of a node that plays until it has one; or, once others have halted the round, until told so."""
        answer, halting = asyncio.ensure_future(stream.ask(script)), asyncio.ensure_future(halted.wait())
        try:
            await asyncio.wait((answer, halting), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await stream.send(halt)
            async with asyncio.timeout(self._rules.deadline):
                return await answer
        finally:
            answer.cancel()
            halting.cancel()

    def _changed(self, member: Member, patience: float) -> Callable[[], bool]:
        """Whether a node that was away is back or out, or is to be waited for less than so long."""
        return lambda: member.stream is not None or member.out or self._patience < patience

    @property
    def _patience(self) -> float:
        """Seconds to wait for a node: few if this round lacks a quorum that is there by now, for the next one."""
        rules, here = self._rules, sum(member.stream is not None for member in self._registry.present)
        some_back = rules.quorum is not None and here < rules.quorum <= self._registry.connected
        return min(rules.wait, rules.patience) if some_back else rules.patience

    async def _stayed_away(self, member: Member) -> None:
        """Do what the policy says about a node that has not come back."""
        rules = self._rules
        if rules.quorum is not None and rules.quorum <= self._registry.connected:
            member.status = AWAY
            self.note(member, "is away, and others are back", "the round closes without it")
            return
        if rules.on_away == "wait":
            raise FederationStoppedError(
                f"'{member.name}' has stayed away, or has not answered, for {rules.patience:g} s in round "
                f"{self._round}; finished rounds are kept."
            )
        member.status = AWAY
        self.note(member, f"away for {rules.patience:g} s", rules.on_away)
        if rules.on_away == "exclude":
            await self._registry.part_with(member, GONE, "away too long")

    async def _violated(self, member: Member, violation: ViolationError) -> None:
        """Do what the policy says about a node whose report cannot be true."""
        log.error("%s: %s", member.name, violation, extra={"node": member.name, "round": self._round})
        self.violations += 1
        if self._rules.on_violation == "stop":
            raise FederationStoppedError(f"'{member.name}' broke the rules in round {self._round}: {violation}.")
        self.note(member, str(violation), "drop")
        await self._registry.part_with(member, GONE, str(violation))

    def note(self, member: Member, what: str, done: str) -> None:
        log.warning("%s: %s: %s", member.name, what, done, extra={"node": member.name, "round": self._round})
        self.record(member.name, what, done)

    def record(self, node: str, what: str, done: str) -> None:
        self._engine.events.append({"round": self._round, "node": node, "what": what, "done": done})
        self._transcript.add("event" if node else "failed", peer=node, round=self._round, note=done)
