"""Gymnasium's tables as federations, against Gymnasium's own P."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from fed_ucbvi import MDP, Federation, InputError, from_gymnasium, gridworld, make_environment
from fed_ucbvi.environments.gymnasium_tables import read_table
from fed_ucbvi.gymnasium_environments import TabularEnv
from fed_ucbvi.problem.units import Units
from gymnasium_problems import Rows, TableEnv, corridor
from problems import row_of

CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "FrozenLake 4x4": ("FrozenLake-v1", {}, 20),
    "FrozenLake 8x8": ("FrozenLake-v1", {"map_name": "8x8"}, 30),
    "FrozenLake, other rewards": (
        "FrozenLake-v1",
        {"reward_schedule": [5, -2, -0.25], "success_rate": 0.7},
        9,
    ),
    "Taxi": ("Taxi-v4", {}, 22),
    "CliffWalking": ("CliffWalking-v1", {}, 16),
    "slippery CliffWalking": ("CliffWalkingSlippery-v1", {}, 16),
}
every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture
def table_env() -> Iterator[str]:
    gymnasium.register("fed_ucbvi_test/Table-v0", entry_point="gymnasium_problems:TableEnv")
    yield "fed_ucbvi_test/Table-v0"
    del gymnasium.registry["fed_ucbvi_test/Table-v0"]


def table_of(id: str, kwargs: dict[str, Any]) -> tuple[Rows, Any]:
    env: Any = gymnasium.make(id, **kwargs).unwrapped
    return env.P, env.initial_state_distrib


def merged(P: Rows, s: int, a: int, states: int) -> dict[int, float]:
    """Next states of (s,a) by P, with one entry per next state and all terminations in one more state."""
    found: dict[int, float] = {}
    for p, y, _, terminated in P[s][a]:
        target = states if terminated else int(y)
        found[target] = found.get(target, 0.0) + p
    return {y: p for y, p in found.items() if p > 0}


def best_return(P: Rows, initial: Any, horizon: int) -> float:
    """The largest expected return in the table's own rewards; no absorbing state, no rescaling."""
    V = dict.fromkeys(P, 0.0)
    for _ in range(horizon):
        V = {
            s: max(sum(p * (r + (0.0 if over else V[int(y)])) for p, y, r, over in row) for row in rows.values())
            for s, rows in P.items()
        }
    return float(sum(initial[s] * V[s] for s in P))


@every_case
def test_a_federation_has_exactly_the_probabilities_of_gymnasiums_table(case: str) -> None:
    id, kwargs, horizon = CASES[case]
    P, initial = table_of(id, kwargs)
    S = len(P)
    A = len(P[0])
    federation = from_gymnasium(id, agents=2, horizon=horizon, kwargs=kwargs)
    assert federation.states == S + 1
    assert federation.actions == A
    assert federation.horizon == horizon
    for mdp in (federation.agent(0), federation.agent(1), federation.common):
        assert np.array_equal(mdp.initial, [*initial, 0.0])
        assert mdp.kernel.dense()[0, S, :, S].tolist() == [1.0] * A
        for s, a in np.ndindex(S, A):
            assert row_of(mdp.kernel, 0, s, a) == merged(P, s, a, S)


@every_case
def test_a_tabular_environment_has_exactly_the_probabilities_of_gymnasiums_table(case: str) -> None:
    id, kwargs, horizon = CASES[case]
    P, _ = table_of(id, kwargs)
    ours = TabularEnv("from_gymnasium", agent=1, id=id, agents=2, horizon=horizon, kwargs=kwargs)
    for s, a in np.ndindex(len(P), len(P[0])):
        probabilities = {next_state: p for p, next_state, _, _ in ours.P[s][a]}
        assert probabilities == merged(P, s, a, len(P))


def test_an_environment_is_equal_after_a_round_trip_through_gymnasium() -> None:
    world = gridworld(agents=3, eps_p=0.3, seed=5)
    options = {"agent": 2, "agents": 3, "eps_p": 0.3, "seed": 5}
    back = from_gymnasium("fed_ucbvi/gridworld-v0", agents=1, horizon=10, kwargs=options)
    S = world.states
    assert np.array_equal(back.agent(0).kernel.dense()[:, :S, :, :S], world.agent(2).kernel.dense())
    assert np.array_equal(back.rewards[0, :, :S], world.agent(2).rewards)


@every_case
def test_the_optimum_converts_to_the_largest_return_in_gymnasiums_own_units(
    case: str,
) -> None:
    id, kwargs, horizon = CASES[case]
    federation = from_gymnasium(id, agents=1, horizon=horizon, kwargs=kwargs)
    best = best_return(*table_of(id, kwargs), horizon)
    units = Units.of(federation.description)
    assert units.original_return(optimum(federation), horizon) == pytest.approx(best, abs=1e-9)


def test_returns_convert_exactly_whenever_an_episode_ends() -> None:
    assert from_gymnasium("Taxi-v4", agents=1).horizon == 200, "by default the environment's own"
    federation = from_gymnasium("Taxi-v4", agents=1, horizon=25)
    units = Units.of(federation.description)
    assert (units.offset, units.scale) == (-10.0, 30.0)
    rng = np.random.default_rng(0)
    for length in range(1, 26):
        paid = rng.choice([-10.0, -1.0, 20.0], size=length)
        after = federation.rewards[0, 0, 500, 0]
        ours = sum(units.rescaled(r) for r in paid) + (25 - length) * after
        assert units.original_return(ours, 25) == pytest.approx(paid.sum(), abs=1e-10)


def test_each_agent_has_its_own_keyword_arguments() -> None:
    lakes = from_gymnasium(agents=2, horizon=5, kwargs=[{"success_rate": 0.8}, {"success_rate": 0.5}])
    for i, success in enumerate((0.8, 0.5)):
        P, _ = table_of("FrozenLake-v1", {"success_rate": success})
        for s, a in ((0, 2), (9, 1), (14, 2)):
            assert row_of(lakes.agent(i).kernel, 0, s, a) == merged(P, s, a, 16)
    assert lakes.rewards.shape[0] == 2
    assert lakes.eps_p == pytest.approx(0.3)


def varied(agents: int, seed: int = 4) -> Federation:
    return from_gymnasium(agents=agents, horizon=5, vary={"success_rate": [0.6, 0.9]}, seed=seed)


def test_varied_arguments_lie_in_their_range() -> None:
    success_rates = varied(6).probabilities[:, 0, 14, 2].max(axis=-1)
    assert len(set(success_rates)) == 6
    assert (success_rates >= 0.6).all()
    assert (success_rates <= 0.9).all()


def test_varied_arguments_of_an_agent_do_not_depend_on_the_number_of_agents() -> None:
    few = varied(2)
    many = varied(6)
    for i in range(2):
        assert np.array_equal(few.agent(i).kernel.dense(), many.agent(i).kernel.dense())


def test_varied_arguments_depend_on_the_seed() -> None:
    assert not np.array_equal(varied(2, seed=4).probabilities, varied(2, seed=5).probabilities)


def test_varied_arguments_make_agents_heterogeneous() -> None:
    assert 0 < varied(2).eps_p < varied(6).eps_p < 0.3


def test_a_wider_reward_range_only_changes_units() -> None:
    plain = from_gymnasium(agents=1, horizon=20)
    wide = from_gymnasium(agents=1, horizon=20, reward_range=(-1, 3))
    values = [Units.of(f.description).original_return(float(optimum(f)), 20) for f in (plain, wide)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    assert optimum(plain) != pytest.approx(optimum(wide))


def optimum(federation: Federation) -> float:
    return float(federation.common.initial @ federation.common.solve().V[0])


def test_a_state_only_reached_by_terminating_needs_no_row() -> None:
    P = corridor()
    del P[2]
    without = read_table(TableEnv(P), "it")
    full = read_table(TableEnv(), "it")
    values = [MDP(t.kernel, (t.rewards + 1) / 4, t.initial, 6).solve().V[0, :2] for t in (without, full)]
    assert np.array_equal(values[0], values[1])


def spoilt(s: int, a: int, row: Any) -> Any:
    P: Any = corridor()
    P[s][a] = row
    return P


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            TableEnv(spoilt(0, 1, [(0.5, 1, 0.0, False)])),
            r"P\[0\]\[1\] sum to 0.5, not to 1",
        ),
        (
            TableEnv(spoilt(0, 1, [(-0.5, 1, 0.0, False), (1.5, 0, 0.0, False)])),
            "must not be negative",
        ),
        (TableEnv(spoilt(0, 1, [(1.0, 7, 0.0, False)])), r"next states 0\.\.2"),
        (
            TableEnv(spoilt(0, 1, [(1.0, 1, float("nan"), False)])),
            "rewards must be finite",
        ),
        (
            TableEnv(spoilt(0, 1, [(1.0, 1, 0.0)])),
            r"not \(probability, next state, reward, terminated\)",
        ),
        (
            TableEnv(spoilt(1, 0, [])),
            r"P\[1\]\[0\] is missing or empty, but episodes can go on",
        ),
        (TableEnv({0: corridor()[0]}), "missing or empty"),
        (TableEnv(initial=(0.0, 0.5, 0.0)), "sums to 0.5, not to 1"),
        (TableEnv(initial=None), "no initial_state_distrib"),
        (TableEnv(P=False), "no table P.*LiveFederation"),
        (
            TableEnv(observations=spaces.Box(0, 1)),
            "observations of it are Box.*only Discrete",
        ),
        (
            TableEnv(observations=spaces.Dict({"a": spaces.Discrete(3)})),
            "observations of it are Dict",
        ),
        (TableEnv(actions=spaces.Box(0, 1)), "actions of it are Box"),
        (
            TableEnv(observations=spaces.Discrete(3, start=1)),
            "numbered from 1, but must be from 0",
        ),
        (TableEnv(actions=spaces.Discrete(2, start=-1)), "numbered from -1"),
        (gymnasium.make_vec("FrozenLake-v1", num_envs=2), "vector environment"),
        ("a string", "not a Gymnasium environment but str"),
    ],
)
def test_an_unusable_environment_is_refused_in_plain_words(env: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(env, "it")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "FrozenLak-v1"}, "Gymnasium cannot make 'FrozenLak-v1'.*Did you mean"),
        ({"id": 3}, "named by its id"),
        ({"id": "CliffWalking-v1"}, "horizon is missing.*pass horizon=H"),
        ({"id": "Blackjack-v1", "horizon": 5}, "only Discrete spaces"),
        ({"id": "CartPole-v1"}, "only Discrete spaces"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"eps_p": 0.1}, "eps_p must be 0.*vary"),
        (
            {"kwargs": {"sucess_rate": 0.5}},
            "cannot make 'FrozenLake-v1' with.*sucess_rate",
        ),
        ({"kwargs": [{}, {}]}, "kwargs are given for 2 agents, but there are 3"),
        ({"kwargs": "8x8"}, "kwargs"),
        ({"kwargs": {"desc": np.array(["SG"])}}, "what JSON can write"),
        (
            {"vary": {"success_rate": 0.5}},
            r"success_rate must be a range \(low, high\)",
        ),
        (
            {"vary": {"success_rate": [0.9, 0.6]}},
            "success_rate: high must be a number in",
        ),
        ({"vary": [0.6, 0.9]}, "vary must be ranges by name"),
        ({"reward_range": (0.5, 1)}, "does not cover the rewards"),
        ({"reward_range": 1}, "reward_range must be a range"),
        (
            {"kwargs": [{"map_name": "4x4"}, {"map_name": "8x8"}, {}]},
            "same states and actions",
        ),
    ],
)
def test_bad_options_are_refused_in_plain_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_environment("from_gymnasium", **{"agents": 3, **options})


def test_a_registered_environment_of_ones_own_is_as_good_as_any(table_env: str) -> None:
    federation = from_gymnasium(table_env, agents=2, horizon=6)
    units = Units.of(federation.description)
    best = best_return(corridor(), [1, 0, 0], 6)
    assert units.original_return(optimum(federation), 6) == pytest.approx(best, abs=1e-12)
