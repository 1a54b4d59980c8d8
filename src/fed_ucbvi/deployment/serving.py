"""The server's side of the wire: listen, run, hand back the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fed_ucbvi.deployment.coordinator import Coordinator
from fed_ucbvi.deployment.hub import Hub
from fed_ucbvi.deployment.ledger import Ledger
from fed_ucbvi.deployment.links import SMALLEST_LIMIT, WireCount
from fed_ucbvi.deployment.plan import Plan
from fed_ucbvi.deployment.transport import Papers, open_server
from fed_ucbvi.results.run import Run

log = logging.getLogger("fed_ucbvi.federation")

GRACE = 2.0
"""Seconds nodes have to hear of the end before the server goes."""
HARD_LIMIT = 8
"""Times the limit on messages: what is longer is cut off unread, what is between is read and refused by name."""


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
        papers: the server's certificate; none: insecure, on this machine only.
        ledger: where finished rounds are kept, if anywhere.
        revoked: names that are turned away though certified.
        report: called after every round.
    """

    def __init__(
        self,
        plan: Plan,
        address: str,
        papers: Papers | None,
        *,
        ledger: Ledger | None = None,
        revoked: Callable[[], Iterable[str]] = tuple,
        report: Callable[[Coordinator], None] | None = None,
    ) -> None:
        self.plan = plan
        self.hub = Hub(plan, certified=papers is not None, revoked=revoked)
        self.coordinator = Coordinator(plan, self.hub, ledger, report)
        most = max(SMALLEST_LIMIT, 2 * plan.setting.agents * self.coordinator.stand_in.largest())
        self.hub.most_bytes = most
        self._server, self.port = open_server(address, self.hub.session, papers, most_bytes=HARD_LIMIT * most)

    async def run(self) -> Outcome:
        """Listen, play to the end, stop listening."""
        await self._server.start()
        try:
            await self.coordinator.run()
        finally:
            await self.hub.close()
            await self._server.stop(GRACE)
        return self.outcome()

    def outcome(self) -> Outcome:
        """The run as it stands."""
        run = self.coordinator
        result = run.records.result(run.server.policy, run.server.V, run.recommended, complete=run.done)
        return Outcome(result, self.hub.wire, run.records.events)
