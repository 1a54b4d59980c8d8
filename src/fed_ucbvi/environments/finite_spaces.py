"""Gymnasium environments with any of the usual spaces, made finite: Discrete observations and actions, by bins.

A space is a tree: Dict and Tuple hold other spaces, and Discrete, MultiDiscrete, MultiBinary and Box hold numbers.
Each number is a dimension (:mod:`fed_ucbvi.environments.bins`). Its name is the way to it: ``temperature`` for the
one number of a Dict's entry, ``rooms.0`` and ``rooms.1`` for two, ``0`` and ``1`` for those of a Box outside a Dict.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.environments.bins import Bins, Edges, Levels, Whole
from fed_ucbvi.environments.gymnasium_making import gymnasium_package

gymnasium_package()

import gymnasium  # noqa: E402
from gymnasium import spaces  # noqa: E402

log = logging.getLogger("fed_ucbvi.environments")


@dataclass(frozen=True)
class Interval:
    """A dimension that may be any number from low to high."""

    name: str
    low: float
    high: float
    count: ClassVar[int] = 0
    """Its values cannot be counted."""


def dimensions_of(space: spaces.Space[Any], name: str = "") -> list[Whole | Interval]:
    """The dimensions of a space, in a fixed order.

    >>> [one.name for one in dimensions_of(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (2,))}))]
    ['a', 'b.0', 'b.1']
    """
    match space:
        case spaces.Dict():
            parts = list(space.spaces.items())
        case spaces.Tuple():
            parts = [(str(i), part) for i, part in enumerate(space.spaces)]
        case spaces.Discrete():
            return _named(name, Whole, space.start, space.n)
        case spaces.MultiDiscrete():
            return _named(name, Whole, space.start, space.nvec)
        case spaces.MultiBinary():
            return _named(
                name,
                Whole,
                np.zeros(space.shape, dtype=np.int64),
                np.full(space.shape, 2),
            )
        case spaces.Box():
            return _named(name, Interval, space.low, space.high)
        case _:
            raise InputError(
                f"{space} cannot be made finite. Known are Discrete, MultiDiscrete, MultiBinary, Box, and Tuple and "
                "Dict of these; turn it into one of them in a wrapper of your own."
            )
    dimensions = []
    for key, part in parts:
        dimensions += dimensions_of(part, f"{name}.{key}" if name else str(key))
    return dimensions


def _named(name: str, kind: Callable[..., Whole | Interval], *ends: Any) -> list[Whole | Interval]:
    """The dimensions of a space of numbers, whose names are its own with the position of each number."""
    ends_by_number = np.column_stack([np.ravel(end) for end in ends]).tolist()
    if len(ends_by_number) == 1:
        return [kind(name or "0", *ends_by_number[0])]
    prefix = f"{name}." if name else ""
    return [kind(f"{prefix}{i}", *pair) for i, pair in enumerate(ends_by_number)]


def numbers_in(space: spaces.Space[Any], value: Any) -> list[float]:
    """The numbers of an observation, one for each dimension of its space."""
    numbers: list[float] = []
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            numbers += numbers_in(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space.spaces):
            numbers += numbers_in(part, value[i])
    else:
        numbers = np.ravel(value).tolist()
    return numbers


def _value(space: spaces.Space[Any], numbers: Iterator[float]) -> Any:
    """The element of a space that has these numbers."""
    if isinstance(space, spaces.Dict):
        return {key: _value(part, numbers) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_value(part, numbers) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return int(next(numbers))
    shape = space.shape or ()
    values = [next(numbers) for _ in range(math.prod(shape))]
    return np.array(values, dtype=space.dtype).reshape(shape)


class FiniteEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations and actions are numbered by bins.

    A reward outside an observed range (``bins.reward_range`` with ``bins.clips``) is moved to its nearer end.
    ``clipped`` counts them, and the first, tenth, hundredth, ... is logged.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], bins: Bins) -> None:
        super().__init__(env)
        self.bins = bins
        self.clipped = 0
        self._observations = env.observation_space
        self._actions = env.action_space
        _check_fit("observations", self._observations, bins.observations)
        _check_fit("actions", self._actions, bins.actions)
        self.observation_space = spaces.Discrete(bins.states)
        self.action_space = spaces.Discrete(bins.number_of_actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._state(observation), info

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """One step with the action of that number."""
        chosen = _value(self._actions, iter(self.bins.action(int(action))))
        observation, reward, terminated, truncated, info = self.env.step(chosen)
        state = self._state(observation)
        return state, self._clip(float(reward)), terminated, truncated, info

    def _state(self, observation: Any) -> int:
        return self.bins.state(numbers_in(self._observations, observation))

    def _clip(self, reward: float) -> float:
        if self.bins.reward_range is None or not self.bins.clips:
            return reward
        low, high = self.bins.reward_range
        if low <= reward <= high:
            return reward
        if math.isnan(reward):
            raise InputError("a reward is not a number (NaN).")
        self.clipped += 1
        if math.log10(self.clipped).is_integer():
            log.warning(
                "reward %g is outside the observed range (%g, %g) and is counted as its nearer end; %s so far. Learn "
                "the bins from more episodes, or give reward_range, if this happens often",
                reward,
                low,
                high,
                self.clipped,
            )
        return min(max(reward, low), high)


def quoted(names: Sequence[str]) -> str:
    """Names in quotation marks, with commas between them."""
    return ", ".join(f"'{name}'" for name in names)


def _check_fit(what: str, space: spaces.Space[Any], dimensions: Sequence[Whole | Edges | Levels]) -> None:
    """Raise unless bins fit the space of an environment."""
    own = dimensions_of(space)
    own_names = [dimension.name for dimension in own]
    binned_names = [dimension.name for dimension in dimensions]
    if own_names != binned_names:
        raise InputError(
            f"the bins are for {what} {quoted(binned_names)}, but those of this environment are {quoted(own_names)}."
        )
    for one, binned in zip(own, dimensions, strict=True):
        if isinstance(binned, Whole) and binned != one:
            raise InputError(
                f"the bins have {binned.count} values from {binned.start} on for '{one.name}'; this environment's "
                f"space is {space}."
            )
        if not isinstance(binned, Whole) and isinstance(one, Whole):
            raise InputError(f"the bins cut '{one.name}', but in this environment it has {one.count} values.")
        if isinstance(binned, Levels) and isinstance(one, Interval):
            first = binned.values[0]
            last = binned.values[-1]
            if first < one.low or one.high < last:
                raise InputError(
                    f"the bins use values of '{one.name}' from {first:g} to {last:g}; this environment allows "
                    f"{one.low:g} to {one.high:g}."
                )
