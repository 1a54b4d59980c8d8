"""UCB-Advantage (Zhang, Zhou and Ji, NeurIPS 2020) for one agent, and its concurrent version (their Appendix C.2).

The bounds are those of :mod:`fed_ucbvi.algorithms.advantage` with ``c1 = 2`` and ``c2 = 5``. The i-th stage of a
triplet has ``e_i`` visits, ``e_1 = H`` and ``e_{i+1} = floor((1 + 1/H) e_i)``. Values and the reference used at a
visit are those in force when it is taken in, step by step; the reference is set at the visit that is the ``N_0``-th
to (h,s).

Every round is one episode: each agent plays it and sends its trajectory. The *concurrent* version feeds the M
trajectories, in agent order, to the algorithm for one agent; once one of them has ended a stage, so that Q has
changed, those after it are discarded.

How sure this is: everything but the bonuses was read in the paper; the copy lost its displayed formulas, so
the bonuses are from memory, with high confidence (they have just the terms of the constants that the text names).
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
from fed_ucbvi.algorithms.one_report import OneReport, RoundCounts
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.core.colours import BROWN, SKY_BLUE
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError, check_choice, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray


class Broadcast(NamedTuple):
    """Down, at the start of a round: ``policy[H,S]``."""

    policy: IndexArray


class UCBAdvantageReport(NamedTuple):
    """Up, one row for each agent: its ``states[m,H+1]`` and ``rewards[m,H]``; the actions are the policy's."""

    states: Annotated[IndexArray, Meaning.STATE]
    rewards: Annotated[FloatArray, Meaning.REWARD]


@dataclass(frozen=True)
class UCBAdvantage(OneReport[Server, UCBAdvantageReport]):
    """UCB-Advantage (Zhang, Zhou and Ji, NeurIPS 2020), for a single agent.

    Args:
        constants: ``practical``: iota = 1, ``N_0 = 200`` and no lower-order term in the bonus, as in the experiments
            with FedQ-Advantage (the paper has none); or ``published``: ``iota = log(2/delta)``, the lower-order
            term, and ``N_0 = c4 S A H^5 iota / beta^2``.
        reference_after: ``N_0``, the visits to a state at a step after which its reference value is set; by default
            as ``constants`` says.
        c4: the universal constant in the published ``N_0``, which the paper leaves open.
        beta: accuracy of the reference function in the published ``N_0``; by default ``1/sqrt(H)``.
        delta: failure probability, in the published iota.
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first`` or a ``random`` one, drawn from the run's seed.

    >>> UCBAdvantage(reference_after=50).constants
    'practical'
    """

    name: ClassVar[str] = "ucb-advantage"
    label: ClassVar[str] = "UCB-Advantage"
    colour: ClassVar[str] = BROWN
    rules: ClassVar[tuple[str, ...]] = ("every episode",)
    broadcast_type: ClassVar[type[Broadcast]] = Broadcast
    single_agent: ClassVar[bool] = True
    instead: ClassVar[str] = "concurrent-ucb-advantage"
    sends_trajectories: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow("model-free", False, "T", "sqrt(H^3 S A T)")

    constants: str = "practical"
    reference_after: float | None = None
    c4: float = 1.0
    beta: float | None = None
    delta: float = 0.05
    initial_policy: str = "random"
    ties: str = "first"

    def __post_init__(self) -> None:
        check_choice("constants", self.constants, CONSTANTS)
        check_choice("initial policy", self.initial_policy, CHOICES)
        check_choice("rule for ties", self.ties, CHOICES)
        check_number("c4", self.c4, above=0)
        check_number("delta", self.delta, above=0, below=1)
        if self.beta is not None:
            check_number("beta", self.beta, above=0)
        if self.reference_after is not None:
            check_number("reference_after", self.reference_after, at_least=1)

    @property
    def discards(self) -> bool:
        """Whether trajectories after a change of Q are discarded; with one agent there are none."""
        return False

    @property
    def iota(self) -> float:
        """Iota in force."""
        return PRACTICAL_IOTA if self.constants == "practical" else math.log(2.0 / self.delta)

    @property
    def going_on(self) -> GoingOn:
        """More episodes: nothing in it depends on T."""
        return GoingOn(
            episodes="",
            agents="its server needs an episode of every agent in every round",
            warm_start="it learns from episodes as they come and keeps no counts of transitions",
        )

    def settling(self, setting: Setting) -> float:
        """``N_0`` in force."""
        if self.reference_after is not None:
            return float(self.reference_after)
        if self.constants == "practical":
            return PRACTICAL_REFERENCE_AFTER
        S, A, H = setting.states, setting.actions, setting.horizon
        beta = 1.0 / math.sqrt(H) if self.beta is None else self.beta
        return self.c4 * S * A * H**5 * self.iota / beta**2

    def facts(self, setting: Setting) -> dict[str, float]:
        """Iota and ``N_0``, for the record."""
        return {"iota": self.iota, "reference_after": self.settling(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where the reference can never be set."""
        return never_settles(setting, self.settling(setting))

    def new_server(self, setting: Setting) -> Server:
        """No visits, ``Q = V = H-h+1``, ``V^R = H`` and the initial policy."""
        self.check_agents(setting.agents)
        H = setting.horizon
        rule = Rule(
            self.iota,
            2.0 * math.sqrt(self.iota) * H,
            0.0 if self.constants == "practical" else 5.0 * H,
            self.settling(setting),
            self.ties == "random",
            np.uint64(setting.seed),
        )
        remaining = H - np.arange(H, dtype=np.float64)
        return new_server(setting, rule, self.initial_policy, remaining, np.full(H, float(H)))

    def new_report(self, m: int, H: int, S: int) -> UCBAdvantageReport:
        """One trajectory for each agent."""
        return UCBAdvantageReport(np.zeros((m, H + 1), dtype=np.int32), np.zeros((m, H)))

    def broadcast(self, server: Server) -> Broadcast:
        """The policy."""
        return Broadcast(server.estimates.policy)

    def fill_budgets(self, broadcast: Broadcast, M: int, visits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        """1 everywhere: every agent requests a synchronisation after every episode."""
        visits.fill(1)

    def summarise(
        self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: UCBAdvantageReport
    ) -> None:
        """Read each agent's trajectory off the counts of its one episode."""
        _follow(*counts, tables.successors, tables.rewards, out)

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side: feed the trajectories to the algorithm, in agent order."""
        _feed(UCBAdvantageReport(*report), self.discards, server.rule, server.estimates)


@dataclass(frozen=True)
class ConcurrentUCBAdvantage(UCBAdvantage):
    """Concurrent UCB-Advantage (Zhang, Zhou and Ji, NeurIPS 2020, Appendix C.2): a synchronisation every episode.

    The paper stops after so many trajectories, for a policy that is good enough; here it never stops.

    Args:
        constants: ``practical``: iota = 1, ``N_0 = 200`` and no lower-order term in the bonus, as in the experiments
            with FedQ-Advantage (the paper has none); or ``published``: ``iota = log(2/delta)``, the lower-order
            term, and ``N_0 = c4 S A H^5 iota / beta^2``.
        reference_after: ``N_0``, the visits to a state at a step after which its reference value is set; by default
            as ``constants`` says.
        c4: the universal constant in the published ``N_0``, which the paper leaves open.
        beta: accuracy of the reference function in the published ``N_0``; by default ``1/sqrt(H)``.
        delta: failure probability, in the published iota.
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first`` or a ``random`` one, drawn from the run's seed.
        discard: discard the rest of a round's trajectories once one has changed Q, as the paper does; otherwise all
            are used.

    >>> ConcurrentUCBAdvantage(discard=False).discards
    False
    """

    name: ClassVar[str] = "concurrent-ucb-advantage"
    label: ClassVar[str] = "Concurrent UCB-Advantage"
    colour: ClassVar[str] = SKY_BLUE
    single_agent: ClassVar[bool] = False
    table: ClassVar[TableRow] = TableRow("model-free", False, "T", "sqrt(H^3 S A T / M)")

    discard: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.discard, bool):
            raise InputError(f"discard must be true or false, got {self.discard!r}.")

    @property
    def discards(self) -> bool:
        """Whether trajectories after a change of Q are discarded."""
        return self.discard


# ---------------------------------------------------------------------------------------------- agent side


@compiled
def _follow(
    policy: IndexArray,
    transitions: CountArray,
    visits: CountArray,
    successors: IndexArray,
    rewards: FloatArray,
    out: UCBAdvantageReport,
) -> None:
    """Each agent's trajectory from the counts of one episode: one state at step 0, then one slot a step."""
    states, paid = out
    m, H, S, K = transitions.shape
    for i in range(m):
        ir = i if rewards.shape[0] > 1 else 0
        s = 0
        while s < S - 1 and visits[i, 0, s] == 0:
            s += 1
        states[i, 0] = s
        for h in range(H):
            hk = h if successors.shape[0] > 1 else 0
            hr = h if rewards.shape[1] > 1 else 0
            a = policy[h, s]
            paid[i, h] = rewards[ir, hr, s, a]
            k = 0
            while k < K - 1 and transitions[i, h, s, k] == 0:
                k += 1
            s = successors[hk, s, a, k]
            states[i, h + 1] = s


# --------------------------------------------------------------------------------------------- server side


@compiled
def _feed(report: UCBAdvantageReport, discard: bool, rule: Rule, estimates: Estimates) -> None:
    """Feed the trajectories to the algorithm in agent order; ``discard`` those after one that ended a stage."""
    states, rewards = report
    N, y, y_previous, stage, overall, _, V, V_ref, settled, policy, updates = estimates
    m, H = rewards.shape
    played = policy.copy()
    updates[0] += 1
    for i in range(m):
        changed = False
        for h in range(H):
            s, successor = states[i, h], states[i, h + 1]
            a = played[h, s]
            value, ref = V[h + 1, successor], V_ref[h + 1, successor]
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
