"""One round as the server drives it: start, collect, stop, exchange.

Every step can be repeated on a new stream. A stream that has not carried the round's start gets it first and, once
the round is stopped, its stop. So a node that was killed catches up by playing the same episodes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.engine.chunks import growing
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.network.checks import check_forms, check_played, check_reports
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Continue, Played, Query, Request, Roster, Start, Stop, ToMany
from fed_ucbvi.network.node_calls import NodeCalls
from fed_ucbvi.network.node_stream import NodeStream
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.roster import fingerprint
from fed_ucbvi.network.row_checks import Expected
from fed_ucbvi.network.run_plan import LIVE, RunPlan
from fed_ucbvi.network.violation import ViolationError

SOMEBODY = frozenset({-1})
"""The request as the server sees it under secure sums: somebody made one."""


@dataclass(frozen=True)
class Collected:
    """The outcome of a round's episodes.

    Attributes:
        end: for the record; ``length`` is that of the node that played most.
        request: the request on record, if any agent made one.
        lengths: episodes by node.
        askers: the agents that requested a synchronisation; under secure sums :data:`SOMEBODY`, if any did.
    """

    end: RoundEnd
    request: Request | None
    lengths: Mapping[str, int]
    askers: frozenset[int]


class Round:
    """A round in progress.

    Args:
        plan: the run.
        node_calls: who takes part.
        number: of the round, from 1.
        broadcast: policy, N and so on.
        played: episodes before it, where all agents stop together.
    """

    def __init__(self, plan: RunPlan, node_calls: NodeCalls, number: int, broadcast: Message, played: int) -> None:
        self._plan, self._node_calls, self.number, self._broadcast = plan, node_calls, number, broadcast
        self._played = played
        self._live, self._grid = plan.collection == LIVE, RewardGrid.of(plan.setting)
        self._lengths: Mapping[str, int] = {}
        self._starts: dict[tuple[int, ...], ToMany] = {}

    # ------------------------------------------------------------------------------------------------------ episodes

    async def collect(self, chunk: int) -> Collected:
        """Play until an agent requests a synchronisation or all episodes are played.

        In lockstep nodes first answer after ``chunk`` episodes.
        """
        answers = await (self._collect_live() if self._live else self._collect_in_step(chunk))
        asked = [played for played in answers.values() if played.asked]
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
        if self._plan.secure_sums and asked:
            return Collected(RoundEnd(longest, 1, -1, -1, -1, -1), None, lengths, SOMEBODY)
        if not requests:
            return Collected(RoundEnd(longest, 0, -1, -1, -1, -1), None, lengths, frozenset())
        first = min(requests, key=lambda request: request.agent)
        step = first.step if first.step < self._plan.setting.horizon else -1
        end = RoundEnd(longest, len(requests), first.agent, step, first.state, first.action)
        return Collected(end, first, lengths, frozenset(request.agent for request in requests))

    async def _collect_in_step(self, chunk: int) -> dict[str, Played]:
        """Nodes play ahead in chunks, which grow until one of them reports a request."""
        setting, answers = self._plan.setting, dict[str, Played]()
        for reach in growing(chunk, setting.episodes - self._played, setting.horizon):
            answers = await self._node_calls.all(partial(self._play, reach))
            if any(played.asked for played in answers.values()):
                break
        return answers

    async def _play(self, chunk: int, member: Member, stream: NodeStream) -> Played:
        """One node's episodes up to ``chunk``."""
        if stream.prepared == self.number:
            await stream.send(Continue(self.number, chunk))
        else:
            await self._prepare(member, stream, chunk)
        played = await stream.expect_played(self.number)
        self._check_played(played, member, chunk, early=False)
        return played

    async def _collect_live(self) -> dict[str, Played]:
        """Nodes play until one of them reports a request; then the others are told to stop where they are."""
        return await self._node_calls.all(partial(self._play_live, asyncio.Event()), deadline=False)

    async def _play_live(self, halt: asyncio.Event, member: Member, stream: NodeStream) -> Played:
        """One node's episodes until one of its own agents makes a request, or one of another node has."""
        most = self._span(member)[1]
        if stream.prepared != self.number:
            await self._prepare(member, stream, most)
        answer = asyncio.ensure_future(stream.expect_played(self.number))
        halted = asyncio.ensure_future(halt.wait())
        try:
            await asyncio.wait((answer, halted), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await stream.send(Continue(self.number, 0))
            async with asyncio.timeout(self._plan.rules.deadline):
                played = await answer
        finally:
            answer.cancel()
            halted.cancel()
        self._check_played(played, member, most, early=True)
        if played.asked:
            halt.set()
        return played

    def _check_played(self, played: Played, member: Member, most: int, *, early: bool) -> None:
        plan = self._plan
        check_played(played, member, self._broadcast[0], plan.algorithm, most, early=early, secret=plan.secure_sums)

    def _span(self, member: Member) -> tuple[int, int]:
        """The number of a node's first episode in this round, and how many are left."""
        first = member.episodes if self._live else self._played
        return first, self._plan.setting.episodes - first

    async def _prepare(self, member: Member, stream: NodeStream, chunk: int) -> None:
        """Send the start of the round."""
        what = (member.base, *self._span(member), chunk)
        if what not in self._starts:
            self._starts[what] = ToMany(Start(self.number, *what, self._broadcast))
        await stream.send(self._starts[what])
        stream.prepared, stream.stopped = self.number, False

    # ----------------------------------------------------------------------------------------------- synchronisation

    async def exchange(
        self, query: Query, expected: Expected | None, roster: Roster | None = None
    ) -> dict[str, Message]:
        """One exchange: the reports by node, checked; or masked, between the nodes of a roster.

        If the query asks for rewards, they are the last array of each; ``expected`` is None where it asks for nothing
        else. A node that has answered has counted the round.
        """
        question, mark, keys = ToMany(query), b"", frozenset[bytes]()
        if roster is not None:
            mark, keys = fingerprint(roster), frozenset(seat.key for seat in roster.seats)

        async def ask(member: Member, stream: NodeStream) -> Message | None:
            if stream.prepared != self.number or not stream.stopped:
                await self._stop(member, stream)
            if roster is not None and stream.roster != mark:
                if member.seat is None or member.seat.key not in keys:
                    return None  # it has come back with another key; the others answer, and all is asked again
                await stream.send(roster)
                stream.roster = mark
            await stream.send(question)
            whole = report = (await stream.expect_report(self.number, query.exchange)).arrays
            if query.rewards:
                if not whole:
                    raise ViolationError("it says neither what the round paid nor where its episodes began")
                report = whole[:-1]
            if expected is not None:
                check_forms(report, member, expected)
            elif report:
                raise ViolationError(f"it sent {len(report)} arrays where rewards alone were asked for")
            if query.rewards:
                self._grid.check_form(whole[-1])
                if roster is None:
                    self._grid.check(whole[-1], member.agents * self._lengths[member.name])
            return whole

        reports = await self._node_calls.all(ask)
        if roster is not None or expected is None:
            return reports
        return await self._possible(reports, expected, without_last=query.rewards)

    async def _possible(
        self, reports: dict[str, Message], expected: Expected, *, without_last: bool
    ) -> dict[str, Message]:
        """The reports that can be true; what is done about the others is up to the run's rules."""
        while True:
            checked = {name: report[:-1] if without_last else report for name, report in reports.items()}
            try:
                check_reports(checked, self._node_calls.members, self._lengths, expected)
                return reports
            except ViolationError as violation:
                await self._node_calls.violated(violation)
                reports = {name: report for name, report in reports.items() if name != violation.node}

    async def _stop(self, member: Member, stream: NodeStream) -> None:
        """Bring a node to the end of the round, if this stream has not done so yet."""
        if stream.prepared != self.number:
            await self._prepare(member, stream, 0)
            await stream.expect_played(self.number)
        if not stream.stopped:
            await stream.send(Stop(self.number, self._lengths[member.name]))
            stream.stopped = True
