"""The server's side of the network: listen, run, return the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.door import TurnedAwayError
from fed_ucbvi.network.health import Health
from fed_ucbvi.network.messages import PART_BYTES, End
from fed_ucbvi.network.node_registry import NodeRegistry
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.run_plan import MODEL, RunPlan
from fed_ucbvi.network.server_checkpoint import POLICY_FILE, ServerCheckpoint
from fed_ucbvi.network.transport import SERVICE, TLSFiles, open_server
from fed_ucbvi.network.wire_count import WireCount
from fed_ucbvi.results.policy import LearntPolicy
from fed_ucbvi.results.round_record import OnRound
from fed_ucbvi.results.run import Run

with needed("grpcio"):
    import grpc  # type: ignore[import-untyped]

log = logging.getLogger("fed_ucbvi.federation")

GRACE = 2.0
"""Seconds that nodes have to hear of the end before the server exits."""
FAREWELL_SECONDS = 10.0
"""How long the end is told to nodes that are just reconnecting."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run over the network.

    Attributes:
        run: as a simulation gives it; regret and values are NaN where the server does not know the problem. It is
            complete if all agents have played all their episodes.
        wire: what was really sent.
        events: nodes that stayed away or were dropped, when, and what was done.
        ended: whether there is nothing left to play; nodes that were excluded or away may have played less.
        planned: episodes that agents were to play, added up over agents: from when each came until it left.
    """

    run: Run
    wire: WireCount
    events: list[dict[str, Any]]
    ended: bool = True
    planned: int = 0

    @property
    def agent_episodes(self) -> tuple[int, int]:
        """Episodes that agents have played, added up over agents, and those that were planned."""
        return int(self.run.records["agent_episodes"].sum()), self.planned


class Service:
    """A server that listens; to be made inside a running event loop.

    Args:
        plan: the run.
        address: ``HOST:PORT`` to listen on; port 0 takes a free one.
        tls_files: the server's certificate; none: insecure, on this machine only.
        server_checkpoint: where finished rounds are kept, if anywhere.
        revoked: names that are turned away though certified.
        report: called after every round.
        on_round: likewise, with the record of the round.
        on_exchange: called after every exchange that has a deadline, with the seconds of its slowest answer.
    """

    def __init__(
        self,
        plan: RunPlan,
        address: str,
        tls_files: TLSFiles | None,
        *,
        server_checkpoint: ServerCheckpoint | None = None,
        revoked: Callable[[], Iterable[str]] = tuple,
        report: Callable[[Coordinator], None] | None = None,
        on_round: OnRound | None = None,
        on_exchange: Callable[[float], None] | None = None,
    ) -> None:
        self.plan, self._tls_files, self._server_checkpoint = plan, tls_files, server_checkpoint
        if plan.secure_sums and tls_files is None:
            raise InputError(
                "secure sums need certificates, by which nodes know each other's keys; serve with --certs."
            )
        authority = Authority(tls_files.read()[0]) if plan.secure_sums and tls_files is not None else None
        self.registry = NodeRegistry(plan, certified=tls_files is not None, revoked=revoked, authority=authority)
        self.coordinator = Coordinator(plan, self.registry, server_checkpoint, report, on_round, on_exchange)
        rows = 1 if plan.exchange == MODEL else plan.setting.agents
        self.registry.most_bytes = max(PART_BYTES, 2 * self.coordinator.report_schema.largest(rows))
        self.registry.farewell = self._farewell
        self._health = Health((SERVICE,))
        self._server, self.port = open_server(
            address, self.registry.session, tls_files, self._health, self._tell_policy
        )
        self._told: tuple[int, bytes] = 0, b""

    async def run(self) -> Outcome:
        """Listen, play to the end, stop listening."""
        await self._server.start()
        watching = asyncio.ensure_future(self.registry.watch())
        try:
            await self.coordinator.run()
            self._health.end()
            await self._end()
        finally:
            self._health.end()
            watching.cancel()
            await self.registry.close()
            await self._server.stop(GRACE)
            if self._server_checkpoint is not None:
                self._server_checkpoint.close()
        return self.outcome()

    async def _end(self) -> None:
        """Keep the policy, for nodes that will not hear of the end here, and tell it to those that do."""
        run, policy = self.coordinator, self._policy(final=True)
        if self._server_checkpoint is not None:
            try:
                policy.save(self._server_checkpoint.folder / POLICY_FILE)
            except OSError as error:
                log.warning("the policy cannot be kept in %s: %s", self._server_checkpoint.folder, error)
        await self.registry.tell_end(End(run.round, run.records.played, policy.to_bytes()), FAREWELL_SECONDS)

    def _farewell(self) -> End | None:
        """What a node is told that leaves for good: the policy that was recommended last."""
        run = self.coordinator
        if run.records.recommended is None:
            return None
        return End(run.round, run.records.played, self._policy(final=run.done).to_bytes())

    def _policy(self, *, final: bool) -> LearntPolicy:
        """The policy recommended last, signed where the server has a certificate."""
        policy = replace(LearntPolicy.of(self.coordinator.records.result()), run=self.plan.run, final=final)
        return policy if self._tls_files is None else policy.signed(*self._tls_files.read()[1:])

    async def _tell_policy(self, _: Any, context: Any) -> bytes:
        """Answer a node that asks for the policy; it need not take part just now."""
        try:
            self.registry.check_holder(context)
        except TurnedAwayError as refused:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))
        planned = len(self.coordinator.records.recommendations)
        if not planned:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "no policy has been recommended yet; the first round is not over"
            )
        if self._told[0] != planned:
            self._told = planned, self._policy(final=self.coordinator.done).to_bytes()
        return self._told[1]

    def outcome(self) -> Outcome:
        """The run as it stands."""
        run = self.coordinator
        records = run.records
        return Outcome(records.result(), self.registry.wire, records.events, records.done, records.planned_episodes)
