"""Fed-UCBVI's agents in a simulation: one table of transition counts for all of them.

The server uses nothing but sums over agents, so a simulation need not know which agent made which transition. Each
agent's own visits are kept where the local rule reads them. Only what a round has touched costs time. Entries that
no agent ever visited cost nothing in a synchronisation, and a pair is recomputed only if it was visited in the round
or the value of one of its next states has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, RewardSums, Setting, Touched
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus, round_up, write_words
from fed_ucbvi.algorithms.experience import Counters, counter_type, pair_of
from fed_ucbvi.algorithms.fed_ucbvi_agents import (
    AskingRule,
    global_budget,
    is_local,
    local_budget,
    no_budgets,
)
from fed_ucbvi.algorithms.fed_ucbvi_server import (
    TIES,
    Estimates,
    Server,
    UpdateRule,
    act_greedily,
    optimistic,
    unvisited,
)
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
from fed_ucbvi.core.compiling import compiled, embedded, inlined, inner
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, WordArray

_RANDOM = TIES.index("random")


class Pool(NamedTuple):
    """What all agents together know.

    Attributes:
        visits: ``(H, S, A)``.
        transitions: ``(H, S, A, K)``.
        successors: ``(kernel's steps, S, A, K)``.
        rewards: ``(m or 1, rewards' steps, S, A)``.
        reward_sums: ``(H, S, A, 2)``, the sum of ``n^i ceil(r^i 2^f)`` over agents (high and low word), where
            agents have rewards of their own; otherwise empty.
        states: ``(H, S)``; the first ``numbers[h]`` of row h are the states ever visited at step h.
        numbers: ``(H,)``.
        fresh: ``(H, S)``, what some agent has visited since the last synchronisation.
        sums: of random rewards, with one row; not changed here.
    """

    visits: CountArray
    transitions: CountArray
    successors: IndexArray
    rewards: FloatArray
    reward_sums: WordArray
    states: IndexArray
    numbers: CountArray
    fresh: MaskArray
    sums: RewardSums


@dataclass
class PooledAgents:
    """A fleet whose transitions are counted together.

    ``own_visits (m, steps, S, A)`` are each agent's, where the rule reads them; otherwise there are none.
    """

    horizon: int
    pool: Pool
    own_visits: Counters
    out: Sums
    grid: Grid
    asks: Budgets
    rule: AskingRule
    last_policy: IndexArray
    last_counts: CountArray
    """N by place as it was before the last round, where others than these agents add to it; otherwise empty."""
    touched: Touched

    @classmethod
    def new(
        cls,
        setting: Setting,
        tables: FleetTables,
        asking: AskingRule,
        grid: Grid,
        touched: Touched,
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
            tables.sums,
        )
        counters = counter_type(setting, rows=m)
        return cls(
            H,
            pool,
            np.zeros((0 if asking.alike else m, H, S, A), dtype=counters),
            Sums(*new_report(True, grid, 1, S, A)),
            grid,
            no_budgets(setting, 1 if asking.alike else m, counters),
            asking,
            np.full((H, S), -1, dtype=np.int32),
            np.zeros((H, S) if m < setting.agents else (0,), dtype=np.int64),
            touched,
        )

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
        """Budgets for a round with this policy; called after every round, so that little has changed.

        Where the local rule stays in force, :meth:`absorb` has set the budgets already.
        """
        places, (visits, rule, _) = self._changed(policy, N), self.asks
        _update_budgets(self.own_visits, N, policy, self.rule, self.last_policy, places, visits, rule)
        return self.asks

    def _changed(self, policy: IndexArray, N: CountArray) -> IndexArray:
        """Places where N may have changed: where these agents were in the last round, if there are no others.

        N changes also where only agents of other fleets have been.
        """
        if not self.last_counts.size:
            return self.touched.all_places[: self.touched.number[0]]
        counts = np.take_along_axis(N, policy[:, :, None], axis=2)[:, :, 0]
        places = np.flatnonzero(counts != self.last_counts).astype(np.int32)
        self.last_counts[...] = counts
        return places

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts, and set the budgets of the local rule where the agents have been."""
        rows, K = len(visits), transitions.shape[-1]
        moves, seen = transitions.reshape((-1, K)), visits.reshape((rows, -1))
        due, rule, _ = self.asks
        _absorb(policy, moves, seen, self.touched, self.grid.bits, self.pool, self.rule, self.own_visits, due, rule)

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
    changed: IndexArray,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Bring budgets by (h,s) up to date where policy or N has changed, but where the local rule stays in force.

    First find those places, then go through the agents in the order of memory. By the global rule all agents have one
    budget, about N/M, so that it often stays the same while N grows.
    """
    (H, S), A = policy.shape, N.shape[2]
    P, m = H * S, len(out)
    actions, last, counts = policy.reshape(P), last_policy.reshape(P), N.reshape(P * A)
    rules, budgets, own = which.reshape(P), out.reshape((m, P)), own_visits.reshape((len(own_visits), P * A))
    places, number = np.empty(P + len(changed), dtype=np.int64), 0
    for place in range(P):
        if last[place] != actions[place]:
            last[place] = actions[place]
            places[number] = place
            number += 1
    for j in range(len(changed)):
        there = np.int64(changed[j])
        n = counts[there * A + actions[there]]
        if not is_local(n, rule):
            stays = rules[there] == 1 and budgets[0, there] == global_budget(n, rule)
        else:
            stays = rules[there] == 0
        if not stays:
            places[number] = there
            number += 1
    shared = np.empty(number, dtype=np.int64)
    for j in range(number):
        there = places[j]
        n = counts[there * A + actions[there]]
        rules[there] = 0 if is_local(n, rule) else 1
        shared[j] = 0 if rules[there] == 0 else global_budget(n, rule)
    for i in range(m):
        for j in range(number):
            there = places[j]
            if shared[j] > 0:
                budgets[i, there] = shared[j]
            else:
                budgets[i, there] = local_budget(own[i, there * A + actions[there]], rule)


@inner
def _absorb_own(
    policy: IndexArray,
    visits: CountArray,
    touched: Touched,
    rule: AskingRule,
    own_visits: Counters,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Add the round's ``visits (m, P)`` to each agent's own, and set its budget where the local rule is in force."""
    (m, P), A = visits.shape, own_visits.shape[3]
    own, budgets, rules, actions = own_visits.reshape((m, -1)), out.reshape((m, P)), which.reshape(P), policy.ravel()
    places, numbers, _, _, _ = touched
    for i in range(m):
        for j in range(numbers[i]):
            place = places[i, j]
            pair = place * A + actions[place]
            seen = own[i, pair] + visits[i, place]
            own[i, pair] = seen
            if rules[place] == 0:
                budgets[i, place] = local_budget(seen, rule)


@compiled
def _absorb(
    policy: IndexArray,
    transitions: CountArray,
    visits: CountArray,
    touched: Touched,
    bits: int,
    pool: Pool,
    rule: AskingRule,
    own_visits: Counters,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Add the round's counts; ``transitions`` is ``(P, K)``, ``visits`` ``(m, P)``."""
    if own_visits.size > 0:
        _absorb_own(policy, visits, touched, rule, own_visits, out, which)
    pooled_visits, pooled_transitions, _, rewards, reward_sums, states, numbers, fresh, _ = pool
    places, own_numbers, all_places, number, all_visits = touched
    (_, S, A, K), together = pooled_transitions.shape, all_visits.reshape(len(transitions))
    if rewards.shape[0] > 1:
        for i in range(len(visits)):
            for j in range(own_numbers[i]):
                place = places[i, j]
                h, s, a = pair_of(place, policy, S, A)
                r = on_grid(rewards[i, h if rewards.shape[1] > 1 else 0, s, a], bits)
                z = (reward_sums[h, s, a, 0], reward_sums[h, s, a, 1])
                z = plus(z, product(np.uint64(visits[i, place]), r))
                reward_sums[h, s, a, 0], reward_sums[h, s, a, 1] = z
    for j in range(number[0]):
        place = all_places[j]
        h, s, a = pair_of(place, policy, S, A)
        known = False
        for b in range(A):
            known |= pooled_visits[h, s, b] > 0
        if not known:
            states[h, numbers[h]] = s
            numbers[h] += 1
        fresh[h, s] = True
        pooled_visits[h, s, a] += together[place]
        for k in range(K):
            pooled_transitions[h, s, a, k] += transitions[place, k]


@inlined
def _pair(
    h: int,
    s: int,
    a: int,
    visits: CountArray,
    transitions: CountArray,
    successors: IndexArray,
    rewards: FloatArray,
    reward_sums: WordArray,
    sums: RewardSums,
    random_rewards: bool,
    V_next: FloatArray,
    bits: int,
) -> Entry:
    """``X``, ``Y`` and ``Z`` of all agents together at a pair that somebody has visited.

    Tables come one by one and so do their entries: Numba counts references to each part that is taken out of a tuple
    or an array, which would cost more than the sums.
    """
    hk = h if successors.shape[0] > 1 else 0
    if random_rewards:
        by_slot, squares = sums.by_slot[0, h, s, a], sums.squares[0, h, s, a]
        x, y = moments_with_rewards(transitions[h, s, a], by_slot, squares, successors[hk, s, a], V_next, bits)
        return x, y, NOTHING[2]
    x, y = NOTHING[0], NOTHING[1]
    for k in range(transitions.shape[3]):
        if transitions[h, s, a, k] > 0:
            visit = moment(np.uint64(transitions[h, s, a, k]), on_grid(V_next[successors[hk, s, a, k]], bits))
            x, y = plus(x, visit[0]), plus(y, visit[1])
    if rewards.shape[0] > 1:
        return x, y, (reward_sums[h, s, a, 0], reward_sums[h, s, a, 1])
    r = on_grid(rewards[0, h if rewards.shape[1] > 1 else 0, s, a], bits)
    return x, y, product(np.uint64(visits[h, s, a]), r)


@embedded
def _is_certain(h: int, s: int, a: int, transitions: CountArray) -> bool:
    """Whether all visits of a pair went on to one next state, so that nothing varied but, perhaps, rewards.

    If not even those do the variance is 0, and exact sums give exactly that, with more work.
    """
    successors = 0
    for k in range(transitions.shape[3]):
        successors += transitions[h, s, a, k] > 0
    return successors == 1


@compiled
def _write_report(h: int, pool: Pool, V_next: FloatArray, grid: Grid, out: Sums) -> None:
    """The sum of all agents' messages for step h, as one row."""
    n, X, Y, Z = out
    _, S, A = n.shape
    visits, transitions, successors, rewards, reward_sums, _, _, _, sums = pool
    random = len(sums.by_slot) > 0
    for s in range(S):
        for a in range(A):
            n[0, s, a] = visits[h, s, a]
            entry = NOTHING
            if n[0, s, a] > 0:
                entry = _pair(
                    h, s, a, visits, transitions, successors, rewards, reward_sums, sums, random, V_next, grid.bits
                )
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
def _synchronise(pool: Pool, rule: UpdateRule, estimates: Estimates) -> None:
    """All exchanges of a synchronisation; those with a planner, which is always new, leave no trace here."""
    N, Q, V, policy, updates = estimates
    visits, transitions, successors, rewards, reward_sums, states, numbers, fresh, sums = pool
    H, S, A, K = transitions.shape
    bits, random = rule.grid.bits, len(sums.by_slot) > 0
    updates[0] += 1
    if updates[0] == 1:
        _begin(rule, estimates)
    changed, changed_next = np.zeros(S, dtype=np.bool_), np.zeros(S, dtype=np.bool_)
    any_next = False
    for h in range(H - 1, -1, -1):
        hk = h if successors.shape[0] > 1 else 0
        any_here, V_next = False, V[h + 1]
        for j in range(numbers[h]):
            s = 0 + states[h, j]  # of 64 bits, as elsewhere, so that nothing is compiled twice
            all_stale, redone = fresh[h, s] or rule.plain, False
            for a in range(A):
                n = visits[h, s, a]
                if n == 0:
                    continue
                stale = all_stale
                if any_next and not stale:
                    for k in range(K):
                        stale |= changed_next[successors[hk, s, a, k]]
                if stale:
                    N[h, s, a] = n
                    entry = _pair(
                        h, s, a, visits, transitions, successors, rewards, reward_sums, sums, random, V_next, bits
                    )
                    if not random and _is_certain(h, s, a, transitions):
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
            fresh[h, states[h, j]] = False
