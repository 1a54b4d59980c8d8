"""Fed-UCBVI's agents in a simulation: one table of transition counts for all of them.

The server uses nothing but sums over agents, so a simulation need not know which agent made which transition. Each
agent's own visits are kept where the local rule reads them. Only what a round has touched costs time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, RewardSums, Setting, VisitedCells
from fed_ucbvi.algorithms.count_table import CountTable, insert_slot, note_visit, slot_of
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus
from fed_ucbvi.algorithms.experience import Counters, counter_type, pair_of
from fed_ucbvi.algorithms.fed_ucbvi_agents import fill_budgets, no_budgets
from fed_ucbvi.algorithms.fed_ucbvi_server import Server
from fed_ucbvi.algorithms.fed_ucbvi_sums import Sums
from fed_ucbvi.algorithms.fed_ucbvi_table import induct, report_of
from fed_ucbvi.algorithms.synchronisation_rules import (
    Doubling,
    DoublingRule,
    SynchronisationRule,
    global_limit,
    is_local,
    local_limit,
)
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray


@dataclass
class PooledAgents:
    """A fleet whose transitions are counted together.

    ``own_visits (m, steps, S, A)`` are each agent's, where the rule reads them; otherwise there are none.
    """

    horizon: int
    table: CountTable
    tables: FleetTables
    own_visits: Counters
    grid: Grid
    asks: Budgets
    rule: SynchronisationRule
    numbers: Doubling
    last_policy: IndexArray
    last_counts: CountArray
    """N by cell as it was before the last round, where others than these agents add to it; otherwise empty."""
    touched: VisitedCells

    @classmethod
    def new(
        cls,
        setting: Setting,
        tables: FleetTables,
        rule: SynchronisationRule,
        grid: Grid,
        touched: VisitedCells,
    ) -> PooledAgents:
        """No visits yet."""
        m, H, S, A = tables.agents, setting.horizon, setting.states, setting.actions
        width = tables.successors.shape[3]
        table = CountTable.empty(H, S, A, width, bits=grid.bits, by_slot=len(tables.sums.by_slot) > 0)
        counters = counter_type(setting, rows=m)
        doubling = rule if isinstance(rule, DoublingRule) else DoublingRule()
        return cls(
            H,
            table,
            tables,
            np.zeros((0 if rule.shared else m, H, S, A), dtype=counters),
            grid,
            no_budgets(setting, 1 if rule.shared else m, rule, counters),
            rule,
            doubling.numbers(setting.agents),
            np.full((H, S), -1, dtype=np.int32),
            np.zeros((H, S) if m < setting.agents else (0,), dtype=np.int64),
            touched,
        )

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return {"own_visits": self.own_visits, **self.table._asdict()}

    def budgets(self, policy: IndexArray, N: CountArray) -> Budgets:
        """Budgets for a round with this policy; called after every round, so that little has changed.

        Where the local rule stays in force, :meth:`absorb` has set the budgets already.
        """
        cells, (limits, kinds, _) = self._changed(policy, N), self.asks
        if isinstance(self.rule, DoublingRule):
            _update_budgets(self.own_visits, N, policy, self.numbers, self.last_policy, cells, limits, kinds)
        else:
            fill_budgets(self.rule, self.own_visits, N, policy, self.numbers.agents, self.asks)
        return self.asks

    def _changed(self, policy: IndexArray, N: CountArray) -> IndexArray:
        """Places where N may have changed: where these agents were in the last round, if there are no others.

        N changes also where only agents of other fleets have been.
        """
        if not self.last_counts.size:
            return self.touched.all_cells[: self.touched.number[0]]
        counts = np.take_along_axis(N, policy[:, :, None], axis=2)[:, :, 0]
        cells = np.flatnonzero(counts != self.last_counts).astype(np.int32)
        self.last_counts[...] = counts
        return cells

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts, and set the budgets of the local rule where the agents have been."""
        rows, K = len(visits), transitions.shape[-1]
        moves, seen = transitions.reshape((-1, K)), visits.reshape((rows, -1))
        tables = self.tables.successors, self.tables.rewards, self.tables.sums, self.touched
        counts = self.table, self.numbers, self.own_visits, self.asks.limits, self.asks.rule
        _absorb(policy, moves, seen, tables, self.grid.bits, *counts)

    def report(self, h: int, V_next: FloatArray) -> Sums:
        """The sum over all agents, as one row."""
        return report_of(self.table, h, V_next, self.grid)

    def synchronise(self, server: Server) -> None:
        """All exchanges in one compiled piece."""
        induct(self.table, server.rule, server.estimates)


@compiled
def _update_budgets(
    own_visits: Counters,
    N: CountArray,
    policy: IndexArray,
    rule: Doubling,
    last_policy: IndexArray,
    changed: IndexArray,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Bring budgets by (h,s) up to date where policy or N has changed, but where the local rule stays in force.

    First find those cells, then go through the agents in the order of memory. By the global rule all agents have one
    budget, about N/M, so that it often stays the same while N grows.
    """
    (H, S), A = policy.shape, N.shape[2]
    P, m = H * S, len(out)
    actions, last, counts = policy.reshape(P), last_policy.reshape(P), N.reshape(P * A)
    rules, budgets, own = which.reshape(P), out.reshape((m, P)), own_visits.reshape((len(own_visits), P * A))
    cells, number = np.empty(P + len(changed), dtype=np.int64), 0
    for cell in range(P):
        if last[cell] != actions[cell]:
            last[cell] = actions[cell]
            cells[number] = cell
            number += 1
    for j in range(len(changed)):
        there = np.int64(changed[j])
        n = counts[there * A + actions[there]]
        if not is_local(n, rule):
            stays = rules[there] == 1 and budgets[0, there] == global_limit(n, rule)
        else:
            stays = rules[there] == 0
        if not stays:
            cells[number] = there
            number += 1
    shared = np.empty(number, dtype=np.int64)
    for j in range(number):
        there = cells[j]
        n = counts[there * A + actions[there]]
        rules[there] = 0 if is_local(n, rule) else 1
        shared[j] = 0 if rules[there] == 0 else global_limit(n, rule)
    for i in range(m):
        for j in range(number):
            there = cells[j]
            if shared[j] > 0:
                budgets[i, there] = shared[j]
            else:
                budgets[i, there] = local_limit(own[i, there * A + actions[there]], rule)


@inner
def _absorb_own(
    policy: IndexArray,
    visits: CountArray,
    touched: VisitedCells,
    rule: Doubling,
    own_visits: Counters,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Add the round's ``visits (m, P)`` to each agent's own, and set its budget where the local rule is in force."""
    (m, P), A = visits.shape, own_visits.shape[3]
    own, budgets, rules, actions = own_visits.reshape((m, -1)), out.reshape((m, P)), which.reshape(P), policy.ravel()
    cells, numbers, _, _, _ = touched
    for i in range(m):
        for j in range(numbers[i]):
            cell = cells[i, j]
            pair = cell * A + actions[cell]
            seen = own[i, pair] + visits[i, cell]
            own[i, pair] = seen
            if rules[cell] == 0:
                budgets[i, cell] = local_limit(seen, rule)


@compiled
def _absorb(
    policy: IndexArray,
    transitions: CountArray,
    visits: CountArray,
    tables: tuple[IndexArray, FloatArray, RewardSums, VisitedCells],
    bits: int,
    table: CountTable,
    rule: Doubling,
    own_visits: Counters,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Add the round's counts; ``transitions`` is ``(P, K)``, ``visits`` ``(m, P)``."""
    supports, rewards, sums, touched = tables
    if own_visits.size > 0:
        _absorb_own(policy, visits, touched, rule, own_visits, out, which)
    pooled_visits, pooled, successors, seen, reward_sums, states, numbers, fresh, paid, squares, _ = table
    cells, own_numbers, all_cells, number, all_visits = touched
    (_, S, A, _), K, together = pooled.shape, transitions.shape[1], all_visits.reshape(len(transitions))
    for i in range(len(visits) if rewards.shape[0] > 1 else 0):
        for j in range(own_numbers[i]):
            cell = cells[i, j]
            h, s, a = pair_of(cell, policy, S, A)
            r = on_grid(rewards[i, h if rewards.shape[1] > 1 else 0, s, a], bits)
            z = (reward_sums[h, s, a, 0], reward_sums[h, s, a, 1])
            reward_sums[h, s, a, 0], reward_sums[h, s, a, 1] = plus(z, product(np.uint64(visits[i, cell]), r))
    for j in range(number[0]):
        cell = all_cells[j]
        h, s, a = pair_of(cell, policy, S, A)
        hk = h if supports.shape[0] > 1 else 0
        note_visit(h, s, a, pooled_visits, states, numbers, fresh)
        pooled_visits[h, s, a] += together[cell]
        for k in range(K):
            if transitions[cell, k] > 0:
                to, slot = supports[hk, s, a, k], k
                if k >= seen[h, s, a] or successors[h, s, a, k] != to:  # supports are often ascending, too
                    slot = slot_of(to, successors[h, s, a], seen[h, s, a])
                if slot < 0:
                    slot = insert_slot(to, successors[h, s, a], pooled[h, s, a], seen[h, s, a])
                    seen[h, s, a] += 1
                pooled[h, s, a, slot] += transitions[cell, k]
        if len(paid) > 0:
            total = np.uint64(0)
            for k in range(K):
                paid[h, s, a, k] = 0
            for k in range(K):
                if sums.by_slot[0, h, s, a, k] > 0:
                    slot = slot_of(supports[hk, s, a, k], successors[h, s, a], seen[h, s, a])
                    paid[h, s, a, slot] = sums.by_slot[0, h, s, a, k]
                    total += np.uint64(sums.by_slot[0, h, s, a, k])
            reward_sums[h, s, a, 1] = total
            squares[h, s, a, 0], squares[h, s, a, 1] = sums.squares[0, h, s, a, 0], sums.squares[0, h, s, a, 1]
        elif rewards.shape[0] == 1:
            r = on_grid(rewards[0, h if rewards.shape[1] > 1 else 0, s, a], bits)
            z = (reward_sums[h, s, a, 0], reward_sums[h, s, a, 1])
            reward_sums[h, s, a, 0], reward_sums[h, s, a, 1] = plus(z, product(np.uint64(together[cell]), r))
