"""Moves on squares, as in GridWorld and NRoom: left, right, down and up, with a chance of going elsewhere."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.environments.families import random_kernel
from fed_ucbvi.problem.kernel import Kernel

Cell = tuple[int, int]

ACTIONS = ("left", "right", "down", "up")
MOVES: tuple[Cell, ...] = ((0, -1), (0, 1), (1, 0), (-1, 0))


def neighbours_of(cell: Cell, number: dict[Cell, int]) -> list[int | None]:
    """The state each action aims at, or None where that square is a wall or outside."""
    return [number.get((cell[0] + dr, cell[1] + dc)) for dr, dc in MOVES]


def _support(neighbours: list[list[int | None]]) -> IndexArray:
    """Successors ``(1, S, A, K)``: the square and its free neighbours, ascending, padded with the last."""
    reachable = [sorted({s, *(n for n in aims if n is not None)}) for s, aims in enumerate(neighbours)]
    width = max(len(row) for row in reachable)
    table = np.array([row + row[-1:] * (width - len(row)) for row in reachable], dtype=np.int32)
    return np.repeat(table[None, :, None, :], len(MOVES), axis=2)


def moving_kernel(neighbours: list[list[int | None]], success: float) -> Kernel:
    """A move succeeds with probability ``success`` and otherwise goes to another free neighbour, evenly."""
    support = _support(neighbours)
    probabilities = np.zeros(support.shape)
    for s, aims in enumerate(neighbours):
        slot = {int(successor): k for k, successor in reversed(list(enumerate(support[0, s, 0])))}
        reachable = [n for n in aims if n is not None]
        for a, aim in enumerate(aims):
            row = probabilities[0, s, a]
            others = [n for n in reachable if n != aim]
            if aim is None:
                row[slot[s]] = 1.0
            elif not others:
                row[slot[aim]] = 1.0
            else:
                row[slot[aim]] = success
                for other in others:
                    row[slot[other]] = (1.0 - success) / len(others)
    return Kernel(support, probabilities)


def random_moving_kernel(common: Kernel, neighbours: list[list[int | None]], rng: np.random.Generator) -> Kernel:
    """An individual kernel: free neighbours with weights uniform on (0,1), normalised."""
    support = common.successors
    allowed = np.zeros(support.shape, dtype=bool)
    for s, aims in enumerate(neighbours):
        reachable = [n for n in aims if n is not None] or [s]
        seen: set[int] = set()
        for k, successor in enumerate(support[0, s, 0].tolist()):
            allowed[0, s, :, k] = successor in reachable and successor not in seen
            seen.add(successor)
    return random_kernel(common, rng, allowed)
