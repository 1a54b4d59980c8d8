"""Simulated agents with known dynamics: what they play is counted by law and outcome."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, FleetTables, Setting
from fed_ucbvi.algorithms.return_bounds import new_histogram
from fed_ucbvi.algorithms.state_memory import check_fleet_memory
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.memory import SMALLER, check_memory
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.drivers.laws import LawDriver, LawReturns, law_fleet, pairs_shape
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.rounds import Paid, PlayedRound
from fed_ucbvi.problem.federation import Federation

COUNTER_BYTES = 8
"""Bytes of a counter of visits."""
PLAYED_BY_EPISODE = ("auto", "episodes")
"""Drivers that may be named where dynamics are known; both play episode by episode."""


def check_law_driver(name: str) -> None:
    """Raise unless a driver can play known dynamics."""
    if name not in PLAYED_BY_EPISODE:
        raise InputError(
            f"the driver {name} counts visits by step, state and action, and cannot use known dynamics. Use the "
            "driver episodes, or federation.without_dynamics()."
        )


class LawParty(Party):
    """Agents with simulated laws under known dynamics; a round can be taken back.

    Args:
        algorithm: an algorithm that counts by law.
        setting: of the run.
        federation: these agents, with dynamics and laws.
        first_agent: number of the first of them.
        pooled: True to count the outcomes of all agents in one table; the result is the same.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation,
        first_agent: int = 0,
        *,
        pooled: bool = True,
    ) -> None:
        if federation.liars is not None:
            raise InputError("agents that lie are simulated without known dynamics; use without_dynamics().")
        self._fleet = law_fleet(
            federation,
            setting.seed,
            first_agent,
            pooled=pooled,
            levels=algorithm.level_law(setting),
        )
        supports = FleetTables(
            agents=federation.agents,
            successors=self._fleet.successors,
            rewards=np.zeros((1, *self._fleet.shape)),
            first_agent=first_agent,
        )
        check_fleet_memory(algorithm, setting, supports, pooled=pooled, counter_bytes=COUNTER_BYTES)
        pairs = math.prod(pairs_shape(federation)) * COUNTER_BYTES
        check_memory(f"The visits of {federation.agents:,} agents by step, state and action", pairs, SMALLER)
        driver = LawDriver(self._fleet, federation)
        tables = supports._replace(touched=self._fleet.touched if pooled else None)
        super().__init__(algorithm, setting, driver, tables)
        self.federation = federation
        self._pairs = driver.pairs

    def _count(self, end: RoundEnd) -> PlayedRound:
        """Add a round to the agents' counts by law; on record are visits by step, state and action."""
        self.algorithm.absorb(self.agents, self.policy, self.driver.transitions, self.driver.visits)
        return PlayedRound(end, self._pairs, self.driver.starts)

    def paid(self) -> Paid:
        """The sum of the mean rewards of all visits, which a simulation has on record."""
        total = float((self._pairs * self.federation.rewards).sum())
        return Paid(self.played * self.federation.agents, total, self.driver.starts.sum(axis=(0, 1)))

    def returns(self) -> CountArray:
        """The returns of the round's episodes, from the same trajectories played again."""
        histogram = new_histogram()
        self._simulated_returns.add(
            self.policy,
            self.first,
            self.played,
            histogram,
            self.return_limits,
            self._fleet.kept_levels,
        )
        return histogram

    @cached_property
    def _simulated_returns(self) -> LawReturns:
        return LawReturns(self._fleet, self.federation)

    def _move_to(self, length: int) -> None:
        """Play more without regard to budgets, or replay episodes and subtract their counts."""
        limits = self.budgets.limits
        if length > self.played:
            self.driver.extend(self.policy, limits, self.first + self.played, length - self.played, False)
        else:
            self.driver.rewind(self.policy, limits, self.first + length, self.played - length)
        self.played = length
