"""Fed-UCBVI's reports as exact sums, agent side and server side; see :mod:`fed_ucbvi.algorithms.exact_sums`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, WordArray
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
from fed_ucbvi.algorithms.experience import Experience
from fed_ucbvi.algorithms.fed_ucbvi_server import (
    Estimates,
    UpdateRule,
    act_greedily,
    begin_step,
    largest,
    optimistic,
)
from fed_ucbvi.sampling.philox import product

_ZERO = np.uint64(0)


class Sums(NamedTuple):
    """Up, for step h, one row an agent: ``n (m,S,A)`` and ``X``, ``Y``, ``Z`` ``(m,S,A,words)``.

    ``X = sum_k n_k v_k``, ``Y = sum_k n_k v_k^2`` and ``Z = n ceil(r 2^f)``; all zero where ``n = 0``.
    """

    n: CountArray
    X: CountArray
    Y: CountArray
    Z: CountArray


class Means(NamedTuple):
    """The same with uniform weights: ``ceil(X/n)``, ``ceil(Y/n)`` and ``ceil(r 2^f)``, also integers.

    Where ``n = 0``: the moments of V under the uniform kernel, rounded up, and reward 0.
    """

    n: CountArray
    X: CountArray
    Y: CountArray
    Z: CountArray


def new_report(weighted: bool, grid: Grid, agents: int, states: int, actions: int) -> Sums | Means:
    """Room for the reports of some agents."""
    shape = (agents, states, actions)
    n, (X, Y, Z) = (
        np.zeros(shape, dtype=np.int64),
        (np.zeros((*shape, words), dtype=np.int64) for words in (grid.words, 2, grid.words)),
    )
    return Sums(n, X, Y, Z) if weighted else Means(n, X, Y, Z)


class Values(NamedTuple):
    """``v = V 2^f`` and ``v^2`` (its high and low words) of every next state."""

    v: WordArray
    high: WordArray
    low: WordArray


Entry = tuple[Wide, Wide, Wide]
"""``X``, ``Y`` and ``Z``."""


@compiled
def _values(V: FloatArray, bits: int) -> Values:
    S = len(V)
    v, high, low = np.empty(S, dtype=np.uint64), np.empty(S, dtype=np.uint64), np.empty(S, dtype=np.uint64)
    for s in range(S):
        v[s] = on_grid(V[s], bits)
        high[s], low[s] = product(v[s], v[s])
    return Values(v, high, low)


@compiled
def _of_strangers(values: Values) -> Entry:
    """What an agent that never came reports with uniform weights."""
    x, y = (_ZERO, _ZERO), (_ZERO, _ZERO)
    for s in range(len(values.v)):
        x = plus(x, (_ZERO, values.v[s]))
        y = plus(y, (values.high[s], values.low[s]))
    S = np.uint64(len(values.v))
    return divide_up(x, S), divide_up(y, S), (_ZERO, _ZERO)


@compiled
def _entry(
    h: int, i: int, s: int, a: int, experience: Experience, values: Values, weighted: bool, bits: int
) -> Entry:
    """``X``, ``Y`` and ``Z`` of agent i at a pair it has visited."""
    visits, transitions, successors, rewards = experience
    hk = h if successors.shape[0] > 1 else 0
    hr = h if rewards.shape[1] > 1 else 0
    ir = i if rewards.shape[0] > 1 else 0
    x, y = (_ZERO, _ZERO), (_ZERO, _ZERO)
    for k in range(transitions.shape[4]):
        n_k, t = np.uint64(transitions[i, h, s, a, k]), successors[hk, s, a, k]
        x = plus(x, product(n_k, values.v[t]))
        y = plus(y, times(n_k, (values.high[t], values.low[t])))
    n, r = np.uint64(visits[i, h, s, a]), on_grid(rewards[ir, hr, s, a], bits)
    if weighted:
        return x, y, product(n, r)
    return divide_up(x, n), divide_up(y, n), (_ZERO, r)


@compiled
def write_report(h: int, experience: Experience, V_next: FloatArray, weighted: bool, grid: Grid, out: Sums) -> None:
    """Write the messages of all agents for step h."""
    n, X, Y, Z = out
    m, S, A = n.shape
    values = _values(V_next, grid.bits)
    nothing = ((_ZERO, _ZERO), (_ZERO, _ZERO), (_ZERO, _ZERO)) if weighted else _of_strangers(values)
    for i in range(m):
        for s in range(S):
            for a in range(A):
                n[i, s, a] = experience.visits[i, h, s, a]
                entry = nothing
                if n[i, s, a] > 0:
                    entry = _entry(h, i, s, a, experience, values, weighted, grid.bits)
                write_words(entry[0], grid, X[i, s, a])
                write_words(entry[1], grid, Y[i, s, a])
                write_words(entry[2], grid, Z[i, s, a])


# --------------------------------------------------------------------------------------------- server side


@compiled
def _finish_pair(h: int, s: int, a: int, sums: Entry, rule: UpdateRule, estimates: Estimates) -> None:
    """``Q`` at (h,s,a) from the sums over agents: the mean of r + V, its variance and the bonus."""
    N, Q = estimates.N[h, s, a], estimates.Q
    H, bits = estimates.policy.shape[0], rule.grid.bits
    if N == 0:
        Q[h, s, a] = largest(h, H, rule)
        return
    X, Y, Z = sums
    weight = N if rule.weighted else rule.agents
    mean = as_float(plus(X, Z)) / float(weight) / float(1 << bits)
    variance = variance_of_sums(np.uint64(weight), X, Y, bits)
    Q[h, s, a] = optimistic(h, float(N), mean, variance, H, rule)


@compiled
def _finish_state(h: int, s: int, rule: UpdateRule, estimates: Estimates) -> None:
    """The policy at (h,s), and V: the largest Q rounded up to the grid, on which the cap lies."""
    estimates.V[h, s] = round_up(act_greedily(h, s, rule, estimates), rule.grid.bits)


@compiled
def add_up(h: int, report: Sums, rule: UpdateRule, estimates: Estimates) -> None:
    """Server side of step h; of the report nothing but the sum of its rows matters."""
    n, X, Y, Z = report
    m, S, A = n.shape
    grid = rule.grid
    begin_step(h, estimates)
    x, y, z = np.zeros_like(X[0, 0, 0]), np.zeros_like(Y[0, 0, 0]), np.zeros_like(Z[0, 0, 0])
    for s in range(S):
        for a in range(A):
            x[:], y[:], z[:] = 0, 0, 0
            for i in range(m):
                estimates.N[h, s, a] += n[i, s, a]
                x += X[i, s, a]
                y += Y[i, s, a]
                z += Z[i, s, a]
            sums = (read_words(x, grid), read_words(y, grid), read_words(z, grid))
            _finish_pair(h, s, a, sums, rule, estimates)
        _finish_state(h, s, rule, estimates)


# -------------------------------------------------------------------------- both sides, without the messages


@compiled
def synchronise_sums(experience: Experience, rule: UpdateRule, estimates: Estimates) -> None:
    """All exchanges of a synchronisation; agents that never visited a pair add nothing if weights are visits."""
    visits = experience.visits
    m, H, S, A = visits.shape
    bits = rule.grid.bits
    nothing = ((_ZERO, _ZERO), (_ZERO, _ZERO), (_ZERO, _ZERO))
    for h in range(H - 1, -1, -1):
        begin_step(h, estimates)
        values = _values(estimates.V[h + 1], bits)
        absent = nothing if rule.weighted else _of_strangers(values)
        sums = np.zeros((S, A, 6), dtype=np.uint64)
        for i in range(m):
            for s in range(S):
                for a in range(A):
                    n = visits[i, h, s, a]
                    if n == 0 and rule.weighted:
                        continue
                    entry = absent
                    if n > 0:
                        entry = _entry(h, i, s, a, experience, values, rule.weighted, bits)
                    estimates.N[h, s, a] += n
                    into = sums[s, a]
                    for j in range(3):
                        into[2 * j], into[2 * j + 1] = plus((into[2 * j], into[2 * j + 1]), entry[j])
        for s in range(S):
            for a in range(A):
                w = sums[s, a]
                _finish_pair(h, s, a, ((w[0], w[1]), (w[2], w[3]), (w[4], w[5])), rule, estimates)
            _finish_state(h, s, rule, estimates)
