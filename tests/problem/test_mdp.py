"""Exact solving and evaluation agree with brute force over all paths and all policies."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.mdp import MDP
from problems import all_paths, all_policies, brute_force_occupancy, brute_force_value, random_mdp, random_policy

SEEDS = st.integers(0, 2**32 - 1)
CLOSE = 1e-12
FORM = ("stationary_kernel", "stationary_rewards", "fixed_start")

TWO_STATES = [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.3, 0.7]]]
TWO_REWARDS = [[0.0, 0.25], [1.0, 0.5]]


MODELS = given(
    seed=SEEDS,
    size=st.sampled_from([(3, 2, 3), (2, 3, 4), (4, 1, 3), (1, 2, 3), (2, 2, 1)]),
    form=st.fixed_dictionaries(dict.fromkeys(FORM, st.booleans())),
)


@MODELS
def test_values_of_a_policy_are_sums_over_all_paths(seed: int, size: tuple[int, int, int], form: Any) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, *size, **form)
    policy = random_policy(rng, mdp)
    V = mdp.evaluate(policy)
    assert V.shape == (mdp.horizon + 1, mdp.states)
    for h, s in np.ndindex(mdp.horizon, mdp.states):
        assert V[h, s] == pytest.approx(brute_force_value(mdp, policy, h, s), abs=CLOSE)
    np.testing.assert_array_equal(V[mdp.horizon], 0.0)


@MODELS
def test_the_occupancy_is_a_sum_over_all_paths(seed: int, size: tuple[int, int, int], form: Any) -> None:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, *size, **form)
    policy = random_policy(rng, mdp)
    assert sum(path.probability for path in all_paths(mdp, policy)) == pytest.approx(1.0, abs=CLOSE)
    np.testing.assert_allclose(mdp.occupancy(policy), brute_force_occupancy(mdp, policy), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [(2, 2, 3), (3, 2, 2), (2, 3, 2), (1, 3, 3)])
def test_optimal_values_are_the_best_over_all_deterministic_policies(size: tuple[int, int, int], seed: int) -> None:
    form = dict(zip(FORM, (seed % 2 == 0, seed // 2 == 0, seed % 2 == 1), strict=True))
    mdp = random_mdp(np.random.default_rng([seed, *size]), *size, **form)
    H = mdp.horizon
    S = mdp.states
    A = mdp.actions
    best_V = np.zeros((H + 1, S))
    best_Q = np.full((H, S, A), -np.inf)
    for h in range(H):
        for policy in all_policies(mdp, first=h):
            for s in range(S):
                value = brute_force_value(mdp, policy, h, s)
                best_V[h, s] = max(best_V[h, s], value)
                # a policy that plays a in (h,s) and the best there is afterwards attains Q*_h(s,a)
                a = int(policy[h, s])
                best_Q[h, s, a] = max(best_Q[h, s, a], value)
    solution = mdp.solve()
    np.testing.assert_allclose(solution.V, best_V, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(solution.Q, best_Q, rtol=0, atol=CLOSE)
    for h, s in np.ndindex(H, S):
        attained = brute_force_value(mdp, solution.policy, h, s)
        assert attained == pytest.approx(best_V[h, s], abs=CLOSE)


def test_the_lowest_of_equally_good_actions_is_played() -> None:
    mdp = MDP(
        np.full((2, 3, 2), 0.5),
        [[0.0, 1.0, 1.0], [0.5, 0.5, 0.5]],
        initial=0,
        horizon=2,
    )
    np.testing.assert_array_equal(mdp.solve().policy, [[1, 0], [1, 0]])


@pytest.mark.parametrize(("start", "expected"), [(1, [0.0, 1.0]), (np.int64(0), [1.0, 0.0])])
def test_a_first_state_is_a_distribution_with_one_possible_state(start: int, expected: list[float]) -> None:
    mdp = MDP(Kernel.from_dense(TWO_STATES), TWO_REWARDS, start, 2)
    np.testing.assert_array_equal(mdp.initial, expected)


def test_the_tables_of_an_mdp_are_read_only() -> None:
    mdp = MDP(Kernel.from_dense(TWO_STATES), TWO_REWARDS, 1, 2)
    for table in (mdp.kernel.probabilities, mdp.rewards, mdp.initial):
        assert not table.flags.writeable


@pytest.mark.parametrize(
    ("kernel", "rewards", "said"),
    [
        (np.broadcast_to(TWO_STATES, (3, 2, 2, 2)), TWO_REWARDS, None),
        (TWO_STATES, np.broadcast_to(TWO_REWARDS, (3, 2, 2)), None),
        (
            np.broadcast_to(TWO_STATES, (3, 2, 2, 2)),
            np.broadcast_to(TWO_REWARDS, (3, 2, 2)),
            3,
        ),
        (TWO_STATES, TWO_REWARDS, 3),
        (TWO_STATES, TWO_REWARDS, np.int64(3)),
    ],
)
def test_the_horizon_is_that_of_what_depends_on_h(kernel: FloatArray, rewards: FloatArray, said: int | None) -> None:
    mdp = MDP(kernel, rewards, 0, said)
    assert mdp.horizon == 3
    np.testing.assert_allclose(mdp.solve().V, MDP(TWO_STATES, TWO_REWARDS, 0, 3).solve().V, rtol=0, atol=CLOSE)


def steps(kernel: int, rewards: int, horizon: int | None) -> dict[str, Any]:
    tables = {
        "kernel": np.broadcast_to(TWO_STATES, (kernel, 2, 2, 2)),
        "horizon": horizon,
    }
    return {**tables, "rewards": np.broadcast_to(TWO_REWARDS, (rewards, 2, 2))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": None}, "pass horizon=H"),
        (steps(2, 3, None), r"disagree on the number of steps: \[2, 3\]"),
        (steps(2, 1, 4), r"disagree on the number of steps: \[2, 4\]"),
        (steps(1, 3, 1), r"disagree on the number of steps: \[1, 3\]"),
        (steps(2, 3, 4), r"disagree on the number of steps: \[2, 3, 4\]"),
        *(({"horizon": H}, "the horizon must be") for H in (0, -1, 2.5, np.nan, np.inf, True)),
        *(
            (
                {"rewards": np.zeros(shape)},
                re.escape("(S, A) = (2, 2)") + ".*" + re.escape(f"got {shape}"),
            )
            for shape in ((), (2,), (2, 3), (3, 2), (1, 2, 2, 2))
        ),
        (
            {"rewards": [[0.0, -0.1], [1.0, 0.5]]},
            re.escape("span [-0.1, 1]") + ".*Rescale",
        ),
        (
            {"rewards": [[0.0, 1.5], [1.0, 0.5]]},
            re.escape("span [0, 1.5]") + ".*Rescale",
        ),
        *(({"rewards": [[0.0, x], [1.0, 0.5]]}, "rewards hold a value that is not a") for x in (np.nan, np.inf)),
        ({"initial": [0.5, 0.25, 0.25]}, r"shape \(S,\) = \(2,\), got \(3,\)"),
        ({"initial": [[0.5, 0.5]]}, r"got \(1, 2\)"),
        ({"initial": [0.5, 0.4]}, "sums to 0.9, not to 1"),
        ({"initial": [1.5, -0.5]}, "non-negative"),
        *(({"initial": [x, 1.0]}, "finite") for x in (np.nan, np.inf)),
        ({"initial": 2}, "the initial state must be at most 1, got 2"),
        ({"initial": -1}, "the initial state must be at least 0, got -1"),
        *(({"initial": x}, "the initial state must be a whole number") for x in (0.5, True)),
    ],
)
def test_bad_tables_are_refused_with_the_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MDP(
            **{
                "kernel": TWO_STATES,
                "rewards": TWO_REWARDS,
                "initial": 0,
                "horizon": 2,
                **changes,
            }
        )


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        *((np.zeros(shape, dtype=int), f"(H, S) = (2, 2), got {shape}") for shape in ((2,), (2, 3), (3, 2))),
        (np.zeros((1, 2, 2)), "(H, S, A) = (2, 2, 2), got (1, 2, 2)"),
        *(([[0, 1], [action, 0]], f"actions that do not exist: {action} at step 1") for action in (-1, 2, 2**32)),
        (np.full((2, 2), 0.9), "floats, which are probabilities of actions"),
    ],
)
def test_a_bad_policy_is_refused_with_the_reason(policy: Any, message: str) -> None:
    mdp = MDP(TWO_STATES, TWO_REWARDS, 0, 2)
    for use in (mdp.evaluate, mdp.occupancy):
        with pytest.raises(InputError, match=re.escape(message)):
            use(policy)
