"""Agents with real environments, known by ``reset`` and ``step`` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fed_ucbvi.algorithms.base import Algorithm, Array, Message, Setting
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.drivers.live import LiveDriver, LiveTables
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.rounds import Paid, PlayedRound
from fed_ucbvi.engine.state_arrays import put_back
from fed_ucbvi.problem.units import Units


class LiveParty(Party):
    """Agents that call ``env.step`` on environments whose kernels nobody knows; supports grow with what they see.

    Args:
        algorithm: the algorithm with its parameters.
        setting: sizes and seed of the run.
        agents: numbers of these agents in the federation.
        make: makes the environment of an agent from its number.
        units: units of rewards.
        vectorisation: see :class:`~fed_ucbvi.engine.live.LiveFederation`.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        agents: range,
        make: Callable[[int], Any],
        units: Units,
        vectorisation: str = "sync",
    ) -> None:
        random = setting.random_rewards
        tables = LiveTables(
            agents=len(agents),
            horizon=setting.horizon,
            states=setting.states,
            actions=setting.actions,
            first_agent=agents.start,
            counting=algorithm.counting,
            grid=algorithm.grid(setting) if random else None,
            fixed_rewards=not random,
            levels=algorithm.level_law(setting),
        )
        self.tables = tables

        def driver_of(some: range) -> LiveDriver:
            return LiveDriver(tables, some, make, vectorisation, units, setting.seed)

        drivers_apart = []
        if not algorithm.stops_jointly:
            drivers_apart = [driver_of(range(i, i + 1)) for i in agents]
        together = driver_of(agents)
        self._drivers = [together, *drivers_apart]
        super().__init__(algorithm, setting, together, tables.for_agents(), drivers_apart)
        self.seen = tables
        self._width = tables.width

    def start(self, broadcast: Message, first: int) -> None:
        super().start(broadcast, first)
        self.tables.forget_payments()

    def limit_returns(self, limits: tuple[float, float]) -> None:
        super().limit_returns(limits)
        self.tables.limit_returns(limits)

    def paid(self) -> Paid:
        starts = self.tables.starts.sum(axis=(0, 1))
        total, squares = self.tables.paid.tolist()
        return Paid(episodes=int(starts.sum()), total=total, starts=starts, squares=squares)

    def returns(self) -> CountArray:
        return self.tables.returns

    def _count(self, end: RoundEnd) -> PlayedRound:
        """Add the round to the agents' counts, on wider supports if new next states have been seen."""
        if self.tables.width != self._width:
            before = self.agents.arrays()
            self._make_room()
            for name, array in self.agents.arrays().items():  # all that changes in agents
                array[..., : before[name].shape[-1]] = before[name]
            self.algorithm.budgets(self.agents, self.broadcast)
        return super()._count(end)._replace(paid=self.paid())

    def _move_to(self, length: int) -> None:
        raise InputError(
            f"the server has counted {length} episodes of this round, of which this node holds {self.played}; real "
            "environments cannot play them again. Start the node with the state folder it had."
        )

    def counts(self) -> dict[str, Array]:
        return self.tables.of_round()

    def recall(self, arrays: Mapping[str, Array], counts: Mapping[str, Array], played: int) -> None:
        self._restore_seen(arrays)
        for name, array in self.tables.of_round().items():
            put_back(name, array, counts.get(name))
        self.played = played
        super().recall(arrays, counts, played)

    def _make_room(self) -> None:
        if self.tables.width != self._width:
            self._width = self.tables.width
            self.agents = self.algorithm.new_agents(self.setting, self.tables.for_agents())

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()
