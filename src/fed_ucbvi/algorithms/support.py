"""Which transitions there can be, and in which order reports list them.

Of every (h,s,a), a *cell*, a support has the possible next states in ascending order. So transition counts are one
list of numbers: those of the first cell, those of the second, and so on. Where nothing is known of a problem but its
sizes, every state can follow, and the list is the dense table ``(steps, S, A, S)`` end to end.
"""

from __future__ import annotations

import functools
import zlib

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, IndexArray, MaskArray


class Support:
    """The possible next states of every cell.

    Args:
        possible: ``(1 or steps, S, A, S)``, whether a transition is possible; one table holds for all steps.
        steps: H, or 1 where visits are counted over all steps together; then what is possible at any step counts.

    Attributes:
        shape: ``(steps, S, A)``.
        successors: ``(1 or steps, S, A, K)``, the next states, ascending; zeros behind them.
        sizes: ``(1 or steps, S, A)``, how many there are.
        starts: ``(steps S A,)``, where in the list those of a cell begin.
        numbers: how many numbers the list has.

    >>> lane = np.eye(3, dtype=bool)[None, :, None] | np.eye(3, k=1, dtype=bool)[None, :, None]
    >>> support = Support(lane, steps=1)  # a lane of three states: stay, or go on
    >>> support.numbers, support.starts.tolist(), support.spread(np.array([5, 2, 1, 1, 3])).tolist()
    (5, [0, 2, 4], [[5, 2], [1, 1], [3, 0]])
    """

    def __init__(self, possible: MaskArray, steps: int) -> None:
        if steps == 1 < len(possible):
            possible = np.asarray(possible.any(axis=0, keepdims=True))
        self.shape = (steps, *possible.shape[1:3])
        self.sizes: IndexArray = possible.sum(axis=3, dtype=np.int32)
        if len(possible) not in (1, steps) or self.sizes.min() < 1:
            raise InputError("some (step, state, action) has no next state.")
        self._filled: MaskArray = np.arange(self.sizes.max()) < self.sizes[..., None]
        self.successors: IndexArray = np.zeros(self._filled.shape, dtype=np.int32)
        self.successors[self._filled] = np.nonzero(possible)[3]
        every = np.broadcast_to(self.sizes, self.shape).reshape(-1)
        ends: CountArray = np.cumsum(every, dtype=np.int64)
        self.starts, self.numbers = ends - every, int(ends[-1])

    @classmethod
    def of(cls, successors: IndexArray, steps: int) -> Support:
        """That of a problem's tables ``(1 or H, S, A, K)``, in which a state may be listed twice."""
        return cls(_possible(successors), steps)

    @classmethod
    @functools.lru_cache(4)
    def full(cls, shape: tuple[int, int, int]) -> Support:
        """Every state can follow."""
        steps, S, A = shape
        return cls(np.ones((1, S, A, S), dtype=np.bool_), steps)

    def check_has(self, successors: IndexArray) -> None:
        """Raise unless it has all next states of a problem's tables."""
        missing = np.argwhere(_possible(successors) & ~self._table())
        if len(missing):
            h, s, a, to = (int(i) for i in missing[0])
            raise InputError(
                f"this node's problem can go from (step, state, action) = ({h}, {s}, {a}) to state {to}, and the "
                "server's cannot; start the node with the server's problem, or serve the run with --sizes."
            )

    def by_cell(self, listed: CountArray) -> CountArray:
        """Lists ``(rows, numbers)`` added up over next states, ``(rows, steps, S, A)``."""
        sums: CountArray = np.add.reduceat(listed, self.starts, axis=1)
        return sums.reshape((len(listed), *self.shape))

    def spread(self, listed: CountArray) -> CountArray:
        """A list by cell and slot, ``(cells, K)``, with zeros in the slots that have no next state."""
        filled = np.broadcast_to(self._filled, (*self.shape, self._filled.shape[3]))
        table = np.zeros(filled.shape, dtype=np.int64)
        table[filled] = listed
        return table.reshape((len(self.starts), -1))

    def place(self, number: int) -> tuple[int, int, int, int]:
        """Which (h,s,a,s') a place in the list is about."""
        cell = int(np.searchsorted(self.starts, number, side="right")) - 1
        h, s, a = (int(i) for i in np.unravel_index(cell, self.shape))
        return h, s, a, int(self.successors[h % len(self.successors), s, a, number - self.starts[cell]])

    def _table(self) -> MaskArray:
        """What is possible, ``(1 or steps, S, A, S)``."""
        steps, S, A, _ = self.successors.shape
        table = np.zeros((steps * S * A, S), dtype=np.bool_)
        table[np.repeat(np.arange(len(table)), self.sizes.reshape(-1)), self.successors[self._filled]] = True
        return table.reshape((steps, S, A, S))

    @functools.cached_property
    def packed(self) -> bytes:
        """One bit for each (h,s,a,s'), compressed."""
        return zlib.compress(np.packbits(self._table()).tobytes(), 1)

    @classmethod
    def unpacked(cls, data: bytes, shape: tuple[int, int, int]) -> Support:
        """From what is :attr:`packed`, of tables of this shape; raises where it is not that."""
        steps, S, A = shape
        cells = S * A * S
        reader = zlib.decompressobj()
        try:
            raw = reader.decompress(data, -(-steps * cells // 8) + 1)
        except zlib.error as error:
            raise InputError(f"a support that cannot be read: {error}.") from error
        held = next((number for number in (1, steps) if len(raw) == -(-number * cells // 8)), 0)
        if not held or not reader.eof:
            raise InputError(f"a support that does not fit tables of (steps, S, A) = {shape}.")
        bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=held * cells)
        return cls(bits.astype(np.bool_).reshape((held, S, A, S)), steps)


def _possible(successors: IndexArray) -> MaskArray:
    """Whether tables list a next state, ``(steps, S, A, S)``."""
    steps, S, A, _ = successors.shape
    table = np.zeros((steps, S, A, S), dtype=np.bool_)
    np.put_along_axis(table, successors.astype(np.int64), True, axis=3)
    return table
