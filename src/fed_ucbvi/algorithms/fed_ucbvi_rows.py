"""Fed-UCBVI's agents where each keeps its own counts, and what they report: exact sums, means on the grid, or floats.

A liar replaces its own row before the server adds up, so the server must be sent rows of floats then. Sums over
agents are computed in agent order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, RewardSums, Setting
from fed_ucbvi.algorithms.count_table import CountTable, NewCounts, integers, to_words
from fed_ucbvi.algorithms.counting_agents import fill_budgets
from fed_ucbvi.algorithms.exact_sums import Grid, as_float, divide_up, on_grid, write_words
from fed_ucbvi.algorithms.experience import Experience, absorb_round, no_experience
from fed_ucbvi.algorithms.fed_ucbvi_server import (
    NOTHING,
    Entry,
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
from fed_ucbvi.algorithms.kernels import variance_of
from fed_ucbvi.algorithms.synchronisation_rules import SynchronisationRule
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import reward_at, shared
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray

_ZERO = np.uint64(0)


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
        m, H, S, A = tables.agents, setting.horizon, setting.states, setting.actions
        asks = Budgets(np.ones((m, H, S), np.int64), np.zeros((H, S), np.int8), float(rule.min_round_growth))
        n = np.zeros((m, S, A), dtype=np.int64)
        more: list[Any] = [np.zeros((m, S, A)) for _ in range(3)]
        if form is not Rows:
            more = [np.zeros((m, S, A, words), dtype=np.int64) for words in (grid.words, 2, grid.words)]
        return cls(no_experience(setting, tables), asks, rule, setting.agents, form(n, *more), grid)

    def arrays(self) -> dict[str, Array]:
        return {"visits": self.experience.visits, "transitions": self.experience.transitions}

    def budgets(self, policy: IndexArray, N: CountArray) -> Budgets:
        fill_budgets(self.rule, self.experience.visits, N, policy, self.federation_size, self.asks)
        return self.asks

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        absorb_round(policy, transitions, visits, self.experience.transitions, self.experience.visits)

    def report(self, h: int, V_next: FloatArray) -> Sums | Means | Rows:
        if isinstance(self.out, Rows):
            write_rows(h, self.experience, self.grid.unit, V_next, self.out)
        else:
            write_sums(h, self.experience, V_next, isinstance(self.out, Sums), self.grid, Sums(*self.out))
        return self.out

    def counts(self, bits: int) -> NewCounts:
        """All that they have counted, to be added to a table."""
        own = self.experience
        moves = own.transitions.sum(axis=0, dtype=np.int64).reshape((-1, own.transitions.shape[4]))
        cells: IndexArray = np.flatnonzero(moves.any(axis=1)).astype(np.int32)
        if len(own.sums.by_slot):
            paid, squares = own.sums.by_slot.sum(axis=0).reshape(moves.shape), integers(own.sums.squares).sum(axis=0)
            totals = to_words(paid.sum(axis=1).astype(object))
            return NewCounts(cells, own.successors, moves, totals, paid, to_words(squares.reshape(-1)))
        each = np.ceil(own.rewards * 2.0**bits).astype(np.int64).astype(object)
        totals = to_words((own.visits.astype(object) * each).sum(axis=0).reshape(-1))
        return NewCounts(cells, own.successors, moves, totals)


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


@inner
def _uniform_prior(V_next: FloatArray, bits: int) -> Entry:
    """What an agent that never came reports with uniform weights."""
    S = len(V_next)
    x, y = moments(np.ones(S, dtype=np.int64), np.arange(S).astype(np.int32), V_next, bits)
    return divide_up(x, np.uint64(S)), divide_up(y, np.uint64(S)), (_ZERO, _ZERO)


@inner
def _sums_entry(
    h: int, i: int, s: int, a: int, experience: Experience, V_next: FloatArray, weighted: bool, bits: int
) -> Entry:
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


@compiled
def write_rows(h: int, experience: Experience, unit: float, V_next: FloatArray, out: Rows) -> None:
    """Write ``n``, ``P V``, ``P V^2`` and ``Q = r + P V`` of all agents for step h.

    ``P V = sum_k n(s,a,s'_k) V(s'_k) / n(s,a)``; where ``n = 0`` the uniform kernel and reward 0. Where rewards are
    random the moments are those of ``y = r + V``, and Q is the first.
    """
    n, PV, PV2, Q = out
    visits, transitions, successors, rewards, sums = experience
    (m, S, A), K, random = n.shape, transitions.shape[4], len(sums.by_slot) > 0
    hk, mean, second = shared(h, successors.shape[0]), 0.0, 0.0
    for s in range(S):
        mean += V_next[s]
        second += V_next[s] * V_next[s]
    for i in range(m):
        for s in range(S):
            for a in range(A):
                count, r, x, y = visits[i, h, s, a], 0.0, 0.0, 0.0
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


# --------------------------------------------------------------------------------------------- server side


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
            mean, first, second = 0.0, 0.0, 0.0
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
        V[h, s] = act_greedily(h, s, rule, Q, policy, updates)
