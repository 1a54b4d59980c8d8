"""What people pass to public functions: values, classes, names, MDPs and lists of them; all else is refused."""

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


def test_an_algorithm_is_a_value_a_class_or_a_name() -> None:
    expected = run(FedUCBVI(), SMALL, 50, progress=False)
    for given in (FedUCBVI, "fed-ucbvi", "fed_ucbvi:FedUCBVI"):
        assert run(given, SMALL, 50, progress=False).same_outcome(expected)
    live = run(FedUCBVI(), World().live(), 20, progress=False)
    assert np.array_equal(run("fed-ucbvi", World().live(), 20, progress=False).V, live.V)


def test_a_federation_is_one_or_a_name_or_mdps() -> None:
    expected = run(FedUCBVI(), SMALL, 50, progress=False)
    assert np.array_equal(run(FedUCBVI(), MDPS, 50, progress=False).V, expected.V)
    assert run(FedUCBVI(), "gridworld", 5, progress=False).same_outcome(
        run(FedUCBVI(), gridworld(), 5, progress=False)
    )
    assert run(FedUCBVI(), MDPS[0], 50, progress=False).about.agents == 1
    assert price_of_sharing(MDPS) == price_of_sharing(SMALL)
    assert best_common_policy("gridworld").value == best_common_policy(gridworld()).value
    assert inspect_federation(MDPS).federation.agents == 3
    assert plan("gridworld", episodes=100) == plan(gridworld(), episodes=100)
    assert plan(SMALL, episodes=9) == plan(states=3, actions=2, horizon=3, agents=3, episodes=9)
    assert choose_parameters("gridworld").episodes == choose_parameters(gridworld()).episodes


def test_a_sweep_takes_algorithms_as_values_and_classes() -> None:
    def sweep(*algorithms: object) -> Sweep:
        cells = {"environments": ["gridworld"], "agents": [2], "episodes": [5], "seeds": 1}
        return Sweep(name="doors", grid=[{"algorithms": list(algorithms), **cells}])

    named = sweep({"name": "fed-ucbvi", "nu": 100}, "fedq-hoeffding")
    assert sweep(FedUCBVI(nu=100), fed_ucbvi.FedQHoeffding).content() == named.content()


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
def test_what_is_no_problem_is_refused_in_one_sentence(call: Callable[[Any], object], given: object) -> None:
    with pytest.raises(
        InputError, match=r"^pass a Federation, the name of an environment, an MDP or a list of MDPs, got"
    ):
        call(given)


def test_what_else_is_wrong_is_said() -> None:
    for given in (3, None, gridworld(), MDP):
        with pytest.raises(InputError, match=r"pass an algorithm, such as FedUCBVI\(\), its class or its name"):
            run(given, SMALL, 5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Unfinished is no algorithm"):
        as_algorithm(Unfinished)
    with pytest.raises(InputError, match=r"got function; call it: gridworld\(\)\."):
        as_federation(gridworld)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown environment 'gridwrld'; did you mean 'gridworld'"):
        price_of_sharing("gridwrld")
    with pytest.raises(InputError, match="score_with is for live environments"):
        run(FedUCBVI(), SMALL, 5, score_with=SMALL)
    with pytest.raises(InputError, match="live environments are played in this process, by a driver of their own"):
        run(FedUCBVI(), World().live(), 5, driver="episodes")
    with pytest.raises(InputError, match="brings its sizes along"):
        plan(SMALL, states=3, episodes=5)
    with pytest.raises(InputError, match="needs states, actions and horizon"):
        plan(episodes=5)
