"""What is claimed of several baselines alike: optimism, long runs, constants in force, and what they warn of."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fed_ucbvi as fed
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.simulation import Simulation
from model_free import Sizes
from naive_fedq import iota
from problems import random_federation
from runs import finished, same_bits, without_cautions

pytestmark = without_cautions

PUBLISHED: dict[str, Any] = {"constants": "published", "reference_after": 60}
ROBUST = fed.ByzanUCBVI(alpha=0.2, log_term=1.0)


@pytest.mark.parametrize(
    ("algorithm", "episodes", "driver", "attack"),
    [
        (fed.FedQHoeffding(bonus="published", c=1.0), 10**6, "counts", ""),
        (fed.FedQBernstein(bonus="published"), 10**6, "counts", ""),
        (fed.FedQAdvantage(clip="horizon", **PUBLISHED), 200_000, "counts", ""),
        (fed.FedQAdvantage(clip="remaining", **PUBLISHED), 200_000, "counts", ""),
        (fed.ConcurrentUCBAdvantage(**PUBLISHED), 4000, "episodes", ""),
        (fed.ConcurrentUCBVI("chernoff-hoeffding", 0.02), 300, "episodes", ""),
        (fed.ConcurrentUCBVI("chernoff-hoeffding", 0.02, clip="remaining"), 300, "episodes", ""),
        (fed.ConcurrentUCBVI("bernstein-freedman", 0.1), 300, "episodes", ""),
        (fed.ConcurrentUCBVI("bernstein-freedman", 0.1, clip="remaining"), 300, "episodes", ""),
        *((ROBUST, 20_000, "auto", attack) for attack in ("", "flip", "mimic", "counts", "silent")),
    ],
    ids=str,
)
def test_values_stay_between_the_optimal_and_the_first_ones(
    algorithm: Any, episodes: int, driver: str, attack: str
) -> None:
    """With the published bonuses, or what is left of them; with liars, too, where the server withstands them."""
    for seed in range(3):
        federation = random_federation(np.random.default_rng(seed), 10 if algorithm is ROBUST else 3, eps_p=0.0)
        best = federation.common.solve().V
        played = federation.with_liars(0.2, attack) if attack else federation
        simulation = Simulation(algorithm, played, episodes, seed, driver)
        known = simulation.server.estimates
        first = known.Q.copy()
        cap = known.V.copy()
        falls = getattr(algorithm, "monotone", algorithm.sent_values.monotone)
        while not simulation.done:
            Q = known.Q.copy()
            simulation.advance()
            assert (best - 1e-9 <= known.V).all()
            assert (cap >= known.V).all()
            assert not falls or (known.Q <= Q).all()
        assert (first - 0.1 > known.Q).any(), "the bonus must have shrunk for the claim to mean anything"


@pytest.mark.parametrize(
    "algorithm",
    [
        fed.FedQHoeffding(),
        fed.FedQHoeffding(bonus="published", c=0.3),
        fed.FedQBernstein(),
        fed.FedQBernstein(c=1.0, c_bernstein=0.7, bernstein_after=5),
        fed.FedQBernstein(bonus="published", c_bernstein=0.4, delta=0.2),
        fed.FedQAdvantage(),
        fed.FedQAdvantage(forced_synchronisation=False),
        fed.ByzanUCBVI(log_term=1.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("driver", ["counts", "auto"])
def test_a_thousand_million_episodes_leave_finite_values_near_the_optimal_ones(algorithm: Any, driver: str) -> None:
    federation = fed.synthetic(agents=4, states=2, actions=2, horizon=2)
    simulation = finished(Simulation(algorithm, federation, 10**9, 0, driver))
    server = simulation.server
    best = federation.common.solve()
    assert all(np.isfinite(array).all() for array in server.arrays().values())
    gap = float(federation.common.initial @ (best.V[0] - federation.common.evaluate(server.policy)[0]))
    assert gap < 0.01
    assert np.abs(server.V - best.V).max() < 0.05
    if algorithm.name == "byzan-ucbvi":
        assert simulation.rounds <= 4 * (2 * 2 * 2 * math.log2(10**9) + 1)
    else:
        visits = server.estimates.N + getattr(server.estimates, "y", 0)
        assert visits.sum(axis=(1, 2)).max() <= 4 * 10**9


@pytest.mark.parametrize(
    ("alone", "together"),
    [
        (fed.UCBVI(), fed.ConcurrentUCBVI()),
        (fed.UCBAdvantage(reference_after=30), fed.ConcurrentUCBAdvantage(reference_after=30)),
        (fed.UCBAdvantage(reference_after=30), fed.ConcurrentUCBAdvantage(reference_after=30, discard=False)),
    ],
)
def test_with_one_agent_the_federated_version_is_the_single_one(alone: Any, together: Any) -> None:
    federation = random_federation(np.random.default_rng(8), agents=1)
    one, other = (finished(Simulation(kind, federation, 300, 8, "episodes")) for kind in (alone, together))
    assert one.rows == other.rows
    assert same_bits(one.server, other.server)


# ------------------------------------------------------------------------------------- what they say of themselves

SETTING = Setting(states=5, actions=4, horizon=3, agents=10, episodes=1000, eps_p=0.0, seed=0)
SIZE = float(5 * 4 * 3 * 10 * 1000)
I_0 = 2.0 * 10 * 3 * 4
IOTA = math.log(2 / 0.1)
N_0 = 5184 * 20 * 3**5 * IOTA / 0.5**2 + 16 * 10 * 20 * 3**3 / 0.5
SMALL_DELTA: dict[str, Any] = {"constants": "published", "delta": 0.1}
CAP = {"epsilon": 1 / SIZE, "served_at_most": math.floor(5 * 4 * 3 * math.log2(1000)) + 1}


@pytest.mark.parametrize(
    ("algorithm", "facts"),
    [
        (fed.FedQHoeffding("published", delta=0.1), {"i_0": I_0, "iota": iota(Sizes.of(SETTING), 0.1)}),
        (fed.FedQBernstein(), {"i_0": I_0}),
        (fed.FedQAdvantage(), {"iota": 1.0, "reference_after": 200.0}),
        (fed.FedQAdvantage(iota=0.25), {"iota": 0.25, "reference_after": 200.0}),
        (fed.FedQAdvantage(**SMALL_DELTA, beta=0.5), {"iota": IOTA, "reference_after": N_0}),
        (fed.FedQAdvantage(**SMALL_DELTA, reference_after=7), {"iota": IOTA, "reference_after": 7.0}),
        (fed.UCBAdvantage(), {"iota": 1.0, "reference_after": 200.0}),
        (fed.UCBAdvantage(**SMALL_DELTA, c4=2.0), {"iota": IOTA, "reference_after": 2 * 20 * 3**5 * IOTA * 3}),
        (fed.UCBAdvantage(**SMALL_DELTA, c4=2.0, beta=1), {"iota": IOTA, "reference_after": 2 * 20 * 3**5 * IOTA}),
        (fed.UCBVI(delta=0.1), {"L": math.log(5 * SIZE * 3 / 0.1)}),
        (
            fed.ByzanUCBVI(delta=0.1),
            {"log_each": math.log(20 / (0.1 / SIZE**15)), "log_all": math.log(2 / (0.1 / SIZE**15)), **CAP},
        ),
        (fed.ByzanUCBVI(log_term=0.25), {"log_each": 0.25, "log_all": 0.25, **CAP}),
    ],
    ids=repr,
)
def test_facts_hold_the_constants_in_force(algorithm: Any, facts: dict[str, float]) -> None:
    assert algorithm.facts(SETTING) == pytest.approx(facts)


@pytest.mark.parametrize(
    ("algorithm", "changes", "says"),
    [
        (fed.FedQHoeffding(), {"episodes": 23}, "every episode will end with a synchronisation"),
        (fed.FedQHoeffding(), {"episodes": 24}, ""),
        (fed.FedQAdvantage("published"), {}, r"needs N_0 = .* at most M T = 10,000;"),
        (fed.UCBAdvantage("published"), {}, r"needs N_0 = .* at most M T = 10,000;"),
        (fed.UCBAdvantage(), {}, ""),
        (fed.FedQAdvantage(reference_after=10_000), {}, ""),
        (fed.ByzanUCBVI(log_term=0.01), {"agents": 20}, ""),
        (fed.ByzanUCBVI(), {"episodes": 100}, "nothing can be learnt"),
        (fed.ByzanUCBVI(alpha=0.4, log_term=1e-4), {"agents": 20}, "no theorem covers"),
        (fed.ByzanUCBVI(log_term=0.01), {"agents": 2}, "never learn"),
        (fed.ConcurrentUCBVI("chernoff-hoeffding"), {}, "nothing can be learnt"),
    ],
    ids=str,
)
def test_cautions_name_what_cannot_work(algorithm: Any, changes: dict[str, Any], says: str) -> None:
    cautions = algorithm.cautions(replace(SETTING, **changes))
    assert len(cautions) == bool(says)
    assert re.search(says, "".join(cautions))
