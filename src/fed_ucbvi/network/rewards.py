"""Payments and initial states of a round, as integers that can be added up over nodes in any order, and under masks.

A node reports four numbers about episodes of its agents that it has not reported yet, usually those of the round,
and how many began in each state s::

    n,    R = round(2^f sum_e G_e),    n2,    Q = round(2^g sum_e G_e^2),    b(s) for all s

where ``G_e`` is the reward of episode e, in units in which every step pays between 0 and 1. ``n2`` is the number of
episodes whose squares are in Q; simulated agents, which count transitions and not episodes, have none. A node that
does not tell its rewards has zeros as the first four. In a run with promises it reports besides what of R exploring
paid, and the returns of each policy that is judged, as a histogram (:mod:`fed_ucbvi.algorithms.return_bounds`). No
sum over all agents overflows: ``R <= M T H 2^f < 2^63``, and ``Q <= M T H^2 2^g < 2^63``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Setting
from fed_ucbvi.algorithms.return_bounds import BINS, UNIT
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.messages import Start
from fed_ucbvi.results.round_record import EXPLORING, VERIFYING

MAX_BITS = 40
"""After the point, at most."""
NUMBERS = 4
"""Before those about states."""


def paid_in(party: Party, start: Start) -> Paid:
    """Payments of the round that a node has just stopped: of exploring, and of the policy that is judged."""
    paid = party.paid()
    within = party.return_limits
    returns = party.returns().copy() if start.playing != EXPLORING or within is not None else None
    if returns is not None and start.playing != EXPLORING:
        paid = paid._replace(returns={judged_in(start): returns})
    if start.playing in (EXPLORING, VERIFYING):
        least = 0.0 if within is None else within[0] * paid.episodes
        paid = paid._replace(exploring=max(0.0, paid.total - least))
    return paid


def judged_in(start: Start) -> int:
    """The number of the policy that a round plays; 0 if the server does not say."""
    return sum(start.judged[1:] if start.playing == VERIFYING else start.judged[:1])


def added(one: Paid, other: Paid) -> Paid:
    """Payments of two sets of episodes together; squares are known if they are of both."""
    squares = other.squares if one.episodes == 0 else one.squares + other.squares
    sums = one.episodes + other.episodes, one.total + other.total, one.starts + other.starts, squares
    returns = {**one.returns, **other.returns}
    returns |= {both: one.returns[both] + other.returns[both] for both in one.returns.keys() & other.returns}
    return Paid(*sums, one.exploring + other.exploring, returns)


def listed(paid: Paid) -> list[Any]:
    """Ready for JSON; :func:`paid_of` reads it back."""
    squares = None if math.isnan(paid.squares) else paid.squares
    returns = [[number, one.tolist()] for number, one in paid.returns.items()]
    return [paid.episodes, paid.total, paid.starts.tolist(), squares, paid.exploring, returns]


def paid_of(listed: list[Any]) -> Paid:
    episodes, total, starts, squares, exploring, returns = listed
    squares = math.nan if squares is None else squares
    judged = {number: np.array(one, dtype=np.int64) for number, one in returns}
    return Paid(episodes, total, np.array(starts, dtype=np.int64), squares, exploring, judged)


class RewardGrid(NamedTuple):
    """The grid of a run's rewards.

    Attributes:
        bits: f.
        square_bits: g; negative where squares would overflow otherwise.
        horizon: H.
        states: S.
        judged: the numbers of the incumbent and of the candidate, 0 for none, in a run with promises; else empty.
    """

    bits: int
    square_bits: int
    horizon: int
    states: int
    judged: tuple[int, ...] = ()

    @classmethod
    def of(cls, setting: Setting) -> RewardGrid:
        """The finest on which nothing overflows."""
        episodes = setting.agents * setting.episodes
        H = setting.horizon
        bits, square_bits = (61 - (episodes * most).bit_length() for most in (H, H * H))
        return cls(min(MAX_BITS, bits), min(MAX_BITS, square_bits), H, setting.states)

    @property
    def policies(self) -> list[int]:
        """The numbers of the policies whose returns are told."""
        return [number for number in self.judged if number]

    @property
    def numbers(self) -> int:
        return NUMBERS + self.states + bool(self.judged) + (BINS + 1) * len(self.policies)

    def _split(self, numbers: Array) -> tuple[CountArray, int, CountArray]:
        """Initial states, payments of exploring, and a row of returns for each policy."""
        starts, more = np.split(numbers[0, NUMBERS:], [self.states])
        returns = more[1:].reshape((len(self.policies), BINS + 1))
        return starts, int(more[0]) if self.judged else 0, returns

    def report(self, paid: Paid, *, tell: bool = True) -> Array:
        """The report of a node, ``(1, 4 + S)`` or more; with zeros for rewards unless it is to ``tell`` them."""
        numbers = np.zeros((1, self.numbers), dtype=np.int64)
        numbers[0, NUMBERS : NUMBERS + self.states] = paid.starts
        if tell:
            _, _, returns = self._split(numbers)
            for row, number in zip(returns, self.policies, strict=True):
                row += paid.returns.get(number, 0)
            if self.judged:
                numbers[0, NUMBERS + self.states] = round(math.ldexp(paid.exploring, self.bits))
            numbers[0, :2] = paid.episodes, round(math.ldexp(paid.total, self.bits))
            if not math.isnan(paid.squares):
                numbers[0, 2:NUMBERS] = paid.episodes, round(math.ldexp(paid.squares, self.square_bits))
        return numbers

    def read(self, numbers: Array) -> Paid:
        """Payments by the sum of the reports; of no episodes if no node has reported rewards."""
        n, total, counted, squares = (int(number) for number in numbers[0, :NUMBERS])
        known = math.ldexp(squares, -self.square_bits) if counted == n else math.nan
        starts, exploring, returns = self._split(np.array(numbers))
        paid = math.ldexp(total, -self.bits), starts, known, math.ldexp(exploring, -self.bits)
        return Paid(n, *paid, dict(zip(self.policies, returns, strict=True)))

    def check_form(self, numbers: Array) -> None:
        """Raise unless these are as many numbers as there should be, masked or not."""
        if numbers.shape != (1, self.numbers) or numbers.dtype != np.int64:
            raise ViolationError(f"rewards are {numbers.dtype} {numbers.shape}, expected int64 {(1, self.numbers)}")

    def check(self, numbers: Array, episodes: int, *, some: bool = False) -> None:
        """Raise unless numbers about ``episodes`` episodes can be true; with ``some``, also about some of them."""
        self.check_form(numbers)
        n, total, counted, squares = (int(number) for number in numbers[0, :NUMBERS])
        starts, exploring, returns = self._split(numbers)
        if starts.min() < 0 or starts.max() > episodes or int(starts.sum()) != episodes:
            raise ViolationError(f"the states in which episodes began do not add up to the {episodes} played")
        if not (0 <= n <= episodes if some else n in (0, episodes)):
            raise ViolationError(f"rewards of {n} episodes, where {episodes} were played")
        each = [sum(row.tolist()) for row in returns]
        if returns.min(initial=0) < 0 or sum(each) > n * UNIT or any(one % UNIT for one in each):
            raise ViolationError(f"the returns of policies are not those of some of the {n} episodes that were paid")
        if not (0 <= counted <= n if some else counted in (0, n)):
            raise ViolationError(f"squared rewards of {counted} episodes, and rewards of {n}")
        most = math.ldexp(float(n * self.horizon), self.bits)
        most_squares = math.ldexp(float(counted) * self.horizon**2, self.square_bits)
        limits = ("rewards", total, most), ("squared rewards", squares, most_squares)
        for name, sum_, limit in (*limits, ("rewards of exploring", exploring, most)):
            if not 0 <= sum_ <= limit * (1.0 + 1e-9) + n:
                raise ViolationError(f"{name} of {sum_} on the grid, outside [0, {limit:g}]")
        if counted == n > 0:
            mean_square = math.ldexp(squares, -self.square_bits) / n
            mean = math.ldexp(total, -self.bits) / n
            if mean * mean > mean_square * (1.0 + 1e-6) + math.ldexp(2.0 + n, -self.square_bits):
                raise ViolationError("squared rewards are less than the mean reward allows")
