"""What the theory promises of a run of Fed-UCBVI with the corrected bonus, checked against the run."""

from __future__ import annotations

import math

from fed_ucbvi.algorithms.fed_ucbvi import FedUCBVI
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.theory.bounds import regret_bound_terms, rounds_bound
from fed_ucbvi.theory.constants import most_rounds


def check_promises(simulation: Simulation) -> bool:
    """Regret below ``thm:regret``, mended, and rounds below ``lem:communication``, from M = 3 on also ``R_max``.

    Each fails with probability at most delta, and in truth far less: the constants are generous. False if the run is
    not one that the paper's theorems are about.
    """
    algorithm, federation = simulation.algorithm, simulation.federation
    if not isinstance(algorithm, FedUCBVI) or federation.liars is not None or federation.eps_p >= 1:
        return False
    delta = algorithm.delta
    if algorithm != FedUCBVI(bonus="corrected", delta=delta, initial_policy=algorithm.initial_policy):
        return False
    eps_p, eps_r, M = federation.eps_p, federation.eps_r, federation.agents
    sizes = (federation.states, federation.actions, federation.horizon, M, simulation.setting.episodes)
    assert simulation.regret <= regret_bound_terms(*sizes, eps_p, eps_r, delta).common
    rounds = rounds_bound(*sizes, eps_p, delta)
    assert simulation.rounds <= math.floor(rounds)
    assert M < 3 or rounds <= most_rounds(*sizes, eps_p, delta)
    return True
