"""The server's side of the network: listen, run, return the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import FederationStoppedError, RejectedError
from fed_ucbvi.network.messages import End
from fed_ucbvi.network.reception import Reception
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import POLICY_FILE, ServerCheckpoint
from fed_ucbvi.network.transport import Listener, WireCount
from fed_ucbvi.results.policy import LearntPolicy
from fed_ucbvi.results.round_record import OnRound
from fed_ucbvi.results.run import Run

log = logging.getLogger("fed_ucbvi.federation")

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


class FederationServer:
    """A server; to be made inside a running event loop.

    Args:
        plan: the run.
        address: ``HOST:PORT`` to listen on; port 0 is a free one. None: it does not listen.
        tls_files: the server's certificate; none: insecure, on this machine only.
        server_checkpoint: where finished rounds are kept, if anywhere.
        revoked: names that are rejected though certified.
        report: called after every round.
        on_round: likewise, with the record of the round.
        on_exchange: called after every exchange that has a deadline, with the seconds of its slowest answer.
    """

    def __init__(
        self,
        plan: RunPlan,
        address: str | None,
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
        self.coordinator = Coordinator(plan, server_checkpoint, report, on_round, on_exchange, authority)
        self.registry = self.coordinator.registry
        self.reception = Reception(
            self.coordinator, certified=tls_files is not None, revoked=revoked, farewell=self._farewell
        )
        self.session = self.reception.session
        self._listener = None if address is None else Listener(self, address, tls_files)
        self.port = 0 if self._listener is None else self._listener.port
        self._told: tuple[int, bytes] = 0, b""

    async def run(self) -> Outcome:
        """Listen, play to the end, stop listening."""
        if self._listener is not None:
            await self._listener.start()
        watching = asyncio.ensure_future(self.reception.watch())
        try:
            try:
                await self.coordinator.run()
            except FederationStoppedError as stopped:
                await self.reception.close(f"the server has stopped: {str(stopped).rstrip('.')}")
                raise
            if self._listener is not None:
                await self._listener.end()
            await self._end()
        finally:
            watching.cancel()
            await self.reception.close()
            if self._listener is not None:
                await self._listener.stop()
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
        await self.reception.tell_end(End(run.round, run.engine.played, policy.to_bytes()), FAREWELL_SECONDS)

    def _farewell(self) -> End | None:
        """What a node is told that leaves for good: the policy that was recommended last."""
        run = self.coordinator
        if run.engine.recommended is None:
            return None
        return End(run.round, run.engine.played, self._policy(final=run.done).to_bytes())

    def _policy(self, *, final: bool) -> LearntPolicy:
        """The policy recommended last, signed where the server has a certificate."""
        policy = replace(LearntPolicy.of(self.coordinator.engine.result()), run=self.plan.run, final=final)
        return policy if self._tls_files is None else policy.signed(*self._tls_files.read()[1:])

    async def policy(self, certificate: bytes) -> bytes:
        """Answer a node that asks for the policy; it need not take part just now."""
        self.reception.authenticate(certificate)
        planned = len(self.coordinator.engine.recommendations)
        if not planned:
            raise RejectedError("no policy has been recommended yet; the first round is not over", retry=True)
        if self._told[0] != planned:
            self._told = planned, self._policy(final=self.coordinator.done).to_bytes()
        return self._told[1]

    def outcome(self) -> Outcome:
        engine, wire = self.coordinator.engine, self.registry.wire
        return Outcome(engine.result(), wire, engine.events, engine.done, engine.planned_episodes)
