"""Play a recommended policy, episode by episode, in the environment where it was learnt."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.algorithms.return_bounds import Interval, add_returns, interval_of, new_histogram
from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
from fed_ucbvi.core.numbers import none_for_nan
from fed_ucbvi.environments import make_environment, recorded_options
from fed_ucbvi.environments.gymnasium_making import kwargs_of_agents, make_gymnasium
from fed_ucbvi.environments.gymnasium_tables import from_gymnasium
from fed_ucbvi.results.policy import LearntPolicy

if TYPE_CHECKING:
    import gymnasium


DELTA = 0.05
"""The probability with which an interval may miss."""


@dataclass(frozen=True)
class PlayedEpisodes:
    """The episodes that were played; returns and values are in the environment's own units.

    Attributes:
        returns: each episode's sum of rewards.
        lengths: number of steps of each; fewer than H where it terminated.
        own_value: value of the policy in the MDP of the agent that played; NaN where its table is unknown.
    """

    policy: LearntPolicy
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    own_value: float

    @property
    def interval(self) -> Interval:
        """Interval of the policy's value in the environment that was played in, without further assumptions."""
        units = self.policy.units
        H = self.policy.horizon
        histogram = new_histogram()
        add_returns(histogram, units.rescaled_return(np.array(self.returns), H), float(H))
        rescaled = interval_of(histogram, float(H), DELTA)
        return rescaled._replace(
            lower=units.original_return(rescaled.lower, H),
            upper=units.original_return(rescaled.upper, H),
            mean=units.original_return(rescaled.mean, H),
        )

    def summary(self) -> dict[str, Any]:
        """The figures, ready for JSON: mean return, its standard error, an interval, and values."""
        n = len(self.lengths)
        returns = np.array(self.returns)
        interval = self.interval
        return {
            "episodes": n,
            "delta": DELTA,
            "horizon": self.policy.horizon,
            "mean_length": float(np.mean(self.lengths)),
            "returns": list(self.returns),
            "worth_at_least": interval.lower,
            "worth_at_most": interval.upper,
            "mean_return": float(returns.mean()),
            "standard_error": float(returns.std(ddof=1) / math.sqrt(n)) if n > 1 else None,
            "value_of_the_run": none_for_nan(self.policy.value),
            "value_for_the_agent": none_for_nan(self.own_value),
        }


def play(
    policy: LearntPolicy,
    *,
    agent: int = 0,
    episodes: int = 10,
    seed: int = 0,
    environment: str | None = None,
    render_mode: str | None = None,
    show: Callable[[Any], None] | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> PlayedEpisodes:
    """Play ``policy`` in the environment of one agent.

    Args:
        policy: from a run (``LearntPolicy.of(run)``) or a file (``load_policy``).
        agent: whose environment, from 0.
        episodes: number of episodes.
        seed: of the environment and, where the policy draws its actions, of these draws.
        environment: its name, if the policy does not contain it or if it is code (``module:attribute``): code is not
            run because a file names it.
        render_mode: Gymnasium's, as ``ansi`` or ``rgb_array``.
        show: is called with every frame, the first of an episode included.
        report: is called with the number of episodes played and that of all.
    """
    n = check_positive_integer("episodes", episodes)
    root = check_integer("seed", seed)
    name, options = recorded_options(policy.environment, environment)
    env = _environment_of(policy, name, options, agent, render_mode)
    returns = []
    lengths = []
    try:
        for episode in range(n):
            state, _ = env.reset(seed=root if episode == 0 else None)
            total = 0.0
            step = 0
            over = False
            _render(env, show)
            while not over and step < policy.horizon:
                action = policy.act(step, int(state), seed=root, agent=agent, episode=episode)
                state, reward, terminated, truncated, _ = env.step(action)
                total += float(reward)
                step += 1
                over = terminated or truncated
                _render(env, show)
            returns.append(total)
            lengths.append(step)
            report(episode + 1, n)
    finally:
        env.close()
    return PlayedEpisodes(
        policy=policy,
        returns=tuple(returns),
        lengths=tuple(lengths),
        own_value=_own_value(policy, name, options, agent),
    )


def _own_value(policy: LearntPolicy, name: str, options: Mapping[str, Any], agent: int) -> float:
    """Value of the policy in the agent's MDP; NaN if the environment has no table."""
    try:
        mdp = make_environment(name, **options).agent(agent)
    except InputError:
        return math.nan
    rescaled = float(mdp.initial @ mdp.evaluate(policy.table)[0])
    return policy.units.original_return(rescaled, policy.horizon)


def _environment_of(
    policy: LearntPolicy,
    name: str,
    options: Mapping[str, Any],
    agent: int,
    render_mode: str | None,
) -> gymnasium.Env[Any, Any]:
    """One agent's Gymnasium environment, from the name and the options that a run records."""
    description = policy.environment
    horizon = policy.horizon
    if name != from_gymnasium.__name__:
        from fed_ucbvi.environments.gymnasium_environments import TabularEnv

        return TabularEnv(name, agent=agent, render_mode=render_mode, **options)
    agents = check_positive_integer("agents", description.get("agents", 1))
    i = check_integer("agent", agent, at_most=agents - 1)
    each = kwargs_of_agents(
        agents,
        description.get("kwargs"),
        description.get("vary"),
        description.get("seed", 0),
    )
    return make_gymnasium(str(options["id"]), each[i], max_episode_steps=horizon, render_mode=render_mode)


def _render(env: gymnasium.Env[Any, Any], show: Callable[[Any], None] | None) -> None:
    if env.render_mode is None:
        return
    try:
        frame = env.render()
    except Exception as error:
        raise InputError(f"the environment cannot be rendered as {env.render_mode}: {error}") from error
    if show is not None:
        show(frame)
