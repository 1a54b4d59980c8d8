"""Rounds of several parties that stop after the same episode, although none sees the requests of the others.

Each party plays ahead in chunks of episodes, until one of its own agents makes a request. Episodes after the earliest
request are taken back. Chunks grow while there is no request, so few episodes are discarded and long rounds take few
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from fed_ucbvi.algorithms.base import Message

FIRST_STEPS = 1 << 15
"""Environment steps a party may always play before it first answers; they take about a millisecond."""
MAX_STEPS = 1 << 25
"""The most environment steps a party plays before it answers; they take about a second."""


class StartRound(NamedTuple):
    """Begin a round, whose first episode has number ``first``, and go on as :class:`PlayUntil` says."""

    broadcast: Message
    first: int
    until: int


class PlayUntil(NamedTuple):
    """Go on until ``until`` episodes of the round are played; the answer is a :class:`Reached`."""

    until: int


class StopRound(NamedTuple):
    """The round has ``length`` episodes, to be counted; answer: a :class:`~fed_ucbvi.engine.rounds.PlayedRound`."""

    length: int


class AskReport(NamedTuple):
    """One exchange of a synchronisation; the answer is the report."""

    query: Message
    exchange: int


PartyMessage = StartRound | PlayUntil | StopRound | AskReport
AskAll = Callable[[PartyMessage], Sequence[Any]]


class Reached(NamedTuple):
    """Episodes of the round that a party has played, and whether an agent made a request after the last of them."""

    played: int
    asked: bool


class Answer(Protocol):
    """Progress of a party: a :class:`Reached`, or a message of a node on the network."""

    @property
    def played(self) -> int: ...

    @property
    def asked(self) -> bool: ...


class PlayAhead:
    """A round in which all parties stop after the same episode, although none sees the requests of the others.

    Iteration gives the number of episodes of the round until which all parties are to play next, and ends once the
    round does. After each step :meth:`take` takes the answers of the parties. This class does no input or output, so
    the parties may be called, or asked over a network and awaited.

    Args:
        agents: number of agents of the largest party.
        horizon: number of steps of an episode.
        last_length: number of episodes of the last round; 0 before the first.
        most: largest number of episodes of the round.

    Attributes:
        length: number of episodes of the round; known at the end of the iteration.
        requested: True if an agent has requested a synchronisation, which ends the round.
    """

    def __init__(self, agents: int, horizon: int, last_length: int, most: int) -> None:
        self._steps = agents * horizon
        self._largest_step = max(1, MAX_STEPS // horizon)
        self._last_length = last_length
        self._most = most
        self.length = 0
        self.requested = False

    def __iter__(self) -> Iterator[int]:
        for until in self._chunks():
            self.length = until
            yield until
            if self.requested:
                return

    def take(self, answers: Iterable[Answer]) -> None:
        """Take the answers of all parties; the round ends after the earliest request."""
        requests = [answer.played for answer in answers if answer.asked]
        if requests:
            self.requested = True
            self.length = min(requests)

    def _chunks(self) -> Iterator[int]:
        """Number of episodes of the round after which parties answer, up to the largest number.

        The first is one that costs little, or twice the last round. Each following one is at most three times the one
        before.
        """
        cheap = FIRST_STEPS // self._steps
        as_last_time = min(2 * self._last_length, MAX_STEPS // self._steps)
        until = min(self._most, max(1, cheap, as_last_time))
        yield until
        while until < self._most:
            until = min(until + min(2 * until, self._largest_step), self._most)
            yield until


def play_in_step(ask_all: AskAll, broadcast: Message, first: int, ahead: PlayAhead) -> int:
    """Have all parties play a round in which they stop after the same episode; return its length.

    The first episode of the round has number ``first``. The parties have not yet stopped.
    """
    message: PartyMessage
    begun = False
    for until in ahead:
        message = PlayUntil(until) if begun else StartRound(broadcast, first, until)
        ahead.take(ask_all(message))
        begun = True
    return ahead.length
