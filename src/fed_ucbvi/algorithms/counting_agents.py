"""Agents whose counts are added up: what is new since a fleet's last confirmed report, and when agents make requests.

The server uses nothing but sums over agents, so a fleet need not know which agent made which transition. Each agent's
own visits are kept where its rule reads them, and all its counts where somebody plans from them. Only what a round
has touched costs time.

Fed-KL-UCBVI, and Fed-UCBVI under secure sums, report what is new (:class:`Counted`). A simulation of Fed-UCBVI keeps
all of it in a table, from which the paper's messages are derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import (
    SUMS,
    Algorithm,
    Array,
    Budgets,
    Counting,
    FleetTables,
    Message,
    RewardSums,
    Setting,
    VisitedCells,
    added_up,
)
from fed_ucbvi.algorithms.count_table import CountTable, NewCounts, add_rows, listed_counts
from fed_ucbvi.algorithms.exact_sums import Grid, minus, on_grid, plus
from fed_ucbvi.algorithms.experience import Counters, Experience, counter_type, no_experience, pair_of
from fed_ucbvi.algorithms.increments import Increments, IncrementsByState, increments_of
from fed_ucbvi.algorithms.kernels import at_actions
from fed_ucbvi.algorithms.support import Support
from fed_ucbvi.algorithms.synchronisation_rules import (
    Doubling,
    DoublingRule,
    SynchronisationRule,
    global_limit,
    is_local,
    local_limit,
)
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray, WordArray


@dataclass
class CountingAgents:
    """A fleet whose counts are added up over its agents.

    Attributes:
        shape: of a table by (h,s,a), ``(steps, S, A)``.
        tables: what the fleet was given.
        grid: of rewards.
        new: what is new; the first ``number[0]`` of its cells count.
        taken: what of the sums of random rewards was taken in: by slot ``(cells, K)``, and squares ``(cells, 2)``.
        confirmed: ``(1,)``, how many synchronisations these agents know to be completed; all that is new came later.
        table: all counts since the beginning, where the paper's messages are derived from them; nothing is new then.
        experience: each agent's own counts since the beginning, where agents are not counted in one table.
        own_visits: ``(m, steps, S, A)``, otherwise, if the rule reads them.
        rule: when agents request a synchronisation, for ``federation_size`` agents in all.
        doubling: the same for compiled functions, if it is a doubling rule.
        asks: the same for a round.
        last_policy: of the round before.
        last_counts: N by (h,s) as it was before the last round, where others than these agents add to it.
        current: whether ``asks`` are those of the last broadcast, but for where the last round went.
    """

    shape: tuple[int, int, int]
    tables: FleetTables
    grid: Grid
    new: NewCounts
    number: CountArray
    taken: tuple[CountArray, WordArray]
    confirmed: CountArray
    table: CountTable | None
    experience: Experience | None
    own_visits: Counters
    rule: SynchronisationRule
    federation_size: int
    doubling: Doubling
    asks: Budgets
    last_policy: IndexArray
    last_counts: CountArray
    current: bool = False

    @classmethod
    def new_fleet(
        cls,
        setting: Setting,
        tables: FleetTables,
        counting: Counting,
        grid: Grid,
        rule: SynchronisationRule,
        *,
        by_slot: bool = False,
        keep_all: bool = False,
    ) -> CountingAgents:
        """No visits yet; rewards are kept ``by_slot``, and all counts in a table, where that is said."""
        H, S, A = setting.horizon, setting.states, setting.actions
        m, K, alone = tables.agents, tables.successors.shape[3], tables.touched is None
        steps, asked = 1 if counting is Counting.STATIONARY else H, counting.shape(H, S, A)
        cells, random = steps * S * A, len(tables.sums.by_slot) > 0
        kept, rows = cells if by_slot else 0, 1 if rule.shared else m
        counters = counter_type(setting, rows=m) if counting is Counting.POLICY and not alone else np.int64
        experience = no_experience(setting, tables, stationary=steps < H) if alone else None
        return cls(
            (steps, S, A),
            tables,
            grid,
            NewCounts(
                np.zeros(cells, dtype=np.int32),
                tables.successors,
                np.zeros((cells, K), dtype=np.int64),
                np.zeros((cells, 2), dtype=np.uint64),
                np.zeros((kept, K), dtype=np.int64),
                np.zeros((kept, 2), dtype=np.uint64),
            ),
            np.zeros(1, dtype=np.int64),
            (np.zeros((cells * random, K), dtype=np.int64), np.zeros((kept * random, 2), dtype=np.uint64)),
            np.zeros(1, dtype=np.int64),
            CountTable.empty(steps, S, A, K, bits=grid.bits, by_slot=by_slot) if keep_all else None,
            None if experience is None else experience._replace(rewards=np.zeros(experience.visits.shape)),
            np.zeros((0 if rule.shared or alone else m, steps, S, A), dtype=counters),
            rule,
            setting.agents,
            (rule if isinstance(rule, DoublingRule) else DoublingRule()).numbers(setting.agents),
            Budgets(np.ones((rows, *asked), counters), np.zeros(asked, np.int8), float(rule.min_round_growth)),
            np.full((H, S), -1, dtype=np.int32),
            np.zeros((H, S) if m < setting.agents else (0,), dtype=np.int64),
        )

    def arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {"own": self.own_visits, "taken": self.taken[0], "taken_squares": self.taken[1]}
        if self.table is not None:
            return arrays | self.table._asdict()
        arrays |= {f"new_{name}": array for name, array in self.new._asdict().items() if name != "successors"}
        arrays |= {"number": self.number, "confirmed": self.confirmed}
        if self.experience is not None:
            own = self.experience
            arrays |= {"own_visits": own.visits, "own_transitions": own.transitions, "own_rewards": own.rewards}
        return arrays

    # ----------------------------------------------------------------------------------------------- what is counted

    def absorb(self, policy: PolicyArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts, and set the budgets of the local rule where the agents have been."""
        tables, bits = self.tables, self.grid.bits
        own, touched, rewards = visits.reshape((len(visits), -1)), tables.touched, tables.rewards
        if touched is None:
            self._absorb_own(policy, transitions, visits)
            summed = transitions[0] if len(transitions) == 1 else transitions.sum(axis=0)
            moves, total = summed.reshape((-1, transitions.shape[-1])), own.sum(axis=0)
            where: IndexArray = np.flatnonzero(total).astype(np.int32)
        else:
            moves, total = transitions.reshape((-1, transitions.shape[-1])), touched.all_visits.reshape(-1)
            where = touched.all_cells[: touched.number[0]]
            if self.own_visits.size:
                limits, kinds, _ = self.asks
                _absorb_visits(
                    policy, own, touched.cells, touched.numbers, self.doubling, self.own_visits, limits, kinds
                )
        if self.table is not None and not len(tables.sums.by_slot):
            cells, others, _, amounts, paid, squares = self.new
            cells = cells[: len(where)]
            _list_payments(policy, where, total, own, rewards, bits, cells, amounts)
            add_rows(0, cells, where, others, moves, amounts, paid, squares, *self.table[:-1])  # there is room
            return
        _absorb(policy, where, total, moves, own, (rewards, tables.sums, *self.taken), bits, self.number, self.new)
        if self.table is not None:
            self.table = self.table.plus(self.new_counts())
            self.drop()

    def _absorb_own(self, policy: PolicyArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round to each agent's own counts, and to its mean rewards."""
        if self.experience is None:
            return
        own, been = self.experience, np.nonzero(visits)
        at = been if policy.ndim > 2 else (*been, policy[been[1:]])
        total = own.visits[at] + visits[been]
        weight = visits[been] / total
        own.rewards[at] += weight * (np.broadcast_to(self.tables.rewards, own.rewards.shape)[at] - own.rewards[at])
        own.visits[at] = total
        own.transitions[at] += transitions[been]

    def confirm(self, completed: int) -> None:
        """Drop what was reported, if the server has completed a synchronisation since."""
        if completed > self.confirmed[0]:
            self.drop()
            self.confirmed[0] = completed

    def drop(self) -> None:
        _forget(self.number, self.new)

    def new_counts(self) -> NewCounts:
        """What is new, as a table takes it."""
        return self.new._replace(cells=self.new.cells[: self.number[0]])

    # ------------------------------------------------------------------------------------------------- when they ask

    def budgets(self, policy: PolicyArray, N: CountArray) -> Budgets:
        """How many visits in a round with this policy make an agent request a synchronisation.

        Called after every round, so that little has changed. Where agents are counted in one table and the local rule
        stays in force, :meth:`absorb` has set the budgets already.
        """
        touched = self.tables.touched
        own = self.own_visits if self.experience is None else self.experience.visits
        if policy.ndim == 2 and touched is not None and isinstance(self.rule, DoublingRule):
            cells, (limits, kinds, _) = self._changed(touched, policy, N), self.asks
            _update_budgets(self.own_visits, N, policy, self.doubling, self.last_policy, cells, limits, kinds)
        elif policy.ndim == 2:
            fill_budgets(self.rule, own, N, policy, self.federation_size, self.asks)
        else:
            self._update_limits(touched, np.zeros(1, dtype=np.int64) if self.rule.shared else own, N)
        return self.asks

    def _changed(self, touched: VisitedCells, policy: IndexArray, N: CountArray) -> IndexArray:
        """Where N may have changed by (h,s): where these agents were in the last round, if there are no others.

        N changes also where only agents of other fleets have been.
        """
        if not self.last_counts.size:
            return touched.all_cells[: touched.number[0]]
        counts = N[at_actions(policy)]
        cells = np.flatnonzero(counts != self.last_counts).astype(np.int32)
        self.last_counts[...] = counts
        return cells

    def _update_limits(self, touched: VisitedCells | None, own: Counters, N: CountArray) -> None:
        limits = self.asks.limits
        if self.current and touched is not None:  # N has changed only where these agents were, as there are no others
            cells: IndexArray = touched.all_cells[: touched.number[0]]
            limits.reshape(-1)[cells] = self.rule.limits(own, N.reshape(-1)[cells], self.federation_size)
        else:
            limits[...] = self.rule.limits(own, N, self.federation_size)
            self.current = self.rule.shared and touched is not None and len(touched.cells) == self.federation_size
        self.current &= not self.number[0]  # else N is to change also where an earlier round went


def fill_budgets(
    rule: SynchronisationRule, own: Counters, N: CountArray, policy: IndexArray, agents: int, out: Budgets
) -> None:
    """Budgets by (h,s), those of the policy's actions; ``own (m,H,S,A)`` are each agent's visits."""
    at = at_actions(policy)
    total = N[at]
    mine = total * 0 if rule.shared else own[(slice(None), *at)]
    out.limits[...], out.rule[...] = rule.limits(mine, total, agents), rule.kinds(total)


# -------------------------------------------------------------------------------------------------- the algorithms


class Confirmed(NamedTuple):
    """Down, before a report: how many synchronisations the server has completed, ``[1]``."""

    confirmed: CountArray


class CountedBroadcast(NamedTuple):
    """Down, at the start of a round: the policy, N ``[H or 1,S,A]``, and what :class:`Confirmed` says."""

    policy: PolicyArray
    N: CountArray
    confirmed: CountArray


ServerT = TypeVar("ServerT", bound=Any)
"""A server that keeps all counts in a ``table``, whose ``update`` makes values and policy, its estimates, from it."""


class Counted(Algorithm[ServerT, CountingAgents], Generic[ServerT]):
    """An algorithm whose agents report what is new, once a synchronisation, and whose server keeps all counts.

    Reports are sums of integers, so it does not matter how agents are grouped. The server says how many
    synchronisations it has completed, ``updates`` of its estimates. What agents counted while they knew of fewer was
    part of one of them.
    """

    report_kind: ClassVar[str] = SUMS
    asks_to_plan: ClassVar[bool] = True
    server_counts: ClassVar[bool] = True

    @property
    def pools(self) -> bool:
        """All visits count alike."""
        return True

    def new_agents(self, setting: Setting, tables: FleetTables) -> CountingAgents:
        if self.counting is Counting.STATIONARY:
            tables.check_stationary()
        grid, rule = self.grid(setting), self.synchronisation_rule(setting)
        assert grid is not None
        by_slot = setting.random_rewards and self.rewards_by_state
        return CountingAgents.new_fleet(setting, tables, self.counting, grid, rule, by_slot=by_slot)

    def broadcast(self, server: ServerT) -> Message:
        return CountedBroadcast(server.policy, server.table.visits, server.estimates.updates)

    def budgets(self, agents: CountingAgents, broadcast: Message) -> Budgets:
        """Visits of a round after which an agent requests a synchronisation."""
        policy, N, completed = broadcast
        agents.confirm(int(completed[0]))
        return agents.budgets(policy, N)

    def settle_report(self, agents: CountingAgents, broadcast: Message, *, used: bool) -> None:
        """Drop what was used, and nothing else, however many synchronisations the server has completed since."""
        if used:
            agents.drop()
        agents.confirmed[:] = broadcast[2]

    def absorb(self, agents: CountingAgents, policy: Any, transitions: CountArray, visits: CountArray) -> None:
        agents.absorb(policy, transitions, visits)

    def experience_of(self, agents: CountingAgents) -> Experience | None:
        return agents.experience

    def query(self, server: ServerT, exchange: int) -> Confirmed:
        return Confirmed(server.estimates.updates)

    def new_counts(self, agents: CountingAgents, query: Message) -> NewCounts:
        """What is new. It stays new until the server has confirmed it; an empty query confirms nothing."""
        if query:
            agents.confirm(int(query[0][0]))
        return agents.new_counts()

    def add_counts(self, server: ServerT, new: NewCounts) -> None:
        server.table = server.table.plus(new)
        server.update()

    def report(self, agents: CountingAgents, query: Message, exchange: int) -> Increments | IncrementsByState:
        return increments_of(self.new_counts(agents, query), Support.full(agents.shape), agents.grid)

    def aggregate(self, server: ServerT, report: Message, exchange: int) -> None:
        steps, S, A = server.table.visits.shape
        self.add_counts(server, listed_counts(Support.full((steps, S, A)), server.grid, *added_up(report)))

    def synchronise(self, server: ServerT, agents: CountingAgents, setting: Setting) -> None:
        """Synchronise from the table of counts, without messages."""
        self.add_counts(server, self.new_counts(agents, self.query(server, 0)))

    def counts_of(self, server: ServerT, agents: CountingAgents | None) -> CountTable:
        """What the server knows, and what is new to it."""
        table: CountTable = server.table.copy()
        if agents is None:
            return table
        agents.confirm(int(server.estimates.updates[0]))
        return table.plus(agents.new_counts())

    def start_from(self, server: ServerT, counts: CountTable) -> None:
        """As if the counts had been reported."""
        server.table = server.table.merge(counts)
        server.update()


# ------------------------------------------------------------------------------------------------------- compiled


Payments = tuple[FloatArray, RewardSums, CountArray, WordArray]
"""Rewards or, where they are random, sums of them, and what of these was taken in."""


@compiled
def _forget(number: CountArray, new: NewCounts) -> None:
    cells, _, transitions, rewards, paid, squares = new
    for j in range(number[0]):
        cell = cells[j]
        for k in range(transitions.shape[1]):
            transitions[cell, k] = 0
            if len(paid) > 0:
                paid[cell, k] = 0
        rewards[cell, 0], rewards[cell, 1] = 0, 0
        if len(paid) > 0:
            squares[cell, 0], squares[cell, 1] = 0, 0
    number[0] = 0


@compiled
def _absorb(
    policy: PolicyArray,
    where: IndexArray,
    total: CountArray,
    moves: CountArray,
    own: CountArray,
    payments: Payments,
    bits: int,
    number: CountArray,
    new: NewCounts,
) -> None:
    """Add ``moves (P, K)``, ``total (P,)`` visits of all agents and what they paid, where the round went."""
    rewards, (by_slot, of_squares), taken, taken_squares = payments
    cells, _, transitions, reward_sums, paid, squares = new
    S, A = rewards.shape[2:]
    for place in where:
        h, s, a = pair_of(place, policy, S, A)
        cell = (h * S + s) * A + a
        before = 0
        for k in range(moves.shape[1]):
            before += transitions[cell, k]
            transitions[cell, k] += moves[place, k]
        if before == 0:
            cells[number[0]] = cell
            number[0] += 1
        z = (reward_sums[cell, 0], reward_sums[cell, 1])
        if len(by_slot) > 0:
            for k in range(moves.shape[1]):
                now = 0
                for i in range(len(by_slot)):
                    now += by_slot[i, h, s, a, k]
                more = now - taken[cell, k]
                taken[cell, k] = now
                z = plus(z, (np.uint64(0), np.uint64(more)))
                if len(paid) > 0:
                    paid[cell, k] += more
            if len(squares) > 0:
                known, w = (taken_squares[cell, 0], taken_squares[cell, 1]), (np.uint64(0), np.uint64(0))
                for i in range(len(of_squares)):
                    w = plus(w, (of_squares[i, h, s, a, 0], of_squares[i, h, s, a, 1]))
                taken_squares[cell, 0], taken_squares[cell, 1] = w
                w = plus(minus(w, known), (squares[cell, 0], squares[cell, 1]))
                squares[cell, 0], squares[cell, 1] = w
        else:
            z = plus(z, _paid(place, (h, s, a), total, own, rewards, bits))
        reward_sums[cell, 0], reward_sums[cell, 1] = z


@inner
def _paid(
    place: int, pair: tuple[int, int, int], total: CountArray, own: CountArray, rewards: FloatArray, bits: int
) -> tuple[np.uint64, np.uint64]:
    """What the visits of a round to one of its cells paid, where rewards are not random."""
    (h, s, a), z = pair, (np.uint64(0), np.uint64(0))
    for i in range(len(rewards)):
        n = total[place] if len(rewards) == 1 else own[i, place]
        if n > 0:
            z = plus(z, product(np.uint64(n), on_grid(reward_at(i, h, s, a, rewards), bits)))
    return z


@compiled
def _list_payments(
    policy: PolicyArray,
    where: IndexArray,
    total: CountArray,
    own: CountArray,
    rewards: FloatArray,
    bits: int,
    cells: IndexArray,
    amounts: WordArray,
) -> None:
    """The number of each cell of a round by (h,s,a), and in its row of ``amounts`` what it paid."""
    S, A = rewards.shape[2:]
    for j in range(len(where)):
        pair = pair_of(where[j], policy, S, A)
        cells[j] = (pair[0] * S + pair[1]) * A + pair[2]
        amounts[where[j], 0], amounts[where[j], 1] = _paid(where[j], pair, total, own, rewards, bits)


@compiled
def _absorb_visits(
    policy: PolicyArray,
    visits: CountArray,
    cells: IndexArray,
    numbers: CountArray,
    rule: Doubling,
    own_visits: Counters,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Add the round's ``visits (m, P)`` to each agent's own, and set its budget where the local rule is in force."""
    (m, P), A = visits.shape, own_visits.shape[3]
    own, budgets, rules, actions = own_visits.reshape((m, -1)), out.reshape((m, P)), which.reshape(P), policy.ravel()
    for i in range(m):
        for j in range(numbers[i]):
            cell = cells[i, j]
            pair = cell * A + actions[cell] if policy.ndim == 2 else cell
            seen = own[i, pair] + visits[i, cell]
            own[i, pair] = seen
            if rules[cell] == 0:
                budgets[i, cell] = local_limit(seen, rule)


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
