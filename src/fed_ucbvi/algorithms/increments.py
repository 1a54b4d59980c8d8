"""Reports of what is new: counts since an agent's last confirmed report, which a server adds to its table."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.count_table import NewCounts, slot_of
from fed_ucbvi.algorithms.exact_sums import Grid, write_words
from fed_ucbvi.algorithms.fields import Meaning
from fed_ucbvi.algorithms.support import Support
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import CountArray, IndexArray


class Increments(NamedTuple):
    """Up, one row for all agents of a fleet: what is new since their last confirmed report.

    ``C (1,n)`` counts transitions, in the order of a :class:`~fed_ucbvi.algorithms.support.Support`, and
    ``Z (1,steps,S,A,words)`` is the sum of ``ceil(r 2^f)`` over visits.
    """

    C: Annotated[CountArray, Meaning.NEW_TRANSITIONS]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]


class IncrementsByState(NamedTuple):
    """Increments with random rewards by next state, ``R (1,n,1)``, and squares ``W (1,steps,S,A,2)``."""

    C: Annotated[CountArray, Meaning.NEW_TRANSITIONS]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]
    R: Annotated[CountArray, Meaning.SUM_OF_REWARDS]
    W: Annotated[CountArray, Meaning.SUM_OF_SQUARED_REWARDS]


def increments_of(new: NewCounts, support: Support, grid: Grid) -> Increments | IncrementsByState:
    """New counts as a message; raise if a transition was counted that the support does not have."""
    by_state, shape = len(new.paid) > 0, support.shape
    out = IncrementsByState(
        np.zeros((1, support.numbers), dtype=np.int64),
        np.zeros((1, *shape, grid.words), dtype=np.int64),
        np.zeros((1, support.numbers if by_state else 0, 1), dtype=np.int64),
        np.zeros((1, *shape, 2) if by_state else (1, 0, 0, 0, 2), dtype=np.int64),
    )
    C, Z, R, W = (array.reshape((-1, array.shape[-1] if array.ndim > 2 else 1)) for array in out)
    wrong = _write(new, grid, (support.successors, support.sizes, support.starts), C, Z, R, W)
    if wrong >= 0:
        h, s, a = (int(i) for i in np.unravel_index(wrong, shape))
        raise InputError(
            f"from (step, state, action) = ({h}, {s}, {a}) this problem has gone where it cannot go by the tables "
            "of the run; serve it with --sizes, which leaves everything possible."
        )
    return out if by_state else Increments(out.C, out.Z)


@compiled
def _write(
    new: NewCounts,
    grid: Grid,
    support: tuple[IndexArray, IndexArray, CountArray],
    C: CountArray,
    Z: CountArray,
    R: CountArray,
    W: CountArray,
) -> int:
    """The cell of a transition that the support does not have, or -1."""
    cells, successors, transitions, rewards, paid, squares = new
    possible, sizes, starts = support
    S, A = sizes.shape[1:]
    for cell in cells:
        a, rest = np.int64(cell) % A, np.int64(cell) // A
        s, h = rest % S, rest // S
        hk, hp = shared(h, successors.shape[0]), shared(h, possible.shape[0])
        for k in range(transitions.shape[1]):
            if transitions[cell, k] > 0:
                slot = slot_of(successors[hk, s, a, k], possible[hp, s, a], sizes[hp, s, a])
                if slot < 0:
                    return int(cell)
                C[starts[cell] + slot, 0] += transitions[cell, k]
                if len(paid) > 0:
                    R[starts[cell] + slot, 0] += paid[cell, k]
        write_words((rewards[cell, 0], rewards[cell, 1]), grid, Z[cell])
        if len(paid) > 0:
            write_words((squares[cell, 0], squares[cell, 1]), grid, W[cell])
    return -1
