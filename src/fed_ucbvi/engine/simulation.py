"""Running an algorithm on a federation in one process: the loop over rounds."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

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
from fed_ucbvi.algorithms.communication import Meter
from fed_ucbvi.core.errors import InputError, check_choice, check_integer, check_positive_integer
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Driver, Fleet, RoundEnd, rule_at, starts_in
from fed_ucbvi.engine.drivers.cuda import CUDA, on_gpu
from fed_ucbvi.engine.drivers.rewards import SimulatedRewards
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.about import About
from fed_ucbvi.results.agents import AgentsValue, initial_value, values_by_agent
from fed_ucbvi.results.recommendations import Recommended, Row, is_due, last_gap, table_of
from fed_ucbvi.results.records import columns_of
from fed_ucbvi.results.run import Run

SECONDS_BETWEEN_REPORTS = 0.1
FLEETS = ("local", "ray")
"""Where the agents of a run may be."""


class Caution(UserWarning):
    """A plain warning before a run, such as a rule that can never fire."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; ``partial`` is the result so far."""

    def __init__(self, partial: Run) -> None:
        super().__init__(f"interrupted after {partial.episodes_played:,} episodes")
        self.partial = partial


class Progress(NamedTuple):
    """How far a run is."""

    episodes: int
    total: int
    rounds: int
    regret: float
    gap: float = math.nan
    """Between the server's optimistic value and the estimated one of the policy recommended last."""


class PlayedRound(NamedTuple):
    """What agents have played: how it ended, by which rule (-1 if nobody asked), visits, and where episodes began.

    ``visits`` is ``(m, *place)`` and ``starts`` ``(m, S)``, or one row for all agents together, as :class:`Scorer`
    takes them.
    """

    stop: RoundEnd
    rule: int
    visits: CountArray
    starts: CountArray


class Simulation:
    """A run in progress: one server, one fleet of all M agents, one driver, and the records so far."""

    _rewards: SimulatedRewards | None = None
    """Where they are random."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        federation: Federation,
        episodes: int,
        seed: int,
        driver: str,
    ) -> None:
        T = check_positive_integer("episodes", episodes, at_most=MAX_COUNT)
        if T * federation.agents > MAX_COUNT:
            raise InputError(
                f"agents x episodes is {federation.agents} x {T} = {T * federation.agents:.3g}; counts are exact "
                f"up to 2^53 = {MAX_COUNT:.3g} only. Take fewer episodes or agents."
            )
        seed = check_integer("seed", seed, at_most=MAX_SEED)
        self.requested = algorithm
        """What goes on record; where agents lie, the same algorithm taking rows is what runs."""
        self.algorithm = algorithm if federation.liars is None else algorithm.by_rows()
        self.federation, self.driver_name = federation, driver
        known = not math.isnan(federation.eps_p)
        self.setting = Setting(
            federation.states,
            federation.actions,
            federation.horizon,
            federation.agents,
            T,
            federation.eps_p if known else 0.0,
            seed,
            known,
            self._random_rewards(),
        )
        self._pooled: Touched | None = None
        self._make_agents()
        self.server = self.algorithm.new_server(self.setting)
        self._meter = Meter(self.algorithm, self.setting)
        self._scorer = Scorer(federation)
        self.rows: list[tuple[float, ...]] = []
        self.recommendations: list[Row] = []
        self.set_clock(np.zeros(federation.agents, dtype=np.int64))
        self.rounds = 0
        self.regret = 0.0
        self.seconds = 0.0

    def _random_rewards(self) -> bool:
        """Whether rewards are random."""
        return self.federation.reward_variances is not None

    def _make_agents(self) -> None:
        """The agents and those who play for them, in this process."""
        self.driver, self._alone, tables = self._equip()
        self.agents = self.algorithm.new_agents(self.setting, tables)
        if self._rewards is not None and self.algorithm.keeps_experience:
            self._rewards.remember_all()

    def _equip(self) -> tuple[Driver, Sequence[Driver], FleetTables]:
        """The fleet's driver, one for each agent where they stop apart, and what the agents bring along."""
        federation, name = self.federation, self.driver_name
        counting, random = self.algorithm.counting, self.setting.random_rewards
        pooled = self.algorithm.pools and self.algorithm.together and federation.pay_alike
        fleet = Fleet.of(federation, self.setting.seed, pooled=pooled, counting=counting, random_rewards=random)
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

    def set_clock(self, clock: CountArray) -> None:
        """Say how many episodes each agent has played."""
        self.clock = clock
        self.played, self.least, self.agent_episodes = int(clock.max()), int(clock.min()), int(clock.sum())

    @property
    def done(self) -> bool:
        """Whether all agents have played T episodes."""
        return self.least >= self.setting.episodes

    def advance(self) -> None:
        """Play one round and, if someone asked, synchronise."""
        broadcast = self.algorithm.broadcast(self.server)
        policy = broadcast[0]
        start, before = self.played, self.agent_episodes
        stop, rule, visits, starts = self._play_round(broadcast)
        score = self._scorer.score(policy, visits, starts)
        traffic = self._meter.round(stop.askers, last=self.done)
        if stop.askers:
            self.synchronise()
            self.rounds += 1
        self.regret += score[0]
        self.rows.append((start, stop.length, self.agent_episodes - before, *score, *stop[1:], rule, *traffic))
        if not self.done and is_due(self.played, self.recommendations):  # the last one is planned for the result
            self.recommendations.append(self._row(self.recommend()))

    def _play_round(self, broadcast: Message) -> PlayedRound:
        """Have the agents play and take in the round that ``broadcast`` begins."""
        algorithm, driver, policy = self.algorithm, self.driver, broadcast[0]
        budgets = algorithm.budgets(self.agents, broadcast)
        if self.federation.liars is not None:
            self.federation.liars.tamper_budgets(budgets.visits)
        stop = self._collect(policy, budgets)
        transitions = driver.transitions
        if self._rewards is not None:
            transitions = self._rewards.take(policy, transitions, driver.visits)
        algorithm.absorb(self.agents, policy, transitions, driver.visits)
        visits = driver.visits if self._pooled is None else self._pooled.all_visits
        starts = driver.starts if algorithm.counting is Counting.STATIONARY else starts_in(visits)
        return PlayedRound(stop, rule_at(stop, budgets), visits, starts)

    def _collect(self, policy: PolicyArray, budgets: Budgets) -> RoundEnd:
        """Play the round and move the agents' clocks on."""
        T = self.setting.episodes
        if not self._alone:
            stop = self.driver.collect(policy, budgets, self.played, T - self.played)
            self.played = self.least = self.played + stop.length
            self.clock = np.broadcast_to(np.int64(self.played), self.clock.shape)
            self.agent_episodes += len(self.clock) * stop.length
            return stop
        stops = []
        for i, driver in enumerate(self._alone):
            left = T - int(self.clock[i])
            driver.clear()
            if left:
                own = budgets._replace(visits=budgets.visits[i : i + 1])
                stops.append(driver.collect(policy, own, int(self.clock[i]), left))
                self.clock[i] += stops[-1].length
        self.set_clock(self.clock)
        asked = [stop for stop in stops if stop.askers]
        longest = max(stop.length for stop in stops)
        return RoundEnd(longest, len(asked), *(asked[0][2:] if asked else (-1, -1, -1, -1)))

    def synchronise(self) -> None:
        """Bring the server up to date with the agents; message by message if some of them are lies."""
        if self.federation.liars is None:
            self.algorithm.synchronise(self.server, self.agents)
        else:
            self.exchange(self.server)

    def exchange(self, server: Any) -> None:
        """All exchanges of the agents with ``server``, or a planner in its place, message by message."""
        liars = self.federation.liars

        def tamper(report: Message, exchange: int) -> None:
            if liars is not None:
                liars.tamper_report(report, self.setting.horizon, self.rounds, exchange)

        exchange_messages(self.algorithm, server, self.agents, self.setting, tamper)

    def recommend(self) -> Recommended:
        """The policy to deploy, planned from all counts; nothing changes by it."""
        planner = self.algorithm.new_planner(self.setting, self.server)
        if planner is not None and self.algorithm.asks_to_plan:
            self.exchange(planner)
        return Recommended.of(self.server, planner)

    def _row(self, recommended: Recommended) -> Row:
        """A recommendation for the record."""
        asked = self.algorithm.asks_to_plan
        return (
            len(self.rows),
            self.played,
            self.initial_value(self.server.V),
            self.initial_value(recommended.V),
            AgentsValue.of(values_by_agent(self.federation, recommended.policy)).mean,
            *self._meter.recommendation(recommended.policy, asked=asked, last=self.done),
        )

    def identity(self) -> dict[str, Any] | None:
        """What tells whether a problem that no file can hold is the same, ready for JSON; None where a file can."""
        return None

    def more_arrays(self) -> dict[str, Array]:
        """What a checkpoint keeps beside server, agents, clock and records."""
        return {} if self._rewards is None else self._rewards.arrays()

    def restore_more(self, arrays: Mapping[str, Array]) -> None:
        """Go back to what :meth:`more_arrays` said, before server and agents do."""
        if self._rewards is not None:
            self._rewards.restore(arrays)

    def records(self) -> dict[str, Array]:
        """The records so far, by column."""
        return columns_of(self.rows)

    def initial_value(self, V: FloatArray) -> float:
        """The mean of ``V_1`` over the agents' initial states."""
        return initial_value(self.federation, V)

    def result(self) -> Run:
        """The run as it stands, with a policy planned from all counts there are now."""
        common, recommended = self.federation.common, self.recommend()
        rows = [row for row in self.recommendations if row[0] < len(self.rows)]
        policy = recommended.policy
        return Run(
            about=About.of(self.requested, self.setting, self.federation, self.driver_name),
            records=self.records(),
            policy=policy,
            policy_kind=recommended.kind,
            exploring_policy=self.server.policy.copy(),
            V=self.server.V.copy(),
            value=float(common.initial @ common.evaluate(policy)[0]),
            estimated_value=self.initial_value(recommended.V),
            optimistic_value=self.initial_value(self.server.V),
            by_agent=values_by_agent(self.federation, policy),
            recommendations=table_of([*rows, self._row(recommended)]),
            wall_seconds=self.seconds,
            complete=self.done,
        )


def run(
    algorithm: Algorithm[Any, Any],
    federation: Federation,
    episodes: int,
    *,
    seed: int = 0,
    driver: str = "auto",
    fleets: str = "local",
    address: str | None = None,
    fleet_count: int | None = None,
    progress: bool | Callable[[Progress], None] = True,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
) -> Run:
    """Run ``algorithm`` on ``federation`` for exactly ``episodes`` episodes per agent.

    Args:
        algorithm: parameters, e.g. ``FedUCBVI(bonus="theory")``.
        federation: e.g. ``gridworld(agents=20, eps_p=0.1)``.
        episodes: T.
        seed: of trajectories, the initial policy and ties; the same seed gives the same result.
        driver: ``episodes`` (trajectory by trajectory), ``counts`` (exact in law, logarithmic in the length of a
            round), ``auto`` (each where it is faster) or ``cuda`` (the trajectories of ``episodes`` on a GPU, bit for
            bit, for Fed-UCBVI and its kin).
        fleets: where the agents are: ``local``, in this process, or ``ray``, in fleets that are Ray actors, for
            agents that do not fit one machine. Fleets play trajectory by trajectory; the result is that of
            ``driver="episodes"`` in one process, bit for bit, also if nodes of the cluster die in the middle.
        address: of a Ray cluster; by default Ray is started on this machine.
        fleet_count: how many fleets; by default one a core of the cluster.
        progress: show a bar on a terminal once the run has taken two seconds; or a function to call instead.
        checkpoint: folder to keep the state in, for :func:`resume`.
        checkpoint_every: rounds between two checkpoints.

    Returns:
        The :class:`~fed_ucbvi.results.run.Run`.

    Raises:
        InputError: if something cannot be used.
        Interrupted: on Ctrl-C; carries the partial result.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> result = run(FedUCBVI(nu=100), synthetic(agents=2), episodes=50, seed=1)
    >>> result.episodes_played
    50
    """
    from fed_ucbvi.engine.checkpoint import Checkpoint
    from fed_ucbvi.engine.progress import announce_compilation

    announce_compilation()
    every = check_positive_integer("checkpoint_every", checkpoint_every)
    check_choice("place of the fleets", fleets, FLEETS)
    begun: AbstractContextManager[Simulation]
    if fleets == "ray":
        from fed_ucbvi.engine.fleets.simulation import on_ray

        if checkpoint is not None:
            raise InputError("a run whose fleets are on Ray has no checkpoint: its agents are not in one place.")
        begun = on_ray(algorithm, federation, episodes, seed, driver, address=address, count=fleet_count)
    else:
        if address is not None or fleet_count is not None:
            raise InputError("an address and a fleet_count are for fleets on Ray; say fleets='ray' (--fleets ray).")
        if driver == CUDA and checkpoint is not None:
            raise InputError("a run with the driver cuda has no checkpoint: what agents know stays on the GPU.")
        begun = nullcontext(Simulation(algorithm, federation, episodes, seed, driver))
    with begun as simulation:
        store = None if checkpoint is None else Checkpoint.create(Path(checkpoint), simulation, every)
        for text in algorithm.cautions(simulation.setting):
            warnings.warn(text, Caution, stacklevel=2)
        return drive(simulation, progress, store)


def drive(
    simulation: Simulation,
    progress: bool | Callable[[Progress], None],
    store: Any = None,
) -> Run:
    """Advance a simulation to its end, reporting progress and keeping checkpoints."""
    from fed_ucbvi.engine.progress import show_progress

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
