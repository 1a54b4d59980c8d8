"""FedQ-EarlySettled-LowCost, EXPERIMENTAL: a reconstruction, not the published pseudocode.

The paper (Zhang, Zheng and Xue, NeurIPS 2025, arXiv 2506.04626) claims regret of the best order, a burn-in linear
in S A and logarithmic communication; its pseudocode was not at hand. What is here federates the algorithm it builds
on, Q-EarlySettled-Advantage (Li, Shi, Chen, Gu and Chi, 2021, written down from memory), with the trigger and the
round-wise updates of :mod:`~fed_ucbvi.algorithms.fedq`. Only the list of what the server broadcasts is known.

For one visit to (h,s,a), the n-th, with ``eta = (H+1)/(H+n)``, next state s' and ``l = ln(S A H M T / delta)``:

- upper bound: ``Q^U <- (1-eta) Q^U + eta (r + V(s') + c sqrt(H^3 l / n))``;
- lower bound: ``Q^L <- (1-eta) Q^L + eta (r + V^L(s') - c sqrt(H^3 l / n))``;
- ``mu_r, sigma_r``: plain means of ``V^R(s')`` and its square; ``mu_a, sigma_a``: means of ``(V-V^R)(s')`` and its
  square with the weights ``theta_n`` of the step sizes;
- ``B_n = c sqrt(l/n) (sqrt(sigma_r - mu_r^2) + sqrt(H) sqrt(sigma_a - mu_a^2))`` and
  ``b = B_n + (1-eta)/eta (B_n - B_{n-1}) + c H^2 l / n^(3/4)``;
- with the reference: ``Q^R <- (1-eta) Q^R + eta (r + V(s') - V^R(s') + mu_r + b)``.

Then ``Q = min(Q^R, Q^U, Q)``, ``V = max_a Q``, ``V^L = max(V^L, max_a Q^L)``, and the reference ``V^R <- V`` while
``V - V^L > 1`` and once more after that; then it is settled.

Bonuses add up to functions of N and of the means, ``B_N + c H^2 l sum_t theta_N^t t^(-3/4)`` in ``Q^R``, for
instance, so the bonus-free Qs are kept here. In a round V, V^L and V^R are those of the broadcast. While
``N < i_0`` each agent that visited counts as one visit, in agent order: for one agent this is the algorithm above,
exactly. From ``i_0`` on the n visits of all agents make one step, with the means over them as targets and the new
``mu_r``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from fed_ucbvi.algorithms import fields
from fed_ucbvi.algorithms.base import FleetTables, Message, Setting, TableRow, TableServer
from fed_ucbvi.algorithms.kernels import Choice, Ties, act_greedily, first_estimates, variance_of
from fed_ucbvi.algorithms.one_report import RoundCounts, fill_means
from fed_ucbvi.algorithms.q_learning import QLearning, advance_sum, second_case, step_size
from fed_ucbvi.core.colours import WINE
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.parameters import NonNegative, Probability
from fed_ucbvi.core.types import FloatArray, MaskArray


class EarlySettledReport(NamedTuple):
    """Up, one row for each agent, at ``(s, pi_h(s))``.

    Visits, reward, and means over the visits of ``V``, ``V^L``, ``V^R``, ``(V^R)^2`` and ``(V-V^R)^2`` at s'.
    """

    n: fields.RoundVisits
    r: fields.RoundReward
    v: fields.RoundMean
    lower: fields.RoundMean
    reference: fields.RoundMean
    reference_square: fields.RoundSquare
    advantage_square: fields.RoundSquare


class UpdateRule(NamedTuple):
    """The server's constants: ``c sqrt(H^3 l)``, ``c sqrt(l)``, ``c H^2 l``, ``i_0``, and how ties are broken."""

    per_root: float
    per_deviation: float
    per_quarter: float
    i_0: int
    ties: Ties


class Estimates(NamedTuple):
    """What the server knows.

    ``upper``, ``lower`` and ``referenced`` are ``Q^U``, ``Q^L`` and ``Q^R`` without bonuses, ``roots`` and
    ``quarters`` the sums of ``theta_N^t`` over ``t^(1/2)`` and ``t^(3/4)``; ``settled`` says where the reference is.
    The last four are means of values at next states and of their squares: plain for the reference, weighted by theta
    for the advantage.
    """

    N: fields.PairCounts
    Q: fields.PairTable
    upper: fields.PairTable
    lower: fields.PairTable
    Q_lower: fields.PairTable
    referenced: fields.PairTable
    roots: fields.PairTable
    quarters: fields.PairTable
    V: fields.Values
    V_lower: fields.Values
    V_reference: fields.Values
    settled: Annotated[MaskArray, fields.Shape("H S")]
    policy: fields.Policy
    updates: fields.Number
    mu_reference: fields.PairTable
    sigma_reference: fields.PairTable
    mu_advantage: fields.PairTable
    sigma_advantage: fields.PairTable


Server = TableServer[Estimates, UpdateRule]


@dataclass(frozen=True)
class FedQEarlySettled(QLearning[Estimates, UpdateRule, EarlySettledReport]):
    """Parameters of FedQ-EarlySettled-LowCost (experimental; see the module's text).

    Args:
        c_b: the factor on every bonus; a universal constant in the papers.
        iota: the logarithm; by default ``ln(S A H M T / delta)``. Experiments of this family often use 1.
        delta: failure probability, in ``iota``.
    """

    name: ClassVar[str] = "fedq-early-settled-lowcost"
    label: ClassVar[str] = "FedQ-EarlySettled-LowCost"
    colour: ClassVar[str] = WINE
    report_type: ClassVar[type[Any]] = EarlySettledReport
    broadcasts: ClassVar[tuple[str, ...]] = ("policy", "N", "V", "V_lower", "V_reference")
    values: ClassVar[tuple[str, ...]] = ("V", "V_lower", "V_reference")
    values_monotone: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow("model-free", False, "M S A H^3 log T", "sqrt(H^3 S A T / M)")

    c_b: NonNegative = 1.0
    iota: NonNegative | None = None
    delta: Probability = 0.05
    initial_policy: Choice = "random"
    ties: Choice = "first"

    def logarithm(self, setting: Setting) -> float:
        """``iota`` in force."""
        if self.iota is not None:
            return float(self.iota)
        steps = float(setting.horizon * setting.agents) * setting.episodes
        return math.log(setting.states * setting.actions * steps / self.delta)

    def facts(self, setting: Setting) -> dict[str, float]:
        return {"i_0": float(second_case(setting)), "iota": self.logarithm(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """That this is a reconstruction, and what FedQ's trigger gives cause for."""
        return [
            f"{self.name} is experimental: a reconstruction of the published algorithm from the one it builds on, "
            "with constants of our choice; do not quote its figures as the authors'.",
            *super().cautions(setting),
        ]

    def update_rule(self, setting: Setting) -> UpdateRule:
        H, iota = setting.horizon, self.logarithm(setting)
        c = self.c_b
        bonuses = c * math.sqrt(float(H) ** 3 * iota), c * math.sqrt(iota), c * float(H) ** 2 * iota
        return UpdateRule(*bonuses, second_case(setting), Ties.of(setting, self.ties))

    def new_estimates(self, setting: Setting) -> Estimates:
        """``Q = Q^U = Q^R = V = V^R = H`` and ``Q^L = V^L = 0``."""
        known = first_estimates(Estimates, setting, self.initial_policy)
        known.upper[:], known.referenced[:], known.V_reference[:] = known.Q, known.Q, known.V
        return known

    def summarise(
        self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: EarlySettledReport
    ) -> None:
        V, V_lower, V_reference = values
        fill_means(counts, tables, (V, V_lower, V_reference, V_reference**2, (V - V_reference) ** 2), out)

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        _aggregate(EarlySettledReport(*report), server.rule, server.estimates)


@compiled
def _aggregate(report: EarlySettledReport, rule: UpdateRule, estimates: Estimates) -> None:
    """Server side, from all agents' messages in agent order; unvisited states keep everything, action included."""
    n, r, v, low, ref, ref2, adv2 = report
    N, Q, upper, lower, Q_lower, referenced, roots, quarters = estimates[:8]
    V, V_lower, V_reference, settled, policy, updates = estimates[8:14]
    mu_r, sigma_r, mu_a, sigma_a = estimates[14:]
    m, H, S = n.shape
    updates[0] += 1
    for h in range(H):
        for s in range(S):
            a = policy[h, s]
            before = N[h, s, a]
            pooled = before >= rule.i_0
            after = before
            for block in range(1 if pooled else m):
                count = 0
                x0, x1, x2, x3, x4, x5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for i in range(0 if pooled else block, m if pooled else block + 1):
                    w = n[i, h, s]
                    if w > 0:
                        count += w
                        x0 += w * r[i, h, s]
                        x1 += w * v[i, h, s]
                        x2 += w * low[i, h, s]
                        x3 += w * ref[i, h, s]
                        x4 += w * ref2[i, h, s]
                        x5 += w * adv2[i, h, s]
                if count == 0:
                    continue
                reward, value, reference = x0 / count, x1 / count, x3 / count
                keep, step = step_size(after, after + count, H)
                after += count
                mu_r[h, s, a] += (x3 - count * mu_r[h, s, a]) / after
                sigma_r[h, s, a] += (x4 - count * sigma_r[h, s, a]) / after
                mu_a[h, s, a] = keep * mu_a[h, s, a] + step * (value - reference)
                sigma_a[h, s, a] = keep * sigma_a[h, s, a] + step * (x5 / count)
                upper[h, s, a] = keep * upper[h, s, a] + step * (reward + value)
                lower[h, s, a] = keep * lower[h, s, a] + step * (reward + x2 / count)
                target = reward + value - reference + mu_r[h, s, a]
                referenced[h, s, a] = keep * referenced[h, s, a] + step * target
            if after == before:
                continue
            N[h, s, a] = after
            roots[h, s, a] = advance_sum(roots[h, s, a], before, after, H, 1, 0.5)
            quarters[h, s, a] = advance_sum(quarters[h, s, a], before, after, H, 1, 0.75)
            coarse = rule.per_root * roots[h, s, a]
            fine = math.sqrt(variance_of(mu_r[h, s, a], sigma_r[h, s, a]))
            fine += math.sqrt(float(H)) * math.sqrt(variance_of(mu_a[h, s, a], sigma_a[h, s, a]))
            fine = rule.per_deviation * fine / math.sqrt(after) + rule.per_quarter * quarters[h, s, a]
            Q[h, s, a] = min(Q[h, s, a], upper[h, s, a] + coarse, referenced[h, s, a] + fine)
            Q_lower[h, s, a] = lower[h, s, a] - coarse
            act_greedily(h, s, Q, policy, V, rule.ties, updates[0], math.inf)
            V_lower[h, s] = max(V_lower[h, s], Q_lower[h, s].max())
            if not settled[h, s]:
                V_reference[h, s] = V[h, s]
                settled[h, s] = V[h, s] - V_lower[h, s] <= 1.0
