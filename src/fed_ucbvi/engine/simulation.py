"""Running an algorithm on a federation in one process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Budgets,
    Counting,
    FleetTables,
    Message,
    Setting,
    Touched,
    exchange_messages,
)
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.algorithms.experience import counter_type
from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.core.types import CountArray, PolicyArray
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Driver, Fleet, RoundEnd, rule_at, starts_in
from fed_ucbvi.engine.drivers.cuda import CUDA, on_gpu
from fed_ucbvi.engine.drivers.rewards import SimulatedRewards
from fed_ucbvi.engine.progress import Progress, show_progress
from fed_ucbvi.engine.rounds import Engine, Play, PlayedRound, Request, answered
from fed_ucbvi.engine.saved_state import SavedState, named, put_back, restore
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.agents import is_known
from fed_ucbvi.results.recommendations import Recommended, last_gap
from fed_ucbvi.results.round_record import OnRound, Watcher
from fed_ucbvi.results.run import Run

SECONDS_BETWEEN_REPORTS = 0.1


class Caution(UserWarning):
    """A plain warning before a run, such as a rule that can never fire."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; ``partial`` is the result so far."""

    def __init__(self, partial: Run) -> None:
        super().__init__(f"interrupted after {partial.episodes_played:,} episodes")
        self.partial = partial


class Simulation(Engine):
    """A run in progress in one process: the server, one fleet of all M agents, and one driver.

    ``apart`` counts every agent by itself also where one table for all would do; the result is the same.
    """

    _rewards: SimulatedRewards | None = None
    """Set where rewards are random."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        federation: Federation,
        episodes: int,
        seed: int,
        driver: str,
        *,
        grid_bits: int = 0,
        counts: Counts | None = None,
        apart: bool = False,
    ) -> None:
        self._apart = apart
        T = check_positive_integer("episodes", episodes, at_most=MAX_COUNT)
        if T * federation.agents > MAX_COUNT:
            raise InputError(
                f"agents x episodes is {federation.agents} x {T} = {T * federation.agents:.3g}; counts are exact "
                f"up to 2^53 = {MAX_COUNT:.3g} only. Take fewer episodes or agents."
            )
        seed = check_integer("seed", seed, at_most=MAX_SEED)
        self.federation = federation
        known = not math.isnan(federation.eps_p)
        setting = Setting(
            federation.states,
            federation.actions,
            federation.horizon,
            federation.agents,
            T,
            federation.eps_p if known else 0.0,
            seed,
            known,
            self._random_rewards(),
            grid_bits,
        )
        super().__init__(algorithm, setting, federation, driver, together=algorithm.together, counts=counts)
        if self.earlier is not None and is_known(federation):
            self.earlier.counts.check_support(federation.successors)
        self._pooled: Touched | None = None
        self._make_agents()

    def _random_rewards(self) -> bool:
        """Whether rewards are random."""
        return self.federation.reward_variances is not None

    def _make_agents(self) -> None:
        """The agents and those who play for them, in this process."""
        self.driver, self._separate_drivers, tables = self._make_drivers()
        self.agents = self.algorithm.new_agents(self.setting, tables)
        if self._rewards is not None and self.algorithm.keeps_experience:
            self._rewards.remember_all()

    def _make_drivers(self) -> tuple[Driver, Sequence[Driver], FleetTables]:
        """The fleet's driver, one for each agent where they stop apart, and what the agents bring along."""
        federation, name = self.federation, self.driver_name
        counting, random = self.algorithm.counting, self.setting.random_rewards
        pooled = self.algorithm.pools and self.algorithm.together and federation.pay_alike and not self._apart
        fleet = Fleet.of(
            federation,
            self.setting.seed,
            pooled=pooled,
            counting=counting,
            random_rewards=random,
            counters=self._counters(pooled),
        )
        driver: Driver
        touched: Touched | None
        if name == CUDA:
            driver = gpu = on_gpu(fleet, self.algorithm, federation, self.setting)
            touched, rows = gpu.touched, 1
        else:
            driver, rows = make_driver(name, fleet), federation.agents
            touched = fleet.touched if pooled else None
        apart = [] if self.algorithm.together else [fleet.agent(i) for i in range(federation.agents)]
        if federation.rewards.shape[0] == 1:
            self._pooled = touched
        tables = FleetTables(rows, federation.successors, federation.rewards, touched=touched)
        if random:
            grid = self.algorithm.reward_grid(self.setting)
            self._rewards = SimulatedRewards(federation, counting, touched, grid)
            tables = self._rewards.for_agents(rows, federation.successors, touched=touched)
        return driver, [make_driver(name, one) for one in apart], tables

    def _counters(self, pooled: bool) -> type[np.signedinteger[Any]]:
        """What each agent's visits in a round are counted by."""
        if not pooled:
            return np.int64
        stationary = self.algorithm.counting is Counting.STATIONARY
        return counter_type(self.setting, stationary=stationary, rows=self.setting.agents)

    def advance(self) -> None:
        """Play one round and synchronise if an agent requested it."""
        answered(self.round(), self._answer)

    def _answer(self, request: Request) -> PlayedRound | None:
        """Do what the round needs."""
        if isinstance(request, Play):
            return self._play_round(request.broadcast)
        self.exchange(request.server)
        return None

    def _play_round(self, broadcast: Message) -> PlayedRound:
        """Let the agents play the round that ``broadcast`` begins and add it to their counts."""
        algorithm, driver, policy = self.algorithm, self.driver, broadcast[0]
        budgets = self.contract.budgets(self.agents, broadcast)
        if self.federation.liars is not None:
            self.federation.liars.tamper_budgets(budgets.visits)
        stop, lengths = self._collect(policy, budgets)
        transitions = driver.transitions
        if self._rewards is not None:
            transitions = self._rewards.take(policy, transitions, driver.visits)
        algorithm.absorb(self.agents, policy, transitions, driver.visits)
        visits = driver.visits if self._pooled is None else self._pooled.all_visits
        starts = driver.starts if algorithm.counting is Counting.STATIONARY else starts_in(visits)
        return PlayedRound(stop, rule_at(stop, budgets), visits, starts, lengths)

    def _collect(self, policy: PolicyArray, budgets: Budgets) -> tuple[RoundEnd, CountArray | None]:
        """Play the round; how it ended, and how long it was for each agent where they stop apart."""
        T = self.setting.episodes
        if not self._separate_drivers:
            return self.driver.collect(policy, budgets, self.played, T - self.played), None
        stops, lengths = [], np.zeros_like(self.clock)
        for i, driver in enumerate(self._separate_drivers):
            left = T - int(self.clock[i])
            driver.clear()
            if left:
                own = budgets._replace(visits=budgets.visits[i : i + 1])
                stops.append(driver.collect(policy, own, int(self.clock[i]), left))
                lengths[i] = stops[-1].length
        asked = [stop for stop in stops if stop.askers]
        longest = max(stop.length for stop in stops)
        return RoundEnd(longest, len(asked), *(asked[0][2:] if asked else (-1, -1, -1, -1))), lengths

    def exchange(self, server: Any) -> None:
        """All exchanges of the agents with ``server``, or a planner; message by message if some of them are lies."""
        liars = self.federation.liars
        if self.earlier is not None:
            self.earlier.synchronise(server, self.agents)
            return
        if liars is None:
            self.algorithm.synchronise(server, self.agents)
            return

        def tamper(report: Message, exchange: int) -> None:
            liars.tamper_report(report, self.setting.horizon, self.rounds, exchange)

        exchange_messages(self.algorithm, server, self.agents, self.setting, tamper)

    def recommend(self) -> Recommended:
        """The policy to deploy, planned from all counts; nothing changes by it."""
        return answered(self.plan(), self._answer)

    def result(self) -> Run:
        """The run as it stands, with a policy planned from all counts there are now."""
        if self.recommended is not None and self.recommendations[-1][0] == len(self.rows):
            return super().result()
        recommended, earlier = self.recommend(), [row for row in self.recommendations if row[0] < len(self.rows)]
        return self._result(recommended, [*earlier, self._row(recommended)])

    def identity(self) -> dict[str, Any] | None:
        """What tells whether a problem that no file can hold is the same, ready for JSON; None where a file can."""
        return None

    def saved(self) -> SavedState:
        """With the agents, and what was seen of their problem."""
        saved = super().saved()
        saved.arrays.update({f"agents.{name}": array for name, array in self.agents.arrays().items()})
        saved.arrays.update({f"seen.{name}": array for name, array in self._seen().items()})
        return saved

    def restore(self, saved: SavedState) -> None:
        """What was seen first: agents may have more room for it than new ones have."""
        seen = named("seen.", saved.arrays)
        if seen.keys() != self._seen().keys():
            raise InputError("the saved state does not fit this run: what was seen of the problem is something else.")
        self._see_again(seen)
        for name, array in self._seen().items():
            put_back(f"seen.{name}", array, seen[name])
        restore(self.agents, saved.arrays, "agents.")
        super().restore(saved)

    def _seen(self) -> dict[str, Array]:
        """What was seen of the problem, where it is not known."""
        return {} if self._rewards is None else self._rewards.arrays()

    def _see_again(self, arrays: Mapping[str, Array]) -> None:
        """Make room for what :meth:`_seen` gave."""

    def close(self) -> None:
        """Nothing to leave."""


class Store(Protocol):
    """Where a run is kept while it is in progress."""

    @property
    def every(self) -> int:
        """Rounds between two times that the state is written."""
        ...

    def write(self, simulation: Simulation) -> None:
        """Keep the state."""
        ...


def drive(
    simulation: Simulation,
    progress: bool | Callable[[Progress], None],
    store: Store | None = None,
    on_round: OnRound | None = None,
) -> Run:
    """Advance a simulation to its end, reporting rounds and progress and keeping checkpoints."""
    watcher = on_round if isinstance(on_round, Watcher) else None
    shown: Recommended | None = None
    with show_progress(progress) as report:
        try:
            _ = simulation.federation.best_common_value  # now, so that Ctrl-C has nothing left to work out
            began = now = time.perf_counter()
            earlier = simulation.seconds
            due = began + SECONDS_BETWEEN_REPORTS
            while not simulation.done:
                simulation.advance()
                now = time.perf_counter()
                simulation.seconds = earlier + now - began
                if store is not None and len(simulation.rows) % store.every == 0:
                    store.write(simulation)
                if on_round is not None:
                    on_round(simulation.last_round())
                    recommended = simulation.recommended
                    if watcher is not None and recommended is not None and recommended is not shown:
                        shown = recommended
                        watcher.take_policy(recommended.policy)
                if now >= due or simulation.done:
                    due = now + SECONDS_BETWEEN_REPORTS
                    report(
                        Progress(
                            simulation.played,
                            simulation.setting.episodes,
                            simulation.rounds,
                            simulation.regret,
                            last_gap(simulation.recommendations),
                        )
                    )
            if store is not None:
                store.write(simulation)
        except KeyboardInterrupt as error:
            raise Interrupted(simulation.result()) from error
    return simulation.result()
