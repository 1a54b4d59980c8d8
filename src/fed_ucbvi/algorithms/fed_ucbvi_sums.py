"""Fed-UCBVI's reports as exact sums, agent side and server side; see :mod:`fed_ucbvi.algorithms.exact_sums`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import FleetTables, Setting
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
from fed_ucbvi.algorithms.fed_ucbvi_agents import CountingAgents, no_counts
from fed_ucbvi.algorithms.fed_ucbvi_server import (
    Estimates,
    UpdateRule,
    act_greedily,
    begin_step,
    optimistic,
    unvisited,
)
from fed_ucbvi.algorithms.fields import Meaning
from fed_ucbvi.algorithms.synchronisation_rules import SynchronisationRule
from fed_ucbvi.core.compiling import compiled, embedded, inner
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray

_ZERO = np.uint64(0)


class Sums(NamedTuple):
    """Up, for step h, one row for each agent: ``n (m,S,A)`` and ``X``, ``Y``, ``Z`` ``(m,S,A,words)``.

    ``X = sum_k n_k v_k``, ``Y = sum_k n_k v_k^2`` and ``Z = n ceil(r 2^f)``; all zero where ``n = 0``. Where rewards
    are random X and Y are sums of ``y = r + V`` and of its square over all visits (:func:`moments_with_rewards`),
    and ``Z = 0``.
    """

    n: Annotated[CountArray, Meaning.VISITS_SO_FAR]
    X: Annotated[CountArray, Meaning.SUM]
    Y: Annotated[CountArray, Meaning.SUM_OF_SQUARES]
    Z: Annotated[CountArray, Meaning.SUM_OF_REWARDS]


class Means(NamedTuple):
    """The same with uniform weights: ``ceil(X/n)``, ``ceil(Y/n)`` and ``ceil(r 2^f)``, also integers.

    Where ``n = 0``: the moments of V under the uniform kernel, rounded up, and reward 0.
    """

    n: Annotated[CountArray, Meaning.VISITS_SO_FAR]
    X: Annotated[CountArray, Meaning.GRID_MEAN]
    Y: Annotated[CountArray, Meaning.GRID_SQUARE]
    Z: Annotated[CountArray, Meaning.GRID_REWARD]


def new_report(weighted: bool, grid: Grid, agents: int, states: int, actions: int) -> Sums | Means:
    """Room for the reports of some agents."""
    shape = (agents, states, actions)
    n, (X, Y, Z) = (
        np.zeros(shape, dtype=np.int64),
        (np.zeros((*shape, words), dtype=np.int64) for words in (grid.words, 2, grid.words)),
    )
    return Sums(n, X, Y, Z) if weighted else Means(n, X, Y, Z)


@dataclass
class SumAgents(CountingAgents):
    """Agents that report sums, or, with uniform weights, means, on a grid."""

    out: Sums | Means
    grid: Grid
    weighted: bool

    @classmethod
    def new(
        cls,
        setting: Setting,
        tables: FleetTables,
        rule: SynchronisationRule,
        grid: Grid,
        weighted: bool,
    ) -> SumAgents:
        """No visits yet."""
        out = new_report(weighted, grid, tables.agents, setting.states, setting.actions)
        return cls(*no_counts(setting, tables, rule), out, grid, weighted)

    def report(self, h: int, V_next: FloatArray) -> Sums | Means:
        """One row for each agent."""
        write_report(h, self.experience, V_next, self.weighted, self.grid, Sums(*self.out))
        return self.out


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


@inner
def _uniform_prior(V_next: FloatArray, bits: int) -> Entry:
    """What an agent that never came reports with uniform weights."""
    S = len(V_next)
    x, y = moments(np.ones(S, dtype=np.int64), np.arange(S).astype(np.int32), V_next, bits)
    return divide_up(x, np.uint64(S)), divide_up(y, np.uint64(S)), (_ZERO, _ZERO)


@inner
def _entry(
    h: int, i: int, s: int, a: int, experience: Experience, V_next: FloatArray, weighted: bool, bits: int
) -> Entry:
    """``X``, ``Y`` and ``Z`` of agent i at a pair it has visited."""
    visits, transitions, successors, rewards, sums = experience
    hc = h if visits.shape[1] > 1 else 0
    hk = h if successors.shape[0] > 1 else 0
    n, counts, support = np.uint64(visits[i, hc, s, a]), transitions[i, hc, s, a], successors[hk, s, a]
    if len(sums.by_slot) > 0:
        by_slot, squares = sums.by_slot[i, hc, s, a], sums.squares[i, hc, s, a]
        x, y = moments_with_rewards(counts, by_slot, squares, support, V_next, bits)
        return (x, y, (_ZERO, _ZERO)) if weighted else (divide_up(x, n), divide_up(y, n), (_ZERO, _ZERO))
    hr = h if rewards.shape[1] > 1 else 0
    ir = i if rewards.shape[0] > 1 else 0
    x, y = moments(counts, support, V_next, bits)
    r = on_grid(rewards[ir, hr, s, a], bits)
    if weighted:
        return x, y, product(n, r)
    return divide_up(x, n), divide_up(y, n), (_ZERO, r)


@compiled
def write_report(h: int, experience: Experience, V_next: FloatArray, weighted: bool, grid: Grid, out: Sums) -> None:
    """Write the messages of all agents for step h."""
    n, X, Y, Z = out
    m, S, A = n.shape
    nothing = NOTHING if weighted else _uniform_prior(V_next, grid.bits)
    hc = h if experience.visits.shape[1] > 1 else 0
    for i in range(m):
        for s in range(S):
            for a in range(A):
                n[i, s, a] = experience.visits[i, hc, s, a]
                entry = nothing
                if n[i, s, a] > 0:
                    entry = _entry(h, i, s, a, experience, V_next, weighted, grid.bits)
                write_words(entry[0], grid, X[i, s, a])
                write_words(entry[1], grid, Y[i, s, a])
                write_words(entry[2], grid, Z[i, s, a])


# --------------------------------------------------------------------------------------------- server side


@embedded
def mean_of_sums(weight: int, sums: Entry, bits: int) -> float:
    """The mean of r + V, from its sums."""
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


@embedded
def finish_state(h: int, s: int, rule: UpdateRule, estimates: Estimates) -> None:
    """The policy at (h,s), and V: the largest Q rounded up to the grid, on which the cap lies."""
    _, Q, V, policy, updates = estimates
    V[h, s] = round_up(act_greedily(h, s, rule, Q, policy, updates), rule.grid.bits)


@compiled
def add_up(h: int, report: Sums, rule: UpdateRule, estimates: Estimates) -> None:
    """Server side of step h; of the report nothing but the sum of its rows matters."""
    n, X, Y, Z = report
    (m, S, A), H = n.shape, estimates.Q.shape[0]
    grid = rule.grid
    begin_step(h, estimates)
    N = estimates.N[h]
    x, y, z = np.zeros_like(X[0, 0, 0]), np.zeros_like(Y[0, 0, 0]), np.zeros_like(Z[0, 0, 0])
    for s in range(S):
        for a in range(A):
            x[:], y[:], z[:] = 0, 0, 0
            for i in range(m):
                N[s, a] += n[i, s, a]
                x += X[i, s, a]
                y += Y[i, s, a]
                z += Z[i, s, a]
            sums = (read_words(x, grid), read_words(y, grid), read_words(z, grid))
            estimates.Q[h, s, a] = value_of_sums(N[s, a], sums, H, rule)
        finish_state(h, s, rule, estimates)
