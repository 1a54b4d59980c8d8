"""Fed-KL-UCBVI at every synchronisation: V is never below V*, and no count grows by more than it may.

Optimism fails with probability at most delta = 0.05 in a run; seeds are fixed. The counting is sure.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fed_ucbvi import Federation, gridworld, synthetic
from fed_ucbvi.algorithms.base import HARD_FACTOR
from fed_ucbvi.algorithms.fed_kl_ucbvi import FedKLUCBVI
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.engine.simulation import Simulation

AGENTS, EPISODES = 5, 60_000


def world(name: str, eps_p: float, seed: int) -> Federation:
    if name == "gridworld":
        return gridworld(agents=AGENTS, eps_p=eps_p, horizon=6, seed=seed)
    return synthetic(agents=AGENTS, eps_p=eps_p, states=4, horizon=4, eps_r=0.05 if eps_p else 0.0, seed=seed)


def least_values(federation: Federation) -> FloatArray:
    """What V is never below: ``(1 - eps_p)^(H-h) V*_h - (H-h+1) eps_r``, h from 1."""
    left = np.arange(federation.horizon, -1, -1)[:, None]
    best = federation.common.solve().V
    return np.asarray((1 - federation.eps_p) ** np.maximum(left - 1, 0) * best - left * federation.eps_r)


def most_visits(N: CountArray, agents: int, horizon: int, *, stationary: bool, rest: bool) -> CountArray:
    """How large a count can be at the end of a round that it began as ``N``."""
    if rest:
        return (1 + HARD_FACTOR) * N + HARD_FACTOR * agents + (agents * (horizon - 1) if stationary else 0)
    if stationary:
        return 2 * N + agents * horizon
    return np.where(N > 0, 2 * N + agents - 1, agents)


CASES = [
    (name, stationary, eps_p, growth)
    for name, stationary, (eps_p, growth) in itertools.product(
        ("gridworld", "synthetic"), (False, True), ((0.0, 0.0), (0.02, 0.0), (0.0, 0.1))
    )
    if name == "gridworld" or not stationary
]


@pytest.mark.parametrize(("name", "stationary", "eps_p", "growth"), CASES)
def test_values_stay_above_the_best_and_counts_grow_as_they_may(
    name: str, stationary: bool, eps_p: float, growth: float
) -> None:
    algorithm = FedKLUCBVI(stationary=stationary, min_round_growth=growth)
    for seed in range(3):
        federation = world(name, eps_p, seed)
        H = federation.horizon
        simulation = Simulation(algorithm, federation, EPISODES, seed, "auto")
        floor = least_values(federation) - 1e-9
        fullest = 0.0
        while not simulation.done:
            before = simulation.server.table.visits.copy()
            simulation.advance()
            V, after = simulation.server.V, simulation.server.table.visits
            assert (floor <= V).all()
            allowed = most_visits(before, AGENTS, H, stationary=stationary, rest=growth > 0)
            assert (after <= allowed).all()
            fullest = max(fullest, float((after / allowed).max()))
        assert fullest > (0.2 if growth else 0.5), "some count must come near to what is allowed"
        caps = H - np.arange(H)
        assert (V[:H] < caps[:, None]).mean() > 0.3, "values must have come down for this to say anything"


def test_the_check_can_fail() -> None:
    """A small radius is not optimistic."""
    federation = world("gridworld", 0.0, 0)
    simulation = Simulation(FedKLUCBVI(radius=0.02), federation, EPISODES, 0, "auto")
    below = False
    while not simulation.done and not below:
        simulation.advance()
        below = bool((least_values(federation) - simulation.server.V > 1e-6).any())
    assert below
