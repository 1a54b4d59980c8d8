"""The recommended policy: planned without bonus from all counts, and the gap to what the server still hopes for."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shops

from commands import call
from fed_ucbvi import (
    MDP,
    ByzanUCBVI,
    ConcurrentUCBVI,
    Federation,
    FedKLUCBVI,
    FedQBernstein,
    FedUCBVI,
    InputError,
    Run,
    gridworld,
    load_policy,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.engine.problems import SimulatedProblem
from fed_ucbvi.engine.simulation import Interrupted, Simulation
from fed_ucbvi.network.messages import End, Query, Start, Stop
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.paper.algorithms.ucbvi import Clip
from fed_ucbvi.results.policy import LearntPolicy
from fed_ucbvi.results.recommendations import GREEDY, PLANNED
from naive_planner import Model, agents_models, average, best_by_enumeration, evaluate, model_of, solve
from network import federate, make_nodes
from problems import worth
from runs import counted_apart, finished, interrupt_after, without_cautions

pytestmark = without_cautions

GRID = 1e-9
"""More than H roundings to the grid, on which Fed-UCBVI's values lie, can add up to here."""


def small(agents: int = 3, horizon: int = 4) -> Federation:
    return synthetic(agents=agents, eps_p=0.3, eps_r=0.2, seed=2, states=3, actions=2, horizon=horizon)


def played(algorithm: Any, federation: Federation, episodes: int, *, apart: bool = True) -> Any:
    problem = SimulatedProblem(federation, "episodes", pooled=not apart)
    return finished(Simulation(algorithm, problem, episodes, 4))


# ---------------------------------------------------------------------------------------------------------- the plan


@pytest.mark.parametrize("episodes", [1, 5, 60])
@pytest.mark.parametrize(
    "algorithm",
    [
        FedUCBVI(),
        FedUCBVI(bonus="theory", ties="random"),
        FedKLUCBVI(),
    ],
    ids=["practical", "theory", "sets of actions"],
)
def test_the_plan_is_value_iteration_on_the_counts(algorithm: FedUCBVI | FedKLUCBVI, episodes: int) -> None:
    federation = small()
    simulation = played(algorithm, federation, episodes)
    counts = simulation.algorithm.counts_of(simulation.server, simulation.agents)
    Q, V = solve(model_of(counts))
    recommended = simulation.plan()
    assert recommended.kind == PLANNED
    np.testing.assert_allclose(recommended.V, V, atol=GRID, rtol=0)
    chosen = np.take_along_axis(Q, recommended.policy[..., None].astype(np.int64), axis=2)[..., 0]
    assert (chosen >= Q.max(axis=2) - GRID).all()
    nowhere = counts.visits.sum(axis=2) == 0
    assert (recommended.policy[nowhere] == 0).all(), "the first among equals"
    assert (recommended.V[:-1][nowhere] == 0).all(), "where nobody has been nothing is to be had"
    pooled = played(algorithm, federation, episodes, apart=False).plan()
    assert np.array_equal(pooled.policy, recommended.policy)
    assert np.array_equal(pooled.V, recommended.V)


@pytest.mark.parametrize("clip", ["horizon", "values"])
def test_concurrent_ucbvi_plans_from_its_own_counts(clip: Clip) -> None:
    federation = small()
    simulation = played(ConcurrentUCBVI(clip=clip), federation, 20)
    known = simulation.server.estimates
    N = np.maximum(known.N, 1)
    Q, V = solve(Model(known.transitions / N[..., None], known.reward_sums / N))
    recommended = simulation.plan()
    np.testing.assert_allclose(recommended.V, V, atol=1e-12)
    assert np.array_equal(recommended.policy, Q.argmax(axis=2))
    result = simulation.result()
    assert (result.recommendations["messages_up"] == 0).all(), "the server has all trajectories"


def test_byzan_ucbvi_without_liars_plans_with_means_by_visits() -> None:
    """With alpha = 0 nothing is trimmed, and a large logarithm makes all intervals overlap: everybody is believed."""
    federation = small()
    simulation = played(ByzanUCBVI(alpha=0.0, log_term=1e6), federation, 40)
    Q, V = solve(average(*agents_models(simulation.agents.experience, federation.states)))
    recommended = simulation.plan()
    np.testing.assert_allclose(recommended.V, V, atol=1e-12)
    assert np.array_equal(recommended.policy, Q.argmax(axis=2))


def test_no_policy_is_better_on_the_estimated_mdp() -> None:
    """All 2^9 = 512 deterministic policies of three states, two actions and three steps."""
    federation = small(horizon=3)
    simulation = played(FedUCBVI(), federation, 30)
    model = model_of(simulation.agents.table)
    recommended = simulation.plan()
    best = best_by_enumeration(model)
    np.testing.assert_allclose(recommended.V[0], best, atol=GRID, rtol=0)
    np.testing.assert_allclose(evaluate(model, recommended.policy)[0], best, atol=GRID, rtol=0)


def test_it_is_optimal_where_every_pair_was_seen_and_nothing_is_random() -> None:
    """Two states, action a leads to state a; staying in 1 pays. Everything is known after a few episodes."""
    kernel = np.zeros((2, 2, 2))
    kernel[:, 0, 0] = kernel[:, 1, 1] = 1.0
    mdp = MDP(kernel, [[0.2, 0.0], [0.0, 1.0]], initial=0, horizon=4)
    result = run(FedUCBVI(), Federation.from_mdps([mdp, mdp]), 200)
    assert result.value == result.about.optimal_value == pytest.approx(3.0)
    assert result.simple_regret == 0.0
    assert result.estimated_value == pytest.approx(3.0, abs=GRID)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_recommending_changes_nothing(name: str) -> None:
    algorithm = make_algorithm(name, {})
    federation = small(agents=1 if algorithm.single_agent else 3)
    simulation = played(algorithm, federation, 15, apart=False)
    before = [{k: v.copy() for k, v in side.arrays().items()} for side in (simulation.server, simulation.agents)]
    first = simulation.result()
    for side, arrays in zip((simulation.server, simulation.agents), before, strict=True):
        for key, array in side.arrays().items():
            assert np.array_equal(array, arrays[key]), key
    assert simulation.result().same_outcome(first)
    assert first.policy.shape == (federation.horizon, federation.states)
    assert first.policy.dtype == np.int32


def test_model_free_algorithms_recommend_their_greedy_policy() -> None:
    result = run(FedQBernstein(), small(), 40)
    assert result.policy_kind == GREEDY
    assert np.array_equal(result.policy, result.exploring_policy)
    assert np.isnan([result.gap, result.estimated_value]).all()
    assert np.isnan(result.recommendations["estimated"]).all()
    traffic = result.recommendation_traffic
    assert traffic == (0, 0, 0, 3 * result.policy.nbytes), "the policy that goes with the end signal"
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert (summary["policy_kind"], summary["gap"]) == (GREEDY, None)
    assert "gap" not in dict(summary_rows(result)[1])


def test_robust_means_withstand_lies_about_the_recommended_policy() -> None:
    """Two of ten agents report H for every value; the robust means stay near V*."""
    lying = gridworld(agents=10).with_liars(0.2, "inflate", seed=0)
    robust = run(ByzanUCBVI(alpha=0.2, log_term=0.02), lying, 2000)
    best = robust.about.optimal_value
    assert robust.policy_kind == PLANNED
    assert robust.agents_value.mean > 0.95 * best
    assert robust.estimated_value == pytest.approx(best, rel=0.1)


# --------------------------------------------------------------------------------------------------- what it is worth


@pytest.mark.slow
@pytest.mark.full
def test_five_shops_are_recommended_far_more_than_exploring_earns() -> None:
    """Euro a month and shop. The best shared policy earns 120.2; with defaults the optimistic one earns about 2."""
    result = run(FedUCBVI(), shops.shops(), 1000)
    best = 120.2
    recommended, exploring = (
        float(np.mean([worth(*shops.shop(mean), policy, shops.FIRST) for mean in shops.DEMANDS]))
        for policy in (result.policy, result.exploring_policy)
    )
    assert result.agents_value.mean == pytest.approx(recommended, abs=1e-9)
    assert recommended > 0.5 * best
    assert exploring < 0.2 * best
    assert result.estimated_value == pytest.approx(recommended, rel=0.5)


def test_exporting_and_playing_speak_of_it(tmp_path: Path) -> None:
    result = run(FedUCBVI(), gridworld(agents=3, eps_p=0.2), 100)
    assert not np.array_equal(result.policy, result.exploring_policy)
    result.save(tmp_path / "run")
    result.export_policy(tmp_path / "policy.json")
    policy = load_policy(tmp_path / "policy.json")
    assert np.array_equal(policy.table, result.policy)
    assert policy.value == result.value
    figures = json.loads(call("play", str(tmp_path / "run"), "--json").stdout)
    assert figures["value_of_the_run"] == pytest.approx(result.value)
    summary = json.loads(call("show", str(tmp_path / "run"), "--json").stdout)
    assert summary["policy_kind"] == PLANNED
    assert summary["value"] == result.value
    assert summary["gap"] == result.optimistic_value - result.estimated_value
    assert summary["simple_regret"] == result.about.optimal_value - result.value
    assert [row["episodes"] for row in summary["recommendations"]] == result.recommendations["episodes"].tolist()
    printed = call("show", str(tmp_path / "run")).stdout
    assert re.search(rf"\bgap +{result.gap:.4f}", printed)
    assert "recommendations" in printed


# ------------------------------------------------------------------------------------------------------------ the gap


def test_one_is_planned_whenever_the_episodes_have_doubled_and_at_the_end() -> None:
    result = run(FedUCBVI(), gridworld(agents=4), 1000, driver="episodes")
    ends = np.cumsum(result.records["length"])
    expected = []
    last = 0
    for number, end in enumerate(ends[:-1].tolist(), 1):
        if end >= 2 * last:
            expected.append((number, end))
            last = end
    expected.append((len(ends), 1000))
    table = result.recommendations
    assert list(zip(table["round"].tolist(), table["episodes"].tolist(), strict=True)) == expected
    assert len(expected) <= 12
    assert table["value"][-1] == result.agents_value.mean
    assert table["optimistic"][-1] == result.optimistic_value
    assert table["estimated"][-1] == result.estimated_value
    gaps = table["optimistic"] - table["estimated"]
    assert gaps[-1] == result.gap
    assert (gaps >= -1e-6).all(), "a bonus of at least nothing"
    assert gaps[-1] < gaps[0]


def test_the_gap_bounds_the_loss_where_the_bonus_is_optimistic() -> None:
    """V* - V^pi <= gap + (estimate - V^pi): with a bonus that has a proof, at every recommendation of these runs.

    The bonus fails with probability at most delta = 0.05, and these seeds are fixed.
    """
    for seed in range(3):
        federation = gridworld(agents=4, seed=seed)
        result = run(FedUCBVI(bonus="corrected"), federation, 2000, seed=seed, driver="counts")
        table = result.recommendations
        best = result.about.optimal_value
        assert (table["optimistic"] >= best - 1e-12).all()
        error = table["estimated"] - table["value"]
        assert (best - table["value"] <= table["optimistic"] - table["estimated"] + error + 1e-9).all()


def test_its_messages_are_one_synchronisations_and_counted_apart() -> None:
    federation = small()
    algorithm = FedUCBVI()
    result = run(algorithm, federation, 200)
    simulation = played(algorithm, federation, 1)
    up = down = 0
    pairs = 3 * federation.states * federation.actions
    planner = algorithm.new_planner(simulation.setting, simulation.server)
    for exchange in range(algorithm.exchanges(simulation.setting)):
        query = algorithm.query(planner, exchange)
        report = algorithm.report(simulation.agents, query, exchange)
        # the paper's n, PV, PV2 and Q
        down = down + 3 * sum(array.nbytes for array in query)
        up = up + pairs * 4 * 8
        algorithm.aggregate(planner, report, exchange)
    table = result.recommendations
    H = federation.horizon
    assert (table["bytes_up"] == up).all()
    assert (table["messages_up"] == 3 * H).all()
    assert (table["messages_down"] == 3 * H).all()
    assert table["bytes_down"].tolist() == [down] * (len(table["round"]) - 1) + [down + 3 * result.policy.nbytes]
    assert result.summary()["recommendation_traffic"]["bytes_up"] == result.recommendation_traffic.bytes_up
    asked = int((result.records["requests"] > 0).sum())
    assert result.bytes_up == asked * up + 48 * int(result.records["requests"].sum()), "rounds cost what they did"


def test_an_interrupted_run_recommends_what_is_known_and_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    algorithm = FedUCBVI()
    federation = small()
    kept: dict[str, Any] = {"checkpoint": tmp_path / "kept", "checkpoint_every": 1}
    with pytest.raises(Interrupted) as stop:
        run(algorithm, federation, 300, on_round=interrupt_after(episodes=40), **kept)
    partial = stop.value.partial
    assert partial.recommendations["episodes"][-1] == partial.episodes_played
    assert (np.diff(partial.recommendations["round"]) > 0).all()
    partial.save(tmp_path / "partial")
    assert Run.load(tmp_path / "partial") == partial
    assert resume(tmp_path / "kept").same_outcome(run(algorithm, federation, 300))


def test_runs_that_recommend_otherwise_are_not_the_same() -> None:
    result = run(FedUCBVI(), small(), 50)
    table = {name: column.copy() for name, column in result.recommendations.items()}
    table["estimated"][0] += 1e-9
    for change in (
        {"recommendations": table},
        {"exploring_policy": 1 - result.exploring_policy},
        {"policy_kind": GREEDY},
        {"estimated_value": 0.0},
    ):
        assert not replace(result, **change).same_outcome(result)


def test_a_run_whose_policy_is_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    replace(run(FedUCBVI(), small(), 50), policy_kind="guessed").save(tmp_path / "run")
    with pytest.raises(InputError, match="recommended policy"):
        Run.load(tmp_path / "run")


# --------------------------------------------------------------------------------------------------- over the network


def test_a_server_that_knows_only_sizes_weighs_by_the_starts_that_occurred() -> None:
    federation = small(agents=4)
    algorithm = FedUCBVI()
    known = plan_for(algorithm, federation, 80, seed=1)
    result = federate(RunPlan(algorithm, known.setting), make_nodes(federation, [1, 3])).run
    simulated = finished(Simulation(algorithm, counted_apart(federation), 80, 1))
    recommended = simulated.plan()
    starts = simulated.agents.table.visits[0].sum(axis=1)
    assert starts.sum() == 4 * 80
    assert np.array_equal(result.policy, recommended.policy)
    assert result.estimated_value == pytest.approx(starts @ recommended.V[0] / starts.sum(), abs=1e-12)
    seen = starts @ simulated.server.V[0] / starts.sum()
    assert seen < result.optimistic_value < federation.horizon, "the law of the first state is unknown"
    assert result.recommendations["episodes"].tolist() == simulated.result().recommendations["episodes"].tolist()
    assert "estimated" in dict(summary_rows(result)[1])["recommended policy"]


def test_a_node_takes_no_policy_that_is_none() -> None:
    federation = small(agents=1)
    plan = plan_for(FedUCBVI(), federation, 10)
    good = LearntPolicy(np.zeros((4, 3), dtype=np.int32), 2, {}, np.nan, plan.run)
    for policy in (
        replace(good, table=good.table[:, :2]),
        replace(good, table=good.table + 2),
        replace(good, run="another"),
        replace(good, final=False),
        good,
    ):
        (node,) = make_nodes(federation, [1])
        node.enter(plan.welcome())
        end = End(1, 10, policy.to_bytes())
        if policy is good:
            node.answer(end)
            assert node.policy is not None
            continue
        with pytest.raises(InputError, match="recommended policy"):
            node.answer(end)
        assert not node.finished


def test_a_node_answers_the_second_synchronisation_only_where_there_is_one() -> None:
    federation = small(agents=1)
    cases: tuple[tuple[Any, int], ...] = ((FedUCBVI(), 8), (FedQBernstein(), 1))
    for algorithm, most in cases:
        plan = plan_for(algorithm, federation, 10)
        (node,) = make_nodes(federation, [1])
        node.enter(plan.welcome())
        server = algorithm.new_server(plan.setting)
        node.answer(Start(1, 0, 0, 10, 1, tuple(algorithm.broadcast(server))))
        node.answer(Stop(1, 1))
        for exchange in range(most):
            arrays = tuple(algorithm.query(server, exchange % algorithm.exchanges(plan.setting)))
            assert node.answer(Query(1, exchange, arrays)) is not None
        with pytest.raises(InputError, match="does not fit"):
            node.answer(Query(1, most, arrays))
