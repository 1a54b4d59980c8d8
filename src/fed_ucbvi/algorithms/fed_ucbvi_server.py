"""What Fed-UCBVI's server knows and how it turns a mean, a variance and a count into Q, V and the policy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import TableServer
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.greedy import choose_action
from fed_ucbvi.core.compiling import embedded, inner
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray

RANGES = ("horizon", "remaining", "max", "span")
"""What the bonus takes for the range of the next value ``V_{h+1}``, and how: H, what is left of the horizon, the
largest of the values themselves, or their largest less their least. Where rewards are random it is the range of
``y = r + V_{h+1}``: one more, but for H, which it never exceeds."""
_HORIZON, _REMAINING, _MAX = (RANGES.index(name) for name in ("horizon", "remaining", "max"))
TIES = ("first", "random", "every-visit")
"""Which of several greedy actions is played: the first, one drawn for the round, or one drawn at every visit."""
_RANDOM, _EVERY_VISIT = TIES.index("random"), TIES.index("every-visit")


class UpdateRule(NamedTuple):
    """How the server turns reports into Q, as numbers.

    With B the range of the next value (an index into :data:`RANGES`) and ``beta^c(N) = log_union + log(2 N + 1)``,
    the bonus is

    - ``L per_range B/N + scale per_log beta^c(N)/N + sqrt(L per_variance Var/N)`` with ``L = 1 + guard log N``,
      where ``per_log`` is multiplied by B too if ``log_by_range``; or
    - if ``tight``, that of :func:`tight_bonus`, times ``scale``.

    With ``plain`` there is none, and a pair never visited is worth nothing.
    """

    weighted: bool
    tight: bool
    value_range: int
    scale: float
    per_range: float
    per_log: float
    log_by_range: bool
    log_union: float
    per_variance: float
    guard: float
    beta_star: float
    heterogeneous: bool
    clip_remaining: bool
    ties: int
    seed: np.uint64
    agents: int
    grid: Grid
    random_rewards: bool
    plain: bool = False


class Estimates(NamedTuple):
    """What the server knows.

    Attributes:
        N: ``(steps, S, A)``; one step where counts are kept over all of them together.
        Q: ``(H, S, A)``.
        V: ``(H+1, S)``.
        policy: ``(H, S)``, one greedy action each.
        greedy: ``(H, S, A)``, sets of greedy actions, where visits are counted by action; otherwise empty.
        ranges: ``(H,)``, the range of ``V_{h+1}`` in the bonus at the last synchronisation.
        updates: ``(1,)``, how many synchronisations there were.
    """

    N: CountArray
    Q: FloatArray
    V: FloatArray
    policy: IndexArray
    greedy: MaskArray
    ranges: FloatArray
    updates: CountArray


class Server(TableServer[Estimates, UpdateRule]):
    """The central server: it knows sums over agents, never a transition."""

    @property
    def policy(self) -> PolicyArray:
        """One action each, or sets of them where visits are counted by action."""
        _, _, _, policy, greedy, _, _ = self.estimates
        return greedy if greedy.size else policy


@inner
def value_range(h: int, rule: UpdateRule, estimates: Estimates) -> float:
    """B at step h, for ``V_{h+1}`` or, where rewards are random, for ``r + V_{h+1}``; it is kept in ``ranges``."""
    H, paid = estimates.Q.shape[0], 1.0 if rule.random_rewards else 0.0
    if rule.value_range == _HORIZON:
        B = float(H)
    elif rule.value_range == _REMAINING:
        B = float(H - 1 - h) + paid
    else:
        least = most = estimates.V[h + 1, 0]
        for value in estimates.V[h + 1]:
            least, most = min(least, value), max(most, value)
        B = most + paid
        if rule.value_range != _MAX:
            B -= least
    estimates.ranges[h] = B
    return B


@inner
def tight_bonus(N: float, variance: float, B: float, most: float, rule: UpdateRule) -> float:
    """The bonus with small constants, for ``N >= 2``; B is the range of the next value and ``most`` the cap on it.

    ``max(sqrt(2 b Var/(N-1)), 2 b B/(N-1)) + 7 b B/(3 (N-1))`` with ``b = beta*``. Where B is the *span* of values,
    ``b = beta* + log(N^2 + 1)`` pays for a net of ``N^2 + 1`` points on which the least value may lie, whose spacing
    adds ``most/N^2 (1 + sqrt(b/(2 (N-1))) + 7 b/(3 (N-1)))``. Where agents differ,
    ``B (0.3 b/(N-1) + 11 beta^c/N + sqrt(22 b beta^c/(N (N-1))))`` is added.
    """
    b, net = rule.beta_star, 0.0
    if rule.value_range > _MAX:
        b += math.log(N * N + 1.0)
        net = most / (N * N) * (1.0 + math.sqrt(b / (2.0 * (N - 1.0))) + 7.0 * b / (3.0 * (N - 1.0)))
    slope = b / (N - 1.0)
    total = max(math.sqrt(2.0 * slope * variance), 2.0 * slope * B) + 7.0 / 3.0 * slope * B + net
    if rule.heterogeneous:
        c = rule.log_union + math.log(2.0 * N + 1.0)
        total += B * (0.3 * slope + 11.0 * c / N + math.sqrt(22.0 * slope * c / N))
    return total


@embedded
def bonus(N: float, variance: float, B: float, cap: float, most: float, rule: UpdateRule) -> float:
    """``b(s,a)`` of a pair visited N times in all, whose next value has this variance and at most the value ``most``.

    ``cap`` is the most that Q can be; it is the bonus where ``N <= 1``, but for practical bonuses that take their
    range from the values.
    """
    if rule.plain:
        return 0.0
    if N <= 1.0 and (rule.tight or rule.value_range <= _REMAINING):
        return cap
    if rule.tight:
        return rule.scale * tight_bonus(N, variance, B, most, rule)
    per_count, per_variance = rule.per_range * B, rule.per_variance
    if rule.guard > 0.0:
        L = 1.0 + rule.guard * math.log(N)
        per_count *= L
        per_variance *= L
    if rule.per_log > 0.0:
        per_log = rule.scale * (rule.per_log * B if rule.log_by_range else rule.per_log)
        per_count += per_log * (rule.log_union + math.log(2.0 * N + 1.0))
    return per_count / N + math.sqrt(per_variance * variance / N)


@embedded
def largest(h: int, horizon: int, rule: UpdateRule) -> float:
    """The cap on ``Q_h``: H, or what is left of it."""
    return float(horizon - h) if rule.clip_remaining else float(horizon)


@inner
def unvisited(h: int, horizon: int, rule: UpdateRule) -> float:
    """``Q_h`` of a pair never visited: the cap, or nothing without bonus."""
    return 0.0 if rule.plain else largest(h, horizon, rule)


@embedded
def optimistic(h: int, N: float, mean: float, variance: float, B: float, horizon: int, rule: UpdateRule) -> float:
    """``Q = min(mean + b, cap)`` (``eq:update_rule``) of a pair visited N times, ``mean`` being that of r + V."""
    cap = largest(h, horizon, rule)
    return min(mean + bonus(N, variance, B, cap, largest(h + 1, horizon, rule), rule), cap)


@embedded
def act_greedily(
    h: int, s: int, rule: UpdateRule, Q: FloatArray, policy: IndexArray, greedy: MaskArray, updates: CountArray
) -> float:
    """Choose the policy's action, or its set, at (h,s); the largest Q. The tables are those of the estimates."""
    best = 0
    for a in range(1, Q.shape[2]):
        if Q[h, s, a] > Q[h, s, best]:
            best = a
    if rule.ties == _RANDOM:
        best = choose_action(Q[h, s], True, rule.seed, updates[0], h * policy.shape[1] + s)
    policy[h, s] = best
    if greedy.size > 0:
        for a in range(Q.shape[2]):
            greedy[h, s, a] = Q[h, s, a] == Q[h, s, best] if rule.ties == _EVERY_VISIT else a == best
    return float(Q[h, s, best])


@inner
def begin_step(h: int, estimates: Estimates) -> None:
    """Forget the old sums of step h; the first step of a synchronisation begins a new update."""
    estimates.N[h if estimates.N.shape[0] > 1 else 0] = 0
    if h == estimates.Q.shape[0] - 1:
        estimates.updates[0] += 1
