"""Rounds as model-free agents see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.federation import Federation
from runs import federation_of


def setting_of(federation: Federation, episodes: int = 1000) -> Setting:
    f = federation
    return Setting(f.states, f.actions, f.horizon, f.agents, episodes, f.eps_p, seed=3)


def reward_of(federation: Federation, i: int, h: int, s: int, a: int) -> float:
    """Entry of agent i, from tables that may have one row for all agents, or for all steps."""
    rewards = federation.rewards
    return float(rewards[i % len(rewards), h % rewards.shape[1], s, a])


def asked(simulation: Simulation) -> bool:
    """True if the last round ended with a synchronisation."""
    return bool(simulation.records()["requests"][-1])


class Sizes(NamedTuple):
    states: int
    actions: int
    horizon: int
    agents: int
    episodes: int

    @classmethod
    def of(cls, setting: Setting) -> Sizes:
        return cls(*(getattr(setting, name) for name in cls._fields))


class Step(NamedTuple):
    """One step of one agent."""

    h: int
    s: int
    a: int
    reward: float
    successor: int


def played_steps(simulation: Simulation, policy: npt.NDArray[np.int32]) -> list[list[Step]]:
    """Steps of each agent in the round just played, from the driver's counts."""
    return steps_of(federation_of(simulation), policy, simulation.driver.transitions)


def steps_of(f: Federation, policy: npt.NDArray[np.int32], transitions: npt.NDArray[np.int64]) -> list[list[Step]]:
    steps: list[list[Step]] = [[] for _ in range(f.agents)]
    for i, h, s, k in np.argwhere(transitions > 0).tolist():
        a = int(policy[h, s])
        step = Step(
            h,
            s,
            a,
            reward_of(f, i, h, s, a),
            int(f.successors[h % len(f.successors), s, a, k]),
        )
        steps[i].extend([step] * int(transitions[i, h, s, k]))
    return steps


def played_rounds(simulation: Simulation) -> Iterator[npt.NDArray[np.int32]]:
    """Play a simulation to its end; after every round, the policy of that round."""
    while not simulation.done:
        policy = simulation.server.policy.copy()
        simulation.advance()
        yield policy
