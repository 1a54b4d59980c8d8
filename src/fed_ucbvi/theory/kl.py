"""Bounds on the regret and the rounds of Fed-KL-UCBVI with radius 1, for agents that are all alike.

``docs/theory.md`` has the proofs (its Theorems 4 and 5). Rewards are a function of (h,s,a), and rounds end by the
global rule. Counts are by (h,s,a), or by (s,a) over all steps together (``stationary``).
"""

from __future__ import annotations

import math

from fed_ucbvi.core.errors import check_number
from fed_ucbvi.theory.terms import RegretBound, check_sizes

KAPPA = math.e / (math.e - 1)
"""Expected visits are at most this many times the visits and a logarithm."""
BALL = 4 / 3 + math.sqrt(5 / 3)
"""On the ball ``q.V - p.V <= sqrt(2 c Var_p(V)) + BALL c span(V)``."""


def kl_regret_bound(S: int, A: int, H: int, M: int, T: int, delta: float, *, stationary: bool = False) -> RegretBound:
    """Theorem 5 of ``docs/theory.md``: the regret is at most W, with probability ``1 - 2 delta`` at least.

    ``W = X + Y sqrt(W)``, ``X = early + a H/2 sqrt(T D) + K D``, ``Y = (a + sqrt(2 beta_K)) sqrt(H (H-1) D / 2)``,

        a = sqrt(2 beta) + sqrt(2 beta_B),   kappa = e/(e-1),   n = M T (M T H if stationary),
        D = 4 kappa S A (H-1) log(T) / M,    early = kappa S A H (H+1) (1 + beta_N/M),
        K = (H-1) (sqrt(beta beta_K) + (4/3 + sqrt(5/3)) beta + beta_B/3 + beta_K/3),
        beta   = log(2 S (H-1) / delta) + log(n + 1) / 2,    beta_B = log(3 S A (H-1) n / delta),
        beta_K = log(3 S A (H-1) / delta) + log binomial(n + S - 1, S - 1),    beta_N = log(3 S A H / delta).

    If ``stationary``, D is without ``H-1``, early is ``2 kappa S A H^2 (1 + beta_N/M)``, and beta_K and beta_N are
    without ``H-1`` and H. ``exploration`` is the term with the root of T, ``burn_in`` all others.

    >>> bound = kl_regret_bound(S=8, A=4, H=10, M=20, T=10**8, delta=0.05)
    >>> bound.common < 0.2 * 10 * 10**8
    True
    """
    check_sizes(S, A, H, M, T, 0.0, 0.0, delta)
    pairs, n = S * A, M * T * (H if stationary else 1)
    later = 1 if stationary else max(1, H - 1)  # tables of counts for steps that have a next one
    sequences = math.fsum(math.log1p(n / j) for j in range(1, S))  # log binomial(n + S - 1, S - 1)
    beta = math.log(2 * S * max(1, H - 1) / delta) + math.log(n + 1) / 2
    beta_bernstein = math.log(3 * pairs * max(1, H - 1) * n / delta)
    beta_kernel = math.log(3 * pairs * later / delta) + sequences
    beta_visits = math.log(3 * pairs * (1 if stationary else H) / delta)

    inverse = 4 * KAPPA * pairs * later * math.log(T) / M if H > 1 else 0.0  # D
    early = KAPPA * pairs * H * (2 * H if stationary else H + 1) * (1 + beta_visits / M)
    a = math.sqrt(2 * beta) + math.sqrt(2 * beta_bernstein)
    exploration = a * H / 2 * math.sqrt(T * inverse)
    K = (H - 1) * (math.sqrt(beta * beta_kernel) + BALL * beta + (beta_bernstein + beta_kernel) / 3)
    X, Y = early + exploration + K * inverse, (a + math.sqrt(2 * beta_kernel)) * math.sqrt(H * (H - 1) * inverse / 2)
    W = (Y + math.sqrt(Y * Y + 4 * X)) ** 2 / 4
    return RegretBound(exploration, W - exploration, 0.0, 0.0, 0.0, 0.0)


def kl_rounds_bound(
    S: int,
    A: int,
    H: int,
    M: int,
    T: int,
    delta: float,
    *,
    alike: bool = True,
    stationary: bool = False,
    min_round_growth: float = 0.0,
) -> float:
    """Theorem 4 of ``docs/theory.md``: rounds, the last one included, with probability ``1 - delta`` at least.

    For each (h,s,a), ``M + (M + 1/2) log T`` for sure, and ``M + 1 + (M + 1/2) log k + log(T/k) / log(5/4)`` with
    ``k = 8 log(2 S A H M T / delta)`` with that probability if agents are ``alike``. If stationary, for each (s,a),
    with ``T H`` for T, and ``k = 8 H log(2 S A M T / delta)``. With ``min_round_growth`` rho,
    ``2 + log(T) / log(1 + rho)`` for sure.
    """
    check_sizes(S, A, H, M, T, 0.0, 0.0, delta)
    check_number("min_round_growth", min_round_growth, at_least=0)
    cells, longest = (S * A, T * H) if stationary else (S * A * H, T)
    k = 8 * (H if stationary else 1) * math.log(2 * cells * M * T / delta)
    sure = M + (M + 0.5) * math.log(longest)
    likely = M + 1 + (M + 0.5) * math.log(k) + max(0.0, math.log(longest / k)) / math.log(1.25)
    rounds = min(float(T), 1 + cells * (min(sure, likely) if alike else sure))
    return min(rounds, 2 + math.log(T) / math.log1p(min_round_growth)) if min_round_growth > 0 else rounds
