"""FedQ-Hoeffding and FedQ-Bernstein (Zheng, Gao, Xue and Yang, ICLR 2024).

Federated optimistic Q-learning. Steps h run from 0 to H-1 here and from 1 to H in the paper. A round lasts until
some agent has visited some ``(h, s, pi_h(s))`` ``max(1, floor(N/(M H (H+1))))`` times. Each agent then sends, at
``(s, pi_h(s))`` alone, its reward, its visits n and the mean v of ``V_{h+1}(s')`` over them (Bernstein: the mean mu
of the squares too). With ``n0 = N``, ``n1 = N + sum_m n^m`` and ``theta``, ``alpha^c`` of
:mod:`~fed_ucbvi.paper.algorithms.step_sizes`, the server sets, without the bonus,

- ``n0 < i_0 = 2 M H (H+1)``: ``Q <- alpha^c(n0+1,n1) Q + sum_i theta_n1^{n0+i} (r + v^{m_i})``, the agents that
  visited in order (each has visited at most once);
- ``n0 >= i_0``: ``Q <- alpha^c(n0+1,n1) Q + (1 - alpha^c(n0+1,n1)) (r + sum_m n^m v^m / n)``.

In every round the paper adds to Q an amount such that all bonuses in it add up to a function of N and the variance so
far. So the Q without bonus is kept here, and Q is that plus the bonus. Q itself is not clipped; ``V = min(H, max_a
Q)``.

Beyond the paper, which has one reward function: where agents' rewards differ, ``r^m + v^m`` is averaged as one. And
an agent that reports n > 1 visits while ``n0 < i_0``, which only a Byzantine agent does, counts n times in the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms import fields
from fed_ucbvi.algorithms.base import (
    Array,
    FleetTables,
    Message,
    RunExtension,
    Setting,
    TableServer,
    checked_by_tests,
)
from fed_ucbvi.algorithms.kernels import InitialPolicy, TieBreaking, Ties, act_greedily, first_estimates, variance_of
from fed_ucbvi.algorithms.one_report import OneReport, RoundCounts, fill_means
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.parameters import Count, Help, NonNegative, Probability
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.paper.algorithms.step_sizes import advance_sum, step_size


class HoeffdingReport(NamedTuple):
    """Up, one row for each agent, at ``(s, pi_h(s))``: visits, reward, mean of ``V_{h+1}(s')``."""

    n: fields.RoundVisits
    r: fields.RoundReward
    v: fields.RoundMean


class BernsteinReport(NamedTuple):
    """The report of FedQ-Hoeffding, with the mean of ``V_{h+1}(s')^2``."""

    n: fields.RoundVisits
    r: fields.RoundReward
    v: fields.RoundMean
    mu: fields.RoundSquare


class UpdateRule(NamedTuple):
    """Constants of the update of Q from reports; see :func:`_bonus`."""

    published: bool
    bernstein: bool
    c: float
    c_bernstein: float
    bernstein_after: int
    iota: float
    per_count: float
    i_0: int
    ties: Ties


class Estimates(NamedTuple):
    """Tables of the server.

    ``plain`` is Q without bonus. ``weights`` is ``sum_t theta_N^t t^(-1/2)`` or ``sum_t (theta_N^t)^2``, whichever
    the bonus needs. ``samples``, ``W1`` and ``W2`` are number, sum of squares and sum of the next values that went
    into the variance.
    """

    N: fields.PairCounts
    plain: fields.PairTable
    Q: fields.PairTable
    V: fields.Values
    policy: fields.Policy
    weights: fields.PairTable
    samples: fields.PairCounts
    W1: fields.PairTable
    W2: fields.PairTable
    updates: fields.Number


Server = TableServer[Estimates, UpdateRule]


@checked_by_tests
@dataclass(frozen=True)
class FedQHoeffding(OneReport[Estimates, UpdateRule, Any]):
    """Parameters of FedQ-Hoeffding."""

    name: ClassVar[str] = "fedq-hoeffding"
    label: ClassVar[str] = "FedQ-Hoeffding"
    rules: ClassVar[tuple[str, ...]] = ("first-visit", "growth")
    """The two regimes of the one rule: a budget of 1 (``N < i_0``), and a share of N."""
    estimates_type: ClassVar[type[Any]] = Estimates
    report_type: ClassVar[type[Any]] = HoeffdingReport
    broadcasts: ClassVar[tuple[str, ...]] = ("policy", "N", "V")
    values: ClassVar[tuple[str, ...]] = ("V",)
    bernstein: ClassVar[bool] = False
    extension = RunExtension(
        episodes=None,  # iota grows with T
        warm_start="it learns from rounds as they come and keeps no counts of transitions",
    )

    bonus: Annotated[
        Literal["practical", "published"],
        Help(
            "practical: c (H-1-h) sqrt(sum_t (theta_N^t)^2) with h from 0, so H-1-h is the range of "
            "V_{h+1}; Q and V start at H-h. The experiments of the Fed-UCBVI paper used it. "
            "published: sum_t theta_N^t c sqrt(H^3 iota / t); Q and V start at H."
        ),
    ] = "practical"
    c: Annotated[
        NonNegative,
        Help(
            "the factor in it. The experiments used 2; the FedQ paper leaves it open, and 1 is enough "
            "for the inequality of Azuma and Hoeffding behind it, so 2 has room for averaging over a "
            "round."
        ),
    ] = 2.0
    delta: Annotated[Probability, Help("failure probability, in iota (published only).")] = 0.05
    initial_policy: InitialPolicy = "random"
    ties: TieBreaking = "first"

    def facts(self, setting: Setting) -> dict[str, float]:
        """``i_0``, where the update changes, and the logarithm in the published bonus."""
        facts = {"i_0": float(second_case(setting))}
        return facts | ({"iota": logarithm(setting, self.delta)} if self.bonus == "published" else {})

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where every episode ends a round, because no ``N <= M T`` reaches ``i_0``."""
        if setting.episodes >= 2 * setting.horizon * (setting.horizon + 1):
            return []
        return [
            f"every episode will end with a synchronisation: one visit is enough to request it while "
            f"N < 2 M H (H+1) = {second_case(setting):,}, and N is at most M T = "
            f"{setting.agents * setting.episodes:,}."
        ]

    def update_rule(self, setting: Setting) -> UpdateRule:
        S = setting.states
        A = setting.actions
        H = setting.horizon
        M = setting.agents
        per_count = math.sqrt(float(H) ** 7 * S * A) + math.sqrt(float(M) * S * A * float(H) ** 6)
        constants = logarithm(setting, self.delta), per_count, second_case(setting), Ties.of(setting, self.ties)
        return UpdateRule(self.bonus == "published", self.bernstein, float(self.c), 0.0, 0, *constants)

    def new_estimates(self, setting: Setting) -> Estimates:
        """``N = 0``, the initial policy, and ``Q = V = H`` (``practical``: H-h, what can still be earned)."""
        known = first_estimates(Estimates, setting, self.initial_policy, remaining=self.bonus == "practical")
        known.plain[:] = known.Q
        return known

    def fill_budgets(self, sent: dict[str, Array], M: int, limits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        _fill_budgets(sent["N"], M, limits, rule)

    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: Message) -> None:
        fill_means(counts, tables, (*values, *values**2) if self.bernstein else (*values,), out)

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        n, r, v, mu = report if self.bernstein else (*report, report[2])
        _aggregate(n, r, v, mu, server.rule, server.estimates)


@checked_by_tests
@dataclass(frozen=True)
class FedQBernstein(FedQHoeffding):
    """Parameters of FedQ-Bernstein."""

    name: ClassVar[str] = "fedq-bernstein"
    label: ClassVar[str] = "FedQ-Bernstein"
    report_type: ClassVar[type[Any]] = BernsteinReport
    bernstein: ClassVar[bool] = True

    bonus: Annotated[
        Literal["practical", "published"],
        Help(
            "practical, what the experiments of the Fed-UCBVI paper used (with the variance under the root "
            "everywhere): c_bernstein sqrt(Var sum_t (theta_N^t)^2) once the variance rests on bernstein_after "
            "samples, which are collected in rounds that begin with N >= bernstein_after; before, the practical "
            "bonus of FedQHoeffding. published: beta_N / 2 with beta_t = c_bernstein min(sqrt(H iota (Var+H) / t) + "
            "iota (sqrt(H^7 S A) + sqrt(M S A H^6)) / t, sqrt(H^3 iota / t))."
        ),
    ] = "practical"
    c: Annotated[NonNegative, Help("factor of the practical bonus before there is a variance.")] = 2.0
    c_bernstein: Annotated[
        NonNegative, Help("factor on the variance; the paper's c' (left open there) for published.")
    ] = 2.0
    bernstein_after: Annotated[Count, Help("see bonus; practical only.")] = 1000

    def update_rule(self, setting: Setting) -> UpdateRule:
        after = 0 if self.bonus == "published" else int(self.bernstein_after)
        return super().update_rule(setting)._replace(c_bernstein=float(self.c_bernstein), bernstein_after=after)


def logarithm(setting: Setting, delta: float) -> float:
    """The paper's ``iota``, with ``T_0 = H M T`` steps in all and ``K_0 = T`` rounds, one an episode at most.

    ``iota = max(ln(2 S A (T_0 + H M) (1+C) / p), ln(2 K_0 S A H (T_0/H + M) (1+C) / p))``, ``C = 1/(H (H+1))``.
    """
    H = setting.horizon
    M = setting.agents
    T = setting.episodes
    pairs = setting.states * setting.actions
    steps = float(H * M * T)
    common = 2.0 * pairs * (1.0 + 1.0 / (H * (H + 1))) / delta
    return max(math.log(common * (steps + H * M)), math.log(common * T * H * (steps / H + M)))


def second_case(setting: Setting) -> int:
    """``i_0 = 2 M H (H+1)``: from this number of visits on, budgets exceed one and the update uses plain means."""
    return 2 * setting.agents * setting.horizon * (setting.horizon + 1)


@compiled
def _fill_budgets(N: CountArray, M: int, limits: CountArray, rule: npt.NDArray[np.int8]) -> None:
    """``max(1, floor(N/(M H (H+1))))`` for every agent; the rule is 0 while that is one because of ``N < i_0``."""
    share = M * len(N) * (len(N) + 1)
    limits[:] = np.maximum(1, N // share)
    rule[:] = N // share >= 2


@compiled
def _bonus(rule: UpdateRule, H: int, h: int, N: int, weights: float, samples: int, W1: float, W2: float) -> float:
    """Bonus that is added to the bonus-free Q; the classes have the formulas."""
    variance = 0.0
    if rule.bernstein and samples > 0:
        variance = variance_of(W2 / samples, W1 / samples)
    if not rule.published:
        if rule.bernstein and samples > 0 and samples >= rule.bernstein_after:
            return rule.c_bernstein * math.sqrt(weights * variance)
        return rule.c * (H - 1 - h) * math.sqrt(weights)
    coarse = math.sqrt(float(H) ** 3 * rule.iota)
    if not rule.bernstein:
        return rule.c * coarse * weights
    fine = math.sqrt(H * rule.iota * (variance + H) / N) + rule.iota * rule.per_count / N
    return 0.5 * rule.c_bernstein * min(fine, coarse / math.sqrt(N))


@compiled
def _aggregate(
    n: CountArray, r: FloatArray, v: FloatArray, mu: FloatArray, rule: UpdateRule, estimates: Estimates
) -> None:
    """Server side, from all agents' messages in agent order; unvisited states keep everything, action included."""
    N, plain, Q, V, policy, weights, samples, W1, W2, updates = estimates
    m, H, S = n.shape
    p, q = (1, 0.5) if rule.published else (2, 0.0)
    updates[0] += 1
    for h in range(H):
        for s in range(S):
            a = policy[h, s]
            before = N[h, s, a]
            value = plain[h, s, a]
            total = 0
            reward = 0.0
            mean = 0.0
            square = 0.0
            for i in range(m):
                count = n[i, h, s]
                if count == 0:
                    continue
                if before < rule.i_0:
                    keep, step = step_size(before + total, before + total + count, H)
                    value = keep * value + step * (r[i, h, s] + v[i, h, s])
                total += count
                reward += count * r[i, h, s]
                mean += count * v[i, h, s]
                square += count * mu[i, h, s]
            if total == 0:
                continue
            after = before + total
            if before >= rule.i_0:
                keep, step = step_size(before, after, H)
                value = keep * value + step * ((reward + mean) / total)
            N[h, s, a] = after
            plain[h, s, a] = value
            if rule.bernstein and before >= rule.bernstein_after:
                samples[h, s, a] += total
                W1[h, s, a] += square
                W2[h, s, a] += mean
            if not (rule.published and rule.bernstein):
                weights[h, s, a] = advance_sum(weights[h, s, a], before, after, H, p, q)
            Q[h, s, a] = value + _bonus(
                rule, H, h, after, weights[h, s, a], samples[h, s, a], W1[h, s, a], W2[h, s, a]
            )
            act_greedily(h, s, Q, policy, V, rule.ties, updates[0], float(H))
