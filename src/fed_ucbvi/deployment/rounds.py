"""One round as the server drives it: start, collect, stop, exchange.

Every step can be taken again on a new stream: a stream that has not carried the round's start gets it first, and,
once the round is stopped, its stop, so that a node that was killed catches up by playing the same episodes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.chunks import growing
from fed_ucbvi.deployment.asking import Asker
from fed_ucbvi.deployment.checks import Expected, check_played, check_report
from fed_ucbvi.deployment.links import Link
from fed_ucbvi.deployment.members import Member
from fed_ucbvi.deployment.messages import Continue, Played, Query, Request, Start, Stop
from fed_ucbvi.deployment.plan import LIVE, Plan
from fed_ucbvi.drivers.base import Stop as RoundEnd


@dataclass(frozen=True)
class Collected:
    """What the episodes of a round came to.

    Attributes:
        end: for the record; ``length`` is that of the node that played most.
        request: the one on record, if anyone asked.
        lengths: episodes by node.
        askers: the agents that asked.
    """

    end: RoundEnd
    request: Request | None
    lengths: Mapping[str, int]
    askers: frozenset[int]


class Round:
    """A round in progress.

    Args:
        plan: the run.
        asker: who takes part.
        number: of the round, from 1.
        broadcast: policy, N and so on.
        played: episodes before it, where all agents stop together.
    """

    def __init__(self, plan: Plan, asker: Asker, number: int, broadcast: Message, played: int) -> None:
        self._plan, self._asker, self.number, self._broadcast = plan, asker, number, broadcast
        self._played = played
        self._live = plan.collection == LIVE
        self._lengths: Mapping[str, int] = {}

    # ------------------------------------------------------------------------------------------------------ episodes

    async def collect(self, chunk: int) -> Collected:
        """Play until someone asks or all episodes are played; nodes first answer after ``chunk``, if in lockstep."""
        answers = await (self._collect_live() if self._live else self._collect_in_step(chunk))
        asked = [played for played in answers.values() if played.requests]
        if not asked or self._live:
            lengths = {name: played.played for name, played in answers.items()}
        else:
            lengths = dict.fromkeys(answers, min(played.played for played in asked))
        self._lengths = lengths
        requests = [
            request
            for name, played in answers.items()
            if played.requests and played.played == lengths[name]
            for request in played.requests
        ]
        longest = max(lengths.values())
        if not requests:
            return Collected(RoundEnd(longest, 0, -1, -1, -1, -1), None, lengths, frozenset())
        first = min(requests, key=lambda request: request.agent)
        step = first.step if first.step < self._plan.setting.horizon else -1
        end = RoundEnd(longest, len(requests), first.agent, step, first.state, first.action)
        return Collected(end, first, lengths, frozenset(request.agent for request in requests))

    async def _collect_in_step(self, chunk: int) -> dict[str, Played]:
        """Nodes play ahead in chunks that grow until one of them asks."""
        setting, answers = self._plan.setting, dict[str, Played]()
        for reach in growing(chunk, setting.episodes - self._played, setting.horizon):
            answers = await self._asker.all(partial(self._play, reach))
            if any(played.requests for played in answers.values()):
                break
        return answers

    async def _play(self, chunk: int, member: Member, link: Link) -> Played:
        """One node's episodes up to ``chunk``."""
        if link.prepared == self.number:
            await link.send(Continue(self.number, chunk))
        else:
            await self._prepare(member, link, chunk)
        played = await link.expect_played(self.number)
        check_played(played, member, self._broadcast[0], self._plan.algorithm, chunk, early=False)
        return played

    async def _collect_live(self) -> dict[str, Played]:
        """Nodes play on until one of them asks; then the others are told to stop where they are."""
        return await self._asker.all(partial(self._play_live, asyncio.Event()), deadline=False)

    async def _play_live(self, halt: asyncio.Event, member: Member, link: Link) -> Played:
        """One node's episodes until its own agents ask, or those of another have."""
        most = self._span(member)[1]
        if link.prepared != self.number:
            await self._prepare(member, link, most)
        answer = asyncio.ensure_future(link.expect_played(self.number))
        halted = asyncio.ensure_future(halt.wait())
        try:
            await asyncio.wait((answer, halted), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await link.send(Continue(self.number, 0))
            async with asyncio.timeout(self._plan.rules.deadline):
                played = await answer
        finally:
            answer.cancel()
            halted.cancel()
        check_played(played, member, self._broadcast[0], self._plan.algorithm, most, early=True)
        if played.requests:
            halt.set()
        return played

    def _span(self, member: Member) -> tuple[int, int]:
        """The number of a node's first episode in this round, and how many are left."""
        first = member.episodes if self._live else self._played
        return first, self._plan.setting.episodes - first

    async def _prepare(self, member: Member, link: Link, chunk: int) -> None:
        """Send the start of the round."""
        await link.send(Start(self.number, member.base, *self._span(member), chunk, self._broadcast))
        link.prepared, link.stopped = self.number, False

    # ----------------------------------------------------------------------------------------------- synchronisation

    async def exchange(self, query: Query, expected: Expected) -> dict[str, Message]:
        """One exchange: the reports by node, checked."""
        return await self._asker.all(partial(self._exchange, query, expected))

    async def _exchange(self, query: Query, expected: Expected, member: Member, link: Link) -> Message:
        await self._stop(member, link)
        await link.send(query)
        report = (await link.expect_report(self.number, query.exchange)).arrays
        check_report(report, member, self._lengths[member.name], expected)
        return report

    async def settle(self) -> None:
        """End a round that nobody asked to end: wait until all nodes have taken it in."""
        await self._asker.all(self._settle)

    async def _settle(self, member: Member, link: Link) -> Played:
        await self._stop(member, link)
        await link.send(Continue(self.number, self._lengths[member.name]))
        return await link.expect_played(self.number)

    async def _stop(self, member: Member, link: Link) -> None:
        """Bring a node to the end of the round, if this stream has not done so yet."""
        if link.prepared != self.number:
            await self._prepare(member, link, 0)
            await link.expect_played(self.number)
        if not link.stopped:
            await link.send(Stop(self.number, self._lengths[member.name]))
            link.stopped = True
