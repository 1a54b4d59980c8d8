"""What an episode pays as a run goes on: the mean of neighbouring rounds, and how sure it is."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run_data import RunData

MOST_BINS = 60
"""Points of a curve, at most."""
NORMAL = 1.96
"""Of a 95 % interval."""


class LearningCurve(NamedTuple):
    """A curve; each point stands for the rounds since the one before.

    Attributes:
        episodes: per agent, at the end of these rounds.
        mean: the reward of an episode, over all their episodes and agents, in the environment's own units.
        error: the standard error of this mean; NaN where only sums of rewards were observed.
    """

    episodes: FloatArray
    mean: FloatArray
    error: FloatArray

    @property
    def low(self) -> FloatArray:
        """The lower end of the 95 % interval."""
        return np.asarray(self.mean - NORMAL * self.error)

    @property
    def high(self) -> FloatArray:
        """The upper end."""
        return np.asarray(self.mean + NORMAL * self.error)


def learning_curve(run: RunData, bins: int = MOST_BINS) -> LearningCurve:
    """The rewards of a run, with neighbouring rounds together so that there are at most ``bins`` points.

    Bins are even in the logarithm of episodes. From the mean ``m_r`` and the standard deviation ``s_r`` of the
    ``n_r`` episodes of each round, those of all episodes of a bin follow exactly:
    ``(n - 1) s^2 = sum_r [(n_r - 1) s_r^2 + n_r m_r^2] - n m^2``. The error is ``s / sqrt(n)``.
    """
    records, ends = run.records, run.round_ends
    n = records["agent_episodes"].astype(np.float64)
    played = n > 0
    if not played.any():
        empty = np.zeros(0)
        return LearningCurve(empty, empty, empty)
    total = records["reward"] * records["agents"]
    spread = np.where(n > 1, records["reward_sd"], 0.0)
    squares = (n - 1) * spread**2 + np.divide(total**2, n, out=np.zeros_like(total), where=played)
    edges = np.geomspace(min(1.0, ends[0]), ends[-1], bins + 1)
    which = np.minimum(np.searchsorted(edges[1:], ends, side="left"), bins - 1)[played]
    sums = [np.bincount(which, weights=values[played], minlength=bins) for values in (n, total, squares)]
    filled = sums[0] > 0
    count, paid, square = (values[filled] for values in sums)
    last = [float(ends[played][which == bin].max()) for bin in np.flatnonzero(filled)]
    mean = paid / count
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(square - count * mean**2, 0.0) / (count - 1)
    variance = np.where(count > 1, variance, math.nan)
    units = Units.of(run.about.environment)
    own = np.array([units.original_return(value, run.about.horizon) for value in mean])
    return LearningCurve(np.array(last), own, units.scale * np.sqrt(variance / count))
