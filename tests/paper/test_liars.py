"""What liars do to reports and requests, and what they leave alone."""

from __future__ import annotations

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
def test_reports_stay_possible_and_honest_rows_and_other_kinds_of_arrays_as_they_were(attack: str, seed: int) -> None:
    x, n = report(seed)
    flags = np.ones((6, 1), dtype=np.int8)
    alone = report(seed)[0]
    states = np.arange(6, dtype=np.int32)[:, None]
    Liars(LYING, attack).tamper_report(0, H, (x, n, flags, states), 0)
    before = report(seed)
    np.testing.assert_array_equal(x[HONEST], before[0][HONEST])
    np.testing.assert_array_equal(n[HONEST], before[1][HONEST])
    assert np.isfinite(x).all()
    assert n.min() >= 0
    assert (flags.min(), states[:, 0].tolist()) == (1, list(range(6)))
    Liars(LYING, attack).tamper_report(0, H, (alone,), 0)
    assert np.array_equal(alone, before[0]) == (attack in ("counts", "silent", "spam")), "without counts, too"


def test_random_values_lie_in_the_range_and_depend_on_seed_round_and_exchange_alone() -> None:
    x, _ = tampered("random")
    assert ((x >= 0) & (x <= H)).all()
    np.testing.assert_array_equal(x, tampered("random")[0])
    lists = [x[1].tolist(), x[4].tolist()]
    lists += [
        tampered("random", round_number=1)[0][1].tolist(),
        tampered("random", exchange=1)[0][1].tolist(),
    ]
    assert all(one != other for k, one in enumerate(lists) for other in lists[:k])


def test_flip_changes_the_sign_and_inflate_reports_the_horizon() -> None:
    before = report()
    np.testing.assert_array_equal(tampered("flip")[0][[1, 4]], -before[0][[1, 4]])
    np.testing.assert_array_equal(tampered("inflate")[0][[1, 4]], float(H))
    for attack in ("flip", "inflate", "random"):
        np.testing.assert_array_equal(tampered(attack)[1], before[1])


def test_false_counts_are_a_thousand_times_too_large_and_claim_visits_everywhere() -> None:
    x, n = tampered("counts")
    before = report()
    np.testing.assert_array_equal(n[[1, 4]], (before[1][[1, 4]] + 1) * FALSE_COUNT_FACTOR)
    np.testing.assert_array_equal(x, before[0])
    large = np.full((6, 1), MAX_FALSE // 6, dtype=np.int64)
    Liars(LYING, "counts").tamper_report(0, H, (large,), 0)
    assert 0 < large[1, 0] + large[4, 0] <= MAX_FALSE, "sums are exact"


def test_colluders_agree_on_a_shift_inside_an_interval_and_against_the_ranking() -> None:
    for seed in range(20):
        x, n = tampered("collude", seed)
        np.testing.assert_array_equal(x[1], x[4])
        honest = x[HONEST]
        weights = n[HONEST]
        most = weights.max(axis=0)
        np.testing.assert_array_equal(n[1], most)
        mean = (honest * weights).sum(axis=0) / np.maximum(1, weights.sum(axis=0))
        width = H * math.sqrt(2 * math.log(2 * 6)) / np.sqrt(np.maximum(1, most))
        np.testing.assert_allclose(np.abs(x[1] - mean), 0.99 * width)
        for s in range(3):
            if mean[s, 0] != mean[s, 1]:
                better = int(mean[s, 1] > mean[s, 0])
                assert x[1, s, better] < mean[s, better]
                assert x[1, s, 1 - better] > mean[s, 1 - better]


def test_a_mimic_repeats_the_honest_report_that_misleads_most() -> None:
    for seed in range(20):
        x, n = tampered("mimic", seed)
        mean = (x[HONEST] * n[HONEST]).sum(axis=0) / np.maximum(1, n[HONEST].sum(axis=0))
        for s, a in np.ndindex(3, 2):
            pairs = [(x[i, s, a], n[i, s, a]) for i in HONEST]
            assert (x[1, s, a], n[1, s, a]) == (x[4, s, a], n[4, s, a])
            assert (x[1, s, a], n[1, s, a]) in pairs
            sign = -1 if mean[s, a] > mean[s].mean() else 1
            gain = sign * n[1, s, a] * (x[1, s, a] - mean[s, a])
            assert gain == pytest.approx(max(sign * count * (value - mean[s, a]) for value, count in pairs))


@pytest.mark.parametrize("attack", ATTACKS)
def test_silent_agents_never_ask_and_spammers_always_unless_the_server_ignores_them(
    attack: str,
) -> None:
    budgets = np.full((6, 2, 3), 7, dtype=np.int64)
    budgets[4] = UNREACHABLE
    Liars(LYING, attack).tamper_budgets(budgets)
    assert (budgets[1] == {"silent": UNREACHABLE, "spam": 1}.get(attack, 7)).all()
    assert (budgets[4] == UNREACHABLE).all()
    assert (budgets[HONEST] == 7).all()
    assert attack != "silent" or tampered(attack)[1][[1, 4]].sum() == 0


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
    assert (len(set(liars)), list(liars)) == (number, sorted(liars))
    assert all(0 <= i < 20 for i in liars)
    assert liars == choose_liars(20, fraction, "spam", 3).agents
    drawn = {choose_liars(20, fraction, "flip", seed).agents for seed in range(10)}
    assert len(drawn) > 5 or number == 0


def test_no_liars_at_all_are_no_liars_and_nobody_honest_and_unknown_attacks_are_refused() -> None:
    assert random_federation(np.random.default_rng(5)).with_liars(0.0, "flip").liars is None
    with pytest.raises(InputError, match="leave nobody honest"):
        choose_liars(4, 0.9, "flip", 0)
    with pytest.raises(InputError, match="did you mean 'inflate'"):
        choose_liars(4, 0.5, "inflat", 0)
    with pytest.raises(InputError, match="fraction of liars"):
        choose_liars(4, -0.1, "flip", 0)


@pytest.mark.parametrize("algorithm", [FedUCBVI(), FedKLUCBVI(), FedKLUCBVI.fast()], ids=lambda one: one.name)
def test_an_algorithm_that_adds_up_reports_refuses_liars(algorithm: Any) -> None:
    lying = random_federation(np.random.default_rng(5), agents=4).with_liars(0.25, "random", seed=1)
    with pytest.raises(InputError, match=f"^{algorithm.name} adds up the reports of all agents.*Use byzan-ucbvi"):
        run(algorithm, lying, 10)


def test_the_command_refuses_liars_with_an_algorithm_that_adds_up_reports() -> None:
    told = refusal("run", "--algorithm", "fed-kl-ucbvi", "--liars", "0.25", "--agents", "4", "--episodes", "10")
    assert "fed-kl-ucbvi adds up the reports of all agents" in told
