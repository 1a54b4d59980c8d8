"""A run on record tells its rounds as it told them while it went on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedQAdvantage, FedQHoeffding, FedUCBVI, RoundRecord, gridworld, run, synthetic
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.replay import replay

WORLDS = {
    "short rounds": (FedUCBVI(nu=100), synthetic(agents=3), 200),
    "a grid": (FedUCBVI(), gridworld(agents=2), 60),
    "no planner": (FedQHoeffding(), synthetic(agents=2), 60),
    "other units": (FedUCBVI(), replace(synthetic(agents=2), description=Units(-2.0, 5.0).description()), 60),
}


@pytest.mark.parametrize(("algorithm", "world", "episodes"), WORLDS.values(), ids=WORLDS.keys())
def test_the_rounds_of_a_finished_run_are_those_it_told(
    algorithm: Algorithm[Any, Any], world: Federation, episodes: int
) -> None:
    told: list[RoundRecord] = []
    result = run(algorithm, world, episodes, on_round=told.append)
    about = result.about
    again = list(
        replay(
            result.records,
            result.recommendations,
            planned_episodes=about.episodes,
            rules=about.rules,
            units=Units.of(about.environment),
            horizon=about.horizon,
        )
    )
    assert all(math.isnan(record.seconds) for record in again)
    assert len(told) > 3
    for one, other in zip(told, again, strict=True):
        for name in set(RoundRecord._fields) - {"seconds"}:
            expected = getattr(one, name)
            same = expected if isinstance(expected, (int, str)) else pytest.approx(expected, rel=1e-12, nan_ok=True)
            assert getattr(other, name) == same, name
    own = result.original_units
    for name in ("optimistic_value", "estimated_value", "gap"):
        now = getattr(told[-1], "recommended_value" if name == "estimated_value" else name)
        assert now == pytest.approx(own[name], rel=1e-9, nan_ok=True)
    assert told[-1].regret == pytest.approx(own["regret"], rel=1e-9)
    weights = result.records["agent_episodes"]
    assert np.average([record.reward for record in told], weights=weights) == pytest.approx(own["average_reward"])


def test_rounds_of_agents_that_stop_apart_are_told_again_as_they_were() -> None:
    told: list[RoundRecord] = []
    apart = FedQAdvantage(forced_synchronisation=False)
    result = run(apart, synthetic(agents=3, eps_p=0.1), 200, on_round=told.append)
    again = replay(
        result.records,
        result.recommendations,
        planned_episodes=200,
        rules=result.about.rules,
        units=Units(),
        horizon=result.about.horizon,
    )
    counted = [(record.episodes, record.planned_episodes, record.agents) for record in again]
    assert counted == [(record.episodes, record.planned_episodes, record.agents) for record in told]
    assert counted[-1] == (200, 200, 3)
    assert (result.records["start"] + result.records["length"]).max() > 200, "some end before others"
    assert result.plot().panels
