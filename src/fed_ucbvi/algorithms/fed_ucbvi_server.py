"""Fed-UCBVI's server: how it turns sums over agents, or a table of all counts, into Q, V and the policy.

Reports are exact sums (:mod:`fed_ucbvi.algorithms.exact_sums`). A report is a sum over transitions,
``X = sum_{s'} n(h,s,a,s') v(s')``. Whoever has the counts of all agents together can therefore compute what all
reports add up to, to the last bit, and take all H steps at once (:func:`induct`). Only what has changed costs time
then: entries that no agent ever visited cost nothing, and a pair is computed anew only if it has new visits or the
value of one of its next states has changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import fields
from fed_ucbvi.algorithms.base import Array, TableServer
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.exact_sums import (
    Grid,
    Wide,
    as_float,
    on_grid,
    plus,
    read_words,
    round_up,
    times,
    variance_of_sums,
)
from fed_ucbvi.algorithms.experience import Counters
from fed_ucbvi.algorithms.kernels import Ties, choose_action
from fed_ucbvi.core.compiling import compiled, embedded, inlined, inner
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray

_ZERO = np.uint64(0)


class UpdateRule(NamedTuple):
    """How the server turns reports into Q, as numbers.

    With ``beta^c(N) = log_union + log(2 N + 1)`` the bonus is
    ``per_visit/N + per_log beta^c(N)/N + sqrt(per_variance Var/N)``, and H where ``N <= 1``. With ``plain`` there is
    none, and a pair never visited is worth nothing.
    """

    weighted: bool
    per_visit: float
    per_log: float
    log_union: float
    per_variance: float
    ties: Ties
    agents: int
    grid: Grid
    random_rewards: bool
    plain: bool = False


class Estimates(NamedTuple):
    """What the server knows; ``updates`` counts the synchronisations."""

    N: fields.PairCounts
    Q: fields.PairTable
    V: fields.Values
    policy: fields.Policy
    updates: fields.Number


@dataclass
class Server(TableServer[Estimates, UpdateRule]):
    """The central server.

    Attributes:
        table: all counts, where agents report what is new; otherwise the server knows sums over agents, never a
            transition, and this is the counts of an earlier run, if the run was started from them.
        keeps: whether it is the former.
    """

    table: CountTable | None = None
    keeps: bool = False

    def arrays(self) -> dict[str, Array]:
        table = {} if self.table is None or not self.keeps else self.table._asdict()
        return {**super().arrays(), **{f"table_{name}": array for name, array in table.items()}}

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have a table as wide as that which was saved."""
        if self.table is not None and self.keeps:
            self.table = self.table.widened(arrays["table_transitions"].shape[3])

    @property
    def grid(self) -> Grid:
        return self.rule.grid

    def update(self) -> None:
        assert self.table is not None
        induct(self.table, self.rule, self.estimates)


class Sums(NamedTuple):
    """Up, for step h, one row for each agent: ``n (m,S,A)`` and ``X``, ``Y``, ``Z`` ``(m,S,A,words)``.

    ``X = sum_k n_k v_k``, ``Y = sum_k n_k v_k^2`` and ``Z = n ceil(r 2^f)``; all zero where ``n = 0``. Where rewards
    are random X and Y are sums of ``y = r + V`` and of its square over all visits (:func:`moments_with_rewards`),
    and ``Z = 0``.
    """

    n: Annotated[CountArray, fields.Meaning.VISITS_SO_FAR]
    X: Annotated[CountArray, fields.Meaning.SUM]
    Y: Annotated[CountArray, fields.Meaning.SUM_OF_SQUARES]
    Z: Annotated[CountArray, fields.Meaning.SUM_OF_REWARDS]


class Means(NamedTuple):
    """The same with uniform weights: ``ceil(X/n)``, ``ceil(Y/n)`` and ``ceil(r 2^f)``, also integers.

    Where ``n = 0``: the moments of V under the uniform kernel, rounded up, and reward 0.
    """

    n: Annotated[CountArray, fields.Meaning.VISITS_SO_FAR]
    X: Annotated[CountArray, fields.Meaning.GRID_MEAN]
    Y: Annotated[CountArray, fields.Meaning.GRID_SQUARE]
    Z: Annotated[CountArray, fields.Meaning.GRID_REWARD]


@embedded
def bonus(N: float, variance: float, horizon: int, rule: UpdateRule) -> float:
    """``b(s,a)`` of a pair visited N times in all, whose next value has this variance."""
    if rule.plain:
        return 0.0
    if N <= 1.0:
        return float(horizon)
    per_visit = rule.per_visit
    if rule.per_log > 0.0:
        per_visit += rule.per_log * (rule.log_union + math.log(2.0 * N + 1.0))
    return per_visit / N + math.sqrt(rule.per_variance * variance / N)


@inner
def unvisited(horizon: int, rule: UpdateRule) -> float:
    """``Q`` of a pair never visited: H, or nothing without bonus."""
    return 0.0 if rule.plain else float(horizon)


@embedded
def optimistic(N: float, mean: float, variance: float, horizon: int, rule: UpdateRule) -> float:
    """``Q = min(mean + b, H)`` (``eq:update_rule``) of a pair visited N times, ``mean`` being that of r + V."""
    return min(mean + bonus(N, variance, horizon, rule), float(horizon))


@embedded
def act_greedily(h: int, s: int, rule: UpdateRule, Q: FloatArray, policy: IndexArray, updates: CountArray) -> float:
    """Choose the policy's action at (h,s); the largest Q. The tables are those of the estimates."""
    best = choose_action(Q[h, s], rule.ties.random, rule.ties.seed, updates[0], h * policy.shape[1] + s)
    policy[h, s] = best
    return float(Q[h, s, best])


@inner
def begin_step(h: int, estimates: Estimates) -> None:
    """Forget the old sums of step h; the first step of a synchronisation begins a new update."""
    estimates.N[h] = 0
    if h == estimates.Q.shape[0] - 1:
        estimates.updates[0] += 1


Entry = tuple[Wide, Wide, Wide]
"""``X``, ``Y`` and ``Z``."""
NOTHING = ((_ZERO, _ZERO), (_ZERO, _ZERO), (_ZERO, _ZERO))
"""Of an agent that never came, where weights are visits."""


@embedded
def moment(n: np.uint64, v: np.uint64) -> tuple[Wide, Wide]:
    """``n v`` and ``n v^2``."""
    return product(n, v), times(n, product(v, v))


@inner
def moments(counts: Counters, successors: IndexArray, V_next: FloatArray, bits: int) -> tuple[Wide, Wide]:
    """``sum_k n_k v_k`` and ``sum_k n_k v_k^2`` of one pair."""
    x, y = (_ZERO, _ZERO), (_ZERO, _ZERO)
    for k in range(len(counts)):
        if counts[k] == 0:
            continue
        x_k, y_k = moment(np.uint64(counts[k]), on_grid(V_next[successors[k]], bits))
        x, y = plus(x, x_k), plus(y, y_k)
    return x, y


@inner
def moments_with_rewards(
    counts: Counters, by_slot: CountArray, squares: WordArray, successors: IndexArray, V_next: FloatArray, bits: int
) -> tuple[Wide, Wide]:
    """The sums of ``y = r + V`` and of ``y^2`` over all visits of one pair, where rewards are random.

    With ``R_k`` the sum of rewards on the way to the k-th successor (``by_slot``) these are
    ``sum_k (R_k + n_k v_k)`` and ``sum r^2 + sum_k (2 R_k v_k + n_k v_k^2)``.
    """
    x, y = moments(counts, successors, V_next, bits)
    y = plus(y, (squares[0], squares[1]))
    for k in range(len(counts)):
        R_k, v = np.uint64(by_slot[k]), on_grid(V_next[successors[k]], bits)
        cross = product(R_k, v)
        x = plus(x, (_ZERO, R_k))
        y = plus(plus(y, cross), cross)
    return x, y


@embedded
def mean_of_sums(weight: int, sums: Entry, bits: int) -> float:
    """That of r + V."""
    X, _, Z = sums
    return as_float(plus(X, Z)) / float(weight) / float(1 << bits)


@embedded
def value_of_sums(N: int, sums: Entry, H: int, rule: UpdateRule) -> float:
    """``Q`` of a pair from the sums over agents: the mean of r + V, its variance and the bonus."""
    bits = rule.grid.bits
    if N == 0:
        return unvisited(H, rule)
    X, Y, _ = sums
    weight = N if rule.weighted else rule.agents
    variance = variance_of_sums(np.uint64(weight), X, Y, bits)
    return optimistic(float(N), mean_of_sums(weight, sums, bits), variance, H, rule)


@compiled
def add_up(h: int, report: Sums, rule: UpdateRule, estimates: Estimates) -> None:
    """Server side of step h; of the report nothing but the sum of its rows matters.

    V is the largest Q rounded up to the grid, on which the cap lies.
    """
    n, X, Y, Z = report
    N, Q, V, policy, updates = estimates
    (m, S, A), H, grid = n.shape, Q.shape[0], rule.grid
    begin_step(h, estimates)
    x, y, z = np.zeros_like(X[0, 0, 0]), np.zeros_like(Y[0, 0, 0]), np.zeros_like(Z[0, 0, 0])
    for s in range(S):
        for a in range(A):
            x[:], y[:], z[:] = 0, 0, 0
            for i in range(m):
                N[h, s, a] += n[i, s, a]
                x += X[i, s, a]
                y += Y[i, s, a]
                z += Z[i, s, a]
            sums = (read_words(x, grid), read_words(y, grid), read_words(z, grid))
            Q[h, s, a] = value_of_sums(N[h, s, a], sums, H, rule)
        V[h, s] = round_up(act_greedily(h, s, rule, Q, policy, updates), grid.bits)


# ---------------------------------------------------------------------------------------------- all steps at once


@inlined
def _entry(
    h: int,
    s: int,
    a: int,
    transitions: CountArray,
    successors: IndexArray,
    seen: IndexArray,
    rewards: WordArray,
    paid: CountArray,
    squares: WordArray,
    V_next: FloatArray,
    bits: int,
) -> Entry:
    """``X``, ``Y`` and ``Z`` of a pair that somebody has visited.

    Tables come one by one and so do their entries: Numba counts references to each part that is taken out of a tuple
    or an array, which would cost more than the sums.
    """
    if len(paid) > 0:
        there, by_slot, of_squares = transitions[h, s, a], paid[h, s, a], squares[h, s, a]
        x, y = moments_with_rewards(there, by_slot, of_squares, successors[h, s, a], V_next, bits)
        return x, y, NOTHING[2]
    x, y = NOTHING[0], NOTHING[1]
    for k in range(seen[h, s, a]):
        visit = moment(np.uint64(transitions[h, s, a, k]), on_grid(V_next[successors[h, s, a, k]], bits))
        x, y = plus(x, visit[0]), plus(y, visit[1])
    return x, y, (rewards[h, s, a, 0], rewards[h, s, a, 1])


@inner
def _begin(rule: UpdateRule, estimates: Estimates) -> None:
    """Before the first synchronisation nothing is known anywhere."""
    N, Q, V, policy, updates = estimates
    H, S, A = Q.shape
    level = unvisited(H, rule)
    for h in range(H):
        for s in range(S):
            V[h, s] = level
            for a in range(A):
                N[h, s, a] = 0
                Q[h, s, a] = level
            act_greedily(h, s, rule, Q, policy, updates)


@compiled
def induct(table: CountTable, rule: UpdateRule, estimates: Estimates) -> None:
    """All steps of a synchronisation, from the last to the first; those of a planner leave no trace in the table."""
    N, Q, V, policy, updates = estimates
    visits, transitions, successors, seen, rewards, states, numbers, fresh, paid, squares, _ = table
    H, S, A = Q.shape
    bits, random = rule.grid.bits, len(paid) > 0
    updates[0] += 1
    if updates[0] == 1:
        _begin(rule, estimates)
    changed, changed_next = np.zeros(S, dtype=np.bool_), np.zeros(S, dtype=np.bool_)
    any_next = False
    for h in range(H - 1, -1, -1):
        any_here, V_next = False, V[h + 1]
        for j in range(numbers[h]):
            s = 0 + states[h, j]  # of 64 bits, as elsewhere, so that nothing is compiled twice
            redone = False
            for a in range(A):
                n = visits[h, s, a]
                if n == 0:
                    continue
                stale = fresh[h, s, a] or rule.plain
                if any_next and not stale:
                    for k in range(seen[h, s, a]):
                        stale |= changed_next[successors[h, s, a, k]]
                if stale:
                    N[h, s, a] = n
                    entry = _entry(h, s, a, transitions, successors, seen, rewards, paid, squares, V_next, bits)
                    if not random and seen[h, s, a] == 1:  # nothing varies, and exact sums say so with more work
                        Q[h, s, a] = optimistic(float(n), mean_of_sums(n, entry, bits), 0.0, H, rule)
                    else:
                        Q[h, s, a] = value_of_sums(n, entry, H, rule)
                    redone = True
            if redone:
                before = V[h, s]
                V[h, s] = round_up(act_greedily(h, s, rule, Q, policy, updates), bits)
                if V[h, s] != before:
                    changed[s] = any_here = True
        if rule.ties.random:  # drawn anew at every synchronisation, everywhere
            for s in range(S):
                act_greedily(h, s, rule, Q, policy, updates)
        changed, changed_next, any_next = changed_next, changed, any_here
        for s in range(S):
            changed[s] = False
    for h in range(0 if rule.plain else H):
        for j in range(numbers[h]):
            for a in range(A):
                fresh[h, states[h, j], a] = False
