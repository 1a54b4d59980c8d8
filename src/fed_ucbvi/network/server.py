"""The server's side of the wire: listen, run, hand back the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.messages import PART_BYTES, End
from fed_ucbvi.network.node_registry import NodeRegistry
from fed_ucbvi.network.node_stream import WireCount
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.signed_result import SignedResult, write_result
from fed_ucbvi.network.transport import TLSFiles, open_server
from fed_ucbvi.results.run import Run

log = logging.getLogger("fed_ucbvi.federation")

GRACE = 2.0
"""Seconds nodes have to hear of the end before the server goes."""
FAREWELL_SECONDS = 10.0
"""How long the end is told to nodes that are just reconnecting."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run over the network.

    Attributes:
        run: as a simulation gives it; regret and values are NaN where the server does not know the problem.
        wire: what really crossed the line.
        events: nodes that stayed away or were dropped, when, and what was done.
    """

    run: Run
    wire: WireCount
    events: list[dict[str, Any]]


class Service:
    """A server that listens; to be made inside a running event loop.

    Args:
        plan: the run.
        address: ``HOST:PORT`` to listen on; port 0 takes a free one.
        tls_files: the server's certificate; none: insecure, on this machine only.
        server_checkpoint: where finished rounds are kept, if anywhere.
        revoked: names that are turned away though certified.
        report: called after every round.
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
    ) -> None:
        self.plan, self._tls_files = plan, tls_files
        self._folder = None if server_checkpoint is None else server_checkpoint.folder
        self.registry = NodeRegistry(plan, certified=tls_files is not None, revoked=revoked)
        self.coordinator = Coordinator(plan, self.registry, server_checkpoint, report)
        largest = self.coordinator.report_schema.largest()
        self.registry.most_bytes = max(PART_BYTES, 2 * plan.setting.agents * largest)
        self._server, self.port = open_server(address, self.registry.session, tls_files)

    async def run(self) -> Outcome:
        """Listen, play to the end, stop listening."""
        await self._server.start()
        watching = asyncio.ensure_future(self.registry.watch())
        try:
            await self.coordinator.run()
            await self._end()
        finally:
            watching.cancel()
            await self.registry.close()
            await self._server.stop(GRACE)
        return self.outcome()

    async def _end(self) -> None:
        """Sign the result, for nodes that will not hear of it here, and tell those that do."""
        run = self.coordinator
        result = SignedResult(self.plan.run, run.round, run.records.played, run.recommended.policy)
        if self._folder is not None and self._tls_files is not None:
            try:
                write_result(self._folder, result, self._tls_files)
            except (OSError, InputError) as error:
                log.warning("the signed result cannot be kept in %s: %s", self._folder, error)
        await self.registry.tell_end(End(run.round, run.records.played, (result.policy,)), FAREWELL_SECONDS)

    def outcome(self) -> Outcome:
        """The run as it stands."""
        run = self.coordinator
        result = run.records.result(run.server.policy, run.server.V, run.recommended, complete=run.done)
        return Outcome(result, self.registry.wire, run.records.events)
