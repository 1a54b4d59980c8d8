"""Environments made finite by bins: bins with edges and values of one's own, or learnt from a few random episodes.

What needs Gymnasium is imported when it is used, so that these functions can be looked at without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fed_ucbvi.core.errors import InputError, check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.bins import Bins, Edges, Levels, Whole
from fed_ucbvi.environments.gymnasium_making import BlamedOn, horizon_of_spec, reward_bounds

if TYPE_CHECKING:
    import gymnasium
    from gymnasium import spaces

    from fed_ucbvi.environments.finite_spaces import FiniteEnvironment, Interval

CutT = TypeVar("CutT", Edges, Levels)
PerDimension = Mapping[str, Sequence[float] | int]
"""For each dimension its edges or values, or how many of them, equally spaced."""
MARGIN = 0.25
"""By how much of the observed width the range of rewards is widened on either side."""
RESOLUTION = 1000
"""Edges are rounded to this part of the observed width or finer: they need not be observations."""


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
        tuple(_made(Edges, one, given) for one, given in _matched("edges", env.observation_space, edges or {})),
        tuple(_made(Levels, one, given) for one, given in _matched("grid", env.action_space, grid or {})),
        H,
    )


def _matched(
    what: str, space: spaces.Space[Any], given: PerDimension
) -> list[tuple[Whole | Interval, Sequence[float] | int]]:
    """What is given for each dimension; an error where something is missing or has no use."""
    from fed_ucbvi.environments.finite_spaces import dimensions_of, listed

    dimensions = dimensions_of(space)
    continuous = [one.name for one in dimensions if not one.count]
    if missing := [name for name in continuous if name not in given]:
        raise InputError(f"{what} for {listed(missing)} are missing.")
    if extra := [name for name in given if name not in continuous]:
        if continuous:
            known = f"those of this space are {listed(continuous)}"
        else:
            known = "this space has none"
        raise InputError(f"{what} are given for {listed(extra)}, no continuous dimension; {known}.")
    return [(one, given.get(one.name, 0)) for one in dimensions]


def _made(kind: type[CutT], one: Whole | Interval, given: Sequence[float] | int) -> Whole | CutT:
    if isinstance(one, Whole):
        return one
    if isinstance(given, int):
        cut = kind is Edges
        number = check_positive_integer(f"{'bins' if cut else 'values'} of '{one.name}'", given)
        given = _spaced(one, number + 1)[1:-1] if cut else _spaced(one, number)
    return kind(one.name, tuple(float(x) for x in given))


def _spaced(one: Interval, points: int) -> list[float]:
    """Equally spaced points from one bound to the other; the middle, if it is one point."""
    if not (math.isfinite(one.low) and math.isfinite(one.high)):
        raise InputError(f"'{one.name}' has no bounds, so its bins or values must be given one by one.")
    if points > 1:
        ends = (one.low, one.high)
    else:
        ends = ((one.low + one.high) / 2,) * 2
    return [float(x) for x in np.linspace(*ends, points)]


class Episode(NamedTuple):
    """What was seen in an episode: one observation more than actions and rewards, and whether it terminated."""

    observations: list[Any]
    actions: list[Any]
    rewards: list[float]
    terminated: bool


def random_episodes(env: gymnasium.Env[Any, Any], episodes: int, horizon: int, seed: int) -> Iterator[Episode]:
    """Episodes of at most H steps with random actions; the environment is seeded once, and so are the actions."""
    check_positive_integer("episodes", episodes)
    env.action_space.seed(check_integer("seed", seed))
    for number in range(episodes):
        terminated = truncated = False
        with BlamedOn(0, "a random episode"):
            episode = Episode(
                [env.reset(seed=seed if number == 0 else None)[0]],
                [],
                [],
                terminated=False,
            )
            while not (terminated or truncated) and len(episode.actions) < horizon:
                action = env.action_space.sample()
                observation, reward, terminated, truncated, _ = env.step(action)
                episode.observations.append(observation)
                episode.actions.append(action)
                episode.rewards.append(float(reward))
        yield episode._replace(terminated=bool(terminated))


def learn_bins(
    env: gymnasium.Env[Any, Any],
    *,
    episodes: int = 20,
    bins_per_dimension: int | Mapping[str, int] = 8,
    actions_per_dimension: int | Mapping[str, int] = 5,
    horizon: int | None = None,
    reward_range: Sequence[float] | None = None,
    margin: float = MARGIN,
    seed: int = 0,
) -> Bins:
    """Bins for an environment, from what a few episodes with random actions show.

    A continuous dimension of observations is cut at quantiles of what was seen, so that its bins are equally often
    visited. A continuous dimension of actions becomes equally spaced values. The range of rewards is the one that was
    seen, with 0 in it if an episode terminated, for nothing is paid after that; it is then widened by ``margin``
    times its width on either side.

    Args:
        env: one agent's environment; the bins then serve all agents.
        episodes: how many to play.
        bins_per_dimension: how many bins at most, for all continuous dimensions or by name.
        actions_per_dimension: how many values, likewise.
        horizon: H; by default the environment's max_episode_steps.
        reward_range: the true range, if you know it. It is then that of the bins, and a reward outside it is an
            error.
        margin: see above.
        seed: of the environment and of the actions.
    """
    from fed_ucbvi.environments.finite_spaces import dimensions_of, numbers_in

    H = horizon_of_spec(env, "the environment", horizon)
    check_number("margin", margin, at_least=0)
    played = list(random_episodes(env, episodes, H, seed))
    seen = np.array([numbers_in(env.observation_space, one) for episode in played for one in episode.observations])
    edges = {
        one.name: quantile_edges(one.name, seen[:, column], _wanted("bins", bins_per_dimension, one.name))
        for column, one in enumerate(dimensions_of(env.observation_space))
        if not one.count
    }
    values = [one.name for one in dimensions_of(env.action_space) if not one.count]
    grid = {name: _wanted("values", actions_per_dimension, name) for name in values}
    bins = given_bins(env, edges, grid, horizon=H)
    known = reward_bounds(reward_range)
    if known is not None:
        return replace(bins, reward_range=known, clips=False)
    return replace(bins, reward_range=_observed_range(played, margin))


def _wanted(what: str, number: int | Mapping[str, int], name: str) -> int:
    if isinstance(number, Mapping):
        if name not in number:
            raise InputError(f"the number of {what} of '{name}' is missing.")
        number = number[name]
    return check_positive_integer(f"{what} of '{name}'", number)


def quantile_edges(name: str, numbers: FloatArray, bins: int) -> tuple[float, ...]:
    """Edges between equally many of the numbers; fewer if they repeat, and midpoints where they are few.

    >>> quantile_edges("x", np.arange(101.0), 4), quantile_edges("x", np.array([0.0, 1.0, 1.0, 5.0]), 4)
    ((25.0, 50.0, 75.0), (0.5, 3.0))
    """
    if not np.isfinite(numbers).all():
        raise InputError(f"'{name}' is not a finite number in some episode, so its bins cannot be learnt.")
    distinct = np.unique(numbers)
    if len(distinct) <= bins:
        cuts = (distinct[1:] + distinct[:-1]) / 2
    else:
        cuts = np.quantile(numbers, np.arange(1, bins) / bins)
        width = distinct[-1] - distinct[0]
        cuts = np.round(cuts, max(0, int(np.ceil(-np.log10(width / RESOLUTION)))))
    cuts = np.unique(cuts)
    return tuple(float(cut) for cut in cuts if distinct[0] < cut <= distinct[-1])


def _observed_range(played: Sequence[Episode], margin: float) -> tuple[float, float]:
    rewards = np.array([reward for episode in played for reward in episode.rewards])
    if not np.isfinite(rewards).all():
        raise InputError("some reward is not a finite number.")
    low = float(rewards.min())
    high = float(rewards.max())
    if any(episode.terminated for episode in played):
        low = min(low, 0.0)
        high = max(high, 0.0)
    if low == high:
        raise InputError(
            f"all rewards of the {len(played)} episodes were {low:g}, which does not show their range; play more "
            "episodes, or give reward_range=(low, high)."
        )
    spare = margin * (high - low)
    return low - spare, high + spare
