"""Fed-UCBVI's agents in a simulation: one table of transition counts for all of them.

The server uses nothing but sums over agents, so a simulation need not know which agent made which transition. Each
agent's own visits are kept, because the local rule reads them. All work follows what a round has touched: entries
that nobody ever visited cost nothing in a synchronisation, and a pair is worked out anew only if it was visited in
the round or the value of one of its next states has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, IndexArray, WordArray
from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, Setting, Touched
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus, write_words
from fed_ucbvi.algorithms.experience import Counters, counter_type
from fed_ucbvi.algorithms.fed_ucbvi_agents import AskingRule, global_budget, is_local, local_budget
from fed_ucbvi.algorithms.fed_ucbvi_server import Estimates, Server, UpdateRule, act_greedily, largest
from fed_ucbvi.algorithms.fed_ucbvi_sums import NOTHING, Entry, Sums, finish_pair, finish_state, moments, new_report
from fed_ucbvi.sampling.philox import product

_ZERO = np.uint64(0)


class Pool(NamedTuple):
    """What all agents together know.

    Attributes:
        visits: ``(H, S, A)``.
        transitions: ``(H, S, A, K)``.
        successors: ``(steps, S, A, K)``.
        rewards: ``(m or 1, steps, S, A)``.
        reward_sums: ``(H, S, A, 2)``, the sum of ``n^i ceil(r^i 2^f)`` over agents (high and low word), where agents
            have rewards of their own; otherwise empty.
        states: ``(H, S)``; the first ``numbers[h]`` of row h are the states ever visited at step h.
        numbers: ``(H,)``.
        fresh: ``(H, S)``, where somebody has been since the last synchronisation.
    """

    visits: CountArray
    transitions: CountArray
    successors: IndexArray
    rewards: FloatArray
    reward_sums: WordArray
    states: IndexArray
    numbers: CountArray
    fresh: npt.NDArray[np.bool_]


@dataclass
class PooledAgents:
    """A fleet whose transitions are counted together; ``own_visits (m, H, S, A)`` are each agent's."""

    pool: Pool
    own_visits: Counters
    out: Sums
    grid: Grid
    asks: Budgets
    rule: AskingRule
    last_policy: IndexArray
    last_counts: CountArray
    touched: Touched

    @classmethod
    def new(
        cls, setting: Setting, tables: FleetTables, asking: AskingRule, grid: Grid, touched: Touched
    ) -> PooledAgents:
        """No visits yet."""
        m, H, S, A = tables.agents, setting.horizon, setting.states, setting.actions
        own_rewards = tables.rewards.shape[0] > 1
        pool = Pool(
            np.zeros((H, S, A), dtype=np.int64),
            np.zeros((H, S, A, tables.successors.shape[3]), dtype=np.int64),
            tables.successors,
            tables.rewards,
            np.zeros((H if own_rewards else 0, S, A, 2), dtype=np.uint64),
            np.zeros((H, S), dtype=np.int32),
            np.zeros(H, dtype=np.int64),
            np.ones((H, S), dtype=np.bool_),
        )
        return cls(
            pool,
            np.zeros((m, H, S, A), dtype=counter_type(setting)),
            Sums(*new_report(True, grid, 1, S, A)),
            grid,
            Budgets(np.ones((m, H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int8)),
            asking,
            np.full((H, S), -1, dtype=np.int32),
            np.zeros((H, S), dtype=np.int64),
            touched,
        )

    @property
    def horizon(self) -> int:
        """H."""
        return int(self.pool.visits.shape[0])

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        pool = self.pool
        return {
            "own_visits": self.own_visits,
            "visits": pool.visits,
            "transitions": pool.transitions,
            "reward_sums": pool.reward_sums,
            "states": pool.states,
            "numbers": pool.numbers,
        }

    def budgets(self, policy: IndexArray, N: CountArray) -> Budgets:
        """When they ask in a round with this policy; called after every round, so that little has changed."""
        _update_budgets(
            self.own_visits, N, policy, self.rule, self.last_policy, self.last_counts, self.touched, self.asks
        )
        return self.asks

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Take in the round's counts."""
        _absorb(policy, transitions, visits, self.touched, self.grid.bits, self.pool, self.own_visits)

    def report(self, h: int, V_next: FloatArray) -> Sums:
        """The sum over all agents, as one row."""
        _write_report(h, self.pool, V_next, self.grid, self.out)
        return self.out

    def synchronise(self, server: Server) -> None:
        """All exchanges in one compiled piece."""
        _synchronise(self.pool, server.rule, server.estimates)


@compiled
def _update_budgets(
    own_visits: Counters,
    N: CountArray,
    policy: IndexArray,
    rule: AskingRule,
    last_policy: IndexArray,
    last_counts: CountArray,
    touched: Touched,
    asks: Budgets,
) -> None:
    """Bring budgets up to date: where the policy or N has changed, and where these agents were in the last round.

    N changes also where only agents of other fleets have been.
    """
    out, which = asks
    m, H, S = out.shape
    for h in range(H):
        for s in range(S):
            a = policy[h, s]
            n = N[h, s, a]
            if a != last_policy[h, s]:
                _update_place(h, s, own_visits, N, policy, rule, asks)
            elif n != last_counts[h, s]:
                before = which[h, s]
                which[h, s] = 0 if is_local(n, rule) else 1
                if which[h, s] == 1 or before == 1:
                    _update_place(h, s, own_visits, N, policy, rule, asks)
            last_policy[h, s], last_counts[h, s] = a, n
    for i in range(m):
        for j in range(touched.numbers[i]):
            h, s = divmod(touched.places[i, j], S)
            if which[h, s] == 0:
                out[i, h, s] = local_budget(own_visits[i, h, s, policy[h, s]], rule)


@compiled
def _update_place(
    h: int, s: int, own_visits: Counters, N: CountArray, policy: IndexArray, rule: AskingRule, asks: Budgets
) -> None:
    """All agents' budgets at one place."""
    out, which = asks
    a = policy[h, s]
    which[h, s] = 0 if is_local(N[h, s, a], rule) else 1
    for i in range(len(out)):
        if which[h, s] == 0:
            out[i, h, s] = local_budget(own_visits[i, h, s, a], rule)
        else:
            out[i, h, s] = global_budget(N[h, s, a], rule)


@compiled
def _absorb(
    policy: IndexArray,
    transitions: CountArray,
    visits: CountArray,
    touched: Touched,
    bits: int,
    pool: Pool,
    own_visits: Counters,
) -> None:
    """Add the round's counts; ``transitions`` is ``(1, H, S, K)``, ``visits`` ``(m, H, S)``."""
    (m, _, S), K = visits.shape, pool.transitions.shape[3]
    rewards = pool.rewards
    own_rewards = rewards.shape[0] > 1
    for i in range(m):
        for j in range(touched.numbers[i]):
            h, s = divmod(touched.places[i, j], S)
            a, n = policy[h, s], visits[i, h, s]
            own_visits[i, h, s, a] += n
            if own_rewards:
                r = on_grid(rewards[i, h if rewards.shape[1] > 1 else 0, s, a], bits)
                z = pool.reward_sums[h, s, a]
                z[0], z[1] = plus((z[0], z[1]), product(np.uint64(n), r))
    for j in range(touched.number[0]):
        h, s = divmod(touched.all_places[j], S)
        if pool.visits[h, s].sum() == 0:
            pool.states[h, pool.numbers[h]] = s
            pool.numbers[h] += 1
        a = policy[h, s]
        pool.fresh[h, s] = True
        pool.visits[h, s, a] += touched.all_visits[0, h, s]
        for k in range(K):
            pool.transitions[h, s, a, k] += transitions[0, h, s, k]


@compiled
def _pair(h: int, s: int, a: int, pool: Pool, V_next: FloatArray, bits: int) -> Entry:
    """``X``, ``Y`` and ``Z`` of all agents together at a pair that somebody has visited."""
    hk = h if pool.successors.shape[0] > 1 else 0
    x, y = moments(pool.transitions[h, s, a], pool.successors[hk, s, a], V_next, bits)
    rewards = pool.rewards
    if rewards.shape[0] > 1:
        z = pool.reward_sums[h, s, a]
        return x, y, (z[0], z[1])
    r = on_grid(rewards[0, h if rewards.shape[1] > 1 else 0, s, a], bits)
    return x, y, product(np.uint64(pool.visits[h, s, a]), r)


@compiled
def _write_report(h: int, pool: Pool, V_next: FloatArray, grid: Grid, out: Sums) -> None:
    """The sum of all agents' messages for step h, as one row."""
    n, X, Y, Z = out
    _, S, A = n.shape
    for s in range(S):
        for a in range(A):
            n[0, s, a] = pool.visits[h, s, a]
            entry = NOTHING
            if n[0, s, a] > 0:
                entry = _pair(h, s, a, pool, V_next, grid.bits)
            write_words(entry[0], grid, X[0, s, a])
            write_words(entry[1], grid, Y[0, s, a])
            write_words(entry[2], grid, Z[0, s, a])


@compiled
def _begin(rule: UpdateRule, estimates: Estimates) -> None:
    """Before the first synchronisation nothing is known anywhere."""
    N, Q, V, policy, _ = estimates
    H, S = policy.shape
    N[:] = 0
    for h in range(H):
        Q[h] = largest(h, H, rule)
        V[h] = largest(h, H, rule)
        for s in range(S):
            act_greedily(h, s, rule, estimates)


@compiled
def _synchronise(pool: Pool, rule: UpdateRule, estimates: Estimates) -> None:
    """All exchanges of a synchronisation."""
    N, _, V, policy, updates = estimates
    H, S = policy.shape
    A, K = pool.transitions.shape[2:]
    updates[0] += 1
    if updates[0] == 1:
        _begin(rule, estimates)
    changed, changed_next = np.zeros(S, dtype=np.bool_), np.zeros(S, dtype=np.bool_)
    any_next = False
    for h in range(H - 1, -1, -1):
        hk = h if pool.successors.shape[0] > 1 else 0
        any_here = False
        for j in range(pool.numbers[h]):
            s = pool.states[h, j]
            fresh, redone = pool.fresh[h, s], False
            for a in range(A):
                if pool.visits[h, s, a] == 0:
                    continue
                stale = fresh
                if any_next and not stale:
                    for k in range(K):
                        stale |= changed_next[pool.successors[hk, s, a, k]]
                if stale:
                    N[h, s, a] = pool.visits[h, s, a]
                    finish_pair(h, s, a, _pair(h, s, a, pool, V[h + 1], rule.grid.bits), rule, estimates)
                    redone = True
            pool.fresh[h, s] = False
            if redone:
                before = V[h, s]
                finish_state(h, s, rule, estimates)
                if V[h, s] != before:
                    changed[s] = any_here = True
        if rule.random_ties:  # drawn anew at every synchronisation, everywhere
            for s in range(S):
                act_greedily(h, s, rule, estimates)
        changed, changed_next, any_next = changed_next, changed, any_here
        changed[:] = False
