"""Threshold nu between the local and the global synchronisation rule, and the constants that it needs."""

from __future__ import annotations

import math


def beta_star(S: int, A: int, H: int, delta: float) -> float:
    """``beta*(delta) = log(12 S A H / delta)`` (``lem:proba_master_event``)."""
    return math.log(12 * S * A * H / delta)


def beta_common(S: int, A: int, H: int, delta: float, n: float) -> float:
    """``beta^c(delta, n) = log(6 S A H / delta) + log(6 e (2 n + 1))`` (``lem:proba_master_event``)."""
    return math.log(6 * S * A * H / delta) + math.log(6 * math.e * (2 * n + 1))


def threshold_nu(S: int, A: int, H: int, M: int, T: int, eps_p: float, delta: float) -> float:
    """``nu = 14 eps_p T H M + 182 M beta^c(delta, T)`` (``def:sdeltat``): above it the global rule applies.

    >>> round(threshold_nu(S=8, A=4, H=10, M=20, T=30_000, eps_p=0.1, delta=0.05))
    8488633
    """
    return 14 * eps_p * T * H * M + 182 * M * beta_common(S, A, H, delta, T)
