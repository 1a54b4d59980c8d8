"""Running an algorithm on a federation in one process."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from fed_ucbvi.algorithms.base import Algorithm, Message, Setting, exchange_messages
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.engine.assurance import Promises
from fed_ucbvi.engine.drivers.base import Driver
from fed_ucbvi.engine.party import Party, SimulatedParty
from fed_ucbvi.engine.progress import show_progress
from fed_ucbvi.engine.rounds import Engine, Play, PlayedRound, Request, answered
from fed_ucbvi.engine.state_store import SavedState, StateStore
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.recommendations import Recommended, is_known
from fed_ucbvi.results.round_record import EXPLORING, OnRound
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.subscriber import Subscriber

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
    """A run in progress in one process: the server, one fleet of all M agents, and one driver.

    ``apart`` counts every agent by itself also where one table for all would do; the result is the same.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        federation: Federation,
        episodes: int,
        seed: int,
        driver: str,
        *,
        grid_bits: int = 0,
        counts: CountTable | None = None,
        apart: bool = False,
        promises: Promises | None = None,
    ) -> None:
        self._apart = apart
        T = check_positive_integer("episodes", episodes, at_most=MAX_COUNT)
        if T * federation.agents > MAX_COUNT:
            raise InputError(
                f"agents x episodes is {federation.agents} x {T} = {T * federation.agents:.3g}; counts are exact "
                f"up to 2^53 = {MAX_COUNT:.3g} only. Use fewer episodes or agents."
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
        together = algorithm.stops_jointly
        super().__init__(algorithm, setting, federation, driver, together=together, counts=counts, promises=promises)
        if self.earlier is not None and is_known(federation):
            self.earlier.check_support(federation.successors)
        self._make_party()

    def _random_rewards(self) -> bool:
        return self.federation.reward_variances is not None

    def _make_party(self) -> None:
        """The agents and what they play in, in this process."""
        about = self.algorithm, self.setting, self.federation
        self.party: Party = SimulatedParty(*about, self.driver_name, pooled=not self._apart)

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
        if isinstance(request, Play):
            return self._play_round(request)
        self.exchange(request.server)
        return None

    def _play_round(self, play: Play) -> PlayedRound:
        self.party.within = None if self.assurance is None else self.assurance.within
        if self.together:
            return self.party.play_round(play.broadcast, self.played, play.most, judged=play.playing != EXPLORING)
        return self.party.play_apart(play.broadcast, self.clock, self.setting.episodes)

    def exchange(self, server: Any) -> None:
        """All exchanges of the agents with ``server``, or a planner; message by message if some of them are lies."""
        liars = self.federation.liars
        if liars is None:
            self.algorithm.synchronise(server, self.agents, self.setting)
            return

        def tamper(report: Message, exchange: int) -> None:
            liars.tamper_report(report, self.setting.horizon, self.rounds, exchange)

        exchange_messages(self.algorithm, server, self.agents, self.setting, tamper)

    def recommend(self) -> Recommended:
        """The policy to deploy, planned from all counts; nothing changes by it."""
        return answered(self.plan(), self._answer)

    def result(self) -> Run:
        """The run as it stands, with a policy planned from all counts there are now."""
        if self.recommended is not None and self.recommendations[-1].round == len(self.rows):
            return super().result()
        recommended, earlier = self.recommend(), [row for row in self.recommendations if row.round < len(self.rows)]
        return self._result(recommended, [*earlier, self._row(recommended)])

    def identity(self) -> dict[str, Any] | None:
        """What tells whether a problem that no file can hold is the same, ready for JSON; None where a file can."""
        return None

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
    simulation: Simulation,
    progress: bool | OnRound,
    store: StateStore | None = None,
    on_round: OnRound | None = None,
) -> Run:
    """Advance a simulation to its end, reporting rounds and progress and keeping checkpoints."""
    subscriber = on_round if isinstance(on_round, Subscriber) else None
    shown: Recommended | None = None
    with show_progress(progress) as report:
        try:
            _ = simulation.federation.best_common_value  # now, so that Ctrl-C has nothing left to work out
            began = now = time.perf_counter()
            earlier = simulation.seconds
            next_report = began + SECONDS_BETWEEN_REPORTS
            every = 0 if store is None else int(store.manifest["every"])
            while not simulation.done:
                simulation.advance()
                now = time.perf_counter()
                simulation.seconds = earlier + now - began
                if store is not None and len(simulation.rows) % every == 0:
                    store.write(simulation.saved())
                if simulation.assurance is not None and (issued := simulation.assurance.issued(len(simulation.rows))):
                    log.info("round %d: %s", len(simulation.rows), issued)
                if on_round is not None:
                    on_round(simulation.last_round())
                    recommended = simulation.recommended
                    if subscriber is not None and recommended is not None and recommended is not shown:
                        shown = recommended
                        subscriber.take_policy(recommended.policy)
                if now >= next_report or simulation.done:
                    next_report = now + SECONDS_BETWEEN_REPORTS
                    report(simulation.last_round())
            if store is not None:
                store.write(simulation.saved())
        except KeyboardInterrupt as error:
            raise Interrupted(simulation.result()) from error
    return simulation.result()
