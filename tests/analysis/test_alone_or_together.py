"""Alone or together: own models against exact values and repeated draws, and the advice against the truth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shops

from fed_ucbvi import MDP, Federation, FedKLUCBVI, FedQHoeffding, InputError, load_policy, synthetic
from fed_ucbvi.algorithms.experience import OwnCounts
from fed_ucbvi.analysis.alone_or_together import ALONE, BLEND, TOGETHER, OwnModel, advise, alone_or_together, folds
from fed_ucbvi.command_line.nodes import ADVICE, advice_lines, advise_node
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.engine.simulation import Simulation, drive
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.sources import LiveSource
from gymnasium_problems import TableEnv
from network import federate, make_nodes

S, A, H = 3, 2, 4
RNG = np.random.default_rng(7)


def small(*, stationary: bool) -> MDP:
    P = RNG.dirichlet(np.ones(S), size=(S, A) if stationary else (H, S, A))
    rewards = RNG.random((S, A) if stationary else (H, S, A))
    return MDP(P, rewards, np.array([0.5, 0.3, 0.2]), H)


def counts_of(mdp: MDP, transitions: np.ndarray, starts: FloatArray | None = None) -> OwnCounts:
    """Counts by the number of the next state, of rewards that are not random."""
    steps = len(transitions)
    successors = np.broadcast_to(np.arange(S, dtype=np.int32), (1, S, A, S))
    rewards = transitions * np.broadcast_to(mdp.rewards, (steps, S, A))[..., None]
    law = mdp.initial if starts is None else starts
    spread = np.zeros((steps, S, A))
    return OwnCounts(transitions, successors, rewards, spread, law, H, law_known=starts is None)


@pytest.mark.parametrize("stationary", [True, False])
def test_with_endless_counts_the_model_is_the_mdp(stationary: bool) -> None:
    mdp = small(stationary=stationary)
    model = OwnModel.of(counts_of(mdp, np.rint(mdp.kernel.dense() * 10**12).astype(np.int64)))
    policy = RNG.integers(A, size=(H, S)).astype(np.int32)
    np.testing.assert_allclose(model.value(policy).V, mdp.evaluate(policy), atol=1e-9)
    best = mdp.solve()
    for trust, shared in ((0.0, None), (1.0, None), (1.0, policy)):
        planned = model.plan(trust, shared)
        np.testing.assert_allclose(mdp.evaluate(planned)[0], best.V[0], atol=1e-9)
    assert np.array_equal(model.plan(1e12, policy)[:-1], policy[:-1])  # at the last step nothing is unsure
    assert model.error(model.value(policy)) < 1e-4


@pytest.mark.parametrize("stationary", [True, False])
def test_the_standard_error_is_the_spread_over_repeated_draws(stationary: bool) -> None:
    """600 draws: the ratio of the two has a standard deviation of about 3 %; it fails by chance with rate 1e-4."""
    mdp = small(stationary=stationary)
    P, n, rng = mdp.kernel.dense(), 400, np.random.default_rng(1)
    one, other = (rng.integers(A, size=(H, S)).astype(np.int32) for _ in range(2))
    values, errors = [], []
    for _ in range(600):
        starts = rng.multinomial(n, mdp.initial).astype(np.float64)
        model = OwnModel.of(counts_of(mdp, rng.multinomial(n, P), starts))
        a, b = model.value(one), model.value(other)
        values.append((model.worth(a), model.worth(a) - model.worth(b)))
        errors.append((model.error(a), model.error(a, b)))
    ratio = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0)
    assert ratio == pytest.approx([1.0, 1.0], abs=0.12)
    truth = mdp.initial @ mdp.evaluate(one)[0]
    assert np.mean(values, axis=0)[0] == pytest.approx(truth, abs=4 * np.std(values, axis=0)[0] / np.sqrt(600) + 1e-3)


def test_folds_share_out_every_visit_and_what_it_paid() -> None:
    mdp, rng = small(stationary=False), np.random.default_rng(2)
    known = counts_of(mdp, rng.multinomial(1000, mdp.kernel.dense()), np.array([500.0, 300.0, 200.0]))
    counts = replace(known, reward_variance=np.full((H, S, A), 0.01))
    parts = folds(counts, 4, rng)
    assert np.array_equal(sum(part.transitions for _, part in parts), counts.transitions)
    np.testing.assert_allclose(sum(part.rewards for _, part in parts), counts.rewards)
    assert np.array_equal(sum(part.starts for _, part in parts), counts.starts)
    for rest, part in parts:
        assert np.array_equal(rest.transitions + part.transitions, counts.transitions)
        total = counts.transitions.sum()
        assert abs(part.transitions.sum() - total / 4) < 5 * np.sqrt(total * 3 / 16)
        # given the visits, what a part of m of n is paid varies by v m (n - m) / n
        m, n = part.transitions, counts.transitions
        off = part.rewards - counts.rewards * m / np.maximum(n, 1)
        scaled = (off / np.sqrt(0.01 * m * (n - m) / np.maximum(n, 1)).clip(1e-9))[m > 0]
        assert np.mean(scaled**2) == pytest.approx(1.0, abs=5 * np.sqrt(2 / scaled.size))


def test_agents_that_are_alike_stay_together() -> None:
    """Each of five leaves a shared policy that is as good for it with probability 5 % at most; the seed is fixed."""
    advised = alone_or_together(FedKLUCBVI(), synthetic(agents=5, seed=3, states=3, actions=2, horizon=4), 400)
    assert [one.use for one in advised.agents] == [TOGETHER] * 5
    assert all(np.array_equal(one.policy, advised.run.policy) for one in advised.agents)


@pytest.mark.slow
@pytest.mark.full
def test_five_shops_get_nearly_the_best_of_the_three() -> None:
    """After 1 000 months; figures of docs/advise.md are from more seeds."""
    problem = shops.shops()
    advised = alone_or_together(FedKLUCBVI(stationary=True), problem, 1000)
    values = [
        {name: shops.euro(float(mdp.initial @ mdp.evaluate(policy)[0])) for name, policy in one.plans.items()}
        for one, mdp in ((one, problem.agent(one.agent)) for one in advised.agents)
    ]
    picked = [value[one.use] for one, value in zip(advised.agents, values, strict=True)]
    short = [max(value.values()) - pick for value, pick in zip(values, picked, strict=True)]
    assert sum(loss < 1.5 for loss in short) >= 4
    assert np.mean(picked) > np.mean([value[TOGETHER] for value in values]) + 2.0
    for one, value in zip(advised.agents, values, strict=True):
        assert shops.euro(one.shared_value) == pytest.approx(value[TOGETHER], abs=4 * 84.0 * one.shared_error)
    assert {one.use for one in advised.agents} & {ALONE, BLEND}


@pytest.mark.parametrize("stationary", [True, False])
def test_a_node_advises_from_the_counts_that_a_simulation_has(stationary: bool) -> None:
    world = synthetic(agents=3, eps_p=0.3, seed=2, states=3, actions=2, horizon=4)
    if stationary:
        mdps = [small(stationary=True) for _ in range(3)]
        world = Federation.from_mdps(mdps)
    algorithm = FedKLUCBVI(stationary=stationary)
    simulation = Simulation(algorithm, world, 80, 1, "episodes", apart=True)
    run = drive(simulation, False)
    nodes = make_nodes(world, [1, 2])
    federate(plan_for(algorithm, world, 80, seed=1), nodes)
    for node in nodes:
        for i in range(node.agents):
            number = node.first_agent + i
            theirs, law = node.own_counts(i), world.initial[number]
            ours = OwnCounts.of(simulation.algorithm, simulation.agents, number, 4, law, True)
            assert np.array_equal(theirs.transitions, ours.transitions)
            np.testing.assert_array_equal(theirs.rewards, ours.rewards)
            assert node.policy is not None
            mine, told = advise(ours, run.policy), advise(theirs, node.policy.table)
            assert (mine.use, mine.alone, mine.blend) == (told.use, told.alone, told.blend)


@pytest.mark.parametrize("random_rewards", [True, False])
def test_a_node_with_environments_writes_what_its_agents_should_use(tmp_path: Path, random_rewards: bool) -> None:
    made: list[TableEnv] = []

    def make(agent: int) -> TableEnv:
        made.append(TableEnv(noise=0.5, initial=(0.5, 0.5, 0.0)))
        return made[-1]

    algorithm = FedKLUCBVI(stationary=True)
    setting = RunPlan(algorithm, plan_for(algorithm, synthetic(agents=2), 1).setting).setting
    setting = replace(setting, states=4, actions=2, horizon=4, agents=2, episodes=60, random_rewards=random_rewards)
    nodes = make_nodes(LiveSource(make, (-1.5, 3.5), 4), [2], tmp_path / "state")
    federate(RunPlan(algorithm, setting, collection="live"), nodes)
    (node,) = nodes
    played = [env for env in made if env.log]
    for i, env in enumerate(played):
        counts = node.own_counts(i)
        begun = np.bincount([episode[0][0] for episode in env.log], minlength=4)
        assert np.array_equal(counts.starts, begun)
        seen = [step for episode in env.log for step in episode]
        for s in range(3):
            for a in range(2):
                there = [(y, over, (r + 1.5) / 5.0) for at, does, r, y, over in seen if (at, does) == (s, a)]
                paid = [r for _, _, r in there]
                assert counts.visits[0, s, a] == len(paid)
                assert counts.rewards[0, s, a].sum() == pytest.approx(sum(paid), abs=1e-6)
                if random_rewards and len(paid) > 10:
                    ways = {way[:2] for way in there}  # given the next state
                    groups = [[r for *way, r in there if tuple(way) == one] for one in ways]
                    within = sum(len(group) * np.var(group) for group in groups) / (len(paid) - len(groups))
                    assert counts.reward_variance[0, s, a] == pytest.approx(within, rel=1e-4)
    found = advise_node(node, tmp_path / "advice")
    assert json.loads((tmp_path / "advice" / ADVICE).read_text()) == found
    lines = list(advice_lines(found))
    for one, line in zip(found["agents"], lines, strict=True):
        assert load_policy(one["file"]).states == 4
        assert line.startswith(f"agent {one['agent']}: use {one['use']}")
    assert 4 * -1.5 <= found["agents"][0]["together"]["value"] <= 4 * 3.5


def test_who_has_no_counts_is_told_so() -> None:
    with pytest.raises(InputError, match="agents of fedq-hoeffding do not keep their counts"):
        alone_or_together(FedQHoeffding(), synthetic(agents=2, states=3, actions=2, horizon=3), 10)
    (node,) = make_nodes(synthetic(agents=1), [1])
    with pytest.raises(InputError, match="has not taken part in this process"):
        node.own_counts(0)
    mdp = small(stationary=True)
    with pytest.raises(InputError, match="has counted nothing"):
        advise(counts_of(mdp, np.zeros((1, S, A, S), dtype=np.int64)), np.zeros((H, S), dtype=np.int32))
