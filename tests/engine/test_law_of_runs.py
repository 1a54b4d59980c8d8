"""Whole runs: the drivers agree in law, and the figures are those of independent implementations.

Two-sample tests between drivers alarm below p = 10^-4 and there are 12 of them: about 10^-3 in all. Comparisons of
means alarm beyond 4 standard errors, which for normal figures is a false alarm in about 1 of 10^4 choices of seeds
(of 2000, where one side has few runs); there are some 30. All seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import Federation, FedUCBVI, gridworld, run, synthetic
from fed_ucbvi.core.types import FloatArray
from matrices import first_of
from repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")]

ALARM = 1e-4
STANDARD_ERRORS = 4.0


def figures(
    algorithm: FedUCBVI, federations: list[Federation], episodes: int, driver: str = "auto", first_seed: int = 0
) -> FloatArray:
    """Final regret and rounds ``(2, n)`` of one run on each federation, with seeds from ``first_seed`` on."""
    results = [
        run(algorithm, federation, episodes, seed=first_seed + k, driver=driver, progress=False)
        for k, federation in enumerate(federations)
    ]
    return np.array([(result.regret, result.rounds) for result in results], dtype=np.float64).T


# ------------------------------------------------------------------------------------------ drivers agree in law

FIRST_SEED = {"episodes": 0, "counts": 10_000, "auto": 20_000}
"""Different seeds, so that the samples are independent: ``auto`` plays the same trajectories as ``episodes``."""

PROBLEMS: dict[str, tuple[Federation, int, int]] = {
    "synthetic": (synthetic(agents=20, eps_p=0.1), 2000, 100),
    "gridworld": (gridworld(agents=5, eps_p=0.1), 3000, 100),
    "gridworld with many agents": (gridworld(agents=20, eps_p=0.1), 700, 60),
}
"""Federation, episodes, runs."""


@cache
def paper_runs(problem: str, driver: str) -> FloatArray:
    federation, episodes, runs = PROBLEMS[problem]
    return figures(FedUCBVI(), [federation] * runs, episodes, driver, FIRST_SEED[driver])


@pytest.mark.parametrize(("problem", "driver"), [(p, d) for p in PROBLEMS for d in ("counts", "auto")])
@pytest.mark.full  # tests/algorithms/test_contract.py has a smaller one
def test_the_drivers_agree_in_law_on_the_papers_environments(problem: str, driver: str) -> None:
    """H0: same law of final regret (Kolmogorov-Smirnov) and of rounds (Mann-Whitney)."""
    mine = paper_runs(problem, driver)
    reference = paper_runs(problem, "episodes")
    assert stats.ks_2samp(mine[0], reference[0]).pvalue > ALARM
    assert stats.mannwhitneyu(mine[1], reference[1]).pvalue > ALARM


# --------------------------------------------------------------------- an independent trial of the paper's algorithm


MeanAndSpread = tuple[float, float]
"""Mean and standard deviation over 20 seeds of an independent implementation."""
REFERENCE_SEEDS = 20


def assert_near(mine: FloatArray, mean: float, deviation: float, runs: int) -> None:
    """The means differ by less than 4 standard errors, each side with the larger of the two spreads."""
    wide = max(float(mine.std(ddof=1)), deviation)
    error = wide * math.sqrt(1 / len(mine) + 1 / runs)
    assert abs(float(mine.mean()) - mean) < STANDARD_ERRORS * error, (
        f"{mine.mean():.1f} against {mean} +- {error:.2g}"
    )


@pytest.mark.parametrize(
    ("agents", "eps_p", "algorithm", "regret", "rounds"),
    first_of(
        [
            (20, 0.1, FedUCBVI(), (245.7, 6.1), (483.4, 10.9)),
            (20, 0.0, FedUCBVI(), (311.5, 6.5), (574.1, 12.8)),
            (5, 0.0, FedUCBVI(), (808.1, 16.0), (367.7, 7.1)),
            (5, 0.1, FedUCBVI(), (773.1, 15.9), (342.2, 6.1)),
            (20, 0.0, FedUCBVI(bonus="theory"), (55_810, 379), (2568, 31)),
        ]
    ),
)
def test_gridworld_has_the_regret_and_rounds_of_the_independent_trial(
    agents: int, eps_p: float, algorithm: FedUCBVI, regret: MeanAndSpread, rounds: MeanAndSpread
) -> None:
    """T = 30 000, individual kernels redrawn for each of 20 seeds."""
    seeds = range(20 if algorithm == FedUCBVI() else 8)
    federations = [gridworld(agents=agents, eps_p=eps_p, seed=k) for k in seeds]
    own_regret, own_rounds = figures(algorithm, federations, 30_000)
    assert_near(own_regret, *regret, REFERENCE_SEEDS)
    assert_near(own_rounds, *rounds, REFERENCE_SEEDS)


@pytest.mark.full
def test_a_million_episodes_by_counts_have_the_regret_of_the_independent_trial() -> None:
    """One run there, 10 here."""
    own_regret, _ = figures(FedUCBVI(), [gridworld(agents=20)] * 10, 10**6, "counts")
    assert_near(own_regret, 316.7, 0.0, 1)


@pytest.mark.parametrize(
    ("agents", "eps_p", "regret", "rounds"),
    first_of([(20, 0.1, 49.2, 139.8), (20, 0.0, 46.3, 142.2), (5, 0.0, 160.4, 207.1)]),
)
def test_synthetic_instances_have_regret_and_rounds_of_the_right_size(
    agents: int, eps_p: float, regret: float, rounds: float
) -> None:
    """T = 3000; the figures there are of one other random instance, so a factor of 1.5 is all that can be asked."""
    federations = [synthetic(agents=agents, eps_p=eps_p, seed=k) for k in range(10)]
    own_regret, own_rounds = figures(FedUCBVI(), federations, 3000)
    assert regret / 1.5 < own_regret.mean() < regret * 1.5
    assert rounds / 1.5 < own_rounds.mean() < rounds * 1.5


# -------------------------------------------------------------------- stored runs on the very same MDPs

STORED = ROOT / "tests" / "reference"
GRID = "fed-ucbvi-practical_gridworld_M20_eps0.1_seed{}_mdp0_T30000.npz"
SYNTHETIC = "fed-ucbvi-practical_synthetic_M20_eps0.1_seed{}_mdp0_T3000.npz"
FILES = [GRID.format(k) for k in range(2)] + [SYNTHETIC.format(k) for k in range(5)]
EPS_P = 0.1


@cache
def stored(name: str) -> tuple[Federation, dict[str, FloatArray]]:
    """The MDPs of a stored run, and what it recorded."""
    with np.load(STORED / name, allow_pickle=False) as file:
        data = dict(file)
    common = data["common_P"]
    agents = data["agent_P"]
    individual = np.maximum((agents - (1 - EPS_P) * common) / EPS_P, 0.0)
    individual /= individual.sum(axis=-1, keepdims=True)
    stationary = common.ndim == 3
    assert (data["agent_r"] == data["common_r"]).all()
    initial = 0 if stationary else np.full(len(common[0]), 1 / len(common[0]))
    problem: Any = {"rewards": data["common_r"], "initial": initial, "horizon": data["policies"].shape[1]}
    federation = Federation.mixture(common, list(individual), EPS_P, **problem)
    for i in range(len(agents)):
        dense = federation.agent(i).kernel.dense()
        assert np.abs((dense[0] if stationary else dense) - agents[i]).max() < 1e-12
    return federation, data


@pytest.mark.parametrize("name", FILES)
def test_replaying_the_stored_policies_gives_the_stored_regret(name: str) -> None:
    """Every epoch's policy evaluated in the common MDP at the initial states that occurred, episode by episode."""
    federation, data = stored(name)
    common = federation.common
    starts = data["init_states"]
    best = common.solve().V[0]
    per_episode = np.zeros(starts.shape[1])
    bounds = itertools.pairwise([*data["epoch_start"].tolist(), starts.shape[1]])
    for (begin, end), policy in zip(bounds, data["policies"], strict=True):
        gaps = best - common.evaluate(policy)[0]
        per_episode[begin:end] = gaps[starts[:, begin:end]].mean(axis=0)
    assert np.abs(np.cumsum(per_episode) - data["regret"]).max() < 1e-8


@pytest.mark.parametrize(("pattern", "count"), first_of([(SYNTHETIC, 5), (GRID, 2)]), ids=["synthetic", "gridworld"])
def test_runs_on_the_stored_mdps_have_the_stored_law_of_regret_and_rounds(pattern: str, count: int) -> None:
    """20 runs here; the spread of the few stored ones is taken to be at most ours."""
    runs_there = [stored(pattern.format(k)) for k in range(count)]
    federation, first = runs_there[0]
    own_regret, own_rounds = figures(FedUCBVI(), [federation] * 20, len(first["regret"]))
    assert_near(own_regret, float(np.mean([data["regret"][-1] for _, data in runs_there])), 0.0, count)
    assert_near(own_rounds, float(np.mean([len(data["comm_episodes"]) for _, data in runs_there])), 0.0, count)
