"""The tables of all agents with the agent axis last, so that loops over agents read memory in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray
from fed_ucbvi.problem.policies import ACTIONS, PROBABILITIES, SETS, form_of


class AgentTables(NamedTuple):
    """The MDPs of m agents; unlike everywhere else the agent is the last axis.

    ``successors (steps, S, A, K)``, ``probabilities (steps, S, A, K, m)``, ``rewards (steps, S, A, m)``,
    ``initial (S, m)``; step axes have length one where a table is stationary. ``reachable (H, S)`` marks where some
    agent can be under some policy. Entries ``begin[j]`` to ``begin[j+1]`` of ``before``, with ``j = h S + s`` for
    step h of ``successors``, are the states from which these lead to s.
    """

    successors: IndexArray
    probabilities: FloatArray
    rewards: FloatArray
    initial: FloatArray
    reachable: MaskArray
    begin: CountArray
    before: CountArray

    @classmethod
    def of(
        cls,
        successors: IndexArray,
        probabilities: FloatArray,
        rewards: FloatArray,
        initial: FloatArray,
        reachable: MaskArray,
    ) -> AgentTables:
        steps, S = successors.shape[:2]
        # Every possible move as one number, (h S + next state) S + state, sorted by step and next state.
        step_offset = S * np.arange(steps)[:, None, None]
        next_states = successors.reshape((steps, S, -1)) + step_offset
        moves = np.unique(next_states * S + np.arange(S)[:, None])
        begin = np.searchsorted(moves, S * np.arange(steps * S + 1))
        return cls(
            successors=successors,
            probabilities=probabilities,
            rewards=rewards,
            initial=initial,
            reachable=reachable,
            begin=begin,
            before=moves % S,
        )


def reachable_states(successors: IndexArray, possible: MaskArray, starts: MaskArray, horizon: int) -> MaskArray:
    """``(H, S)``: where an episode from ``starts (S,)`` can be; ``possible (steps, S, A, K)`` are the successors."""
    reachable = np.zeros((horizon, len(starts)), dtype=np.bool_)
    reachable[0] = starts
    for h in range(horizon - 1):
        step = h if len(possible) > 1 else 0
        reached = possible[step] & reachable[h, :, None, None]
        reachable[h + 1, successors[step][reached]] = True
    return reachable


@inner
def may_play(policy: PolicyArray, h: int, s: int, a: int) -> bool:
    """True if ``policy`` ever takes action a at (h,s); its form is known when compiling."""
    if policy.ndim == 2:
        return bool(policy[h, s] == a)
    return bool(policy[h, s, a])


@inner
def weight(policy: PolicyArray, h: int, s: int, a: int) -> float:
    """The probability of action a at (h,s) under ``policy``, up to the factor of :func:`tied`."""
    if policy.ndim == 2:
        return 1.0 if policy[h, s] == a else 0.0
    share: float = 0.0 + policy[h, s, a]
    return share


@inner
def tied(policy: PolicyArray, h: int, s: int, actions: int) -> float:
    """The number of actions of the policy's set at (h,s); 1, up to rounding, where the policy has probabilities."""
    total = 0.0
    for a in range(actions):
        total += weight(policy, h, s, a)
    return total


@inner
def action_values(
    successors: IndexArray,
    probabilities: FloatArray,
    rewards: FloatArray,
    following: FloatArray,
    h: int,
    s: int,
    a: int,
    out: FloatArray,
    row: int,
) -> None:
    """``r^i_h(s,a) + P^i_h V^i_{h+1}(s,a)`` of all agents into ``out[row]``; ``following[S,m]`` is ``V^i_{h+1}``."""
    hk = shared(h, successors.shape[0])
    hr = shared(h, rewards.shape[0])
    K, m = probabilities.shape[3:]
    used = 1
    states = successors[hk, s, a]
    while used < K and states[used] > states[used - 1]:  # the rest is padding
        used += 1
    if m == 1:  # without intermediate values in memory
        total = rewards[hr, s, a, 0]
        for k in range(used):
            total += probabilities[hk, s, a, k, 0] * following[states[k], 0]
        out[row, 0] = total
        return
    for i in range(m):
        out[row, i] = rewards[hr, s, a, i]
    for k in range(used):
        t = states[k]
        for i in range(m):
            out[row, i] += probabilities[hk, s, a, k, i] * following[t, i]


BLOCK = 256
LAST_TYPES: dict[str, np.dtype[Any]] = {
    ACTIONS: np.dtype(np.int32),
    SETS: np.dtype(np.int8),
    PROBABILITIES: np.dtype(np.float64),
}
"""The type of the policy that was evaluated last, by form; -1 in it marks an unknown value."""


def no_policy(policy: PolicyArray) -> PolicyArray:
    """The ``last`` of :func:`update_values` where no policy of this form has been evaluated yet."""
    return np.full(policy.shape, -1, dtype=LAST_TYPES[form_of(policy)])


@compiled
def update_values(tables: AgentTables, policy: PolicyArray, last: PolicyArray, V: FloatArray) -> None:
    """Turn ``V[H+1,S,m]``, the values of the policy ``last`` for every agent, into those of ``policy``.

    A value is recomputed (``eq:bellman_equations``) only where the policy, or the value of a next state, has changed.
    So the result does not depend on ``last``, to the last bit. On return ``last``, of the same form, is ``policy``.
    An entry of -1 marks a value that is not known yet. V stays as it is in states that no agent can reach.
    """
    successors, probabilities, rewards, _, reachable, begin, before = tables
    H, S = last.shape[:2]
    A = successors.shape[2]
    m = probabilities.shape[4]
    value_sums = np.empty(m)
    values_of_action = np.empty((1, m))
    is_due = np.zeros(S, dtype=np.bool_)
    changed_states = np.empty(S, dtype=np.int64)
    changes = 0
    for h in range(H - 1, -1, -1):
        first = S * shared(h, successors.shape[0])
        here = V[h]
        after = V[h + 1]
        # Find the states to evaluate: those that lead to a changed value, and those where the policy has changed.
        for j in range(changes):
            for k in range(begin[first + changed_states[j]], begin[first + changed_states[j] + 1]):
                is_due[before[k]] = True
        changes = 0
        _mark_changes(policy, last, h, is_due)
        # Evaluate them, and note whose value has changed.
        for s in range(S):
            if not is_due[s]:
                continue
            is_due[s] = False
            different = _replace(policy, last, h, s)
            if not reachable[h, s]:
                continue
            for i in range(m):
                value_sums[i] = 0.0
            for a in range(A):
                if may_play(policy, h, s, a):
                    action_values(successors, probabilities, rewards, after, h, s, a, values_of_action, 0)
                    for i in range(m):
                        value_sums[i] += weight(policy, h, s, a) * values_of_action[0, i]
            ties = tied(policy, h, s, A)
            for i in range(m):
                value = value_sums[i] / ties
                different |= value != here[s, i]
                here[s, i] = value
            if different:
                changed_states[changes] = s
                changes += 1


@inner
def _replace(policy: PolicyArray, last: PolicyArray, h: int, s: int) -> bool:
    """Copy the policy at (h,s) to ``last``; return true if nothing was known there."""
    if policy.ndim == 2:
        unknown = last[h, s] < 0
        last[h, s] = policy[h, s]
        return bool(unknown)
    unknown = last[h, s, 0] < 0
    for a in range(last.shape[2]):
        last[h, s, a] = policy[h, s, a]
    return bool(unknown)


@inner
def _mark_changes(policy: PolicyArray, last: PolicyArray, h: int, is_due: MaskArray) -> None:
    """Mark the states of step h in which ``policy`` is not ``last``."""
    if policy.ndim == 2:
        for s in range(len(is_due)):
            is_due[s] |= policy[h, s] != last[h, s]
        return
    _, S, A = last.shape
    new = policy.reshape(-1).view(last.dtype)
    old = last.reshape(-1)
    for first in range(0, S * A, BLOCK):
        begin = h * S * A + first
        end = begin + min(BLOCK, S * A - first)
        new_block = new[begin:end]
        old_block = old[begin:end]
        differs = False
        for i in range(len(new_block)):  # without a branch, so that several entries are compared at once
            differs |= new_block[i] != old_block[i]
        if differs:
            for i in range(len(new_block)):
                if new_block[i] != old_block[i]:
                    is_due[(first + i) // A] = True


@compiled
def mean_value(initial: FloatArray, V: FloatArray) -> float:
    """``1/m sum_i sum_s mu^i(s) V^i_1(s)`` of ``initial[S,m]`` and ``V[H+1,S,m]`` (or ``V[1,S,m]``)."""
    S, m = initial.shape
    total = 0.0
    for s in range(S):
        for i in range(m):
            if initial[s, i] > 0.0:
                total += initial[s, i] * V[0, s, i]
    return float(total / m)


def evaluate(tables: AgentTables, policy: IndexArray) -> float:
    """``1/m sum_i V^{i,pi}_1(mu^i)``."""
    V = np.zeros((len(policy) + 1, *tables.initial.shape))
    update_values(tables, policy, no_policy(policy), V)
    return float(mean_value(tables.initial, V))


@compiled
def occupancies(
    successors: IndexArray,
    probabilities: FloatArray,
    initial: FloatArray,
    policy: PolicyArray,
) -> FloatArray:
    """``d^i_h(s)``, the probability that agent i is in ``s`` at step ``h`` under ``policy``; shape ``(H, S, m)``."""
    steps, S, A, K, m = probabilities.shape
    H = policy.shape[0]
    d = np.zeros((H, S, m))
    for s in range(S):  # not d[0] = initial, which takes Numba seconds to compile
        for i in range(m):
            d[0, s, i] = initial[s, i]
    for h in range(H - 1):
        hk = shared(h, steps)
        for s in range(S):
            if m == 1 and d[h, s, 0] == 0.0:
                continue
            here = d[h, s]
            ties = tied(policy, h, s, A)
            for a in range(A):
                if may_play(policy, h, s, a):
                    own = weight(policy, h, s, a)
                    for k in range(K):
                        p = probabilities[hk, s, a, k]
                        there = d[h + 1, successors[hk, s, a, k]]
                        for i in range(m):
                            there[i] += here[i] / ties * own * p[i]
    return d
