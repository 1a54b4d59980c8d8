"""One fleet of a run, wherever it is: it plays rounds, counts them and reports.

A fleet plays until one of its own agents requests a synchronisation, and says how far it got. Once the earliest
request of all fleets is known, it takes back what it played beyond that. This is what a node of a federation over the
network does; see :mod:`fed_ucbvi.engine.hosted_agents`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import SUMS, Algorithm, Counting, Message, Setting, added_up, check_report
from fed_ucbvi.algorithms.contract import Contract
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers.base import find_asker, rule_at, starts_in
from fed_ucbvi.engine.fleets.history import History
from fed_ucbvi.engine.hosted_agents import SimulatedHostedAgents
from fed_ucbvi.engine.hosted_problem import HostedProblem
from fed_ucbvi.engine.rounds import PlayedRound


class Reached(NamedTuple):
    """Episodes of the round that a fleet has played, and whether an agent made a request after the last of them."""

    played: int
    asked: bool


class FleetHost:
    """A fleet that has played the rounds of ``history``.

    Args:
        algorithm: one whose agents stop together.
        setting: of the run.
        hosted: the agents of this fleet and their MDPs.
        sum_visits: tell visits and starts of all agents together, not one by one; for fleets counted in one table.
        history: rounds to play again, those that a lost fleet had played.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        hosted: HostedProblem,
        sum_visits: bool,
        history: History,
    ) -> None:
        self._algorithm, self._sum_visits = algorithm, sum_visits
        self._contract = Contract(algorithm, setting, hosted.federation.agents)
        self._players = SimulatedHostedAgents(algorithm, setting, hosted, pooled=True)
        for broadcast, first, length in history.rounds():
            self.start(broadcast, first, 0)
            self.finish(length)

    def start(self, broadcast: Message, first: int, chunk: int) -> Reached:
        """Begin a round and play up to ``chunk`` episodes of it, the first of which has number ``first``."""
        self._broadcast, self._first = _own(broadcast), first
        self._budgets = self._contract.budgets(self._players.agents, self._broadcast)
        self._players.fleet.clear()
        self._reached = Reached(0, asked=False)
        return self.play_on(chunk)

    def play_on(self, chunk: int) -> Reached:
        """Play until ``chunk`` episodes of the round are played or one of these agents makes a request.

        Until the round has its least length nobody makes a request. Then agents that have reached their budgets make
        theirs at once.
        """
        players, policy, budgets, first = self._players, self._broadcast[0], self._budgets, self._first
        due, least = budgets.visits, budgets.min_length(first)
        played, asked = self._reached
        while played < chunk and not asked:
            until = min(chunk, least) if played < least else chunk
            played += players.play(policy, due, first + played, until - played, played >= least)
            asked = players.asked or (played == least and find_asker(players.visits, due)[0] > 0)
        self._reached = Reached(played, asked)
        return self._reached

    def finish(self, length: int) -> PlayedRound:
        """End the round after ``length`` episodes, whatever was played, and count it."""
        players, policy, budgets, played = self._players, self._broadcast[0], self._budgets, self._reached.played
        if length != played:
            players.move_to(policy, budgets, self._first, played, length)
        stop = players.fleet.stopped(policy, budgets, self._first, length)
        players.absorb(self._broadcast)
        visits = players.fleet.touched.all_visits if self._sum_visits else players.visits
        return PlayedRound(stop, rule_at(stop, budgets), visits, self._starts(visits))

    def _starts(self, visits: CountArray) -> CountArray:
        """How many of the round's episodes began where, with as many rows as there are of visits."""
        if self._algorithm.counting is not Counting.STATIONARY:
            return starts_in(visits)
        starts = self._players.fleet.starts
        return np.asarray(starts.sum(axis=0, keepdims=True)) if self._sum_visits else starts

    def report(self, query: Message, exchange: int) -> Message:
        """The agents' answer in one exchange: one row for each, or one for all where the server takes sums."""
        report = self._algorithm.report(self._players.agents, _own(query), exchange)
        check_report(self._algorithm, report)
        return added_up(report) if self._algorithm.takes == SUMS else tuple(report)


def _own(message: Message) -> Message:
    """Copies that can be written to, as compiled code was made for; what comes from Ray cannot."""
    return tuple(np.array(array) for array in message)
