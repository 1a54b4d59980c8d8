"""Runs brought to their end, or interrupted on the way, and whether two are the same."""

from __future__ import annotations

from typing import TypeVar

import pytest

from fed_ucbvi import RoundRecord
from fed_ucbvi.algorithms.base import State
from fed_ucbvi.engine.problems import SimulatedProblem
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.round_record import OnRound

SimulationT = TypeVar("SimulationT", bound=Simulation)

without_cautions = pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")


def finished(simulation: SimulationT) -> SimulationT:
    """The simulation, with all its rounds."""
    while not simulation.done:
        simulation.advance()
    return simulation


def counted_apart(federation: Federation, driver: str = "episodes") -> SimulatedProblem:
    """The problem with the counts of every agent kept apart, also where one table would do."""
    return SimulatedProblem(federation, driver, pooled=False)


def federation_of(simulation: Simulation) -> Federation:
    """The federation that a simulation is played on."""
    assert simulation.known is not None
    return simulation.known


def same_bits(one: State, other: State) -> bool:
    """True if two states have equal arrays."""
    mine = one.arrays()
    theirs = other.arrays()
    return mine.keys() == theirs.keys() and all(
        (array.dtype, array.shape, array.tobytes())
        == (theirs[name].dtype, theirs[name].shape, theirs[name].tobytes())
        for name, array in mine.items()
    )


def interrupt_after(*, rounds: int = 0, episodes: int = 0) -> OnRound:
    """Ctrl-C once there are as many synchronisations, and as many episodes of each agent."""

    def on_round(record: RoundRecord) -> None:
        if record.synchronisations >= rounds and record.episodes >= episodes:
            raise KeyboardInterrupt

    return on_round
