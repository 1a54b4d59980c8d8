"""Compiled backward induction and forward occupancy on support-compressed tables.

Tables of a single MDP: ``successors`` and ``probabilities`` ``(steps, S, A, K)``, ``rewards`` ``(steps, S, A)``;
the step axis has length one where the table is stationary. A policy is ``(H, S)``, one action for each step and
state, or a mask ``(H, S, A)`` that marks a set of actions, of which one is drawn uniformly at every visit.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.types import FloatArray, IndexArray, PolicyArray


@inner
def may_play(policy: PolicyArray, h: int, s: int, a: int) -> bool:
    """Whether ``policy``, in either form, ever takes action a at (h,s); the form is known when compiling."""
    if policy.ndim == 2:
        return bool(policy[h, s] == a)
    return bool(policy[h, s, a])


@compiled
def tied(policy: PolicyArray, h: int, s: int, actions: int) -> int:
    """How many actions the policy's set at (h,s) has."""
    count = 0
    for a in range(actions):
        count += may_play(policy, h, s, a)
    return count


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
    successors: IndexArray, probabilities: FloatArray, rewards: FloatArray, policy: PolicyArray
) -> FloatArray:
    """``V^pi`` of shape ``(H+1, S)`` by ``eq:bellman_equations``; for a set of actions, the mean of their values."""
    kernel_steps, S, A, K = successors.shape
    reward_steps = rewards.shape[0]
    horizon = policy.shape[0]
    V = np.zeros((horizon + 1, S))
    for h in range(horizon - 1, -1, -1):
        hk = h if kernel_steps > 1 else 0
        hr = h if reward_steps > 1 else 0
        for s in range(S):
            total, ties = 0.0, 0
            for a in range(A):
                if may_play(policy, h, s, a):
                    value = rewards[hr, s, a]
                    for k in range(K):
                        value += probabilities[hk, s, a, k] * V[h + 1, successors[hk, s, a, k]]
                    total += value
                    ties += 1
            V[h, s] = total / ties
    return V


@compiled
def state_occupancy(
    successors: IndexArray, probabilities: FloatArray, initial: FloatArray, policy: PolicyArray
) -> FloatArray:
    """``d_h(s)``, the probability of being in ``s`` at step ``h`` under ``policy``; shape ``(H, S)``."""
    kernel_steps, S, A, K = successors.shape
    horizon = policy.shape[0]
    d = np.zeros((horizon, S))
    for s in range(S):  # not d[0] = initial, which takes Numba seconds to compile
        d[0, s] = initial[s]
    for h in range(horizon - 1):
        hk = h if kernel_steps > 1 else 0
        for s in range(S):
            if d[h, s] > 0.0:
                share = d[h, s] / tied(policy, h, s, A)
                for a in range(A):
                    if may_play(policy, h, s, a):
                        for k in range(K):
                            d[h + 1, successors[hk, s, a, k]] += share * probabilities[hk, s, a, k]
    return d
