"""Units of rewards: what environments pay is what runs, files and commands show, in every environment."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import houses
import live_shops
import numpy as np
import pytest
import shops

from commands import call, refusal, told
from fed_ucbvi import (
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    InputError,
    LiveFederation,
    Run,
    best_common_policy,
    compare_runs,
    curves_frame,
    evaluate,
    federated_regret,
    inspect_federation,
    learn_bins,
    make_environment,
    make_finite,
    plan,
    plot_runs,
    price_of_sharing,
    run,
)
from fed_ucbvi.analysis.play import play
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.gymnasium_environments import TabularEnv
from fed_ucbvi.problem.units import OWN_UNITS, PER_STEP, Units
from fed_ucbvi.results.policy import LearntPolicy
from fed_ucbvi.results.round_record import RoundRecord
from fed_ucbvi.results.run import load_policy
from problems import SMALL_ENVIRONMENTS

pytestmark = pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")

H = 20
LOW = -100.0
WIDTH = 200.0
"""Range of a step's reward on the windy cliff."""


@pytest.fixture(scope="module")
def cliffs() -> Federation:
    return make_environment("windy_cliff", agents=3, eps_p=0.2, seed=1)


@pytest.fixture(scope="module")
def received_rounds() -> list[RoundRecord]:
    return []


@pytest.fixture(scope="module")
def result(cliffs: Federation, received_rounds: list[RoundRecord]) -> Run:
    return run(
        FedKLUCBVI(stationary=True),
        cliffs,
        300,
        progress=False,
        on_round=received_rounds.append,
    )


def own_value(federation: Federation, agent: int, policy: Any) -> float:
    """Value of a policy to an agent: rewards converted first, then summed along the kernel of each step."""
    mdp = federation.agent(agent)
    units = Units.of(federation.description)
    pays = units.offset + units.scale * np.broadcast_to(mdp.rewards, (mdp.horizon, mdp.states, mdp.actions))
    kernel = np.broadcast_to(mdp.kernel.dense(), (mdp.horizon, mdp.states, mdp.actions, mdp.states))
    states = np.arange(mdp.states)
    V = np.zeros(mdp.states)
    for h in reversed(range(mdp.horizon)):
        chosen = policy[h]
        V = pays[h, states, chosen] + kernel[h, states, chosen] @ V
    return float(mdp.initial @ V)


# ---------------------------------------------------------------------------------------- a run in own units
def test_values_of_a_run_are_those_of_tables_in_own_units(cliffs: Federation, result: Run) -> None:
    expected = [own_value(cliffs, agent, result.policy) for agent in range(3)]
    assert result.by_agent == pytest.approx(expected, abs=1e-9)


def test_the_mean_of_the_own_optima_is_in_own_units(cliffs: Federation) -> None:
    optima = [own_value(cliffs, agent, cliffs.agent(agent).solve().policy) for agent in range(3)]
    assert best_common_policy(cliffs).own == pytest.approx(np.mean(optima), abs=1e-9)


def test_the_federated_regret_of_a_rescaled_run_is_rescaled(cliffs: Federation, result: Run) -> None:
    own = federated_regret(result, cliffs)
    rescaled = federated_regret(result.in_units(PER_STEP), cliffs)
    assert own == pytest.approx([WIDTH * end for end in rescaled], rel=1e-9)
    best = best_common_policy(cliffs).value.lower
    episodes = result.records["agent_episodes"] / result.records["agents"]
    assert own.lower == pytest.approx((episodes * (best - result.records["value"])).sum(), rel=1e-9)


def test_regret_is_a_difference_of_own_values(cliffs: Federation) -> None:
    """One episode in which an incumbent is played: regret is what its value is below the optimum."""
    always_up = np.zeros((H, cliffs.states), dtype=np.int32)
    common = Federation.from_mdps([cliffs.common])
    common = replace(common, description=cliffs.description)
    played = run(
        FedKLUCBVI(stationary=True),
        common,
        1,
        incumbent=always_up,
        loss=1e-9,
        progress=False,
    )
    best = own_value(common, 0, cliffs.common.solve().policy)
    assert played.regret == pytest.approx(best - own_value(common, 0, always_up), rel=1e-9)


def test_rounds_received_during_a_run_agree_with_its_records(result: Run, received_rounds: list[RoundRecord]) -> None:
    assert [one.regret for one in received_rounds] == pytest.approx(np.cumsum(result.records["regret"]).tolist())
    per_episode = result.records["reward"] * result.records["agents"] / result.records["agent_episodes"]
    assert [one.reward for one in received_rounds] == pytest.approx(per_episode.tolist())


def test_frames_are_in_own_units(result: Run) -> None:
    frame = result.to_frame()
    assert frame["cumulative_regret"].to_list()[-1] == pytest.approx(result.regret)
    curves = curves_frame([result], [300], metric="reward")
    assert curves["mean"].to_list() == pytest.approx([result.average_reward])


def test_values_by_step_count_the_steps_that_are_left(result: Run) -> None:
    """The optimistic values of the first step lie between those of the least and the most that H steps pay."""
    left = H - np.arange(H + 1)
    least = LOW * left[:, None]
    most = (LOW + WIDTH) * left[:, None]
    assert (least - 1e-9 <= result.V).all()
    assert (most + 1e-9 >= result.V).all()
    assert (result.V[-1] == 0).all()


def test_values_per_step_are_there_for_those_who_ask(cliffs: Federation, result: Run) -> None:
    rescaled = result.in_units(PER_STEP)
    common = cliffs.common
    assert rescaled.about.optimal_value == pytest.approx(float(common.initial @ common.solve().V[0]), abs=1e-9)
    assert rescaled.value == pytest.approx(float(common.initial @ common.evaluate(result.policy)[0]), abs=1e-9)
    assert rescaled.regret == pytest.approx(result.regret / WIDTH)
    assert rescaled.average_reward == pytest.approx((result.average_reward - H * LOW) / WIDTH)


def test_conversion_of_units_is_undone_by_its_inverse(result: Run) -> None:
    again = result.in_units(PER_STEP).in_units(OWN_UNITS)
    assert again.units == OWN_UNITS
    for name, column in result.records.items():
        assert again.records[name] == pytest.approx(column, rel=1e-9, abs=1e-9, nan_ok=True), name
    for name, column in result.recommendations.items():
        assert again.recommendations[name] == pytest.approx(column, rel=1e-9, abs=1e-9), name
    np.testing.assert_allclose(again.V, result.V, atol=1e-9)


def test_certificates_follow_the_units_that_are_asked_for() -> None:
    world = make_environment("windy_cliff", agents=2)
    certified = run(FedKLUCBVI(stationary=True), world, 20, until_gap=10_000.0, progress=False)
    own = certified.certificates[-1]
    rescaled = certified.in_units(PER_STEP).certificates[-1]
    assert rescaled.gap == pytest.approx(own.gap / WIDTH)
    assert H * LOW <= own.at_least <= own.compared_with <= H * (LOW + WIDTH)


def test_unknown_units_are_refused(result: Run) -> None:
    with pytest.raises(InputError, match="unknown units 'euro'"):
        result.in_units("euro")


def test_a_run_keeps_its_units_in_a_file(result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "own")
    result.in_units(PER_STEP).save(tmp_path / "asked")
    assert Run.load(tmp_path / "own") == result
    assert Run.load(tmp_path / "asked").units == PER_STEP


def test_runs_in_different_units_are_not_compared(result: Run) -> None:
    with pytest.raises(InputError, match="in different units"):
        compare_runs([result, result.in_units(PER_STEP)])


def test_the_axis_of_a_picture_names_the_units_that_were_asked_for(result: Run) -> None:
    rescaled = plot_runs([result.in_units(PER_STEP)])[0]
    assert rescaled.get_ylabel() == "Common regret\n(per step in [0, 1])"


def test_the_axis_of_a_picture_names_the_units_of_reward(result: Run) -> None:
    own = plot_runs([result])[0]
    assert own.get_ylabel() == "Common regret\n(units of reward)"


def test_an_environment_without_units_is_not_converted() -> None:
    """To the last bit: no digest of a run changes."""
    plain = run(FedUCBVI(), make_environment("gridworld", agents=2), 50, progress=False)
    rescaled = plain.in_units(PER_STEP)
    assert rescaled.V.tobytes() == plain.V.tobytes()
    assert rescaled.records["reward"].tobytes() == plain.records["reward"].tobytes()


# ------------------------------------------------------------------------------------- live and Gymnasium's
class Paid(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps what was paid."""

    def __init__(self, env: Any, rewards: list[float]) -> None:
        super().__init__(env)
        self._kept = rewards

    def step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        self._kept.append(float(outcome[1]))
        return outcome


def cliff_of(agent: int) -> Any:
    return TabularEnv("windy_cliff", agent=agent, agents=2)


def shop_of(agent: int) -> Any:
    return live_shops.make(agent)


def house_of(agent: int) -> Any:
    """A house with bins of its temperatures; it pays minus the euro that heating and discomfort cost."""
    env = houses.make(agent)
    return make_finite(env, learn_bins(houses.make(0), episodes=3, bins_per_dimension=3, horizon=24))


@pytest.mark.parametrize(
    ("make", "horizon", "pays"),
    [
        (cliff_of, H, (LOW, LOW + WIDTH)),
        (shop_of, 30, (-28.0, 56.0)),
        (house_of, 24, (-20.0, 0.0)),
    ],
)
def test_a_live_run_reports_what_its_environments_paid(make: Any, horizon: int, pays: tuple[float, float]) -> None:
    rewards: list[float] = []
    fleet = LiveFederation(lambda agent: Paid(make(agent), rewards), 2, horizon, pays)
    learnt = run(FedKLUCBVI(stationary=True), fleet, 20, progress=False)
    assert min(rewards) < 0
    assert learnt.average_reward == pytest.approx(sum(rewards) / 40, rel=1e-9)
    assert horizon * pays[0] <= learnt.estimated_value <= learnt.optimistic_value <= horizon * pays[1]


def test_a_gymnasium_environment_of_ours_pays_own_units() -> None:
    env: Any = gymnasium.make("fed_ucbvi/windy_cliff-v0", agents=1).unwrapped
    tabulated = {reward for rows in env.P.values() for outcomes in rows.values() for _, _, reward, _ in outcomes}
    assert min(tabulated) == LOW
    assert max(tabulated) == LOW + WIDTH


# ------------------------------------------------------------------------------ play, run and evaluate agree
SMALL: dict[str, dict[str, Any]] = {**SMALL_ENVIRONMENTS}
LAKE = {"id": "FrozenLake-v1", "horizon": 10}
TAXI = {"id": "Taxi-v4", "horizon": 12}
WORLDS = [
    *((name, options) for name, options in SMALL.items()),
    ("from_gymnasium", LAKE),
    pytest.param(("from_gymnasium", TAXI), marks=pytest.mark.full),
    pytest.param(("icu_sepsis", {}), marks=pytest.mark.full),
]


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: world[0])
def learnt_in_two_worlds(request: pytest.FixtureRequest) -> tuple[Federation, Run]:
    """A federation of two agents, and a short run in it."""
    name, options = request.param
    if name == "icu_sepsis":
        pytest.importorskip("icu_sepsis")
    world = make_environment(name, agents=2, **options)
    return world, run(FedKLUCBVI(), world, 30, progress=False)


def test_played_returns_average_to_the_policys_value(learnt_in_two_worlds: tuple[Federation, Run]) -> None:
    """Hypothesis: the mean return of 400 episodes is the policy's value; false alarm 6e-5 for each environment."""
    _, learnt = learnt_in_two_worlds
    played = play(LearntPolicy.of(learnt), agent=1, episodes=400, seed=3)
    figures = played.summary()
    assert figures["value_for_the_agent"] == pytest.approx(learnt.by_agent[1], rel=1e-9, abs=1e-9)
    error = max(figures["standard_error"], 1e-9 * abs(figures["mean_return"]), 1e-9)
    assert abs(figures["mean_return"] - learnt.by_agent[1]) < 4 * error
    assert played.interval.lower <= learnt.by_agent[1] <= played.interval.upper


def test_the_interval_of_evaluate_contains_the_policys_value(learnt_in_two_worlds: tuple[Federation, Run]) -> None:
    world, learnt = learnt_in_two_worlds
    found = evaluate(learnt.policy, world, 400, seed=5)
    assert found.lower <= learnt.agents_value.mean <= found.upper


def test_play_agrees_with_a_run_on_five_shops() -> None:
    """The shops of examples/five_shops, in euro a month."""
    fleet = shops.shops()
    learnt = run(FedKLUCBVI(stationary=True), fleet, 20, progress=False)
    policy = replace(LearntPolicy.of(learnt), environment={**learnt.about.environment})
    figures = play(policy, agent=4, episodes=300, seed=3, environment="shops:shops").summary()
    assert figures["value_for_the_agent"] == pytest.approx(learnt.by_agent[4], abs=1e-6)
    assert abs(figures["mean_return"] - learnt.by_agent[4]) < 4 * figures["standard_error"]


def test_a_policy_file_has_its_value_in_own_units(result: Run, tmp_path: Path) -> None:
    result.in_units(PER_STEP).export_policy(tmp_path / "policy.json")
    assert load_policy(tmp_path / "policy.json").value == pytest.approx(result.value)


# -------------------------------------------------------------------------------------- before and after a run
def test_an_inspection_is_in_own_units(cliffs: Federation) -> None:
    found = inspect_federation(cliffs)
    optima = [own_value(cliffs, agent, cliffs.agent(agent).solve().policy) for agent in range(3)]
    shared = [own_value(cliffs, agent, cliffs.common.solve().policy) for agent in range(3)]
    assert found.own == pytest.approx(optima, abs=1e-9)
    assert found.shared == pytest.approx(shared, abs=1e-9)


def test_the_value_of_the_best_common_policy_is_in_own_units(cliffs: Federation) -> None:
    best = best_common_policy(cliffs)
    mean = np.mean([own_value(cliffs, agent, best.policy) for agent in range(3)])
    assert best.value.lower == pytest.approx(mean, abs=1e-9)


def test_the_price_of_sharing_is_in_own_units(cliffs: Federation) -> None:
    best = best_common_policy(cliffs)
    price = price_of_sharing(cliffs)
    assert price.upper == pytest.approx(best.own - best.value.lower, abs=1e-6)


def test_a_forecast_of_a_federation_is_in_own_units() -> None:
    """All bounds on regret are 200 times those of the sizes, where a step pays between 0 and 1."""
    cliff = make_environment("windy_cliff", agents=3)
    own = plan(cliff, episodes=1000)
    bare = plan(
        episodes=1000,
        states=cliff.states,
        actions=cliff.actions,
        horizon=cliff.horizon,
        agents=3,
    )
    assert own.trivial == WIDTH * bare.trivial
    assert own.bound.federated == pytest.approx(WIDTH * bare.bound.federated)
    assert own.lower.value == pytest.approx(WIDTH * bare.lower.value)
    assert own.kl.regret is not None
    assert bare.kl.regret is not None
    assert own.kl.regret.common == pytest.approx(WIDTH * bare.kl.regret.common)
    assert own.rounds == bare.rounds


# ---------------------------------------------------------------------------------------- shares of a value
def test_where_rewards_can_be_negative_a_difference_is_shown_in_place_of_a_share(
    result: Run,
) -> None:
    assert "%" not in " ".join(text for name, text in summary_rows(result)[1] if name != "wall time")
    common = dict(summary_rows(result)[1])["in the common MDP"]
    assert common.endswith(f"({result.simple_regret:,.4f} less)")


def test_where_rewards_cannot_be_negative_a_share_is_shown() -> None:
    plain = run(FedUCBVI(), make_environment("gridworld", agents=2), 50, progress=False)
    assert "%" in dict(summary_rows(plain)[1])["recommended policy"]


@pytest.mark.parametrize(("metric", "known"), [("value", False), ("average_reward", False), ("regret", True)])
def test_ratios_of_values_are_left_empty_where_rewards_can_be_negative(
    cliffs: Federation, result: Run, metric: str, known: bool
) -> None:
    other = run(FedUCBVI(), cliffs, 300, progress=False)
    ratio = compare_runs([result, other], metric=metric).frame["ratio"].to_list()[1]
    assert (ratio is not None) == known


def test_a_run_on_the_cliff_says_in_own_units_that_it_has_learnt_little(
    cliffs: Federation,
) -> None:
    little = run(FedUCBVI(), cliffs, 20, progress=False)
    assert little.advice is not None
    assert f"the policy is worth {little.agents_value.mean:,.4g}" in little.advice
    assert little.in_units(PER_STEP).learnt_little


# ------------------------------------------------------------------------------------------- the command line
def test_play_prints_what_run_prints(tmp_path: Path) -> None:
    words = (
        "--env",
        "windy_cliff",
        "--agents",
        3,
        "--episodes",
        200,
        "--option",
        "stationary=true",
    )
    learnt = told("run", *words, "--algorithm", "fed-kl-ucbvi", "--out", tmp_path / "cliff")
    played = told("play", tmp_path / "cliff", "--episodes", 50)
    assert played["value_of_the_run"] == pytest.approx(learnt["value"])
    assert played["worth_at_least"] < learnt["value"] < played["worth_at_most"]
    assert played["worth_at_least"] > H * LOW


def test_show_gives_other_units_to_those_who_ask(result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "cliff")
    rescaled = told("show", tmp_path / "cliff", "--units", PER_STEP)
    assert rescaled["units"] == PER_STEP
    assert rescaled["value"] == pytest.approx((result.value - H * LOW) / WIDTH)
    assert "unknown units 'euro'" in refusal("show", tmp_path / "cliff", "--units", "euro")


def test_words_are_in_own_units_too(result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "cliff")
    words = " ".join(call("show", tmp_path / "cliff").stdout.split())
    assert "rewards of -100 to 100 per step" in words
    assert f"value {result.value:,.4f}" in words
    assert math.isfinite(result.value)
