"""What Fed-UCBVI's server knows and how it turns a mean, a variance and a count into Q, V and the policy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.algorithms.base import TableServer
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.greedy import choose_action


class UpdateRule(NamedTuple):
    """How the server turns reports into Q, as numbers.

    The bonus is ``(per_count + per_log * beta^c(N)) / N + sqrt(per_variance * Var / N)`` with
    ``beta^c(N) = log_union + log(2 N + 1)``. With ``plain`` there is none, and a pair never visited is worth nothing.
    """

    weighted: bool
    per_count: float
    per_log: float
    log_union: float
    per_variance: float
    clip_remaining: bool
    random_ties: bool
    seed: np.uint64
    agents: int
    grid: Grid
    plain: bool = False


class Estimates(NamedTuple):
    """What the server knows: ``N[H,S,A]``, ``Q[H,S,A]``, ``V[H+1,S]``, ``policy[H,S]`` and the number of updates."""

    N: CountArray
    Q: FloatArray
    V: FloatArray
    policy: IndexArray
    updates: CountArray


class Server(TableServer[Estimates, UpdateRule]):
    """The central server: it knows sums over agents, never a transition."""


@compiled
def bonus(N: float, variance: float, horizon: int, rule: UpdateRule) -> float:
    """``b(s,a)`` for a pair visited N times in all, whose next value has the given empirical variance."""
    if rule.plain:
        return 0.0
    if N <= 1.0:
        return float(horizon)
    per_count = rule.per_count
    if rule.per_log > 0.0:
        per_count += rule.per_log * (rule.log_union + math.log(2.0 * N + 1.0))
    return per_count / N + math.sqrt(rule.per_variance * variance / N)


@compiled
def largest(h: int, horizon: int, rule: UpdateRule) -> float:
    """The cap on ``Q_h``: H, or what is left of it."""
    return float(horizon - h) if rule.clip_remaining else float(horizon)


@compiled
def unvisited(h: int, horizon: int, rule: UpdateRule) -> float:
    """``Q_h`` of a pair never visited: the cap, or nothing without bonus."""
    return 0.0 if rule.plain else largest(h, horizon, rule)


@compiled
def optimistic(h: int, N: float, mean: float, variance: float, horizon: int, rule: UpdateRule) -> float:
    """``Q = min(mean + b, cap)`` (``eq:update_rule``) of a pair visited N times, ``mean`` being that of r + V."""
    return min(mean + bonus(N, variance, horizon, rule), largest(h, horizon, rule))


@compiled
def act_greedily(h: int, s: int, rule: UpdateRule, estimates: Estimates) -> float:
    """Choose the policy's action at (h,s); its Q."""
    _, Q, _, policy, updates = estimates
    best = choose_action(Q[h, s], rule.random_ties, rule.seed, updates[0], h * policy.shape[1] + s)
    policy[h, s] = best
    return float(Q[h, s, best])


@compiled
def begin_step(h: int, estimates: Estimates) -> None:
    """Forget the old sums of step h; the first step of a synchronisation begins a new update."""
    estimates.N[h] = 0
    if h == estimates.policy.shape[0] - 1:
        estimates.updates[0] += 1
