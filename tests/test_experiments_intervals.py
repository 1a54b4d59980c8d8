"""Bands of means: the bootstrap is SciPy's, and few runs have the paper's standard deviation instead."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import InputError
from fed_ucbvi.results.intervals import BOOTSTRAP_FROM, bootstrap_ends, mean_and_spread, spread_name


@pytest.mark.parametrize("runs", [20, 50])
@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal"])
def test_the_bootstrap_agrees_with_scipys(runs: int, law: str) -> None:
    """Both draw at random, so ends agree up to Monte Carlo error: a few per cent of the interval's length.

    An end is a quantile of some thousand means; its own standard error is about 2 % of the length, so 12 % is six
    standard errors of a difference and more, and skewness alone moves the ends of the percentile method by more.
    """
    values = getattr(np.random.default_rng(runs), law)(size=(runs, 4))
    low, high = bootstrap_ends(values)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=9999, method="BCa", rng=np.random.default_rng(1))
    length = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert np.abs(low - theirs.confidence_interval.low).max() < 0.12 * length.max()
    assert np.abs(high - theirs.confidence_interval.high).max() < 0.12 * length.max()


def test_the_bootstrap_covers_the_mean_of_skewed_samples_about_as_often_as_it_says() -> None:
    """Hypothesis: coverage of the 95 % interval for 40 exponential samples is at least 90 %.

    400 intervals at a true coverage of 93 % fall below 360 hits with probability 0.01; the seed is fixed.
    """
    samples = np.random.default_rng(3).exponential(size=(40, 400))
    low, high = bootstrap_ends(samples)
    assert ((low <= 1) & (high >= 1)).sum() >= 360


def test_the_same_samples_give_the_same_interval_whatever_else_is_asked() -> None:
    values = np.random.default_rng(0).normal(size=(30, 3))
    assert bootstrap_ends(values)[0][1] == bootstrap_ends(values[:, 1])[0]


def test_samples_all_alike_have_an_interval_of_length_zero() -> None:
    low, high = bootstrap_ends(np.full((25, 2), 30_000.0))
    assert low.tolist() == high.tolist() == [30_000.0, 30_000.0]


def test_few_runs_have_the_standard_deviation_and_many_the_interval() -> None:
    values = np.random.default_rng(1).normal(size=BOOTSTRAP_FROM)
    few = mean_and_spread(values[:5])
    assert few.high - few.mean == pytest.approx(np.std(values[:5], ddof=1))
    many = mean_and_spread(values)
    assert (float(many.low), float(many.high)) == tuple(float(end) for end in bootstrap_ends(values))
    assert "deviation" in spread_name(5)
    assert "bootstrap" in spread_name(BOOTSTRAP_FROM)
    assert [float(part) for part in mean_and_spread([7.0])] == [7.0, 7.0, 7.0]


def test_the_bootstrap_of_one_run_is_refused() -> None:
    with pytest.raises(InputError, match="at least two"):
        bootstrap_ends([1.0])
