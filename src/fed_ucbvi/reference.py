"""Fed-UCBVI and Fed-KL-UCBVI in plain NumPy, to be read from top to bottom, ported or cited.

Slow, and nothing but the algorithms: no messages, no exact sums, nothing compiled, nothing of the rest of the
package. The tests hold the fast versions to this file, synchronisation by synchronisation. Labels such as
``eq:q_agregation`` are those of the paper's source. There are M agents, S states, A actions and H steps. Steps run
from 0 to H-1 in the code and from 1 to H in the paper and in equations here.

At (h,s,a) chance draws an outcome w by a law; :class:`Known` has the law and the next state of each outcome. Counting
by step and over all steps (*stationary*) are two values of it. An algorithm is a function from what all agents have
counted, and from what is known, to a :class:`Plan`: the values, the policy to play next, and the visits after which
an agent requests the next synchronisation. Counts are

- ``n[i,g,w]``, the number of times agent i has seen outcome w of law g, and
- ``paid[i,g]``, the sum of the rewards it was paid on these visits,

since the beginning of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Sets = npt.NDArray[np.bool_]


class Known(NamedTuple):
    """Known part of a problem: the laws, and the next states and rewards of their outcomes.

    Attributes:
        law_of: ``(H, S, A)``, the number of the law of the outcome.
        next_state: ``(H, S, A, W)``, the next state of each outcome.
        rewards: ``(H, S, A, W)``, the reward of each outcome, in [0, 1]; None if they are to be learnt, law by law.
    """

    law_of: Counts
    next_state: Counts
    rewards: Floats | None = None

    @classmethod
    def by_step(cls, H: int, S: int, A: int) -> Known:
        """One law for each (h,s,a), of the next state."""
        return cls(np.arange(H * S * A).reshape(H, S, A), np.broadcast_to(np.arange(S), (H, S, A, S)))

    @classmethod
    def stationary(cls, H: int, S: int, A: int) -> Known:
        """One law for each (s,a), of the next state; only where kernels and rewards do not depend on the step."""
        return cls.by_step(H, S, A)._replace(law_of=np.tile(np.arange(S * A).reshape(1, S, A), (H, 1, 1)))


class Plan(NamedTuple):
    """Result of a synchronisation.

    Attributes:
        Q: ``(H, S, A)``.
        V: ``(H+1, S)``.
        policy: ``(H, S, A)``, sets of actions: every agent draws from the set anew at every visit.
        budgets: ``(M, G)``; agent i requests a synchronisation once its visits of the round to some law reach its
            budget there.
    """

    Q: Floats
    V: Floats
    policy: Sets
    budgets: Counts


Algorithm = Callable[[Counts, Floats, Known], Plan]
"""From counts ``n`` and ``paid``, and what is known, to a plan."""


# ------------------------------------------------------------------------------------------------------- Fed-UCBVI


def threshold(S: int, A: int, H: int, M: int, episodes: int, eps_p: float, delta: float = 0.05) -> float:
    """The nu of ``def:sdeltat``, below which budgets are local: ``14 eps_p T H M + 182 M beta^c(delta, T)``.

    ``beta^c(delta, T) = log(6 S A H / delta) + log(6 e (2 T + 1))``.
    """
    beta = math.log(6 * S * A * H / delta) + math.log(6 * math.e * (2 * episodes + 1))
    return 14 * eps_p * episodes * H * M + 182 * M * beta


def fed_ucbvi(n: Counts, paid: Floats, known: Known, nu: float) -> Plan:
    """The paper's algorithm (``algo:server-UCBVI``, ``algo:UCB-Q-values``) with the bonus of its experiments.

    Agent i, from its own counts, uniform where it has none (``eq:update_of_tr_kernel``, ``eq:local_q_function``):

        P^i(s'|s,a) = n^i(s,a,s') / n^i(s,a),    Q^i = r^i + P^i V_{h+1}.

    The server, with the weights ``w^i = n^i/N`` (``def:globalcounter``, ``eq:aggergating_weights``,
    ``eq:q_agregation``, ``eq:v_aggregation``, ``eq:policy_aggregation``):

        Var = sum_i w^i P^i V_{h+1}^2 - (sum_i w^i P^i V_{h+1})^2
        Q_h = min( sum_i w^i Q^i + b, H ),  b = H/N + sqrt(Var/N) where N >= 2, otherwise H;  Q_h = H where N = 0
        V_h = max_a Q_h,  and the policy is the first action that attains it.

    Agents request a synchronisation when their own count has doubled, or, where ``N >= nu``, when it is as if that of
    all had (``eq:local_doubling_cond``, ``eq:global_est_doubling_cond``, with ``>=`` as in the appendix). Outcomes
    must be next states.
    """
    horizon, S, A = known.law_of.shape
    M = len(n)
    Q = np.zeros((horizon, S, A))
    V = np.zeros((horizon + 1, S))
    visits = n.sum(axis=2)
    for h in reversed(range(horizon)):
        n_h = n[:, known.law_of[h]]
        paid_h = paid[:, known.law_of[h]]
        own = n_h.sum(axis=3)
        N = own.sum(axis=0)
        P = np.where(own[..., None] > 0, n_h / np.maximum(own, 1)[..., None], 1 / S)
        PV = P @ V[h + 1]
        PV2 = P @ V[h + 1] ** 2
        Q_own = paid_h / np.maximum(own, 1) + P @ V[h + 1]
        weights = own / np.maximum(N, 1)
        variance = np.maximum((weights * PV2).sum(axis=0) - (weights * PV).sum(axis=0) ** 2, 0)
        bonus = np.where(N >= 2, horizon / np.maximum(N, 1) + np.sqrt(variance / np.maximum(N, 1)), horizon)
        Q[h] = np.where(N > 0, np.minimum((weights * Q_own).sum(axis=0) + bonus, horizon), horizon)
        V[h] = Q[h].max(axis=1)
    first = Q.argmax(axis=2)[..., None] == np.arange(A)
    local = np.maximum(1, visits)
    together = np.maximum(1, -(-visits.sum(axis=0) // M))
    return Plan(Q, V, first, np.where(visits.sum(axis=0) < nu, local, together))


# ---------------------------------------------------------------------------------------------------- Fed-KL-UCBVI


def largest_mean(p: Floats, V: Floats, c: Floats) -> Floats:
    """``U(p, V, c) = sup { q.V : q a distribution on all outcomes, KL(p, q) <= c }``, for all rows ``p[..., W]``.

    ``V[..., W]`` are the values of outcomes. With ``top = max V``, ``d = top - V`` and ``nu = top + y`` duality gives

        U = min over y >= 0 of  nu - exp( sum_i p_i log(nu - V_i) - c )
          = min over y >= 0 of  top - y ( exp( sum_i p_i log(1 + d_i/y) - c ) - 1 ),

    and *every* y gives a number that is at least U. The best y has f(y) = c, where

        f(y) = sum_i p_i log(y + d_i) + log sum_i p_i / (y + d_i)

    falls from ``f(0)`` to 0. If even ``f(0) <= c``, it is 0: the best q has mass on a top that was never seen. Here y
    is found by bisection of its logarithm; the lowest y is so small that it is 0 in the result. Where c is 0, U is
    the mean.
    """
    top = V.max(axis=-1, keepdims=True)
    d = top - V
    top = top[..., 0]
    low = np.full(p.shape[:-1], -460.0)
    high = np.full(p.shape[:-1], 60.0)
    for _ in range(60):
        y = np.exp(0.5 * (low + high))[..., None]
        f = (p * np.log(y + d)).sum(axis=-1) + np.log((p / (y + d)).sum(axis=-1))
        low, high = np.where(f > c, 0.5 * (low + high), low), np.where(f > c, high, 0.5 * (low + high))
    y = np.exp(high)
    logs = (p * np.log1p(d / y[..., None])).sum(axis=-1)
    bound = top - np.maximum(0.0, y * np.expm1(logs - c))
    return np.asarray(np.where(c > 0, bound, (p * V).sum(axis=-1)))


def fed_kl_ucbvi(
    n: Counts,
    paid: Floats,
    known: Known,
    *,
    delta: float = 0.05,
    radius: float = 1.0,
    limit: float = math.inf,
    random_rewards: bool = False,
    starts_known: bool = True,
) -> Plan:
    """Optimism from a Kullback-Leibler ball around the outcomes p of all agents together.

    With N the visits to the law of (h,s,a), and ``X_w = r(h,s,a,w) + V_{h+1}(next_state(h,s,a,w))``,

        Q_h(s,a) = U(p, X, beta(N)/N),    max_w X_w where N = 0
        beta(N)  = radius ( log(E / delta) + log 2 + (1/2) log(N + 1) )
        V_h      = max_a Q_h,  and the policy is the set of all actions that attain it.

    E is the number of pairs of step and state from which something is unknown: ``S (H-1)``, or ``S H`` where rewards
    depend on the outcome. With radius 1 all ``V_h >= V*_h`` with probability ``1 - delta``, at all synchronisations
    together. With a smaller one the logarithm is that of the visits to all laws of the step. With a drawn radius,
    level j of optimism has ``min(j, beta(N))`` in place of beta(N), the ``limit``, and the highest level has none.

    Where rewards are to be learnt, ``X_w`` is without them, Q is ``min(H-h+1, r + U)`` with the mean reward r of the
    law, and H-h+1 where N = 0 (h from 1). If they are random, r is the largest mean with Bernoulli divergence
    ``beta(N)/N`` from what was paid, and E is ``S (2H-1)``. Where the law of the first state is unknown
    (``starts_known=False``), there is one event more. An agent requests a synchronisation once it has made
    ``max(1, ceil(N/M))`` visits (``eq:global_est_doubling_cond``).
    """
    horizon, S, A = known.law_of.shape
    Q = np.zeros((horizon, S, A))
    V = np.zeros((horizon + 1, S))
    learnt = known.rewards is None
    visits = n.sum(axis=(0, 2))
    law = n.sum(axis=0) / np.maximum(visits, 1)[:, None]
    law[visits == 0] = 1 / n.shape[2]
    mean_paid = paid.sum(axis=0) / np.maximum(visits, 1)
    by_outcome = known.rewards is not None and bool(np.ptp(known.rewards, axis=3).any())
    events = S * (2 * horizon - 1) if random_rewards else S * horizon if by_outcome else S * (horizon - 1)
    events = max(1, events + (not starts_known))
    for h in reversed(range(horizon)):
        g = known.law_of[h]
        N = visits[g]
        seen = N if radius >= 1 else visits[np.unique(g)].sum()
        beta = radius * (math.log(2 * events / delta) + np.log(seen + 1.0) / 2)
        c = np.minimum(limit, beta) / np.maximum(N, 1)
        follows = V[h + 1][known.next_state[h]]
        r = mean_paid[g] if learnt else np.zeros((S, A))
        if known.rewards is not None:
            follows = follows + known.rewards[h]
        elif random_rewards:
            r = largest_mean(np.stack([1 - r, r], axis=-1), np.array([0.0, 1.0]), c)
        unknown = horizon - h if learnt else follows.max(axis=2)
        Q[h] = np.where(N > 0, np.minimum(r + largest_mean(law[g], follows, c), horizon - h), unknown)
        V[h] = Q[h].max(axis=1)
    budgets = np.maximum(1, -(-visits // len(n)))
    return Plan(Q, V, V[:-1, :, None] == Q, np.tile(budgets, (len(n), 1)))


# ------------------------------------------------------------------------------------------------------ playing them


class Round(NamedTuple):
    """A round: the plan that was played, the number of episodes, and their first states, ``starts[i,s]``."""

    plan: Plan
    episodes: int
    starts: Counts


def simulate(
    algorithm: Algorithm,
    known: Known,
    laws: Floats,
    rewards: Floats,
    initial: Floats,
    episodes: int,
    rng: np.random.Generator,
    *,
    bernoulli: bool = False,
) -> Iterator[Round]:
    """Play ``episodes`` of every agent, round by round (``algo:FEDUCBVI``).

    ``laws[i,g,w]``, ``rewards[i,h,s,a,w]`` and ``initial[i,s]`` are those of agent i. If ``bernoulli``, rewards are 1
    or 0, with these means.
    """
    M, G, W = laws.shape
    H = len(known.law_of)
    n = np.zeros((M, G, W), dtype=np.int64)
    paid = np.zeros((M, G))
    agents = np.arange(M)
    played = 0
    while played < episodes:
        plan = algorithm(n, paid, known)
        visits = np.zeros((M, G), dtype=np.int64)
        starts = np.zeros((M, len(initial[0])), dtype=np.int64)
        first = played
        while played < episodes and not (visits >= plan.budgets).any():
            s = draw(initial, rng)
            starts[agents, s] += 1
            for h in range(H):
                a = draw(plan.policy[h, s], rng)
                g = known.law_of[h, s, a]
                w = draw(laws[agents, g], rng)
                reward = rewards[agents, h, s, a, w]
                visits[agents, g] += 1
                n[agents, g, w] += 1
                paid[agents, g] += rng.random(M) < reward if bernoulli else reward
                s = known.next_state[h, s, a, w]
            played += 1
        yield Round(plan, played - first, starts)


def draw(weights: Floats | Sets, rng: np.random.Generator) -> Counts:
    """An entry of each row, with a probability in proportion to its weight."""
    sums = np.cumsum(weights, axis=1, dtype=np.float64)
    return np.asarray((sums <= rng.random((len(sums), 1)) * sums[:, -1:]).sum(axis=1))


def evaluate(kernel: Floats, rewards: Floats, policy: Sets | None = None) -> Floats:
    """``V^pi[H+1,S]`` of sets of actions ``[H,S,A]``, or ``V*``, in one MDP ``kernel[h,s,a,s']``, ``rewards[h,s,a]``.

    ``eq:bellman_equations`` and ``eq:optimal_bellman_equations``.
    """
    H, S, _ = rewards.shape
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        Q = rewards[h] + kernel[h] @ V[h + 1]
        V[h] = Q.max(axis=1) if policy is None else (Q * policy[h]).sum(axis=1) / policy[h].sum(axis=1)
    return V


def regret(rounds: Iterator[Round], kernel: Floats, rewards: Floats) -> float:
    """Regret in the common MDP (``def:common_regret``): ``1/M sum_i sum_t V*_1(s^i_t) - V^{pi_t}_1(s^i_t)``."""
    best = evaluate(kernel, rewards)[0]
    total = 0.0
    for plan, _, starts in rounds:
        total += float((starts @ (best - evaluate(kernel, rewards, plan.policy)[0])).mean())
    return total
