"""Means of the agents' reports that a minority of liars cannot move far (Chen et al., AISTATS 2023).

Agent j reports a mean ``x_j`` of ``n_j`` independent numbers, sub-Gaussian with sigma. Up to ``alpha m`` of the m
agents may report anything. **COW** (clique-overweight) believes a largest set of agents whose confidence intervals
have a point in common, and lets no agent weigh more than ``n_cut``, the ``(2 f + 1)``-th largest count, where
``f = ceil(alpha m)``::

    I_j    = [x_j - w_j, x_j + w_j],  w_j = sigma sqrt(2 ln(2m/delta) / n_j),  all of R where n_j = 0
    C*     = a largest C with a point common to all I_j, j in C
    mean   = sum over C* of min(n_j, n_cut) x_j / sum over C* of min(n_j, n_cut)
    error  = 2 sigma sqrt(2 ln(2/delta)) / sqrt(W) + 8 alpha m sqrt(n_cut) sigma sqrt(2 ln(2m/delta)) / W,
             W = sum over all agents of min(n_j, n_cut)

**PERT-COW** is for means that are off by up to epsilon: ``w_j`` grows by epsilon and the error by ``5 epsilon``; it
prints ``w_j`` with ``min(n_j, n_cut)`` in place of ``n_j``, and gives ``(0, infinity)`` where ``n_cut = 0``.

The logarithms are arguments of their own, ``log_each = ln(2m/delta)`` and ``log_all = ln(2/delta)``: Byzan-UCBVI's
delta is far too small for a float.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import CountArray, FloatArray

SLACK = 1e-9
"""``alpha m`` this close above a whole number is that number: 0.1 x 30 is 3, not 4."""

FEW = 40
"""Up to this many numbers are sorted by insertion."""


class Workspace(NamedTuple):
    """Room for m agents, so that nothing is allocated per mean."""

    trimmed: CountArray
    sorted_counts: CountArray
    low: FloatArray
    high: FloatArray
    sorted_low: FloatArray
    sorted_high: FloatArray
    members: npt.NDArray[np.bool_]


@compiled
def workspace(agents: int) -> Workspace:
    counts, ends = np.zeros((2, agents), dtype=np.int64), np.zeros((4, agents))
    return Workspace(counts[0], counts[1], ends[0], ends[1], ends[2], ends[3], np.zeros(agents, dtype=np.bool_))


@compiled
def liars_at_most(alpha: float, agents: int) -> int:
    """``f = ceil(alpha m)``.

    >>> liars_at_most(0.1, 30), liars_at_most(0.1, 31), liars_at_most(0.0, 5)
    (3, 4, 0)
    """
    return math.ceil(alpha * agents - SLACK)


@compiled
def _sort(array: Array) -> None:
    """In place; few numbers by insertion, which is several times faster than the general sort."""
    if len(array) > FEW:
        array.sort()
        return
    for j in range(1, len(array)):
        x, k = array[j], j
        while k > 0 and array[k - 1] > x:
            array[k] = array[k - 1]
            k -= 1
        array[k] = x


@compiled
def trim(counts: CountArray, liars: int, trimmed: CountArray, scratch: CountArray) -> int:
    """``n_cut``, the ``(2 f + 1)``-th largest count (0 if there are fewer); writes ``trimmed = min(n_j, n_cut)``."""
    m = len(counts)
    n_cut = 0
    if liars == 0:
        for j in range(m):
            n_cut = max(n_cut, counts[j])
    elif 2 * liars < m:
        scratch[:] = counts
        _sort(scratch)
        n_cut = max(0, scratch[m - 1 - 2 * liars])
    for j in range(m):
        trimmed[j] = max(0, min(counts[j], n_cut))
    return n_cut


@compiled
def largest_clique(
    low: FloatArray,
    high: FloatArray,
    sorted_low: FloatArray,
    sorted_high: FloatArray,
    members: npt.NDArray[np.bool_],
) -> int:
    """The size of a largest set of closed intervals with a common point; ``members`` says which.

    A sweep over the sorted ends, opening before closing where they are equal, in ``O(m log m)``; among points in
    equally many intervals the lowest is taken. Where all have a point in common no sorting is needed.
    """
    m = len(low)
    last_open, first_close = -math.inf, math.inf
    for j in range(m):
        last_open = max(last_open, low[j])
        first_close = min(first_close, high[j])
    point, size = last_open, m
    if last_open > first_close:
        sorted_low[:] = low
        sorted_high[:] = high
        _sort(sorted_low)
        _sort(sorted_high)
        size, closed = 0, 0
        for opened in range(m):
            while sorted_high[closed] < sorted_low[opened]:
                closed += 1
            if opened + 1 - closed > size:
                point, size = sorted_low[opened], opened + 1 - closed
    for j in range(m):
        members[j] = low[j] <= point <= high[j]
    return size


@compiled
def pert_cow(
    means: FloatArray,
    counts: CountArray,
    sigma: float,
    alpha: float,
    epsilon: float,
    log_each: float,
    log_all: float,
    work: Workspace,
) -> tuple[float, float]:
    """``(mean, error)`` by PERT-COW; see the module's text."""
    trimmed, sorted_counts, low, high, sorted_low, sorted_high, members = work
    m = len(counts)
    n_cut = trim(counts, liars_at_most(alpha, m), trimmed, sorted_counts)
    if n_cut <= 0:
        return 0.0, math.inf
    each = sigma * math.sqrt(2.0 * log_each)
    for j in range(m):
        w = each / math.sqrt(trimmed[j]) + epsilon if trimmed[j] > 0 else math.inf
        low[j], high[j] = means[j] - w, means[j] + w
    largest_clique(low, high, sorted_low, sorted_high, members)
    total, believed, weight = 0.0, 0.0, 0.0
    for j in range(m):
        weight += trimmed[j]
        if members[j] and trimmed[j] > 0:
            total += trimmed[j] * means[j]
            believed += trimmed[j]
    chance = 2.0 * sigma * math.sqrt(2.0 * log_all) / math.sqrt(weight)
    lies = 8.0 * alpha * m * math.sqrt(n_cut) * sigma * math.sqrt(2.0 * log_each) / weight
    return total / believed, chance + lies + 5.0 * epsilon
