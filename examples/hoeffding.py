"""Optimistic value iteration on the counts of all agents: ``fed-ucbvi run --algorithm examples.hoeffding:Hoeffding``.

Agents report counts, so the algorithm has secure sums, quorums, warm starts and incumbents without further code.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

import fed_ucbvi as fed
from fed_ucbvi import CountTable, FloatArray, PolicyArray, Setting


@dataclass(frozen=True)
class Hoeffding(fed.CountingAlgorithm):
    """Value iteration with the bonus ``scale H sqrt(log(2 H S A (N + 1)) / N)``."""

    name: ClassVar[str] = "hoeffding"
    extension = fed.RunExtension(episodes=None, warm_start=None)  # the bonus depends on counts alone

    scale: Annotated[float, fed.Bounds(at_least=0), fed.Help("factor on the bonus.")] = 0.1

    def plan(self, setting: Setting, counts: CountTable, *, explore: bool) -> tuple[PolicyArray, FloatArray]:
        """With the bonus to explore; without it, and with 0 for pairs never visited, to recommend."""
        H = setting.horizon
        S = setting.states
        A = setting.actions
        N = counts.visits
        visits = np.maximum(N, 1)
        kernel = counts.dense() / visits[..., None]
        rewards = counts.mean_rewards()
        bonus = self.scale * H * np.sqrt(np.log(2 * H * S * A * (N + 1)) / visits)
        best = np.zeros((H, S, A), dtype=bool)
        V = np.zeros((H + 1, S))
        for h in reversed(range(H)):
            Q = rewards[h] + kernel[h] @ V[h + 1]
            if explore:
                Q = np.where(N[h] > 0, np.minimum(Q + bonus[h], H - h), H - h)
            V[h] = Q.max(axis=1)
            best[h] = V[h][:, None] == Q
        return best, V
