"""Fed-UCBVI with random rewards once more: a list of what every visit brought, and exact fractions.

Slow and plain on purpose; it shares no code with the package, which is checked against it. Steps h run from 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
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


class Optimistic(NamedTuple):
    N: npt.NDArray[np.int64]
    Q: npt.NDArray[np.float64]
    V: npt.NDArray[np.float64]


def no_visits() -> Visits:
    return defaultdict(list)


def plan(
    visits: Visits, sizes: tuple[int, int, int, int], scale: float = 1.0, *, weighted: bool = True
) -> Optimistic:
    """``Q = min(mean of y + scale (H/N + sqrt(Var/N)), H)``, y = r + V, backwards, from every single visit.

    ``sizes`` are (M, S, A, H). A pair visited once has the bonus H.
    """
    M, S, A, H = sizes
    N, Q = np.zeros((H, S, A), dtype=np.int64), np.zeros((H, S, A))
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        following = V[h + 1].tolist()
        for s in range(S):
            for a in range(A):
                own = [visits[i, h, s, a] for i in range(M)]
                n = sum(len(part) for part in own)
                N[h, s, a] = n
                if n == 0:
                    Q[h, s, a] = H
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
                bonus = H if n == 1 else scale * (H / n + math.sqrt(max(0.0, float(variance)) / n))
                Q[h, s, a] = min(float(mean) + bonus, H)
        V[h] = Q[h].max(axis=1)
    return Optimistic(N, Q, V)
