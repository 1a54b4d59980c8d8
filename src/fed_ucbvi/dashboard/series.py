"""The figures of rounds, thinned: however many rounds there are, a page draws at most so many points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.round_record import INCUMBENT, PLAYING, RoundRecord

MAX_POINTS = 1_000

OF_LAST = (
    *("round", "episodes", "seconds", "regret", "optimistic_value", "recommended_value"),
    *("bytes_up", "bytes_down", "cost", "allowed"),
)
COLUMNS = (*OF_LAST, "reward", "length", "incumbent")
"""Of a point, which stands for ``stride`` rounds (the last point possibly for fewer). :data:`OF_LAST` are those of
its last round, ``reward`` is the mean over the episodes of its rounds, ``length`` the mean over its rounds, and
``incumbent`` the mean reward of all episodes so far that played the incumbent."""

LAST = slice(0, len(OF_LAST))
SUMS = slice(len(OF_LAST), len(OF_LAST) + 6)
"""Rewards; episodes whose rewards are known; the same two of the incumbent's rounds; lengths; rounds."""


class RoundSeries:
    """Points of a run. When there are ``most``, neighbours are merged: a point then stands for twice as many rounds.

    >>> series = RoundSeries(most=4)
    >>> series.size, series.stride
    (0, 1)
    """

    def __init__(self, most: int = MAX_POINTS) -> None:
        self._most = most
        self._rows: FloatArray = np.empty((most, SUMS.stop))
        self._rounds = 0
        self.size, self.stride = 0, 1

    def extend(self, records: Sequence[RoundRecord]) -> None:
        if not records:
            return
        rows = _rows_of(records)
        numbers = self._rounds + np.arange(len(rows))
        self._rounds += len(rows)
        while (self._rounds - 1) // self.stride >= self._most:
            self._halve()
        places = numbers // self.stride
        first = int(places[0])
        if first < self.size:  # the last point is not full yet
            rows, places = np.vstack([self._rows[first], rows]), np.concatenate([[first], places])
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        self.size = int(places[-1]) + 1
        self._rows[first : self.size] = _merged(rows, starts)

    def points(self, start: int = 0) -> list[list[float | None]]:
        """The points from one on, in the order of :data:`COLUMNS`; None where a figure is unknown."""
        rows = self._rows[start : self.size]
        rewards, known, _, _, lengths, rounds = rows[:, SUMS].T
        *_, paid, played = np.cumsum(self._rows[: self.size, SUMS][:, :4], axis=0)[start:].T
        table = np.column_stack([rows[:, LAST], _ratio(rewards, known), lengths / rounds, _ratio(paid, played)])
        content = table.astype(object)
        content[np.isnan(table)] = None
        points: list[list[float | None]] = content.tolist()
        return points

    def _halve(self) -> None:
        self.stride *= 2
        if self.size:
            merged = _merged(self._rows[: self.size], np.arange(0, self.size, 2))
            self.size = len(merged)
            self._rows[: self.size] = merged


def _rows_of(records: Sequence[RoundRecord]) -> FloatArray:
    """One row for each round, in the order of :data:`LAST` and :data:`SUMS`."""
    columns = dict(zip(RoundRecord._fields, zip(*records, strict=True), strict=True))
    lengths, reward = np.array(columns["length"], dtype=np.float64), np.array(columns["reward"], dtype=np.float64)
    known = ~np.isnan(reward)
    rewards, episodes = np.where(known, reward * lengths, 0.0), np.where(known, lengths, 0.0)
    stood = np.array(columns["playing"]) == PLAYING[INCUMBENT]
    sums = (rewards, episodes, rewards * stood, episodes * stood, lengths, np.ones(len(lengths)))
    return np.column_stack([*(np.array(columns[name], dtype=np.float64) for name in OF_LAST), *sums])


def _ratio(sums: FloatArray, numbers: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(sums, numbers, out=np.full(len(sums), math.nan), where=numbers > 0)
    return ratio


def _merged(rows: FloatArray, starts: npt.NDArray[np.intp]) -> FloatArray:
    """One row for each group of successive rows; the groups begin at ``starts``."""
    ends = np.append(starts[1:], len(rows)) - 1
    return np.column_stack([rows[ends, LAST], np.add.reduceat(rows[:, SUMS], starts)])
