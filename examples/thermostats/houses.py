"""Four houses with thermostats: temperatures are continuous, the weather is random, and the houses differ.

A house loses heat to the outside and gains what its heater gives (one thermal mass, in steps of an hour):

    ``inside' = inside + dt ((outside - inside) / tau + power u / C) + noise``

with time constant tau in hours, heat capacity C in kWh/K, power in kW and heating u from 0 to 1. An episode is a day
from 22:00 to 22:00. A step costs the heat, at a night or day price, and the discomfort: an amount for each degree and
hour outside the band, which is 20 to 23 degrees from 6:00 to 22:00 and 16 to 23 at night.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from fed_ucbvi.core.errors import InputError

STEPS = 24
HOURS = 1.0
FIRST_HOUR = 22.0
"""Steps of a day, hours of a step, and when the day begins."""
NIGHT_PRICE = 0.20
DAY_PRICE = 0.35
DISCOMFORT = 0.60
"""Euro for a kWh, and for a degree and hour outside the band."""
CAPACITY = 5.0
"""kWh for one degree."""
HOUSES = ((30.0, 6.0), (40.0, 5.0), (50.0, 4.5), (60.0, 4.0))
"""Time constant in hours and power of the heater in kW, house by house."""


def is_day(hour: float) -> bool:
    """Whether somebody is up."""
    return 6.0 <= hour < 22.0


def hour_of(step: int) -> float:
    """The hour at which a step begins."""
    return (FIRST_HOUR + step * HOURS) % 24


class House(gymnasium.Env[Any, Any]):
    """One house: observes the temperatures inside and outside, and sets its heater; the reward is minus the cost."""

    def __init__(self, tau: float, power: float) -> None:
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict(
            {"inside": box(-30.0, 60.0, (1,), np.float64), "outside": box(-40.0, 50.0, (1,), np.float64)}
        )
        self.action_space = box(0.0, 1.0, (1,), np.float64)
        self.tau = tau
        self.power = power
        self.inside = 20.0
        self.step_number = 0
        self.spent = 0.0
        self._mild = self._weather = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new day, with its own weather."""
        super().reset(seed=seed, options=options)
        self.inside = float(self.np_random.uniform(18.0, 22.0))
        self.step_number = 0
        self.spent = 0.0
        self._mild = float(self.np_random.normal(3.0, 2.0))
        self._weather = 0.0
        return self._observation(), {}

    @property
    def outside(self) -> float:
        """A daily cycle, warmest at 15:00, and weather that changes slowly."""
        cycle = 4.0 * math.cos(2 * math.pi * (hour_of(self.step_number) - 15.0) / 24)
        return self._mild + cycle + self._weather

    def _observation(self) -> dict[str, Any]:
        return {"inside": np.array([self.inside]), "outside": np.array([self.outside])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        heat = float(np.clip(action[0], 0.0, 1.0)) * self.power
        hour = hour_of(self.step_number)
        flow = (self.outside - self.inside) / self.tau + heat / CAPACITY
        self.inside += HOURS * flow + float(self.np_random.normal(0.0, 0.1))
        self._weather = 0.9 * self._weather + float(self.np_random.normal(0.0, 0.3))
        self.step_number += 1
        low = 20.0 if is_day(hour) else 16.0
        high = 23.0
        apart = max(low - self.inside, self.inside - high, 0.0)
        cost = HOURS * (heat * (DAY_PRICE if is_day(hour) else NIGHT_PRICE) + DISCOMFORT * apart)
        self.spent += cost
        return self._observation(), -cost, False, self.step_number >= STEPS, {}


def make(agent: int) -> House:
    """House number ``agent``."""
    if not 0 <= agent < len(HOUSES):
        raise InputError(f"there are {len(HOUSES)} houses, numbered from 0; got {agent}.")
    return House(*HOUSES[agent])


@dataclass
class BangBang:
    """A thermostat with hysteresis: full heat below its setting less ``band``, none above it plus ``band``."""

    day: float = 20.5
    night: float = 17.0
    band: float = 0.5
    heating: bool = False

    def act(self, house: House) -> Any:
        setting = self.day if is_day(hour_of(house.step_number)) else self.night
        if house.inside < setting - self.band:
            self.heating = True
        elif house.inside > setting + self.band:
            self.heating = False
        return np.array([1.0 if self.heating else 0.0])
