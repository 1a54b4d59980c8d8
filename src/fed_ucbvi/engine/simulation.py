"""Running an algorithm on a federation in one process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from fed_ucbvi.algorithms.base import Algorithm, Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.engine.assurance import Promises
from fed_ucbvi.engine.drivers.base import Driver
from fed_ucbvi.engine.drivers.live import LiveDriver
from fed_ucbvi.engine.live import LiveFederation
from fed_ucbvi.engine.party import Party, SimulatedParty
from fed_ucbvi.engine.progress import show_progress
from fed_ucbvi.engine.rounds import Engine, Play, PlayedRound, Request, answered
from fed_ucbvi.engine.state_store import SavedState, StateStore
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.recommendations import Recommended, is_known
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
        problem: a federation, or live environments, which have a driver of their own; what cannot be computed without
            their kernels is NaN, unless there is a federation to measure them on (``score_with``).
        grid_bits: of exact sums, where a run is extended.
        apart: count every agent by itself also where one table for all would do; the result is the same.
        make_party: where the agents are not in this process: what reaches them as a party would.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        problem: Federation | LiveFederation,
        episodes: int,
        seed: int,
        driver: str = "auto",
        *,
        score_with: Federation | None = None,
        grid_bits: int = 0,
        counts: CountTable | None = None,
        promises: Promises | None = None,
        apart: bool = False,
        make_party: Callable[[Algorithm[Any, Any], Setting], Any] | None = None,
    ) -> None:
        if isinstance(problem, LiveFederation):
            federation, driver = problem.measured_on(score_with), LiveDriver.name
            random_rewards, make_party = problem.random_rewards, problem.party
        else:
            federation, random_rewards = problem, problem.reward_variances is not None
        T = check_positive_integer("episodes", episodes, at_most=MAX_COUNT)
        if T * federation.agents > MAX_COUNT:
            raise InputError(
                f"agents x episodes is {federation.agents} x {T} = {T * federation.agents:.3g}; counts are exact "
                f"up to 2^53 = {MAX_COUNT:.3g} only. Use fewer episodes or agents."
            )
        seed = check_integer("seed", seed, at_most=MAX_SEED)
        self.problem, self.federation = problem, federation
        setting = Setting.of(federation, T, seed, random_rewards=random_rewards, bits=grid_bits)
        together = algorithm.stops_jointly
        super().__init__(algorithm, setting, federation, driver, together=together, counts=counts, promises=promises)
        if self.earlier is not None and is_known(federation):
            self.earlier.check_support(federation.successors)
        self.party: Party
        if make_party is None:
            self.party = SimulatedParty(self.algorithm, self.setting, federation, driver, pooled=not apart)
        else:
            self.party = make_party(self.algorithm, self.setting)

    @property
    def agents(self) -> Any:
        return self.party.agents

    @property
    def driver(self) -> Driver:
        return self.party.driver

    def advance(self) -> None:
        """Play one round and synchronise if an agent requested it."""
        answered(self.round(), self._answer)

    def _answer(self, request: Request) -> PlayedRound | None:
        party = self.party
        if not isinstance(request, Play):
            party.exchange(request.server, self.rounds)
            return None
        party.within = self.assurance.within
        if self.together:
            judged = request.playing != EXPLORING
            return party.play_round(request.broadcast, self.played, request.most, judged=judged)
        return party.play_apart(request.broadcast, self.clock, self.setting.episodes)

    def recommend(self) -> Recommended:
        """The policy to deploy, planned from all counts; nothing changes by it."""
        return answered(self.plan(), self._answer)

    def result(self) -> Run:
        """The run as it stands, with a policy planned from all counts there are now."""
        if self.recommended is not None and self.recommendations[-1].round == len(self.rows):
            return super().result()
        recommended, earlier = self.recommend(), [row for row in self.recommendations if row.round < len(self.rows)]
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
    callbacks, shown = CallbackList(on_round), None
    with show_progress(progress) as report:
        try:
            _ = simulation.federation.best_common_value  # now, so that Ctrl-C has nothing left to work out
            reported = time.perf_counter()
            began = reported - simulation.seconds
            while not simulation.done:
                simulation.advance()
                now = time.perf_counter()
                simulation.seconds = now - began
                if store is not None and len(simulation.rows) % int(store.manifest["every"]) == 0:
                    store.write(simulation.saved())
                if issued := simulation.assurance.issued(len(simulation.rows)):
                    log.info("round %d: %s", len(simulation.rows), issued)
                if callbacks:
                    callbacks(simulation.last_round())
                    if simulation.recommended is not None and simulation.recommended is not shown:
                        shown = simulation.recommended
                        callbacks.take_policy(shown.policy)
                if now >= reported + SECONDS_BETWEEN_REPORTS or simulation.done:
                    reported = now
                    report(simulation.last_round())
            if store is not None:
                store.write(simulation.saved())
        except KeyboardInterrupt as error:
            raise Interrupted(simulation.result()) from error
    return simulation.result()
