"""WindyCliff of the federated literature: a walk along a cliff, with a wind that is not the same for all agents."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, Rows, family, kernel_of, shifted
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.environments.squares import ACTIONS, MOVES, Cell
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

STEP, FALL, GOAL = -1.0, -100.0, 100.0
"""Published rewards of a step in an ordinary square, in the cliff and in the goal."""
DOWN = ACTIONS.index("down")


@known_as("WindyCliff")
def windy_cliff(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    rows: int = 4,
    columns: int = 4,
    wind: float = 0.5,
    horizon: int = 20,
    bernoulli_rewards: bool = False,
) -> Federation:
    """WindyCliffs of Jin, Peng, Yang, Wang and Zhang (2022), with episodes of H steps.

    Episodes begin in the lower left corner. The lower right corner is the goal, and the squares between them are the
    cliff. A move down goes down. Any other move goes as intended with probability 1 - wind/3, and otherwise the wind
    blows the agent one square down. Moves out of the grid stay put. Goal and cliff lead back to the start, whatever
    the action. A step in the goal pays 100, in the cliff -100, elsewhere -1; here that is 1, 0 and 0.495.

    (In the paper an agent goes on for ever and later rewards are discounted by 0.95. H = 20 steps see as far.)

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1), the paper's kappa: agent i's individual kernel is a
            WindyCliff whose wind is drawn uniformly from (0,1).
        seed: of the differences between agents; those of agent i depend only on ``(seed, i)``.
        spread: how far the wind differs between agents: the odds of being blown down are ``e^x`` times those of
            ``wind / 3``.
        rows: height of the grid, at least 2.
        columns: width of the grid, at least 3.
        wind: between 0 and 1.
        horizon: H.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> cliff = windy_cliff(agents=2)
    >>> cliff.states, round(float(cliff.common.solve().V[0] @ cliff.common.initial), 4)
    (16, 10.7557)
    """
    R = check_integer("rows", rows, at_least=2)
    C = check_integer("columns", columns, at_least=3)
    theta = check_number("wind", wind, at_least=0, at_most=1)
    H = check_positive_integer("horizon", horizon)
    cells = [(r, c) for r in range(R) for c in range(C)]
    start, goal = (R - 1, 0), (R - 1, C - 1)
    published = np.array([GOAL if cell == goal else FALL if _ends(cell, R) else STEP for cell in cells])
    scale, offset = GOAL - FALL, FALL

    def kernel(x: FloatArray) -> Kernel:
        return kernel_of(_moves(R, C, shifted(theta / 3, x)))

    environment = Environment(
        name="windy_cliff",
        options={"rows": R, "columns": C, "wind": theta, "horizon": H},
        kernel=kernel,
        varies="the probability of being blown down",
        rewards=np.repeat(((published - offset) / scale)[:, None], len(MOVES), axis=1),
        initial=cells.index(start),
        horizon=H,
        individual=lambda common, _, rng: kernel_of(_moves(R, C, rng.random() / 3)),
        layout={
            "rows": R,
            "columns": C,
            "cells": [list(cell) for cell in cells],
            "start": list(start),
            "goals": [list(goal)],
            "moves": [list(move) for move in MOVES],
        },
        reward_scale=scale,
        reward_offset=offset,
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)


def _ends(cell: Cell, rows: int) -> bool:
    """Whether a square is cliff or goal."""
    return cell[0] == rows - 1 and cell[1] > 0


def _moves(rows: int, columns: int, blown: float) -> Rows:
    """Where every action leads from every square; squares are numbered row by row."""
    table = []
    for r in range(rows):
        for c in range(columns):
            below = min(r + 1, rows - 1) * columns + c
            if _ends((r, c), rows):
                table.append([{(rows - 1) * columns: 1.0}] * len(MOVES))
                continue
            here = []
            for action, (dr, dc) in enumerate(MOVES):
                aim = min(max(r + dr, 0), rows - 1) * columns + min(max(c + dc, 0), columns - 1)
                share = 1.0 if action == DOWN else 1.0 - blown
                here.append({aim: 1.0} if aim == below else {aim: share, below: 1.0 - share})
            table.append(here)
    return table
