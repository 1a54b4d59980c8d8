"""UCBVI (Azar, Osband and Munos, ICML 2017), by one agent and by M agents that pool their trajectories.

Steps h run from 0 to H-1. This is the stage-dependent form, whose regret Table 1 gives: counts ``N_h(s,a)`` and an
empirical kernel ``P_h`` for every step, rewards as observed. (Azar et al. pool the counts of all steps, for kernels
that do not depend on h, and know the rewards.) After every episode the server adds the M trajectories and plans::

    Q_h(s,a) = min(previous Q_h(s,a), H, r + sum_y P_h(y|s,a) V_{h+1}(y) + b_h(s,a)),   H where N_h(s,a) = 0
    V_h(s) = max_a Q_h(s,a)

with the bonus, for ``N = N_h(s,a)`` and ``L = ln(5 S A H M T H / delta)``,

* ``chernoff-hoeffding``: ``7 H L / sqrt(N)``;
* ``bernstein-freedman``: ``sqrt(8 L Var_P(V_{h+1}) / N) + 14 H L / (3 N)
  + sqrt(8/N sum_y P(y) min(100^2 H^3 S^2 A L^2 / N'_{h+1}(y), H^2))``, where ``N'_{h+1}(y)`` counts arrivals in y;
* ``simplified``: ``min(scale sqrt(1/N) + (H-h)/N, H-h)``, without logarithms, as the library rlberry has it.

The first two are those of the paper, known here from a formalisation that cites it line by line; L for stages and M
agents is derived, not printed. Concurrent UCBVI is named, not written down, by Fed-UCBVI's Table 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from fed_ucbvi.algorithms.base import Message, RunExtension, Setting, TableServer, check_table_size, checked_by_tests
from fed_ucbvi.algorithms.fields import Number, PairCounts, PairTable, Policy, Shape, Values, new_tables
from fed_ucbvi.algorithms.kernels import InitialPolicy, TieBreaking, Ties, act_greedily, first_estimates, variance_of
from fed_ucbvi.algorithms.one_report import EveryEpisode
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.parameters import Help, NonNegative, Probability
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

Bonus = Literal["simplified", "chernoff-hoeffding", "bernstein-freedman"]
ThirdTerm = Literal["paper", "off"]
Clip = Literal["horizon", "remaining", "values"]
BONUSES = get_args(Bonus)
CLIPS = get_args(Clip)
SIMPLIFIED = 0
CHERNOFF_HOEFFDING = 1
ONLY_VALUES = 2


class UpdateRule(NamedTuple):
    """Constants of planning."""

    bonus: int
    scale: float
    log_term: float
    third_term: bool
    monotone: bool
    clip: int
    ties: Ties
    plain: bool = False
    """No bonus, nothing remembered of earlier Q, and a pair never visited is worth nothing."""


class Estimates(NamedTuple):
    """Tables of the server."""

    N: PairCounts
    transitions: Annotated[CountArray, Shape("H S A S")]
    reward_sums: PairTable
    arrivals: Annotated[CountArray, Shape("H+1 S")]
    Q: PairTable
    V: Values
    policy: Policy
    updates: Number


Server = TableServer[Estimates, UpdateRule]


@checked_by_tests
@dataclass(frozen=True)
class ConcurrentUCBVI(EveryEpisode[Estimates, UpdateRule]):
    """Parameters of Concurrent UCBVI: all M agents play one episode, then send it to the server, which plans anew.

    The default bonus is ``simplified``: with the paper's constants ``chernoff-hoeffding`` exceeds H until a pair has
    been visited ``49 L^2`` times (tens of thousands), so that within the horizons people run nothing is learnt; the
    simplified one has the size of Fed-UCBVI's practical bonus, so comparisons are about the algorithms.
    """

    name: ClassVar[str] = "concurrent-ucbvi"
    label: ClassVar[str] = "Concurrent UCBVI"
    estimates_type: ClassVar[type[Any]] = Estimates
    extension = RunExtension(
        episodes=None,
        warm_start="its server takes trajectories, and counts are none",
    )

    bonus: Annotated[Bonus, Help("simplified, chernoff-hoeffding or bernstein-freedman; see the module's text.")] = (
        "simplified"
    )
    scale: Annotated[NonNegative, Help("factor on the bonus; in simplified on its first part only.")] = 1.0
    third_term: Annotated[ThirdTerm, Help("the third term of bernstein-freedman as in the paper, or off.")] = "paper"
    delta: Annotated[Probability, Help("failure probability, used by the paper's two bonuses.")] = 0.05
    monotone: Annotated[bool, Help("Q never rises, as in the paper.")] = True
    clip: Annotated[
        Clip,
        Help(
            "Q is at most H (horizon, the paper) or H-h (remaining); or only V is clipped, at H "
            "(values), and a pair never visited has the uniform kernel, reward 0 and the bonus H-h, "
            "as in rlberry."
        ),
    ] = "horizon"
    initial_policy: InitialPolicy = "random"
    ties: TieBreaking = "first"

    def log_term(self, setting: Setting) -> float:
        """``L = ln(5 S A H M T H / delta)``."""
        S = setting.states
        A = setting.actions
        H = setting.horizon
        return math.log(5.0 * S * A * H * setting.agents * setting.episodes * H / self.delta)

    def facts(self, setting: Setting) -> dict[str, float]:
        return {"L": self.log_term(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where the Chernoff-Hoeffding bonus is at least H whatever happens."""
        needed = (7.0 * self.scale * self.log_term(setting)) ** 2
        most = setting.agents * setting.episodes
        if self.bonus != "chernoff-hoeffding" or most > needed:
            return []
        return [
            f"nothing can be learnt: the bonus is at least H until a pair has been visited (7 scale L)^2 = "
            f"{needed:,.0f} times, but it can be visited M T = {most:,} times at most. Use bonus='simplified' or a "
            "smaller scale."
        ]

    def update_rule(self, setting: Setting) -> UpdateRule:
        bonus = BONUSES.index(self.bonus)
        clip = CLIPS.index(self.clip)
        third_term = self.third_term == "paper"
        log_term = self.log_term(setting)
        ties = Ties.of(setting, self.ties)
        return UpdateRule(bonus, float(self.scale), log_term, third_term, bool(self.monotone), clip, ties)

    def new_estimates(self, setting: Setting) -> Estimates:
        """No counts, ``Q`` at its cap (infinite where only V is clipped), ``V = H`` and the initial policy."""
        check_table_size(self.name, setting)
        known = first_estimates(Estimates, setting, self.initial_policy)
        for h in range(setting.horizon):
            known.Q[h] = _cap(h, setting.horizon, CLIPS.index(self.clip))
        return known

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        states, rewards = report
        _count(states, rewards, server.estimates)
        _plan(server.rule, server.estimates)

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """A plan without bonus from the server's own counts, for which nobody need be asked: ``Q = r + P V``."""
        known = server.estimates
        counted = {name: getattr(known, name) for name in ("N", "transitions", "reward_sums", "arrivals")}
        plan = new_tables(Estimates, setting, **counted)
        ties = server.rule.ties._replace(random=False)
        planner = TableServer(plan, server.rule._replace(ties=ties, plain=True))
        _plan(planner.rule, planner.estimates)
        return planner


@checked_by_tests
@dataclass(frozen=True)
class UCBVI(ConcurrentUCBVI):
    """Parameters of UCBVI for a single agent; as :class:`ConcurrentUCBVI`."""

    name: ClassVar[str] = "ucbvi"
    label: ClassVar[str] = "UCBVI"
    single_agent: ClassVar[bool] = True


@compiled
def _count(states: IndexArray, rewards: FloatArray, estimates: Estimates) -> None:
    """Add the trajectories, which were played with the policy in force."""
    N, transitions, reward_sums, arrivals, _, _, policy, _ = estimates
    m, H = rewards.shape
    for i in range(m):
        arrivals[0, states[i, 0]] += 1
        for h in range(H):
            s = states[i, h]
            y = states[i, h + 1]
            a = policy[h, s]
            N[h, s, a] += 1
            transitions[h, s, a, y] += 1
            reward_sums[h, s, a] += rewards[i, h]
            arrivals[h + 1, y] += 1


@compiled
def _cap(h: int, H: int, clip: int) -> float:
    if clip == 0:
        return float(H)
    return float(H - h) if clip == 1 else math.inf


@compiled
def _bonus(h: int, H: int, N: int, variance: float, third: float, rule: UpdateRule) -> float:
    """``b_h(s,a)``; ``third`` is ``sum_y P(y) min(..., H^2)``."""
    if rule.bonus == SIMPLIFIED:
        remaining = float(H - h)
        return min(rule.scale / math.sqrt(N) + remaining / N, remaining)
    if rule.bonus == CHERNOFF_HOEFFDING:
        return rule.scale * 7.0 * H * rule.log_term / math.sqrt(N)
    bernstein = math.sqrt(8.0 * rule.log_term * variance / N) + 14.0 * H * rule.log_term / (3.0 * N)
    return rule.scale * (bernstein + math.sqrt(8.0 * third / N))


@compiled
def _plan(rule: UpdateRule, estimates: Estimates) -> None:
    N, transitions, reward_sums, arrivals, Q, V, policy, updates = estimates
    H, S, A = N.shape
    freedman = rule.bonus > CHERNOFF_HOEFFDING
    doubt = 1e4 * H**3 * S**2 * A * rule.log_term**2
    updates[0] += 1
    for h in range(H - 1, -1, -1):
        cap = _cap(h, H, rule.clip)
        uniform = V[h + 1].sum() / S
        for s in range(S):
            for a in range(A):
                n = N[h, s, a]
                if n > 0:
                    first = 0.0
                    second = 0.0
                    third = 0.0
                    for y in range(S):
                        count = transitions[h, s, a, y]
                        if count > 0:
                            w = count * V[h + 1, y]
                            first += w
                            if freedman:
                                second += w * V[h + 1, y]
                                third += count * min(doubt / arrivals[h + 1, y], float(H * H))
                    mean = first / n
                    second = second / n
                    bonus = 0.0
                    if not rule.plain:
                        third = third / n if rule.third_term else 0.0
                        bonus = _bonus(h, H, n, variance_of(mean, second), third, rule)
                    value = min(reward_sums[h, s, a] / n + mean + bonus, cap)
                elif rule.plain:
                    value = 0.0
                else:
                    value = cap if rule.clip != ONLY_VALUES else uniform + (H - h)
                Q[h, s, a] = min(value, Q[h, s, a]) if rule.monotone and not rule.plain else value
            act_greedily(h, s, Q, policy, V, rule.ties, updates[0], float(H))
