"""Reports of a node: in the open, of what is new since the last confirmed report, or masked, of one round.

:class:`OpenReports` and :class:`MaskedReports` have one interface. ``docs/trust.md`` says who learns what from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.algorithms.count_reporting import as_count_reporting
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network import messages
from fed_ucbvi.network.node_rounds import NodeRound
from fed_ucbvi.network.query_guard import QueryGuard
from fed_ucbvi.network.rewards import RewardGrid, paid_of
from fed_ucbvi.network.roster import SumPolicy, broadcast_digest
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.sent_sums import SentSums


@dataclass(frozen=True)
class Logs:
    """Episodes recorded before the run: what they add to a report, and their number."""

    report: Message = ()
    episodes: int = 0
    steps: int = 0


@dataclass
class NodeReports(ABC):
    """Reports of one node.

    Attributes:
        plan: the plan of the run.
        party: the node's agents.
        logs: the node's logs.
        questions: checks of the server's questions.
        tells_rewards: False if the node does not report its rewards.
    """

    plan: RunPlan
    party: Party
    logs: Logs
    questions: QueryGuard
    tells_rewards: bool

    # ------------------------------------------------------------------------------- what the two ways differ in

    @abstractmethod
    def is_settled(self, start: messages.Start, *, late: bool) -> bool:
        """True if what the agents counted before this round is not to be reported any more.

        The node is ``late`` if it has counted rounds that closed without it.
        """

    @abstractmethod
    def unreported(self, note: Mapping[str, Any]) -> Paid:
        """Payments of earlier episodes, by the note about their round, that are to be reported with this round."""

    @abstractmethod
    def last_confirmed(self, start: messages.Start, note: Mapping[str, Any]) -> int:
        """The last round before the episodes that are to be reported."""

    @abstractmethod
    def requests(self) -> tuple[tuple[messages.Request, ...], bool]:
        """The requests of the agents as far as they are told, and whether there is one that is not."""

    @abstractmethod
    def answer_query(self, now: NodeRound, query: messages.Query) -> messages.Report:
        """The answer to a question in the open."""

    @abstractmethod
    def sign(self, now: NodeRound) -> messages.Ready:
        """The node's statement for the sum of this round."""

    @abstractmethod
    def answer_roster(self, now: NodeRound, roster: messages.Roster) -> messages.Report:
        """The masked report."""

    # ---------------------------------------------------------------------------------------- what both ways need

    def counts(self, *, with_logs: bool) -> Message:
        """Counts that are not yet settled, as a report."""
        algorithm = as_count_reporting(self.plan.algorithm, "does not report counts.")
        new = self.plan.listed(algorithm.new_counts(self.party.agents, ()))
        if with_logs and self.logs.report:
            new = tuple(one + logged for one, logged in zip(new, self.logs.report, strict=True))
        return new

    def payments(self, now: NodeRound, *, tell: bool) -> Message:
        """Payments of the round, on the grid."""
        grid = RewardGrid.of(self.plan.setting)._replace(judged=now.start.judged)
        return (grid.report(now.unreported_by_now, tell=tell),)

    def nothing_paid(self) -> Paid:
        return Paid(0, 0.0, np.zeros(self.plan.setting.states, dtype=np.int64))


@dataclass
class OpenReports(NodeReports):
    """Reports in the open: what is new since the last one that the server has confirmed."""

    def is_settled(self, start: messages.Start, *, late: bool) -> bool:
        return start.confirmed == start.base and not late

    def unreported(self, note: Mapping[str, Any]) -> Paid:
        return paid_of(note["owed"]) if "owed" in note else self.nothing_paid()

    def last_confirmed(self, start: messages.Start, note: Mapping[str, Any]) -> int:
        return int(note.get("since", start.confirmed))

    def requests(self) -> tuple[tuple[messages.Request, ...], bool]:
        party = self.party
        if not party.asked:
            return (), False
        H = len(party.policy)
        requests = [
            messages.Request(
                agent=end.agent,
                step=end.step if end.step >= 0 else H,
                state=end.state,
                action=end.action,
                rule=end.rule,
            )
            for end in party.requests()
        ]
        return tuple(requests), False

    def answer_query(self, now: NodeRound, query: messages.Query) -> messages.Report:
        """One row for each agent, or one for all where the server takes sums."""
        rewards = self.payments(now, tell=self.tells_rewards) if query.rewards else ()
        alone = query.rewards and query.exchange == messages.REWARDS_ALONE and not query.arrays
        own = () if alone else self._report(now, query)
        self.questions.check(query, (*own, *rewards))
        return messages.Report(query.round, query.exchange, (*own, *rewards))

    def _report(self, now: NodeRound, query: messages.Query) -> Message:
        exchange = self.questions.exchange_of(query)
        if self.plan.reports_counts:
            return self.counts(with_logs=now.start.confirmed < 0)
        return tuple(np.array(array) for array in self.party.report(query.arrays, exchange))

    def sign(self, now: NodeRound) -> messages.Ready:
        raise InputError("the server asks this node to sign for a secure sum, in a run without them.")

    def answer_roster(self, now: NodeRound, roster: messages.Roster) -> messages.Report:
        raise InputError("the server sent a roster, in a run without secure sums.")


@dataclass
class MaskedReports(NodeReports):
    """Masked reports: what the agents have counted in this round, and nothing else.

    Attributes:
        welcome: digest of the server's welcome.
        sums: what the node has signed and sent.
        policy: minimum of contributors.
    """

    welcome: bytes
    sums: SentSums
    policy: SumPolicy

    def is_settled(self, start: messages.Start, *, late: bool) -> bool:
        """True: what was counted before this round has been in a sum or never will be."""
        return True

    def unreported(self, note: Mapping[str, Any]) -> Paid:
        return self.nothing_paid()

    def last_confirmed(self, start: messages.Start, note: Mapping[str, Any]) -> int:
        return 0

    def requests(self) -> tuple[tuple[messages.Request, ...], bool]:
        return (), self.party.asked

    def answer_query(self, now: NodeRound, query: messages.Query) -> messages.Report:
        raise InputError("the server asks for this node's numbers in the open, in a run with secure sums.")

    def sign(self, now: NodeRound) -> messages.Ready:
        assert now.length is not None
        start = now.start
        ready = self.sums.sign(
            start.round,
            now.first,
            broadcast_digest(self.welcome, start, self.plan.rules.collection),
            self.logs.episodes if start.round == 0 else now.length,
            rewards=self.tells_rewards,
        )
        now.signed = True
        return ready

    def answer_roster(self, now: NodeRound, roster: messages.Roster) -> messages.Report:
        if not now.signed:
            raise InputError("the server sent a roster of a round for which this node has not signed.")
        counts = self.counts(with_logs=roster.round == 0)
        payments = self.payments(now, tell=self.tells_rewards and self.policy.sums_rewards(roster))
        return self.sums.answer(roster, (*counts, *payments))
