"""The best policy all agents can share, ``max_pi 1/M sum_i V^{i,pi}_1(mu^i)``, in a certified bracket.

This maximum is what federated regret (``def:regret``) compares with. The problem is that of multi-model MDPs, NP-hard
in general (Steimle, Kaufman and Denton, 2021). Three steps:

1. from below: coordinate ascent from several starts (:mod:`~fed_ucbvi.problem.coordinate_ascent`);
2. from above: the mean of the agents' own optima minus a lower bound on the cost of sharing
   (:mod:`~fed_ucbvi.problem.sharing_bounds`), which also rules out actions that no better policy can take;
3. branch and bound over the decisions ``(h,s)`` that are still open, best bound first, until the bracket is closed or
   the limit of work is reached.

*Which policies.* The bracket is for Markov policies ``pi_h(s)``, what the paper's algorithms play. The mean value is
linear in each decision rule alone, so some deterministic Markov policy is best among all Markov ones, randomised ones
included. A policy that remembers its history can be better still, because the path shows which agent it serves;
``history_upper`` bounds those as well.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from fed_ucbvi.core.bracket import Bracket
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.problem.agent_tables import AgentTables, mean_value, no_policy, update_values
from fed_ucbvi.problem.coordinate_ascent import ascend, own_policy, starting_policies
from fed_ucbvi.problem.sharing_bounds import AllowedArray, own_optima, tighten

WORK = 5 * 10**8
"""Table entries (agent, step, state, action, next state) read, at most; about a second's worth."""
MIN_PASS = 1 << 15
"""A pass over smaller tables counts as one over this many entries, because it takes no less time."""
MIN_PASSES = 8
"""The number of passes that are always made, however large the tables are."""
TOLERANCE = 1e-12
"""The bracket is closed when it is narrower than this share of H, the most an episode can pay."""


@dataclass(frozen=True, eq=False)
class CommonOptimum:
    """The best common policy, as far as it is known.

    Attributes:
        value: bracket of ``max_pi 1/M sum_i V^{i,pi}_1(mu^i)`` over Markov policies; exact when closed.
        policy: the policy ``[H,S]`` that attains its lower end.
        history_upper: no policy does better, whatever it remembers.
        own: the mean of the agents' own optimal values.
        nodes: the number of sets of policies for which a bound was computed; 1 if no branching was needed.
    """

    value: Bracket
    policy: IndexArray
    history_upper: float
    own: float
    nodes: int


def search_common_policy(tables: AgentTables, common: IndexArray, work: int = WORK) -> CommonOptimum:
    """Bracket the best common policy of these agents; the result depends on nothing but the arguments.

    Args:
        tables: the agents; one of them, where all are alike.
        common: a policy to begin with, the best one of their common MDP.
        work: table entries to read, at most (a few passes over the tables are always made).
    """
    if tables.initial.shape[1] == 1:
        policy = own_policy(tables, 0, len(common))
        value = evaluate(tables, policy)
        return CommonOptimum(Bracket(value, value), policy, history_upper=value, own=value, nodes=1)
    search = _Search(tables, work)
    starts = starting_policies(tables, common)
    search.improve(next(starts))
    search.bound_all()
    for policy in starts:
        if search.closed or search.spent > search.passes // 4:
            break
        search.improve(policy)
    search.branch()
    lower = search.lower
    upper = lower if search.closed else min(search.upper, search.own)
    return CommonOptimum(
        value=Bracket(lower, upper),
        policy=search.policy,
        history_upper=max(search.history_upper, lower),
        own=max(search.own, lower),
        nodes=search.nodes,
    )


class _Search:
    """The best policy so far, the sets of policies still open, and the work done."""

    def __init__(self, tables: AgentTables, work: int) -> None:
        self.tables = tables
        self.shared: FloatArray = np.ascontiguousarray(self.tables.probabilities.min(axis=-1))
        S, m = self.tables.initial.shape
        H, A = len(tables.reachable), tables.successors.shape[2]
        self.shape = (H, S, A)
        self.agents = m
        self.tolerance = TOLERANCE * H
        entries = max(MIN_PASS, self.tables.probabilities[0].size * H)
        self.passes = max(MIN_PASSES, work // entries)
        self.spent = self.nodes = 0
        self.lower, self.upper = -1.0, np.inf
        self.own = self.history_upper = np.inf
        self.policy: IndexArray = np.zeros((H, S), dtype=np.int32)
        self.open: list[tuple[float, int, AllowedArray, IndexArray, int, int]] = []

    @property
    def left(self) -> int:
        """Passes that may still be made."""
        return int(self.passes - self.spent)

    @property
    def closed(self) -> bool:
        """Whether the bracket is closed."""
        return self.upper <= self.lower + self.tolerance

    def improve(self, policy: IndexArray) -> None:
        """Coordinate ascent from ``policy``, in place; keep the result if it is better than the best so far."""
        value, sweeps = ascend(self.tables, policy, max(1, min(self.left, self.passes // 4)))
        self.spent += sweeps
        if value > self.lower + self.tolerance / 2 or self.lower < 0.0:
            self.lower, self.policy = evaluate(self.tables, policy), policy

    def bound_all(self) -> None:
        """Bound the set of all policies."""
        H, S, _ = self.shape
        everything = np.ones(self.shape, dtype=np.bool_)
        V, W = np.zeros((H + 1, S, self.agents)), np.zeros((H + 1, S))
        own, overlap = own_optima(self.tables, self.shared, everything, V, W)
        self.spent += 1
        self.own, self.history_upper = own / self.agents, (own - overlap) / self.agents
        self._bound(everything, self.history_upper)
        self.upper = max(self.lower, -self.open[0][0]) if self.open else self.lower

    def _bound(self, allowed: AllowedArray, above: float) -> None:
        """Bound a set of policies worth at most ``above``; keep it if it may contain a better policy."""
        known = (self.lower + self.tolerance) * self.agents
        upper, policy, h, s, made = tighten(self.tables, self.shared, allowed, known, max(2, self.left))
        self.spent += made
        self.nodes += 1
        bound = min(upper / self.agents, above)
        if bound > self.lower + self.tolerance:
            heapq.heappush(self.open, (-bound, self.nodes, allowed, policy, h, s))

    def branch(self) -> None:
        """Split the set with the largest bound until no set can contain a better policy than the best so far."""
        settled = self.lower
        while self.open and self.left > 2 * self.shape[2]:
            bound, _, allowed, policy, h, s = heapq.heappop(self.open)
            if -bound <= self.lower + self.tolerance:
                self.open.clear()
                break
            self.improve(policy)
            if h < 0:
                settled = max(settled, -bound)
                continue
            for a in np.flatnonzero(allowed[h, s]).tolist():
                part = allowed.copy()
                part[h, s] = False
                part[h, s, a] = True
                self._bound(part, -bound)
        self.upper = max([self.lower, settled, *(-entry[0] for entry in self.open)])


def evaluate(tables: AgentTables, policy: IndexArray) -> float:
    """``1/m sum_i V^{i,pi}_1(mu^i)``."""
    H, S = policy.shape
    V, last = np.zeros((H + 1, S, tables.initial.shape[1])), no_policy(H, S, tables.successors.shape[2])
    update_values(*tables[:3], tables.reachable, policy, last, V)
    return float(mean_value(tables.initial, V))
