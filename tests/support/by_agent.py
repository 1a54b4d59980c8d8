"""Simulations in which every agent keeps its own transition counts, to compare pooled ones with."""

from __future__ import annotations

from collections.abc import Sequence

from fed_ucbvi.algorithms.base import FleetTables
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Driver, Fleet
from fed_ucbvi.engine.simulation import Simulation


class ByAgent(Simulation):
    """A simulation that pools nothing, even where the algorithm would allow it."""

    def _make_drivers(self) -> tuple[Driver, Sequence[Driver], FleetTables]:
        f = self.federation
        fleet = Fleet.of(f, self.setting.seed, counting=self.algorithm.counting)
        apart = [] if self.algorithm.together else [fleet.agent(i) for i in range(f.agents)]
        drivers = [make_driver(self.driver_name, one) for one in (fleet, *apart)]
        return drivers[0], drivers[1:], FleetTables(f.agents, f.successors, f.rewards)
