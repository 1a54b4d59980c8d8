"""One round as the server holds it: what nodes are asked, what their answers must be, and what they add up to.

:class:`NetworkRound` has what all rounds have in common: synchronisations, secure sums and the members' accounts.
How episodes are collected is the difference between :class:`LockstepRound` (all agents stop after the same episode)
and :class:`LiveRound` (each node stops where the message to stop reaches it). ``ROUND_TYPES`` names them.

Every question can be repeated on a new stream. A stream that has not carried the round's start gets it first and,
once the round is stopped, its stop. So a node that was killed catches up by playing the same episodes again.

A synchronisation goes step by step or at once, in the open or masked. Under secure sums there is one exchange. Nodes
have said with their episodes that they are ready; the server closes the round with a roster of those that are there,
and adds up what they report. If a node comes back in the middle, its keys are others, so it must sign anew, and the
same nodes are asked again. If it does not, the synchronisation has failed: nothing is used, and what the nodes have
to report goes with the next.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from fed_ucbvi.algorithms.base import Message, added_up
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.party import PlayAhead
from fed_ucbvi.engine.rounds import Paid, Play, PlayedRound
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.network import messages
from fed_ucbvi.network.checks import Expected, assembled, check_chunk, check_played
from fed_ucbvi.network.failures import FederationStoppedError, ViolationError
from fed_ucbvi.network.members import Member, NodeStream, Used
from fed_ucbvi.network.messages import COUNTS, PARTS, REWARDS, Played, Query, Report, Roster
from fed_ucbvi.network.registry import NodeRegistry, Question, UntilHalted
from fed_ucbvi.network.roster import Authority, fingerprint, make_roster, new_episodes
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.secure_sums import summed

log = logging.getLogger("fed_ucbvi.federation")


class NetworkRound(ABC):
    """A round in progress.

    Round 0 has the nodes' logs. Under secure sums what nodes sign is checked by ``authority``.

    Attributes:
        lengths: number of episodes by node, once they have been played.
        end: how the round ended, for the record; its length is that of the node that played most.
        requesters: the agents that requested a synchronisation, where the server is told.
        paid: what the round paid, as far as nodes have reported it, and where its episodes began.
        used: by part of a report the nodes of whom it was used, with the digest of their roster.
        used_before: likewise the last round before this one in which it was, with the digest of the roster then.
    """

    def __init__(self, registry: NodeRegistry, number: int, asked: Play, authority: Authority | None = None) -> None:
        self._registry = registry
        self._authority = authority
        self.plan = registry.plan
        self.number = number
        self.playing = asked.playing
        self._most = asked.most
        self.broadcast = tuple(np.array(array) for array in asked.broadcast)  # a synchronisation writes over it
        assurance = registry.engine.assurance
        judged = assurance.numbers if number and assurance is not None else ()
        self.grid = registry.report_schema.rewards._replace(judged=judged)
        self._starts: dict[messages.Start, messages.ToMany] = {}
        """The starts that were sent, by the same message without its arrays."""
        self.lengths: Mapping[str, int] = {}
        self.end = RoundEnd(0)
        self.requesters: frozenset[int] = frozenset()
        self.paid: Paid | None = None
        self.used: dict[str, dict[str, str]] = {part: {} for part in PARTS}
        self._reports = defaultdict[str, dict[int, Message]](dict)
        self._declined: set[str] = set()
        """Nodes that do not answer the roster that they were sent last."""
        self.used_before = {
            part: max((one.used[part] for one in registry.everyone), key=lambda used: used.round) for part in PARTS
        }

    @property
    def about(self) -> dict[str, int]:
        return {"round": self.number}

    def left_after(self, first: int) -> int:
        """Largest number of episodes of this round for an agent that played ``first`` episodes before it."""
        return min(self._most, self.plan.setting.episodes - first)

    # ------------------------------------------------------------------------------------- what a collection decides

    @abstractmethod
    async def _collect(self) -> dict[str, Played]:
        """Have nodes play the episodes of the round, set :attr:`lengths`, and return the last answers."""

    @abstractmethod
    def _first_episode(self, member: Member) -> int:
        """Number of episodes that the member's agents played before this round, as its start says."""

    @abstractmethod
    def _check_played(self, played: Played, member: Member, until: int) -> None:
        """Raise unless this can be the answer of a node that was to play until the round has ``until`` episodes."""

    @abstractmethod
    def _signed_episodes(self, played: Played) -> int:
        """Number of episodes of this round that a node's signature under secure sums covers."""

    @property
    @abstractmethod
    def _roster_length(self) -> int:
        """Length of the round as a roster has it."""

    @abstractmethod
    def for_history(self) -> SavedState | None:
        """The round as the server's history keeps it; None if nodes cannot play it again."""

    # ------------------------------------------------------------------------------------------------------- episodes

    async def play(self) -> None:
        """Have nodes play the episodes of the round, and note how it ended."""
        answers = await self._collect()
        longest = max(self.lengths.values())
        self.end = self.end._replace(length=longest)
        # A node that played beyond the end of the round made its requests in episodes that do not count.
        counted = [played for name, played in answers.items() if played.played == self.lengths[name]]
        requests = [request for played in counted for request in played.requests]
        if self.plan.rules.secure_sums and any(played.asked for played in answers.values()):
            self.end = self.end._replace(requests=1)
        elif requests:
            one = min(requests, key=lambda request: request.agent)
            self.end = RoundEnd(
                length=longest,
                requests=len(requests),
                agent=one.agent,
                step=one.step if one.step < self.plan.setting.horizon else -1,
                state=one.state,
                action=one.action,
                rule=one.rule,
            )
            self.requesters = frozenset(request.agent for request in requests)
        if self.number and not self.end.requests:
            await self._settle()

    def start(self, member: Member, chunk: int) -> messages.ToMany:
        """The message that begins the round for a node; the same bytes for all nodes with the same history."""
        first = self._first_episode(member)
        counts = member.used[COUNTS]
        rewards = member.used[REWARDS]
        start = messages.Start(
            round=self.number,
            base=member.base,
            first=first,
            most=self.left_after(first),
            chunk=chunk,
            arrays=(),
            confirmed=counts.round if self.plan.algorithm.server_counts else member.base,
            roster=bytes.fromhex(counts.roster),
            missed=member.missed,
            missed_roster=bytes.fromhex(member.missed_roster),
            playing=self.playing,
            judged=self.grid.judged,
            credited=rewards.round,
            credited_roster=bytes.fromhex(rewards.roster),
        )
        if start not in self._starts:
            self._starts[start] = messages.ToMany(replace(start, arrays=self.broadcast))
        return self._starts[start]

    def _take_ready(self, member: Member, played: Played) -> None:
        """Note what a node has signed for this round; raise unless it is right."""
        ready = played.ready
        if not self.plan.rules.secure_sums:
            if ready is not None:
                raise ViolationError("it is ready for a sum that nobody has asked for")
            return
        if ready is None or self._authority is None:
            raise ViolationError("it has not said that it is ready for a sum")
        for part, said in ((COUNTS, ready.episodes), (REWARDS, ready.uncredited)):
            expected = self._new_episodes(member, part) + self._signed_episodes(played)
            if said != expected:
                raise ViolationError(f"it says that {said} episodes are new, expected {expected}")
        own = member.name, member.first_agent, member.agents, member.certificate
        entry = messages.RosterEntry(*own, replace(ready, denial=b""))
        try:
            self._authority.check(entry, self.plan.run, self.number)
            if member.missed and ready.denial:
                what = member.missed, bytes.fromhex(member.missed_roster)
                denial = messages.Denial(member.name, *what, ready.denial, member.certificate)
                self._authority.check(denial, self.plan.run, self.number)
                self._registry.denials.append(denial)
                member.missed = 0
                member.missed_roster = ""
        except InputError as error:
            raise ViolationError(str(error).rstrip(".")) from error
        member.ready = entry

    def _new_episodes(self, member: Member, part: str) -> int:
        """Episodes before this round that no used sum has; before the first one, those of the logs."""
        if part == COUNTS and self.number == 0:
            return member.logged_episodes
        return member.episodes + member.before - member.used[part].episodes

    # ------------------------------------------------------------------------------------------------ synchronisation

    async def _settle(self) -> None:
        """End a round without a request: all nodes have counted it once they have said what it paid.

        Nobody needs their counts, which stay with them until somebody does.
        """
        if self.plan.rules.secure_sums:
            await self._sum_of_nodes(REWARDS)
            return
        query = Query(self.number, messages.REWARDS_ALONE, (), rewards=True)
        self._take_rewards(await self._registry.ask_all(self._to_answer(query, None)))

    async def synchronise(self, server: Any, *, planning: bool = False) -> None:
        """Hold all exchanges with a server, or with a planner."""
        plan = self.plan
        if plan.rules.secure_sums:
            await self._synchronise_sums(server, planning=planning)
            return
        for exchange in range(plan.exchanges):
            query = tuple(np.array(array) for array in plan.algorithm.query(server, exchange))
            reports = await self._exchange(query, exchange, planning=planning)
            if not planning:
                self.used[COUNTS] |= dict.fromkeys(reports, "")
                for name, report in reports.items():
                    self._reports[name][exchange] = report
            together = assembled(list(reports.values()))
            if plan.algorithm.server_counts:
                plan.algorithm.add_counts(server, plan.read_counts(added_up(together)))
            else:
                plan.algorithm.aggregate(server, together, exchange)

    async def _exchange(self, query: Message, exchange: int, *, planning: bool) -> dict[str, Message]:
        """The reports that can be true; a node whose report cannot be is excluded, or stops the run."""
        registry = self._registry
        expected = Expected(registry.report_schema, self.broadcast[0], query, exchange, self.requesters)
        rewards = exchange == 0 and not planning
        sent = Query(self.number, exchange + (self.plan.exchanges if planning else 0), query, rewards)
        reports = await registry.ask_all(self._to_answer(sent, expected))
        while True:
            checked = {name: report[:-1] if rewards else report for name, report in reports.items()}
            try:
                expected.check_reports(checked, registry.members, self.lengths)
                break
            except ViolationError as violation:
                await registry.violated(registry.members[violation.node], str(violation))
                del reports[violation.node]
        if rewards:
            self._take_rewards(reports)
        return checked

    def _take_rewards(self, reports: Mapping[str, Message]) -> None:
        """Take what nodes say of rewards, the last array of each report."""
        self.paid = self.grid.read(np.sum([report[-1] for report in reports.values()], axis=0))

    # --------------------------------------------------------------------------------------------------- secure sums

    async def _synchronise_sums(self, server: Any, *, planning: bool) -> None:
        engine = self._registry.engine
        total = None
        if not planning or self.paid is not None:  # counts and rewards are summed over the same nodes
            total = await self._sum_of_nodes(*(PARTS if self.number > 0 and not planning else (COUNTS,)))
        if total:
            new = self.plan.read_counts(total)
            engine.held = new if engine.held is None else engine.held.merge(new)
        if (planning or total is not None) and engine.held is not None:
            self.plan.algorithm.add_counts(server, engine.held)
            engine.held = engine.held if planning else None

    async def _sum_of_nodes(self, *parts: str) -> Message | None:
        """What is new in these parts, added up over a roster; None if too few have anything new, or one vanishes."""
        registry = self._registry
        before = None
        expected = Expected(registry.report_schema, self.broadcast[0]) if COUNTS in parts else None
        while (roster := await self._roster(parts)) is not None:
            if before not in (None, new_episodes(roster)):
                break
            before = new_episodes(roster)
            self._declined = set()
            reports = await registry.ask_all(self._to_answer(roster, expected))
            if len(reports) == len(roster.entries):
                registry.denials = []
                self.used |= dict.fromkeys(roster.parts, dict.fromkeys(reports, fingerprint(roster).hex()))
                return self._checked_sum(roster, reports, expected)
            silent = {entry.name for entry in roster.entries} - set(reports) - self._declined
            for name in silent:
                member = registry.members[name]
                member.missed = self.number
                member.missed_roster = fingerprint(roster).hex()
            if self._declined or not silent <= {member.name for member in registry.present}:
                break
            what = "a node has come back; the same nodes are asked again"
            log.warning("round %d: %s", self.number, what, extra=self.about)
        if before is not None:
            what = "a synchronisation failed: not all nodes of its roster have answered"
            log.warning("round %d: %s", self.number, what, extra=self.about)
            registry.record("", what, "what was not used goes with the next report")
        elif self.number != self.plan.setting.episodes:
            log.info("round %d: too few nodes have new episodes for a sum", self.number, extra=self.about)
        return None

    async def _roster(self, parts: Sequence[str]) -> Roster | None:
        """Those that are there and ready; None if fewer than it takes have new episodes."""
        plan = self.plan
        registry = self._registry
        if (active := len(registry.active)) < plan.rules.least_members:
            raise FederationStoppedError(
                f"secure sums need {plan.rules.least_members} nodes, and {active} take part; finished rounds are "
                "kept."
            )
        for part in parts:
            new = [self._new_episodes(one, part) + self.lengths.get(one.name, 0) for one in registry.present]
            if sum(episodes >= plan.rules.least_episodes for episodes in new) < plan.rules.least_members:
                return None
        await registry.ask_all(self._to_play(0, again=True))
        entries = [one.ready for one in registry.present if one.ready is not None]
        asked = {part: part in parts for part in PARTS}
        return make_roster(self.number, self._roster_length, entries, registry.denials, **asked)

    def _checked_sum(self, roster: Roster, reports: Mapping[str, Message], expected: Expected | None) -> Message:
        """What the reports add up to, checked; nobody knows whose numbers are in it."""
        total = summed(reports.values())
        by_node = new_episodes(roster)
        new = {part: sum(one.agents * by_node[part][one.name] for one in roster.entries) for part in roster.parts}
        counts = total[:-1] if roster.rewards else total
        played = new.get(COUNTS, 0) if roster.round else 0
        logs = sum(self._registry.members[entry.name].new_logs for entry in roster.entries)
        try:
            if expected is not None:
                expected.check_sum(counts, sum(entry.agents for entry in roster.entries), played, logs)
            if roster.rewards:
                self.grid.check(total[-1], new[REWARDS], some=True)
        except ViolationError as violation:
            raise FederationStoppedError(
                f"the nodes' reports add up to what cannot be true: {violation}. Some node has lied or failed; "
                "secure sums hide which. Finished rounds are kept."
            ) from violation
        if roster.rewards:
            self.paid = self.grid.read(total[-1])
        return counts

    # -------------------------------------------------------------------------------------------------- what is asked

    def _to_play(self, until: int, *, again: bool = False) -> Question[Played]:
        """Play until so many episodes of the round have been played or an agent requests a synchronisation.

        With ``again`` nodes that have come back since they played say once more that they are ready to be summed.
        """

        async def ask(member: Member, stream: NodeStream) -> Played | None:
            begun = stream.prepared == self.number
            if begun and again:
                return None
            play = messages.Continue(self.number, until) if begun else self.start(member, until)
            answer: Played = await stream.ask([play])
            self._check_played(answer, member, until)
            member.before = answer.before
            self._take_ready(member, answer)
            return answer

        return ask

    def _to_answer(self, question: Query | Roster, expected: Expected | None) -> Question[Message]:
        """One exchange, after the end of the round; a node that has answered has counted the round.

        If the question asks for rewards, they are the last array of each report; ``expected`` is None where it asks
        for nothing else. A node may decline to answer a roster.
        """
        entries = {entry.name: entry for entry in question.entries} if isinstance(question, Roster) else None
        to_all = messages.ToMany(question)

        async def ask(member: Member, stream: NodeStream) -> Message | None:
            begun = stream.prepared == self.number
            if entries is not None and (not begun or entries.get(member.name) != member.ready):
                return None  # it has come back since, and must say again that it is ready
            start = [] if begun else [self.start(member, 0)]
            stop = [] if begun and stream.stopped else [messages.Stop(self.number, self.lengths[member.name])]
            answer: Report | messages.Decline = await stream.ask([*start, *stop, to_all])
            if isinstance(answer, messages.Decline):
                if entries is None:
                    raise ViolationError(f"it declines to report: {answer.reason}")
                log.warning("%s: round %d: %s", member.name, answer.round, answer.reason, extra=member.about)
                self._declined.add(member.name)
                return None
            if not answer.arrays:
                raise ViolationError("its report is empty")
            report = answer.arrays[:-1] if question.rewards else answer.arrays
            if expected is not None:
                expected.check_forms(report, member)
            elif report:
                raise ViolationError(f"it sent {len(report)} arrays where rewards alone were asked for")
            if question.rewards and entries is not None:
                self.grid.check_form(answer.arrays[-1])
            elif question.rewards:
                episodes = member.before + self.lengths[member.name]
                self.grid.check(answer.arrays[-1], member.agents * episodes)
            return answer.arrays

        return ask

    # -------------------------------------------------------------------------------------------------------- the end

    @property
    def played(self) -> PlayedRound:
        lengths = np.zeros(self.plan.setting.agents, dtype=np.int64)
        for member in self._registry.everyone:
            lengths[member.span] = member.before + self.lengths.get(member.name, 0)
        return PlayedRound(self.end, lengths=lengths, paid=self.paid)

    def close(self) -> None:
        """It is over: put to the members' accounts what they have played in it, and what of theirs was used."""
        for member in self._registry.present:
            member.episodes += member.before + self.lengths[member.name]
            member.base = self.number
            member.before = 0
            if not self.plan.algorithm.server_counts:
                member.reports.update(self._reports[member.name])
            for part, used in self.used.items():
                if member.name in used:
                    member.used[part] = Used(self.number, used[member.name], member.episodes)


# ------------------------------------------------------------------------------------------------ the two collections


class LockstepRound(NetworkRound):
    """A round in which all agents stop after the same episode.

    Nodes play ahead, and take back what they played after the earliest request.

    Attributes:
        first: number of episodes that every agent played before this round.
    """

    def __init__(self, registry: NodeRegistry, number: int, asked: Play, authority: Authority | None = None) -> None:
        super().__init__(registry, number, asked, authority)
        self.first = registry.engine.played

    async def _collect(self) -> dict[str, Played]:
        registry = self._registry
        ahead = PlayAhead(
            agents=max(member.agents for member in registry.everyone),
            horizon=self.plan.setting.horizon,
            last_length=registry.engine.last_length,
            most=self.left_after(self.first),
        )
        answers: dict[str, Played] = {}
        for until in ahead:
            answers = await registry.ask_all(self._to_play(until))
            ahead.take(answers.values())
        self.lengths = dict.fromkeys(answers, ahead.length)
        return answers

    def _first_episode(self, member: Member) -> int:
        return self.first

    def _check_played(self, played: Played, member: Member, until: int) -> None:
        if played.before:
            raise _unknown_episodes(played)
        check_played(played, member, self.broadcast[0], self.plan, until)
        check_chunk(played, member, until)

    def _signed_episodes(self, played: Played) -> int:
        """None: the length of the round is not yet known, and the roster has it."""
        return 0

    @property
    def _roster_length(self) -> int:
        return self.end.length

    def for_history(self) -> SavedState:
        """The round as :func:`played_again` reads it: its broadcast, and how long it was."""
        about: dict[str, Any] = {
            "first": self.first,
            "length": self.end.length,
            "playing": self.playing,
            "judged": list(self.grid.judged),
            "used_before": {part: [used.round, used.roster] for part, used in self.used_before.items()},
        }
        arrays = {str(place): array for place, array in enumerate(self.broadcast)}
        return SavedState(self.number, about, arrays, {})


class LiveRound(NetworkRound):
    """A round in which nodes play on until one of them reports a request; then the others stop where they are.

    The episodes of real environments cannot be taken back or played again, so every node has a length of its own.
    """

    async def _collect(self) -> dict[str, Played]:
        waiting = UntilHalted(messages.Continue(self.number, 0), self.plan.rules.deadline)
        answers = await self._registry.ask_all(self._to_play(self._most), waiting)
        self.lengths = {name: played.played for name, played in answers.items()}
        return answers

    def _first_episode(self, member: Member) -> int:
        return member.episodes

    def _check_played(self, played: Played, member: Member, until: int) -> None:
        """Raise unless a node can have played that; it may have stopped anywhere, but only once in a round."""
        known = self.lengths.get(member.name, played.played)
        if played.played != known:
            raise ViolationError(f"it played {played.played} episodes, after {known}")
        left = self.plan.setting.episodes - member.episodes
        if played.before and (played.before > left or not self.plan.algorithm.server_counts):
            raise _unknown_episodes(played)
        most = self.left_after(member.episodes + played.before)
        check_played(played, member, self.broadcast[0], self.plan, most)

    def _signed_episodes(self, played: Played) -> int:
        return played.played

    @property
    def _roster_length(self) -> int:
        """Nothing: every node has signed its own length."""
        return 0

    def for_history(self) -> None:
        return None


ROUND_TYPES: Mapping[str, type[NetworkRound]] = {"lockstep": LockstepRound, "live": LiveRound}
"""The rounds of a run, by the name of its collection."""


def _unknown_episodes(played: Played) -> ViolationError:
    return ViolationError(f"it says that it has counted {played.before} episodes that nobody knows of")


def played_again(past: SavedState, plan: RunPlan) -> list[messages.Down]:
    """The messages by which a node that has lost its state plays a round of the history again."""
    number = past.round
    about = past.about
    counted, roster = about["used_before"][COUNTS]
    credited, credited_roster = about["used_before"][REWARDS]
    start = messages.Start(
        round=number,
        base=number - 1,
        first=about["first"],
        most=plan.setting.episodes - about["first"],
        chunk=0,
        arrays=tuple(np.array(array) for array in past.arrays.values()),
        confirmed=counted if plan.algorithm.server_counts else number - 1,
        roster=bytes.fromhex(roster),
        playing=about["playing"],
        judged=tuple(about["judged"]),
        credited=credited,
        credited_roster=bytes.fromhex(credited_roster),
    )
    length = about["length"]
    return [start, messages.Stop(number, length), messages.Continue(number, length)]
