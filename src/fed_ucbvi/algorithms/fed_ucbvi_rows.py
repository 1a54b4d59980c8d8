"""Fed-UCBVI with one row of means for each agent, for reports that may be forged one by one.

A liar replaces its own row before the server adds up, so the server must be sent rows then. Means are floats; sums
over agents are computed in agent order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import FleetTables, RewardSums, Setting
from fed_ucbvi.algorithms.exact_sums import Grid, as_float
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
from fed_ucbvi.algorithms.kernels import variance_of
from fed_ucbvi.algorithms.synchronisation_rules import SynchronisationRule
from fed_ucbvi.core.compiling import compiled, inlined, inner
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

Entry = tuple[int, float, float, float]
"""One agent's ``n``, ``P V``, ``P V^2`` and ``Q`` at one (h,s,a)."""
Moments = tuple[float, float]
"""First and second moment of ``V`` under the uniform kernel."""


class Rows(NamedTuple):
    """Up, for step h, one row for each agent: ``n``, ``P V``, ``P V^2`` and ``Q``, each ``(m, S, A)``."""

    n: CountArray
    PV: FloatArray
    PV2: FloatArray
    Q: FloatArray


@dataclass
class RowAgents(CountingAgents):
    """Agents that report means as floats; of pairs never visited the uniform kernel and reward 0."""

    out: Rows
    unit: float
    """Of the sums of random rewards."""

    @classmethod
    def new(cls, setting: Setting, tables: FleetTables, rule: SynchronisationRule, grid: Grid) -> RowAgents:
        """No visits yet."""
        shape = (tables.agents, setting.states, setting.actions)
        out = Rows(np.zeros(shape, dtype=np.int64), *(np.zeros(shape) for _ in range(3)))
        return cls(*no_counts(setting, tables, rule), out, grid.unit)

    def report(self, h: int, V_next: FloatArray) -> Rows:
        """One row for each agent."""
        write_rows(h, self.experience, self.unit, V_next, self.out)
        return self.out


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
    hk = h if successors.shape[0] > 1 else 0
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
    hr = h if rewards.shape[1] > 1 else 0
    ir = i if rewards.shape[0] > 1 else 0
    return n, x / n, y / n, rewards[ir, hr, s, a] + x / n


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
