"""What the numbers in a report mean, so that the server can tell what cannot be true.

A report is a :class:`~typing.NamedTuple` of arrays. Each field is annotated with its meaning::

    class Report(NamedTuple):
        n: Annotated[CountArray, Meaning.VISITS_OF_ROUND]
        r: Annotated[FloatArray, Meaning.REWARD]

Of a field without a meaning only shape, type and finiteness are checked.
"""

from __future__ import annotations

import typing
from enum import Enum


class Meaning(Enum):
    """The kinds of arrays in reports."""

    VISITS_SO_FAR = "visits to (s,a) at the exchange's step since the beginning"
    VISITS_OF_ROUND = "visits to (h,s) in the round"
    REWARDS_OF_ROUND = "the sum of rewards over the visits to (h,s) in the round"
    SQUARED_REWARDS_OF_ROUND = "the sum of squared rewards over the visits to (h,s) in the round"
    TRANSITIONS_OF_ROUND = "transitions from (h,s) to s' in the round"
    NEW_TRANSITIONS = "transitions from (h,s,a) to s' since the last report"
    TRANSITIONS_SO_FAR = "transitions from (h,s,a) to s' since the beginning"
    SUM = "a sum of values over the visits, on the grid"
    SUM_OF_SQUARES = "a sum of squared values over the visits, on the grid"
    SUM_OF_REWARDS = "a sum of rewards over the visits, on the grid"
    SUM_OF_SQUARED_REWARDS = "a sum of squared rewards over the visits, on the grid"
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


def meanings_of(report: type) -> dict[str, Meaning]:
    """The meanings of a report's fields, by name; fields without one are left out.

    >>> class Report(typing.NamedTuple):
    ...     n: typing.Annotated[int, Meaning.VISITS_OF_ROUND]
    ...     other: int
    >>> meanings_of(Report)
    {'n': <Meaning.VISITS_OF_ROUND: 'visits to (h,s) in the round'>}
    """
    hints = typing.get_type_hints(report, include_extras=True)
    found = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: note for name, notes in found.items() for note in notes if isinstance(note, Meaning)}
