"""Advice before a run: algorithm, how visits are counted, bins and episodes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scipy.stats import binom

from commands import call, refusal, told
from fed_ucbvi import InputError, garnet, synthetic
from fed_ucbvi.analysis.advise import choose_parameters
from fed_ucbvi.analysis.dependence import check_step_dependence
from fed_ucbvi.core.types import FloatArray


class Walk(gymnasium.Env[Any, Any]):
    """A random walk on a circle of five; ``turn`` and ``paid`` make kernel and reward depend on the step."""

    def __init__(self, turn: float = 0.0, paid: float = 0.0, noise: float = 0.0) -> None:
        self.observation_space = spaces.Discrete(5)
        self.action_space = spaces.Discrete(2)
        self._turn = turn
        self._paid = paid
        self._noise = noise
        self._state = self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self._step = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        late = self._step >= 6
        forward = 0.3 + 0.4 * action + self._turn * late
        paid = self._state / 4 + self._paid * late + self._noise * float(self.np_random.integers(0, 2))
        self._state = (self._state + (1 if self.np_random.random() < forward else -1)) % 5
        self._step += 1
        return self._state, paid, False, False, {}


def seen_in(env: Walk, episodes: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(episodes):
        state, _ = env.reset(seed=seed if number == 0 else None)
        for h in range(12):
            action = int(rng.integers(0, 2))
            following, paid, *_ = env.step(action)
            rows.append((h, state, action, following, paid))
            state = following
    return np.array(rows)


def test_a_dependence_on_the_step_is_rarely_found_where_there_is_none() -> None:
    """H0: false alarms have probability at most 0.1; with 40 samples more than ``most`` have probability 1e-3."""
    most = int(binom.ppf(1 - 1e-3, 40, 0.1))
    walks = (seen_in(Walk(noise=0.3), 10, seed) for seed in range(40))
    tests = [check_step_dependence(seen, 12, seed=seed) for seed, seen in enumerate(walks)]
    assert sum(min(one) <= 0.05 for one in tests) <= most


@pytest.mark.parametrize("change", [{"turn": 0.3}, {"paid": 0.2, "noise": 0.3}])
def test_a_dependence_of_kernel_or_reward_is_found(change: dict[str, float]) -> None:
    """A test without power would find it in one of a hundred samples."""
    samples = [check_step_dependence(seen_in(Walk(**change), 60, seed), 12, seed=seed) for seed in range(5)]
    assert sum(min(one) <= 0.005 for one in samples) >= 4


@pytest.mark.parametrize("turn", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_without_a_claim_visits_are_counted_by_step_whatever_was_seen(turn: float, seed: int) -> None:
    """A test that finds nothing is no reason to count over all steps."""
    advice = choose_parameters(Walk(turn=turn), horizon=12, agents=3, seed=seed)
    assert not advice.options
    assert advice.problem.warning is None
    assert advice.episodes == -(-40 * 6 * 2 // 3)  # S = 5 + 1


def test_a_claim_that_steps_do_not_matter_is_followed() -> None:
    advice = choose_parameters(Walk(), horizon=12, agents=3, stationary=True)
    assert dict(advice.options) == {"stationary": True}
    assert advice.problem.warning is None
    assert advice.episodes == -(-100 * 6 * 2 // (3 * 12))


def test_a_claim_that_episodes_contradict_is_warned_of() -> None:
    advice = choose_parameters(Walk(turn=0.3), horizon=12, agents=3, sample_episodes=60, stationary=True)
    assert dict(advice.options) == {"stationary": True}
    assert advice.problem.warning is not None
    assert "Steps matter in the episodes that were played (p = 0.0025 for next states" in advice.problem.warning


def test_a_claim_that_tables_contradict_is_refused() -> None:
    with pytest.raises(
        InputError,
        match="contradicts the tables of this environment, which depend on the step",
    ):
        choose_parameters(synthetic(agents=4), stationary=True)


def test_tables_decide_how_visits_are_counted() -> None:
    assert dict(choose_parameters(garnet(agents=4)).options) == {"stationary": True}
    assert not choose_parameters(synthetic(agents=4)).options


def test_large_tables_need_an_algorithm_without_transition_counts() -> None:
    """16 S A H S bytes are more than 4 GiB; over all steps they would be 960 MB."""
    by_step = choose_parameters(states=2_000, actions=15, horizon=50)
    assert by_step.algorithm == "fedq-bernstein"
    assert by_step.memory == 16 * 2_000 * 15 * 50
    over_all_steps = choose_parameters(states=2_000, actions=15, horizon=50, stationary=True)
    assert over_all_steps.algorithm == "fed-kl-ucbvi"
    assert over_all_steps.memory == 16 * 2_000 * 15 * 2_000


def test_an_algorithm_without_stationary_counts_gets_advice_by_step() -> None:
    claimed = choose_parameters(states=20_000, actions=10, horizon=50, stationary=True)
    assert claimed.algorithm == "fedq-bernstein"
    assert not claimed.options
    assert claimed.episodes == choose_parameters(states=20_000, actions=10, horizon=50).episodes


def moving(agent: int) -> Walk:
    """An environment that ``--live`` makes."""
    return Walk(turn=0.3)


class Drift(Walk):
    """The chain with two continuous dimensions in place of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1.0, 6.0, (2,), np.float64)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**options)
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._seen(), *super().step(action)[1:]

    def _seen(self) -> Any:
        return self._state + self.np_random.normal(0.0, 0.2, 2)


@pytest.mark.parametrize(("stationary", "episodes"), [(False, 1280), (True, 267)])
def test_bins_are_as_many_as_episodes_can_fill(stationary: bool, episodes: int) -> None:
    """8 x 8 bins and 2 actions: by step 128 * 40 / 4 = 1,280 episodes, over all 12 steps 128 * 100 / (4 * 12)."""
    enough = choose_parameters(Drift(), horizon=12, agents=4, episodes=episodes, stationary=stationary)
    fewer = choose_parameters(Drift(), horizon=12, agents=4, episodes=episodes - 1, stationary=stationary)
    assert enough.problem.bins == 8
    assert fewer.problem.bins == 7


def test_the_default_number_of_bins_is_eight() -> None:
    assert choose_parameters(Drift(), horizon=12, agents=4).problem.bins == 8


def test_the_least_number_of_bins_is_three() -> None:
    assert choose_parameters(Drift(), horizon=12, agents=4, episodes=1).problem.bins == 3


def test_what_is_missing_or_too_much_is_said() -> None:
    with pytest.raises(InputError, match="needs states, actions and horizon"):
        choose_parameters(states=5, actions=2)
    with pytest.raises(InputError, match="brings its sizes along"):
        choose_parameters(garnet(agents=2), states=5)
    with pytest.raises(InputError, match="brings its sizes along"):
        choose_parameters(Walk(), states=5, horizon=3)


def test_the_command_gives_advice_as_json() -> None:
    content = told("advise", "--live", "FrozenLake-v1", "--agents", 5, "--sample", 20)
    assert content["algorithm"] == "fed-kl-ucbvi"
    assert content["options"] == {}
    assert content["problem"]["states"] == 17
    assert content["problem"]["stationary"] is False


def test_the_command_gives_advice_in_words() -> None:
    words = call("advise", "--states", "21", "--actions", "6", "--horizon", "30", "--agents", "5").stdout
    assert "1,008 for each agent" in words
    assert "stationary" not in words.splitlines()[1]


def test_the_command_warns_of_a_claim_that_episodes_contradict() -> None:
    words = call(
        "advise",
        "--live",
        "test_advise:moving",
        "--horizon",
        "12",
        "--sample",
        "60",
        "--stationary",
    ).stdout
    assert "--option stationary=true" in words
    assert "warning" in words


def test_the_command_takes_one_problem() -> None:
    assert "either --env" in refusal("advise", "--env", "gridworld", "--live", "FrozenLake-v1")
