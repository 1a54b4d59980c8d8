"""The figures of rounds, thinned: however many rounds there are, a page draws at most so many points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.round_record import RoundRecord

MOST_POINTS = 1_000

COLUMNS = (
    "round",
    "episodes",
    "seconds",
    "regret",
    "optimistic",
    "recommended",
    "bytes_up",
    "bytes_down",
    "reward",
    "length",
    "longest",
)
"""Of a point, which stands for ``stride`` rounds, the last one for so many or fewer. The first eight are those of its
last round, ``reward`` is the mean over the episodes of its rounds, ``length`` the mean over its rounds and
``longest`` the maximum."""

LAST = slice(0, 8)
SUMS = slice(8, 12)
"""Rewards; episodes whose rewards are known; lengths; rounds."""
LONGEST = 12


class Series:
    """Points of a run. When there are ``most``, neighbours are merged: a point then stands for twice as many rounds.

    >>> series = Series(most=4)
    >>> series.size, series.stride
    (0, 1)
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._rows: FloatArray = np.empty((most, LONGEST + 1))
        self._rounds = 0
        self.size, self.stride = 0, 1

    def extend(self, records: Sequence[RoundRecord]) -> None:
        """Add rounds."""
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
        paid, known, lengths, rounds = rows[:, SUMS].T
        reward = np.divide(paid, known, out=np.full(len(rows), math.nan), where=known > 0)
        table = np.column_stack([rows[:, LAST], reward, lengths / rounds, rows[:, LONGEST]])
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
    """One row for each round, in the order of :data:`LAST`, :data:`SUMS` and :data:`LONGEST`."""
    columns = dict(zip(RoundRecord._fields, zip(*records, strict=True), strict=True))
    last = (
        "round",
        "episodes",
        "seconds",
        "regret",
        "optimistic_value",
        "recommended_value",
        "bytes_up",
        "bytes_down",
    )
    lengths, reward = np.array(columns["length"], dtype=np.float64), np.array(columns["reward"], dtype=np.float64)
    known = ~np.isnan(reward)
    sums = (np.where(known, reward * lengths, 0.0), np.where(known, lengths, 0.0), lengths, np.ones(len(lengths)))
    return np.column_stack([*(np.array(columns[name], dtype=np.float64) for name in last), *sums, lengths])


def _merged(rows: FloatArray, starts: npt.NDArray[np.intp]) -> FloatArray:
    """One row for each group of successive rows; the groups begin at ``starts``."""
    ends = np.append(starts[1:], len(rows)) - 1
    sums = np.add.reduceat(rows[:, SUMS], starts)
    return np.column_stack([rows[ends, LAST], sums, np.maximum.reduceat(rows[:, LONGEST], starts)])
