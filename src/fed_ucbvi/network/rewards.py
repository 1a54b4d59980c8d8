"""What a round paid, as integers that can be added up over nodes in any order, and under masks.

A node reports four numbers about the episodes its agents played in the round::

    n,    S = round(2^f sum_e G_e),    n2,    Q = round(2^g sum_e G_e^2)

where ``G_e`` is the reward of episode e, in units in which every step pays between 0 and 1. ``n2`` is the number of
episodes whose squares are in Q; simulated agents, which count transitions and not episodes, have none. A node that
does not tell its rewards reports zeros. No sum over all agents overflows: ``S <= M T H 2^f < 2^63``, and
``Q <= M T H^2 2^g < 2^63``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Setting
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network.violation import ViolationError

MAX_BITS = 40
"""After the point, at most."""
NUMBERS = 4


class RewardGrid(NamedTuple):
    """The grid of a run's rewards.

    Attributes:
        bits: f.
        square_bits: g; negative where squares would overflow otherwise.
        horizon: H.
    """

    bits: int
    square_bits: int
    horizon: int

    @classmethod
    def of(cls, setting: Setting) -> RewardGrid:
        """The finest on which nothing overflows."""
        episodes, H = setting.agents * setting.episodes, setting.horizon
        bits, square_bits = (61 - (episodes * most).bit_length() for most in (H, H * H))
        return cls(min(MAX_BITS, bits), min(MAX_BITS, square_bits), H)

    def report(self, paid: Paid | None) -> Array:
        """What a node says, ``(1, 4)``; zeros if it says nothing."""
        numbers = np.zeros((1, NUMBERS), dtype=np.int64)
        if paid is not None:
            numbers[0, :2] = paid.episodes, round(math.ldexp(paid.total, self.bits))
            if not math.isnan(paid.squares):
                numbers[0, 2:] = paid.episodes, round(math.ldexp(paid.squares, self.square_bits))
        return numbers

    def read(self, numbers: Array) -> Paid | None:
        """What was paid, from the sum of what nodes said; None if none of them said anything."""
        n, total, counted, squares = (int(number) for number in numbers[0])
        if n == 0:
            return None
        known = math.ldexp(squares, -self.square_bits) if counted == n else math.nan
        return Paid(n, math.ldexp(total, -self.bits), known)

    @staticmethod
    def check_form(numbers: Array) -> None:
        """Raise unless these are four numbers, masked or not."""
        if numbers.shape != (1, NUMBERS) or numbers.dtype != np.int64:
            raise ViolationError(f"rewards are {numbers.dtype} {numbers.shape}, expected int64 {(1, NUMBERS)}")

    def check(self, numbers: Array, episodes: int, *, some: bool = False) -> None:
        """Raise unless numbers about ``episodes`` episodes can be true; with ``some``, also about some of them."""
        self.check_form(numbers)
        n, total, counted, squares = (int(number) for number in numbers[0])
        if not (0 <= n <= episodes if some else n in (0, episodes)):
            raise ViolationError(f"rewards of {n} episodes, where {episodes} were played")
        if not (0 <= counted <= n if some else counted in (0, n)):
            raise ViolationError(f"squared rewards of {counted} episodes, and rewards of {n}")
        most = math.ldexp(float(n * self.horizon), self.bits)
        most_squares = math.ldexp(float(counted) * self.horizon**2, self.square_bits)
        for name, sum_, limit in (("rewards", total, most), ("squared rewards", squares, most_squares)):
            if not 0 <= sum_ <= limit * (1.0 + 1e-9) + n:
                raise ViolationError(f"{name} of {sum_} on the grid, outside [0, {limit:g}]")
        if counted == n > 0:
            mean_square = math.ldexp(squares, -self.square_bits) / n
            mean = math.ldexp(total, -self.bits) / n
            if mean * mean > mean_square * (1.0 + 1e-6) + math.ldexp(2.0 + n, -self.square_bits):
                raise ViolationError("squared rewards are less than the mean reward allows")
