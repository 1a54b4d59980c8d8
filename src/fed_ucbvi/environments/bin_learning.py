"""Bins learnt once, from a few episodes with random actions: quantiles of observations, and the range of rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fed_ucbvi.core.errors import InputError, check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.bins import Bins, Edges
from fed_ucbvi.environments.gymnasium_making import environment_failure, horizon_of_spec, reward_bounds
from fed_ucbvi.environments.making_finite import given_bins

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium

MARGIN = 0.25
"""By how much of the observed width the range of rewards is widened on either side."""
RESOLUTION = 1000
"""Edges are rounded to this part of the observed width or finer: they need not be observations."""


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
        try:
            yield _episode(env, horizon, seed if number == 0 else None)
        except (KeyboardInterrupt, InputError):
            raise
        except Exception as error:
            raise environment_failure(0, "a random episode", error) from error


def _episode(env: gymnasium.Env[Any, Any], horizon: int, seed: int | None) -> Episode:
    episode = Episode([env.reset(seed=seed)[0]], [], [], terminated=False)
    for _ in range(horizon):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, _ = env.step(action)
        episode.observations.append(observation)
        episode.actions.append(action)
        episode.rewards.append(float(reward))
        if terminated or truncated:
            return episode._replace(terminated=bool(terminated))
    return episode


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
        reward_range: the true range, if you know it; then none is in the bins, and a reward outside it is an error.
        margin: see above.
        seed: of the environment and of the actions.
    """
    from fed_ucbvi.environments.finite_spaces import dimensions_of, numbers_in

    H = horizon_of_spec(env, "the environment", horizon)
    check_number("margin", margin, at_least=0)
    played = list(random_episodes(env, episodes, H, seed))
    seen = np.array([numbers_in(env.observation_space, one) for episode in played for one in episode.observations])
    edges = {}
    for column, dimension in enumerate(dimensions_of(env.observation_space)):
        if not dimension.count:
            edges[dimension.name] = quantile_edges(
                dimension.name, seen[:, column], _wanted("bins", bins_per_dimension, dimension.name)
            )
    grid = {
        one.name: _wanted("values", actions_per_dimension, one.name)
        for one in dimensions_of(env.action_space)
        if not one.count
    }
    bins = given_bins(env, edges, grid, horizon=H)
    if reward_bounds(reward_range) is not None:
        return bins
    return Bins(bins.observations, bins.actions, H, _observed_range(played, margin))


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
    return Edges(name, tuple(float(cut) for cut in cuts if distinct[0] < cut <= distinct[-1])).cuts


def _observed_range(played: Sequence[Episode], margin: float) -> tuple[float, float]:
    rewards = np.array([reward for episode in played for reward in episode.rewards])
    if not np.isfinite(rewards).all():
        raise InputError("some reward is not a finite number.")
    low, high = float(rewards.min()), float(rewards.max())
    if any(episode.terminated for episode in played):
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        raise InputError(
            f"all rewards of the {len(played)} episodes were {low:g}, which does not show their range; play more "
            "episodes, or give reward_range=(low, high)."
        )
    spare = margin * (high - low)
    return low - spare, high + spare
