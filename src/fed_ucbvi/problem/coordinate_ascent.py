"""Good policies for all agents at once: coordinate ascent over the decisions ``(h,s)``.

The mean value of a Markov policy is linear in each decision rule ``pi_h(s)`` alone:

``1/M sum_i V^{i,pi} = const + 1/M sum_i d^{i,pi}_h(s) Q^{i,pi}_h(s, pi_h(s))``,

where ``d_h`` depends on the decisions before h and ``Q_h`` on those after it. A sweep goes from h = H to 1 and takes,
at every ``(h,s)``, the action with the largest weighted sum. This is exact for that decision, so a sweep never lowers
the value. Sweeps are repeated until the value no longer rises. With weights 1 instead of d the first sweep is the
weight-select-update rule of multi-model MDPs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.problem.agent_tables import AgentTables, action_values, occupancies
from fed_ucbvi.problem.dynamic_programming import optimal_values

OWN_STARTS = 20
"""The search starts from the individual optimal policies of at most this many agents."""
ROUNDING = 1e-13
"""A gain below this share of the most that an episode can pay counts as none."""


@compiled
def sweep(tables: AgentTables, weights: FloatArray, policy: IndexArray) -> float:
    """One sweep, in place, with the ``d^i_h(s)`` as ``weights[H,S,m]``; returns the value, summed over agents."""
    successors, probabilities, rewards, initial, _ = tables
    _, S, A, _, m = probabilities.shape
    H = policy.shape[0]
    margin = ROUNDING * H * m
    V = np.zeros((2, S, m))
    Q = np.zeros((A, m))
    for h in range(H - 1, -1, -1):
        here, after = V[h % 2], V[(h + 1) % 2]
        for s in range(S):
            weight = weights[h, s]
            best, most = policy[h, s], 0.0
            for j in range(A + 1):  # the present action first: another has to be better
                a = best if j == 0 else j - 1
                if j == 0 or a != policy[h, s]:
                    action_values(successors, probabilities, rewards, after, h, s, a, Q, a)
                    total = 0.0
                    for i in range(m):
                        total += weight[i] * Q[a, i]
                    if j == 0 or total > most + margin:
                        best, most = a, total
            policy[h, s] = best
            here[s] = Q[best]
    total = 0.0
    for s in range(S):
        for i in range(m):
            total += initial[s, i] * V[0, s, i]
    return total


@compiled
def ascend(tables: AgentTables, policy: IndexArray, most: int) -> tuple[float, int]:
    """At most ``most`` sweeps, in place, until the value no longer rises; returns ``(mean value, sweeps)``."""
    H = policy.shape[0]
    m = tables.initial.shape[1]
    value = 0.0
    for sweeps in range(1, most + 1):
        before = value
        value = sweep(tables, occupancies(tables, policy), policy)
        if sweeps > 1 and value <= before + ROUNDING * H * m:
            return value / m, sweeps
    return value / m, most


def starting_policies(tables: AgentTables, common: IndexArray) -> Iterator[IndexArray]:
    """Different starts: optimal in the common MDP, optimal in the mean MDP, select-update, optimal for one agent."""
    seen = set()
    for policy in _candidates(tables, common):
        key = policy.tobytes()
        if key not in seen:
            seen.add(key)
            yield policy


def _candidates(tables: AgentTables, common: IndexArray) -> Iterator[IndexArray]:
    H = len(common)
    yield common.copy()
    kernel, rewards = (np.ascontiguousarray(table.mean(axis=-1)) for table in (tables.probabilities, tables.rewards))
    yield optimal_values(tables.successors, kernel, rewards, H)[2]
    selected = common.copy()
    sweep(tables, np.ones((H, *tables.initial.shape)), selected)
    yield selected
    for j in np.unique(np.linspace(0, tables.initial.shape[1] - 1, OWN_STARTS).astype(np.int64)):
        yield own_policy(tables, int(j), H)


def own_policy(tables: AgentTables, agent: int, horizon: int) -> IndexArray:
    """The optimal policy of one of the agents alone."""
    kernel, rewards = (np.ascontiguousarray(table[..., agent]) for table in (tables.probabilities, tables.rewards))
    return optimal_values(tables.successors, kernel, rewards, horizon)[2]
