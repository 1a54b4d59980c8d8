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
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Budgets,
    FleetTables,
    GoingOn,
    Message,
    Setting,
    TableRow,
    TableServer,
)
from fed_ucbvi.algorithms.greedy import CHOICES, choose_action, randomise
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.algorithms.variance import variance_of
from fed_ucbvi.core.colours import GREEN, OLIVE, Marker
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError, check_choice, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

BONUSES = ("simplified", "chernoff-hoeffding", "bernstein-freedman")
THIRD_TERMS = ("paper", "off")
CLIPS = ("horizon", "remaining", "values")
SIMPLIFIED, CHERNOFF_HOEFFDING = 0, 1
ONLY_VALUES = 2

MEMORY_LIMIT = 1 << 30
"""Bytes that the server's table of transition counts ``(H, S, A, S)`` may take: 1 GiB."""


class Broadcast(NamedTuple):
    """Down, before every episode: ``policy[H,S]``."""

    policy: IndexArray


class Trajectories(NamedTuple):
    """Up, after every episode, one row for each agent: ``states[m,H+1]`` and ``rewards[m,H]``."""

    states: Annotated[IndexArray, Meaning.STATE]
    rewards: Annotated[FloatArray, Meaning.REWARD]


class UpdateRule(NamedTuple):
    """How the server plans, as numbers."""

    bonus: int
    scale: float
    log_term: float
    third_term: bool
    monotone: bool
    clip: int
    random_ties: bool
    seed: np.uint64
    plain: bool = False
    """No bonus, nothing remembered of earlier Q, and a pair never visited is worth nothing."""


class Estimates(NamedTuple):
    """What the server knows.

    ``N[H,S,A]``, transitions ``(H,S,A,S)``, sums of rewards ``(H,S,A)``, arrivals ``(H+1,S)``, ``Q[H,S,A]``,
    ``V[H+1,S]``, ``policy[H,S]`` and the number of updates.
    """

    N: CountArray
    transitions: CountArray
    reward_sums: FloatArray
    arrivals: CountArray
    Q: FloatArray
    V: FloatArray
    policy: IndexArray
    updates: CountArray


class Server(TableServer[Estimates, UpdateRule]):
    """The central server, which sees whole trajectories."""


@dataclass
class Agents:
    """A fleet: the tables by which the round's counts are read as trajectories, and the last trajectories."""

    out: Trajectories
    asks: Budgets
    successors: IndexArray
    rewards: FloatArray

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return self.out._asdict()


@dataclass(frozen=True)
class ConcurrentUCBVI(Algorithm[Server, Agents]):
    """Parameters of Concurrent UCBVI: all M agents play one episode, then send it to the server, which plans anew.

    The default bonus is ``simplified``: with the paper's constants ``chernoff-hoeffding`` exceeds H until a pair has
    been visited ``49 L^2`` times (tens of thousands), so that within the horizons people run nothing is learnt; the
    simplified one has the size of Fed-UCBVI's practical bonus, so comparisons are about the algorithms.

    Args:
        bonus: ``simplified``, ``chernoff-hoeffding`` or ``bernstein-freedman``; see the module's text.
        scale: factor on the bonus; in ``simplified`` on its first part only.
        third_term: the third term of ``bernstein-freedman`` as in the ``paper``, or ``off``.
        delta: failure probability, used by the paper's two bonuses.
        monotone: Q never rises, as in the paper.
        clip: Q is at most H (``horizon``, the paper) or H-h (``remaining``); or only V is clipped, at H
            (``values``), and a pair never visited has the uniform kernel, reward 0 and the bonus H-h, as in rlberry.
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first`` or a ``random`` one, drawn from the run's seed.

    >>> ConcurrentUCBVI(bonus="bernstein-freedman", third_term="off").monotone
    True
    """

    name: ClassVar[str] = "concurrent-ucbvi"
    label: ClassVar[str] = "Concurrent UCBVI"
    colour: ClassVar[str] = GREEN
    marker: ClassVar[Marker] = "triangle"
    rules: ClassVar[tuple[str, ...]] = ("every episode",)
    sends_trajectories: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow("model-based", False, "T", "sqrt(H^3 S A T / M)")

    bonus: str = "simplified"
    scale: float = 1.0
    third_term: str = "paper"
    delta: float = 0.05
    monotone: bool = True
    clip: str = "horizon"
    initial_policy: str = "random"
    ties: str = "first"

    def __post_init__(self) -> None:
        check_choice("bonus", self.bonus, BONUSES)
        check_choice("third term", self.third_term, THIRD_TERMS)
        check_choice("clip", self.clip, CLIPS)
        check_choice("initial policy", self.initial_policy, CHOICES)
        check_choice("rule for ties", self.ties, CHOICES)
        check_number("scale", self.scale, at_least=0)
        check_number("delta", self.delta, above=0, below=1)

    @property
    def going_on(self) -> GoingOn:
        """More episodes: the logarithm L grows with T."""
        return GoingOn(
            episodes="",
            agents="its server needs an episode of every agent in every round",
            warm_start="its server takes trajectories, and counts are none",
        )

    def log_term(self, setting: Setting) -> float:
        """``L = ln(5 S A H M T H / delta)``."""
        S, A, H = setting.states, setting.actions, setting.horizon
        return math.log(5.0 * S * A * H * setting.agents * setting.episodes * H / self.delta)

    def facts(self, setting: Setting) -> dict[str, float]:
        """The logarithm L of the paper's bonuses, for the record."""
        return {"L": self.log_term(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where the Chernoff-Hoeffding bonus is at least H whatever happens."""
        needed = (7.0 * self.scale * self.log_term(setting)) ** 2
        most = setting.agents * setting.episodes
        if self.bonus != "chernoff-hoeffding" or most > needed:
            return []
        return [
            f"nothing can be learnt: the bonus is at least H until a pair has been visited (7 scale L)^2 = "
            f"{needed:,.0f} times, but it can be visited M T = {most:,} times at most. Take bonus='simplified' or a "
            "smaller scale."
        ]

    def update_rule(self, setting: Setting) -> UpdateRule:
        """The server's rule in numbers."""
        return UpdateRule(
            BONUSES.index(self.bonus),
            float(self.scale),
            self.log_term(setting),
            self.third_term == "paper",
            bool(self.monotone),
            CLIPS.index(self.clip),
            self.ties == "random",
            np.uint64(setting.seed),
        )

    def new_server(self, setting: Setting) -> Server:
        """No counts, ``Q`` at its cap (infinite where only V is clipped), ``V = H`` and the initial policy."""
        self.check_agents(setting.agents)
        H, S, A = setting.horizon, setting.states, setting.actions
        if H * S * A * S * 8 > MEMORY_LIMIT:
            raise InputError(
                f"{self.name} keeps a table of transition counts (H, S, A, S) = ({H}, {S}, {A}, {S}), which would "
                f"take {H * S * A * S * 8 / 2**30:.1f} GiB; the limit is {MEMORY_LIMIT / 2**30:g} GiB. Take fewer "
                "states or an algorithm that does not collect transitions, such as fed-ucbvi."
            )
        V = np.full((H + 1, S), float(H))
        V[H] = 0.0
        Q = np.empty((H, S, A))
        for h in range(H):
            Q[h] = _cap(h, H, CLIPS.index(self.clip))
        policy = np.zeros((H, S), dtype=np.int32)
        if self.initial_policy == "random":
            randomise(np.uint64(setting.seed), A, policy)
        estimates = Estimates(
            np.zeros((H, S, A), dtype=np.int64),
            np.zeros((H, S, A, S), dtype=np.int64),
            np.zeros((H, S, A)),
            np.zeros((H + 1, S), dtype=np.int64),
            Q,
            V,
            policy,
            np.zeros(1, dtype=np.int64),
        )
        return Server(estimates, self.update_rule(setting))

    def new_agents(self, setting: Setting, tables: FleetTables) -> Agents:
        """Agents keep nothing but their last trajectory."""
        m, H, S = tables.agents, setting.horizon, setting.states
        return Agents(
            Trajectories(np.zeros((m, H + 1), dtype=np.int32), np.zeros((m, H))),
            Budgets(np.ones((m, H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int8)),
            tables.successors,
            tables.rewards,
        )

    def broadcast(self, server: Server) -> Broadcast:
        """The policy of the next episode."""
        return Broadcast(server.estimates.policy)

    def budgets(self, agents: Agents, broadcast: Message) -> Budgets:
        """One visit: every episode ends with a synchronisation."""
        agents.asks.visits.fill(1)
        return agents.asks

    def absorb(self, agents: Agents, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Read the round's counts, which are those of one episode, as trajectories."""
        states, rewards = agents.out
        if not _read_trajectories(policy, transitions, visits, agents.successors, agents.rewards, states, rewards):
            raise InputError(f"{self.name} synchronises after every episode, but was given a longer round.")

    def report(self, agents: Agents, query: Message, exchange: int) -> Trajectories:
        """The trajectories of the round."""
        return agents.out

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Add the trajectories to the counts, in agent order, and plan."""
        states, rewards = report
        _count(states, rewards, server.estimates)
        _plan(server.rule, server.estimates)

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """A plan without bonus from the server's own counts, for which nobody need be asked: ``Q = r + P V``."""
        known = server.estimates
        own = {name: np.zeros_like(getattr(known, name)) for name in ("Q", "V", "policy", "updates")}
        planner = Server(known._replace(**own), server.rule._replace(random_ties=False, plain=True))
        _plan(planner.rule, planner.estimates)
        return planner


@dataclass(frozen=True)
class UCBVI(ConcurrentUCBVI):
    """Parameters of UCBVI for a single agent; as :class:`ConcurrentUCBVI`.

    >>> UCBVI(bonus="chernoff-hoeffding", scale=0.01).name
    'ucbvi'
    """

    name: ClassVar[str] = "ucbvi"
    label: ClassVar[str] = "UCBVI"
    colour: ClassVar[str] = OLIVE
    single_agent: ClassVar[bool] = True
    instead: ClassVar[str] = ConcurrentUCBVI.name
    table: ClassVar[TableRow] = TableRow("model-based", False, "T", "sqrt(H^3 S A T)")


# ---------------------------------------------------------------------------------------------- agent side


@compiled
def _read_trajectories(
    policy: IndexArray,
    transitions: CountArray,
    visits: CountArray,
    successors: IndexArray,
    rewards: FloatArray,
    states: IndexArray,
    paid: FloatArray,
) -> bool:
    """One episode's counts as ``(s_0, ..., s_H)`` and rewards; False unless each step has exactly one transition."""
    m, H, S, K = transitions.shape
    for i in range(m):
        ir = i if rewards.shape[0] > 1 else 0
        total = 0
        for s in range(S):
            total += visits[i, 0, s]
            if visits[i, 0, s] == 1:
                states[i, 0] = s
        if total != 1:
            return False
        for h in range(H):
            hk = h if successors.shape[0] > 1 else 0
            hr = h if rewards.shape[1] > 1 else 0
            s = states[i, h]
            a = policy[h, s]
            paid[i, h] = rewards[ir, hr, s, a]
            taken = -1
            for k in range(K):
                if transitions[i, h, s, k] == 1:
                    taken = k
            if taken < 0:
                return False
            states[i, h + 1] = successors[hk, s, a, taken]
    return True


# --------------------------------------------------------------------------------------------- server side


@compiled
def _count(states: IndexArray, rewards: FloatArray, estimates: Estimates) -> None:
    """Add the trajectories, which were played with the policy in force."""
    N, transitions, reward_sums, arrivals, _, _, policy, _ = estimates
    m, H = rewards.shape
    for i in range(m):
        arrivals[0, states[i, 0]] += 1
        for h in range(H):
            s, y = states[i, h], states[i, h + 1]
            a = policy[h, s]
            N[h, s, a] += 1
            transitions[h, s, a, y] += 1
            reward_sums[h, s, a] += rewards[i, h]
            arrivals[h + 1, y] += 1


@compiled
def _cap(h: int, H: int, clip: int) -> float:
    """The largest Q at step h."""
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
    """Backward induction over all steps."""
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
                    first, second, third = 0.0, 0.0, 0.0
                    for y in range(S):
                        count = transitions[h, s, a, y]
                        if count > 0:
                            w = count * V[h + 1, y]
                            first += w
                            if freedman:
                                second += w * V[h + 1, y]
                                third += count * min(doubt / arrivals[h + 1, y], float(H * H))
                    mean, second = first / n, second / n
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
            best = choose_action(Q[h, s], rule.random_ties, rule.seed, updates[0], h * S + s)
            policy[h, s] = best
            V[h, s] = min(Q[h, s, best], float(H))
