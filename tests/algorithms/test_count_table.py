"""The server's table of counts against a dictionary: what is in it does not depend on how it came in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fed_ucbvi.algorithms.count_table import FIRST_WIDTH, CountTable, NewCounts, mean_reward
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.increments import Support, listed_counts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import IndexArray

ONE_WORD = Grid(30, 1, 55)
TWO_WORDS = Grid(40, 2, 55)
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
    """A report by cells in any order and by slots in any order; with ``twice`` one next state has two slots."""
    K = sizes.states + twice
    cells = sizes.number(sizes.steps, 0, 0)
    successors = np.zeros((*sizes, K), dtype=np.int32)
    transitions = np.zeros((cells, K), dtype=np.int64)
    rewards = np.zeros((cells, 2), dtype=np.uint64)
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
    visiting_order: IndexArray = rng.permutation(visited).astype(np.int32)
    return NewCounts(
        cells=visiting_order,
        rows=visiting_order,
        successors=successors,
        transitions=transitions,
        rewards=rewards,
    )


def as_message(report: Report, sizes: Sizes, grid: Grid) -> CountTable:
    """What a server reads in a message: transitions by next state, and rewards by words."""
    C = np.zeros((*sizes, sizes.states), dtype=np.int64)
    Z = np.zeros((*sizes, grid.words), dtype=np.int64)
    for at, n in report.moves.items():
        C[at] = n
    for cell, total in report.paid.items():
        Z[cell] = divmod(total, 1 << grid.base)[::-1] if grid.words == 2 else (total,)
    return listed_counts(Support.full(sizes), grid, C, Z)


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
    mine = one._asdict()
    theirs = other._asdict()
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
        table = CountTable.empty(*sizes)
        total = Report(Counter(), Counter())
        for report in reports:
            table = table.plus(as_new_counts(rng, report, sizes, twice=True))
            total = total + report
            assert_holds(table, total, sizes)
        wider += table.width > FIRST_WIDTH
    assert wider > 50, "tables must have been widened"


def added_in_turn(rng: np.random.Generator, reports: Sequence[Report], sizes: Sizes, width: int = 2) -> CountTable:
    """A table of this first width with one report after the other."""
    table = CountTable.empty(*sizes, width)
    for report in reports:
        table = table.plus(as_new_counts(rng, report, sizes))
    return table


def test_counts_added_in_several_reports_are_those_of_one() -> None:
    for rng, sizes, reports in problems(2, 150):
        at_once = added_in_turn(rng, [added(reports)], sizes)
        assert same(at_once, added_in_turn(rng, reports, sizes))


def test_the_order_of_reports_does_not_change_a_bit() -> None:
    for rng, sizes, reports in problems(2, 150):
        in_order = added_in_turn(rng, reports, sizes)
        assert same(in_order, added_in_turn(rng, reports[::-1], sizes))


def test_the_first_width_of_a_table_does_not_change_a_bit() -> None:
    for rng, sizes, reports in problems(2, 150):
        usual = added_in_turn(rng, reports, sizes)
        assert same(usual.widened(9), added_in_turn(rng, reports, sizes, width=9))
        assert usual.equals(added_in_turn(rng, reports, sizes, width=1))


@pytest.mark.parametrize("grid", [ONE_WORD, TWO_WORDS])
def test_a_message_adds_what_the_counts_by_slot_add(grid: Grid) -> None:
    for rng, sizes, reports in problems(3, 100):
        by_slot, by_state = (CountTable.empty(*sizes, bits=grid.bits) for _ in range(2))
        for report in reports:
            by_slot = by_slot.plus(as_new_counts(rng, report, sizes))
            by_state = by_state.merge(as_message(report, sizes, grid))
        assert same(by_slot, by_state)
        moves = added(reports).moves
        assert all(by_slot.dense()[at] == moves[at] for at in np.ndindex(*sizes, sizes.states))


def test_sums_of_rewards_beyond_one_word_are_those_of_pythons_integers() -> None:
    """A low word wraps round many times."""
    rng = np.random.default_rng(4)
    sizes = Sizes(1, 2, 1)
    table = CountTable.empty(*sizes)
    total = Report(Counter(), Counter())
    grid = TWO_WORDS
    for _ in range(60):
        report = random_report(rng, sizes, 10, paid=1 << 62)
        wide = Report(report.moves, Counter({cell: paid << 1 for cell, paid in report.paid.items()}))
        if rng.random() < 0.5:
            table = table.plus(as_new_counts(rng, wide, sizes))
        else:
            table = table.merge(as_message(wide, sizes, grid))
        total = total + wide
    assert max(total.paid.values()) > 1 << 67
    assert_holds(table, total, sizes)


def test_means_of_rewards_are_rounded_up_to_the_grid() -> None:
    rng = np.random.default_rng(5)
    for _ in range(500):
        n = int(rng.integers(1, 1 << 50))
        bits = int(rng.integers(10, 41))
        total = int(rng.integers(0, 1 << 62)) * n % (n << bits)
        expected = -(-total // n) / (1 << bits)
        assert mean_reward(n, np.uint64(total >> 64), np.uint64(total % (1 << 64)), bits) == expected


def fair_table(rng: np.random.Generator, sizes: Sizes, moves: Counter[Transition]) -> CountTable:
    """A table in which each move pays 0 or an amount, on 20 bits."""
    transitions = np.zeros((*sizes, sizes.states), dtype=np.int64)
    rewards = np.zeros((*sizes, 1), dtype=np.int64)
    for at, number in moves.items():
        n = min(number, 10**6)
        rho = int(rng.integers(0, (1 << 20) + 1))
        times = int(rng.integers(0, n + 1))
        transitions[at] = n
        rewards[at[:3]] += times * rho
    return listed_counts(Support.full(sizes), Grid(20, 1, 60), transitions, rewards)


def test_a_file_gives_back_the_table(tmp_path: Path) -> None:
    for rng, sizes, reports in problems(6, 40):
        table = fair_table(rng, sizes, added(reports).moves)
        table.widened(table.width + 2).save(tmp_path / "counts.npz")
        again = CountTable.load(tmp_path / "counts.npz")
        assert again.equals(table)
        assert table.equals(again)
        copy = table.copy()
        assert same(again.widened(9), copy.widened(9))
        assert not table.merge(again).equals(copy) or not copy.visits.any()


def test_a_file_is_as_large_as_the_visited_part(tmp_path: Path) -> None:
    large = CountTable.empty(1, 20_000, 4)
    large.save(tmp_path / "large.npz")
    assert (tmp_path / "large.npz").stat().st_size < 5_000
    assert CountTable.load(tmp_path / "large.npz").equals(large)


def test_a_merged_table_has_the_sums_of_both() -> None:
    for rng, sizes, reports in problems(9, 40):
        one = fair_table(rng, sizes, reports[0].moves)
        other = fair_table(rng, sizes, reports[-1].moves)
        both = one.copy().merge(other)
        assert np.array_equal(both.dense(), one.dense() + other.dense())
        assert np.array_equal(both.rewards[..., 1], one.rewards[..., 1] + other.rewards[..., 1])


def test_fewer_bits_round_rewards_up() -> None:
    for rng, sizes, reports in problems(9, 40):
        table = fair_table(rng, sizes, added(reports).moves)
        bits = int(rng.integers(12, 31))
        moved = table.with_bits(bits)
        for before, after in zip(table.rewards.reshape((-1, 2)), moved.rewards.reshape((-1, 2)), strict=True):
            exact = Fraction((int(before[0]) << 64) + int(before[1])) * Fraction(2) ** (bits - 20)
            assert (int(after[0]) << 64) + int(after[1]) == math.ceil(exact)
        if bits >= 20:
            assert moved.with_bits(20).equals(table)


def test_a_file_that_cannot_be_a_table_is_rejected(tmp_path: Path) -> None:
    moves = Counter({(0, 0, 0, 1): 3, (0, 0, 0, 2): 4, (1, 2, 1, 0): 5})
    fair_table(np.random.default_rng(1), Sizes(2, 3, 2), moves).save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as data:
        good = dict(data)
    bad: dict[str, tuple[np.ndarray, str]] = {
        "cells": (np.array([11, 0]), "ascending order"),
        "seen": (np.array([1, 1], dtype=np.int32), "successors is a table of"),
        "successors": (np.array([2, 1, 0], dtype=np.int32), "ascending order"),
        "transitions": (np.array([3, -4, 5]), "counts are positive"),
        "rewards": (np.full((2, 2), 1 << 40, dtype=np.uint64), "rewards above 1"),
    }
    for name, (array, message) in bad.items():
        np.savez(tmp_path / "bad.npz", **(good | {name: array}))
        with pytest.raises(InputError, match=message):
            CountTable.load(tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", **{name: array for name, array in good.items() if name != "rewards"})
    with pytest.raises(InputError, match="expected the tables"):
        CountTable.load(tmp_path / "bad.npz")
    with pytest.raises(InputError, match=r"does not end in \.npz"):
        CountTable.empty(1, 1, 1).save(tmp_path / "counts")
    with pytest.raises(InputError, match="cannot be merged"):
        CountTable.empty(1, 1, 1).merge(CountTable.empty(1, 2, 1))


def test_a_widened_table_has_the_same_counts() -> None:
    for rng, sizes, reports in problems(7, 40):
        table = CountTable.empty(*sizes).plus(as_new_counts(rng, reports[0], sizes))
        roomy = table.widened(table.width + 3)
        assert_holds(roomy, reports[0], sizes)


def test_a_copy_does_not_change_with_its_original() -> None:
    for rng, sizes, reports in problems(7, 40):
        table = CountTable.empty(*sizes).plus(as_new_counts(rng, reports[0], sizes))
        copy = table.copy()
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
