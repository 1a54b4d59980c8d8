"""Small random problems with known dynamics, for comparison with brute force."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.engine.hindsight import RecordedEpisodes
from fed_ucbvi.problem.dynamics import Dynamics
from problems import random_rows


def random_dynamics(
    rng: np.random.Generator,
    *,
    horizon: int = 3,
    states: int = 3,
    actions: int = 2,
    laws: int = 3,
    outcomes: int = 2,
    known_rewards: bool = True,
) -> Dynamics:
    """Laws shared across steps, states and actions at random; next states and rewards drawn at random."""
    cells = horizon * states * actions
    law_of = rng.integers(laws, size=cells)
    law_of[rng.permutation(cells)[:laws]] = np.arange(laws)
    next_state = rng.integers(states, size=(horizon, states, actions, outcomes))
    reward = rng.random((horizon, states, actions, outcomes)) * (rng.random(next_state.shape) < 0.7)
    return Dynamics(
        laws=laws,
        outcomes=outcomes,
        law_of=law_of.reshape(horizon, states, actions),
        next_state=next_state,
        reward=reward if known_rewards else None,
        horizon=horizon,
        states=states,
        actions=actions,
    )


def random_laws(rng: np.random.Generator, agents: int, dynamics: Dynamics, *, zeros: float = 0.0) -> FloatArray:
    """Laws of each agent, ``(M, G, W)``."""
    return random_rows(rng, (agents, dynamics.laws, dynamics.outcomes), zeros=zeros)


def exogenous_dynamics(rng: np.random.Generator, *, horizon: int = 3, own: int = 2, market: int = 2) -> Dynamics:
    """States ``own * market + m``: actions move the first part as they like, and laws depend on m and the step."""
    states = own * market
    move = rng.integers(own, size=(horizon, states, 2, market))
    numbers = rng.permutation(horizon * market).reshape(horizon, market)
    return Dynamics(
        laws=horizon * market,
        outcomes=market,
        law_of=lambda h, s, a: numbers[h, s % market],
        next_state=lambda h, s, a, w: move[h, s, a, w] * market + w,
        reward=rng.random((horizon, states, 2, market)),
        horizon=horizon,
        states=states,
        actions=2,
    )


def lived_episodes(
    rng: np.random.Generator, dynamics: Dynamics, law: FloatArray, *, first: int, episodes: int
) -> RecordedEpisodes:
    """Outcomes of episodes under exogenous dynamics and the laws ``(G, W)`` of one agent."""
    outcomes: IndexArray = np.zeros((episodes, dynamics.horizon), dtype=np.int32)
    state: IndexArray = np.full(episodes, first, dtype=np.int32)
    for h in range(dynamics.horizon):
        cumulative = law[dynamics.laws_at(h)[state, 0]].cumsum(axis=1)
        drawn = (rng.random((episodes, 1)) >= cumulative).sum(axis=1)
        outcomes[:, h] = np.minimum(drawn, dynamics.outcomes - 1)
        state = dynamics.next_states_at(h)[state, 0, outcomes[:, h]]
    return RecordedEpisodes(np.full(episodes, first, dtype=np.int32), outcomes)


def plan_of_means(dynamics: Dynamics, counts: CountArray) -> IndexArray:
    """The best policy if laws are what was seen, and uniform where nothing was."""
    visits = counts.sum(axis=1, keepdims=True)
    law = np.where(visits > 0, counts / np.maximum(visits, 1), 1 / dynamics.outcomes)
    policy: IndexArray = np.zeros((dynamics.horizon, dynamics.states), dtype=np.int32)
    value = np.zeros(dynamics.states)
    for h in reversed(range(dynamics.horizon)):
        worth = dynamics.rewards_at(h) + value[dynamics.next_states_at(h)]
        Q = (law[dynamics.laws_at(h)] * worth).sum(axis=2)
        policy[h] = Q.argmax(axis=1)
        value = Q.max(axis=1)
    return policy
