"""Fleets as Ray actors; one that is lost with its node or process is made again on a living one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fed_ucbvi.algorithms.base import Algorithm, Message, Setting
from fed_ucbvi.core.compiling import use_one_thread
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.fleets.history import History
from fed_ucbvi.engine.fleets.host import FleetHost
from fed_ucbvi.engine.hosted_problem import host
from fed_ucbvi.problem.federation import Federation

log = logging.getLogger("fed_ucbvi.engine.fleets")

ATTEMPTS = 4
"""How often a fleet is made for one answer if it is lost each time."""


class FleetActor(FleetHost):
    """A fleet in a process of its own, on one core."""

    def __init__(self, *arguments: Any) -> None:
        use_one_thread()
        super().__init__(*arguments)


class Actors:
    """All fleets of a run.

    Actors reserve no cores, so that a lost one can be made again on any node that is left. They are distributed over
    the living nodes, core by core. Ray itself neither restarts them nor repeats calls, because it does not know which
    rounds they have played.

    Args:
        ray: connected.
        algorithm: of the run.
        setting: of the run.
        federation: all M agents.
        parts: the first agent of each fleet, and how many there are.
        sum_visits: see :class:`~fed_ucbvi.engine.fleets.host.FleetHost`.
    """

    def __init__(
        self,
        ray: Any,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation,
        parts: Sequence[tuple[int, int]],
        *,
        sum_visits: bool,
    ) -> None:
        self._ray, self._federation, self._parts = ray, federation, parts
        self._about = algorithm, setting, sum_visits
        self._kind = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(FleetActor)
        self._history = History()
        self._calls: list[tuple[str, Sequence[Any]]] = []
        self._actors = [self._make(i) for i in range(len(parts))]

    def ask(self, call: str, *arguments: Any) -> list[Any]:
        """Call a method of every fleet, all at once; the answers in the order of agents.

        A fleet that is lost is made again: from the rounds before this one, and then by this round's calls so far.
        """
        shared = [self._ray.put(argument) if isinstance(argument, tuple) else argument for argument in arguments]
        references = [getattr(actor, call).remote(*shared) for actor in self._actors]
        answers = [self._answer(i, reference, call, shared) for i, reference in enumerate(references)]
        if call != "report":
            self._calls.append((call, shared))
        return answers

    def end_round(self, broadcast: Message, first: int, length: int) -> None:
        """All fleets have counted a round; only its reports will still be asked for."""
        self._history.add(broadcast, first, length)
        self._calls.clear()

    def close(self) -> None:
        """End all fleets."""
        for actor in self._actors:
            self._end(actor)

    def _answer(self, i: int, reference: Any, call: str, arguments: Sequence[Any]) -> Any:
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
            for earlier, given in self._calls:
                getattr(actor, earlier).remote(*given)
            reference = getattr(actor, call).remote(*arguments)
        raise AssertionError

    def _make(self, i: int) -> Any:
        algorithm, setting, sum_visits = self._about
        hosted, places = host(self._federation, *self._parts[i]), self._places()
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            places[i % len(places)],
            soft=False,  # of actors that reserve nothing Ray puts the soft ones anywhere
        )
        kind = self._kind.options(scheduling_strategy=strategy)
        return kind.remote(algorithm, setting, hosted, sum_visits, self._history)

    def _places(self) -> list[str]:
        """The nodes that live, each as often as it has cores (once at least): first all once, then all again.

        They are sorted, because Ray lists them in another order each time.
        """
        living = sorted((node for node in self._ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeID"]))
        nodes = {str(node["NodeID"]): max(1, int(node["Resources"].get("CPU", 1))) for node in living}
        return [name for turn in range(max(nodes.values())) for name, cores in nodes.items() if cores > turn]

    def _end(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)
