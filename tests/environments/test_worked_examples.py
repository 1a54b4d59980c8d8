"""The worked examples: five shops, four thermostats and Gymnasium's environments, against what is known of them."""

from __future__ import annotations

import logging
import runpy
import warnings
from collections.abc import Iterator

import compare_shops
import compare_thermostats
import houses
import live_shops
import numpy as np
import pytest
import shops
from gymnasium.utils.env_checker import check_env

from fed_ucbvi import Federation, InputError, best_common_policy
from fed_ucbvi.engine.simulation import Caution
from matrices import first_of
from repository import ROOT


@pytest.fixture(scope="module")
def fleet() -> Federation:
    return shops.shops()


def test_figures_of_the_shops_are_those_computed_by_hand(fleet: Federation) -> None:
    """The best rule of the specification earns 116.2 and the best shared policy 120.2 to 121.8 euro a month."""
    money, at_most, order = compare_shops.best_rule(fleet)
    assert (round(money, 1), at_most, order) == (116.2, 3, 5)
    found = best_common_policy(fleet).value
    assert [round(end, 1) for end in found] == [120.2, 121.8]
    assert round(best_common_policy(fleet).own, 1) == 122.3


@pytest.mark.filterwarnings("ignore:.*WARN")
def test_live_shops_earn_what_their_tables_say(fleet: Federation) -> None:
    """The rule for 400 months in each shop: within four standard errors of its exact value (false alarms: 3e-4)."""
    policy = compare_shops.rule(3, 5)
    for number in range(5):
        env = live_shops.make(number)
        check_env(env, skip_render_check=True)
        env.reset(seed=number)
        months = np.zeros(400)
        for month in range(len(months)):
            stock, _ = env.reset()
            for day in range(shops.DAYS):
                stock, money, terminated, truncated, _ = env.step(int(policy[day, stock]))
                months[month] += money
                assert not terminated
                assert truncated == (day == shops.DAYS - 1)
        exact = shops.euro(float(fleet.agent(number).initial @ fleet.agent(number).evaluate(policy)[0]))
        assert abs(months.mean() - exact) < 4 * months.std(ddof=1) / len(months) ** 0.5
    with pytest.raises(InputError, match="there are 5 shops"):
        live_shops.make(5)


@pytest.mark.slow
@pytest.mark.full
def test_shops_that_learn_live_for_a_hundred_months_are_near_the_best_shared_policy() -> None:
    """Counted over all steps, which are alike: 0.95 of it after a hundred months; mean of seeds 0 and 1."""
    best = best_common_policy(shops.shops()).value.lower
    curves = compare_shops.together(100, 2, stationary=True)
    assert np.mean([curve[100] for curve in curves]) > 0.95 * best
    figures = {
        "together": curves,
        "together, stationary": curves,
        "alone, stationary": curves,
    }
    more = {"best_shared": [best, best], "rule": {"euro": 116.2}}
    (ax,) = compare_shops.picture({**figures, **more}, 100)
    assert "best shared policy" in ax.get_legend_handles_labels()[1]


@pytest.fixture
def _without_news_of_clipping() -> Iterator[None]:
    log = logging.getLogger("fed_ucbvi.environments")
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(logging.NOTSET)


@pytest.mark.filterwarnings("ignore:.*WARN")
def test_houses_are_proper_gymnasium_environments() -> None:
    check_env(houses.make(2), skip_render_check=True)


def test_houses_keep_the_balance_of_heat() -> None:
    house = houses.make(2)
    house.reset(seed=0)
    inside = house.inside
    outside = house.outside
    house.step(np.array([1.0]))
    gain = (outside - inside) / 50.0 + 4.5 / 5.0
    assert abs(house.inside - inside - gain) < 0.5  # noise of 0.1


def test_a_house_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="there are 4 houses"):
        houses.make(4)


@pytest.mark.slow
@pytest.mark.usefixtures("_without_news_of_clipping")
def test_what_houses_learn_costs_less_than_the_best_thermostat() -> None:
    """H0: it costs as much or more; the difference on 40 days is beyond four standard errors (false alarms: 3e-5)."""
    figures = compare_thermostats.compare((400,), seeds=1, days=40, tuning=4)
    learnt = figures["learnt"][400]
    assert learnt["less_than_rule"][0] > 4 * learnt["standard_error"][0] > 0
    (ax,) = compare_thermostats.picture({**figures, "learnt": {100: learnt, 400: learnt}})
    assert "best thermostat with hysteresis" in ax.get_legend_handles_labels()[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "live"),
    first_of([("FrozenLake 4x4", False), ("CliffWalking", False), ("CliffWalking", True)], 2),
)
def test_a_fleet_learns_to_within_5_percent_of_the_optimum_in_its_own_units(name: str, live: bool) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "gymnasium_fleet.py"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        result = example["learn"](example["TASKS"][name], live, seed=0)
    best = result.about.optimal_value
    assert best - result.value < 0.05 * abs(best)
    assert best - result.average_reward > 0.05 * abs(best)
