"""Exact binomial, multinomial and hypergeometric draws for counts up to 2^53.

Small cases by inversion or one draw at a time; large ones by rejection: the transformed rejection of Hörmann
(1993) for the binomial, the ratio of uniforms of Stadlober (1990) for the hypergeometric. Acceptance compares
probabilities with the one at the mode. The logarithm of such a ratio is small but made of huge log-factorials
(differences of ``lgamma`` lose all digits near 10^15), so the terms that nearly cancel are combined before the
logarithm is taken, by :func:`log_factorial_excess`.
"""

from __future__ import annotations

import math

import numpy as np

from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.sampling.philox import uniform
from fed_ucbvi.core.types import CountArray, FloatArray, WordArray

_TABLE_SIZE = 2048
_LOG_FACTORIAL = np.array([math.lgamma(n + 1.0) for n in range(_TABLE_SIZE)])


@inner
def _stirling_correction(n: float) -> float:
    """``ln n! - [(n + 1/2) ln n - n + ln(2 pi)/2]`` for n >= 16, to full precision."""
    square = n * n
    return (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / n


@inner
def log_factorial_excess(start: int, end: int) -> float:
    """``ln(end! / start!) - (end - start) ln max(start, 1)``: what is left once the largest terms are taken out.

    In the ratio of two probabilities those largest terms nearly cancel, so they are better combined first.
    """
    shift = end - start
    if start < 16 or end < 16:
        return math.lgamma(end + 1.0) - math.lgamma(start + 1.0) - shift * math.log(max(start, 1))
    low = float(start)
    high = float(end)
    return (high + 0.5) * math.log1p(shift / low) - shift + _stirling_correction(high) - _stirling_correction(low)


@compiled
def binomial(stream: WordArray, n: int, p: float) -> int:
    """A draw of Binomial(n, p)."""
    if n <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return n
    if p > 0.5:
        return n - _binomial_lower(stream, n, 1.0 - p)
    return _binomial_lower(stream, n, p)


@inner
def _binomial_lower(stream: WordArray, n: int, p: float) -> int:
    """Binomial(n, p) for p <= 1/2."""
    if n * p < 10.0:
        return _binomial_by_inversion(stream, n, p)
    # Constants of the transformed rejection.
    spread = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    alpha = (2.83 + 5.1 / b) * spread
    accept = 0.92 - 4.2 / b
    # Constants of the ratio of probabilities to that at the mode.
    mode = int((n + 1.0) * p)
    small = n < _TABLE_SIZE
    odds = p / (1.0 - p)
    tilt = math.log(odds if small else odds * (n - mode) / mode)
    while True:
        # Propose x.
        u = uniform(stream) - 0.5
        v = uniform(stream)
        edge = 0.5 - abs(u)
        if edge <= 0.0:
            continue
        place = (2.0 * a / edge + b) * u + centre
        if place < 0.0 or place >= n + 1.0:
            continue
        x = int(place)
        # Accept at once where that is certain, and otherwise by the ratio of probabilities.
        if (edge >= 0.07 and v <= accept) or v <= 0.0:
            return x
        bound = math.log(v * alpha / (a / (edge * edge) + b))
        ratio = (x - mode) * tilt
        if small:
            ratio += _LOG_FACTORIAL[mode] - _LOG_FACTORIAL[x]
            ratio += _LOG_FACTORIAL[n - mode] - _LOG_FACTORIAL[n - x]
        else:
            ratio -= log_factorial_excess(mode, x) + log_factorial_excess(n - mode, n - x)
        if bound <= ratio:
            return x


@inner
def _binomial_by_inversion(stream: WordArray, n: int, p: float) -> int:
    """Walk up the distribution function from zero; the mean is below 10."""
    odds = p / (1.0 - p)
    start = math.exp(n * math.log1p(-p))
    while True:
        u = uniform(stream)
        x = 0
        mass = start
        while u >= mass:
            u -= mass
            x += 1
            if x > n or x > 200:
                break
            mass *= odds * (n - x + 1) / x
        if x <= n and x <= 200:
            return x


@inner
def hypergeometric(stream: WordArray, good: int, bad: int, sample: int) -> int:
    """Number of good ones among ``sample`` drawn without replacement from ``good + bad``."""
    if sample <= 0 or good <= 0:
        return 0
    if bad <= 0:
        return sample
    total = good + bad
    if sample >= total:
        return good
    few = min(sample, total - sample)
    rare = min(good, bad)
    drawn = _hypergeometric_core(stream, min(few, rare), max(few, rare), total)
    # the core drew from the rare kind for the smaller half; undo both swaps
    if good > bad:
        drawn = few - drawn
    if sample > total - sample:
        drawn = good - drawn
    return drawn


@inner
def _hypergeometric_core(stream: WordArray, few: int, rare: int, total: int) -> int:
    """Overlap of a random ``few``-subset and a ``rare``-subset; few <= rare and both at most total / 2.

    The law is symmetric in the two sizes, so the smaller one is taken as the sample.
    """
    # Small samples: one draw at a time.
    if few <= 12:
        left = rare
        drawn = 0
        for i in range(few):
            if uniform(stream) * (total - i) < left:
                drawn += 1
                left -= 1
        return drawn
    # Constants of the ratio of uniforms, and of the ratio of probabilities to that at the mode.
    share = rare / total
    centre = few * share + 0.5
    spread = math.sqrt(few * share * (1.0 - share) * ((total - few) / (total - 1.0)) + 0.5)
    width = 1.7155277699214135 * spread + 0.8989161620588988
    mode = int((few + 1.0) * (rare + 1.0) / (total + 2.0))
    rest = total - few - rare
    small = total < _TABLE_SIZE
    tilt = 0.0
    if not small:
        tilt = math.log((max(rare - mode, 1) / max(mode, 1)) * (max(few - mode, 1) / max(rest + mode, 1)))
    top = min(few + 1.0, math.floor(centre + 16.0 * spread))
    while True:
        # Propose x.
        u = 1.0 - uniform(stream)
        v = uniform(stream)
        place = centre + width * (v - 0.5) / u
        if place < 0.0 or place >= top:
            continue
        x = int(place)
        # Accept by the ratio of probabilities; quick tests spare most logarithms.
        if small:
            log_ratio = (
                (_LOG_FACTORIAL[mode] - _LOG_FACTORIAL[x])
                + (_LOG_FACTORIAL[rare - mode] - _LOG_FACTORIAL[rare - x])
                + (_LOG_FACTORIAL[few - mode] - _LOG_FACTORIAL[few - x])
                + (_LOG_FACTORIAL[rest + mode] - _LOG_FACTORIAL[rest + x])
            )
        else:
            log_ratio = (x - mode) * tilt - (
                log_factorial_excess(mode, x)
                + log_factorial_excess(rare - mode, rare - x)
                + log_factorial_excess(few - mode, few - x)
                + log_factorial_excess(rest + mode, rest + x)
            )
        if u * (4.0 - u) - 3.0 <= log_ratio:
            return x
        if u * (u - log_ratio) >= 1.0:
            continue
        if 2.0 * math.log(u) <= log_ratio:
            return x


def cumulative(probabilities: FloatArray) -> FloatArray:
    """Distribution functions along the last axis, exactly 1 from the last possible outcome on."""
    table = np.cumsum(probabilities, axis=-1)
    remaining = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    after = np.concatenate([remaining[..., 1:], np.zeros_like(remaining[..., :1])], axis=-1)
    return np.ascontiguousarray(np.where(after <= 0.0, 1.0, np.minimum(table, 1.0)))


def conditional_shares(probabilities: FloatArray) -> FloatArray:
    """``p_k / sum_{j >= k} p_j`` along the last axis: each outcome's share of what the earlier ones left.

    >>> conditional_shares(np.array([0.5, 0.25, 0.25, 0.0]))
    array([0.5, 0.5, 1. , 0. ])
    """
    tails = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    return np.ascontiguousarray(probabilities / np.where(tails > 0.0, tails, 1.0))


@compiled
def multinomial(stream: WordArray, n: int, shares: FloatArray, out: CountArray) -> None:
    """Write a draw of n items to ``out``, given the outcomes' :func:`conditional_shares`."""
    for k in range(shares.shape[0]):
        drawn = binomial(stream, n, shares[k]) if n > 0 else 0
        out[k] = drawn
        n -= drawn


@compiled
def split(stream: WordArray, counts: CountArray, sample: int, out: CountArray) -> None:
    """Write to ``out`` the composition of a random ``sample`` of the counted items (multivariate hypergeometric)."""
    total = np.int64(0)
    for k in range(counts.shape[0]):
        total += counts[k]
    for k in range(counts.shape[0]):
        here = counts[k]
        total -= here
        if sample > 0 and here > 0:
            drawn = hypergeometric(stream, here, total, sample)
        else:
            drawn = 0
        out[k] = drawn
        sample -= drawn
