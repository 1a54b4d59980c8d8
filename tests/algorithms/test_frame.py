"""What holds for every algorithm whose agents send one report a round; and which parameters are refused."""

from __future__ import annotations

import math
import typing
from collections import namedtuple
from types import GenericAlias
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import (
    ConcurrentUCBAdvantage,
    ConcurrentUCBVI,
    FedKLUCBVI,
    FedQAdvantage,
    FedQBernstein,
    FedQHoeffding,
    FedUCBVI,
    InputError,
    synthetic,
)
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm, parameters_of
from fed_ucbvi.algorithms.base import FleetTables, Setting
from fed_ucbvi.algorithms.fields import Shape, new_tables
from fed_ucbvi.algorithms.kernels import variance_of
from fed_ucbvi.core.parameters import Parameter, parameter_help
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers.base import collect
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.liars import ATTACKS
from model_free import played_rounds, played_steps, setting_of
from problems import budgets_of, random_federation
from runs import finished

FRAMED: list[Any] = [
    FedQHoeffding(),
    FedQHoeffding(bonus="published", c=0.3),
    FedQBernstein(c=0.5, c_bernstein=0.5, bernstein_after=0),
    FedQBernstein(bonus="published", c_bernstein=0.4),
    FedQAdvantage(reference_after=30),
    FedQBernstein(c=0.5, c_bernstein=0.5, bernstein_after=0, ties="random"),
    ConcurrentUCBAdvantage(reference_after=20),
    ConcurrentUCBVI(bonus="bernstein-freedman", scale=0.01),
]
every = pytest.mark.parametrize("algorithm", FRAMED, ids=lambda algorithm: algorithm.name)


@every
def test_agents_restored_after_a_round_report_what_they_would_have_reported(algorithm: Any) -> None:
    simulation = Simulation(algorithm, synthetic(agents=3, seed=1), 50, 0, "episodes")
    for _ in range(5):
        simulation.advance()
    agents = simulation.agents
    broadcast = algorithm.broadcast(simulation.server)
    policy = broadcast[0].copy()
    budgets = algorithm.budgets(agents, tuple(np.array(array) for array in broadcast))
    driver = simulation.driver
    collect(driver, policy, budgets, simulation.played, 1)
    algorithm.absorb(agents, policy, driver.transitions, driver.visits)
    expected = [array.copy() for array in algorithm.report(agents, (), 0)]
    assert any(array.any() for array in expected)

    saved = {name: array.copy() for name, array in agents.arrays().items()}
    restored = Simulation(algorithm, synthetic(agents=3, seed=1), 50, 0, "episodes").agents
    for name, array in restored.arrays().items():
        array[...] = saved[name]
    for one, other in zip(algorithm.report(restored, (), 0), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_liars_make_no_number_infinite(attack: str) -> None:
    federation = synthetic(agents=4, states=3, actions=2, horizon=3).with_liars(0.5, attack)
    for algorithm in FRAMED:
        server = finished(Simulation(algorithm, federation, 100, 0, "episodes")).server
        assert all(np.isfinite(array).all() for array in server.arrays().values()), algorithm.name


ONE = (5, 5)
TWO = (6, 5)
FORMS: dict[type[Any], tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    FedQHoeffding: ([ONE, ONE, TWO], [(3, 5, 5)] * 3),
    FedQBernstein: ([ONE, ONE, TWO], [(3, 5, 5)] * 4),
    FedQAdvantage: ([ONE, TWO, TWO, ONE, ONE], [(3, 5, 5)] * 7),
    ConcurrentUCBVI: ([ONE], [(3, 6), (3, 5)]),
    ConcurrentUCBAdvantage: ([ONE], [(3, 6), (3, 5)]),
}


@pytest.mark.parametrize("kind", FORMS)
def test_an_algorithm_with_one_report_has_one_exchange_without_a_query(kind: type[Any]) -> None:
    algorithm = kind()
    setting = setting_of(synthetic(agents=3))
    server = algorithm.new_server(setting)
    assert algorithm.message_sizes(setting).exchanges == 1
    assert algorithm.query(server, 0) == ()


@pytest.mark.parametrize("kind", FORMS)
def test_messages_have_the_shapes_of_the_paper(kind: type[Any]) -> None:
    federation = synthetic(agents=3)
    algorithm = kind()
    setting = setting_of(federation)
    agents = algorithm.new_agents(setting, FleetTables(3, federation.successors, federation.rewards))
    server = algorithm.new_server(setting)
    broadcast = algorithm.broadcast(server)
    report = algorithm.report(agents, (), 0)
    shapes = ([array.shape for array in broadcast], [array.shape for array in report])
    assert shapes == FORMS[kind]


@pytest.mark.parametrize("kind", FORMS)
def test_the_declared_place_of_values_in_a_broadcast_is_theirs(kind: type[Any]) -> None:
    algorithm = kind()
    server = algorithm.new_server(setting_of(synthetic(agents=3)))
    broadcast = algorithm.broadcast(server)
    place = algorithm.sent_values.broadcast
    if kind in (ConcurrentUCBVI, ConcurrentUCBAdvantage):
        assert place is None
    else:
        assert place is not None
        assert broadcast[place] is server.V


def test_only_counts_are_whole_numbers() -> None:
    whole = {"N", "y", "y_previous", "samples", "updates", "settled", "policy"}
    whole |= {"transitions", "arrivals"}
    for algorithm in FRAMED:
        server = algorithm.new_server(setting_of(synthetic(agents=2)))
        for name, array in server.arrays().items():
            assert (array.dtype == np.float64) == (name not in whole), name


def test_declared_arrays_are_made_whether_their_type_is_an_alias_or_spelt_out() -> None:
    """Since NumPy 2.5, with Python 3.12 or newer, ``NDArray`` is an alias with the type of its numbers alone."""
    alias: Any = GenericAlias(np.ndarray, (np.int64,))
    annotated = vars(typing)["Annotated"]
    for array in (alias, CountArray):
        kind: Any = namedtuple("kind", "N")
        kind.__annotations__ = {"N": annotated[array, Shape("H S")]}
        (made,) = new_tables(kind, setting_of(synthetic(agents=2, horizon=3, states=4)))
        assert (made.shape, made.dtype) == ((3, 4), np.int64)


def test_variances_that_are_rounding_error_count_as_zero() -> None:
    assert variance_of(3.0, 9.0) == variance_of(3.0, np.nextafter(9.0, 10.0)) == 0.0
    assert variance_of(2.0, 1.0) == variance_of(0.0, -4.0) == 0.0
    assert variance_of(1.0, 1.5) == 0.5


# ----------------------------------------------------------------------------------------------- every episode


@pytest.mark.parametrize("algorithm", [ConcurrentUCBVI(), ConcurrentUCBAdvantage()], ids=lambda a: a.name)
def test_reports_are_the_trajectories_that_were_played_with_every_driver(algorithm: Any) -> None:
    for seed, driver in enumerate(("episodes", "counts", "auto")):
        federation = random_federation(np.random.default_rng(seed), 4, 3, 2, 3, own_rewards=True, own_starts=True)
        simulation = Simulation(algorithm, federation, 40, seed, driver)
        for policy in played_rounds(simulation):
            states, rewards = algorithm.report(simulation.agents, (), 0)
            for i, episode in enumerate(played_steps(simulation, policy)):
                episode.sort()
                assert states[i].tolist() == [step.s for step in episode] + [episode[-1].successor]
                assert rewards[i].tolist() == [step.reward for step in episode]
        assert simulation.rounds == 40
        records = simulation.records()
        assert set(records["length"].tolist()) == {1}
        assert set(records["bytes_up"].tolist()) == {4 * (6 * 8 + 4 * (3 + 1) + 8 * 3)}
        assert set(records["messages_up"].tolist()) == {2 * 4}


def test_a_round_of_several_episodes_is_refused() -> None:
    f = random_federation(np.random.default_rng(9), agents=2)
    algorithm = ConcurrentUCBVI()
    simulation = Simulation(algorithm, f, 10, 0, "episodes")
    agents = algorithm.new_agents(simulation.setting, FleetTables(f.agents, f.successors, f.rewards))
    policy = simulation.server.policy
    for length in (2, 3):
        collect(simulation.driver, policy, budgets_of(np.full((2, f.horizon, f.states), 10**9)), 0, length)
        with pytest.raises(InputError, match="longer round"):
            algorithm.absorb(agents, policy, simulation.driver.transitions, simulation.driver.visits)


# -------------------------------------------------------------------------------------------------- parameters


def test_a_table_beyond_the_limit_is_refused_with_its_size() -> None:
    size = r"a table of transition counts \(H, S, A, S\).*14.9 GiB.*limit is 1 GiB"
    with pytest.raises(InputError, match=size):
        ConcurrentUCBVI().new_server(Setting(10_000, 2, 10, 3, 100, 0.0, 0))


AT_LEAST_0 = "bonus_scale", "nu", "scale", "c", "c_bernstein", "iota", "log_term", "bernstein_after"
BOUNDS = {
    **dict.fromkeys((*AT_LEAST_0, "min_round_growth"), "[0, inf)"),
    **dict.fromkeys(("radius", "beta", "c4"), "(0, inf)"),
    "fresh_share": "[0, 1]",
    **{"reference_after": "[1, inf)", "alpha": "[0, 0.5)", "delta": "(0, 1)"},
}
"""Of numbers, by the names of parameters."""


def misfits(parameter: Parameter) -> list[tuple[object, str]]:
    """Values that a parameter cannot have, and what is said then."""
    name = parameter.name
    kind = parameter.type
    choices = parameter.choices
    if choices:
        return [(f"{choices[0][:-1]}~", f"did you mean '{choices[0]}'"), (3, f"{name} must be one of")]
    if kind == "bool":
        return [("yes", f"{name} must be true or false"), (1, "true or false")]
    interval = BOUNDS[name]
    assert f"in {interval}" in kind
    low, high = map(float, interval[1:-1].split(", "))
    above = high if interval[-1] == ")" else high + 1
    wrong = [low - 1 if interval[0] == "[" else low, above, math.nan, *([2.5] if "int" in kind else [])]
    return [(number, f"{name} must be") for number in wrong]


CHOSEN: list[Any] = [
    FedUCBVI(bonus="corrected", bonus_scale=0.5, nu=12.0, strict=True, ties="random"),
    FedKLUCBVI(radius=0.7, stationary=True, delta=0.1, min_round_growth=0.2),
]


@pytest.mark.parametrize("algorithm", [*(make_algorithm(name, {}) for name in ALGORITHMS), *CHOSEN], ids=repr)
def test_an_algorithm_is_remade_from_its_recorded_parameters(algorithm: Any) -> None:
    assert make_algorithm(algorithm.name, parameters_of(algorithm)) == algorithm


@pytest.mark.parametrize("name", ALGORITHMS)
def test_wrong_values_of_parameters_are_refused(name: str) -> None:
    algorithm = make_algorithm(name, {})
    for parameter in parameter_help(type(algorithm)):
        for wrong, message in misfits(parameter):
            with pytest.raises(InputError, match=message):
                make_algorithm(name, {parameter.name: wrong})


UNKNOWN_NAMES: list[tuple[str, dict[str, float], str]] = [
    ("fed-ucbv", {}, "did you mean 'fed-ucbvi'"),
    ("fed-ucbvi", {"bonus_scal": 1.0}, "did you mean 'bonus_scale'"),
    ("fedq-hoeffding", {"c_bernstein": 1.0}, "unknown parameter"),
]


@pytest.mark.parametrize(("name", "parameters", "message"), UNKNOWN_NAMES)
def test_an_unknown_name_is_refused_with_the_nearest_one(
    name: str, parameters: dict[str, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_algorithm(name, parameters)
