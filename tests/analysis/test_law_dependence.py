"""The test that outcomes of a law do not depend on agent, step, state or action."""

from __future__ import annotations

import numpy as np
import pytest

from fed_ucbvi import Dynamics, LawDependence, check_law_dependence
from fed_ucbvi.analysis.dependence import FACTORS
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray

ONE_LAW = Dynamics(
    laws=1,
    outcomes=2,
    law_of=0,
    next_state=np.zeros((3, 2, 2)),
    reward=np.zeros((3, 2)),
    horizon=4,
    states=3,
    actions=2,
)


def visits_with(rng: np.random.Generator, number: int, chances: FloatArray, column: int) -> CountArray:
    """Visits at random places, whose outcome is 1 with a chance by the factor in a column."""
    sizes = (2, 4, 3, 2)  # agents, steps, states, actions
    rows = np.stack([rng.integers(size, size=number) for size in sizes], axis=1)
    outcomes = rng.random(number) < chances[rows[:, column]]
    return np.column_stack([rows, outcomes]).astype(np.int64)


def by_factor(found: list[LawDependence]) -> dict[str, LawDependence]:
    return {one.factor: one for one in found}


@pytest.mark.parametrize("column", range(4), ids=FACTORS)
def test_dependence_on_a_factor_is_found(column: int) -> None:
    chances = np.array([0.2, 0.8, 0.2, 0.8])
    visits = visits_with(np.random.default_rng(column), 400, chances, column)
    found = by_factor(check_law_dependence(ONE_LAW, visits))
    assert found[FACTORS[column]].p_value < 0.0125


def test_the_distance_is_the_total_variation_between_values_of_the_factor() -> None:
    """Chances of 0.2 and 0.8 for two actions are 0.3 away from their mean."""
    visits = visits_with(np.random.default_rng(5), 4000, np.array([0.2, 0.8]), FACTORS.index("action"))
    found = by_factor(check_law_dependence(ONE_LAW, visits))
    assert found["action"].distance == pytest.approx(0.3, abs=0.03)
    assert abs(found["state"].distance) < 0.03


def test_outcomes_that_are_drawn_alike_hardly_ever_give_an_alarm() -> None:
    """160 tests at 0.05: more than 18 alarms have a probability of 4e-4."""
    alarms = 0
    for seed in range(40):
        visits = visits_with(np.random.default_rng([6, seed]), 150, np.full(4, 0.4), 0)
        alarms += sum(one.p_value <= 0.05 for one in check_law_dependence(ONE_LAW, visits))
    assert alarms <= 18


def test_different_laws_may_have_different_outcomes() -> None:
    """The chance depends on the action, and each action has its law."""
    two_laws = Dynamics(
        laws=2,
        outcomes=2,
        law_of=lambda h, s, a: a,
        next_state=np.zeros((3, 2, 2)),
        horizon=4,
        states=3,
        actions=2,
    )
    visits = visits_with(np.random.default_rng(7), 400, np.array([0.2, 0.8]), FACTORS.index("action"))
    found = by_factor(check_law_dependence(two_laws, visits))
    assert found["action"].p_value == 1.0


@pytest.mark.parametrize("visits", [np.zeros((0, 5)), np.zeros((3, 4)), np.zeros(5)])
def test_rows_that_are_no_visits_are_refused(visits: FloatArray) -> None:
    with pytest.raises(InputError, match="rows of agent, step, state, action and outcome"):
        check_law_dependence(ONE_LAW, visits)
