"""Outcomes of recorded episodes: found again where they follow, checked where they were recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fed_ucbvi import Dynamics, find_outcomes
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray
from known_problems import random_dynamics


class Log:
    """Episodes lived under random actions: states ``(T, H+1)``, actions, outcomes and rewards ``(T, H)``."""

    def __init__(self, dynamics: Dynamics, episodes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        H = dynamics.horizon
        self.states: CountArray = np.zeros((episodes, H + 1), dtype=np.int64)
        self.actions: CountArray = rng.integers(dynamics.actions, size=(episodes, H))
        self.outcomes: CountArray = rng.integers(dynamics.outcomes, size=(episodes, H))
        self.rewards: FloatArray = np.zeros((episodes, H))
        for h in range(H):
            cells = (self.states[:, h], self.actions[:, h], self.outcomes[:, h])
            self.states[:, h + 1] = dynamics.next_states_at(h)[cells]
            if dynamics.rewards is not None:
                self.rewards[:, h] = dynamics.units.original(dynamics.rewards_at(h)[cells])


def shop(**changes: Any) -> Dynamics:
    """A stock of up to 4 units, a demand of up to 2, and money that tells demands apart."""
    given: dict[str, Any] = {
        "laws": 1,
        "outcomes": 3,
        "law_of": 0,
        "next_state": lambda h, stock, order, demand: np.clip(stock + order - demand, 0, 4),
        "reward": lambda h, stock, order, demand: 4.0 * np.minimum(stock + order, demand) - order - 1.0 * demand,
        "horizon": 3,
        "states": 5,
        "actions": 2,
    }
    return Dynamics(**{**given, **changes})


def test_outcomes_that_follow_from_next_states_are_found() -> None:
    """The next state is the outcome."""
    dynamics = Dynamics.by_step(horizon=3, states=4, actions=2)
    log = Log(dynamics, 50, seed=1)
    assert np.array_equal(find_outcomes(dynamics, log.states, log.actions), log.outcomes)


def test_outcomes_that_follow_from_next_states_with_rewards_are_found() -> None:
    log = Log(shop(), 200, seed=2)
    assert np.array_equal(find_outcomes(shop(), log.states, log.actions, rewards=log.rewards), log.outcomes)


def test_recorded_outcomes_are_returned() -> None:
    dynamics = random_dynamics(np.random.default_rng(3))
    log = Log(dynamics, 50, seed=3)
    assert np.array_equal(find_outcomes(dynamics, log.states, log.actions, outcomes=log.outcomes), log.outcomes)


def test_an_outcome_that_an_empty_shelf_hides_is_an_error_with_its_place() -> None:
    message = (
        r"in episode 0, at step 1 in state 1 with action 0, the outcomes \[1, 2\] all lead to next state 0\. Record"
    )
    with pytest.raises(InputError, match=message):
        find_outcomes(shop(), states=[[2, 1, 0, 1]], actions=[[0, 0, 1]])


def test_a_next_state_that_no_outcome_explains_is_an_error_with_its_place() -> None:
    message = "in episode 1, at step 2 in state 1 with action 0, no outcome leads to what was recorded, next state 4"
    with pytest.raises(InputError, match=message):
        find_outcomes(shop(), states=[[3, 3, 3, 3], [3, 2, 1, 4]], actions=[[0, 0, 0], [0, 0, 0]])


def test_a_recorded_outcome_that_contradicts_the_next_state_is_an_error_with_its_place() -> None:
    message = "in episode 0, at step 1 in state 3 with action 0, outcome 2 does not lead to what was recorded, next"
    with pytest.raises(InputError, match=message):
        find_outcomes(shop(), states=[[3, 3, 2, 2]], actions=[[0, 0, 0]], outcomes=[[0, 2, 0]])


def test_a_reward_that_contradicts_the_outcome_is_an_error_with_its_place() -> None:
    log = Log(shop(), 5, seed=4)
    log.rewards[3, 1] += 0.5
    with pytest.raises(InputError, match="in episode 3, at step 1"):
        find_outcomes(shop(), log.states, log.actions, rewards=log.rewards, outcomes=log.outcomes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": [[0, 0, 0]]}, r"states must have shape \(episodes, 4\), got \(1, 3\)"),
        ({"states": [[0, 5, 0, 0]]}, "states must be numbers from 0 to 4; in episode 0 at step 1 there is 5"),
        ({"actions": [[0, 0, 0]] * 2}, "there are states of 1 episodes and actions of 2"),
        ({"actions": [[0, 0, 2]]}, "actions must be numbers from 0 to 1"),
        ({"outcomes": [[0, 0, 3]]}, "outcomes must be numbers from 0 to 2"),
        ({"outcomes": [[0, 0, 0]] * 2}, "there are outcomes of 2 episodes and actions of 1"),
        ({"rewards": [[0.0, 0.0]]}, r"rewards must have shape \(1, 3\), got \(1, 2\)"),
    ],
)
def test_logs_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"states": [[3, 3, 3, 3]], "actions": [[0, 0, 0]]}
    with pytest.raises(InputError, match=message):
        find_outcomes(shop(), **{**given, **changes})
