"""Heterogeneity of the agents: eps_p of Assumption 1, L1 distances; and eps_p from counts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.kernel import whole_numbers

OVERLAP_ROUNDING = 1e-13
"""Overlaps this close to one count as one: the agents' kernels are the same up to rounding."""

HALVINGS = 60
"""Bisections of [0, 1]: to the last bit of a double."""


class Overlap(NamedTuple):
    """The common part of the agents' kernels.

    ``minimum[h,s,a,k]`` is ``min_i P^i``; ``mass[h,s,a]`` its sum over next states.
    """

    minimum: FloatArray
    mass: FloatArray

    @property
    def eps_p(self) -> float:
        """The smallest eps_p for which Assumption 1 holds, ``1 - min_{h,s,a} mass``; 1 means that it fails.

        Assumption 1 asks for one kernel with ``(1 - eps_p) P^c <= P^i`` for all i. Summing over next states
        gives ``1 - eps_p <= mass``, and ``P^c = minimum / mass`` reaches it.
        """
        least = float(self.mass.min())
        if least >= 1.0 - OVERLAP_ROUNDING:
            return 0.0
        return 1.0 - least


def overlap(probabilities: FloatArray) -> Overlap:
    """The overlap of ``probabilities[M,steps,S,A,K]``, kernels on one support.

    >>> import numpy as np
    >>> overlap(np.array([[[[[0.9, 0.1]]]], [[[[0.7, 0.3]]]]])).eps_p.__round__(12)
    0.2
    """
    minimum = probabilities.min(axis=0)
    return Overlap(minimum, minimum.sum(axis=-1))


class Distances(NamedTuple):
    """Distances between kernels, in L1; total variation is half of it.

    Attributes:
        worst: ``(M, M)``, ``max_{h,s,a} ||P^i - P^j||_1``.
        mean: ``(M, M)``, the mean of that norm over (h,s,a).
        to_common: ``(steps, S, A)``, ``max_i ||P^i - P^c||_1``, at most ``2 eps_p`` under Assumption 1.
    """

    worst: FloatArray
    mean: FloatArray
    to_common: FloatArray


def distances(probabilities: FloatArray, common: FloatArray) -> Distances:
    """L1 distances between ``probabilities[M,steps,S,A,K]`` and from them to ``common[steps,S,A,K]``.

    >>> import numpy as np
    >>> two = np.array([[[[[0.9, 0.1]]]], [[[[0.7, 0.3]]]]])
    >>> distances(two, two.mean(axis=0)).worst.round(12)
    array([[0. , 0.4],
           [0.4, 0. ]])
    """
    M = probabilities.shape[0]
    worst = np.zeros((M, M))
    mean = np.zeros((M, M))
    to_common = np.zeros(common.shape[:-1])
    for i in range(M):
        np.maximum(to_common, np.abs(probabilities[i] - common).sum(axis=-1), out=to_common)
        gaps = np.abs(probabilities[i:] - probabilities[i]).sum(axis=-1)
        worst[i, i:] = gaps.max(axis=(1, 2, 3))
        worst[i:, i] = worst[i, i:]
        mean[i, i:] = gaps.mean(axis=(1, 2, 3))
        mean[i:, i] = mean[i, i:]
    return Distances(worst=worst, mean=mean, to_common=to_common)


class EpsEstimate(NamedTuple):
    """Estimate of ``eps_p = 1 - min_{h,s,a} sum_s' min_i P^i(s'|s,a)`` from counts.

    Attributes:
        point: eps_p of the empirical kernels, over the pairs counted; noise makes it too large on average.
        lower: lower bound on eps_p of all pairs.
        upper: upper bound on it; 1 as long as some agent has never been at some (h,s,a).
        upper_counted: upper bound on eps_p of the pairs counted.
        pairs_counted: number of (h,s,a) that every agent visited at least ``least_visits`` times.
        pairs: number of all (h,s,a).
        least_visits: visits of every agent that a pair needs to be counted.
        delta: all three bounds hold together with probability at least ``1 - delta``.
    """

    point: float
    lower: float
    upper: float
    upper_counted: float
    pairs_counted: int
    pairs: int
    least_visits: int
    delta: float


def estimate_eps_p(counts: npt.ArrayLike, delta: float = 0.05, *, least_visits: int = 1) -> EpsEstimate:
    """A confidence interval for eps_p from transition counts ``[M,steps,S,A,K]``, with K next states or slots.

    Counts may come from any run, under any policy: ``lem:kl_deviation_inequality`` holds for all numbers of visits at
    once. It is used twice, each time with ``delta/2`` divided evenly by a union bound, and the tighter of the two
    bounds is taken:

    - *entries*: ``n kl(p_hat, p) <= log(1/delta') + log(e (1 + n))`` for each of the M.steps.S.A.K probabilities
      bounds ``min_i P^i(s')`` from both sides;
    - *rows*: ``n KL(P_hat, P) <= log(1/delta') + (K-1) log(e (1 + n/(K-1)))`` for each of the M.steps.S.A rows gives
      a bound ``w_i`` on the total variation by Pinsker's inequality. The true overlap is smaller than the empirical
      one by at most ``sum_i w_i``. To bound it from above, let ``B_i`` be the next states where agent i has the
      smallest empirical probability. The overlap is at most ``sum_i P^i(B_i)``, so it is larger than the empirical
      one by at most the sum of ``w_i`` over agents whose ``B_i`` is not empty.

    >>> estimate_eps_p([[[[[9_000, 1_000]]]], [[[[7_000, 3_000]]]]]).point.__round__(12)
    0.2
    """
    table = whole_numbers("counts", counts)
    check_number("delta", delta, above=0, below=1)
    least = check_positive_integer("least_visits", least_visits)
    if table.ndim != 5 or 0 in table.shape:
        raise InputError(f"counts must have shape (agents, steps, S, A, K), got {table.shape}.")
    if table.min() < 0:
        raise InputError("counts must not be negative.")
    n = table.sum(axis=-1)
    empirical = table / np.maximum(n, 1)[..., None]
    bounds = _overlap_interval(empirical, n.astype(np.float64), delta)
    counted = (n >= least).all(axis=0)
    mass = empirical.min(axis=0).sum(axis=-1)
    point = math.nan
    upper_counted = 1.0
    if counted.any():
        point = Overlap(empirical, mass[counted]).eps_p
        upper_counted = min(1.0, 1.0 - float(bounds.low[counted].min()))
    return EpsEstimate(
        point=point,
        lower=max(0.0, 1.0 - float(bounds.high.min())),
        upper=min(1.0, 1.0 - float(bounds.low.min())),
        upper_counted=upper_counted,
        pairs_counted=int(counted.sum()),
        pairs=counted.size,
        least_visits=least,
        delta=float(delta),
    )


class OverlapBounds(NamedTuple):
    """Bounds ``(steps, S, A)`` on ``sum_s' min_i P^i(s')``."""

    low: FloatArray
    high: FloatArray


def _overlap_interval(empirical: FloatArray, n: FloatArray, delta: float) -> OverlapBounds:
    """Bounds on the overlap that all hold with probability ``1 - delta``."""
    M = empirical.shape[0]
    K = empirical.shape[-1]
    if M == 1 or K == 1:
        certain = np.ones(n.shape[1:])
        return OverlapBounds(certain, certain)
    visited = np.maximum(n, 1.0)
    all_visited = (n > 0).all(axis=0)
    # Entries: bounds on each probability.
    radius = (math.log(2 * empirical.size / delta) + 1.0 + np.log1p(n)) / visited
    low_entries = _kl_end(empirical, radius[..., None], np.zeros_like(empirical))
    high_entries = _kl_end(empirical, radius[..., None], np.ones_like(empirical))
    high_entries[n == 0] = 1.0
    low_by_entries = np.where(all_visited, low_entries.min(axis=0).sum(axis=-1), 0.0)
    high_by_entries = high_entries.min(axis=0).sum(axis=-1)
    # Rows: bounds on the total variation of each row.
    divergence = (math.log(2 * n.size / delta) + (K - 1) * (1.0 + np.log1p(n / (K - 1)))) / visited
    variation = np.where(n > 0, np.minimum(1.0, np.sqrt(divergence / 2.0)), 1.0)
    mass = empirical.min(axis=0).sum(axis=-1)
    agents = np.arange(M).reshape(-1, 1, 1, 1, 1)
    is_smallest_somewhere = (empirical.argmin(axis=0)[None] == agents).any(axis=-1)
    low_by_rows = mass - variation.sum(axis=0)
    high_by_rows = np.where(all_visited, mass + (variation * is_smallest_somewhere).sum(axis=0), 1.0)
    # The tighter of both, which is at most 1.
    return OverlapBounds(
        low=np.maximum(low_by_entries, low_by_rows),
        high=np.minimum(1.0, np.minimum(high_by_entries, high_by_rows)),
    )


def _kl_end(p: FloatArray, radius: FloatArray, end: FloatArray) -> FloatArray:
    """The q between ``p`` and ``end`` with ``kl(p, q) = radius``, or ``end``; rounded outwards."""
    inner = p.copy()
    outer = end
    for _ in range(HALVINGS):
        q = (inner + outer) / 2.0
        with np.errstate(divide="ignore", invalid="ignore"):
            kl = np.where(p > 0, p * np.log(p / q), 0.0)
            kl += np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - q)), 0.0)
        within = kl <= radius
        inner = np.where(within, q, inner)
        outer = np.where(within, outer, q)
    return outer
