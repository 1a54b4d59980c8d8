"""Fed-UCBVI's agents where they report what is new, once a synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, FleetTables, Setting
from fed_ucbvi.algorithms.count_table import NewCounts
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus
from fed_ucbvi.algorithms.experience import Experience
from fed_ucbvi.algorithms.fed_ucbvi_agents import CountingAgents, no_counts
from fed_ucbvi.algorithms.fed_ucbvi_server import UpdateRule
from fed_ucbvi.algorithms.increments import Increments, IncrementsByState, increments_of
from fed_ucbvi.algorithms.support import Support
from fed_ucbvi.algorithms.synchronisation_rules import SynchronisationRule
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, IndexArray, WordArray


class Totals(NamedTuple):
    """Counts of all agents of a fleet, by slot: ``transitions (H,S,A,K)``, ``rewards (H,S,A,2)``.

    ``paid (H or 0,S,A,K)`` and ``squares (H or 0,S,A,2)`` are there where rewards are random.
    """

    transitions: CountArray
    rewards: WordArray
    paid: CountArray
    squares: WordArray

    @classmethod
    def zero(cls, shape: tuple[int, int, int], width: int, *, random: bool) -> Totals:
        kept = (shape[0] if random else 0, *shape[1:])
        return cls(
            np.zeros((*shape, width), dtype=np.int64),
            np.zeros((*shape, 2), dtype=np.uint64),
            np.zeros((*kept, width), dtype=np.int64),
            np.zeros((*kept, 2), dtype=np.uint64),
        )

    @classmethod
    def of(cls, own: Experience, bits: int, *, random: bool) -> Totals:
        """The totals of agents with this experience."""
        _, H, S, A, width = own.transitions.shape
        totals = cls.zero((H, S, A), width, random=random)
        _add_up(own, bits, totals)
        return totals


def counted(own: Experience, rule: UpdateRule) -> NewCounts:
    """All that agents have counted, to be added to a table."""
    now = Totals.of(own, rule.grid.bits, random=rule.random_rewards)
    return _difference(now, Totals._make(np.zeros_like(array) for array in now), own.successors)


def _difference(now: Totals, known: Totals, successors: IndexArray) -> NewCounts:
    width = known.transitions.shape[3]
    moves = (now.transitions - known.transitions).reshape((-1, width))
    return NewCounts(
        np.flatnonzero(moves.any(axis=1)).astype(np.int32),
        successors,
        moves,
        _less(now.rewards, known.rewards),
        (now.paid - known.paid).reshape((-1, width)),
        _less(now.squares, known.squares),
    )


@dataclass
class IncrementAgents(CountingAgents):
    """Agents that report what the server does not know yet.

    Attributes:
        grid: of rewards.
        known: what was reported and confirmed.
        confirmed: ``(1,)``, how many synchronisations these agents know to be completed.
    """

    grid: Grid
    known: Totals
    confirmed: CountArray

    @classmethod
    def new(cls, setting: Setting, tables: FleetTables, rule: SynchronisationRule, grid: Grid) -> IncrementAgents:
        """No visits yet."""
        shape = (setting.horizon, setting.states, setting.actions)
        known = Totals.zero(shape, tables.successors.shape[3], random=setting.random_rewards)
        return cls(*no_counts(setting, tables, rule), grid, known, np.zeros(1, dtype=np.int64))

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        known: dict[str, Array] = {f"known_{name}": array for name, array in self.known._asdict().items()}
        return {**super().arrays(), **known, "confirmed": self.confirmed}

    def confirm(self, completed: int) -> None:
        """What was reported is known, if the server has completed a synchronisation since."""
        if completed > self.confirmed[0]:
            self.drop()
            self.confirmed[0] = completed

    def drop(self) -> None:
        for array, total in zip(self.known, self._totals(), strict=True):
            array[...] = total

    def _totals(self) -> Totals:
        return Totals.of(self.experience, self.grid.bits, random=len(self.known.paid) > 0)

    def new_counts(self) -> NewCounts:
        return _difference(self._totals(), self.known, self.experience.successors)

    def increments(self, new: NewCounts) -> Increments | IncrementsByState:
        """All transitions are listed."""
        H, S, A, _ = self.known.transitions.shape
        return increments_of(new, Support.full((H, S, A)), self.grid)

    def report(self, h: int, V_next: object) -> Increments | IncrementsByState:
        """The increments, whatever the server asks about."""
        return self.increments(self.new_counts())


def _less(now: WordArray, known: WordArray) -> WordArray:
    """Differences of numbers of two words, ``(cells, 2)``; 0 where they are negative, by the rounding of means."""
    borrow = now[..., 1] < known[..., 1]
    words = np.stack([now[..., 0] - known[..., 0] - borrow, now[..., 1] - known[..., 1]], axis=-1).reshape((-1, 2))
    words[words[:, 0] >> np.uint64(63) > 0] = 0
    return words


@compiled
def _add_up(own: Experience, bits: int, out: Totals) -> None:
    """Add the counts of all agents, and their rewards, agent by agent."""
    visits, transitions, _, rewards, sums = own
    m, steps, S, A, K = transitions.shape
    random = len(sums.by_slot) > 0
    for i in range(m):
        ir = i if rewards.shape[0] > 1 else 0
        for h in range(steps):
            hr = h if rewards.shape[1] > 1 else 0
            for s in range(S):
                for a in range(A):
                    n = visits[i, h, s, a]
                    if n == 0:
                        continue
                    z = (out.rewards[h, s, a, 0], out.rewards[h, s, a, 1])
                    for k in range(K):
                        out.transitions[h, s, a, k] += transitions[i, h, s, a, k]
                        if random:
                            out.paid[h, s, a, k] += sums.by_slot[i, h, s, a, k]
                            z = plus(z, (np.uint64(0), np.uint64(sums.by_slot[i, h, s, a, k])))
                    if random:
                        w, more = out.squares[h, s, a], sums.squares[i, h, s, a]
                        w[0], w[1] = plus((w[0], w[1]), (more[0], more[1]))
                    else:
                        z = plus(z, product(np.uint64(n), on_grid(rewards[ir, hr, s, a], bits)))
                    out.rewards[h, s, a, 0], out.rewards[h, s, a, 1] = z
