"""Five shops that order one article: agents that differ, with figures that can be computed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fed_ucbvi import MDP, Dynamics, Federation
from fed_ucbvi.core.types import FloatArray, IndexArray

DEMANDS = (1.5, 2.0, 2.5, 3.0, 3.5)
"""Mean demand a day, shop by shop."""
MOST = 20
ORDERS = 5
DAYS = 30
FIRST = 5
"""Units a shop can hold, the most it orders, days of a month, and what it begins with."""
LOW = -28.0
HIGH = 56.0
"""Between which a day's money lies, in euro."""


def demand_law(mean: float, most: int = 14) -> FloatArray:
    """Poisson, cut at ``most`` and renormalised."""
    law: FloatArray = np.array([math.exp(-mean) * mean**k / math.factorial(k) for k in range(most + 1)])
    law /= law.sum()
    return law


def day(stock: int, ordered: int, demand: int) -> tuple[int, float]:
    """What is left in the evening, and the day's money in euro; ``stock`` is that of the morning, after delivery."""
    sold = min(stock, demand)
    left = stock - sold
    return left, 4.0 * sold - 2.0 * ordered - 1.0 * (ordered > 0) - 0.15 * left - 1.0 * (demand - sold)


def shop(mean: float) -> tuple[FloatArray, FloatArray]:
    """``P[s,a,s']`` and the expected money ``r[s,a]`` in euro."""
    S = MOST + 1
    A = ORDERS + 1
    P = np.zeros((S, A, S))
    r = np.zeros((S, A))
    for s in range(S):
        for a in range(A):
            for demand, chance in enumerate(demand_law(mean)):
                left, money = day(min(s + a, MOST), a, demand)
                P[s, a, left] += chance
                r[s, a] += chance * money
    return P, r


def variance_of_money(mean: float) -> FloatArray:
    """Of a day's money in euro, ``[s,a]``."""
    table = np.zeros((MOST + 1, ORDERS + 1))
    r = shop(mean)[1]
    for s, a in np.ndindex(*table.shape):
        for demand, chance in enumerate(demand_law(mean)):
            table[s, a] += chance * (day(min(s + a, MOST), a, demand)[1] - r[s, a]) ** 2
    return table


def shops(members: Sequence[int] = range(len(DEMANDS)), *, random: bool = False) -> Federation:
    """The five shops, or some of them, as tables with expected rewards; what they pay is on record in euro.

    Where rewards are ``random`` a day's money has its true mean and variance, but it does not depend on what is left
    in the evening, as it does in the shops.
    """
    mdps = []
    for mean in (DEMANDS[number] for number in members):
        P, r = shop(mean)
        spread = variance_of_money(mean) / (HIGH - LOW) ** 2 if random else None
        mdps.append(MDP(P, (r - LOW) / (HIGH - LOW), FIRST, DAYS, spread))
    about = {"name": "shops", "reward_offset": LOW, "reward_scale": HIGH - LOW}
    return Federation.from_mdps(mdps, description=about)


def known_day() -> Dynamics:
    """Everything that the shops know: an outcome is the day's demand, which has one law."""

    def left_and_money(day_: IndexArray, stock: IndexArray, order: IndexArray, demand: IndexArray) -> tuple[Any, Any]:
        there = np.minimum(stock + order, MOST)
        sold = np.minimum(there, demand)
        left = there - sold
        money = 4.0 * sold - 2.0 * order - 1.0 * (order > 0) - 0.15 * left - 1.0 * (demand - sold)
        return left, money

    return Dynamics(
        laws=1,
        outcomes=len(demand_law(1.0)),
        law_of=0,
        next_state=lambda *place: left_and_money(*place)[0],
        reward=lambda *place: left_and_money(*place)[1],
        reward_range=(LOW, HIGH),
        horizon=DAYS,
        states=MOST + 1,
        actions=ORDERS + 1,
    )


def known_shops(members: Sequence[int] = range(len(DEMANDS))) -> Federation:
    """The five shops, or some of them, with known dynamics; the common MDP has the mean law of demand."""
    laws = np.stack([demand_law(DEMANDS[number])[None] for number in members])
    return Federation.from_laws(known_day(), laws, FIRST, reference="mean", description={"name": "shops"})


def usual(step: int, stock: int) -> int:
    """What the shops do today: order 5 units if at most 3 are left."""
    return 5 if stock <= 3 else 0


def euro(value: float) -> float:
    """A month's value in euro, from units in which a day pays between 0 and 1."""
    return DAYS * LOW + (HIGH - LOW) * value
