"""Reports of what is new: counts since an agent's last confirmed report, listed in an order that all agree on.

Of every (h,s,a), a *cell*, a support has the possible next states in ascending order. So transition counts are one
list of numbers: those of the first cell, those of the second, and so on. Where nothing is known of a problem but its
sizes, every state can follow, and the list is the dense table ``(steps, S, A, S)`` end to end.
"""

from __future__ import annotations

import functools
import math
import zlib
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.count_table import CountTable, NewCounts, visited_cells
from fed_ucbvi.algorithms.exact_sums import Grid, numbers_of, words_of
from fed_ucbvi.algorithms.fields import Meaning
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.memory import SMALLER, check_memory
from fed_ucbvi.core.types import CountArray, IndexArray, MaskArray

BYTES_PER_ENTRY = 3
"""Memory of an (h,s,a,s') while a support is read: its bit as two truth values, and as it came."""


class Support:
    """The possible next states of every cell.

    Args:
        possible: ``(1 or steps, S, A, S)``, whether a transition is possible; one table holds for all steps.
        steps: H, or 1 where visits are counted over all steps together; then what is possible at any step counts.

    Attributes:
        shape: ``(steps, S, A)``.
        transitions: ``(n,)``, the possible (h,s,a,s'), each a number in row-major order, ascending.
        starts: ``(steps S A,)``, where in the list those of a cell begin.
        successors: ``(steps, S, A, K)``, the next states, ascending; zeros behind them.

    >>> lane = np.eye(3, dtype=bool)[None, :, None] | np.eye(3, k=1, dtype=bool)[None, :, None]
    >>> support = Support(lane, steps=1)  # a lane of three states: stay, or go on
    >>> support.numbers, support.starts.tolist(), support.spread(np.array([5, 2, 1, 1, 3])).tolist()
    (5, [0, 2, 4], [[5, 2], [1, 1], [3, 0]])
    """

    def __init__(self, possible: MaskArray, steps: int) -> None:
        if steps == 1 < len(possible):
            possible = np.asarray(possible.any(axis=0, keepdims=True))
        if len(possible) not in (1, steps) or not possible.any(axis=3).all():
            raise InputError("some (step, state, action) has no next state.")
        S, A = possible.shape[1:3]
        self.shape, self._tables, self._bits = (steps, S, A), possible.shape, np.packbits(possible)
        listed = np.flatnonzero(possible)
        if len(possible) < steps:
            listed = (np.arange(steps)[:, None] * possible.size + listed).reshape(-1)
        self.transitions: CountArray = listed
        cells, states = (part.astype(np.int32) for part in np.divmod(listed, S))
        self.starts: CountArray = np.flatnonzero(np.diff(cells, prepend=-1))
        self._slots = cells, (np.arange(len(listed)) - self.starts[cells]).astype(np.int32)
        self.successors: IndexArray = self.spread(states).astype(np.int32).reshape((*self.shape, -1))

    @property
    def numbers(self) -> int:
        """Length of the list."""
        return len(self.transitions)

    @classmethod
    def of(cls, successors: IndexArray, steps: int) -> Support:
        """Make the support of a problem's tables ``(1 or H, S, A, K)``, in which a state may be listed twice."""
        return cls(_possible(successors), steps)

    @classmethod
    @functools.lru_cache(4)
    def full(cls, shape: tuple[int, ...]) -> Support:
        """Every state can follow; ``shape`` is ``(steps, S, A)``."""
        steps, S, A = shape
        return cls(np.ones((1, S, A, S), dtype=np.bool_), steps)

    def check_has(self, successors: IndexArray) -> None:
        """Raise unless it has all next states of a problem's tables."""
        missing = np.argwhere(_possible(successors) & ~_unpacked(self._bits, self._tables))
        if len(missing):
            h, s, a, to = missing[0].tolist()
            raise InputError(
                f"this node's problem can go from (step, state, action) = ({h}, {s}, {a}) to state {to}, and the "
                "server's cannot; start the node with the server's problem, or serve the run with --sizes."
            )

    def by_cell(self, listed: CountArray) -> CountArray:
        """Lists ``(rows, numbers)`` added up over next states, ``(rows, steps, S, A)``."""
        sums: CountArray = np.add.reduceat(listed, self.starts, axis=1)
        return sums.reshape((len(listed), *self.shape))

    def spread(self, listed: CountArray | IndexArray) -> CountArray:
        """A list by cell and slot, ``(cells, K)``, with zeros in the slots that have no next state."""
        table = np.zeros((len(self.starts), self._slots[1].max() + 1), dtype=np.int64)
        table[self._slots] = listed
        return table

    def place(self, number: int) -> tuple[int, int, int, int]:
        """Which (h,s,a,s') a place in the list is about."""
        h, s, a, to = np.unravel_index(self.transitions[number], (*self.shape, self.shape[1]))
        return int(h), int(s), int(a), int(to)

    @functools.cached_property
    def packed(self) -> bytes:
        """One bit for each (h,s,a,s'), compressed."""
        return zlib.compress(self._bits.tobytes(), 1)

    @classmethod
    def unpacked(cls, data: bytes, shape: tuple[int, int, int]) -> Support:
        """From what is :attr:`packed`, of tables of this shape; raises where it is not that."""
        steps, S, A = shape
        cells = S * A * S
        check_memory(f"A support of {steps * cells:,} transitions", BYTES_PER_ENTRY * steps * cells, SMALLER)
        reader = zlib.decompressobj()
        try:
            raw = reader.decompress(data, -(-steps * cells // 8) + 1)
        except zlib.error as error:
            raise InputError(f"a support that cannot be read: {error}.") from error
        held = next((number for number in (1, steps) if len(raw) == -(-number * cells // 8)), 0)
        if not held or not reader.eof:
            raise InputError(f"a support that does not fit tables of (steps, S, A) = {shape}.")
        return cls(_unpacked(np.frombuffer(raw, dtype=np.uint8), (held, S, A, S)), steps)


def _unpacked(bits: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> MaskArray:
    return np.unpackbits(bits, count=math.prod(shape)).astype(np.bool_).reshape(shape)


def _possible(successors: IndexArray) -> MaskArray:
    """Mask of the next states that tables list, ``(steps, S, A, S)``."""
    steps, S, A, _ = successors.shape
    table = np.zeros((steps, S, A, S), dtype=np.bool_)
    np.put_along_axis(table, successors.astype(np.int64), True, axis=3)
    return table


class Increments(NamedTuple):
    """Up, one row for all agents of a fleet: what is new since their last confirmed report.

    ``C (1,n)`` counts transitions, in the order of a :class:`Support`, and ``Z (1,steps,S,A,words)`` is the sum of
    ``ceil(r 2^f)`` over visits.
    """

    C: Annotated[CountArray, Meaning.NEW_TRANSITIONS]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]


def increments_of(new: CountTable, support: Support, grid: Grid) -> Increments:
    """New counts as a message; raise if a transition was counted that the support does not have."""
    cells = visited_cells(new)
    moves = new.transitions.reshape((-1, new.width))
    successors = new.successors.reshape((-1, new.width))
    row, slot = np.nonzero(moves[cells])
    origin = cells[row].astype(np.int64)
    made = origin * support.shape[1] + successors[origin, slot]
    place = np.minimum(np.searchsorted(support.transitions, made), support.numbers - 1)
    wrong = np.flatnonzero(support.transitions[place] != made)
    if len(wrong):
        h, s, a = (int(i) for i in np.unravel_index(origin[wrong[0]], support.shape))
        raise InputError(
            f"from (step, state, action) = ({h}, {s}, {a}) this problem has gone where it cannot go by the tables "
            "of the run; serve it with --sizes, which leaves everything possible."
        )
    listed: CountArray = np.zeros((1, support.numbers), dtype=np.int64)
    listed[0, place] = moves[origin, slot]
    rewards: CountArray = np.zeros((len(support.starts), grid.words), dtype=np.int64)
    rewards[cells] = words_of(new.rewards.reshape((-1, 2))[cells], grid, grid.words)
    return Increments(C=listed, Z=rewards.reshape((1, *support.shape, grid.words)))


def listed_counts(support: Support, grid: Grid, transitions: CountArray, rewards: CountArray) -> CountTable:
    """The table of counts in the order of a support, as reports have them.

    Transitions are ``numbers`` of the support, and rewards ``(steps, S, A, words)``.
    """
    moves = support.spread(transitions.reshape(-1))
    cells: IndexArray = np.flatnonzero(moves.any(axis=1)).astype(np.int32)
    words = np.ascontiguousarray(rewards.reshape((-1, rewards.shape[-1])))
    table = CountTable.empty(*support.shape, support.successors.shape[3], bits=grid.bits)
    new = NewCounts(
        cells=cells,
        rows=cells,
        successors=support.successors,
        transitions=moves,
        rewards=numbers_of(words, grid),
    )
    return table.plus(new)
