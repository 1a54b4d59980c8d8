"""Largest and smallest means over the outcomes of laws, given how often each outcome was seen.

With N visits to a law, p the empirical distribution of its W outcomes and x what each outcome is worth,

    U(p, x, beta/N) = sup { q.x : q a distribution on the W outcomes, KL(p, q) <= beta/N },

and the largest of x where N = 0. See :mod:`fed_ucbvi.algorithms.kl_bound`. The optimistic values of known dynamics
follow from it by backward induction (:func:`induct_laws`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.kl_bound import CLEARLY, largest_mean
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.elementary import log
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray


class LawTables(NamedTuple):
    """Known dynamics for compiled code; the axis of steps has length 1 where they do not matter.

    Attributes:
        law_of: ``(H or 1, S, A)``.
        next_state: ``(H or 1, S, A, W)``.
        rewards: ``(H or 1, S, A, W)``, mean over agents, in [0, 1].
    """

    law_of: IndexArray
    next_state: IndexArray
    rewards: FloatArray


class SeenOutcomes(NamedTuple):
    """Outcomes seen of each law: the first ``sizes[g]`` entries in row g are outcomes, ascending, and their shares.

    Attributes:
        visits: ``(G,)``.
        sizes: ``(G,)``, the number of outcomes seen.
        outcomes: ``(G, W)``.
        shares: ``(G, W)``, the empirical distribution.
    """

    visits: CountArray
    sizes: CountArray
    outcomes: CountArray
    shares: FloatArray


class LawEstimates(NamedTuple):
    """Values and best actions that follow from counts of outcomes.

    Attributes:
        Q: ``(H, S, A)``, of the maximisers; of other actions an upper bound below V.
        V: ``(H+1, S)``.
        best: ``(H, S, A)``, the maximisers of Q.
        updates: ``(1,)``, the number of synchronisations.
    """

    Q: FloatArray
    V: FloatArray
    best: MaskArray
    updates: CountArray

    @classmethod
    def empty(cls, horizon: int, states: int, actions: int) -> LawEstimates:
        """Tables of these sizes, to be filled by :func:`induct_laws`."""
        return cls(
            Q=np.zeros((horizon, states, actions)),
            V=np.zeros((horizon + 1, states)),
            best=np.ones((horizon, states, actions), dtype=np.bool_),
            updates=np.zeros(1, dtype=np.int64),
        )


@compiled
def radii_of_laws(counts: CountArray, log_union: float) -> FloatArray:
    """``beta(N) = log_union + log(N + 1) / 2`` for each law, ``(G,)``, from counts of outcomes ``(G, W)``."""
    laws = len(counts)
    beta = np.empty(laws)
    for g in range(laws):
        visits = counts[g].sum()
        beta[g] = log_union + 0.5 * log(visits + 1.0)
    return beta


@compiled
def ball_radii_of_laws(counts: CountArray, log_union: float) -> FloatArray:
    """``log_union + (W-1) log( e (1 + N/(W-1)) )`` for each law: the ball of this radius holds the law itself."""
    laws, outcomes = counts.shape
    others = float(outcomes - 1)
    beta = np.full(laws, log_union)
    for g in range(laws):
        visits = counts[g].sum()
        if outcomes > 1:
            beta[g] += others * (1.0 + log(1.0 + visits / others))
    return beta


@compiled
def seen_outcomes(counts: CountArray) -> SeenOutcomes:
    """Shares of the outcomes that were seen, from counts ``(G, W)``."""
    laws, outcomes = counts.shape
    seen = SeenOutcomes(
        np.zeros(laws, dtype=np.int64),
        np.zeros(laws, dtype=np.int64),
        np.zeros((laws, outcomes), dtype=np.int64),
        np.zeros((laws, outcomes)),
    )
    for g in range(laws):
        visits = counts[g].sum()
        size = 0
        for w in range(outcomes):
            if counts[g, w] > 0:
                seen.outcomes[g, size] = w
                seen.shares[g, size] = counts[g, w] / visits
                size += 1
        seen.visits[g] = visits
        seen.sizes[g] = size
    return seen


@compiled
def largest_means(laws: IndexArray, worth: FloatArray, counts: CountArray, beta: FloatArray) -> FloatArray:
    """``U`` of each row, ``(P,)``.

    Args:
        laws: the law of each row, ``(P,)``.
        worth: what each outcome is worth, ``(P, W)``.
        counts: how often each outcome of each law was seen, ``(G, W)``.
        beta: the radius of each law, ``(G,)``.
    """
    rows, outcomes = worth.shape
    seen = seen_outcomes(counts)
    result = np.empty(rows)
    distances = np.empty(outcomes)
    for row in range(rows):
        result[row] = _largest(laws[row], worth[row], seen, beta, distances)
    return result


@inner
def _largest(law: int, worth: FloatArray, seen: SeenOutcomes, beta: FloatArray, distances: FloatArray) -> float:
    """``U`` of one law; ``distances`` is room for one number for each outcome."""
    top = float(worth.max())
    size = seen.sizes[law]
    if size == 0:
        return top
    for k in range(size):
        distances[k] = top - worth[seen.outcomes[law, k]]
    return largest_mean(seen.shares[law], distances, size, top, beta[law] / seen.visits[law])


def smallest_means(laws: IndexArray, worth: FloatArray, counts: CountArray, beta: FloatArray) -> FloatArray:
    """The smallest means over the same distributions: minus the largest ones of ``-worth``."""
    return -largest_means(laws, -worth, counts, beta)


@compiled
def induct_laws(
    tables: LawTables, counts: CountArray, beta: FloatArray, plain: bool, estimates: LawEstimates
) -> None:
    """Values and their maximisers from the last step to the first, from counts of outcomes ``(G, W)``.

    ``beta (H or 1, G)`` are the radii. With ``plain`` there is no optimism, and the outcomes of a law that was never
    visited count alike. An action that cannot be a maximiser is not evaluated: as the total variation is at most
    ``sqrt(c/2)``, its U is at most its mean plus that share of the span of its outcomes. That bound is its Q then.
    """
    law_of, next_state, rewards = tables
    Q, V, best, updates = estimates
    H, S, A = Q.shape
    W = counts.shape[1]
    updates[0] += 1
    seen = seen_outcomes(counts)
    worth = np.empty((A, W))
    distances = np.empty(W)
    at_most = np.empty(A)
    for h in range(H - 1, -1, -1):
        hl = shared(h, len(law_of))
        hn = shared(h, len(next_state))
        hr = shared(h, len(rewards))
        hb = shared(h, len(beta))
        clearly = CLEARLY * (H - h)
        for s in range(S):
            # What each outcome is worth, and an upper bound of each action.
            first = 0
            for a in range(A):
                for w in range(W):
                    worth[a, w] = rewards[hr, s, a, w] + V[h + 1, next_state[hn, s, a, w]]
                at_most[a] = _upper_bound(law_of[hl, s, a], worth[a], seen, beta[hb], plain)
                if at_most[a] > at_most[first]:
                    first = a

            # The action with the largest bound, and then those that it does not exclude.
            highest = at_most[first]
            if not plain:
                highest = _largest(law_of[hl, s, first], worth[first], seen, beta[hb], distances)
            Q[h, s, first] = highest
            for a in range(A):
                if a == first:
                    continue
                Q[h, s, a] = at_most[a]
                if not plain and at_most[a] >= highest - clearly:
                    Q[h, s, a] = _largest(law_of[hl, s, a], worth[a], seen, beta[hb], distances)
                highest = max(highest, Q[h, s, a])
            for a in range(A):
                best[h, s, a] = Q[h, s, a] == highest
            V[h, s] = highest


@inner
def _upper_bound(law: int, worth: FloatArray, seen: SeenOutcomes, beta: FloatArray, plain: bool) -> float:
    """The empirical mean if ``plain``, and otherwise a number that U does not exceed."""
    top = float(worth.max())
    size = seen.sizes[law]
    if size == 0:
        return float(worth.mean()) if plain else top
    mean = 0.0
    for k in range(size):
        mean += float(seen.shares[law, k] * worth[seen.outcomes[law, k]])
    if plain:
        return mean
    variation = math.sqrt(beta[law] / (2.0 * seen.visits[law]))
    span = top - float(worth.min())
    return min(top, mean + variation * span)
