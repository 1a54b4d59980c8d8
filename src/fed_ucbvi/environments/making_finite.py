"""Environments made finite by bins, and bins with edges and values of one's own.

What needs Gymnasium is imported when it is used, so that these functions can be looked at without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.environments.bins import Bins, Edges, Grid, Whole
from fed_ucbvi.environments.gymnasium_making import horizon_of_spec

if TYPE_CHECKING:
    import gymnasium
    from gymnasium import spaces

    from fed_ucbvi.environments.finite_spaces import Dimension, FiniteEnvironment

PerDimension = Mapping[str, Sequence[float] | int]
"""For each dimension its edges or values, or how many of them, equally spaced."""


def make_finite(env: gymnasium.Env[Any, Any], bins: Bins | str | Path) -> FiniteEnvironment:
    """The environment with Discrete observations and actions, numbered by ``bins`` (a value, or a file of them).

    >>> import gymnasium
    >>> from gymnasium import spaces
    >>> class Room(gymnasium.Env):
    ...     observation_space, action_space = spaces.Box(0, 40, (1,)), spaces.Discrete(2)
    >>> warm = make_finite(Room(), given_bins(Room(), {"0": [18.0, 21.0]}, horizon=24))
    >>> warm.observation_space, warm.action_space
    (Discrete(3), Discrete(2))
    """
    from fed_ucbvi.environments.finite_spaces import FiniteEnvironment

    return FiniteEnvironment(env, bins if isinstance(bins, Bins) else Bins.load(bins))


def given_bins(
    env: gymnasium.Env[Any, Any],
    edges: PerDimension | None = None,
    grid: PerDimension | None = None,
    *,
    horizon: int | None = None,
) -> Bins:
    """Bins with edges and values of your own.

    Args:
        env: the environment, for its spaces.
        edges: for each continuous dimension of the observations, where to cut it; or into how many bins of equal
            width to cut it, if its Box has bounds.
        grid: for each continuous dimension of the actions, the values to use; or how many, equally spaced from one
            bound of its Box to the other.
        horizon: H; by default the environment's max_episode_steps.
    """
    H = horizon_of_spec(env, "the environment", horizon)
    return Bins(
        tuple(_observed(one, given) for one, given in _matched("edges", env.observation_space, edges or {})),
        tuple(_acted(one, given) for one, given in _matched("grid", env.action_space, grid or {})),
        H,
    )


def _matched(
    what: str, space: spaces.Space[Any], given: PerDimension
) -> list[tuple[Dimension, Sequence[float] | int | None]]:
    """What is given for each dimension; an error where something is missing or has no use."""
    from fed_ucbvi.environments.finite_spaces import dimensions_of, listed

    dimensions = dimensions_of(space)
    continuous = [one.name for one in dimensions if not one.count]
    if missing := [name for name in continuous if name not in given]:
        raise InputError(f"{what} for {listed(missing)} are missing.")
    if extra := [name for name in given if name not in continuous]:
        known = f"those of this space are {listed(continuous)}" if continuous else "this space has none"
        raise InputError(f"{what} are given for {listed(extra)}, no continuous dimension; {known}.")
    return [(one, given.get(one.name)) for one in dimensions]


def _observed(one: Dimension, given: Sequence[float] | int | None) -> Whole | Edges:
    if given is None:
        return Whole(one.name, one.start, one.count)
    if not isinstance(given, int):
        return Edges(one.name, tuple(float(x) for x in given))
    bins = check_positive_integer(f"bins of '{one.name}'", given)
    return Edges(one.name, tuple(_spaced(one, bins + 1)[1:-1]))


def _acted(one: Dimension, given: Sequence[float] | int | None) -> Whole | Grid:
    if given is None:
        return Whole(one.name, one.start, one.count)
    if isinstance(given, int):
        return Grid(one.name, tuple(_spaced(one, check_positive_integer(f"values of '{one.name}'", given))))
    return Grid(one.name, tuple(float(x) for x in given))


def _spaced(one: Dimension, points: int) -> list[float]:
    """Equally spaced points from one bound to the other; the middle, if it is one point."""
    if not (math.isfinite(one.low) and math.isfinite(one.high)):
        raise InputError(f"'{one.name}' has no bounds, so its bins or values must be given one by one.")
    ends = (one.low, one.high) if points > 1 else ((one.low + one.high) / 2,) * 2
    return [float(x) for x in np.linspace(*ends, points)]
