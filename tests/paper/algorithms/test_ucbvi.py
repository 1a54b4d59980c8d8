"""UCBVI and Concurrent UCBVI against the pseudocode, and against another library's UCBVI."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from scipy import stats

import rlberry_reference
from fed_ucbvi import UCBVI, Caution, ConcurrentUCBVI, gridworld, run
from fed_ucbvi.algorithms.kernels import at_actions
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper.algorithms import ucbvi
from fed_ucbvi.problem.federation import Federation
from matrices import first_of
from model_free import Sizes, played_rounds, played_steps
from naive_ucbvi import NaiveUCBVI
from problems import random_federation

TOLERANCE = 1e-10


def small_federation(rng: np.random.Generator, agents: int | None = None) -> Federation:
    S, A, H, M = (int(rng.integers(1, high)) for high in (5, 4, 5, 5))
    return random_federation(
        rng, agents or M, S, A, H, stationary=bool(rng.integers(2)), own_rewards=bool(rng.integers(2))
    )


@pytest.mark.parametrize("bonus", ucbvi.BONUSES)
@pytest.mark.parametrize("clip", ucbvi.CLIPS)
@pytest.mark.parametrize("monotone", [True, False])
def test_every_variant_equals_the_pseudocode_episode_by_episode(
    bonus: ucbvi.Bonus, clip: ucbvi.Clip, monotone: bool
) -> None:
    rng = np.random.default_rng([1, ucbvi.BONUSES.index(bonus), ucbvi.CLIPS.index(clip), monotone])
    for repetition in range(4):
        f = small_federation(rng)
        third_term: ucbvi.ThirdTerm = "off" if repetition % 2 else "paper"
        scale = float(rng.choice([1.0, 0.01]))
        algorithm = ConcurrentUCBVI(bonus, scale, third_term, delta=0.1, monotone=monotone, clip=clip)
        simulation = Simulation(algorithm, f, 25, repetition, "episodes")
        naive = NaiveUCBVI(Sizes.of(simulation.setting), algorithm)
        for policy in played_rounds(simulation):
            for steps in played_steps(simulation, policy):
                for step in steps:
                    naive.observe(step)
            naive.plan()
            estimates = simulation.server.estimates
            for at in np.ndindex(*estimates.N.shape):
                assert estimates.N[at] == len(naive.seen[at])
            np.testing.assert_allclose(estimates.Q, naive.Q, rtol=TOLERANCE, atol=TOLERANCE)
            np.testing.assert_allclose(estimates.V, naive.V, rtol=TOLERANCE, atol=TOLERANCE)
            np.testing.assert_array_equal(estimates.Q[at_actions(estimates.policy)], estimates.Q.max(axis=2))


def test_a_caution_says_that_the_papers_bonus_is_hopeless_at_this_length() -> None:
    f = gridworld(agents=2)
    with pytest.warns(Caution, match="nothing can be learnt"):
        result = run(ConcurrentUCBVI(bonus="chernoff-hoeffding"), f, 20, progress=False)
    np.testing.assert_array_equal(result.V[:-1], float(f.horizon))


def test_every_bonus_gives_finite_values_however_long_the_run() -> None:
    f = random_federation(np.random.default_rng(11), agents=2)
    for bonus, clip in itertools.product(ucbvi.BONUSES, ucbvi.CLIPS):
        result = run(ConcurrentUCBVI(bonus=bonus, clip=clip, scale=1e-3), f, 2000, progress=False)
        assert np.isfinite(result.V).all()


# ------------------------------------------------------------------------------------------- rlberry-scool

RLBERRY = (200, 135.498, 2.768)
"""Number, mean and deviation of regrets of rlberry-scool 0.7.3, by ``python tests/rlberry_reference.py 200``."""
FALSE_ALARM = 1e-4


def our_regrets(number: int, **parameters: object) -> list[float]:
    """Regrets of single-agent UCBVI where :mod:`rlberry_reference` measures rlberry's."""
    f = gridworld(agents=1, horizon=rlberry_reference.HORIZON)
    algorithm = UCBVI(**{"bonus": "simplified", "monotone": False, "initial_policy": "first", **parameters})  # type: ignore[arg-type]
    regrets = []
    for seed in range(number):
        result = run(algorithm, f, rlberry_reference.EPISODES, seed=seed, progress=False)
        regrets.append(float(result.records["regret"].sum()))
    return regrets


def p_values(sample: list[float], size: int, mean: float, deviation: float) -> tuple[float, float]:
    """Of Welch's test of the means and the F test of the variances, two-sided."""
    ours = statistics.mean(sample), statistics.stdev(sample)
    means = stats.ttest_ind_from_stats(*ours, len(sample), mean, deviation, size, equal_var=False).pvalue
    tail = stats.f.cdf((ours[1] / deviation) ** 2, len(sample) - 1, size - 1)
    return float(means), float(2 * min(tail, 1 - tail))


def test_the_reference_world_is_the_papers_gridworld() -> None:
    P, R = rlberry_reference.tables()
    common = gridworld(agents=1, horizon=rlberry_reference.HORIZON).common
    dense = np.zeros_like(P)
    for s, a, k in np.ndindex(common.kernel.successors.shape[1:]):
        dense[s, a, common.kernel.successors[0, s, a, k]] += common.kernel.probabilities[0, s, a, k]
    np.testing.assert_allclose(dense, P, atol=1e-15)
    np.testing.assert_array_equal(common.rewards[0], R)
    assert rlberry_reference.value(P, R, None) == pytest.approx(common.initial @ common.solve().V[0])


@pytest.mark.parametrize("runs", first_of([60, 200]))
def test_regret_has_the_law_measured_from_rlberry(runs: int) -> None:
    """Two tests with a false-alarm rate of 1e-4 each; Q unclipped and V clipped at H, as rlberry does."""
    assert min(p_values(our_regrets(runs, clip="values"), *RLBERRY)) > FALSE_ALARM


def test_the_comparison_with_rlberry_would_notice_another_clipping() -> None:
    assert p_values(our_regrets(60, clip="horizon"), *RLBERRY)[0] < FALSE_ALARM


def test_regret_has_the_law_of_rlberry_where_it_is_installed() -> None:
    pytest.importorskip(
        "rlberry_scool", reason="rlberry-scool is not installed; the measured figures stand in for it"
    )
    theirs = [rlberry_reference.regret_of(seed) for seed in range(20)]
    measured = len(theirs), statistics.mean(theirs), statistics.stdev(theirs)
    assert min(p_values(our_regrets(100, clip="values"), *measured)) > FALSE_ALARM
