"""Intervals of means and of paired differences are SciPy's; so many seeds decide as often as is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import InputError
from fed_ucbvi.results.statistics import (
    mean_interval,
    paired_difference,
    paired_ratio,
    seeds_needed,
    share_interval,
    student_interval,
    student_quantile,
    summarise,
)
from matrices import first_of


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 101, 10_000])
def test_students_quantile_equals_scipys(freedom: int) -> None:
    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-10)


def test_the_interval_of_a_mean_is_scipys_column_by_column() -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    mean, low, high = student_interval(values)
    ends = stats.t.interval(0.95, 2, values[:, 0].mean(), stats.sem(values[:, 0]))
    np.testing.assert_allclose([low[0], high[0]], ends)
    assert mean[1] == low[1] == high[1] == 5


def test_the_interval_of_a_mean_of_costs_never_reaches_zero_and_is_students_where_it_is_small() -> None:
    rng = np.random.default_rng(1)
    wide, narrow = rng.exponential(size=4), 100 + rng.normal(size=4)
    mean, low, high = mean_interval(wide)
    assert 0 < low < mean < high
    assert mean / low == pytest.approx(high / mean)
    np.testing.assert_allclose(mean_interval(narrow), student_interval(narrow), rtol=1e-3)
    np.testing.assert_array_equal(mean_interval(wide - 1), student_interval(wide - 1))
    assert summarise(-wide).failing == 0, "what is negative is no cost"


def test_a_single_run_is_its_own_band_and_no_run_has_none() -> None:
    assert [float(part) for part in mean_interval([7.0])] == [7.0, 7.0, 7.0]
    with pytest.raises(InputError, match="at least one run"):
        mean_interval([])


@pytest.mark.parametrize(("failing", "runs"), [(0, 1), (0, 50), (3, 20), (7, 7)])
def test_the_interval_of_a_share_is_scipys_exact_one(failing: int, runs: int) -> None:
    ends = stats.binomtest(failing, runs).proportion_ci(0.95, "exact")
    assert share_interval(failing, runs) == pytest.approx((ends.low, ends.high))


def test_a_summary_says_how_many_runs_carry_the_mean() -> None:
    values = [3.0, 1.0, 2.0, 2.0, 6.1, 6.0]
    found = summarise(values)
    assert (found.runs, found.median, found.failing) == (6, 2.5, 0)
    found = summarise([*values, 100.0])
    assert (found.failing, found.failing_low, found.failing_high) == (1, *share_interval(1, 7))
    assert math.isnan(summarise([1.0]).deviation)


@pytest.mark.parametrize("seeds", [2, 5, 40])
def test_the_interval_of_a_paired_difference_is_that_of_scipys_paired_test(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    x, y = rng.normal(3, 1, seeds), rng.normal(2, 2, seeds)
    found, theirs = paired_difference(x, y), stats.ttest_rel(x, y)
    ends = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.decided == (theirs.pvalue < 0.05)
    assert (found.seeds, found.lower) == (seeds, sum(a < b for a, b in zip(x, y, strict=True)))
    assert found.median == np.median(x - y)
    assert found.outcome == ("undecided" if not found.decided else "lower" if found.estimate < 0 else "higher")


def test_the_ratio_excludes_one_exactly_where_the_difference_excludes_zero() -> None:
    rng = np.random.default_rng(5)
    decided = []
    for _ in range(200):
        x, y = rng.gamma(9, 1, 6), rng.gamma(14, 1, 6)
        ratio, difference = paired_ratio(x, y), paired_difference(x, y)
        assert ratio.low < ratio.estimate < ratio.high
        assert (ratio.low > 1 or ratio.high < 1) == difference.decided
        decided.append(difference.decided)
    assert 20 < sum(decided) < 180


def test_the_ends_of_a_ratio_are_where_scipys_paired_test_just_does_not_reject() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.gamma(9, 1, 8), rng.gamma(14, 1, 8)
    for rho in paired_ratio(x, y)[1:3]:
        assert stats.ttest_rel(x, rho * y).pvalue == pytest.approx(0.05)


def test_a_single_pair_decides_nothing_and_a_ratio_to_what_may_be_zero_has_no_ends() -> None:
    assert paired_ratio([1.0, 2.0, 3.0], [-1.0, 0.5, 1.0])[1:3] == (-math.inf, math.inf)
    found = paired_difference([1.0], [2.0])
    assert (found.estimate, found.low, found.high, found.seeds_needed) == (-1.0, -math.inf, math.inf, None)
    assert not found.decided
    assert paired_ratio([1.0], [2.0])[:3] == (0.5, -math.inf, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", first_of([3, 10]))
def test_intervals_of_differences_and_ratios_cover_the_truth_as_often_as_they_say(seeds: int) -> None:
    """Hypothesis: with normal pairs both 95 % intervals cover the truth in 95 % of samples.

    Of 4000 intervals 3800 do, with a standard deviation of 13.8; a fair interval falls out of 3745 to 3855 (four
    deviations) with probability 1e-4.
    """
    rng = np.random.default_rng(seeds)
    hits = np.zeros(2, dtype=int)
    for _ in range(4000):
        shared = rng.normal(0, 3, seeds)  # as of one environment that two algorithms meet
        x, y = 30 + shared + rng.normal(0, 1, seeds), 20 + shared + rng.normal(0, 1, seeds)
        difference, ratio = paired_difference(x, y), paired_ratio(x, y)
        hits += [difference.low <= 10 <= difference.high, ratio.low <= 1.5 <= ratio.high]
    assert (abs(hits - 3800) < 55).all()


@pytest.mark.parametrize("effect", [0.1, 0.3, 0.5, 0.7, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0, 13.0])
def test_the_seeds_needed_have_the_exact_power_of_a_paired_test(effect: float) -> None:
    """The power of n pairs is that of Student's test with noncentrality ``effect sqrt(n)`` (upper side)."""

    def power(n: int) -> float:
        return float(stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, effect * math.sqrt(n)))

    n = seeds_needed(-effect, 1.0)
    assert n is not None
    assert power(n) > 0.7995
    assert n == 2 or power(n - 1) < 0.8


def test_so_many_seeds_decide_in_four_of_five_simulated_comparisons() -> None:
    """Hypothesis: at the number of seeds needed 80 % of comparisons are decided (exactly: 80.3 %).

    Of 2000 comparisons 1600 to 1606 are, with a standard deviation of 18; a true claim falls out of 1530 to 1676
    (3.9 deviations) with probability 1e-4.
    """
    n = seeds_needed(1.0, 2.0)
    assert n == 34
    rng = np.random.default_rng(8)
    x, y = rng.normal(1, math.sqrt(2), (2000, n)), rng.normal(0, math.sqrt(2), (2000, n))
    assert 1530 <= sum(paired_difference(*pair).decided for pair in zip(x, y, strict=True)) <= 1676


def test_no_difference_is_never_decided_and_a_constant_one_at_once() -> None:
    assert seeds_needed(0.0, 1.0) is seeds_needed(1e-300, 1.0) is seeds_needed(0.0, 0.0) is None
    assert seeds_needed(3.0, 0.0) == seeds_needed(30.0, 1.0) == 2


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [([1.0], [1.0, 2.0], "equal length"), ([], [], "equal length"), ([math.nan, 1], [1, 2], "finite")],
)
def test_unequal_or_unknown_pairs_are_refused(x: list[float], y: list[float], message: str) -> None:
    for compare in (paired_difference, paired_ratio):
        with pytest.raises(InputError, match=message):
            compare(x, y)
