"""The server's loop over rounds: collect, synchronise, keep.

The server keeps to what the paper's server knows. Nodes play ahead in chunks; the earliest episode after which
anyone asks ends the round for all of them, and nodes that went past it take back what they played. So nobody waits
for anybody episode by episode: a round takes one exchange of messages for its episodes (two or more if it is long)
and those of the synchronisation.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Counting, Message
from fed_ucbvi.algorithms.communication import Meter
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.engine.chunks import first_chunk
from fed_ucbvi.network.checks import Expected
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import Query
from fed_ucbvi.network.node_calls import FederationStoppedError, NodeCalls
from fed_ucbvi.network.node_registry import NodeRegistry
from fed_ucbvi.network.records import Records
from fed_ucbvi.network.report_schema import ReportSchema
from fed_ucbvi.network.rounds import Collected, Round
from fed_ucbvi.network.run_plan import LIVE, RunPlan
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.results.recommendations import Recommended, is_due, last_gap

log = logging.getLogger("fed_ucbvi.federation")

DISK_PAUSE = 1.0
"""Seconds between two attempts to write a checkpoint."""
REUNION_SECONDS = 15.0
"""What nodes have to come back to a server that has been started again: three times their longest pause."""


class Coordinator:
    """The central server of a run over the network.

    Args:
        plan: the run.
        registry: where the nodes come in.
        server_checkpoint: where finished rounds are kept, if anywhere.
        report: called after every round.
    """

    def __init__(
        self,
        plan: RunPlan,
        registry: NodeRegistry,
        server_checkpoint: ServerCheckpoint | None = None,
        report: Callable[[Coordinator], None] | None = None,
    ) -> None:
        self.plan, self.registry = plan, registry
        self._server_checkpoint, self._report = server_checkpoint, report
        self.server = plan.algorithm.new_server(plan.setting)
        self.report_schema = ReportSchema(plan, self.server)
        self.records = Records(plan)
        self._node_calls = NodeCalls(registry, self.records, plan.rules)
        self._meter = Meter(plan.algorithm, plan.setting)
        self.recommended = Recommended.of(self.server, plan.algorithm.new_planner(plan.setting, self.server))
        self.round = 0
        if server_checkpoint is not None:
            server_checkpoint.load(self)

    @property
    def done(self) -> bool:
        """Whether all agents that take part have played T episodes."""
        T = self.plan.setting.episodes
        if self.plan.collection == LIVE:
            return self.round > 0 and all(member.episodes >= T for member in self.registry.present)
        return self.records.played >= T

    async def run(self) -> None:
        """Wait for the nodes, then play to the end."""
        registry, gathering = self.registry, self.plan.rules.gathering
        registry.begun = self.round > 0
        if registry.begun and not self.done:  # nodes need a moment to find a server that has been started again
            await registry.wait_until(lambda: registry.complete, REUNION_SECONDS)
        if not registry.begun and not await registry.wait_until(lambda: registry.complete, gathering):
            here = sum(member.agents for member in registry.seated if member.stream is not None)
            missing = self.plan.setting.agents - here
            raise FederationStoppedError(f"after {gathering:g} s {missing} agents have not come.")
        registry.begun = True
        began, earlier = time.perf_counter(), self.records.seconds
        while not self.done:
            await self._advance()
            self.records.seconds = earlier + time.perf_counter() - began
            await self._keep()
            if self._report is not None:
                self._report(self)

    async def _advance(self) -> None:
        """Play one round and, if someone asked, synchronise."""
        number, before = self.round + 1, self.records.played
        self._node_calls.begin(number)
        broadcast = tuple(np.array(array) for array in self.plan.algorithm.broadcast(self.server))
        now = Round(self.plan, self._node_calls, number, broadcast, before)
        collected = await now.collect(self._chunk())
        fresh: dict[str, dict[int, Message]] = {member.name: {} for member in self.registry.everyone}
        if collected.askers:
            await self._synchronise(now, broadcast[0], collected, fresh)
        else:
            await now.settle()
        played, last = self._reached(before, collected)
        if last or is_due(played, self.records.recommendations):
            await self._recommend(now, broadcast[0], collected, played, last=last)
        lengths = np.zeros(self.plan.setting.agents, dtype=np.int64)
        for member in self.registry.present:
            length = collected.lengths[member.name]
            member.base, member.episodes = number, member.episodes + length
            member.reports.update(fresh[member.name])
            lengths[member.span] = length
        self.round = number
        self._meter.agents = sum(member.agents for member in self.registry.present)
        self.records.played = played
        traffic = self._meter.round(collected.end.askers, last=self.done)
        self.records.add(before, collected, lengths, broadcast[0], traffic)

    def _reached(self, before: int, collected: Collected) -> tuple[int, bool]:
        """Episodes played once this round counts, of the agent that has played most; and whether it is the last."""
        played, T = before + collected.end.length, self.plan.setting.episodes
        if self.plan.collection != LIVE:
            return played, played >= T
        ends = [member.episodes + collected.lengths[member.name] for member in self.registry.present]
        return max(before, *ends), min(ends) >= T

    def _chunk(self) -> int:
        """How far nodes play before they first answer: as far as costs little, or twice the last round."""
        steps = max(member.agents for member in self.registry.everyone) * self.plan.setting.horizon
        return first_chunk(steps, self.records.last_length)

    async def _synchronise(
        self, now: Round, policy: PolicyArray, collected: Collected, fresh: dict[str, dict[int, Message]]
    ) -> None:
        """All exchanges with the server; nodes that are away count with their last reports."""
        for exchange in range(self.plan.algorithm.exchanges(self.plan.setting)):
            reports = await self._exchange(now, policy, collected, self.server, exchange, self.report_schema.report)
            for name, report in reports.items():
                fresh[name][exchange] = report

    async def _exchange(
        self,
        now: Round,
        policy: PolicyArray,
        collected: Collected,
        server: Any,
        exchange: int,
        absent: Callable[[Member, Message, int], Message],
        first: int = 0,
    ) -> dict[str, Message]:
        """A query down, reports up, aggregation in agent order; on the wire exchanges are counted from ``first``."""
        algorithm, setting = self.plan.algorithm, self.plan.setting
        arrays = tuple(np.array(array) for array in algorithm.query(server, exchange))
        forms, askers = self.report_schema.forms[exchange], collected.askers
        visits = setting.horizon if algorithm.counting is Counting.STATIONARY else 1
        expected = Expected(forms, setting, policy, arrays, exchange, askers, algorithm.grid(setting), visits)
        reports = await now.exchange(Query(now.number, first + exchange, arrays), expected)
        rows = [
            reports[member.name] if member.name in reports else absent(member, arrays, exchange)
            for member in self.registry.everyone
        ]
        algorithm.aggregate(server, self.report_schema.assemble(rows), exchange)
        return reports

    async def _recommend(
        self, now: Round, policy: PolicyArray, collected: Collected, played: int, *, last: bool
    ) -> None:
        """Plan without bonus, after the round's own synchronisation; nodes that are away have seen nothing then.

        Their last reports are about the server's values, not about the planner's.
        """
        algorithm, setting = self.plan.algorithm, self.plan.setting
        planner = algorithm.new_planner(setting, self.server)
        if planner is not None and algorithm.asks_to_plan:
            E = algorithm.exchanges(setting)
            for exchange in range(E):
                await self._exchange(now, policy, collected, planner, exchange, self.report_schema.newcomers, first=E)
        self.recommended = Recommended.of(self.server, planner)
        self._meter.agents = sum(member.agents for member in self.registry.present)
        traffic = self._meter.recommendation(self.recommended.policy, asked=algorithm.asks_to_plan, last=last)
        starts = None if planner is None else algorithm.starts(planner)
        self.records.recommend(now.number, played, self.server.V, self.recommended, starts, traffic)
        gap = last_gap(self.records.recommendations)
        if not math.isnan(gap):
            log.info("round %d, %d episodes: the recommended policy's gap is %.4g", now.number, played, gap)

    async def _keep(self) -> None:
        """Put the round on record before anyone hears of the next; a full disk is waited for."""
        if self._server_checkpoint is None:
            return
        end = time.monotonic() + self.plan.rules.patience
        while True:
            try:
                self._server_checkpoint.write(self)
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise FederationStoppedError(
                        f"round {self.round} cannot be kept in {self._server_checkpoint.folder}: {error}."
                    ) from error
                log.warning("round %d cannot be kept: %s; trying again", self.round, error)
                await asyncio.sleep(DISK_PAUSE)
