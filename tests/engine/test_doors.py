"""Arguments of public functions: values, classes, names, MDPs and lists of them; everything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fed_ucbvi
from fed_ucbvi import (
    MDP,
    FedUCBVI,
    InputError,
    Sweep,
    best_common_policy,
    choose_parameters,
    gridworld,
    inspect_federation,
    plan,
    price_of_sharing,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import as_algorithm
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.environments import as_federation
from live_world import World

SMALL = synthetic(agents=3, states=3, actions=2, horizon=3)
MDPS = [SMALL.agent(i) for i in range(3)]


class Unfinished(Algorithm[Any, Any]):
    """No dataclass, and nothing in it."""


@pytest.mark.parametrize("given", [FedUCBVI, "fed-ucbvi", "fed_ucbvi:FedUCBVI"])
def test_an_algorithm_can_be_given_as_class_or_name(given: Any) -> None:
    expected = run(FedUCBVI(), SMALL, 50, progress=False)
    assert run(given, SMALL, 50, progress=False).same_outcome(expected)


def test_the_algorithm_of_a_live_run_can_be_given_as_name() -> None:
    expected = run(FedUCBVI(), World().live(), 20, progress=False)
    named = run("fed-ucbvi", World().live(), 20, progress=False)
    assert np.array_equal(named.V, expected.V)


def test_a_run_takes_a_list_of_mdps() -> None:
    expected = run(FedUCBVI(), SMALL, 50, progress=False)
    assert np.array_equal(run(FedUCBVI(), MDPS, 50, progress=False).V, expected.V)


def test_a_run_takes_the_name_of_an_environment() -> None:
    expected = run(FedUCBVI(), gridworld(), 5, progress=False)
    assert run(FedUCBVI(), "gridworld", 5, progress=False).same_outcome(expected)


def test_a_run_takes_one_mdp_for_one_agent() -> None:
    assert run(FedUCBVI(), MDPS[0], 50, progress=False).about.agents == 1


def test_functions_on_federations_take_lists_of_mdps() -> None:
    assert price_of_sharing(MDPS) == price_of_sharing(SMALL)
    assert inspect_federation(MDPS).federation.agents == 3


def test_functions_on_federations_take_names_of_environments() -> None:
    assert best_common_policy("gridworld").value == best_common_policy(gridworld()).value
    assert plan("gridworld", episodes=100) == plan(gridworld(), episodes=100)
    assert choose_parameters("gridworld").episodes == choose_parameters(gridworld()).episodes


def test_a_forecast_takes_the_sizes_of_a_federation() -> None:
    by_sizes = plan(states=3, actions=2, horizon=3, agents=3, episodes=9)
    assert plan(SMALL, episodes=9) == by_sizes


def sweep_of(*algorithms: object) -> Sweep:
    row = {
        "algorithms": list(algorithms),
        "environments": ["gridworld"],
        "agents": [2],
        "episodes": [5],
        "seeds": 1,
    }
    return Sweep(name="doors", grid=[row])


def test_a_sweep_takes_algorithms_as_values_or_classes() -> None:
    named = sweep_of({"name": "fed-ucbvi", "nu": 100}, "fedq-hoeffding")
    given = sweep_of(FedUCBVI(nu=100), fed_ucbvi.FedQHoeffding)
    assert given.content() == named.content()


@pytest.mark.parametrize(
    "call",
    [
        lambda given: run(FedUCBVI(), given, 5),
        lambda given: inspect_federation(given),
        lambda given: price_of_sharing(given),
        lambda given: best_common_policy(given),
        lambda given: plan(given, episodes=5),
        lambda given: choose_parameters(given),
    ],
)
@pytest.mark.parametrize("given", [3, [], [1, 2], World().live, {"name": "gridworld"}])
def test_other_objects_are_refused_as_federations(call: Callable[[Any], object], given: object) -> None:
    with pytest.raises(
        InputError, match=r"^pass a Federation, the name of an environment, an MDP or a list of MDPs, got"
    ):
        call(given)


@pytest.mark.parametrize("given", [3, None, gridworld(), MDP], ids=["number", "None", "federation", "class"])
def test_other_objects_are_refused_as_algorithms(given: Any) -> None:
    with pytest.raises(InputError, match=r"pass an algorithm, such as FedUCBVI\(\), its class or its name"):
        run(given, SMALL, 5)


def test_an_unfinished_algorithm_is_refused() -> None:
    with pytest.raises(InputError, match="Unfinished is no algorithm"):
        as_algorithm(Unfinished)


def test_a_function_that_makes_a_federation_is_refused_with_the_advice_to_call_it() -> None:
    with pytest.raises(InputError, match=r"got function; call it: gridworld\(\)\."):
        as_federation(gridworld)  # type: ignore[arg-type]


def test_the_error_for_an_unknown_environment_names_a_similar_one() -> None:
    with pytest.raises(InputError, match="unknown environment 'gridwrld'; did you mean 'gridworld'"):
        price_of_sharing("gridwrld")


def test_a_table_to_score_with_is_refused_for_a_simulation() -> None:
    with pytest.raises(InputError, match="score_with is for live environments"):
        run(FedUCBVI(), SMALL, 5, score_with=SMALL)


def test_a_driver_is_refused_for_live_environments() -> None:
    with pytest.raises(InputError, match="live environments are played in this process, by a driver of their own"):
        run(FedUCBVI(), World().live(), 5, driver="episodes")


def test_sizes_beside_a_federation_are_refused_in_a_forecast() -> None:
    with pytest.raises(InputError, match="brings its sizes along"):
        plan(SMALL, states=3, episodes=5)


def test_a_forecast_without_sizes_is_refused() -> None:
    with pytest.raises(InputError, match="needs states, actions and horizon"):
        plan(episodes=5)
