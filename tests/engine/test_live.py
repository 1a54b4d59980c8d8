"""The live driver: agents that use nothing but reset and step of their environments."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from fed_ucbvi import (
    AlgorithmSpec,
    ByzanUCBVI,
    FedKLUCBVI,
    FedUCBVI,
    InputError,
    Interrupted,
    LiveFederation,
    LiveParty,
    ProblemSpec,
    Run,
    RunOptions,
    RunSpec,
    Setting,
    evaluate,
    from_gymnasium,
    gridworld,
    resume,
    riverswim,
    run,
)
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.threshold import threshold_nu
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.engine.drivers import live as live_driver
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.gymnasium_environments import TabularEnv
from fed_ucbvi.network.federation_spec import FederationRules, FederationSpec
from fed_ucbvi.network.run_plan import plan_of
from gymnasium_problems import Corridors, ExpectedReward, Failing, TableEnv, corridor
from network import federate, make_nodes
from runs import finished, without_cautions

pytestmark = without_cautions

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ALGORITHMS},
    "fedq-advantage, each agent on its own": ("fedq-advantage", {"forced_synchronisation": False}),
    "fed-kl-ucbvi, stationary": ("fed-kl-ucbvi", {"stationary": True}),
    "fed-kl-ucbvi, rest": ("fed-kl-ucbvi", {"min_round_growth": 0.3}),
    "fed-kl-ucbvi, stationary, rest": ("fed-kl-ucbvi", {"stationary": True, "min_round_growth": 0.3}),
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def setting(variant: str, agents: int = 3) -> tuple[Any, int]:
    name, parameters = VARIANTS[variant]
    algorithm = make_algorithm(name, parameters)
    return algorithm, 1 if algorithm.single_agent else agents


def same_learning(one: Run, other: Run) -> bool:
    """True if runs agree in everything but their names and the order in which rewards are added up."""
    for name, column in one.records.items():
        if not name.startswith("reward") and not np.array_equal(column, other.records[name], equal_nan=True):
            return False
    same_policy = np.array_equal(one.policy, other.policy)
    same_values = np.array_equal(one.V, other.V)
    same_rewards = np.allclose(one.records["reward"], other.records["reward"], rtol=1e-12)
    return bool(same_policy and same_values and same_rewards)


@every_variant
def test_a_live_run_of_a_deterministic_environment_matches_the_simulation_bit_for_bit(variant: str) -> None:
    algorithm, agents = setting(variant)
    table = from_gymnasium("CliffWalking-v1", agents=agents, horizon=8)
    live = LiveFederation.from_gymnasium(
        "CliffWalking-v1", agents, horizon=8, reward_range=(-100, 0), random_rewards=False
    )
    simulated = run(algorithm, table, 60, seed=3, driver="episodes", progress=False)
    played = run(algorithm, live, 60, seed=3, score_with=table, progress=False)
    assert same_learning(played, simulated)
    assert played.value == simulated.value
    assert played.about.optimal_value == simulated.about.optimal_value


def test_a_stochastic_policy_has_the_same_returns_live_as_simulated() -> None:
    """Nothing but the policy depends on chance, so that the returns agree to the bit."""
    table = from_gymnasium("CliffWalking-v1", agents=2, horizon=8)
    live = LiveFederation.from_gymnasium("CliffWalking-v1", 2, horizon=8, reward_range=(-100, 0))
    probabilities = np.random.default_rng(4).dirichlet(np.ones(table.actions), (8, table.states))
    assert evaluate(probabilities, live, 40, seed=5) == evaluate(probabilities, table, 40, seed=5)


@every_variant
def test_supports_that_widen_during_a_run_do_not_change_it(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, agents = setting(variant)
    live = LiveFederation.from_gymnasium("FrozenLake-v1", agents, horizon=8, reward_range=(0, 1))

    def run_from(first_width: int) -> Simulation:
        monkeypatch.setattr(live_driver, "FIRST_WIDTH", first_width)
        simulation = finished(Simulation(algorithm, live, 60, 5))
        simulation.close()
        return simulation

    narrow = run_from(1)
    wide = run_from(8)
    assert tables_of(narrow).width == 4
    assert tables_of(wide).width == 8
    assert narrow.result().same_outcome(wide.result())


def tables_of(simulation: Simulation) -> Any:
    assert isinstance(simulation.party, LiveParty)
    return simulation.party.tables


@pytest.fixture(scope="module")
def corridors_played() -> tuple[Corridors, Simulation]:
    """Three agents that played 40 episodes each, and what their environments did."""
    corridors = Corridors()
    simulation = finished(Simulation(ByzanUCBVI(log_term=0.01), corridors.live(), 40, 1))
    return corridors, simulation


def test_every_agent_plays_all_episodes(corridors_played: tuple[Corridors, Simulation]) -> None:
    corridors, _ = corridors_played
    assert [len(corridors.episodes([i])) for i in range(3)] == [40, 40, 40]


def test_counts_of_agents_are_those_of_their_environments(corridors_played: tuple[Corridors, Simulation]) -> None:
    corridors, simulation = corridors_played
    experience = simulation.agents.experience
    known = tables_of(simulation).known
    observed = corridors.observed()
    for i, h, s, a in np.ndindex(3, 4, 3, 2):
        seen = observed.get((i, h, s, a), [])
        assert experience.visits[i, h, s, a] == len(seen)
        counts = dict.fromkeys(range(4), 0)
        for k in range(known[s, a]):
            counts[int(experience.successors[0, s, a, k])] = int(experience.transitions[i, h, s, a, k])
        for next_state in range(4):
            assert counts[next_state] == sum(following == next_state for _, following in seen)


def test_rewards_of_agents_are_means_of_those_observed(corridors_played: tuple[Corridors, Simulation]) -> None:
    corridors, simulation = corridors_played
    rewards = simulation.agents.experience.rewards
    for (i, h, s, a), seen in corridors.observed().items():
        mean = np.mean([reward for reward, _ in seen])
        assert rewards[i, h, s, a] == pytest.approx(mean)


def test_the_absorbing_state_pays_0_in_own_units(corridors_played: tuple[Corridors, Simulation]) -> None:
    _, simulation = corridors_played
    experience = simulation.agents.experience
    visits = experience.visits[:, :, 3]
    rewards = experience.rewards[:, :, 3]
    assert (visits.sum(axis=(1, 2)) > 0).all()
    assert np.allclose(rewards[visits > 0], 2.0 / 6.0, rtol=1e-15)


def test_the_average_reward_is_that_of_the_environments(corridors_played: tuple[Corridors, Simulation]) -> None:
    corridors, simulation = corridors_played
    paid = corridors.returns().sum()
    assert simulation.result().average_reward == pytest.approx(paid / (3 * 40), abs=1e-12)


def test_reward_sums_of_the_server_are_those_of_all_environments() -> None:
    """Agents of this algorithm keep no rewards after a report."""
    corridors = Corridors()
    simulation = finished(Simulation(make_algorithm("concurrent-ucbvi", {}), corridors.live(), 40, 1))
    observed = corridors.observed()
    sums = simulation.server.estimates.reward_sums
    for h, s, a in np.ndindex(4, 3, 2):
        total = 0.0
        for i in range(3):
            total += sum(reward for reward, _ in observed.get((i, h, s, a), []))
        assert sums[h, s, a] == pytest.approx(total, abs=1e-12)


def run_on_lakes(seed: int, vectorisation: str = "sync") -> Run:
    live = LiveFederation.from_gymnasium(
        "FrozenLake-v1", 3, horizon=10, reward_range=(0, 1), vectorisation=vectorisation
    )
    return run(FedUCBVI(), live, 30, seed=seed, progress=False)


def test_live_runs_with_the_same_seed_are_equal() -> None:
    assert run_on_lakes(seed=1).same_outcome(run_on_lakes(seed=1))


def test_live_runs_with_different_seeds_differ() -> None:
    one = run_on_lakes(seed=1)
    other = run_on_lakes(seed=2)
    assert not np.array_equal(one.exploring_policy, other.exploring_policy)


def test_environments_in_processes_of_their_own_give_the_same_run() -> None:
    assert run_on_lakes(seed=1, vectorisation="async").same_outcome(run_on_lakes(seed=1))


def slippery(success: float) -> Callable[[int], Any]:
    return lambda i: ExpectedReward(gymnasium.make("FrozenLake-v1", success_rate=success, max_episode_steps=12))


def smallest_p_value(one: FloatArray, other: FloatArray) -> float:
    """The smallest p-value of Kolmogorov-Smirnov tests, one per column."""
    p_values = [stats.ks_2samp(one[:, k], other[:, k]).pvalue for k in range(one.shape[1])]
    return float(min(p_values))


@pytest.mark.full
def test_live_runs_on_frozen_lake_have_the_law_of_simulated_runs() -> None:
    """Hypothesis: regret and rounds of a run have the same law, live and simulated (counts and episodes mixed).

    FrozenLake pays its expected reward here, as the table does; then nothing tells the two apart. Four
    Kolmogorov-Smirnov tests (regret, rounds, reward, value) of 40 against 40 runs at level 1/4000: a false alarm in
    at most 1 of 1000 (fixed seeds). The same tests tell a lake with another slip from it.
    """
    algorithm = FedKLUCBVI(stationary=True)
    table = from_gymnasium("FrozenLake-v1", agents=4, horizon=12, kwargs={"success_rate": 0.5})
    seeds = range(40)

    def figures(result: Run) -> list[float]:
        return [result.regret, result.rounds, result.average_reward, result.value]

    def simulated_figures(seed: int) -> list[float]:
        return figures(run(algorithm, table, 60, seed=seed, progress=False))

    def live_figures(success: float, seed: int) -> list[float]:
        live = LiveFederation(slippery(success), 4, horizon=12, reward_range=(0, 1))
        return figures(run(algorithm, live, 60, seed=seed, score_with=table, progress=False))

    simulated = np.array([simulated_figures(seed) for seed in seeds])
    played = np.array([live_figures(0.5, seed) for seed in seeds])
    other = np.array([live_figures(0.75, seed) for seed in seeds])
    assert smallest_p_value(simulated, played) > 1 / 4000
    assert smallest_p_value(simulated, other) < 1 / 4000


@pytest.fixture(scope="module")
def taxi_run() -> Run:
    """A live run without a table to score it with."""
    live = LiveFederation.from_gymnasium("Taxi-v4", 2, horizon=10, reward_range=(-10, 20))
    return run(FedUCBVI(), live, 5, progress=False)


def test_figures_that_need_a_table_are_nan_in_a_live_run(taxi_run: Run) -> None:
    about = taxi_run.about
    assert np.isnan([taxi_run.regret, taxi_run.value, about.optimal_value, about.eps_r]).all()
    assert np.isnan(taxi_run.regret_at([1, 5])).all()


def test_a_live_run_has_the_sizes_of_the_environment_with_an_absorbing_state(taxi_run: Run) -> None:
    assert taxi_run.about.states == 501
    assert taxi_run.about.actions == 6


def test_unknown_figures_are_null_in_the_summary_of_a_live_run(taxi_run: Run) -> None:
    summary = json.loads(json.dumps(taxi_run.summary(), allow_nan=False))
    for name in ("regret", "value", "optimal_value", "eps_r"):
        assert summary[name] is None
    assert -100 < summary["average_reward"] < 20


def test_a_live_run_with_unknown_figures_can_be_saved(taxi_run: Run, tmp_path: Path) -> None:
    taxi_run.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == taxi_run


def test_a_live_run_with_unknown_figures_can_be_plotted(taxi_run: Run, tmp_path: Path) -> None:
    taxi_run.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 0


def test_the_printed_summary_of_a_live_run_names_unknown_figures(taxi_run: Run) -> None:
    texts = dict(summary_rows(taxi_run)[1])
    average = f"{taxi_run.average_reward:.4f} per episode"
    recent = f"{taxi_run.recent_reward:.4f} in the last tenth"
    assert texts["regret"] == "unknown"
    assert texts["recommended policy"] == f"value unknown, estimated {taxi_run.estimated_value:.4f}"
    assert texts["paid"] == f"{average}, {recent}"


def test_the_description_of_a_live_run_names_the_environment() -> None:
    live = LiveFederation.from_gymnasium("FrozenLake-v1", 2, reward_range=(0, 1), vary={"success_rate": (0.6, 0.9)})
    assert live.description["name"] == "from_gymnasium"
    assert live.description["id"] == "FrozenLake-v1"
    assert live.horizon == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward_range": None}, "reward_range is missing.*pass reward_range"),
        ({"reward_range": (1, 0)}, "reward_range: high must be"),
        ({"reward_range": (2, 2)}, r"reward_range \(2, 2\) has no width.*pass \(c, c \+ 1\)"),
        ({"reward_range": (-1e308, 1e308)}, "is too large to be counted with"),
        ({"reward_range": (0.0, 1.1e300)}, "is too large to be counted with"),
        ({"make": lambda i: sys.exit(0)}, "environment of agent 0 failed in make: SystemExit: 0"),
        ({"horizon": None}, "horizon is missing"),
        ({"horizon": 2.5}, "horizon must be a whole number"),
        ({"agents": 0}, "agents must be at least 1"),
        ({"eps_p": 1.0}, r"eps_p must be a number in \[0, 1\)"),
        ({"make": lambda i: TableEnv(observations=spaces.Box(0, 1))}, "environment of agent 0 are Box"),
        ({"make": lambda i: TableEnv(actions=spaces.MultiDiscrete([2, 2]))}, "are MultiDiscrete"),
        ({"make": lambda i: TableEnv(observations=spaces.Discrete(3 + i))}, "spaces differ"),
        ({"make": lambda i: TableEnv(actions=spaces.Discrete(2, start=1))}, "numbered from 1"),
        ({"make": lambda i: gymnasium.make_vec("FrozenLake-v1", num_envs=2)}, "vector environment"),
    ],
)
def test_unusable_environments_are_refused_before_the_first_step(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LiveFederation(
            **{"make": lambda i: TableEnv(), "agents": 2, "horizon": 4, "reward_range": (-1, 3), **options}
        )


@pytest.mark.parametrize(
    ("corridors", "options", "message"),
    [
        (Corridors(), {"reward_range": (-1.0, 3.0)}, r"was paid .* outside reward_range \(-1, 3\)"),
        (Corridors(noise=0.0), {"reward_range": (-1.0, -0.5)}, "and 0 if episodes can terminate"),
        (
            Corridors(cut_after=3),
            {},
            "cut an episode off after 3 steps, before the horizon 4: make it with max_episode_steps=4",
        ),
        (Corridors(stray=3), {}, r"is in state 3, but its observation space says 0\.\.2"),
        (Corridors(stray=-1), {}, "is in state -1"),
        (Corridors(stray=0.7), {}, "is in state 0.7, but its observation space says .*whole numbers"),
        (Corridors(stray=float("nan")), {}, "of agent 0 failed in step: ValueError: cannot convert float NaN"),
        (Corridors(P={**corridor(), 1: {a: [(1.0, 2, float("nan"), True)] for a in (0, 1)}}), {}, "was paid nan"),
        (Corridors(), {"vectorisation": "threads"}, "unknown vectorisation 'threads'"),
    ],
)
def test_an_environment_that_violates_its_description_is_an_error(
    corridors: Corridors, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(FedUCBVI(), corridors.live(**options), 50, progress=False)


@pytest.mark.filterwarnings("ignore:.*(Worker|Traceback|last exception):UserWarning")
@pytest.mark.parametrize(
    ("where", "vectorisation"), [*itertools.product(["reset", "step"], ["sync", "async"]), ("close", "sync")]
)
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (SystemExit(0), "SystemExit: 0"),
        (SystemExit(), "SystemExit"),
        (OSError("no power."), "OSError: no power"),
        (GeneratorExit("gone"), "GeneratorExit: gone"),
    ],
)
def test_the_error_for_an_exception_in_an_environment_names_the_agent_with_its_cause(
    error: BaseException, cause: str, where: str, vectorisation: str
) -> None:
    def make(i: int) -> TableEnv:
        return Failing(where, error) if i == 1 else TableEnv()

    live = LiveFederation(make, 3, 4, (-1, 3), vectorisation=vectorisation)
    with pytest.raises(InputError, match=rf"^the environment of agent 1 failed in {where}: {cause}\.$"):
        run(FedUCBVI(), live, 50, progress=False)


def test_ctrl_c_inside_a_step_interrupts_the_run() -> None:
    live = LiveFederation(lambda i: Failing("step", KeyboardInterrupt()), 1, 4, (-1, 3))
    with pytest.raises(Interrupted):
        run(FedUCBVI(), live, 50, progress=False)


def paying(reward: float) -> Callable[[int], TableEnv]:
    """Environments of one state that pay ``reward`` at every step."""
    rows = {s: {a: [(1.0, 0, reward, False)] for a in (0, 1)} for s in range(3)}
    return lambda i: TableEnv(rows)


@pytest.mark.parametrize(("reward", "bounds"), [(1 + 1e-12, (0, 1)), (-1e-10, (0, 1)), (1e6 + 1e-10, (0, 1e6))])
def test_a_reward_outside_its_range_by_rounding_counts_as_the_end_of_the_range(
    reward: float, bounds: tuple[float, float]
) -> None:
    result = run(FedUCBVI(), LiveFederation(paying(reward), 1, 4, bounds), 5, progress=False)
    low, high = bounds
    assert result.average_reward == 4 * (high if reward > 1 else low)


def test_a_reward_outside_its_range_by_more_than_rounding_is_an_error() -> None:
    live = LiveFederation(paying(1 + 1e-8), 1, 4, (0, 1))
    with pytest.raises(InputError, match=r"was paid 1\.00000001 at step 0, outside reward_range \(0, 1\)"):
        run(FedUCBVI(), live, 5, progress=False)


def test_an_environment_may_truncate_an_episode_at_the_horizon() -> None:
    assert run(FedUCBVI(), Corridors(cut_after=4).live(), 5, progress=False).complete


@pytest.mark.parametrize(
    ("options", "message"),
    [({"horizon": 9}, "not the same problem"), ({"reward_range": (0, 2)}, "pass the same reward_range")],
)
def test_a_table_of_another_problem_is_refused_for_scoring(options: dict[str, Any], message: str) -> None:
    table = from_gymnasium("FrozenLake-v1", **{"agents": 2, "horizon": 8, **options})
    live = LiveFederation.from_gymnasium("FrozenLake-v1", 2, horizon=8, reward_range=(0, 1))
    with pytest.raises(InputError, match=message):
        run(FedUCBVI(), live, 5, score_with=table, progress=False)


@pytest.fixture(scope="module")
def live_river() -> LiveFederation:
    """RiverSwim, which never terminates."""

    def make(i: int) -> TabularEnv:
        return TabularEnv("riverswim", agent=i, agents=2, eps_p=0.2, horizon=6)

    return LiveFederation(make, 2, horizon=6, reward_range=(0, 1))


def test_a_table_without_the_absorbing_state_scores_a_live_run(live_river: LiveFederation) -> None:
    problem = riverswim(agents=2, eps_p=0.2, horizon=6)
    common = problem.common
    played = run(FedUCBVI(), live_river, 40, score_with=problem, progress=False)
    policy = played.policy[:, : problem.states]
    value = float(common.initial @ common.evaluate(policy)[0])
    optimum = float(common.initial @ common.solve().V[0])
    assert played.policy.shape == (6, problem.states + 1)
    assert played.value == pytest.approx(value, rel=1e-12)
    assert played.about.optimal_value == pytest.approx(optimum, rel=1e-12)
    assert np.isfinite(played.regret)


def test_a_table_with_fewer_states_scores_nothing(live_river: LiveFederation) -> None:
    smaller = riverswim(agents=2, horizon=6, states=5)
    with pytest.raises(InputError, match="not the same problem"):
        run(FedUCBVI(), live_river, 5, score_with=smaller, progress=False)


# ------------------------------------------------------------------------------------------- where eps_p is unknown


Make = Callable[[float | None], Run]


def lake(eps_p: float | None = None, nu: float | None = None) -> Run:
    fleet = LiveFederation.from_gymnasium("FrozenLake-v1", 3, horizon=6, reward_range=(0, 1), eps_p=eps_p)
    return run(FedUCBVI(nu=nu), fleet, 20, progress=False)


def network(eps_p: float | None) -> Run:
    spec = RunSpec(
        problem=ProblemSpec(sizes=(8, 4, 10), agents=3, eps_p=eps_p),
        algorithm=AlgorithmSpec(name="fed-ucbvi"),
        options=RunOptions(episodes=20),
    )
    plan = plan_of(FederationSpec(run=spec))
    return federate(plan, make_nodes(gridworld(agents=3, eps_p=0.2), [1, 2])).run


@pytest.fixture(scope="module", params=[lake, network], ids=["live", "network"])
def run_without_eps_p(request: pytest.FixtureRequest) -> Run:
    make: Make = request.param
    return make(None)


def nu_of(result: Run, eps_p: float) -> float:
    about = result.about
    return threshold_nu(about.states, about.actions, about.horizon, 3, 20, eps_p, 0.05)


def test_an_unknown_eps_p_is_nan(run_without_eps_p: Run) -> None:
    assert math.isnan(run_without_eps_p.about.eps_p)


def test_nu_is_computed_for_equal_agents_if_eps_p_is_unknown(run_without_eps_p: Run) -> None:
    assert run_without_eps_p.about.facts["nu"] == nu_of(run_without_eps_p, 0.0)


def test_the_summary_states_which_eps_p_nu_assumes(run_without_eps_p: Run) -> None:
    summary = json.loads(json.dumps(run_without_eps_p.summary(), allow_nan=False))
    assert summary["eps_p"] is None
    assert summary["eps_p_assumed"] == 0.0
    assert summary["nu"] == nu_of(run_without_eps_p, 0.0)


def test_the_printed_summary_names_an_unknown_eps_p(run_without_eps_p: Run) -> None:
    texts = dict(summary_rows(run_without_eps_p)[1])
    assert "eps_p unknown" in texts["setting"]
    assert "eps_p =" not in texts["setting"]


def test_the_printed_summary_states_which_eps_p_nu_assumes(run_without_eps_p: Run) -> None:
    texts = dict(summary_rows(run_without_eps_p)[1])
    nu = nu_of(run_without_eps_p, 0.0)
    assert texts["nu"] == f"{nu:,.0f} (with eps_p = 0, as if agents were identical)"


def test_a_run_with_an_unknown_eps_p_can_be_saved(run_without_eps_p: Run, tmp_path: Path) -> None:
    run_without_eps_p.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == run_without_eps_p


def test_a_run_with_an_unknown_eps_p_can_be_plotted(run_without_eps_p: Run, tmp_path: Path) -> None:
    run_without_eps_p.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 0


@pytest.mark.parametrize("make", [lake, network])
def test_nu_is_computed_with_a_given_eps_p(make: Make) -> None:
    result = make(0.25)
    assert result.about.eps_p == 0.25
    assert result.about.facts["nu"] == nu_of(result, 0.25)
    assert result.summary()["eps_p_assumed"] is None


@pytest.mark.parametrize("make", [lake, network])
def test_a_given_eps_p_is_printed(make: Make) -> None:
    texts = dict(summary_rows(make(0.25))[1])
    assert "eps_p = 0.25" in texts["setting"]
    assert "identical" not in texts["nu"]


def test_a_given_nu_assumes_no_eps_p() -> None:
    result = lake(nu=7.0)
    summary = result.summary()
    assert summary["eps_p"] is None
    assert summary["eps_p_assumed"] is None
    assert result.about.facts["nu"] == 7.0
    assert dict(summary_rows(result)[1])["nu"] == "7"


def test_a_plan_with_a_named_environment_has_its_eps_p() -> None:
    spec = RunSpec(problem=ProblemSpec(environment="gridworld", agents=3), options=RunOptions(episodes=20))
    plan = plan_of(FederationSpec(run=spec))
    assert plan.setting.eps_p == 0.0
    assert plan.setting.eps_p_known


@pytest.mark.parametrize("stationary", [False, True])
def test_a_second_reward_of_a_cell_is_an_error_where_rewards_are_said_to_be_fixed(stationary: bool) -> None:
    """It names the agent, step, state and action, and both rewards in the environment's own units."""

    def raised_later(i: int) -> Any:
        env = paying(1.0)(i)
        steps = itertools.count()
        return gymnasium.wrappers.TransformReward(env, lambda reward: float(reward) + (next(steps) >= 200))

    live = LiveFederation(raised_later, 1, 4, (0, 4), random_rewards=False)
    with pytest.raises(InputError, match=r"agent 0 was paid 2 at step 0 in state 0 for action \d, and 1 before"):
        run(FedKLUCBVI(stationary=stationary), live, 100, progress=False)


def test_a_resumed_run_compares_rewards_with_those_of_its_checkpoint(tmp_path: Path) -> None:
    before = LiveFederation(paying(1.0), 1, 4, (0, 4), random_rewards=False)
    after = LiveFederation(paying(2.0), 1, 4, (0, 4), random_rewards=False)
    run(FedKLUCBVI(), before, 20, checkpoint=tmp_path / "kept", progress=False)
    with pytest.raises(InputError, match=r"agent 0 was paid 2 at step 0 in state 0 for action \d, and 1 before"):
        resume(tmp_path / "kept", after, episodes=200, progress=False)


def test_live_rewards_may_be_random_by_default() -> None:
    assert LiveFederation(paying(1.0), 1, 4, (0, 4)).random_rewards
    live = FederationRules(collection="live")
    assert _setting(live).random_rewards
    assert not _setting(live, random_rewards=False).random_rewards


def test_rewards_in_lockstep_are_fixed_by_default() -> None:
    """Nodes in lockstep have tables, and one whose rewards are random refuses such a run."""
    lockstep = FederationRules()
    assert not _setting(lockstep).random_rewards
    assert _setting(lockstep, random_rewards=True).random_rewards


def _setting(rules: FederationRules, *, random_rewards: bool | None = None) -> Setting:
    """The setting of a run that is known by its sizes."""
    problem = ProblemSpec(sizes=(8, 4, 10), random_rewards=random_rewards)
    return FederationSpec(run=RunSpec(problem=problem), rules=rules).setting()
