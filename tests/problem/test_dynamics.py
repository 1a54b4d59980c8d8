"""Known dynamics: checks, derived tables, exogeneity against enumeration, and files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import battery_sites
import numpy as np
import pytest
import shops

from fed_ucbvi import ActionDependence, Dynamics, Federation, FedKLUCBVI, run
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray, PolicyArray
from fed_ucbvi.engine.parts import part_of
from fed_ucbvi.problem.units import Units
from known_problems import exogenous_dynamics, random_dynamics, random_laws
from runs import without_cautions

pytestmark = without_cautions

COIN: dict[str, Any] = {
    "laws": 2,
    "outcomes": 2,
    "law_of": lambda h, s, a: a,
    "next_state": lambda h, s, a, w: (s + w) % 3,
    "horizon": 4,
    "states": 3,
    "actions": 2,
}
"""Arguments of dynamics with three states and one law for each action."""


# Tables ---------------------------------------------------------------------------------------------------------


def test_a_function_gives_the_same_dynamics_as_a_full_table() -> None:
    _, s, a, w = np.indices((4, 3, 2, 2))
    table = Dynamics(**{**COIN, "law_of": a[..., 0], "next_state": (s + w) % 3})
    assert table.digest == Dynamics(**COIN).digest


def test_axes_that_do_not_matter_may_be_left_out() -> None:
    by_state = {**COIN, "laws": 3, "law_of": [0, 1, 2], "next_state": np.zeros((3, 2, 2))}
    in_full = {
        **COIN,
        "laws": 3,
        "law_of": np.broadcast_to(np.arange(3)[None, :, None], (4, 3, 2)),
        "next_state": np.zeros((4, 1, 1, 1)),
    }
    assert Dynamics(**by_state).digest == Dynamics(**in_full).digest


def test_axes_that_do_not_matter_are_stored_once() -> None:
    dynamics = Dynamics(**COIN)
    assert dynamics.law_of.shape == (1, 1, 2)
    assert dynamics.next_state.shape == (1, 3, 1, 2)


def test_a_function_is_called_once() -> None:
    calls = []

    def next_state(*places: Any) -> Any:
        calls.append(places)
        return (places[1] + places[3]) % 3

    Dynamics(**{**COIN, "next_state": next_state})
    assert len(calls) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"horizon": 5},
        {"law_of": lambda h, s, a: 1 - a},
        {"next_state": lambda h, s, a, w: (s + 2 * w) % 3},
        {"reward": lambda h, s, a, w: w},
        {"reward": lambda h, s, a, w: 2 * w},
    ],
)
def test_different_dynamics_have_different_digests(changed: dict[str, Any]) -> None:
    assert Dynamics(**{**COIN, **changed}).digest != Dynamics(**COIN).digest


def test_rewards_in_own_units_are_rescaled_by_their_range() -> None:
    dynamics = Dynamics(**COIN, reward=lambda h, s, a, w: -5.0 + 10.0 * w)
    assert dynamics.rewards_at(0)[0, 0].tolist() == [0.0, 1.0]
    assert dynamics.units == Units(offset=-5.0, scale=10.0)


def test_rewards_between_0_and_1_are_not_rescaled() -> None:
    dynamics = Dynamics(**COIN, reward=lambda h, s, a, w: 0.25 + 0.5 * w)
    assert dynamics.rewards_at(0)[0, 0].tolist() == [0.25, 0.75]


def test_the_reward_that_is_planned_with_is_the_mean_over_agents() -> None:
    own = np.array([0.0, 0.5, 1.0]).reshape(3, 1, 1, 1, 1)
    dynamics = Dynamics(**COIN, reward=lambda h, s, a, w: own * w)
    assert dynamics.rewards_at(2)[1, 1].tolist() == [0.0, 0.5]


def test_the_reward_of_an_agent_is_its_own() -> None:
    own = np.array([0.0, 0.5, 1.0]).reshape(3, 1, 1, 1, 1)
    dynamics = Dynamics(**COIN, reward=lambda h, s, a, w: own * w)
    assert dynamics.rewards_at(2, agent=2)[1, 1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"laws": 0}, "laws must be at least 1"),
        ({"laws": 3}, "law 2 is unreachable: law_of has it at no"),
        ({"laws": 1}, r"law_of must be numbers from 0 to 0; at \(step, state, action\) = \(0, 0, 1\) it is 1"),
        ({"law_of": lambda h, s, a: a + 0.5}, "law_of must hold whole numbers only"),
        (
            {"law_of": np.zeros((2, 2))},
            r"law_of must have shape \(step, state, action\).*got \(1, 2, 2\)",
        ),
        ({"law_of": np.zeros((1, 1, 1, 1))}, r"law_of must have 0 or 1 or 2 or 3 axes"),
        (
            {"next_state": lambda h, s, a, w: s + w},
            r"next_state must be numbers from 0 to 2; at \(step, state, action, outcome\) = \(0, 2, 0, 1\) it is 3",
        ),
        ({"next_state": np.full((3, 2, 2), -1)}, "it is -1"),
        ({"next_state": np.zeros((3, 2))}, "next_state must have 3 or 4 axes"),
        ({"reward": np.full((3, 2), np.nan)}, "reward holds a value that is not a finite number"),
        ({"reward": np.ones(3)}, "reward must have 2 or 3 or 4 or 5 axes"),
        (
            {"reward": [[0, 1], [2, 9], [0, 0]], "reward_range": (0, 5)},
            r"reward_range \(0, 5\) must hold all rewards",
        ),
    ],
)
def test_invalid_dynamics_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Dynamics(**{**COIN, **changes})


def test_rewards_that_are_to_be_learnt_cannot_be_read() -> None:
    with pytest.raises(InputError, match="leave rewards to be learnt"):
        Dynamics(**COIN).rewards_at(0)


# Two values of one idea -----------------------------------------------------------------------------------------


def test_by_step_has_one_law_for_each_step_state_and_action() -> None:
    dynamics = Dynamics.by_step(horizon=3, states=4, actions=2)
    assert len(np.unique(dynamics.law_of)) == dynamics.law_of.size == dynamics.laws == 24


def test_stationary_has_one_law_for_each_state_and_action() -> None:
    dynamics = Dynamics.stationary(horizon=3, states=4, actions=2)
    assert np.array_equal(dynamics.laws_at(0), dynamics.laws_at(2))
    assert len(np.unique(dynamics.laws_at(0))) == dynamics.laws == 8


@pytest.mark.parametrize("make", [Dynamics.by_step, Dynamics.stationary])
def test_the_outcome_is_the_next_state_where_nothing_else_is_known(make: Any) -> None:
    assert make(horizon=3, states=4, actions=2).next_states_at(1)[3, 1].tolist() == [0, 1, 2, 3]


# Exogenous or not -----------------------------------------------------------------------------------------------


def depends_on_actions(dynamics: Dynamics, first: list[int]) -> bool:
    """By enumeration: for some outcomes of an episode, actions decide by which laws they are drawn."""
    H = dynamics.horizon
    for start in first:
        for outcomes in itertools.product(range(dynamics.outcomes), repeat=H):
            laws = set()
            for actions in itertools.product(range(dynamics.actions), repeat=H):
                s = start
                drawn = []
                for h in range(H):
                    drawn.append(int(dynamics.laws_at(h)[s, actions[h]]))
                    s = int(dynamics.next_states_at(h)[s, actions[h], outcomes[h]])
                laws.add(tuple(drawn))
            if len(laws) > 1:
                return True
    return False


def a_little_different(rng: np.random.Generator, dynamics: Dynamics) -> Dynamics:
    """The same dynamics with another law or next state in one place."""
    law_of = np.array([dynamics.laws_at(h) for h in range(dynamics.horizon)])
    next_state = np.array([dynamics.next_states_at(h) for h in range(dynamics.horizon)])
    table = law_of if rng.random() < 0.5 else next_state
    table[tuple(rng.integers(table.shape))] = rng.integers(dynamics.laws if table is law_of else dynamics.states)
    used, numbers = np.unique(law_of, return_inverse=True)
    return Dynamics(
        laws=len(used),
        outcomes=dynamics.outcomes,
        law_of=numbers.reshape(law_of.shape),
        next_state=next_state,
        horizon=dynamics.horizon,
        states=dynamics.states,
        actions=dynamics.actions,
    )


def test_exogenous_dynamics_are_recognised_as_by_enumeration() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(120):
        dynamics = exogenous_dynamics(rng)
        for _ in range(rng.integers(3)):
            dynamics = a_little_different(rng, dynamics)
        first = [0] if rng.random() < 0.5 else [0, 1, 2, 3]
        depends = depends_on_actions(dynamics, first)
        assert (dynamics.action_dependence(first) is not None) == depends
        found.append(depends)
    assert 20 < sum(found) < 100, "there must be both kinds for this to say anything"


def test_the_place_where_outcomes_depend_on_actions_is_the_first_one() -> None:
    """A queue in which a high price at any step keeps customers away at that step."""
    queue = Dynamics(
        laws=2,
        outcomes=3,
        law_of=lambda h, s, price: price,
        next_state=lambda h, s, price, arrivals: np.minimum(s + arrivals, 4),
        horizon=5,
        states=5,
        actions=2,
    )
    assert queue.action_dependence() == ActionDependence(step=0, state=0, action=0, other_action=1)


def test_wear_that_depends_on_use_is_not_exogenous() -> None:
    """What is done today decides by which law the machine fails tomorrow."""
    machine = Dynamics(
        laws=3,
        outcomes=2,
        law_of=lambda h, wear, use: wear,
        next_state=lambda h, wear, use, fails: np.where(fails, 0, np.minimum(wear + use, 2)),
        horizon=2,
        states=3,
        actions=2,
    )
    assert machine.action_dependence() == ActionDependence(step=0, state=0, action=0, other_action=1)
    assert machine.action_dependence([2]) is None, "a worn-out machine stays worn out, and nothing follows a repair"


def test_states_that_cannot_be_reached_do_not_matter() -> None:
    """Only state 2 has laws that depend on the action, and no episode gets there."""
    dynamics = Dynamics(
        laws=2,
        outcomes=2,
        law_of=lambda h, s, a: (s == 2) & (a == 1),
        next_state=lambda h, s, a, w: np.where(s == 2, 2, w),
        horizon=3,
        states=3,
        actions=2,
    )
    assert dynamics.action_dependence([0, 1]) is None
    assert dynamics.action_dependence() == ActionDependence(step=0, state=2, action=0, other_action=1)


@pytest.mark.parametrize("dynamics", [battery_sites.dynamics(), shops.known_day()], ids=["batteries", "shops"])
def test_prices_and_demand_are_exogenous(dynamics: Dynamics) -> None:
    assert dynamics.action_dependence() is None


@pytest.mark.parametrize("first", [[], [3], [-1]])
def test_first_states_that_do_not_exist_are_refused(first: list[int]) -> None:
    with pytest.raises(InputError, match=r"first_states must be states 0\.\.2"):
        Dynamics(**COIN).action_dependence(first)


# Federations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_kernels_are_sums_over_outcomes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dynamics = random_dynamics(rng, outcomes=4)
    laws = random_laws(rng, 2, dynamics, zeros=0.2)
    federation = Federation.from_laws(dynamics, laws, initial=0, reference="mean")
    for i, h, s, a in np.ndindex(2, 3, 3, 2):
        row = np.zeros(3)
        for w, chance in enumerate(laws[i, dynamics.laws_at(h)[s, a]]):
            row[dynamics.next_states_at(h)[s, a, w]] += chance
        kernel = federation.agent(i).kernel.dense()
        np.testing.assert_allclose(kernel[h if len(kernel) > 1 else 0, s, a], row, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_rewards_have_the_mean_and_variance_over_outcomes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dynamics = random_dynamics(rng, outcomes=4)
    laws = random_laws(rng, 2, dynamics, zeros=0.2)
    federation = Federation.from_laws(dynamics, laws, initial=0, reference="mean")
    for i, h, s, a in np.ndindex(2, 3, 3, 2):
        chances = laws[i, dynamics.laws_at(h)[s, a]]
        amounts = dynamics.rewards_at(h)[s, a]
        mean = float(chances @ amounts)
        assert federation.agent(i).rewards[h, s, a] == pytest.approx(mean, abs=1e-14)
        variances = federation.agent(i).reward_variances
        assert variances is not None
        assert variances[h, s, a] == pytest.approx(float(chances @ (amounts - mean) ** 2), abs=1e-14)


def test_a_reward_that_does_not_depend_on_the_outcome_is_not_random() -> None:
    dynamics = Dynamics(**COIN, reward=lambda h, s, a, w: 0.1 * (s + a))
    federation = Federation.from_laws(dynamics, np.full((1, 2, 2), 0.5), initial=0)
    assert federation.reward_variances is None


def test_eps_p_is_that_of_the_laws() -> None:
    laws = [[[0.8, 0.2], [0.5, 0.5]], [[0.7, 0.3], [0.2, 0.8]]]
    federation = Federation.from_laws(Dynamics(**COIN, reward=np.zeros((3, 2))), laws, initial=0)
    assert federation.eps_p == pytest.approx(0.3, abs=1e-15)


def test_the_common_mdp_has_the_common_laws() -> None:
    """Values grow with the reward of outcomes, of which agents share 0.5 and 0.2: the common law is (5, 2)/7."""
    laws = [[[0.8, 0.2], [0.8, 0.2]], [[0.5, 0.5], [0.5, 0.5]]]
    federation = Federation.from_laws(Dynamics(**COIN, reward=lambda h, s, a, w: w), laws, initial=0)
    np.testing.assert_allclose(federation.common.rewards, 2 / 7, rtol=1e-14)


def test_agents_whose_rewards_differ_are_paid_their_own() -> None:
    own = np.array([0.2, 1.0]).reshape(2, 1, 1, 1, 1)
    dynamics = Dynamics(**COIN, reward=lambda h, s, a, w: own * (s == 1))
    federation = Federation.from_laws(dynamics, np.full((2, 2, 2), 0.5), initial=0)
    assert federation.rewards[:, 0, 1, 0].tolist() == [0.2, 1.0]
    assert federation.common.rewards[0, 1, 0] == pytest.approx(0.6)


def test_rewards_that_are_to_be_learnt_are_given_as_means() -> None:
    federation = Federation.from_laws(Dynamics(**COIN), np.full((2, 2, 2), 0.5), 0, rewards=np.full((3, 2), 0.25))
    assert (federation.rewards == 0.25).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"laws": np.full((2, 2), 0.5)}, r"laws must have shape \(M, laws, outcomes\) = \(M, 2, 2\)"),
        ({"laws": [[[0.5, 0.5], [0.5, 0.4]]]}, "law 1 of agent 0 adds up to 0.9, not to 1"),
        ({"laws": [[[0.5, 0.5], [1.5, -0.5]]]}, "law 1 of agent 0 must hold finite, non-negative numbers"),
        ({"laws": [[[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]]]}, "no outcome of law 0 is possible for every agent"),
        ({"rewards": np.zeros((3, 2))}, "rewards follow from these dynamics"),
        ({"dynamics": Dynamics(**COIN)}, "pass their means as rewards"),
        ({"reference": "median"}, "unknown reference laws 'median'"),
        (
            {"dynamics": Dynamics(**COIN, reward=np.arange(3.0).reshape(3, 1, 1, 1, 1))},
            "the dynamics have rewards of 3 agents, and laws are of 1",
        ),
    ],
)
def test_laws_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"dynamics": Dynamics(**COIN, reward=np.zeros((3, 2))), "laws": np.full((1, 2, 2), 0.5)}
    with pytest.raises(InputError, match=message):
        Federation.from_laws(**{**given, "initial": 0, **changes})


def test_rewards_by_outcome_cannot_be_made_bernoulli() -> None:
    federation = Federation.from_laws(Dynamics(**COIN, reward=np.zeros((3, 2))), np.full((1, 2, 2), 0.5), 0)
    with pytest.raises(InputError, match="rewards follow from the known dynamics"):
        federation.with_bernoulli_rewards()


def test_a_part_of_a_federation_has_the_laws_of_its_agents() -> None:
    whole = shops.known_shops()
    part = part_of(whole, first_agent=2, agents=2)
    assert part.laws is not None
    assert whole.laws is not None
    assert np.array_equal(part.laws, whole.laws[2:4])


def test_a_run_by_cell_takes_the_tables_of_known_dynamics() -> None:
    by_cell = shops.known_shops().without_dynamics()
    assert run(FedKLUCBVI(stationary=True), by_cell, episodes=20, progress=False).complete


# The figures of shared examples ---------------------------------------------------------------------------------


def worth(federation: Federation, policy: PolicyArray) -> float:
    """Value of a policy in own units, mean over the agents."""
    units = Units.of(federation.description)
    agents = [federation.agent(i) for i in range(federation.agents)]
    values = [float(one.initial @ one.evaluate(policy)[0]) for one in agents]
    return units.original_return(float(np.mean(values)), federation.horizon)


def own_optimum(federation: Federation) -> float:
    """Largest value of each agent in own units, mean over the agents."""
    units = Units.of(federation.description)
    agents = [federation.agent(i) for i in range(federation.agents)]
    values = [float(one.initial @ one.solve().V[0]) for one in agents]
    return units.original_return(float(np.mean(values)), federation.horizon)


@pytest.fixture(scope="module")
def sites() -> Federation:
    return battery_sites.batteries()


def test_the_rule_of_the_batteries_costs_4_019_euro_a_day(sites: Federation) -> None:
    assert worth(sites, battery_sites.rule()) == pytest.approx(-4.019, abs=5e-4)


def test_the_best_policy_for_the_mean_tables_of_the_batteries_costs_2_629_euro_a_day(sites: Federation) -> None:
    assert worth(sites, sites.common.solve().policy) == pytest.approx(-2.629, abs=5e-4)


def test_the_own_optima_of_the_batteries_cost_2_625_euro_a_day(sites: Federation) -> None:
    assert own_optimum(sites) == pytest.approx(-2.625, abs=5e-4)


def test_random_orders_of_the_known_shops_earn_43_03_euro_a_month() -> None:
    federation = shops.known_shops()
    uniform: FloatArray = np.full((shops.DAYS, shops.MOST + 1, shops.ORDERS + 1), 1 / (shops.ORDERS + 1))
    assert worth(federation, uniform) == pytest.approx(43.03, abs=0.01)


def test_the_rule_of_the_known_shops_earns_116_2_euro_a_month() -> None:
    rule = np.array([[shops.usual(h, s) for s in range(shops.MOST + 1)] for h in range(shops.DAYS)])
    assert worth(shops.known_shops(), rule) == pytest.approx(116.2, abs=0.05)


def test_the_own_optima_of_the_known_shops_are_122_3_euro_a_month() -> None:
    assert own_optimum(shops.known_shops()) == pytest.approx(122.3, abs=0.05)


def test_known_dynamics_of_the_shops_give_their_tables() -> None:
    derived = shops.known_shops()
    tables = shops.shops(random=True)
    for i in range(5):
        np.testing.assert_allclose(derived.agent(i).kernel.dense(), tables.agent(i).kernel.dense(), atol=1e-14)
        np.testing.assert_allclose(derived.agent(i).rewards, tables.agent(i).rewards, atol=1e-14)


# Files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known_rewards", [True, False])
def test_saved_dynamics_are_the_same_when_loaded(tmp_path: Path, known_rewards: bool) -> None:
    dynamics = random_dynamics(np.random.default_rng(3), known_rewards=known_rewards)
    dynamics.save(tmp_path / "dynamics.npz")
    assert Dynamics.load(tmp_path / "dynamics.npz").digest == dynamics.digest


def test_saved_dynamics_keep_their_units(tmp_path: Path) -> None:
    battery_sites.dynamics().save(tmp_path / "dynamics.npz")
    loaded = Dynamics.load(tmp_path / "dynamics.npz")
    assert loaded.units == battery_sites.dynamics().units
    assert loaded.digest == battery_sites.dynamics().digest


def test_a_saved_federation_keeps_its_dynamics(tmp_path: Path, sites: Federation) -> None:
    sites.save(tmp_path / "sites.npz")
    loaded = Federation.load(tmp_path / "sites.npz")
    assert loaded.fingerprint == sites.fingerprint
    assert loaded.dynamics is not None
    assert loaded.dynamics.digest == battery_sites.dynamics().digest


def damaged(path: Path, changes: dict[str, Any]) -> None:
    """Write a file again with other tables, or without those that become None."""
    with np.load(path) as file:
        tables = {**dict(file), **changes}
    np.savez_compressed(path, **{name: table for name, table in tables.items() if table is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"law_of": None}, "'law_of' is missing"),
        ({"next_state": np.full((1, 1, 1, 1), 7, dtype=np.int32)}, "next_state must be numbers from 0 to 2"),
        ({"next_state": np.zeros((1, 1, 1, 1))}, "next_state of saved dynamics must be int32"),
        ({"about": np.array(json.dumps({"format": "fed-ucbvi/dynamics", "format_version": 9}))}, "format version 9"),
        ({"about": np.array(json.dumps({"format": "fed-ucbvi/counts"}))}, "is not dynamics that fed-ucbvi saved"),
    ],
)
def test_damaged_files_of_dynamics_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "dynamics.npz"
    Dynamics(**COIN).save(path)
    damaged(path, changes)
    with pytest.raises(InputError, match=message):
        Dynamics.load(path)


def test_a_saved_federation_whose_tables_do_not_follow_from_its_laws_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shops.npz"
    federation = shops.known_shops()
    federation.save(path)
    assert federation.laws is not None
    damaged(path, {"laws": federation.laws[::-1]})
    with pytest.raises(InputError, match="do not follow from the saved dynamics and laws"):
        Federation.load(path)
