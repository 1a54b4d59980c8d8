"""A party: some agents together with the problems that they play, wherever they are.

A party does no input or output. In a round it takes the broadcast (:meth:`Party.start`), plays until one of its own
agents requests a synchronisation (:meth:`Party.play`), is given the number of episodes after which the round ended
for everybody, adds these to its agents' counts (:meth:`Party.stop`) and answers queries (:meth:`Party.report`). All
that changes in it is in :meth:`Party.state`. A simulation, a GPU, a fleet that is a Ray actor
(:mod:`fed_ucbvi.engine.ray_fleets`) and a node with a known problem are a
:class:`~fed_ucbvi.engine.simulated_party.SimulatedParty`. Agents with real environments, in one process or on a node,
are a :class:`~fed_ucbvi.engine.live_party.LiveParty`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Counting,
    FleetTables,
    Message,
    Setting,
    VisitedCells,
    added_up,
    check_report,
    needs_checks,
)
from fed_ucbvi.algorithms.contract import checked_budgets
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers.base import Driver, RoundEnd, collect, find_requester, play_until, starts_in
from fed_ucbvi.engine.drivers.live import LiveTables
from fed_ucbvi.engine.play_ahead import AskReport, PartyMessage, PlayUntil, Reached, StartRound, StopRound
from fed_ucbvi.engine.rounds import Paid, PlayedRound
from fed_ucbvi.engine.state_arrays import named, restore

AGENTS = "agents."
"""Prefix of the names of the arrays of a party's agents."""
SEEN = "seen."
"""Prefix of the names of the arrays that hold observations of their problem."""


class Party(ABC):
    """Agents and the problems that they play; see the module's text.

    Args:
        algorithm: the algorithm with its parameters.
        setting: sizes and seed of the run.
        driver: plays for all agents.
        tables: sizes, supports and rewards of these agents.
        drivers_apart: one driver per agent, where agents do not stop together.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        driver: Driver,
        tables: FleetTables,
        drivers_apart: Sequence[Driver] = (),
    ) -> None:
        self.algorithm = algorithm
        self.setting = setting
        self.driver = driver
        self._drivers_apart = drivers_apart
        self.agents: Any = algorithm.new_agents(setting, tables)
        self.seen: LiveTables | None = None
        """The next states and rewards seen so far, where the problem is unknown."""
        self._summed: VisitedCells | None = None
        """The cells visited in the round, where the visits of all agents are added up."""
        self.played = 0
        self.asked = False
        self.least_episodes = 0
        """Number of episodes of a round before which no agent makes a request."""
        self.return_limits: tuple[float, float] | None = None
        """Range of an episode's return, with rewards in [0, 1], where it was stated."""

    def limit_returns(self, limits: tuple[float, float]) -> None:
        """State the range of an episode's return, with rewards in [0, 1]; a return outside it is an error."""
        self.return_limits = limits

    # -------------------------------------------------------------------------------------------------------- a round

    def start(self, broadcast: Message, first: int) -> None:
        """Begin a round, whose first episode has number ``first``."""
        self.broadcast = broadcast
        self.policy = broadcast[0]
        self.first = first
        if needs_checks(self.algorithm):
            fleet = len(self.driver.visits)
            self.budgets = checked_budgets(self.algorithm, self.setting, self.agents, broadcast, fleet)
        else:
            self.budgets = self.algorithm.budgets(self.agents, broadcast)
        self.played = 0
        self.asked = False
        self.driver.begin(self.policy, self.budgets, first)

    def play(self, until: int) -> Reached:
        """Play until ``until`` episodes of the round are played or one of these agents requests a synchronisation."""
        if not self.asked:
            self.played, self.asked = play_until(
                self.driver,
                self.policy,
                self.budgets,
                first=self.first,
                played=self.played,
                until=until,
                least=self.least_episodes,
            )
        return Reached(self.played, self.asked)

    def stop(self, length: int) -> PlayedRound:
        """End the round after ``length`` episodes, and add it to the agents' counts.

        Episodes beyond ``length`` are taken back, and missing ones are played.
        """
        if length != self.played:
            self._move_to(length)
        end = self.driver.stopped(self.policy, self.budgets, self.first, length)
        return self._count(end)

    def play_round(self, broadcast: Message, first: int, most: int, *, judged: bool = False) -> PlayedRound:
        """Play a whole round, where these are all agents: until a request, at most ``most`` episodes.

        If the round is ``judged``, or the range of returns was stated, the result has the returns of its episodes.
        """
        self.start(broadcast, first)
        needs_returns = judged or self.return_limits is not None
        driver = self._trajectories if needs_returns else self.driver
        self.played, self.asked = play_until(
            driver,
            self.policy,
            self.budgets,
            first=first,
            played=0,
            until=most,
        )
        played = self.stop(self.played)
        if needs_returns:
            played = played._replace(returns=self.returns())
        return played

    @property
    def _trajectories(self) -> Driver:
        """A driver that plays episode by episode, into the same buffers."""
        return self.driver

    def play_apart(self, broadcast: Message, clock: CountArray, episodes: int) -> PlayedRound:
        """Play a whole round in which every agent plays until its own request, or until ``episodes`` in all.

        ``clock`` is the number of episodes that each agent has played before, ``(M,)``.
        """
        self.start(broadcast, 0)
        budgets = self.budgets
        requests: list[RoundEnd] = []
        lengths = np.zeros_like(clock)
        for i, driver in enumerate(self._drivers_apart):
            own_budgets = budgets._replace(limits=budgets.limits[i : i + 1])
            first = int(clock[i])
            driver.clear()
            if first < episodes:
                end = collect(driver, self.policy, own_budgets, first, episodes - first)
                lengths[i] = end.length
                if end.requests:
                    requests.append(end)
        first_request = requests[0] if requests else RoundEnd(length=0)
        end = first_request._replace(length=int(lengths.max()), requests=len(requests))
        return self._count(end)._replace(lengths=lengths)

    def _count(self, end: RoundEnd) -> PlayedRound:
        """Add the round to the agents' counts; the record of what was played."""
        visits = self.driver.visits
        self.algorithm.absorb(self.agents, self.policy, self._transitions(), visits)
        if self._summed is not None:
            visits = self._summed.all_visits
        counted = self.algorithm.counting is Counting.STATIONARY or self.algorithm.level_law(self.setting).number > 1
        starts = self.driver.starts if counted else starts_in(visits)
        return PlayedRound(end, visits, starts)

    def _transitions(self) -> CountArray:
        """Transitions of the round by slot of the support, ``(m or 1, *cell, K)``."""
        return self.driver.transitions

    def requests(self) -> list[RoundEnd]:
        """Cell and rule of the request of each agent that makes one now, in the order of agents."""
        visits = self.driver.visits
        limits = self.budgets.limits
        requests = []
        for i in range(len(visits)):
            own_limits = limits[i : i + 1] if len(limits) > 1 else limits
            requesters, _, cell = find_requester(visits[i : i + 1], own_limits)
            if requesters:
                requests.append(self.driver.end(self.played, (1, i, cell), self.policy, self.budgets))
        return requests

    def report(self, query: Message, exchange: int) -> Message:
        """The agents' answer in one exchange: one row for each, or one for all where the server takes sums."""
        report = self.algorithm.report(self.agents, query, exchange)
        check_report(self.algorithm, report)
        if self.algorithm.grid(self.setting) is None:
            return tuple(report)
        return added_up(report)

    def exchange(self, server: Any, synchronisations: int) -> None:
        """Hold all exchanges of one synchronisation with ``server`` or a planner.

        ``synchronisations`` is the number of those before.
        """
        self.algorithm.synchronise(server, self.agents, self.setting)

    def answer(self, message: PartyMessage) -> Any:
        """Do what a message says; the answer to it."""
        match message:
            case StartRound(broadcast, first, until):
                self.start(broadcast, first)
                return self.play(until)
            case PlayUntil(until):
                return self.play(until)
            case StopRound(length):
                return self.stop(length)
            case AskReport(query, exchange):
                return self.report(query, exchange)

    # ---------------------------------------------------------------------------------------------------------- state

    def state(self) -> dict[str, Array]:
        """All arrays that change during a run, by name, without the buffers of the round; not copied."""
        state = {AGENTS + name: array for name, array in self.agents.arrays().items()}
        if self.seen is not None:
            for name, array in self.seen.arrays().items():
                state[SEEN + name] = array
        return state

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore what :meth:`state` gave, with empty buffers."""
        self._restore_seen(arrays)
        self._make_room()
        restore(self.agents, arrays, AGENTS)
        self.driver.clear()
        self.played = 0
        self.asked = False

    def counts(self) -> dict[str, Array]:
        """Counts of the round that cannot be played again, for :meth:`recall`; not copied."""
        return {}

    def recall(self, arrays: Mapping[str, Array], counts: Mapping[str, Array], played: int) -> None:
        """Restore a round that has just been started again: play its episodes again, or put back its counts.

        Args:
            arrays: what :meth:`state` gave after the round had been played.
            counts: what :meth:`counts` gave then.
            played: number of episodes of the round.
        """
        if played != self.played:
            self._move_to(played)
        least = max(self.least_episodes, self.budgets.min_length(self.first))
        self.asked = played >= least and self.driver.anyone(self.budgets.limits)

    def close(self) -> None:  # noqa: B027
        """Close the environments; they are made anew if there is more to play."""

    # -------------------------------------------------------------------------------------- differences of parties

    @abstractmethod
    def paid(self) -> Paid:
        """Total reward and initial states of the round that was just stopped, of these agents together."""

    @abstractmethod
    def returns(self) -> CountArray:
        """Histogram of the returns of the episodes of the round that was just stopped."""

    @abstractmethod
    def _move_to(self, length: int) -> None:
        """Play more episodes or take some back, so that the round has that many."""

    def _make_room(self) -> None:  # noqa: B027
        """Make room in the agents' tables for the next states that were seen."""

    def _restore_seen(self, arrays: Mapping[str, Array]) -> None:
        if named(SEEN, arrays).keys() != named(SEEN, self.state()).keys():
            raise InputError("the saved state does not fit this run: what was seen of the problem is something else.")
        if self.seen is not None:
            restore(self.seen, arrays, SEEN)
