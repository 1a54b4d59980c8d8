"""What a policy is worth at least, by counts alone: its value with the worst kernel of a ball around them.

With N visits to (h,s,a), K possible next states and p the empirical distribution of the next state,

    N KL(p, P) <= log(S A H / delta) + (K-1) log( e (1 + N/(K-1)) )

holds for all pairs and all N together with probability ``1 - delta``. The smallest mean over such a ball is the
largest mean of :mod:`fed_ucbvi.algorithms.kl_bound` turned round. A pair that was never visited is worth nothing.
Where rewards are random, r is the least mean that the Bernoulli divergence allows, and half of ``delta`` is for them.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.algorithms.count_table import CountTable, mean_reward
from fed_ucbvi.algorithms.kl_bound import largest_mean, largest_rate
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.elementary import log
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import FloatArray, IndexArray

NOTHING = 1e-100
"""Values below this are taken for 0: they guarantee nothing, and logarithms need normal numbers."""


@compiled
def pessimistic_values(
    table: CountTable, policy: IndexArray, random_rewards: bool, delta: float, support: int, choose: bool = False
) -> FloatArray:
    """``V[H+1, S]``, below the values of ``policy[H, S]`` with probability ``1 - delta``.

    Args:
        table: the counts of all agents.
        policy: one action for each step and state.
        random_rewards: whether rewards depend on chance.
        delta: the probability that some value is too large.
        support: K, how many next states a pair may have; S where nobody knows.
        choose: write the policy with the largest such values to ``policy``; of equals the action seen most.
    """
    (H, S), (steps, _, A), width = policy.shape, table.visits.shape, table.transitions.shape[3]
    V, p, d = np.zeros((H + 1, S)), np.empty(width), np.empty(width)
    union = log(S * A * H / (0.5 * delta if random_rewards else delta))
    for h in range(H - 1, -1, -1):
        hc, after = shared(h, steps), V[h + 1]
        bottom = after.min()
        for j in range(table.numbers[hc]):
            s, most = table.states[hc, j], 0
            for a in range(A):
                n = table.visits[hc, s, a]
                if n == 0 or not (choose or a == policy[h, s]):
                    continue
                value = _least_value((hc, s, a), table, after, bottom, union, support, random_rewards, p, d)
                if most == 0 or value > V[h, s] or (value == V[h, s] and n > most):
                    V[h, s], most, policy[h, s] = value, n, a
    return V


@inner
def _least_value(
    cell: tuple[int, int, int],
    table: CountTable,
    V: FloatArray,
    bottom: float,
    union: float,
    support: int,
    random_rewards: bool,
    p: FloatArray,
    d: FloatArray,
) -> float:
    """``r + inf q.V`` over the ball, where there are visits; ``bottom`` is the least V, p and d are to work in."""
    n, size, bits = table.visits[cell], int(table.seen[cell]), table.bits[0]
    N, more = float(n), float(support - 1)
    for k in range(size):
        p[k], d[k] = table.transitions[cell][k] / N, V[table.successors[cell][k]] - bottom
    c = (union + (more * (1.0 + log(1.0 + N / more)) if support > 1 else 0.0)) / N
    up = mean_reward(n, table.rewards[cell][0], table.rewards[cell][1], bits)
    r = max(0.0, up - 2.0 / float(1 << bits))  # it and its parts were rounded up to the grid
    if random_rewards:
        r = 1.0 - largest_rate(1.0 - r, (union + log(2.0) + 0.5 * log(N + 1.0)) / N)
    value = r - largest_mean(p, d, size, -bottom, c)
    return value if value > NOTHING else 0.0
