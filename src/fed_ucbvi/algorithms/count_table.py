"""Transition counts and rewards by (h,s,a), with next states discovered as they are seen.

A table has a step axis of length H, or 1 where visits are counted over all steps together (*stationary*). Of each
(h,s,a), a *cell*, it lists the next states seen so far in ascending order, so that whatever is computed from it does
not depend on the order in which reports came in. Its arrays only ever grow: a cell with more next states than there
are slots makes all cells wider.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.algorithms.exact_sums import Grid, divide_up, plus, read_words
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import CountArray, IndexArray, MaskArray, WordArray

FIRST_WIDTH = 2


class NewCounts(NamedTuple):
    """Counts to be added to a table: those of ``cells``, each a number in row-major order of (h,s,a).

    Attributes:
        cells: ``(n,)``, every cell at most once.
        successors: ``(steps or 1, S, A, K)``, the next state of each slot.
        transitions: ``(cells, K)``, by slot; of which those of ``cells`` are read.
        rewards: ``(cells, 2)``, sums of ``ceil(r 2^f)`` as a high and a low word, likewise.
    """

    cells: IndexArray
    successors: IndexArray
    transitions: CountArray
    rewards: WordArray


class CountTable(NamedTuple):
    """What is known of all (h,s,a).

    Attributes:
        visits: ``(steps, S, A)``.
        transitions: ``(steps, S, A, K)``, to the k-th next state that was seen.
        successors: ``(steps, S, A, K)``, the next states seen, ascending.
        seen: ``(steps, S, A)``, how many there are.
        rewards: ``(steps, S, A, 2)``, the sum of ``ceil(r 2^f)`` over visits as a high and a low word.
        states: ``(steps, S)``; the first ``numbers[h]`` of row h are the states ever visited at step h, ascending.
        numbers: ``(steps,)``.
        fresh: ``(steps, S, A)``, where visits have been added since someone has last set it to False.
    """

    visits: CountArray
    transitions: CountArray
    successors: IndexArray
    seen: IndexArray
    rewards: WordArray
    states: IndexArray
    numbers: CountArray
    fresh: MaskArray

    @classmethod
    def empty(cls, steps: int, states: int, actions: int, width: int = FIRST_WIDTH) -> CountTable:
        """No visits yet."""
        shape = (steps, states, actions)
        return cls(
            np.zeros(shape, dtype=np.int64),
            np.zeros((*shape, width), dtype=np.int64),
            np.zeros((*shape, width), dtype=np.int32),
            np.zeros(shape, dtype=np.int32),
            np.zeros((*shape, 2), dtype=np.uint64),
            np.zeros((steps, states), dtype=np.int32),
            np.zeros(steps, dtype=np.int64),
            np.ones(shape, dtype=np.bool_),
        )

    @property
    def width(self) -> int:
        """How many next states of a cell there is room for."""
        return int(self.successors.shape[3])

    def widened(self, width: int) -> CountTable:
        """The same with more room; nothing but the two tables by next state is copied."""
        transitions = np.zeros((*self.visits.shape, width), dtype=np.int64)
        successors = np.zeros((*self.visits.shape, width), dtype=np.int32)
        transitions[..., : self.width], successors[..., : self.width] = self.transitions, self.successors
        return self._replace(transitions=transitions, successors=successors)

    def copy(self) -> CountTable:
        """A table of its own with the same counts."""
        return CountTable._make(array.copy() for array in self)

    def plus(self, new: NewCounts) -> CountTable:
        """Add counts, in place where there is room; the table that has them."""
        table, done = self, 0
        while done < len(new.cells):
            done, needed = _add(new, done, table)
            width = table.width
            while width < needed:
                width += width // 2
            if width > table.width:
                table = table.widened(width)
        return table

    def plus_dense(self, transitions: CountArray, rewards: CountArray, grid: Grid) -> CountTable:
        """Add transitions ``(steps, S, A, S)`` by next state, and rewards ``(steps, S, A, words)`` as in reports."""
        S, A = transitions.shape[1:3]
        flat = np.ascontiguousarray(transitions.reshape((-1, S)))
        cells = np.flatnonzero(flat.any(axis=1)).astype(np.int32)
        sums = np.zeros((len(flat), 2), dtype=np.uint64)
        _read_rewards(cells, np.ascontiguousarray(rewards.reshape((len(flat), -1))), grid, sums)
        everywhere = np.ascontiguousarray(np.broadcast_to(np.arange(S, dtype=np.int32), (1, S, A, S)))
        return self.plus(NewCounts(cells, everywhere, flat, sums))

    def dense(self) -> CountArray:
        """Transitions by next state, ``(steps, S, A, S)``."""
        steps, S, A = self.visits.shape
        table = np.zeros((steps * S * A, S), dtype=np.int64)
        cells = np.arange(len(table))[:, None]
        np.add.at(
            table, (cells, self.successors.reshape((len(table), -1))), self.transitions.reshape((len(table), -1))
        )
        return table.reshape((steps, S, A, S))

    def counts(self, horizon: int, grid: Grid) -> Counts:
        """The same in words that do not depend on the run's grid, for a later run."""
        sums = (self.rewards[..., 0].astype(np.float64) * 2.0**64 + self.rewards[..., 1]) * grid.unit
        return Counts(horizon, self.dense(), np.minimum(sums / np.maximum(self.visits, 1), 1.0))


@compiled
def _add(new: NewCounts, begin: int, table: CountTable) -> tuple[int, int]:
    """Add cells from number ``begin`` on; the first that has not enough room, and how many next states it has."""
    cells, others, moves, paid = new
    visits, transitions, successors, seen, rewards, states, numbers, fresh = table
    _, S, A, width = transitions.shape
    for j in range(begin, len(cells)):
        cell = np.int64(cells[j])
        a, rest = cell % A, cell // A
        s, h = rest % S, rest // S
        ho = h if others.shape[0] > 1 else 0
        found = seen[h, s, a]
        for k in range(moves.shape[1]):
            if moves[cell, k] > 0 and _slot(others[ho, s, a, k], successors[h, s, a], seen[h, s, a]) < 0:
                found += 1
        if found > width:
            return j, found
        known = False
        for b in range(A):
            known |= visits[h, s, b] > 0
        if not known:
            place = numbers[h]
            while place > 0 and states[h, place - 1] > s:
                states[h, place] = states[h, place - 1]
                place -= 1
            states[h, place] = s
            numbers[h] += 1
        fresh[h, s, a] = True
        for k in range(moves.shape[1]):
            n = moves[cell, k]
            if n > 0:
                slot = _slot(others[ho, s, a, k], successors[h, s, a], seen[h, s, a])
                if slot < 0:
                    slot = _insert(others[ho, s, a, k], successors[h, s, a], transitions[h, s, a], seen[h, s, a])
                    seen[h, s, a] += 1
                transitions[h, s, a, slot] += n
                visits[h, s, a] += n
        high, low = plus((rewards[h, s, a, 0], rewards[h, s, a, 1]), (paid[cell, 0], paid[cell, 1]))
        rewards[h, s, a, 0], rewards[h, s, a, 1] = high, low
    return len(cells), 0


@compiled
def _slot(state: int, successors: IndexArray, seen: int) -> int:
    """Where a next state stands, or -1."""
    low, high = 0, int(seen)
    while low < high:
        middle = (low + high) // 2
        if successors[middle] < state:
            low = middle + 1
        else:
            high = middle
    return low if low < seen and successors[low] == state else -1


@compiled
def _insert(state: int, successors: IndexArray, transitions: CountArray, seen: int) -> int:
    """Make room for a next state in its place."""
    slot = int(seen)
    while slot > 0 and successors[slot - 1] > state:
        successors[slot], transitions[slot] = successors[slot - 1], transitions[slot - 1]
        slot -= 1
    successors[slot], transitions[slot] = state, 0
    return slot


@compiled
def _read_rewards(cells: IndexArray, words: CountArray, grid: Grid, out: WordArray) -> None:
    for cell in cells:
        out[cell, 0], out[cell, 1] = read_words(words[cell], grid)


@compiled
def mean_reward(n: int, high: np.uint64, low: np.uint64, bits: int) -> float:
    """The mean of n rewards with this sum on the grid, rounded up to it."""
    quotient = divide_up((high, low), np.uint64(n))
    return float(quotient[1]) / float(1 << bits)
