"""DeepSea of bsuite: a treasure that only one of 2^N courses reaches."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_flag, check_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, Part, family, kernel_of, shifted
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.environments.seeds import generator
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

MOVE_COST = 0.01
"""What N moves to the right cost together."""


@known_as("DeepSea", formerly="deepsea")
def deep_sea(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    size: int = 10,
    stochastic: bool = False,
    action_map: bool = True,
    bernoulli_rewards: bool = False,
) -> Federation:
    """DeepSea (Osband and others, 2019) on N x N squares, with H = N.

    A diver starts in the upper left square and sinks one row a step, one column to the left or to the right (or
    straight down at the border). A move to the right costs 0.01/N; in the last column it finds the treasure, 1. The
    last column can be reached in the last row alone, by moving right all the way. Which action is right in a square
    is drawn once for all agents. In the stochastic version a move to the right goes straight down with probability
    1/N; its noise on the rewards has mean zero and is left out. Rewards are shifted by 0.01/N, so a move to the left
    pays that and one to the right nothing, but for the treasure.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1), which sink to any square that some move reaches.
        seed: of the action map and of the differences between agents; those of agent i depend only on ``(seed, i)``.
        spread: how far the probability of slipping differs between agents: its odds are ``e^x`` times those of 1/N;
            needs the stochastic version.
        size: N, at least 2.
        stochastic: whether moves to the right slip.
        action_map: whether the actions' meaning is drawn for each square; otherwise 0 is left and 1 right.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> float(deep_sea(agents=2).common.solve().V[0, 0])
    1.0
    """
    N = check_integer("size", size, at_least=2)
    slip = 1.0 / N if check_flag("stochastic", stochastic) else 0.0
    mapped = check_flag("action_map", action_map)
    drawn = generator(check_integer("seed", seed), Part.STRUCTURE).integers(0, 2, (N, N))
    right_action = drawn if mapped else np.ones((N, N), dtype=np.int64)
    cells = [(row, column) for row in range(N) for column in range(N)]
    rewards = np.zeros((N * N, 2))
    moves = []
    for s, (row, column) in enumerate(cells):
        right = int(right_action[row, column])
        rewards[s, 1 - right] = MOVE_COST / N
        rewards[s, right] = 1.0 if column == N - 1 else 0.0
        aims = [[1, max(column - 1, 0) - column], [1, min(column + 1, N - 1) - column]]
        moves.append(aims if right == 1 else aims[::-1])

    def kernel(x: FloatArray) -> Kernel:
        p = shifted(slip, x)
        return kernel_of([rows(s, row, column, p) for s, (row, column) in enumerate(cells)])

    def rows(s: int, row: int, column: int, p: float) -> list[dict[int, float]]:
        if row == N - 1:  # the episode ends here
            return [{s: 1.0}, {s: 1.0}]
        left, below, right = (s + N + min(max(c, 0), N - 1) - column for c in (column - 1, column, column + 1))
        rightward = {right: 1.0} if p == 0 or right == below else {right: 1.0 - p, below: p}
        return [{left: 1.0}, rightward] if right_action[row, column] == 1 else [rightward, {left: 1.0}]

    environment = Environment(
        name="deep_sea",
        options={"size": N, "stochastic": bool(stochastic), "action_map": mapped},
        kernel=kernel,
        varies="the probability of slipping",
        rewards=rewards,
        initial=0,
        horizon=N,
        layout={
            "rows": N,
            "columns": N,
            "cells": [list(cell) for cell in cells],
            "start": [0, 0],
            "goals": [[N - 1, N - 1]],
            "moves": [[1, -1], [1, 1]],
            "moves_by_state": moves,
        },
        reward_offset=-MOVE_COST / N,
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)
