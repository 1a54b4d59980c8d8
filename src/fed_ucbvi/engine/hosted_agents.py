"""A node's agents and what they play in, behind one protocol: simulated MDPs here, real environments in ``live``.

A node does not know which kind it has. It lets them play and count a round, and it reads all that has changed in them
as arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Budgets, FleetTables, Message, Setting
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.engine.drivers.rewards import SimulatedRewards
from fed_ucbvi.engine.hosted_problem import HostedProblem
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.engine.saved_state import restore

SEEN = "seen."
"""Prefix of the names of arrays that are not the agents' own."""


def seen_of(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Those that are not the agents' own, by their names without the prefix."""
    return {name.removeprefix(SEEN): array for name, array in arrays.items() if name.startswith(SEEN)}


class HostedAgents(Protocol):
    """The agents of a node together with what they play in."""

    @property
    def agents(self) -> Any:
        """The algorithm's agents."""
        ...

    @property
    def visits(self) -> CountArray:
        """The round's visits, ``(m, *place)``."""
        ...

    @property
    def transitions(self) -> CountArray:
        """The round's transitions by slot of the support, ``(m, *place, K)``."""
        ...

    def play(self, policy: PolicyArray, due: CountArray, first: int, most: int, asking: bool) -> int:
        """Play at most ``most`` episodes from number ``first`` on, until a request if ``asking``; how many."""
        ...

    def move_to(self, policy: PolicyArray, budgets: Budgets, first: int, played: int, length: int) -> None:
        """Play more episodes or take some back, so that the round has ``length`` of them instead of ``played``."""
        ...

    def absorb(self, broadcast: Message) -> None:
        """The agents add the round that was played after ``broadcast`` to their counts."""
        ...

    def paid(self, policy: PolicyArray, length: int) -> Paid:
        """What the round of ``length`` episodes that was just played paid them together, and where it began."""
        ...

    def starts(self, agent: int) -> tuple[FloatArray, bool]:
        """How many episodes of an agent began in each state, or, if the second is true, with which probability."""
        ...

    def arrays(self) -> dict[str, Array]:
        """All that has changed since the beginning, but for the buffers of the round."""
        ...

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go back to what :meth:`arrays` said, with empty buffers."""
        ...

    def recall(self, arrays: Mapping[str, Array], visits: CountArray, transitions: CountArray) -> None:
        """Put back a round that was just played: its counts, and what :meth:`arrays` gave after it."""
        ...

    def close(self) -> None:
        """Leave the environments."""
        ...


class SimulatedHostedAgents:
    """Agents with simulated MDPs: episodes can be replayed, and so be taken back.

    ``pooled`` counts the transitions of all of them in one table, where algorithm and payments allow it. Agents
    counted in one table cannot go back to an earlier state.
    """

    def __init__(
        self, algorithm: Algorithm[Any, Any], setting: Setting, hosted: HostedProblem, *, pooled: bool = False
    ) -> None:
        own, first = hosted.federation, hosted.first_agent
        counting, random = algorithm.counting, setting.random_rewards
        pooled = pooled and algorithm.pools and own.pay_alike
        fleet = self.fleet = Fleet.of(
            own, setting.seed, first, pooled=pooled, counting=counting, random_rewards=random
        )
        self._algorithm, self._pays, self._initial = algorithm, own.rewards, own.initial
        touched = fleet.touched if pooled else None
        tables = FleetTables(own.agents, own.successors, own.rewards, first, touched)
        self._rewards: SimulatedRewards | None = None
        if random:
            self._rewards = SimulatedRewards(own, counting, touched, algorithm.reward_grid(setting))
            tables = self._rewards.for_agents(own.agents, own.successors, first, touched)
        self.agents: Any = algorithm.new_agents(setting, tables)
        if self._rewards is not None and algorithm.keeps_experience:
            self._rewards.remember_all()
        self._driver = EpisodesDriver(fleet)
        self.visits, self.transitions = fleet.visits, fleet.transitions
        self.asked = False
        """Whether an agent requested a synchronisation when they last played."""

    def play(self, policy: PolicyArray, due: CountArray, first: int, most: int, asking: bool) -> int:
        """Trajectory by trajectory."""
        played, self.asked = self._driver.extend(policy, due, first, most, asking)
        return played

    def move_to(self, policy: PolicyArray, budgets: Budgets, first: int, played: int, length: int) -> None:
        """Play more without regard to budgets, or replay episodes and subtract their counts."""
        if length > played:
            self._driver.extend(policy, budgets.visits, first + played, length - played, False)
        else:
            self._driver.rewind(policy, budgets.visits, first + length, played - length)

    def absorb(self, broadcast: Message) -> None:
        """The agents add the counts to theirs, and see what they were paid."""
        transitions = self.transitions
        if self._rewards is not None:
            transitions = self._rewards.take(broadcast[0], transitions, self.visits)
        self._algorithm.absorb(self.agents, broadcast[0], transitions, self.visits)

    def paid(self, policy: PolicyArray, length: int) -> Paid:
        """``sum_{i,h,s,a} visits^i_h(s,a) r^i_h(s,a)``, the sum that a simulation has on record."""
        visits = self.visits
        rewards = self._pays[:, : visits.shape[1]]
        if policy.ndim == 2:
            rows, _, S, A = rewards.shape
            by_step = np.broadcast_to(rewards, (rows, len(policy), S, A))
            rewards = np.take_along_axis(by_step, policy[None, ..., None], axis=3)[..., 0]
        return Paid(length * len(visits), float((visits * rewards).sum()), self.fleet.starts.sum(axis=0))

    def starts(self, agent: int) -> tuple[FloatArray, bool]:
        """The law of its initial state."""
        return self._initial[agent], True

    def arrays(self) -> dict[str, Array]:
        """Those of the agents, and random rewards."""
        seen = {} if self._rewards is None else self._rewards.arrays()
        return {**self.agents.arrays(), **{SEEN + name: array for name, array in seen.items()}}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Write over the agents' arrays, and those of random rewards."""
        restore(self.agents, arrays)
        if self._rewards is not None:
            self._rewards.restore(seen_of(arrays))
        self._driver.clear()

    def recall(self, arrays: Mapping[str, Array], visits: CountArray, transitions: CountArray) -> None:
        """Put the counts back."""
        self.visits[...], self.transitions[...] = visits, transitions
        self._driver.fleet.recount()

    def close(self) -> None:
        """Nothing to leave."""
