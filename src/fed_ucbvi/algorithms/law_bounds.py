"""Largest and smallest means over the outcomes of laws, given how often each outcome was seen.

With N visits to a law, p the empirical distribution of its W outcomes and x what each outcome is worth,

    U(p, x, beta/N) = sup { q.x : q a distribution on the W outcomes, KL(p, q) <= beta/N },

and the largest of x where N = 0. See :mod:`fed_ucbvi.algorithms.kl_bound`.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.algorithms.kl_bound import largest_mean
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.elementary import log
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray


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
def largest_means(laws: IndexArray, worth: FloatArray, counts: CountArray, beta: FloatArray) -> FloatArray:
    """``U`` of each row, ``(P,)``.

    Args:
        laws: the law of each row, ``(P,)``.
        worth: what each outcome is worth, ``(P, W)``.
        counts: how often each outcome of each law was seen, ``(G, W)``.
        beta: the radius of each law, ``(G,)``.
    """
    rows, outcomes = worth.shape
    result = np.empty(rows)
    p = np.empty(outcomes)
    d = np.empty(outcomes)
    for row in range(rows):
        law = laws[row]
        visits = float(counts[law].sum())
        top = worth[row].max()
        size = 0
        for w in range(outcomes):
            seen = counts[law, w]
            if seen > 0:
                p[size] = seen / visits
                d[size] = top - worth[row, w]
                size += 1
        if size == 0:
            result[row] = top
        else:
            result[row] = largest_mean(p, d, size, top, beta[law] / visits)
    return result


def smallest_means(laws: IndexArray, worth: FloatArray, counts: CountArray, beta: FloatArray) -> FloatArray:
    """The smallest means over the same distributions: minus the largest ones of ``-worth``."""
    return -largest_means(laws, -worth, counts, beta)
