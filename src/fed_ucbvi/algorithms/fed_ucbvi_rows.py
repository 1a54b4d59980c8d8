"""Fed-UCBVI's agents where each keeps its own counts, and what they report: exact sums, means on the grid, or floats.

A liar replaces its own row before the server adds up, so the server must be sent rows of floats then. Sums over
agents are computed in agent order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, RewardSums, Setting
from fed_ucbvi.algorithms.count_table import CountTable, NewCounts
from fed_ucbvi.algorithms.counting_agents import fill_budgets
from fed_ucbvi.algorithms.exact_sums import Grid, as_float, divide_up, on_grid, plus, write_words
from fed_ucbvi.algorithms.experience import Counters, Experience, absorb_round, no_experience
from fed_ucbvi.algorithms.fed_ucbvi_server import (
    NOTHING,
    Estimates,
    Means,
    Sums,
    UpdateRule,
    act_greedily,
    begin_step,
    moments,
    moments_with_rewards,
    optimistic,
    unvisited,
)
from fed_ucbvi.algorithms.fed_ucbvi_server import Entry as Sum
from fed_ucbvi.algorithms.indexing import reward_at, shared
from fed_ucbvi.algorithms.kernels import variance_of
from fed_ucbvi.algorithms.synchronisation_rules import SynchronisationRule
from fed_ucbvi.core.compiling import compiled, inlined, inner
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray

_ZERO = np.uint64(0)
Entry = tuple[int, float, float, float]
"""One agent's ``n``, ``P V``, ``P V^2`` and ``Q`` at one (h,s,a)."""
Moments = tuple[float, float]
"""First and second moment of ``V`` under the uniform kernel."""


class Rows(NamedTuple):
    """Up, for step h, one row for each agent: ``n``, ``P V``, ``P V^2`` and ``Q``, each ``(m, S, A)``.

    Of pairs that an agent never visited: those of the uniform kernel and reward 0.
    """

    n: CountArray
    PV: FloatArray
    PV2: FloatArray
    Q: FloatArray


@dataclass
class RowAgents:
    """A fleet of which each agent keeps its own counts.

    Attributes:
        experience: those counts.
        asks: when agents request a synchronisation, by ``rule``.
        out: room for what they report for a step; its type says in which form.
        grid: of sums.
    """

    experience: Experience
    asks: Budgets
    rule: SynchronisationRule
    federation_size: int
    out: Sums | Means | Rows
    grid: Grid

    @classmethod
    def new(
        cls,
        setting: Setting,
        tables: FleetTables,
        rule: SynchronisationRule,
        grid: Grid,
        form: type[Sums] | type[Means] | type[Rows],
    ) -> RowAgents:
        """No visits yet."""
        m, H, S, A = tables.agents, setting.horizon, setting.states, setting.actions
        asks = Budgets(np.ones((m, H, S), np.int64), np.zeros((H, S), np.int8), float(rule.min_round_growth))
        n = np.zeros((m, S, A), dtype=np.int64)
        more: list[Any] = [np.zeros((m, S, A)) for _ in range(3)]
        if form is not Rows:
            more = [np.zeros((m, S, A, words), dtype=np.int64) for words in (grid.words, 2, grid.words)]
        return cls(no_experience(setting, tables), asks, rule, setting.agents, form(n, *more), grid)

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return {"visits": self.experience.visits, "transitions": self.experience.transitions}

    def budgets(self, policy: IndexArray, N: CountArray) -> Budgets:
        """When they request a synchronisation in a round with this policy."""
        fill_budgets(self.rule, self.experience.visits, N, policy, self.federation_size, self.asks)
        return self.asks

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Take in the round's counts."""
        absorb_round(policy, transitions, visits, self.experience.transitions, self.experience.visits)

    def report(self, h: int, V_next: FloatArray) -> Sums | Means | Rows:
        """One row for each agent."""
        if isinstance(self.out, Rows):
            write_rows(h, self.experience, self.grid.unit, V_next, self.out)
        else:
            write_sums(h, self.experience, V_next, isinstance(self.out, Sums), self.grid, Sums(*self.out))
        return self.out

    def counts(self, bits: int) -> NewCounts:
        """All that they have counted, to be added to a table."""
        own = self.experience
        _, H, S, A, K = own.transitions.shape
        kept = H * S * A * (len(own.sums.by_slot) > 0)
        rewards, squares = (np.zeros((size, 2), dtype=np.uint64) for size in (H * S * A, kept))
        _add_rewards(own, bits, rewards, squares)
        moves = own.transitions.sum(axis=0, dtype=np.int64).reshape((-1, K))
        cells: IndexArray = np.flatnonzero(moves.any(axis=1)).astype(np.int32)
        paid = own.sums.by_slot.sum(axis=0).reshape((kept, K))
        return NewCounts(cells, own.successors, moves, rewards, paid, squares)


def report_of(table: CountTable, h: int, V_next: FloatArray, grid: Grid) -> Sums:
    """What one agent would report for step h that has counted what is in a table."""
    _, S, A = table.visits.shape
    sums = RewardSums(table.paid[None], table.squares[None]).of(slice(0, int(table.by_slot)))
    own = Experience(table.visits[None], table.transitions[None], table.successors, np.zeros((1, 1, S, A)), sums)
    n = np.zeros((1, S, A), dtype=np.int64)
    out = Sums(n, *(np.zeros((1, S, A, words), dtype=np.int64) for words in (grid.words, 2, grid.words)))
    write_sums(h, own, V_next, True, grid, out)
    if not table.by_slot:
        _write_all(table.rewards[h], grid, out.Z[0])
    return out


@compiled
def _write_all(sums: WordArray, grid: Grid, out: CountArray) -> None:
    S, A = sums.shape[:2]
    for s in range(S):
        for a in range(A):
            write_words((sums[s, a, 0], sums[s, a, 1]), grid, out[s, a])


@compiled
def _add_rewards(own: Experience, bits: int, out: WordArray, squares: WordArray) -> None:
    """Sums over agents of rewards and, where they are random, of their squares, by cell."""
    visits, _, _, rewards, sums = own
    m, H, S, A = visits.shape
    for i in range(m):
        for h in range(H):
            for s in range(S):
                for a in range(A):
                    cell = (h * S + s) * A + a
                    more = product(np.uint64(visits[i, h, s, a]), on_grid(reward_at(i, h, s, a, rewards), bits))
                    if len(sums.by_slot) > 0:
                        more, w = (_ZERO, np.uint64(sums.by_slot[i, h, s, a].sum())), sums.squares[i, h, s, a]
                        squares[cell, 0], squares[cell, 1] = plus((squares[cell, 0], squares[cell, 1]), (w[0], w[1]))
                    out[cell, 0], out[cell, 1] = plus((out[cell, 0], out[cell, 1]), more)


@inner
def _uniform_prior(V_next: FloatArray, bits: int) -> Sum:
    """What an agent that never came reports with uniform weights."""
    S = len(V_next)
    x, y = moments(np.ones(S, dtype=np.int64), np.arange(S).astype(np.int32), V_next, bits)
    return divide_up(x, np.uint64(S)), divide_up(y, np.uint64(S)), (_ZERO, _ZERO)


@inner
def _sums_entry(
    h: int, i: int, s: int, a: int, experience: Experience, V_next: FloatArray, weighted: bool, bits: int
) -> Sum:
    """``X``, ``Y`` and ``Z`` of agent i at a pair it has visited."""
    visits, transitions, successors, rewards, sums = experience
    hc, hk = shared(h, visits.shape[1]), shared(h, successors.shape[0])
    n, counts, support = np.uint64(visits[i, hc, s, a]), transitions[i, hc, s, a], successors[hk, s, a]
    if len(sums.by_slot) > 0:
        by_slot, squares = sums.by_slot[i, hc, s, a], sums.squares[i, hc, s, a]
        x, y = moments_with_rewards(counts, by_slot, squares, support, V_next, bits)
        return (x, y, (_ZERO, _ZERO)) if weighted else (divide_up(x, n), divide_up(y, n), (_ZERO, _ZERO))
    x, y = moments(counts, support, V_next, bits)
    r = on_grid(reward_at(i, h, s, a, rewards), bits)
    if weighted:
        return x, y, product(n, r)
    return divide_up(x, n), divide_up(y, n), (_ZERO, r)


@compiled
def write_sums(h: int, experience: Experience, V_next: FloatArray, weighted: bool, grid: Grid, out: Sums) -> None:
    """Write the messages of all agents for step h."""
    n, X, Y, Z = out
    m, S, A = n.shape
    nothing = NOTHING if weighted else _uniform_prior(V_next, grid.bits)
    hc = shared(h, experience.visits.shape[1])
    for i in range(m):
        for s in range(S):
            for a in range(A):
                n[i, s, a] = experience.visits[i, hc, s, a]
                entry = nothing
                if n[i, s, a] > 0:
                    entry = _sums_entry(h, i, s, a, experience, V_next, weighted, grid.bits)
                write_words(entry[0], grid, X[i, s, a])
                write_words(entry[1], grid, Y[i, s, a])
                write_words(entry[2], grid, Z[i, s, a])


@inlined
def _report_entry(
    h: int,
    i: int,
    s: int,
    a: int,
    visits: Counters,
    transitions: Counters,
    successors: IndexArray,
    rewards: FloatArray,
    sums: RewardSums,
    unit: float,
    V_next: FloatArray,
    moments: Moments,
) -> Entry:
    """``n``, ``P V``, ``P V^2`` and ``Q = r + P V`` of agent i at (h,s,a).

    ``P V = sum_k n(s,a,s'_k) V(s'_k) / n(s,a)``; where ``n = 0`` the uniform kernel and reward 0. Where rewards are
    random the moments are those of ``y = r + V``, and Q is the first.
    """
    n = visits[i, h, s, a]
    if n == 0:
        return n, moments[0], moments[1], moments[0]
    hk = shared(h, successors.shape[0])
    x, y = 0.0, 0.0
    for k in range(transitions.shape[4]):
        v = V_next[successors[hk, s, a, k]]
        w = transitions[i, h, s, a, k] * v
        x += w
        y += w * v
    if len(sums.by_slot) > 0:
        for k in range(transitions.shape[4]):
            R = sums.by_slot[i, h, s, a, k] * unit
            x += R
            y += 2.0 * R * V_next[successors[hk, s, a, k]]
        squares = sums.squares[i, h, s, a]
        y += as_float((squares[0], squares[1])) * unit * unit
        return n, x / n, y / n, x / n
    return n, x / n, y / n, reward_at(i, h, s, a, rewards) + x / n


@inner
def _uniform_moments(V: FloatArray) -> Moments:
    """First and second moment of ``V`` under the uniform kernel."""
    mean, second = 0.0, 0.0
    for s in range(V.shape[0]):
        mean += V[s]
        second += V[s] * V[s]
    return mean / V.shape[0], second / V.shape[0]


@compiled
def write_rows(h: int, experience: Experience, unit: float, V_next: FloatArray, out: Rows) -> None:
    """Write the messages of all agents for step h."""
    n, PV, PV2, Q = out
    m, S, A = n.shape
    visits, transitions, successors, rewards, paid = experience
    moments = _uniform_moments(V_next)
    for i in range(m):
        for s in range(S):
            for a in range(A):
                n[i, s, a], PV[i, s, a], PV2[i, s, a], Q[i, s, a] = _report_entry(
                    h, i, s, a, visits, transitions, successors, rewards, paid, unit, V_next, moments
                )


# --------------------------------------------------------------------------------------------- server side


@inlined
def _add_entry(s: int, a: int, entry: Entry, weighted: bool, N: CountArray, sums: FloatArray) -> None:
    """Add one agent's report for (s,a) to the sums over agents: ``N[S,A]`` and those of ``w Q, w P V, w P V^2``."""
    n, PV, PV2, Q = entry
    weight = float(n) if weighted else 1.0
    N[s, a] += n
    sums[s, a, 0] += weight * Q
    sums[s, a, 1] += weight * PV
    sums[s, a, 2] += weight * PV2


@inner
def _finish_state(h: int, s: int, m: int, sums: FloatArray, rule: UpdateRule, estimates: Estimates) -> None:
    """``Q``, ``V`` and the policy at (h,s) from the sums over agents.

    ``Q = min(sum_i w^i Q^i + b, cap)`` with ``w^i = n^i/N`` or ``1/M``, ``Q = cap`` where ``N = 0``
    (``eq:update_rule``); ``Var = sum_i w^i P^i V^2 - (sum_i w^i P^i V)^2``.
    """
    _, Q, V, policy, updates = estimates
    H, N = Q.shape[0], estimates.N[h]
    for a in range(Q.shape[2]):
        total = float(N[s, a])
        if total == 0.0:
            Q[h, s, a] = unvisited(H, rule)
            continue
        weight = total if rule.weighted else float(m)
        variance = variance_of(sums[s, a, 1] / weight, sums[s, a, 2] / weight)
        Q[h, s, a] = optimistic(total, sums[s, a, 0] / weight, variance, H, rule)
    V[h, s] = act_greedily(h, s, rule, Q, policy, updates)


@compiled
def add_up_rows(h: int, report: Rows, rule: UpdateRule, estimates: Estimates) -> None:
    """Server side of step h, from all agents' messages in agent order."""
    n, PV, PV2, Q = report
    m, S, A = n.shape
    sums = np.zeros((S, A, 3))
    begin_step(h, estimates)
    N = estimates.N[h]
    for i in range(m):
        for s in range(S):
            for a in range(A):
                entry = (n[i, s, a], PV[i, s, a], PV2[i, s, a], Q[i, s, a])
                _add_entry(s, a, entry, rule.weighted, N, sums)
    for s in range(S):
        _finish_state(h, s, m, sums, rule, estimates)
