"""Fed-UCBVI from one table of counts: the paper's messages, and all H steps of a synchronisation at once.

A report is a sum over transitions, ``X = sum_{s'} n(h,s,a,s') v(s')``. Whoever has the counts of all agents together
can therefore compute what all reports add up to, to the last bit. Only what has changed costs time: entries that no
agent ever visited cost nothing, and a pair is computed anew only if it has new visits or the value of one of its next
states has changed.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus, round_up, write_words
from fed_ucbvi.algorithms.fed_ucbvi_server import TIES, Estimates, UpdateRule, act_greedily, optimistic, unvisited
from fed_ucbvi.algorithms.fed_ucbvi_sums import (
    NOTHING,
    Entry,
    Sums,
    mean_of_sums,
    moment,
    moments_with_rewards,
    new_report,
    value_of_sums,
)
from fed_ucbvi.core.compiling import compiled, inlined, inner
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray

_RANDOM = TIES.index("random")


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


def report_of(table: CountTable, h: int, V_next: FloatArray, grid: Grid) -> Sums:
    """What one agent would report for step h that has counted what is in a table."""
    out = Sums(*new_report(True, grid, 1, *table.visits.shape[1:]))
    _write_report(h, table, V_next, grid, out)
    return out


@compiled
def _write_report(h: int, table: CountTable, V_next: FloatArray, grid: Grid, out: Sums) -> None:
    n, X, Y, Z = out
    _, S, A = n.shape
    visits, transitions, successors, seen, rewards, _, _, _, paid, squares, _ = table
    for s in range(S):
        for a in range(A):
            n[0, s, a] = visits[h, s, a]
            entry = NOTHING
            if n[0, s, a] > 0:
                entry = _entry(h, s, a, transitions, successors, seen, rewards, paid, squares, V_next, grid.bits)
            write_words(entry[0], grid, X[0, s, a])
            write_words(entry[1], grid, Y[0, s, a])
            write_words(entry[2], grid, Z[0, s, a])


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
        if rule.ties == _RANDOM:  # drawn anew at every synchronisation, everywhere
            for s in range(S):
                act_greedily(h, s, rule, Q, policy, updates)
        changed, changed_next, any_next = changed_next, changed, any_here
        for s in range(S):
            changed[s] = False
    for h in range(0 if rule.plain else H):
        for j in range(numbers[h]):
            for a in range(A):
                fresh[h, states[h, j], a] = False
