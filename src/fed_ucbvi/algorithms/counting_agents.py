"""Agents whose counts are added up: the counts of a fleet, and the visits after which agents make requests.

The server uses nothing but sums over agents, so a fleet need not know which agent made which transition. Each agent's
own visits are kept only where its rule reads them. Work after a round is done only where the round has been.

Fed-UCBVI's agents keep all their counts, from which they answer the server's queries. Agents of a
:class:`~fed_ucbvi.algorithms.count_reporting.CountReporting` algorithm keep and report the counts that are new.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Budgets,
    Counting,
    FleetTables,
    Setting,
    VisitedCells,
)
from fed_ucbvi.algorithms.count_table import CountTable, NewCounts, add_rows
from fed_ucbvi.algorithms.counters import Counters, counter_type, pair_of
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus
from fed_ucbvi.algorithms.kernels import at_actions
from fed_ucbvi.algorithms.synchronisation_rules import Doubling, DoublingRule, global_limit, is_local, local_limit
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray


class RoundRewards(NamedTuple):
    """Rewards of a round, ``(m or 1, steps, S, A)``.

    Attributes:
        means: mean rewards by agent, or the reward itself.
        sums: exact sums of random rewards; no rows where rewards are not random.
        bits: those of the grid of sums.
    """

    means: FloatArray
    sums: CountArray
    bits: int


class CountingAgents:
    """A fleet whose counts are added up over its agents.

    Attributes:
        grid: of rewards.
        rule: the synchronisation rule, for ``federation_size`` agents in all.
        doubling: the numbers of the rule for compiled functions, if it is a doubling rule.
        asks: the budgets of a round.
        everyone: True if this fleet has all agents of the federation, so that nobody else adds to N.
        current: True if ``asks`` are those of the last broadcast, except where the last round went.
        table: counts of all agents of the fleet, since the beginning or since the last confirmed report.
        confirmed: ``(1,)``, the number of synchronisations that these agents know to be completed.
        own_visits: visits of each agent since the beginning; no rows where the rule does not read them.
    """

    def __init__(
        self, algorithm: Algorithm[Any, CountingAgents], setting: Setting, tables: FleetTables, grid: Grid
    ) -> None:
        counting = algorithm.counting
        if counting is Counting.STATIONARY:
            tables.check_stationary()
        H = setting.horizon
        S = setting.states
        A = setting.actions
        m = tables.agents
        rule = algorithm.synchronisation_rule(setting)
        alone = tables.touched is None
        asked = counting.shape(H, S, A)
        shape = (1 if counting is Counting.STATIONARY else H, S, A)
        counters = counter_type(setting, rows=m) if counting is Counting.POLICY and not alone else np.int64
        limits = np.ones((1 if rule.shared and not alone else m, *asked), dtype=counters)
        self.tables = tables
        self.grid = grid
        self.rule = rule
        self.federation_size = setting.agents
        self.doubling = (rule if isinstance(rule, DoublingRule) else DoublingRule()).numbers(setting.agents)
        self.asks = Budgets(limits, np.zeros(asked, dtype=np.int8), float(rule.min_round_growth))
        self.last_policy: IndexArray = np.full((H, S), -1, dtype=np.int32)
        self.everyone = m == setting.agents
        self.current = False
        self.table = CountTable.empty(*shape, tables.successors.shape[3], bits=grid.bits)
        self.confirmed: CountArray = np.zeros(1, dtype=np.int64)
        self.own_visits: Counters = np.zeros((0 if rule.shared else m, *shape), dtype=counters)
        cells = math.prod(shape)
        self._cells: IndexArray = np.zeros(cells, dtype=np.int32)
        self._sums = np.zeros((cells, 2), dtype=np.uint64)

    def arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {f"table_{name}": array for name, array in self.table._asdict().items()}
        return arrays | {"confirmed": self.confirmed, "own_visits": self.own_visits}

    # ----------------------------------------------------------------------------------------------- what is counted

    def absorb(self, policy: PolicyArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts, and set the budgets of the local rule where the agents have been."""
        if policy.ndim == 4:  # counts do not depend on levels
            policy = policy[0]
        touched = self.tables.touched
        by_cell = visits.reshape((len(visits), -1))
        if len(self.own_visits) and touched is None:
            self.own_visits[(slice(None), *at_actions(policy))] += visits
        elif len(self.own_visits) and touched is not None:
            _absorb_visits(policy, by_cell, touched, self.doubling, self.own_visits, self.asks)
        if touched is None:
            transitions = transitions if len(transitions) == 1 else transitions.sum(axis=0)
            total = by_cell.sum(axis=0)
            visited: IndexArray = np.flatnonzero(total).astype(np.int32)
        else:
            total = touched.all_visits.reshape(-1)
            visited = touched.all_cells[: touched.number[0]]
        rewards = RoundRewards(self.tables.rewards, self.tables.reward_sums, self.grid.bits)
        new = NewCounts(
            cells=self._cells[: len(visited)],
            rows=visited,
            successors=self.tables.successors,
            transitions=transitions.reshape((-1, transitions.shape[-1])),
            rewards=self._sums,
        )
        _add_round(policy, total, by_cell, rewards, new, self.table)

    def confirm(self, completed: int) -> None:
        """Drop the reported counts, if the server has completed a synchronisation since."""
        if completed > self.confirmed[0]:
            self.table.clear()
            self.confirmed[0] = completed

    # ------------------------------------------------------------------------------------------------- when they ask

    def budgets(self, policy: PolicyArray, N: CountArray) -> Budgets:
        """Visits in a round with this policy after which an agent requests a synchronisation.

        Called after every round, so that little has changed. Where agents are counted in one table and the local rule
        stays in force, :meth:`absorb` has set the budgets already.
        """
        touched = self.tables.touched
        own = self.own_visits
        if policy.ndim > 2:
            self._update_limits(touched, np.zeros(1, dtype=np.int64) if self.rule.shared else own, N)
        elif touched is not None and isinstance(self.rule, DoublingRule):
            everywhere: IndexArray = np.arange(policy.size, dtype=np.int32)
            changed = touched.all_cells[: touched.number[0]] if self.everyone else everywhere
            _update_budgets(own, N, policy, self.doubling, self.last_policy, changed, self.asks)
        else:
            at = at_actions(policy)
            total = N[at]
            mine = total * 0 if self.rule.shared else own[(slice(None), *at)]
            self.asks.limits[...] = self.rule.limits(mine, total, self.federation_size)
            self.asks.rule[...] = self.rule.kinds(total)
        return self.asks

    def _update_limits(self, touched: VisitedCells | None, own: Counters, N: CountArray) -> None:
        limits = self.asks.limits
        if self.current and touched is not None:  # N has changed only where these agents were, as there are no others
            cells: IndexArray = touched.all_cells[: touched.number[0]]
            limits.reshape(-1)[cells] = self.rule.limits(own, N.reshape(-1)[cells], self.federation_size)
        else:
            limits[...] = self.rule.limits(own, N, self.federation_size)
            self.current = self.rule.shared and self.everyone and touched is not None
        self.current &= self.table.is_empty  # else N is to change also where an earlier round went


# ------------------------------------------------------------------------------------------------------- compiled


@compiled
def _add_round(
    policy: PolicyArray,
    total: CountArray,
    own: CountArray,
    rewards: RoundRewards,
    new: NewCounts,
    table: CountTable,
) -> None:
    """Add a round to a table that has room for it.

    Fills ``new.cells`` and ``new.rewards`` for the visited cells, whose numbers are ``new.rows``. ``total (P,)`` are
    the visits of all agents together, and ``own (m, P)`` those of each.
    """
    means = rewards.means
    sums = rewards.sums
    _, _, S, A = means.shape
    for j in range(len(new.rows)):
        place = new.rows[j]
        h, s, a = pair_of(place, policy, S, A)
        new.cells[j] = (h * S + s) * A + a

        # The exact sum of the rewards of these visits.
        z = (np.uint64(0), np.uint64(0))
        if len(sums) > 0:
            for i in range(len(sums)):
                if len(sums) == 1 or own[i, place] > 0:
                    z = plus(z, (np.uint64(0), np.uint64(sums[i, h, s, a])))
        else:
            for i in range(len(means)):
                n = total[place] if len(means) == 1 else own[i, place]
                if n > 0:
                    z = plus(z, product(np.uint64(n), on_grid(reward_at(i, h, s, a, means), rewards.bits)))
        new.rewards[place, 0] = z[0]
        new.rewards[place, 1] = z[1]
    add_rows(0, new, table)


@compiled
def _absorb_visits(
    policy: PolicyArray, visits: CountArray, touched: VisitedCells, rule: Doubling, kept: Counters, asks: Budgets
) -> None:
    """Add the round's ``visits (m, P)`` to each agent's own, and set its budget where the local rule is in force."""
    m, P = visits.shape
    A = kept.shape[3]
    actions = policy.ravel()
    own = kept.reshape((m, -1))
    budgets = asks.limits.reshape((m, P))
    rules = asks.rule.reshape(P)
    for i in range(m):
        for j in range(touched.numbers[i]):
            cell = touched.cells[i, j]
            pair = cell * A + actions[cell] if policy.ndim == 2 else cell
            seen = own[i, pair] + visits[i, cell]
            own[i, pair] = seen
            if rules[cell] == 0:
                budgets[i, cell] = local_limit(seen, rule)


@compiled
def _update_budgets(
    kept: Counters,
    N: CountArray,
    policy: IndexArray,
    rule: Doubling,
    last_policy: IndexArray,
    changed: IndexArray,
    asks: Budgets,
) -> None:
    """Bring budgets by (h,s) up to date where policy or N has changed, but where the local rule stays in force.

    First find those cells, then go through the agents in the order of memory. By the global rule all agents have one
    budget, about N/M, so that it often stays the same while N grows.
    """
    H, S = policy.shape
    A = N.shape[2]
    P = H * S
    m = len(asks.limits)
    actions = policy.reshape(P)
    last = last_policy.reshape(P)
    counts = N.reshape(P * A)
    rules = asks.rule.reshape(P)
    budgets = asks.limits.reshape((m, P))
    own = kept.reshape((len(kept), P * A))
    cells = np.empty(P + len(changed), dtype=np.int64)
    number = 0
    for cell in range(P):
        if last[cell] != actions[cell]:
            last[cell] = actions[cell]
            cells[number] = cell
            number += 1
    for j in range(len(changed)):
        there = np.int64(changed[j])
        n = counts[there * A + actions[there]]
        stays = rules[there] == (0 if is_local(n, rule) else 1)
        if stays and rules[there] == 1:
            stays = budgets[0, there] == global_limit(n, rule)
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
