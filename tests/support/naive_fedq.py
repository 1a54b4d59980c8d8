"""FedQ once more, visit by visit from the pseudocode: loops and dictionaries.

Slow and plain on purpose, and sharing no code with the package, which is checked against it. Bonuses are added at
every visit, as the TLS files write it, not kept apart. Steps h run from 0 to H-1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from model_free import Sizes, Step

FloatArray = npt.NDArray[np.float64]
Triplet = tuple[int, int, int]
"""(h, s, a)."""


def alpha(t: int, H: int) -> float:
    return (H + 1) / (H + t)


def iota(sizes: Sizes, delta: float) -> float:
    """The logarithm of the paper, ``T_0 = H M T``, ``K_0 = T``."""
    S, A, H, M, T = sizes
    T_0 = H * M * T
    K_0 = T
    C = 1 / (H * (H + 1))
    visits = (T_0 + H * M, K_0 * H * (T_0 / H + M))
    return max(math.log(2 * S * A * n * (1 + C) / delta) for n in visits)


def visits_until_ask(N: int, sizes: Sizes) -> int:
    """Visit after visit until ``n >= max(1, floor(N/(M H (H+1))))``."""
    n = 0
    while True:
        n += 1
        if n >= max(1, math.floor(N / (sizes.agents * sizes.horizon * (sizes.horizon + 1)))):
            return n


def visits_by_triplet(reports: list[list[Step]]) -> dict[Triplet, list[Step]]:
    """A round's visits to each (h,s,a), in agent order."""
    found: defaultdict[Triplet, list[Step]] = defaultdict(list)
    for steps in reports:
        for step in steps:
            found[step.h, step.s, step.a].append(step)
    return found


def blocks_of(visits: list[Step], N: int, sizes: Sizes) -> list[list[Step]]:
    """Unit of the average: single visits, or the round."""
    if 2 * sizes.agents * sizes.horizon * (sizes.horizon + 1) > N:
        return [[visit] for visit in visits]
    return [visits]


class NaiveFedQ:
    """The server of FedQ-Hoeffding and FedQ-Bernstein, with their parameters."""

    def __init__(self, sizes: Sizes, parameters: Any) -> None:
        S, A, H = sizes[:3]
        self.sizes = sizes
        self.parameters = parameters
        self.iota = iota(sizes, parameters.delta)
        self.published = parameters.bonus == "published"
        self.bernstein = hasattr(parameters, "bernstein_after")
        self.N = np.zeros((H, S, A), dtype=np.int64)
        self.theta2, self.beta, self.Q = np.zeros((3, H, S, A))
        self.Q += H if self.published else (H - np.arange(H))[:, None, None]
        self.plain = self.Q.copy()
        self.samples: defaultdict[Triplet, list[float]] = defaultdict(list)

    @property
    def V(self) -> FloatArray:
        """``min(H, max_a Q)``."""
        H, S = self.Q.shape[:2]
        return np.vstack([np.minimum(self.Q.max(axis=2), H), np.zeros(S)])

    def variance(self, key: Triplet) -> float:
        """Variance of the next values collected so far."""
        values = self.samples[key]
        if not values:
            return 0.0
        mean = math.fsum(values) / len(values)
        return math.fsum((value - mean) ** 2 for value in values) / len(values)

    def beta_now(self, key: Triplet) -> float:
        """``beta_N`` of FedQ-Bernstein."""
        S, A, H, M = self.sizes[:4]
        N = self.N[key]
        log = self.iota
        fine = math.sqrt(H * log / N * (self.variance(key) + H))
        fine += log * (math.sqrt(H**7 * S * A) + math.sqrt(M * S * A * H**6)) / N
        return float(self.parameters.c_bernstein * min(fine, math.sqrt(H**3 * log / N)))

    def update(self, reports: list[list[Step]]) -> None:
        """The end of a round; all updates read the values of its beginning."""
        V = self.V
        for key, visits in visits_by_triplet(reports).items():
            self._update_at(key, visits, V[key[0] + 1])

    def _update_at(self, key: Triplet, visits: list[Step], V: FloatArray) -> None:
        H = self.sizes.horizon
        parameters = self.parameters
        n0 = self.N[key]
        collects = self.bernstein and (self.published or n0 >= parameters.bernstein_after)
        share = 1.0
        for block in blocks_of(visits, n0, self.sizes):
            mean = sum(step.reward + V[step.successor] for step in block) / len(block)
            for step in block:
                self.N[key] += 1
                t = self.N[key]
                rate = alpha(t, H)
                share *= 1 - rate
                b = parameters.c * math.sqrt(H**3 * self.iota / t)
                bonus = b if self.published and not self.bernstein else 0.0
                self.Q[key] = (1 - rate) * self.Q[key] + rate * (mean + bonus)
                self.plain[key] = (1 - rate) * self.plain[key] + rate * mean
                self.theta2[key] = (1 - rate) ** 2 * self.theta2[key] + rate**2
                if collects:
                    self.samples[key].append(V[step.successor])
        if self.published and self.bernstein:
            before, self.beta[key] = self.beta[key], self.beta_now(key)
            self.Q[key] += (self.beta[key] - share * before) / 2
        elif not self.published:
            if self.bernstein and len(self.samples[key]) >= max(1, parameters.bernstein_after):
                bonus = parameters.c_bernstein * math.sqrt(self.theta2[key] * self.variance(key))
            else:
                bonus = parameters.c * (H - 1 - key[0]) * math.sqrt(self.theta2[key])
            self.Q[key] = self.plain[key] + bonus
