"""The rounds that a fleet has played: enough to make it again, as it was, from nothing.

Episodes are functions of (seed, agent, episode number) and of the policy, so what a fleet knows follows from the
broadcasts and the lengths of its rounds. These are the same for all fleets and do not grow with the number of agents;
of a broadcast only what has changed since the last one is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Message
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.saved_state import differs


class Changes(NamedTuple):
    """What has changed in an array: at which places, in row-major order, to what."""

    places: CountArray
    values: Array


class PastRound(NamedTuple):
    """A round of ``length`` episodes from number ``first`` on, and the changes in its broadcast, array by array."""

    first: int
    length: int
    changes: tuple[Changes, ...]


class History:
    """All rounds so far."""

    def __init__(self) -> None:
        self._rounds: list[PastRound] = []
        self._last: Message = ()

    def add(self, broadcast: Message, first: int, length: int) -> None:
        """Add a round that all fleets have counted."""
        last = self._last or tuple(np.zeros_like(array) for array in broadcast)
        changes = []
        for array, before in zip(broadcast, last, strict=True):
            places = np.flatnonzero(differs(array, before))
            changes.append(Changes(places, array.reshape(-1)[places]))
        self._rounds.append(PastRound(first, length, tuple(changes)))
        self._last = tuple(np.array(array) for array in broadcast)

    def rounds(self) -> Iterator[tuple[Message, int, int]]:
        """``(broadcast, first, length)`` of every round, in order; the arrays are the same ones every time."""
        broadcast = tuple(np.zeros_like(array) for array in self._last)
        for past in self._rounds:
            for array, changes in zip(broadcast, past.changes, strict=True):
                array.reshape(-1)[changes.places] = changes.values
            yield broadcast, past.first, past.length
