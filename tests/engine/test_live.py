"""The live driver: agents that know their environments by reset and step alone."""

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
    """All the same but rewards, which one may add up in another order, or by episode, and what runs are called."""
    names = [name for name in one.records if not name.startswith("reward")]
    return (
        all(np.array_equal(one.records[name], other.records[name], equal_nan=True) for name in names)
        and np.array_equal(one.policy, other.policy)
        and np.array_equal(one.V, other.V)
        and bool(np.allclose(one.records["reward"], other.records["reward"], rtol=1e-12))
    )


@every_variant
def test_where_nothing_depends_on_chance_live_and_simulated_runs_are_the_same_to_the_bit(variant: str) -> None:
    algorithm, agents = setting(variant)
    table = from_gymnasium("CliffWalking-v1", agents=agents, horizon=8)
    live = LiveFederation.from_gymnasium(
        "CliffWalking-v1", agents, horizon=8, reward_range=(-100, 0), random_rewards=False
    )
    simulated = run(algorithm, table, 60, seed=3, driver="episodes", progress=False)
    played = run(algorithm, live, 60, seed=3, score_with=table, progress=False)
    assert same_learning(played, simulated)
    assert (played.value, played.about.optimal_value) == (simulated.value, simulated.about.optimal_value)


def test_a_policy_that_draws_is_drawn_alike_in_live_and_simulated_environments() -> None:
    """Nothing else depends on chance here, so that the returns are the same to the bit."""
    table = from_gymnasium("CliffWalking-v1", agents=2, horizon=8)
    live = LiveFederation.from_gymnasium("CliffWalking-v1", 2, horizon=8, reward_range=(-100, 0))
    chances = np.random.default_rng(4).dirichlet(np.ones(table.actions), (8, table.states))
    assert evaluate(chances, live, 40, seed=5) == evaluate(chances, table, 40, seed=5)


@every_variant
def test_agents_whose_supports_widen_lose_nothing(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, agents = setting(variant)
    live = LiveFederation.from_gymnasium("FrozenLake-v1", agents, horizon=8, reward_range=(0, 1))
    outcomes = []
    for width in (1, 8):
        monkeypatch.setattr(live_driver, "FIRST_WIDTH", width)
        simulation = finished(Simulation(algorithm, live, 60, 5))
        simulation.close()
        outcomes.append((simulation.result(), tables_of(simulation).width))
    (narrow, narrow_width), (wide, wide_width) = outcomes
    assert (narrow_width, wide_width) == (4, 8)
    assert narrow.same_outcome(wide)


def tables_of(simulation: Simulation) -> Any:
    assert isinstance(simulation.party, LiveParty)
    return simulation.party.tables


def test_agents_count_exactly_what_their_environments_did_and_average_all_rewards() -> None:
    corridors = Corridors()
    simulation = finished(Simulation(ByzanUCBVI(log_term=0.01), corridors.live(), 40, 1))
    experience = simulation.agents.experience
    known = tables_of(simulation).known
    observed = corridors.observed()
    assert [len(corridors.episodes([i])) for i in range(3)] == [40] * 3
    for i, h, s, a in np.ndindex(3, 4, 3, 2):
        seen = observed.get((i, h, s, a), [])
        assert experience.visits[i, h, s, a] == len(seen)
        slots = zip(experience.successors[0, s, a], experience.transitions[i, h, s, a], strict=True)
        counts = {int(y): int(n) for y, n in list(slots)[: known[s, a]]}
        for y in range(4):
            assert counts.get(y, 0) == sum(following == y for _, following in seen)
        if seen:
            assert experience.rewards[i, h, s, a] == pytest.approx(np.mean([reward for reward, _ in seen]))
    assert (experience.visits[:, :, 3].sum() > 0).all()
    ended = experience.visits[:, :, 3] > 0
    assert np.allclose(experience.rewards[:, :, 3][ended], 2.0 / 6.0, rtol=1e-15)
    paid = corridors.returns().sum()
    assert simulation.result().average_reward == pytest.approx(paid / (3 * 40), abs=1e-12)


def test_agents_that_forget_report_the_rewards_of_the_round_and_no_others() -> None:
    corridors = Corridors()
    simulation = finished(Simulation(make_algorithm("concurrent-ucbvi", {}), corridors.live(), 40, 1))
    observed = corridors.observed()
    for h, s, a in np.ndindex(4, 3, 2):
        rewards = [reward for i in range(3) for reward, _ in observed.get((i, h, s, a), [])]
        assert simulation.server.estimates.reward_sums[h, s, a] == pytest.approx(sum(rewards), abs=1e-12)


def test_the_same_seed_gives_the_same_run_and_processes_change_nothing() -> None:
    def lakes(how: str) -> LiveFederation:
        return LiveFederation.from_gymnasium("FrozenLake-v1", 3, horizon=10, reward_range=(0, 1), vectorisation=how)

    kinds = ((1, "sync"), (1, "sync"), (1, "async"), (2, "sync"))
    runs = [run(FedUCBVI(), lakes(how), 30, seed=seed, progress=False) for seed, how in kinds]
    assert runs[0].same_outcome(runs[1])
    assert runs[0].same_outcome(runs[2])
    assert not np.array_equal(runs[0].exploring_policy, runs[3].exploring_policy)


def slippery(success: float) -> Callable[[int], Any]:
    return lambda i: ExpectedReward(gymnasium.make("FrozenLake-v1", success_rate=success, max_episode_steps=12))


@pytest.mark.full
def test_live_and_simulated_runs_on_frozen_lake_agree_in_law() -> None:
    """Hypothesis: regret and rounds of a run have the same law, live and simulated (counts and episodes mixed).

    FrozenLake pays its expected reward here, as the table does; then nothing tells the two apart. Four
    Kolmogorov-Smirnov tests (regret, rounds, reward, value) of 40 against 40 runs at level 1/4000: a false alarm in
    at most 1 of 1000 (fixed seeds). The same tests tell a lake with another slip from it.
    """
    algorithm = FedKLUCBVI(stationary=True)
    kwargs = {"success_rate": 0.5}
    table = from_gymnasium("FrozenLake-v1", agents=4, horizon=12, kwargs=kwargs)

    def figures(result: Run) -> list[float]:
        return [result.regret, result.rounds, result.average_reward, result.value]

    def live_figures(success: float, seed: int) -> list[float]:
        live = LiveFederation(slippery(success), 4, horizon=12, reward_range=(0, 1))
        return figures(run(algorithm, live, 60, seed=seed, score_with=table, progress=False))

    simulated = np.array([figures(run(algorithm, table, 60, seed=seed, progress=False)) for seed in range(40)])
    played = np.array([live_figures(0.5, seed) for seed in range(40)])
    other = np.array([live_figures(0.75, seed) for seed in range(40)])
    assert min(stats.ks_2samp(simulated[:, k], played[:, k]).pvalue for k in range(4)) > 1 / 4000
    assert min(stats.ks_2samp(simulated[:, k], other[:, k]).pvalue for k in range(4)) < 1 / 4000


def test_what_nobody_knows_is_nan_in_python_and_null_in_files(tmp_path: Path) -> None:
    live = LiveFederation.from_gymnasium("Taxi-v4", 2, horizon=10, reward_range=(-10, 20))
    result = run(FedUCBVI(), live, 5, progress=False)
    assert (result.about.states, result.about.actions) == (501, 6)
    assert np.isnan([result.regret, result.value, result.about.optimal_value, result.about.eps_r]).all()
    assert np.isnan(result.regret_at([1, 5])).all()
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["regret"] is summary["value"] is summary["optimal_value"] is summary["eps_r"] is None
    assert -100 < summary["average_reward"] < 20
    result.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == result
    result.plot(tmp_path / "run.png")
    texts = dict(summary_rows(result)[1])
    assert texts["regret"] == "unknown"
    assert texts["recommended policy"] == f"value unknown, estimated {result.estimated_value:.4f}"
    assert texts["paid"] == (f"{result.average_reward:.4f} per episode, {result.recent_reward:.4f} in the last tenth")


def test_the_description_of_a_live_run_names_the_environment() -> None:
    live = LiveFederation.from_gymnasium("FrozenLake-v1", 2, reward_range=(0, 1), vary={"success_rate": (0.6, 0.9)})
    about = live.description
    assert (about["name"], about["id"], live.horizon) == ("from_gymnasium", "FrozenLake-v1", 100)


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
def test_an_environment_that_breaks_its_word_is_found_out(
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
def test_whatever_ends_a_call_of_an_environment_is_an_error_that_names_agent_and_cause(
    error: BaseException, cause: str, where: str, vectorisation: str
) -> None:
    def make(i: int) -> TableEnv:
        return Failing(where, error) if i == 1 else TableEnv()

    live = LiveFederation(make, 3, 4, (-1, 3), vectorisation=vectorisation)
    with pytest.raises(InputError, match=rf"^the environment of agent 1 failed in {where}: {cause}\.$"):
        run(FedUCBVI(), live, 50, progress=False)


def test_ctrl_c_inside_a_step_is_an_interruption_and_no_error() -> None:
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
    with pytest.raises(InputError, match=r"was paid 1\.00000001 at step 0, outside reward_range \(0, 1\)"):
        run(FedUCBVI(), LiveFederation(paying(1 + 1e-8), 1, 4, (0, 1)), 5, progress=False)


def test_a_cut_at_the_horizon_is_no_cut() -> None:
    assert run(FedUCBVI(), Corridors(cut_after=4).live(), 5, progress=False).complete


@pytest.mark.parametrize(
    ("options", "message"),
    [({"horizon": 9}, "not the same problem"), ({"reward_range": (0, 2)}, "pass the same reward_range")],
)
def test_a_table_of_another_problem_scores_nothing(options: dict[str, Any], message: str) -> None:
    table = from_gymnasium("FrozenLake-v1", **{"agents": 2, "horizon": 8, **options})
    live = LiveFederation.from_gymnasium("FrozenLake-v1", 2, horizon=8, reward_range=(0, 1))
    with pytest.raises(InputError, match=message):
        run(FedUCBVI(), live, 5, score_with=table, progress=False)


def test_a_table_of_ones_own_needs_no_added_state_to_score_with() -> None:
    """RiverSwim never terminates: its own table, without the state added for that, gives the same figures."""
    problem = riverswim(agents=2, eps_p=0.2, horizon=6)
    live = LiveFederation(
        lambda i: TabularEnv("riverswim", agent=i, agents=2, eps_p=0.2, horizon=6), 2, horizon=6, reward_range=(0, 1)
    )
    played = run(FedUCBVI(), live, 40, score_with=problem, progress=False)
    policy = played.policy[:, : problem.states]
    common = problem.common
    assert played.policy.shape == (6, problem.states + 1)
    assert played.value == pytest.approx(float(common.initial @ common.evaluate(policy)[0]), rel=1e-12)
    assert played.about.optimal_value == pytest.approx(float(common.initial @ common.solve().V[0]), rel=1e-12)
    assert np.isfinite(played.regret)
    with pytest.raises(InputError, match="not the same problem"):
        run(FedUCBVI(), live, 5, score_with=riverswim(agents=2, horizon=6, states=5), progress=False)


# ----------------------------------------------------------------------------------------- where nobody knows eps_p


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


@pytest.mark.parametrize("make", [lake, network])
def test_an_unknown_eps_p_is_unknown_everywhere_and_nu_says_what_it_assumes(make: Make, tmp_path: Path) -> None:
    result = make(None)
    about = result.about
    assert math.isnan(about.eps_p)
    nu = threshold_nu(about.states, about.actions, about.horizon, 3, 20, 0.0, 0.05)
    assert about.facts["nu"] == nu
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert (summary["eps_p"], summary["eps_p_assumed"], summary["nu"]) == (None, 0.0, nu)
    texts = dict(summary_rows(result)[1])
    assert "eps_p unknown" in texts["setting"]
    assert "eps_p =" not in texts["setting"]
    assert texts["nu"] == f"{nu:,.0f} (with eps_p = 0, as if agents were identical)"
    result.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == result
    result.plot(tmp_path / "run.png")


@pytest.mark.parametrize("make", [lake, network])
def test_an_eps_p_that_is_given_is_used_and_printed_and_a_nu_that_is_given_assumes_nothing(make: Make) -> None:
    result = make(0.25)
    about = result.about
    assert about.facts["nu"] == threshold_nu(about.states, about.actions, about.horizon, 3, 20, 0.25, 0.05)
    assert (about.eps_p, result.summary()["eps_p_assumed"]) == (0.25, None)
    texts = dict(summary_rows(result)[1])
    assert "eps_p = 0.25" in texts["setting"]
    assert "alike" not in texts["nu"]
    given = lake(nu=7.0)
    summary = given.summary()
    assert (summary["eps_p"], summary["eps_p_assumed"], given.about.facts["nu"]) == (None, None, 7.0)
    assert dict(summary_rows(given)[1])["nu"] == "7"


def test_a_server_that_knows_the_environment_knows_its_eps_p() -> None:
    spec = RunSpec(problem=ProblemSpec(environment="gridworld", agents=3), options=RunOptions(episodes=20))
    plan = plan_of(FederationSpec(run=spec))
    assert (plan.setting.eps_p, plan.setting.eps_p_known) == (0.0, True)


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


def test_the_first_rewards_are_kept_with_a_checkpoint(tmp_path: Path) -> None:
    """A resumed run compares new rewards with those from before."""
    before, after = (LiveFederation(paying(reward), 1, 4, (0, 4), random_rewards=False) for reward in (1.0, 2.0))
    run(FedKLUCBVI(), before, 20, checkpoint=tmp_path / "kept", progress=False)
    with pytest.raises(InputError, match=r"agent 0 was paid 2 at step 0 in state 0 for action \d, and 1 before"):
        resume(tmp_path / "kept", after, episodes=200, progress=False)


def test_live_rewards_may_be_random_unless_the_owner_says_otherwise() -> None:
    assert LiveFederation(paying(1.0), 1, 4, (0, 4)).random_rewards
    live = FederationRules(collection="live")
    assert _setting(live).random_rewards
    assert not _setting(live, random_rewards=False).random_rewards


def test_in_lockstep_rewards_are_fixed_unless_the_owner_says_otherwise() -> None:
    """Nodes in lockstep have tables, and one whose rewards are random refuses such a run."""
    lockstep = FederationRules()
    assert not _setting(lockstep).random_rewards
    assert _setting(lockstep, random_rewards=True).random_rewards


def _setting(rules: FederationRules, *, random_rewards: bool | None = None) -> Setting:
    """The setting of a run that is known by its sizes."""
    problem = ProblemSpec(sizes=(8, 4, 10), random_rewards=random_rewards)
    return FederationSpec(run=RunSpec(problem=problem), rules=rules).setting()
