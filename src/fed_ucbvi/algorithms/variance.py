"""The variance of next values from their first two moments, which is all that agents send."""

from __future__ import annotations

from fed_ucbvi.core.compiling import compiled

ROUNDING = 1e-14
"""A variance below this share of the second moment is rounding error and counts as zero."""


@compiled
def variance_of(mean: float, second: float) -> float:
    """``second - mean^2``, and zero where that is rounding error or, from false reports, negative."""
    variance = second - mean * mean
    return variance if variance > ROUNDING * abs(second) else 0.0
