"""COW and PERT-COW against brute force over all sets of agents."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fed_ucbvi.algorithms.robust_mean import FEW, largest_clique, liars_at_most, pert_cow, trim, workspace
from fed_ucbvi.core.types import CountArray, FloatArray
from naive_byzan import all_largest_cliques, naive_cow


def clique_of(low: FloatArray, high: FloatArray) -> tuple[int, tuple[int, ...]]:
    members = np.zeros(len(low), dtype=np.bool_)
    size = largest_clique(low, high, np.empty_like(low), np.empty_like(high), members)
    return size, tuple(np.flatnonzero(members).tolist())


def random_reports(rng: np.random.Generator, m: int) -> tuple[FloatArray, CountArray]:
    counts = rng.choice([0, 1, 2, 5, 5, 40, 1000], size=m).astype(np.int64)
    return rng.normal(size=m) * rng.choice([0.1, 1.0, 10.0]), counts


def test_the_sweep_finds_a_largest_clique_as_trying_all_sets_does() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        m = int(rng.integers(1, 9))
        grid = rng.integers(0, 8, size=(2, m)).astype(float)
        low, high = np.minimum(*grid), np.maximum(*grid)
        size, members = clique_of(low, high)
        assert len(members) == size
        assert members in all_largest_cliques(list(zip(low.tolist(), high.tolist(), strict=True)))


def test_of_two_largest_cliques_the_lower_one_is_taken() -> None:
    low, high = np.array([5.0, 0.0, 5.5, 0.5]), np.array([6.0, 1.0, 6.5, 1.5])
    assert clique_of(low, high) == (2, (1, 3))


def test_intervals_that_touch_in_one_point_have_it_in_common() -> None:
    assert clique_of(np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0, 6.0])) == (2, (0, 1))
    assert clique_of(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == (2, (0, 1))


@pytest.mark.parametrize("m", [FEW, FEW + 1, 300])
def test_many_intervals_are_swept_as_well_as_few(m: int) -> None:
    rng = np.random.default_rng(m)
    low = rng.normal(size=m)
    high = low + rng.exponential(0.3, size=m)
    covering = [int(((low <= x) & (x <= high)).sum()) for x in low]
    size, members = clique_of(low, high)
    assert size == len(members) == max(covering)


def test_pert_cow_equals_brute_force() -> None:
    rng = np.random.default_rng(3)
    for _ in range(400):
        m = int(rng.integers(1, 9))
        means, counts = random_reports(rng, m)
        sigma, alpha, log = (
            float(rng.uniform(0.2, 3)),
            float(rng.choice([0.0, 0.1, 0.3])),
            float(rng.uniform(0.01, 4)),
        )
        epsilon = float(rng.choice([0.0, 1e-3, 0.2]))
        found = pert_cow(means, counts, sigma, alpha, epsilon, log, 0.7 * log, workspace(m))
        naive = naive_cow(means.tolist(), counts.tolist(), sigma, alpha, log, 0.7 * log, epsilon=epsilon)
        assert found == pytest.approx(naive)


@pytest.mark.parametrize("m", [20, FEW + 20])
def test_any_order_of_the_agents_gives_the_same_mean(m: int) -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        means, counts = rng.normal(size=m), rng.integers(1, 100, size=m)
        order = rng.permutation(m)
        first = pert_cow(means, counts, 1.0, 0.1, 1e-6, 0.5, 0.5, workspace(m))
        second = pert_cow(means[order], counts[order], 1.0, 0.1, 1e-6, 0.5, 0.5, workspace(m))
        assert first == pytest.approx(second, rel=1e-12)


@pytest.mark.parametrize("kind", ["far", "near", "opposite"])
def test_a_minority_of_liars_moves_the_mean_by_less_than_the_error(kind: str) -> None:
    rng = np.random.default_rng(5)
    m, f, sigma, delta = 20, 4, 1.0, 0.01
    log_each, log_all = math.log(2 * m / delta), math.log(2 / delta)
    for _ in range(200):
        counts = rng.integers(1, 2000, size=m)
        means = 3.0 + sigma * rng.normal(size=m) / np.sqrt(counts)
        width = sigma * np.sqrt(2 * log_each / counts.max())
        means[:f] = {"far": 1e6, "near": 3.0 + 1.9 * width, "opposite": -3.0}[kind]
        counts[:f] = counts.max() if kind == "near" else 10**9
        mean, error = pert_cow(means, counts, sigma, f / m, 0.0, log_each, log_all, workspace(m))
        assert abs(mean - 3.0) < error


def test_no_agent_weighs_more_than_the_count_of_rank_two_f_plus_one() -> None:
    counts = np.array([7, 1_000_000, 3, 9, 0, 8])
    trimmed = np.zeros(6, dtype=np.int64)
    assert trim(counts, 1, trimmed, np.zeros(6, dtype=np.int64)) == 8
    assert trimmed.tolist() == [7, 8, 3, 8, 0, 8]
    assert trim(counts, 0, trimmed, np.zeros(6, dtype=np.int64)) == 1_000_000
    assert trim(counts, 3, trimmed, np.zeros(6, dtype=np.int64)) == 0


def test_too_few_agents_with_data_give_no_mean_and_an_infinite_error() -> None:
    means, counts = np.array([4.0, 5.0, 6.0]), np.array([9, 9, 0])
    assert pert_cow(means, counts, 1.0, 0.3, 0.1, 1.0, 1.0, workspace(3)) == (0.0, math.inf)


@pytest.mark.parametrize(("alpha", "m", "f"), [(0.1, 30, 3), (0.1, 31, 4), (0.2, 15, 3), (0.0, 9, 0), (0.3, 10, 3)])
def test_the_number_of_liars_is_rounded_up_but_not_by_rounding_errors(alpha: float, m: int, f: int) -> None:
    assert liars_at_most(alpha, m) == f
