"""One round as the server sees it: what each node is told, and what its answers must be. Nothing here sends or waits.

Every question can be repeated on a new stream. A stream that has not carried the round's start gets it first and,
once the round is stopped, its stop. So a node that was killed catches up by playing the same episodes again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.network.checks import Expected, check_forms, check_played
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import Member, NodeStream
from fed_ucbvi.network.messages import (
    COUNTS,
    REWARDS,
    Continue,
    Decline,
    Denial,
    Down,
    Played,
    Query,
    Ready,
    Report,
    Request,
    Roster,
    RosterEntry,
    Start,
    Stop,
    ToMany,
)
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.run_plan import LIVE, RunPlan
from fed_ucbvi.results.round_record import EXPLORING

log = logging.getLogger("fed_ucbvi.federation")

UNNAMED_AGENT = frozenset({-1})
"""The request as the server sees it under secure sums: somebody made one."""


@dataclass(frozen=True)
class Collected:
    """The outcome of a round's episodes.

    Attributes:
        end: for the record; ``length`` is that of the node that played most.
        request: the request on record, if any agent made one.
        lengths: episodes by node.
        requesters: the agents that requested a synchronisation; under secure sums :data:`UNNAMED_AGENT`, if any did.
    """

    end: RoundEnd
    request: Request | None
    lengths: Mapping[str, int]
    requesters: frozenset[int]


class NetworkRound:
    """A round in progress.

    Args:
        plan: the run.
        number: of the round, from 1.
        broadcast: policy, N and so on.
        first: episodes before it, where all agents stop together.
        authority: of what nodes sign, under secure sums.
    """

    def __init__(
        self, plan: RunPlan, number: int, broadcast: Message, first: int, authority: Authority | None = None
    ) -> None:
        self.plan, self.number, self.broadcast, self._first = plan, number, broadcast, first
        self._authority = authority
        self.denials: list[Denial] = []
        self._most = plan.setting.episodes
        self.live, self.grid = plan.collection == LIVE, RewardGrid.of(plan.setting)
        self.lengths: Mapping[str, int] = {}
        """Episodes by node, once the round has been collected."""
        self.playing = EXPLORING
        self._starts: dict[tuple[Any, ...], ToMany] = {}

    @property
    def about(self) -> dict[str, int]:
        return {"round": self.number}

    def limit(self, most: int, playing: int = EXPLORING, judged: tuple[int, ...] = ()) -> None:
        """It may have so many episodes of what is ``playing``; these are the policies whose returns nodes tell."""
        self._most, self.playing, self.grid = most, playing, self.grid._replace(judged=judged)

    @property
    def left(self) -> int:
        """How many episodes can be played in it, where all agents stop together."""
        return self.left_after(self._first)

    def left_after(self, first: int) -> int:
        """How many episodes an agent may play in it that has played so many."""
        return min(self._most, self.plan.setting.episodes - first)

    def start(self, member: Member, chunk: int) -> ToMany:
        """What begins the round for a node; the same bytes for all nodes that are as far."""
        first = member.episodes if self.live else self._first
        confirmed = member.confirmed if self.plan.algorithm.server_counts else member.base
        where = member.base, first, self.left_after(first), chunk
        what = confirmed, bytes.fromhex(member.roster), member.missed, bytes.fromhex(member.missed_roster)
        told = self.playing, self.grid.judged, member.credited, bytes.fromhex(member.credited_roster)
        key = where, what, told
        if key not in self._starts:
            self._starts[key] = ToMany(Start(self.number, *where, self.broadcast, *what, *told))
        return self._starts[key]

    def take_ready(self, member: Member, played: Played) -> None:
        """Note what a node has signed for this round; raise unless it is right."""
        ready = played.ready
        if not self.plan.secure_sums:
            if ready is not None:
                raise ViolationError("it is ready for a sum that nobody has asked for")
            return
        if ready is None or self._authority is None:
            raise ViolationError("it has not said that it is ready for a sum")
        for part, said in ((COUNTS, ready.episodes), (REWARDS, ready.uncredited)):
            expected = self.new_episodes(member)[part] + (played.played if self.live else 0)
            if said != expected:
                raise ViolationError(f"it says that {said} episodes are new, expected {expected}")
        try:
            self._authority.check(self.entry(member, ready), self.plan.run, self.number)
            if member.missed and ready.denial:
                what = member.missed, bytes.fromhex(member.missed_roster)
                denial = Denial(member.name, *what, ready.denial, member.certificate)
                self._authority.check_denial(denial, self.plan.run)
                self.denials.append(denial)
                member.missed, member.missed_roster = 0, ""
        except InputError as error:
            raise ViolationError(str(error).rstrip(".")) from error
        member.ready = ready

    def new_episodes(self, member: Member) -> dict[str, int]:
        """Episodes before this round that no used sum has, by part; before the first one, those of the logs."""
        played = member.episodes + member.before
        counts = played - member.reported if self.number else member.logged_episodes
        return {COUNTS: counts, REWARDS: played - member.credited_episodes}

    def entry(self, member: Member, ready: Ready) -> RosterEntry:
        bare = replace(ready, denial=b"")
        return RosterEntry(member.name, member.first_agent, member.agents, member.certificate, bare)

    def collected(self, answers: Mapping[str, Played]) -> Collected:
        """How the round has ended: after the earliest request, or where each live node has stopped."""
        asked = [played for played in answers.values() if played.asked]
        if not asked or self.live:
            lengths = {name: played.played for name, played in answers.items()}
        else:
            lengths = dict.fromkeys(answers, min(played.played for played in asked))
        self.lengths = lengths
        requests = [
            request
            for name, played in answers.items()
            if played.requests and played.played == lengths[name]
            for request in played.requests
        ]
        longest = max(lengths.values())
        if self.plan.secure_sums and asked:
            return Collected(RoundEnd(longest, 1, -1, -1, -1, -1), None, lengths, UNNAMED_AGENT)
        if not requests:
            return Collected(RoundEnd(longest, 0, -1, -1, -1, -1), None, lengths, frozenset())
        first = min(requests, key=lambda request: request.agent)
        step = first.step if first.step < self.plan.setting.horizon else -1
        end = RoundEnd(longest, len(requests), first.agent, step, first.state, first.action)
        return Collected(end, first, lengths, frozenset(request.agent for request in requests))


class EpisodesCall:
    """Play until ``chunk`` episodes of the round have been played or an agent requests a synchronisation.

    In a live collection nodes play on until one of them reports a request; then the others stop where they are.
    """

    def __init__(self, now: NetworkRound, chunk: int) -> None:
        self._now, self._chunk = now, chunk
        self.halt: Continue | None = Continue(now.number, 0) if now.live else None

    def script(self, member: Member, stream: NodeStream) -> list[Down | ToMany]:
        if stream.prepared == self._now.number:
            return [Continue(self._now.number, self._chunk)]
        return [self._now.start(member, self._chunk)]

    def read(self, member: Member, answer: Played) -> Played:
        now, plan = self._now, self._now.plan
        unknown = plan.setting.episodes - member.episodes
        if answer.before and (answer.before > unknown or not (now.live and plan.algorithm.server_counts)):
            raise ViolationError(f"it says that it has counted {answer.before} episodes that nobody knows of")
        member.before = answer.before
        most = now.left_after(member.episodes + member.before) if now.live else self._chunk
        options = {"early": now.live, "secret": plan.secure_sums}
        check_played(answer, member, now.broadcast[0], plan.algorithm, most, **options)
        now.take_ready(member, answer)
        return answer


class ReadyCall:
    """Under secure sums: have nodes that have come back since they played say once more that they are ready."""

    halt: Continue | None = None

    def __init__(self, now: NetworkRound) -> None:
        self._now = now

    def script(self, member: Member, stream: NodeStream) -> list[Down | ToMany]:
        return [] if stream.prepared == self._now.number else [self._now.start(member, 0)]

    def read(self, member: Member, answer: Played) -> Played:
        if not self._now.live:
            check_played(answer, member, self._now.broadcast[0], self._now.plan.algorithm, 0, early=True, secret=True)
        elif answer.played != self._now.lengths[member.name]:
            raise ViolationError(f"it played {answer.played} episodes, after {self._now.lengths[member.name]}")
        self._now.take_ready(member, answer)
        return answer


class RosterCall:
    """Ask for what is new, masked between the nodes of a roster; ``expected`` is None where it needs no counts."""

    halt: Continue | None = None

    def __init__(self, now: NetworkRound, roster: Roster, expected: Expected | None) -> None:
        self._now, self._question, self._expected = now, ToMany(roster), expected
        self._rewards = roster.rewards
        self._entries = {entry.name: entry for entry in roster.entries}
        self.declined: set[str] = set()

    def script(self, member: Member, stream: NodeStream) -> list[Down | ToMany]:
        now = self._now
        signed = None if member.ready is None else now.entry(member, member.ready)
        if stream.prepared != now.number or self._entries.get(member.name) != signed:
            return []  # it has come back since, and must say again that it is ready
        return [*([] if stream.stopped else [Stop(now.number, now.lengths[member.name])]), self._question]

    def read(self, member: Member, answer: Report | Decline) -> Message | None:
        if isinstance(answer, Decline):
            log.warning("%s: round %d: %s", member.name, answer.round, answer.reason, extra={"node": member.name})
            self.declined.add(member.name)
            return None
        if not answer.arrays:
            raise ViolationError("its report is empty")
        _check_forms(answer.arrays[:-1] if self._rewards else answer.arrays, member, self._expected)
        if self._rewards:
            self._now.grid.check_form(answer.arrays[-1])
        return answer.arrays


class ExchangeCall:
    """One exchange of a round's synchronisation, in the open.

    If the query asks for rewards, they are the last array of each report; ``expected`` is None where it asks for
    nothing else. A node that has answered has counted the round.
    """

    halt: Continue | None = None

    def __init__(self, now: NetworkRound, query: Query, expected: Expected | None) -> None:
        self._now, self._query, self._expected = now, query, expected
        self._question = ToMany(query)

    def script(self, member: Member, stream: NodeStream) -> list[Down | ToMany]:
        now, script = self._now, list[Down | ToMany]()
        if stream.prepared != now.number:
            script.append(now.start(member, 0))
        if stream.prepared != now.number or not stream.stopped:
            script.append(Stop(now.number, now.lengths[member.name]))
        return [*script, self._question]

    def read(self, member: Member, answer: Report) -> Message:
        whole = report = answer.arrays
        if self._query.rewards:
            if not whole:
                raise ViolationError("it says neither what the round paid nor where its episodes began")
            report = whole[:-1]
        _check_forms(report, member, self._expected)
        if self._query.rewards:
            self._now.grid.check(whole[-1], member.agents * (member.before + self._now.lengths[member.name]))
        return whole


def _check_forms(report: Message, member: Member, expected: Expected | None) -> None:
    """Raise unless a report has its form; none is expected where rewards alone are asked for."""
    if expected is not None:
        check_forms(report, member, expected)
    elif report:
        raise ViolationError(f"it sent {len(report)} arrays where rewards alone were asked for")
