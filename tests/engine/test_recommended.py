"""The recommended policy: planned without bonus from all counts, and its gap to the optimistic value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
from fed_ucbvi.algorithms.base import Array, State
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.core.types import CountArray, PolicyArray
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


planned_runs = [
    pytest.mark.parametrize("episodes", [1, 5, 60]),
    pytest.mark.parametrize(
        "algorithm",
        [FedUCBVI(), FedUCBVI(bonus="theory", ties="random"), FedKLUCBVI()],
        ids=["practical", "theory", "sets of actions"],
    ),
]


def for_planned_runs(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test for short and long runs of algorithms that plan from counts."""
    for mark in planned_runs:
        test = mark(test)
    return test


@for_planned_runs
def test_the_plan_is_value_iteration_on_the_counts(algorithm: FedUCBVI | FedKLUCBVI, episodes: int) -> None:
    simulation = played(algorithm, small(), episodes)
    counts = simulation.algorithm.counts_of(simulation.server, simulation.agents)
    Q, V = solve(model_of(counts))
    recommended = simulation.plan()
    actions = recommended.policy[..., None].astype(np.int64)
    chosen = np.take_along_axis(Q, actions, axis=2)[..., 0]
    assert recommended.kind == PLANNED
    np.testing.assert_allclose(recommended.V, V, atol=GRID, rtol=0)
    assert (chosen >= Q.max(axis=2) - GRID).all()


@for_planned_runs
def test_the_plan_in_states_without_a_visit_is_the_first_action_with_value_0(
    algorithm: FedUCBVI | FedKLUCBVI, episodes: int
) -> None:
    simulation = played(algorithm, small(), episodes)
    counts = simulation.algorithm.counts_of(simulation.server, simulation.agents)
    recommended = simulation.plan()
    not_visited = counts.visits.sum(axis=2) == 0
    assert (recommended.policy[not_visited] == 0).all()
    assert (recommended.V[:-1][not_visited] == 0).all()


@for_planned_runs
def test_the_plan_of_agents_counted_together_is_that_of_agents_counted_apart(
    algorithm: FedUCBVI | FedKLUCBVI, episodes: int
) -> None:
    apart = played(algorithm, small(), episodes, apart=True).plan()
    together = played(algorithm, small(), episodes, apart=False).plan()
    assert np.array_equal(together.policy, apart.policy)
    assert np.array_equal(together.V, apart.V)


@pytest.mark.parametrize("clip", ["horizon", "values"])
def test_concurrent_ucbvi_plans_from_its_own_counts(clip: Clip) -> None:
    simulation = played(ConcurrentUCBVI(clip=clip), small(), 20)
    known = simulation.server.estimates
    N = np.maximum(known.N, 1)
    model = Model(known.transitions / N[..., None], known.reward_sums / N)
    Q, V = solve(model)
    recommended = simulation.plan()
    np.testing.assert_allclose(recommended.V, V, atol=1e-12)
    assert np.array_equal(recommended.policy, Q.argmax(axis=2))


def test_a_recommendation_of_concurrent_ucbvi_takes_no_reports() -> None:
    """The server has all trajectories."""
    result = played(ConcurrentUCBVI(), small(), 20).result()
    assert (result.recommendations["messages_up"] == 0).all()


def test_byzan_ucbvi_without_liars_plans_with_means_by_visits() -> None:
    """With alpha = 0 nothing is trimmed, and a large logarithm makes all intervals overlap; so all agents count."""
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


def test_the_plan_is_optimal_in_a_known_deterministic_environment() -> None:
    """Two states, action a leads to state a; staying in 1 pays. Everything is known after a few episodes."""
    kernel = np.zeros((2, 2, 2))
    kernel[:, 0, 0] = 1.0
    kernel[:, 1, 1] = 1.0
    mdp = MDP(kernel, [[0.2, 0.0], [0.0, 1.0]], initial=0, horizon=4)
    result = run(FedUCBVI(), Federation.from_mdps([mdp, mdp]), 200)
    assert result.value == pytest.approx(3.0)
    assert result.about.optimal_value == result.value
    assert result.simple_regret == 0.0
    assert result.estimated_value == pytest.approx(3.0, abs=GRID)


def copies(state: State) -> dict[str, Array]:
    return {name: array.copy() for name, array in state.arrays().items()}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_recommendation_does_not_change_the_run(name: str) -> None:
    algorithm = make_algorithm(name, {})
    federation = small(agents=1 if algorithm.single_agent else 3)
    simulation = played(algorithm, federation, 15, apart=False)
    server = copies(simulation.server)
    agents = copies(simulation.agents)
    first = simulation.result()
    for key, array in copies(simulation.server).items():
        assert np.array_equal(array, server[key]), key
    for key, array in copies(simulation.agents).items():
        assert np.array_equal(array, agents[key]), key
    assert simulation.result().same_outcome(first)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_recommended_policy_is_one_action_for_each_step_with_each_state(name: str) -> None:
    algorithm = make_algorithm(name, {})
    federation = small(agents=1 if algorithm.single_agent else 3)
    policy = played(algorithm, federation, 15, apart=False).result().policy
    assert policy.shape == (federation.horizon, federation.states)
    assert policy.dtype == np.int32


@pytest.fixture(scope="module")
def model_free_run() -> Run:
    return run(FedQBernstein(), small(), 40)


def test_model_free_algorithms_recommend_their_greedy_policy(model_free_run: Run) -> None:
    assert model_free_run.policy_kind == GREEDY
    assert np.array_equal(model_free_run.policy, model_free_run.exploring_policy)


def test_a_recommendation_of_a_model_free_algorithm_has_no_gap(model_free_run: Run) -> None:
    summary = json.loads(json.dumps(model_free_run.summary(), allow_nan=False))
    assert np.isnan([model_free_run.gap, model_free_run.estimated_value]).all()
    assert np.isnan(model_free_run.recommendations["estimated"]).all()
    assert summary["policy_kind"] == GREEDY
    assert summary["gap"] is None
    assert "gap" not in dict(summary_rows(model_free_run)[1])


def test_a_recommendation_of_a_model_free_algorithm_is_sent_once(model_free_run: Run) -> None:
    """It is sent to each of three agents, with the signal that the run ends."""
    assert model_free_run.recommendation_traffic == (0, 0, 0, 3 * model_free_run.policy.nbytes)


def test_robust_means_withstand_lies_about_the_recommended_policy() -> None:
    """Two of ten agents report H for every value; the robust means stay near V*."""
    lying = gridworld(agents=10).with_liars(0.2, "inflate", seed=0)
    robust = run(ByzanUCBVI(alpha=0.2, log_term=0.02), lying, 2000)
    best = robust.about.optimal_value
    assert robust.policy_kind == PLANNED
    assert robust.agents_value.mean > 0.95 * best
    assert robust.estimated_value == pytest.approx(best, rel=0.1)


# --------------------------------------------------------------------------------------------------- what it is worth


def earned_by_shops(policy: PolicyArray) -> float:
    """Mean over the shops of what a policy earns."""
    values = [worth(*shops.shop(mean), policy, shops.FIRST) for mean in shops.DEMANDS]
    return float(np.mean(values))


@pytest.mark.slow
@pytest.mark.full
def test_the_recommended_policy_of_five_shops_earns_more_than_the_exploring_policy() -> None:
    """Euro a month and shop. The best shared policy earns 120.2; with defaults the optimistic one earns about 2."""
    result = run(FedUCBVI(), shops.shops(), 1000)
    best = 120.2
    recommended = earned_by_shops(result.policy)
    assert result.agents_value.mean == pytest.approx(recommended, abs=1e-9)
    assert recommended > 0.5 * best
    assert earned_by_shops(result.exploring_policy) < 0.2 * best
    assert result.estimated_value == pytest.approx(recommended, rel=0.5)


@pytest.fixture(scope="module")
def grid_run() -> Run:
    result = run(FedUCBVI(), gridworld(agents=3, eps_p=0.2), 100)
    assert not np.array_equal(result.policy, result.exploring_policy)
    return result


def test_the_exported_policy_is_the_recommended_one(grid_run: Run, tmp_path: Path) -> None:
    grid_run.export_policy(tmp_path / "policy.json")
    policy = load_policy(tmp_path / "policy.json")
    assert np.array_equal(policy.table, grid_run.policy)
    assert policy.value == grid_run.value


def test_the_command_play_plays_the_recommended_policy(grid_run: Run, tmp_path: Path) -> None:
    grid_run.save(tmp_path / "run")
    figures = json.loads(call("play", str(tmp_path / "run"), "--json").stdout)
    assert figures["value_of_the_run"] == pytest.approx(grid_run.value)


def test_the_summary_has_the_figures_of_the_recommended_policy(grid_run: Run, tmp_path: Path) -> None:
    grid_run.save(tmp_path / "run")
    summary = json.loads(call("show", str(tmp_path / "run"), "--json").stdout)
    episodes = [row["episodes"] for row in summary["recommendations"]]
    assert summary["policy_kind"] == PLANNED
    assert summary["value"] == grid_run.value
    assert summary["gap"] == grid_run.optimistic_value - grid_run.estimated_value
    assert summary["simple_regret"] == grid_run.about.optimal_value - grid_run.value
    assert episodes == grid_run.recommendations["episodes"].tolist()


def test_the_command_show_prints_the_gap(grid_run: Run, tmp_path: Path) -> None:
    grid_run.save(tmp_path / "run")
    printed = call("show", str(tmp_path / "run")).stdout
    assert re.search(rf"\bgap +{grid_run.gap:.4f}", printed)
    assert "recommendations" in printed


# ------------------------------------------------------------------------------------------------------------ the gap


@pytest.fixture(scope="module")
def long_run() -> Run:
    return run(FedUCBVI(), gridworld(agents=4), 1000, driver="episodes")


def test_a_policy_is_recommended_each_time_the_episodes_have_doubled(long_run: Run) -> None:
    ends = np.cumsum(long_run.records["length"]).tolist()
    rounds = []
    last = 0
    for number, end in enumerate(ends[:-1], 1):
        if end >= 2 * last:
            rounds.append(number)
            last = end
    rounds.append(len(ends))
    table = long_run.recommendations
    assert table["round"].tolist() == rounds
    assert table["episodes"].tolist() == [ends[number - 1] for number in rounds]
    assert len(rounds) <= 12


def test_the_last_recommendation_is_that_of_the_run(long_run: Run) -> None:
    table = long_run.recommendations
    assert table["episodes"][-1] == 1000
    assert table["value"][-1] == long_run.agents_value.mean
    assert table["optimistic"][-1] == long_run.optimistic_value
    assert table["estimated"][-1] == long_run.estimated_value
    assert table["optimistic"][-1] - table["estimated"][-1] == long_run.gap


def test_the_gap_is_never_negative(long_run: Run) -> None:
    gaps = long_run.recommendations["optimistic"] - long_run.recommendations["estimated"]
    assert (gaps >= -1e-6).all()


def test_the_gap_is_smaller_at_the_end_than_after_the_first_round(long_run: Run) -> None:
    gaps = long_run.recommendations["optimistic"] - long_run.recommendations["estimated"]
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


class Bytes(NamedTuple):
    up: int
    down: int


def bytes_of_one_recommendation(algorithm: FedUCBVI, federation: Federation) -> Bytes:
    """Bytes of the paper's messages n, PV, PV2 and Q of three agents, from the messages themselves."""
    simulation = played(algorithm, federation, 1)
    planner = algorithm.new_planner(simulation.setting, simulation.server)
    pairs = federation.states * federation.actions
    up = 0
    down = 0
    for exchange in range(algorithm.message_sizes(simulation.setting).exchanges):
        query = algorithm.query(planner, exchange)
        report = algorithm.report(simulation.agents, query, exchange)
        down += 3 * sum(array.nbytes for array in query)
        up += 3 * pairs * 4 * 8
        algorithm.aggregate(planner, report, exchange)
    return Bytes(up, down)


def test_a_recommendation_takes_the_messages_of_one_synchronisation() -> None:
    federation = small()
    algorithm = FedUCBVI()
    result = run(algorithm, federation, 200)
    one = bytes_of_one_recommendation(algorithm, federation)
    table = result.recommendations
    expected_down = [one.down] * len(table["round"])
    expected_down[-1] += 3 * result.policy.nbytes
    assert (table["bytes_up"] == one.up).all()
    assert (table["messages_up"] == 3 * federation.horizon).all()
    assert (table["messages_down"] == 3 * federation.horizon).all()
    assert table["bytes_down"].tolist() == expected_down


def test_messages_of_recommendations_are_counted_apart_from_those_of_rounds() -> None:
    federation = small()
    algorithm = FedUCBVI()
    result = run(algorithm, federation, 200)
    one = bytes_of_one_recommendation(algorithm, federation)
    requests = result.records["requests"]
    synchronisations = int((requests > 0).sum())
    assert result.bytes_up == synchronisations * one.up + 48 * int(requests.sum())
    assert result.summary()["recommendation_traffic"]["bytes_up"] == result.recommendation_traffic.bytes_up


def interrupted_partial(folder: Path) -> Run:
    """A run with a checkpoint, interrupted after 40 of 300 episodes."""
    with pytest.raises(Interrupted) as stop:
        run(
            FedUCBVI(),
            small(),
            300,
            on_round=interrupt_after(episodes=40),
            checkpoint=folder,
            checkpoint_every=1,
        )
    return stop.value.partial


def test_an_interrupted_run_recommends_a_policy_from_all_its_episodes(tmp_path: Path) -> None:
    partial = interrupted_partial(tmp_path / "kept")
    assert partial.recommendations["episodes"][-1] == partial.episodes_played
    assert (np.diff(partial.recommendations["round"]) > 0).all()


def test_an_interrupted_run_can_be_saved_with_its_recommendations(tmp_path: Path) -> None:
    partial = interrupted_partial(tmp_path / "kept")
    partial.save(tmp_path / "partial")
    assert Run.load(tmp_path / "partial") == partial


def test_the_recommendation_at_an_interruption_does_not_change_the_resumed_run(tmp_path: Path) -> None:
    interrupted_partial(tmp_path / "kept")
    assert resume(tmp_path / "kept").same_outcome(run(FedUCBVI(), small(), 300))


def test_runs_with_different_recommendations_have_different_outcomes() -> None:
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


def test_a_saved_run_with_an_unknown_kind_of_policy_is_refused(tmp_path: Path) -> None:
    replace(run(FedUCBVI(), small(), 50), policy_kind="guessed").save(tmp_path / "run")
    with pytest.raises(InputError, match="recommended policy"):
        Run.load(tmp_path / "run")


# --------------------------------------------------------------------------------------------------- over the network


class WithoutStarts(NamedTuple):
    """A networked run whose server knows sizes only, the simulation of it, and the starts that occurred."""

    result: Run
    simulated: Simulation
    starts: CountArray


@pytest.fixture(scope="module")
def without_starts() -> WithoutStarts:
    federation = small(agents=4)
    algorithm = FedUCBVI()
    known = plan_for(algorithm, federation, 80, seed=1)
    result = federate(RunPlan(algorithm, known.setting), make_nodes(federation, [1, 3])).run
    simulated = finished(Simulation(algorithm, counted_apart(federation), 80, 1))
    starts = simulated.agents.table.visits[0].sum(axis=1)
    assert starts.sum() == 4 * 80
    return WithoutStarts(result, simulated, starts)


def test_a_server_that_knows_sizes_only_recommends_the_policy_of_the_simulation(
    without_starts: WithoutStarts,
) -> None:
    simulated = without_starts.simulated
    episodes = simulated.result().recommendations["episodes"]
    assert np.array_equal(without_starts.result.policy, simulated.plan().policy)
    assert without_starts.result.recommendations["episodes"].tolist() == episodes.tolist()


def test_the_estimated_value_is_the_mean_over_the_starts_that_occurred(without_starts: WithoutStarts) -> None:
    result = without_starts.result
    starts = without_starts.starts
    V = without_starts.simulated.plan().V
    assert result.estimated_value == pytest.approx(starts @ V[0] / starts.sum(), abs=1e-12)
    assert "estimated" in dict(summary_rows(result)[1])["recommended policy"]


def test_the_optimistic_value_allows_for_other_starts_than_those_that_occurred(
    without_starts: WithoutStarts,
) -> None:
    starts = without_starts.starts
    V = without_starts.simulated.server.V
    mean = starts @ V[0] / starts.sum()
    assert mean < without_starts.result.optimistic_value < without_starts.simulated.setting.horizon


def policy_file(**changes: Any) -> tuple[RunPlan, LearntPolicy]:
    """A plan for one agent, and a policy for it, with changes."""
    plan = plan_for(FedUCBVI(), small(agents=1), 10)
    policy = LearntPolicy(np.zeros((4, 3), dtype=np.int32), 2, {}, np.nan, plan.run)
    return plan, replace(policy, **changes)


def test_a_node_accepts_the_recommended_policy_of_its_run() -> None:
    plan, policy = policy_file()
    (node,) = make_nodes(small(agents=1), [1])
    node.enter(plan.welcome())
    node.answer(End(1, 10, policy.to_bytes()))
    assert node.policy is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"table": np.zeros((4, 2), dtype=np.int32)},
        {"table": np.full((4, 3), 2, dtype=np.int32)},
        {"run": "another"},
        {"final": False},
    ],
    ids=["shape", "actions", "run", "not final"],
)
def test_a_node_refuses_a_policy_that_does_not_fit_its_run(changes: dict[str, Any]) -> None:
    plan, policy = policy_file(**changes)
    (node,) = make_nodes(small(agents=1), [1])
    node.enter(plan.welcome())
    with pytest.raises(InputError, match="recommended policy"):
        node.answer(End(1, 10, policy.to_bytes()))
    assert not node.finished


@pytest.mark.parametrize(
    ("algorithm", "exchanges"),
    [(FedUCBVI(), 8), (FedQBernstein(), 1)],
    ids=["plans", "greedy"],
)
def test_a_node_answers_a_planner_only_if_the_algorithm_plans(algorithm: Any, exchanges: int) -> None:
    plan = plan_for(algorithm, small(agents=1), 10)
    server = algorithm.new_server(plan.setting)
    (node,) = make_nodes(small(agents=1), [1])
    node.enter(plan.welcome())
    node.answer(Start(1, 0, 0, 10, 1, tuple(algorithm.broadcast(server))))
    node.answer(Stop(1, 1))
    for exchange in range(exchanges):
        arrays = tuple(algorithm.query(server, exchange % algorithm.message_sizes(plan.setting).exchanges))
        assert node.answer(Query(1, exchange, arrays)) is not None
    with pytest.raises(InputError, match="does not fit"):
        node.answer(Query(1, exchanges, arrays))
