"""Fed-UCBVI's messages and its server: from sums over agents to Q, V and the policy.

Reports are exact sums (:mod:`fed_ucbvi.algorithms.exact_sums`). A report is a sum over transitions,
``X = sum_{s'} n(h,s,a,s') v(s')``. A table with the counts of all agents together therefore gives the sum of all
reports, to the last bit, and all H steps can be taken at once (:func:`induct`). This costs time only for what has
changed: a pair is computed again only if it has new visits or the value of one of its next states has changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import fields
from fed_ucbvi.algorithms.base import TableServer
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
    write_words,
)
from fed_ucbvi.algorithms.kernels import Ties, act_greedily, choose_action
from fed_ucbvi.core.compiling import compiled, embedded, inlined, inner
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray

_ZERO = np.uint64(0)


class UpdateRule(NamedTuple):
    """Numbers by which the server computes Q.

    With ``beta^c(N) = log_union + log(2 N + 1)`` the bonus is
    ``per_visit/N + per_log beta^c(N)/N + sqrt(per_variance Var/N)``, and H where ``N <= 1``. With ``plain`` there is
    none, and a pair never visited is worth nothing.
    """

    per_visit: float
    per_log: float
    log_union: float
    per_variance: float
    ties: Ties
    grid: Grid
    plain: bool = False


class Estimates(NamedTuple):
    """State of the server; ``updates`` counts the synchronisations."""

    N: fields.PairCounts
    Q: fields.PairTable
    V: fields.Values
    policy: fields.Policy
    updates: fields.Number


@dataclass
class Server(TableServer[Estimates, UpdateRule]):
    """The central server. It knows sums over agents, and the counts of an ``earlier`` run if it started from them."""

    earlier: CountTable | None = None


class Sums(NamedTuple):
    """Up, for step h, one row for each agent: ``n (m,S,A)`` and ``X``, ``Y``, ``Z`` ``(m,S,A,words)``.

    ``X = sum_k n_k v_k``, ``Y = sum_k n_k v_k^2`` and Z, the sum of ``ceil(r 2^f)`` over visits; all zero where
    ``n = 0``.
    """

    n: Annotated[CountArray, fields.Meaning.VISITS_SO_FAR]
    X: Annotated[CountArray, fields.Meaning.SUM]
    Y: Annotated[CountArray, fields.Meaning.SUM_OF_SQUARES]
    Z: Annotated[CountArray, fields.Meaning.SUM_OF_REWARDS]


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


@embedded
def mean_of_sums(N: int, sums: Entry, bits: int) -> float:
    """Mean of r + V over N visits."""
    X, _, Z = sums
    return as_float(plus(X, Z)) / float(N) / float(1 << bits)


@embedded
def value_of_sums(N: int, sums: Entry, H: int, rule: UpdateRule) -> float:
    """``Q`` of a pair from the sums over agents: the mean of r + V, its variance and the bonus."""
    bits = rule.grid.bits
    if N == 0:
        return unvisited(H, rule)
    X, Y, _ = sums
    variance = variance_of_sums(np.uint64(N), X, Y, bits)
    return optimistic(float(N), mean_of_sums(N, sums, bits), variance, H, rule)


@compiled
def add_up(h: int, report: Sums, rule: UpdateRule, estimates: Estimates) -> None:
    """Server side of step h; of the report nothing but the sum of its rows matters.

    V is the largest Q rounded up to the grid, on which the cap lies.
    """
    n, X, Y, Z = report
    N, Q, V, policy, updates = estimates
    m, S, A = n.shape
    H = Q.shape[0]
    grid = rule.grid
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
    V_next: FloatArray,
    bits: int,
) -> Entry:
    """``X``, ``Y`` and ``Z`` of a pair.

    Tables come one by one and so do their entries: Numba counts references to each part that is taken out of a tuple
    or an array, which would cost more than the sums.
    """
    x = NOTHING
    y = NOTHING
    for k in range(seen[h, s, a]):
        visit = moment(np.uint64(transitions[h, s, a, k]), on_grid(V_next[successors[h, s, a, k]], bits))
        x = plus(x, visit[0])
        y = plus(y, visit[1])
    return x, y, (rewards[h, s, a, 0], rewards[h, s, a, 1])


@compiled
def sums_of(table: CountTable, h: int, V_next: FloatArray, grid: Grid) -> Sums:
    """The report of a fleet for step h, from the counts of all its agents; one row."""
    transitions = table.transitions
    successors = table.successors
    seen = table.seen
    rewards = table.rewards
    _, S, A = table.visits.shape
    X = np.zeros((1, S, A, grid.words), dtype=np.int64)
    Y = np.zeros((1, S, A, 2), dtype=np.int64)
    Z = np.zeros((1, S, A, grid.words), dtype=np.int64)
    for s in range(S):
        for a in range(A):
            x, y, z = _entry(h, s, a, transitions, successors, seen, rewards, V_next, grid.bits)
            write_words(x, grid, X[0, s, a])
            write_words(y, grid, Y[0, s, a])
            write_words(z, grid, Z[0, s, a])
    return Sums(table.visits[h : h + 1].copy(), X, Y, Z)


@compiled
def induct(table: CountTable, rule: UpdateRule, estimates: Estimates) -> None:
    """All steps of a synchronisation, from the last to the first; those of a planner leave no trace in the table."""
    N, Q, V, policy, updates = estimates
    visits = table.visits
    transitions = table.transitions
    successors = table.successors
    seen = table.seen
    rewards = table.rewards
    states = table.states
    fresh = table.fresh
    H, S, A = Q.shape
    bits = rule.grid.bits
    updates[0] += 1
    changed = np.zeros(S, dtype=np.bool_)
    changed_next = np.zeros(S, dtype=np.bool_)
    any_next = False
    for h in range(H - 1, -1, -1):
        any_here = False
        V_next = V[h + 1]
        for j in range(table.numbers[h]):
            s = 0 + states[h, j]  # of 64 bits, as elsewhere, so that nothing is compiled twice

            # Q of the pairs with new visits or with a next state whose value has changed.
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
                    entry = _entry(h, s, a, transitions, successors, seen, rewards, V_next, bits)
                    if seen[h, s, a] == 1:  # the variance is 0; exact sums would need more work to find that
                        Q[h, s, a] = optimistic(float(n), mean_of_sums(n, entry, bits), 0.0, H, rule)
                    else:
                        Q[h, s, a] = value_of_sums(n, entry, H, rule)
                    redone = True

            # Policy and V of the state.
            if redone:
                before = V[h, s]
                act_greedily(h, s, Q, policy, V, rule.ties, updates[0], math.inf)
                V[h, s] = round_up(V[h, s], bits)
                if V[h, s] != before:
                    changed[s] = True
                    any_here = True

        # Ties are drawn anew at every synchronisation, everywhere.
        if rule.ties.random or updates[0] == 1:
            for s in range(S):
                policy[h, s] = choose_action(Q[h, s], rule.ties.random, rule.ties.seed, updates[0], h * S + s)

        changed, changed_next = changed_next, changed
        any_next = any_here
        for s in range(S):
            changed[s] = False

    if not rule.plain:
        for h in range(H):
            for j in range(table.numbers[h]):
                for a in range(A):
                    fresh[h, states[h, j], a] = False
