"""The environments are the paper's, for any size, and say what is wrong with bad options."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fed_ucbvi.environments import ENVIRONMENTS, make_environment
from fed_ucbvi.environments.gridworlds import gridworld
from fed_ucbvi.environments.random_problems import synthetic
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.mdp import MDP
from problems import OF_OTHER_PACKAGES, dense_agents, individual_kernels
from repository import ROOT

REFERENCE = ROOT / "tests" / "reference"
FALSE_ALARM = 1e-3
MIXTURES = sorted(set(ENVIRONMENTS) - set(OF_OTHER_PACKAGES))
"""Environments whose agents are made by Assumption 1; tables from elsewhere are not."""


# GridWorld -------------------------------------------------------------------------------------------------------
def test_the_papers_gridworld_has_eight_squares_numbered_row_by_row_without_the_wall() -> None:
    world = gridworld(agents=3, eps_p=0.1)
    assert world.states == 8
    assert world.actions == 4
    assert world.horizon == 10
    assert world.agents == 3
    assert world.eps_r == 0.0
    assert world.layout is not None
    assert world.layout["cells"] == [
        [0, 0],
        [0, 1],
        [0, 2],
        [1, 0],
        [1, 2],
        [2, 0],
        [2, 1],
        [2, 2],
    ]
    np.testing.assert_array_equal(world.agent(1).rewards, world.common.rewards)
    np.testing.assert_array_equal(world.initial, np.eye(8)[[0, 0, 0]])


SURE = {"rows": 4, "columns": 5, "success": 1.0, "horizon": 12}


@pytest.mark.parametrize(
    ("options", "value", "within"),
    [({}, 4.3810816, 1e-7), ({"horizon": 8}, 2.58, 5e-3), (SURE, 12 - (3 + 4), 0)],
)
def test_the_optimal_value_of_the_start_is_known(options: dict[str, Any], value: float, within: float) -> None:
    """The optimum of a sure walk is the number of steps left at the goal."""
    assert gridworld(agents=1, **options).common.solve().V[0, 0] == pytest.approx(value, abs=within)


def test_gridworld_is_the_reference_mdp() -> None:
    for path in sorted(REFERENCE.glob("*gridworld*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            M = stored["agent_P"].shape[0]
            world = gridworld(agents=M, eps_p=0.1)
            np.testing.assert_allclose(world.common.kernel.dense()[0], stored["common_P"], rtol=0, atol=1e-15)
            np.testing.assert_array_equal(world.common.rewards[0], stored["common_r"])
            np.testing.assert_array_equal(dense_agents(world)[:, 0] > 0, stored["agent_P"] > 0)


def test_the_reference_agents_fulfil_assumption_1_with_the_eps_p_they_were_made_with() -> None:
    for path in sorted(REFERENCE.glob("*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            meta = json.loads(str(stored["meta"]))
            kernels = stored["agent_P"]
            rewards = stored["agent_r"]
        mdps = [MDP(P, r, 0, meta["H"]) for P, r in zip(kernels, rewards, strict=True)]
        assert 0 < Federation.from_mdps(mdps).eps_p <= meta["eps"] + 1e-12


@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    success=st.floats(0.0, 1.0),
)
def test_moves_reach_only_free_neighbours(rows: int, columns: int, seed: int, success: float) -> None:
    rng = np.random.default_rng(seed)
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    walls = [cell for cell in cells[1:-1] if rng.random() < 0.3]
    world = gridworld(
        agents=2,
        eps_p=0.5,
        seed=3,
        rows=rows,
        columns=columns,
        walls=walls,
        success=success,
    )
    free = [cell for cell in cells if cell not in walls]
    assert world.states == len(free)
    common = world.common.kernel.dense()[0]
    own = dense_agents(world)[:, 0]
    for s, (r, c) in enumerate(free):
        near = {free.index(x) for x in free if abs(x[0] - r) + abs(x[1] - c) == 1}
        for a, (dr, dc) in enumerate([(0, -1), (0, 1), (1, 0), (-1, 0)]):
            aim = (r + dr, c + dc)
            if aim not in free:
                assert common[s, a, s] == 1.0
            elif len(near) > 1:
                other = near - {free.index(aim)}
                assert common[s, a, free.index(aim)] == pytest.approx(success, abs=1e-15)
                assert {round(float(common[s, a, x]), 12) for x in other} == {round((1 - success) / len(other), 12)}
            else:
                assert common[s, a, free.index(aim)] == 1.0
            # an agent's own moves lead to every free neighbour, and stay only as the common kernel stays
            for i in range(2):
                reached = set(np.flatnonzero(own[i, s, a]).tolist())
                assert reached == near | set(np.flatnonzero(common[s, a]).tolist())
                if near:
                    assert own[i, s, a, s] == pytest.approx(0.5 * common[s, a, s], abs=1e-15)


@pytest.mark.parametrize(
    ("options", "states", "pays", "start"),
    [
        ({"rows": 1, "columns": 1}, 1, [0], 0),
        ({"rows": 2, "columns": 3, "goals": [(0, 2), (1, 0)]}, 6, [2, 3], 0),
        (
            {"rows": 3, "columns": 4},
            12,
            [11],
            0,
        ),  # only the grid of 3 x 3 has a wall by default
        ({"walls": []}, 9, [8], 0),
        ({"walls": [(0, 1), (2, 1)], "start": (1, 1)}, 7, [6], 3),
        ({"start": (2, 0)}, 8, [7], 5),
    ],
)
def test_options_of_a_grid(options: dict[str, Any], states: int, pays: list[int], start: int) -> None:
    world = gridworld(agents=2, eps_p=0.3, **options)
    assert world.states == states
    np.testing.assert_array_equal(world.initial, np.eye(states)[[start, start]])
    assert np.flatnonzero(world.common.rewards[0].all(axis=1)).tolist() == pays
    assert set(world.common.rewards.ravel().tolist()) <= {0.0, 1.0}


def test_a_large_grid_is_stored_by_support() -> None:
    world = gridworld(agents=2, eps_p=0.1, rows=50, columns=50, horizon=100)
    assert world.probabilities.shape == (2, 1, 2500, 4, 5)
    np.testing.assert_allclose(world.probabilities.sum(axis=-1), 1.0, rtol=0, atol=1e-15)


# Synthetic -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("S", "A", "H"), [(1, 1, 1), (2, 7, 3), (6, 1, 2), (3, 2, 1), (5, 5, 5)])
def test_sizes_of_a_synthetic_problem(S: int, A: int, H: int) -> None:
    sizes = {} if S == 5 else {"states": S, "actions": A, "horizon": H}
    for eps_r, rows in ((0.2, 2), (0.0, 1)):
        problem = synthetic(agents=2, eps_p=0.3, eps_r=eps_r, **sizes)  # type: ignore[arg-type]
        assert problem.probabilities.shape == (2, H, S, A, S)
        assert problem.rewards.shape == (rows, H, S, A)
        assert problem.horizon == H
        assert (problem.eps_r > 0) == (rows == 2)
        np.testing.assert_allclose(problem.probabilities.sum(axis=-1), 1.0, rtol=0, atol=1e-15)
        np.testing.assert_allclose(problem.initial, 1 / S, rtol=0, atol=1e-15)


def test_rows_of_synthetic_kernels_are_uniform_on_the_simplex() -> None:
    """Hypothesis: rows are Dirichlet(1,...,1), so a coordinate is Beta(1, S-1) and a sum of two Beta(2, S-2).

    Rows are independent; each coordinate and each sum of two neighbours is tested over all rows, for the common
    and for one individual kernel. 20 Kolmogorov-Smirnov tests at false-alarm rate 1e-3 in all (Bonferroni).
    """
    S = 5
    problem = synthetic(agents=2, eps_p=0.5, seed=5, states=S, actions=20, horizon=20)
    for kernel in (problem.common.kernel.dense(), individual_kernels(problem)[1]):
        rows = kernel.reshape(-1, S)
        assert rows.shape[0] == 20 * S * 20
        for k in range(S):
            one = stats.kstest(rows[:, k], stats.beta(1, S - 1).cdf)
            two = stats.kstest(rows[:, k] + rows[:, (k + 1) % S], stats.beta(2, S - 2).cdf)
            assert min(one.pvalue, two.pvalue) > FALSE_ALARM / 20


def test_synthetic_rewards_are_mixtures_of_uniform_ones() -> None:
    """Hypothesis: r and every u^i of ``(1 - eps_r) r + eps_r u^i`` are independent U(0,1).

    Three Kolmogorov-Smirnov tests at false-alarm rate 1e-3 in all: r, u^0, and u^0 + u^1 (triangular on [0,2]).
    """
    size: dict[str, Any] = {"states": 5, "actions": 20, "horizon": 20}
    base = synthetic(agents=2, seed=6, **size).rewards[0]
    mixed = synthetic(agents=2, seed=6, eps_r=0.25, **size).rewards
    own = (mixed - 0.75 * base) / 0.25
    assert stats.kstest(base.ravel(), stats.uniform.cdf).pvalue > FALSE_ALARM / 3
    assert stats.kstest(own[0].ravel(), stats.uniform.cdf).pvalue > FALSE_ALARM / 3
    assert stats.kstest((own[0] + own[1]).ravel(), stats.triang(0.5, scale=2).cdf).pvalue > FALSE_ALARM / 3


@pytest.mark.parametrize("eps_r", [0.05, 0.5, 0.99])
def test_synthetic_rewards_differ_by_no_more_than_was_asked(eps_r: float) -> None:
    problem = synthetic(agents=6, eps_r=eps_r)
    gaps = [np.abs(a - b).max() for a in problem.rewards for b in problem.rewards]
    assert problem.eps_r == max(gaps)
    assert 0.5 * eps_r < problem.eps_r <= eps_r
    assert 0.0 <= problem.rewards.min() <= problem.rewards.max() <= 1.0


# Every environment -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MIXTURES)
def test_the_kernel_of_an_agent_depends_neither_on_their_number_nor_on_eps_p(
    name: str,
) -> None:
    few = make_environment(name, agents=2, eps_p=0.5, seed=8)
    many = make_environment(name, agents=6, eps_p=0.5, seed=8)
    np.testing.assert_array_equal(many.probabilities[:2], few.probabilities)
    np.testing.assert_array_equal(many.common.kernel.probabilities, few.common.kernel.probabilities)
    other = make_environment(name, agents=2, eps_p=0.1, seed=8)
    np.testing.assert_allclose(individual_kernels(other), individual_kernels(few), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(other.rewards, few.rewards)


DRAWN = sorted(set(MIXTURES) - {"two_state_chain"})
"""Environments whose individual kernels are drawn; those of the two-state chain alternate."""


@pytest.mark.parametrize("name", DRAWN)
def test_equal_seeds_draw_equal_environments(name: str) -> None:
    first, again = (make_environment(name, agents=4, eps_p=0.5, seed=seed) for seed in (0, 0.0))
    np.testing.assert_array_equal(first.probabilities, again.probabilities)


@pytest.mark.parametrize("name", DRAWN)
def test_other_seeds_draw_other_environments(name: str) -> None:
    first, other = (make_environment(name, agents=4, eps_p=0.5, seed=seed) for seed in (0, 2))
    assert np.abs(first.probabilities - other.probabilities).max() > 1e-3


@pytest.mark.parametrize("name", DRAWN)
def test_no_two_kernels_of_a_federation_are_equal(name: str) -> None:
    federation = make_environment(name, agents=4, eps_p=0.5, seed=0)
    kernels = [federation.common.kernel.dense(), *dense_agents(federation)]
    for one, another in itertools.combinations(kernels, 2):
        assert np.abs(one - another).max() > 0.01
