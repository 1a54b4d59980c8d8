"""Fed-UCBVI with random rewards once more: a list of what every visit brought, and exact fractions.

Slow and plain on purpose; it shares no code with the package, which is checked against it. Steps h run from 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Visit(NamedTuple):
    """What one visit to (h,s,a) brought: the reward and the next state."""

    reward: Fraction
    successor: int


Visits = defaultdict[tuple[int, int, int, int], list[Visit]]
"""By agent, step (0 where steps are counted together), state and action."""
Bonus = Callable[[int, float, float, float], float]
"""Of N, the variance of y = r + V, the range of y and the largest V there can be."""


class Optimistic(NamedTuple):
    """What the server comes to."""

    N: npt.NDArray[np.int64]
    Q: npt.NDArray[np.float64]
    V: npt.NDArray[np.float64]


def no_visits() -> Visits:
    return defaultdict(list)


def plan(
    visits: Visits,
    sizes: tuple[int, int, int, int],
    bonus: Bonus,
    range_of: Callable[[int, list[float]], float],
    *,
    weighted: bool = True,
    stationary: bool = False,
    remaining: bool = True,
) -> Optimistic:
    """``Q = min(mean of y + bonus, cap)`` backwards, from every single visit; ``sizes`` are (M, S, A, H)."""
    M, S, A, H = sizes
    N, Q = np.zeros((1 if stationary else H, S, A), dtype=np.int64), np.zeros((H, S, A))
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        cap, following = float(H - h if remaining else H), V[h + 1].tolist()
        largest_next = float(H - 1 - h if remaining else H)
        B = range_of(h, following)
        for s in range(S):
            for a in range(A):
                own = [visits[i, 0 if stationary else h, s, a] for i in range(M)]
                n = sum(len(part) for part in own)
                N[0 if stationary else h, s, a] = n
                if n == 0:
                    Q[h, s, a] = cap
                    continue
                firsts, seconds = [], []
                for part in own:
                    ys = [visit.reward + Fraction(following[visit.successor]) for visit in part]
                    if not ys:  # the uniform kernel, and nothing paid
                        ys = [Fraction(value) for value in following]
                        weight = Fraction(0) if weighted else Fraction(1, M)
                    else:
                        weight = Fraction(len(ys), n) if weighted else Fraction(1, M)
                    firsts.append(weight * sum(ys) / len(ys))
                    seconds.append(weight * sum(y * y for y in ys) / len(ys))
                mean = sum(firsts, Fraction(0))
                variance = sum(seconds, Fraction(0)) - mean**2
                Q[h, s, a] = min(float(mean) + (cap if n == 1 else bonus(n, float(variance), B, largest_next)), cap)
        V[h] = Q[h].max(axis=1)
    return Optimistic(N, Q, V)


def practical(horizon: int) -> Bonus:
    """``H/N + sqrt(Var/N)``."""
    return lambda n, variance, _, __: horizon / n + math.sqrt(max(0.0, variance) / n)


def tight(log: float, *, net: bool = False) -> Bonus:
    """``max(sqrt(2 b Var/(N-1)), 2 b B/(N-1)) + 7 b B/(3 (N-1))``, and what the net costs where B is a span."""

    def bonus(n: int, variance: float, B: float, most: float) -> float:
        b = log + (math.log(n * n + 1) if net else 0.0)
        total = max(math.sqrt(2 * b * max(0.0, variance) / (n - 1)), 2 * b * B / (n - 1)) + 7 * b * B / (3 * (n - 1))
        spacing = most / n**2 if net else 0.0
        return total + spacing * (1 + math.sqrt(b / (2 * (n - 1))) + 7 * b / (3 * (n - 1)))

    return bonus
