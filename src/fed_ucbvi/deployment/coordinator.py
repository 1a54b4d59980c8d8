"""The server's loop over rounds: collect, stop, synchronise, keep.

The server keeps to what the paper's server knows. Nodes play ahead in chunks; the earliest episode after which
anyone asks ends the round for all of them, and nodes that went past it take back what they played. So nobody waits
for anybody episode by episode: a round takes one exchange of messages for its episodes (two or more if it is long)
and those of the synchronisation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import numpy as np

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.communication import Meter
from fed_ucbvi.deployment.checks import ViolationError, check_played, check_report
from fed_ucbvi.deployment.hub import Hub
from fed_ucbvi.deployment.ledger import Ledger
from fed_ucbvi.deployment.links import Link, LinkLostError
from fed_ucbvi.deployment.members import GONE, Member
from fed_ucbvi.deployment.messages import Continue, End, Played, Query, Start, Stop, encode
from fed_ucbvi.deployment.plan import Plan
from fed_ucbvi.deployment.records import Records
from fed_ucbvi.deployment.stand_in import StandIn
from fed_ucbvi.drivers.base import Stop as RoundEnd
from fed_ucbvi.errors import InputError

log = logging.getLogger("fed_ucbvi.federation")

FIRST_STEPS = 1 << 15
"""Environment steps a node may play before it first answers: about a millisecond."""
MOST_STEPS = 1 << 25
"""And at most: about a second."""

DISK_PAUSE = 1.0
"""Seconds between two attempts to write a checkpoint."""

AnswerT = TypeVar("AnswerT")


class FederationStoppedError(InputError):
    """The run cannot go on; what is finished is in the checkpoint."""


class Coordinator:
    """The central server of a run over the network.

    Args:
        plan: the run.
        hub: where the nodes come in.
        ledger: where finished rounds are kept, if anywhere.
        report: called after every round.
    """

    def __init__(
        self,
        plan: Plan,
        hub: Hub,
        ledger: Ledger | None = None,
        report: Callable[[Coordinator], None] | None = None,
    ) -> None:
        self.plan, self.hub = plan, hub
        self._ledger, self._report = ledger, report
        self.server = plan.algorithm.new_server(plan.setting)
        self.stand_in = StandIn(plan, self.server)
        self.records = Records(plan)
        self._meter = Meter(plan.algorithm, plan.setting, self.server, self.stand_in.agents)
        self.round = 0
        self.length = 0
        self._stopped: int | None = None
        if ledger is not None:
            ledger.load(self)

    @property
    def done(self) -> bool:
        """Whether T episodes have been played."""
        return self.records.played >= self.plan.setting.episodes

    def largest_report(self) -> int:
        """Bytes of the largest report of one agent."""
        return max(
            sum(int(np.prod(form.shape)) * form.dtype.itemsize for form in forms) for forms in self.stand_in.forms
        )

    async def run(self) -> None:
        """Wait for the nodes, then play to the end."""
        rules = self.plan.rules
        if not await self.hub.wait_until(lambda: self.hub.complete, rules.gathering):
            missing = self.plan.setting.agents - sum(
                member.agents for member in self.hub.seated if member.link is not None
            )
            raise FederationStoppedError(f"after {rules.gathering:g} s {missing} agents have not come.")
        began, earlier = time.perf_counter(), self.records.seconds
        while not self.done:
            await self._advance()
            self.records.seconds = earlier + time.perf_counter() - began
            await self._keep()
            if self._report is not None:
                self._report(self)
        await self._end()

    async def _keep(self) -> None:
        """Put the round on record before anyone hears of the next; a full disk is waited for."""
        if self._ledger is None:
            return
        end = time.monotonic() + self.plan.rules.patience
        while True:
            try:
                self._ledger.write(self)
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise FederationStoppedError(
                        f"round {self.round} cannot be kept in {self._ledger.folder}: {error}."
                    ) from error
                log.warning("round %d cannot be kept: %s; trying again", self.round, error)
                await asyncio.sleep(DISK_PAUSE)

    # ---------------------------------------------------------------------------------------------------- a round

    async def _advance(self) -> None:
        """Play one round and, if someone asked, synchronise."""
        number = self.round + 1
        broadcast = tuple(np.array(array) for array in self.plan.algorithm.broadcast(self.server))
        self._most = self.plan.setting.episodes - self.records.played
        self._start = Start(number, 0, self.records.played, self._most, 0, broadcast)
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._stopped = None
        self._absent: set[str] = set()
        end, requests = await self._collect(number)
        self._stopped = end.length
        if requests:
            await self._synchronise(number, end.length)
        for member in self._present():
            member.base, member.episodes = number, member.episodes + end.length
        self.round, self.length = number, end.length
        playing = sum(member.agents for member in self._present())
        last = self.records.played + end.length >= self.plan.setting.episodes
        traffic = self._meter.round(end.askers, last=last)
        self.records.add(end, playing, broadcast[0], requests, traffic)

    def _present(self) -> list[Member]:
        """Members that take part in this round."""
        return [member for member in self.hub.seated if member.name not in self._absent]

    def _chunk(self) -> int:
        """How far nodes play before they first answer: as far as costs little, or twice the last round."""
        largest = max(member.agents for member in self.hub.seated) * self.plan.setting.horizon
        return max(1, FIRST_STEPS // largest, min(2 * self.length, MOST_STEPS // largest))

    async def _collect(self, number: int) -> tuple[RoundEnd, list[tuple[int, int]]]:
        """Play until someone asks; how the round ended, and the rule and action of the request on record."""
        most = self._most
        chunk = min(self._chunk(), most)
        largest = max(1, MOST_STEPS // self.plan.setting.horizon)
        while True:
            ask = partial(self._play, number, chunk)
            asked = [played for played in await self._ask_all(ask) if played is not None and played.requests]
            if asked or chunk == most:
                break
            chunk = min(chunk + min(2 * chunk, largest), most)
        if not asked:
            return RoundEnd(most, 0, -1, -1, -1), []
        length = min(played.played for played in asked)
        requests = [request for played in asked if played.played == length for request in played.requests]
        first = min(requests, key=lambda request: request.agent)
        end = RoundEnd(length, len(requests), first.agent, first.step, first.state)
        return end, [(first.action, first.rule)]

    async def _play(self, number: int, chunk: int, member: Member, link: Link) -> Played:
        """One node's episodes up to ``chunk``; a stream that has not carried the start gets it first."""
        if link.prepared == number:
            await link.send(encode(Continue(number, chunk)))
        else:
            await link.send(self._started(member, chunk))
            link.prepared, link.stopped = number, False
        played = await link.expect_played(number)
        check_played(played, member, self.plan, self._start.arrays[0], chunk)
        return played

    def _started(self, member: Member, chunk: int) -> bytes:
        """The start of the round for a node, as bytes; the same for all that have come equally far."""
        key = (member.base, chunk)
        if key not in self._encoded:
            s = self._start
            self._encoded[key] = encode(Start(s.round, member.base, s.first, s.most, chunk, s.arrays))
        return self._encoded[key]

    async def _synchronise(self, number: int, length: int) -> None:
        """All exchanges: queries down, reports up, aggregation in agent order."""
        algorithm = self.plan.algorithm
        stop = encode(Stop(number, length))
        for exchange in range(algorithm.exchanges(self.plan.setting)):
            arrays = tuple(algorithm.query(self.server, exchange))
            query = encode(Query(number, exchange, arrays))
            reports = await self._ask_all(partial(self._exchange, number, stop, exchange, query))
            rows = []
            for member, report in zip(self.hub.everyone, reports, strict=True):
                rows.append(self.stand_in.report(member, arrays, exchange) if report is None else report)
            algorithm.aggregate(self.server, self.stand_in.assemble(rows), exchange)

    async def _exchange(
        self, number: int, stop: bytes, exchange: int, query: bytes, member: Member, link: Link
    ) -> Message:
        """One node's report; a stream that is new in this round is first brought to its end."""
        if link.prepared != number:
            await link.send(self._started(member, 0))
            await link.expect_played(number)
            link.prepared, link.stopped = number, False
        if not link.stopped:
            await link.send(stop)
            link.stopped = True
        await link.send(query)
        report = (await link.expect_report(number, exchange)).arrays
        check_report(report, member, self, exchange)
        member.reports[exchange] = report
        return report

    async def _end(self) -> None:
        """Tell everyone that training is over."""
        self.hub.over = True
        end = encode(End(self.round, self.length))
        for member in self.hub.seated:
            if member.link is not None:
                try:
                    await member.link.send(end)
                except LinkLostError as lost:
                    log.warning("%s: did not hear of the end: %s", member.name, lost)

    # ------------------------------------------------------------------------------------------ asking, and waiting

    async def _ask_all(self, ask: Callable[[Member, Link], Awaitable[AnswerT]]) -> list[AnswerT | None]:
        """Ask every node at once; None from those that are away and need not be waited for."""
        tasks = [asyncio.ensure_future(self._ask(member, ask)) for member in self.hub.everyone]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _ask(self, member: Member, ask: Callable[[Member, Link], Awaitable[AnswerT]]) -> AnswerT | None:
        """Ask one node, again after every reconnection, until it answers or patience ends."""
        rules = self.plan.rules
        while member.status != GONE and member.name not in self._absent:
            link = member.link
            if link is None:
                if not await self.hub.wait_until(lambda: member.link is not None, rules.patience):
                    await self._stayed_away(member)
                continue
            try:
                async with asyncio.timeout(rules.deadline):
                    return await ask(member, link)
            except LinkLostError as lost:
                await self.hub.give_up(member, link, str(lost))
            except TimeoutError:
                await self.hub.give_up(member, link, f"no answer within {rules.deadline:g} s")
            except ViolationError as violation:
                await self._violated(member, violation)
        return None

    async def _stayed_away(self, member: Member) -> None:
        """Do what the policy says about a node that has not come back."""
        rules = self.plan.rules
        event = {"round": self.round + 1, "node": member.name, "what": f"away for {rules.patience:g} s"}
        if rules.away == "wait":
            raise FederationStoppedError(
                f"'{member.name}' has been away for {rules.patience:g} s; the run is kept up to round {self.round}."
            )
        self._absent.add(member.name)
        self.records.note({**event, "done": rules.away})
        if rules.away == "exclude":
            await self.hub.exclude(member, "away too long")

    async def _violated(self, member: Member, violation: ViolationError) -> None:
        """Do what the policy says about a node whose report cannot be true."""
        event = {"round": self.round + 1, "node": member.name, "what": str(violation)}
        log.error("%s: %s", member.name, violation)
        if self.plan.rules.violation == "stop":
            raise FederationStoppedError(f"'{member.name}' broke the rules: {violation}")
        self._absent.add(member.name)
        self.records.note({**event, "done": "drop"})
        await self.hub.exclude(member, str(violation))
