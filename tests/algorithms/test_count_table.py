"""The server's table of counts against a dictionary: what is in it does not depend on how it came in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from fed_ucbvi.algorithms.count_table import FIRST_WIDTH, CountTable, NewCounts, mean_reward
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.core.types import CountArray

ONE_WORD, TWO_WORDS = Grid(30, 1, 55), Grid(40, 2, 55)
Cell = tuple[int, int, int]
Transition = tuple[int, int, int, int]


class Sizes(NamedTuple):
    """Of a table."""

    steps: int
    states: int
    actions: int

    def number(self, h: int, s: int, a: int) -> int:
        return (h * self.states + s) * self.actions + a


class Report(NamedTuple):
    """What is new, as dictionaries: transitions ``(h,s,a,s')`` and sums of rewards ``(h,s,a)``, of any size."""

    moves: Counter[Transition]
    paid: Counter[Cell]

    def __add__(self, other: object) -> Report:
        assert isinstance(other, Report)
        return Report(self.moves + other.moves, self.paid + other.paid)


def random_report(rng: np.random.Generator, sizes: Sizes, most: int = 40, paid: int = 1 << 30) -> Report:
    """Few cells and next states, so that cells widen now and then; what a move pays is less than ``paid``."""
    moves: Counter[Transition] = Counter()
    rewards: Counter[Cell] = Counter()
    for _ in range(int(rng.integers(0, most))):
        h, s, a, after = (int(rng.integers(n)) for n in (*sizes, sizes.states))
        moves[h, s, a, after] += int(rng.choice([1, 2, 50, 10**9]))
        rewards[h, s, a] += int(rng.integers(1, paid))
    return Report(moves, rewards)


def as_new_counts(rng: np.random.Generator, report: Report, sizes: Sizes, *, twice: bool = False) -> NewCounts:
    """The same by cells in any order and by slots in any order; with ``twice`` one next state has two slots."""
    K, cells = sizes.states + twice, sizes.number(sizes.steps, 0, 0)
    successors = np.zeros((*sizes, K), dtype=np.int32)
    transitions, rewards = np.zeros((cells, K), dtype=np.int64), np.zeros((cells, 2), dtype=np.uint64)
    for at in np.ndindex(*sizes):
        order = rng.permutation(sizes.states)
        successors[at] = [*order, *order[:twice]]
    for (h, s, a, after), n in report.moves.items():
        slots = np.flatnonzero(successors[h, s, a] == after)
        share = int(rng.integers(0, n + 1))
        transitions[sizes.number(h, s, a), slots[0]] += share
        transitions[sizes.number(h, s, a), slots[-1]] += n - share
    for (h, s, a), total in report.paid.items():
        rewards[sizes.number(h, s, a)] = divmod(total, 1 << 64)
    visited = sorted({sizes.number(h, s, a) for h, s, a, _ in report.moves})
    return NewCounts(rng.permutation(visited).astype(np.int32), successors, transitions, rewards)


def as_dense(report: Report, sizes: Sizes, grid: Grid) -> tuple[CountArray, CountArray]:
    """As in messages: by next state, and rewards by words."""
    C = np.zeros((*sizes, sizes.states), dtype=np.int64)
    Z = np.zeros((*sizes, grid.words), dtype=np.int64)
    for at, n in report.moves.items():
        C[at] = n
    for cell, total in report.paid.items():
        Z[cell] = divmod(total, 1 << grid.base)[::-1] if grid.words == 2 else (total,)
    return C, Z


def assert_holds(table: CountTable, report: Report, sizes: Sizes) -> None:
    """Every entry of the table, from the dictionaries."""
    for h, s, a in np.ndindex(*sizes):
        row = sorted((after, n) for (*cell, after), n in report.moves.items() if tuple(cell) == (h, s, a))
        seen = len(row)
        assert table.seen[h, s, a] == seen
        assert table.visits[h, s, a] == sum(n for _, n in row)
        assert table.successors[h, s, a, :seen].tolist() == [after for after, _ in row]
        assert table.transitions[h, s, a, :seen].tolist() == [n for _, n in row]
        assert not table.transitions[h, s, a, seen:].any()
        high, low = (int(word) for word in table.rewards[h, s, a])
        assert (high << 64) + low == report.paid[h, s, a]
    for h in range(sizes.steps):
        visited = {s for (step, s, _, _) in report.moves if step == h}
        assert table.states[h, : table.numbers[h]].tolist() == sorted(visited)


def same(one: CountTable, other: CountTable) -> bool:
    """Bit for bit, room and all."""
    mine, theirs = one._asdict(), other._asdict()
    return all(a.shape == theirs[k].shape and a.tobytes() == theirs[k].tobytes() for k, a in mine.items())


def problems(seed: int, number: int) -> Iterator[tuple[np.random.Generator, Sizes, list[Report]]]:
    rng = np.random.default_rng(seed)
    for _ in range(number):
        sizes = Sizes(int(rng.integers(1, 4)), int(rng.integers(1, 7)), int(rng.integers(1, 4)))
        yield rng, sizes, [random_report(rng, sizes) for _ in range(int(rng.integers(1, 6)))]


def added(reports: list[Report]) -> Report:
    return sum(reports, Report(Counter(), Counter()))


def test_a_table_holds_what_a_dictionary_holds_after_every_report() -> None:
    wider = 0
    for rng, sizes, reports in problems(1, 150):
        table, total = CountTable.empty(*sizes), Report(Counter(), Counter())
        for report in reports:
            table, total = table.plus(as_new_counts(rng, report, sizes, twice=True)), total + report
            assert_holds(table, total, sizes)
        wider += table.width > FIRST_WIDTH
    assert wider > 50, "tables must have been widened"


def test_order_and_split_of_reports_do_not_change_a_bit() -> None:
    for rng, sizes, reports in problems(2, 150):
        at_once = CountTable.empty(*sizes).plus(as_new_counts(rng, added(reports), sizes))
        in_turn, reversed_, wide = CountTable.empty(*sizes), CountTable.empty(*sizes), CountTable.empty(*sizes, 9)
        for report in reports:
            in_turn = in_turn.plus(as_new_counts(rng, report, sizes))
            wide = wide.plus(as_new_counts(rng, report, sizes))
        for report in reports[::-1]:
            reversed_ = reversed_.plus(as_new_counts(rng, report, sizes))
        assert same(at_once, in_turn)
        assert same(at_once, reversed_)
        assert same(at_once.widened(9), wide)


@pytest.mark.parametrize("grid", [ONE_WORD, TWO_WORDS])
def test_a_message_adds_what_the_counts_by_slot_add(grid: Grid) -> None:
    for rng, sizes, reports in problems(3, 100):
        by_slot, by_state = CountTable.empty(*sizes), CountTable.empty(*sizes)
        for report in reports:
            by_slot = by_slot.plus(as_new_counts(rng, report, sizes))
            by_state = by_state.plus_dense(*as_dense(report, sizes, grid), grid)
        assert same(by_slot, by_state)
        assert np.array_equal(by_slot.dense(), as_dense(added(reports), sizes, grid)[0])


def test_sums_of_rewards_beyond_one_word_are_those_of_pythons_integers() -> None:
    """A low word wraps round many times."""
    rng, sizes = np.random.default_rng(4), Sizes(1, 2, 1)
    table, total, grid = CountTable.empty(*sizes), Report(Counter(), Counter()), TWO_WORDS
    for _ in range(60):
        report = random_report(rng, sizes, 10, paid=1 << 62)
        wide = Report(report.moves, Counter({cell: paid << 1 for cell, paid in report.paid.items()}))
        if rng.random() < 0.5:
            table = table.plus(as_new_counts(rng, wide, sizes))
        else:
            table = table.plus_dense(*as_dense(wide, sizes, grid), grid)
        total = total + wide
    assert max(total.paid.values()) > 1 << 67
    assert_holds(table, total, sizes)


def test_means_of_rewards_are_rounded_up_to_the_grid() -> None:
    rng = np.random.default_rng(5)
    for _ in range(500):
        n, bits = int(rng.integers(1, 1 << 50)), int(rng.integers(10, 41))
        total = int(rng.integers(0, 1 << 62)) * n % (n << bits)
        expected = -(-total // n) / (1 << bits)
        assert mean_reward(n, np.uint64(total >> 64), np.uint64(total % (1 << 64)), bits) == expected


def test_counts_for_a_later_run_are_transitions_and_mean_rewards() -> None:
    for rng, sizes, reports in problems(6, 60):
        total = added(reports)
        fair = Counter({(h, s, a): 0 for h, s, a, _ in total.moves})
        for (h, s, a, _), n in total.moves.items():
            fair[h, s, a] += n * int(rng.integers(0, (1 << ONE_WORD.bits) + 1))
        table = CountTable.empty(*sizes).plus(as_new_counts(rng, Report(total.moves, fair), sizes))
        counts = table.counts(sizes.steps, ONE_WORD)
        assert counts.horizon == sizes.steps
        assert np.array_equal(counts.transitions, table.dense())
        assert np.array_equal(counts.visits, table.visits)
        for cell, paid in fair.items():
            assert counts.rewards[cell] == pytest.approx(paid / int(table.visits[cell]) * ONE_WORD.unit, rel=1e-15)


def test_a_copy_stays_as_it_is_and_more_room_changes_nothing() -> None:
    for rng, sizes, reports in problems(7, 40):
        table = CountTable.empty(*sizes).plus(as_new_counts(rng, reports[0], sizes))
        copy, roomy = table.copy(), table.widened(table.width + 3)
        assert_holds(roomy, reports[0], sizes)
        table.plus(as_new_counts(rng, added(reports), sizes))
        assert_holds(copy, reports[0], sizes)


def test_only_pairs_with_new_visits_are_fresh() -> None:
    for rng, sizes, reports in problems(8, 60):
        table = CountTable.empty(*sizes)
        assert table.fresh.all()
        for report in reports:
            table.fresh[:] = False
            table = table.plus(as_new_counts(rng, report, sizes))
            expected = {(h, s, a) for h, s, a, _ in report.moves}
            assert {tuple(cell) for cell in np.argwhere(table.fresh).tolist()} == expected
