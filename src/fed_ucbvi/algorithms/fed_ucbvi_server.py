"""Fed-UCBVI's messages and its server: how sums over agents, or a table of all counts, become Q, V and the policy.

Reports are exact sums (:mod:`fed_ucbvi.algorithms.exact_sums`). A report is a sum over transitions,
``X = sum_{s'} n(h,s,a,s') v(s')``. Whoever has the counts of all agents together can therefore compute what all
reports add up to, to the last bit, and take all H steps at once (:func:`induct`). Only what has changed costs time
then: entries that no agent ever visited cost nothing, and a pair is computed anew only if it has new visits or the
value of one of its next states has changed.

With uniform weights, and where agents may lie, each agent reports a row by itself. A liar replaces its own row before
the server adds up. Rows of floats are added up in agent order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import fields
from fed_ucbvi.algorithms.base import Array, TableServer
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.counting_agents import CountingServer
from fed_ucbvi.algorithms.exact_sums import (
    Grid,
    Wide,
    as_float,
    divide_up,
    on_grid,
    plus,
    read_words,
    round_up,
    times,
    variance_of_sums,
    write_words,
)
from fed_ucbvi.algorithms.experience import Counters, Experience
from fed_ucbvi.algorithms.kernels import Ties, act_greedily, choose_action, variance_of
from fed_ucbvi.core.compiling import compiled, embedded, inlined, inner
from fed_ucbvi.core.indexing import reward_at, shared
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
    plain: bool = False


class Estimates(NamedTuple):
    """What the server knows; ``updates`` counts the synchronisations."""

    N: fields.PairCounts
    Q: fields.PairTable
    V: fields.Values
    policy: fields.Policy
    updates: fields.Number


@dataclass
class Server(CountingServer[Estimates, UpdateRule]):
    """The central server.

    Attributes:
        keeps: whether agents report what is new, so that the table has all counts. Otherwise the server knows sums
            over agents, never a transition, and the table is that of an earlier run, or empty.
    """

    keeps: bool = False

    def arrays(self) -> dict[str, Array]:
        return super().arrays() if self.keeps else TableServer.arrays(self)

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        if self.keeps:
            super().make_room(arrays)

    @property
    def grid(self) -> Grid:
        return self.rule.grid

    def update(self) -> None:
        induct(tuple(self.table), self.rule, tuple(self.estimates))


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


class Rows(NamedTuple):
    """Up, for step h, one row for each agent: ``n``, ``P V``, ``P V^2`` and ``Q``, each ``(m, S, A)``.

    Of pairs that an agent never visited: those of the uniform kernel and reward 0.
    """

    n: Annotated[CountArray, fields.Shape("m S A")]
    PV: Annotated[FloatArray, fields.Shape("m S A")]
    PV2: Annotated[FloatArray, fields.Shape("m S A")]
    Q: Annotated[FloatArray, fields.Shape("m S A")]


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


@inner
def begin_step(h: int, estimates: Estimates) -> None:
    """Forget the old sums of step h; the first step of a synchronisation begins a new update."""
    estimates.N[h] = 0
    if h == estimates.Q.shape[0] - 1:
        estimates.updates[0] += 1


Entry = tuple[Wide, Wide, Wide]
"""``X``, ``Y`` and ``Z``."""
NOTHING = (_ZERO, _ZERO)


@embedded
def moment(n: np.uint64, v: np.uint64) -> tuple[Wide, Wide]:
    """``n v`` and ``n v^2``."""
    return product(n, v), times(n, product(v, v))


@inner
def moments(counts: Counters, successors: IndexArray, V_next: FloatArray, bits: int) -> tuple[Wide, Wide]:
    """``sum_k n_k v_k`` and ``sum_k n_k v_k^2`` of one pair."""
    x = (_ZERO, _ZERO)
    y = (_ZERO, _ZERO)
    for k in range(len(counts)):
        if counts[k] == 0:
            continue
        x_k, y_k = moment(np.uint64(counts[k]), on_grid(V_next[successors[k]], bits))
        x = plus(x, x_k)
        y = plus(y, y_k)
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
        R_k = np.uint64(by_slot[k])
        v = on_grid(V_next[successors[k]], bits)
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
    x = np.zeros_like(X[0, 0, 0])
    y = np.zeros_like(Y[0, 0, 0])
    z = np.zeros_like(Z[0, 0, 0])
    for s in range(S):
        for a in range(A):
            x[:] = 0
            y[:] = 0
            z[:] = 0
            for i in range(m):
                N[h, s, a] += n[i, s, a]
                x += X[i, s, a]
                y += Y[i, s, a]
                z += Z[i, s, a]
            sums = (read_words(x, grid), read_words(y, grid), read_words(z, grid))
            Q[h, s, a] = value_of_sums(N[h, s, a], sums, H, rule)
        act_greedily(h, s, Q, policy, V, rule.ties, updates[0], math.inf)
        V[h, s] = round_up(V[h, s], grid.bits)


# ------------------------------------------------------------------------------------------------- from a table


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
    """``X``, ``Y`` and ``Z`` of a pair.

    Tables come one by one and so do their entries: Numba counts references to each part that is taken out of a tuple
    or an array, which would cost more than the sums.
    """
    if len(paid) > 0:
        there = transitions[h, s, a]
        by_slot = paid[h, s, a]
        of_squares = squares[h, s, a]
        x, y = moments_with_rewards(there, by_slot, of_squares, successors[h, s, a], V_next, bits)
        return x, y, NOTHING
    x = NOTHING
    y = NOTHING
    for k in range(seen[h, s, a]):
        visit = moment(np.uint64(transitions[h, s, a, k]), on_grid(V_next[successors[h, s, a, k]], bits))
        x = plus(x, visit[0])
        y = plus(y, visit[1])
    return x, y, (rewards[h, s, a, 0], rewards[h, s, a, 1])


@compiled
def sums_of(table: CountTable, h: int, V_next: FloatArray, grid: Grid) -> Sums:
    """What agents report for step h that have together counted what is in a table, added up."""
    visits, transitions, successors, seen, rewards, _, _, _, paid, squares, _ = table
    _, S, A = visits.shape
    X = np.zeros((1, S, A, grid.words), dtype=np.int64)
    Z = np.zeros((1, S, A, grid.words), dtype=np.int64)
    Y = np.zeros((1, S, A, 2), dtype=np.int64)
    for s in range(S):
        for a in range(A):
            x, y, z = _entry(h, s, a, transitions, successors, seen, rewards, paid, squares, V_next, grid.bits)
            write_words(x, grid, X[0, s, a])
            write_words(y, grid, Y[0, s, a])
            write_words(z, grid, Z[0, s, a])
    return Sums(visits[h : h + 1].copy(), X, Y, Z)


@compiled
def induct(table: tuple[Any, ...], rule: UpdateRule, estimates: tuple[Any, ...]) -> None:
    """All steps of a synchronisation, from the last to the first; those of a planner leave no trace in the table.

    ``table`` is a :class:`CountTable` and ``estimates`` :class:`Estimates` as plain tuples: faster in Numba.
    """
    N, Q, V, policy, updates = estimates
    visits, transitions, successors, seen, rewards, states, numbers, fresh, paid, squares, _ = table
    H, S, A = Q.shape
    bits = rule.grid.bits
    random = len(paid) > 0
    updates[0] += 1
    changed = np.zeros(S, dtype=np.bool_)
    changed_next = np.zeros(S, dtype=np.bool_)
    any_next = False
    for h in range(H - 1, -1, -1):
        any_here = False
        V_next = V[h + 1]
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
                act_greedily(h, s, Q, policy, V, rule.ties, updates[0], math.inf)
                V[h, s] = round_up(V[h, s], bits)
                if V[h, s] != before:
                    changed[s] = any_here = True
        if rule.ties.random or updates[0] == 1:  # drawn anew at every synchronisation, everywhere
            for s in range(S):
                policy[h, s] = choose_action(Q[h, s], rule.ties.random, rule.ties.seed, updates[0], h * S + s)
        changed, changed_next, any_next = changed_next, changed, any_here
        for s in range(S):
            changed[s] = False
    for h in range(0 if rule.plain else H):
        for j in range(numbers[h]):
            for a in range(A):
                fresh[h, states[h, j], a] = False


# ------------------------------------------------------------------------------- what each agent reports by itself


@compiled
def write_means(h: int, experience: Experience, V_next: FloatArray, grid: Grid, out: Means) -> None:
    """``ceil(X/n)``, ``ceil(Y/n)`` and ``ceil(r 2^f)`` of all agents for step h."""
    n, X, Y, Z = out
    visits, transitions, successors, rewards, sums = experience
    (m, S, A), hk = n.shape, shared(h, successors.shape[0])
    x, y = moments(np.ones(S, dtype=np.int64), np.arange(S).astype(np.int32), V_next, grid.bits)
    prior = divide_up(x, np.uint64(S)), divide_up(y, np.uint64(S))  # of an agent that never came: the uniform kernel
    for i in range(m):
        for s in range(S):
            for a in range(A):
                count = visits[i, h, s, a]
                counts = transitions[i, h, s, a]
                support = successors[hk, s, a]
                n[i, s, a], (x, y), z = count, prior, (_ZERO, _ZERO)
                if count > 0:
                    if len(sums.by_slot) > 0:
                        by_slot = sums.by_slot[i, h, s, a]
                        squares = sums.squares[i, h, s, a]
                        x, y = moments_with_rewards(counts, by_slot, squares, support, V_next, grid.bits)
                    else:
                        x, y = moments(counts, support, V_next, grid.bits)
                        z = (_ZERO, on_grid(reward_at(i, h, s, a, rewards), grid.bits))
                    x = divide_up(x, np.uint64(count))
                    y = divide_up(y, np.uint64(count))
                write_words(x, grid, X[i, s, a])
                write_words(y, grid, Y[i, s, a])
                write_words(z, grid, Z[i, s, a])


@compiled
def write_rows(h: int, experience: Experience, unit: float, V_next: FloatArray, out: Rows) -> None:
    """Write ``n``, ``P V``, ``P V^2`` and ``Q = r + P V`` of all agents for step h.

    ``P V = sum_k n(s,a,s'_k) V(s'_k) / n(s,a)``; where ``n = 0`` the uniform kernel and reward 0. Where rewards are
    random the moments are those of ``y = r + V``, and Q is the first.
    """
    n, PV, PV2, Q = out
    visits, transitions, successors, rewards, sums = experience
    (m, S, A), K, random = n.shape, transitions.shape[4], len(sums.by_slot) > 0
    hk = shared(h, successors.shape[0])
    mean = 0.0
    second = 0.0
    for s in range(S):
        mean += V_next[s]
        second += V_next[s] * V_next[s]
    for i in range(m):
        for s in range(S):
            for a in range(A):
                count = visits[i, h, s, a]
                r = 0.0
                x = 0.0
                y = 0.0
                n[i, s, a] = count
                if count == 0:
                    PV[i, s, a], PV2[i, s, a], Q[i, s, a] = mean / S, second / S, mean / S
                    continue
                for k in range(K):
                    v = V_next[successors[hk, s, a, k]]
                    w = transitions[i, h, s, a, k] * v
                    x += w
                    y += w * v
                if random:
                    for k in range(K):
                        R = sums.by_slot[i, h, s, a, k] * unit
                        x += R
                        y += 2.0 * R * V_next[successors[hk, s, a, k]]
                    squares = sums.squares[i, h, s, a]
                    y += as_float((squares[0], squares[1])) * unit * unit
                else:
                    r = reward_at(i, h, s, a, rewards)
                PV[i, s, a], PV2[i, s, a], Q[i, s, a] = x / count, y / count, r + x / count


@compiled
def add_up_rows(h: int, report: Rows, rule: UpdateRule, estimates: Estimates) -> None:
    """``Q``, ``V`` and the policy of step h from all agents' messages, in agent order.

    ``Q = min(sum_i w^i Q^i + b, cap)`` with ``w^i = n^i/N`` or ``1/M``, ``Q = cap`` where ``N = 0``
    (``eq:update_rule``); ``Var = sum_i w^i P^i V^2 - (sum_i w^i P^i V)^2``.
    """
    n, PV, PV2, Q_i = report
    N, Q, V, policy, updates = estimates
    (m, S, A), H = n.shape, Q.shape[0]
    begin_step(h, estimates)
    for s in range(S):
        for a in range(A):
            mean = 0.0
            first = 0.0
            second = 0.0
            for i in range(m):
                weight = float(n[i, s, a]) if rule.weighted else 1.0
                N[h, s, a] += n[i, s, a]
                mean += weight * Q_i[i, s, a]
                first += weight * PV[i, s, a]
                second += weight * PV2[i, s, a]
            total = float(N[h, s, a])
            weight = total if rule.weighted else float(m)
            Q[h, s, a] = unvisited(H, rule)
            if total != 0.0:
                variance = variance_of(first / weight, second / weight)
                Q[h, s, a] = optimistic(total, mean / weight, variance, H, rule)
        act_greedily(h, s, Q, policy, V, rule.ties, updates[0], math.inf)
