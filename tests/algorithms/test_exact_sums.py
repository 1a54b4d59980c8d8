"""Exact sums against Python's integers and fractions, which are exact by themselves."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fed_ucbvi import InputError
from fed_ucbvi.algorithms.exact_sums import (
    Grid,
    Wide,
    as_float,
    divide,
    divide_up,
    make_grid,
    minus,
    on_grid,
    plus,
    read_words,
    round_up,
    times,
    variance_of_sums,
    write_words,
)
from fed_ucbvi.core.limits import MAX_COUNT


def wide(number: int) -> Wide:
    return np.uint64(number >> 64 & (2**64 - 1)), np.uint64(number & (2**64 - 1))


def number(pair: Wide) -> int:
    return (int(pair[0]) << 64) + int(pair[1])


def random_number(rng: np.random.Generator, bits: int) -> int:
    """Of any length up to ``bits``, often with long runs of ones or zeros."""
    length = int(rng.integers(0, bits + 1))
    value = int.from_bytes(rng.bytes(16), "little") & (2**length - 1)
    return (2**length - 1 if rng.integers(4) == 0 else value) if length else 0


def test_addition_is_that_of_integers() -> None:
    rng = np.random.default_rng(1)
    carried = 0
    for _ in range(3000):
        a = random_number(rng, 127)
        b = random_number(rng, 127)
        assert number(plus(wide(a), wide(b))) == (a + b) % 2**128
        carried += (a % 2**64) + (b % 2**64) >= 2**64
    assert carried > 100


def test_subtraction_is_that_of_integers() -> None:
    rng = np.random.default_rng(1)
    for _ in range(3000):
        a = random_number(rng, 127)
        b = random_number(rng, 127)
        assert number(minus(wide(a), wide(b))) == (a - b) % 2**128


def test_multiplication_is_that_of_integers() -> None:
    rng = np.random.default_rng(1)
    for _ in range(3000):
        a = random_number(rng, 127)
        c = random_number(rng, 64)
        assert number(times(np.uint64(c), wide(a))) == a * c % 2**128


def test_conversion_to_a_float_is_that_of_integers() -> None:
    rng = np.random.default_rng(1)
    for _ in range(3000):
        a = random_number(rng, 127)
        assert as_float(wide(a)) == pytest.approx(float(a), rel=4e-16)


def random_count(rng: np.random.Generator) -> int:
    """Small ones, and as many between 2^50 and 2^63."""
    return max(1, random_number(rng, 55)) if rng.integers(2) else int(2 ** rng.uniform(50, 63))


def test_division_is_that_of_integers() -> None:
    rng = np.random.default_rng(2)
    for _ in range(6000):
        b = random_count(rng)
        quotient = random_number(rng, 64)
        rest = random_number(rng, 63) % b
        found = divide(wide(quotient * b + rest), np.uint64(b))
        assert (int(found[0]), int(found[1])) == (quotient, rest)
        a = random_number(rng, 127)
        assert number(divide_up(wide(a), np.uint64(b))) == -(-a // b)


@pytest.mark.parametrize("words", [1, 2])
def test_words_add_up_one_by_one_to_the_sum_of_the_numbers(words: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        agents = int(rng.integers(1, 40))
        grid = Grid(20, words, 62 - (agents - 1).bit_length())
        largest = 57 if words == 1 else 110
        numbers = [random_number(rng, largest) for _ in range(agents)]
        table = np.zeros((agents, words), dtype=np.int64)
        for i, value in enumerate(numbers):
            write_words(wide(value), grid, table[i])
        assert (table >= 0).all()
        assert number(read_words(table.sum(axis=0), grid)) == sum(numbers)


def test_numbers_are_rounded_up_to_the_next_point_of_the_grid() -> None:
    rng = np.random.default_rng(4)
    for bits in (10, 20, 40):
        for value in [0.0, 1.0, 7.0, *rng.uniform(0, 100, 200), *(rng.integers(0, 9, 20) / 8)]:
            exact = math.ceil(Fraction(float(value)) * 2**bits)
            assert on_grid(value, bits) == exact
            assert Fraction(round_up(value, bits)) == Fraction(exact, 2**bits)


@pytest.mark.parametrize("large", [False, True])
def test_the_variance_is_exact_up_to_the_last_rounding(large: bool) -> None:
    """Counts up to 2^53 on any grid; ``large`` ones, 2^50 to 2^60, on the grid of a run with so many visits.

    Values are up to the largest the grid allows; equal values have no variance at all.
    """
    rng = np.random.default_rng(5)
    for _ in range(3000):
        horizon = int(rng.integers(1, 513 if large else 65))
        states = int(rng.integers(1, 6))
        if large:
            N = int(2 ** rng.uniform(50, 60))
            bits = make_grid(int(2 ** rng.uniform(0, 20)), N, horizon).bits
            n = rng.multinomial(N, rng.dirichlet(np.ones(states))).tolist()
        else:
            bits = int(rng.integers(10, 37))
            n = [random_number(rng, 50) for _ in range(states)]
        if (N := sum(n)) == 0:
            continue
        values = [int(rng.integers(0, horizon * 2**bits + 1)) for _ in range(states)]
        match rng.integers(4):
            case 0:
                values = [values[0]] * states
            case 1:  # neighbours, where floats would see nothing
                values = [values[0] + int(rng.integers(2)) for _ in range(states)]
        X, Y = (sum(c * v**p for c, v in zip(n, values, strict=True)) for p in (1, 2))
        exact = Fraction(N * Y - X * X, (N << bits) ** 2)
        found = variance_of_sums(np.uint64(N), wide(X), wide(Y), bits)
        assert found == pytest.approx(float(exact), rel=1e-14, abs=0)
        if len({v for v, c in zip(values, n, strict=True) if c}) == 1:
            assert found == 0.0


def test_visits_that_leave_no_room_for_sums_are_refused() -> None:
    assert make_grid(1, 2**60 - 1, 1).words == 2
    with pytest.raises(InputError, match=r"1.15e\+18 visits to one pair are more than can be counted.* Use fewer"):
        make_grid(1, 2**60, 1)
    with pytest.raises(InputError, match="bits after the point"):
        make_grid(2**26, 2**53, 2**14)


@pytest.mark.parametrize("agents", [1, 2, 20, 1000, 2**17])
@pytest.mark.parametrize("episodes", [1, 3000, 30_000, 10**9, 2**53])
@pytest.mark.parametrize("horizon", [1, 2, 5, 10, 100, 1000])
def test_the_largest_sums_there_can_be_fit_their_words(agents: int, episodes: int, horizon: int) -> None:
    """All visits of all agents at one pair, whose value is H; or spread over them so that low words are largest."""
    episodes = min(episodes, MAX_COUNT // agents)
    N = agents * episodes
    grid = make_grid(agents, N, horizon)
    v = horizon << grid.bits
    assert grid.bits >= 17
    assert grid.words == 2 or (N * v < 2**63 and grid.bits >= 20)
    assert v <= 2**53
    assert (N * v * v >> grid.base) < 2**63
    assert agents * (2**grid.base - 1) < 2**63
    if grid.words == 1 and grid.bits < 40 and grid.bits + (horizon - 1).bit_length() < 53:
        assert N * v * 4 >= 2**61, "no bit is given away: powers of two apart, the next grid would overflow"


def test_the_grids_of_the_papers_experiments() -> None:
    assert make_grid(20, 20 * 30_000, 10) == Grid(38, 1, 57)
    assert make_grid(20, 20 * 3_000, 5) == Grid(40, 1, 57)
    assert make_grid(20, 20 * 10**9, 10) == Grid(23, 1, 57)
