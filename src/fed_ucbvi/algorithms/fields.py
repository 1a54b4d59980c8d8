"""Shapes of arrays in messages and states, and their meanings in reports, declared in the types of fields.

Messages and states are NamedTuples of arrays::

    class Report(NamedTuple):
        n: Annotated[CountArray, Meaning.VISITS_OF_ROUND, Shape("m H S")]
        r: Annotated[FloatArray, Meaning.REWARD, Shape("m H S")]

From the shapes :func:`new_tables` makes the arrays. By the meanings a server can reject what cannot be true; of a
field without one only shape, type and finiteness are checked.
"""

from __future__ import annotations

import functools
import math
import typing
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

if typing.TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Setting

TupleT = TypeVar("TupleT", bound=Any)
"""A NamedTuple of arrays."""


class Meaning(Enum):
    """The kinds of arrays in reports."""

    VISITS_SO_FAR = "visits to (s,a) at the exchange's step since the beginning"
    VISITS_OF_ROUND = "visits to (h,s) in the round"
    NEW_TRANSITIONS = "transitions from (h,s,a) to s' since the last report"
    SUM = "a sum of values over the visits, on the grid"
    SUM_OF_SQUARES = "a sum of squared values over the visits, on the grid"
    SUM_OF_REWARDS = "a sum of rewards over the visits, on the grid"
    MEAN = "a mean of values"
    SQUARE = "a mean of squared values"
    GAP = "a mean of differences of values"
    RETURN = "a reward and a mean of values"
    REWARD = "a reward"
    STATE = "a state"
    FLAG = "whether the agent requested this synchronisation"


class Shape(str):
    """Axes, as in ``"m H+1 S"``: H, S, A and M of the setting, m agents of a fleet, and numbers."""

    __slots__ = ()


Policy = Annotated[IndexArray, Shape("H S")]
Values = Annotated[FloatArray, Shape("H+1 S")]
PairCounts = Annotated[CountArray, Shape("H S A")]
PairTable = Annotated[FloatArray, Shape("H S A")]
Number = Annotated[CountArray, Shape("1")]
"""Of a server's estimates."""

RoundVisits = Annotated[CountArray, Meaning.VISITS_OF_ROUND, Shape("m H S")]
RoundReward = Annotated[FloatArray, Meaning.REWARD, Shape("m H S")]
RoundMean = Annotated[FloatArray, Meaning.MEAN, Shape("m H S")]
RoundSquare = Annotated[FloatArray, Meaning.SQUARE, Shape("m H S")]
RoundGap = Annotated[FloatArray, Meaning.GAP, Shape("m H S")]
"""Of reports at ``(h, s, pi_h(s))``: visits in the round, the reward, and means over the visits."""


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _notes(hint: Any, kind: type[Any]) -> list[Any]:
    return [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, kind)]


def meanings_of(report: type) -> dict[str, Meaning]:
    """The meanings of a report's fields, by name; fields without one are left out.

    >>> class Report(typing.NamedTuple):
    ...     n: Annotated[int, Meaning.VISITS_OF_ROUND]
    ...     other: int
    >>> meanings_of(Report)
    {'n': <Meaning.VISITS_OF_ROUND: 'visits to (h,s) in the round'>}
    """
    return {name: note for name, hint in _hints(report).items() for note in _notes(hint, Meaning)}


def has_trajectories(report: type) -> bool:
    """True if reports tell the server the states that an agent went through, in order."""
    return Meaning.STATE in meanings_of(report).values()


class Declared(NamedTuple):
    """The shape and type of an array, as a field's annotation declares them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size of the array in a message, where a truth value is a bit."""
        entries = math.prod(self.shape)
        if self.dtype == np.bool_:
            return (entries + 7) // 8
        return entries * self.dtype.itemsize


def declared_array(kind: Any, name: str, setting: Setting, agents: int = 0) -> Declared:
    """The array that a field of a NamedTuple declares, with the sizes of a setting.

    >>> from fed_ucbvi.algorithms.base import Setting
    >>> class Estimates(typing.NamedTuple):
    ...     V: Values
    >>> setting = Setting(states=5, actions=2, horizon=3, agents=4, episodes=10, eps_p=0.0, seed=0)
    >>> declared_array(Estimates, "V", setting)
    Declared(shape=(4, 5), dtype=dtype('float64'))
    """
    hint = _hints(kind)[name]
    (axes,) = _notes(hint, Shape)
    sizes = {
        "H": setting.horizon,
        "H+1": setting.horizon + 1,
        "S": setting.states,
        "A": setting.actions,
        "M": setting.agents,
        "m": agents,
    }
    shape = tuple(sizes[axis] if axis in sizes else int(axis) for axis in axes.split())
    last = typing.get_args(typing.get_args(hint)[0])[-1]  # np.dtype[...], or since NumPy 2.5 what is in it
    dtype = next(iter(typing.get_args(last)), last)
    return Declared(shape, np.dtype(dtype))


def declared_bytes(report: Any, setting: Setting) -> int:
    """Size of one agent's row of a report, from the declared shapes of all its fields."""
    return sum(declared_array(report, name, setting, agents=1).bytes for name in _hints(report))


def new_tables(kind: type[TupleT], setting: Setting, agents: int = 0, **given: Any) -> TupleT:
    """A NamedTuple of the arrays that are given, and of zeros, in the declared shapes, for all others.

    >>> from fed_ucbvi.algorithms.base import Setting
    >>> class Estimates(typing.NamedTuple):
    ...     N: PairCounts
    ...     V: Values
    >>> setting = Setting(states=5, actions=2, horizon=3, agents=4, episodes=10, eps_p=0.0, seed=0)
    >>> tables = new_tables(Estimates, setting)
    >>> tables.N.shape, tables.N.dtype, tables.V.shape
    ((3, 5, 2), dtype('int64'), (4, 5))
    """
    made = dict(given)
    declaring: Any = kind
    for name in _hints(declaring):
        if name not in made:
            declared = declared_array(declaring, name, setting, agents)
            made[name] = np.zeros(declared.shape, dtype=declared.dtype)
    tables: TupleT = kind(**made)
    return tables
