"""The best policy all agents can share, ``max_pi 1/M sum_i V^{i,pi}_1(mu^i)``, in a certified bracket.

This maximum is what federated regret (``def:regret``) compares with. The problem is that of multi-model MDPs, NP-hard
in general (Steimle, Kaufman and Denton, 2021). Three steps:

1. from below: coordinate ascent over the decisions ``(h,s)`` from several starts;
2. from above: the mean of the agents' own optima minus a lower bound on the cost of sharing
   (:mod:`~fed_ucbvi.paper.sharing_bounds`), which also rules out actions that no better policy can take;
3. branch and bound over the decisions ``(h,s)`` that are still open, best bound first, until the bracket is closed or
   the limit of work is reached.

*Which policies.* The bracket is for Markov policies ``pi_h(s)``, what the paper's algorithms play. The mean value is
linear in each decision rule alone, so some deterministic Markov policy is best among all Markov ones, randomised ones
included. A policy that remembers its history can be better still, because the path shows which agent it serves;
``history_upper`` bounds those as well.

*Coordinate ascent.* The mean value of a Markov policy is linear in each decision rule ``pi_h(s)`` alone:

``1/M sum_i V^{i,pi} = const + 1/M sum_i d^{i,pi}_h(s) Q^{i,pi}_h(s, pi_h(s))``,

where ``d_h`` depends on the decisions before h and ``Q_h`` on those after it. A sweep goes from h = H to 1 and takes,
at every ``(h,s)``, the action with the largest weighted sum. This is exact for that decision, so a sweep never lowers
the value. Sweeps are repeated until the value no longer rises. With weights 1 instead of d the first sweep is the
weight-select-update rule of multi-model MDPs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.numbers import Bracket
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.paper.sharing_bounds import AllowedArray, own_optima, tighten
from fed_ucbvi.problem.agent_tables import AgentTables, action_values, evaluate, occupancies
from fed_ucbvi.problem.dynamic_programming import optimal_values, policy_values

if TYPE_CHECKING:
    from fed_ucbvi.problem.federation import Federation

WORK = 5 * 10**8
"""Table entries (agent, step, state, action, next state) read, at most; about a second's worth."""
MIN_PASS = 1 << 15
"""A pass over smaller tables counts as one over this many entries, because it takes no less time."""
MIN_PASSES = 8
"""The number of passes that are always made, however large the tables are."""
TOLERANCE = 1e-12
"""The bracket is closed when it is narrower than this share of H, the most an episode can pay."""

OWN_STARTS = 20
"""The search starts from the individual optimal policies of at most this many agents."""
ROUNDING = 1e-13
"""A gain below this share of the most that an episode can pay counts as none."""


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


def honest_tables(federation: Federation) -> AgentTables:
    """The tables of all honest agents, or of one where all are alike."""
    if federation.alike:
        return federation.kind_tables
    return federation.tables_of(federation.honest)


def search_common_policy(federation: Federation, work: int = WORK) -> CommonOptimum:
    """Bracket the best common policy of the honest agents; the result depends on nothing but the arguments.

    Args:
        federation: the agents.
        work: table entries to read, at most (a few passes over the tables are always made).
    """
    tables = honest_tables(federation)
    common = federation.common.solve().policy
    if tables.initial.shape[1] == 1:
        policy = own_policy(tables, 0, len(common))
        V = policy_values(
            tables.successors,
            tables.probabilities[..., 0],
            tables.rewards[..., 0],
            policy,
        )
        value = float((tables.initial[:, 0] * V[0]).cumsum()[-1])  # as evaluate() adds, which would be compiled
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


class _PolicySet(NamedTuple):
    """A set of policies that may contain a better one; sets are ordered by their bounds, the largest first.

    ``policy`` is a good one in the set, and ``step`` and ``state`` the decision to branch on (-1: none is left).
    """

    negative_bound: float
    number: int
    allowed: AllowedArray
    policy: IndexArray
    step: int
    state: int


class _Search:
    """The best policy so far, the sets of policies still open, and the work done."""

    def __init__(self, tables: AgentTables, work: int) -> None:
        self.tables = tables
        self.shared: FloatArray = np.ascontiguousarray(self.tables.probabilities.min(axis=-1))
        S, m = self.tables.initial.shape
        H = len(tables.reachable)
        A = tables.successors.shape[2]
        self.shape = (H, S, A)
        self.agents = m
        self.tolerance = TOLERANCE * H
        entries = max(MIN_PASS, self.tables.probabilities[0].size * H)
        self.passes = max(MIN_PASSES, work // entries)
        self.spent = 0
        self.nodes = 0
        self.lower = -1.0
        self.upper = np.inf
        self.own = np.inf
        self.history_upper = np.inf
        self.policy: IndexArray = np.zeros((H, S), dtype=np.int32)
        self.open: list[_PolicySet] = []

    @property
    def left(self) -> int:
        return int(self.passes - self.spent)

    @property
    def closed(self) -> bool:
        return self.upper <= self.lower + self.tolerance

    def improve(self, policy: IndexArray) -> None:
        """Coordinate ascent from ``policy``, in place; keep the result if it is better than the best so far."""
        value, sweeps = ascend(self.tables, policy, max(1, min(self.left, self.passes // 4)))
        self.spent += sweeps
        if value > self.lower + self.tolerance / 2 or self.lower < 0.0:
            self.lower = evaluate(self.tables, policy)
            self.policy = policy

    def bound_all(self) -> None:
        H, S, _ = self.shape
        everything = np.ones(self.shape, dtype=np.bool_)
        V = np.zeros((H + 1, S, self.agents))
        W = np.zeros((H + 1, S))
        own, overlap = own_optima(self.tables, self.shared, everything, V, W)
        self.spent += 1
        self.own = own / self.agents
        self.history_upper = (own - overlap) / self.agents
        self._bound(everything, self.history_upper)
        self.upper = self.lower
        if self.open:
            self.upper = max(self.lower, -self.open[0].negative_bound)

    def _bound(self, allowed: AllowedArray, above: float) -> None:
        """Bound a set of policies with values of at most ``above``; keep it if it may contain a better policy."""
        known = (self.lower + self.tolerance) * self.agents
        upper, policy, h, s, passes = tighten(self.tables, self.shared, allowed, known, max(2, self.left))
        self.spent += passes
        self.nodes += 1
        bound = min(upper / self.agents, above)
        if bound > self.lower + self.tolerance:
            policies = _PolicySet(
                negative_bound=-bound,
                number=self.nodes,
                allowed=allowed,
                policy=policy,
                step=h,
                state=s,
            )
            heapq.heappush(self.open, policies)

    def branch(self) -> None:
        """Split the set with the largest bound until no set can contain a better policy than the best so far."""
        settled = self.lower
        while self.open and self.left > 2 * self.shape[2]:
            policies = heapq.heappop(self.open)
            bound = -policies.negative_bound
            if bound <= self.lower + self.tolerance:
                self.open.clear()
                break
            self.improve(policies.policy)
            h = policies.step
            s = policies.state
            if h < 0:
                settled = max(settled, bound)
                continue
            for a in np.flatnonzero(policies.allowed[h, s]).tolist():
                part = policies.allowed.copy()
                part[h, s] = False
                part[h, s, a] = True
                self._bound(part, bound)
        open_bounds = [-policies.negative_bound for policies in self.open]
        self.upper = max([self.lower, settled, *open_bounds])


@compiled
def sweep(tables: AgentTables, weights: FloatArray, policy: IndexArray) -> float:
    """One sweep, in place, with the ``d^i_h(s)`` as ``weights[H,S,m]``; returns the value, summed over agents."""
    successors, probabilities, rewards, initial, _, _, _ = tables
    _, S, A, _, m = probabilities.shape
    H = policy.shape[0]
    margin = ROUNDING * H * m
    V = np.zeros((2, S, m))
    Q = np.zeros((A, m))
    for h in range(H - 1, -1, -1):
        here = V[h % 2]
        after = V[(h + 1) % 2]
        for s in range(S):
            weight = weights[h, s]
            best = policy[h, s]
            most = 0.0
            for j in range(A + 1):  # the present action first: another has to be better
                a = best if j == 0 else j - 1
                if j == 0 or a != policy[h, s]:
                    action_values(successors, probabilities, rewards, after, h, s, a, Q, a)
                    total = 0.0
                    for i in range(m):
                        total += weight[i] * Q[a, i]
                    if j == 0 or total > most + margin:
                        best = a
                        most = total
            policy[h, s] = best
            here[s] = Q[best]
    total = 0.0
    for s in range(S):
        for i in range(m):
            total += initial[s, i] * V[0, s, i]
    return total


@compiled
def ascend(tables: AgentTables, policy: IndexArray, most: int) -> tuple[float, int]:
    """At most ``most`` sweeps, in place, until the value no longer rises; returns ``(mean value, sweeps)``."""
    H = policy.shape[0]
    m = tables.initial.shape[1]
    value = 0.0
    for sweeps in range(1, most + 1):
        before = value
        value = sweep(
            tables,
            occupancies(tables.successors, tables.probabilities, tables.initial, policy),
            policy,
        )
        if sweeps > 1 and value <= before + ROUNDING * H * m:
            return value / m, sweeps
    return value / m, most


def starting_policies(tables: AgentTables, common: IndexArray) -> Iterator[IndexArray]:
    """Different starts: optimal in the common MDP, optimal in the mean MDP, select-update, optimal for one agent."""
    seen = set()
    for policy in _candidates(tables, common):
        key = policy.tobytes()
        if key not in seen:
            seen.add(key)
            yield policy


def _candidates(tables: AgentTables, common: IndexArray) -> Iterator[IndexArray]:
    H = len(common)
    yield common.copy()
    kernel = np.ascontiguousarray(tables.probabilities.mean(axis=-1))
    rewards = np.ascontiguousarray(tables.rewards.mean(axis=-1))
    _, _, optimal_in_mean = optimal_values(tables.successors, kernel, rewards, H)
    yield optimal_in_mean
    selected = common.copy()
    sweep(tables, np.ones((H, *tables.initial.shape)), selected)
    yield selected
    places = np.linspace(0, tables.initial.shape[1] - 1, OWN_STARTS)
    for j in np.unique(places.astype(np.int64)).tolist():
        yield own_policy(tables, j, H)


def own_policy(tables: AgentTables, agent: int, horizon: int) -> IndexArray:
    """The optimal policy of one of the agents alone."""
    kernel = np.ascontiguousarray(tables.probabilities[..., agent])
    rewards = np.ascontiguousarray(tables.rewards[..., agent])
    _, _, policy = optimal_values(tables.successors, kernel, rewards, horizon)
    return policy
