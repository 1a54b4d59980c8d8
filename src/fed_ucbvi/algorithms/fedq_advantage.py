"""FedQ-Advantage (Zheng, Zhang and Xue, ICLR 2025): federated, stage-wise reference-advantage Q-learning.

The bounds are those of :mod:`fed_ucbvi.algorithms.advantage` with ``c1 = sqrt(2)`` and ``c2 = 10``. A stage of
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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.advantage import (
    CONSTANTS,
    PRACTICAL_IOTA,
    PRACTICAL_REFERENCE_AFTER,
    Estimates,
    Rule,
    Server,
    end_stage,
    never_settles,
    new_server,
)
from fed_ucbvi.algorithms.base import FleetTables, GoingOn, Message, Setting, TableRow
from fed_ucbvi.algorithms.greedy import CHOICES
from fed_ucbvi.algorithms.one_report import OneReport, RoundCounts, fill_means, report_buffers
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.core.colours import PURPLE, Marker
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError, check_choice, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

CLIPS = ("horizon", "remaining")


class Broadcast(NamedTuple):
    """Down, at the start of a round: ``policy[H,S]``, ``V`` and ``V^R`` ``[H+1,S]``, y and y- there ``[H,S]``."""

    policy: IndexArray
    V: FloatArray
    V_ref: FloatArray
    y: CountArray
    y_previous: CountArray


class FedQAdvantageReport(NamedTuple):
    """Up, one row for each agent, ``(m, H, S)``, at the policy's actions: the round's visits, and means over them.

    The means are of r, ``V``, ``V^R``, ``(V^R)^2``, ``V - V^R`` and ``(V - V^R)^2`` at the next state; where an agent
    has not been they are 0. The server multiplies them by the visits again and adds up.
    """

    n: Annotated[CountArray, Meaning.VISITS_OF_ROUND]
    r: Annotated[FloatArray, Meaning.REWARD]
    v: Annotated[FloatArray, Meaning.MEAN]
    a1: Annotated[FloatArray, Meaning.MEAN]
    a2: Annotated[FloatArray, Meaning.SQUARE]
    d1: Annotated[FloatArray, Meaning.GAP]
    d2: Annotated[FloatArray, Meaning.SQUARE]


@dataclass(frozen=True)
class FedQAdvantage(OneReport[Server, FedQAdvantageReport]):
    """FedQ-Advantage (Zheng, Zhang and Xue, ICLR 2025).

    Args:
        constants: ``practical``, what the experiments used: iota = 1, ``N_0 = 200`` and no lower-order term in the
            bonus; or ``published``: ``iota = log(2/delta)``, the lower-order term, and
            ``N_0 = 5184 S A H^5 iota / beta^2 + 16 M S A H^3 / beta``.
        reference_after: ``N_0``, the visits to a state at a step after which its reference value is set; by default
            as ``constants`` says.
        iota: the logarithm; by default as ``constants`` says. The practical bonus is proportional to its root.
        beta: accuracy of the reference function in the published ``N_0``, at most H.
        delta: failure probability, in the published iota.
        forced_synchronisation: one agent's request stops all agents; otherwise each plays until its own request.
        clip: Q, V and the reference start at H-h+1 (``remaining``, as in the experiments of the Fed-UCBVI paper) or
            at H (``horizon``, the published algorithm), and only ever fall.
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first`` or a ``random`` one, drawn from the run's seed.

    >>> FedQAdvantage(forced_synchronisation=False).together
    False
    """

    name: ClassVar[str] = "fedq-advantage"
    label: ClassVar[str] = "FedQ-Advantage"
    colour: ClassVar[str] = PURPLE
    marker: ClassVar[Marker] = "square"
    rules: ClassVar[tuple[str, ...]] = ("first stage", "early in stage", "late in stage")
    broadcast_type: ClassVar[type[Broadcast]] = Broadcast
    falling: ClassVar[bool] = True
    values: ClassVar[tuple[str, ...]] = ("V", "V_ref")
    table: ClassVar[TableRow] = TableRow("model-free", False, "M S A H^2 log H log T", "sqrt(H^3 S A T / M)")

    constants: str = "practical"
    reference_after: float | None = None
    iota: float | None = None
    beta: float = 1.0
    delta: float = 0.05
    forced_synchronisation: bool = True
    clip: str = "remaining"
    initial_policy: str = "random"
    ties: str = "first"

    def __post_init__(self) -> None:
        check_choice("constants", self.constants, CONSTANTS)
        check_choice("clip", self.clip, CLIPS)
        check_choice("initial policy", self.initial_policy, CHOICES)
        check_choice("rule for ties", self.ties, CHOICES)
        check_number("beta", self.beta, above=0)
        check_number("delta", self.delta, above=0, below=1)
        if self.reference_after is not None:
            check_number("reference_after", self.reference_after, at_least=1)
        if self.iota is not None:
            check_number("iota", self.iota, at_least=0)
        if not isinstance(self.forced_synchronisation, bool):
            raise InputError(f"forced_synchronisation must be true or false, got {self.forced_synchronisation!r}.")

    @property
    def together(self) -> bool:
        """Whether one agent's request stops all agents."""
        return self.forced_synchronisation

    @property
    def logarithm(self) -> float:
        """Iota in force."""
        if self.iota is not None:
            return float(self.iota)
        return PRACTICAL_IOTA if self.constants == "practical" else math.log(2.0 / self.delta)

    @property
    def going_on(self) -> GoingOn:
        """More episodes: nothing in it depends on T."""
        return GoingOn(
            episodes="",
            agents="the lengths of its stages are set by the number of agents from the start",
            warm_start="it learns from rounds as they come and keeps no counts of transitions",
        )

    def settling(self, setting: Setting) -> float:
        """``N_0`` in force."""
        if self.reference_after is not None:
            return float(self.reference_after)
        if self.constants == "practical":
            return PRACTICAL_REFERENCE_AFTER
        S, A, H, M = setting.states, setting.actions, setting.horizon, setting.agents
        if self.beta > H:
            raise InputError(f"beta must be at most the horizon, {H}, got {self.beta}.")
        return 5184.0 * S * A * H**5 * self.logarithm / self.beta**2 + 16.0 * M * S * A * H**3 / self.beta

    def facts(self, setting: Setting) -> dict[str, float]:
        """Iota and ``N_0``, for the record."""
        return {"iota": self.logarithm, "reference_after": self.settling(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where the reference can never be set."""
        return never_settles(setting, self.settling(setting))

    def new_server(self, setting: Setting) -> Server:
        """No visits, ``Q = V = V^R = H`` (or H-h+1) and the initial policy."""
        H = setting.horizon
        rule = Rule(
            self.logarithm,
            math.sqrt(2.0 * self.logarithm) * H,
            0.0 if self.constants == "practical" else 10.0 * H,
            self.settling(setting),
            self.ties == "random",
            np.uint64(setting.seed),
        )
        start = H - np.arange(H, dtype=np.float64) if self.clip == "remaining" else np.full(H, float(H))
        return new_server(setting, rule, self.initial_policy, start, start)

    def new_report(self, m: int, H: int, S: int) -> FedQAdvantageReport:
        """Visits and six means."""
        return report_buffers(FedQAdvantageReport, m, H, S)

    def broadcast(self, server: Server) -> Broadcast:
        """The policy, the values, the reference, and where the stages of the triplets to be played stand."""
        _, y, y_previous, _, _, _, V, V_ref, _, policy, _ = server.estimates
        return Broadcast(policy, V, V_ref, *_at_policy(policy, y, y_previous))

    def fill_budgets(self, broadcast: Broadcast, M: int, visits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        """Visits in the round after which an agent requests a synchronisation; see the module's text."""
        _fill_budgets(broadcast.y, broadcast.y_previous, M, visits, rule)

    def summarise(
        self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: FedQAdvantageReport
    ) -> None:
        """The round's visits and means."""
        V, V_ref = values
        fill_means(counts, tables, (V, V_ref, V_ref**2, V - V_ref, (V - V_ref) ** 2), out)

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side: add up the reports, end the stages that are due."""
        M = len(report[0])
        _aggregate(M, FedQAdvantageReport(*report), server.rule, server.estimates)


# ---------------------------------------------------------------------------------------------- agent side


@compiled
def _fill_budgets(y: CountArray, y_previous: CountArray, M: int, out: CountArray, rule: npt.NDArray[np.int8]) -> None:
    """The stage rule, in whole numbers: ``y <= (1 - 1/H) y-`` if and only if ``y- - y >= ceil(y- / H)``."""
    m, H, S = out.shape
    for h in range(H):
        for s in range(S):
            before, left = y_previous[h, s], y_previous[h, s] - y[h, s]
            if before == 0:
                visits, kind = 1, 0
            elif left >= (before + H - 1) // H:
                visits, kind = (left + M - 1) // M, 1
            else:
                visits, kind = before // (M * H), 2
            rule[h, s] = kind
            for i in range(m):
                out[i, h, s] = max(1, visits)


# --------------------------------------------------------------------------------------------- server side


@compiled
def _at_policy(policy: IndexArray, y: CountArray, y_previous: CountArray) -> tuple[CountArray, CountArray]:
    """``y`` and ``y-`` at ``(h, s, pi_h(s))``."""
    H, S = policy.shape
    now, before = np.empty((H, S), dtype=np.int64), np.empty((H, S), dtype=np.int64)
    for h in range(H):
        for s in range(S):
            now[h, s] = y[h, s, policy[h, s]]
            before[h, s] = y_previous[h, s, policy[h, s]]
    return now, before


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
