"""The server's loop over rounds: collect, synchronise, keep.

The server keeps to what the paper's server knows. Nodes play ahead in chunks; the earliest episode after which
anyone asks ends the round for all of them, and nodes that went past it take back what they played. So nobody waits
for anybody episode by episode: a round takes one exchange of messages for its episodes (two or more if it is long)
and those of the synchronisation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import numpy as np

from fed_ucbvi._types import IndexArray
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.chunks import first_chunk
from fed_ucbvi.communication import Meter
from fed_ucbvi.deployment.asking import Asker, FederationStoppedError
from fed_ucbvi.deployment.checks import Expected
from fed_ucbvi.deployment.hub import Hub
from fed_ucbvi.deployment.ledger import Ledger
from fed_ucbvi.deployment.links import LinkLostError
from fed_ucbvi.deployment.messages import End, Query
from fed_ucbvi.deployment.plan import LIVE, Plan
from fed_ucbvi.deployment.records import Records
from fed_ucbvi.deployment.rounds import Collected, Round
from fed_ucbvi.deployment.stand_in import StandIn

log = logging.getLogger("fed_ucbvi.federation")

DISK_PAUSE = 1.0
"""Seconds between two attempts to write a checkpoint."""
REUNION_SECONDS = 15.0
"""What nodes have to come back to a server that has been started again: three times their longest pause."""
FAREWELL_SECONDS = 10.0
"""How long the end is told to nodes that are just reconnecting."""


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
        self._asker = Asker(hub, self.records, plan.rules)
        self._meter = Meter(plan.algorithm, plan.setting)
        self.round = 0
        if ledger is not None:
            ledger.load(self)

    @property
    def done(self) -> bool:
        """Whether all agents that take part have played T episodes."""
        T = self.plan.setting.episodes
        if self.plan.collection == LIVE:
            return self.round > 0 and all(member.episodes >= T for member in self.hub.present)
        return self.records.played >= T

    async def run(self) -> None:
        """Wait for the nodes, then play to the end."""
        hub, gathering = self.hub, self.plan.rules.gathering
        hub.begun = self.round > 0
        if hub.begun and not self.done:  # nodes need a moment to find a server that has been started again
            await hub.wait_until(lambda: hub.complete, REUNION_SECONDS)
        if not hub.begun and not await hub.wait_until(lambda: hub.complete, gathering):
            here = sum(member.agents for member in hub.seated if member.link is not None)
            missing = self.plan.setting.agents - here
            raise FederationStoppedError(f"after {gathering:g} s {missing} agents have not come.")
        hub.begun = True
        began, earlier = time.perf_counter(), self.records.seconds
        while not self.done:
            await self._advance()
            self.records.seconds = earlier + time.perf_counter() - began
            await self._keep()
            if self._report is not None:
                self._report(self)
        await self._end()

    async def _advance(self) -> None:
        """Play one round and, if someone asked, synchronise."""
        number, before = self.round + 1, self.records.played
        self._asker.begin(number)
        broadcast = tuple(np.array(array) for array in self.plan.algorithm.broadcast(self.server))
        now = Round(self.plan, self._asker, number, broadcast, before)
        collected = await now.collect(self._chunk())
        fresh: dict[str, dict[int, Message]] = {member.name: {} for member in self.hub.everyone}
        if collected.askers:
            await self._synchronise(now, broadcast[0], collected, fresh)
        else:
            await now.settle()
        lengths = np.zeros(self.plan.setting.agents, dtype=np.int64)
        for member in self.hub.present:
            length = collected.lengths[member.name]
            member.base, member.episodes = number, member.episodes + length
            member.reports.update(fresh[member.name])
            lengths[member.span] = length
        self.round = number
        self._meter.agents = sum(member.agents for member in self.hub.present)
        played = max(before, *(member.episodes for member in self.hub.everyone))
        if self.plan.collection != LIVE:
            played = before + collected.end.length
        self.records.played = played
        traffic = self._meter.round(collected.end.askers, last=self.done)
        self.records.add(before, collected, lengths, broadcast[0], traffic)

    def _chunk(self) -> int:
        """How far nodes play before they first answer: as far as costs little, or twice the last round."""
        steps = max(member.agents for member in self.hub.everyone) * self.plan.setting.horizon
        return first_chunk(steps, self.records.last_length)

    async def _synchronise(
        self, now: Round, policy: IndexArray, collected: Collected, fresh: dict[str, dict[int, Message]]
    ) -> None:
        """All exchanges: queries down, reports up, aggregation in agent order."""
        algorithm, setting = self.plan.algorithm, self.plan.setting
        for exchange in range(algorithm.exchanges(setting)):
            arrays = tuple(np.array(array) for array in algorithm.query(self.server, exchange))
            forms, askers = self.stand_in.forms[exchange], collected.askers
            expected = Expected(forms, setting, policy, arrays, exchange, askers, algorithm.grid(setting))
            reports = await now.exchange(Query(now.number, exchange, arrays), expected)
            for name, report in reports.items():
                fresh[name][exchange] = report
            rows = [
                reports[member.name] if member.name in reports else self.stand_in.report(member, arrays, exchange)
                for member in self.hub.everyone
            ]
            algorithm.aggregate(self.server, self.stand_in.assemble(rows), exchange)

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

    async def _end(self) -> None:
        """Tell everyone that training is over, also those that are just coming back, and let them go first."""
        hub = self.hub
        hub.over = True
        members = self.hub.present
        await hub.wait_until(lambda: all(member.link is not None for member in members), FAREWELL_SECONDS)
        end = End(self.round, self.records.played)
        for member in hub.seated:
            if member.link is not None:
                try:
                    await member.link.send(end)
                except LinkLostError as lost:
                    log.warning("%s: did not hear of the end: %s", member.name, lost)
        await hub.wait_until(lambda: hub.connected == 0, FAREWELL_SECONDS)
