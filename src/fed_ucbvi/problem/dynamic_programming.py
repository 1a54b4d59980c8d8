"""Backward induction on support-compressed tables.

Tables of a single MDP: ``successors`` and ``probabilities`` ``(steps, S, A, K)``, ``rewards`` ``(steps, S, A)``;
the step axis has length one where the table is stationary. Policies have one of the forms of
:mod:`fed_ucbvi.problem.policies`.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray, IndexArray, PolicyArray

ScalarT = TypeVar("ScalarT", bound=np.generic)


def optimal_values(
    successors: IndexArray, probabilities: FloatArray, rewards: FloatArray, horizon: int
) -> tuple[FloatArray, FloatArray, IndexArray]:
    """``Q*``, ``V*`` and a greedy policy (lowest action among equals) by ``eq:optimal_bellman_equations``."""
    _, S, A, K = successors.shape
    Q = np.zeros((horizon, S, A))
    V = np.zeros((horizon + 1, S))
    policy = np.zeros((horizon, S), dtype=np.int64)
    to = at_every_step(successors, horizon)
    P = at_every_step(probabilities, horizon)
    r = at_every_step(rewards, horizon)
    for h in range(horizon - 1, -1, -1):
        terms = P[h] * V[h + 1][to[h]]
        expected = np.zeros((S, A))
        for k in range(K):  # in this order, as compiled code adds
            expected += terms[:, :, k]
        np.add(r[h], expected, out=Q[h])
        Q[h].argmax(axis=1, out=policy[h])
        Q[h].max(axis=1, out=V[h])
    return Q, V, policy.astype(np.int32)


def policy_values(
    successors: IndexArray,
    probabilities: FloatArray,
    rewards: FloatArray,
    policy: PolicyArray,
) -> FloatArray:
    """``V^pi`` of shape ``(H+1, S)`` by ``eq:bellman_equations``; for several actions, the mean of their values."""
    _, S, A, K = successors.shape
    horizon = policy.shape[0]
    played = policy if policy.ndim == 3 else policy[..., None] == np.arange(A)
    V = np.zeros((horizon + 1, S))
    to = at_every_step(successors, horizon)
    P = at_every_step(probabilities, horizon)
    r = at_every_step(rewards, horizon)
    for h in range(horizon - 1, -1, -1):
        pairs = np.nonzero(played[h])
        states, _ = pairs
        terms = P[h][pairs] * V[h + 1][to[h][pairs]]
        values = r[h][pairs]
        for k in range(K):  # in this order, as compiled code adds
            values += terms[:, k]
        total = np.bincount(states, values * played[h][pairs], S)
        V[h] = total / played[h].sum(axis=1)
    return V


def at_every_step(table: npt.NDArray[ScalarT], horizon: int) -> npt.NDArray[ScalarT]:
    """A view of a table ``(steps, ...)`` with one entry for each of the H steps."""
    return np.broadcast_to(table, (horizon, *table.shape[1:]))
