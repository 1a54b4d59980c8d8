"""Byzan-UCBVI (Chen et al., AISTATS 2023): optimistic value iteration on robust means of the agents' reports.

Steps h run from 0 to H-1 here and from 1 to H in the paper. Exchange number e of a synchronisation handles step
``h = H-1-e``: down goes ``V_{h+1}``; up come, for every (s,a), the mean ``x`` of ``r + V_{h+1}(s')`` over the agent's
own data and their number ``n``. The server takes, with ``sigma = H-h`` the remaining steps::

    (B, G) = PERT-COW(x, n, sigma, alpha, epsilon, delta'),    G = min(sigma, G + epsilon)
    Q = max(0, min(B + G, sigma)),  V = max_a Q,  policy = argmax_a Q
    delta' = delta / (S A H T M)^(3 S),    epsilon = 1 / (S A H T M)

An agent requests a synchronisation once some count has doubled since the last one (from 0: at the first visit; the
paper leaves this case open). The server grants about ``S A H log2 T`` requests of each agent and ignores the others,
so that liars cannot cause a synchronisation after every episode for long.

**The robust mean.** Agent j reports a mean ``x_j`` of ``n_j`` independent numbers, sub-Gaussian with sigma. Up to
``alpha m`` of the m agents may report anything. **COW** (clique-overweight) believes a largest set of agents whose
confidence intervals have a point in common, and lets no agent weigh more than ``n_cut``, the ``(2 f + 1)``-th largest
count, where ``f = ceil(alpha m)``::

    I_j    = [x_j - w_j, x_j + w_j],  w_j = sigma sqrt(2 ln(2m/delta) / n_j),  all of R where n_j = 0
    C*     = a largest C with a point common to all I_j, j in C
    mean   = sum over C* of min(n_j, n_cut) x_j / sum over C* of min(n_j, n_cut)
    error  = 2 sigma sqrt(2 ln(2/delta)) / sqrt(W) + 8 alpha m sqrt(n_cut) sigma sqrt(2 ln(2m/delta)) / W,
             W = sum over all agents of min(n_j, n_cut)

**PERT-COW** is for means that are off by up to epsilon: ``w_j`` grows by epsilon and the error by ``5 epsilon``; it
prints ``w_j`` with ``min(n_j, n_cut)`` in place of ``n_j``, and gives ``(0, infinity)`` where ``n_cut = 0``.

The logarithms are arguments of their own, ``log_each = ln(2m/delta)`` and ``log_all = ln(2/delta)``: Byzan-UCBVI's
delta is far too small for a float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import (
    Budgets,
    FleetTables,
    Message,
    MessageSizes,
    RunExtension,
    Setting,
    TableServer,
    checked_by_tests,
)
from fed_ucbvi.algorithms.counters import Counters, counter_type
from fed_ucbvi.algorithms.fields import (
    Meaning,
    Number,
    PairTable,
    Policy,
    Shape,
    Values,
    declared_array,
    declared_bytes,
    new_tables,
)
from fed_ucbvi.algorithms.kernels import InitialPolicy, TieBreaking, Ties, act_greedily, first_estimates
from fed_ucbvi.algorithms.step_by_step import StepByStep
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.indexing import UNREACHABLE, reward_at, shared
from fed_ucbvi.core.parameters import Bounds, Help, NonNegative, Probability
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray

FlagArray = npt.NDArray[np.int8]

ABSURD = 1e100
"""A reported mean beyond this, or one that is not a number, is taken for no report."""
SLACK = 1e-9
"""``alpha m`` this close above a whole number is that number: 0.1 x 30 is 3, not 4."""

FEW = 40
"""Up to this many numbers are sorted by insertion."""


class ByzanReport(NamedTuple):
    """Up, for step h, one row for each agent: ``x`` and ``n``.

    ``asked`` is ``(m, 1)`` in the first exchange and ``(m, 0)`` after: did this agent request the synchronisation?
    The server has that from the request itself, which an agent that lies cannot take back.
    """

    x: Annotated[FloatArray, Meaning.RETURN, Shape("m S A")]
    n: Annotated[CountArray, Meaning.VISITS_SO_FAR, Shape("m S A")]
    asked: Annotated[FlagArray, Meaning.FLAG, Shape("m 1")]


class UpdateRule(NamedTuple):
    """Constants of the update of Q from reports; the logarithms are those of the robust mean."""

    alpha: float
    epsilon: float
    log_each: float
    log_all: float
    cap: float
    ties: Ties
    plain: bool = False
    """``Q = max(0, min(B, sigma))``, the robust mean without its error; 0 where there is none."""


class Estimates(NamedTuple):
    """Tables of the server; ``served`` counts the granted requests of each agent."""

    Q: PairTable
    V: Values
    policy: Policy
    served: Annotated[CountArray, Shape("M")]
    updates: Number


Server = TableServer[Estimates, UpdateRule]


class Experience(NamedTuple):
    """Counts of each agent since the beginning, and the mean rewards that it has observed.

    ``visits`` and ``rewards`` are ``(m, H, S, A)``, ``transitions (m, H, S, A, K)`` by slot of ``successors``. Counts
    are laid out step by step in memory, as an exchange reads them.
    """

    visits: Counters
    transitions: Counters
    successors: IndexArray
    rewards: FloatArray

    @classmethod
    def none(cls, setting: Setting, tables: FleetTables) -> Experience:
        """No visits yet."""
        H = setting.horizon
        S = setting.states
        A = setting.actions
        K = tables.successors.shape[3]
        m = tables.agents
        kind = counter_type(setting)
        return cls(
            visits=np.zeros((H, m, S, A), dtype=kind).swapaxes(0, 1),
            transitions=np.zeros((H, m, S, A, K), dtype=kind).swapaxes(0, 1),
            successors=tables.successors,
            rewards=np.zeros((H, m, S, A)).swapaxes(0, 1),
        )


@dataclass
class Agents:
    """A fleet: each agent's own experience, whether it made the last request, and the buffers of its messages."""

    experience: Experience
    round_rewards: FloatArray
    out: ByzanReport
    requests: Budgets
    cap: float
    first_agent: int

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        kept = self.experience
        return {
            "visits": kept.visits,
            "transitions": kept.transitions,
            "rewards": kept.rewards,
            "asked": self.out.asked,
        }


@checked_by_tests
@dataclass(frozen=True)
class ByzanUCBVI(StepByStep[Server]):
    """Parameters of Byzan-UCBVI."""

    name: ClassVar[str] = "byzan-ucbvi"
    label: ClassVar[str] = "Byzan-UCBVI"
    rules: ClassVar[tuple[str, ...]] = ("local",)
    report_type: ClassVar[type[Any]] = ByzanReport

    extension = RunExtension(
        episodes=None,  # logarithms and the limit of requests grow with T
        warm_start="robust means need what each agent has counted by itself",
    )

    alpha: Annotated[
        float,
        Bounds(at_least=0, below=0.5),
        Help("the fraction of liars to withstand, at least 0 and below 1/2; the theorem covers (1 - 1/M)/3."),
    ] = 0.1
    delta: Annotated[Probability, Help("failure probability.")] = 0.05
    log_term: Annotated[
        NonNegative | None,
        Help(
            "used in place of both logarithms of the robust mean, ln(2 M/delta') (in the agents' "
            "intervals and in the part of the error that liars cause) and ln(2/delta') (in the part "
            "that chance causes). By default the theory's, which hold 3 S ln(S A H T M): some "
            "hundreds, where 0.01 to 0.05 works in practice (sigma = H-h is itself far above the real "
            "deviation)."
        ),
    ] = None
    initial_policy: InitialPolicy = "random"
    ties: TieBreaking = "first"

    def update_rule(self, setting: Setting) -> UpdateRule:
        S = setting.states
        A = setting.actions
        H = setting.horizon
        M = setting.agents
        T = setting.episodes
        size = float(S * A * H) * T * M
        log_delta = math.log(self.delta) - 3.0 * S * math.log(size)
        logs = math.log(2.0 * M) - log_delta, math.log(2.0) - log_delta
        if self.log_term is not None:
            logs = float(self.log_term), float(self.log_term)
        return UpdateRule(float(self.alpha), 1.0 / size, *logs, served_at_most(setting), Ties.of(setting, self.ties))

    def facts(self, setting: Setting) -> dict[str, float]:
        """The logarithms in force, epsilon, and after how many served requests an agent is ignored."""
        rule = self.update_rule(setting)
        served = {"served_at_most": math.floor(rule.cap) + 1}
        return {"log_each": rule.log_each, "log_all": rule.log_all, "epsilon": rule.epsilon, **served}

    def cautions(self, setting: Setting) -> list[str]:
        """Warnings where the server cannot learn anything, or not by the end, or where no theorem covers alpha."""
        M = setting.agents
        T = setting.episodes
        f = liars_at_most(self.alpha, M)
        if 2 * f >= M:
            return [
                f"alpha = {self.alpha:g} means up to {f} liars among {M} agents, and no mean withstands half of "
                "them: the server will never learn. Use a smaller alpha or more agents."
            ]
        found = []
        rule = self.update_rule(setting)
        _, error = pert_cow(np.zeros(M), np.full(M, float(T)), 1.0, rule, np.empty((5, M)))
        if error >= 1.0:
            found.append(
                f"nothing can be learnt: even after T = {T:,} visits by every agent the robust mean's error is "
                f"{error:.3g} times the remaining steps. Pass log_term (now {rule.log_each:.3g}) or more episodes."
            )
        if self.alpha > (1.0 - 1.0 / M) / 3.0:
            found.append(f"no theorem covers alpha = {self.alpha:g}; it requires at most (1 - 1/M)/3.")
        return found

    def new_server(self, setting: Setting) -> Server:
        """``Q = V = H - h`` (what a synchronisation without data gives) and the initial policy."""
        known = first_estimates(Estimates, setting, self.initial_policy, remaining=True)
        return TableServer(known, self.update_rule(setting))

    def new_agents(self, setting: Setting, tables: FleetTables) -> Agents:
        m = tables.agents
        H = setting.horizon
        S = setting.states
        budgets = Budgets(np.ones((m, H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int8))
        out = new_tables(ByzanReport, setting, m)
        return Agents(
            experience=Experience.none(setting, tables),
            round_rewards=tables.rewards,
            out=out,
            requests=budgets,
            cap=served_at_most(setting),
            first_agent=tables.first_agent,
        )

    def broadcast(self, server: Server) -> Message:
        """The policy, and how many requests of each agent were granted."""
        return server.policy, server.estimates.served

    def budgets(self, agents: Agents, broadcast: Message) -> Budgets:
        """``max(1, n)`` with n the visits at the last synchronisation; unreachable for an agent that is ignored."""
        (policy, served), limits = broadcast, agents.requests.limits
        ignored = served[agents.first_agent :][: len(limits)] > agents.cap
        _fill_budgets(agents.experience.visits, policy, ignored, limits)
        return agents.requests

    def absorb(self, agents: Agents, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Add the round's counts; who made a request is read off the budgets in force during the round."""
        _absorb(policy, transitions, visits, agents.round_rewards, agents.experience)
        _note_requests(visits, agents.requests.limits, agents.out.asked)

    def report(self, agents: Agents, query: Message, exchange: int) -> ByzanReport:
        """Agent side of step ``h = H-1-exchange``; ``x = 0`` where ``n = 0``."""
        x, n, asked = agents.out
        _report(agents.experience.visits.shape[1] - 1 - exchange, agents.experience, query[0], x, n)
        return ByzanReport(x, n, asked if exchange == 0 else asked[:, :0])

    def message_sizes(self, setting: Setting) -> MessageSizes:
        """Down a policy and the granted requests, and ``V_{h+1}`` in each exchange; up x and n, and once a flag."""
        policy = declared_array(Estimates, "policy", setting).bytes
        served = declared_array(Estimates, "served", setting).bytes
        flag = declared_array(ByzanReport, "asked", setting, agents=1).bytes
        return MessageSizes(
            broadcast=policy + served,
            exchanges=setting.horizon,
            query=8 * setting.states,
            reports=setting.horizon * (declared_bytes(ByzanReport, setting) - flag) + flag,
        )

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        x, n, asked = report
        if exchange == 0:
            _begin(asked, server.rule.cap, server.estimates)
        _aggregate(server.policy.shape[0] - 1 - exchange, x, n, server.rule, server.estimates)

    def synchronise(self, server: Server, agents: Agents, setting: Setting) -> None:
        _synchronise(agents.experience, agents.out, server.rule, server.estimates)

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """A planner on robust means alone, without their errors, with its own exchanges."""
        planner = self.new_server(setting)
        planner.estimates.policy.fill(0)
        ties = planner.rule.ties._replace(random=False)
        return TableServer(planner.estimates, planner.rule._replace(ties=ties, plain=True))


def served_at_most(setting: Setting) -> float:
    """``S A H log2 T``: an agent whose requests were served more often than that is ignored."""
    return setting.states * setting.actions * setting.horizon * math.log2(setting.episodes)


# ---------------------------------------------------------------------------------------------- agent side


@compiled
def _fill_budgets(visits: Counters, policy: IndexArray, ignored: MaskArray, limits: CountArray) -> None:
    m, H, S = limits.shape
    for i in range(m):
        for h in range(H):
            for s in range(S):
                limits[i, h, s] = UNREACHABLE if ignored[i] else max(1, visits[i, h, s, policy[h, s]])


@compiled
def _note_requests(visits: CountArray, limits: CountArray, asked: FlagArray) -> None:
    for i in range(len(visits)):
        asked[i, 0] = ((visits[i] > 0) & (visits[i] >= limits[i])).any()


@compiled
def _absorb(
    policy: IndexArray,
    transitions: CountArray,
    visits: CountArray,
    round_rewards: FloatArray,
    experience: Experience,
) -> None:
    """Add a round to the counts of each agent, and its mean rewards to the agent's own means."""
    m, H, S, K = transitions.shape
    for h in range(H):  # as memory is laid out
        for i in range(m):
            for s in range(S):
                n = visits[i, h, s]
                if n == 0:
                    continue
                a = policy[h, s]
                experience.visits[i, h, s, a] += n
                for k in range(K):
                    experience.transitions[i, h, s, a, k] += transitions[i, h, s, k]
                weight = n / experience.visits[i, h, s, a]
                mean = experience.rewards[i, h, s, a]
                new = reward_at(i, h, s, a, round_rewards)
                experience.rewards[i, h, s, a] = mean + weight * (new - mean)


@compiled
def _report(h: int, experience: Experience, V_next: FloatArray, x: FloatArray, n: CountArray) -> None:
    """``x = r + sum_k n(s,a,s'_k) V(s'_k) / n(s,a)`` and ``n`` of all agents for step h."""
    visits, transitions, successors, rewards = experience
    m, S, A = n.shape
    hk = shared(h, successors.shape[0])
    for i in range(m):
        for s in range(S):
            for a in range(A):
                count = visits[i, h, s, a]
                n[i, s, a] = count
                x[i, s, a] = 0.0
                if count > 0:
                    total = 0.0
                    for k in range(transitions.shape[4]):
                        total += transitions[i, h, s, a, k] * V_next[successors[hk, s, a, k]]
                    x[i, s, a] = rewards[i, h, s, a] + total / count


# --------------------------------------------------------------------------------------------- server side


@compiled
def _begin(asked: FlagArray, cap: float, estimates: Estimates) -> None:
    """A synchronisation begins: count it for the agents that requested it."""
    estimates.updates[0] += 1
    for i in range(len(asked)):
        if asked[i, 0] != 0 and estimates.served[i] <= cap:
            estimates.served[i] += 1


@compiled
def _aggregate(h: int, x: FloatArray, n: CountArray, rule: UpdateRule, estimates: Estimates) -> None:
    """``Q``, ``V`` and the policy of step h; an absurd report counts as none."""
    Q, V, policy, _, updates = estimates
    m, S, A = n.shape
    work = np.empty((5, m))
    means = np.empty(m)
    counts = np.empty(m)
    sigma = float(policy.shape[0] - h)
    for s in range(S):
        for a in range(A):
            for i in range(m):
                usable = n[i, s, a] > 0 and abs(x[i, s, a]) <= ABSURD
                means[i], counts[i] = (x[i, s, a], float(n[i, s, a])) if usable else (0.0, 0.0)
            mean, error = pert_cow(means, counts, sigma, rule, work)
            error = 0.0 if rule.plain else min(sigma, error + rule.epsilon)
            Q[h, s, a] = max(0.0, min(mean + error, sigma))
        act_greedily(h, s, Q, policy, V, rule.ties, updates[0], math.inf)


@compiled
def _synchronise(experience: Experience, out: ByzanReport, rule: UpdateRule, estimates: Estimates) -> None:
    x, n, asked = out
    _begin(asked, rule.cap, estimates)
    for h in range(estimates.policy.shape[0] - 1, -1, -1):
        _report(h, experience, estimates.V[h + 1], x, n)
        _aggregate(h, x, n, rule, estimates)


# ------------------------------------------------------------------------------------------- robust means


@compiled
def liars_at_most(alpha: float, agents: int) -> int:
    """``f = ceil(alpha m)``.

    >>> liars_at_most(0.1, 30), liars_at_most(0.3, 10), liars_at_most(0.1, 31), liars_at_most(0.0, 5)
    (3, 3, 4, 0)
    """
    return math.ceil(alpha * agents - SLACK)


@compiled
def _sort(array: FloatArray) -> None:
    """In place; few numbers by insertion, which is several times faster than the general sort."""
    if len(array) > FEW:
        array.sort()
        return
    for j in range(1, len(array)):
        x = array[j]
        k = j
        while k > 0 and array[k - 1] > x:
            array[k] = array[k - 1]
            k -= 1
        array[k] = x


@compiled
def trim(counts: FloatArray, liars: int, trimmed: FloatArray, scratch: FloatArray) -> float:
    """``n_cut``, the ``(2 f + 1)``-th largest count (0 if there are fewer); writes ``trimmed = min(n_j, n_cut)``."""
    m = len(counts)
    n_cut = 0.0
    if 2 * liars < m:
        scratch[:] = counts
        _sort(scratch)
        n_cut = max(0.0, scratch[m - 1 - 2 * liars])
    for j in range(m):
        trimmed[j] = max(0.0, min(counts[j], n_cut))
    return n_cut


@compiled
def largest_clique(
    low: FloatArray, high: FloatArray, sorted_low: FloatArray, sorted_high: FloatArray
) -> tuple[float, int]:
    """A point common to a largest set of closed intervals that have one, and the size of the set.

    A sweep over the sorted ends, opening before closing where they are equal, in ``O(m log m)``; among points in
    equally many intervals the lowest is taken. Where all have a point in common no sorting is needed.
    """
    m = len(low)
    last_open = -math.inf
    first_close = math.inf
    for j in range(m):
        last_open = max(last_open, low[j])
        first_close = min(first_close, high[j])
    if last_open <= first_close:
        return last_open, m
    sorted_low[:] = low
    sorted_high[:] = high
    _sort(sorted_low)
    _sort(sorted_high)
    point = last_open
    size = 0
    closed = 0
    for opened in range(m):
        while sorted_high[closed] < sorted_low[opened]:
            closed += 1
        if opened + 1 - closed > size:
            point = sorted_low[opened]
            size = opened + 1 - closed
    return point, size


@compiled
def pert_cow(
    means: FloatArray, counts: FloatArray, sigma: float, rule: UpdateRule, work: FloatArray
) -> tuple[float, float]:
    """``(mean, error)`` by PERT-COW; see the module's text. ``work`` has five rows, so that nothing is allocated."""
    trimmed = work[0]
    low = work[1]
    high = work[2]
    scratch = work[3]
    m = len(counts)
    log_each = rule.log_each
    n_cut = trim(counts, liars_at_most(rule.alpha, m), trimmed, scratch)
    if n_cut <= 0:
        return 0.0, math.inf
    each = sigma * math.sqrt(2.0 * log_each)
    for j in range(m):
        w = each / math.sqrt(trimmed[j]) + rule.epsilon if trimmed[j] > 0 else math.inf
        low[j], high[j] = means[j] - w, means[j] + w
    point, _ = largest_clique(low, high, scratch, work[4])
    total = 0.0
    believed = 0.0
    weight = 0.0
    for j in range(m):
        weight += trimmed[j]
        if low[j] <= point <= high[j] and trimmed[j] > 0:
            total += trimmed[j] * means[j]
            believed += trimmed[j]
    chance = 2.0 * sigma * math.sqrt(2.0 * rule.log_all) / math.sqrt(weight)
    lies = 8.0 * rule.alpha * m * math.sqrt(n_cut) * sigma * math.sqrt(2.0 * log_each) / weight
    return total / believed, chance + lies + 5.0 * rule.epsilon
