"""The best policy all agents can share, ``max_pi 1/M sum_i V^{i,pi}_1(mu^i)``, in a certified bracket.

This maximum is what federated regret (``def:regret``) compares with. The problem is that of multi-model MDPs, NP-hard
in general (Steimle, Kaufman and Denton, 2021). Three steps:

1. from below: coordinate ascent from several starts (:mod:`~fed_ucbvi.problem.coordinate_ascent`);
2. from above: the mean of the agents' own optima less what sharing must cost
   (:mod:`~fed_ucbvi.problem.sharing_bounds`), ruling out actions no better policy can take;
3. branch and bound over the decisions ``(h,s)`` left open, best bound first, until the bracket is closed or the work
   allowed is done.

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
from fed_ucbvi.core.errors import check_positive_integer
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.problem.agent_tables import AgentTables, mean_value, no_policy, update_values
from fed_ucbvi.problem.coordinate_ascent import ascend, starting_policies
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.sharing_bounds import AllowedArray, own_optima, tighten

WORK = 5 * 10**8
"""Table entries (agent, step, state, action, next state) read, at most; about a second's worth."""
MIN_PASS = 1 << 15
"""A pass over smaller tables than this counts as one over so many entries: it takes no less time."""
MIN_PASSES = 8
"""Passes over all tables that are made however large they are."""
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
        nodes: sets of policies bounded; 1 if no branching was needed.
    """

    value: Bracket
    policy: IndexArray
    history_upper: float
    own: float
    nodes: int


def best_common_policy(federation: Federation, *, work: int = WORK) -> CommonOptimum:
    """Bracket the best common policy of the honest agents; the result depends on nothing but the arguments.

    :attr:`Federation.common_optimum` is this with the default ``work``, found once and kept.

    Args:
        federation: the agents.
        work: table entries to read, at most (a few passes over the tables are always made). More may narrow a bracket
            that is not exact.

    >>> from fed_ucbvi import gridworld
    >>> optimum = best_common_policy(gridworld(agents=5, eps_p=0.1))
    >>> optimum.value.exact, round(optimum.value.lower, 4), round(optimum.own, 4)
    (True, 3.7528, 3.7897)
    """
    allowance = check_positive_integer("work", work)
    if federation.alike:
        return _best_of_all(federation)
    search = _Search(federation, allowance)
    starts = starting_policies(federation, search.tables)
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


def _best_of_all(federation: Federation) -> CommonOptimum:
    """Where all agents have the same MDP: its optimum."""
    policy = federation.agent(int(federation.honest[0])).solve().policy
    value = evaluate(federation.kind_tables, policy)
    return CommonOptimum(Bracket(value, value), policy, history_upper=value, own=value, nodes=1)


def price_of_sharing(federation: Federation) -> Bracket:
    """What agents lose, on average, by sharing one policy: the mean of their own optima less the best common value.

    >>> from fed_ucbvi import synthetic
    >>> price_of_sharing(synthetic(agents=4))
    Bracket(lower=0.0, upper=0.0)
    """
    optimum = federation.common_optimum
    lower, upper = (optimum.own - end for end in reversed(optimum.value))
    slack = TOLERANCE * federation.horizon
    return Bracket(lower if lower > slack else 0.0, upper if upper > slack else 0.0)


class _Search:
    """The best policy so far, the sets of policies still open, and the work done."""

    def __init__(self, federation: Federation, work: int) -> None:
        self.tables: AgentTables = federation.agent_tables
        self.shared: FloatArray = np.ascontiguousarray(self.tables.probabilities.min(axis=-1))
        S, m = self.tables.initial.shape
        H, A = federation.horizon, federation.actions
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
        """Whether the bracket is."""
        return self.upper <= self.lower + self.tolerance

    def improve(self, policy: IndexArray) -> None:
        """Climb from ``policy`` (changed in place); keep what is reached if it is better."""
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
        """Bound a set of policies, known to be worth ``above`` at most; keep it if it may hold a better one."""
        known = (self.lower + self.tolerance) * self.agents
        upper, policy, h, s, made = tighten(self.tables, self.shared, allowed, known, max(2, self.left))
        self.spent += made
        self.nodes += 1
        bound = min(upper / self.agents, above)
        if bound > self.lower + self.tolerance:
            heapq.heappush(self.open, (-bound, self.nodes, allowed, policy, h, s))

    def branch(self) -> None:
        """Split the set with the largest bound, again and again, until none is better than what is known."""
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
