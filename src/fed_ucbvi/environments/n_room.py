"""NRoom of rlberry: a row of rooms with a small reward at one end and a large one at the other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fed_ucbvi.core.errors import check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, family, shifted
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.environments.squares import MOVES, Cell, moving_kernel, neighbours_of, random_moving_kernel
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

ROOMS_IN_A_ROW = 5
FIRST, START, LAST = 0.1, 0.01, 1.0
"""The rewards in the middle of the first room, of the room where the agent starts and of the last room."""


@known_as("NRoom", formerly="nroom")
def n_room(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    rooms: int = 7,
    room_size: int = 5,
    success: float = 0.95,
    horizon: int = 25,
    bernoulli_rewards: bool = False,
) -> Federation:
    """Square rooms of rlberry's NRoom, five to a row that winds like a snake, each with a door to the next.

    Moves are those of GridWorld. The agent starts in the middle of the middle room, where a step pays 0.01. A step in
    the middle of the first room pays 0.1. One in the middle of the last room pays 1 and ends the episode: the agent
    moves to the last state, which has no square, pays nothing and is never left.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1), which are those of GridWorld.
        seed: of the differences between agents; those of agent i depend only on ``(seed, i)``.
        spread: how far the probability of success differs between agents: its odds are ``e^x`` times those of
            ``success``.
        rooms: number of rooms, at least 3.
        room_size: their width and height.
        success: probability of moving as intended.
        horizon: H; the walk to the last room takes ``(rooms - 1 - rooms // 2) * (room_size + 1)`` moves; with
            the other options as they are, the last room is worth more than the first up to H = 40.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> rooms = n_room(agents=2)
    >>> rooms.states, round(float(rooms.common.solve().V[0] @ rooms.common.initial), 4)
    (182, 0.9925)
    """
    n = check_integer("rooms", rooms, at_least=3)
    size = check_positive_integer("room_size", room_size)
    p = check_number("success", success, at_least=0, at_most=1)
    H = check_positive_integer("horizon", horizon)
    free, middles = _floor_plan(n, size)
    first, start, goal = middles[0], middles[n // 2], middles[-1]
    number = {cell: s for s, cell in enumerate(free)}
    end = len(free)
    neighbours = [neighbours_of(cell, number) for cell in free]
    neighbours[number[goal]] = [end] * len(MOVES)
    neighbours.append([None] * len(MOVES))
    rewards = np.zeros((end + 1, len(MOVES)))
    for cell, pays in ((first, FIRST), (start, START), (goal, LAST)):
        rewards[number[cell]] = pays

    def kernel(x: FloatArray) -> Kernel:
        return moving_kernel(neighbours, shifted(p, x))

    environment = Environment(
        name="n_room",
        options={"rooms": n, "room_size": size, "success": p, "horizon": H},
        kernel=kernel,
        varies="the probability of success",
        rewards=rewards,
        initial=number[start],
        horizon=H,
        individual=lambda common, _, rng: random_moving_kernel(common, neighbours, rng),
        layout={
            "rows": max(row for row, _ in free) + 1,
            "columns": max(column for _, column in free) + 1,
            "cells": [list(cell) for cell in free],
            "start": list(start),
            "goals": [list(first), list(goal)],
            "moves": [list(move) for move in MOVES],
        },
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)


def _floor_plan(rooms: int, size: int) -> tuple[list[Cell], list[Cell]]:
    """Free squares, row by row, and the middles of the rooms, in their order."""
    pitch, half = size + 1, size // 2
    corners = []
    for k in range(rooms):
        row, column = divmod(k, ROOMS_IN_A_ROW)
        corners.append((row * pitch, (column if row % 2 == 0 else ROOMS_IN_A_ROW - 1 - column) * pitch))
    squares = {(top + r, left + c) for top, left in corners for r in range(size) for c in range(size)}
    middles = [(top + half, left + half) for top, left in corners]
    for (top, left), (below, beside) in pairwise(corners):
        squares.add((top + half, max(left, beside) - 1) if top == below else (below - 1, left + half))
    return sorted(squares), middles
