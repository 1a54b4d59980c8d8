"""Runs whose agents are in fleets that are Ray actors: the bits of a run in one process with the episodes driver.

Server, scores and records are here. In a round every fleet plays until one of its agents requests a synchronisation.
The earliest request ends the round for all. In a synchronisation queries go to all fleets. Sums come back, one row
for each fleet, or, where the algorithm takes rows, one row for each agent, in agent order.

A fleet that is lost with its node or process is made again on a living one. Episodes are functions of (seed, agent,
episode number) and of the policy, so what a fleet knows follows from the broadcasts and the lengths of its rounds.
These are the same for all fleets and do not grow with the number of agents.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Message, Setting
from fed_ucbvi.core.compiling import has_compiled_code, threads, use_one_thread
from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer
from fed_ucbvi.core.ray_connection import check_ray, connected_to_ray, run_on_every_node
from fed_ucbvi.engine.drivers import NAMES
from fed_ucbvi.engine.drivers.cuda import CUDA
from fed_ucbvi.engine.party import (
    AskAll,
    AskReport,
    PartyMessage,
    PlayAhead,
    SimulatedParty,
    StartRound,
    StopRound,
    part_of,
    play_in_step,
    split_agents,
)
from fed_ucbvi.engine.problems import SimulatedProblem, elsewhere_error
from fed_ucbvi.engine.rounds import PlayedRound
from fed_ucbvi.engine.state_store import changes
from fed_ucbvi.problem.federation import Federation

log = logging.getLogger("fed_ucbvi.engine.ray_fleets")

DRIVERS = ("auto", "episodes")
"""Both play trajectory by trajectory here. The counts driver draws an agent's block only up to the earliest request
of the agents before it, so fleets could not draw at the same time."""
ATTEMPTS = 4
"""How often a fleet is made for one answer if it is lost each time."""


class Fleets:
    """All agents of a run as one party, in ``parts``; they stop together.

    ``ask_all`` sends a message to every part, and closing ``connections`` ends them.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation,
        parts: Sequence[tuple[int, int]],
        ask_all: AskAll,
        connections: ExitStack,
    ) -> None:
        self._connections = connections
        self.algorithm = algorithm
        self.setting = setting
        self._ask_all = ask_all
        self._largest = max(agents for _, agents in parts)
        self._summed = algorithm.pools and federation.pay_alike and len(federation.rewards) == 1
        self._last_length = 0

    def play_round(self, broadcast: Message, first: int, most: int, *, judged: bool) -> PlayedRound:
        ahead = PlayAhead(self._largest, self.setting.horizon, self._last_length, most)
        length = play_in_step(self._ask_all, _copies(broadcast), first, ahead)
        self._last_length = length
        ends = self._ask_all(StopRound(length))
        visits, starts = (
            table.sum(axis=0, keepdims=True) if self._summed else table
            for table in (np.concatenate(tables) for tables in zip(*(end[1:3] for end in ends), strict=True))
        )
        earliest = next((end for end in ends if end.stop.requests), ends[0])
        stop = earliest.stop._replace(requests=sum(end.stop.requests for end in ends))
        return PlayedRound(stop, visits, starts)

    def exchange(self, server: Any, synchronisations: int) -> None:
        algorithm = self.algorithm
        for exchange in range(algorithm.exchanges(self.setting)):
            reports = self._ask_all(AskReport(_copies(algorithm.query(server, exchange)), exchange))
            rows = tuple(np.concatenate(arrays) for arrays in zip(*reports, strict=True))
            algorithm.aggregate(server, rows, exchange)

    def close(self) -> None:
        """End the fleets, and leave Ray."""
        self._connections.close()


class RayProblem(SimulatedProblem):
    """A federation whose agents are in fleets on a Ray cluster, or on Ray started here.

    Args:
        federation: the agents' MDPs.
        driver: how the fleets collect their data.
        address: address of the cluster; by default Ray is started on this machine.
        fleet_count: number of fleets; by default one per core of the cluster.
    """

    def __init__(self, federation: Federation, driver: str, *, address: str | None, fleet_count: int | None) -> None:
        _check_driver(federation, driver)
        if fleet_count is not None:
            split_agents(federation.agents, check_positive_integer("fleet_count", fleet_count), "fleets")
        super().__init__(federation, "episodes")
        self._address = address
        self._fleet_count = fleet_count

    def party(self, algorithm: Algorithm[Any, Any], setting: Setting) -> Fleets:
        """Connect to Ray and start the fleets; closing them disconnects."""
        if not algorithm.stops_jointly:
            raise InputError(
                f"{algorithm.name} with these parameters lets every agent play on until it asks itself; fleets stop "
                "together. Use forced_synchronisation=true, or no fleets."
            )
        check_ray(self._address)
        federation = self.known
        with ExitStack() as stack:
            ray = stack.enter_context(connected_to_ray(self._address, self._fleet_count or threads()))
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            count = self._fleet_count or min(cores, federation.agents)
            parts = split_agents(federation.agents, count, "fleets")
            run_on_every_node(ray, compile_for_fleets, algorithm, setting, part_of(federation, 0, 1))
            actors = stack.enter_context(closing(Actors(ray, algorithm, setting, federation, parts)))
            return Fleets(algorithm, setting, federation, parts, actors.ask_all, stack.pop_all())

    def check_checkpoint(self) -> None:
        raise InputError("a run whose fleets are on Ray has no checkpoint: its agents are not in one place.")

    def check_policies_change(self) -> None:
        raise elsewhere_error()


def _check_driver(federation: Federation, driver: str) -> None:
    """Raise unless fleets that cannot see each other give the run of one process."""
    check_choice("driver", driver, NAMES)
    if driver == CUDA:
        raise InputError("the driver cuda plays all agents on one GPU, not in fleets. Use episodes.")
    if driver not in DRIVERS:
        raise InputError(
            f"fleets cannot play with the driver {driver}: what it draws for an agent depends on those before "
            "it. Use episodes."
        )
    if federation.liars is not None:
        raise InputError("agents that lie know the reports of all others, so they cannot be split into fleets.")


def _copies(message: Message) -> Message:
    """Arrays that nobody else writes to."""
    return tuple(np.array(array) for array in message)


# --------------------------------------------------------------------------------------------------------- the actors


class PastRounds:
    """Lengths and broadcasts of all rounds; of a broadcast only what has changed since the last one is kept."""

    def __init__(self) -> None:
        self._rounds: list[tuple[int, int, list[tuple[Array, Array]]]] = []
        self._last: Message = ()

    def add(self, broadcast: Message, first: int, length: int) -> None:
        """Add a round that all fleets have counted; its first episode has number ``first``."""
        last = self._last or tuple(np.zeros_like(array) for array in broadcast)
        new = []
        for array, before in zip(broadcast, last, strict=True):
            where = changes(array, before)
            new.append((where, array.reshape(-1)[where]))
        self._rounds.append((first, length, new))
        self._last = _copies(broadcast)

    def __iter__(self) -> Iterator[tuple[Message, int, int]]:
        """``(broadcast, first, length)`` of every round, in order; the arrays are the same ones every time."""
        broadcast = tuple(np.zeros_like(array) for array in self._last)
        for first, length, new in self._rounds:
            for array, (where, values) in zip(broadcast, new, strict=True):
                array.reshape(-1)[where] = values
            yield broadcast, first, length


class FleetActor(SimulatedParty):
    """Some agents of a federation in a process of their own, on one core, which have played ``past`` rounds."""

    def __init__(
        self, algorithm: Algorithm[Any, Any], setting: Setting, own: Federation, first_agent: int, past: PastRounds
    ) -> None:
        use_one_thread()
        super().__init__(algorithm, setting, own, "episodes", first_agent)
        for broadcast, first, length in past:
            self.start(broadcast, first)
            self.stop(length)

    def answer(self, message: PartyMessage) -> Any:
        """Do what a message says, with arrays that can be written to, as compiled code was made for."""
        if isinstance(message, StartRound):
            message = message._replace(broadcast=_copies(message.broadcast))
        elif isinstance(message, AskReport):
            message = message._replace(query=_copies(message.query))
        return super().answer(message)


def compile_for_fleets(algorithm: Algorithm[Any, Any], setting: Setting, agent: Federation) -> None:
    """Play a short round with one agent and synchronise, so that the fleets on this machine find compiled code."""
    if has_compiled_code():
        return
    fleet = FleetActor(algorithm, setting, agent, 0, PastRounds())
    server = algorithm.new_server(setting)
    fleet.play_round(_copies(algorithm.broadcast(server)), 0, 1)
    for exchange in range(algorithm.exchanges(setting)):
        report = fleet.report(_copies(algorithm.query(server, exchange)), exchange)
        algorithm.aggregate(server, report, exchange)


class Actors:
    """The processes of all fleets of a run.

    Actors reserve no cores, so that a lost one can be made again on any node that is left. They are distributed over
    the living nodes, core by core. Ray itself neither restarts them nor repeats calls, because it does not know which
    rounds they have played. ``parts`` are the first agent of each fleet, and how many there are.
    """

    def __init__(
        self,
        ray: Any,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation,
        parts: Sequence[tuple[int, int]],
    ) -> None:
        self._ray = ray
        self._federation = federation
        self._parts = parts
        self._about = algorithm, setting
        self._kind = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(FleetActor)
        self._past = PastRounds()
        self._start: StartRound | None = None
        self._sent: list[Any] = []
        """What this round's messages were, without queries, as Ray holds them."""
        self._actors = [self._make(i) for i in range(len(parts))]

    def ask_all(self, message: PartyMessage) -> list[Any]:
        """Ask every fleet, all at once; the answers in the order of agents.

        A fleet that is lost is made again: from the rounds before this one, and then by this round's messages.
        """
        if isinstance(message, StartRound):
            self._start = message
            self._sent = []
        shared = self._ray.put(message)
        references = [actor.answer.remote(shared) for actor in self._actors]
        answers = [self._answer(i, reference, shared) for i, reference in enumerate(references)]
        if isinstance(message, StopRound):
            assert self._start is not None
            self._past.add(self._start.broadcast, self._start.first, message.length)
            self._sent = []
        elif not isinstance(message, AskReport):
            self._sent.append(shared)
        return answers

    def close(self) -> None:
        for actor in self._actors:
            self._end(actor)

    def _answer(self, i: int, reference: Any, message: Any) -> Any:
        errors = self._ray.exceptions
        lost = errors.RayActorError, errors.ActorUnschedulableError, errors.ObjectLostError, errors.WorkerCrashedError
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._ray.get(reference)
            except lost as error:
                first, agents = self._parts[i]
                which = f"the fleet of agents {first} to {first + agents - 1} was lost"
                why = type(error).__name__
                if attempt == ATTEMPTS:
                    raise InputError(f"{which} {ATTEMPTS} times in a row ({why}); see to the cluster.") from error
                log.warning("%s (%s) and is made again", which, why)
            self._end(self._actors[i])
            actor = self._actors[i] = self._make(i)
            for earlier in self._sent:
                actor.answer.remote(earlier)
            reference = actor.answer.remote(message)
        raise AssertionError

    def _make(self, i: int) -> Any:
        first, agents = self._parts[i]
        own = part_of(self._federation, first, agents)
        nodes = self._nodes()
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            nodes[i % len(nodes)],
            soft=False,  # of actors that reserve nothing Ray puts the soft ones anywhere
        )
        kind = self._kind.options(scheduling_strategy=strategy)
        return kind.remote(*self._about, own, first, self._past)

    def _nodes(self) -> list[str]:
        """The nodes that live, each as often as it has cores (once at least): first all once, then all again.

        They are sorted, because Ray lists them in another order each time.
        """
        living = sorted((node for node in self._ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeID"]))
        nodes = {str(node["NodeID"]): max(1, int(node["Resources"].get("CPU", 1))) for node in living}
        return [name for turn in range(max(nodes.values())) for name, cores in nodes.items() if cores > turn]

    def _end(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)
