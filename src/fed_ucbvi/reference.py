"""Fed-UCBVI and Fed-KL-UCBVI in plain NumPy, to be read from top to bottom, ported or cited.

Slow, and nothing but the algorithms: no messages, no exact sums, nothing compiled, nothing of the rest of the
package. The tests hold the fast versions to this file, synchronisation by synchronisation. Labels such as
``eq:q_agregation`` are those of the paper's source. There are M agents, S states, A actions and H steps. Steps run
from 0 to H-1 in the code and from 1 to H in the paper and in equations here.

An algorithm is a function from what all agents have counted to a :class:`Plan`: the values, what to play next, and
when an agent requests the next synchronisation. Counts are

- ``n[i,h,s,a,s']``, the transitions that agent i has seen, and
- ``paid[i,h,s,a]``, the sum of the rewards it was paid,

since the beginning of the run. Their step axis has length H, or 1 where visits are counted over all steps together
(*stationary*: only where kernels and rewards do not depend on the step).
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


class Plan(NamedTuple):
    """What the server and the agents work out at a synchronisation.

    Attributes:
        Q: ``(H, S, A)``.
        V: ``(H+1, S)``.
        policy: ``(H, S, A)``, sets of actions: every agent draws from the set anew at every visit.
        budgets: ``(M, steps, S, A)``; agent i requests a synchronisation once its visits of the round to some place
            reach its budget there.
    """

    Q: Floats
    V: Floats
    policy: Sets
    budgets: Counts


Algorithm = Callable[[Counts, Floats], Plan]
"""From counts ``n`` and ``paid`` to a plan."""


# ------------------------------------------------------------------------------------------------------- Fed-UCBVI


def threshold(S: int, A: int, H: int, M: int, episodes: int, eps_p: float, delta: float = 0.05) -> float:
    """The nu of ``def:sdeltat``, below which budgets are local: ``14 eps_p T H M + 182 M beta^c(delta, T)``.

    ``beta^c(delta, T) = log(6 S A H / delta) + log(6 e (2 T + 1))``.
    """
    beta = math.log(6 * S * A * H / delta) + math.log(6 * math.e * (2 * episodes + 1))
    return 14 * eps_p * episodes * H * M + 182 * M * beta


def fed_ucbvi(n: Counts, paid: Floats, horizon: int, nu: float) -> Plan:
    """The paper's algorithm (``algo:server-UCBVI``, ``algo:UCB-Q-values``) with the bonus of its experiments.

    Agent i, from its own counts, uniform where it has none (``eq:update_of_tr_kernel``, ``eq:local_q_function``):

        P^i(s'|s,a) = n^i(s,a,s') / n^i(s,a),    Q^i = r^i + P^i V_{h+1}.

    The server, with the weights ``w^i = n^i/N`` (``def:globalcounter``, ``eq:aggergating_weights``,
    ``eq:q_agregation``, ``eq:v_aggregation``, ``eq:policy_aggregation``):

        Var = sum_i w^i P^i V_{h+1}^2 - (sum_i w^i P^i V_{h+1})^2
        Q_h = min( sum_i w^i Q^i + b, H ),  b = H/N + sqrt(Var/N) where N >= 2, otherwise H;  Q_h = H where N = 0
        V_h = max_a Q_h,  and the policy is the first action that attains it.

    Agents request a synchronisation when their own count has doubled, or, where ``N >= nu``, when it is as if that of
    all had (``eq:local_doubling_cond``, ``eq:global_est_doubling_cond``, with ``>=`` as in the appendix).
    """
    M, _, S, A, _ = n.shape
    Q = np.zeros((horizon, S, A))
    V = np.zeros((horizon + 1, S))
    visits = n.sum(axis=4)
    for h in reversed(range(horizon)):
        n_h = n[:, _step(n, h)]
        paid_h = paid[:, _step(n, h)]
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
    """``U(p, V, c) = sup { q.V : q a distribution on all states, KL(p, q) <= c }``, for all rows ``p[..., S]``.

    With ``top = max V``, ``d = top - V`` and ``nu = top + y`` duality gives

        U = min over y >= 0 of  nu - exp( sum_i p_i log(nu - V_i) - c )
          = min over y >= 0 of  top - y ( exp( sum_i p_i log(1 + d_i/y) - c ) - 1 ),

    and *every* y gives a number that is at least U. The best y has f(y) = c, where

        f(y) = sum_i p_i log(y + d_i) + log sum_i p_i / (y + d_i)

    falls from ``f(0)`` to 0. If even ``f(0) <= c``, it is 0: the best q has mass on a top that was never seen. Here y
    is found by bisection of its logarithm, and what stands for 0 is so small that nothing is left of it.
    """
    top = V.max()
    d = top - V
    low = np.full(p.shape[:-1], -460.0)
    high = np.full(p.shape[:-1], 60.0)
    for _ in range(60):
        y = np.exp(0.5 * (low + high))[..., None]
        f = (p * np.log(y + d)).sum(axis=-1) + np.log((p / (y + d)).sum(axis=-1))
        low, high = np.where(f > c, 0.5 * (low + high), low), np.where(f > c, high, 0.5 * (low + high))
    y = np.exp(high)
    logs = (p * np.log1p(d / y[..., None])).sum(axis=-1)
    return np.asarray(top - np.maximum(0.0, y * np.expm1(logs - c)))


def fed_kl_ucbvi(
    n: Counts,
    paid: Floats,
    horizon: int,
    *,
    delta: float = 0.05,
    radius: float = 1.0,
    random_rewards: bool = False,
    starts_known: bool = True,
) -> Plan:
    """Optimism from a Kullback-Leibler ball around the transitions p of all agents together.

        Q_h(s,a) = min( H-h+1,  r + U(p, V_{h+1}, beta(N)/N) ),    H-h+1 where N = 0      (h from 1)
        beta(N)  = radius ( log(S (H-1) / delta) + log 2 + (1/2) log(N + 1) )
        V_h      = max_a Q_h,  and the policy is the set of all actions that attain it.

    With radius 1 all ``V_h >= V*_h`` with probability ``1 - delta``, at all synchronisations together. With a smaller
    one the logarithm is that of the visits to all pairs of the step. Where rewards are random, r is the largest mean
    with Bernoulli divergence ``beta(N)/N`` from what was paid, and ``S (2H-1)`` stands for ``S (H-1)``. Where the
    law of the first state is unknown (``starts_known=False``), there is one event more. An agent requests a
    synchronisation once it has made ``max(1, ceil(N/M))`` visits (``eq:global_est_doubling_cond``).
    """
    M, _, S, A, _ = n.shape
    Q = np.zeros((horizon, S, A))
    V = np.zeros((horizon + 1, S))
    events = S * (2 * horizon - 1) if random_rewards else S * (horizon - 1)
    events = max(1, events + (not starts_known))
    for h in reversed(range(horizon)):
        n_h = n[:, _step(n, h)].sum(axis=0)
        paid_h = paid[:, _step(n, h)].sum(axis=0)
        N = n_h.sum(axis=2)
        p = np.full((S, A, S), 1 / S)
        r = paid_h / np.maximum(N, 1)
        p[N > 0] = n_h[N > 0] / N[N > 0][:, None]
        seen = N if radius >= 1 else N.sum()
        c = radius * (math.log(2 * events / delta) + np.log(seen + 1.0) / 2) / np.maximum(N, 1)
        if random_rewards:
            r = largest_mean(np.stack([1 - r, r], axis=-1), np.array([0.0, 1.0]), c)
        Q[h] = np.where(N > 0, np.minimum(r + largest_mean(p, V[h + 1], c), horizon - h), horizon - h)
        V[h] = Q[h].max(axis=1)
    budgets = np.maximum(1, -(-n.sum(axis=(0, 4)) // M))
    return Plan(Q, V, V[:-1, :, None] == Q, np.tile(budgets, (M, 1, 1, 1)))


def _step(n: Counts, h: int) -> int:
    """Where counts of step h are."""
    return h if n.shape[1] > 1 else 0


# ------------------------------------------------------------------------------------------------------ playing them


class Round(NamedTuple):
    """A round: what was played, for how many episodes, and where they began, ``starts[i,s]``."""

    plan: Plan
    episodes: int
    starts: Counts


def simulate(
    algorithm: Algorithm,
    kernels: Floats,
    rewards: Floats,
    initial: Floats,
    episodes: int,
    rng: np.random.Generator,
    *,
    stationary: bool = False,
    bernoulli: bool = False,
) -> Iterator[Round]:
    """Play ``episodes`` of every agent, round by round (``algo:FEDUCBVI``).

    ``kernels[i,h,s,a,s']``, ``rewards[i,h,s,a]`` and ``initial[i,s]`` are those of agent i. If ``bernoulli``, rewards
    are 1 or 0, with these means.
    """
    M, H, S, A, _ = kernels.shape
    places = (M, 1 if stationary else H, S, A)
    n = np.zeros((*places, S), dtype=np.int64)
    paid = np.zeros(places)
    agents = np.arange(M)
    played = 0
    while played < episodes:
        plan = algorithm(n, paid)
        visits = np.zeros(places, dtype=np.int64)
        starts = np.zeros((M, S), dtype=np.int64)
        first = played
        while played < episodes and not (visits >= plan.budgets).any():
            s = draw(initial, rng)
            starts[agents, s] += 1
            for h in range(H):
                a = draw(plan.policy[h, s], rng)
                after = draw(kernels[agents, h, s, a], rng)
                at = (agents, _step(n, h), s, a)
                reward = rewards[agents, h, s, a]
                visits[at] += 1
                n[(*at, after)] += 1
                paid[at] += rng.random(M) < reward if bernoulli else reward
                s = after
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
