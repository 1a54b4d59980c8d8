"""The paper's GridWorld, for any size, walls, start and goals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fed_ucbvi.core.errors import InputError, check_integer, check_number, check_positive_integer
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.environments.seeds import generator
from fed_ucbvi.environments.squares import MOVES, Cell, moving_kernel, neighbours_of, random_moving_kernel
from fed_ucbvi.problem.federation import Federation, check_eps_p


@known_as("GridWorld")
def gridworld(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    rows: int = 3,
    columns: int = 3,
    walls: Iterable[Cell] | None = None,
    start: Cell = (0, 0),
    goals: Iterable[Cell] | None = None,
    success: float = 0.8,
    horizon: int = 10,
    bernoulli_rewards: bool = False,
) -> Federation:
    """GridWorld of the paper's Section 5 with the paper's values as defaults.

    Under the common kernel a move goes to the intended square with probability ``success`` and otherwise to
    another free neighbouring square, evenly; a move into a wall or out of the grid stays put. Agent i's
    individual kernel moves to the free neighbours with weights uniform on (0,1), normalised, drawn independently for
    every (square, action). Every step spent in a goal pays 1; goals are not terminal.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1).
        seed: of the individual kernels; agent i's kernel depends on ``(seed, i)`` alone, neither on M nor on
            eps_p.
        rows: height of the grid.
        columns: width of the grid.
        walls: squares (row, column) nobody can enter; by default the centre (1,1) of the 3 x 3 grid, none for
            other sizes.
        start: where every episode begins.
        goals: squares that pay; by default the last one, (rows-1, columns-1).
        success: probability of moving as intended.
        horizon: H.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> world = gridworld(agents=2, eps_p=0.1)
    >>> world.states, world.actions, world.horizon
    (8, 4, 10)
    """
    M = check_positive_integer("agents", agents)
    R = check_positive_integer("rows", rows)
    C = check_positive_integer("columns", columns)
    first_seed = check_integer("seed", seed)
    H = check_positive_integer("horizon", horizon)
    check_number("success", success, at_least=0, at_most=1)
    default_walls: list[Cell] = [(1, 1)] if (R, C) == (3, 3) else []
    blocked = _cells("walls", default_walls if walls is None else walls, R, C)
    paying = _cells("goals", [(R - 1, C - 1)] if goals is None else goals, R, C)
    (first,) = _cells("start", [start], R, C)
    free = [(r, c) for r in range(R) for c in range(C) if (r, c) not in blocked]
    number = {cell: s for s, cell in enumerate(free)}
    for name, cells in (("start", [first]), ("goals", sorted(paying))):
        for cell in cells:
            if cell in blocked:
                raise InputError(f"{name} {cell} lies in a wall.")
    neighbours = [neighbours_of(cell, number) for cell in free]
    common = moving_kernel(neighbours, success)
    eps = check_eps_p(eps_p)
    own = range(M if eps > 0 else 1)
    individual = [random_moving_kernel(common, neighbours, generator(first_seed, i)) for i in own]
    rewards = np.zeros((len(free), len(MOVES)))
    rewards[[number[cell] for cell in paying]] = 1.0
    parameters = {
        "agents": M,
        "eps_p": eps,
        "seed": first_seed,
        "rows": R,
        "columns": C,
        "walls": [list(cell) for cell in sorted(blocked)],
        "start": list(first),
        "goals": [list(cell) for cell in sorted(paying)],
        "success": float(success),
        "horizon": H,
    }
    federation = Federation.mixture(
        common,
        individual,
        eps,
        rewards=rewards,
        initial=number[first],
        horizon=H,
        description={"name": "gridworld", **parameters},
        layout={
            "rows": R,
            "columns": C,
            "cells": [list(cell) for cell in free],
            "start": list(first),
            "goals": [list(cell) for cell in sorted(paying)],
            "moves": [list(move) for move in MOVES],
        },
    )
    federation = federation.with_bernoulli_rewards(bernoulli_rewards)
    return federation if eps > 0 else federation.repeated(M)


def _cells(name: str, cells: Iterable[Cell], rows: int, columns: int) -> set[Cell]:
    checked = set()
    for cell in cells:
        try:
            pair = tuple(cell)
        except TypeError:
            pair = ()
        if len(pair) != 2:
            raise InputError(f"{name}: {cell!r} is not a (row, column) pair; expected a list such as [(1, 1)].")
        r, c = (check_integer(f"{name}: a coordinate", x, at_least=-(10**9)) for x in pair)
        if not (0 <= r < rows and 0 <= c < columns):
            raise InputError(f"{name}: {(r, c)} lies outside the {rows} x {columns} grid.")
        checked.add((r, c))
    return checked
