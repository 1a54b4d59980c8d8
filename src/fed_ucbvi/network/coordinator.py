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

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import MaskArray
from fed_ucbvi.engine.rounds import Paid, Play, PlayedRound, Request, Steps, Synchronise
from fed_ucbvi.engine.state_store import SavedState
from fed_ucbvi.network.failures import FederationStoppedError
from fed_ucbvi.network.members import LEFT, FederationStatus, Member
from fed_ucbvi.network.messages import COUNTS
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.registry import NodeRegistry, OnExchange
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.rounds import NetworkRound
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint, past_round
from fed_ucbvi.network.transcript import NOBODY
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.recommendations import last_gap
from fed_ucbvi.results.round_record import OnRound

log = logging.getLogger("fed_ucbvi.federation")

DISK_PAUSE = 1.0
"""Seconds between two attempts to write a checkpoint."""
REUNION_SECONDS = 15.0
"""Seconds for nodes to find a server that was started again: three times their longest pause."""


class Coordinator:
    """The central server of a run; the arguments are its ``FederationServer``'s, and NetworkRound's authority."""

    def __init__(
        self,
        plan: RunPlan,
        kept: ServerCheckpoint | None = None,
        report: Callable[[Coordinator], None] | None = None,
        on_round: OnRound | None = None,
        on_exchange: OnExchange | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._on_round, self._authority, self._report = on_round, authority, report
        self.plan, self._kept = plan, kept
        self.engine = NetworkEngine(plan)
        transcript = NOBODY if kept is None else kept.transcript
        self.registry = NodeRegistry(plan, self.engine, on_exchange, transcript)
        if kept is not None:
            kept.load(self.registry)
        self._presents: list[MaskArray] = []
        """Which agents took part, each time that the engine's round was answered."""
        self.begun = False
        """Whether the first round has begun; nodes that come from then on take part from the next round on."""
        self._use_units()
        members = self.registry.members
        for name in plan.without:
            if name not in members:
                raise InputError(
                    f"'{name}' does not take part in this run, so it cannot leave; its nodes are: "
                    f"{', '.join(sorted(members)) or 'none'}."
                )
            if not members[name].out:
                self.leave(members[name])

    @property
    def round(self) -> int:
        return len(self.engine.rows)

    @property
    def done(self) -> bool:
        """Whether all agents that take part have played T episodes."""
        return self.engine.done

    async def run(self) -> None:
        registry, self.begun = self.registry, self.round > 0
        patience = REUNION_SECONDS if self.begun else self.plan.gathering
        if not self.done and not await registry.wait_until(registry.complete, patience) and not self.begun:
            here = sum(member.agents for member in registry.active if member.connected)
            missing = self.plan.setting.agents - here
            raise FederationStoppedError(f"after {patience:g} s {missing} agents are missing.")
        self.begun = True
        self._use_units()
        began, earlier = time.perf_counter(), self.engine.seconds
        if self.round == 0 and any(member.new_logs for member in registry.present):
            await self._take_logs()
        while not self.done:
            now = await self._advance()
            self.engine.seconds = earlier + time.perf_counter() - began
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
        self.engine.units = self.units or self.engine.units

    def status(self) -> FederationStatus:
        registry, events = self.registry, tuple(self.engine.events)
        nodes = tuple(map(copy, registry.everyone))
        return FederationStatus(
            self.plan.run, self.plan.secure_sums, nodes, registry.wire, registry.violations, events
        )

    def leave(self, member: Member) -> None:
        """A node leaves for good, by its own or the operator's wish; raises where the others need it."""
        plan, others = self.plan, [one for one in self.registry.active if one is not member]
        if not self.registry.report_schema.does_without:
            raise InputError(f"{plan.algorithm.name} needs all its agents, so no node can leave.")
        if len(others) < (plan.least_members if plan.secure_sums else 1):
            raise InputError(f"'{member.name}' cannot leave: too few nodes would remain.")
        self.engine.left[member.span] = True
        stays = plan.algorithm.server_counts
        self.registry.note(member, "left for good", f"its counts {'are kept' if stays else 'are dropped'}")
        member.status = LEFT

    async def _take_logs(self) -> None:
        """Before the first round, have nodes report what their logs count: it is like a warm start from all of it.

        Who is not there, or too few contributors under secure sums: their logs are in their next report.
        """
        self.registry.begin(0)
        nothing = Play(self.engine.contract.broadcast(self.engine.server), 0)
        now = NetworkRound(self.registry, 0, nothing, self._authority)
        await now.play()
        await now.synchronise(self.engine.server)
        steps = sum(self.registry.members[name].new_logs for name in now.used[COUNTS])
        log.info("the nodes' logs have %d steps, which are counted before the first round", steps)
        await self._keep(now)

    def excluded(self, member: Member) -> str:
        """What a node is told that the others do without for good."""
        known = [event for event in self.engine.events if event["node"] == member.name]
        why = f" in round {known[-1]['round']}: {known[-1]['what']}" if known else ""
        return f"'{member.name}' has been excluded from this run{why}"

    async def _advance(self) -> NetworkRound:
        """Play one round and synchronise if an agent requested it: answer what the engine's round asks for."""
        engine, number, recommended = self.engine, self.round + 1, len(self.engine.recommendations)
        steps = engine.round()
        self._presents = []
        self.registry.begin(number)
        request = self._send(steps, None)
        assert isinstance(request, Play)
        now = NetworkRound(self.registry, number, request, self._authority)
        await now.play()
        request = self._send(steps, now.played)
        while isinstance(request, Synchronise):
            server, planning = request
            await now.synchronise(server, planning=planning)
            request = self._send(steps, None if planning else now.paid)
        gap = engine.units.scale * last_gap(engine.recommendations[recommended:])
        if issued := engine.assurance.issued(number):
            log.info("round %d: %s", number, issued, extra=now.about)
        if not math.isnan(gap):
            log.info("round %d: the recommended policy's gap is %.4g", number, gap, extra=now.about)
        return now

    def _send(self, steps: Steps[None], answer: PlayedRound | Paid | None) -> Request | None:
        """Send the engine's round an answer, and who takes part by now; what it needs next, None at its end."""
        self.engine.present[:] = False
        for member in self.registry.present:
            self.engine.present[member.span] = True
        if answer is not None or self._presents:
            self._presents.append(self.engine.present.copy())
        try:
            return steps.send(answer)
        except StopIteration:
            return None

    def past(self, member: Member, held: int) -> Iterator[SavedState] | None:
        """The rounds after ``held`` that a member's agents have played, if these were all rounds there were."""
        start, length = self.engine.rows[member.base - 1][:2]
        if self._kept is None or not self.engine.together or member.episodes != start + length:
            return None
        return self._kept.past(held + 1, member.base)

    async def _keep(self, now: NetworkRound) -> None:
        """Close a round, and save it before any node is told of the next one; if the disk is full, try again."""
        past, end, kept = past_round(now, self._presents), time.monotonic() + self.plan.patience, self._kept
        now.close()
        while kept is not None:
            try:
                if self.engine.together or self.plan.algorithm.server_counts:
                    kept.remember(past)
                kept.write(self.registry)
                self.registry.transcript.flush()
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise FederationStoppedError(
                        f"round {self.round} cannot be kept in {kept.folder}: {error}."
                    ) from error
                log.warning("round %d cannot be kept: %s; trying again", self.round, error, extra=now.about)
                await asyncio.sleep(DISK_PAUSE)
        await self.registry.keep()
