"""The figures of rounds, thinned: a page draws at most :data:`MAX_POINTS`, however many rounds there are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.round_record import INCUMBENT, PLAYING, RoundRecord

MAX_POINTS = 1_000

OF_LAST = (
    "round",
    "episodes",
    "seconds",
    "regret",
    "optimistic_value",
    "recommended_value",
    "bytes_up",
    "bytes_down",
    "cost",
    "allowed",
)
COLUMNS = (*OF_LAST, "reward", "length", "incumbent")
"""The columns of a point, which stands for ``stride`` rounds (the last one possibly for fewer). :data:`OF_LAST` are
those of its last round, ``reward`` is the mean over the episodes of its rounds, ``length`` the mean over its rounds,
and ``incumbent`` the mean reward of all episodes so far that played the incumbent."""

LAST = slice(0, len(OF_LAST))
SUMS = slice(len(OF_LAST), len(OF_LAST) + 6)
"""Since the run began: rewards; episodes whose rewards are known; the same two of the incumbent's rounds; lengths;
and rounds."""


class RoundSeries:
    """Points of a run. When there would be more than ``most``, every other one goes: the next stands for its rounds.

    >>> series = RoundSeries(most=4)
    >>> series.size, series.stride
    (0, 1)
    """

    def __init__(self, most: int = MAX_POINTS) -> None:
        self._most = most
        self.stride = 1
        self._rows: FloatArray = np.zeros((0, SUMS.stop))
        """One row for each point, that of its last round."""

    @property
    def size(self) -> int:
        return len(self._rows)

    def extend(self, records: Sequence[RoundRecord]) -> None:
        if not records:
            return
        new = _rows_of(records)
        before = self._rows[-1:, SUMS]
        new[:, SUMS] = np.cumsum(np.vstack([before, new[:, SUMS]]), axis=0)[len(before) :]
        rows = np.vstack([self._rows, new])
        rounds = rows[:, -1]
        while rounds[-1] > self._most * self.stride:
            self.stride *= 2
        is_drawn = rounds % self.stride == 0
        is_drawn[-1] = True  # of a point that is not full yet
        self._rows = rows[is_drawn]

    def points(self, start: int = 0) -> list[list[float | None]]:
        """The points from one on, in the order of :data:`COLUMNS`; None where a figure is unknown."""
        rows = self._rows[start:]
        sums_of_points = np.diff(self._rows[:, SUMS], axis=0, prepend=0.0)[start:]
        rewards, rewarded_episodes, _, _, lengths, rounds = sums_of_points.T
        _, _, incumbent_rewards, incumbent_episodes, _, _ = rows[:, SUMS].T
        table = np.column_stack(
            [
                rows[:, LAST],
                _ratio(rewards, rewarded_episodes),
                lengths / rounds,
                _ratio(incumbent_rewards, incumbent_episodes),
            ]
        )
        content = table.astype(object)
        content[np.isnan(table)] = None
        points: list[list[float | None]] = content.tolist()
        return points


def _rows_of(records: Sequence[RoundRecord]) -> FloatArray:
    """One row for each round, in the order of :data:`LAST` and, of this round alone, :data:`SUMS`."""
    columns = []
    for name in OF_LAST:
        columns.append(np.array([getattr(record, name) for record in records], dtype=np.float64))
    lengths = np.array([record.length for record in records], dtype=np.float64)
    reward = np.array([record.reward for record in records], dtype=np.float64)
    is_incumbent = np.array([record.playing == PLAYING[INCUMBENT] for record in records])
    known = ~np.isnan(reward)
    rewards = np.where(known, reward * lengths, 0.0)
    episodes = np.where(known, lengths, 0.0)
    columns.append(rewards)
    columns.append(episodes)
    columns.append(rewards * is_incumbent)
    columns.append(episodes * is_incumbent)
    columns.append(lengths)
    columns.append(np.ones(len(records)))
    return np.column_stack(columns)


def _ratio(sums: FloatArray, numbers: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(sums, numbers, out=np.full(len(sums), math.nan), where=numbers > 0)
    return ratio
