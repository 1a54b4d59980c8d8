"""Runs whose agents are in fleets that are Ray actors: the bits of a run in one process with the episodes driver.

Server, scores and records are in this process. In a round every fleet plays until one of its agents requests a
synchronisation. The earliest request ends the round for all. In a synchronisation all fleets get the queries. They
answer with sums, one row for each fleet, or, where the algorithm takes rows, one row for each agent, in agent order.

A fleet that is lost with its node or process is started again on a living node. Episodes are functions of (seed,
agent, episode number) and of the policy, so the state of a fleet follows from the broadcasts and the lengths of its
rounds. These are the same for all fleets and do not grow with the number of agents.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Message, Setting
from fed_ucbvi.core.compiling import has_compiled_code, threads, use_one_thread
from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer
from fed_ucbvi.core.ray_connection import check_ray, connected_to_ray, run_on_every_node
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers import NAMES
from fed_ucbvi.engine.drivers.cuda import CUDA
from fed_ucbvi.engine.parts import part_of, split_agents
from fed_ucbvi.engine.play_ahead import (
    AskAll,
    AskReport,
    PartyMessage,
    PlayAhead,
    StartRound,
    StopRound,
    play_in_step,
)
from fed_ucbvi.engine.problems import SimulatedProblem, elsewhere_error
from fed_ucbvi.engine.rounds import PlayedRound
from fed_ucbvi.engine.simulated_party import SimulatedParty
from fed_ucbvi.engine.state_arrays import changed_places
from fed_ucbvi.problem.federation import Federation

log = logging.getLogger("fed_ucbvi.engine.ray_fleets")

DRIVERS = ("auto", "episodes")
"""Both play trajectory by trajectory here. The counts driver draws an agent's block only up to the earliest request
of the agents before it, so fleets could not draw at the same time."""
ATTEMPTS = 4
"""Attempts at one answer of a fleet that is lost each time."""


class Fleets:
    """All agents of a run as one party, in several parts that stop together.

    Args:
        algorithm: the algorithm that the agents run.
        setting: sizes of the run.
        federation: the agents' MDPs.
        parts: the first agent of each part, and its number of agents.
        ask_all: sends a message to all parts and returns their answers.
        connections: ends all parts when closed.
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
        self._summed = algorithm.grid(setting) is not None and federation.pay_alike and len(federation.rewards) == 1
        """True if one row of visits is enough for all agents."""
        self._last_length = 0

    def play_round(self, broadcast: Message, first: int, most: int, *, judged: bool) -> PlayedRound:
        ahead = PlayAhead(self._largest, self.setting.horizon, self._last_length, most)
        length = play_in_step(self._ask_all, _copies(broadcast), first, ahead)
        self._last_length = length
        ends: Sequence[PlayedRound] = self._ask_all(StopRound(length))
        visits = np.concatenate([end.visits for end in ends if end.visits is not None])
        starts = np.concatenate([end.starts for end in ends if end.starts is not None])
        if self._summed:
            visits = visits.sum(axis=0, keepdims=True)
            starts = starts.sum(axis=0, keepdims=True)
        requests = sum(end.stop.requests for end in ends)
        first_with_request = next((end for end in ends if end.stop.requests), ends[0])
        stop = first_with_request.stop._replace(requests=requests)
        return PlayedRound(stop, visits, starts)

    def exchange(self, server: Any, synchronisations: int) -> None:
        algorithm = self.algorithm
        for exchange in range(algorithm.message_sizes(self.setting).exchanges):
            query = _copies(algorithm.query(server, exchange))
            reports: Sequence[Message] = self._ask_all(AskReport(query, exchange))
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
            one_agent = part_of(federation, 0, 1)
            run_on_every_node(ray, compile_for_fleets, algorithm, setting, one_agent)
            actors = Actors(
                ray=ray,
                algorithm=algorithm,
                setting=setting,
                federation=federation,
                parts=parts,
            )
            stack.enter_context(closing(actors))
            return Fleets(
                algorithm=algorithm,
                setting=setting,
                federation=federation,
                parts=parts,
                ask_all=actors.ask_all,
                connections=stack.pop_all(),
            )

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


class NewNumbers(NamedTuple):
    """Numbers of an array of a broadcast that have changed, and their flat indices."""

    places: CountArray
    numbers: Array


class RoundChanges(NamedTuple):
    """A past round: its first episode, its length, and the changes of each array since the broadcast before."""

    first: int
    length: int
    changes: list[NewNumbers]


class PastRound(NamedTuple):
    """A past round: its broadcast, its first episode and its length."""

    broadcast: Message
    first: int
    length: int


class PastRounds:
    """Lengths and broadcasts of all rounds; only the changes from one broadcast to the next are kept."""

    def __init__(self) -> None:
        self._rounds: list[RoundChanges] = []
        self._last: Message = ()

    def add(self, broadcast: Message, first: int, length: int) -> None:
        """Add a round that all fleets have counted; its first episode has number ``first``."""
        last = self._last or tuple(np.zeros_like(array) for array in broadcast)
        changes = []
        for array, before in zip(broadcast, last, strict=True):
            places = changed_places(array, before)
            numbers = array.reshape(-1)[places]
            changes.append(NewNumbers(places, numbers))
        self._rounds.append(RoundChanges(first, length, changes))
        self._last = _copies(broadcast)

    def __iter__(self) -> Iterator[PastRound]:
        """Every round, in order; the arrays of the broadcasts are the same objects every time."""
        broadcast = tuple(np.zeros_like(array) for array in self._last)
        for first, length, changes in self._rounds:
            for array, new in zip(broadcast, changes, strict=True):
                array.reshape(-1)[new.places] = new.numbers
            yield PastRound(broadcast, first, length)


class FleetActor(SimulatedParty):
    """Some agents of a federation in a process of their own, on one core, which have played ``past`` rounds."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        own: Federation,
        first_agent: int,
        past: PastRounds,
    ) -> None:
        use_one_thread()
        super().__init__(algorithm, setting, own, "episodes", first_agent)
        for broadcast, first, length in past:
            self.start(broadcast, first)
            self.stop(length)

    def answer(self, message: PartyMessage) -> Any:
        """Answer a message; its arrays are copied, because compiled code needs arrays that can be written to."""
        if isinstance(message, StartRound):
            message = message._replace(broadcast=_copies(message.broadcast))
        elif isinstance(message, AskReport):
            message = message._replace(query=_copies(message.query))
        return super().answer(message)


def compile_for_fleets(algorithm: Algorithm[Any, Any], setting: Setting, agent: Federation) -> None:
    """Compile for the fleets on this machine: play a short round with one agent and synchronise."""
    if has_compiled_code():
        return
    fleet = FleetActor(algorithm, setting, agent, 0, PastRounds())
    server = algorithm.new_server(setting)
    fleet.play_round(_copies(algorithm.broadcast(server)), 0, 1)
    for exchange in range(algorithm.message_sizes(setting).exchanges):
        report = fleet.report(_copies(algorithm.query(server, exchange)), exchange)
        algorithm.aggregate(server, report, exchange)


class Actors:
    """The processes of all fleets of a run.

    Actors reserve no cores, so that a lost one can be started again on any node that is left. They are distributed
    over the living nodes, core by core. Ray itself neither restarts them nor repeats calls, because it does not know
    which rounds they have played.

    Args:
        ray: the module, connected to a cluster.
        algorithm: the algorithm that the agents run.
        setting: sizes of the run.
        federation: the agents' MDPs.
        parts: the first agent of each fleet, and its number of agents.
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
        self._algorithm = algorithm
        self._setting = setting
        self._federation = federation
        self._parts = parts
        self._actor_class = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(FleetActor)
        self._past = PastRounds()
        self._start: StartRound | None = None
        self._sent: list[Any] = []
        """References to the messages of this round, without queries."""
        self._actors = [self._new_actor(fleet) for fleet in range(len(parts))]

    def ask_all(self, message: PartyMessage) -> list[Any]:
        """Send a message to all fleets at once; their answers in the order of agents.

        A fleet that is lost is started again from the past rounds, and gets the messages of this round again.
        """
        if isinstance(message, StartRound):
            self._start = message
            self._sent = []
        shared_message = self._ray.put(message)
        pending = [actor.answer.remote(shared_message) for actor in self._actors]
        answers = [self._answer(fleet, answer, shared_message) for fleet, answer in enumerate(pending)]
        if isinstance(message, StopRound):
            assert self._start is not None
            self._past.add(self._start.broadcast, self._start.first, message.length)
            self._sent = []
        elif not isinstance(message, AskReport):
            self._sent.append(shared_message)
        return answers

    def close(self) -> None:
        for actor in self._actors:
            self._end(actor)

    def _answer(self, fleet: int, pending: Any, message: Any) -> Any:
        """Wait for the answer of a fleet to a message; start the fleet again if it is lost.

        Args:
            fleet: number of the fleet.
            pending: reference to the answer.
            message: reference to the message.
        """
        errors = self._ray.exceptions
        lost = (
            errors.RayActorError,
            errors.ActorUnschedulableError,
            errors.ObjectLostError,
            errors.WorkerCrashedError,
        )
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._ray.get(pending)
            except lost as error:
                first, agents = self._parts[fleet]
                which = f"the fleet of agents {first} to {first + agents - 1} was lost"
                why = type(error).__name__
                if attempt == ATTEMPTS:
                    raise InputError(f"{which} {ATTEMPTS} times in a row ({why}); see to the cluster.") from error
                log.warning("%s (%s) and is made again", which, why)
            self._end(self._actors[fleet])
            actor = self._new_actor(fleet)
            self._actors[fleet] = actor
            for earlier in self._sent:
                actor.answer.remote(earlier)
            pending = actor.answer.remote(message)
        raise AssertionError

    def _new_actor(self, fleet: int) -> Any:
        first, agents = self._parts[fleet]
        own = part_of(self._federation, first, agents)
        nodes = self._nodes()
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            nodes[fleet % len(nodes)],
            soft=False,  # soft strategies have no effect on actors that reserve nothing
        )
        actor_class = self._actor_class.options(scheduling_strategy=strategy)
        return actor_class.remote(self._algorithm, self._setting, own, first, self._past)

    def _nodes(self) -> list[str]:
        """Living nodes, each as often as it has cores, but at least once: first all of them once, then all again.

        They are sorted, because Ray lists them in another order each time.
        """
        cores: dict[str, int] = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                cores[str(node["NodeID"])] = max(1, int(node["Resources"].get("CPU", 1)))
        nodes: list[str] = []
        for turn in range(max(cores.values())):
            nodes += [name for name in sorted(cores) if cores[name] > turn]
        return nodes

    def _end(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)
