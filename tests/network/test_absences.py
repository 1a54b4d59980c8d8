"""Nodes that come and go, as in ``benchmarks/absences.py``: nothing is lost, and learning is hardly slower."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, gridworld, run

SEED = 1


@pytest.fixture(scope="module")
def absences() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "absences.py"
    spec = importlib.util.spec_from_file_location("absences", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_absences_it_is_the_simulation_bit_for_bit(absences: Any) -> None:
    world = gridworld(agents=6)
    everyone = absences.Federated(world, 60, absences.Absences(list(range(6)), 0, 1), SEED)
    everyone.run()
    expected = run(FedKLUCBVI(), world, 60, seed=SEED, progress=False)
    result = everyone.engine.result()
    assert np.array_equal(result.V, expected.V)
    assert np.array_equal(result.policy, expected.policy)
    assert np.array_equal(result.records["length"], expected.records["length"])
    assert everyone.regret_after(360) / 6 == pytest.approx(expected.regret)


def test_thirty_per_cent_away_stall_nobody_lose_nothing_and_cost_little(absences: Any) -> None:
    """Twenty nodes, six away at any time for six rounds each; regret is that after the same number of episodes."""
    nodes, T = 20, 150
    world, schedule = gridworld(agents=nodes), absences.Absences.of(nodes, 0.3, 6, SEED)
    seen = [schedule.at(number) for number in range(40)]
    assert {len(away) for away in seen} == {6}
    assert set().union(*seen) == set(range(nodes))
    absent = absences.Federated(world, 240, schedule, SEED)
    absent.run()
    assert len(absent.reports) == int((absent.engine.records()["requests"] > 0).sum()), "every round has closed"
    assert set(absent.reports) == {13}, "14 were there, and one left before it reported"
    told = int(absent.engine.server.table.visits[0].sum())
    kept = sum(int(absent._report(i)[0].sum()) // world.horizon for i in range(nodes) if not absent.used[i])
    assert told + kept == int(absent.engine.records()["agent_episodes"].sum()), "every episode once"
    assert kept > 0
    lockstep = absences.Federated(world, T, absences.Absences(list(range(nodes)), 0, 1), SEED)
    lockstep.run()
    assert absent.regret_after(nodes * T) <= 1.2 * lockstep.regret_after(nodes * T)
