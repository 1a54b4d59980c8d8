"""Exact sums: reports as integers on a grid, so that the sum over agents has one value however they are grouped.

Values and rewards are multiples of ``2^-f``. An agent that went n times from (h,s,a), ``n_k`` times to state
``s_k``, reports with ``v_k = V(s_k) 2^f``

    n,    X = sum_k n_k v_k,    Y = sum_k n_k v_k^2,    Z = n ceil(r 2^f),

which are integers. Sums of floats depend on their order; sums of integers do not.

A number may take two 64-bit words: ``x = low + high 2^B`` with ``0 <= low < 2^B``. B leaves room for the sum of M
low words, so words are added up one by one, without a carry: the sum of reports is the sum of their arrays. Inside
the functions below a number of 128 bits is the pair ``(high, low)`` of unsigned words with ``B = 64``.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, WordArray

MAX_BITS = 40
"""After the point, at most; more would gain nothing beside the rounding of floats."""
ENOUGH_BITS = 20
"""Where one word leaves fewer than this after the point, numbers take two."""
FLOAT_BITS = 53
"""Of a float's significand: multiples of ``2^-f`` up to H must be floats."""
COUNT_BITS = 60
"""Of visits to one pair, so that sums of them stay far from the end of a signed word."""

Wide = tuple[np.uint64, np.uint64]
"""A number of 128 bits: its high and its low word, unsigned."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_WORD = np.uint64(64)
_SIGN = np.uint64(1 << 63)
_BYTE_LEFT = np.uint64(1 << 56)
_TWO_TO_64 = 2.0**64


class Grid(NamedTuple):
    """The grid of a run.

    Attributes:
        bits: f, the bits after the point.
        words: of ``X`` and ``Z``, 1 or 2; ``Y`` takes 2 always.
        base: B, the bits of a low word.
    """

    bits: int
    words: int
    base: int

    @property
    def unit(self) -> float:
        """``2^-f``, the distance between neighbours."""
        return math.ldexp(1.0, -self.bits)


@functools.lru_cache
def make_grid(agents: int, visits: int, horizon: int, *, random_rewards: bool = False, kept: int = 0) -> Grid:
    """The finest grid on which the sums of M agents with N visits in all to one (h,s,a) cannot overflow.

    ``X <= N H 2^f`` must stay below ``2^63`` in one word, or ``2^(63 + B)`` in two; ``Y <= N (H 2^f)^2`` below
    ``2^(63 + B)``; and ``H 2^f`` at most ``2^53``. Where rewards are random, sums are those of ``y = r + V``, so that
    H + 1 stands for H, and sums of rewards by next state take one word. A run that goes on with a larger N has
    ``kept`` bits, those with which it began, so that what lies on its grid stays there; a second word makes room.

    The same arguments give the same object, since server, agents and checks of one run all ask for its grid.

    >>> make_grid(agents=20, visits=20 * 30_000, horizon=10).bits
    38
    >>> make_grid(agents=1000, visits=10**12, horizon=100)
    Grid(bits=30, words=2, base=52)
    """
    most = horizon + random_rewards
    if visits >> COUNT_BITS:
        raise InputError(
            f"{visits:.3g} visits to one pair are more than can be counted, 2^{COUNT_BITS} = {2**COUNT_BITS:.3g}. "
            "Use fewer agents or episodes, or a shorter horizon."
        )
    log_agents, log_visits, log_horizon = ((number - 1).bit_length() for number in (agents, visits, most))
    base = 62 - log_agents
    bits = min(MAX_BITS, FLOAT_BITS - log_horizon, (62 + base - log_visits) // 2 - log_horizon)
    if random_rewards:
        bits = min(bits, 62 - log_visits)
    in_one_word = min(bits, 62 - log_visits - log_horizon)
    if kept:
        if kept > bits:
            raise InputError(
                f"the run's exact sums have {kept} bits after the point, and {visits:.3g} visits by {agents} agents "
                f"leave room for {bits}. Use fewer episodes, or begin another run with a warm start from this one."
            )
        return Grid(kept, 1 if kept <= in_one_word else 2, base)
    if in_one_word >= ENOUGH_BITS:
        return Grid(in_one_word, 1, base)
    if bits < ENOUGH_BITS // 2:
        raise InputError(
            f"sums over {agents} agents, {visits:.3g} visits and horizon {horizon} would leave {bits} bits after the "
            "point. Use fewer agents or episodes, or a shorter horizon."
        )
    return Grid(bits, 2, base)


# ------------------------------------------------------------------------------------- numbers of two words


@compiled
def plus(a: Wide, b: Wide) -> Wide:
    """``a + b`` modulo 2^128."""
    low = a[1] + b[1]
    return a[0] + b[0] + np.uint64(low < a[1]), low


@compiled
def minus(a: Wide, b: Wide) -> Wide:
    """``a - b`` modulo 2^128."""
    return a[0] - b[0] - np.uint64(a[1] < b[1]), a[1] - b[1]


@compiled
def times(a: np.uint64, b: Wide) -> Wide:
    """``a b`` modulo 2^128."""
    high, low = product(a, b[1])
    return high + a * b[0], low


@compiled
def as_float(a: Wide) -> float:
    """The nearest float, or one of its two neighbours."""
    return float(a[0]) * _TWO_TO_64 + float(a[1])


@compiled
def divide(a: Wide, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Quotient and remainder of ``a / b`` for ``b < 2^63``, of which the quotient must fit one word."""
    if a[0] == _ZERO:
        quotient = a[1] // b
        return quotient, a[1] - quotient * b
    quotient = _ZERO
    rest = a[0] % b
    bits = 8 if b < _BYTE_LEFT else 1  # of long division at a time: the rest must stay within a word
    digit = np.uint64(bits)
    mask = np.uint64((1 << bits) - 1)
    for shift in range(64 - bits, -1, -bits):
        rest = (rest << digit) | ((a[1] >> np.uint64(shift)) & mask)
        part = rest // b
        rest -= part * b
        quotient = (quotient << digit) | part
    return quotient, rest


@compiled
def divide_up(a: Wide, b: np.uint64) -> Wide:
    """``ceil(a / b)`` for ``b < 2^63``."""
    high = a[0] // b
    low, rest = divide((a[0] - high * b, a[1]), b)
    return plus((high, low), (_ZERO, np.uint64(rest > _ZERO)))


@compiled
def write_words(a: Wide, grid: Grid, out: CountArray) -> None:
    """A number as the words of a report, the low one first; in one word where ``out`` has one."""
    if out.shape[0] == 1:
        out[0] = np.int64(a[1])
        return
    base = np.uint64(grid.base)
    out[0] = np.int64(a[1] & ((_ONE << base) - _ONE))
    out[1] = np.int64((a[0] << (_WORD - base)) | (a[1] >> base))


@compiled
def read_words(words: CountArray, grid: Grid) -> Wide:
    """The number that words of a report, or sums of such words, stand for."""
    low = (_ZERO, np.uint64(words[0]))
    if words.shape[0] == 1:
        return low
    base = np.uint64(grid.base)
    high = np.uint64(words[1])
    return plus((high >> (_WORD - base), high << base), low)


@compiled
def words_of(numbers: WordArray, grid: Grid, words: int) -> CountArray:
    """Numbers ``(n, 2)``, the high word first, as ``(n, words)`` of a report."""
    out = np.zeros((len(numbers), words), dtype=np.int64)
    for j in range(len(numbers)):
        write_words((numbers[j, 0], numbers[j, 1]), grid, out[j])
    return out


@compiled
def numbers_of(words: CountArray, grid: Grid) -> WordArray:
    """The reverse, of words or of sums of such words."""
    out = np.zeros((len(words), 2), dtype=np.uint64)
    for j in range(len(words)):
        out[j, 0], out[j, 1] = read_words(words[j], grid)
    return out


# ------------------------------------------------------------------------------------------------- moments


@compiled
def on_grid(value: float, bits: int) -> np.uint64:
    """``ceil(value 2^f)`` of a number that is not negative."""
    return np.uint64(math.ceil(value * float(1 << bits)))


@compiled
def round_up(value: float, bits: int) -> float:
    """The least multiple of ``2^-f`` that is at least ``value``."""
    scale = float(1 << bits)
    return float(math.ceil(value * scale)) / scale


@compiled
def variance_of_sums(weight: np.uint64, X: Wide, Y: Wide, bits: int) -> float:
    """``(W Y - X^2) / (W 2^f)^2`` from exact integers, rounded to a float at the end; 0 where that is negative.

    With ``X = q W + r`` and ``D = Y - q (X + r)`` it is ``(D - r^2/W) / W``, and no number on the way exceeds 128
    bits. ``D`` is an integer, at least ``r^2/W``, so where it takes one word ``W D - r^2`` is exact; where it takes
    two, ``r^2/W < W < 2^63`` is less than half of it, and floats lose next to nothing.
    """
    q, r = divide(X, weight)
    D = minus(Y, times(q, plus(X, (_ZERO, r))))
    w = float(weight)
    if D[0] == _ZERO:
        exact = minus(product(weight, D[1]), product(r, r))
        spread = 0.0 if exact[0] >= _SIGN else as_float(exact) / w
    elif D[0] >= _SIGN:
        spread = 0.0
    else:
        spread = as_float(D) - float(r) * float(r) / w
    unit = 1.0 / float(1 << bits)
    return spread / w * unit * unit
