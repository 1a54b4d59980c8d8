"""Lower bounds on the cost of sharing one policy, by dynamic programming.

Let ``V^i, Q^i`` be agent i's own optimal values and ``g^i_h(s,a) = V^i_h(s) - Q^i_h(s,a) >= 0``. By the
performance-difference lemma a policy pi loses, over all agents,

``L(pi) = sum_i (V^i_1 - V^{i,pi}_1) = sum_{h,s} sum_i d^{i,pi}_h(s) g^i_h(s, pi_h(s))``.

*The overlap floor.* With weights ``b^i`` the agents lose at least ``min_i b^i`` times what they lose with weights 1.
From ``(h,s,a)`` all of them move to s' with probability at least ``min_i P^i_h(s'|s,a)``. So the loss from ``(h,s)``
on, with weights 1, is at least ``W_h(s)``, and L is bounded by its value at the first step:

- ``W_h(s) = min_a [ sum_i g^i_h(s,a) + sum_s' min_i P^i_h(s'|s,a) W_{h+1}(s') ]``,
- ``L >= sum_s min_i mu^i(s) W_1(s)``.

The minimum is taken separately at every visit of s, on every path, so the bound holds for policies that remember
their history as well. (Under Assumption 1 a share of at least ``(1 - eps_p)^h`` stays together.)

*The flow floor*, for Markov policies. ``l^i_h(s)`` is the flow of agent i through s that no choice of actions avoids:
it starts as ``mu^i`` and passes ``l^i_h(s) min_a P^i_h(s'|s,a)`` on to s'. All of this flow takes one action ``a =
pi_h(s)`` and loses ``l^i g^i(s,a)`` there. The action may send more than the unavoidable flow to s'. The smallest
such excess over agents then loses at least ``W_{h+1}(s')`` per unit. So

- ``c_h(s,a) = sum_i l^i g^i(s,a) + sum_s' min_i [ l^i (P^i(s'|s,a) - min_a' P^i(s'|s,a')) ] W_{h+1}(s')``,
- ``L >= sum_{h,s} min_a c_h(s,a)``.

These minima are separate. So an action whose ``c_h(s,a)`` is too far above the minimum can be ruled out: every policy
that takes it is no better than one already known. Both floors can be computed among some *allowed* actions only. With
fewer actions the floors are tighter, and with one action at each ``(h,s)`` the flow floor is the loss itself.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.problem.agent_tables import AgentTables, action_values

AllowedArray = npt.NDArray[np.bool_]
"""``(H, S, A)``: which actions a policy may take; at least one at each ``(h,s)``."""


@compiled
def own_optima(
    tables: AgentTables,
    shared: FloatArray,
    allowed: AllowedArray,
    V: FloatArray,
    W: FloatArray,
) -> tuple[float, float]:
    """Every agent's own optimum and the overlap floor among the allowed actions, with ``min_i P^i`` as ``shared``.

    Writes the agents' optimal values to ``V (H+1, S, m)`` and the floor to ``W (H+1, S)``; returns ``sum_i
    V^i_1(mu^i)`` and ``sum_s min_i mu^i(s) W_1(s)``.
    """
    successors, probabilities, rewards, initial, _, _, _ = tables
    steps, S, A, K, m = probabilities.shape
    H = allowed.shape[0]
    Q = np.zeros((A, m))
    V[H] = 0.0
    W[H] = 0.0
    for h in range(H - 1, -1, -1):
        hk = h if steps > 1 else 0
        for s in range(S):
            # The agents' own optimal values.
            best = V[h, s]
            best[:] = -1.0
            for a in range(A):
                if allowed[h, s, a]:
                    action_values(successors, probabilities, rewards, V[h + 1], h, s, a, Q, a)
                    for i in range(m):
                        best[i] = max(best[i], Q[a, i])
            # The floor: what the action loses now, and where all agents go together.
            floor = math.inf
            for a in range(A):
                if allowed[h, s, a]:
                    loss = 0.0
                    for i in range(m):
                        loss += best[i] - Q[a, i]
                    for k in range(K):
                        loss += shared[hk, s, a, k] * W[h + 1, successors[hk, s, a, k]]
                    floor = min(floor, loss)
            W[h, s] = floor
    total = 0.0
    loss = 0.0
    for s in range(S):
        least = math.inf
        for i in range(m):
            total += initial[s, i] * V[0, s, i]
            least = min(least, initial[s, i])
        loss += least * W[0, s]
    return total, loss


@compiled
def _least_outflow(
    successors: IndexArray,
    probabilities: FloatArray,
    allowed: AllowedArray,
    hk: int,
    h: int,
    s: int,
    least: FloatArray,
    times: IndexArray,
) -> int:
    """Write ``min_a P^i_h(s'|s,a)`` to ``least[s',i]`` for the s' of allowed actions; return how many are allowed."""
    A, K, m = probabilities.shape[2:]
    actions = 0
    for a in range(A):
        if allowed[h, s, a]:
            actions += 1
            for k in range(K):
                times[successors[hk, s, a, k]] = 0
    for a in range(A):
        if allowed[h, s, a]:
            for k in range(K):
                t = successors[hk, s, a, k]
                if k > 0 and t == successors[hk, s, a, k - 1]:
                    continue  # padding
                p = probabilities[hk, s, a, k]
                lowest = least[t]
                if times[t] == 0:
                    lowest[:] = p
                else:
                    for i in range(m):
                        lowest[i] = min(lowest[i], p[i])
                times[t] += 1
    for a in range(A):
        if allowed[h, s, a]:
            for k in range(K):
                t = successors[hk, s, a, k]
                if times[t] < actions:  # some action never goes there
                    least[t] = 0.0
    return actions


@compiled
def flow_floor(
    tables: AgentTables,
    allowed: AllowedArray,
    V: FloatArray,
    W: FloatArray,
    cost: FloatArray,
    policy: IndexArray,
    regrets: FloatArray,
) -> float:
    """The flow floor among the allowed actions, from the V and W of :func:`own_optima`.

    Writes ``c_h(s,a)`` to ``cost (H, S, A)``, the minimisers to ``policy (H, S)``, and ``sum_i d^i_h(s) g^i_h(s,
    policy)`` and ``sum_i d^i_h(s)`` of that policy to ``regrets (2, H, S)``.
    """
    successors, probabilities, rewards, initial, _, _, _ = tables
    steps, S, A, K, m = probabilities.shape
    H = allowed.shape[0]
    flow = np.zeros((2, S, m))
    d = np.zeros((2, S, m))
    flow[0] = initial
    d[0] = initial
    least = np.zeros((S, m))
    times = np.zeros(S, dtype=np.int32)
    gap = np.zeros((A, m))
    total = 0.0
    for h in range(H):
        hk = h if steps > 1 else 0
        flow_after = flow[(h + 1) % 2]
        d_after = d[(h + 1) % 2]
        flow_after[:] = 0.0
        d_after[:] = 0.0
        for s in range(S):
            # The cost of each action: what it loses now, and where it leads beyond the least outflow.
            here = flow[h % 2, s]
            there = d[h % 2, s]
            actions = _least_outflow(successors, probabilities, allowed, hk, h, s, least, times)
            lowest = math.inf
            best = 0
            for a in range(A):
                if not allowed[h, s, a]:
                    continue
                action_values(successors, probabilities, rewards, V[h + 1], h, s, a, gap, a)
                loss = 0.0
                for i in range(m):
                    gap[a, i] = V[h, s, i] - gap[a, i]
                    loss += here[i] * gap[a, i]
                if actions > 1:
                    for k in range(K):
                        t = successors[hk, s, a, k]
                        if W[h + 1, t] > 0.0:
                            p = probabilities[hk, s, a, k]
                            least_outflow = least[t]
                            beyond = math.inf
                            for i in range(m):
                                beyond = min(beyond, here[i] * (p[i] - least_outflow[i]))
                            loss += max(beyond, 0.0) * W[h + 1, t]
                cost[h, s, a] = loss
                if loss < lowest:
                    lowest = loss
                    best = a
            total += lowest
            policy[h, s] = best
            # The minimiser: what it loses here, and where it leads.
            lost = 0.0
            mass = 0.0
            for i in range(m):
                lost += there[i] * gap[best, i]
                mass += there[i]
            regrets[0, h, s] = lost
            regrets[1, h, s] = mass
            for k in range(K):
                t = successors[hk, s, best, k]
                p = probabilities[hk, s, best, k]
                padding = k > 0 and t == successors[hk, s, best, k - 1]
                for i in range(m):
                    d_after[t, i] += there[i] * p[i]
                    if not padding:
                        flow_after[t, i] += here[i] * least[t, i]
    return total


@compiled
def tighten(
    tables: AgentTables,
    shared: FloatArray,
    allowed: AllowedArray,
    known: float,
    most: int,
) -> tuple[float, IndexArray, int, int, int]:
    """Rule out, in place, the actions of policies that are worse than ``known``, until no more can be ruled out.

    ``known`` is a sum of values over agents that some policy attains, plus the tolerance, and ``most`` the number of
    passes over the tables. Returns ``(upper, policy, h, s, passes)``: no allowed policy has a larger sum of values
    than ``max(upper, known)``; the policy that minimises the flow floor; the decision to branch on (the open one
    where that policy loses most; -1 if none is open); passes made.
    """
    _, S, A, _, m = tables.probabilities.shape
    H = allowed.shape[0]
    V = np.zeros((H + 1, S, m))
    W = np.zeros((H + 1, S))
    cost = np.zeros((H, S, A))
    policy = np.zeros((H, S), dtype=np.int32)
    regrets = np.zeros((2, H, S))
    upper = math.inf
    passes = 0
    ruled_out = True
    # Rule out actions until no more can be.
    while ruled_out and passes < most:
        own, overlap = own_optima(tables, shared, allowed, V, W)
        by_flow = own - flow_floor(tables, allowed, V, W, cost, policy, regrets)
        passes += 2
        upper = min(upper, own - overlap, by_flow)
        if upper <= known:
            break
        ruled_out = False
        for h in range(H):
            for s in range(S):
                least = cost[h, s, policy[h, s]]
                for a in range(A):
                    if allowed[h, s, a] and a != policy[h, s] and by_flow - (cost[h, s, a] - least) <= known:
                        allowed[h, s, a] = False
                        ruled_out = True
    # Choose the decision to branch on: by what is lost; where nothing is, by how often it is visited.
    step = -1
    state = -1
    for measure in range(2):
        largest = 0.0
        for h in range(H):
            for s in range(S):
                if regrets[measure, h, s] > largest and allowed[h, s].sum() > 1:
                    largest = regrets[measure, h, s]
                    step = h
                    state = s
        if step >= 0:
            break
    return upper, policy, step, state, passes
