"""Fed-UCBVI (the paper's Section 4 and appendix on pseudocode).

Steps h run from 0 to H-1 here and from 1 to H in the paper. Exchange number e of a synchronisation handles step
``h = H-1-e``: down goes ``V_{h+1}``; up come ``n^i_h``, ``P^i_h V_{h+1}``, ``P^i_h V_{h+1}^2`` and ``Q^i_h``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi._compile import compiled, inlined
from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, Message, Setting, TableRow, TableServer
from fed_ucbvi.algorithms.experience import Counters, Experience, absorb_round, no_experience
from fed_ucbvi.algorithms.greedy import CHOICES, choose_action, randomise
from fed_ucbvi.algorithms.variance import variance_of
from fed_ucbvi.errors import check_choice, check_number
from fed_ucbvi.theory.constants import beta_common, beta_star, threshold_nu

BONUSES = ("practical", "theory", "corrected")
AGGREGATIONS = ("weighted", "uniform")
SYNCHRONISATIONS = ("mixture", "local", "global")
CLIPS = ("horizon", "remaining")


Entry = tuple[int, float, float, float]
"""One agent's ``n``, ``P V``, ``P V^2`` and ``Q`` at one (h,s,a)."""
Moments = tuple[float, float]
"""First and second moment of ``V`` under the uniform kernel."""


class Broadcast(NamedTuple):
    """Down, at the start of a round: ``policy[H,S]`` and ``N[H,S,A]``."""

    policy: IndexArray
    N: CountArray


class Query(NamedTuple):
    """Down, for step h: ``V_{h+1}[S]``."""

    V_next: FloatArray


class Report(NamedTuple):
    """Up, for step h, one row an agent: ``n``, ``P V``, ``P V^2`` and ``Q``, each ``(m, S, A)``."""

    n: CountArray
    PV: FloatArray
    PV2: FloatArray
    Q: FloatArray


class UpdateRule(NamedTuple):
    """How the server turns reports into Q, as numbers.

    The bonus is ``(per_count + per_log * beta^c(N)) / N + sqrt(per_variance * Var / N)`` with
    ``beta^c(N) = log_union + log(2 N + 1)``.
    """

    weighted: bool
    per_count: float
    per_log: float
    log_union: float
    per_variance: float
    clip_remaining: bool
    random_ties: bool
    seed: np.uint64


class Estimates(NamedTuple):
    """What the server knows: ``N[H,S,A]``, ``Q[H,S,A]``, ``V[H+1,S]``, ``policy[H,S]`` and the number of updates."""

    N: CountArray
    Q: FloatArray
    V: FloatArray
    policy: IndexArray
    updates: CountArray


class Server(TableServer[Estimates, UpdateRule]):
    """The central server: it knows sums over agents, never a transition."""


@dataclass
class Agents:
    """A fleet: each agent's own experience, and the buffers its messages are written to."""

    experience: Experience
    out: Report
    asks: Budgets
    nu: float
    federation_size: int

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return {"visits": self.experience.visits, "transitions": self.experience.transitions}


@dataclass(frozen=True)
class FedUCBVI:
    """Parameters of Fed-UCBVI.

    Args:
        bonus: ``practical``: ``H/N + sqrt(Var/N)``, what the paper's experiments used; ``theory``:
            ``eq:bonus_function`` as printed; ``corrected``: the same with ``11 beta^c`` multiplied by H, which the
            proof of optimism needs. All give H where ``N <= 1``.
        bonus_scale: factor on the bonus where ``N >= 2``.
        aggregation: weights of the agents, ``weighted`` by ``n^i/N`` (``eq:aggergating_weights``) or
            ``uniform``, ``1/M``; they average Q, ``P V`` and ``P V^2`` alike.
        synchronisation: ``mixture`` of the local and the global doubling rule, split at nu, or one of them alone.
        nu: the threshold; by default ``def:sdeltat``.
        strict: compare with ``>`` as the main text does, not with ``>=`` as the appendix does.
        clip: Q is at most H (``horizon``, the paper) or H-h+1 (``remaining``).
        delta: failure probability, used by nu and by the theory's bonuses.
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first`` or a ``random`` one, drawn from the run's seed.

    >>> FedUCBVI(bonus="theory").strict
    False
    """

    name: ClassVar[str] = "fed-ucbvi"
    rules: ClassVar[tuple[str, ...]] = ("local", "global")
    single_agent: ClassVar[bool] = False
    together: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow(
        "model-based", True, "S A H log T + M S A H log log T + M S A H log(1 + eps_p T)", "sqrt(H^3 S A T / M)"
    )

    bonus: str = "practical"
    bonus_scale: float = 1.0
    aggregation: str = "weighted"
    synchronisation: str = "mixture"
    nu: float | None = None
    strict: bool = False
    clip: str = "horizon"
    delta: float = 0.05
    initial_policy: str = "random"
    ties: str = "first"

    def __post_init__(self) -> None:
        check_choice("bonus", self.bonus, BONUSES)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        check_choice("synchronisation", self.synchronisation, SYNCHRONISATIONS)
        check_choice("clip", self.clip, CLIPS)
        check_choice("initial policy", self.initial_policy, CHOICES)
        check_choice("rule for ties", self.ties, CHOICES)
        check_number("bonus_scale", self.bonus_scale, at_least=0)
        check_number("delta", self.delta, above=0, below=1)
        if self.nu is not None:
            check_number("nu", self.nu, at_least=0)

    def threshold(self, setting: Setting) -> float:
        """Nu in force."""
        if self.nu is not None:
            return float(self.nu)
        return threshold_nu(
            setting.states,
            setting.actions,
            setting.horizon,
            setting.agents,
            setting.episodes,
            setting.eps_p,
            self.delta,
        )

    def facts(self, setting: Setting) -> dict[str, float]:
        """Nu, for the record."""
        return {"nu": self.threshold(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where nu was given but the global rule can never fire, because ``N <= M T < nu``.

        With nu computed that is the rule rather than the exception, at the paper's own settings too; whoever wants to
        know asks :func:`~fed_ucbvi.theory.planning.plan`.
        """
        nu, most = self.threshold(setting), setting.agents * setting.episodes
        reachable = most > nu if self.strict else most >= nu
        if self.nu is None or self.synchronisation != "mixture" or reachable:
            return []
        return [f"the global rule cannot fire: it needs N >= nu = {nu:,.10g}, and N is at most M T = {most:,}."]

    def exchanges(self, setting: Setting) -> int:
        """H, one for each step."""
        return setting.horizon

    def update_rule(self, setting: Setting) -> UpdateRule:
        """The server's rule with the bonus of the chosen kind, scaled."""
        S, A, H = setting.states, setting.actions, setting.horizon
        c = self.bonus_scale
        if self.bonus == "practical":
            bonus = (c * H, 0.0, 0.0, c * c)
        else:
            star = beta_star(S, A, H, self.delta)
            factor = 11.0 * (H if self.bonus == "corrected" else 1.0)
            bonus = (c * 28.0 * star * H, c * factor, beta_common(S, A, H, self.delta, 0.0), c * c * 8.0 * star)
        return UpdateRule(
            self.aggregation == "weighted",
            *bonus,
            self.clip == "remaining",
            self.ties == "random",
            np.uint64(setting.seed),
        )

    def new_server(self, setting: Setting) -> Server:
        """``N = 0``, ``Q = V = H`` and the initial policy."""
        H, S, A = setting.horizon, setting.states, setting.actions
        V = np.full((H + 1, S), float(H))
        V[H] = 0.0
        policy = np.zeros((H, S), dtype=np.int32)
        if self.initial_policy == "random":
            randomise(np.uint64(setting.seed), A, policy)
        N, Q = np.zeros((H, S, A), dtype=np.int64), np.full((H, S, A), float(H))
        return Server(Estimates(N, Q, V, policy, np.zeros(1, dtype=np.int64)), self.update_rule(setting))

    def new_agents(self, setting: Setting, tables: FleetTables) -> Agents:
        """No visits yet."""
        m, H, S, A = tables.agents, setting.horizon, setting.states, setting.actions
        return Agents(
            experience=no_experience(setting, tables),
            out=Report(np.zeros((m, S, A), dtype=np.int64), *(np.zeros((m, S, A)) for _ in range(3))),
            asks=Budgets(np.zeros((m, H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int8)),
            nu=self.threshold(setting),
            federation_size=setting.agents,
        )

    def broadcast(self, server: Server) -> Broadcast:
        """``pi_(r)`` and ``N_(r)``."""
        return Broadcast(server.estimates.policy, server.estimates.N)

    def budgets(self, agents: Agents, broadcast: Message) -> Budgets:
        """Visits in the round at which an agent asks (``eq:local_doubling_cond``, ``eq:global_est_doubling_cond``).

        Local rule: ``n^i + v >= 2 n^i``, so ``v >= max(1, n^i)``. Global rule: ``N + M v >= 2 N``, so
        ``v >= max(1, ceil(N/M))``.
        """
        policy, N = broadcast
        _budgets(
            agents.experience.visits,
            N,
            policy,
            agents.nu,
            SYNCHRONISATIONS.index(self.synchronisation),
            self.strict,
            agents.federation_size,
            agents.asks.visits,
            agents.asks.rule,
        )
        return agents.asks

    def absorb(self, agents: Agents, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """``n^i_(r+1) = n^i_(r) +`` the round's counts."""
        absorb_round(policy, transitions, visits, agents.experience.transitions, agents.experience.visits)

    def query(self, server: Server, exchange: int) -> Query:
        """``V_{h+1}`` for ``h = H-1-exchange``."""
        return Query(server.V[server.policy.shape[0] - exchange])

    def report(self, agents: Agents, query: Message, exchange: int) -> Report:
        """Agent side of step ``h = H-1-exchange``; pairs never visited report the uniform kernel and reward 0."""
        h = agents.experience.visits.shape[1] - 1 - exchange
        _report(h, agents.experience, query[0], agents.out)
        return agents.out

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side of step ``h = H-1-exchange``."""
        h = server.policy.shape[0] - 1 - exchange
        _aggregate(h, Report(*report), server.rule, server.estimates)

    def synchronise(self, server: Server, agents: Agents) -> None:
        """All H exchanges in one compiled piece."""
        _synchronise(agents.experience, server.rule, server.estimates)


# ---------------------------------------------------------------------------------------------- agent side


@compiled
def _budgets(
    visits: Counters,
    N: CountArray,
    policy: IndexArray,
    nu: float,
    synchronisation: int,
    strict: bool,
    M: int,
    out: CountArray,
    rule: npt.NDArray[np.int8],
) -> None:
    m, H, S, _ = visits.shape
    for h in range(H):
        for s in range(S):
            total = N[h, s, policy[h, s]]
            local = total <= nu if strict else total < nu
            rule[h, s] = 0 if synchronisation == 1 or (synchronisation == 0 and local) else 1
    for i in range(m):
        for h in range(H):
            for s in range(S):
                a = policy[h, s]
                if rule[h, s] == 0:
                    n = visits[i, h, s, a]
                    out[i, h, s] = n + 1 if strict else max(1, n)
                else:
                    total = N[h, s, a]
                    out[i, h, s] = total // M + 1 if strict else max(1, (total + M - 1) // M)


@inlined
def _report_entry(
    h: int,
    i: int,
    s: int,
    a: int,
    visits: Counters,
    transitions: Counters,
    successors: IndexArray,
    rewards: FloatArray,
    V_next: FloatArray,
    moments: Moments,
) -> Entry:
    """``n``, ``P V``, ``P V^2`` and ``Q = r + P V`` of agent i at (h,s,a).

    ``P V = sum_k n(s,a,s'_k) V(s'_k) / n(s,a)``; where ``n = 0`` the uniform kernel and reward 0.
    """
    n = visits[i, h, s, a]
    if n == 0:
        return n, moments[0], moments[1], moments[0]
    hk = h if successors.shape[0] > 1 else 0
    hr = h if rewards.shape[1] > 1 else 0
    ir = i if rewards.shape[0] > 1 else 0
    x, y = 0.0, 0.0
    for k in range(transitions.shape[4]):
        v = V_next[successors[hk, s, a, k]]
        w = transitions[i, h, s, a, k] * v
        x += w
        y += w * v
    return n, x / n, y / n, rewards[ir, hr, s, a] + x / n


@compiled
def _uniform_moments(V: FloatArray) -> Moments:
    """First and second moment of ``V`` under the uniform kernel."""
    mean, second = 0.0, 0.0
    for s in range(V.shape[0]):
        mean += V[s]
        second += V[s] * V[s]
    return mean / V.shape[0], second / V.shape[0]


@compiled
def _report(h: int, experience: Experience, V_next: FloatArray, out: Report) -> None:
    """Write the messages of all agents for step h."""
    n, PV, PV2, Q = out
    m, S, A = n.shape
    visits, transitions, successors, rewards = experience
    moments = _uniform_moments(V_next)
    for i in range(m):
        for s in range(S):
            for a in range(A):
                n[i, s, a], PV[i, s, a], PV2[i, s, a], Q[i, s, a] = _report_entry(
                    h, i, s, a, visits, transitions, successors, rewards, V_next, moments
                )


# --------------------------------------------------------------------------------------------- server side


@compiled
def _bonus(N: float, variance: float, horizon: int, rule: UpdateRule) -> float:
    """``b(s,a)`` for a pair visited N times in all, whose next value has the given empirical variance."""
    if N <= 1.0:
        return float(horizon)
    per_count = rule.per_count
    if rule.per_log > 0.0:
        per_count += rule.per_log * (rule.log_union + math.log(2.0 * N + 1.0))
    return per_count / N + math.sqrt(rule.per_variance * variance / N)


@inlined
def _add_entry(s: int, a: int, entry: Entry, weighted: bool, N: CountArray, sums: FloatArray) -> None:
    """Add one agent's report for (s,a) to the sums over agents: ``N[S,A]`` and those of ``w Q, w P V, w P V^2``."""
    n, PV, PV2, Q = entry
    weight = float(n) if weighted else 1.0
    N[s, a] += n
    sums[s, a, 0] += weight * Q
    sums[s, a, 1] += weight * PV
    sums[s, a, 2] += weight * PV2


@compiled
def _finish_state(h: int, s: int, m: int, sums: FloatArray, rule: UpdateRule, estimates: Estimates) -> None:
    """``Q``, ``V`` and the policy at (h,s) from the sums over agents.

    ``Q = min(sum_i w^i Q^i + b, cap)`` with ``w^i = n^i/N`` or ``1/M``, ``Q = cap`` where ``N = 0``
    (``eq:update_rule``); ``Var = sum_i w^i P^i V^2 - (sum_i w^i P^i V)^2``.
    """
    N, Q, V, policy, updates = estimates
    H, S = policy.shape
    cap = float(H - h) if rule.clip_remaining else float(H)
    for a in range(Q.shape[2]):
        total = float(N[h, s, a])
        if total == 0.0:
            Q[h, s, a] = cap
            continue
        weight = total if rule.weighted else float(m)
        mean, second = sums[s, a, 1] / weight, sums[s, a, 2] / weight
        bonus = _bonus(total, variance_of(mean, second), H, rule)
        Q[h, s, a] = min(sums[s, a, 0] / weight + bonus, cap)
    best = choose_action(Q[h, s], rule.random_ties, rule.seed, updates[0], h * S + s)
    policy[h, s] = best
    V[h, s] = Q[h, s, best]


@compiled
def _begin_step(h: int, estimates: Estimates) -> None:
    """Forget the old sums of step h; the first step of a synchronisation begins a new update."""
    estimates.N[h] = 0
    if h == estimates.policy.shape[0] - 1:
        estimates.updates[0] += 1


@compiled
def _aggregate(h: int, report: Report, rule: UpdateRule, estimates: Estimates) -> None:
    """Server side of step h, from all agents' messages in agent order."""
    n, PV, PV2, Q = report
    m, S, A = n.shape
    sums = np.zeros((S, A, 3))
    _begin_step(h, estimates)
    N = estimates.N[h]
    for i in range(m):
        for s in range(S):
            for a in range(A):
                entry = (n[i, s, a], PV[i, s, a], PV2[i, s, a], Q[i, s, a])
                _add_entry(s, a, entry, rule.weighted, N, sums)
    for s in range(S):
        _finish_state(h, s, m, sums, rule, estimates)


# -------------------------------------------------------------------------- both sides, without the messages


@compiled
def _exchange(h: int, experience: Experience, rule: UpdateRule, estimates: Estimates) -> None:
    """Reports and aggregation of step h, entry by entry.

    Every sum runs over the agents in order, so the result is that of the messages, to the last bit. With weighted
    aggregation an agent that never visited a pair adds nothing and is skipped.
    """
    visits, transitions, successors, rewards = experience
    m, _, S, A, _ = transitions.shape
    V_next, N = estimates.V[h + 1], estimates.N[h]
    weighted = rule.weighted
    moments = _uniform_moments(V_next)
    sums = np.zeros((S, A, 3))
    for i in range(m):
        for s in range(S):
            for a in range(A):
                if weighted and visits[i, h, s, a] == 0:
                    continue
                entry = _report_entry(h, i, s, a, visits, transitions, successors, rewards, V_next, moments)
                _add_entry(s, a, entry, weighted, N, sums)
    for s in range(S):
        _finish_state(h, s, m, sums, rule, estimates)


@compiled
def _synchronise(experience: Experience, rule: UpdateRule, estimates: Estimates) -> None:
    """All exchanges of a synchronisation."""
    for h in range(estimates.policy.shape[0] - 1, -1, -1):
        _begin_step(h, estimates)
        _exchange(h, experience, rule, estimates)
