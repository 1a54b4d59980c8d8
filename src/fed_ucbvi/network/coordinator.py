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

import numpy as np

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.chunks import first_chunk
from fed_ucbvi.engine.rounds import Paid, Play, PlayedRound, Request, Steps, Synchronise
from fed_ucbvi.network.members import LEFT, Member
from fed_ucbvi.network.node_calls import FederationStoppedError, NodeCalls
from fed_ucbvi.network.node_registry import NodeRegistry, PastRound
from fed_ucbvi.network.records import Records
from fed_ucbvi.network.report_schema import ReportSchema
from fed_ucbvi.network.rounds import Collected, Round
from fed_ucbvi.network.run_plan import MODEL, RunPlan
from fed_ucbvi.network.secure_sums import MIN_NODES
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.synchronisation import Synchronisation
from fed_ucbvi.results.recommendations import last_gap
from fed_ucbvi.results.round_record import OnRound

log = logging.getLogger("fed_ucbvi.federation")

DISK_PAUSE = 1.0
"""Seconds between two attempts to write a checkpoint."""
REUNION_SECONDS = 15.0
"""Seconds for nodes to find a server that was started again: three times their longest pause."""


class Coordinator:
    """The central server of a run over the network.

    Args:
        plan: the run.
        registry: where the nodes come in.
        server_checkpoint: where finished rounds are kept, if anywhere.
        report: called after every round.
        on_round: likewise, with the record of the round.
        on_exchange: called after every exchange that has a deadline, with the seconds of its slowest answer.
    """

    def __init__(
        self,
        plan: RunPlan,
        registry: NodeRegistry,
        server_checkpoint: ServerCheckpoint | None = None,
        report: Callable[[Coordinator], None] | None = None,
        on_round: OnRound | None = None,
        on_exchange: Callable[[float], None] | None = None,
    ) -> None:
        self._on_round = on_round
        self.plan, self.registry = plan, registry
        self._server_checkpoint, self._report = server_checkpoint, report
        self.records = Records(plan)
        self.report_schema = ReportSchema(plan, self.records.server)
        self._node_calls = NodeCalls(registry, self.records, plan.rules, on_exchange)
        self._synchronisation = Synchronisation(plan, registry, self.report_schema, self.records.earlier)
        if server_checkpoint is not None:
            server_checkpoint.load(self.records, registry)
        registry.past, registry.let_go = self._past, self._let_go
        self._take_units()
        for name in plan.without:
            self._leave_out(name)

    @property
    def round(self) -> int:
        """How many rounds have been played."""
        return len(self.records.rows)

    @property
    def violations(self) -> int:
        """How often a node has broken the rules since this server was started."""
        return self._node_calls.violations

    @property
    def done(self) -> bool:
        """Whether all agents that take part have played T episodes."""
        return self.records.done

    async def run(self) -> None:
        """Wait for the nodes, then play to the end."""
        registry, gathering = self.registry, self.plan.rules.gathering
        registry.begun = self.round > 0
        if self.plan.secure_sums and registry.begun and not self.done:
            await self._wait_for_newcomers()
        if registry.begun and not self.done:  # nodes need a moment to find a server that has been started again
            await registry.wait_until(lambda: registry.complete, REUNION_SECONDS)
        if not registry.begun and not await registry.wait_until(lambda: registry.complete, gathering):
            here = sum(member.agents for member in registry.seated if member.stream is not None)
            missing = self.plan.setting.agents - here
            raise FederationStoppedError(f"after {gathering:g} s {missing} agents have not come.")
        registry.begun = True
        self._take_units()
        began, earlier = time.perf_counter(), self.records.seconds
        while not self.done:
            await self._advance()
            self.records.seconds = earlier + time.perf_counter() - began
            await self._keep()
            if self._report is not None:
                self._report(self)
            if self._on_round is not None:
                self._on_round(self.records.last_round())

    def _take_units(self) -> None:
        """Rewards are in the units that the nodes have declared, all the same ones."""
        self.records.units = self.registry.units or self.records.units

    async def _wait_for_newcomers(self) -> None:
        """With secure sums nodes answer only if all agents of the run are there, or have been and are gone."""
        registry, M = self.registry, self.plan.setting.agents

        def known() -> bool:
            return sum(member.agents for member in registry.everyone) == M

        if not await registry.wait_until(known, self.plan.rules.gathering):
            raise FederationStoppedError("new agents have not come, and secure sums need all of them.")

    def _leave_out(self, name: str) -> None:
        """The operator says that a node has left for good."""
        member = self.registry.members.get(name)
        if member is None:
            known = ", ".join(sorted(self.registry.members)) or "none"
            raise InputError(f"'{name}' does not take part in this run, so it cannot leave; its nodes are: {known}.")
        if not member.out:
            self._let_go(member)
            member.status = LEFT

    def _let_go(self, member: Member) -> None:
        """Put on record that a node leaves for good; raise where the others cannot go on without it."""
        plan, others = self.plan, [one for one in self.registry.seated if one is not member]
        if not self.report_schema.does_without:
            raise InputError(f"{plan.algorithm.name} cannot go on without all its agents, so no node can leave.")
        if plan.secure_sums and not plan.may_exclude:
            raise InputError(
                "no node can leave this run: with secure sums nodes have joined on the condition that nobody is left "
                "out of the sums. Serve it with --on-away exclude if they agree."
            )
        if len(others) < (MIN_NODES if plan.secure_sums else 1):
            raise InputError(f"'{member.name}' cannot leave: too few nodes would remain.")
        self.records.left[member.span] = True
        stays = plan.algorithm.server_counts or (plan.exchange == MODEL and not plan.secure_sums)
        self._node_calls.note(member, "left for good", f"its counts {'stay' if stays else 'go'}")

    async def _advance(self) -> None:
        """Play one round and synchronise if an agent requested it: answer what the engine's round asks for."""
        first = self.records.played
        number, steps, recommended = self.round + 1, self.records.round(), len(self.records.recommendations)
        self._node_calls.begin(number)
        request = self._send(steps, None)
        broadcast = tuple(np.array(array) for array in request.broadcast) if isinstance(request, Play) else ()
        now = Round(self.plan, self._node_calls, number, broadcast, first)
        collected = await now.collect(self._chunk())
        fresh: dict[str, dict[int, Message]] = {member.name: {} for member in self.registry.everyone}
        synchronisation = self._synchronisation
        synchronisation.paid = None
        if not collected.askers:
            await synchronisation.settle(now, collected)
        request = self._send(steps, self._played(collected)._replace(paid=synchronisation.paid))
        while isinstance(request, Synchronise):
            server, planning = request
            reports = await synchronisation.run(now, broadcast[0], collected, server, planning=planning)
            if not planning or self.plan.exchange == MODEL:
                for name, own in reports.items():
                    fresh[name].update(own)
            request = self._send(steps, None if planning else synchronisation.paid)
        for member in self.registry.present:
            member.base, member.episodes = number, member.episodes + collected.lengths[member.name]
            member.reports.update(fresh[member.name])
        if collected.askers:  # a node that was away takes what it had not reported for confirmed, too
            for member in self.registry.everyone:
                member.reported = member.episodes
        self._last = PastRound(number, first, collected.end.length, broadcast)
        gap = self.records.units.scale * last_gap(self.records.recommendations[recommended:])
        if not math.isnan(gap):
            log.info("round %d: the recommended policy's gap is %.4g", number, gap, extra={"round": number})

    def _send(self, steps: Steps[None], answer: PlayedRound | Paid | None) -> Request | None:
        """Send the engine's round an answer, and who takes part by now; what it needs next, None at its end."""
        self.records.present[:] = False
        for member in self.registry.present:
            self.records.present[member.span] = True
        try:
            return steps.send(answer)
        except StopIteration:
            return None

    def _past(self, member: Member, held: int) -> Iterator[PastRound] | None:
        """The rounds after ``held`` that a member's agents have played, if these were all rounds there were."""
        start, length = self.records.rows[member.base - 1][:2]
        if self._server_checkpoint is None or not self.records.together or member.episodes != start + length:
            return None
        return self._server_checkpoint.past(held + 1, member.base)

    def _played(self, collected: Collected) -> PlayedRound:
        lengths = np.zeros(self.plan.setting.agents, dtype=np.int64)
        for member in self.registry.everyone:
            lengths[member.span] = collected.lengths.get(member.name, 0)
        request = collected.request
        return PlayedRound(collected.end, -1 if request is None else request.rule, lengths=lengths)

    def _chunk(self) -> int:
        """Episodes that nodes play before they first answer: as many as cost little, or twice the last round."""
        steps = max(member.agents for member in self.registry.everyone) * self.plan.setting.horizon
        return first_chunk(steps, self.records.last_length)

    async def _keep(self) -> None:
        """Save the round before any node is told of the next one; if the disk is full, try again."""
        await self._write()
        await self.registry.keep()

    async def _write(self) -> None:
        if self._server_checkpoint is None:
            return
        end = time.monotonic() + self.plan.rules.patience
        while True:
            try:
                if self.records.together:
                    self._server_checkpoint.remember(self._last)
                self._server_checkpoint.write(self.records, self.registry)
                return
            except OSError as error:
                if time.monotonic() > end:
                    raise FederationStoppedError(
                        f"round {self.round} cannot be kept in {self._server_checkpoint.folder}: {error}."
                    ) from error
                again = {"round": self.round}
                log.warning("round %d cannot be kept: %s; trying again", self.round, error, extra=again)
                await asyncio.sleep(DISK_PAUSE)
