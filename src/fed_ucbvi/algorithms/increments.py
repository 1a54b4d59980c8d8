"""Reports of what is new: counts since an agent's last confirmed report, which a server adds to its table."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.count_table import NewCounts
from fed_ucbvi.algorithms.exact_sums import Grid, write_words
from fed_ucbvi.algorithms.fields import Meaning
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import CountArray


class Increments(NamedTuple):
    """Up, one row for all agents of a fleet: what is new since their last confirmed report.

    ``C (1,steps,S,A,S)`` counts transitions and ``Z (1,steps,S,A,words)`` is the sum of ``ceil(r 2^f)`` over visits.
    """

    C: Annotated[CountArray, Meaning.NEW_TRANSITIONS]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]


class IncrementsByState(NamedTuple):
    """Increments with random rewards by next state, ``R (1,steps,S,A,S,1)``, and squares ``W (1,steps,S,A,2)``."""

    C: Annotated[CountArray, Meaning.NEW_TRANSITIONS]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]
    R: Annotated[CountArray, Meaning.SUM_OF_REWARDS]
    W: Annotated[CountArray, Meaning.SUM_OF_SQUARED_REWARDS]


def increments_of(new: NewCounts, shape: tuple[int, int, int], grid: Grid) -> Increments | IncrementsByState:
    """New counts as a message; ``shape`` is that of tables by (h,s,a)."""
    steps, S, A = shape
    kept = (1, steps if len(new.paid) else 0, S, A)
    out = IncrementsByState(
        np.zeros((1, *shape, S), dtype=np.int64),
        np.zeros((1, *shape, grid.words), dtype=np.int64),
        np.zeros((*kept, S, 1), dtype=np.int64),
        np.zeros((*kept, 2), dtype=np.int64),
    )
    _write(new, grid, A, *(array.reshape((-1, size)) for array, size in zip(out, (S, grid.words, S, 2), strict=True)))
    return out if len(new.paid) else Increments(out.C, out.Z)


@compiled
def _write(
    new: NewCounts, grid: Grid, actions: int, C: CountArray, Z: CountArray, R: CountArray, W: CountArray
) -> None:
    cells, successors, transitions, rewards, paid, squares = new
    S = C.shape[1]
    for cell in cells:
        a, rest = np.int64(cell) % actions, np.int64(cell) // actions
        s, h = rest % S, rest // S
        hk = h if successors.shape[0] > 1 else 0
        for k in range(transitions.shape[1]):
            if transitions[cell, k] > 0:
                C[cell, successors[hk, s, a, k]] += transitions[cell, k]
                if len(paid) > 0:
                    R[cell, successors[hk, s, a, k]] += paid[cell, k]
        write_words((rewards[cell, 0], rewards[cell, 1]), grid, Z[cell])
        if len(paid) > 0:
            write_words((squares[cell, 0], squares[cell, 1]), grid, W[cell])
