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
        """``(m, H, S, K)``: this round's transitions from ``(h, s, pi_h(s))``, by slot of the support."""
        ...

    @property
    def visits(self) -> CountArray:
        """``(m, H, S)``: this round's visits."""
        ...

    def collect(self, policy: IndexArray, budgets: CountArray, first: int, most: int) -> Stop:
        """Play ``policy`` from episode number ``first`` on, at most ``most`` episodes, until someone asks."""
        ...


@dataclass
class Fleet:
    """Agents simulated together: their tables, the random key, and the buffers of the round.

    ``first_agent`` is the number of the fleet's first agent in the federation, so that splitting a federation
    into fleets changes nothing.
    """

    successors: IndexArray
    probabilities: FloatArray
    initial: FloatArray
    horizon: int
    seed: int
    first_agent: int = 0
    transitions: CountArray = field(init=False)
    visits: CountArray = field(init=False)

    def __post_init__(self) -> None:
        m, _, S, _, K = self.probabilities.shape
        self.transitions = np.zeros((m, self.horizon, S, K), dtype=np.int64)
        self.visits = np.zeros((m, self.horizon, S), dtype=np.int64)

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
    def of(cls, federation: Federation, seed: int) -> Fleet:
        """All agents of a federation as one fleet."""
        return cls(federation.successors, federation.probabilities, federation.initial, federation.horizon, seed)


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


def stopped(fleet: Fleet, budgets: CountArray, length: int) -> Stop:
    """The :class:`Stop` for counts that are complete."""
    askers, agent, step, state = find_asker(fleet.visits, budgets)
    return Stop(length, askers, agent + fleet.first_agent if askers else -1, step, state)
