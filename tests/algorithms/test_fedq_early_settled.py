"""The early-settled algorithm against an independent implementation, visit by visit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fed_ucbvi import FedQEarlySettled, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.simulation import Simulation
from model_free import asked, seen_in_round
from naive_fedq import NaiveEarlySettled, Sizes
from problems import random_federation

TOLERANCE = 1e-10
NEARLY_EQUAL = 1e-9


def compare(simulation: Simulation, naive: NaiveEarlySettled, tolerance: float) -> None:
    known = simulation.server.estimates
    for key, memory in naive.memory.items():
        if key[0] == naive.sizes.horizon:
            continue
        assert known.N[key] == memory.N
        assert known.Q[key] == pytest.approx(memory.Q, rel=0, abs=tolerance)
        assert known.Q_lower[key] == pytest.approx(memory.lower, rel=0, abs=tolerance)
    for place, value in naive.V.items():
        assert known.V[place] == pytest.approx(value, rel=0, abs=tolerance)
        assert known.V_lower[place] == pytest.approx(naive.V_lower[place], rel=0, abs=tolerance)
        assert known.V_reference[place] == pytest.approx(naive.V_reference[place], rel=0, abs=tolerance)
    for h, s in np.ndindex(*known.policy.shape):
        assert naive.V[h, s] - NEARLY_EQUAL <= naive.memory[h, s, int(known.policy[h, s])].Q


@pytest.mark.parametrize(("c_b", "iota"), [(1.0, None), (0.05, 1.0), (0.3, 0.2)])
def test_every_round_of_a_run_is_the_one_of_the_pseudocode(c_b: float, iota: float | None) -> None:
    rng = np.random.default_rng(1)
    algorithm = FedQEarlySettled(c_b=c_b, iota=iota)
    settled = by_reference = second_case = 0
    for problem in range(8):
        S, A, H, M = (int(rng.integers(1, high)) for high in (4, 4, 4, 4))
        federation = random_federation(rng, M, S, A, H, own_rewards=problem % 2 == 1)
        simulation = Simulation(algorithm, federation, 250, problem, "episodes")
        log = math.log(S * A * H * M * 250 / 0.05) if iota is None else iota
        naive = NaiveEarlySettled(Sizes(S, A, H, M, 250, 0.05), c_b, log)
        while not simulation.done:
            policy = simulation.server.policy.copy()
            simulation.advance()
            if not asked(simulation):
                break
            naive.update(*seen_in_round(federation, policy, simulation.driver.transitions))
            compare(simulation, naive, TOLERANCE)
        settled += sum(not unsettled for unsettled in naive.unsettled.values())
        by_reference += sum(memory.referenced < memory.upper for memory in naive.memory.values())
        second_case += sum(memory.N > 4 * M * H * (H + 1) for memory in naive.memory.values())
        assert int((simulation.server.estimates.settling == 0).sum()) == sum(
            not unsettled for unsettled in naive.unsettled.values()
        )
    assert second_case > 5
    assert c_b == 1.0 or (settled > 5 and by_reference > 5)


def test_bounds_enclose_the_optimal_values_and_only_ever_tighten() -> None:
    algorithm = FedQEarlySettled()
    settled = 0
    for seed in range(3):
        federation = synthetic(agents=2, seed=seed, states=2, actions=2, horizon=2)
        simulation = Simulation(algorithm, federation, 10**6, seed, "counts")
        best = federation.common.solve()
        known = simulation.server.estimates
        Q, lower = known.Q.copy(), known.V_lower.copy()
        while not simulation.done:
            simulation.advance()
            assert (known.V >= best.V - 1e-9).all()
            assert (known.V_lower <= best.V + 1e-9).all()
            assert (known.V_reference >= known.V).all()
            assert (known.Q <= Q).all()
            assert (known.V_lower >= lower).all()
            Q, lower = known.Q.copy(), known.V_lower.copy()
        settled += int((known.settling == 0).sum())
    assert settled > 5, "the bounds must have come close for the claim to mean anything"


def test_it_says_that_it_is_experimental_and_what_its_logarithm_is() -> None:
    setting = Setting(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.0, seed=0)
    (caution,) = FedQEarlySettled().cautions(setting)
    assert "experimental" in caution
    expected = math.log(8 * 4 * 10 * 20 * 30_000 / 0.05)
    assert FedQEarlySettled().facts(setting) == {"i_0": 4400.0, "iota": pytest.approx(expected)}
    assert FedQEarlySettled(iota=1).facts(setting)["iota"] == 1.0
