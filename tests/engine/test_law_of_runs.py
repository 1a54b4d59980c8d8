"""Whole runs: the drivers agree in law, and the figures are those of independent implementations.

Two-sample tests between drivers alarm below p = 10^-4 and there are 12 of them: about 10^-3 in all. Comparisons of
means alarm beyond 4 standard errors, which for normal figures is a false alarm in about 1 of 10^4 choices of seeds
(of 2000, where one side has few runs); there are some 30. All seeds are fixed.
"""

from __future__ import annotations

import math
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
    """Final regret and number of rounds of several runs."""

    regret: FloatArray
    rounds: FloatArray


def figures(
    algorithm: FedUCBVI, federations: list[Federation], episodes: int, *, driver: str, first_seed: int
) -> Figures:
    """One run on each federation, with seeds ``first_seed``, ``first_seed + 1``, ..."""
    results = [
        run(algorithm, federation, episodes, seed=first_seed + k, driver=driver, progress=False)
        for k, federation in enumerate(federations)
    ]
    return Figures(
        np.array([result.regret for result in results]), np.array([float(result.rounds) for result in results])
    )


def spread(sample: FloatArray) -> float:
    return float(sample.std(ddof=1))


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
    return figures(FedUCBVI(), [federation] * runs, episodes, driver=driver, first_seed=FIRST_SEED[driver])


@pytest.mark.parametrize(("problem", "driver"), [(p, d) for p in PROBLEMS for d in ("counts", "auto")])
@pytest.mark.full  # tests/algorithms/test_contract.py has a smaller one
def test_the_drivers_agree_in_law_on_the_papers_environments(problem: str, driver: str) -> None:
    """H0: same law of final regret (Kolmogorov-Smirnov) and of rounds (Mann-Whitney)."""
    mine, reference = paper_runs(problem, driver), paper_runs(problem, "episodes")
    assert stats.ks_2samp(mine.regret, reference.regret).pvalue > ALARM
    assert stats.mannwhitneyu(mine.rounds, reference.rounds).pvalue > ALARM


# --------------------------------------------------------------------- an independent trial of the paper's algorithm


class Row(NamedTuple):
    """Mean and standard deviation over 20 seeds of an independent implementation."""

    regret: float
    regret_spread: float
    rounds: float
    rounds_spread: float


REFERENCE_SEEDS = 20


def assert_near(mine: FloatArray, mean: float, deviation: float, runs: int) -> None:
    """The means differ by less than 4 standard errors, each side with the larger of the two spreads."""
    wide = max(spread(mine), deviation)
    error = wide * math.sqrt(1 / len(mine) + 1 / runs)
    assert abs(float(mine.mean()) - mean) < STANDARD_ERRORS * error, (
        f"{mine.mean():.1f} against {mean} +- {error:.2g}"
    )


@pytest.mark.parametrize(
    ("agents", "eps_p", "row"),
    first_of(
        [
            (20, 0.1, Row(245.7, 6.1, 483.4, 10.9)),
            (20, 0.0, Row(311.5, 6.5, 574.1, 12.8)),
            (5, 0.0, Row(808.1, 16.0, 367.7, 7.1)),
            (5, 0.1, Row(773.1, 15.9, 342.2, 6.1)),
        ]
    ),
)
def test_gridworld_has_the_regret_and_rounds_of_the_independent_trial(agents: int, eps_p: float, row: Row) -> None:
    """T = 30 000, practical bonus, individual kernels redrawn for each of 20 seeds."""
    federations = [gridworld(agents=agents, eps_p=eps_p, seed=k) for k in range(20)]
    mine = figures(FedUCBVI(), federations, 30_000, driver="auto", first_seed=0)
    assert_near(mine.regret, row.regret, row.regret_spread, REFERENCE_SEEDS)
    assert_near(mine.rounds, row.rounds, row.rounds_spread, REFERENCE_SEEDS)


@pytest.mark.full
def test_gridworld_with_the_bonus_as_printed_has_the_figures_of_the_independent_trial() -> None:
    mine = figures(FedUCBVI(bonus="theory"), [gridworld(agents=20)] * 8, 30_000, driver="auto", first_seed=0)
    assert_near(mine.regret, 55_810, 379, REFERENCE_SEEDS)
    assert_near(mine.rounds, 2568, 31, REFERENCE_SEEDS)


@pytest.mark.full
def test_a_million_episodes_by_counts_have_the_regret_of_the_independent_trial() -> None:
    """One run there, 10 here."""
    mine = figures(FedUCBVI(), [gridworld(agents=20)] * 10, 10**6, driver="counts", first_seed=0)
    assert_near(mine.regret, 316.7, 0.0, 1)


@pytest.mark.parametrize(
    ("agents", "eps_p", "row"),
    first_of(
        [
            (20, 0.1, Row(49.2, 0.9, 139.8, 4.4)),
            (20, 0.0, Row(46.3, 1.1, 142.2, 3.9)),
            (5, 0.0, Row(160.4, 2.2, 207.1, 3.6)),
        ]
    ),
)
def test_synthetic_instances_have_regret_and_rounds_of_the_right_size(agents: int, eps_p: float, row: Row) -> None:
    """T = 3000; the figures there are of one other random instance, so a factor of 1.5 is all that can be asked."""
    federations = [synthetic(agents=agents, eps_p=eps_p, seed=k) for k in range(10)]
    mine = figures(FedUCBVI(), federations, 3000, driver="auto", first_seed=0)
    assert row.regret / 1.5 < mine.regret.mean() < row.regret * 1.5
    assert row.rounds / 1.5 < mine.rounds.mean() < row.rounds * 1.5


# -------------------------------------------------------------------- stored runs on the very same MDPs

STORED = ROOT / "tests" / "reference"
GRID = "fed-ucbvi-practical_gridworld_M20_eps0.1_seed{}_mdp0_T30000.npz"
SYNTHETIC = "fed-ucbvi-practical_synthetic_M20_eps0.1_seed{}_mdp0_T3000.npz"
FILES = [GRID.format(k) for k in range(2)] + [SYNTHETIC.format(k) for k in range(5)]
EPS_P = 0.1


class Stored(NamedTuple):
    """One stored run with its MDPs."""

    federation: Federation
    regret: FloatArray
    rounds: int
    starts: FloatArray
    epoch_start: FloatArray
    policies: FloatArray


@cache
def stored(name: str) -> Stored:
    with np.load(STORED / name, allow_pickle=False) as data:
        common, agents = data["common_P"], data["agent_P"]
        individual = np.maximum((agents - (1 - EPS_P) * common) / EPS_P, 0.0)
        individual /= individual.sum(axis=-1, keepdims=True)
        stationary = common.ndim == 3
        assert (data["agent_r"] == data["common_r"]).all()
        federation = Federation.mixture(
            common,
            list(individual),
            EPS_P,
            rewards=data["common_r"],
            initial=0 if stationary else np.full(len(common[0]), 1 / len(common[0])),
            horizon=data["policies"].shape[1],
        )
        for i in range(len(agents)):
            dense = federation.agent(i).kernel.dense()
            assert np.abs((dense[0] if stationary else dense) - agents[i]).max() < 1e-12
        return Stored(
            federation,
            data["regret"],
            len(data["comm_episodes"]),
            data["init_states"],
            data["epoch_start"],
            data["policies"],
        )


@pytest.mark.parametrize("name", FILES)
def test_replaying_the_stored_policies_gives_the_stored_regret(name: str) -> None:
    """Every epoch's policy evaluated in the common MDP at the initial states that occurred, episode by episode."""
    run_there = stored(name)
    common = run_there.federation.common
    best = common.solve().V[0]
    T = run_there.starts.shape[1]
    per_episode = np.zeros(T)
    bounds = [*run_there.epoch_start.tolist(), T]
    for k, policy in enumerate(run_there.policies):
        begin, end = bounds[k], bounds[k + 1]
        gaps = best - common.evaluate(policy)[0]
        per_episode[begin:end] = gaps[run_there.starts[:, begin:end]].mean(axis=0)
    assert np.abs(np.cumsum(per_episode) - run_there.regret).max() < 1e-8


@pytest.mark.parametrize(("pattern", "count"), first_of([(SYNTHETIC, 5), (GRID, 2)]), ids=["synthetic", "gridworld"])
def test_runs_on_the_stored_mdps_have_the_stored_law_of_regret_and_rounds(pattern: str, count: int) -> None:
    """20 runs here; the spread of the few stored ones is taken to be at most ours."""
    runs_there = [stored(pattern.format(k)) for k in range(count)]
    episodes = len(runs_there[0].regret)
    mine = figures(FedUCBVI(), [runs_there[0].federation] * 20, episodes, driver="auto", first_seed=0)
    assert_near(mine.regret, float(np.mean([there.regret[-1] for there in runs_there])), 0.0, count)
    assert_near(mine.rounds, float(np.mean([there.rounds for there in runs_there])), 0.0, count)
