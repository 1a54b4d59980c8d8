"""One round as the server holds it: how its episodes are collected, and what nodes are sent for it.

:class:`NetworkRound` has what all rounds have in common. How episodes are collected is the difference between
:class:`LockstepRound` (all agents stop after the same episode) and :class:`LiveRound` (each node stops where the
message to stop reaches it); in :class:`LogsRound` nothing is played. ``ROUND_TYPES`` names the first two. What nodes
report is up to :mod:`fed_ucbvi.network.reporting` and :mod:`fed_ucbvi.network.summing`.

Every question can be repeated on a new stream. A stream that has not carried the round's start gets it first and,
once the round is stopped, its stop. So a node that was killed catches up by playing the same episodes again.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.play_ahead import PlayAhead
from fed_ucbvi.engine.rounds import Paid, Play, PlayedRound
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.network import messages
from fed_ucbvi.network.checks import check_chunk, check_played
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import Member, NodeStream
from fed_ucbvi.network.messages import Played
from fed_ucbvi.network.registry import NodeRegistry, Question, UntilHalted

log = logging.getLogger("fed_ucbvi.federation")


class RoundReports(ABC):
    """The reports of one round."""

    def __init__(self, now: NetworkRound) -> None:
        self.round = now
        self.plan = now.plan
        self.registry = now.registry
        self.confirmed_before = max((member.reported_round for member in self.registry.everyone), default=0)
        """The last round before this one in which reports of all nodes were used."""

    @abstractmethod
    async def after_play(self) -> None:
        """Take what is reported after every round."""

    @abstractmethod
    async def synchronise(self, server: Any, *, planning: bool) -> None:
        """Add what the agents have counted to a server or, with ``planning``, to a planner."""

    @abstractmethod
    def confirmed(self, member: Member) -> int:
        """The last round whose report of this node the server has used, as the start of a round says it."""

    @abstractmethod
    def credit(self, member: Member) -> None:
        """Note what has been reported, at the end of the round."""


MakeReports = Callable[["NetworkRound"], RoundReports]


class NetworkRound(ABC):
    """A round in progress.

    Args:
        registry: the nodes.
        number: of the round; 0 is for logs.
        asked: what the agents are to play.
        reports: makes what collects the reports.

    Attributes:
        lengths: number of episodes by node, once they have been played.
        end: how the round ended, for the record; its length is that of the node that played most.
        requesters: the agents that requested a synchronisation, where the server is told.
        paid: what the round paid, as far as nodes have reported it, and where its episodes began.
        reported: the nodes whose counts of this round have been used.
    """

    def __init__(self, registry: NodeRegistry, number: int, asked: Play, reports: MakeReports) -> None:
        self.registry = registry
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
        self.reported: frozenset[str] = frozenset()
        self._reports = reports(self)

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
    def for_history(self) -> SavedState | None:
        """The round as the server's history keeps it; None if nodes cannot play it again."""

    def signed_episodes(self, member: Member) -> int:
        """Number of episodes of each agent of a node that are added up under secure sums."""
        return self.lengths[member.name]

    # ------------------------------------------------------------------------------------------------------- episodes

    async def play(self) -> None:
        """Have nodes play the episodes of the round, and take what is reported after every round."""
        answers = await self._collect()
        self.end = self.end._replace(length=max(self.lengths.values()))
        # A node that played beyond the end of the round made its requests in episodes that do not count.
        counted = [played for name, played in answers.items() if played.played == self.lengths[name]]
        requests = [request for played in counted for request in played.requests]
        if requests:
            self._note_requests(requests)
        elif any(played.somebody for played in answers.values()):
            self.end = self.end._replace(requests=1)
        await self._reports.after_play()

    def _note_requests(self, requests: list[messages.Request]) -> None:
        """Note how the round ended, by the request of the first agent."""
        one = min(requests, key=lambda request: request.agent)
        self.end = RoundEnd(
            length=self.end.length,
            requests=len(requests),
            agent=one.agent,
            step=one.step if one.step < self.plan.setting.horizon else -1,
            state=one.state,
            action=one.action,
            rule=one.rule,
        )
        self.requesters = frozenset(request.agent for request in requests)

    async def synchronise(self, server: Any, *, planning: bool = False) -> None:
        """Add what the agents have counted to a server or, with ``planning``, to a planner."""
        await self._reports.synchronise(server, planning=planning)

    def start(self, member: Member, chunk: int) -> messages.ToMany:
        """The message that begins the round for a node; the same bytes for all nodes with the same history."""
        first = self._first_episode(member)
        start = messages.Start(
            round=self.number,
            base=member.base,
            first=first,
            most=self.left_after(first),
            chunk=chunk,
            arrays=(),
            confirmed=self._reports.confirmed(member),
            playing=self.playing,
            judged=self.grid.judged,
        )
        if start not in self._starts:
            self._starts[start] = messages.ToMany(replace(start, arrays=self.broadcast))
        return self._starts[start]

    def _to_play(self, until: int) -> Question[Played]:
        """Play until so many episodes of the round have been played or an agent requests a synchronisation."""

        async def ask(member: Member, stream: NodeStream) -> Played:
            begun = stream.prepared == self.number
            play = messages.Continue(self.number, until) if begun else self.start(member, until)
            answer: Played = await stream.ask([play])
            self._check_played(answer, member, until)
            member.before = answer.before
            return answer

        return ask

    def prepare(self, member: Member, stream: NodeStream) -> list[messages.Down | messages.ToMany]:
        """Messages that a stream has to carry before a question about the round that has ended."""
        begun = stream.prepared == self.number
        script: list[messages.Down | messages.ToMany] = []
        if not begun:
            script.append(self.start(member, 0))
        if not begun or not stream.stopped:
            script.append(messages.Stop(self.number, self.lengths[member.name]))
        return script

    # -------------------------------------------------------------------------------------------------------- the end

    @property
    def played(self) -> PlayedRound:
        lengths = np.zeros(self.plan.setting.agents, dtype=np.int64)
        for member in self.registry.everyone:
            lengths[member.span] = member.before + self.lengths.get(member.name, 0)
        return PlayedRound(self.end, lengths=lengths, paid=self.paid)

    def close(self) -> None:
        """Credit members with the episodes of the round and with their reports."""
        for member in self.registry.present:
            member.episodes += member.before + self.lengths[member.name]
            member.base = self.number
            member.before = 0
            self._reports.credit(member)


# ------------------------------------------------------------------------------------------------ the two collections


class LockstepRound(NetworkRound):
    """A round in which all agents stop after the same episode.

    Nodes play ahead, and take back what they played after the earliest request.

    Attributes:
        first: number of episodes that every agent played before this round.
    """

    def __init__(self, registry: NodeRegistry, number: int, asked: Play, reports: MakeReports) -> None:
        super().__init__(registry, number, asked, reports)
        self.first = registry.engine.played

    async def _collect(self) -> dict[str, Played]:
        registry = self.registry
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

    def for_history(self) -> SavedState:
        """The round as :func:`played_again` reads it: its broadcast, and how long it was."""
        about: dict[str, Any] = {
            "first": self.first,
            "length": self.end.length,
            "playing": self.playing,
            "judged": list(self.grid.judged),
            "confirmed": self._reports.confirmed_before,
        }
        arrays = {str(place): array for place, array in enumerate(self.broadcast)}
        return SavedState(self.number, about, arrays, {})


class LiveRound(NetworkRound):
    """A round in which nodes play on until one of them reports a request; then the others stop where they are.

    The episodes of real environments cannot be taken back or played again, so every node has a length of its own.
    """

    async def _collect(self) -> dict[str, Played]:
        waiting = UntilHalted(messages.Continue(self.number, 0), self.plan.rules.deadline)
        answers = await self.registry.ask_all(self._to_play(self._most), waiting)
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
        if played.before and (played.before > left or not self.plan.reports_counts):
            raise _unknown_episodes(played)
        most = self.left_after(member.episodes + played.before)
        check_played(played, member, self.broadcast[0], self.plan, most)

    def for_history(self) -> None:
        return None


class LogsRound(NetworkRound):
    """Round 0, in which nothing is played, and nodes report their logs."""

    async def _collect(self) -> dict[str, Played]:
        answers = await self.registry.ask_all(self._to_play(0))
        self.lengths = dict.fromkeys(answers, 0)
        return answers

    def _first_episode(self, member: Member) -> int:
        return 0

    def _check_played(self, played: Played, member: Member, until: int) -> None:
        if played.before:
            raise _unknown_episodes(played)
        check_played(played, member, self.broadcast[0], self.plan, 0)

    def for_history(self) -> None:
        return None

    def signed_episodes(self, member: Member) -> int:
        """Number of episodes of the logs."""
        return member.logged_episodes


ROUND_TYPES: Mapping[str, type[NetworkRound]] = {"lockstep": LockstepRound, "live": LiveRound}
"""The rounds of a run, by the name of its collection."""


def _unknown_episodes(played: Played) -> ViolationError:
    return ViolationError(f"it says that it has counted {played.before} episodes that nobody knows of")


def played_again(past: SavedState, episodes: int) -> list[messages.Down]:
    """The messages by which a node that has lost its state plays a round of the history again.

    The run has so many ``episodes``.
    """
    number = past.round
    about = past.about
    length = about["length"]
    start = messages.Start(
        round=number,
        base=number - 1,
        first=about["first"],
        most=episodes - about["first"],
        chunk=0,
        arrays=tuple(np.array(array) for array in past.arrays.values()),
        confirmed=about["confirmed"],
        playing=about["playing"],
        judged=tuple(about["judged"]),
    )
    return [start, messages.Stop(number, length), messages.Continue(number, length)]
