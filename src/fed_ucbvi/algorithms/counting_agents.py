"""Agents whose counts are added up: what a fleet has counted, or what of it is new, and when agents make requests.

The server uses nothing but sums over agents, so a fleet need not know which agent made which transition. Each agent's
own visits are kept where its rule reads them, and all its counts where agents are not counted in one table. Only what
a round has touched costs time.

Fed-UCBVI's agents keep all that they have counted, from which the paper's messages are derived. Fed-KL-UCBVI's, and
Fed-UCBVI's under secure sums, keep and report what is new (:class:`Counted`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Budgets,
    Counting,
    EstimatesT,
    FleetTables,
    Message,
    MessageSizes,
    RuleT,
    Setting,
    TableServer,
    VisitedCells,
    added_up,
)
from fed_ucbvi.algorithms.count_table import CountTable, add_rows
from fed_ucbvi.algorithms.exact_sums import Grid, minus, on_grid, plus
from fed_ucbvi.algorithms.experience import Counters, Experience, counter_type, no_experience, pair_of
from fed_ucbvi.algorithms.increments import Increments, IncrementsByState, Support, increments_of, listed_counts
from fed_ucbvi.algorithms.kernels import at_actions
from fed_ucbvi.algorithms.synchronisation_rules import Doubling, DoublingRule, global_limit, is_local, local_limit
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray, WordArray


class CountingAgents:
    """A fleet whose counts are added up over its agents.

    Attributes:
        grid: of rewards.
        rule: when agents request a synchronisation, for ``federation_size`` agents in all.
        doubling: the same for compiled functions, if it is a doubling rule.
        asks: the same for a round.
        everyone: whether there are no other agents, who add to N elsewhere.
        current: whether ``asks`` are those of the last broadcast, but for where the last round went.
        table: what all have counted together, since the beginning or since the last report that was confirmed.
        confirmed: ``(1,)``, how many synchronisations these agents know to be completed.
        experience: each agent's own counts since the beginning; where agents are counted in one table, nothing but
            their visits, and those only if the rule reads them.
        taken: what of the sums of random rewards is in the table: by slot ``(cells, K)``, and squares ``(cells, 2)``.
        round: room for what a round adds: cells, rewards, and rewards and squares by slot.
        out: room for what each agent reports by itself, where that is done.
    """

    def __init__(
        self, algorithm: Algorithm[Any, CountingAgents], setting: Setting, tables: FleetTables, grid: Grid
    ) -> None:
        counting = algorithm.counting
        rule = algorithm.synchronisation_rule(setting)
        if counting is Counting.STATIONARY:
            tables.check_stationary()
        H = setting.horizon
        S = setting.states
        A = setting.actions
        m = tables.agents
        K = tables.successors.shape[3]
        alone = tables.touched is None
        shape = (1 if counting is Counting.STATIONARY else H, S, A)
        asked = counting.shape(H, S, A)
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

        if alone:
            kept = no_experience(setting, tables, stationary=shape[0] < H)
            self.experience = kept._replace(rewards=np.zeros(kept.visits.shape))
        else:
            visits = np.zeros((0 if rule.shared else m, *shape), dtype=counters)
            none = np.zeros((0, *shape, K), dtype=counters), tables.successors, np.zeros((0, *shape))
            self.experience = Experience(visits, *none, tables.sums)
        by_slot = setting.random_rewards and algorithm.rewards_by_state
        self.table = CountTable.empty(*shape, K, bits=grid.bits, by_slot=by_slot)
        self.confirmed: CountArray = np.zeros(1, dtype=np.int64)
        cells = math.prod(shape)
        kept_by_slot = cells * by_slot
        random = cells * (len(tables.sums.by_slot) > 0)
        self.taken: tuple[CountArray, WordArray] = (
            np.zeros((random, K), dtype=np.int64),
            np.zeros((random * by_slot, 2), dtype=np.uint64),
        )
        self.round: Room = (
            np.zeros(cells, dtype=np.int32),
            np.zeros((cells, 2), dtype=np.uint64),
            np.zeros((kept_by_slot, K), dtype=np.int64),
            np.zeros((kept_by_slot, 2), dtype=np.uint64),
        )
        self.out: Any = None

    def arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {f"table_{name}": array for name, array in self.table._asdict().items()}
        arrays |= {"taken": self.taken[0], "taken_squares": self.taken[1], "confirmed": self.confirmed}
        own = self.experience
        return arrays | {"own_visits": own.visits, "own_transitions": own.transitions, "own_rewards": own.rewards}

    # ----------------------------------------------------------------------------------------------- what is counted

    def absorb(self, policy: PolicyArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts, and set the budgets of the local rule where the agents have been."""
        touched = self.tables.touched
        kept = self.experience.visits
        if touched is None:
            self.experience.absorb(policy, transitions, visits, self.tables.rewards)
        elif len(kept):
            _absorb_visits(policy, visits.reshape((len(visits), -1)), touched, self.doubling, kept, self.asks)
        if self.out is None:
            self._add_up(policy, transitions, visits, self.tables.rewards)

    def _add_up(self, policy: PolicyArray, transitions: CountArray, visits: CountArray, paid: FloatArray) -> None:
        """Add the counts of all agents to the table, which has room for them."""
        touched = self.tables.touched
        own = visits.reshape((len(visits), -1))
        if touched is None:
            transitions = transitions if len(transitions) == 1 else transitions.sum(axis=0)
            total = own.sum(axis=0)
            where: IndexArray = np.flatnonzero(total).astype(np.int32)
        else:
            where = touched.all_cells[: touched.number[0]]
            total = touched.all_visits.reshape(-1)
        moves = transitions.reshape((-1, transitions.shape[-1]))
        payments = (paid, *self.tables.sums, *self.taken)
        given = policy, where, total, own, payments, self.grid.bits, self.tables.successors, moves
        _add_round(*given, self.round, self.table[:-1])

    def counted(self) -> CountTable:
        """What all have counted together; where each reports by itself, it is added up now."""
        if self.out is not None:
            self.table.clear()
            for taken in self.taken:
                taken[...] = 0
            own = self.experience
            every = np.ones(self.table.visits.shape, dtype=np.bool_)
            self._add_up(every, own.transitions.astype(np.int64), own.visits.astype(np.int64), own.rewards)
        return self.table.copy()

    def confirm(self, completed: int) -> None:
        """Drop what was reported, if the server has completed a synchronisation since."""
        if completed > self.confirmed[0]:
            self.table.clear()
            self.confirmed[0] = completed

    # ------------------------------------------------------------------------------------------------- when they ask

    def budgets(self, policy: PolicyArray, N: CountArray) -> Budgets:
        """How many visits in a round with this policy make an agent request a synchronisation.

        Called after every round, so that little has changed. Where agents are counted in one table and the local rule
        stays in force, :meth:`absorb` has set the budgets already.
        """
        touched, own, (limits, kinds, _) = self.tables.touched, self.experience.visits, self.asks
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
            limits[...], kinds[...] = self.rule.limits(mine, total, self.federation_size), self.rule.kinds(total)
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


# -------------------------------------------------------------------------------------------------- the algorithms


@dataclass
class CountingServer(TableServer[EstimatesT, RuleT], ABC):
    """A server that makes its estimates from a ``table`` of all counts; ``updates`` of them count how often."""

    table: CountTable

    @abstractmethod
    def update(self) -> None:
        """Make values and policy from the table."""

    def planner(self, estimates: EstimatesT, rule: RuleT) -> Self:
        """One that plans by another rule from all counts; reports to it are added to a copy of them."""
        planner = replace(self, estimates=estimates, rule=rule, table=self.table.copy())
        planner.table.fresh[:] = True
        planner.update()
        planner.estimates.updates[:] = self.estimates.updates
        return planner

    def arrays(self) -> dict[str, Array]:
        return {**super().arrays(), **{f"table_{name}": array for name, array in self.table._asdict().items()}}

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have a table as wide as that which was saved."""
        self.table = self.table.widened(arrays["table_transitions"].shape[3])


ServerT = TypeVar("ServerT", bound=Any)
"""A :class:`CountingServer` with a ``grid``."""


class Counted(Algorithm[ServerT, CountingAgents], Generic[ServerT]):
    """An algorithm whose agents report what is new, once a synchronisation, and whose server keeps all counts.

    Reports are sums of integers, so it does not matter how agents are grouped. The server says how many
    synchronisations it has completed, ``updates`` of its estimates. What agents counted while they knew of fewer was
    part of one of them.
    """

    asks_to_plan: ClassVar[bool] = True
    server_counts: ClassVar[bool] = True
    pools = True  # all visits count alike

    def new_agents(self, setting: Setting, tables: FleetTables) -> CountingAgents:
        grid = self.grid(setting)
        assert grid is not None
        return CountingAgents(self, setting, tables, grid)

    def broadcast(self, server: ServerT) -> Message:
        """The policy, N ``[H or 1,S,A]``, and how many synchronisations the server has completed, ``[1]``."""
        return server.policy, server.table.visits, server.estimates.updates

    def budgets(self, agents: CountingAgents, broadcast: Message) -> Budgets:
        policy, N, completed = broadcast
        agents.confirm(int(completed[0]))
        return agents.budgets(policy, N)

    def settle_report(self, agents: CountingAgents, broadcast: Message, *, used: bool) -> None:
        """Drop what was used, and nothing else, however many synchronisations the server has completed since."""
        if used:
            agents.table.clear()
        agents.confirmed[:] = broadcast[2]

    def absorb(self, agents: CountingAgents, policy: Any, transitions: CountArray, visits: CountArray) -> None:
        agents.absorb(policy, transitions, visits)

    def query(self, server: ServerT, exchange: int) -> Message:
        """How many synchronisations it has completed."""
        return (server.estimates.updates,)

    def new_counts(self, agents: CountingAgents, query: Message) -> CountTable:
        """What is new. It stays new until the server has confirmed it; an empty query confirms nothing."""
        if query:
            agents.confirm(int(query[0][0]))
        return agents.table

    def add_counts(self, server: ServerT, new: CountTable) -> None:
        server.table = server.table.merge(new)
        server.update()

    def report(self, agents: CountingAgents, query: Message, exchange: int) -> Increments | IncrementsByState:
        return increments_of(self.new_counts(agents, query), Support.full(agents.table.visits.shape), agents.grid)

    def aggregate(self, server: ServerT, report: Message, exchange: int) -> None:
        support = Support.full(server.table.visits.shape)
        self.add_counts(server, listed_counts(support, server.grid, *added_up(report)))

    def synchronise(self, server: ServerT, agents: CountingAgents, setting: Setting) -> None:
        self.add_counts(server, self.new_counts(agents, self.query(server, 0)))

    def counts_of(self, server: ServerT, agents: CountingAgents | None) -> CountTable:
        """What the server knows, and what is new to it."""
        table: CountTable = server.table.copy()
        if agents is None:
            return table
        agents.confirm(int(server.estimates.updates[0]))
        return table.merge(agents.table)

    def start_from(self, server: ServerT, counts: CountTable) -> None:
        self.add_counts(server, counts)


class SharedCounts(Counted[ServerT], Generic[ServerT]):
    """An algorithm that needs nothing but the counts of all agents together; they may play any policy."""

    plays_any_policy: ClassVar[bool] = True

    @property
    def counting(self) -> Counting:
        """By action, as agents may draw among several."""
        return Counting.PAIRS

    def grid(self, setting: Setting) -> Grid:
        return setting.sum_grid(1, setting.horizon if self.counting is Counting.STATIONARY else 1)

    def with_agent_reports(self) -> Self:
        """There is no such thing: a sum of counts does not show whose are wrong."""
        raise InputError(
            f"{self.name} adds up the counts of all agents, so it cannot guard against Byzantine agents. Use "
            "byzan-ucbvi."
        )

    def logged_counts(self, setting: Setting, counts: CountTable) -> CountTable:
        """Without rewards by next state, which nobody needs here."""
        counts = counts.with_bits(self.grid(setting).bits)
        return counts._replace(paid=counts.paid[:0], squares=counts.squares[:0])

    def message_sizes(self, setting: Setting) -> MessageSizes:
        """Down go sets of actions as bits, N and a number; up a list of transitions, and one of rewards."""
        steps, S, A = self.counting.shape(setting.horizon, setting.states, setting.actions)
        pairs = steps * S * A
        policy = (setting.horizon * S * A + 7) // 8
        updates = 8
        return MessageSizes(
            broadcast=policy + 8 * pairs + updates,
            exchanges=1,
            query=updates,
            reports=0,
            listed=(pairs * S, pairs),
        )


# ------------------------------------------------------------------------------------------------------- compiled


Payments = tuple[FloatArray, CountArray, WordArray, CountArray, WordArray]
"""Rewards or, where they are random, sums of them and of squares, and what of these was taken in."""
Room = tuple[IndexArray, WordArray, CountArray, WordArray]
"""For what a round adds: cells, and what their visits paid: in all, by slot, squares."""


@compiled
def _add_round(
    policy: PolicyArray,
    where: IndexArray,
    total: CountArray,
    own: CountArray,
    payments: Payments,
    bits: int,
    successors: IndexArray,
    moves: CountArray,
    room: Room,
    table: tuple[Any, ...],
) -> None:
    """Add a round to the arrays of a table: its transitions, and what its visits paid, by (h,s,a).

    Tables come in plain tuples: faster in Numba than named ones.
    """
    cells, amounts, paid, squares = room
    rewards, by_slot, of_squares, taken, taken_squares = payments
    S, A = rewards.shape[2:]
    for j in range(len(where)):
        place = where[j]
        h, s, a = pair_of(place, policy, S, A)
        cell = (h * S + s) * A + a
        z = (np.uint64(0), np.uint64(0))
        cells[j] = cell
        for k in range(taken.shape[1] if len(taken) > 0 else 0):
            now = 0
            for i in range(len(by_slot)):
                now += by_slot[i, h, s, a, k]
            more, taken[cell, k] = now - taken[cell, k], now
            z = plus(z, (np.uint64(0), np.uint64(more)))
            if len(paid) > 0:
                paid[place, k] = more
        if len(taken_squares) > 0:
            known = (taken_squares[cell, 0], taken_squares[cell, 1])
            w = (np.uint64(0), np.uint64(0))
            for i in range(len(of_squares)):
                w = plus(w, (of_squares[i, h, s, a, 0], of_squares[i, h, s, a, 1]))
            taken_squares[cell, 0], taken_squares[cell, 1] = w
            squares[place, 0], squares[place, 1] = minus(w, known)
        for i in range(len(rewards) if len(taken) == 0 else 0):
            n = total[place] if len(rewards) == 1 else own[i, place]
            if n > 0:
                z = plus(z, product(np.uint64(n), on_grid(reward_at(i, h, s, a, rewards), bits)))
        amounts[place, 0], amounts[place, 1] = z
    add_rows(0, cells[: len(where)], where, (successors, moves, amounts, paid, squares), table)


@compiled
def _absorb_visits(
    policy: PolicyArray, visits: CountArray, touched: VisitedCells, rule: Doubling, kept: Counters, asks: Budgets
) -> None:
    """Add the round's ``visits (m, P)`` to each agent's own, and set its budget where the local rule is in force."""
    (m, P), A, actions = visits.shape, kept.shape[3], policy.ravel()
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
    (H, S), A = policy.shape, N.shape[2]
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
