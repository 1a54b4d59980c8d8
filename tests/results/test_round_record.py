"""A saved run gives its rounds as it gave them while it went on; episodes per agent, against sums of fractions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedQAdvantage, FedQHoeffding, FedUCBVI, RoundRecord, Run, gridworld, run, synthetic
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.round_record import episodes_per_agent, replay

WORLDS = {
    "short rounds": (FedUCBVI(nu=100), synthetic(agents=3), 200),
    "a grid": (FedUCBVI(), gridworld(agents=2), 60),
    "no planner": (FedQHoeffding(), synthetic(agents=2), 60),
    "other units": (FedUCBVI(), replace(synthetic(agents=2), description=Units(-2.0, 5.0).description()), 60),
}


def told_again(result: Run) -> list[RoundRecord]:
    about = result.about
    known = {"rules": about.rules, "units": Units.of(about.environment), "horizon": about.horizon}
    return list(replay(result.records, result.recommendations, planned_episodes=about.episodes, **known))  # type: ignore[arg-type]


@pytest.mark.parametrize(("algorithm", "world", "episodes"), WORLDS.values(), ids=WORLDS.keys())
def test_the_rounds_of_a_finished_run_are_those_it_told(
    algorithm: Algorithm[Any, Any], world: Federation, episodes: int
) -> None:
    told: list[RoundRecord] = []
    result = run(algorithm, world, episodes, on_round=told.append)
    again = told_again(result)
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
    counted, before = (
        [(record.episodes, record.planned_episodes, record.agents) for record in records]
        for records in (told_again(result), told)
    )
    assert counted == before
    assert counted[-1] == (200, 200, 3)
    assert (result.records["start"] + result.records["length"]).max() > 200, "some end before others"
    assert result.plot().panels


def drawn(seed: int, agents: list[int]) -> dict[str, CountArray]:
    rng = np.random.default_rng(seed)
    return {"agents": np.array(agents), "agent_episodes": np.array([rng.integers(0, 10 * m + 1) for m in agents])}


@pytest.mark.parametrize("seed", range(5))
def test_every_round_adds_the_mean_over_its_agents(seed: int) -> None:
    agents = np.repeat(np.random.default_rng(seed).integers(1, 9, size=12), 5).tolist()
    records = drawn(seed, agents)
    parts = [Fraction(int(n), int(m)) for n, m in zip(records["agent_episodes"], records["agents"], strict=True)]
    exact = [float(total) for total in itertools.accumulate(parts)]
    assert episodes_per_agent(records) == pytest.approx(exact, rel=1e-14)


def test_with_one_number_of_agents_nothing_is_rounded_twice() -> None:
    records = drawn(1, [7] * 300)
    exact = np.cumsum(records["agent_episodes"]) / 7
    assert episodes_per_agent(records).tobytes() == exact.tobytes()
    assert len(episodes_per_agent({name: column[:0] for name, column in records.items()})) == 0


def test_a_run_says_in_which_way_it_is_not_complete() -> None:
    whole = run(FedUCBVI(), synthetic(agents=2), 30)
    assert whole.unfinished == ""
    missed = replace(whole, complete=False)
    assert missed.unfinished == "agents have missed episodes"
    first = replace(missed, records={name: column[:3] for name, column in whole.records.items()})
    assert first.unfinished == f"interrupted after {first.episodes_played} episodes"
    assert f"{first.episodes_played} episodes" in repr(first)
