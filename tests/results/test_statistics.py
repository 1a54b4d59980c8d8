"""Intervals of means and paired differences against SciPy; the power of the number of seeds; runs in groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import InputError
from fed_ucbvi.results.run_table import RunTable
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


def test_the_interval_of_a_mean_of_costs_never_reaches_zero() -> None:
    wide = np.random.default_rng(1).exponential(size=4)
    mean, low, high = mean_interval(wide)
    assert 0 < low < mean < high
    assert mean / low == pytest.approx(high / mean)


def test_a_narrow_interval_of_a_mean_is_students() -> None:
    narrow = 100 + np.random.default_rng(1).normal(size=4)
    np.testing.assert_allclose(mean_interval(narrow), student_interval(narrow), rtol=1e-3)


def test_the_interval_of_a_mean_of_numbers_of_both_signs_is_students() -> None:
    numbers = np.random.default_rng(1).exponential(size=4) - 1
    np.testing.assert_array_equal(mean_interval(numbers), student_interval(numbers))


def test_negative_numbers_are_no_costs_so_none_of_them_fails() -> None:
    costs = np.random.default_rng(1).exponential(size=4)
    assert summarise(-costs).failing == 0


def test_a_single_run_is_its_own_band() -> None:
    assert [float(part) for part in mean_interval([7.0])] == [7.0, 7.0, 7.0]


def test_a_mean_of_no_runs_is_refused() -> None:
    with pytest.raises(InputError, match="at least one run"):
        mean_interval([])


@pytest.mark.parametrize(("failing", "runs"), [(0, 1), (0, 50), (3, 20), (7, 7)])
def test_the_interval_of_a_share_is_scipys_exact_one(failing: int, runs: int) -> None:
    ends = stats.binomtest(failing, runs).proportion_ci(0.95, "exact")
    assert share_interval(failing, runs) == pytest.approx((ends.low, ends.high))


def test_a_summary_says_how_many_runs_carry_the_mean() -> None:
    values = [3.0, 1.0, 2.0, 2.0, 6.1, 6.0]
    found = summarise(values)
    assert found.runs == 6
    assert found.median == 2.5
    assert found.failing == 0
    found = summarise([*values, 100.0])
    assert (found.failing, found.failing_low, found.failing_high) == (
        1,
        *share_interval(1, 7),
    )
    assert math.isnan(summarise([1.0]).deviation)


@pytest.mark.parametrize("seeds", [2, 5, 40])
def test_the_interval_of_a_paired_difference_is_that_of_scipys_paired_test(
    seeds: int,
) -> None:
    rng = np.random.default_rng(seeds)
    x = rng.normal(3, 1, seeds)
    y = rng.normal(2, 2, seeds)
    found = paired_difference(x, y)
    theirs = stats.ttest_rel(x, y)
    ends = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.decided == (theirs.pvalue < 0.05)
    assert found.seeds == seeds
    assert found.lower == sum(a < b for a, b in zip(x, y, strict=True))
    assert found.median == np.median(x - y)
    assert found.outcome == ("undecided" if not found.decided else "lower" if found.mean < 0 else "higher")


def test_the_ratio_excludes_one_exactly_where_the_difference_excludes_zero() -> None:
    rng = np.random.default_rng(5)
    decided = []
    for _ in range(200):
        x = rng.gamma(9, 1, 6)
        y = rng.gamma(14, 1, 6)
        ratio = paired_ratio(x, y)
        difference = paired_difference(x, y)
        assert ratio.low < ratio.mean < ratio.high
        assert (ratio.low > 1 or ratio.high < 1) == difference.decided
        decided.append(difference.decided)
    assert 20 < sum(decided) < 180


def test_the_ends_of_a_ratio_are_where_scipys_paired_test_just_does_not_reject() -> None:
    rng = np.random.default_rng(6)
    x = rng.gamma(9, 1, 8)
    y = rng.gamma(14, 1, 8)
    for rho in paired_ratio(x, y)[1:]:
        assert stats.ttest_rel(x, rho * y).pvalue == pytest.approx(0.05)


def test_a_ratio_to_a_mean_that_may_be_zero_is_unbounded() -> None:
    ratio = paired_ratio([1.0, 2.0, 3.0], [-1.0, 0.5, 1.0])
    assert (ratio.low, ratio.high) == (-math.inf, math.inf)


def test_a_difference_of_a_single_pair_is_unbounded() -> None:
    found = paired_difference([1.0], [2.0])
    assert found.mean == -1.0
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.seeds_needed is None
    assert not found.decided


def test_a_ratio_of_a_single_pair_is_unbounded() -> None:
    assert paired_ratio([1.0], [2.0]) == (0.5, -math.inf, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", first_of([3, 10]))
def test_paired_intervals_cover_the_truth_as_often_as_their_level(
    seeds: int,
) -> None:
    """Hypothesis: with normal pairs both 95 % intervals cover the truth in 95 % of samples.

    Of 4000 intervals 3800 do, with a standard deviation of 13.8; a fair interval falls out of 3745 to 3855 (four
    deviations) with probability 1e-4.
    """
    rng = np.random.default_rng(seeds)
    hits = np.zeros(2, dtype=int)
    for _ in range(4000):
        shared = rng.normal(0, 3, seeds)  # as of one environment that two algorithms meet
        x = 30 + shared + rng.normal(0, 1, seeds)
        y = 20 + shared + rng.normal(0, 1, seeds)
        difference = paired_difference(x, y)
        ratio = paired_ratio(x, y)
        hits += [
            difference.low <= 10 <= difference.high,
            ratio.low <= 1.5 <= ratio.high,
        ]
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


def test_no_number_of_seeds_decides_a_difference_of_zero() -> None:
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1e-300, 1.0) is None
    assert seeds_needed(0.0, 0.0) is None


def test_two_seeds_decide_a_difference_without_noise() -> None:
    assert seeds_needed(3.0, 0.0) == 2
    assert seeds_needed(30.0, 1.0) == 2


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1.0], [1.0, 2.0], "equal length"),
        ([], [], "equal length"),
        ([math.nan, 1], [1, 2], "finite"),
    ],
)
def test_unequal_or_unknown_pairs_are_refused(x: list[float], y: list[float], message: str) -> None:
    for compare in (paired_difference, paired_ratio):
        with pytest.raises(InputError, match=message):
            compare(x, y)


def table_of(seeds: dict[str, range], labels: dict[str, str] | None = None) -> RunTable[float]:
    """Runs of algorithms with M = 2 and 5; a run is a number that says whose it is."""
    rows = [
        (
            {
                "algorithm": name,
                "label": name.upper(),
                "algorithm.scale": len(name),
                "environment": "e",
                "agents": M,
            },
            (("run", seed), ("seed", seed)),
            100.0 * len(name) + 10 * M + seed,
        )
        for M in (2, 5)
        for name, known in seeds.items()
        for seed in known
    ]
    return RunTable.of_rows(rows, labels)


def test_runs_that_differ_in_seeds_alone_are_one_group_whatever_their_order() -> None:
    table = table_of({"a": range(3), "bb": range(4)})
    assert [(group["algorithm"], group["agents"], len(group)) for group in table] == [
        ("a", 2, 3), ("bb", 2, 4), ("a", 5, 3), ("bb", 5, 4),
    ]  # fmt: skip
    assert table.values("agents") == [2, 5]
    assert table.having(agents=5, algorithm="bb").runs == [250.0, 251.0, 252.0, 253.0]
    assert table.where(lambda group: len(group) == 3).values("algorithm") == ["a"]


def test_a_table_is_split_into_groups_that_differ_in_some_settings_alone() -> None:
    table = table_of({"a": range(2), "bb": range(2)})
    assert [part.values("algorithm") for part in table.split_rest("agents")] == [
        ["a"],
        ["bb"],
    ]
    assert [part.values("agents") for part in table.split_rest("algorithm")] == [
        [2],
        [5],
    ]
    assert [len(part) for part in table.split_rest(["algorithm", "agents"])] == [4]
    assert table.having(agents=3).split_rest("algorithm") == []
    with pytest.raises(InputError, match="unknown setting 'agent'"):
        table.split_rest("agent")


def test_a_counterpart_differs_in_one_setting() -> None:
    table = table_of({"a": range(1, 4), "bb": range(2, 9)})
    mine = table.having(algorithm="a", agents=5).groups[0]
    (other,) = table.having(algorithm="bb").counterparts(mine)
    assert (other["algorithm"], other["agents"]) == ("bb", 5)


def test_groups_are_paired_over_the_seeds_that_both_have() -> None:
    table = table_of({"a": range(1, 4), "bb": range(2, 9)})
    mine = table.having(algorithm="a", agents=5).groups[0]
    (other,) = table.having(algorithm="bb").counterparts(mine)
    pairs = mine.paired(other, float)
    assert pairs.x == [152.0, 153.0]
    assert pairs.y == [252.0, 253.0]
    np.testing.assert_array_equal(table.having(agents=5).in_common(float), [[152, 153], [252, 253]])


def test_no_groups_have_no_seeds_in_common() -> None:
    table = table_of({"a": range(1, 4), "bb": range(2, 9)})
    assert table.having(algorithm="none").in_common(float).size == 0


def test_a_summary_uses_all_seeds_of_a_group() -> None:
    table = table_of({"a": range(1, 4), "bb": range(2, 9)})
    assert table.having(algorithm="a", agents=5).groups[0].summary(float).mean == 152.0


def test_groups_are_called_by_what_sets_them_apart_or_as_they_are_asked_to() -> None:
    table = table_of({"a": range(2), "bb": range(2)}, {"bb": "ours", "M = 5": "many"})
    assert [(named.name, named.rest_name) for named in table.divide("algorithm")] == [
        ("A", "M = 2"), ("ours", "M = 2"), ("A", "many"), ("ours", "many"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="unknown algorithm or group 'c'"):
        table_of({"a": range(2)}, {"c": "ours"}).divide("algorithm")
    with pytest.raises(InputError, match="two of the given labels are the same"):
        table_of({"a": range(2)}, {"a": "x", "b": "x"})
