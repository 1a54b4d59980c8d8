"""Play a recommended policy, episode by episode, in the environment where it was learnt."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.algorithms.return_bounds import Interval, add_returns, interval_of, new_histogram
from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
from fed_ucbvi.core.types import FloatArray
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
    """The episodes that were played.

    Attributes:
        original_returns: each episode's sum of rewards, in the environment's own units.
        lengths: how many steps each had; fewer than H where it terminated.
        own_value: what the policy is worth in the MDP of the agent that played; NaN where its table is unknown.
    """

    policy: LearntPolicy
    original_returns: tuple[float, ...]
    lengths: tuple[int, ...]
    own_value: float

    @property
    def returns(self) -> FloatArray:
        """The returns rescaled to our units, in which every step of the H pays in [0, 1]."""
        policy = self.policy
        return np.array([policy.units.rescaled_return(one, policy.horizon) for one in self.original_returns])

    @property
    def interval(self) -> Interval:
        """What the policy is worth in the environment that was played in, in our units; nothing else is assumed."""
        histogram, H = new_histogram(), float(self.policy.horizon)
        add_returns(histogram, self.returns, H)
        return interval_of(histogram, H, DELTA)

    def summary(self) -> dict[str, Any]:
        """The figures, ready for JSON: means, their standard errors, intervals, and what the policy is worth.

        Returns are in the environment's own units. Other figures are in these (``original``) and in ours
        (``rescaled``).
        """
        policy, n = self.policy, len(self.lengths)

        def figures(returns: FloatArray, convert: Callable[[float], float]) -> dict[str, Any]:
            values = {"value_of_the_run": policy.value, "value_for_the_agent": self.own_value}
            return {
                "worth_at_least": convert(self.interval.lower),
                "worth_at_most": convert(self.interval.upper),
                "mean_return": float(returns.mean()),
                "standard_error": float(returns.std(ddof=1) / math.sqrt(n)) if n > 1 else None,
                **{name: None if math.isnan(value) else convert(value) for name, value in values.items()},
            }

        return {
            "episodes": n,
            "delta": DELTA,
            "horizon": policy.horizon,
            "mean_length": float(np.mean(self.lengths)),
            "returns": list(self.original_returns),
            "rescaled": figures(self.returns, float),
            "original": figures(
                np.array(self.original_returns), lambda value: policy.units.original_return(value, policy.horizon)
            ),
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
        episodes: how many.
        seed: of the environment.
        environment: its name, if the policy does not contain it or if it is code (``module:attribute``): code is not
            run because a file names it.
        render_mode: Gymnasium's, as ``ansi`` or ``rgb_array``.
        show: is called with every frame, the first of an episode included.
        report: is called with the number of episodes played and that of all.
    """
    n, root = check_positive_integer("episodes", episodes), check_integer("seed", seed)
    name, options = recorded_options(policy.environment, environment)
    env = _environment_of(policy, name, options, agent, render_mode)
    returns, lengths = [], []
    try:
        for episode in range(n):
            state, _ = env.reset(seed=root if episode == 0 else None)
            total, step, over = 0.0, 0, False
            _render(env, show)
            while not over and step < policy.horizon:
                state, reward, terminated, truncated, _ = env.step(policy.act(step, int(state)))
                total, step, over = total + float(reward), step + 1, terminated or truncated
                _render(env, show)
            returns.append(total)
            lengths.append(step)
            report(episode + 1, n)
    finally:
        env.close()
    try:
        mdp = make_environment(name, **options).agent(agent)
    except InputError:  # it has no table
        own_value = math.nan
    else:
        own_value = float(mdp.initial @ mdp.evaluate(policy.table)[0])
    return PlayedEpisodes(policy, tuple(returns), tuple(lengths), own_value)


def _environment_of(
    policy: LearntPolicy, name: str, options: Mapping[str, Any], agent: int, render_mode: str | None
) -> gymnasium.Env[Any, Any]:
    """One agent's environment, as Gymnasium has it, from the name and the options that a run keeps."""
    description, horizon = policy.environment, policy.horizon
    agents = check_positive_integer("agents", description.get("agents", 1))
    i = check_integer("agent", agent, at_most=agents - 1)
    if name != from_gymnasium.__name__:
        from fed_ucbvi.environments.gymnasium_environments import TabularEnv

        return TabularEnv(name, agent=i, render_mode=render_mode, **options)
    each = kwargs_of_agents(agents, description.get("kwargs"), description.get("vary"), description.get("seed", 0))
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
