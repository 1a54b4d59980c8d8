"""Advice before a run: an algorithm, how it counts visits, bins and episodes, each with its reason.

Every statement follows from the sizes or tables of the problem, or was measured: in a few episodes that are played
here, or in the experiments of docs/advise.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fed_ucbvi.analysis.dependence import FALSE_ALARMS, check_step_dependence
from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.core.numbers import byte_count
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import FederationLike, as_federation

if TYPE_CHECKING:
    import gymnasium

VISITS_BY_STEP = 40
VISITS_STATIONARY = 100
"""Mean visits of all agents to a pair for which episodes are computed; docs/advise.md has the measurements."""
ENOUGH_BY_STEP = 28
ENOUGH_STATIONARY = 67
"""Most visits that were needed for 95 % of the best value on the environments of docs/advise.md but SixArms."""
BY_STEP = "Visits are counted by step: next states and rewards may depend on it, unless you say no (--stationary)."
CLAIMED = "Visits are counted over all steps together, because you say that steps do not matter (stationary)."
USUAL_BINS = 8
MIN_BINS = 3
MEMORY = 4 << 30
"""Most bytes of an agent's tables."""
KL = "fed-kl-ucbvi"
FEDQ = "fedq-bernstein"


@dataclass(frozen=True)
class Problem:
    """Sizes of the problem, and how visits are counted.

    Attributes:
        states: number of states, S.
        actions: number of actions, A.
        horizon: number of steps, H.
        agents: number of agents, M.
        next_states: most next states of a pair: by the tables, or seen in episodes; S where only sizes are known.
        stationary: True if kernel and rewards are the same at every step, by the tables or by the owner's claim.
        reasons: why visits are counted in this way, and where the number of bins comes from.
        bins: number of bins per continuous dimension; None if there are no such dimensions.
        warning: evidence against the owner's claim; None if there is none.
    """

    states: int
    actions: int
    horizon: int
    agents: int
    next_states: int
    stationary: bool
    reasons: tuple[str, ...]
    bins: int | None = None
    warning: str | None = None

    @property
    def cells(self) -> int:
        """Number of cells in which visits are counted."""
        pairs = self.states * self.actions
        return pairs if self.stationary else pairs * self.horizon


@dataclass(frozen=True)
class Advice:
    """Recommended algorithm, options and episodes.

    Attributes:
        algorithm: its name.
        options: its parameters that differ from their defaults.
        episodes: for each agent.
        memory: bytes of one agent's tables.
        problem: the problem that was described or tried, with a number of bins.
        reasons: one or two sentences for each recommendation.
    """

    algorithm: str
    options: Mapping[str, object]
    episodes: int
    memory: int
    problem: Problem
    reasons: tuple[str, ...]


def choose_parameters(
    problem: FederationLike | gymnasium.Env[Any, Any] | None = None,
    *,
    states: int | None = None,
    actions: int | None = None,
    horizon: int | None = None,
    agents: int = 20,
    episodes: int | None = None,
    stationary: bool = False,
    sample_episodes: int = 30,
    seed: int = 0,
) -> Advice:
    """Recommend an algorithm, its options, a number of bins and a number of episodes.

    Args:
        problem: a federation (an environment's name, an MDP or a list of MDPs will do), or one agent's Gymnasium
            environment, in which a few episodes with random actions are played.
        states: S, if there is no ``problem``.
        actions: A, if there is no ``problem``.
        horizon: H, if there is no ``problem``; by default the ``max_episode_steps`` of a Gymnasium environment.
        agents: M; a federation has its own.
        episodes: T, if the number of episodes that each agent can play is given.
        stationary: True if you know that next states and rewards do not depend on the step. In a Gymnasium
            environment the claim is tested; tables need no claim.
        sample_episodes: number of episodes to play in a Gymnasium environment.
        seed: of the episodes and of the test.

    >>> advice = choose_parameters(states=21, actions=6, horizon=30, agents=5)
    >>> advice.algorithm, dict(advice.options), advice.episodes
    ('fed-kl-ucbvi', {}, 1008)
    """
    M = check_positive_integer("agents", agents)
    T = None if episodes is None else check_positive_integer("episodes", episodes)
    is_gymnasium = hasattr(problem, "observation_space")
    has_sizes = states is not None or actions is not None
    has_horizon = horizon is not None and not is_gymnasium
    if problem is not None and (has_sizes or has_horizon):
        raise InputError("an environment brings its sizes along; leave out states, actions and horizon.")
    if problem is None:
        known = _described(states, actions, horizon, M, stationary=stationary)
    elif is_gymnasium:
        known = _tried(problem, horizon, M, T, sample_episodes, seed, stationary=stationary)
    else:
        known = _tabulated(problem, stationary=stationary)  # type: ignore[arg-type]
    choice = _choose_algorithm(known)
    if choice.algorithm == FEDQ:
        known = replace(known, stationary=False, reasons=known.reasons[1:])
    needed, why_episodes = _choose_episodes(known, T)
    return Advice(
        algorithm=choice.algorithm,
        options={"stationary": True} if known.stationary else {},
        episodes=T or needed,
        memory=choice.memory,
        problem=known,
        reasons=(choice.reason, *known.reasons, why_episodes),
    )


# ---------------------------------------------------------------------------------------------------- the problem
def _described(
    states: int | None,
    actions: int | None,
    horizon: int | None,
    agents: int,
    *,
    stationary: bool,
) -> Problem:
    """A problem of which only S, A and H are known."""
    if states is None or actions is None or horizon is None:
        raise InputError("advice needs states, actions and horizon, or a federation, or an environment to try.")
    S = check_positive_integer("states", states)
    return Problem(
        states=S,
        actions=check_positive_integer("actions", actions),
        horizon=check_positive_integer("horizon", horizon),
        agents=agents,
        next_states=S,
        stationary=stationary,
        reasons=(CLAIMED if stationary else BY_STEP,),
    )


def _tabulated(problem: FederationLike, *, stationary: bool) -> Problem:
    """A problem whose tables are known; they decide whether anything depends on the step."""
    federation = as_federation(problem)
    same = federation.common.kernel.steps == 1 and federation.rewards.shape[1] == 1
    if stationary and not same:
        raise InputError("stationary=True contradicts the tables of this environment, which depend on the step.")
    reason = "Visits are counted by step, because the tables depend on it."
    if same:
        reason = "Visits are counted over all steps together, because the tables are the same at every step."
    return Problem(
        states=federation.states,
        actions=federation.actions,
        horizon=federation.horizon,
        agents=federation.agents,
        next_states=federation.common.kernel.width,
        stationary=same,
        reasons=(reason,),
    )


def _tried(
    env: Any,
    horizon: int | None,
    agents: int,
    episodes: int | None,
    sample: int,
    seed: int,
    *,
    stationary: bool,
) -> Problem:
    """A Gymnasium environment, after a few episodes with random actions in bins."""
    from fed_ucbvi.environments.bin_making import learn_bins
    from fed_ucbvi.environments.gymnasium_making import horizon_of_spec

    H = horizon_of_spec(env, "the environment", horizon)
    reasons = [CLAIMED if stationary else BY_STEP]
    most = _most_bins(env, H, agents, episodes, stationary=stationary)
    if most is not None:
        limit = "no number of episodes is given"
        if episodes is not None:
            limit = f"each agent has {episodes:,} episodes"
        reasons.append(f"{most} bins for each continuous dimension, because {limit}; the least is {MIN_BINS}.")
    bins = learn_bins(
        env,
        episodes=sample,
        horizon=H,
        seed=seed,
        bins_per_dimension=most or USUAL_BINS,
        actions_per_dimension=MIN_BINS,
        reward_range=(0, 1),
    )
    steps = _episodes_in(env, bins, sample, seed)
    moves = np.unique(steps[:, 1:4], axis=0)  # state, action, next state
    _, next_states_of_pair = np.unique(moves[:, :2], axis=0, return_counts=True)
    return Problem(
        states=bins.states + 1,  # with the absorbing state in which episodes end early
        actions=bins.number_of_actions,
        horizon=H,
        agents=agents,
        next_states=int(next_states_of_pair.max()),
        stationary=stationary,
        reasons=tuple(reasons),
        bins=most,
        warning=_contradiction(steps, H, seed) if stationary else None,
    )


def _most_bins(env: Any, horizon: int, agents: int, episodes: int | None, *, stationary: bool) -> int | None:
    """Bins per continuous dimension that so many episodes can fill; None if no dimension is continuous."""
    from fed_ucbvi.environments.finite_spaces import dimensions_of

    observed = dimensions_of(env.observation_space)
    continuous = sum(not dimension.count for dimension in observed)
    if not continuous:
        return None
    if episodes is None:
        return USUAL_BINS
    finite_pairs = math.prod(dimension.count for dimension in observed if dimension.count)
    finite_pairs *= math.prod(dimension.count or MIN_BINS for dimension in dimensions_of(env.action_space))
    if stationary:
        pairs = episodes * agents * horizon / VISITS_STATIONARY
    else:
        pairs = episodes * agents / VISITS_BY_STEP
    return max(MIN_BINS, int((pairs / finite_pairs) ** (1 / continuous) + 1e-9))


def _episodes_in(env: Any, bins: Any, episodes: int, seed: int) -> FloatArray:
    """Rows of (step, state, action, next state, reward) with random actions; episodes end in the absorbing state."""
    from fed_ucbvi.environments.bin_making import make_finite, random_episodes

    rows = []
    for episode in random_episodes(make_finite(env, bins), episodes, bins.horizon, seed):
        states = list(episode.observations)
        if episode.terminated:
            states[-1] = bins.states
        for h, action in enumerate(episode.actions):
            rows.append((h, states[h], action, states[h + 1], episode.rewards[h]))
    return np.array(rows)


def _contradiction(steps: FloatArray, horizon: int, seed: int) -> str | None:
    """A warning, if episodes contradict the claim that steps do not matter."""
    test = check_step_dependence(steps, horizon, seed=seed)
    if min(test) > FALSE_ALARMS / 2:
        return None
    return (
        f"Steps matter in the episodes that were played (p = {test.kernel:.3g} for next states, {test.rewards:.3g} "
        f"for rewards; found by mistake with a probability of about {FALSE_ALARMS:g}). Count by step."
    )


# --------------------------------------------------------------------------------------------- the recommendations
class _Choice(NamedTuple):
    """The algorithm, the bytes of an agent's tables, and the reason."""

    algorithm: str
    memory: int
    reason: str


def _choose_algorithm(known: Problem) -> _Choice:
    memory_fedq = 16 * known.states * known.actions * known.horizon
    memory_kl = 16 * known.cells * known.next_states
    size = f"for each agent, with {known.next_states:,} next states of a pair"
    if memory_kl <= MEMORY:
        reason = f"{KL} has a proof and no parameters to tune. It keeps {byte_count(memory_kl)} of counts {size}."
        return _Choice(KL, memory_kl, reason)
    reason = (
        f"{KL} keeps {byte_count(memory_kl)} of transition counts {size}, more than {byte_count(MEMORY)}. "
        f"{FEDQ} keeps {byte_count(memory_fedq)}, by step."
    )
    return _Choice(FEDQ, memory_fedq, reason)


def _choose_episodes(known: Problem, episodes: int | None) -> tuple[int, str]:
    """The episodes of each agent that give the wanted visits, and the reason."""
    visits = VISITS_STATIONARY if known.stationary else VISITS_BY_STEP
    enough = ENOUGH_STATIONARY if known.stationary else ENOUGH_BY_STEP
    needed = math.ceil(visits * known.cells / (known.agents * known.horizon))
    cell = "(state, action)" if known.stationary else "(step, state, action)"
    reason = (
        f"With {needed:,} episodes of each agent there are {visits} visits to each {cell} on average. In "
        f"docs/advise.md {enough} were enough for 95 % of the best value with {KL}, but not on SixArms."
    )
    if episodes is not None and episodes < needed:
        reason += f" With {episodes:,} episodes there are {visits * episodes / needed:.3g}."
    return needed, reason
