"""The server of a run over the network: it asks its nodes for what the engine's rounds need, and keeps each round.

The server uses only what the paper's server knows. Nodes play ahead in chunks of episodes. The earliest episode after
which any agent requests a synchronisation ends the round for all of them, and nodes that went past it take back what
they played. So no node waits for another after each episode: a round takes one exchange of messages for its episodes
(two or more if it is long) and those of the synchronisation.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Array, Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import MaskArray
from fed_ucbvi.engine.extension import planned
from fed_ucbvi.engine.party import first_chunk, growing
from fed_ucbvi.engine.rounds import Paid, Play, PlayedRound, Request, Steps, Synchronise
from fed_ucbvi.network.checks import ReportSchema
from fed_ucbvi.network.failures import FederationStoppedError
from fed_ucbvi.network.members import LEFT, FederationStatus, Member, NodeRegistry, NodeStatus
from fed_ucbvi.network.messages import Played
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.node_calls import NodeCalls
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.rounds import Collected, EpisodesCall, NetworkRound
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import PastRound, ServerCheckpoint, listed_sums, told_in_round
from fed_ucbvi.network.synchronisation import Synchronisation
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
    """The central server of a run over the network; the arguments are those of its ``FederationServer``.

    ``authority`` is that by which what nodes sign under secure sums is checked.
    """

    def __init__(
        self,
        plan: RunPlan,
        server_checkpoint: ServerCheckpoint | None = None,
        report: Callable[[Coordinator], None] | None = None,
        on_round: OnRound | None = None,
        on_exchange: Callable[[float], None] | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._on_round, self._authority = on_round, authority
        self.plan, self.registry = plan, NodeRegistry()
        self._server_checkpoint, self._report = server_checkpoint, report
        self.transcript = NOBODY if server_checkpoint is None else server_checkpoint.transcript
        self.engine = NetworkEngine(plan)
        self.report_schema = ReportSchema(plan, self.engine.server)
        self._node_calls = NodeCalls(self.registry, self.engine, plan, on_exchange, self.transcript)
        self._synchronisation = Synchronisation(
            plan, self.engine, self.registry, self._node_calls, self.report_schema
        )
        if server_checkpoint is not None:
            server_checkpoint.load(self.engine, self.registry)
        self._presents: list[MaskArray] = []
        """Which agents took part, each time that the engine's round was answered."""
        self.begun = False
        """Whether the first round has begun; nodes that come from then on take part from the next round on."""
        self._use_units()
        for name in plan.without:
            self._leave_out(name)

    @property
    def round(self) -> int:
        return len(self.engine.rows)

    @property
    def done(self) -> bool:
        """Whether all agents that take part have played T episodes."""
        return self.engine.done

    async def run(self) -> None:
        """Wait for the nodes, then play to the end."""
        registry, gathering, M = self.registry, self.plan.gathering, self.plan.setting.agents
        self.begun = self.round > 0
        resuming = self.begun and not self.done
        if resuming:  # nodes need a moment to find a server that has been started again
            await registry.wait_until(lambda: registry.complete(M), REUNION_SECONDS)
        if not self.begun and not await registry.wait_until(lambda: registry.complete(M), gathering):
            here = sum(member.agents for member in registry.active if member.stream is not None)
            raise FederationStoppedError(f"after {gathering:g} s {M - here} agents are missing.")
        self.begun = True
        self._use_units()
        began, earlier = time.perf_counter(), self.engine.seconds
        if self.round == 0 and any(member.new_logs for member in registry.present):
            await self._take_logs()
        while not self.done:
            await self._advance()
            self.engine.seconds = earlier + time.perf_counter() - began
            await self._keep()
            if self._report is not None:
                self._report(self)
            if self._on_round is not None:
                self._on_round(self.engine.last_round())

    @property
    def units(self) -> Units | None:
        """The units of the run's rewards; None until the first node declares them."""
        return self.plan.units or next((member.units for member in self.registry.members.values()), None)

    def _use_units(self) -> None:
        """Rewards are in the units that the nodes have declared, all the same ones."""
        self.engine.units = self.units or self.engine.units

    def status(self) -> FederationStatus:
        registry, events = self.registry, tuple(self.engine.events)
        nodes = tuple(NodeStatus.of(member) for member in registry.everyone)
        return FederationStatus(
            self.plan.run, self.plan.secure_sums, nodes, registry.wire, self._node_calls.violations, events
        )

    def _leave_out(self, name: str) -> None:
        """The operator says that a node has left for good."""
        member = self.registry.members.get(name)
        if member is None:
            known = ", ".join(sorted(self.registry.members)) or "none"
            raise InputError(f"'{name}' does not take part in this run, so it cannot leave; its nodes are: {known}.")
        if not member.out:
            self._check_leaving(member)
            member.status = LEFT

    async def leave(self, member: Member, reason: str) -> None:
        """A node leaves for good; raises :class:`InputError` where the others need it."""
        if member.status != LEFT:
            self._check_leaving(member)
            member.kept = False
            await self.registry.part_with(member, LEFT, reason)

    def _check_leaving(self, member: Member) -> None:
        """Put on record that a node leaves for good; raise where the others need it."""
        plan, others = self.plan, [one for one in self.registry.active if one is not member]
        if not self.report_schema.does_without:
            raise InputError(f"{plan.algorithm.name} needs all its agents, so no node can leave.")
        if len(others) < (plan.least_members if plan.secure_sums else 1):
            raise InputError(f"'{member.name}' cannot leave: too few nodes would remain.")
        self.engine.left[member.span] = True
        stays = plan.algorithm.server_counts
        self._node_calls.note(member, "left for good", f"its counts {'are kept' if stays else 'are dropped'}")

    async def _take_logs(self) -> None:
        """Before the first round, have nodes report what their logs count: it is like a warm start from all of it.

        Who is not there, or too few contributors under secure sums: their logs are in their next report.
        """
        synchronisation, members = self._synchronisation, self.registry.members
        self._node_calls.begin(0)
        broadcast = tuple(np.array(array) for array in self.engine.contract.broadcast(self.engine.server))
        now = NetworkRound(self.plan, 0, broadcast, 0, self._authority)
        now.limit(0)
        collected = now.collected(await self._node_calls.ask_all(EpisodesCall(now, 0)))
        synchronisation.begin()
        await synchronisation.run(now, broadcast[0], collected, self.engine.server)
        steps = sum(members[name].new_logs for name in synchronisation.used)
        for name, roster in synchronisation.used.items():
            members[name].confirmed, members[name].roster = 0, roster
        log.info("the nodes' logs have %d steps, which are counted before the first round", steps)
        sums = listed_sums(synchronisation.sums)
        about = {"planned": planned(self.engine.setting)}
        self._last = PastRound(0, 0, 0, broadcast, -1, about=about, told=sums)
        await self._keep()

    def excluded(self, member: Member) -> str:
        """What a node is told that the others do without for good."""
        known = [event for event in self.engine.events if event["node"] == member.name]
        why = f" in round {known[-1]['round']}: {known[-1]['what']}" if known else ""
        return f"'{member.name}' has been excluded from this run{why}"

    async def _advance(self) -> None:
        """Play one round and synchronise if an agent requested it: answer what the engine's round asks for."""
        first = self.engine.played
        number, steps, recommended = self.round + 1, self.engine.round(), len(self.engine.recommendations)
        self._presents = []
        self._node_calls.begin(number)
        request = self._send(steps, None)
        assert isinstance(request, Play)
        broadcast = tuple(np.array(array) for array in request.broadcast)
        about: dict[str, Any] = {}
        told: dict[str, Array] = {}
        now = NetworkRound(self.plan, number, broadcast, first, self._authority)
        if self.engine.assurance is not None:
            now.limit(request.most, request.playing, self.engine.assurance.numbers)
        confirmed = max(member.confirmed for member in self.registry.everyone)
        credited = max(member.credited for member in self.registry.everyone)
        collected = now.collected(await self._collect(now))
        fresh: dict[str, dict[int, Message]] = {member.name: {} for member in self.registry.everyone}
        synchronisation = self._synchronisation
        synchronisation.begin()
        if not collected.requesters:
            await synchronisation.settle(now, broadcast[0], collected)
        played = self._played(collected)._replace(paid=synchronisation.paid)
        request = self._send(steps, played)
        while isinstance(request, Synchronise):
            server, planning = request
            reports = await synchronisation.run(now, broadcast[0], collected, server, planning=planning)
            if not planning and not self.plan.algorithm.server_counts:
                for name, own in reports.items():
                    fresh[name].update(own)
            request = self._send(steps, None if planning else synchronisation.paid)
        if self.plan.algorithm.server_counts:
            played = played._replace(paid=synchronisation.paid)
            sums, used = synchronisation.sums, [*(synchronisation.credited | synchronisation.used)]
            about, told = told_in_round(self.plan, played, self._presents, sums, used)
        for member in self.registry.present:
            member.base, member.episodes = number, member.episodes + member.before + collected.lengths[member.name]
            member.before = 0
            member.reports.update(fresh[member.name])
            if member.name in synchronisation.used:
                member.reported, member.confirmed = member.episodes, number
                member.roster = synchronisation.used[member.name]
            if member.name in synchronisation.credited:
                member.credited, member.credited_episodes = number, member.episodes
                member.credited_roster = synchronisation.credited[member.name]
        if self.plan.secure_sums:
            for roster in dict.fromkeys([*synchronisation.credited.values(), *synchronisation.used.values()]):
                self.transcript.add("used", round=number, roster=roster)
        length = collected.end.length
        self._last = PastRound(
            number, first, length, broadcast, confirmed, credited, now.playing, now.grid.judged, about, told
        )
        gap = self.engine.units.scale * last_gap(self.engine.recommendations[recommended:])
        if self.engine.assurance is not None and (issued := self.engine.assurance.issued(number)):
            log.info("round %d: %s", number, issued, extra={"round": number})
        if not math.isnan(gap):
            log.info("round %d: the recommended policy's gap is %.4g", number, gap, extra={"round": number})

    async def _collect(self, now: NetworkRound) -> dict[str, Played]:
        """Nodes play ahead in chunks, which grow until one of them reports a request; live ones at one go."""
        setting, answers = self.plan.setting, dict[str, Played]()
        chunks = [setting.episodes] if now.live else growing(self._chunk(), now.left, setting.horizon)
        for chunk in chunks:
            answers = await self._node_calls.ask_all(EpisodesCall(now, chunk))
            if any(played.asked for played in answers.values()):
                break
        return answers

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

    def past(self, member: Member, held: int) -> Iterator[PastRound] | None:
        """The rounds after ``held`` that a member's agents have played, if these were all rounds there were."""
        start, length = self.engine.rows[member.base - 1][:2]
        if self._server_checkpoint is None or not self.engine.together or member.episodes != start + length:
            return None
        return self._server_checkpoint.past(held + 1, member.base)

    def _played(self, collected: Collected) -> PlayedRound:
        lengths = np.zeros(self.plan.setting.agents, dtype=np.int64)
        for member in self.registry.everyone:
            lengths[member.span] = member.before + collected.lengths.get(member.name, 0)
        request = collected.request
        return PlayedRound(collected.end, -1 if request is None else request.rule, lengths=lengths)

    def _chunk(self) -> int:
        """Episodes that nodes play before they first answer: as many as cost little, or twice the last round."""
        steps = max(member.agents for member in self.registry.everyone) * self.plan.setting.horizon
        return first_chunk(steps, self.engine.last_length)

    async def _keep(self) -> None:
        """Save the round before any node is told of the next one; if the disk is full, try again."""
        end = time.monotonic() + self.plan.patience
        while self._server_checkpoint is not None:
            try:
                if self.engine.together or self.plan.algorithm.server_counts:
                    self._server_checkpoint.remember(self._last)
                self._server_checkpoint.write(self.engine, self.registry)
                self.transcript.flush()
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise FederationStoppedError(
                        f"round {self.round} cannot be kept in {self._server_checkpoint.folder}: {error}."
                    ) from error
                again = {"round": self.round}
                log.warning("round %d cannot be kept: %s; trying again", self.round, error, extra=again)
                await asyncio.sleep(DISK_PAUSE)
        await self.registry.keep()
