"""The exchanges of a synchronisation, as the server drives them: step by step or at once, in the open or masked.

Under secure sums there is one exchange. Nodes have said with their episodes that they are ready; the server closes
the round with a roster of those that are there, and adds up what they report. If a node comes back in the middle, its
keys are others, so it must sign anew, and the same nodes are asked again. If it does not, the synchronisation has
failed: nothing is used, and what the nodes have to report goes with the next.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Counting, Message, added_up
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network.checks import SUM, Expected, ReportSchema, check_report, check_reports
from fed_ucbvi.network.failures import FederationStoppedError, ViolationError
from fed_ucbvi.network.members import Member, NodeRegistry
from fed_ucbvi.network.messages import COUNTS, REWARDS, REWARDS_ALONE, Denial, Query, Roster
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.node_calls import NodeCalls
from fed_ucbvi.network.roster import fingerprint, make_roster, new_episodes
from fed_ucbvi.network.rounds import Collected, ExchangeCall, NetworkRound, ReadyCall, RosterCall
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.secure_sums import summed

log = logging.getLogger("fed_ucbvi.federation")

Reports = dict[str, dict[int, Message]]
"""By node and exchange."""


class Synchronisation:
    """Asks the nodes and passes their answers to a server.

    Args:
        plan: the run.
        engine: which keeps what no synchronisation has used yet.
        registry: who takes part.
        node_calls: asks them.
        report_schema: what replaces the reports of nodes that are away.
    """

    def __init__(
        self,
        plan: RunPlan,
        engine: NetworkEngine,
        registry: NodeRegistry,
        node_calls: NodeCalls,
        report_schema: ReportSchema,
    ) -> None:
        self._plan, self._engine, self._registry, self._node_calls = plan, engine, registry, node_calls
        self._report_schema = report_schema
        self._denials: list[Denial] = []
        self.sums: dict[bool, CountTable] = {}
        """What reports of the last round add up to, where they are what is new: to the server, and to a planner."""
        self.used: dict[str, str] = {}
        """The nodes whose reports the last round's synchronisation has used, with the digest of their roster."""
        self.credited: dict[str, str] = {}
        """Under secure sums likewise those whose rewards were used."""
        self.paid: Paid | None = None
        """What the last round paid, as far as nodes have said, and where its episodes began."""

    def begin(self) -> None:
        self.paid, self.used, self.credited, self.sums = None, {}, {}, {}

    async def settle(self, now: NetworkRound, policy: PolicyArray, collected: Collected) -> None:
        """End a round without a request: all nodes have counted it once they have said what it paid.

        Nobody needs their counts, which stay with them until somebody does.
        """
        if self._plan.secure_sums:
            await self._sum_of_nodes(now, None, counts=False)
            return
        query = Query(now.number, REWARDS_ALONE, (), rewards=True)
        self._take_rewards(now, await self._node_calls.ask_all(ExchangeCall(now, query, None)))

    async def run(
        self, now: NetworkRound, policy: PolicyArray, collected: Collected, server: Any, *, planning: bool = False
    ) -> Reports:
        """All exchanges with a server, or with a planner, to which nodes that are away have seen nothing.

        (Their last reports are about the server's values, not about the planner's.)

        Returns:
            The reports of each node, where they are its own.
        """
        plan, fresh = self._plan, defaultdict[str, dict[int, Message]](dict)
        if plan.secure_sums:
            total = None
            if not planning or self.paid is not None:  # counts and rewards are summed over the same nodes
                expected = self._expected(policy, (), 0, collected)
                total = await self._sum_of_nodes(now, expected, rewards=now.number > 0 and not planning)
            self._hold(total)
            if (planning or total is not None) and self._engine.held is not None:
                self._add(server, self._engine.held, planning=planning)
                self._engine.held = self._engine.held if planning else None
            return fresh
        for exchange in range(plan.exchanges):
            arrays = tuple(np.array(array) for array in plan.algorithm.query(server, exchange))
            reports = await self._ask(now, policy, collected, arrays, exchange, planning)
            for name, report in reports.items():
                fresh[name][exchange] = report
            everyone = self._report_schema.assemble(self._rows(reports, arrays, exchange, planning))
            if plan.algorithm.server_counts:
                self._add(server, plan.read_counts(added_up(everyone)), planning=planning)
            else:
                plan.algorithm.aggregate(server, everyone, exchange)
        if not planning:
            self.used = dict.fromkeys(fresh, "")
        return fresh

    def _add(self, server: Any, new: CountTable, *, planning: bool) -> None:
        """Add what is new to what a server, or a planner, knows."""
        self.sums[planning] = new
        self._plan.algorithm.add_counts(server, new)

    async def _ask(
        self,
        now: NetworkRound,
        policy: PolicyArray,
        collected: Collected,
        arrays: Message,
        exchange: int,
        planning: bool,
    ) -> dict[str, Message]:
        plan = self._plan
        first = plan.exchanges if planning else 0
        expected = self._expected(policy, arrays, exchange, collected)
        rewards = exchange == 0 and not planning
        query = Query(now.number, first + exchange, arrays, rewards)
        reports = await self._node_calls.ask_all(ExchangeCall(now, query, expected))
        reports = await self._possible(reports, expected, collected, without_last=rewards)
        if rewards:
            reports = self._take_rewards(now, reports)
        return reports

    async def _possible(
        self, reports: dict[str, Message], expected: Expected, collected: Collected, *, without_last: bool
    ) -> dict[str, Message]:
        """The reports that can be true; what is done about the others is up to the run's rules."""
        while True:
            checked = {name: report[:-1] if without_last else report for name, report in reports.items()}
            try:
                check_reports(checked, self._registry.members, collected.lengths, expected)
                return reports
            except ViolationError as violation:
                await self._node_calls.violated(violation)
                reports = {name: report for name, report in reports.items() if name != violation.node}

    def _take_rewards(self, now: NetworkRound, reports: dict[str, Message]) -> dict[str, Message]:
        """Take what nodes say of rewards, the last array of each report; the reports without it."""
        (numbers,) = summed(report[-1:] for report in reports.values())
        self.paid = now.grid.read(numbers)
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
        support = self._plan.support if algorithm.server_counts else None
        return Expected(forms, setting, policy, arrays, exchange, collected.requesters, grid, visits, support)

    def _rows(self, reports: dict[str, Message], arrays: Message, exchange: int, planning: bool) -> list[Message]:
        """What was reported, and what stands in for nodes that were not heard."""
        return [
            reports[member.name]
            if member.name in reports
            else self._report_schema.instead(member, arrays, exchange, planning=planning)
            for member in self._registry.everyone
        ]

    # --------------------------------------------------------------------------------------------------- secure sums

    async def _sum_of_nodes(self, now: NetworkRound, expected: Expected | None, **asked: bool) -> Message | None:
        """What is new, added up over the nodes of a roster; None if too few have anything new, or one vanishes.

        Args:
            now: the round.
            expected: of counts, if they are asked for.
            **asked: whether for ``counts`` and ``rewards``; True unless said.
        """
        plan, before = self._plan, None
        while (roster := await self._roster(now, asked)) is not None:
            if before not in (None, new_episodes(roster)):
                break
            before, call = new_episodes(roster), RosterCall(now, roster, expected)
            reports = await self._node_calls.ask_all(call)
            if len(reports) == len(roster.entries):
                self._denials = []
                used = dict.fromkeys(reports, fingerprint(roster).hex())
                if roster.counts:
                    self.used = used
                if roster.rewards:
                    self.credited = used
                return self._checked_sum(now, roster, reports, expected)
            silent = {entry.name for entry in roster.entries} - set(reports) - call.declined
            for name in silent:
                member = self._registry.members[name]
                member.missed, member.missed_roster = now.number, fingerprint(roster).hex()
            if call.declined or not silent <= {member.name for member in self._registry.present}:
                break
            log.warning("round %d: a node has come back; the same nodes are asked again", now.number, extra=now.about)
        if before is not None:
            what = "a synchronisation failed: not all nodes of its roster have answered"
            log.warning("round %d: %s", now.number, what, extra=now.about)
            self._node_calls.record("", what, "what was not used goes with the next report")
        elif now.number != plan.setting.episodes:
            log.info("round %d: too few nodes have new episodes for a sum", now.number, extra=now.about)
        return None

    async def _roster(self, now: NetworkRound, asked: dict[str, bool]) -> Roster | None:
        """Those that are there and ready; None if fewer than it takes have new episodes."""
        plan, registry = self._plan, self._registry
        if len(registry.active) < plan.least_members:
            raise FederationStoppedError(
                f"secure sums need {plan.least_members} nodes, and {len(registry.active)} take part; finished rounds "
                "are kept."
            )
        for part in (COUNTS, REWARDS):
            new = {m.name: now.new_episodes(m)[part] + now.lengths.get(m.name, 0) for m in registry.present}
            few = sum(episodes >= plan.least_episodes for episodes in new.values()) < plan.least_members
            if asked.get(part, True) and few:
                return None
        await self._node_calls.ask_all(ReadyCall(now))
        self._denials += now.denials
        now.denials = []
        ready = [(member, member.ready) for member in registry.present if member.ready is not None]
        length = 0 if now.live else max(now.lengths.values())
        entries = [now.entry(member, signed) for member, signed in ready]
        return make_roster(now.number, length, entries, self._denials, **asked)

    def _hold(self, total: Message | None) -> None:
        """Put a sum to what no synchronisation has used yet."""
        if total:
            new, held = self._plan.read_counts(total), self._engine.held
            self._engine.held = new if held is None else held.merge(new)

    def _checked_sum(
        self, now: NetworkRound, roster: Roster, reports: dict[str, Message], expected: Expected | None
    ) -> Message:
        """What the reports add up to, checked; nobody knows whose numbers are in it."""
        total = summed(reports.values())
        by_node = new_episodes(roster)
        new = {part: sum(one.agents * by_node[part][one.name] for one in roster.entries) for part in roster.parts}
        counts, played = total[:-1] if roster.rewards else total, new.get(COUNTS, 0) if roster.round else 0
        logs = sum(self._registry.members[entry.name].new_logs for entry in roster.entries)
        agents = sum(entry.agents for entry in roster.entries)
        everyone = Member(SUM, 0, agents, b"", confirmed=-1, logged_steps=logs)
        try:
            if expected is not None:
                check_report(counts, everyone, 0, expected, (played, played))
            if roster.rewards:
                now.grid.check(total[-1], new[REWARDS], some=True)
        except ViolationError as violation:
            raise self._impossible(violation) from violation
        if roster.rewards:
            self.paid = now.grid.read(total[-1])
        return counts
