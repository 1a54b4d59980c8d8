"""Policies that draw their actions at every visit, from sets or by probabilities: values, occupancies and regret.

A cell is visited at most once in an episode, so such a policy is the mean over all deterministic policies, each
with the product of the probabilities of its actions: brute force takes that mean, over sums over all paths.
"""

from __future__ import annotations

import numpy as np
import pytest

from fed_ucbvi import MDP, Federation, InputError, gridworld, synthetic
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.paper.common_policy import honest_tables
from fed_ucbvi.problem.agent_tables import mean_value, no_policy, occupancies, update_values
from fed_ucbvi.problem.policies import by_action
from fed_ucbvi.results.recommendations import values_by_agent
from problems import (
    all_policies,
    brute_force_occupancy,
    brute_force_value,
    policies_in,
    random_federation,
    random_mdp,
    random_policy,
    random_probabilities,
    random_sets,
)


def dense_values(mdp: MDP, sets: PolicyArray) -> tuple[FloatArray, FloatArray]:
    """``V^pi[H+1,S]`` and ``d[H,S]`` by NumPy, from the dense kernel and the policy as probabilities."""
    H, S, _ = sets.shape
    shares = sets / sets.sum(axis=2, keepdims=True)
    kernel, rewards = (np.broadcast_to(table, (H, *table.shape[1:])) for table in (mdp.kernel.dense(), mdp.rewards))
    V = np.zeros((H + 1, S))
    d = np.zeros((H, S))
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
    V = mdp.evaluate(sets)
    d = mdp.occupancy(sets)
    for h, s in np.ndindex(3, 2):
        value = np.mean([brute_force_value(mdp, policy, h, s) for policy in policies])
        assert V[h, s] == pytest.approx(value, abs=1e-13)
    assert (V[3] == 0).all()
    assert d == pytest.approx(np.mean([brute_force_occupancy(mdp, policy) for policy in policies], axis=0), abs=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_values_and_occupancies_of_probabilities_are_means_over_deterministic_policies(seed: int) -> None:
    rng = np.random.default_rng([41, seed])
    mdp = random_mdp(rng, 2, 3, 3, stationary_kernel=bool(seed % 2))
    chances = random_probabilities(rng, 3, 2, 3)
    V = np.zeros((4, 2))
    d = np.zeros((3, 2))
    total = 0.0
    for policy in policies_in(chances > 0):
        likely = float(np.prod(np.take_along_axis(chances, policy[..., None], axis=2)))
        total += likely
        d += likely * brute_force_occupancy(mdp, policy)
        for h, s in np.ndindex(3, 2):
            V[h, s] += likely * brute_force_value(mdp, policy, h, s)
    assert total == pytest.approx(1.0)
    assert mdp.evaluate(chances) == pytest.approx(V, abs=1e-13)
    assert mdp.occupancy(chances) == pytest.approx(d, abs=1e-13)


@pytest.mark.parametrize("federation", [0, 1, 2])
def test_values_of_probabilities_brought_up_to_date_are_those_computed_anew(federation: int) -> None:
    rng = np.random.default_rng(42)
    world = federations()[federation]
    H = world.horizon
    S = world.states
    A = world.actions
    M = world.agents
    tables = honest_tables(world)
    policy = random_probabilities(rng, H, S, A)
    V = np.zeros((H + 1, S, M))
    last = no_policy(policy)
    for _ in range(10):
        update_values(tables, policy, last, V)
        for i in range(M):
            fresh = world.agent(i).evaluate(policy)
            assert V[:H, :, i][tables.reachable] == pytest.approx(fresh[:H][tables.reachable], abs=1e-13)
        policy = policy.copy()
        policy[rng.integers(H), rng.integers(S)] = random_probabilities(rng, 1, 1, A)[0, 0]


def test_a_scorer_takes_sets_after_probabilities() -> None:
    """As when an incumbent that draws its actions is followed by a promoted set."""
    rng = np.random.default_rng(43)
    federation = federations()[0]
    H = federation.horizon
    S = federation.states
    A = federation.actions
    M = federation.agents
    scorer = Scorer(federation)
    starts = np.ones((M, 1, S), dtype=np.int64)
    visits = np.zeros((M, H, S, A), dtype=np.int64)
    for policy in (random_probabilities(rng, H, S, A), random_sets(rng, H, S, A), random_probabilities(rng, H, S, A)):
        assert scorer.score(policy, visits, starts) == Scorer(federation).score(policy, visits, starts)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (np.full((4, 3, 2), 0.4), "add up to 0.8, not to 1, at step 0 in state 0"),
        (np.tile([1.5, -0.5], (4, 3, 1)), "a probability of -0.5 for action 1 at step 0 in state 0"),
        (np.full((4, 3, 2), np.nan), "a probability of nan for action 0"),
        (np.full((4, 3, 2), np.inf), "add up to inf, not to 1"),
        (np.full((4, 3, 3), 1 / 3), r"must have shape \(H, S, A\) = \(4, 3, 2\), got \(4, 3, 3\)"),
        (np.zeros((4, 3)), r"floats, which are probabilities of actions, .* Give actions as integers"),
        (np.zeros((4, 3, 2), dtype=np.int64), r"integers, which are actions, .* Give probabilities as floats"),
        (np.full((4, 3), 2), "takes actions that do not exist: 2 at step 0 in state 0, where there are 0 to 1"),
        (np.full((4, 3), "0"), "must be a table of actions"),
    ],
)
def test_a_policy_that_cannot_be_played_is_refused_with_what_is_wrong(wrong: PolicyArray, says: str) -> None:
    mdp = random_mdp(np.random.default_rng(37), 3, 2, 4)
    with pytest.raises(InputError, match=says):
        mdp.evaluate(wrong)


def test_values_and_occupancies_of_larger_problems() -> None:
    rng = np.random.default_rng(32)
    for seed in range(20):
        H = 7
        S = int(rng.integers(1, 12))
        A = int(rng.integers(1, 6))
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
        H = federation.horizon
        S = federation.states
        A = federation.actions
        M = federation.agents
        tables = honest_tables(federation)
        visits = np.zeros((M, H, S, A), dtype=np.int64)
        world = tables.successors, tables.probabilities, tables.initial
        for _ in range(5):
            policy = random_policy(rng, federation.common)
            sets = by_action(policy, A)
            for mdp in (federation.common, federation.agent(0)):
                assert mdp.evaluate(sets).tobytes() == mdp.evaluate(policy).tobytes()
                assert mdp.occupancy(sets).tobytes() == mdp.occupancy(policy).tobytes()
            assert occupancies(*world, sets).tobytes() == occupancies(*world, policy).tobytes()
            assert values_by_agent(federation, sets).tobytes() == values_by_agent(federation, policy).tobytes()
            at: CountArray = rng.integers(0, 9, size=(M, H, S))
            visits[:] = 0
            np.put_along_axis(visits, np.broadcast_to(policy[None, ..., None], (M, H, S, 1)), at[..., None], axis=3)
            scores = (
                Scorer(federation).score(policy, at, at[:, :1]),
                Scorer(federation).score(sets, visits, at[:, :1]),
            )
            assert scores[0] == scores[1]


@pytest.mark.parametrize("sets", [False, True])
def test_values_brought_up_to_date_are_those_computed_anew_to_the_last_bit(sets: bool) -> None:
    rng = np.random.default_rng(35)
    for federation in federations():
        H = federation.horizon
        S = federation.states
        A = federation.actions
        M = federation.agents
        tables = honest_tables(federation)
        policy: PolicyArray = random_sets(rng, H, S, A) if sets else random_policy(rng, federation.common)
        V = np.zeros((H + 1, S, M))
        last = no_policy(policy)
        for turn in range(30):
            update_values(tables, policy, last, V)
            anew = np.zeros_like(V)
            nothing = no_policy(policy)
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
            h = rng.integers(H)
            s = rng.integers(S)
            policy[h, s] = random_sets(rng, 1, 1, A)[0, 0] if sets else rng.integers(A)
            if turn % 10 == 9:
                policy = random_sets(rng, H, S, A) if sets else random_policy(rng, federation.common)


def test_rounds_of_one_action_each_and_of_sets_may_take_turns() -> None:
    rng = np.random.default_rng(37)
    for federation in federations():
        H = federation.horizon
        S = federation.states
        A = federation.actions
        M = federation.agents
        scorer = Scorer(federation)
        starts = np.ones((M, 1, S), dtype=np.int64)
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
    common = federation.common
    scorer = Scorer(federation)
    best = [max(brute_force_value(common, policy, 0, s) for policy in all_policies(common)) for s in range(2)]
    for _ in range(6):
        sets = random_sets(rng, 2, 2, 2)
        visits: CountArray = rng.integers(0, 20, size=(3, 1 if stationary else 2, 2, 2))
        starts: CountArray = rng.integers(0, 9, size=(3, 1, 2))
        policies = list(policies_in(sets))
        gaps = [best[s] - np.mean([brute_force_value(common, one, 0, s) for one in policies]) for s in range(2)]
        regret = sum(starts[i, 0, s] * gaps[s] for i in range(3) for s in range(2)) / 3
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
        with pytest.raises(InputError, match="has no action for some state: step 2, state 1"):
            use(sets)
