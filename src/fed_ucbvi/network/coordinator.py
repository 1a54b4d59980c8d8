"""The server of a run over the network: it asks its nodes for what the engine's rounds need, and keeps each round.

The server uses only what the paper's server knows. As nodes play ahead, no node waits for another after each episode:
a round takes one exchange of messages for its episodes (two or more if it is long) and those of the synchronisation.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial

import numpy as np

from fed_ucbvi.engine.assurance import Assurance
from fed_ucbvi.engine.rounds import Play
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.network.failures import FederationStoppedError
from fed_ucbvi.network.members import FederationStatus, Member
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.pending_sum import PendingSum
from fed_ucbvi.network.registry import NodeRegistry, OnExchange
from fed_ucbvi.network.reporting import open_reports
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.rounds import ROUND_TYPES, LogsRound, MakeReports, NetworkRound
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.summing import SecureSum
from fed_ucbvi.network.traffic import TrafficEstimate
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.recommendations import last_gap
from fed_ucbvi.results.round_record import EXPLORING, OnRound

log = logging.getLogger("fed_ucbvi.federation")

DISK_PAUSE = 1.0
"""Seconds between two attempts to write a checkpoint."""
REUNION_SECONDS = 15.0
"""Seconds for nodes to find a server that was started again: three times their longest pause."""


class Coordinator:
    """The central server of a run.

    The arguments are those of :class:`~fed_ucbvi.network.server.FederationServer`; ``authority`` is None unless the
    run has secure sums.
    """

    def __init__(
        self,
        plan: RunPlan,
        kept: ServerCheckpoint | None = None,
        report: Callable[[Coordinator], None] | None = None,
        on_round: OnRound | None = None,
        on_exchange: OnExchange | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._on_round = on_round
        self._report = report
        self.plan = plan
        self._kept = kept
        self.engine = NetworkEngine(plan)
        self.registry = NodeRegistry(plan, self.engine, on_exchange)
        self._round_type = ROUND_TYPES[plan.rules.collection]
        self._make_reports: MakeReports = open_reports
        if authority is not None:
            pending = PendingSum(None if kept is None else kept.folder)
            self._make_reports = partial(SecureSum, authority=authority, pending=pending)
        if kept is not None:
            kept.load(self.registry)
        self.begun = False
        """True once the first round has begun."""
        self._use_units()

    @property
    def round(self) -> int:
        return len(self.engine.rows)

    @property
    def done(self) -> bool:
        """True if all agents that take part have played T episodes."""
        return self.engine.done

    async def run(self) -> None:
        registry = self.registry
        self.begun = self.round > 0
        patience = REUNION_SECONDS if self.begun else self.plan.rules.gathering
        if not self.done and not await registry.wait_until(registry.complete, patience) and not self.begun:
            here = sum(member.agents for member in registry.active if member.connected)
            missing = self.plan.setting.agents - here
            raise FederationStoppedError(f"after {patience:g} s {missing} agents are missing.")
        self.begun = True
        self._use_units()
        if self.round == 0 and self.plan.rules.secure_sums:
            log.info("%s", TrafficEstimate.of(registry))
        self.engine.start_clock()
        if self.round == 0 and any(member.new_logs for member in registry.present):
            await self._take_logs()
        while not self.done:
            now = await self._advance()
            await self._keep(now)
            if self._report is not None:
                self._report(self)
            if self._on_round is not None:
                self._on_round(self.engine.last_round())

    @property
    def units(self) -> Units | None:
        """The units of the run's rewards; None until the first node declares them."""
        return self.plan.units or next((member.units for member in self.registry.members.values()), None)

    def _use_units(self) -> None:
        if self.units is not None:
            self.engine.declare_units(self.units)

    def status(self) -> FederationStatus:
        registry = self.registry
        events = tuple(self.engine.events)
        nodes = tuple(map(copy, registry.everyone))
        return FederationStatus(
            self.plan.run, self.plan.rules.secure_sums, nodes, registry.wire, registry.violations, events
        )

    async def _take_logs(self) -> None:
        """Before the first round, have nodes report what their logs count: it is like a warm start from all of it.

        In the open the logs of a node that is not there are in its next report. Under secure sums logs are added up
        once, if enough nodes have some, or not at all.
        """
        self.registry.begin(0)
        broadcast = self.engine.broadcast()
        nothing = Play(broadcast=broadcast, most=0, playing=EXPLORING, policy=broadcast[0])
        now = LogsRound(self.registry, 0, nothing, self._make_reports)
        await now.play()
        await now.synchronise(self.engine.server)
        steps = sum(self.registry.members[name].new_logs for name in now.reported)
        log.info("the nodes' logs have %d steps, which are counted before the first round", steps)
        await self._keep(now)

    def excluded(self, member: Member) -> str:
        """The reason given to a node that has been excluded."""
        known = [event for event in self.engine.events if event["node"] == member.name]
        why = f" in round {known[-1]['round']}: {known[-1]['what']}" if known else ""
        return f"'{member.name}' has been excluded from this run{why}"

    async def _advance(self) -> NetworkRound:
        """Play one round, synchronise if an agent requested it, and recommend a policy if it is time."""
        engine = self.engine
        number = self.round + 1
        self.registry.begin(number)
        self._update_presence()
        play = engine.begin_round()
        now = self._round_type(self.registry, number, play, self._make_reports)
        await now.play()
        played = now.played
        if played.stop.requests:
            await now.synchronise(engine.server)
            if now.paid is not None:
                played = played._replace(paid=now.paid)
        self._update_presence()
        engine.end_round(play, played)
        if engine.wants_recommendation:
            await self._recommend(now)
        if self.engine.assurance is not None:
            self._log_promises(self.engine.assurance, now)
        return now

    async def _recommend(self, now: NetworkRound) -> None:
        engine = self.engine
        planner = engine.new_planner()
        if planner is not None and engine.planner_needs_reports:
            await now.synchronise(planner, planning=True)
            self._update_presence()
        engine.recommend(planner)
        gap = engine.units.original_difference(last_gap(engine.recommendations))
        if not math.isnan(gap):
            log.info("round %d: the recommended policy's gap is %.4g", now.number, gap, extra=now.about)

    def _log_promises(self, assurance: Assurance, now: NetworkRound) -> None:
        """Log the certificates that were issued, and at both ends of a run when exploring can begin."""
        if issued := assurance.issued(now.number):
            log.info("round %d: %s", now.number, issued, extra=now.about)
        outlook = assurance.describe_outlook(self.engine.played)
        if outlook and (now.number == 1 or self.engine.done):
            level = logging.WARNING if self.engine.done else logging.INFO
            log.log(level, "round %d: %s", now.number, outlook, extra=now.about)

    def _update_presence(self) -> None:
        """Report to the engine which agents take part by now."""
        present = np.zeros(self.plan.setting.agents, dtype=np.bool_)
        for member in self.registry.present:
            present[member.span] = True
        self.engine.take_part(present)

    def past(self, member: Member, held: int) -> Iterator[SavedState] | None:
        """The rounds after ``held`` that a member's agents have played; None if some are not in the history."""
        start, length = self.engine.rows[member.base - 1][:2]
        if self._kept is None or member.episodes != start + length:
            return None
        return self._kept.past(held + 1, member.base)

    async def _keep(self, now: NetworkRound) -> None:
        """Close a round, and save it before any node is told of the next one; if the disk is full, try again."""
        past = now.for_history()
        end = time.monotonic() + self.plan.rules.patience
        kept = self._kept
        now.close()
        while kept is not None:
            try:
                if past is not None:
                    kept.remember(past)
                kept.write(self.registry)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise FederationStoppedError(
                        f"round {self.round} cannot be kept in {kept.folder}: {error}."
                    ) from error
                log.warning("round %d cannot be kept: %s; trying again", self.round, error, extra=now.about)
                await asyncio.sleep(DISK_PAUSE)
