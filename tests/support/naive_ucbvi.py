"""UCBVI once more, straight from the pseudocode: loops and dictionaries, no code of the package.

Steps h run from 0 to H-1; M trajectories are pooled after every episode (M = 1 is the original, by stage).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from model_free import Sizes, Step


class NaiveUCBVI:
    """State of the server after the episodes so far."""

    def __init__(self, sizes: Sizes, parameters: Any) -> None:
        self.sizes = sizes
        self.parameters = parameters
        self.seen: defaultdict[tuple[int, int, int], list[Step]] = defaultdict(list)
        self.arrivals: Counter[tuple[int, int]] = Counter()
        self.Q = np.full((sizes.horizon, sizes.states, sizes.actions), math.inf)
        self.V = np.zeros((sizes.horizon + 1, sizes.states))

    def observe(self, step: Step) -> None:
        self.seen[step.h, step.s, step.a].append(step)
        self.arrivals[step.h + 1, step.successor] += 1

    def bonus(self, h: int, s: int, a: int) -> float:
        """``b_h(s,a)`` of a pair that was visited."""
        o, (S, A, H, M, T), N = self.parameters, self.sizes, len(self.seen[h, s, a])
        scale = float(o.scale)
        L = math.log(5 * S * A * H * M * T * H / o.delta)
        if o.bonus == "simplified":
            return min(scale * math.sqrt(1 / N) + (H - h) / N, H - h)
        if o.bonus == "chernoff-hoeffding":
            return scale * 7 * H * L / math.sqrt(N)
        nexts = [step.successor for step in self.seen[h, s, a]]
        mean = sum(self.V[h + 1, y] for y in nexts) / N
        variance = sum((self.V[h + 1, y] - mean) ** 2 for y in nexts) / N
        third = 0.0
        if o.third_term == "paper":
            for y in nexts:
                doubt = 100**2 * H**3 * S**2 * A * L**2 / self.arrivals[h + 1, y]
                third += min(doubt, H**2) / N
        plain = math.sqrt(8 * L * variance / N) + 14 * H * L / (3 * N) + math.sqrt(8 / N * third)
        return scale * plain

    def plan(self) -> None:
        o, (S, A, H, _, _) = self.parameters, self.sizes
        for h in reversed(range(H)):
            cap = {"horizon": H, "remaining": H - h, "values": math.inf}[o.clip]
            for s, a in np.ndindex(S, A):
                steps = self.seen[h, s, a]
                if steps:
                    target = sum(step.reward + self.V[h + 1, step.successor] for step in steps) / len(steps)
                    q = min(target + self.bonus(h, s, a), cap)
                else:
                    if o.clip == "values":
                        q = self.V[h + 1].sum() / S + H - h
                    else:
                        q = cap
                self.Q[h, s, a] = min(q, self.Q[h, s, a]) if o.monotone else q
            self.V[h] = np.minimum(self.Q[h].max(axis=1), H)
