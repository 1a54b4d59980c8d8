"""What the numbers in a report mean, so that the server can tell what cannot be true."""

from __future__ import annotations

from enum import Enum

from fed_ucbvi.algorithms import (
    byzan_ucbvi,
    fed_ucbvi_sums,
    fedq,
    fedq_advantage,
    fedq_early_settled,
    ucb_advantage,
    ucbvi,
)


class Meaning(Enum):
    """The kinds of arrays in reports."""

    VISITS_SO_FAR = "visits to (s,a) at the exchange's step since the beginning"
    VISITS_OF_ROUND = "visits to (h,s) in the round"
    SUM = "a sum of values over the visits, on the grid"
    SUM_OF_SQUARES = "a sum of squared values over the visits, on the grid"
    SUM_OF_REWARDS = "a sum of rewards over the visits, on the grid"
    GRID_MEAN = "a mean of values, on the grid"
    GRID_SQUARE = "a mean of squared values, on the grid"
    GRID_REWARD = "a reward, on the grid"
    MEAN = "a mean of values"
    SQUARE = "a mean of squared values"
    GAP = "a mean of differences of values"
    RETURN = "a reward and a mean of values"
    REWARD = "a reward"
    STATE = "a state"
    FLAG = "whether the agent asked for this synchronisation"


_ROUND = {"n": Meaning.VISITS_OF_ROUND, "r": Meaning.REWARD, "v": Meaning.MEAN}
_TRAJECTORY = {"states": Meaning.STATE, "rewards": Meaning.REWARD}

MEANINGS: dict[type, dict[str, Meaning]] = {
    fed_ucbvi_sums.Sums: {
        "n": Meaning.VISITS_SO_FAR,
        "X": Meaning.SUM,
        "Y": Meaning.SUM_OF_SQUARES,
        "Z": Meaning.SUM_OF_REWARDS,
    },
    fed_ucbvi_sums.Means: {
        "n": Meaning.VISITS_SO_FAR,
        "X": Meaning.GRID_MEAN,
        "Y": Meaning.GRID_SQUARE,
        "Z": Meaning.GRID_REWARD,
    },
    byzan_ucbvi.Report: {"x": Meaning.RETURN, "n": Meaning.VISITS_SO_FAR, "asked": Meaning.FLAG},
    fedq.Report: _ROUND,
    fedq.BernsteinReport: {**_ROUND, "mu": Meaning.SQUARE},
    fedq_advantage.Report: {
        **_ROUND,
        "a1": Meaning.MEAN,
        "a2": Meaning.SQUARE,
        "d1": Meaning.GAP,
        "d2": Meaning.SQUARE,
    },
    fedq_early_settled.Report: {
        **_ROUND,
        "lower": Meaning.MEAN,
        "reference": Meaning.MEAN,
        "reference_square": Meaning.SQUARE,
        "advantage_square": Meaning.SQUARE,
    },
    ucbvi.Trajectories: _TRAJECTORY,
    ucb_advantage.Report: _TRAJECTORY,
}
"""By the type of report; of reports not listed here only shapes, types and finiteness are checked."""
