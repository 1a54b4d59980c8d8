"""What a driver is: it plays a policy until some agent has used up its budget of visits.

During a round all agents play one policy: at each step and state one action, or one drawn uniformly from a set. Agent
i requests a synchronisation once its visits *during the round* to some place (see
:class:`~fed_ucbvi.algorithms.base.Counting`) reach its budget. All agents stop after the same number of episodes, the
first at which any agent made a request. Drivers differ only in how they produce the counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import Budgets, Counting, Touched
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.rewards import doubled, payments_of
from fed_ucbvi.engine.drivers.trajectory import Sizes
from fed_ucbvi.problem.federation import Federation


class RoundEnd(NamedTuple):
    """How a round ended.

    ``askers`` is the number of agents that requested a synchronisation at its last episode (0 where the round was cut
    short). The agent on record is the one with the lowest number, at the first place where its budget was reached.
    Where visits are counted over all steps together, ``step`` is -1.
    """

    length: int
    askers: int
    agent: int
    step: int
    state: int
    action: int


class Driver(Protocol):
    """Collects the data of a round for the agents of one fleet."""

    @property
    def transitions(self) -> CountArray:
        """``(m or 1, *place, K)``: this round's transitions, by slot of the support."""
        ...

    @property
    def visits(self) -> CountArray:
        """``(m, *place)``: this round's visits."""
        ...

    @property
    def starts(self) -> CountArray:
        """``(m, S)``: how many of the round's episodes began where."""
        ...

    def clear(self) -> None:
        """Empty the buffers."""
        ...

    def collect(self, policy: PolicyArray, budgets: Budgets, first: int, most: int) -> RoundEnd:
        """Play ``policy`` from episode number ``first`` on, at most ``most`` episodes, until there is a request."""
        ...


@dataclass
class Fleet:
    """Agents simulated together: their tables, the random key, and the buffers of the round, made when first used.

    ``first_agent`` is the number of the fleet's first agent in the federation, so that splitting a federation
    into fleets changes nothing. A ``pooled`` fleet counts the transitions of all its agents in one table. ``touched``
    lists what the round has visited; work after and before a round follows it.
    """

    successors: IndexArray
    probabilities: FloatArray
    initial: FloatArray
    horizon: int
    seed: int
    first_agent: int = 0
    pooled: bool = False
    counting: Counting = Counting.POLICY
    counters: type[np.signedinteger[Any]] = np.int64
    """What visits are counted by. Many agents do not fit the caches, and half the memory is less time."""

    @property
    def sizes(self) -> Sizes:
        """H, S, A, K and what else a step depends on."""
        _, steps, S, A, K = self.probabilities.shape
        stationary = self.counting is Counting.STATIONARY
        return Sizes(self.horizon, S, A, K, steps > 1, stationary, np.uint64(self.seed))

    @property
    def shape(self) -> tuple[int, ...]:
        """That of places."""
        return self.counting.shape(self.horizon, *self.successors.shape[1:3])

    @cached_property
    def transitions(self) -> CountArray:
        """``(m or 1, *place, K)``."""
        rows = 1 if self.pooled else len(self.probabilities)
        return np.zeros((rows, *self.shape, self.successors.shape[3]), dtype=np.int64)

    @cached_property
    def visits(self) -> CountArray:
        """``(m, *place)``."""
        return np.zeros((len(self.probabilities), *self.shape), dtype=self.counters)

    @cached_property
    def flat_transitions(self) -> CountArray:
        """The same memory as ``(m or 1, P, K)``."""
        return self.transitions.reshape((len(self.transitions), -1, self.transitions.shape[-1]))

    @cached_property
    def flat_visits(self) -> CountArray:
        """The same memory as ``(m, P)``."""
        return self.visits.reshape((len(self.visits), -1))

    @cached_property
    def touched(self) -> Touched:
        """Where the round went."""
        return Touched.nowhere(len(self.probabilities), self.shape)

    @cached_property
    def counted_starts(self) -> CountArray:
        """``(m, S)``, where they cannot be read off the visits; otherwise empty."""
        return np.zeros((len(self.initial) if self.sizes.stationary else 0, self.initial.shape[1]), dtype=np.int64)

    @property
    def starts(self) -> CountArray:
        """``(m, S)``: how many of the round's episodes began where."""
        if self.counting is Counting.STATIONARY:
            return self.counted_starts
        return starts_in(self.visits)

    def agent(self, i: int) -> Fleet:
        """The i-th agent as a fleet of its own that writes to the same buffers."""
        part = slice(i, i + 1)
        alone = Fleet(
            self.successors,
            self.probabilities[part],
            self.initial[part],
            self.horizon,
            self.seed,
            self.first_agent + i,
            counting=self.counting,
        )
        alone.transitions, alone.visits = self.transitions[part], self.visits[part]
        alone.counted_starts = self.counted_starts[part]
        return alone

    @classmethod
    def of(
        cls,
        federation: Federation,
        seed: int,
        first_agent: int = 0,
        *,
        pooled: bool = False,
        counting: Counting = Counting.POLICY,
        random_rewards: bool = False,
        counters: type[np.signedinteger[Any]] = np.int64,
    ) -> Fleet:
        """All agents of a federation as one fleet; if rewards are random, on supports that are doubled.

        See :mod:`fed_ucbvi.engine.drivers.rewards`.
        """
        support = (federation.successors, federation.probabilities)
        if random_rewards:
            support = doubled(*support, payments_of(federation).chances)
        problem = (*support, federation.initial, federation.horizon)
        return cls(*problem, seed, first_agent, pooled=pooled, counting=counting, counters=counters)

    def clear(self) -> None:
        """Empty the buffers before a round."""
        _clear(self.flat_transitions, self.flat_visits, *self.touched)
        if self.counted_starts.size:
            self.counted_starts.fill(0)

    def recount(self) -> None:
        """Find out what the round has visited, after the buffers were written to by someone else."""
        _recount(self.flat_visits, self.touched)

    def stopped(self, policy: PolicyArray, budgets: Budgets, first: int, length: int) -> RoundEnd:
        """The :class:`RoundEnd` of a round of ``length`` episodes after ``first`` whose counts are complete."""
        asking = length >= budgets.min_length(first)
        due = budgets.visits.reshape((len(budgets.visits), -1))
        askers, agent, place = _end_round(self.flat_visits, due, asking, *self.touched, self.pooled)
        return stop_at(length, askers, agent + self.first_agent, place, policy, self.counting)


def one_if_shared(table: FloatArray) -> FloatArray:
    """The table with one row instead of m, if it is the same in all of them because there is but one in memory."""
    return table[:1] if table.strides[0] == 0 else table


def starts_in(visits: CountArray) -> CountArray:
    """Where episodes began ``(rows, S)``, from visits by step ``(rows, *place)``."""
    return visits[:, 0] if visits.ndim == 3 else np.asarray(visits[:, 0].sum(axis=2))


def stop_at(length: int, askers: int, agent: int, place: int, policy: PolicyArray, counting: Counting) -> RoundEnd:
    """The :class:`RoundEnd` of a round: ``agent`` is the first with a request, at ``place``, if ``askers > 0``."""
    if not askers:
        return RoundEnd(length, 0, -1, -1, -1, -1)
    if counting is Counting.POLICY:
        step, state = divmod(place, policy.shape[1])
        return RoundEnd(length, askers, agent, step, state, int(policy[step, state]))
    rest, action = divmod(place, policy.shape[2])
    step, state = divmod(rest, policy.shape[1])
    return RoundEnd(length, askers, agent, -1 if counting is Counting.STATIONARY else step, state, action)


def rule_at(stop: RoundEnd, budgets: Budgets) -> int:
    """The rule by which the agent on record made its request; -1 if none did."""
    if not stop.askers:
        return -1
    rule = budgets.rule
    if rule.ndim == 2:
        return int(rule[stop.step, stop.state])
    return int(rule[max(stop.step, 0), stop.state, stop.action])


Extend = Callable[[PolicyArray, CountArray, int, int, bool], tuple[int, bool]]
"""A function that continues the round whose counts are in the buffers: ``(policy, budgets' visits, number of the
first episode, most episodes, whether agents may make requests)`` to ``(episodes played, was there a request)``."""


def play_round(
    extend: Extend,
    asked_now: Callable[[CountArray], bool],
    policy: PolicyArray,
    budgets: Budgets,
    first: int,
    most: int,
) -> int:
    """Play until a request; the number of episodes.

    Until a round has its least length (see :class:`~fed_ucbvi.algorithms.base.Budgets`) nobody makes a request. Then
    agents that have reached their budgets (``asked_now``) make theirs at once.
    """
    length = min(budgets.min_length(first), most)
    if length:
        extend(policy, budgets.visits, first, length, False)
        if length == most or asked_now(budgets.visits):
            return length
    return length + extend(policy, budgets.visits, first + length, most - length, True)[0]


class FleetDriver(ABC):
    """What the drivers of a simulated fleet have in common; they differ in how they continue a round."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.transitions, self.visits = fleet.transitions, fleet.visits

    @property
    def starts(self) -> CountArray:
        """How many of the round's episodes began where."""
        return self.fleet.starts

    def clear(self) -> None:
        """Empty the buffers."""
        self.fleet.clear()

    def collect(self, policy: PolicyArray, budgets: Budgets, first: int, most: int) -> RoundEnd:
        """Play until an agent makes a request; see :class:`Driver`."""
        self.fleet.clear()
        length = play_round(self.extend, self.anyone, policy, budgets, first, most)
        return self.fleet.stopped(policy, budgets, first, length)

    def anyone(self, due: CountArray) -> bool:
        """Whether some agent has reached its budget."""
        return find_asker(self.visits, due)[0] > 0

    @abstractmethod
    def extend(
        self, policy: PolicyArray, due: CountArray, first: int, most: int, asking: bool = True
    ) -> tuple[int, bool]:
        """Continue the round whose counts are in the buffers; its number of episodes, and if there was a request."""


@inner
def touch(i: int, place: int | np.int64, touched: Touched) -> None:
    """Note that agent i has come to a place where it had not been in this round."""
    touched.places[i, touched.numbers[i]] = place
    touched.numbers[i] += 1


@compiled
def drop_untouched(low: int, high: int, visits: CountArray, places: IndexArray, numbers: CountArray) -> None:
    """Take places off the lists of agents ``low`` to ``high - 1`` whose visits, flat, were taken back."""
    P = places.shape[1]
    for i in range(low, high):
        kept = 0
        for j in range(numbers[i]):
            place = places[i, j]
            if visits[i * P + place] > 0:
                places[i, kept] = place
                kept += 1
        numbers[i] = kept


@compiled
def _recount(visits: CountArray, touched: Touched) -> None:
    m, P = visits.shape
    for i in range(m):
        touched.numbers[i] = 0
        for place in range(P):
            if visits[i, place] > 0:
                touch(i, place, touched)


@compiled
def _clear(
    transitions: CountArray,
    visits: CountArray,
    places: IndexArray,
    numbers: CountArray,
    all_places: IndexArray,
    number: CountArray,
    all_visits: CountArray,
) -> None:
    """Zeros where the round has been; the tables of :class:`Touched` come one by one, which Numba takes faster."""
    m, rows = len(visits), len(transitions)
    together = all_visits.reshape(visits.shape[1])
    for i in range(m):
        for j in range(numbers[i]):
            place = places[i, j]
            visits[i, place] = 0
            if rows == m:
                transitions[i, place] = 0
        numbers[i] = 0
    for j in range(number[0]):
        place = all_places[j]
        together[place] = 0
        if rows < m:
            transitions[0, place] = 0
    number[0] = 0


@compiled
def first_asker(visits: CountArray, due: CountArray) -> tuple[int, int, int]:
    """``(askers, agent, place)``; see :class:`RoundEnd`. ``visits`` is ``(m, P)``, ``due`` has m rows or one."""
    m, P = visits.shape
    askers, agent, first = 0, -1, -1
    for i in range(m):
        budgets = due[i if len(due) > 1 else 0]
        asked = False
        for place in range(P):  # no way out of the loop: so it takes several places at a time
            asked |= visits[i, place] >= budgets[place]
        if asked and agent < 0:
            agent = i
            for place in range(P):
                if visits[i, place] >= budgets[place]:
                    first = place
                    break
        askers += asked
    return askers, agent, first


def find_asker(visits: CountArray, budgets: CountArray) -> tuple[int, int, int]:
    """``(askers, agent, place)`` of tables by place; see :class:`RoundEnd`."""
    return first_asker(visits.reshape((len(visits), -1)), budgets.reshape((len(budgets), -1)))


@compiled
def _end_round(
    visits: CountArray,
    due: CountArray,
    asking: bool,
    places: IndexArray,
    numbers: CountArray,
    all_places: IndexArray,
    number: CountArray,
    all_visits: CountArray,
    pooled: bool,
) -> tuple[int, int, int]:
    """The same, looking only where agents have been; where counts are ``pooled``, add up their visits as well."""
    m, P = visits.shape
    together, own_due = all_visits.reshape(P), len(due) > 1
    askers, agent, first_place, everywhere = 0, -1, -1, 0
    for i in range(m):
        first, d = P, i if own_due else 0
        for j in range(numbers[i]):
            place = np.int64(places[i, j])
            n = visits[i, place]
            if asking and n >= due[d, place] and place < first:
                first = place
            if pooled:
                if together[place] == 0:
                    all_places[everywhere] = place
                    everywhere += 1
                together[place] += n
        if first < P:
            askers += 1
            if agent < 0:
                agent, first_place = i, first
    number[0] = everywhere
    return askers, agent, first_place
