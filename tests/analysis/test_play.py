"""Learnt policies as files, and at work."""

from __future__ import annotations

import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from commands import call, refusal, told
from fed_ucbvi import (
    MDP,
    ByzanUCBVI,
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    InputError,
    LiveFederation,
    Run,
    from_gymnasium,
    gridworld,
    run,
)
from fed_ucbvi.algorithms.base import Counting
from fed_ucbvi.analysis.play import play
from fed_ucbvi.engine.drivers.base import Fleet
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.results.policy import LearntPolicy, policy_of_bytes
from fed_ucbvi.results.run import load_policy

pytestmark = pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")


@pytest.fixture(scope="module")
def cliff() -> Run:
    walk = from_gymnasium("CliffWalking-v1", agents=20, horizon=20)
    return run(FedKLUCBVI(stationary=True), walk, 800, progress=False)


@pytest.fixture(scope="module")
def grid() -> Run:
    world = gridworld(agents=4, eps_p=0.3, seed=1).with_liars(0.25, "flip")
    return run(ByzanUCBVI(log_term=0.01), world, 300, progress=False)


def test_an_exported_policy_loads_back_the_same(cliff: Run, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "policy.json"
    cliff.export_policy(path)
    policy = load_policy(path)
    assert np.array_equal(policy.table, cliff.policy)
    assert policy.table.dtype == cliff.policy.dtype
    assert policy.horizon == 20
    assert policy.states == 49
    assert policy.actions == 4
    assert policy.value == cliff.value
    assert policy.environment == cliff.about.environment
    assert policy.units.offset == -100.0
    assert policy.units.scale == 100.0
    assert list(path.parent.iterdir()) == [path]
    content = json.loads(path.read_text())
    assert content["format"] == "fed-ucbvi/policy"
    assert content["policy"] == cliff.policy.tolist()
    assert content["units"] == {"offset": -100.0, "scale": 100.0}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("policy.txt", "", r"saved in a \.json file"),
        ("none.json", None, "there is no file"),
        ("bad.json", "{", "damaged"),
        ("other.json", "[1]", "not a policy that fed-ucbvi saved"),
        ("other.json", '{"format": "fed-ucbvi/run"}', "not a policy"),
        (
            "new.json",
            '{"format": "fed-ucbvi/policy", "format_version": 99}',
            "format version 99",
        ),
        (
            "sizes.json",
            '{"format": "fed-ucbvi/policy", "format_version": 3, "actions": 2, "value": null, "horizon": 1, '
            '"states": 2, "form": "actions", "environment": {}, "policy": [[0, 2]]}',
            "is damaged: its policy takes actions that do not exist: 2 at step 0",
        ),
        (
            "form.json",
            '{"format": "fed-ucbvi/policy", "format_version": 3, "actions": 2, "value": null, "horizon": 1, '
            '"states": 2, "form": "guesses", "environment": {}, "policy": [[0, 1]]}',
            "its form is none of actions, sets, probabilities",
        ),
    ],
)
def test_a_file_that_holds_no_policy_is_refused(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        load_policy(tmp_path / name)


def test_the_best_walk_along_the_cliff_is_paid_minus_13_in_13_steps(cliff: Run) -> None:
    played = play(LearntPolicy.of(cliff), episodes=3)
    assert played.returns == (-13.0, -13.0, -13.0)
    assert played.lengths == (13, 13, 13)
    assert played.own_value == pytest.approx(-13.0, abs=1e-9)


def test_a_policy_is_paid_its_value_in_the_agents_own_environment(grid: Run) -> None:
    """Hypothesis: the mean return is the policy's value for that agent; two-sided, false alarm 1 in 1000 each."""
    policy = LearntPolicy.of(grid)
    mdp = gridworld(agents=4, eps_p=0.3, seed=1).agent(2)
    figures = play(policy, agent=2, episodes=2000, seed=4).summary()
    own = float(mdp.initial @ mdp.evaluate(grid.policy)[0])
    assert figures["value_for_the_agent"] == own
    assert abs(own - grid.value) > 0.05
    assert abs(figures["mean_return"] - own) < 3.3 * figures["standard_error"]


def test_each_agent_plays_in_its_own_lake() -> None:
    """Hypothesis as above, on a lake whose slip is the agent's own; false alarm 1 in 1000."""
    lakes = from_gymnasium(agents=3, horizon=20, vary={"success_rate": [0.5, 0.95]}, seed=3)
    policy = LearntPolicy.of(run(FedUCBVI(bonus_scale=0.1), lakes, 300, progress=False))
    values = [float(lakes.agent(i).initial @ lakes.agent(i).evaluate(policy.table)[0]) for i in range(3)]
    i = int(np.argmax(np.abs(np.array(values) - policy.value)))
    played = play(policy, agent=i, episodes=1500, seed=2).summary()
    assert played["value_for_the_agent"] == pytest.approx(values[i], abs=1e-12)
    assert abs(played["mean_return"] - values[i]) < 3.3 * played["standard_error"]


def test_what_a_live_run_learnt_plays_though_its_value_is_unknown(
    tmp_path: Path,
) -> None:
    live = LiveFederation.from_gymnasium("FrozenLake-v1", 2, horizon=10, reward_range=(0, 1))
    result = run(FedUCBVI(), live, 20, progress=False)
    result.export_policy(tmp_path / "policy.json")
    policy = load_policy(tmp_path / "policy.json")
    assert math.isnan(policy.value)
    assert play(policy, episodes=2).summary()["value_of_the_run"] is None


def test_a_nameless_environment_cannot_be_played() -> None:
    policy = LearntPolicy(np.zeros((2, 2), dtype=np.int32), 2, {"name": "custom", "agents": 1}, 1.0)
    with pytest.raises(InputError, match="'custom' cannot be made again"):
        play(policy)


def test_the_command_play_prints_own_units(cliff: Run, tmp_path: Path) -> None:
    cliff.save(tmp_path / "run")
    text = call("play", tmp_path / "run", "--episodes", 2).stdout
    assert "-13 \u00b1 0 (s.e.); value -13, for this agent -13" in text
    assert "19.87" not in text


def test_the_command_play_writes_json(cliff: Run, tmp_path: Path) -> None:
    cliff.save(tmp_path / "run")
    content = told("play", tmp_path / "run", "--episodes", 2)
    assert content["returns"] == [-13.0, -13.0]
    assert content["value_of_the_run"] == pytest.approx(-13.0, abs=1e-9)
    assert content["mean_return"] == -13.0
    assert content["picture"] is None


def test_the_command_shows_every_step_as_text(cliff: Run, grid: Run, tmp_path: Path) -> None:
    grid.save(tmp_path / "grid")
    text = call("play", tmp_path / "grid", "--episodes", 1, "--render", "text", "--agent", 3).stdout
    assert [line for line in text.splitlines() if line.startswith("step ")][-1].startswith("step 10 of 10")
    assert text.count("[") == 11
    cliff.export_policy(tmp_path / "cliff.json")
    assert call("play", tmp_path / "cliff.json", "--episodes", 1, "--render", "text").stdout.count("x") >= 14


def test_the_command_saves_a_moving_picture(grid: Run, tmp_path: Path) -> None:
    grid.save(tmp_path / "grid")
    words = ("--episodes", 2, "--out", tmp_path / "play.gif", "--seed", 1)
    assert call("play", tmp_path / "grid", *words).exit_code == 0
    with Image.open(tmp_path / "play.gif") as picture:
        frames: Any = picture
        assert frames.n_frames > 5
        assert picture.size == (480, 480)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--agent", 4], "agent must be at most 3"),
        (["--episodes", 0], "episodes must be at least 1"),
        (["--render", "texts"], "unknown way to render 'texts'; did you mean 'text'"),
        (["--render", "text", "--json"], "does not go with"),
        (["--out", "play.mp4"], "must end in .gif"),
        (["--render", "human"], "unknown render mode 'human'"),
    ],
)
def test_bad_words_leave_nothing_behind(grid: Run, tmp_path: Path, words: list[object], message: str) -> None:
    grid.save(tmp_path / "grid")
    assert message in refusal("play", tmp_path / "grid", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["grid"]


def test_a_run_on_a_gymnasium_table_from_the_command_line(tmp_path: Path) -> None:
    options = (
        "id=FrozenLake-v1",
        'kwargs={"map_name":"8x8"}',
        "horizon=12",
        'vary={"success_rate":[0.6,0.9]}',
    )
    words = [
        "--env",
        "from_gymnasium",
        *(word for option in options for word in ("--env-option", option)),
    ]
    content = told("run", *words, "--agents", 3, "--episodes", 40, "--out", tmp_path / "run")
    assert content["states"] == 65
    assert content["horizon"] == 12
    assert content["environment"]["id"] == "FrozenLake-v1"
    assert content["eps_p"] > 0
    assert call("play", tmp_path / "run", "--agent", 2, "--episodes", 3).exit_code == 0


@pytest.fixture(scope="module")
def table() -> LearntPolicy:
    """A policy whose action at step h in state s is 10 h + s."""
    return LearntPolicy(np.arange(30, dtype=np.int32).reshape(3, 10), 30, {}, 1.0)


@pytest.mark.parametrize(("step", "state", "action"), [(0, 0, 0), (2, 9, 29), (1, np.int64(4), 14)])
def test_the_action_of_a_policy_is_that_of_its_table(table: LearntPolicy, step: int, state: int, action: int) -> None:
    assert table.act(step, state) == action


@pytest.mark.parametrize(
    ("step", "state", "message"),
    [
        (3, 0, "step 3 does not exist"),
        (-1, 0, "step -1"),
        (0, 10, "states 0 to 9"),
        (0, 1.0, "1.0"),
    ],
)
def test_steps_or_states_that_do_not_exist_are_refused(
    table: LearntPolicy, step: int, state: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        table.act(step, state)


def test_it_is_shown_in_one_short_line(table: LearntPolicy) -> None:
    assert repr(table) == "<LearntPolicy for custom: S = 10, A = 30, H = 3, value 1>"
    signed = replace(table, signature="c2lnbmVk" * 50, certificate="-----BEGIN" * 50, value=math.nan)
    assert repr(signed) == "<LearntPolicy for custom: S = 10, A = 30, H = 3, value unknown, signed>"


@pytest.fixture
def policy_file(table: LearntPolicy, tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    table.save(path)
    return path


def test_act_prints_the_action_of_a_step_in_a_state(policy_file: Path) -> None:
    assert call("act", policy_file, "--step", 2, "--state", 3).stdout == "23\n"
    answer = told("act", policy_file, "--step", 2, "--state", 3)
    assert answer == {"step": 2, "state": 3, "action": 23}


def test_act_answers_standard_input_line_by_line(policy_file: Path) -> None:
    answered = call("act", policy_file, input="0 0\n\n 1  2 \n")
    assert answered.exit_code == 0
    assert answered.stdout == "0\n12\n"


def test_act_stops_at_a_line_that_is_not_a_step_with_a_state(policy_file: Path) -> None:
    answered = call("act", policy_file, "--json", input="0 5\n0 x\n")
    assert answered.exit_code == 2
    assert answered.stdout == '{"step": 0, "state": 5, "action": 5}\n'
    message = " ".join(answered.stderr.split())
    assert "line 2 of standard input is '0 x'; expected a step and a state" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--step", 0), "pass both --step and --state"),
        (("--step", 0, "--state", 10), "state 10 does not exist"),
        (("--step", 0, "--state", 0, "--server-name", "hub"), "pass --certs DIR as well"),
    ],
)
def test_act_refuses_options_that_do_not_fit(policy_file: Path, words: tuple[Any, ...], message: str) -> None:
    assert message in refusal("act", policy_file, *words)


def test_act_takes_the_policy_of_a_saved_run(cliff: Run, tmp_path: Path) -> None:
    cliff.save(tmp_path / "run")
    answered = call("act", tmp_path / "run", "--step", 0, "--state", 36)
    assert answered.stdout == f"{cliff.policy[0, 36]}\n"


def drawing(form: str) -> LearntPolicy:
    """A policy that draws its actions, for two steps, three states and four actions."""
    chances = np.random.default_rng(5).dirichlet(np.full(4, 0.5), (2, 3))
    chances[1, 2] = [0.25, 0.0, 0.0, 0.75]
    return LearntPolicy(chances > 0.2 if form == "sets" else chances, 4, {"name": "custom"}, 1.0)


@pytest.mark.parametrize("form", ["sets", "probabilities"])
def test_a_policy_that_draws_is_read_back_from_its_file_to_the_bit(form: str, tmp_path: Path) -> None:
    policy = drawing(form)
    policy.save(tmp_path / "policy.json")
    read = load_policy(tmp_path / "policy.json")
    assert read.form == form
    assert read.digest == policy.digest
    assert read.table.dtype == policy.table.dtype
    assert read.table.tobytes() == policy.table.tobytes()


@pytest.mark.parametrize("form", ["sets", "probabilities"])
def test_a_policy_draws_the_action_that_a_simulated_agent_draws(form: str) -> None:
    policy = drawing(form)
    kernel = np.zeros((3, 4, 3))
    kernel[:, :, 2] = 1.0
    world = Federation.from_mdps([MDP(kernel, np.zeros((3, 4)), 0, 2)] * 2)
    fleet = Fleet.of(world, 11, counting=Counting.PAIRS)
    driver = EpisodesDriver(fleet)
    never = np.full((1, 2, 3, 4), 10**6, dtype=np.int64)
    for episode in range(50):
        driver.clear()
        driver.extend(policy.table, never, episode, 1, False)
        for agent in range(2):
            for step, state in ((0, 0), (1, 2)):
                action = policy.act(step, state, seed=11, agent=agent, episode=episode)
                assert driver.visits[agent, step, state].argmax() == action


def test_actions_drawn_without_a_seed_have_their_probabilities() -> None:
    """H0: 1 in 4 draws is the action 0; binomial test, false alarm 1 in 10 000 runs (draws have no seed)."""
    policy = drawing("probabilities")
    drawn = [policy.act(1, 2) for _ in range(2000)]
    assert set(drawn) == {0, 3}
    assert stats.binomtest(drawn.count(0), 2000, 0.25).pvalue > 1e-4


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([[[0.5, 0.4], [0.5, 0.5]]], "add up to 0.9, not to 1"),
        ([[[1.5, -0.5], [0.5, 0.5]]], "probability of -0.5"),
        ([[[0.5, 0.5]]], "does not have the form and the sizes"),
        ([[0, 1]], "does not have the form and the sizes"),
    ],
)
def test_a_file_with_a_bad_table_of_probabilities_is_refused(table: Any, says: str) -> None:
    good = LearntPolicy(np.full((1, 2, 2), 0.5), 2, {}, 1.0)
    content = {**json.loads(good.to_bytes()), "policy": table}
    with pytest.raises(InputError, match=says):
        policy_of_bytes(json.dumps(content).encode(), "it")


def test_act_draws_each_line_by_its_episode(tmp_path: Path) -> None:
    policy = drawing("probabilities")
    policy.save(tmp_path / "policy.json")
    answered = call("act", tmp_path / "policy.json", "--seed", 3, input="1 2\n1 2\n1 2 9\n")
    expected = [policy.act(1, 2, seed=3, episode=episode) for episode in (0, 1, 9)]
    assert [int(line) for line in answered.stdout.split()] == expected


def test_act_draws_by_the_episode_of_its_option(tmp_path: Path) -> None:
    policy = drawing("probabilities")
    policy.save(tmp_path / "policy.json")
    where = ("--step", 1, "--state", 2)
    answered = call("act", tmp_path / "policy.json", *where, "--seed", 3, "--episode", 9)
    assert int(answered.stdout) == policy.act(1, 2, seed=3, episode=9)


def test_a_saved_run_whose_policy_draws_is_read_back(grid: Run, tmp_path: Path) -> None:
    sizes = (grid.about.horizon, grid.about.states)
    chances = np.random.default_rng(1).dirichlet(np.ones(grid.about.actions), sizes)
    drawn = replace(grid, policy=chances)
    drawn.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == drawn
    assert load_policy(tmp_path / "run").form == "probabilities"


def test_a_policy_that_draws_is_played_by_its_seed(grid: Run) -> None:
    chances = np.full(
        (grid.about.horizon, grid.about.states, grid.about.actions),
        1 / grid.about.actions,
    )
    policy = LearntPolicy.of(replace(grid, policy=chances))
    first, again, other = (play(policy, episodes=3, seed=seed).returns for seed in (1, 1, 2))
    assert first == again != other


def test_a_file_longer_than_its_policy_can_be_is_not_read(table: LearntPolicy) -> None:
    long = table.to_bytes() + b" " * (1 << 25)
    tracemalloc.start()
    with pytest.raises(InputError, match="more than a policy of its size"):
        policy_of_bytes(long, "it", sizes=(3, 10, 30))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_signature_is_checked_before_the_actions_are(table: LearntPolicy) -> None:
    content = table.to_bytes().replace(b'"policy"', b'"absent"')
    with pytest.raises(InputError, match="it is not to be trusted: it is not signed"):
        policy_of_bytes(content, "it", authority=b"")
    with pytest.raises(InputError, match="it is damaged"):
        policy_of_bytes(content, "it")
