"""The secure sum of a round on the server: what nodes have signed, one roster, and the sum of the masked reports.

Every round has one sum, of what was counted in this round. If a node of the roster is killed and comes back, it has
the same statement and gives the same answer. If it does not come back, the sum fails: the counts of this round are
lost to the run. Counts of rounds without a request are held until the next synchronisation.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network import messages
from fed_ucbvi.network.checks import Expected
from fed_ucbvi.network.failures import FederationStoppedError, ViolationError
from fed_ucbvi.network.members import Member, NodeStream
from fed_ucbvi.network.messages import Decline, Ready, Roster, RosterEntry, Sign, Start
from fed_ucbvi.network.pending_sum import PendingSum
from fed_ucbvi.network.registry import Question
from fed_ucbvi.network.roster import Authority, SumPolicy, broadcast_digest, make_roster, welcome_digest
from fed_ucbvi.network.rounds import NetworkRound, RoundReports
from fed_ucbvi.network.secure_sums import summed

log = logging.getLogger("fed_ucbvi.federation")


class SecureSum(RoundReports):
    """The sum of one round; ``authority`` checks signatures, and ``pending`` keeps the roster and the answers."""

    def __init__(self, now: NetworkRound, authority: Authority, pending: PendingSum) -> None:
        super().__init__(now)
        self._authority = authority
        self._pending = pending
        self._policy = SumPolicy(self.plan.rules.least_episodes, self.plan.rules.least_members)
        self._expected = Expected(self.registry.report_schema, now.broadcast[0])
        self.confirmed_before = 0

    def confirmed(self, member: Member) -> int:
        """Always 0: nothing is reported in a later round."""
        return 0

    async def synchronise(self, server: Any, *, planning: bool) -> None:
        """Add the counts of all sums since the last synchronisation."""
        self.registry.engine.add_held(server, planning=planning)

    def credit(self, member: Member) -> None:
        member.reported_round = self.round.number
        if member.name in self.round.reported:
            member.reported_episodes += self.round.lengths[member.name]

    async def after_play(self) -> None:
        """Have nodes sign for the sum, send them the roster, and add up their answers."""
        registry = self.registry
        self._check_members()
        if not self._may_be_enough():
            self._report_missing("too few nodes have episodes for a sum")
            return
        readies = await registry.ask_all(self._to_sign())
        entries = [_entry_of(registry.members[name], ready) for name, ready in readies.items()]
        if self._policy.contributors(entries) < self._policy.least_members:
            self._report_missing("too few nodes have signed for a sum")
            return
        roster = self._roster_of(entries)
        self._pending.begin(roster)
        answers = await registry.ask_all(self._to_answer(roster))
        if len(answers) < len(roster.entries):
            self._report_missing("not all nodes of the roster have answered")
            return
        self._take_sum(roster, answers)

    def _check_members(self) -> None:
        active = len(self.registry.active)
        least = self._policy.least_members
        if active < least:
            raise FederationStoppedError(
                f"secure sums need {least} nodes, and {active} take part; finished rounds are kept."
            )

    def _may_be_enough(self) -> bool:
        """True if enough nodes have enough episodes, so that it is worth asking for signatures."""
        episodes = [self.round.signed_episodes(member) for member in self.registry.present]
        return sum(one >= self._policy.least_episodes for one in episodes) >= self._policy.least_members

    def _report_missing(self, what: str) -> None:
        """Put on record that there is no sum of this round."""
        lost = (
            "logs stay where they are" if self.round.number == 0 else "the counts of this round are lost to the run"
        )
        log.warning("round %d: no sum: %s; %s", self.round.number, what, lost, extra=self.round.about)
        self.registry.record("", f"no sum: {what}", lost)

    @cached_property
    def _digest(self) -> bytes:
        """Digest that all nodes must have signed."""
        start = self.round.start(self.registry.present[0], 0).message
        assert isinstance(start, Start)
        return broadcast_digest(welcome_digest(self.plan.welcome()), start, self.plan.rules.collection)

    def _to_sign(self) -> Question[Ready]:
        """Ask for a node's statement; a node may decline."""
        request = messages.ToMany(Sign(self.round.number))

        async def ask(member: Member, stream: NodeStream) -> Ready | None:
            answer: Ready | Decline = await stream.ask([*self.round.prepare(member, stream), request])
            stream.signed = True
            if isinstance(answer, Decline):
                log.warning("%s: round %d: %s", member.name, answer.round, answer.reason, extra=member.about)
                return None
            self._check_ready(member, answer)
            return answer

        return ask

    def _check_ready(self, member: Member, ready: Ready) -> None:
        """Raise unless a node's statement is right."""
        episodes = self.round.signed_episodes(member)
        if ready.episodes != episodes:
            raise ViolationError(f"it signs for {ready.episodes} episodes, expected {episodes}")
        if ready.digest != self._digest:
            raise ViolationError("it signs for another broadcast than it was sent")
        try:
            self._authority.check(_entry_of(member, ready), self.plan.run)
        except InputError as error:
            raise ViolationError(str(error).rstrip(".")) from error

    def _roster_of(self, entries: list[RosterEntry]) -> Roster:
        """The roster that was sent before this server was started, if it can still be answered, or a new one."""
        known = self._pending.roster
        if known is not None and known.round == self.round.number and all(one in entries for one in known.entries):
            return known
        return make_roster(self.round.number, entries)

    def _to_answer(self, roster: Roster) -> Question[Message]:
        """Ask for a masked report; a node may decline."""
        entries = {entry.name: entry for entry in roster.entries}
        to_all = messages.ToMany(roster)
        pending = self._pending

        async def ask(member: Member, stream: NodeStream) -> Message | None:
            name = member.name
            if name not in entries:
                return None
            if name in pending.answers:
                return pending.answers[name]
            if not stream.signed:
                ready = await self._to_sign()(member, stream)
                if ready != entries[name].ready:
                    return None
            answer: messages.Report | Decline = await stream.ask([to_all])
            if isinstance(answer, Decline):
                log.warning("%s: round %d: %s", name, answer.round, answer.reason, extra=member.about)
                return None
            if not answer.arrays:
                raise ViolationError("its report is empty")
            self._expected.check_forms(answer.arrays[:-1], member)
            self.round.grid.check_form(answer.arrays[-1])
            pending.add(name, answer)
            return answer.arrays

        return ask

    def _take_sum(self, roster: Roster, answers: Mapping[str, Message]) -> None:
        """Add up the reports; raise if the sum cannot be true. Nobody knows whose numbers are in it."""
        *counts, payments = summed(answers.values())
        members = [self.registry.members[entry.name] for entry in roster.entries]
        agents = sum(member.agents for member in members)
        episodes = sum(member.agents * self.round.lengths[member.name] for member in members)
        logs = sum(member.logged_steps for member in members) if self.round.number == 0 else 0
        try:
            self._expected.check_sum(tuple(counts), agents, episodes, logs)
            self.round.grid.check(payments, episodes, some=True)
        except ViolationError as violation:
            raise FederationStoppedError(
                f"the nodes' reports add up to what cannot be true: {violation}. Some node has lied or failed; "
                "secure sums hide which. Finished rounds are kept."
            ) from violation
        self.round.reported = frozenset(answers)
        self.round.paid = self.round.grid.read(payments) if self.round.number else None
        self.registry.engine.hold(self.plan.read_counts(tuple(counts)))


def _entry_of(member: Member, ready: Ready) -> RosterEntry:
    return RosterEntry(
        name=member.name,
        first_agent=member.first_agent,
        agents=member.agents,
        certificate=member.certificate,
        ready=ready,
    )
