"""The concentration functions, the threshold nu and the bound on the number of rounds.

Symbols: S states, A actions, H horizon, M agents, T episodes per agent, delta the failure probability.
"""

from __future__ import annotations

import math


def _log_union(S: int, A: int, H: int, delta: float) -> float:
    return math.log(6 * S * A * H / delta)


def beta_star(S: int, A: int, H: int, delta: float) -> float:
    """``beta*(delta) = log(12 S A H / delta)`` (``lem:proba_master_event``)."""
    return math.log(12 * S * A * H / delta)


def beta_common(S: int, A: int, H: int, delta: float, n: float) -> float:
    """``beta^c(delta, n) = log(6 S A H / delta) + log(6 e (2 n + 1))`` (``lem:proba_master_event``)."""
    return _log_union(S, A, H, delta) + math.log(6 * math.e * (2 * n + 1))


def beta_kl(S: int, A: int, H: int, delta: float, n: float) -> float:
    """``beta^KL(delta, n) = log(6 S A H / delta) + log(e (1 + n))`` (``lem:proba_master_event``)."""
    return _log_union(S, A, H, delta) + math.log(math.e * (1 + n))


def beta_variance(M: int, delta: float, t: float) -> float:
    """``beta^Var(delta, t) = log(24 e (2 M t + 1) / delta)`` (``lem:proba_master_event``)."""
    return math.log(24 * math.e * (2 * M * t + 1) / delta)


def beta_martingale(H: int, delta: float) -> float:
    """``beta(delta) = log(48 H / delta)`` (``lem:proba_master_event``)."""
    return math.log(48 * H / delta)


def beta_max(S: int, A: int, H: int, M: int, T: int, delta: float) -> float:
    """``beta^max(delta)``, the largest of all betas above and of ``log(e M T H / (S A))`` (``eq:def-beta-max``).

    >>> round(beta_max(S=8, A=4, H=10, M=20, T=30_000, delta=0.05), 3)
    27.345
    """
    return max(
        beta_kl(S, A, H, delta, M * T),
        beta_common(S, A, H, delta, M * T),
        beta_star(S, A, H, delta),
        beta_martingale(H, delta),
        beta_variance(M, delta, T),
        math.log(math.e * M * T * H / (S * A)),
    )


def threshold_nu(S: int, A: int, H: int, M: int, T: int, eps_p: float, delta: float) -> float:
    """``nu = 14 eps_p T H M + 182 M beta^c(delta, T)`` (``def:sdeltat``): above it the global rule applies.

    >>> round(threshold_nu(S=8, A=4, H=10, M=20, T=30_000, eps_p=0.1, delta=0.05))
    8488633
    """
    return 14 * eps_p * T * H * M + 182 * M * beta_common(S, A, H, delta, T)


def most_rounds(S: int, A: int, H: int, M: int, T: int, eps_p: float, delta: float) -> float:
    """The bound on the number of rounds, ``def:roundsmax`` with ``log2 nu`` for its ``log nu``, for ``T M >= nu``.

    ``R_max = M S A H log2 nu + S A H log(T M / nu) / log(8/7)``. The appendix prints ``log nu``, which is too small:
    its proof counts doublings (``2^k <= nu``), and the sketch in the main text has ``log_2``. The second term is
    never below zero. Agents must start in the same distribution (slip 23 of ``docs/paper_slips.md``).
    :func:`~fed_ucbvi.theory.bounds.rounds_bound` counts more closely.
    """
    nu = threshold_nu(S, A, H, M, T, eps_p, delta)
    doublings = math.log2(nu)
    growth = max(0.0, math.log(T * M / nu)) / math.log(8 / 7)
    return M * S * A * H * doublings + S * A * H * growth
