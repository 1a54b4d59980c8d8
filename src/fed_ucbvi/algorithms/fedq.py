"""FedQ-Hoeffding and FedQ-Bernstein (Zheng, Gao, Xue and Yang, ICLR 2024).

Federated optimistic Q-learning. Steps h run from 0 to H-1 here and from 1 to H in the paper. A round lasts until
some agent has visited some ``(h, s, pi_h(s))`` ``max(1, floor(N/(M H (H+1))))`` times. Each agent then sends, at
``(s, pi_h(s))`` alone, its reward, its visits n and the mean v of ``V_{h+1}(s')`` over them (Bernstein: the mean mu
of the squares too). With ``n0 = N``, ``n1 = N + sum_m n^m`` and ``theta``, ``alpha^c`` of
:mod:`~fed_ucbvi.algorithms.step_sizes`, the server sets, without the bonus,

- ``n0 < i_0 = 2 M H (H+1)``: ``Q <- alpha^c(n0+1,n1) Q + sum_i theta_n1^{n0+i} (r + v^{m_i})``, the agents that
  visited in order (each has visited at most once);
- ``n0 >= i_0``: ``Q <- alpha^c(n0+1,n1) Q + (1 - alpha^c(n0+1,n1)) (r + sum_m n^m v^m / n)``.

In every round the paper adds to Q an amount such that all bonuses in it add up to a function of N and the variance so
far. So the Q without bonus is kept here, and Q is that plus the bonus. Q itself is not clipped; ``V = min(H, max_a
Q)``.

Beyond the paper, which has one reward function: where agents' rewards differ, ``r^m + v^m`` is averaged as one. And
an agent that reports n > 1 visits while ``n0 < i_0``, which only a liar does, is given n places in the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import FleetTables, GoingOn, Message, Setting, TableRow, TableServer
from fed_ucbvi.algorithms.fedq_trigger import (
    RULES,
    fill_budgets,
    initial_values,
    second_case,
    trigger_cautions,
)
from fed_ucbvi.algorithms.greedy import CHOICES, choose_action
from fed_ucbvi.algorithms.one_report import (
    OneReport,
    RoundAgents,
    RoundCounts,
    fill_means,
    first_policy,
    report_buffers,
)
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.algorithms.step_sizes import advance_sum, step_size
from fed_ucbvi.algorithms.variance import variance_of
from fed_ucbvi.core.colours import ORANGE, VERMILLION, Marker
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import check_choice, check_integer, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

BONUSES = ("practical", "published")


class Broadcast(NamedTuple):
    """Down, at the start of a round: ``policy[H,S]``, ``N_h(s, pi_h(s))`` as ``N[H,S]``, and ``V[H+1,S]``."""

    policy: IndexArray
    N: CountArray
    V: FloatArray


class HoeffdingReport(NamedTuple):
    """Up, one row for each agent, ``(m, H, S)`` at ``(s, pi_h(s))``: visits, reward, mean of ``V_{h+1}(s')``."""

    n: Annotated[CountArray, Meaning.VISITS_OF_ROUND]
    r: Annotated[FloatArray, Meaning.REWARD]
    v: Annotated[FloatArray, Meaning.MEAN]


class BernsteinReport(NamedTuple):
    """The same with the mean of ``V_{h+1}(s')^2``."""

    n: Annotated[CountArray, Meaning.VISITS_OF_ROUND]
    r: Annotated[FloatArray, Meaning.REWARD]
    v: Annotated[FloatArray, Meaning.MEAN]
    mu: Annotated[FloatArray, Meaning.SQUARE]


class UpdateRule(NamedTuple):
    """How the server turns reports into Q, as numbers; see :func:`_bonus`."""

    published: bool
    bernstein: bool
    c: float
    c_bernstein: float
    bernstein_after: int
    iota: float
    per_count: float
    i_0: int
    random_ties: bool
    seed: np.uint64


class Estimates(NamedTuple):
    """What the server knows, ``[H,S,A]`` where not said otherwise.

    ``plain`` is Q without bonus. ``weights`` is ``sum_t theta_N^t t^(-1/2)`` or ``sum_t (theta_N^t)^2``, whichever
    the bonus needs. ``samples``, ``W1`` and ``W2`` are number, sum of squares and sum of the next values that went
    into the variance. ``N_policy[H,S]`` is ``N_h(s, pi_h(s))``.
    """

    N: CountArray
    plain: FloatArray
    Q: FloatArray
    V: FloatArray
    policy: IndexArray
    N_policy: CountArray
    weights: FloatArray
    samples: CountArray
    W1: FloatArray
    W2: FloatArray
    updates: CountArray


class Server(TableServer[Estimates, UpdateRule]):
    """The central server: it knows averages over agents, never a transition."""


@dataclass(frozen=True)
class FedQHoeffding(OneReport[Server, BernsteinReport]):
    """Parameters of FedQ-Hoeffding.

    Args:
        bonus: ``practical``: ``c (H-1-h) sqrt(sum_t (theta_N^t)^2)`` with h from 0, so H-1-h is the range of
            ``V_{h+1}``; Q and V start at H-h. The experiments of the Fed-UCBVI paper used it.
            ``published``: ``sum_t theta_N^t c sqrt(H^3 iota / t)``; Q and V start at H.
        c: the factor in it. The experiments used 2; the FedQ paper leaves it open, and 1 is enough for the
            inequality of Azuma and Hoeffding behind it, so 2 has room for averaging over a round.
        delta: failure probability, in ``iota`` (``published`` only).
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first`` or a ``random`` one, drawn from the run's seed.

    >>> FedQHoeffding(bonus="published").c
    2.0
    """

    name: ClassVar[str] = "fedq-hoeffding"
    label: ClassVar[str] = "FedQ-Hoeffding"
    colour: ClassVar[str] = ORANGE
    marker: ClassVar[Marker] = "diamond"
    rules: ClassVar[tuple[str, ...]] = RULES
    broadcast_type: ClassVar[type[Broadcast]] = Broadcast
    values: ClassVar[tuple[str, ...]] = ("V",)
    bernstein: ClassVar[bool] = False
    table: ClassVar[TableRow] = TableRow("model-free", False, "M S A H^3 log T", "sqrt(H^5 S A T / M)")

    bonus: str = "practical"
    c: float = 2.0
    delta: float = 0.05
    initial_policy: str = "random"
    ties: str = "first"

    def __post_init__(self) -> None:
        check_choice("bonus", self.bonus, BONUSES)
        check_choice("initial policy", self.initial_policy, CHOICES)
        check_choice("rule for ties", self.ties, CHOICES)
        check_number("c", self.c, at_least=0)
        check_number("delta", self.delta, above=0, below=1)

    def facts(self, setting: Setting) -> dict[str, float]:
        """``i_0``, where the update changes, and the logarithm in the published bonus."""
        facts = {"i_0": float(second_case(setting))}
        if self.bonus == "published":
            facts["iota"] = logarithm(setting, self.delta)
        return facts

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where every episode ends a round, because no ``N <= M T`` reaches ``i_0``."""
        return trigger_cautions(setting)

    @property
    def going_on(self) -> GoingOn:
        """More episodes: iota grows with T."""
        return GoingOn(
            episodes="",
            agents="when a round ends and how steps are weighted is set by the number of agents from the start",
            warm_start="it learns from rounds as they come and keeps no counts of transitions",
        )

    def update_rule(self, setting: Setting) -> UpdateRule:
        """The server's rule with the bonus of the chosen kind."""
        return self._rule(setting, 0.0, 0)

    def _rule(self, setting: Setting, c_bernstein: float, bernstein_after: int) -> UpdateRule:
        S, A, H, M = setting.states, setting.actions, setting.horizon, setting.agents
        published = self.bonus == "published"
        return UpdateRule(
            published,
            self.bernstein,
            float(self.c),
            float(c_bernstein),
            0 if published else int(bernstein_after),
            logarithm(setting, self.delta),
            math.sqrt(float(H) ** 7 * S * A) + math.sqrt(float(M) * S * A * float(H) ** 6),
            second_case(setting),
            self.ties == "random",
            np.uint64(setting.seed),
        )

    def new_server(self, setting: Setting) -> Server:
        """``N = 0``, the initial policy, and ``Q = V = H`` (``practical``: H-h, what can still be earned)."""
        H, S, A = setting.horizon, setting.states, setting.actions
        V = initial_values(setting, remaining=self.bonus == "practical")
        Q = np.repeat(V[:H, :, None], A, axis=2)
        estimates = Estimates(
            N=np.zeros((H, S, A), dtype=np.int64),
            plain=Q.copy(),
            Q=Q,
            V=V,
            policy=first_policy(setting, self.initial_policy),
            N_policy=np.zeros((H, S), dtype=np.int64),
            weights=np.zeros((H, S, A)),
            samples=np.zeros((H, S, A), dtype=np.int64),
            W1=np.zeros((H, S, A)),
            W2=np.zeros((H, S, A)),
            updates=np.zeros(1, dtype=np.int64),
        )
        return Server(estimates, self.update_rule(setting))

    def new_report(self, m: int, H: int, S: int) -> BernsteinReport:
        """n, r, v and mu; those who do not send mu keep it all the same."""
        return report_buffers(BernsteinReport, m, H, S)

    def broadcast(self, server: Server) -> Broadcast:
        """``pi``, ``N_h(s, pi_h(s))`` and ``V``."""
        return Broadcast(server.estimates.policy, server.estimates.N_policy, server.estimates.V)

    def fill_budgets(self, broadcast: Broadcast, M: int, visits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        """An agent requests a synchronisation after ``max(1, floor(N/(M H (H+1))))`` visits."""
        fill_budgets(broadcast.N, M, visits, rule)

    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: BernsteinReport) -> None:
        """The round's n, r, v and mu."""
        fill_means(counts, tables, (values[0], values[0] ** 2), out)

    def report(
        self, agents: RoundAgents[BernsteinReport], query: Message, exchange: int
    ) -> HoeffdingReport | BernsteinReport:
        """What the round's counts came to."""
        return agents.out if self.bernstein else HoeffdingReport(*agents.out[:3])

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """One update of Q, V and the policy where someone has been."""
        n, r, v = report[:3]
        _aggregate(n, r, v, report[3] if self.bernstein else v, server.rule, server.estimates)


@dataclass(frozen=True)
class FedQBernstein(FedQHoeffding):
    """Parameters of FedQ-Bernstein.

    Args:
        bonus: ``practical``, what the experiments of the Fed-UCBVI paper used (with the variance under the root
            everywhere): ``c_bernstein sqrt(Var sum_t (theta_N^t)^2)`` once the variance rests on
            ``bernstein_after`` samples, which are collected in rounds that begin with ``N >= bernstein_after``;
            before, the practical bonus of :class:`FedQHoeffding`. ``published``: ``beta_N / 2`` with ``beta_t =
            c_bernstein min(sqrt(H iota (Var+H) / t) + iota (sqrt(H^7 S A) + sqrt(M S A H^6)) / t,
            sqrt(H^3 iota / t))``.
        c: factor of the practical bonus before there is a variance.
        delta: failure probability, in ``iota`` (``published`` only).
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first`` or a ``random`` one, drawn from the run's seed.
        c_bernstein: factor on the variance; the paper's c' (left open there) for ``published``.
        bernstein_after: see ``bonus``; ``practical`` only.

    >>> FedQBernstein(c=1, c_bernstein=1, bernstein_after=10).bonus
    'practical'
    """

    name: ClassVar[str] = "fedq-bernstein"
    label: ClassVar[str] = "FedQ-Bernstein"
    colour: ClassVar[str] = VERMILLION
    marker: ClassVar[Marker] = "circle"
    bernstein: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow("model-free", False, "M S A H^3 log T", "sqrt(H^4 S A T / M)")

    c_bernstein: float = 2.0
    bernstein_after: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("c_bernstein", self.c_bernstein, at_least=0)
        check_integer("bernstein_after", self.bernstein_after)

    def update_rule(self, setting: Setting) -> UpdateRule:
        """The server's rule with the bonus of the chosen kind."""
        return self._rule(setting, self.c_bernstein, self.bernstein_after)


def logarithm(setting: Setting, delta: float) -> float:
    """The paper's ``iota``, with ``T_0 = H M T`` steps in all and ``K_0 = T`` rounds, one an episode at most.

    ``iota = max(ln(2 S A (T_0 + H M) (1+C) / p), ln(2 K_0 S A H (T_0/H + M) (1+C) / p))``, ``C = 1/(H (H+1))``.
    """
    H, M, T = setting.horizon, setting.agents, setting.episodes
    pairs, steps = setting.states * setting.actions, float(H * M * T)
    common = 2.0 * pairs * (1.0 + 1.0 / (H * (H + 1))) / delta
    return max(math.log(common * (steps + H * M)), math.log(common * T * H * (steps / H + M)))


# --------------------------------------------------------------------------------------------- server side


@compiled
def _bonus(rule: UpdateRule, H: int, h: int, N: int, weights: float, samples: int, W1: float, W2: float) -> float:
    """What is added to the bonus-free Q; see the classes' texts."""
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
    N, plain, Q, V, policy, N_policy, weights, samples, W1, W2, updates = estimates
    m, H, S = n.shape
    p, q = (1, 0.5) if rule.published else (2, 0.0)
    updates[0] += 1
    for h in range(H):
        for s in range(S):
            a = policy[h, s]
            before, value = N[h, s, a], plain[h, s, a]
            total, reward, mean, square = 0, 0.0, 0.0, 0.0
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
            N[h, s, a], plain[h, s, a] = after, value
            if rule.bernstein and before >= rule.bernstein_after:
                samples[h, s, a] += total
                W1[h, s, a] += square
                W2[h, s, a] += mean
            if not (rule.published and rule.bernstein):
                weights[h, s, a] = advance_sum(weights[h, s, a], before, after, H, p, q)
            Q[h, s, a] = value + _bonus(
                rule, H, h, after, weights[h, s, a], samples[h, s, a], W1[h, s, a], W2[h, s, a]
            )
            best = choose_action(Q[h, s], rule.random_ties, rule.seed, updates[0], h * S + s)
            policy[h, s] = best
            N_policy[h, s] = N[h, s, best]
            V[h, s] = min(float(H), Q[h, s, best])
