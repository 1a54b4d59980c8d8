"""Proved bounds for Fed-UCBVI with ties at every visit, the remaining horizon and the global rule everywhere.

At every visit an agent draws one of the greedy actions uniformly. Q is at most ``c = H-h+1`` and the next value at
most ``G = H-h``; the corrected bonus has G in place of H. An agent requests a synchronisation once its visits of the
round at some (h,s,a) reach ``max(1, ceil(N/M))``. Steps count from 1. The bonus is, for ``N >= 2``,

- ``tight`` (agents all alike): ``max(sqrt(2 b* Var/(N-1)), 2 b* B/(N-1)) + 7 b* B/(3 (N-1))`` with
  ``B = max V_{h+1}`` and ``b* = ln(12 S A H M T / delta)``; or
- ``corrected``: ``(28 b* + 11 b^c(N)) G/N + sqrt(8 b* Var/N)``.

The argument does not depend on how ties are broken. So ``FedUCBVI(bonus="corrected", clip="remaining",
synchronisation="global")``, which plays one of the greedy actions, is covered too, except that its ``b*`` lacks the
``ln(M T)`` (``docs/theory.md``, slip 8).

With ``stationary`` kernel and rewards, counts are pooled over the steps, ``N(s,a)``. With *rest*, the rule ends a
round only once the round has lasted ``gamma t`` episodes, where t is the number of episodes before it.
``hard_factor`` times the budget ends a round at any time.

The argument, for ``eps_p = eps_r = 0``, with ``b = beta^max`` and ``L = sqrt(H^3 S A T / M)``:

1. *Counting*, with certainty. Before the last episode of a round no agent has reached its budget, so ``N_end <= 2 N +
   M - 1``. Visits in rounds that begin with ``N < M`` are at most 2 M for each (h,s,a). Over all other visits ``N~ <=
   3 N``, so ``sum 1/N <= 3 b`` and ``sum 1/sqrt(N) <= 2 sqrt(3 N_T)``. With a hard factor f these are ``(1 + f) M``
   and ``N~ <= (1 + 2 f) N``.
2. *One step*, for ``N >= max(M, 2)``: the optimistic Q exceeds the policy's by at most ``(1 + 1/H)`` times that of
   the next step, a martingale difference, ``sqrt(4 b Var V*/N) + sqrt(k b Var V/N)`` and ``K H^2 S b/N``: k = 4, K =
   15 (tight: 4 + 14/3 + 14/3 and 1/2 + 2/3) or k = 8, K = 45 (corrected: 28 + 11 + 14/3 and 1/2 + 2/3).
3. *Variances*, per agent: at most ``2 H^2 T + 2 H^2 U + (2 sqrt(6) + 2 sqrt(8)) H^3 S b sqrt(A T/M) + 6 H^3 b/M``.
4. *Cauchy and Schwarz* for the two roots, ``2 x y <= x^2 + y^2`` for what is left, and ``U <= ... + x sqrt(U)`` gives
   ``U <= 2 (...) + x^2``.
"""

from __future__ import annotations

import math

from fed_ucbvi.core.errors import check_choice, check_number
from fed_ucbvi.theory.constants import beta_max
from fed_ucbvi.theory.terms import RegretBound, check_sizes

BONUSES = {"tight": (4.0, 15.0), "corrected": (8.0, 45.0)}
"""k, the factor of Var/N under the root, and K, the factor of ``H^2 S b / N``, in one step."""
GROWTH = 1.45
"""Above ``k M`` visits a request makes N grow by 0.458 at least (see :func:`proved_rounds_bound`)."""


def proved_regret_bound(
    S: int,
    A: int,
    H: int,
    M: int,
    T: int,
    delta: float,
    *,
    bonus: str = "tight",
    stationary: bool = False,
    hard_factor: float = 1.0,
) -> RegretBound:
    """The bound for agents all alike, on the event ``G(delta)`` without ``E^count``; ``S A >= 2``.

    By step, tight: ``33.4 e b L + (190 e + 96 e^2) b^2 H^3 S^2 A / M + 2 e S A H (H+1)``; corrected: 39.2, 391 and
    140. Stationary, with ``ln(M T H)`` in b: ``27.6 e b sqrt(H^2 S A T / M) + 8 e sqrt(H^3 T b / M) + (190 e + 96
    e^2) b^2 H^2 S^2 A / M + 4 e S A H^2``. A hard factor f multiplies the leading term by ``sqrt((1 + 2 f)/3)`` at
    most, and the other terms by constants.

    >>> terms = proved_regret_bound(S=8, A=4, H=10, M=20, T=10**9, delta=0.05)
    >>> terms.burn_in < proved_regret_bound(S=8, A=4, H=10, M=1, T=10**9, delta=0.05).burn_in
    True
    """
    check_choice("bonus", bonus, tuple(BONUSES))
    check_sizes(S, A, H, M, T, 0.0, 0.0, delta)
    check_number("hard_factor", hard_factor, at_least=1)
    e, root = math.e, math.sqrt
    k, K = BONUSES[bonus]
    slack = (1 + 2 * hard_factor) / 3  # N~ <= 3 slack N
    a = root(12 * slack)  # of e b sqrt(S A H / M) sqrt(sum of variances), from sqrt(4 b Var / N)
    both = 1 + root(k / 4)  # the root with V* and the one with the optimistic V
    variance_rest = 2 * root(6 * slack) + 2 * root(8)
    lower = both * (a**2 * variance_rest / 8 + a * root(6)) + 3 * slack * K
    quadratic = both * a * root(2)
    leading = both * (a * root(2) + 2)
    early = (1 + hard_factor) / 2  # visits while N < M, as a multiple of 2 M
    if stationary:
        b, order, burn_order, first = beta_max(S, A, H, M, T * H, delta), H**2, H**2, 4 * e * S * A * H**2
        martingale = 4 * root(H**3 * T * b / M)
    else:
        b, order, burn_order, first = beta_max(S, A, H, M, T, delta), H**3, H**3, 2 * e * S * A * H * (H + 1)
        martingale = root(8 * H**2 * (H + 1) * T * b / M)
    return RegretBound(
        exploration=2 * e * (leading * b * root(order * S * A * T / M) + martingale),
        burn_in=(2 * lower * e + (quadratic * e) ** 2) * b**2 * burn_order * S**2 * A / M + early * first,
        kernels=0.0,
        rewards=0.0,
        reduction_kernels=0.0,
        reduction_rewards=0.0,
    )


def proved_rounds_bound(
    S: int,
    A: int,
    H: int,
    M: int,
    T: int,
    eps_p: float,
    delta: float,
    *,
    stationary: bool = False,
    rest: float = 0.0,
    hard_factor: float = 8.0,
) -> float:
    """The most synchronisations of the global rule everywhere, with probability ``1 - delta/6``.

    Consider one (h,s,a), or (s,a) if ``stationary``. A request with ``N < M`` adds at least one visit, so there are
    at most M such requests. One with ``N >= M`` multiplies N by at least ``1 + 1/M``, with certainty. From ``N >= k
    M`` on,
    ``k = 44 b~ + 4 eps_p H T``, it multiplies N by 1.458, because agents share one policy: where one agent has
    ``N/M`` visits, all together have 0.458 N. Hence ``M + (M + 1/2) ln k + 1 + ln(T/k) / ln 1.45`` requests, with
    ``b~ = ln(48 e S A H M T (2 M T + 1) / delta)``; one agent doubles N each time. Stationary counts reach ``M T H``
    and ``k = 44 H b~ + 4 eps_p H^2 T``.

    With ``rest`` gamma > 0, rounds that end by the rule last at least ``gamma t`` episodes, so there are at most
    ``ceil(1/gamma) + 1 + log_{1+gamma}(gamma T)``; those ended by the hard factor f are counted as above, with
    budgets f times as large. There are never more rounds than episodes.

    >>> sizes = {"S": 8, "A": 4, "H": 10, "M": 20, "T": 10**9, "eps_p": 0.0, "delta": 0.05}
    >>> proved_rounds_bound(**sizes, stationary=True) < proved_rounds_bound(**sizes)
    True
    """
    check_sizes(S, A, H, M, T, eps_p, 0.0, delta)
    check_number("rest", rest, at_least=0)
    check_number("hard_factor", hard_factor, at_least=5 if rest > 0 else 0)
    per_episode = H if stationary else 1
    triplets = S * A if stationary else S * A * H
    longest = T * per_episode
    factor = hard_factor if rest > 0 else 1.0
    soft = 0.0
    if rest > 0:
        soft = math.ceil(1 / rest) + 1 + math.log(max(1.0, rest * T)) / math.log1p(rest)
    log_union = math.log(48 * math.e * S * A * H * M * T * (2 * M * T + 1) / delta)
    k = (44 * log_union + 4 * eps_p * H * T) * per_episode / factor
    if M == 1:
        each = 1 + math.log(longest) / math.log1p(factor)
    else:
        each = math.ceil(M / factor) + (M / factor + 0.5) * math.log(max(1.0, min(k, longest)))
        if k < longest:
            growth = math.log(GROWTH) if rest == 0 else math.log1p(0.458 * factor)
            each += 1 + math.log(longest / max(k, 1.0)) / growth
    return min(float(T), soft + triplets * each)
