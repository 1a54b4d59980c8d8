"""The frame of algorithms whose agents send one report a round: what an agent's saved state must hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fed_ucbvi import (
    ConcurrentUCBAdvantage,
    FedQAdvantage,
    FedQBernstein,
    FedQEarlySettled,
    FedQHoeffding,
    synthetic,
)
from fed_ucbvi.engine.simulation import Simulation

ALGORITHMS = [FedQHoeffding(), FedQBernstein(), FedQAdvantage(), FedQEarlySettled(), ConcurrentUCBAdvantage()]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_agents_restored_after_a_round_report_what_they_would_have_reported(algorithm: Any) -> None:
    simulation = Simulation(algorithm, synthetic(agents=3, seed=1), 50, 0, "episodes")
    for _ in range(5):
        simulation.advance()
    agents = simulation.agents
    broadcast = algorithm.broadcast(simulation.server)
    policy = broadcast[0].copy()
    budgets = algorithm.budgets(agents, tuple(np.array(array) for array in broadcast))
    driver = simulation.driver
    driver.collect(policy, budgets, simulation.played, 1)
    algorithm.absorb(agents, policy, driver.transitions, driver.visits)
    expected = [array.copy() for array in algorithm.report(agents, (), 0)]
    assert any(array.any() for array in expected)

    saved = {name: array.copy() for name, array in agents.arrays().items()}
    restored = Simulation(algorithm, synthetic(agents=3, seed=1), 50, 0, "episodes").agents
    for name, array in restored.arrays().items():
        array[...] = saved[name]
    for one, other in zip(algorithm.report(restored, (), 0), expected, strict=True):
        np.testing.assert_array_equal(one, other)
