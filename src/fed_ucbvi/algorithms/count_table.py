"""Transition counts and rewards by (h,s,a), with next states discovered as they are seen.

A table has a step axis of length H, or 1 where visits are counted over all steps together (*stationary*). Of each
(h,s,a), a *cell*, it lists the next states seen so far in ascending order, so that whatever is computed from it does
not depend on the order in which reports came in. Its arrays only ever grow: a cell with more next states than there
are slots makes all cells wider.

A run may start from the table of an earlier run. Confidence sets hold for all data that the same kernels have
produced, whenever they have. So earlier counts are as good as a run's own, if its agents' kernels and rewards are
those of the agents then, or, where agents differ, within eps_p and eps_r of the same common MDP.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.exact_sums import COUNT_BITS, MAX_BITS, divide_up, plus
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_version, new_file, reading_npz
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.memory import SMALLER, check_memory
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, WordArray

FORMAT = "fed-ucbvi/counts"
FORMAT_VERSION = 2
SUFFIX = ".npz"
LIST_COPIES = 4
"""How often numbers of a file are held while a table is made of them."""
FIRST_WIDTH = 2
_ZERO = np.uint64(0)

Integers = npt.NDArray[np.object_]
"""Python's integers, which have no size."""

_NO_SUMS: CountArray = np.zeros((0, 0), dtype=np.int64)
_NO_SQUARES: WordArray = np.zeros((0, 2), dtype=np.uint64)


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
        paid: ``(steps or 0, S, A, K)``, the part of ``rewards`` from visits that went on to the k-th next state;
            kept where rewards are random and somebody needs it.
        squares: ``(steps or 0, S, A, 2)``, the sum of ``ceil(r 2^f)^2``, kept likewise.
        bits: ``(1,)``, f.

    >>> to, moves = np.tile(np.arange(3), (1, 3, 2, 1)), np.zeros((6, 3), dtype=np.int64)  # three states, two actions
    >>> moves[1] = [0, 4, 1]
    >>> table = CountTable.empty(1, 3, 2).plus(np.array([1]), to, moves, np.zeros((6, 2), dtype=np.uint64))
    >>> int(table.visits[0, 0, 1]), table.successors[0, 0, 1].tolist(), table.transitions[0, 0, 1].tolist()
    (5, [1, 2], [4, 1])
    >>> int(table.merge(table).visits.sum())
    10
    """

    visits: CountArray
    transitions: CountArray
    successors: IndexArray
    seen: IndexArray
    rewards: WordArray
    states: IndexArray
    numbers: CountArray
    fresh: MaskArray
    paid: CountArray
    squares: WordArray
    bits: CountArray

    @classmethod
    def empty(
        cls,
        steps: int,
        states: int,
        actions: int,
        width: int = FIRST_WIDTH,
        *,
        bits: int = MAX_BITS,
        by_slot: bool = False,
    ) -> CountTable:
        """No visits yet; rewards have ``bits`` after the point, and are kept ``by_slot`` too where that is said.

        Raises:
            InputError: if there is not enough memory.
        """
        shape = (steps, states, actions)
        needed = table_bytes(shape, width, by_slot=by_slot)
        check_memory(f"A table of counts for S = {states:,}, A = {actions:,} and {steps:,} steps", needed, SMALLER)
        kept = (steps if by_slot else 0, states, actions)
        return cls(
            np.zeros(shape, dtype=np.int64),
            np.zeros((*shape, width), dtype=np.int64),
            np.zeros((*shape, width), dtype=np.int32),
            np.zeros(shape, dtype=np.int32),
            np.zeros((*shape, 2), dtype=np.uint64),
            np.zeros((steps, states), dtype=np.int32),
            np.zeros(steps, dtype=np.int64),
            np.ones(shape, dtype=np.bool_),
            np.zeros((*kept, width), dtype=np.int64),
            np.zeros((*kept, 2), dtype=np.uint64),
            np.array([bits]),
        )

    @property
    def width(self) -> int:
        """Room for next states of a cell."""
        return int(self.successors.shape[3])

    @property
    def by_slot(self) -> bool:
        """Whether rewards are kept by next state, with their squares."""
        return len(self.paid) > 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was visited. Asked in every round, and NumPy's ``any`` takes a microsecond longer."""
        return not any(self.numbers.tolist())

    @property
    def most(self) -> int:
        """The most visits to one cell; at least 1."""
        return max(1, int(self.visits.max()))

    def mean_rewards(self) -> FloatArray:
        """``(steps, S, A)``; 0 where there were no visits."""
        sums = self.rewards[..., 0].astype(np.float64) * 2.0**64 + self.rewards[..., 1]
        return np.asarray(sums * 2.0 ** -float(self.bits[0]) / np.maximum(self.visits, 1))

    def widened(self, width: int) -> CountTable:
        """This table with more room; only the tables by next state are copied."""
        more = [(0, 0), (0, 0), (0, 0), (0, width - self.width)]
        wider: dict[str, Any] = {n: np.pad(getattr(self, n), more) for n in ("transitions", "successors", "paid")}
        return self._replace(**wider)

    def copy(self) -> CountTable:
        return CountTable._make(array.copy() for array in self)

    def plus(
        self,
        cells: IndexArray,
        successors: IndexArray,
        transitions: CountArray,
        rewards: WordArray,
        paid: CountArray = _NO_SUMS,
        squares: WordArray = _NO_SQUARES,
    ) -> CountTable:
        """Add the counts of some cells, in place where there is room; the table that has them.

        Args:
            cells: ``(n,)``, each a number in row-major order of (h,s,a), every cell at most once.
            successors: ``(steps or 1, S, A, K)``, the next state of each slot.
            transitions: ``(cells, K)``, by slot; of which those of ``cells`` are read.
            rewards: ``(cells, 2)``, sums of ``ceil(r 2^f)`` as a high and a low word, likewise.
            paid: ``(cells or 0, K)``, sums of random rewards by slot, for tables that keep them.
            squares: ``(cells or 0, 2)``, sums of their squares.
        """
        table = self
        done = 0
        while done < len(cells):
            new = successors, transitions, rewards, paid, squares
            done, needed = add_rows(done, cells, cells, new, table[:-1])
            width = table.width
            while width < needed:
                width += max(1, width // 2)
            if width > table.width:
                table = table.widened(width)
        return table

    def clear(self) -> None:
        """Forget all counts, in place; only what was visited costs time."""
        _clear(self)

    def merge(self, other: CountTable) -> CountTable:
        """Add another table of the same sizes, in place where there is room; the table that has both."""
        if other.visits.shape != self.visits.shape:
            raise InputError(f"tables of shapes {self.visits.shape} and {other.visits.shape} cannot be merged.")
        new = other.with_bits(int(self.bits[0]))
        by_slot = (-1, other.width)
        words = (-1, 2)
        return self.plus(
            visited_cells(new),
            new.successors,
            new.transitions.reshape(by_slot),
            new.rewards.reshape(words),
            new.paid.reshape(by_slot),
            new.squares.reshape(words),
        )

    def with_bits(self, bits: int) -> CountTable:
        """The same with so many bits after the point of rewards: exactly if they are more, rounded up if fewer."""
        more = bits - int(self.bits[0])
        if more == 0:
            return self
        paid = _shifted(self.paid.astype(object), more).astype(np.int64)
        rewards, squares = (
            to_words(_shifted(integers(x), d * more)) for x, d in ((self.rewards, 1), (self.squares, 2))
        )
        return self._replace(rewards=rewards, paid=paid, squares=squares, bits=np.array([bits]))

    def over_all_steps(self) -> CountTable:
        steps, S, A = self.visits.shape
        table = CountTable.empty(1, S, A, self.width, bits=int(self.bits[0]), by_slot=self.by_slot)
        for h in range(steps):
            step = CountTable._make(array if array is self.bits else array[h : h + 1] for array in self)
            table = table.merge(step)
        return table

    def dense(self, by_slot: CountArray | None = None) -> CountArray:
        """Transitions, or what else is kept ``by_slot``, by next state: ``(steps, S, A, S)``."""
        steps, S, A = self.visits.shape
        table = np.zeros((steps * S * A, S), dtype=np.int64)
        cells = np.arange(len(table))[:, None]
        shape = (len(table), -1)
        slots = (self.transitions if by_slot is None else by_slot).reshape(shape)
        np.add.at(table, (cells, self.successors.reshape(shape)), slots)
        return table.reshape((steps, S, A, S))

    # ------------------------------------------------------------------------------------ from one run to another

    def check_fits(self, sizes: tuple[int, int, int], *, stationary: bool, by_slot: bool) -> None:
        """Raise unless a run of these ``(S, A, H)`` can start from the table.

        ``by_slot`` says that the run needs random rewards by next state; a ``stationary`` one counts over all steps.
        """
        (steps, *own), (S, A, H) = self.visits.shape, sizes
        if own != [S, A] or steps not in (1, H):
            raise InputError(
                f"the counts to start from have (S, A, steps) = {(*own, steps)}, this run has (S, A, H) = {sizes}."
            )
        if by_slot and not self.by_slot:
            raise InputError(
                "rewards may be random in this run, and the counts to start from have only their means. Use counts "
                "of a run or of logs with random rewards (--random-rewards), or state that this run's rewards are "
                "fixed (random_rewards=False, --fixed-rewards)."
            )
        if not stationary and steps == 1 < H:
            raise InputError(
                "the counts to start from were counted over all steps together, and this run counts by step. Use "
                "stationary=True, or other counts."
            )

    def check_support(self, successors: IndexArray) -> None:
        """Raise if a transition was counted that the supports ``(steps, S, A, K)`` do not have."""
        steps = len(self.visits)
        for h, s, a, k in np.argwhere(self.transitions > 0):
            where = slice(None) if steps == 1 else slice(h, h + 1) if len(successors) > 1 else slice(0, 1)
            to = self.successors[h, s, a, k]
            if to not in successors[where, s, a]:
                raise InputError(
                    f"the counts to start from are of another problem: from (step, state, action) = ({h}, {s}, {a}) "
                    f"they have transitions to state {to}, which are impossible here."
                )

    def save(self, path: str | Path) -> None:
        """Write one ``.npz`` file of what was visited; a file that exists is replaced when all went well."""
        path = Path(path)
        if path.suffix != SUFFIX:
            raise InputError(f"counts are saved as one {SUFFIX} file; {path} does not end in {SUFFIX}.")
        about = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "shape": self.visits.shape,
            "bits": int(self.bits[0]),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as draft, draft.open("wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **self.listed())

    def listed(self) -> dict[str, Any]:
        """What was visited: cells, how many next states each has, and numbers cell by cell and slot by slot.

        :func:`table_of_lists` makes the table again.
        """
        where = self.visits > 0
        used = np.arange(self.width) < self.seen[..., None]
        listed: dict[str, Any] = {
            "cells": np.flatnonzero(where),
            "seen": self.seen[where],
            "successors": self.successors[used],
            "transitions": self.transitions[used],
            "rewards": self.rewards[where],
        }
        return listed | ({"paid": self.paid[used], "squares": self.squares[where]} if self.by_slot else {})

    def equals(self, other: CountTable) -> bool:
        """Whether two are the same, number by number; room that is not used does not matter."""
        own = self.listed()
        others = other.listed()
        same = self.visits.shape == other.visits.shape and self.bits == other.bits and own.keys() == others.keys()
        return bool(same) and all(np.array_equal(array, others[name]) for name, array in own.items())

    @classmethod
    def load(cls, path: str | Path, sizes: tuple[int, int, int] | None = None) -> CountTable:
        """Read back what :meth:`save` wrote, to the last bit; a damaged or foreign file is rejected.

        ``sizes`` are S, A and H of the run that is to start from them, where they are known; then counts of another
        problem are refused before they are unpacked.
        """
        path = Path(path)
        what = f"a {SUFFIX} file of counts that fed-ucbvi saved ('fed-ucbvi counts', CountTable.save)"
        with reading_npz(path, FORMAT, what) as (about, data):
            check_version(path, about, FORMAT_VERSION)
            steps, S, A = (int(size) for size in about["shape"])
            if sizes is not None and (sizes[:2] != (S, A) or steps not in (1, sizes[2])):
                raise InputError(
                    f"the counts in {path} have (S, A, steps) = {(S, A, steps)}, not (S, A, H) = {sizes}."
                )
            lists = {name: form for name, form in data.forms.items() if name != "about"}
            as_lists = LIST_COPIES * sum(form.bytes for form in lists.values())
            as_table = table_bytes((steps, S, A), FIRST_WIDTH, by_slot="paid" in lists)
            check_memory(f"Reading {path}", as_lists + as_table, SMALLER)
            listed = {name: data[name] for name in lists}
            return table_of_lists((steps, S, A), int(about["bits"]), listed)


def table_bytes(shape: tuple[int, int, int], width: int, *, by_slot: bool = False) -> int:
    """Memory of a table of ``(steps, S, A)`` with room for so many next states."""
    a_slot = 8 + 4 + 8 * by_slot
    a_cell = 8 + 4 + 16 + 1 + 16 * by_slot
    steps, S, A = shape
    return steps * S * A * (a_cell + width * a_slot) + steps * S * 4 + steps * 8


def table_of_lists(sizes: tuple[int, int, int], bits: int, listed: dict[str, Any]) -> CountTable:
    """The table of what :meth:`CountTable.listed` gives, checked."""
    if min(sizes) < 1 or not 0 < bits <= MAX_BITS or math.prod(sizes) >= 2**63:
        raise InputError(f"a table of shape {sizes} with {bits} bits after the point cannot be.")
    by_slot = "paid" in listed
    names = ("cells", "seen", "successors", "transitions", "rewards", *(("paid", "squares") if by_slot else ()))
    if sorted(listed) != sorted(names):
        raise InputError(f"expected the tables {', '.join(names)}, got {', '.join(listed) or 'none'}.")
    cells = listed["cells"]
    seen = listed["seen"]
    n = len(cells)
    total = int(seen.sum()) if seen.dtype == np.int32 else -1
    forms = {"cells": (n,), "seen": (n,), "rewards": (n, 2), "squares": (n, 2)}
    kinds = {"seen": np.int32, "successors": np.int32, "rewards": np.uint64, "squares": np.uint64}
    for name in names:
        shape = forms.get(name, (total,))
        kind = np.dtype(kinds.get(name, np.int64))
        if listed[name].shape != shape or listed[name].dtype != kind:
            found = f"{listed[name].dtype} {listed[name].shape}"
            raise InputError(f"{name} is a table of {found}, expected {kind} {shape}.")
    width = max(FIRST_WIDTH, int(seen.max(initial=0)))
    table = CountTable.empty(*sizes, width, bits=bits, by_slot=by_slot)
    slots = listed["successors"]
    owner = np.repeat(np.arange(n), seen)
    ascending = (owner[1:] > owner[:-1]) | (slots[1:] > slots[:-1])
    if n and not (
        ((cells[1:] > cells[:-1]).all() and cells[0] >= 0 and cells[-1] < table.visits.size)
        and (seen > 0).all()
        and (ascending.all() and slots.min() >= 0 and slots.max() < sizes[1])
    ):
        raise InputError("cells and next states must be those of the table, in ascending order.")
    if any(listed[name].min(initial=0) < 0 for name in names) or listed["transitions"].min(initial=1) < 1:
        raise InputError("counts are positive, and sums of rewards are not negative.")
    visits = np.bincount(owner, listed["transitions"].astype(np.float64), minlength=n)
    most = visits * 2.0**bits * (1 + 1e-9)
    high, low = listed["rewards"].T.astype(np.float64)
    if visits.max(initial=0) > 2.0**COUNT_BITS or (high * 2.0**64 + low > most).any():
        raise InputError("there are more visits than can be counted, or rewards above 1.")
    place = np.arange(len(owner)) - (np.cumsum(seen) - seen)[owner]
    for name in names[2:]:
        at = cells if name in forms else (cells[owner], place)
        getattr(table, name).reshape((table.visits.size, -1))[at] = listed[name]
    table.seen.reshape(-1)[cells] = seen
    table.visits[...] = table.transitions.sum(axis=3)
    for h, visited in enumerate(np.asarray(table.visits.any(axis=2))):
        states = np.flatnonzero(visited)
        table.numbers[h], table.states[h, : len(states)] = len(states), states
    return table


# ------------------------------------------------------------------------------ numbers of two words, exactly


def integers(words: WordArray) -> Integers:
    """Numbers from high and low words of 64 bits."""
    high, low = (words[..., i].astype(object) for i in (0, 1))
    number: Integers = high * (1 << 64) + low
    return number


def to_words(numbers: Integers) -> WordArray:
    return np.stack([(numbers >> 64).astype(np.uint64), (numbers % (1 << 64)).astype(np.uint64)], axis=-1)


def _shifted(numbers: Integers, bits: int) -> Integers:
    """``numbers 2^bits``, rounded up."""
    shifted: Integers = numbers << bits if bits >= 0 else -(-numbers >> -bits)
    return shifted


@compiled
def add_rows(
    begin: int, cells: IndexArray, rows: IndexArray, new: tuple[Any, ...], table: tuple[Any, ...]
) -> tuple[int, int]:
    """Add counts to cells from number ``begin`` on: to ``cells[j]`` what is in row ``rows[j]`` of ``new``.

    ``new`` and the ``table``, without its bits, are plain tuples of arrays: faster in Numba than named ones. Returns
    the first cell that has not enough room, and how many next states it has.
    """
    others, moves, amounts, new_paid, new_squares = new
    visits, transitions, successors, seen, rewards, states, numbers, fresh, paid, squares = table
    _, S, A, width = transitions.shape
    by_slot = len(paid) > 0 and len(new_paid) > 0
    for j in range(begin, len(cells)):
        cell = np.int64(cells[j])
        row = rows[j]
        a = cell % A
        rest = cell // A
        s = rest % S
        h = rest // S
        ho = shared(h, others.shape[0])
        there = successors[h, s, a]
        size = seen[h, s, a]
        known = False
        found = size
        for k in range(moves.shape[1]):
            if moves[row, k] > 0 and (k >= size or there[k] != others[ho, s, a, k]):
                found += slot_of(others[ho, s, a, k], there, size) < 0
        if found > width:
            return j, found
        fresh[h, s, a] = True
        for b in range(A):
            known |= visits[h, s, b] > 0
        place = numbers[h]
        if not known:  # its state is new
            while place > 0 and states[h, place - 1] > s:
                states[h, place] = states[h, place - 1]
                place -= 1
            states[h, place] = s
            numbers[h] += 1
        for k in range(moves.shape[1]):
            n = moves[row, k]
            if n > 0:
                to = others[ho, s, a, k]
                slot = k
                if k >= seen[h, s, a] or there[k] != to:  # other tables are often ascending, too
                    slot = slot_of(to, there, seen[h, s, a])
                if slot < 0:  # make room where it belongs
                    slot = int(seen[h, s, a])
                    while slot > 0 and there[slot - 1] > to:
                        there[slot], transitions[h, s, a, slot] = there[slot - 1], transitions[h, s, a, slot - 1]
                        if by_slot:
                            paid[h, s, a, slot] = paid[h, s, a, slot - 1]
                        slot -= 1
                    there[slot] = to
                    transitions[h, s, a, slot] = 0
                    if by_slot:
                        paid[h, s, a, slot] = 0
                    seen[h, s, a] += 1
                transitions[h, s, a, slot] += n
                visits[h, s, a] += n
                if by_slot:
                    paid[h, s, a, slot] += new_paid[row, k]
        high, low = plus((rewards[h, s, a, 0], rewards[h, s, a, 1]), (amounts[row, 0], amounts[row, 1]))
        rewards[h, s, a, 0] = high
        rewards[h, s, a, 1] = low
        if by_slot:
            high, low = plus((squares[h, s, a, 0], squares[h, s, a, 1]), (new_squares[row, 0], new_squares[row, 1]))
            squares[h, s, a, 0] = high
            squares[h, s, a, 1] = low
    return len(cells), 0


@compiled
def slot_of(state: int, successors: IndexArray, seen: int) -> int:
    """Where a next state is among those seen, by bisection; -1 if it is not."""
    low = 0
    high = int(seen)
    while low < high:
        middle = (low + high) // 2
        if successors[middle] < state:
            low = middle + 1
        else:
            high = middle
    return low if low < seen and successors[low] == state else -1


@compiled
def visited_cells(table: CountTable) -> IndexArray:
    """The numbers of all cells that were visited, ascending."""
    visits = table.visits
    states = table.states
    numbers = table.numbers
    (_, S, A), found = visits.shape, 0
    cells = np.empty(numbers.sum() * A, dtype=np.int32)
    for h in range(len(numbers)):
        for j in range(numbers[h]):
            for a in range(A):
                if visits[h, states[h, j], a] > 0:
                    cells[found] = (h * S + states[h, j]) * A + a
                    found += 1
    return cells[:found]


@compiled
def _clear(table: CountTable) -> None:
    visits, transitions, _, seen, rewards, states, numbers, _, paid, squares, _ = table
    for h in range(len(numbers)):
        for s in states[h, : numbers[h]]:
            visits[h, s] = 0
            seen[h, s] = 0
            transitions[h, s] = 0
            rewards[h, s] = 0
            if len(paid) > 0:
                paid[h, s] = 0
                squares[h, s] = 0
        numbers[h] = 0


@compiled
def mean_reward(n: int, high: np.uint64, low: np.uint64, bits: int) -> float:
    """The mean of n rewards with this sum on the grid, rounded up to it."""
    if high == _ZERO and low == _ZERO:
        return 0.0
    quotient = divide_up((high, low), np.uint64(n))
    return float(quotient[1]) / float(1 << bits)
