"""The tables of all agents with the agent axis last, so that loops over agents read memory in order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray
from fed_ucbvi.problem.dynamic_programming import may_play, tied
from fed_ucbvi.problem.kernel import frozen_floats


class AgentTables(NamedTuple):
    """The MDPs of m agents; unlike everywhere else the agent is the last axis.

    ``successors (steps, S, A, K)``, ``probabilities (steps, S, A, K, m)``, ``rewards (steps, S, A, m)``,
    ``initial (S, m)``; step axes have length one where a table is stationary. ``reachable (H, S)`` says where some
    agent can be under some policy.
    """

    successors: IndexArray
    probabilities: FloatArray
    rewards: FloatArray
    initial: FloatArray
    reachable: MaskArray


def agent_tables(
    successors: IndexArray,
    probabilities: FloatArray,
    rewards: FloatArray,
    initial: FloatArray,
    horizon: int,
    chosen: CountArray,
) -> AgentTables:
    """The tables of the agents ``chosen``, from arrays with a leading agent axis (rewards may have one for all)."""
    own, starts = probabilities[chosen], initial[chosen]
    possible, begins = np.asarray((own > 0).any(axis=0)), np.asarray((starts > 0).any(axis=0))
    table = rewards[chosen] if len(rewards) > 1 else np.broadcast_to(rewards, (len(chosen), *rewards.shape[1:]))
    return AgentTables(
        successors,
        frozen_floats(np.moveaxis(own, 0, -1)),
        frozen_floats(np.moveaxis(table, 0, -1)),
        frozen_floats(starts.T),
        reachable_states(successors, possible, begins, horizon),
    )


def reachable_states(successors: IndexArray, possible: MaskArray, starts: MaskArray, horizon: int) -> MaskArray:
    """``(H, S)``: where an episode from ``starts (S,)`` can be; ``possible (steps, S, A, K)`` are the successors."""
    reachable = np.zeros((horizon, len(starts)), dtype=np.bool_)
    reachable[0] = starts
    for h in range(horizon - 1):
        step = h if len(possible) > 1 else 0
        reachable[h + 1, successors[step][possible[step] & reachable[h, :, None, None]]] = True
    return reachable


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
    hk = h if successors.shape[0] > 1 else 0
    hr = h if rewards.shape[0] > 1 else 0
    K, m = probabilities.shape[3:]
    t = successors[hk, s, a, 0]
    for i in range(m):
        out[row, i] = rewards[hr, s, a, i] + probabilities[hk, s, a, 0, i] * following[t, i]
    for k in range(1, K):
        t = successors[hk, s, a, k]
        for i in range(m):
            out[row, i] += probabilities[hk, s, a, k, i] * following[t, i]


def no_policy(horizon: int, states: int, actions: int) -> npt.NDArray[np.int8]:
    """The ``last`` of :func:`update_values` where no policy has been evaluated yet."""
    return np.full((horizon, states, actions), -1, dtype=np.int8)


@compiled
def update_values(
    successors: IndexArray,
    probabilities: FloatArray,
    rewards: FloatArray,
    reachable: MaskArray,
    policy: PolicyArray,
    last: npt.NDArray[np.int8],
    V: FloatArray,
) -> None:
    """Turn ``V[H+1,S,m]``, the values of the policy ``last`` for every agent, into those of ``policy``.

    A value is recomputed (``eq:bellman_equations``) only where the policy, or the value of a next state, has changed.
    So the result does not depend on ``last``, to the last bit. On return ``last[H,S,A]`` (1 for actions of the set, 0
    for others) is ``policy``. An entry of -1 says that the value there is not known yet. Both arrays stay as they are
    in states that no agent can reach.
    """
    H, S, A = last.shape
    K, m = probabilities.shape[3:]
    new, one = np.empty(m), np.empty((1, m))
    stale, stale_after = np.zeros(S, dtype=np.bool_), np.zeros(S, dtype=np.bool_)
    any_after = False
    for h in range(H - 1, -1, -1):
        hk = h if successors.shape[0] > 1 else 0
        here, after = V[h], V[h + 1]
        any_here = False
        for s in range(S):
            stale[s] = changed = False
            if not reachable[h, s]:
                continue
            for a in range(A):
                plays = may_play(policy, h, s, a)
                changed |= plays != last[h, s, a]
                if any_after and plays:
                    for k in range(K):
                        changed |= stale_after[successors[hk, s, a, k]]
            if changed:
                different = last[h, s, 0] < 0
                new[:] = 0.0
                for a in range(A):
                    last[h, s, a] = may_play(policy, h, s, a)
                    if last[h, s, a]:
                        action_values(successors, probabilities, rewards, after, h, s, a, one, 0)
                        for i in range(m):
                            new[i] += one[0, i]
                ties = tied(policy, h, s, A)
                for i in range(m):
                    value = new[i] / ties
                    different |= value != here[s, i]
                    here[s, i] = value
                stale[s] = different
                any_here |= different
        stale, stale_after, any_after = stale_after, stale, any_here


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


@compiled
def occupancies(tables: AgentTables, policy: PolicyArray) -> FloatArray:
    """``d^i_h(s)`` of every agent under ``policy``; shape ``(H, S, m)``."""
    successors, probabilities, _, initial, _ = tables
    steps, S, A, K, m = probabilities.shape
    H = policy.shape[0]
    d = np.zeros((H, S, m))
    for s in range(S):  # not d[0] = initial, which takes Numba seconds to compile
        for i in range(m):
            d[0, s, i] = initial[s, i]
    for h in range(H - 1):
        hk = h if steps > 1 else 0
        for s in range(S):
            here, ties = d[h, s], tied(policy, h, s, A)
            for a in range(A):
                if may_play(policy, h, s, a):
                    for k in range(K):
                        p, there = probabilities[hk, s, a, k], d[h + 1, successors[hk, s, a, k]]
                        for i in range(m):
                            there[i] += here[i] / ties * p[i]
    return d
