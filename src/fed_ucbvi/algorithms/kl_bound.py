"""The largest and the smallest mean over a Kullback-Leibler ball around an empirical distribution, and what follows.

From a table of counts follow optimistic values (:func:`induct`) and pessimistic ones (:func:`pessimistic_values`).

``U(p, V, c) = sup { q.V : q a distribution on all states, KL(p, q) <= c }``. With ``top`` the largest value of all
states, seen or not, duality gives

    U = min over nu >= top of  nu - exp( sum_i p_i log(nu - V_i) - c ),

a convex function of nu. By weak duality *every* ``nu >= top`` gives a number that is at least U. So the iteration
below only decides how close the result is to U, never on which side it lies; a last rounding up pays for the errors
of the logarithms. The derivative vanishes where ``f(nu) = c`` with

    f(nu) = sum_i p_i log(nu - V_i) + log sum_i p_i / (nu - V_i),

and if ``f(top) <= c``, the minimum is at ``nu = top``. Everything is written in ``y = nu - top`` and in the distances
``d_i = top - V_i``, so that nothing cancels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.count_table import CountTable, mean_reward
from fed_ucbvi.core.compiling import compiled, embedded, inner
from fed_ucbvi.core.elementary import exp, expm1, log, log1p
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray

MAX_STEPS = 100
CLOSE = 1e-5
"""Relative change of y at which the iteration ends; the error of U is of the order of its square."""
ROUND_UP = 1.0 - 2.0**-42
"""Factor on ``top - U``: larger than what rounding can do to it."""
CLEAR = 1e-9
"""Far more than what rounding can do to a logarithm."""
LARGEST_RADIUS = 600.0
"""Beyond this c nothing keeps q from the top, to the last bit."""


@compiled
def largest_mean(p: FloatArray, d: FloatArray, size: int, top: float, c: float) -> float:
    """U, or a little more.

    Args:
        p: the first ``size`` entries are probabilities above 0 that add up to 1.
        d: ``top - V`` of the same next states.
        size: how many next states were seen.
        top: the largest V of all states.
        c: the radius of the ball, at least 0.
    """
    logs = np.zeros(size)
    for i in range(size):
        if d[i] > 0.0:
            logs[i] = log(d[i])
    base, factor, x = parts_of_largest_mean(p, d, logs, size, top, c)
    return base - factor * exp(x)


@embedded
def parts_of_largest_mean(
    p: FloatArray, d: FloatArray, log_d: FloatArray, size: int, top: float, c: float
) -> tuple[float, float, float]:
    """Parts ``(base, factor, x)`` of the bound ``base - factor exp(x)``, so that many are worked out at once.

    ``log_d`` are the logarithms of d, of no meaning where d is 0.
    """
    mean = 0.0
    least = float(d[0])
    most = float(d[0])
    nearest = 0
    for i in range(size):
        mean += p[i] * d[i]
        most = max(most, d[i])
        if d[i] < least:
            least = float(d[i])
            nearest = i
    if most == 0.0 or c > LARGEST_RADIUS:
        return top, 0.0, 0.0
    if least == most:  # a point mass, as far as values go
        return top, ROUND_UP * most, -c
    if c <= 0.0:
        return top - ROUND_UP * mean, 0.0, 0.0
    if least > 0.0:
        logs = 0.0
        weights = 0.0
        for i in range(size):
            logs += p[i] * log_d[i]
        if logs - log_d[nearest] < c - CLEAR:  # f(top) is less, for no weight is larger
            return top, ROUND_UP, logs - c
        for i in range(size):
            weights += p[i] / d[i]
        if logs + log(weights) <= c:
            return top, ROUND_UP, logs - c
    y = _stationary_point(p, d, size, mean, most, c)
    logs = 0.0
    for i in range(size):
        logs += p[i] * log1p(d[i] / y)
    return top - ROUND_UP * max(0.0, y * expm1(logs - c)), 0.0, 0.0


@compiled
def _stationary_point(p: FloatArray, d: FloatArray, size: int, mean: float, most: float, c: float) -> float:
    """About the y with ``f = c``, by Newton's method on ``f^(-1/2)``, which is nearly linear in y, within a bracket.

    For large y, ``f = Var / (2 (y + mean)^2)`` to first order; that gives the start.
    """
    variance = 0.0
    for i in range(size):
        variance += p[i] * (d[i] - mean) * (d[i] - mean)
    guess = math.sqrt(variance / (2.0 * c))
    y = max(guess - mean, 0.1 * guess)
    low = 0.0
    high = math.inf
    for _ in range(MAX_STEPS):
        logs = 0.0
        first = 0.0
        second = 0.0
        for i in range(size):
            distance = y + d[i]
            weight = p[i] / distance
            logs += p[i] * log(distance)
            first += weight
            second += weight / distance
        f = logs + log(first)
        slope = first - second / first
        if f > c:
            low = y
        else:
            high = y
        after = -1.0
        if f > 0.0 and slope < 0.0:
            after = y + 2.0 * f * (1.0 - math.sqrt(f / c)) / slope
        if not low < after < high:
            after = y / 16.0 if low == 0.0 else 4.0 * y if high == math.inf else 0.5 * (low + high)
        if abs(after - y) <= CLOSE * after or after < 1e-30 * most:
            return after
        y = after
    return y


@compiled
def largest_rate(rate: float, c: float) -> float:
    """The largest x with ``kl(rate, x) <= c`` for Bernoulli distributions, or a little more.

    It bounds the mean of any law on [0,1] from its empirical mean, by convexity.
    """
    if rate >= 1.0:
        return 1.0
    p = np.empty(2)
    d = np.empty(2)
    p[0], p[1], d[0], d[1] = 1.0 - rate, rate, 1.0, 0.0
    return largest_mean(p, d, 2 if rate > 0.0 else 1, 1.0, c)


# ------------------------------------------------------------------------------ what may be possible at most

READY_RADII = 1024
CHANGED = 1
RISEN = 2
"""What may have happened to a value: it is another one, or a larger one."""
CLEARLY = 1e-6
"""How far below the maximum an upper bound must be, as a share of what is left of the horizon: more than the error of
U, so that what was not evaluated cannot be a maximiser in spite of that error."""


def optimism_events(states: int, horizon: int, *, random_rewards: bool, first_states: bool) -> int:
    """Number of events in the union that makes the values optimistic, each with its share of delta.

    There is one for each of the S (H-1) pairs of step and state from which there is a next state. Random rewards add
    one for each of the S H pairs, and an unknown law of the first state adds one (``first_states``).
    See Theorems 1 and 3 and "First states" in ``docs/kl_proofs.md``.

    >>> optimism_events(4, 6, random_rewards=False, first_states=True)
    21
    """
    transitions = states * (horizon - 1)
    rewards = states * horizon if random_rewards else 0
    return max(1, transitions + rewards + int(first_states))


class Rule(NamedTuple):
    """The constants of the optimistic value.

    ``beta(n) = radius (log_union + log(n + 1) / 2)``. If ``clock``, n are the visits to all pairs of the step. With
    ``plain`` there is no optimism, and a pair never visited is worth nothing. ``radii[n]`` is ``beta(n)/n`` as far as
    it was worked out beforehand. ``beta`` is at most ``limit``.
    """

    radius: float
    log_union: float
    clock: bool
    random_rewards: bool
    bits: int
    radii: FloatArray
    plain: bool = False
    limit: float = math.inf

    @classmethod
    def new(
        cls,
        states: int,
        horizon: int,
        delta: float,
        bits: int,
        *,
        random_rewards: bool,
        radius: float = 1.0,
        first_states: bool = False,
    ) -> Rule:
        """Optimistic with probability ``1 - delta`` for radius 1; the clock is for what is not proved, less.

        With ``first_states`` one event is left for first states whose law is unknown.
        """
        events = optimism_events(states, horizon, random_rewards=random_rewards, first_states=first_states)
        log_union = log(2.0 * events / delta)
        rule = cls(radius, log_union, radius < 1.0, random_rewards, bits, np.zeros(READY_RADII))
        _fill_radii(rule)
        return rule

    def with_limit(self, limit: float) -> Rule:
        """This rule with a ``beta`` of at most ``limit``."""
        rule = self._replace(limit=limit, radii=np.zeros(READY_RADII))
        _fill_radii(rule)
        return rule


class Estimates(NamedTuple):
    """Estimates of the server.

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
    visits, transitions, successors, seen, _, states, numbers, fresh, _ = table
    Q, V, best, tops, updates = estimates
    H, S, A = Q.shape
    steps = len(visits)
    K = transitions.shape[3]
    P = S * A
    updates[0] += 1
    work = Work(
        np.empty(K), np.empty(K), np.empty(K), np.empty(S), np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    )
    pairs = np.empty((P, 2), dtype=np.int64)
    redone = np.empty(S, dtype=np.int64)
    exact = np.zeros((S, A), dtype=np.bool_)
    changed = np.zeros(S, dtype=np.int8)
    changed_next = np.zeros(S, dtype=np.int8)
    any_next = 0
    betas = np.zeros(steps)
    for h in range(steps if rule.clock else 0):
        betas[h] = _beta_by_clock(h, table, rule)
    for h in range(H - 1, -1, -1):
        hc, after = (h, min(h + 1, H - 1)) if steps > 1 else (0, 0)
        V_next = V[h + 1]
        cap = float(H - h)
        any_here = 0
        clearly = CLEARLY * (H - h)
        known = rule.plain or h + 1 == H or numbers[after] == S  # else a state that was never visited is at the top
        top = V_next.max() if known else cap - 1.0
        everything = rule.clock or top > tops[h]
        lower = top < tops[h]
        tops[h] = top
        step = Step(hc, V_next, top, cap, betas[hc])
        if h + 1 < H and not rule.plain:
            _take_logs(states[after, : numbers[after]], V_next, top, work)
        found = 0
        number = 0
        for j in range(numbers[hc]):
            s = int(states[hc, j])
            any_due = False
            for a in range(A):
                least = CHANGED if best[h, s, a] else RISEN
                due = everything | fresh[hc, s, a] | (lower & best[h, s, a])
                if any_next >= least:
                    for k in range(seen[hc, s, a]):
                        due |= changed_next[successors[hc, s, a, k]] >= least
                exact[s, a] = due or best[h, s, a]  # or was never visited, see below
                any_due |= due
                if due and visits[hc, s, a] > 0:
                    pairs[number, 0] = s
                    pairs[number, 1] = a
                    number += 1
            redone[found] = s
            found += any_due
        _evaluate(pairs[:number], step, table, rule, Q[h], work)
        number = 0
        for j in range(found):
            s = redone[j]
            highest = 0.0
            for a in range(A):
                exact[s, a] |= visits[hc, s, a] == 0
                if exact[s, a]:
                    highest = max(highest, Q[h, s, a])
            for a in range(A):
                if not exact[s, a] and Q[h, s, a] >= highest - clearly:
                    pairs[number, 0] = s
                    pairs[number, 1] = a
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


@inner
def _take_logs(states: IndexArray, V: FloatArray, top: float, work: Work) -> None:
    """The logarithms of ``top - V`` of all states that were visited; in others V is the top."""
    distances = work.x[: len(states)]
    logs = work.base[: len(states)]
    for j in range(len(states)):
        distances[j] = top - V[states[j]]
    for j in range(len(states)):  # several at a time
        logs[j] = log(distances[j])
    for j in range(len(states)):
        work.logs[states[j]] = logs[j]


@inner
def _evaluate(pairs: CountArray, step: Step, table: CountTable, rule: Rule, Q: FloatArray, work: Work) -> None:
    """``Q = min(cap, r + U)`` of some pairs, all of which were visited."""
    visits, transitions, successors, seen, rewards, _, _, _, _ = table
    p, d, log_d, logs, r, base, factor, x = work
    hc, V_next, top, cap, beta = step
    for j in range(len(pairs)):
        s = pairs[j, 0]
        a = pairs[j, 1]
        n = visits[hc, s, a]
        size = int(seen[hc, s, a])
        mean = 0.0
        N = float(n)
        for k in range(size):
            after = successors[hc, s, a, k]
            value = V_next[after]
            p[k], d[k], log_d[k] = transitions[hc, s, a, k] / N, top - value, logs[after]
            mean += p[k] * value
        r[j] = mean_reward(n, rewards[hc, s, a, 0], rewards[hc, s, a, 1], rule.bits)
        base[j] = mean
        factor[j] = 0.0
        x[j] = 0.0
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
    return min(rule.limit, rule.radius * (rule.log_union + 0.5 * log(N + 1.0)))


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


# ------------------------------------------------------------------------- what a policy is worth at least

NOTHING = 1e-100
"""Values below this are taken for 0: they guarantee nothing, and logarithms need normal numbers."""


@compiled
def pessimistic_values(
    table: CountTable,
    policy: IndexArray,
    random_rewards: bool,
    delta: float,
    support: int,
    choose: bool = False,
    first_states: bool = False,
) -> FloatArray:
    """``V[H+1, S]``, below the values of ``policy[H, S]`` with probability ``1 - delta``, by counts alone.

    With N visits to (h,s,a), K possible next states and p the empirical distribution of the next state,

        N KL(p, P) <= log(S A H / delta) + (K-1) log( e (1 + N/(K-1)) )

    holds for all pairs and all N together with probability ``1 - delta``. The smallest mean over such a ball is the
    largest one turned round. A pair that was never visited is worth nothing. Where rewards are random, r is the least
    mean that the Bernoulli divergence allows, and half of ``delta`` is for them. With ``first_states`` one event is
    left for first states whose law is unknown: S A H + 1 in place of S A H.

    Args:
        table: the counts of all agents.
        policy: one action for each step and state.
        random_rewards: whether rewards depend on chance.
        delta: the probability that some value is too large.
        support: K, how many next states a pair may have; S where nobody knows.
        choose: write the policy with the largest such values to ``policy``; of equals the action seen most.
        first_states: True if the law of the first state is unknown.
    """
    visits, transitions, successors, seen, rewards, states, numbers, _, bits = table
    (H, S), (steps, _, A), width = policy.shape, visits.shape, transitions.shape[3]
    V = np.zeros((H + 1, S))
    p = np.empty(width)
    d = np.empty(width)
    events = S * A * H + int(first_states)
    union = log(events / (0.5 * delta if random_rewards else delta))
    more = float(support - 1)
    for h in range(H - 1, -1, -1):
        hc = shared(h, steps)
        after = V[h + 1]
        bottom = after.min()
        for j in range(numbers[hc]):
            s = states[hc, j]
            most = 0
            for a in range(A):
                n = visits[hc, s, a]
                size = int(seen[hc, s, a])
                if n == 0 or not (choose or a == policy[h, s]):
                    continue
                N = float(n)
                for k in range(size):
                    p[k], d[k] = transitions[hc, s, a, k] / N, after[successors[hc, s, a, k]] - bottom
                c = (union + (more * (1.0 + log(1.0 + N / more)) if support > 1 else 0.0)) / N
                up = mean_reward(n, rewards[hc, s, a, 0], rewards[hc, s, a, 1], bits[0])
                r = max(0.0, up - 2.0 / float(1 << bits[0]))  # it and its parts were rounded up to the grid
                if random_rewards:
                    r = 1.0 - largest_rate(1.0 - r, (union + log(2.0) + 0.5 * log(N + 1.0)) / N)
                value = r - largest_mean(p, d, size, -bottom, c)
                value = value if value > NOTHING else 0.0
                if most == 0 or value > V[h, s] or (value == V[h, s] and n > most):
                    V[h, s] = value
                    most = n
                    policy[h, s] = a
    return V
