"""Compiled backward induction and forward occupancy on support-compressed tables.

Tables of a single MDP: ``successors`` and ``probabilities`` ``(steps, S, A, K)``, ``rewards`` ``(steps, S, A)``;
the step axis has length one where the table is stationary.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import FloatArray, IndexArray


@compiled
def optimal_values(
    successors: IndexArray, probabilities: FloatArray, rewards: FloatArray, horizon: int
) -> tuple[FloatArray, FloatArray, IndexArray]:
    """``Q*``, ``V*`` and a greedy policy (lowest action among equals) by ``eq:optimal_bellman_equations``."""
    kernel_steps, S, A, K = successors.shape
    reward_steps = rewards.shape[0]
    Q = np.zeros((horizon, S, A))
    V = np.zeros((horizon + 1, S))
    policy = np.zeros((horizon, S), dtype=np.int32)
    for h in range(horizon - 1, -1, -1):
        hk = h if kernel_steps > 1 else 0
        hr = h if reward_steps > 1 else 0
        for s in range(S):
            best = 0
            for a in range(A):
                expected = 0.0
                for k in range(K):
                    expected += probabilities[hk, s, a, k] * V[h + 1, successors[hk, s, a, k]]
                Q[h, s, a] = rewards[hr, s, a] + expected
                if Q[h, s, a] > Q[h, s, best]:
                    best = a
            V[h, s] = Q[h, s, best]
            policy[h, s] = best
    return Q, V, policy


@compiled
def policy_values(
    successors: IndexArray, probabilities: FloatArray, rewards: FloatArray, policy: IndexArray
) -> FloatArray:
    """``V^pi`` of shape ``(H+1, S)`` by ``eq:bellman_equations``."""
    kernel_steps, S, _, K = successors.shape
    reward_steps = rewards.shape[0]
    horizon = policy.shape[0]
    V = np.zeros((horizon + 1, S))
    for h in range(horizon - 1, -1, -1):
        hk = h if kernel_steps > 1 else 0
        hr = h if reward_steps > 1 else 0
        for s in range(S):
            a = policy[h, s]
            value = rewards[hr, s, a]
            for k in range(K):
                value += probabilities[hk, s, a, k] * V[h + 1, successors[hk, s, a, k]]
            V[h, s] = value
    return V


@compiled
def state_occupancy(
    successors: IndexArray, probabilities: FloatArray, initial: FloatArray, policy: IndexArray
) -> FloatArray:
    """``d_h(s)``, the probability of being in ``s`` at step ``h`` under ``policy``; shape ``(H, S)``."""
    kernel_steps, S, _, K = successors.shape
    horizon = policy.shape[0]
    d = np.zeros((horizon, S))
    d[0] = initial
    for h in range(horizon - 1):
        hk = h if kernel_steps > 1 else 0
        for s in range(S):
            if d[h, s] > 0.0:
                a = policy[h, s]
                for k in range(K):
                    d[h + 1, successors[hk, s, a, k]] += d[h, s] * probabilities[hk, s, a, k]
    return d
