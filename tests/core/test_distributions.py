"""Binomial, multinomial and hypergeometric draws have the laws SciPy says, from a handful up to 2^53.

Every statistical test names its hypothesis. A test (with all its cases) raises a false alarm with probability
about ``FALSE_ALARM``, shared evenly by its cases (Bonferroni); seeds are fixed, so the outcome is too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.limits import MAX_COUNT
from fed_ucbvi.core.sampling import distributions
from fed_ucbvi.core.sampling.distributions import conditional_shares, log_factorial_excess
from fed_ucbvi.core.sampling.philox import new_stream
from fed_ucbvi.core.types import CountArray, FloatArray, WordArray
from matrices import every_third, first_of

FALSE_ALARM = 1e-3
DRAWS = 1_000_000
JOINT_DRAWS = 200_000
LARGE_DRAWS = 100_000


def stream_for(*name: int) -> WordArray:
    """A stream of its own for every test and case."""
    words = np.random.SeedSequence(name).generate_state(2, np.uint64)
    return new_stream(np.uint64(9), np.uint64(0), words[0], words[1])


@compiled
def fill_binomial(stream: WordArray, n: int, p: float, out: CountArray) -> None:
    for i in range(out.shape[0]):
        out[i] = distributions.binomial(stream, n, p)


@compiled
def fill_hypergeometric(stream: WordArray, good: int, bad: int, sample: int, out: CountArray) -> None:
    for i in range(out.shape[0]):
        out[i] = distributions.hypergeometric(stream, good, bad, sample)


@compiled
def fill_multinomial(stream: WordArray, n: int, shares: FloatArray, out: CountArray) -> None:
    for i in range(out.shape[0]):
        distributions.multinomial(stream, n, shares, out[i])


@compiled
def fill_split(stream: WordArray, counts: CountArray, sample: int, out: CountArray) -> None:
    for i in range(out.shape[0]):
        distributions.split(stream, counts, sample, out[i])


def drawn(
    fill: Callable[..., None],
    stream: WordArray,
    size: int | tuple[int, int],
    *law: object,
) -> CountArray:
    """As many draws, or vectors of them, from a law."""
    out = np.full(size, -1, dtype=np.int64)
    fill(stream, *law, out)
    return out


def chi_square_p_value(observed: FloatArray, probabilities: FloatArray) -> float:
    """Pearson's test of counts against cell probabilities; neighbours are pooled until 10 are expected in each."""
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-6)
    pooled = [np.zeros(2)]
    for cell in zip(observed, probabilities * observed.sum(), strict=True):
        if pooled[-1][1] >= 10:
            pooled.append(np.zeros(2))
        pooled[-1] += cell
    if len(pooled) > 1 and pooled[-1][1] < 10:
        pooled[-2] += pooled.pop()
    assert len(pooled) > 1
    seen, expected = np.transpose(pooled)
    return float(stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), len(pooled) - 1))


def window(mean: float, deviation: float, low: int, high: int) -> range:
    """The whole numbers from ``low`` to ``high`` within 12 standard deviations, and 12 more, of the mean."""
    reach = 12 * deviation + 12
    return range(max(low, math.floor(mean - reach)), min(high, math.ceil(mean + reach)) + 1)


def tally(draws: CountArray, cells: range) -> FloatArray:
    assert cells.start <= draws.min()
    assert draws.max() < cells.stop
    return np.bincount(draws - cells.start, minlength=len(cells)).astype(np.float64)


def tally_vectors(draws: CountArray, most: list[int], total: int) -> tuple[CountArray, FloatArray]:
    """All vectors of whole numbers up to ``most`` that add up to ``total``, and how often each was drawn."""
    vectors = [v for v in itertools.product(*(range(n + 1) for n in most)) if sum(v) == total]
    place = {vector: k for k, vector in enumerate(vectors)}
    observed = np.zeros(len(vectors))
    for value, seen in zip(*np.unique(draws, axis=0, return_counts=True), strict=True):
        observed[place[tuple(value.tolist())]] = seen
    return np.array(vectors), observed


def assert_normal(draws: CountArray, mean: Fraction, variance: float, share: float) -> None:
    """Five tests that standardised draws are standard normal, at false-alarm rate ``share`` in all.

    They are the mean, the variance, the skewness, the kurtosis (each with its large-sample standard error) and
    Kolmogorov-Smirnov. A sixth: the last two bits of the draws are uniform.
    """
    centre = math.floor(mean)
    z = ((draws - centre).astype(np.float64) - float(mean - centre)) / math.sqrt(variance)
    N = len(z)
    limit = float(stats.norm.isf(share / 6 / 2))
    scores = {
        "mean": z.mean() * math.sqrt(N),
        "variance": (np.mean(z**2) - 1) * math.sqrt(N / 2),
        "skewness": np.mean(z**3 - 3 * z) * math.sqrt(N / 6),
        "kurtosis": np.mean(z**4 - 6 * z**2 + 3) * math.sqrt(N / 24),
    }
    assert {name: score for name, score in scores.items() if not abs(score) < limit} == {}
    assert stats.kstest(z, stats.norm.cdf).pvalue > share / 6
    assert chi_square_p_value(np.bincount(draws % 4, minlength=4).astype(np.float64), np.full(4, 0.25)) > share / 6


# Ratios of factorials --------------------------------------------------------------------------------------------
@compiled
def log_factorial_ratio(start: int, end: int) -> float:
    """``ln(end! / start!)``: what is left once the largest terms are taken out, and these."""
    return (end - start) * math.log(max(start, 1)) + log_factorial_excess(start, end)


def exact_log_factorial(n: int) -> Decimal:
    """``ln n!`` to more than 40 digits: exact below 100, otherwise Stirling's series with ten terms."""
    if n < 100:
        return Decimal(math.factorial(n)).ln()
    x = Decimal(n)
    tau = Decimal("6.283185307179586476925286766559005768394338798750211641949889")
    total = (x + Decimal("0.5")) * x.ln() - x + tau.ln() / 2
    bernoulli = [
        (1, 6),
        (-1, 30),
        (1, 42),
        (-1, 30),
        (5, 66),
        (-691, 2730),
        (7, 6),
        (-3617, 510),
        (43867, 798),
    ]
    bernoulli.append((-174611, 330))
    for k, (above, below) in enumerate(bernoulli, start=1):
        total += Decimal(above) / (below * 2 * k * (2 * k - 1) * x ** (2 * k - 1))
    return total


def errors_of_ratio(start: int, end: int) -> tuple[float, float]:
    """Absolute error of :func:`log_factorial_ratio`, and the error relative to the exact value."""
    with localcontext() as context:
        context.prec = 60
        exact = exact_log_factorial(end) - exact_log_factorial(start)
        error = abs(Decimal(log_factorial_ratio(start, end)) - exact)
        return float(error), float(error / abs(exact)) if exact else float(error)


@pytest.mark.parametrize("start", [100, 5_000, 10**9, 2**52 + 1, 2**53 - 400])
def test_the_high_precision_reference_is_the_logarithm_of_the_exact_product(
    start: int,
) -> None:
    with localcontext() as context:
        context.prec = 60
        for step in (1, 2, 17, 400):
            product = Decimal(math.prod(range(start + 1, start + step + 1)))
            difference = exact_log_factorial(start + step) - exact_log_factorial(start)
            assert abs(difference - product.ln()) < Decimal("1e-36")


def test_ratios_of_small_factorials_are_those_of_exact_integers() -> None:
    ends = [*range(40), *range(2040, 2056)]
    for start, end in itertools.product(ends, repeat=2):
        absolute, relative = errors_of_ratio(start, end)
        assert absolute < 1e-11
        assert relative < 1e-12


@given(start=st.integers(0, MAX_COUNT), end=st.integers(0, MAX_COUNT))
def test_ratios_of_any_factorials_have_a_small_relative_error(start: int, end: int) -> None:
    assert errors_of_ratio(start, end)[1] < 1e-12


BILLIONTHS = [(10**k // 10, 10**k, 100, 0, 1e-9) for k in range(10)]
ROUNDINGS = [(2 ** (k - 1), 2**k - 1, 40, 1, 4 * 2.0**-53) for k in range(12, 54)]


@pytest.mark.parametrize(("low", "high", "number", "kind", "limit"), BILLIONTHS + ROUNDINGS)
def test_ratios_a_few_deviations_apart_are_as_exact_as_a_float_can_hold(
    low: int, high: int, number: int, kind: int, limit: float
) -> None:
    """Up to a billion to a billionth; and to four units of rounding: 3e-6 in all at 2^53, where the value is 1e10."""
    rng = np.random.default_rng([1, high])
    for start in rng.integers(low, high, size=number, endpoint=True).tolist():
        step = round(3 * math.sqrt(start) * rng.uniform(-1, 1))
        assert errors_of_ratio(start, min(MAX_COUNT, max(0, start + step)))[kind] < limit


# Binomial --------------------------------------------------------------------------------------------------------
BINOMIAL_CASES = [
    # by inversion: n p < 10, and the same from above: p > 1/2
    (1, 0.5),
    (1, 0.01),
    (5, 0.3),
    (20, 0.1),
    (19, 0.5),
    (20, 0.499),
    (1000, 0.0099),
    (10**9, 5e-9),
    (2**53, 2.0**-52),
    (1, 0.9),
    (20, 0.93),
    (1000, 0.9911),
    # by rejection, and the same from above
    (20, 0.5),
    (25, 0.41),
    (40, 0.26),
    (100, 0.3),
    (1000, 0.5),
    (10_000, 0.0011),
    (10**6, 2e-5),
    (10**12, 1e-9),
    (20, 0.5000001),
    (40, 0.74),
    (100, 0.9),
    (10_000, 0.7),
    (10**6, 1 - 2e-5),
]


@pytest.mark.parametrize(
    "case",
    every_third(len(BINOMIAL_CASES)),
    ids=[f"{n}-{p:.7g}" for n, p in BINOMIAL_CASES],
)
def test_binomial_draws_have_the_binomial_law(case: int) -> None:
    """Hypothesis: the counts of the values drawn are multinomial with SciPy's probabilities (chi-square)."""
    n, p = BINOMIAL_CASES[case]
    draws = drawn(fill_binomial, stream_for(1, case), DRAWS, n, p)
    cells = window(n * p, math.sqrt(n * p * (1 - p)), 0, n)
    probabilities = stats.binom.pmf(np.array(cells), n, p)
    assert chi_square_p_value(tally(draws, cells), probabilities) > FALSE_ALARM / len(BINOMIAL_CASES)


SIZES = (10**9, 10**10, 10**12, 2**52, MAX_COUNT)
SHARES = (0.5, 0.3, 0.011, 0.75, 1 - 2.0**-7)
LARGE_BINOMIAL_CASES = [(n, p) for n in SIZES for p in SHARES]


@given(
    n=st.integers(0, MAX_COUNT),
    p=st.just(0.0) | st.just(1.0) | st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_binomial_draws_lie_within_their_range(n: int, p: float, seed: int) -> None:
    draws = drawn(fill_binomial, stream_for(1, 200, seed), 20, n, p)
    assert draws.min() >= (n if p == 1.0 else 0)
    assert draws.max() <= (n if p > 0.0 else 0)


# Hypergeometric --------------------------------------------------------------------------------------------------
HYPERGEOMETRIC_CASES = [
    # one at a time: the smaller of sample, rest, good and bad is at most 12
    (1, 1, 1),
    (5, 5, 3),
    (3, 20, 10),
    (24, 24, 12),
    (1000, 2000, 12),
    (12, 10**6, 400_000),
    # good > bad, or more than half is drawn, or both
    (20, 3, 10),
    (6, 6, 10),
    (4, 9, 11),
    (9, 4, 11),
    (10**6, 12, 700_000),
    (10**9, 10**9, 12),
    # by rejection
    (13, 13, 13),
    (30, 30, 30),
    (20, 40, 15),
    (40, 20, 15),
    (20, 40, 46),
    (40, 20, 46),
    (100, 900, 500),
    (900, 100, 501),
    (1000, 1000, 1000),
    (13, 10_000, 13),
    (10_000, 13, 10_000),
    (5000, 100_000, 2000),
    (10**6, 10**6, 50),
    (50, 10**6, 10**5),
    (10**8, 10**9, 200),
]


def hypergeometric_law(good: int, bad: int, sample: int, cells: range) -> FloatArray:
    """The law by SciPy, and by exact integers for large totals, where SciPy's loses digits."""
    total = good + bad
    if total < 10**5:
        return np.asarray(stats.hypergeom.pmf(np.array(cells), total, good, sample))
    if bad < min(good, sample):
        return hypergeometric_law(bad, good, sample, range(sample - cells.stop + 1, sample - cells.start + 1))[::-1]
    few, many = sorted((good, sample))  # the law is symmetric in the two
    ways = math.comb(total, few)
    return np.array([math.comb(many, x) * math.comb(total - many, few - x) / ways for x in cells])


@pytest.mark.parametrize(
    "case",
    every_third(len(HYPERGEOMETRIC_CASES)),
    ids=["-".join(map(str, case)) for case in HYPERGEOMETRIC_CASES],
)
def test_hypergeometric_draws_have_the_hypergeometric_law(case: int) -> None:
    """Hypothesis: the counts of the values drawn are multinomial with the hypergeometric law (chi-square)."""
    good, bad, sample = HYPERGEOMETRIC_CASES[case]
    total = good + bad
    share = good / total
    draws = drawn(fill_hypergeometric, stream_for(2, case), DRAWS, good, bad, sample)
    deviation = math.sqrt(sample * share * (1 - share) * (total - sample) / (total - 1))
    cells = window(sample * share, deviation, max(0, sample - bad), min(good, sample))
    probabilities = hypergeometric_law(good, bad, sample, cells)
    assert chi_square_p_value(tally(draws, cells), probabilities) > FALSE_ALARM / len(HYPERGEOMETRIC_CASES)


LARGE_HYPERGEOMETRIC_CASES = [
    (10**9, 10**9, 10**9),
    (3 * 10**9, 3 * 10**9, 3 * 10**9),
    (4 * 10**9, 4 * 10**9, 4 * 10**9),
    (10**8, 10**9, 4 * 10**8),
    (10**9, 10**8, 4 * 10**8),
    (10**9, 10**8, 9 * 10**8),
    (10**11, 10**11, 10**11),
    (10**12, 10**12, 3 * 10**11),
    (10**12, 3 * 10**12, 3 * 10**12),
    (2**52, 2**52, 2**52),
    (2**52, 2**52, 10**9),
    (2**40, 2**52, 2**51),
]


LARGE_CASES: list[tuple[int, tuple[Any, ...], Fraction, float]] = [
    *[(1, (n, p), n * Fraction(p), n * p * (1 - p)) for n, p in LARGE_BINOMIAL_CASES],
    *[
        (
            2,
            (g, b, n),
            Fraction(n * g, g + b),
            float(Fraction(n * g * b * (g + b - n), (g + b) ** 2 * (g + b - 1))),
        )
        for g, b, n in LARGE_HYPERGEOMETRIC_CASES
    ],
]
"""Law, its arguments, mean and variance."""


@pytest.mark.parametrize(
    "case",
    every_third(len(LARGE_CASES)),
    ids=["-".join(f"{x:.17g}" for x in case[1]) for case in LARGE_CASES],
)
def test_draws_from_huge_counts_are_normal_to_the_last_bit(
    case: int,
) -> None:
    """Hypothesis: standardised draws are normal; with deviations above 2500 the law differs by less than 1e-4."""
    law, arguments, mean, variance = LARGE_CASES[case]
    assert variance > 2500**2
    fill: Any = fill_binomial if law == 1 else fill_hypergeometric
    draws = drawn(fill, stream_for(law, 100 + case), LARGE_DRAWS, *arguments)
    assert_normal(draws, mean, variance, FALSE_ALARM / len(LARGE_CASES))


@given(data=st.data(), seed=st.integers(0, 2**32))
def test_hypergeometric_draws_keep_to_what_can_be_drawn(data: st.DataObject, seed: int) -> None:
    sizes = st.integers(0, 40) | st.integers(0, MAX_COUNT // 2)
    good = data.draw(sizes)
    bad = data.draw(sizes)
    sample = data.draw(st.integers(0, good + bad))
    draws = drawn(fill_hypergeometric, stream_for(2, 200, seed), 20, good, bad, sample)
    assert draws.min() >= max(0, sample - bad)
    assert draws.max() <= min(good, sample)


# Multinomial -----------------------------------------------------------------------------------------------------
MULTINOMIAL_CASES: list[tuple[int, list[float]]] = [
    (1, [0.2, 0.5, 0.3]),
    (6, [0.2, 0.5, 0.3]),
    (5, [0.1, 0.2, 0.3, 0.4]),
    (6, [0.0, 0.5, 0.0, 0.2, 0.3, 0.0]),
    (30, [0.45, 0.1, 0.45]),
    (40, [0.98, 0.01, 0.01]),
]


@pytest.mark.parametrize("case", every_third(len(MULTINOMIAL_CASES)))
def test_multinomial_draws_have_the_joint_law(case: int) -> None:
    """Hypothesis: the counts of the vectors drawn are multinomial with SciPy's probabilities (chi-square)."""
    n, p = MULTINOMIAL_CASES[case]
    shares = conditional_shares(np.array(p))
    out = drawn(fill_multinomial, stream_for(3, case), (JOINT_DRAWS, len(p)), n, shares)
    vectors, observed = tally_vectors(out, [n if x > 0 else 0 for x in p], n)
    used = [k for k, x in enumerate(p) if x > 0]
    probabilities = stats.multinomial.pmf(vectors[:, used], n, np.array(p)[used])
    assert chi_square_p_value(observed, probabilities) > FALSE_ALARM / len(MULTINOMIAL_CASES)


@pytest.mark.parametrize("n", [10**6, 10**9, 10**12, MAX_COUNT])
def test_huge_multinomial_draws_vary_together_as_they_should(n: int) -> None:
    """Hypothesis: Pearson's statistic of a draw is chi-square with K - 1 degrees of freedom, each count is normal.

    Kolmogorov-Smirnov, 5 tests for each of 4 sizes.
    """
    p = np.array([0.1, 0.4, 0.05, 0.45])
    out = drawn(fill_multinomial, stream_for(4, n), (LARGE_DRAWS, 4), n, conditional_shares(p))
    means = [n * Fraction(x) for x in p.tolist()]
    off = np.stack(
        [(out[:, k] - math.floor(m)) - float(m - math.floor(m)) for k, m in enumerate(means)],
        axis=1,
    )
    statistic = (off**2 / (n * p)).sum(axis=1)
    assert stats.kstest(statistic, stats.chi2(3).cdf).pvalue > FALSE_ALARM / 20
    for k in range(4):
        assert stats.kstest(off[:, k] / np.sqrt(n * p[k] * (1 - p[k])), stats.norm.cdf).pvalue > FALSE_ALARM / 20


@given(
    n=st.integers(0, 100) | st.integers(0, MAX_COUNT),
    weights=st.lists(st.just(0.0) | st.floats(1e-12, 1.0), min_size=1, max_size=8).filter(any),
    seed=st.integers(0, 2**32),
)
def test_multinomial_draws_are_possible_splits_of_n(n: int, weights: list[float], seed: int) -> None:
    p = np.array(weights) / sum(weights)
    out = drawn(fill_multinomial, stream_for(5, seed), (10, len(p)), n, conditional_shares(p))
    assert out.min() >= 0
    assert out.sum(axis=1).tolist() == [n] * 10
    assert (out[:, p == 0] == 0).all()


# Splitting counts ------------------------------------------------------------------------------------------------
SPLIT_CASES: list[tuple[list[int], int]] = [
    ([3, 4, 2], 4),
    ([3, 4, 2], 8),
    ([0, 5, 0, 1, 3], 3),
    ([30, 25, 40], 50),
    ([1, 90, 2], 30),
]


@pytest.mark.parametrize("case", every_third(len(SPLIT_CASES)))
def test_split_counts_have_the_joint_law(case: int) -> None:
    """Hypothesis: the counts of the vectors drawn follow SciPy's multivariate hypergeometric law (chi-square)."""
    counts, sample = SPLIT_CASES[case]
    held = np.array(counts, dtype=np.int64)
    out = drawn(fill_split, stream_for(6, case), (JOINT_DRAWS, len(counts)), held, sample)
    vectors, observed = tally_vectors(out, counts, sample)
    probabilities = stats.multivariate_hypergeom.pmf(vectors, counts, sample)
    assert chi_square_p_value(observed, probabilities) > FALSE_ALARM / len(SPLIT_CASES)


@pytest.mark.parametrize("scale", first_of([10**5, 10**12, 10**8, 10**9, 10**11, 10**14], 2))
def test_large_split_counts_vary_together_as_they_should(scale: int) -> None:
    """Hypothesis: Pearson's statistic times (N-1)/(N-n) is chi-square with K - 1 degrees of freedom.

    Kolmogorov-Smirnov, one test for each of 6 sizes.
    """
    counts = np.array([7, 1, 20, 2], dtype=np.int64) * scale
    total = 30 * scale
    sample = 12 * scale
    out = drawn(fill_split, stream_for(7, scale), (LARGE_DRAWS, 4), counts, sample)
    means = counts // 5 * 2
    statistic = ((out - means).astype(np.float64) ** 2 / means).sum(axis=1) * ((total - 1) / (total - sample))
    assert stats.kstest(statistic, stats.chi2(3).cdf).pvalue > FALSE_ALARM / 6


@given(data=st.data(), seed=st.integers(0, 2**32))
def test_split_counts_are_possible_samples(data: st.DataObject, seed: int) -> None:
    sizes = st.integers(0, 20) | st.integers(0, MAX_COUNT // 8)
    counts = np.array(data.draw(st.lists(sizes, min_size=1, max_size=8)), dtype=np.int64)
    total = int(counts.sum())
    sample = data.draw(st.just(0) | st.just(total) | st.integers(0, total))
    out = drawn(fill_split, stream_for(8, seed), (10, len(counts)), counts, sample)
    assert out.min() >= 0
    assert (out <= counts).all()
    assert out.sum(axis=1).tolist() == [sample] * 10
