"""Effects of liars on reports and requests."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from commands import refusal
from fed_ucbvi import ByzanUCBVI, ConcurrentUCBVI, FedKLUCBVI, FedUCBVI, InputError, run
from fed_ucbvi.core.indexing import UNREACHABLE
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.liars import ATTACKS, FALSE_COUNT_FACTOR, MAX_FALSE, Liars, choose_liars
from problems import random_federation

H = 5
LYING = (1, 4)
HONEST = [0, 2, 3, 5]


def report(seed: int = 0) -> tuple[FloatArray, CountArray]:
    """Values and counts of six agents, three states and two actions; some counts are zero."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, H, (6, 3, 2)), rng.integers(0, 9, (6, 3, 2))


def tampered(attack: str, seed: int = 0, round_number: int = 0, exchange: int = 0) -> tuple[FloatArray, CountArray]:
    x, n = report(seed)
    Liars(LYING, attack).tamper_report(round_number, H, (x, n), exchange)
    return x, n


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_leave_the_rows_of_honest_agents(attack: str, seed: int) -> None:
    values, counts = report(seed)
    Liars(LYING, attack).tamper_report(0, H, (values, counts), 0)
    values_before, counts_before = report(seed)
    np.testing.assert_array_equal(values[HONEST], values_before[HONEST])
    np.testing.assert_array_equal(counts[HONEST], counts_before[HONEST])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("attack", ATTACKS)
def test_reports_of_liars_are_possible(attack: str, seed: int) -> None:
    values, counts = report(seed)
    Liars(LYING, attack).tamper_report(0, H, (values, counts), 0)
    assert np.isfinite(values).all()
    assert counts.min() >= 0


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_leave_arrays_of_other_types(attack: str) -> None:
    values, counts = report(0)
    flags = np.ones((6, 1), dtype=np.int8)
    states = np.arange(6, dtype=np.int32)[:, None]
    Liars(LYING, attack).tamper_report(0, H, (values, counts, flags, states), 0)
    assert flags.min() == 1
    assert states[:, 0].tolist() == list(range(6))


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_on_values_do_not_need_counts(attack: str) -> None:
    values, _ = report(0)
    Liars(LYING, attack).tamper_report(0, H, (values,), 0)
    unchanged = np.array_equal(values, report(0)[0])
    assert unchanged == (attack in ("counts", "silent", "spam"))


def test_random_values_lie_in_the_range_of_values() -> None:
    values, _ = tampered("random")
    assert (values >= 0).all()
    assert (values <= H).all()


def test_random_values_of_one_exchange_are_reproducible() -> None:
    np.testing.assert_array_equal(tampered("random")[0], tampered("random")[0])


def test_random_values_differ_between_agents_rounds_or_exchanges() -> None:
    values, _ = tampered("random")
    of_round_1, _ = tampered("random", round_number=1)
    of_exchange_1, _ = tampered("random", exchange=1)
    rows = [values[1], values[4], of_round_1[1], of_exchange_1[1]]
    for one, other in itertools.combinations(rows, 2):
        assert not np.array_equal(one, other)


def test_flip_changes_the_sign_of_values() -> None:
    values, _ = report()
    np.testing.assert_array_equal(tampered("flip")[0][[1, 4]], -values[[1, 4]])


def test_inflate_reports_the_horizon_as_values() -> None:
    np.testing.assert_array_equal(tampered("inflate")[0][[1, 4]], float(H))


@pytest.mark.parametrize("attack", ["flip", "inflate", "random"])
def test_attacks_on_values_leave_counts(attack: str) -> None:
    np.testing.assert_array_equal(tampered(attack)[1], report()[1])


def test_false_counts_are_a_thousand_times_too_large() -> None:
    values, counts = tampered("counts")
    values_before, counts_before = report()
    np.testing.assert_array_equal(counts[[1, 4]], (counts_before[[1, 4]] + 1) * FALSE_COUNT_FACTOR)
    np.testing.assert_array_equal(values, values_before)


def test_sums_of_false_counts_are_exact() -> None:
    large = np.full((6, 1), MAX_FALSE // 6, dtype=np.int64)
    Liars(LYING, "counts").tamper_report(0, H, (large,), 0)
    assert 0 < large[1, 0] + large[4, 0] <= MAX_FALSE


@pytest.mark.parametrize("seed", range(20))
def test_colluders_report_alike(seed: int) -> None:
    values, counts = tampered("collude", seed)
    np.testing.assert_array_equal(values[1], values[4])
    np.testing.assert_array_equal(counts[1], counts[HONEST].max(axis=0))


def honest_mean(values: FloatArray, counts: CountArray) -> FloatArray:
    """The mean of the honest agents' values, weighted by their counts."""
    honest = values[HONEST]
    weights = counts[HONEST]
    mean: FloatArray = (honest * weights).sum(axis=0) / np.maximum(1, weights.sum(axis=0))
    return mean


@pytest.mark.parametrize("seed", range(20))
def test_the_shift_of_colluders_is_inside_a_confidence_interval(seed: int) -> None:
    values, counts = tampered("collude", seed)
    most = np.maximum(1, counts[HONEST].max(axis=0))
    width = H * math.sqrt(2 * math.log(2 * 6)) / np.sqrt(most)
    np.testing.assert_allclose(np.abs(values[1] - honest_mean(values, counts)), 0.99 * width)


@pytest.mark.parametrize("seed", range(20))
def test_colluders_shift_values_against_the_ranking(seed: int) -> None:
    values, counts = tampered("collude", seed)
    mean = honest_mean(values, counts)
    for s in range(3):
        if mean[s, 0] != mean[s, 1]:
            better = int(mean[s, 1] > mean[s, 0])
            worse = 1 - better
            assert values[1, s, better] < mean[s, better]
            assert values[1, s, worse] > mean[s, worse]


def test_a_mimic_repeats_the_honest_report_that_misleads_most() -> None:
    for seed in range(20):
        x, n = tampered("mimic", seed)
        mean = (x[HONEST] * n[HONEST]).sum(axis=0) / np.maximum(1, n[HONEST].sum(axis=0))
        for s, a in np.ndindex(3, 2):
            pairs = [(x[i, s, a], n[i, s, a]) for i in HONEST]
            assert x[1, s, a] == x[4, s, a]
            assert n[1, s, a] == n[4, s, a]
            assert (x[1, s, a], n[1, s, a]) in pairs
            sign = -1 if mean[s, a] > mean[s].mean() else 1
            gain = sign * n[1, s, a] * (x[1, s, a] - mean[s, a])
            assert gain == pytest.approx(max(sign * count * (value - mean[s, a]) for value, count in pairs))


@pytest.mark.parametrize("attack", ATTACKS)
def test_liars_change_their_budgets_by_their_attack(attack: str) -> None:
    budgets = np.full((6, 2, 3), 7, dtype=np.int64)
    Liars(LYING, attack).tamper_budgets(budgets)
    expected = {"silent": UNREACHABLE, "spam": 1}.get(attack, 7)
    assert (budgets[1] == expected).all()
    assert (budgets[HONEST] == 7).all()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_liar_that_the_server_ignores_cannot_request(attack: str) -> None:
    budgets = np.full((6, 2, 3), 7, dtype=np.int64)
    budgets[4] = UNREACHABLE
    Liars(LYING, attack).tamper_budgets(budgets)
    assert (budgets[4] == UNREACHABLE).all()


def test_silent_agents_report_no_visits() -> None:
    assert tampered("silent")[1][[1, 4]].sum() == 0


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    "algorithm", [ByzanUCBVI(log_term=0.01), ConcurrentUCBVI(bonus="bernstein-freedman", scale=0.01)]
)
def test_algorithms_survive_every_attack(algorithm: ByzanUCBVI | ConcurrentUCBVI, attack: str) -> None:
    f = random_federation(np.random.default_rng(3), agents=5).with_liars(0.4, attack, seed=1)
    first, second = (Simulation(algorithm, f, 100, 2, "auto") for _ in range(2))
    for simulation in (first, second):
        while not simulation.done:
            simulation.advance()
            assert np.isfinite(simulation.server.V).all()
    np.testing.assert_array_equal(first.server.V, second.server.V)
    assert first.totals.regret == second.totals.regret


def test_the_regret_is_that_of_the_honest_agents() -> None:
    f = random_federation(np.random.default_rng(4), agents=4).with_liars(0.5, "spam", seed=1)
    assert f.liars is not None
    honest = np.setdiff1d(np.arange(4), f.liars.agents)
    simulation = Simulation(ByzanUCBVI(), f, 30, 0, "episodes")
    best = f.common.solve().V[0]
    while not simulation.done:
        before = simulation.totals.regret
        policy = simulation.server.policy.copy()
        simulation.advance()
        gap = best - f.common.evaluate(policy)[0]
        expected = (simulation.driver.visits[honest, 0] @ gap).mean()
        assert simulation.totals.regret - before == pytest.approx(expected)


@pytest.mark.parametrize(("fraction", "number"), [(0.0, 0), (0.1, 2), (0.12, 2), (0.25, 5), (0.95, 19)])
def test_the_fraction_is_rounded_to_a_number_of_agents(fraction: float, number: int) -> None:
    liars = choose_liars(20, fraction, "flip", 3).agents
    assert len(set(liars)) == number
    assert list(liars) == sorted(liars)
    assert all(0 <= i < 20 for i in liars)
    assert liars == choose_liars(20, fraction, "spam", 3).agents
    drawn = {choose_liars(20, fraction, "flip", seed).agents for seed in range(10)}
    assert len(drawn) > 5 or number == 0


def test_a_fraction_of_zero_makes_no_liars() -> None:
    assert random_federation(np.random.default_rng(5)).with_liars(0.0, "flip").liars is None


@pytest.mark.parametrize(
    ("fraction", "attack", "message"),
    [
        (0.9, "flip", "leave nobody honest"),
        (0.5, "inflat", "did you mean 'inflate'"),
        (-0.1, "flip", "fraction of liars"),
    ],
)
def test_liars_that_cannot_be_chosen_are_refused(fraction: float, attack: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_liars(4, fraction, attack, 0)


@pytest.mark.parametrize("algorithm", [FedUCBVI(), FedKLUCBVI(), FedKLUCBVI.fast()], ids=lambda one: one.name)
def test_an_algorithm_that_adds_up_reports_refuses_liars(algorithm: Any) -> None:
    lying = random_federation(np.random.default_rng(5), agents=4).with_liars(0.25, "random", seed=1)
    with pytest.raises(InputError, match=f"^{algorithm.name} adds up the reports of all agents.*Use byzan-ucbvi"):
        run(algorithm, lying, 10)


def test_the_command_refuses_liars_with_an_algorithm_that_adds_up_reports() -> None:
    message = refusal("run", "--algorithm", "fed-kl-ucbvi", "--liars", "0.25", "--agents", "4", "--episodes", "10")
    assert "fed-kl-ucbvi adds up the reports of all agents" in message
