"""The same five shops as Gymnasium environments, which know neither their kernel nor each other.

fed-ucbvi join HOST:PORT --live live_shops:make --reward-range=-28,56 ...
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from shops import DAYS, DEMANDS, FIRST, MOST, ORDERS, day, demand_law

from fed_ucbvi.core.errors import InputError


class Shop(gymnasium.Env[Any, Any]):
    """One shop: the observation is the stock in the evening, the action what is ordered, the reward the day's money.

    An episode is a month. It is cut off (truncated) after its last day, not terminated.
    """

    def __init__(self, mean: float) -> None:
        self.observation_space = gymnasium.spaces.Discrete(MOST + 1)
        self.action_space = gymnasium.spaces.Discrete(ORDERS + 1)
        self._law = np.cumsum(demand_law(mean))
        self._stock = FIRST
        self._day = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """A new month, with the usual stock."""
        super().reset(seed=seed, options=options)
        self._stock = FIRST
        self._day = 0
        return self._stock, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Order, sell, and count what is left."""
        demand = min(int(np.searchsorted(self._law, self.np_random.random(), side="right")), len(self._law) - 1)
        self._stock, money = day(min(self._stock + int(action), MOST), int(action), demand)
        self._day += 1
        return self._stock, money, False, self._day >= DAYS, {}


def make(agent: int) -> Shop:
    """Shop number ``agent``."""
    if not 0 <= agent < len(DEMANDS):
        raise InputError(f"there are {len(DEMANDS)} shops, numbered from 0; got {agent}.")
    return Shop(DEMANDS[agent])
