"""The server of Fed-KL-UCBVI: optimistic values from what all agents have counted together.

:mod:`fed_ucbvi.algorithms.fed_kl_ucbvi` has the equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.algorithms.count_table import CountTable, mean_reward
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.kl_bound import largest_rate, parts_of_largest_mean
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.elementary import exp, log
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray

READY_RADII = 1024
CHANGED, RISEN = 1, 2
"""What may have happened to a value: it is another one, or a larger one."""
CLEARLY = 1e-6
"""How far below the maximum an upper bound must be, as a share of what is left of the horizon: more than the error of
U, so that what was not evaluated cannot be a maximiser in spite of that error."""


class Rule(NamedTuple):
    """The constants of the optimistic value.

    ``beta(n) = radius (log_union + log(n + 1) / 2)``. If ``clock``, n are the visits to all pairs of the step. With
    ``plain`` there is no optimism, and a pair never visited is worth nothing. ``radii[n]`` is ``beta(n)/n`` as far as
    it was worked out beforehand.
    """

    radius: float
    log_union: float
    clock: bool
    random_rewards: bool
    bits: int
    radii: FloatArray
    plain: bool = False

    @classmethod
    def new(cls, radius: float, log_union: float, *, random_rewards: bool, bits: int) -> Rule:
        """The clock is for what is not proved, radii below 1."""
        rule = cls(radius, log_union, radius < 1.0, random_rewards, bits, np.zeros(READY_RADII))
        _fill_radii(rule)
        return rule


class Estimates(NamedTuple):
    """What the server has worked out.

    Attributes:
        Q: ``(H, S, A)``, of the maximisers; of other actions an upper bound below V.
        V: ``(H+1, S)``.
        best: ``(H, S, A)``, the maximisers of Q.
        tops: ``(H,)``, the largest ``V_{h+1}`` at the last synchronisation.
        updates: ``(1,)``, how many synchronisations there were.
    """

    Q: FloatArray
    V: FloatArray
    best: MaskArray
    tops: FloatArray
    updates: CountArray

    @classmethod
    def start(cls, horizon: int, states: int, actions: int, *, plain: bool) -> Estimates:
        """Before the first visit: what is left of the horizon, or nothing if ``plain``."""
        left: FloatArray = np.arange(horizon, -1, -1, dtype=np.float64)[:, None] * (not plain)
        return cls(
            np.tile(left[:-1, :, None], (1, states, actions)),
            np.tile(left, (1, states)),
            np.ones((horizon, states, actions), dtype=np.bool_),
            np.full(horizon, -1.0),
            np.zeros(1, dtype=np.int64),
        )


@dataclass
class Server:
    """The central server: it knows what all agents have counted together."""

    table: CountTable
    estimates: Estimates
    rule: Rule
    grid: Grid

    @property
    def policy(self) -> PolicyArray:
        """Sets of actions ``(H, S, A)``; of a planner the first of each, ``(H, S)``."""
        best = self.estimates.best
        return np.asarray(best.argmax(axis=2).astype(np.int32)) if self.rule.plain else best

    @property
    def V(self) -> FloatArray:
        return self.estimates.V

    def arrays(self) -> dict[str, Array]:
        return {**self.table._asdict(), **self.estimates._asdict()}

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have tables as wide as those that were saved."""
        self.table = self.table.widened(arrays["transitions"].shape[3])

    def update(self) -> None:
        induct(self.table, self.rule, self.estimates)


class Work(NamedTuple):
    """Room to work in: of one pair's next states probabilities, distances from the top and their logarithms.

    ``logs (S,)`` are logarithms for all states. ``rewards``, ``base``, ``factor`` and ``x`` are parts of the Q of
    many pairs, which is ``min(cap, reward + base - factor exp(x))``.
    """

    p: FloatArray
    d: FloatArray
    log_d: FloatArray
    logs: FloatArray
    rewards: FloatArray
    base: FloatArray
    factor: FloatArray
    x: FloatArray


class Step(NamedTuple):
    """One step of the induction: where its counts are, the values after it, and the numbers that go with them."""

    counts: int
    V_next: FloatArray
    top: float
    cap: float
    beta: float


@compiled
def induct(table: CountTable, rule: Rule, estimates: Estimates) -> None:
    """``V`` and its maximisers from the last step to the first, where anything that they depend on has changed.

    An action that cannot be a maximiser is not evaluated. Its Q stays what it was when it was last evaluated. That is
    an upper bound while it has no new visits and no next value has risen, because U grows with V. So an action is
    evaluated if it was a maximiser and something has changed, if it may have risen, or if its old Q is not clearly
    below the new maximum.
    """
    visits, transitions, successors, seen, _, states, numbers, fresh, _, _, _ = table
    Q, V, best, tops, updates = estimates
    H, S, A = Q.shape
    steps, K, P = len(visits), transitions.shape[3], S * A
    updates[0] += 1
    work = Work(
        np.empty(K), np.empty(K), np.empty(K), np.empty(S), np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    )
    pairs, redone, exact = (
        np.empty((P, 2), dtype=np.int64),
        np.empty(S, dtype=np.int64),
        np.zeros((S, A), dtype=np.bool_),
    )
    changed, changed_next, any_next = np.zeros(S, dtype=np.int8), np.zeros(S, dtype=np.int8), 0
    betas = np.zeros(steps)
    for h in range(steps if rule.clock else 0):
        betas[h] = _beta_by_clock(h, table, rule)
    for h in range(H - 1, -1, -1):
        hc, after = (h, min(h + 1, H - 1)) if steps > 1 else (0, 0)
        V_next, cap, any_here, clearly = V[h + 1], float(H - h), 0, CLEARLY * (H - h)
        top = _top(V_next, cap - 1.0, rule.plain or h + 1 == H or numbers[after] == S)
        everything, lower = rule.clock or top > tops[h], top < tops[h]
        tops[h] = top
        step = Step(hc, V_next, top, cap, betas[hc])
        if h + 1 < H and not rule.plain:
            _take_logs(states[after, : numbers[after]], V_next, top, work)
        found, number = 0, 0
        for j in range(numbers[hc]):
            s, any_due = int(states[hc, j]), False
            for a in range(A):
                least = CHANGED if best[h, s, a] else RISEN
                due = everything | fresh[hc, s, a] | (lower & best[h, s, a])
                if any_next >= least:
                    for k in range(seen[hc, s, a]):
                        due |= changed_next[successors[hc, s, a, k]] >= least
                exact[s, a] = due or best[h, s, a]  # or was never visited, see below
                any_due |= due
                if due and visits[hc, s, a] > 0:
                    pairs[number, 0], pairs[number, 1] = s, a
                    number += 1
            redone[found] = s
            found += any_due
        _evaluate(pairs[:number], step, table, rule, Q[h], work)
        number = 0
        for j in range(found):
            s, highest = redone[j], 0.0
            for a in range(A):
                exact[s, a] |= visits[hc, s, a] == 0
                if exact[s, a]:
                    highest = max(highest, Q[h, s, a])
            for a in range(A):
                if not exact[s, a] and Q[h, s, a] >= highest - clearly:
                    pairs[number, 0], pairs[number, 1] = s, a
                    number += 1
        _evaluate(pairs[:number], step, table, rule, Q[h], work)
        for j in range(found):
            s = redone[j]
            highest = Q[h, s, 0]
            for a in range(1, A):
                highest = max(highest, Q[h, s, a])
            for a in range(A):
                best[h, s, a] = Q[h, s, a] == highest
            changed[s] = RISEN if highest > V[h, s] else CHANGED if highest < V[h, s] else 0
            any_here = max(any_here, changed[s])
            V[h, s] = highest
        changed, changed_next, any_next = changed_next, changed, any_here
        changed[:] = 0
    if not rule.plain:
        fresh[:] = False


@inner
def _take_logs(states: IndexArray, V: FloatArray, top: float, work: Work) -> None:
    """The logarithms of ``top - V`` of all states that were visited; in others V is the top."""
    distances, logs = work.x[: len(states)], work.base[: len(states)]
    for j in range(len(states)):
        distances[j] = top - V[states[j]]
    for j in range(len(states)):  # several at a time
        logs[j] = log(distances[j])
    for j in range(len(states)):
        work.logs[states[j]] = logs[j]


@inner
def _evaluate(pairs: CountArray, step: Step, table: CountTable, rule: Rule, Q: FloatArray, work: Work) -> None:
    """``Q = min(cap, r + U)`` of some pairs, all of which were visited."""
    visits, transitions, successors, seen, rewards, _, _, _, _, _, _ = table
    p, d, log_d, logs, r, base, factor, x = work
    hc, V_next, top, cap, beta = step
    for j in range(len(pairs)):
        s, a = pairs[j, 0], pairs[j, 1]
        n, size, mean = visits[hc, s, a], int(seen[hc, s, a]), 0.0
        N = float(n)
        for k in range(size):
            after = successors[hc, s, a, k]
            value = V_next[after]
            p[k], d[k], log_d[k] = transitions[hc, s, a, k] / N, top - value, logs[after]
            mean += p[k] * value
        r[j] = mean_reward(n, rewards[hc, s, a, 0], rewards[hc, s, a, 1], rule.bits)
        base[j], factor[j], x[j] = mean, 0.0, 0.0
        if not rule.plain and r[j] + mean < cap:
            c = rule.radii[n] if n < len(rule.radii) else _beta(N, rule) / N
            if rule.clock:
                c = beta / N
            base[j], factor[j], x[j] = parts_of_largest_mean(p, d, log_d, size, top, c)
            if rule.random_rewards:
                r[j] = largest_rate(r[j], c)
    for j in range(len(pairs)):  # several at a time
        x[j] = exp(x[j])
    for j in range(len(pairs)):
        Q[pairs[j, 0], pairs[j, 1]] = min(cap, r[j] + (base[j] - factor[j] * x[j]))


@inner
def _beta(N: float, rule: Rule) -> float:
    return rule.radius * (rule.log_union + 0.5 * log(N + 1.0))


@compiled
def _fill_radii(rule: Rule) -> None:
    for n in range(1, len(rule.radii)):
        rule.radii[n] = _beta(float(n), rule) / float(n)


@inner
def _beta_by_clock(hc: int, table: CountTable, rule: Rule) -> float:
    total = 0
    for j in range(table.numbers[hc]):
        for a in range(table.visits.shape[2]):
            total += table.visits[hc, table.states[hc, j], a]
    return _beta(float(total), rule)


@inner
def _top(V: FloatArray, cap: float, everywhere: bool) -> float:
    """The largest V of all states: ``cap`` if one of them was never visited, unless they are looked at everywhere."""
    if not everywhere:
        return cap
    top = float(V[0])
    for s in range(len(V)):
        top = max(top, V[s])
    return top
