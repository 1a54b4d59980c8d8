"""The exchanges of a synchronisation, as the server drives them: step by step or at once, in the open or masked.

Under secure sums the reports of all nodes on a roster are added up before anything else is done with them. The roster
may change in the middle, because a node was excluded or has come back with another key. Then the masks do not cancel,
and the synchronisation is repeated from the start.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Counting, Message, added_up, exchange_messages
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.engine.going_on import EarlierRun
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network.checks import check_report
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.messages import REWARDS_ALONE, Query, Roster
from fed_ucbvi.network.node_calls import FederationStoppedError
from fed_ucbvi.network.node_registry import NodeRegistry
from fed_ucbvi.network.report_schema import ReportSchema
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.roster import make_roster
from fed_ucbvi.network.rounds import Collected, Round
from fed_ucbvi.network.row_checks import SUM, Expected
from fed_ucbvi.network.run_plan import MODEL, RunPlan
from fed_ucbvi.network.secure_sums import MIN_NODES, summed
from fed_ucbvi.network.violation import ViolationError

log = logging.getLogger("fed_ucbvi.federation")

Reports = dict[str, dict[int, Message]]
"""By node and exchange."""


class _RosterChangedError(Exception):
    """The nodes that answered are not those between whom masks cancel."""


class Synchronisation:
    """Asks the nodes and passes their answers to a server.

    Args:
        plan: the run.
        registry: who takes part.
        report_schema: what replaces the reports of nodes that are away.
        earlier: the run whose counts this one started from, if it did.
    """

    def __init__(
        self, plan: RunPlan, registry: NodeRegistry, report_schema: ReportSchema, earlier: EarlierRun | None
    ) -> None:
        self._plan, self._registry, self._report_schema, self._earlier = plan, registry, report_schema, earlier
        self._sums: tuple[set[str], dict[int, Message]] = set(), {}
        self._models: tuple[int, dict[str, Message]] = 0, {}
        self._grid = RewardGrid.of(plan.setting)
        self.paid: Paid | None = None
        """What the last round paid, as far as nodes have said, and where its episodes began."""

    async def settle(self, now: Round, collected: Collected) -> None:
        """End a round without a request: all nodes have counted it once they have said what it paid."""
        query = Query(now.number, REWARDS_ALONE, (), rewards=True)
        while True:
            roster = self._roster() if self._plan.secure_sums else None
            try:
                reports = await now.exchange(query, None, roster)
                if roster is not None:
                    self._check_complete(roster, reports)
            except _RosterChangedError:
                continue
            self._take_rewards(reports, collected, secret=roster is not None)
            return

    async def run(
        self, now: Round, policy: PolicyArray, collected: Collected, server: Any, *, planning: bool = False
    ) -> Reports:
        """All exchanges with a server, or with a planner, to which nodes that are away have seen nothing.

        (Their last reports are about the server's values, not about the planner's.)

        Returns:
            The reports of each node, where they are its own.
        """
        secret = self._plan.secure_sums
        before = {name: array.copy() for name, array in server.arrays().items()} if secret else {}
        while True:
            try:
                return await self._attempt(now, policy, collected, server, planning)
            except _RosterChangedError:
                log.warning(
                    "round %d: nodes have changed; the synchronisation is done again",
                    now.number,
                    extra={"round": now.number},
                )
                for name, array in server.arrays().items():
                    array[...] = before[name]

    async def _attempt(
        self, now: Round, policy: PolicyArray, collected: Collected, server: Any, planning: bool
    ) -> Reports:
        plan, fresh = self._plan, defaultdict[str, dict[int, Message]](dict)
        roster = self._roster() if plan.secure_sums else None
        for exchange in range(plan.exchanges):
            arrays = tuple(np.array(array) for array in plan.query(server, exchange))
            reports = await self._ask(now, policy, collected, roster, arrays, exchange, planning)
            for name, report in reports.items():
                fresh[name][exchange] = report
            everyone = self._report_schema.assemble(self._rows(reports, arrays, exchange, planning))
            if plan.exchange == MODEL:
                agents = plan.algorithm.agents_of(plan.setting, added_up(everyone))
                exchange_messages(plan.algorithm, server, agents, plan.setting)
            else:
                plan.algorithm.aggregate(server, everyone, exchange)
        if roster is None:
            return fresh
        if not planning:
            self._sums = {seat.name for seat in roster.seats}, fresh[SUM]
        return {}

    async def _ask(
        self,
        now: Round,
        policy: PolicyArray,
        collected: Collected,
        roster: Roster | None,
        arrays: Message,
        exchange: int,
        planning: bool,
    ) -> dict[str, Message]:
        """What the nodes report, or their sum; counts are asked for once a round, for server and planner."""
        plan = self._plan
        if plan.exchange == MODEL and self._models[0] == now.number:
            return self._models[1]
        first = plan.exchanges if planning and plan.exchange != MODEL else 0
        expected = self._expected(policy, arrays, exchange, collected)
        rewards = exchange == 0 and not planning
        reports = await now.exchange(Query(now.number, first + exchange, arrays, rewards), expected, roster)
        if roster is not None:
            self._check_complete(roster, reports)
        if rewards:
            reports = self._take_rewards(reports, collected, secret=roster is not None)
        if roster is not None:
            reports = {SUM: self._sum(roster, reports, expected, collected)}
        if plan.exchange == MODEL:
            self._models = now.number, reports
        return reports

    def _take_rewards(self, reports: dict[str, Message], collected: Collected, *, secret: bool) -> dict[str, Message]:
        """Take what nodes say of rewards, the last array of each report; the reports without it."""
        (numbers,) = summed(report[-1:] for report in reports.values())
        members = self._registry.members
        if secret:
            played = sum(members[name].agents * collected.lengths[name] for name in reports)
            try:
                self._grid.check(numbers, played, some=True)
            except ViolationError as violation:
                raise self._impossible(violation) from violation
        self.paid = self._grid.read(numbers)
        return {name: report[:-1] for name, report in reports.items()}

    @staticmethod
    def _impossible(violation: ViolationError) -> FederationStoppedError:
        return FederationStoppedError(
            f"the nodes' reports add up to what cannot be true: {violation}. Some node has lied or failed; "
            "secure sums hide which. Finished rounds are kept."
        )

    def _expected(self, policy: PolicyArray, arrays: Message, exchange: int, collected: Collected) -> Expected:
        algorithm, setting = self._plan.algorithm, self._plan.setting
        visits = setting.horizon if algorithm.counting is Counting.STATIONARY else 1
        forms, grid = self._report_schema.forms[exchange], algorithm.grid(setting)
        return Expected(forms, setting, policy, arrays, exchange, collected.askers, grid, visits)

    def _rows(self, reports: dict[str, Message], arrays: Message, exchange: int, planning: bool) -> list[Message]:
        """What was reported, what stands in for nodes that were not heard, and the counts of an earlier run."""
        rows = [reports[SUM]] if SUM in reports else []
        for member in self._registry.everyone:
            if member.name in reports:
                rows.append(reports[member.name])
            elif SUM not in reports or member.out:
                rows.append(self._report_schema.instead(member, arrays, exchange, planning=planning))
        if self._earlier is not None:
            model = self._plan.exchange == MODEL
            rows.append(self._earlier.model if model else self._earlier.report(arrays, exchange))
        return rows

    # --------------------------------------------------------------------------------------------------- secure sums

    def _roster(self) -> Roster:
        """Those who take part now."""
        present = self._registry.present
        if len(present) < MIN_NODES:
            raise FederationStoppedError(
                f"secure sums need {MIN_NODES} nodes, and {len(present)} take part; finished rounds are kept."
            )
        return make_roster(self._plan.epoch, [member.seat for member in present if member.seat is not None])

    def _check_complete(self, roster: Roster, reports: dict[str, Message]) -> None:
        """Raise unless those who answered are those between whom masks cancel."""
        names = {seat.name for seat in roster.seats}
        if set(reports) != names or {member.name for member in self._registry.present} != names:
            raise _RosterChangedError

    def _sum(self, roster: Roster, reports: dict[str, Message], expected: Expected, collected: Collected) -> Message:
        """What the reports add up to, checked; nobody knows whose numbers are in it."""
        names = {seat.name for seat in roster.seats}
        total = summed(reports.values())
        members = [self._registry.members[name] for name in names]
        everyone = Member(SUM, 0, sum(member.agents for member in members), b"")
        if self._sums[0] == names:
            everyone.reports = self._sums[1]
        elif all(member.episodes == 0 for member in members):
            everyone.reports = {expected.exchange: tuple(np.zeros_like(array) for array in total)}
        lengths = [member.agents * collected.lengths[member.name] for member in members]
        played = sum(lengths) + sum(member.agents * member.episodes for member in members)
        unreported = played - sum(member.agents * member.reported for member in members)
        try:
            check_report(total, everyone, 0, expected, (played, unreported))
        except ViolationError as violation:
            raise self._impossible(violation) from violation
        return total
