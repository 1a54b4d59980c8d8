"""Asking nodes, waiting for them, and what is done about those that do not answer or break the rules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TypeVar

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.deadline import Deadline
from fed_ucbvi.network.members import AWAY, HERE, NEW, Member
from fed_ucbvi.network.node_registry import NodeRegistry
from fed_ucbvi.network.node_stream import NodeStream, StreamEndedError, StreamLostError
from fed_ucbvi.network.records import Records
from fed_ucbvi.network.run_plan import Rules
from fed_ucbvi.network.violation import ViolationError

log = logging.getLogger("fed_ucbvi.federation")

MAX_ENDS = 5
"""If a process ends this many streams in place of one answer, gRPC has cut off its messages: a violation."""

AnswerT = TypeVar("AnswerT")
Ask = Callable[[Member, NodeStream], Awaitable[AnswerT | None]]


class FederationStoppedError(InputError):
    """The run cannot continue; finished rounds are in the checkpoint."""


class NodeCalls:
    """Asks all nodes at once and knows which of them are away.

    ``on_exchange`` is called after every exchange that has a deadline, with the seconds of its slowest answer.
    """

    def __init__(
        self,
        registry: NodeRegistry,
        records: Records,
        rules: Rules,
        on_exchange: Callable[[float], None] | None = None,
    ) -> None:
        self._registry, self._records, self._rules = registry, records, rules
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
                self._records.joined[member.span] = self._records.played if self._records.together else 0
                self.note(member, f"joined with {member.agents} new agents", "takes part from this round on")
            member.status = HERE

    async def all(self, ask: Ask[AnswerT], *, deadline: bool = True) -> dict[str, AnswerT]:
        """Ask every node that takes part, at once; answers by name, without those that turned out to be away.

        With ``deadline=False`` the question may take as long as it likes, while the connection lives.
        """
        members, limit = self._registry.present, Deadline(self._rules.deadline)
        begin, within = asyncio.get_running_loop().create_task, limit if deadline else None
        tasks = [begin(self._ask(member, ask, within)) for member in members]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            limit.close()
            for task in tasks:
                task.cancel()
        self._check_present()
        answered = [(member, answer) for member, answer in zip(members, answers, strict=True) if answer is not None]
        if self._on_exchange is not None and deadline and answered:
            self._on_exchange(max(member.latency for member, _ in answered))
        return {member.name: answer for member, answer in answered}

    def _check_present(self) -> None:
        if not self._registry.present:
            raise FederationStoppedError(f"no node is left in round {self._round}.")

    @property
    def members(self) -> Mapping[str, Member]:
        """All nodes, by name."""
        return self._registry.members

    async def violated(self, violation: ViolationError) -> None:
        """Do what the rules say about a node whose report cannot be true."""
        await self._violated(self.members[violation.node], violation)
        self._check_present()

    async def _ask(self, member: Member, ask: Ask[AnswerT], within: Deadline | None) -> AnswerT | None:
        """Ask one node, again after every reconnection, until it answers or patience ends."""
        rules, task = self._rules, asyncio.current_task()
        assert task is not None
        away_since: float | None = None
        ends: list[bytes] = []
        while member.status == HERE:
            stream = member.stream
            left = rules.patience if away_since is None else away_since + rules.patience - time.monotonic()
            if left <= 0:
                await self._stayed_away(member)
                continue
            if stream is None:
                away_since = away_since or time.monotonic()
                await self._registry.wait_until(lambda: member.stream is not None or member.out, left)
                continue
            try:
                began = time.perf_counter()
                with nullcontext() if within is None else within.of(task):
                    answer = await ask(member, stream)
                member.latency = time.perf_counter() - began
                return answer
            except StreamLostError as lost:
                await self._registry.give_up(member, stream, str(lost))
                ends += [member.incarnation] if isinstance(lost, StreamEndedError) else []
                if ends.count(member.incarnation) >= MAX_ENDS:
                    again = ViolationError(f"it ended {MAX_ENDS} streams where one answer was due")
                    await self._violated(member, again)
            except TimeoutError:
                await self._registry.give_up(member, stream, f"no answer within {rules.deadline:g} s")
            except ViolationError as violation:
                await self._violated(member, violation)
            away_since = away_since or time.monotonic()
        return None

    async def _stayed_away(self, member: Member) -> None:
        """Do what the policy says about a node that has not come back."""
        rules = self._rules
        if rules.away == "wait":
            raise FederationStoppedError(
                f"'{member.name}' has stayed away, or has not answered, for {rules.patience:g} s in round "
                f"{self._round}; finished rounds are kept."
            )
        member.status = AWAY
        self.note(member, f"away for {rules.patience:g} s", rules.away)
        if rules.away == "exclude":
            await self._registry.exclude(member, "away too long")

    async def _violated(self, member: Member, violation: ViolationError) -> None:
        """Do what the policy says about a node whose report cannot be true."""
        log.error("%s: %s", member.name, violation, extra={"node": member.name, "round": self._round})
        self.violations += 1
        if self._rules.violation == "stop":
            raise FederationStoppedError(f"'{member.name}' broke the rules in round {self._round}: {violation}.")
        self.note(member, str(violation), "drop")
        await self._registry.exclude(member, str(violation))

    def note(self, member: Member, what: str, done: str) -> None:
        """Log an event and put it on record."""
        log.warning("%s: %s: %s", member.name, what, done, extra={"node": member.name, "round": self._round})
        self._records.events.append({"round": self._round, "node": member.name, "what": what, "done": done})
