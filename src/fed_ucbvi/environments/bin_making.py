"""Environments made finite by bins: bins with chosen edges and values, or learnt from a few random episodes.

Gymnasium is imported only when it is used, so that this module can be imported without it.
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
"""For each dimension its edges or values, or their number, equally spaced."""
MARGIN = 0.25
"""Share of the observed width by which the range of rewards is widened on either side."""
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
    observations = []
    for dimension, choice in _matched("edges", env.observation_space, edges or {}):
        observations.append(_made(Edges, dimension, choice))
    actions = []
    for dimension, choice in _matched("grid", env.action_space, grid or {}):
        actions.append(_made(Levels, dimension, choice))
    return Bins(observations=tuple(observations), actions=tuple(actions), horizon=H)


def _matched(
    what: str, space: spaces.Space[Any], choices: PerDimension
) -> list[tuple[Whole | Interval, Sequence[float] | int]]:
    """Each dimension with its edges or values; an error where something is missing or has no use."""
    from fed_ucbvi.environments.finite_spaces import dimensions_of, quoted

    dimensions = dimensions_of(space)
    continuous = [dimension.name for dimension in dimensions if not dimension.count]
    if missing := [name for name in continuous if name not in choices]:
        raise InputError(f"{what} for {quoted(missing)} are missing.")
    if extra := [name for name in choices if name not in continuous]:
        known = "this space has none"
        if continuous:
            known = f"those of this space are {quoted(continuous)}"
        raise InputError(f"{what} are given for {quoted(extra)}, no continuous dimension; {known}.")
    return [(dimension, choices.get(dimension.name, 0)) for dimension in dimensions]


def _made(
    kind: type[CutT],
    dimension: Whole | Interval,
    choice: Sequence[float] | int,
) -> Whole | CutT:
    """A dimension with the chosen edges or values, or with so many of them, equally spaced."""
    if isinstance(dimension, Whole):
        return dimension
    if isinstance(choice, int) and kind is Edges:
        bins = check_positive_integer(f"bins of '{dimension.name}'", choice)
        choice = _spaced(dimension, bins + 1)[1:-1]
    elif isinstance(choice, int):
        values = check_positive_integer(f"values of '{dimension.name}'", choice)
        choice = _spaced(dimension, values)
    return kind(dimension.name, tuple(float(number) for number in choice))


def _spaced(dimension: Interval, points: int) -> list[float]:
    """Equally spaced points from one bound to the other; the middle, if it is one point."""
    low = dimension.low
    high = dimension.high
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"'{dimension.name}' has no bounds, so its bins or values must be given one by one.")
    if points == 1:
        return [(low + high) / 2]
    numbers: list[float] = np.linspace(low, high, points).tolist()
    return numbers


class Episode(NamedTuple):
    """Record of an episode: one observation more than actions and rewards, and whether it terminated."""

    observations: list[Any]
    actions: list[Any]
    rewards: list[float]
    terminated: bool


def random_episodes(env: gymnasium.Env[Any, Any], episodes: int, horizon: int, seed: int) -> Iterator[Episode]:
    """Episodes of at most H steps with random actions; the environment is seeded once, and so are the actions."""
    check_positive_integer("episodes", episodes)
    env.action_space.seed(check_integer("seed", seed))
    for number in range(episodes):
        terminated = False
        truncated = False
        with BlamedOn(0, "a random episode"):
            observation, _ = env.reset(seed=seed if number == 0 else None)
            observations = [observation]
            actions: list[Any] = []
            rewards: list[float] = []
            while not (terminated or truncated) and len(actions) < horizon:
                action = env.action_space.sample()
                observation, reward, terminated, truncated, _ = env.step(action)
                observations.append(observation)
                actions.append(action)
                rewards.append(float(reward))
        yield Episode(
            observations=observations,
            actions=actions,
            rewards=rewards,
            terminated=bool(terminated),
        )


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
    """Learn bins for an environment from a few episodes with random actions.

    A continuous dimension of observations is cut at quantiles of the observed values, so that its bins are equally
    often visited. A continuous dimension of actions becomes equally spaced values. The range of rewards is the
    observed one, with 0 in it if an episode terminated, for nothing is paid after that; it is then widened by
    ``margin`` times its width on either side.

    Args:
        env: one agent's environment; the bins then serve all agents.
        episodes: number of episodes to play.
        bins_per_dimension: largest number of bins, for all continuous dimensions or by name.
        actions_per_dimension: number of values, likewise.
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
    observed = []
    for episode in played:
        for observation in episode.observations:
            observed.append(numbers_in(env.observation_space, observation))
    numbers = np.array(observed)
    edges = {}
    for column, dimension in enumerate(dimensions_of(env.observation_space)):
        if not dimension.count:
            most_bins = _number_for("bins", bins_per_dimension, dimension.name)
            edges[dimension.name] = quantile_edges(dimension.name, numbers[:, column], most_bins)
    grid = {}
    for dimension in dimensions_of(env.action_space):
        if not dimension.count:
            grid[dimension.name] = _number_for("values", actions_per_dimension, dimension.name)
    bins = given_bins(env, edges, grid, horizon=H)
    known_range = reward_bounds(reward_range)
    if known_range is not None:
        return replace(bins, reward_range=known_range, clips=False)
    return replace(bins, reward_range=_observed_range(played, margin))


def _number_for(what: str, number: int | Mapping[str, int], name: str) -> int:
    """The number of bins or values of a dimension, from one number for all or from a table by name."""
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
        decimals = int(np.ceil(-np.log10(width / RESOLUTION)))
        cuts = np.round(cuts, max(0, decimals))
    cuts = np.unique(cuts)
    within = (distinct[0] < cuts) & (cuts <= distinct[-1])
    return tuple(cuts[within].tolist())


def _observed_range(played: Sequence[Episode], margin: float) -> tuple[float, float]:
    rewards = np.concatenate([episode.rewards for episode in played])
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
