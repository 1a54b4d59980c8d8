"""A run whose fleets are elsewhere: the same bits as a run in one process with the episodes driver.

Server, scores and records are here. In a round every fleet plays until one of its agents requests a synchronisation.
The earliest request ends the round for all. In a synchronisation queries go to all fleets. Sums come back, one row
for each fleet, or, where the algorithm takes rows, one row for each agent, in agent order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Message
from fed_ucbvi.core.compiling import threads
from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer
from fed_ucbvi.core.ray_connection import check_ray, connected_to_ray
from fed_ucbvi.engine.chunks import first_chunk, growing
from fed_ucbvi.engine.drivers import NAMES
from fed_ucbvi.engine.drivers.cuda import CUDA
from fed_ucbvi.engine.fleets.actors import Actors
from fed_ucbvi.engine.fleets.host import Reached
from fed_ucbvi.engine.rounds import PlayedRound
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.federation import Federation

DRIVERS = ("auto", "episodes")
"""Both play trajectory by trajectory here. The counts driver draws an agent's block only up to the earliest request
of
the agents before it, so fleets could not draw at the same time."""


class Fleets(Protocol):
    """All fleets of a run; see :class:`fed_ucbvi.engine.fleets.actors.Actors`."""

    def ask(self, call: str, *arguments: Any) -> list[Any]:
        """Call a method of every fleet's host (:mod:`fed_ucbvi.engine.fleets.host`); answers in agent order."""
        ...

    def end_round(self, broadcast: Message, first: int, length: int) -> None:
        """All fleets have counted a round."""
        ...


class FleetSimulation(Simulation):
    """A run in progress whose agents are in ``parts`` fleets, which ``make`` makes of the simulation."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        federation: Federation,
        episodes: int,
        seed: int,
        parts: Sequence[tuple[int, int]],
        make: Callable[[FleetSimulation], Fleets],
    ) -> None:
        self.parts, self._make = parts, make
        super().__init__(algorithm, federation, episodes, seed, "episodes")

    @property
    def sum_visits(self) -> bool:
        """Whether all agents' visits may be told together, as a simulation in one process has them."""
        federation = self.federation
        return self.algorithm.pools and federation.pay_alike and federation.rewards.shape[0] == 1

    def _make_agents(self) -> None:
        """None here."""
        self.fleets = self._make(self)
        self._last_length = 0

    def advance(self) -> None:
        """One round; once it is over, no fleet has to go back to an earlier one."""
        first, broadcast = self.played, _copies(self.algorithm.broadcast(self.server))
        super().advance()
        self._last_length = self.played - first
        self.fleets.end_round(broadcast, first, self._last_length)

    def _play_round(self, broadcast: Message) -> PlayedRound:
        ends: list[PlayedRound] = self.fleets.ask("finish", self._length_of_round(_copies(broadcast)))
        asked = [end for end in ends if end.stop.askers]
        visits, starts = (
            table.sum(axis=0, keepdims=True) if self.sum_visits else table
            for table in (np.concatenate(tables) for tables in zip(*(end[2:4] for end in ends), strict=True))
        )
        if not asked:
            return PlayedRound(ends[0].stop, -1, visits, starts)
        first, askers = asked[0], sum(end.stop.askers for end in asked)
        return PlayedRound(first.stop._replace(askers=askers), first.rule, visits, starts)

    def _length_of_round(self, broadcast: Message) -> int:
        """Let all fleets play until the earliest request is known, or all episodes are played."""
        setting, first = self.setting, self.played
        most = setting.episodes - first
        chunk = first_chunk(max(agents for _, agents in self.parts) * setting.horizon, self._last_length)
        reached: list[Reached] = []
        for reach in growing(chunk, most, setting.horizon):
            call = ("play_on", reach) if reached else ("start", broadcast, first, reach)
            reached = self.fleets.ask(*call)
            if any(asked for _, asked in reached):
                break
        return min((played for played, asked in reached if asked), default=most)

    def exchange(self, server: Any) -> None:
        """All exchanges of the fleets with ``server``, or a planner in its place, message by message."""
        algorithm = self.algorithm
        for exchange in range(algorithm.exchanges(self.setting)):
            reports: list[Message] = self.fleets.ask("report", _copies(algorithm.query(server, exchange)), exchange)
            together = tuple(np.concatenate(arrays) for arrays in zip(*reports, strict=True))
            algorithm.aggregate(server, together, exchange)


@contextmanager
def on_ray(
    algorithm: Algorithm[Any, Any],
    federation: Federation,
    episodes: int,
    seed: int,
    driver: str,
    *,
    address: str | None,
    count: int | None,
) -> Iterator[FleetSimulation]:
    """A run on a Ray cluster, or on Ray started here, with ``count`` fleets, by default one for each core."""
    _check_splittable(algorithm, federation, driver)
    if count is not None:
        split(federation.agents, check_positive_integer("fleet_count", count))
    check_ray(address)
    with connected_to_ray(address, count or threads()) as ray:
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        parts = split(federation.agents, count or min(cores, federation.agents))

        def make(simulation: FleetSimulation) -> Actors:
            about = simulation.algorithm, simulation.setting, federation, parts
            return Actors(ray, *about, sum_visits=simulation.sum_visits)

        simulation = FleetSimulation(algorithm, federation, episodes, seed, parts, make)
        with closing(simulation.fleets):  # type: ignore[type-var]
            yield simulation


def split(agents: int, fleets: int) -> list[tuple[int, int]]:
    """``(first agent, number of agents)`` of each fleet, as even as can be.

    >>> split(8, 3)
    [(0, 2), (2, 3), (5, 3)]
    """
    if fleets > agents:
        raise InputError(f"{agents} agents make at most {agents} fleets, not {fleets}; take a smaller fleet_count.")
    edges = [agents * i // fleets for i in range(fleets + 1)]
    return [(first, after - first) for first, after in itertools.pairwise(edges)]


def _check_splittable(algorithm: Algorithm[Any, Any], federation: Federation, driver: str) -> None:
    """Raise unless fleets that cannot see each other give the run of one process."""
    check_choice("driver", driver, NAMES)
    if driver == CUDA:
        raise InputError("the driver cuda plays all agents on one GPU, not in fleets. Take episodes.")
    if driver not in DRIVERS:
        raise InputError(
            f"fleets cannot play with the driver {driver}: what it draws for an agent depends on those before "
            "it. Take episodes."
        )
    if not algorithm.together:
        raise InputError(
            f"{algorithm.name} with these parameters lets every agent play on until it asks itself; fleets stop "
            "together. Take forced_synchronisation=true, or no fleets."
        )
    if federation.liars is not None:
        raise InputError("agents that lie know the reports of all others, so they cannot be split into fleets.")


def _copies(message: Message) -> Message:
    """Arrays that nobody writes to while fleets have them."""
    return tuple(np.array(array) for array in message)
