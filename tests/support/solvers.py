"""General solvers, to check closed forms and iterations against."""

from __future__ import annotations

import numpy as np
from scipy import optimize

from fed_ucbvi.core.types import FloatArray


def largest_mean_by_optimisation(p: FloatArray, x: FloatArray, c: float) -> float:
    """``sup { q.x : KL(p, q) <= c }`` by a general convex solver, right to about 1e-6."""
    start = 0.9 * p + 0.1 / len(p)
    seen = p > 0
    divergence = {"type": "ineq", "fun": lambda q: c - (p[seen] * np.log(p[seen] / q[seen])).sum()}
    total = {"type": "eq", "fun": lambda q: q.sum() - 1.0}
    found = optimize.minimize(
        lambda q: -(q @ x),
        start,
        bounds=[(1e-12, 1.0)] * len(p),
        constraints=[divergence, total],
        tol=1e-12,
    )
    return -float(found.fun)
