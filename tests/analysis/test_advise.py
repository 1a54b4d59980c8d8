"""Advice before a run: whether something depends on the step, which algorithm, how many bins and episodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import live_shops
import numpy as np
import pytest
from gymnasium import spaces
from scipy.stats import binom

from commands import call, refusal, told
from fed_ucbvi import Federation, FedKLUCBVI, InputError, alone_or_together, garnet, random_mdps, synthetic
from fed_ucbvi.analysis.advise import choose_parameters
from fed_ucbvi.analysis.dependence import Transitions, check_agent_dependence, check_step_dependence
from fed_ucbvi.analysis.inspection import price_of_sharing


class Walk(gymnasium.Env[Any, Any]):
    """A random walk on a circle of five; ``turn`` and ``paid`` make kernel and reward depend on the step."""

    def __init__(self, turn: float = 0.0, paid: float = 0.0, noise: float = 0.0) -> None:
        self.observation_space, self.action_space = spaces.Discrete(5), spaces.Discrete(2)
        self._turn, self._paid, self._noise = turn, paid, noise
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


def seen_in(env: Walk, episodes: int, seed: int) -> Transitions:
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(episodes):
        state, _ = env.reset(seed=seed if number == 0 else None)
        for h in range(12):
            action = int(rng.integers(0, 2))
            following, paid, *_ = env.step(action)
            rows.append((h, state, action, following, paid))
            state = following
    return Transitions.of(rows)


def test_a_dependence_on_the_step_is_rarely_found_where_there_is_none() -> None:
    """H0: false alarms have probability at most 0.1; with 40 samples more than ``most`` have probability 1e-3."""
    most = int(binom.ppf(1 - 1e-3, 40, 0.1))
    walks = (seen_in(Walk(noise=0.3), 10, seed) for seed in range(40))
    tests = [check_step_dependence(seen, 12, false_alarms=0.1, seed=seed) for seed, seen in enumerate(walks)]
    assert sum(one.found for one in tests) <= most


@pytest.mark.parametrize("change", [{"turn": 0.3}, {"paid": 0.2, "noise": 0.3}])
def test_a_dependence_of_kernel_or_reward_is_found(change: dict[str, float]) -> None:
    """A test without power would find it in one of a hundred samples."""
    samples = [check_step_dependence(seen_in(Walk(**change), 60, seed), 12, seed=seed) for seed in range(5)]
    assert sum(one.found for one in samples) >= 4


def test_what_is_found_decides_how_visits_are_counted() -> None:
    still = choose_parameters(Walk(), horizon=12, agents=3)
    assert dict(still.options) == {"stationary": True}
    assert "no dependence on the step was found" in still.reasons[0]
    moving = choose_parameters(Walk(turn=0.3), horizon=12, agents=3, sample_episodes=60)
    assert not moving.options
    assert "what follows a pair depends on the step" in moving.reasons[0]
    assert moving.episodes == -(-40 * 6 * 2 // 3)  # S = 5 + 1
    assert still.episodes == -(-100 * 6 * 2 // (3 * 12))


@pytest.mark.parametrize("shops", [(0, 4), (2, 3)])
def test_shops_that_differ_in_their_demand_are_found_though_they_hardly_share_a_stock(shops: tuple[int, int]) -> None:
    """Demand 1.5 and 3.5 a day leave different stocks; a test that were blind would find it once in 200 samples."""
    advice = choose_parameters([live_shops.make(i) for i in shops], horizon=30, agents=5)
    assert advice.problem.agents_test is not None
    assert advice.problem.agents_test.found
    assert "differ in their next states" in advice.reasons[-1]


def test_where_there_are_many_agents_longer_rounds_are_mentioned() -> None:
    few, many = (choose_parameters(garnet(agents=M), episodes=1000) for M in (99, 100))
    assert not any("min_round_growth" in reason for reason in few.reasons)
    assert "min_round_growth=0.1 there are at most 74 rounds" in many.reasons[-1]  # 2 + log(1000) / log(1.1)
    by_step = choose_parameters(synthetic(agents=100), episodes=1000)
    assert "min_round_growth=0.01 there are at most 696 rounds" in by_step.reasons[-1]
    assert "fed-kl-ucbvi-fast has less regret and no proof" in many.reasons[1]


def test_tables_say_what_depends_on_the_step() -> None:
    assert dict(choose_parameters(garnet(agents=4)).options) == {"stationary": True}
    assert not choose_parameters(synthetic(agents=4)).options


def test_large_tables_need_an_algorithm_without_transition_counts_and_one_agent_no_network() -> None:
    large = choose_parameters(states=20_000, actions=10, horizon=50, agents=1)
    assert (large.algorithm, large.together) == ("fedq-bernstein", False)
    assert "without a network" in large.reasons[-1]
    roomy = choose_parameters(states=20_000, actions=10, horizon=50, agents=2, memory=10**13)
    assert roomy.algorithm == "fed-kl-ucbvi"


def test_loud_rewards_are_to_be_declared_random() -> None:
    assert choose_parameters(Walk(noise=3.0), horizon=12).random_rewards
    assert not choose_parameters(Walk(noise=0.1), horizon=12).random_rewards


class Drift(Walk):
    """The same with two continuous dimensions in place of the state."""

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


def test_more_episodes_allow_more_bins() -> None:
    """By step, S A H <= M T H / 40: with A = 2 and M = 4, T = 1 280 fill 8 x 8 bins; stationary, 88 episodes do."""
    few, many = (choose_parameters(Drift(), horizon=12, agents=4, episodes=T).bins_per_dimension for T in (90, 4000))
    assert 3 <= (few or 0) < (many or 0)
    assert choose_parameters(Drift(), horizon=12, agents=4).bins_per_dimension == 8


def test_agents_that_are_alike_are_rarely_said_to_differ() -> None:
    """H0: false alarms have probability at most 0.1, also where the step matters; over ``most`` in 40 has 1e-3."""
    most = int(binom.ppf(1 - 1e-3, 40, 0.1))
    for walk in ({"noise": 0.3}, {"turn": 0.3, "paid": 0.2, "noise": 0.3}):
        alarms = 0
        for seed in range(40):
            seen = [seen_in(Walk(**walk), 10, 3 * seed + i) for i in range(3)]
            alarms += check_agent_dependence(seen, false_alarms=0.1, seed=seed).found
        assert alarms <= most


class Slip(Walk):
    """A walk that goes the other way at every step, and pays the same."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return super().step(1 - action)


class Opposite(Walk):
    """The same walk with rewards 1 - r."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        state, paid, *rest = super().step(action)
        return state, 1.0 - paid, *rest  # type: ignore[return-value]


@pytest.mark.parametrize(("other", "differ"), [(Opposite, "rewards"), (Slip, "next states"), (Walk, "")])
def test_environments_are_compared_by_rewards_as_well_as_by_next_states(other: type[Walk], differ: str) -> None:
    """A difference has the least p-value there is, 1/400; Walk against Walk is one fixed sample."""
    advice = choose_parameters([Walk(), Walk(), other()], horizon=12, agents=6)
    said = f"The agents differ in their {differ} (p = " if differ else "No difference between the agents was found"
    assert said in advice.reasons[-1]
    assert advice.summary()["problem"]["agent_dependence"]["found"] is bool(differ)


# ------------------------------------------------------------------------------------------- the price of sharing
def opposed(agents: int, seed: int = 0) -> Federation:
    """One kernel for all; half of the agents are paid r, the others 1 - r."""
    mdp = random_mdps(agents=1, seed=seed).agent(0)
    other = replace(mdp, rewards=1.0 - mdp.rewards)
    return Federation.from_mdps([mdp] * (agents // 2) + [other] * (agents // 2))


def test_agents_with_opposite_rewards_are_not_called_alike() -> None:
    world = opposed(6)
    assert world.eps_p == 0, "kernels alone would make them alike"
    price, advice = price_of_sharing(world), choose_parameters(world)
    assert price.lower > 0.05 * world.common_optimum.own
    assert not advice.together
    assert "The agents differ (eps_p = 0, eps_r = " in advice.reasons[-1]
    assert f"worth {price.lower:.3g} less an episode" in advice.reasons[-1]
    assert not any("alike" in reason for reason in advice.reasons)
    alone = choose_parameters(world.agent(0))
    assert advice.episodes == alone.episodes, "alone each needs as many as one agent"
    assert advice.summary()["problem"]["price"] == {"lower": price.lower, "upper": price.upper, "exact": price.exact}


def test_agents_that_differ_little_share_and_those_that_do_not_are_alike() -> None:
    alike, near = choose_parameters(synthetic(agents=4)), choose_parameters(synthetic(agents=4, eps_p=0.05))
    assert alike.together
    assert "The agents are alike" in alike.reasons[-1]
    assert near.together
    assert "alike" not in near.reasons[-1]
    assert near.episodes == alike.episodes


def test_an_agent_learns_from_its_own_counts_that_rewards_differ() -> None:
    """Without tables: after a run of agents with opposite rewards none of them is advised to stay with all."""
    advised = alone_or_together(FedKLUCBVI, opposed(4), 2000)
    assert {one.use for one in advised.agents} <= {"alone", "blend"}


def test_what_is_missing_or_too_much_is_said() -> None:
    with pytest.raises(InputError, match="needs states, actions and horizon"):
        choose_parameters(states=5, actions=2)
    with pytest.raises(InputError, match="leave out states, actions and horizon"):
        choose_parameters(garnet(agents=2), states=5)
    with pytest.raises(InputError, match="leave out states and actions"):
        choose_parameters(Walk(), states=5, horizon=3)


def test_the_command_gives_advice_in_words_and_as_json() -> None:
    content = told("advise", "--live", "FrozenLake-v1", "--agents", 5, "--sample", 20)
    assert (content["algorithm"], content["options"]) == ("fed-kl-ucbvi", {"stationary": True})
    assert content["problem"]["states"] == 17
    assert content["problem"]["step_dependence"]["found"] is False
    assert content["problem"]["agent_dependence"]["found"] is False
    words = call("advise", *["--states", "21", "--actions", "6", "--horizon", "30", "--agents", "5"]).stdout
    assert "1,008 for each agent" in words
    assert "federate  yes" in words
    assert "either --env" in refusal("advise", "--env", "gridworld", "--live", "FrozenLake-v1")
