"""Policies that are sets of actions, drawn from at every visit: values, occupancies and regret.

A cell is visited at most once in an episode, so such a policy is the mean over all deterministic policies in its
sets: brute force takes that mean, over sums over all paths.
"""

from __future__ import annotations

import numpy as np
import pytest

from fed_ucbvi import MDP, Federation, InputError, gridworld, synthetic
from fed_ucbvi.algorithms.base import as_sets
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.problem.agent_tables import mean_value, no_policy, occupancies, update_values
from fed_ucbvi.results.recommendations import values_by_agent
from problems import (
    all_policies,
    brute_force_occupancy,
    brute_force_value,
    policies_in,
    random_federation,
    random_mdp,
    random_policy,
    random_sets,
)


def dense_values(mdp: MDP, sets: PolicyArray) -> tuple[FloatArray, FloatArray]:
    """``V^pi[H+1,S]`` and ``d[H,S]`` by NumPy, from the dense kernel and the policy as probabilities."""
    H, S, _ = sets.shape
    shares = sets / sets.sum(axis=2, keepdims=True)
    kernel, rewards = (np.broadcast_to(table, (H, *table.shape[1:])) for table in (mdp.kernel.dense(), mdp.rewards))
    V, d = np.zeros((H + 1, S)), np.zeros((H, S))
    for h in reversed(range(H)):
        V[h] = np.einsum("sa,sa->s", shares[h], rewards[h] + kernel[h] @ V[h + 1])
    d[0] = mdp.initial
    for h in range(H - 1):
        d[h + 1] = np.einsum("s,sa,sat->t", d[h], shares[h], kernel[h])
    return V, d


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stationary", [False, True])
def test_values_and_occupancies_are_means_over_the_policies_in_the_sets(seed: int, stationary: bool) -> None:
    rng = np.random.default_rng([31, seed])
    mdp = random_mdp(rng, 2, 3, 3, stationary_kernel=stationary, stationary_rewards=stationary)
    sets = random_sets(rng, 3, 2, 3)
    policies = list(policies_in(sets))
    assert len(policies) > 1
    V, d = mdp.evaluate(sets), mdp.occupancy(sets)
    for h, s in np.ndindex(3, 2):
        value = np.mean([brute_force_value(mdp, policy, h, s) for policy in policies])
        assert V[h, s] == pytest.approx(value, abs=1e-13)
    assert (V[3] == 0).all()
    assert d == pytest.approx(np.mean([brute_force_occupancy(mdp, policy) for policy in policies], axis=0), abs=1e-13)


def test_values_and_occupancies_of_larger_problems() -> None:
    rng = np.random.default_rng(32)
    for seed in range(20):
        H, S, A = 7, int(rng.integers(1, 12)), int(rng.integers(1, 6))
        mdp = random_mdp(rng, S, A, H, stationary_kernel=bool(seed % 2), stationary_rewards=bool(seed % 3))
        sets = random_sets(rng, H, S, A)
        V, d = dense_values(mdp, sets)
        assert mdp.evaluate(sets) == pytest.approx(V, abs=1e-12)
        assert mdp.occupancy(sets) == pytest.approx(d, abs=1e-12)


def federations() -> list[Federation]:
    return [
        gridworld(4, 0.3, horizon=6),
        synthetic(3, 0.2, eps_r=0.5),
        random_federation(np.random.default_rng(33), 3, 4, 3, 5, stationary=True, own_starts=True),
    ]


def test_sets_of_one_action_are_a_deterministic_policy_to_the_last_bit() -> None:
    rng = np.random.default_rng(34)
    for federation in federations():
        H, S, A, M = federation.horizon, federation.states, federation.actions, federation.agents
        tables, visits = federation.differing_tables, np.zeros((M, H, S, A), dtype=np.int64)
        world = tables.successors, tables.probabilities, tables.initial
        for _ in range(5):
            policy = random_policy(rng, federation.common)
            sets = as_sets(policy, A)
            for mdp in (federation.common, federation.agent(0)):
                assert mdp.evaluate(sets).tobytes() == mdp.evaluate(policy).tobytes()
                assert mdp.occupancy(sets).tobytes() == mdp.occupancy(policy).tobytes()
            assert occupancies(*world, sets).tobytes() == occupancies(*world, policy).tobytes()
            assert values_by_agent(federation, sets).tobytes() == values_by_agent(federation, policy).tobytes()
            at: CountArray = rng.integers(0, 9, size=(M, H, S))
            visits[:] = 0
            np.put_along_axis(visits, np.broadcast_to(policy[None, ..., None], (M, H, S, 1)), at[..., None], axis=3)
            scores = Scorer(federation).score(policy, at, at[:, 0]), Scorer(federation).score(sets, visits, at[:, 0])
            assert scores[0] == scores[1]


@pytest.mark.parametrize("sets", [False, True])
def test_values_brought_up_to_date_are_those_computed_anew_to_the_last_bit(sets: bool) -> None:
    rng = np.random.default_rng(35)
    for federation in federations():
        H, S, A, M = federation.horizon, federation.states, federation.actions, federation.agents
        tables = federation.differing_tables
        policy: PolicyArray = random_sets(rng, H, S, A) if sets else random_policy(rng, federation.common)
        V, last = np.zeros((H + 1, S, M)), no_policy(policy)
        for turn in range(30):
            update_values(tables, policy, last, V)
            anew, nothing = np.zeros_like(V), no_policy(policy)
            update_values(tables, policy, nothing, anew)
            assert V[:H][tables.reachable].tobytes() == anew[:H][tables.reachable].tobytes()
            assert np.array_equal(last[tables.reachable], policy[tables.reachable])
            d = occupancies(tables.successors, tables.probabilities, tables.initial, policy)
            for i in range(M):
                fresh = federation.agent(i).evaluate(policy)
                assert np.array_equal(V[:H, :, i][tables.reachable], fresh[:H][tables.reachable])
                assert np.array_equal(d[:, :, i], federation.agent(i).occupancy(policy))
            worth = np.mean([federation.initial[i] @ federation.agent(i).evaluate(policy)[0] for i in range(M)])
            assert mean_value(tables.initial, V) == pytest.approx(worth, abs=1e-13)
            policy = policy.copy()
            h, s = rng.integers(H), rng.integers(S)
            policy[h, s] = random_sets(rng, 1, 1, A)[0, 0] if sets else rng.integers(A)
            if turn % 10 == 9:
                policy = random_sets(rng, H, S, A) if sets else random_policy(rng, federation.common)


def test_rounds_of_one_action_each_and_of_sets_may_take_turns() -> None:
    rng = np.random.default_rng(37)
    for federation in federations():
        H, S, A, M = federation.horizon, federation.states, federation.actions, federation.agents
        scorer, starts = Scorer(federation), np.ones((M, S), dtype=np.int64)
        for turn in range(12):
            sets = turn % 4 < 2
            policy: PolicyArray = random_sets(rng, H, S, A) if sets else random_policy(rng, federation.common)
            visits = np.zeros((M, H, S, A) if sets else (M, H, S), dtype=np.int64)
            assert scorer.score(policy, visits, starts) == Scorer(federation).score(policy, visits, starts)


@pytest.mark.parametrize("own_rewards", [False, True])
@pytest.mark.parametrize("stationary", [False, True])
def test_regret_reward_and_value_of_a_round_by_brute_force(own_rewards: bool, stationary: bool) -> None:
    """With counts by pair, by step or over all steps together, for every agent or for all at once."""
    rng = np.random.default_rng([36, own_rewards, stationary])
    federation = random_federation(rng, 3, 2, 2, 2, own_rewards=own_rewards, own_starts=True, stationary=stationary)
    common, scorer = federation.common, Scorer(federation)
    best = [max(brute_force_value(common, policy, 0, s) for policy in all_policies(common)) for s in range(2)]
    for _ in range(6):
        sets = random_sets(rng, 2, 2, 2)
        visits: CountArray = rng.integers(0, 20, size=(3, 1 if stationary else 2, 2, 2))
        starts: CountArray = rng.integers(0, 9, size=(3, 2))
        policies = list(policies_in(sets))
        gaps = [best[s] - np.mean([brute_force_value(common, one, 0, s) for one in policies]) for s in range(2)]
        regret = sum(starts[i, s] * gaps[s] for i in range(3) for s in range(2)) / 3
        reward = sum(
            visits[i, h, s, a] * federation.agent(i).rewards[h if federation.rewards.shape[1] > 1 else 0, s, a]
            for i, h, s, a in np.ndindex(*visits.shape)
        )
        value = np.mean(
            [
                federation.initial[i, s] * brute_force_value(federation.agent(i), one, 0, s) * 2
                for one in policies
                for i in range(3)
                for s in range(2)
            ]
        )
        together = (visits.sum(axis=0, keepdims=True), starts)
        for counted in [(visits, starts)] if own_rewards else [(visits, starts), together]:
            assert scorer.score(sets, *counted) == pytest.approx((regret, reward / 3, value), abs=1e-12)


def test_sets_that_cannot_be_played_are_refused() -> None:
    mdp = random_mdp(np.random.default_rng(37), 3, 2, 4)
    sets = np.ones((4, 3, 2), dtype=np.bool_)
    mdp.evaluate(sets)
    with pytest.raises(InputError, match=r"shape \(H, S, A\) = \(4, 3, 2\), got \(4, 3, 3\)"):
        mdp.evaluate(np.ones((4, 3, 3), dtype=np.bool_))
    sets[2, 1] = False
    for use in (mdp.evaluate, mdp.occupancy):
        with pytest.raises(InputError, match="at least one action"):
            use(sets)
