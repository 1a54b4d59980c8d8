"""PERT-COW and Byzan-UCBVI once more, straight from the pseudocode: all subsets of agents, loops, dictionaries.

Among cliques of equal size the paper takes any; here the one whose common points begin
lowest.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from model_free import Sizes, Step

Interval = tuple[float, float]
Triplet = tuple[int, int, int]
"""(h, s, a)."""


def all_largest_cliques(intervals: Sequence[Interval]) -> list[tuple[int, ...]]:
    """Every largest set of closed intervals that have a point in common, by trying all sets."""
    everyone = range(len(intervals))
    for size in range(len(intervals), 0, -1):
        found = [
            clique
            for clique in itertools.combinations(everyone, size)
            if max(intervals[j][0] for j in clique) <= min(intervals[j][1] for j in clique)
        ]
        if found:
            return found
    return []


def naive_cow(
    means: Sequence[float],
    counts: Sequence[int],
    sigma: float,
    alpha: float,
    log_each: float,
    log_all: float,
    epsilon: float,
) -> tuple[float, float]:
    """PERT-COW."""
    m = len(means)
    f = next(k for k in range(m + 1) if k >= alpha * m - 1e-9)
    ranked = sorted(counts, reverse=True)
    n_cut = ranked[2 * f] if 2 * f < m else 0
    if n_cut <= 0:
        return 0.0, math.inf
    trimmed = [min(n, n_cut) for n in counts]
    heard = [j for j in range(m) if trimmed[j] > 0]
    widths = [sigma / math.sqrt(trimmed[j]) * math.sqrt(2 * log_each) + epsilon for j in heard]
    intervals = [(means[j] - w, means[j] + w) for j, w in zip(heard, widths, strict=True)]
    cliques = all_largest_cliques(intervals)
    clique = min(cliques, key=lambda c: max(intervals[k][0] for k in c))
    weight = sum(trimmed[heard[k]] for k in clique)
    mean = sum(trimmed[heard[k]] * means[heard[k]] for k in clique) / weight
    total = sum(trimmed)
    error = 2 * sigma * math.sqrt(2 * log_all) / math.sqrt(total)
    error += 8 * alpha * m * math.sqrt(n_cut) * sigma * math.sqrt(2 * log_each) / total
    return mean, error + 5 * epsilon


class NaiveByzan:
    """Server and agents together; ``steps[i][h,s,a]`` lists the (reward, successor) agent i has seen."""

    def __init__(self, sizes: Sizes, alpha: float, delta: float, log_term: float | None) -> None:
        S, A, H, m, _ = sizes
        self.sizes = sizes
        self.alpha = alpha
        self.delta = delta
        self.log_term = log_term
        self.steps: list[defaultdict[Triplet, list[tuple[float, int]]]] = [defaultdict(list) for _ in range(m)]
        self.old: list[dict[Triplet, int]] = [{} for _ in range(m)]
        self.sync_count = [-1] * m
        self.Q = np.zeros((H, S, A))
        self.V = np.zeros((H + 1, S))
        self.consider([True] * m)

    def observe(self, i: int, step: Step) -> None:
        self.steps[i][step.h, step.s, step.a].append((step.reward, step.successor))

    def wants(self, i: int) -> bool:
        """``max N/Nold >= 2``, where a first visit counts as infinitely many times more."""
        for at, data in self.steps[i].items():
            n = len(data)
            old = self.old[i].get(at, 0)
            if n > 0 and (old == 0 or n / old >= 2):
                return True
        return False

    def listens(self, i: int) -> bool:
        """``SyncCount <= S A H log2 K``."""
        S, A, H, _, K = self.sizes
        return self.sync_count[i] <= S * A * H * math.log2(K)

    def consider(self, asking: list[bool]) -> bool:
        """The beginning of the next episode: synchronise if the server listens to someone who asks."""
        sync = False
        for i, asks in enumerate(asking):
            if asks and self.listens(i):
                self.sync_count[i] += 1
                sync = True
        if sync:
            self.synchronise()
        return sync

    def synchronise(self) -> None:
        """The H exchanges."""
        S, A, H, m, K = self.sizes
        size = S * A * H * K * m
        log_delta = math.log(self.delta) - 3 * S * math.log(size)
        if self.log_term is None:
            log_each = math.log(2 * m) - log_delta
        else:
            log_each = self.log_term
        if self.log_term is None:
            log_all = math.log(2) - log_delta
        else:
            log_all = self.log_term
        epsilon = 1 / size
        for i in range(m):
            self.old[i] = {at: len(data) for at, data in self.steps[i].items()}
        for h in reversed(range(H)):
            sigma = H - h
            for s, a in np.ndindex(S, A):
                counts = [len(self.steps[i][h, s, a]) for i in range(m)]
                sums = [sum(r + self.V[h + 1, y] for r, y in self.steps[i][h, s, a]) for i in range(m)]
                means = [total / max(1, n) for total, n in zip(sums, counts, strict=True)]
                mean, error = naive_cow(means, counts, sigma, self.alpha, log_each, log_all, epsilon)
                bonus = min(sigma, error + epsilon)
                self.Q[h, s, a] = max(0.0, min(mean + bonus, sigma))
            self.V[h] = self.Q[h].max(axis=1)
