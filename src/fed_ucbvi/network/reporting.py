"""Reports of a round on the server, in the open: asked for, checked, and given to the algorithm.

Where agents report counts, the server adds them to its table. Otherwise agents answer the queries of the algorithm.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Message, added_up
from fed_ucbvi.algorithms.count_reporting import CountReporting
from fed_ucbvi.network import messages
from fed_ucbvi.network.checks import Expected, assembled
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import Member, NodeStream
from fed_ucbvi.network.messages import Query, Report
from fed_ucbvi.network.registry import Question
from fed_ucbvi.network.rounds import NetworkRound, RoundReports


class OpenReports(RoundReports):
    """Reports in the open, of either kind."""

    @abstractmethod
    def use(self, server: Any, together: Message, exchange: int) -> None:
        """Give the reports of all nodes in an exchange to a server or a planner."""

    def keep(self, reports: Mapping[str, Message], exchange: int) -> None:
        """Keep the reports by node, if later ones are checked against them; by default they are not."""

    async def after_play(self) -> None:
        """End a round without a request: all nodes have counted it once they have said what it paid.

        Their counts stay with the nodes until a synchronisation asks for them.
        """
        if self.round.number and not self.round.end.requests:
            query = Query(self.round.number, messages.REWARDS_ALONE, (), rewards=True)
            self._take_rewards(await self.registry.ask_all(self._to_report(query, None)))

    async def synchronise(self, server: Any, *, planning: bool) -> None:
        """Hold all exchanges with a server, or with a planner."""
        algorithm = self.plan.algorithm
        for exchange in range(self.plan.exchanges):
            query = tuple(np.array(array) for array in algorithm.query(server, exchange))
            reports = await self._exchange(query, exchange, planning=planning)
            if not planning:
                self.round.reported |= reports.keys()
                self.keep(reports, exchange)
            self.use(server, assembled(list(reports.values())), exchange)

    def credit(self, member: Member) -> None:
        if member.name in self.round.reported:
            member.reported_round = self.round.number
            member.reported_episodes = member.episodes

    async def _exchange(self, query: Message, exchange: int, *, planning: bool) -> dict[str, Message]:
        """The reports that can be true; a node whose report cannot be is excluded, or stops the run."""
        registry = self.registry
        now = self.round
        expected = Expected(registry.report_schema, now.broadcast[0], query, exchange, now.requesters)
        rewards = exchange == 0 and not planning
        asked = Query(
            round=now.number,
            exchange=exchange + (self.plan.exchanges if planning else 0),
            arrays=query,
            rewards=rewards,
        )
        reports = await registry.ask_all(self._to_report(asked, expected))
        while True:
            checked = {name: report[:-1] if rewards else report for name, report in reports.items()}
            try:
                expected.check_reports(checked, registry.members, now.lengths)
                break
            except ViolationError as violation:
                await registry.violated(registry.members[violation.node], str(violation))
                del reports[violation.node]
        if rewards:
            self._take_rewards(reports)
        return checked

    def _take_rewards(self, reports: Mapping[str, Message]) -> None:
        """Take what nodes say of rewards, the last array of each report."""
        self.round.paid = self.round.grid.read(np.sum([report[-1] for report in reports.values()], axis=0))

    def _to_report(self, query: Query, expected: Expected | None) -> Question[Message]:
        """Ask for the answer to a query; ``expected`` is None where it asks for nothing but rewards."""
        to_all = messages.ToMany(query)
        now = self.round

        async def ask(member: Member, stream: NodeStream) -> Message:
            answer = await stream.ask([*now.prepare(member, stream), to_all])
            if not isinstance(answer, Report):
                raise ViolationError(f"it declines to report: {answer.reason}")
            if not answer.arrays:
                raise ViolationError("its report is empty")
            report = answer.arrays[:-1] if query.rewards else answer.arrays
            if expected is not None:
                expected.check_forms(report, member)
            elif report:
                raise ViolationError(f"it sent {len(report)} arrays where rewards alone were asked for")
            if query.rewards:
                episodes = member.before + now.lengths[member.name]
                now.grid.check(answer.arrays[-1], member.agents * episodes)
            return answer.arrays

        return ask


class CountReports(OpenReports):
    """Reports of new counts, which the server adds to its table."""

    def __init__(self, now: NetworkRound, algorithm: CountReporting[Any]) -> None:
        super().__init__(now)
        self._algorithm = algorithm

    def use(self, server: Any, together: Message, exchange: int) -> None:
        self._algorithm.add_counts(server, self.plan.read_counts(added_up(together)))

    def confirmed(self, member: Member) -> int:
        return member.reported_round


class ExchangeReports(OpenReports):
    """Answers to the queries of an algorithm; totals among them must not fall from one round to the next."""

    def __init__(self, now: NetworkRound) -> None:
        super().__init__(now)
        self.confirmed_before = now.number - 1
        self._by_node = defaultdict[str, dict[int, Message]](dict)

    def keep(self, reports: Mapping[str, Message], exchange: int) -> None:
        for name, report in reports.items():
            self._by_node[name][exchange] = report

    def use(self, server: Any, together: Message, exchange: int) -> None:
        self.plan.algorithm.aggregate(server, together, exchange)

    def confirmed(self, member: Member) -> int:
        return member.base

    def credit(self, member: Member) -> None:
        member.reports.update(self._by_node[member.name])
        super().credit(member)


def open_reports(now: NetworkRound) -> OpenReports:
    """Reports of a round in the open, of the kind that the algorithm has."""
    algorithm = now.plan.algorithm
    if isinstance(algorithm, CountReporting):
        return CountReports(now, algorithm)
    return ExchangeReports(now)
