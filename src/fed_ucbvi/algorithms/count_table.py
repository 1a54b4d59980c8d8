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
FORMAT_VERSION = 3
SUFFIX = ".npz"
LIST_COPIES = 4
"""Copies of the numbers of a file in memory while a table is made of them."""
FIRST_WIDTH = 2
_ZERO = np.uint64(0)

Integers = npt.NDArray[np.object_]
"""Python's integers, which have no size."""

CELL_BYTES = 8 + 4 + 16 + 1
SLOT_BYTES = 8 + 4
"""Bytes of a table for each (h,s,a), and for each next state that it has room for."""


class NewCounts(NamedTuple):
    """Counts of some cells, to be added to a table.

    Attributes:
        cells: ``(n,)``, each a number in row-major order of (h,s,a), every cell at most once.
        rows: ``(n,)``, the row in which ``transitions`` and ``rewards`` have the counts of a cell.
        successors: ``(steps or 1, S, A, K)``, the next state of each slot.
        transitions: ``(rows, K)``, by slot.
        rewards: ``(rows, 2)``, sums of ``ceil(r 2^f)`` as a high and a low word.
    """

    cells: IndexArray
    rows: IndexArray
    successors: IndexArray
    transitions: CountArray
    rewards: WordArray


class CountTable(NamedTuple):
    """Counts of visits, next states and rewards of all (h,s,a).

    Attributes:
        visits: ``(steps, S, A)``.
        transitions: ``(steps, S, A, K)``, to the k-th next state that was seen.
        successors: ``(steps, S, A, K)``, the next states seen, ascending.
        seen: ``(steps, S, A)``, how many there are.
        rewards: ``(steps, S, A, 2)``, the sum of ``ceil(r 2^f)`` over visits as a high and a low word.
        states: ``(steps, S)``; the first ``numbers[h]`` of row h are the states ever visited at step h, ascending.
        numbers: ``(steps,)``.
        fresh: ``(steps, S, A)``, where visits have been added since someone has last set it to False.
        bits: ``(1,)``, f.

    >>> to, moves = np.tile(np.arange(3), (1, 3, 2, 1)), np.zeros((6, 3), dtype=np.int64)  # three states, two actions
    >>> moves[1] = [0, 4, 1]
    >>> cell, no_rewards = np.array([1]), np.zeros((6, 2), dtype=np.uint64)
    >>> table = CountTable.empty(1, 3, 2).plus(NewCounts(cell, cell, to, moves, no_rewards))
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
    bits: CountArray

    @classmethod
    def empty(
        cls, steps: int, states: int, actions: int, width: int = FIRST_WIDTH, *, bits: int = MAX_BITS
    ) -> CountTable:
        """A table without visits, whose sums of rewards have ``bits`` after the point.

        Raises:
            InputError: if there is not enough memory.
        """
        shape = (steps, states, actions)
        what = f"A table of counts for S = {states:,}, A = {actions:,} and {steps:,} steps"
        check_memory(what, table_bytes(shape, width), SMALLER)
        return cls(
            visits=np.zeros(shape, dtype=np.int64),
            transitions=np.zeros((*shape, width), dtype=np.int64),
            successors=np.zeros((*shape, width), dtype=np.int32),
            seen=np.zeros(shape, dtype=np.int32),
            rewards=np.zeros((*shape, 2), dtype=np.uint64),
            states=np.zeros((steps, states), dtype=np.int32),
            numbers=np.zeros(steps, dtype=np.int64),
            fresh=np.ones(shape, dtype=np.bool_),
            bits=np.array([bits]),
        )

    @property
    def width(self) -> int:
        """Room for next states of a cell."""
        return int(self.successors.shape[3])

    @property
    def is_empty(self) -> bool:
        """True if nothing was visited. It is read in every round, and NumPy's ``any`` takes a microsecond longer."""
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
        return self._replace(
            transitions=np.pad(self.transitions, more),
            successors=np.pad(self.successors, more),
        )

    def copy(self) -> CountTable:
        return CountTable._make(array.copy() for array in self)

    def plus(self, new: NewCounts) -> CountTable:
        """Add the counts of some cells, in place where there is room; returns the table that has them."""
        table = self
        done = 0
        while done < len(new.cells):
            done, needed = add_rows(done, new, table)
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
        other = other.with_bits(int(self.bits[0]))
        cells = visited_cells(other)
        new = NewCounts(
            cells=cells,
            rows=cells,
            successors=other.successors,
            transitions=other.transitions.reshape((-1, other.width)),
            rewards=other.rewards.reshape((-1, 2)),
        )
        return self.plus(new)

    def with_bits(self, bits: int) -> CountTable:
        """This table with another number of bits after the point of rewards; fewer bits round up."""
        more = bits - int(self.bits[0])
        if more == 0:
            return self
        rewards = to_words(_shifted(integers(self.rewards), more))
        return self._replace(rewards=rewards, bits=np.array([bits]))

    def over_all_steps(self) -> CountTable:
        steps, S, A = self.visits.shape
        table = CountTable.empty(1, S, A, self.width, bits=int(self.bits[0]))
        for h in range(steps):
            step = CountTable._make(array if array is self.bits else array[h : h + 1] for array in self)
            table = table.merge(step)
        return table

    def dense(self) -> CountArray:
        """Transitions by next state, ``(steps, S, A, S)``."""
        steps, S, A = self.visits.shape
        cells = steps * S * A
        table = np.zeros((cells, S), dtype=np.int64)
        successors = self.successors.reshape((cells, -1))
        transitions = self.transitions.reshape((cells, -1))
        np.add.at(table, (np.arange(cells)[:, None], successors), transitions)
        return table.reshape((steps, S, A, S))

    # ------------------------------------------------------------------------------------ from one run to another

    def check_fits(self, sizes: tuple[int, int, int], *, stationary: bool) -> None:
        """Raise unless a run of these ``(S, A, H)`` can start from the table.

        A ``stationary`` run counts over all steps together.
        """
        S, A, H = sizes
        steps, own_states, own_actions = self.visits.shape
        if (own_states, own_actions) != (S, A) or steps not in (1, H):
            raise InputError(
                f"the counts to start from have (S, A, steps) = {(own_states, own_actions, steps)}, this run has "
                f"(S, A, H) = {sizes}."
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
            arrays: dict[str, Any] = {"about": np.array(json.dumps(about)), **self.listed()}
            np.savez_compressed(file, **arrays)

    def listed(self) -> dict[str, npt.NDArray[Any]]:
        """The visited cells, the number of next states of each, and counts by cell and by slot.

        :func:`table_of_lists` makes the table again.
        """
        visited = self.visits > 0
        used = np.arange(self.width) < self.seen[..., None]
        return {
            "cells": np.flatnonzero(visited),
            "seen": self.seen[visited],
            "successors": self.successors[used],
            "transitions": self.transitions[used],
            "rewards": self.rewards[visited],
        }

    def equals(self, other: CountTable) -> bool:
        """True if two tables have the same numbers, whatever room they have."""
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
            as_table = table_bytes((steps, S, A), FIRST_WIDTH)
            check_memory(f"Reading {path}", as_lists + as_table, SMALLER)
            listed = {name: data[name] for name in lists}
            return table_of_lists((steps, S, A), int(about["bits"]), listed)


def table_bytes(shape: tuple[int, int, int], width: int) -> int:
    """Memory of a table of ``(steps, S, A)`` with room for so many next states."""
    steps, S, A = shape
    by_cell = steps * S * A * (CELL_BYTES + width * SLOT_BYTES)
    by_state = steps * S * 4 + steps * 8
    return by_cell + by_state


LISTS = {"cells": np.int64, "seen": np.int32, "successors": np.int32, "transitions": np.int64, "rewards": np.uint64}
"""The lists of :meth:`CountTable.listed` and the types of their numbers."""


def table_of_lists(sizes: tuple[int, int, int], bits: int, listed: dict[str, Any]) -> CountTable:
    """The table that :meth:`CountTable.listed` was made from; raises unless the lists are those of a table."""
    if min(sizes) < 1 or not 0 < bits <= MAX_BITS or math.prod(sizes) >= 2**63:
        raise InputError(f"a table of shape {sizes} with {bits} bits after the point cannot be.")
    _check_forms(listed)
    cells = listed["cells"]
    seen = listed["seen"]
    width = max(FIRST_WIDTH, int(seen.max(initial=0)))
    table = CountTable.empty(*sizes, width, bits=bits)
    _check_order(cells, seen, listed["successors"], table)
    owner = np.repeat(np.arange(len(cells)), seen)
    _check_numbers(listed, owner, bits)
    place = np.arange(len(owner)) - (np.cumsum(seen) - seen)[owner]
    size = table.visits.size
    table.seen.reshape(size)[cells] = seen
    table.rewards.reshape((size, 2))[cells] = listed["rewards"]
    table.successors.reshape((size, width))[cells[owner], place] = listed["successors"]
    table.transitions.reshape((size, width))[cells[owner], place] = listed["transitions"]
    table.visits[...] = table.transitions.sum(axis=3)
    for h, visited in enumerate(np.asarray(table.visits.any(axis=2))):
        states = np.flatnonzero(visited)
        table.numbers[h] = len(states)
        table.states[h, : len(states)] = states
    return table


def _check_forms(listed: dict[str, Any]) -> None:
    """Raise unless the lists have the names, types and lengths of a table's."""
    if sorted(listed) != sorted(LISTS):
        raise InputError(f"expected the tables {', '.join(LISTS)}, got {', '.join(listed) or 'none'}.")
    cells = len(listed["cells"])
    seen = listed["seen"]
    slots = int(seen.sum()) if seen.dtype == np.int32 else -1
    shapes = {
        "cells": (cells,),
        "seen": (cells,),
        "successors": (slots,),
        "transitions": (slots,),
        "rewards": (cells, 2),
    }
    for name, kind in LISTS.items():
        array = listed[name]
        expected = np.dtype(kind)
        if array.shape != shapes[name] or array.dtype != expected:
            raise InputError(f"{name} is a table of {array.dtype} {array.shape}, expected {expected} {shapes[name]}.")


def _check_order(cells: CountArray, seen: IndexArray, successors: IndexArray, table: CountTable) -> None:
    """Raise unless cells and next states exist and ascend."""
    states = table.visits.shape[1]
    exist = (
        (seen > 0).all()
        and cells.min(initial=0) >= 0
        and cells.max(initial=0) < table.visits.size
        and successors.min(initial=0) >= 0
        and successors.max(initial=0) < states
    )
    in_order = False
    if exist:
        owner = np.repeat(np.arange(len(cells)), seen)
        same_owner = owner[1:] == owner[:-1]
        in_order = bool((cells[1:] > cells[:-1]).all() and (successors[1:] > successors[:-1])[same_owner].all())
    if not in_order:
        raise InputError("cells and next states must be those of the table, in ascending order.")


def _check_numbers(listed: dict[str, Any], owner: CountArray, bits: int) -> None:
    """Raise unless counts are positive and no sum of rewards exceeds its visits; ``owner`` is the cell of a slot."""
    transitions = listed["transitions"]
    if transitions.min(initial=1) < 1:
        raise InputError("counts are positive, and sums of rewards are not negative.")
    visits = np.bincount(owner, transitions.astype(np.float64), minlength=len(listed["cells"]))
    most = visits * 2.0**bits * (1 + 1e-9)
    high = listed["rewards"][:, 0].astype(np.float64)
    low = listed["rewards"][:, 1].astype(np.float64)
    if visits.max(initial=0) > 2.0**COUNT_BITS or (high * 2.0**64 + low > most).any():
        raise InputError("there are more visits than can be counted, or rewards above 1.")


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
def add_rows(begin: int, new: NewCounts, table: CountTable) -> tuple[int, int]:
    """Add counts to the cells from number ``begin`` of the new ones on.

    Returns the number of the first cell that has not enough room, and how many next states it has.
    """
    _, S, A, width = table.transitions.shape
    others = new.successors
    successors = table.successors
    transitions = table.transitions
    seen = table.seen
    states = table.states
    K = new.transitions.shape[1]
    for j in range(begin, len(new.cells)):
        row = new.rows[j]
        cell = np.int64(new.cells[j])
        a = cell % A
        rest = cell // A
        s = rest % S
        h = rest // S
        ho = shared(h, others.shape[0])
        there = successors[h, s, a]

        # Leave while nothing is changed, if the new next states do not fit.
        size = seen[h, s, a]
        found = size
        for k in range(K):
            if new.transitions[row, k] > 0 and (k >= size or there[k] != others[ho, s, a, k]):
                found += slot_of(others[ho, s, a, k], there, size) < 0
        if found > width:
            return j, found

        # List the state among those visited, in ascending order.
        table.fresh[h, s, a] = True
        known = False
        for b in range(A):
            known |= table.visits[h, s, b] > 0
        if not known:
            place = table.numbers[h]
            while place > 0 and states[h, place - 1] > s:
                states[h, place] = states[h, place - 1]
                place -= 1
            states[h, place] = s
            table.numbers[h] += 1

        # Add the transitions, with a slot in ascending order for every new next state.
        for k in range(K):
            n = new.transitions[row, k]
            if n > 0:
                to = others[ho, s, a, k]
                slot = k
                if k >= seen[h, s, a] or there[k] != to:  # other tables are often ascending, too
                    slot = slot_of(to, there, seen[h, s, a])
                if slot < 0:
                    slot = int(seen[h, s, a])
                    while slot > 0 and there[slot - 1] > to:
                        there[slot] = there[slot - 1]
                        transitions[h, s, a, slot] = transitions[h, s, a, slot - 1]
                        slot -= 1
                    there[slot] = to
                    transitions[h, s, a, slot] = 0
                    seen[h, s, a] += 1
                transitions[h, s, a, slot] += n
                table.visits[h, s, a] += n

        # Add the rewards.
        known_sum = (table.rewards[h, s, a, 0], table.rewards[h, s, a, 1])
        new_sum = (new.rewards[row, 0], new.rewards[row, 1])
        total = plus(known_sum, new_sum)
        table.rewards[h, s, a, 0] = total[0]
        table.rewards[h, s, a, 1] = total[1]
    return len(new.cells), 0


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
    _, S, A = table.visits.shape
    cells = np.empty(table.numbers.sum() * A, dtype=np.int32)
    found = 0
    for h in range(len(table.numbers)):
        for j in range(table.numbers[h]):
            s = table.states[h, j]
            for a in range(A):
                if table.visits[h, s, a] > 0:
                    cells[found] = (h * S + s) * A + a
                    found += 1
    return cells[:found]


@compiled
def _clear(table: CountTable) -> None:
    for h in range(len(table.numbers)):
        for s in table.states[h, : table.numbers[h]]:
            table.visits[h, s] = 0
            table.seen[h, s] = 0
            table.transitions[h, s] = 0
            table.rewards[h, s] = 0
        table.numbers[h] = 0


@compiled
def mean_reward(n: int, high: np.uint64, low: np.uint64, bits: int) -> float:
    """The mean of n rewards with this sum on the grid, rounded up to it."""
    if high == _ZERO and low == _ZERO:
        return 0.0
    quotient = divide_up((high, low), np.uint64(n))
    return float(quotient[1]) / float(1 << bits)
