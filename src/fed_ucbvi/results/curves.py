"""Quantities of a run as curves over episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run_data import RunData

Curve = Callable[[RunData, CountArray], FloatArray | CountArray]
"""A quantity of a run, at each of the given numbers of episodes."""

CURVE_POINTS = 400
MAX_ENDS = 4000
"""The most ends of rounds on a curve."""


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
