"""Bounds for the value of an episode whose first state is drawn from a law that nobody knows.

Let ``mu`` be the law of the first state, ``mu_n`` the empirical distribution of the first states of n episodes, and
``V_1`` optimistic values of all S states. A state that was never visited has the largest value there can be, H, by
the rule of the optimistic values. With probability ``1 - delta'``, for all n at once,

    mu.V*_1 <= U(mu_n, V_1, c),    c = (log(1/delta') + log 2 + (1/2) log(n + 1)) / n,
    U(p, V, c) = sup { q.V : q a distribution on all S states, KL(p, q) <= c }.

This is one event more in the union of the optimistic values, beside those of the S (H-1) pairs (step, state):
``delta' = delta / (S (H-1) + 1)``. The proof is "First states" in ``docs/kl_proofs.md``.

For pessimistic values ``V_1`` of a policy that was chosen from the same counts the ball must hold ``mu`` itself:

    mu.V^pi_1 >= inf { q.V_1 : n KL(mu_n, q) <= log(1/delta') + (S-1) log( e (1 + n/(S-1)) ) }

with probability ``1 - delta'`` for all n at once, one event beside those of the S A H pairs (h,s,a).
"""

from __future__ import annotations

import math

from fed_ucbvi.algorithms.kl_bound import largest_mean
from fed_ucbvi.algorithms.return_bounds import radius
from fed_ucbvi.core.types import CountArray, FloatArray


def largest_start_value(starts: CountArray, V: FloatArray, delta: float) -> float:
    """Upper bound ``U(mu_n, V_1, c)`` on the mean of ``V_1`` over the unknown law of the first state.

    Args:
        starts: number of episodes that began in each state, ``(S,)``.
        V: optimistic values of the first step, ``(S,)``.
        delta: probability of this event, ``delta'`` above.

    >>> import numpy as np
    >>> largest_start_value(np.array([0, 0]), np.array([0.0, 1.0]), 0.05)
    1.0
    >>> round(largest_start_value(np.array([90, 10]), np.array([0.0, 1.0]), 0.05), 3)
    0.234
    """
    episodes = int(starts.sum())
    top = float(V.max())
    if episodes == 0:
        return top
    seen = starts > 0
    p: FloatArray = starts[seen] / episodes
    distances: FloatArray = top - V[seen]
    return float(largest_mean(p, distances, len(p), top, radius(episodes, delta) / episodes))


def smallest_start_value(starts: CountArray, V: FloatArray, delta: float) -> float:
    """Lower bound on the mean of ``V_1`` over the unknown law of the first state, for any ``V_1``.

    Args:
        starts: number of episodes that began in each state, ``(S,)``.
        V: pessimistic values of the first step, ``(S,)``; they may depend on the same episodes.
        delta: probability of this event, ``delta'`` above.

    >>> import numpy as np
    >>> round(smallest_start_value(np.array([90, 10]), np.array([0.0, 1.0]), 0.05), 3)
    0.02
    """
    episodes = int(starts.sum())
    bottom = float(V.min())
    if episodes == 0:
        return bottom
    seen = starts > 0
    p: FloatArray = starts[seen] / episodes
    distances: FloatArray = V[seen] - bottom
    others = len(V) - 1
    reach = math.log(1.0 / delta)
    if others > 0:
        reach += others * (1.0 + math.log(1.0 + episodes / others))
    return -float(largest_mean(p, distances, len(p), -bottom, reach / episodes))
