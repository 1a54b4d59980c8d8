"""The regret of rlberry-scool's UCBVI on the paper's 3 x 3 GridWorld, written without the package.

Needs ``pip install rlberry-scool==0.7.3`` (not a dependency of this project). Run as
``python tests/support/rlberry_reference.py 60`` it prints number, mean and standard deviation of 60 seeds' regret.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

CELLS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)]
MOVES = [(0, -1), (0, 1), (1, 0), (-1, 0)]
HORIZON = 5
EPISODES = 300


def tables() -> tuple[FloatArray, FloatArray]:
    """``P[S,A,S]`` and ``R[S,A]``; the start is state 0."""
    S = len(CELLS)
    A = len(MOVES)
    P = np.zeros((S, A, S))
    R = np.zeros((S, A))
    R[CELLS.index((2, 2))] = 1.0
    for s, (row, column) in enumerate(CELLS):
        around = [(row + r, column + c) for r, c in MOVES]
        for a, aim in enumerate(around):
            others = [cell for cell in around if cell in CELLS and cell != aim]
            if aim not in CELLS:
                P[s, a, s] = 1.0
            else:
                P[s, a, CELLS.index(aim)] = 0.8 if others else 1.0
                for cell in others:
                    P[s, a, CELLS.index(cell)] = 0.2 / len(others)
    return P, R


def value(P: FloatArray, R: FloatArray, policy: npt.NDArray[np.int64] | None) -> float:
    """The value of the start, of a policy ``[H,S]`` or the best."""
    V = np.zeros(len(R))
    for h in reversed(range(HORIZON)):
        Q = R + P @ V
        V = Q.max(axis=1) if policy is None else Q[np.arange(len(R)), policy[h]]
    return float(V[0])


def regret_of(seed: int) -> float:
    """The regret over all episodes, each policy evaluated exactly."""
    discrete = importlib.import_module("rlberry.spaces").Discrete
    agent_class = importlib.import_module("rlberry_scool.agents.ucbvi.ucbvi").UCBVIAgent

    P, R = tables()
    rng = np.random.default_rng(seed)

    class GridWorld:
        observation_space = discrete(len(R))
        action_space = discrete(len(MOVES))
        reward_range = (0.0, 1.0)
        state = 0

        def reset(self, **_: Any) -> tuple[int, dict[str, Any]]:
            self.state = 0
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            reward = float(R[self.state, action])
            self.state = int(rng.choice(len(R), p=P[self.state, action]))
            return self.state, reward, False, False, {}

    agent = agent_class(
        GridWorld(),
        gamma=1.0,
        horizon=HORIZON,
        bonus_scale_factor=1.0,
        stage_dependent=True,
    )
    best = value(P, R, None)
    regret = 0.0
    for _ in range(EPISODES):
        regret += best - value(P, R, agent.Q.argmax(axis=2))
        agent._run_episode()
    return regret


if __name__ == "__main__":
    found = [regret_of(seed) for seed in range(int(sys.argv[1]))]
    sys.stdout.write(f"{len(found)} {statistics.mean(found):.3f} {statistics.stdev(found):.3f}\n")
