"""Bins: spaces made finite, given and learnt, saved, and refused where they do not fit."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import FedKLUCBVI, InputError, LiveFederation, run
from fed_ucbvi.environments.bin_making import given_bins, learn_bins, make_finite, quantile_edges
from fed_ucbvi.environments.bins import Bins, Edges, Levels, Whole
from fed_ucbvi.environments.finite_spaces import dimensions_of, numbers_in

EVERYTHING = spaces.Dict(
    {
        "b": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2))),
        "a": spaces.MultiDiscrete([2, 4], start=[0, 5]),
        "x": spaces.Box(-1.0, 1.0, (2,), np.float64),
    }
)


class Playing(gymnasium.Env[Any, Any]):
    """Shows elements of a space, pays the sum of what was done, and remembers the actions."""

    def __init__(self, seen: spaces.Space[Any], done: spaces.Space[Any], ends: int = 10**9) -> None:
        self.observation_space = seen
        self.action_space = done
        self._ends = ends
        self.actions: list[Any] = []
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._step = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self._step += 1
        paid = 10.0 + sum(numbers_in(self.action_space, action))
        return (
            self.observation_space.sample(),
            paid,
            self._step >= self._ends,
            False,
            {},
        )


def test_every_number_of_a_space_is_a_dimension() -> None:
    names = [one.name for one in dimensions_of(EVERYTHING)]
    assert sorted(names) == ["a.0", "a.1", "b.0", "b.1.0", "b.1.1", "x.0", "x.1"]
    assert len(numbers_in(EVERYTHING, EVERYTHING.sample())) == len(names)
    with pytest.raises(InputError, match=r"Text.*cannot be made finite"):
        dimensions_of(spaces.Tuple((spaces.Discrete(2), spaces.Text(5))))


def everything_in_bins() -> tuple[Playing, gymnasium.Env[Any, Any]]:
    """An environment with every kind of space, and the same in bins."""
    env = Playing(EVERYTHING, EVERYTHING)
    bins = given_bins(env, {"x.0": 2, "x.1": [-0.5, 0.5]}, {"x.0": 3, "x.1": [-1.0, 0.25]}, horizon=5)
    return env, make_finite(env, bins)


STATES_OF_EVERYTHING = 3 * 4 * 8 * 2 * 3
"""Counted by hand: 3 * 4 * 8 whole values and 2 * 3 bins."""
ACTIONS_OF_EVERYTHING = 3 * 4 * 8 * 3 * 2
"""Likewise with a grid of 3 and 2 values."""


def test_all_kinds_of_spaces_become_discrete() -> None:
    _, finite = everything_in_bins()
    assert finite.observation_space == spaces.Discrete(STATES_OF_EVERYTHING)
    assert finite.action_space == spaces.Discrete(ACTIONS_OF_EVERYTHING)


def test_states_of_all_kinds_of_spaces_are_numbered_from_zero() -> None:
    _, finite = everything_in_bins()
    finite.reset(seed=0)
    states = {finite.step(action)[0] for action in range(ACTIONS_OF_EVERYTHING)}
    assert len(states) > 300
    assert min(states) >= 0
    assert max(states) < STATES_OF_EVERYTHING


def test_every_action_of_all_kinds_of_spaces_has_one_number() -> None:
    env, finite = everything_in_bins()
    finite.reset(seed=0)
    for action in range(ACTIONS_OF_EVERYTHING):
        finite.step(action)
    distinct = {tuple(numbers_in(EVERYTHING, action)) for action in env.actions}
    assert len(distinct) == ACTIONS_OF_EVERYTHING


def test_a_whole_number_out_of_range_has_no_place() -> None:
    with pytest.raises(InputError, match=r"whole number from -1 to 1"):
        Whole("b.0", -1, 3).place(2.0)


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=2), st.integers(0, 23))
def test_the_state_says_which_bins_its_numbers_are_in(numbers: list[float], hour: int) -> None:
    """Against a search by definition: bin k holds the numbers with cut k-1 <= x < cut k."""
    cuts = ((-10.0, 0.0, 5.5), (1.0,))
    bins = Bins(
        (Edges("x", cuts[0]), Whole("hour", 0, 24), Edges("y", cuts[1])),
        (Whole("a", 0, 2),),
        3,
    )
    state = bins.state([numbers[0], hour, numbers[1]])
    x, rest = divmod(state, 24 * 2)
    place, y = divmod(rest, 2)
    assert place == hour
    for number, found, own in ((numbers[0], x, cuts[0]), (numbers[1], y, cuts[1])):
        ends = (-math.inf, *own, math.inf)
        assert ends[found] <= number < ends[found + 1]


def test_learnt_bins_are_equally_often_visited() -> None:
    """H0: 8 bins are equally likely under the law they were learnt from; chi-square at level 1e-4, other episodes."""
    env = Playing(spaces.Box(-3.0, 9.0, (1,), np.float64), spaces.Discrete(2))
    bins = learn_bins(env, episodes=50, bins_per_dimension=8, horizon=200, seed=1)
    (edges,) = bins.observations
    assert isinstance(edges, Edges)
    assert np.allclose(edges.cuts, np.linspace(-3, 9, 9)[1:-1], atol=0.2)
    assert all(cut == round(cut, 2) for cut in edges.cuts)  # no observations, which have more digits
    finite = make_finite(env, bins)
    seen = np.bincount([finite.reset(seed=seed)[0] for seed in range(4000)], minlength=8)
    # two samples, of 50 * 201 and 4000: the statistic is that of one sample times (1 + 4000 / 10050)
    assert ((seen - 500) ** 2 / 500).sum() < 29.9 * (1 + 4000 / 10050)  # 7 degrees of freedom


@pytest.mark.parametrize(("margin", "expected"), [(0.0, (9.0, 11.0)), (0.25, (8.5, 11.5))])
def test_the_range_of_rewards_is_the_observed_one_with_a_margin(margin: float, expected: tuple[float, float]) -> None:
    env = Playing(spaces.Discrete(2), spaces.Box(-1.0, 1.0, (), np.float64))
    bins = learn_bins(env, episodes=30, actions_per_dimension=3, horizon=40, margin=margin)
    assert bins.reward_range == pytest.approx(expected, abs=0.02)


def test_rewards_outside_the_observed_range_are_clipped(caplog: pytest.LogCaptureFixture) -> None:
    env = Playing(spaces.Discrete(2), spaces.Box(-1.0, 1.0, (), np.float64))
    bins = learn_bins(env, episodes=30, actions_per_dimension=3, horizon=40, margin=0.0)
    finite = make_finite(env, bins)
    finite.reset(seed=0)
    with caplog.at_level(logging.WARNING):
        rewards = {finite.step(action)[1] for action in (0, 1, 2) for _ in range(5)}
    low, high = bins.reward_range or (0.0, 0.0)
    assert rewards == {low, 10.0, high}
    assert finite.clipped == 10
    assert len(caplog.records) == 2  # the first and the tenth


def test_bins_keep_the_range_of_rewards_that_was_given(tmp_path: Path) -> None:
    env = Playing(spaces.Discrete(2), spaces.Box(-1.0, 1.0, (), np.float64))
    bins = learn_bins(env, reward_range=(0, 20), horizon=40)
    assert bins.reward_range == (0.0, 20.0)
    assert not (bins.clips)
    bins.save(tmp_path / "bins.json")
    assert Bins.load(tmp_path / "bins.json") == bins


def test_a_reward_outside_a_range_that_was_given_is_not_clipped() -> None:
    env = Playing(spaces.Discrete(2), spaces.Box(-1.0, 1.0, (), np.float64))
    finite = make_finite(
        env,
        learn_bins(env, actions_per_dimension=3, reward_range=(9.5, 10.5), horizon=40),
    )
    finite.reset(seed=0)
    paid = [finite.step(place)[1] for place in (0, 1, 2)]
    assert max(abs(reward - 10.0) for reward in paid) > 0.5
    assert finite.clipped == 0


def test_a_run_takes_the_range_of_rewards_from_the_bins() -> None:
    def make(agent: int) -> gymnasium.Env[Any, Any]:
        return Playing(spaces.Discrete(2), spaces.Box(-1.0, 1.0, (), np.float64))

    bins = learn_bins(make(0), actions_per_dimension=3, reward_range=(0, 20), horizon=4)
    fleet = LiveFederation(lambda agent: make_finite(make(agent), bins), 1, bins.horizon, bins.reward_range)
    result = run(FedKLUCBVI(), fleet, 20, progress=False)
    assert 36.0 < result.average_reward < 44.0  # four steps of 9 to 11


def test_an_episode_that_terminates_brings_0_into_the_range() -> None:
    env = Playing(spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,), np.float64), ends=3)
    assert learn_bins(env, horizon=9, margin=0.0).reward_range == pytest.approx((0.0, 11.0), abs=0.1)
    low, high = learn_bins(env, horizon=9).reward_range or (0.0, 0.0)
    assert (low, high) == pytest.approx((-11 / 4, 11 * 5 / 4), abs=0.2)


def test_rewards_that_are_always_the_same_show_no_range() -> None:
    with pytest.raises(InputError, match=r"does not show their range.*reward_range"):
        learn_bins(Playing(spaces.Discrete(2), spaces.Discrete(1)), horizon=4)


def test_few_values_get_a_bin_each() -> None:
    assert quantile_edges("x", np.array([2.0, 2.0, 3.0, 7.0] * 9), 5) == (2.5, 5.0)
    assert quantile_edges("x", np.ones(9), 5) == ()


def room_bins(last_edge: float) -> Bins:
    return Bins(
        observations=(Edges("inside", (18.0, last_edge)), Whole("hour", 0, 24)),
        actions=(Levels("power", (0.0, 0.1 + 0.2)),),
        horizon=24,
        reward_range=(-1.0, 0.5),
    )


def test_bins_load_back_equal(tmp_path: Path) -> None:
    bins = room_bins(21.1)
    bins.save(tmp_path / "bins.json")
    again = Bins.load(tmp_path / "bins.json")
    assert again == bins
    assert again.digest == bins.digest
    assert [path.name for path in tmp_path.iterdir()] == ["bins.json"]


def test_bins_with_another_edge_have_another_digest() -> None:
    assert room_bins(21.2).digest != room_bins(21.1).digest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "other"}, "does not hold bins"),
        ({"format_version": 9}, "has format version 9"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"observations": []}, "observations have no dimension"),
        ({"observations": [{"name": "x", "edges": [2.0, 1.0]}]}, "must rise"),
        (
            {"observations": [{"name": "x", "edges": [float("nan")]}]},
            "must be a number",
        ),
        (
            {"observations": [{"name": "x", "whole": [0, 10**9]}]},
            "more pairs than can be tabulated",
        ),
        ({"observations": [{"name": "x", "spline": [1]}]}, "no kind of dimension"),
        (
            {"observations": [{"name": "x", "whole": [0, "many"]}]},
            "count must be a whole number",
        ),
        ({"observations": [{"name": "x"}]}, "is damaged"),
        ({"observations": 7}, "is damaged"),
        ({"actions": [{"name": "u", "grid": []}]}, "no value to take"),
        ({"reward_range": [1.0, 1.0]}, "reward_range: high"),
    ],
)
def test_what_cannot_be_bins_is_refused(change: dict[str, Any], says: str) -> None:
    whole = json.loads(Bins((Edges("x", (1.0,)),), (Whole("u", 0, 2),), 3).text)
    assert Bins.parse(json.dumps({**whole, "horizon": 3.0})).text == json.dumps(whole, sort_keys=True)
    with pytest.raises(InputError, match=says):
        Bins.parse(json.dumps({**whole, **change}))


def test_bins_of_another_environment_are_refused() -> None:
    room = Playing(spaces.Box(0.0, 40.0, (1,)), spaces.Box(0.0, 1.0, (1,)))
    bins = given_bins(room, {"0": [20.0]}, {"0": [0.0, 1.0]}, horizon=4)
    for other, says in (
        (
            Playing(spaces.Box(0, 40, (2,)), room.action_space),
            "are for observations '0', but",
        ),
        (Playing(spaces.Discrete(4), room.action_space), "has 4 values"),
        (
            Playing(room.observation_space, spaces.Box(0.5, 1.0, (1,))),
            "allows 0.5 to 1",
        ),
    ):
        with pytest.raises(InputError, match=says):
            make_finite(other, bins)
    with pytest.raises(InputError, match="edges for '0' are missing"):
        given_bins(room, {}, {"0": 2}, horizon=4)
    with pytest.raises(
        InputError,
        match="'temperature', no continuous dimension; those of this space are '0'",
    ):
        given_bins(room, {"0": 2, "temperature": 3}, {"0": 2}, horizon=4)
    with pytest.raises(InputError, match="has no bounds"):
        given_bins(
            Playing(spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(2)),
            {"0": 3},
            horizon=4,
        )
    with pytest.raises(InputError, match="horizon is missing"):
        given_bins(room, {"0": 2}, {"0": 2})


def test_an_observation_that_is_no_number_is_an_error() -> None:
    with pytest.raises(InputError, match="'x' is not a number"):
        Bins((Edges("x", (1.0,)),), (Whole("u", 0, 2),), 3).state([math.nan])


@pytest.fixture(scope="module")
def cart_pole_bins() -> Bins:
    env = gymnasium.make("CartPole-v1", max_episode_steps=30)
    return learn_bins(env, bins_per_dimension={"0": 1, "1": 2, "2": 4, "3": 3}, reward_range=(0, 1))


def test_the_time_limit_of_a_registered_environment_is_the_horizon_of_its_bins(cart_pole_bins: Bins) -> None:
    assert cart_pole_bins.horizon == 30
    assert cart_pole_bins.states == 24
    assert cart_pole_bins.number_of_actions == 2


def test_a_live_run_in_bins_has_one_more_state_for_episodes_that_end_early(cart_pole_bins: Bins) -> None:
    """CartPole pays 1 a step until it falls: an episode that ends early goes to the absorbing state."""
    from fed_ucbvi import LiveFederation, run

    fleet = LiveFederation(
        lambda agent: make_finite(gymnasium.make("CartPole-v1", max_episode_steps=30), cart_pole_bins),
        agents=3,
        reward_range=(0, 1),
    )
    about = run(FedKLUCBVI(), fleet, 60, progress=False).about
    assert about.states == 25
    assert about.actions == 2
    assert about.horizon == 30
