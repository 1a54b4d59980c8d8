"""Running an algorithm on a federation in one process."""

from __future__ import annotations

import logging
import time
from typing import Any

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.engine.assurance import Assurance
from fed_ucbvi.engine.drivers.base import Driver
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.problems import ProblemLike, as_problem
from fed_ucbvi.engine.progress import show_progress
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.engine.rounds import Engine, Play, PlayedRound
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.results.recommendations import Recommended
from fed_ucbvi.results.round_record import EXPLORING, OnRound
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.run_data import CallbackList

SECONDS_BETWEEN_REPORTS = 0.1
log = logging.getLogger("fed_ucbvi.engine.simulation")


class Caution(UserWarning):
    """A plain warning before a run, such as a rule that can never fire."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; ``partial`` is the result so far."""

    def __init__(self, partial: Run) -> None:
        super().__init__(f"interrupted after {partial.episodes_played:,} episodes")
        self.partial = partial


class Simulation(Engine):
    """A run in progress that this process leads: the server, and one party with all M agents.

    Args:
        algorithm: the algorithm with its parameters.
        problem: a :class:`~fed_ucbvi.engine.problems.Problem`, or whatever
            :func:`~fed_ucbvi.engine.problems.as_problem` makes one from.
        episodes: T.
        seed: seed of the run.
        driver: how a simulated problem collects its data.
        grid_bits: bits of exact sums, where a run is extended; 0 where they follow from the rest.
        counts: counts of an earlier run to start from.
        promises: what the run promises while it learns.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        problem: ProblemLike,
        episodes: int,
        seed: int,
        driver: str = "auto",
        *,
        grid_bits: int = 0,
        counts: CountTable | None = None,
        promises: Promises | None = None,
    ) -> None:
        self.problem = as_problem(problem, driver)
        super().__init__(
            algorithm,
            self.problem.setting(episodes, seed, grid_bits),
            known=self.problem.known,
            environment=self.problem.description,
            units=self.problem.units,
            driver=self.problem.driver_name,
            together=algorithm.stops_jointly,
            counts=counts,
            promises=promises,
            dynamics=self.problem.dynamics,
        )
        if self.earlier is not None and self.known is not None and self.problem.dynamics is None:
            self.earlier.check_support(self.known.successors)
        self.party: Party = self.problem.party(self.algorithm, self.setting)
        if self.assurance is not None and self.assurance.return_limits is not None:
            self.party.limit_returns(self.assurance.return_limits)

    @property
    def agents(self) -> Any:
        return self.party.agents

    @property
    def driver(self) -> Driver:
        return self.party.driver

    def advance(self) -> None:
        """Play one round, synchronise if an agent requested it, and recommend a policy if it is time."""
        play = self.begin_round()
        played = self._play(play)
        if played.stop.requests:
            self._synchronise(self.server)
        self.end_round(play, played)
        if self.wants_recommendation:
            self.recommend(self._filled_planner())

    def _play(self, play: Play) -> PlayedRound:
        if not self.together:
            return self.party.play_apart(play.broadcast, self.clock, self.setting.episodes)
        judged = play.playing != EXPLORING
        return self.party.play_round(play.broadcast, self.played, play.most, judged=judged)

    def _synchronise(self, server: Any) -> None:
        """Run the synchronisation exchanges of the agents with the server or a planner."""
        self.party.exchange(server, self.rounds)

    def _filled_planner(self) -> Any:
        """A planner that has the agents' reports, as far as it needs them; None if the algorithm does not plan."""
        planner = self.new_planner()
        if planner is not None and self.planner_needs_reports:
            self._synchronise(planner)
        return planner

    def plan(self) -> Recommended:
        """The policy to deploy, planned from all counts there are now; the run does not change by it."""
        return self.planned(self._filled_planner())

    def result(self) -> Run:
        """The run as it stands, with a policy planned from all counts there are now."""
        if self.recommended is not None and self.recommendations[-1].round == len(self.rows):
            return super().result()
        recommended = self.plan()
        earlier = [row for row in self.recommendations if row.round < len(self.rows)]
        return self._result(recommended, [*earlier, self._row(recommended)])

    def saved(self) -> SavedState:
        saved = super().saved()
        saved.arrays.update(self.party.state())
        return saved

    def restore(self, saved: SavedState) -> None:
        self.party.restore(saved.arrays)
        super().restore(saved)

    def close(self) -> None:
        self.party.close()


def drive(
    simulation: Simulation, progress: bool | OnRound, store: StateStore | None = None, on_round: OnRound | None = None
) -> Run:
    """Advance a simulation to its end, reporting rounds and progress and keeping checkpoints."""
    callbacks = CallbackList(on_round)
    shown = None
    with show_progress(progress) as report:
        try:
            reported = time.perf_counter()
            simulation.start_clock()
            while not simulation.done:
                simulation.advance()
                now = time.perf_counter()
                if store is not None and len(simulation.rows) % int(store.manifest["every"]) == 0:
                    store.write(simulation.saved())
                if simulation.assurance is not None:
                    _log_promises(simulation.assurance, len(simulation.rows), simulation.played)
                if callbacks:
                    callbacks(simulation.last_round())
                    if simulation.recommended is not None and simulation.recommended is not shown:
                        shown = simulation.recommended
                        callbacks.take_policy(shown.policy)
                if now >= reported + SECONDS_BETWEEN_REPORTS or simulation.done:
                    reported = now
                    report(simulation.last_round())
            if simulation.assurance is not None:
                outlook = simulation.assurance.describe_outlook(simulation.played)
                if outlook:
                    log.warning("%s", outlook)
            if store is not None:
                store.write(simulation.saved())
        except KeyboardInterrupt as error:
            raise Interrupted(simulation.result()) from error
    return simulation.result()


def _log_promises(assurance: Assurance, rounds: int, played: int) -> None:
    """Log the certificates that the last round has brought, and after the first when exploring can begin."""
    issued = assurance.issued(rounds)
    if issued:
        log.info("round %d: %s", rounds, issued)
    outlook = assurance.describe_outlook(played) if rounds == 1 else ""
    if outlook:
        log.info("round 1: %s", outlook)
