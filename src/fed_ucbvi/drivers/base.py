"""What a driver is: the party that plays a policy until the budgets say stop.

During a round all agents play one deterministic policy. Agent i asks for synchronisation once its visits
*during the round* to some ``(h, s, pi_h(s))`` reach its budget ``b^i_h(s)``; all agents stop after the same
number of episodes, the first at which anyone asked. Drivers differ only in how they produce the counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.algorithms.base import Touched
from fed_ucbvi.problem.federation import Federation


class Stop(NamedTuple):
    """How a round ended.

    ``askers`` agents asked for synchronisation at its last episode (none where the round was cut short); the
    one on record is the lowest-numbered, at the earliest step where its budget was reached.
    """

    length: int
    askers: int
    agent: int
    step: int
    state: int


class Driver(Protocol):
    """Collects the data of a round for the agents of one fleet."""

    @property
    def transitions(self) -> CountArray:
        """``(m or 1, H, S, K)``: this round's transitions from ``(h, s, pi_h(s))``, by slot of the support."""
        ...

    @property
    def visits(self) -> CountArray:
        """``(m, H, S)``: this round's visits."""
        ...

    def clear(self) -> None:
        """Empty the buffers."""
        ...

    def collect(self, policy: IndexArray, budgets: CountArray, first: int, most: int) -> Stop:
        """Play ``policy`` from episode number ``first`` on, at most ``most`` episodes, until someone asks."""
        ...


@dataclass
class Fleet:
    """Agents simulated together: their tables, the random key, and the buffers of the round.

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
    transitions: CountArray = field(init=False)
    visits: CountArray = field(init=False)
    touched: Touched = field(init=False)

    def __post_init__(self) -> None:
        m, _, S, _, K = self.probabilities.shape
        self.transitions = np.zeros((1 if self.pooled else m, self.horizon, S, K), dtype=np.int64)
        self.visits = np.zeros((m, self.horizon, S), dtype=np.int64)
        self.touched = Touched.nowhere(m, self.horizon, S)

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
        )
        alone.transitions, alone.visits = self.transitions[part], self.visits[part]
        return alone

    @classmethod
    def of(cls, federation: Federation, seed: int, *, pooled: bool = False) -> Fleet:
        """All agents of a federation as one fleet."""
        tables = (federation.successors, federation.probabilities, federation.initial)
        return cls(*tables, federation.horizon, seed, pooled=pooled)

    def clear(self) -> None:
        """Empty the buffers before a round."""
        _clear(self.transitions, self.visits, self.touched)

    def recount(self) -> None:
        """Find out what the round has visited, after the buffers were written to by someone else."""
        _recount(self.visits, self.touched)


@compiled
def touch(i: int, place: int | np.int64, touched: Touched) -> None:
    """Note that agent i has come to a place where it had not been in this round."""
    touched.places[i, touched.numbers[i]] = place
    touched.numbers[i] += 1


@compiled
def drop_untouched(i: int, visits: CountArray, touched: Touched) -> None:
    """Take places off agent i's list whose visits were taken back; ``visits`` is ``(m, H S)``."""
    kept = 0
    for j in range(touched.numbers[i]):
        place = touched.places[i, j]
        if visits[i, place] > 0:
            touched.places[i, kept] = place
            kept += 1
    touched.numbers[i] = kept


@compiled
def _recount(visits: CountArray, touched: Touched) -> None:
    m, H, S = visits.shape
    for i in range(m):
        touched.numbers[i] = 0
        for h in range(H):
            for s in range(S):
                if visits[i, h, s] > 0:
                    touch(i, h * S + s, touched)


@compiled
def _clear(transitions: CountArray, visits: CountArray, touched: Touched) -> None:
    (m, _, _), (rows, H, S, K) = visits.shape, transitions.shape
    seen, moves, together = visits.reshape((m, H * S)), transitions.reshape((rows, H * S, K)), touched.all_visits
    for i in range(m):
        for j in range(touched.numbers[i]):
            place = touched.places[i, j]
            seen[i, place] = 0
            if rows == m:
                moves[i, place] = 0
        touched.numbers[i] = 0
    for j in range(touched.number[0]):
        place = touched.all_places[j]
        together.reshape(H * S)[place] = 0
        if rows < m:
            moves[0, place] = 0
    touched.number[0] = 0


@compiled
def find_asker(visits: CountArray, budgets: CountArray) -> tuple[int, int, int, int]:
    """``(askers, agent, step, state)``; see :class:`Stop`."""
    m, H, S = visits.shape
    askers, agent, step, state = 0, -1, -1, -1
    for i in range(m):
        asked = False
        for h in range(H):
            for s in range(S):  # no way out of the loop: so it takes several states at a time
                asked |= visits[i, h, s] >= budgets[i, h, s]
            if asked:
                break
        if asked and agent < 0:
            agent, step = i, h
            for s in range(S):
                if visits[i, h, s] >= budgets[i, h, s]:
                    state = s
                    break
        askers += asked
    return askers, agent, step, state


@compiled
def _end_round(visits: CountArray, budgets: CountArray, touched: Touched, pooled: bool) -> tuple[int, int, int, int]:
    """The same, looking only where agents have been; where counts are ``pooled``, add up their visits as well."""
    m, H, S = visits.shape
    seen, due = visits.reshape((m, H * S)), budgets.reshape((m, H * S))
    together = touched.all_visits.reshape(H * S)
    askers, agent, first_place, everywhere = 0, -1, 0, 0
    for i in range(m):
        first = H * S
        for j in range(touched.numbers[i]):
            place = touched.places[i, j]
            n = seen[i, place]
            if n >= due[i, place] and place < first:
                first = place
            if pooled:
                if together[place] == 0:
                    touched.all_places[everywhere] = place
                    everywhere += 1
                together[place] += n
        if first < H * S:
            askers += 1
            if agent < 0:
                agent, first_place = i, first
    touched.number[0] = everywhere
    if agent < 0:
        return 0, -1, -1, -1
    return askers, agent, first_place // S, first_place % S


def stopped(fleet: Fleet, budgets: CountArray, length: int) -> Stop:
    """The :class:`Stop` for counts that are complete."""
    askers, agent, step, state = _end_round(fleet.visits, budgets, fleet.touched, fleet.pooled)
    return Stop(length, askers, agent + fleet.first_agent if askers else -1, step, state)
