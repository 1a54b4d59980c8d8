"""Agents with simulated MDPs, played by any of the drivers."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Counting, FleetTables, Message, Setting, exchange_messages
from fed_ucbvi.algorithms.counters import counter_type
from fed_ucbvi.algorithms.return_bounds import new_histogram
from fed_ucbvi.algorithms.state_memory import check_fleet_memory
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Driver, Fleet, FleetDriver
from fed_ucbvi.engine.drivers.cuda import CUDA, on_gpu
from fed_ucbvi.engine.drivers.episodes import SimulatedReturns
from fed_ucbvi.engine.drivers.rewards import SimulatedRewards
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.problem.federation import Federation


class SimulatedParty(Party):
    """Agents with simulated MDPs.

    Args:
        algorithm: the algorithm with its parameters.
        setting: sizes and seed of the run.
        federation: the agents' MDPs; the common MDP is not used.
        driver: name of the driver; with ``episodes`` a round can be taken back.
        first_agent: number of the first of these agents in the federation.
        pooled: True to count the transitions of all agents in one table, where algorithm and rewards allow it. The
            result is the same, but agents counted in one table cannot go back to an earlier state.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation,
        driver: str = "episodes",
        first_agent: int = 0,
        *,
        pooled: bool = True,
    ) -> None:
        counting = algorithm.counting
        random = setting.random_rewards
        takes_sums = algorithm.grid(setting) is not None
        pooled = pooled and takes_sums and algorithm.stops_jointly and federation.pay_alike
        stationary = counting is Counting.STATIONARY
        counters = counter_type(setting, stationary=stationary, rows=federation.agents) if pooled else np.int64
        if driver != CUDA:  # there the agents' counts are on the GPU
            supports = FleetTables(federation.agents, federation.successors, federation.rewards, first_agent)
            width = np.dtype(counters).itemsize
            check_fleet_memory(algorithm, setting, supports, pooled=pooled, counter_bytes=width)
        fleet = Fleet.of(
            federation,
            setting.seed,
            first_agent,
            random_rewards=random,
            counting=counting,
            pooled=pooled,
            counters=counters,
            levels=algorithm.level_law(setting),
        )
        made: FleetDriver
        if driver == CUDA:
            made = on_gpu(fleet, algorithm, federation, setting)
        else:
            made = make_driver(driver, fleet)
        agents = len(made.visits)
        touched = made.fleet.touched if pooled else None
        self.random_rewards: SimulatedRewards | None = None
        tables = FleetTables(agents, federation.successors, federation.rewards, first_agent, touched)
        if random:
            self.random_rewards = SimulatedRewards(federation, counting, touched, algorithm.grid(setting))
            tables = self.random_rewards.for_agents(agents, federation.successors, first_agent, touched)
        drivers_apart = []
        if not algorithm.stops_jointly:
            drivers_apart = [make_driver(driver, fleet.agent(i)) for i in range(federation.agents)]
        super().__init__(algorithm, setting, made, tables, drivers_apart)
        self.federation = federation
        self._fleet = fleet
        self._summed = touched if len(federation.rewards) == 1 else None

    def start(self, broadcast: Message, first: int) -> None:
        super().start(broadcast, first)
        if self.federation.liars is not None:
            self.federation.liars.tamper_budgets(self.budgets.limits)

    def _transitions(self) -> CountArray:
        """The transitions of the round, after its random rewards have been read off them."""
        drawn = self.driver.transitions
        if self.random_rewards is None:
            return drawn
        return self.random_rewards.take(self.policy, drawn, self.driver.visits)

    def paid(self) -> Paid:
        """``sum_{i,h,s,a} visits^i_h(s,a) r^i_h(s,a)``, the sum that a simulation has on record."""
        visits = self.driver.visits
        policy = self.policy
        rewards = self.federation.rewards[:, : visits.shape[1]]
        if policy.ndim == 2:
            rows, _, S, A = rewards.shape
            by_step = np.broadcast_to(rewards, (rows, len(policy), S, A))
            rewards = np.take_along_axis(by_step, policy[None, ..., None], axis=3)[..., 0]
        return Paid(
            episodes=self.played * len(visits),
            total=float((visits * rewards).sum()),
            starts=self.driver.starts.sum(axis=(0, 1)),
        )

    def returns(self) -> CountArray:
        """The returns of the round's episodes, from the same trajectories played again."""
        histogram = new_histogram()
        self._simulated_returns.add(
            self.policy, self.first, self.played, histogram, self.return_limits, self._fleet.kept_levels
        )
        return histogram

    @cached_property
    def _simulated_returns(self) -> SimulatedReturns:
        return SimulatedReturns(self._fleet, self.federation)

    @cached_property
    def _trajectories(self) -> Driver:
        return make_driver("episodes", self._fleet)

    def exchange(self, server: Any, synchronisations: int) -> None:
        """Hold all exchanges of one synchronisation, message by message if some agents lie."""
        liars = self.federation.liars
        setting = self.setting
        if liars is None:
            super().exchange(server, synchronisations)
        else:
            tamper = partial(liars.tamper_report, synchronisations, setting.horizon)
            exchange_messages(self.algorithm, server, self.agents, setting, tamper)

    def _move_to(self, length: int) -> None:
        """Play more without regard to budgets, or replay episodes and subtract their counts."""
        limits = self.budgets.limits
        driver = self.driver
        played = self.played
        if length > played:
            driver.extend(self.policy, limits, self.first + played, length - played, False)
        else:
            driver.rewind(self.policy, limits, self.first + length, played - length)
        self.played = length
