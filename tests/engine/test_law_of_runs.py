"""Whole runs: the drivers agree in law, and the figures are those of independent implementations.

Two-sample tests between drivers alarm below p = 10^-4 and there are 12 of them: about 10^-3 in all. Comparisons of
means alarm beyond 4 standard errors, which for normal figures is a false alarm in about 1 of 10^4 choices of seeds
(of 2000, where one side has few runs); there are some 30. All seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

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


class Figures(NamedTuple):
    """Final regret and rounds of some runs, ``(n,)`` each."""

    regret: FloatArray
    rounds: FloatArray


def figures(
    algorithm: FedUCBVI, federations: list[Federation], episodes: int, driver: str = "auto", first_seed: int = 0
) -> Figures:
    """The figures of one run on each federation, with seeds from ``first_seed`` on."""
    regret = []
    rounds = []
    for k, federation in enumerate(federations):
        result = run(algorithm, federation, episodes, seed=first_seed + k, driver=driver, progress=False)
        regret.append(float(result.regret))
        rounds.append(float(result.rounds))
    return Figures(np.array(regret), np.array(rounds))


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
def paper_runs(problem: str, driver: str) -> Figures:
    federation, episodes, runs = PROBLEMS[problem]
    return figures(FedUCBVI(), [federation] * runs, episodes, driver, FIRST_SEED[driver])


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("driver", ["counts", "auto"])
@pytest.mark.full  # tests/algorithms/test_contract.py has a smaller one
def test_drivers_give_the_same_law_of_regret_on_the_papers_environments(problem: str, driver: str) -> None:
    """H0: same law of final regret; Kolmogorov-Smirnov test."""
    own = paper_runs(problem, driver).regret
    reference = paper_runs(problem, "episodes").regret
    assert stats.ks_2samp(own, reference).pvalue > ALARM


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("driver", ["counts", "auto"])
@pytest.mark.full
def test_drivers_give_the_same_law_of_rounds_on_the_papers_environments(problem: str, driver: str) -> None:
    """H0: same law of the number of rounds; Mann-Whitney test."""
    own = paper_runs(problem, driver).rounds
    reference = paper_runs(problem, "episodes").rounds
    assert stats.mannwhitneyu(own, reference).pvalue > ALARM


# --------------------------------------------------------------------- an independent trial of the paper's algorithm


MeanAndSpread = tuple[float, float]
"""Mean and standard deviation over 20 seeds of an independent implementation."""
REFERENCE_SEEDS = 20


def assert_near(own: FloatArray, mean: float, deviation: float, runs: int) -> None:
    """Check that means differ by less than 4 standard errors, each side with the larger of the two spreads."""
    spread = max(float(own.std(ddof=1)), deviation)
    error = spread * math.sqrt(1 / len(own) + 1 / runs)
    difference = abs(float(own.mean()) - mean)
    assert difference < STANDARD_ERRORS * error, f"{own.mean():.1f} against {mean} +- {error:.2g}"


@dataclass(frozen=True)
class Trial:
    """Figures of the independent trial in the gridworld."""

    agents: int
    eps_p: float
    algorithm: FedUCBVI
    regret: MeanAndSpread
    rounds: MeanAndSpread


TRIALS = [
    Trial(20, 0.1, FedUCBVI(), (245.7, 6.1), (483.4, 10.9)),
    Trial(20, 0.0, FedUCBVI(), (311.5, 6.5), (574.1, 12.8)),
    Trial(5, 0.0, FedUCBVI(), (808.1, 16.0), (367.7, 7.1)),
    Trial(5, 0.1, FedUCBVI(), (773.1, 15.9), (342.2, 6.1)),
    Trial(20, 0.0, FedUCBVI(bonus="theory"), (55_810, 379), (2568, 31)),
]


@cache
def own_trial(trial: Trial) -> Figures:
    """T = 30 000, individual kernels redrawn for each of 20 seeds."""
    seeds = range(20 if trial.algorithm == FedUCBVI() else 8)
    federations = [gridworld(agents=trial.agents, eps_p=trial.eps_p, seed=seed) for seed in seeds]
    return figures(trial.algorithm, federations, 30_000)


@pytest.mark.parametrize("trial", first_of(TRIALS))
def test_regret_in_the_gridworld_is_that_of_the_independent_trial(trial: Trial) -> None:
    mean, deviation = trial.regret
    assert_near(own_trial(trial).regret, mean, deviation, REFERENCE_SEEDS)


@pytest.mark.parametrize("trial", first_of(TRIALS))
def test_rounds_in_the_gridworld_are_those_of_the_independent_trial(trial: Trial) -> None:
    mean, deviation = trial.rounds
    assert_near(own_trial(trial).rounds, mean, deviation, REFERENCE_SEEDS)


@pytest.mark.full
def test_a_million_episodes_by_counts_have_the_regret_of_the_independent_trial() -> None:
    """One run there, 10 here."""
    federations = [gridworld(agents=20)] * 10
    own = figures(FedUCBVI(), federations, 10**6, "counts")
    assert_near(own.regret, 316.7, 0.0, 1)


SYNTHETIC_TRIALS = [(20, 0.1, 49.2, 139.8), (20, 0.0, 46.3, 142.2), (5, 0.0, 160.4, 207.1)]


@cache
def own_synthetic_trial(agents: int, eps_p: float) -> Figures:
    """T = 3000, ten random instances."""
    federations = [synthetic(agents=agents, eps_p=eps_p, seed=seed) for seed in range(10)]
    return figures(FedUCBVI(), federations, 3000)


@pytest.mark.parametrize(("agents", "eps_p", "regret", "rounds"), first_of(SYNTHETIC_TRIALS))
def test_regret_in_synthetic_instances_is_of_the_size_of_the_independent_trial(
    agents: int, eps_p: float, regret: float, rounds: float
) -> None:
    """The figures of the trial are those of one other random instance, so they are compared up to a factor of 1.5."""
    own = own_synthetic_trial(agents, eps_p).regret.mean()
    assert regret / 1.5 < own < regret * 1.5


@pytest.mark.parametrize(("agents", "eps_p", "regret", "rounds"), first_of(SYNTHETIC_TRIALS))
def test_rounds_in_synthetic_instances_are_of_the_size_of_the_independent_trial(
    agents: int, eps_p: float, regret: float, rounds: float
) -> None:
    own = own_synthetic_trial(agents, eps_p).rounds.mean()
    assert rounds / 1.5 < own < rounds * 1.5


# -------------------------------------------------------------------- stored runs on the very same MDPs

STORED = ROOT / "tests" / "reference"
GRID = "fed-ucbvi-practical_gridworld_M20_eps0.1_seed{}_mdp0_T30000.npz"
SYNTHETIC = "fed-ucbvi-practical_synthetic_M20_eps0.1_seed{}_mdp0_T3000.npz"
FILES = [GRID.format(k) for k in range(2)] + [SYNTHETIC.format(k) for k in range(5)]
EPS_P = 0.1


@cache
def stored(name: str) -> tuple[Federation, dict[str, FloatArray]]:
    """The MDPs of a stored run, and its records."""
    with np.load(STORED / name, allow_pickle=False) as file:
        data = dict(file)
    common = data["common_P"]
    agents = data["agent_P"]
    individual = np.maximum((agents - (1 - EPS_P) * common) / EPS_P, 0.0)
    individual /= individual.sum(axis=-1, keepdims=True)
    stationary = common.ndim == 3
    assert (data["agent_r"] == data["common_r"]).all()
    uniform = np.full(len(common[0]), 1 / len(common[0]))
    federation = Federation.mixture(
        common,
        list(individual),
        EPS_P,
        rewards=data["common_r"],
        initial=0 if stationary else uniform,
        horizon=data["policies"].shape[1],
    )
    for i, kernel in enumerate(agents):
        dense = federation.agent(i).kernel.dense()
        error = (dense[0] if stationary else dense) - kernel
        assert np.abs(error).max() < 1e-12
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


class StoredComparison(NamedTuple):
    """Figures of 20 runs on the MDPs of stored runs, and those of the stored runs."""

    own: Figures
    stored: Figures


@cache
def compared_with_stored(pattern: str, count: int) -> StoredComparison:
    regret = []
    rounds = []
    for k in range(count):
        _, data = stored(pattern.format(k))
        regret.append(float(data["regret"][-1]))
        rounds.append(float(len(data["comm_episodes"])))
    federation, first = stored(pattern.format(0))
    own = figures(FedUCBVI(), [federation] * 20, len(first["regret"]))
    return StoredComparison(own, Figures(np.array(regret), np.array(rounds)))


stored_runs = pytest.mark.parametrize(
    ("pattern", "count"),
    first_of([(SYNTHETIC, 5), (GRID, 2)]),
    ids=["synthetic", "gridworld"],
)


@stored_runs
def test_regret_on_the_stored_mdps_has_the_stored_mean(pattern: str, count: int) -> None:
    """The spread of the few stored runs is taken to be at most that of the new ones."""
    compared = compared_with_stored(pattern, count)
    assert_near(compared.own.regret, float(compared.stored.regret.mean()), 0.0, count)


@stored_runs
def test_rounds_on_the_stored_mdps_have_the_stored_mean(pattern: str, count: int) -> None:
    compared = compared_with_stored(pattern, count)
    assert_near(compared.own.rounds, float(compared.stored.rounds.mean()), 0.0, count)
