"""Policies that draw their actions at every visit, from sets or by probabilities: values, occupancies and regret.

A cell is visited at most once in an episode, so such a policy is the mean over all deterministic policies, each
with the product of the probabilities of its actions: brute force takes that mean, over sums over all paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest

from fed_ucbvi import MDP, Federation, InputError, gridworld, synthetic
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.regret import Score, Scorer
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


class DenseEvaluation(NamedTuple):
    """Values ``[H+1,S]`` and occupancies ``[H,S]``."""

    V: FloatArray
    d: FloatArray


def evaluate_densely(mdp: MDP, sets: PolicyArray) -> DenseEvaluation:
    """Values and occupancies by NumPy, from the dense kernel and the policy as probabilities."""
    H, S, _ = sets.shape
    shares = sets / sets.sum(axis=2, keepdims=True)
    dense = mdp.kernel.dense()
    kernel = np.broadcast_to(dense, (H, *dense.shape[1:]))
    rewards = np.broadcast_to(mdp.rewards, (H, *mdp.rewards.shape[1:]))
    V = np.zeros((H + 1, S))
    d = np.zeros((H, S))
    for h in reversed(range(H)):
        V[h] = np.einsum("sa,sa->s", shares[h], rewards[h] + kernel[h] @ V[h + 1])
    d[0] = mdp.initial
    for h in range(H - 1):
        d[h + 1] = np.einsum("s,sa,sat->t", d[h], shares[h], kernel[h])
    return DenseEvaluation(V, d)


def mean_brute_force_value(mdp: MDP, sets: PolicyArray, h: int, s: int) -> float:
    """The mean over all policies in the sets of ``V^pi_h(s)``, each by summing over all paths."""
    values = [brute_force_value(mdp, policy, h, s) for policy in policies_in(sets)]
    return float(np.mean(values))


def small_mdp_with_sets(seed: int, *, stationary: bool) -> tuple[MDP, PolicyArray]:
    """Two states, three actions, three steps."""
    rng = np.random.default_rng([31, seed])
    mdp = random_mdp(rng, 2, 3, 3, stationary_kernel=stationary, stationary_rewards=stationary)
    sets = random_sets(rng, 3, 2, 3)
    assert len(list(policies_in(sets))) > 1
    return mdp, sets


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stationary", [False, True])
def test_values_of_sets_are_means_over_the_policies_in_them(seed: int, stationary: bool) -> None:
    mdp, sets = small_mdp_with_sets(seed, stationary=stationary)
    V = mdp.evaluate(sets)
    for h, s in np.ndindex(3, 2):
        assert V[h, s] == pytest.approx(mean_brute_force_value(mdp, sets, h, s), abs=1e-13)
    assert (V[3] == 0).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stationary", [False, True])
def test_occupancies_of_sets_are_means_over_the_policies_in_them(seed: int, stationary: bool) -> None:
    mdp, sets = small_mdp_with_sets(seed, stationary=stationary)
    by_policy = [brute_force_occupancy(mdp, policy) for policy in policies_in(sets)]
    assert mdp.occupancy(sets) == pytest.approx(np.mean(by_policy, axis=0), abs=1e-13)


class WeightedPolicies(NamedTuple):
    """A policy of probabilities, and the deterministic policies of which it is the mean with their weights."""

    mdp: MDP
    policy: FloatArray
    deterministic: list[tuple[float, IndexArray]]


def weighted_policies(seed: int) -> WeightedPolicies:
    rng = np.random.default_rng([41, seed])
    mdp = random_mdp(rng, 2, 3, 3, stationary_kernel=bool(seed % 2))
    policy = random_probabilities(rng, 3, 2, 3)
    deterministic = []
    for actions in policies_in(policy > 0):
        probabilities = np.take_along_axis(policy, actions[..., None], axis=2)
        deterministic.append((float(np.prod(probabilities)), actions))
    assert sum(weight for weight, _ in deterministic) == pytest.approx(1.0)
    return WeightedPolicies(mdp, policy, deterministic)


@pytest.mark.parametrize("seed", range(4))
def test_values_of_probabilities_are_means_over_deterministic_policies(seed: int) -> None:
    mdp, policy, deterministic = weighted_policies(seed)
    V = np.zeros((4, 2))
    for weight, actions in deterministic:
        for h, s in np.ndindex(3, 2):
            V[h, s] += weight * brute_force_value(mdp, actions, h, s)
    assert mdp.evaluate(policy) == pytest.approx(V, abs=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_occupancies_of_probabilities_are_means_over_deterministic_policies(seed: int) -> None:
    mdp, policy, deterministic = weighted_policies(seed)
    d = np.zeros((3, 2))
    for weight, actions in deterministic:
        d += weight * brute_force_occupancy(mdp, actions)
    assert mdp.occupancy(policy) == pytest.approx(d, abs=1e-13)


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
    policies = [
        random_probabilities(rng, H, S, A),
        random_sets(rng, H, S, A),
        random_probabilities(rng, H, S, A),
    ]
    for policy in policies:
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
def test_the_error_for_an_invalid_policy_names_the_entry(wrong: PolicyArray, says: str) -> None:
    mdp = random_mdp(np.random.default_rng(37), 3, 2, 4)
    with pytest.raises(InputError, match=says):
        mdp.evaluate(wrong)


def larger_problem(seed: int) -> tuple[MDP, PolicyArray]:
    rng = np.random.default_rng([32, seed])
    S = int(rng.integers(1, 12))
    A = int(rng.integers(1, 6))
    mdp = random_mdp(rng, S, A, 7, stationary_kernel=bool(seed % 2), stationary_rewards=bool(seed % 3))
    return mdp, random_sets(rng, 7, S, A)


@pytest.mark.parametrize("seed", range(20))
def test_values_of_larger_problems_are_those_of_the_dense_kernel(seed: int) -> None:
    mdp, sets = larger_problem(seed)
    assert mdp.evaluate(sets) == pytest.approx(evaluate_densely(mdp, sets).V, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_occupancies_of_larger_problems_are_those_of_the_dense_kernel(seed: int) -> None:
    mdp, sets = larger_problem(seed)
    assert mdp.occupancy(sets) == pytest.approx(evaluate_densely(mdp, sets).d, abs=1e-12)


def federations() -> list[Federation]:
    return [
        gridworld(4, 0.3, horizon=6),
        synthetic(3, 0.2, eps_r=0.5),
        random_federation(np.random.default_rng(33), 3, 4, 3, 5, stationary=True, own_starts=True),
    ]


def same_bits(one: FloatArray, other: FloatArray) -> bool:
    return one.tobytes() == other.tobytes()


@pytest.mark.parametrize("number", range(3))
def test_sets_of_one_action_are_evaluated_as_a_deterministic_policy_bit_for_bit(number: int) -> None:
    federation = federations()[number]
    tables = honest_tables(federation)
    rng = np.random.default_rng(34)
    for _ in range(5):
        policy = random_policy(rng, federation.common)
        sets = by_action(policy, federation.actions)
        for mdp in (federation.common, federation.agent(0)):
            assert same_bits(mdp.evaluate(sets), mdp.evaluate(policy))
            assert same_bits(mdp.occupancy(sets), mdp.occupancy(policy))
        assert same_bits(values_by_agent(federation, sets), values_by_agent(federation, policy))
        of_sets = occupancies(tables.successors, tables.probabilities, tables.initial, sets)
        of_policy = occupancies(tables.successors, tables.probabilities, tables.initial, policy)
        assert same_bits(of_sets, of_policy)


@pytest.mark.parametrize("number", range(3))
def test_sets_of_one_action_are_scored_as_a_deterministic_policy_bit_for_bit(number: int) -> None:
    federation = federations()[number]
    M = federation.agents
    H = federation.horizon
    S = federation.states
    A = federation.actions
    rng = np.random.default_rng(34)
    for _ in range(5):
        policy = random_policy(rng, federation.common)
        visits: CountArray = rng.integers(0, 9, size=(M, H, S))
        by_pair = np.zeros((M, H, S, A), dtype=np.int64)
        actions = np.broadcast_to(policy[None, ..., None], (M, H, S, 1))
        np.put_along_axis(by_pair, actions, visits[..., None], axis=3)
        starts = visits[:, :1]
        of_policy = Scorer(federation).score(policy, visits, starts)
        of_sets = Scorer(federation).score(by_action(policy, A), by_pair, starts)
        assert of_sets == of_policy


def policies_that_change(federation: Federation, *, sets: bool) -> Iterator[PolicyArray]:
    """Policies each of which differs from the one before in one state, and every tenth time everywhere."""
    rng = np.random.default_rng(35)
    H = federation.horizon
    S = federation.states
    A = federation.actions
    for turn in range(30):
        if turn % 10 == 0:
            policy: PolicyArray = random_sets(rng, H, S, A) if sets else random_policy(rng, federation.common)
        else:
            policy = policy.copy()
            h = rng.integers(H)
            s = rng.integers(S)
            policy[h, s] = random_sets(rng, 1, 1, A)[0, 0] if sets else rng.integers(A)
        yield policy


every_federation = [
    pytest.mark.parametrize("sets", [False, True]),
    pytest.mark.parametrize("number", range(3)),
]


def for_every_federation(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test for each federation, with policies of one action and with sets of actions."""
    for mark in every_federation:
        test = mark(test)
    return test


@for_every_federation
def test_values_brought_up_to_date_are_those_computed_anew_bit_for_bit(number: int, sets: bool) -> None:
    federation = federations()[number]
    tables = honest_tables(federation)
    H = federation.horizon
    V = np.zeros((H + 1, federation.states, federation.agents))
    last = None
    for policy in policies_that_change(federation, sets=sets):
        if last is None:
            last = no_policy(policy)
        update_values(tables, policy, last, V)
        anew = np.zeros_like(V)
        update_values(tables, policy, no_policy(policy), anew)
        assert same_bits(V[:H][tables.reachable], anew[:H][tables.reachable])
        assert np.array_equal(last[tables.reachable], policy[tables.reachable])


@for_every_federation
def test_values_of_all_agents_at_once_are_those_of_each_agent(number: int, sets: bool) -> None:
    federation = federations()[number]
    tables = honest_tables(federation)
    H = federation.horizon
    for policy in policies_that_change(federation, sets=sets):
        V = np.zeros((H + 1, federation.states, federation.agents))
        update_values(tables, policy, no_policy(policy), V)
        values = []
        for i in range(federation.agents):
            own = federation.agent(i).evaluate(policy)
            values.append(federation.initial[i] @ own[0])
            assert np.array_equal(V[:H, :, i][tables.reachable], own[:H][tables.reachable])
        assert mean_value(tables.initial, V) == pytest.approx(np.mean(values), abs=1e-13)


@for_every_federation
def test_occupancies_of_all_agents_at_once_are_those_of_each_agent(number: int, sets: bool) -> None:
    federation = federations()[number]
    tables = honest_tables(federation)
    for policy in policies_that_change(federation, sets=sets):
        d = occupancies(tables.successors, tables.probabilities, tables.initial, policy)
        for i in range(federation.agents):
            assert np.array_equal(d[:, :, i], federation.agent(i).occupancy(policy))


@pytest.mark.parametrize("number", range(3))
def test_a_scorer_takes_sets_in_turn_with_single_actions(number: int) -> None:
    rng = np.random.default_rng(37)
    federation = federations()[number]
    H = federation.horizon
    S = federation.states
    A = federation.actions
    M = federation.agents
    scorer = Scorer(federation)
    starts = np.ones((M, 1, S), dtype=np.int64)
    for turn in range(12):
        if turn % 4 < 2:
            policy: PolicyArray = random_sets(rng, H, S, A)
            visits = np.zeros((M, H, S, A), dtype=np.int64)
        else:
            policy = random_policy(rng, federation.common)
            visits = np.zeros((M, H, S), dtype=np.int64)
        assert scorer.score(policy, visits, starts) == Scorer(federation).score(policy, visits, starts)


class PlayedRound(NamedTuple):
    """A round of three agents, with random counts, and its score."""

    federation: Federation
    sets: PolicyArray
    visits: CountArray
    starts: CountArray
    score: Score


def played_rounds(*, own_rewards: bool, stationary: bool) -> list[PlayedRound]:
    """Rounds that one scorer scores one after the other."""
    rng = np.random.default_rng([36, own_rewards, stationary])
    federation = random_federation(rng, 3, 2, 2, 2, own_rewards=own_rewards, own_starts=True, stationary=stationary)
    scorer = Scorer(federation)
    rounds = []
    for _ in range(6):
        sets = random_sets(rng, 2, 2, 2)
        visits: CountArray = rng.integers(0, 20, size=(3, 1 if stationary else 2, 2, 2))
        starts: CountArray = rng.integers(0, 9, size=(3, 1, 2))
        score = scorer.score(sets, visits, starts)
        rounds.append(PlayedRound(federation, sets, visits, starts, score))
    return rounds


kinds_of_rounds = [
    pytest.mark.parametrize("own_rewards", [False, True]),
    pytest.mark.parametrize("stationary", [False, True]),
]


def for_kinds_of_rounds(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test for shared and own rewards, with counts by step and over all steps together."""
    for mark in kinds_of_rounds:
        test = mark(test)
    return test


@for_kinds_of_rounds
def test_the_regret_of_a_round_of_sets_by_brute_force(own_rewards: bool, stationary: bool) -> None:
    for played in played_rounds(own_rewards=own_rewards, stationary=stationary):
        common = played.federation.common
        starts = played.starts.sum(axis=(0, 1))
        regret = 0.0
        for s in range(2):
            best = max(brute_force_value(common, policy, 0, s) for policy in all_policies(common))
            regret += starts[s] * (best - mean_brute_force_value(common, played.sets, 0, s)) / 3
        assert played.score.regret == pytest.approx(regret, abs=1e-12)


@for_kinds_of_rounds
def test_the_reward_of_a_round_of_sets_by_brute_force(own_rewards: bool, stationary: bool) -> None:
    for played in played_rounds(own_rewards=own_rewards, stationary=stationary):
        reward = 0.0
        for i, h, s, a in np.ndindex(*played.visits.shape):
            rewards = played.federation.agent(i).rewards
            reward += played.visits[i, h, s, a] * rewards[h if len(rewards) > 1 else 0, s, a] / 3
        assert played.score.reward == pytest.approx(reward, abs=1e-12)


@for_kinds_of_rounds
def test_the_value_of_a_round_of_sets_by_brute_force(own_rewards: bool, stationary: bool) -> None:
    for played in played_rounds(own_rewards=own_rewards, stationary=stationary):
        value = 0.0
        for i in range(3):
            mdp = played.federation.agent(i)
            for s in range(2):
                value += played.federation.initial[i, s] * mean_brute_force_value(mdp, played.sets, 0, s) / 3
        assert played.score.value == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("stationary", [False, True])
def test_visits_of_all_agents_in_one_row_have_the_same_score(stationary: bool) -> None:
    for played in played_rounds(own_rewards=False, stationary=stationary):
        together = played.visits.sum(axis=0, keepdims=True)
        score = Scorer(played.federation).score(played.sets, together, played.starts)
        assert score == pytest.approx(played.score, abs=1e-12)


def test_sets_of_another_shape_are_refused() -> None:
    mdp = random_mdp(np.random.default_rng(37), 3, 2, 4)
    with pytest.raises(InputError, match=r"shape \(H, S, A\) = \(4, 3, 2\), got \(4, 3, 3\)"):
        mdp.evaluate(np.ones((4, 3, 3), dtype=np.bool_))


@pytest.mark.parametrize("method", ["evaluate", "occupancy"])
def test_an_empty_set_of_actions_is_refused(method: str) -> None:
    mdp = random_mdp(np.random.default_rng(37), 3, 2, 4)
    sets = np.ones((4, 3, 2), dtype=np.bool_)
    sets[2, 1] = False
    with pytest.raises(InputError, match="has no action for some state: step 2, state 1"):
        getattr(mdp, method)(sets)
