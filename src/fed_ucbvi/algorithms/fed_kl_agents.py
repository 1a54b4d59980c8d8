"""The agents of Fed-KL-UCBVI: what is new since their last confirmed report, and when they make requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fed_ucbvi.algorithms.base import Array, Budgets, Counting, FleetTables, Setting
from fed_ucbvi.algorithms.count_table import NewCounts
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus
from fed_ucbvi.algorithms.experience import Experience, no_experience
from fed_ucbvi.algorithms.synchronisation_rules import SynchronisationRule
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray


@dataclass
class Agents:
    """A fleet: what is new since its last confirmed report, added up over its agents.

    Attributes:
        shape: of a table by cell, ``(steps, S, A)``.
        tables: what the fleet was given.
        grid: of rewards.
        cells, number: the cells with new visits; the first ``number[0]`` count.
        visits, transitions, rewards: what is new, by cell: ``(cells,)``, ``(cells, K)`` and ``(cells, 2)``.
        paid: ``(cells,)``, the sum of random rewards that is already in ``rewards``, or was reported.
        confirmed: ``(1,)``, how many synchronisations these agents know to be completed; all that is new came later.
        own_visits: ``(m, steps, S, A)``, each agent's since the beginning, where the rule reads them and nobody else
            counts them; otherwise empty.
        rule: when agents request a synchronisation.
        budgets: the same for a round.
        experience: each agent's own counts since the beginning, where agents are not counted in one table.
        federation_size: M.
    """

    shape: tuple[int, int, int]
    tables: FleetTables
    grid: Grid
    cells: IndexArray
    number: CountArray
    visits: CountArray
    transitions: CountArray
    rewards: WordArray
    paid: CountArray
    confirmed: CountArray
    own_visits: CountArray
    rule: SynchronisationRule
    budgets: Budgets
    experience: Experience | None
    federation_size: int
    current: bool = False
    """Whether budgets are those of the last broadcast, but for where the last round went."""

    @classmethod
    def new(
        cls, setting: Setting, tables: FleetTables, counting: Counting, grid: Grid, rule: SynchronisationRule
    ) -> Agents:
        """No visits yet."""
        shape = counting.shape(setting.horizon, setting.states, setting.actions)
        cells, random = int(np.prod(shape)), len(tables.sums.by_slot) > 0
        rows, growth = 1 if rule.shared else tables.agents, float(rule.min_round_growth)
        alone = tables.touched is None
        return cls(
            (shape[0], shape[1], shape[2]),
            tables,
            grid,
            np.zeros(cells, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            np.zeros(cells, dtype=np.int64),
            np.zeros((cells, tables.successors.shape[3]), dtype=np.int64),
            np.zeros((cells, 2), dtype=np.uint64),
            np.zeros(cells if random else 0, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.zeros((0 if rule.shared or alone else rows, *shape), dtype=np.int64),
            rule,
            Budgets(np.ones((rows, *shape), dtype=np.int64), np.zeros(shape, dtype=np.int8), growth),
            _own_counts(setting, tables, stationary=shape[0] == 1 < setting.horizon) if alone else None,
            setting.agents,
        )

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        arrays: dict[str, Array] = {
            "cells": self.cells,
            "number": self.number,
            "new_visits": self.visits,
            "new_transitions": self.transitions,
            "new_rewards": self.rewards,
            "paid": self.paid,
            "confirmed": self.confirmed,
            "own": self.own_visits,
        }
        if self.experience is not None:
            own = self.experience
            arrays |= {"own_visits": own.visits, "own_transitions": own.transitions, "own_rewards": own.rewards}
        return arrays

    def confirm(self, completed: int) -> None:
        """Drop what was reported, if the server has completed a synchronisation since."""
        if completed > self.confirmed[0]:
            self.drop()
            self.confirmed[0] = completed

    def drop(self) -> None:
        _forget(self.cells[: self.number[0]], self.visits, self.transitions, self.rewards)
        self.number[0] = 0

    def plan_requests(self, N: CountArray) -> Budgets:
        """How many visits to (h,s,a) in the round make an agent request a synchronisation."""
        touched, limits = self.tables.touched, self.budgets.limits
        own = self.own_visits if self.experience is None else self.experience.visits
        if self.rule.shared:
            own = np.zeros(1, dtype=np.int64)
        if self.current and touched is not None:  # N has changed only where these agents were, as there are no others
            cells: IndexArray = touched.all_cells[: touched.number[0]]
            limits.reshape(-1)[cells] = self.rule.limits(own, N.reshape(-1)[cells], self.federation_size)
        else:
            limits[...] = self.rule.limits(own, N, self.federation_size)
            self.current = self.rule.shared and touched is not None and len(touched.cells) == self.federation_size
        self.current &= not self.number[0]  # else N is to change also where an earlier round went
        return self.budgets

    def absorb(self, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts."""
        tables, cells = self.tables, self.visits.size
        own_visits, touched = visits.reshape((len(visits), cells)), tables.touched
        if self.own_visits.size:
            self.own_visits += visits
        if touched is None:
            self._absorb_own(transitions, visits)
            moves, total = transitions.sum(axis=0).reshape((cells, -1)), own_visits.sum(axis=0)
            where: IndexArray = np.flatnonzero(total).astype(np.int32)
        else:
            moves, total = transitions.reshape((cells, -1)), touched.all_visits.reshape(cells)
            where = touched.all_cells[: touched.number[0]]
        paid, bits = (tables.rewards, tables.sums.by_slot, self.paid), self.grid.bits
        new = self.cells, self.number, self.visits, self.transitions, self.rewards
        _absorb(where, total, moves, own_visits, paid, bits, self.shape, new)

    def _absorb_own(self, transitions: CountArray, visits: CountArray) -> None:
        """Add the round to each agent's own counts, and to its mean rewards."""
        if self.experience is None:
            return
        own = self.experience
        total = own.visits + visits
        weight = np.divide(visits, total, out=np.zeros(total.shape), where=total > 0)
        own.rewards[...] += weight * (self.tables.rewards - own.rewards)
        own.visits[...] = total
        np.add(own.transitions, transitions, out=own.transitions, casting="unsafe")

    def new_counts(self) -> NewCounts:
        """What is new, as the server's table takes it."""
        return NewCounts(self.cells[: self.number[0]], self.tables.successors, self.transitions, self.rewards)


def _own_counts(setting: Setting, tables: FleetTables, *, stationary: bool) -> Experience:
    """Room for each agent's counts since the beginning, with mean rewards of its own."""
    own = no_experience(setting, tables, stationary=stationary)
    return own._replace(rewards=np.zeros(own.visits.shape))


@compiled
def _forget(cells: IndexArray, visits: CountArray, transitions: CountArray, rewards: WordArray) -> None:
    """Zeros in some cells."""
    for cell in cells:
        visits[cell] = 0
        for k in range(transitions.shape[1]):
            transitions[cell, k] = 0
        rewards[cell, 0], rewards[cell, 1] = 0, 0


@compiled
def _absorb(
    where: IndexArray,
    total: CountArray,
    moves: CountArray,
    own_visits: CountArray,
    paid_there: tuple[FloatArray, CountArray, CountArray],
    bits: int,
    sizes: tuple[int, int, int],
    new: tuple[IndexArray, CountArray, CountArray, CountArray, WordArray],
) -> None:
    """Add ``moves (cells, K)``, ``total (cells,)`` visits of all agents and what they paid, where the round went."""
    (rewards, by_slot, paid), (cells, number, visits, transitions, reward_sums) = paid_there, new
    _, S, A = sizes
    for cell in where:
        a, rest = np.int64(cell) % A, np.int64(cell) // A
        s, h = rest % S, rest // S
        if visits[cell] == 0:
            cells[number[0]] = cell
            number[0] += 1
        visits[cell] += total[cell]
        for k in range(moves.shape[1]):
            transitions[cell, k] += moves[cell, k]
        sums = (reward_sums[cell, 0], reward_sums[cell, 1])
        if len(by_slot) > 0:
            now = 0
            for i in range(len(by_slot)):
                for k in range(by_slot.shape[4]):
                    now += by_slot[i, h, s, a, k]
            sums = plus(sums, (np.uint64(0), np.uint64(now - paid[cell])))
            paid[cell] = now
        else:
            hr = h if rewards.shape[1] > 1 else 0
            if len(rewards) == 1:
                sums = plus(sums, product(np.uint64(total[cell]), on_grid(rewards[0, hr, s, a], bits)))
            else:
                for i in range(len(rewards)):
                    if own_visits[i, cell] > 0:
                        r = on_grid(rewards[i, hr, s, a], bits)
                        sums = plus(sums, product(np.uint64(own_visits[i, cell]), r))
        reward_sums[cell, 0], reward_sums[cell, 1] = sums
