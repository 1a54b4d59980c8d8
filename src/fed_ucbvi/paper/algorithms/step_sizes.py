"""Step sizes of FedQ for any number of visits at once.

With ``alpha_t = (H+1)/(H+t)`` the weight of visit i after n visits is
``theta_n^i = alpha_i prod_{j=i+1}^n (1 - alpha_j)`` (Jin et al., 2018; Zheng et al., 2024). Since
``1 - alpha_t = (t-1)/(t+H)``, products telescope to rising factorials ``(x)_k = x (x+1) ... (x+k-1)``:

- ``alpha^c(n0+1, n1) = prod_{t=n0+1}^{n1} (1 - alpha_t) = (n0)_{H+1} / (n1)_{H+1}``;
- ``theta_n^i = (H+1) (i)_H / (n)_{H+1}``.

Both are products of about H quotients near one, which loses no digits however large the counts; differences of
``lgamma`` would.
"""

from __future__ import annotations

import math

import numpy as np

from fed_ucbvi.core.compiling import compiled, inlined

FEW_VISITS = 32
"""Up to this many visits are summed one by one."""
SMOOTH_FROM = 256
"""From ``t = SMOOTH_FROM * (H+1)`` on, sums over t are integrals to better than 1e-10."""

_nodes, _weights = np.polynomial.legendre.leggauss(8)
NODES = tuple(float(x) for x in _nodes)
WEIGHTS = tuple(float(x) for x in _weights)
"""Gauss-Legendre quadrature on (-1, 1)."""


@compiled
def step_size(n0: int, n1: int, H: int) -> tuple[float, float]:
    """``alpha^c(n0+1, n1)`` and one minus it: what visits ``n0+1, ..., n1`` together keep and replace.

    The second is not computed as one minus the first, which would leave few digits where ``n1 - n0`` is small
    against ``n0``, but by ``1 - (1-x)(1-y) = x + (1-x) y``, a sum of positive terms.
    """
    keep = 1.0
    step = 0.0
    n = float(n1 - n0)
    for i in range(H + 1):
        end = float(n1 + i)
        keep *= float(n0 + i) / end
        step += (1.0 - step) * (n / end)
    return keep, step


@inlined
def _decayed(t: float, q: float) -> float:
    """``t^(-q)`` for q = 0 or 1/2."""
    if q == 0.0:
        return 1.0
    return 1.0 / math.sqrt(t)


@inlined
def _term(t: float, b: float, H: int, p: int, q: float) -> tuple[float, float]:
    """``f(t) = (theta_b^t)^p t^(-q)`` for real t, and ``f'(t)``."""
    theta = (H + 1.0) / (b + H)
    slope = 0.0
    for i in range(H):
        theta *= (t + i) / (b + i)
        slope += 1.0 / (t + i)
    value = (theta * theta if p == 2 else theta) * _decayed(t, q)
    return value, value * (p * slope - q / t)


@compiled
def _smooth_sum(n0: int, n1: int, H: int, p: int, q: float) -> float:
    """``sum_{t=n0+1}^{n1} (theta_n1^t)^p t^(-q)`` where the terms change slowly.

    The midpoint form of Euler and Maclaurin's formula, with the integral by Gauss and Legendre's:
    ``sum f(t) = int_{n0+1/2}^{n1+1/2} f - (f'(n1+1/2) - f'(n0+1/2)) / 24 + ...``; the next term is of the order
    of ``(p H / t)^4 / 800`` of the sum.
    """
    low = n0 + 0.5
    high = n1 + 0.5
    b = float(n1)
    half = 0.5 * (n1 - n0)
    total = 0.0
    for k in range(len(NODES)):
        total += WEIGHTS[k] * _term(low + half * (1.0 + NODES[k]), b, H, p, q)[0]
    return half * total - (_term(high, b, H, p, q)[1] - _term(low, b, H, p, q)[1]) / 24.0


@compiled
def advance_sum(x: float, n0: int, n1: int, H: int, p: int, q: float) -> float:
    """From ``x = sum_{t=1}^{n0} (theta_n0^t)^p t^(-q)`` to the same sum for n1 visits; p is 1 or 2, q is 0 or 1/2.

    Visit by visit, ``x <- (1 - alpha_t)^p x + alpha_t^p t^(-q)``. Long stretches are taken as a whole, in pieces
    within which ``theta_n1^t`` grows by a factor of at most e: a round of FedQ is one piece, and the number of
    pieces is of the order of ``H log(n1/n0)`` whatever the counts.
    """
    t = n0
    while t < n1:
        if n1 - t <= FEW_VISITS or t < SMOOTH_FROM * (H + 1):
            t += 1
            alpha = (H + 1.0) / (H + t)
            keep = (t - 1.0) / (H + t)
            if p == 2:
                keep *= keep
                alpha *= alpha
            x = keep * x + alpha * _decayed(float(t), q)
        else:
            end = min(n1, t + t // (H + 1))
            keep, _ = step_size(t, end, H)
            if p == 2:
                keep *= keep
            x = keep * x + _smooth_sum(t, end, H, p, q)
            t = end
    return x
