"""FedQ-Advantage and UCB-Advantage: stage-wise Q-learning with a reference function and the least of two bounds.

Visits to a triplet (h,s,a) are divided into *stages*: y counts those of the current stage, y- those of the one before
it and N those of all completed ones. V are the optimistic values and ``V^R`` the reference, s' is the next state. The
rewards, ``V(s')``, ``(V - V^R)(s')`` and its square are summed over a stage; ``V^R(s')`` and its square are summed
over all visits. The values are those of the next step that are in force at the visit. When a stage ends, ``N += y``
and::

    Q1 = r + mean V + c1 H sqrt(iota / y)
    Q2 = r + mean V^R + mean (V - V^R) + 2 sqrt(iota Var(V^R) / N) + 2 sqrt(iota Var(V - V^R) / y)
         + c2 H [(iota/N)^(3/4) + (iota/y)^(3/4) + iota/N + iota/y]
    Q  = min(Q1, Q2, Q)

with means of ``V^R`` over N visits and all others over y. The reference ``V^R_h(s)`` is set to ``V_h(s)`` once, when
(h,s) has been visited ``N_0`` times, and then left alone. The two algorithms differ in c1, c2, ``N_0``, the length of
stages and in what ends them; ``practical`` constants have no term with c2.

Rewards are deterministic in both papers, and r is the one observed. Where agents have rewards of their own, r is
their mean over the stage.

**FedQ-Advantage** (Zheng, Zhang and Xue, ICLR 2025), federated: ``c1 = sqrt(2)`` and ``c2 = 10``. A stage of
(h,s,a) ends at a synchronisation with ``y >= M H`` (the first stage) or ``y >= (1 + 1/H) y-``. Only then do Q and the
policy change there. An agent requests a synchronisation once its visits in the round to some ``(h, s, pi_h(s))``
reach::

    1                    in the first stage
    ceil((y- - y) / M)   while y <= (1 - 1/H) y-
    floor(y- / (M H))    after that

How sure this is: the triggers, stages, statistics, the reference rule and the least of the bounds are as in the code
published with Fed-UCBVI; ``N_0``, beta and the settings of the experiments as quoted in a review of the paper. The
term with ``c2``, iota, the initial values, what is broadcast, and play without forced synchronisation are
from memory, with medium confidence.

**UCB-Advantage** (Zhang, Zhou and Ji, NeurIPS 2020) for one agent, and its concurrent version (their Appendix C.2):
``c1 = 2`` and ``c2 = 5``. The i-th stage of a triplet has ``e_i`` visits, ``e_1 = H`` and ``e_{i+1} = floor((1 + 1/H)
e_i)``. Values and the reference used at a visit are those in force when it is taken in, step by step; the reference
is set at the visit that is the ``N_0``-th to (h,s).

Every round is one episode: each agent plays it and sends its trajectory. The *concurrent* version feeds the M
trajectories, in agent order, to the algorithm for one agent; once one of them has ended a stage, so that Q has
changed, those after it are discarded.

How sure this is: everything but the bonuses was read in the paper; the copy lost its displayed formulas, so
the bonuses are from memory, with high confidence (they have just the terms of the constants that the text names).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms import fields
from fed_ucbvi.algorithms.base import (
    FleetTables,
    Message,
    RunExtension,
    SentValues,
    Setting,
    TableServer,
    checked_by_tests,
)
from fed_ucbvi.algorithms.kernels import InitialPolicy, TieBreaking, Ties, act_greedily, first_estimates, variance_of
from fed_ucbvi.algorithms.one_report import EveryEpisode, OneReport, ReportT, RoundCounts, Trajectories, fill_means
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import Bounds, Help, NonNegative, Positive, Probability
from fed_ucbvi.core.types import CountArray, FloatArray, MaskArray

Constants = Literal["practical", "published"]
PRACTICAL_IOTA = 1.0
PRACTICAL_REFERENCE_AFTER = 200.0
"""What the experiments with FedQ-Advantage are reported to have used for iota and ``N_0``."""


class Rule(NamedTuple):
    """Constants of the server's update: iota, ``c1 H sqrt(iota)``, ``c2 H``, ``N_0``, and how ties are broken."""

    iota: float
    plain: float
    lower_order: float
    reference_after: float
    ties: Ties


class Estimates(NamedTuple):
    """Tables of the server.

    ``N``, ``y`` and ``y_previous`` are the visits in completed stages, in the current one and in the one before it (0
    in the first). ``stage`` has the sums over the current stage of r, ``V``, ``V - V^R`` and ``(V - V^R)^2``,
    ``overall`` those over all visits of ``V^R`` and ``(V^R)^2``. ``settled`` says where the reference has been set.
    """

    N: fields.PairCounts
    y: fields.PairCounts
    y_previous: fields.PairCounts
    stage: Annotated[FloatArray, fields.Shape("H S A 4")]
    overall: Annotated[FloatArray, fields.Shape("H S A 2")]
    Q: fields.PairTable
    V: fields.Values
    V_ref: fields.Values
    settled: Annotated[MaskArray, fields.Shape("H S")]
    policy: fields.Policy
    updates: fields.Number


Server = TableServer[Estimates, Rule]


@dataclass(frozen=True)
class ReferenceAdvantage(OneReport[Estimates, Rule, ReportT], Generic[ReportT]):
    """Common base of both algorithms."""

    estimates_type: ClassVar[type[Any]] = Estimates
    c1_squared: ClassVar[float]
    c2: ClassVar[float]

    constants: Annotated[Constants, Help("practical or published.")] = "practical"
    reference_after: Annotated[
        Annotated[float, Bounds(at_least=1)] | None,
        Help(
            "N_0, the visits to a state at a step after which its reference value is set; by default "
            "as constants says."
        ),
    ] = None
    iota: Annotated[
        NonNegative | None,
        Help("the logarithm; by default as constants says. The practical bonus is proportional to its root."),
    ] = None
    delta: Annotated[Probability, Help("failure probability, in the published iota.")] = 0.05
    initial_policy: InitialPolicy = "random"
    ties: TieBreaking = "first"

    @abstractmethod
    def published_settling(self, setting: Setting) -> float:
        """The published ``N_0``."""

    @property
    def logarithm(self) -> float:
        """Iota in force."""
        if self.iota is not None:
            return float(self.iota)
        return PRACTICAL_IOTA if self.constants == "practical" else math.log(2.0 / self.delta)

    def settling(self, setting: Setting) -> float:
        """``N_0`` in force."""
        if self.reference_after is not None:
            return float(self.reference_after)
        return PRACTICAL_REFERENCE_AFTER if self.constants == "practical" else self.published_settling(setting)

    def facts(self, setting: Setting) -> dict[str, float]:
        return {"iota": self.logarithm, "reference_after": self.settling(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning if no reference value can ever be set, because no (h,s) is visited more than ``M T`` times."""
        needed = self.settling(setting)
        most = setting.agents * setting.episodes
        if needed <= most:
            return []
        return [
            f"the reference function can never be set: it needs N_0 = {needed:,.0f} visits to a state at a "
            f"step, but there are at most M T = {most:,}; the advantage decomposition will bring nothing. "
            "(Pass reference_after, or constants='practical'.)"
        ]

    def update_rule(self, setting: Setting) -> Rule:
        H = setting.horizon
        iota = self.logarithm
        lower_order = 0.0 if self.constants == "practical" else self.c2 * H
        plain = math.sqrt(self.c1_squared * iota) * H
        return Rule(iota, plain, lower_order, self.settling(setting), Ties.of(setting, self.ties))


@compiled
def end_stage(h: int, s: int, a: int, rule: Rule, estimates: Estimates) -> None:
    """``Q``, ``V`` and the policy at the end of a stage of (h,s,a); see the module's text for the equations."""
    N, y, y_previous, stage, overall, Q, V, _, _, policy, updates = estimates
    N[h, s, a] += y[h, s, a]
    total = float(N[h, s, a])
    recent = float(y[h, s, a])
    iota = rule.iota
    r, v, d, d2 = stage[h, s, a] / recent
    ref, ref2 = overall[h, s, a] / total
    Q1 = r + v + rule.plain / math.sqrt(recent)
    Q2 = r + ref + d
    Q2 += 2.0 * math.sqrt(iota * variance_of(ref, ref2) / total) + 2.0 * math.sqrt(iota * variance_of(d, d2) / recent)
    if rule.lower_order > 0.0:
        one = iota / total
        two = iota / recent
        Q2 += rule.lower_order * (one**0.75 + two**0.75 + one + two)
    Q[h, s, a] = min(Q1, Q2, Q[h, s, a])
    y_previous[h, s, a] = y[h, s, a]
    y[h, s, a] = 0
    stage[h, s, a] = 0.0
    act_greedily(h, s, Q, policy, V, rule.ties, updates[0], math.inf)


# -------------------------------------------------------------------------------------------- FedQ-Advantage


Clip = Literal["horizon", "remaining"]


class FedQAdvantageReport(NamedTuple):
    """Up, one row for each agent, at the policy's actions: the round's visits, and means over them.

    The means are of r, ``V``, ``V^R``, ``(V^R)^2``, ``V - V^R`` and ``(V - V^R)^2`` at the next state; where an agent
    has not been they are 0. The server multiplies them by the visits again and adds up.
    """

    n: fields.RoundVisits
    r: fields.RoundReward
    v: fields.RoundMean
    a1: fields.RoundMean
    a2: fields.RoundSquare
    d1: fields.RoundGap
    d2: fields.RoundSquare


@checked_by_tests
@dataclass(frozen=True)
class FedQAdvantage(ReferenceAdvantage[FedQAdvantageReport]):
    """FedQ-Advantage (Zheng, Zhang and Xue, ICLR 2025)."""

    name: ClassVar[str] = "fedq-advantage"
    label: ClassVar[str] = "FedQ-Advantage"
    c1_squared: ClassVar[float] = 2.0
    c2: ClassVar[float] = 10.0
    rules: ClassVar[tuple[str, ...]] = ("first stage", "early in stage", "late in stage")
    report_type: ClassVar[type[Any]] = FedQAdvantageReport
    broadcasts: ClassVar[tuple[str, ...]] = ("policy", "V", "V_ref", "y", "y_previous")
    values: ClassVar[tuple[str, ...]] = ("V", "V_ref")
    extension = RunExtension(
        episodes=None,  # nothing in it depends on T
        warm_start="it learns from rounds as they come and keeps no counts of transitions",
    )

    constants: Annotated[
        Constants,
        Help(
            "practical, what the experiments used: iota = 1, N_0 = 200 and no lower-order term in the bonus; or "
            "published: iota = log(2/delta), the lower-order term, and N_0 = 5184 S A H^5 iota / beta^2 + 16 M S A "
            "H^3 / beta."
        ),
    ] = "practical"
    beta: Annotated[Positive, Help("accuracy of the reference function in the published N_0, at most H.")] = 1.0
    forced_synchronisation: Annotated[
        bool, Help("one agent's request stops all agents; otherwise each plays until its own request.")
    ] = True
    clip: Annotated[
        Clip,
        Help(
            "Q, V and the reference start at H-h+1 (remaining, as in the experiments of the Fed-UCBVI "
            "paper) or at H (horizon, the published algorithm), and only ever fall."
        ),
    ] = "remaining"

    @property
    def sent_values(self) -> SentValues:
        """Values never rise."""
        return super().sent_values._replace(monotone=True)

    @property
    def stops_jointly(self) -> bool:
        return self.forced_synchronisation

    def published_settling(self, setting: Setting) -> float:
        S = setting.states
        A = setting.actions
        H = setting.horizon
        M = setting.agents
        if self.beta > H:
            raise InputError(f"beta must be at most the horizon, {H}, got {self.beta}.")
        return 5184.0 * S * A * H**5 * self.logarithm / self.beta**2 + 16.0 * M * S * A * H**3 / self.beta

    def new_estimates(self, setting: Setting) -> Estimates:
        """No visits, ``Q = V = V^R = H`` (or H-h+1) and the initial policy."""
        known = first_estimates(Estimates, setting, self.initial_policy, remaining=self.clip == "remaining")
        known.V_ref[:] = known.V
        return known

    def fill_budgets(self, sent: dict[str, Any], M: int, limits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        _fill_budgets(sent["y"], sent["y_previous"], M, limits, rule)

    def summarise(
        self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: FedQAdvantageReport
    ) -> None:
        V, V_ref = values
        fill_means(counts, tables, (V, V_ref, V_ref**2, V - V_ref, (V - V_ref) ** 2), out)

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        _aggregate(len(report[0]), FedQAdvantageReport(*report), server.rule, server.estimates)


@compiled
def _fill_budgets(y: CountArray, before: CountArray, M: int, limits: CountArray, rule: npt.NDArray[np.int8]) -> None:
    """The stage rule, in whole numbers: ``y <= (1 - 1/H) y-`` if and only if ``y- - y >= ceil(y- / H)``."""
    H = len(y)
    left = before - y
    late = left < (before + H - 1) // H
    limits[:] = np.maximum(1, np.where(late, before // (M * H), (left + M - 1) // M))
    rule[:] = np.where(before == 0, 0, 1 + late)


@compiled
def _aggregate(M: int, report: FedQAdvantageReport, rule: Rule, estimates: Estimates) -> None:
    """Add the reports of all M agents, in agent order, to the sums; then end the stages that are due.

    ``y >= (1 + 1/H) y-`` if and only if ``y - y- >= ceil(y- / H)``. The reference of (h,s) is set once
    ``sum_a N_h(s,a) >= N_0``, which can only come about at the end of a stage.
    """
    n, r, v, a1, a2, d1, d2 = report
    N, y, y_previous, stage, overall, _, V, V_ref, settled, policy, updates = estimates
    H, S = policy.shape
    updates[0] += 1
    for i in range(M):
        for h in range(H):
            for s in range(S):
                count = n[i, h, s]
                if count > 0:
                    a = policy[h, s]
                    y[h, s, a] += count
                    stage[h, s, a, 0] += count * r[i, h, s]
                    stage[h, s, a, 1] += count * v[i, h, s]
                    stage[h, s, a, 2] += count * d1[i, h, s]
                    stage[h, s, a, 3] += count * d2[i, h, s]
                    overall[h, s, a, 0] += count * a1[i, h, s]
                    overall[h, s, a, 1] += count * a2[i, h, s]
    for h in range(H):
        for s in range(S):
            a = policy[h, s]
            before = y_previous[h, s, a]
            due = M * H if before == 0 else before + (before + H - 1) // H
            if y[h, s, a] >= due:
                end_stage(h, s, a, rule, estimates)
                if not settled[h, s] and N[h, s].sum() >= rule.reference_after:
                    settled[h, s] = True
                    V_ref[h, s] = V[h, s]


# --------------------------------------------------------------------------------------------- UCB-Advantage


@checked_by_tests
@dataclass(frozen=True)
class UCBAdvantage(ReferenceAdvantage[Trajectories], EveryEpisode[Estimates, Rule]):
    """UCB-Advantage (Zhang, Zhou and Ji, NeurIPS 2020), for a single agent."""

    name: ClassVar[str] = "ucb-advantage"
    label: ClassVar[str] = "UCB-Advantage"
    c1_squared: ClassVar[float] = 4.0
    c2: ClassVar[float] = 5.0
    single_agent: ClassVar[bool] = True
    extension = RunExtension(
        episodes=None,  # nothing in it depends on T
        warm_start="it learns from episodes as they come and keeps no counts of transitions",
    )

    constants: Annotated[
        Constants,
        Help(
            "practical: iota = 1, N_0 = 200 and no lower-order term in the bonus, as in the experiments with "
            "FedQ-Advantage (the paper has none); or published: iota = log(2/delta), the lower-order term, and N_0 = "
            "c4 S A H^5 iota / beta^2."
        ),
    ] = "practical"
    c4: Annotated[Positive, Help("the universal constant in the published N_0, which the paper leaves open.")] = 1.0
    beta: Annotated[
        Positive | None, Help("accuracy of the reference function in the published N_0; by default 1/sqrt(H).")
    ] = None

    def published_settling(self, setting: Setting) -> float:
        S = setting.states
        A = setting.actions
        H = setting.horizon
        beta = 1.0 / math.sqrt(H) if self.beta is None else self.beta
        return self.c4 * S * A * H**5 * self.logarithm / beta**2

    def new_estimates(self, setting: Setting) -> Estimates:
        """No visits, ``Q = V = H-h+1``, ``V^R = H`` and the initial policy."""
        known = first_estimates(Estimates, setting, self.initial_policy, remaining=True)
        known.V_ref[:-1] = setting.horizon
        return known

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        _feed(Trajectories(*report), False, server.rule, server.estimates)


@checked_by_tests
@dataclass(frozen=True)
class ConcurrentUCBAdvantage(UCBAdvantage):
    """Concurrent UCB-Advantage (Zhang, Zhou and Ji, NeurIPS 2020, Appendix C.2): a synchronisation every episode.

    The paper stops after so many trajectories, for a policy that is good enough; here it never stops. The parameters
    are those of :class:`UCBAdvantage`, and
    """

    name: ClassVar[str] = "concurrent-ucb-advantage"
    label: ClassVar[str] = "Concurrent UCB-Advantage"
    single_agent: ClassVar[bool] = False

    discard: Annotated[
        bool,
        Help(
            "discard the rest of a round's trajectories once one has changed Q, as the paper does; "
            "otherwise all are used."
        ),
    ] = True

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        _feed(Trajectories(*report), self.discard, server.rule, server.estimates)


@compiled
def _feed(report: Trajectories, discard: bool, rule: Rule, estimates: Estimates) -> None:
    """Feed the trajectories to the algorithm in agent order; ``discard`` those after one that ended a stage."""
    states, rewards = report
    N, y, y_previous, stage, overall, _, V, V_ref, settled, policy, updates = estimates
    m, H = rewards.shape
    played = policy.copy()
    updates[0] += 1
    for i in range(m):
        changed = False
        for h in range(H):
            s = states[i, h]
            successor = states[i, h + 1]
            a = played[h, s]
            value = V[h + 1, successor]
            ref = V_ref[h + 1, successor]
            y[h, s, a] += 1
            stage[h, s, a, 0] += rewards[i, h]
            stage[h, s, a, 1] += value
            stage[h, s, a, 2] += value - ref
            stage[h, s, a, 3] += (value - ref) * (value - ref)
            overall[h, s, a, 0] += ref
            overall[h, s, a, 1] += ref * ref
            before = y_previous[h, s, a]
            if y[h, s, a] == (H if before == 0 else before + before // H):
                end_stage(h, s, a, rule, estimates)
                changed = True
            if not settled[h, s] and N[h, s].sum() + y[h, s].sum() >= rule.reference_after:
                settled[h, s] = True
                V_ref[h, s] = V[h, s]
        if changed and discard:
            break
