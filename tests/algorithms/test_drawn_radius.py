"""Fed-KL-UCBVI with a drawn radius: nine levels of optimism, of which the highest is the certain one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, InputError, gridworld, reference, riverswim, run
from fed_ucbvi.algorithms.drawn_radius import DrawnServer, level_law
from fed_ucbvi.core.sampling.levels import LEVELS
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.federation import Federation


def played(federation: Federation, episodes: int, *, stationary: bool = False) -> Simulation:
    simulation = Simulation(FedKLUCBVI(optimism="drawn", stationary=stationary), federation, episodes, 3)
    while not simulation.done:
        simulation.advance()
    return simulation


@pytest.mark.parametrize("stationary", [False, True])
def test_the_highest_level_is_the_certain_server(stationary: bool) -> None:
    drawn = played(riverswim(agents=4), 300, stationary=stationary)
    certain = FedKLUCBVI(stationary=stationary)
    server = certain.new_server(drawn.setting)
    certain.add_counts(server, drawn.server.table.copy())
    assert np.array_equal(server.V, drawn.server.V)
    assert np.array_equal(server.policy, drawn.server.policy[-1])


def test_values_grow_with_the_level() -> None:
    server = played(riverswim(agents=4), 300).server
    assert isinstance(server, DrawnServer)
    values = [*(estimates.V[0, 0] for estimates in server.lower), server.V[0, 0]]
    assert len(values) == LEVELS
    assert np.all(np.diff(values) >= 0)


@pytest.mark.parametrize("bernoulli", [False, True])
@pytest.mark.parametrize("stationary", [False, True])
def test_every_level_is_that_of_the_reference(stationary: bool, bernoulli: bool) -> None:
    federation = riverswim(agents=4).with_bernoulli_rewards(bernoulli)
    simulation = played(federation, 200, stationary=stationary)
    server = simulation.server
    table = server.table
    make = reference.Known.stationary if stationary else reference.Known.by_step
    known = make(federation.horizon, federation.states, federation.actions)
    counts = table.dense().reshape(1, -1, federation.states)
    paid = (table.mean_rewards() * table.visits).reshape(1, -1)
    for level in range(LEVELS):
        plan = reference.fed_kl_ucbvi(
            counts,
            paid,
            known,
            limit=float(level) if level < LEVELS - 1 else math.inf,
            random_rewards=bernoulli,
        )
        estimates = server.lower[level] if level < LEVELS - 1 else server.estimates
        np.testing.assert_allclose(estimates.V, plan.V, rtol=0, atol=1e-9)


def test_few_agents_draw_fresh_levels_more_often() -> None:
    assert [level_law(agents, None).share for agents in (1, 4, 20, 1000)] == [1.0, 0.5, 0.1, 0.1]


def test_the_share_of_fresh_levels_can_be_chosen() -> None:
    assert level_law(20, 0.3).share == 0.3


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(InputError, match="fresh_share"):
        FedKLUCBVI(optimism="drawn", fresh_share=1.5)


def test_a_gap_is_certified_by_the_certain_level() -> None:
    assert FedKLUCBVI(optimism="drawn").certifying(0.025).optimism == "certain"


@pytest.mark.slow
def test_drawing_has_less_regret_than_the_certain_radius() -> None:
    """GridWorld with 20 agents: the largest of five drawn regrets is below the least of five certain ones."""
    federation = gridworld(agents=20, eps_p=0.1)
    drawn = [run(FedKLUCBVI(optimism="drawn"), federation, 3000, seed=seed).regret for seed in range(5)]
    certain = [run(FedKLUCBVI(), federation, 3000, seed=seed).regret for seed in range(5)]
    assert max(drawn) < min(certain)
