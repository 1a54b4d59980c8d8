"""Drivers play a policy until some agent has used up its budget of visits.

During a round all agents play one policy: at each step and state one action, or one drawn uniformly from a set. Agent
i requests a synchronisation once its visits *during the round* to some cell (see
:class:`~fed_ucbvi.algorithms.base.Counting`) reach its budget. All agents stop after the same number of episodes, the
first at which any agent made a request. Drivers differ only in how they produce the counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import Budgets, Counting, VisitedCells
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.sampling.levels import NO_LEVELS, ONE_LEVEL, LevelLaw, kept_levels
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.rewards import doubled, payments_of
from fed_ucbvi.problem.federation import Federation


class RoundEnd(NamedTuple):
    """End of a round.

    ``requests`` is the number of agents that requested a synchronisation at its last episode (0 where it was cut
    short). The agent on record is the one with the lowest number, at the first cell where its budget was reached, by
    the ``rule`` of that cell. Where visits are counted over all steps together, ``step`` is -1.
    """

    length: int
    requests: int = 0
    agent: int = -1
    step: int = -1
    state: int = -1
    action: int = -1
    rule: int = -1


Played = tuple[int, bool]
"""How many episodes were played, and whether there was a request after the last of them."""


class Buffers(Protocol):
    """Counts of the agents in a round.

    Transitions by slot of the support ``(m or 1, *cell, K)``, visits ``(m, *cell)``, and how many episodes began in
    each state, by level of the policy, ``(m, L, S)``.
    """

    counting: Counting
    first_agent: int

    @property
    def transitions(self) -> CountArray: ...
    @property
    def visits(self) -> CountArray: ...
    @property
    def starts(self) -> CountArray: ...


class Driver(ABC):
    """Collects the data of a round for some agents, in their rows of the buffers; drivers differ in how."""

    def __init__(self, buffers: Buffers, rows: slice = slice(None)) -> None:
        self._buffers = buffers
        self._rows = rows
        self.counting = buffers.counting
        self.first_agent = buffers.first_agent + (rows.start or 0)

    @property
    def transitions(self) -> CountArray:
        return self._buffers.transitions[self._rows]

    @property
    def visits(self) -> CountArray:
        return self._buffers.visits[self._rows]

    @property
    def starts(self) -> CountArray:
        return self._buffers.starts[self._rows]

    def clear(self) -> None:
        for table in (self.transitions, self.visits, self.starts):
            table.fill(0)

    def begin(self, policy: PolicyArray, budgets: Budgets, first: int) -> None:
        """Begin a round, whose first episode has number ``first``, with empty buffers."""
        self.clear()

    @abstractmethod
    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        """Continue the round by at most ``most`` episodes from number ``first`` on, until a request if ``asking``."""

    def rewind(self, policy: PolicyArray, limits: CountArray, first: int, count: int) -> None:
        """Take back ``count`` episodes from number ``first`` on."""
        raise NotImplementedError("only simulated trajectories can be taken back")

    def anyone(self, limits: CountArray) -> bool:
        """True if some agent has reached its limit of visits."""
        return find_requester(self.visits, limits)[0] > 0

    def stopped(self, policy: PolicyArray, budgets: Budgets, first: int, length: int) -> RoundEnd:
        """End of the round after ``length`` episodes."""
        return self.end(length, self._requester(budgets.limits, length >= budgets.min_length(first)), policy, budgets)

    def end(self, length: int, found: tuple[int, int, int], policy: PolicyArray, budgets: Budgets) -> RoundEnd:
        """End of a round of that length, whose ``(requesters, agent, cell)`` are those that were ``found``."""
        requests, agent, cell = found
        if not requests:
            return RoundEnd(length)
        if self.counting is Counting.POLICY:
            step, state = divmod(cell, policy.shape[1])
            action = int(policy[step, state])
        else:
            states, actions = policy.shape[-2:]
            rest, action = divmod(cell, actions)
            step, state = divmod(rest, states)
        step = -1 if self.counting is Counting.STATIONARY else step
        rule = int(budgets.rule.flat[cell])
        return RoundEnd(length, requests, self.first_agent + agent, step, state, action, rule)

    def _requester(self, limits: CountArray, asking: bool) -> tuple[int, int, int]:
        """``(requesters, agent, cell)`` as of :func:`find_requester`, if agents may make requests."""
        return find_requester(self.visits, limits) if asking else (0, -1, -1)


def play_until(
    driver: Driver,
    policy: PolicyArray,
    budgets: Budgets,
    first: int,
    played: int,
    until: int,
    least: int = 0,
) -> Played:
    """Continue a round of which ``played`` episodes are played; how many are now.

    Until a round has its least length (``least``, or more by :class:`~fed_ucbvi.algorithms.base.Budgets`) nobody
    makes a request. Then agents that have reached their budgets make theirs at once.
    """
    least = max(least, budgets.min_length(first))
    limits = budgets.limits
    asked = False
    while played < until and not asked:
        asking = played >= least
        most = (until if asking else min(until, least)) - played
        more, asked = driver.extend(policy, limits, first + played, most, asking)
        played += more
        if played == least and not asking:
            asked = driver.anyone(limits)
    return played, asked


def collect(driver: Driver, policy: PolicyArray, budgets: Budgets, first: int, most: int) -> RoundEnd:
    """A whole round from episode number ``first`` on: until a request, at most ``most`` episodes."""
    driver.begin(policy, budgets, first)
    length, _ = play_until(driver, policy, budgets, first, 0, most)
    return driver.stopped(policy, budgets, first, length)


class Sizes(NamedTuple):
    """Sizes of a fleet's tables, and numbers that are fixed for a run.

    Attributes:
        horizon: H.
        states: S.
        actions: A.
        slots: K.
        by_step: True if the kernel depends on the step.
        stationary: True if visits are counted over all steps together.
        seed: seed of the run.
        level_share: probability with which an episode draws a fresh level of the policy.
        level_seed: seed of the levels.
    """

    horizon: int
    states: int
    actions: int
    slots: int
    by_step: bool
    stationary: bool
    seed: np.uint64
    level_share: float
    level_seed: np.uint64


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
    """Type of the counters of visits. Many agents do not fit the caches, and half the memory is less time."""
    levels: LevelLaw = ONE_LEVEL
    """How the agents draw levels of the policy."""
    level_seed: int | None = None
    """Seed of the draws of levels; that of the run if it is not given."""
    kept_levels: CountArray = field(default_factory=lambda: NO_LEVELS)
    """Levels that the agents keep for the round, ``(m,)``; empty where the policy has one level."""
    round_start: int = 0
    """Number of the first episode of the round."""

    @property
    def sizes(self) -> Sizes:
        """H, S, A, K and what else a step depends on."""
        _, steps, S, A, K = self.probabilities.shape
        stationary = self.counting is Counting.STATIONARY
        return Sizes(
            horizon=self.horizon,
            states=S,
            actions=A,
            slots=K,
            by_step=steps > 1,
            stationary=stationary,
            seed=np.uint64(self.seed),
            level_share=self.levels.share,
            level_seed=np.uint64(self.seed if self.level_seed is None else self.level_seed),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.counting.shape(self.horizon, *self.successors.shape[1:3])

    @cached_property
    def transitions(self) -> CountArray:
        """``(m or 1, *cell, K)``."""
        rows = 1 if self.pooled else len(self.probabilities)
        return np.zeros((rows, *self.shape, self.successors.shape[3]), dtype=np.int64)

    @cached_property
    def visits(self) -> CountArray:
        """``(m, *cell)``."""
        return np.zeros((len(self.probabilities), *self.shape), dtype=self.counters)

    @cached_property
    def flat(self) -> tuple[CountArray, CountArray]:
        """Transitions and visits in the same memory, as ``(m or 1, P, K)`` and ``(m, P)``."""
        rows = len(self.transitions)
        m = len(self.visits)
        K = self.transitions.shape[-1]
        return self.transitions.reshape((rows, -1, K)), self.visits.reshape((m, -1))

    @cached_property
    def touched(self) -> VisitedCells:
        return VisitedCells.empty(len(self.probabilities), self.shape)

    @cached_property
    def counted_starts(self) -> CountArray:
        """Initial states of the round's episodes, ``(m, L, S)``, where they cannot be read off the visits.

        Otherwise it is empty.
        """
        counted = self.counting is Counting.STATIONARY or self.levels.number > 1
        rows = len(self.initial) if counted else 0
        return np.zeros((rows, self.levels.number, self.initial.shape[1]), dtype=np.int64)

    @property
    def starts(self) -> CountArray:
        """Number of the round's episodes that began in each state, by agent and level, ``(m, L, S)``."""
        if len(self.counted_starts):
            return self.counted_starts
        return starts_in(self.visits)

    def begin_round(self, policy: PolicyArray, first: int) -> None:
        """Draw the levels that agents keep for a round with this policy, whose first episode has number ``first``."""
        self.round_start = first
        self.kept_levels = NO_LEVELS
        if policy.ndim == 4:
            seed = self.sizes.level_seed
            self.kept_levels = kept_levels(seed, self.first_agent, len(self.initial), first)

    def agent(self, i: int) -> Fleet:
        """The i-th agent as a fleet of its own that writes to the same buffers."""
        part = slice(i, i + 1)
        law = self.probabilities[part]
        starts = self.initial[part]
        number = self.first_agent + i
        alone = replace(self, probabilities=law, initial=starts, first_agent=number)
        alone.transitions = self.transitions[part]
        alone.visits = self.visits[part]
        alone.counted_starts = self.counted_starts[part]
        return alone

    @classmethod
    def of(
        cls, federation: Federation, seed: int, first_agent: int = 0, *, random_rewards: bool = False, **more: Any
    ) -> Fleet:
        """All agents of a federation as one fleet; if rewards are random, on supports that are doubled.

        See :mod:`fed_ucbvi.engine.drivers.rewards`. ``more`` are fields of the fleet.
        """
        support = (federation.successors, federation.probabilities)
        if random_rewards:
            support = doubled(*support, payments_of(federation).chances)
        return cls(*support, federation.initial, federation.horizon, seed, first_agent, **more)


def one_if_shared(table: FloatArray) -> FloatArray:
    """The table with one row instead of m, if it is the same in all of them because there is but one in memory."""
    return table[:1] if table.strides[0] == 0 else table


def starts_in(visits: CountArray) -> CountArray:
    """Number of episodes that began in each state, ``(rows, 1, S)``, from visits by step ``(rows, *cell)``."""
    at_first_step = visits[:, :1]
    return at_first_step if visits.ndim == 3 else np.asarray(at_first_step.sum(axis=3))


class FleetDriver(Driver):
    """Base class of the drivers of a simulated fleet."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.fleet = fleet

    def begin(self, policy: PolicyArray, budgets: Budgets, first: int) -> None:
        self.clear()
        self.fleet.begin_round(policy, first)

    def clear(self) -> None:
        transitions, visits = self.fleet.flat
        _clear(transitions, visits, *self.fleet.touched)
        self.fleet.counted_starts.fill(0)

    def _requester(self, limits: CountArray, asking: bool) -> tuple[int, int, int]:
        fleet = self.fleet
        by_cell = limits.reshape((len(limits), -1))
        return _end_round(fleet.flat[1], by_cell, asking, *fleet.touched, fleet.pooled)


@compiled
def drop_untouched(low: int, high: int, visits: CountArray, cells: IndexArray, numbers: CountArray) -> None:
    """Take cells off the lists of agents ``low`` to ``high - 1`` whose visits, flat, were taken back."""
    P = cells.shape[1]
    for i in range(low, high):
        kept = 0
        for j in range(numbers[i]):
            cell = cells[i, j]
            if visits[i * P + cell] > 0:
                cells[i, kept] = cell
                kept += 1
        numbers[i] = kept


@compiled
def _clear(
    transitions: CountArray,
    visits: CountArray,
    cells: IndexArray,
    numbers: CountArray,
    all_cells: IndexArray,
    number: CountArray,
    all_visits: CountArray,
) -> None:
    """Zeros where the round has been; the tables of :class:`VisitedCells` come one by one: faster in Numba."""
    m = len(visits)
    rows = len(transitions)
    together = all_visits.reshape(visits.shape[1])
    for i in range(m):
        for j in range(numbers[i]):
            cell = cells[i, j]
            visits[i, cell] = 0
            if rows == m:
                transitions[i, cell] = 0
        numbers[i] = 0
    for j in range(number[0]):
        cell = all_cells[j]
        together[cell] = 0
        if rows < m:
            transitions[0, cell] = 0
    number[0] = 0


def find_requester(visits: CountArray, limits: CountArray) -> tuple[int, int, int]:
    """``(requesters, agent, cell)`` of tables by cell, ``limits`` with m rows or 1; see :class:`RoundEnd`."""
    reached = (visits >= limits).reshape((len(visits), -1))
    asking = np.flatnonzero(reached.any(axis=1))
    return (len(asking), int(asking[0]), int(reached[asking[0]].argmax())) if len(asking) else (0, -1, -1)


@compiled
def _end_round(
    visits: CountArray,
    limits: CountArray,
    asking: bool,
    cells: IndexArray,
    numbers: CountArray,
    all_cells: IndexArray,
    number: CountArray,
    all_visits: CountArray,
    pooled: bool,
) -> tuple[int, int, int]:
    """Requesters as of :func:`find_requester`, looking only where agents have been.

    Where counts are ``pooled``, visits of all agents are added up as well.
    """
    m, P = visits.shape
    together = all_visits.reshape(P)
    own_due = len(limits) > 1
    requesters = 0
    agent = -1
    first_cell = -1
    everywhere = 0
    for i in range(m):
        first = P
        d = i if own_due else 0
        for j in range(numbers[i]):
            cell = np.int64(cells[i, j])
            n = visits[i, cell]
            if asking and n >= limits[d, cell] and cell < first:
                first = cell
            if pooled:
                if together[cell] == 0:
                    all_cells[everywhere] = cell
                    everywhere += 1
                together[cell] += n
        if first < P:
            requesters += 1
            if agent < 0:
                agent = i
                first_cell = first
    number[0] = everywhere
    return requesters, agent, first_cell
