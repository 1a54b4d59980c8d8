"""What the numbers in a report mean, so that the server can tell what cannot be true."""

from __future__ import annotations

from enum import Enum

from fed_ucbvi.algorithms import (
    byzan_ucbvi,
    fed_ucbvi,
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
    fed_ucbvi.Report: {
        "n": Meaning.VISITS_SO_FAR,
        "PV": Meaning.MEAN,
        "PV2": Meaning.SQUARE,
        "Q": Meaning.RETURN,
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
