"""MVP once more, straight from the pseudocode: loops and lists, no code of the package."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np

Triplet = tuple[int, int, int]


class NaiveMVP:
    """What is known after the visits so far; epochs end at 1, 2, 4, ... visits."""

    def __init__(self, states: int, actions: int, horizon: int, episodes: int, delta: float, scale: float) -> None:
        self.episodes, self.delta, self.scale = episodes, delta, scale
        self.count: Counter[Triplet] = Counter()
        self.epoch: defaultdict[Triplet, list[tuple[float, int]]] = defaultdict(list)
        self.model: dict[Triplet, list[tuple[float, int]]] = {}
        self.Q, self.V = np.zeros((horizon, states, actions)), np.zeros((horizon + 1, states))

    def observe(self, at: Triplet, reward: float, successor: int) -> bool:
        """One visit; whether it ends an epoch."""
        self.count[at] += 1
        self.epoch[at].append((reward, successor))
        if math.log2(self.count[at]) % 1 != 0:
            return False
        self.model[at] = self.epoch.pop(at)
        return True

    def plan(self) -> None:
        (H, S, A), K = self.Q.shape, self.episodes
        small = self.delta / (200 * S * A * H**2 * K**2)
        L = math.log(1 / small)
        for h in reversed(range(H)):
            for s, a in np.ndindex(S, A):
                data = self.model.get((h, s, a))
                if data is None:
                    self.Q[h, s, a] = H
                    continue
                n = len(data)
                values = [self.V[h + 1, y] for _, y in data]
                r, mean = sum(r for r, _ in data) / n, sum(values) / n
                variance = sum((v - mean) ** 2 for v in values) / n
                noise = sum((x - r) ** 2 for x, _ in data) / n
                b = 460 / 9 * math.sqrt(variance * L / n) + 2 * math.sqrt(2) * math.sqrt(noise * L / n)
                b += 544 / 9 * H * L / n
                self.Q[h, s, a] = min(r + mean + self.scale * b, H)
            self.V[h] = self.Q[h].max(axis=1)
