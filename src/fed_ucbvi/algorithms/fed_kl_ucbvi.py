"""Fed-KL-UCBVI: optimism from a Kullback-Leibler ball around the empirical transitions of all agents together.

With N the visits of all agents to (h,s,a), p the empirical distribution of the next state and ``c = beta(N)/N``,

    U(p, V, c) = sup { q.V : KL(p, q) <= c }                                  (:mod:`fed_ucbvi.algorithms.kl_bound`)
    Q_h(s,a)   = min( H-h+1,  r_h(s,a) + U(p, V_{h+1}, c) ),    H-h+1 where N = 0
    V_h(s)     = max_a Q_h(s,a);  every agent draws among the maximisers anew at every visit
    beta(N)    = radius ( log(S (H-1) / delta) + log 2 + (1/2) log(N + 1) )

With radius 1 all ``V_h >= V*_h`` hold at all synchronisations together with probability ``1 - delta``;
``docs/theory.md`` has the proof. A smaller radius has less regret and no proof. It takes the visits to all pairs of
the step in place of N in the logarithm, so that a pair that was given up too early is tried again. Where rewards are
random, r is the largest mean that the Bernoulli divergence allows, with S (2H-1) in place of S (H-1).

The server keeps all counts (:class:`~fed_ucbvi.algorithms.count_table.CountTable`). Agents report what is *new* since
their last report that the server has confirmed, once a round: sums of integers, so that it does not matter how agents
are grouped. Steps h run from 0 to H-1 here and from 1 to H above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import (
    SUMS,
    Algorithm,
    Array,
    Budgets,
    Counting,
    FleetTables,
    GoingOn,
    Message,
    Setting,
    TableRow,
)
from fed_ucbvi.algorithms.count_table import CountTable, NewCounts, mean_reward
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.algorithms.exact_sums import Grid, make_grid, on_grid, plus, write_words
from fed_ucbvi.algorithms.experience import Experience, no_experience
from fed_ucbvi.algorithms.fed_ucbvi_agents import SYNCHRONISATIONS, AskingRule
from fed_ucbvi.algorithms.kl_bound import largest_mean, largest_rate
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.core.colours import ROSE, TEAL, Marker
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.elementary import log
from fed_ucbvi.core.errors import InputError, check_flag, check_number
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray, WordArray


class Broadcast(NamedTuple):
    """Down, at the start of a round: sets of actions ``[H,S,A]``, ``N[H or 1,S,A]``, and what is confirmed.

    ``confirmed[1]`` is the number of synchronisations that the server has completed. What agents counted while they
    knew of fewer was part of one of them.
    """

    policy: MaskArray
    N: CountArray
    confirmed: CountArray


class Query(NamedTuple):
    """Down, before a report: how many synchronisations the server has completed, ``[1]``."""

    confirmed: CountArray


class Increments(NamedTuple):
    """Up, one row for all agents of a fleet: what is new since their last confirmed report.

    ``C (1,steps,S,A,S)`` counts transitions and ``Z (1,steps,S,A,words)`` is the sum of ``ceil(r 2^f)`` over visits.
    """

    C: Annotated[CountArray, Meaning.NEW_TRANSITIONS]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]


# ------------------------------------------------------------------------------------------------------- the server


class Rule(NamedTuple):
    """The constants of the optimistic value.

    ``beta(n) = radius (log_union + log(n + 1) / 2)``. If ``clock``, n are the visits to all pairs of the step. With
    ``plain`` there is no optimism, and a pair never visited is worth nothing.
    """

    radius: float
    log_union: float
    clock: bool
    random_rewards: bool
    bits: int
    plain: bool = False


class Estimates(NamedTuple):
    """What the server has worked out.

    Attributes:
        Q: ``(H, S, A)``.
        V: ``(H+1, S)``.
        best: ``(H, S, A)``, the maximisers of Q.
        tops: ``(H,)``, the largest ``V_{h+1}`` at the last synchronisation.
        completed: ``(1,)``, how many synchronisations there were.
    """

    Q: FloatArray
    V: FloatArray
    best: MaskArray
    tops: FloatArray
    completed: CountArray

    @classmethod
    def start(cls, horizon: int, states: int, actions: int, *, plain: bool) -> Estimates:
        """Before the first visit: what is left of the horizon, or nothing if ``plain``."""
        left: FloatArray = np.arange(horizon, -1, -1, dtype=np.float64)[:, None] * (not plain)
        return cls(
            np.tile(left[:-1, :, None], (1, states, actions)),
            np.tile(left, (1, states)),
            np.ones((horizon, states, actions), dtype=np.bool_),
            np.full(horizon, -1.0),
            np.zeros(1, dtype=np.int64),
        )


@dataclass
class Server:
    """The central server: it knows what all agents have counted together."""

    table: CountTable
    estimates: Estimates
    rule: Rule
    grid: Grid

    @property
    def policy(self) -> PolicyArray:
        """Sets of actions ``(H, S, A)``; of a planner the first of each, ``(H, S)``."""
        best = self.estimates.best
        return np.asarray(best.argmax(axis=2).astype(np.int32)) if self.rule.plain else best

    @property
    def V(self) -> FloatArray:
        """The optimistic values, ``(H+1, S)``."""
        return self.estimates.V

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return {**self.table._asdict(), **self.estimates._asdict()}

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have tables as wide as those that were saved."""
        self.table = self.table.widened(arrays["transitions"].shape[3])

    def take(self, new: NewCounts) -> None:
        """Add counts and complete the synchronisation."""
        self.table = self.table.plus(new)
        self.update()

    def update(self) -> None:
        """The backward induction over all counts."""
        induct(self.table, self.rule, self.estimates)


@compiled
def induct(table: CountTable, rule: Rule, estimates: Estimates) -> None:
    """``Q`` and ``V`` from the last step to the first, where anything that they depend on has changed."""
    visits, transitions, successors, seen, rewards, states, numbers, fresh = table
    Q, V, best, tops, completed = estimates
    H, S, A = Q.shape
    steps, width = len(visits), transitions.shape[3]
    completed[0] += 1
    p, d = np.empty(width), np.empty(width)
    changed, changed_next = np.zeros(S, dtype=np.bool_), np.zeros(S, dtype=np.bool_)
    any_next = False
    beta_of_step = np.zeros(steps)
    if rule.clock:
        for h in range(steps):
            total = 0
            for j in range(numbers[h]):
                for a in range(A):
                    total += visits[h, states[h, j], a]
            beta_of_step[h] = rule.radius * (rule.log_union + 0.5 * log(total + 1.0))
    for h in range(H - 1, -1, -1):
        hc = h if steps > 1 else 0
        V_next, cap = V[h + 1], float(H - h)
        top = V_next[0]
        for s in range(S):
            top = max(top, V_next[s])
        everywhere, any_here = not rule.plain and (rule.clock or top != tops[h]), False
        tops[h] = top
        for j in range(numbers[hc]):
            s, redone = int(states[hc, j]), False
            for a in range(A):
                n = visits[hc, s, a]
                if n == 0:
                    continue
                stale = everywhere or fresh[hc, s, a]
                if any_next:
                    for k in range(seen[hc, s, a]):
                        stale |= changed_next[successors[hc, s, a, k]]
                if not stale:
                    continue
                redone = True
                N, size, mean = float(n), int(seen[hc, s, a]), 0.0
                for k in range(size):
                    value = V_next[successors[hc, s, a, k]]
                    p[k], d[k] = transitions[hc, s, a, k] / N, top - value
                    mean += p[k] * value
                r = mean_reward(n, rewards[hc, s, a, 0], rewards[hc, s, a, 1], rule.bits)
                if not rule.plain and r + mean < cap:
                    if rule.clock:
                        c = beta_of_step[hc] / N
                    else:
                        c = rule.radius * (rule.log_union + 0.5 * log(N + 1.0)) / N
                    mean = largest_mean(p, d, size, top, c)
                    if rule.random_rewards:
                        r = largest_rate(r, c)
                Q[h, s, a] = min(cap, r + mean)
            if redone:
                before, V[h, s] = V[h, s], Q[h, s].max()
                for a in range(A):
                    best[h, s, a] = Q[h, s, a] == V[h, s]
                changed[s] = V[h, s] != before
                any_here |= changed[s]
        changed, changed_next, any_next = changed_next, changed, any_here
        changed[:] = False
    if not rule.plain:
        fresh[:] = False


# ------------------------------------------------------------------------------------------------------- the agents


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
        budgets: when agents request a synchronisation.
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
    budgets: Budgets
    experience: Experience | None
    federation_size: int
    current: bool = False
    """Whether budgets are those of the last broadcast, but for where the last round went."""

    @classmethod
    def new(cls, setting: Setting, tables: FleetTables, counting: Counting, grid: Grid, growth: float) -> Agents:
        """No visits yet."""
        shape = counting.shape(setting.horizon, setting.states, setting.actions)
        cells, random = int(np.prod(shape)), len(tables.sums.by_slot) > 0
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
            Budgets(np.ones((1, *shape), dtype=np.int64), np.zeros(shape, dtype=np.int8), growth),
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
        }
        if self.experience is not None:
            own = self.experience
            arrays |= {"own_visits": own.visits, "own_transitions": own.transitions, "own_rewards": own.rewards}
        return arrays

    def confirm(self, completed: int) -> None:
        """Drop what was reported, if the server has completed a synchronisation since."""
        if completed > self.confirmed[0]:
            cells = self.cells[: self.number[0]]
            self.visits[cells], self.transitions[cells], self.rewards[cells] = 0, 0, 0
            self.number[0], self.confirmed[0] = 0, completed

    def plan_requests(self, N: CountArray) -> Budgets:
        """``max(1, ceil(N/M))`` visits to (h,s,a) in the round make an agent request a synchronisation."""
        touched, out = self.tables.touched, self.budgets.visits.reshape(-1)
        if self.current and touched is not None:  # N has changed only where these agents were, as there are no others
            cells: IndexArray = touched.all_places[: touched.number[0]]
            out[cells] = np.maximum(1, -(-N.reshape(-1)[cells] // self.federation_size))
        else:
            np.maximum(1, -(-N // self.federation_size), out=self.budgets.visits[0])
            self.current = touched is not None and len(touched.places) == self.federation_size
        return self.budgets

    def absorb(self, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts."""
        tables, cells = self.tables, self.visits.size
        own_visits, touched = visits.reshape((len(visits), cells)), tables.touched
        if touched is None:
            self._absorb_own(transitions, visits)
            moves, total = transitions.sum(axis=0).reshape((cells, -1)), own_visits.sum(axis=0)
            where: IndexArray = np.flatnonzero(total).astype(np.int32)
        else:
            moves, total = transitions.reshape((cells, -1)), touched.all_visits.reshape(cells)
            where = touched.all_places[: touched.number[0]]
        sizes = self.shape
        args = (
            where,
            total,
            moves,
            own_visits,
            tables.rewards,
            tables.sums.by_slot,
            self.paid,
            self.grid.bits,
            sizes,
        )
        _absorb(*args, self.cells, self.number, self.visits, self.transitions, self.rewards)

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

    def report(self) -> Increments:
        """What is new, as one row."""
        steps, S, A = self.shape
        out = Increments(
            np.zeros((1, steps, S, A, S), dtype=np.int64),
            np.zeros((1, steps, S, A, self.grid.words), dtype=np.int64),
        )
        _write_report(self.new_counts(), self.grid, out.C.reshape((-1, S)), out.Z.reshape((self.visits.size, -1)), A)
        return out


def _own_counts(setting: Setting, tables: FleetTables, *, stationary: bool) -> Experience:
    """Room for each agent's counts since the beginning, with mean rewards of its own."""
    own = no_experience(setting, tables, stationary=stationary)
    return own._replace(rewards=np.zeros(own.visits.shape))


@compiled
def _absorb(
    where: IndexArray,
    total: CountArray,
    moves: CountArray,
    own_visits: CountArray,
    rewards: FloatArray,
    by_slot: CountArray,
    paid: CountArray,
    bits: int,
    sizes: tuple[int, int, int],
    cells: IndexArray,
    number: CountArray,
    visits: CountArray,
    transitions: CountArray,
    reward_sums: WordArray,
) -> None:
    """Add ``moves (cells, K)``, ``total (cells,)`` visits of all agents and what they paid, where the round went."""
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


@compiled
def _write_report(new: NewCounts, grid: Grid, C: CountArray, Z: CountArray, actions: int) -> None:
    cells, successors, transitions, rewards = new
    S = C.shape[1]
    for cell in cells:
        a, rest = np.int64(cell) % actions, np.int64(cell) // actions
        s, h = rest % S, rest // S
        hk = h if successors.shape[0] > 1 else 0
        for k in range(transitions.shape[1]):
            if transitions[cell, k] > 0:
                C[cell, successors[hk, s, a, k]] += transitions[cell, k]
        write_words((rewards[cell, 0], rewards[cell, 1]), grid, Z[cell])


# ---------------------------------------------------------------------------------------------------- the algorithm


@dataclass(frozen=True)
class FedKLUCBVI(Algorithm[Server, Agents]):
    """Parameters of Fed-KL-UCBVI.

    Args:
        radius: factor on the radius of the ball. 1 is what is proved; less is faster and has no proof.
        stationary: count visits by (s,a), over all steps together. Only where kernel and rewards do not depend on the
            step: each visit then tells about all of them.
        delta: the probability with which optimism may fail, over the whole run.
        min_round_growth: a round that begins after t episodes lasts at least ``min_round_growth t`` episodes, so that
            there are at most ``2 + log(T) / log(1 + min_round_growth)`` rounds, however many agents there are.

    >>> FedKLUCBVI.fast().radius
    0.5
    """

    name: ClassVar[str] = "fed-kl-ucbvi"
    label: ClassVar[str] = "Fed-KL-UCBVI"
    colour: ClassVar[str] = TEAL
    marker: ClassVar[Marker] = "diamond"
    rules: ClassVar[tuple[str, ...]] = ("global",)
    takes: ClassVar[str] = SUMS
    asks_to_plan: ClassVar[bool] = True
    server_counts: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow("model-based", True, "S A H log T", "sqrt(H^3 S A T / M)")

    radius: float = 1.0
    stationary: bool = False
    delta: float = 0.05
    min_round_growth: float = 0.0

    @staticmethod
    def fast(*, stationary: bool = False) -> FastFedKLUCBVI:
        """Less regret and no proof; ``stationary`` if kernel and rewards do not depend on the step."""
        return FastFedKLUCBVI(stationary=stationary)

    def __post_init__(self) -> None:
        check_flag("stationary", self.stationary)
        check_number("radius", self.radius, above=0)
        check_number("delta", self.delta, above=0, below=1)
        check_number("min_round_growth", self.min_round_growth, at_least=0)

    @property
    def pools(self) -> bool:
        """Reports are sums in which all visits count alike."""
        return True

    @property
    def counting(self) -> Counting:
        """By action, for agents draw among the maximisers; over all steps if stationary."""
        return Counting.STATIONARY if self.stationary else Counting.PAIRS

    @property
    def going_on(self) -> GoingOn:
        """Everything may change: the union bound is over states and steps only."""
        return GoingOn("", "", "")

    def by_rows(self) -> FedKLUCBVI:
        """There is no such thing: a sum of counts does not show whose are wrong."""
        raise InputError(
            f"{self.name} adds up the counts of all agents, so it cannot guard against Byzantine agents. Use "
            "byzan-ucbvi."
        )

    def largest_value(self, setting: Setting, step: int) -> float:
        """What is left of the horizon."""
        return float(setting.horizon - step)

    def _grid(self, setting: Setting) -> Grid:
        visits = setting.agents * setting.episodes * (setting.horizon if self.stationary else 1)
        visits += setting.earlier_visits
        rows = setting.agents + (setting.earlier_visits > 0)
        return make_grid(rows, visits, 1, random_rewards=setting.random_rewards, kept=setting.grid_bits)

    def grid(self, setting: Setting) -> Grid | None:
        """That of rewards."""
        return self._grid(setting)

    def reward_grid(self, setting: Setting) -> Grid | None:
        """The same, where rewards are random."""
        return self._grid(setting) if setting.random_rewards else None

    def rule(self, setting: Setting) -> Rule:
        """The constants in force."""
        S, H, random = setting.states, setting.horizon, setting.random_rewards
        events = S * (2 * H - 1) if random else max(1, S * (H - 1))
        log_union = log(2.0 * events / self.delta)
        return Rule(float(self.radius), log_union, self.radius < 1.0, random, self._grid(setting).bits)

    def new_server(self, setting: Setting) -> Server:
        """Nothing is known: all actions are equally good everywhere."""
        H, S, A = setting.horizon, setting.states, setting.actions
        table = CountTable.empty(self.counting.shape(H, S, A)[0], S, A)
        return Server(table, Estimates.start(H, S, A, plain=False), self.rule(setting), self._grid(setting))

    def new_agents(self, setting: Setting, tables: FleetTables) -> Agents:
        """No visits yet."""
        if self.stationary:
            tables.check_stationary()
        return Agents.new(setting, tables, self.counting, self._grid(setting), float(self.min_round_growth))

    def broadcast(self, server: Server) -> Broadcast:
        """Sets of actions, visits, and what is confirmed."""
        return Broadcast(server.estimates.best, server.table.visits, server.estimates.completed)

    def asking_rule(self, setting: Setting) -> AskingRule:
        """The global doubling rule."""
        return AskingRule(SYNCHRONISATIONS.index("global"), False, 0.0, setting.agents)

    def budgets(self, agents: Agents, broadcast: Message) -> Budgets:
        """Visits of a round after which an agent requests a synchronisation, the same for all agents."""
        _, N, completed = broadcast
        agents.confirm(int(completed[0]))
        return agents.plan_requests(N)

    def absorb(self, agents: Agents, policy: PolicyArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts to what is new."""
        agents.absorb(transitions, visits)

    def query(self, server: Server, exchange: int) -> Query:
        """What is confirmed."""
        return Query(server.estimates.completed)

    def report(self, agents: Agents, query: Message, exchange: int) -> Increments:
        """What is new. It stays new until the server has confirmed it."""
        agents.confirm(int(query[0][0]))
        return agents.report()

    def report_bytes(self, setting: Setting, episodes: int) -> int:
        """At most: a number and a count for each transition that an agent has seen in the round, and its rewards."""
        steps, S, A = self.counting.shape(setting.horizon, setting.states, setting.actions)
        visits = episodes * setting.horizon
        return 8 * (2 * min(visits, steps * S * A * S) + 2 * min(visits, steps * S * A))

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Add what is new, and work out the optimistic values."""
        C, Z = (np.asarray(array.sum(axis=0)) for array in report)
        server.table = server.table.plus_dense(C, Z, server.grid)
        server.update()

    def synchronise(self, server: Server, agents: Agents) -> None:
        """The same without the message."""
        agents.confirm(int(server.estimates.completed[0]))
        server.take(agents.new_counts())

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """Value iteration on all counts of the server; reports to it are added to a copy of them."""
        H, S, A = setting.horizon, setting.states, setting.actions
        estimates = Estimates.start(H, S, A, plain=True)
        planner = Server(server.table.copy(), estimates, server.rule._replace(plain=True), server.grid)
        planner.table.fresh[:] = True
        planner.update()
        estimates.completed[:] = server.estimates.completed
        return planner

    def counts_of(self, setting: Setting, server: Server) -> Counts:
        """What the server knows, for a later run."""
        return server.table.counts(setting.horizon, server.grid)

    def earlier_agents(self, setting: Setting, counts: Counts) -> Agents:
        """The agents of an earlier run as one fleet to which everything is new; the server confirms it at once."""
        S, A = setting.states, setting.actions
        successors = np.ascontiguousarray(np.broadcast_to(np.arange(S, dtype=np.int32), (1, S, A, S)))
        tables = FleetTables(1, successors, counts.rewards[None], touched=None)
        agents = Agents.new(setting, tables, self.counting, self._grid(setting), 0.0)
        agents.absorb(counts.transitions[None], counts.visits[None])
        return agents


@dataclass(frozen=True)
class FastFedKLUCBVI(FedKLUCBVI):
    """Fed-KL-UCBVI with a smaller radius: less regret, and no proof."""

    name: ClassVar[str] = "fed-kl-ucbvi-fast"
    label: ClassVar[str] = "Fed-KL-UCBVI fast"
    colour: ClassVar[str] = ROSE
    marker: ClassVar[Marker] = "triangle"

    radius: float = 0.5
