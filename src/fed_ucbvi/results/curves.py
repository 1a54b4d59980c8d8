"""Quantities of a run as curves over episodes: regret, rounds and rewards so far, and what an episode pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run_data import RunData

Curve = Callable[[RunData, CountArray], FloatArray | CountArray]
"""A quantity of a run, at each of the given numbers of episodes."""

CURVE_POINTS = 400
MAX_ENDS = 4000
"""The most ends of rounds on a curve."""
MAX_BINS = 60
"""Points of a learning curve, at most."""
NORMAL = 1.96
"""Of a 95 % interval."""


def mean_reward(run: RunData, points: CountArray) -> FloatArray:
    """The mean reward per agent and episode, in its own units, over the first ``points`` episodes."""
    ends = np.concatenate([[0], run.round_ends])
    totals = np.concatenate([[0.0], np.cumsum(run.records["reward"])])
    units, H = Units.of(run.about.environment), run.about.horizon
    return H * units.offset + units.scale * np.asarray(np.interp(points, ends, totals) / points)


CURVES: Mapping[str, Curve] = {"regret": RunData.regret_at, "rounds": RunData.rounds_at, "reward": mean_reward}
"""By name: the common regret so far, communication rounds so far, the mean reward an episode so far."""


def points_of(played: int, ends: FloatArray | Sequence[float] = ()) -> CountArray:
    """Episodes at which to draw a curve: even on both kinds of axis, and the ends of rounds if there are few."""
    if played == 0:
        return np.zeros(1, dtype=np.int64)
    grid = np.concatenate([np.geomspace(1, played, CURVE_POINTS), np.linspace(1, played, CURVE_POINTS)])
    kept = np.asarray(ends, dtype=np.int64)[:: max(1, -(-len(ends) // MAX_ENDS))]
    return np.unique(np.concatenate([grid.round().astype(np.int64), kept, [played]]))


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
        return np.asarray(self.mean - NORMAL * self.error)

    @property
    def high(self) -> FloatArray:
        return np.asarray(self.mean + NORMAL * self.error)


def learning_curve(run: RunData, bins: int = MAX_BINS) -> LearningCurve:
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
