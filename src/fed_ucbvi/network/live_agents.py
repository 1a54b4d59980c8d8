"""A node's agents with real environments, known by ``reset`` and ``step`` alone.

A real environment cannot be taken back to an earlier episode, so such nodes take part in live collections only. On
disk they keep the agents' arrays, the supports (possible next states) that the agents have discovered, and the means
of the rewards that they have observed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Budgets, Message, Setting
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.plugins import load_attribute
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.drivers.live import LiveDriver, LiveTables, on_wider_supports
from fed_ucbvi.engine.hosted_agents import SEEN, seen_of
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.engine.saved_state import restore
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.environments.gymnasium_making import (
    Kwargs,
    NotDiscreteError,
    limited_maker,
    live_sizes,
    live_units,
)
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    import gymnasium


STARTS = "starts"
"""The name of the counts of where episodes began, over all rounds."""


@dataclass(frozen=True)
class LiveSource:
    """Where a node's environments come from.

    Args:
        make: the environment of agent i is ``make(i)``, with agents numbered as in the federation.
        reward_range: ``(low, high)``, between which every reward lies; the same on all nodes.
        horizon: H; by default the environment's max_episode_steps.
        name: what the environments are called; a node that comes back must bring the same.
    """

    make: Callable[[int], gymnasium.Env[Any, Any]]
    reward_range: Sequence[float] | None
    horizon: int | None = None
    name: str = "custom"

    @classmethod
    def of(
        cls,
        text: str,
        kwargs: Kwargs | None = None,
        *,
        reward_range: Sequence[float] | None,
        horizon: int | None = None,
    ) -> LiveSource:
        """A Gymnasium id, made with ``kwargs`` for every agent, or ``module:function``, which gives agent i's."""
        if text.partition(":")[2].isidentifier():
            if kwargs:
                raise InputError(f"keyword arguments are for Gymnasium ids; {text} is a function and knows its own.")
            return cls(load_attribute(text), reward_range, horizon, text)
        make = limited_maker(text, lambda agent: kwargs or {}, horizon)
        return cls(make, reward_range, horizon, f"{text} {json.dumps(kwargs or {}, sort_keys=True)}")

    def check(self, first_agent: int, agents: int) -> HostedEnvironments | None:
        """The environments of these agents if they can be used as they are; None if they need the server's bins.

        They do where spaces are not Discrete, or where no range of rewards is given. What no bins can mend is an
        error.
        """
        try:
            return None if self.reward_range is None else self.host(first_agent, agents)
        except NotDiscreteError:
            return None

    def host(self, first_agent: int, agents: int, bins: Bins | None = None) -> HostedEnvironments:
        """The environments of these agents; each is made once to see that it can be used, and closed again.

        With ``bins`` they are made finite by them. Horizon and observed range of rewards are then those of the bins.
        """
        everyone, make, name, rewards = range(first_agent, first_agent + agents), self.make, self.name, None
        if bins is not None:
            if self.horizon not in (None, bins.horizon):
                raise InputError(
                    f"the server's bins are for episodes of {bins.horizon} steps, this node's have {self.horizon}; "
                    "leave out --horizon."
                )
            if self.reward_range is not None and bins.reward_range is not None:
                raise InputError(
                    f"the server's bins bring the range of rewards along, {bins.reward_range}; leave out "
                    "--reward-range."
                )
            make, name, rewards = partial(_finite, self.make, bins), f"{name} {bins.digest}", bins.reward_range
        units = live_units(rewards or self.reward_range)
        sizes = live_sizes(make, everyone, self.horizon if bins is None else bins.horizon)
        return HostedEnvironments(make, name, units, sizes, first_agent, agents)


def _finite(make: Callable[[int], gymnasium.Env[Any, Any]], bins: Bins, agent: int) -> gymnasium.Env[Any, Any]:
    """An agent's environment, finite by the server's bins; by bins of its own only if they are the same."""
    from fed_ucbvi.environments.finite_spaces import FiniteEnvironment
    from fed_ucbvi.environments.making_finite import make_finite

    env = make(agent)
    if not isinstance(env, FiniteEnvironment):
        return make_finite(env, bins)
    if env.bins.digest != bins.digest:
        raise InputError(
            f"the environment of agent {agent} is made finite by bins {env.bins.digest[:12]}, the run by bins "
            f"{bins.digest[:12]}; all nodes must use the same. Leave the bins to the server."
        )
    return env


@dataclass(frozen=True)
class HostedEnvironments:
    """A node's agents and how their environments are made."""

    make: Callable[[int], gymnasium.Env[Any, Any]]
    name: str
    units: Units
    sizes: tuple[int, int, int]
    first_agent: int
    agents: int
    remark = " (one state more than its environments have, for what terminates)"
    """On its sizes."""
    random_rewards = False
    """Whether rewards are random cannot be found out here; the server says so."""

    def digest(self) -> bytes:
        """A fingerprint of what is known of the environments."""
        known = (self.name, *self.sizes, self.units.offset, self.units.scale, self.first_agent, self.agents)
        return hashlib.sha256(json.dumps(["live", *known]).encode()).digest()


class LiveHostedAgents:
    """Agents that call ``env.step``; supports grow with what they see."""

    def __init__(self, algorithm: Algorithm[Any, Any], setting: Setting, hosted: HostedEnvironments) -> None:
        self._algorithm, self._setting = algorithm, setting
        S, A, H = hosted.sizes
        first, m = hosted.first_agent, hosted.agents
        self._tables = LiveTables(m, H, S, A, first, algorithm.counting, algorithm.reward_grid(setting))
        self.agents: Any = algorithm.new_agents(setting, self._tables.for_agents())
        self._width = self._tables.width
        self._begun_before: CountArray = np.zeros(S, dtype=np.int64)
        """Where the episodes of earlier rounds began."""
        if algorithm.keeps_experience:
            self._tables.remember_all()
        self._driver = LiveDriver(
            self._tables, range(first, first + m), hosted.make, "sync", hosted.units, setting.seed
        )

    @property
    def visits(self) -> CountArray:
        """``(m, *place)``."""
        return self._tables.visits

    @property
    def transitions(self) -> CountArray:
        """``(m, *place, K)``; K may have grown during the round."""
        return self._tables.transitions

    def play(self, policy: PolicyArray, due: CountArray, first: int, most: int, asking: bool) -> int:
        """Step by step, in real environments."""
        return self._driver.extend(policy, due, first, most, asking)[0]

    def move_to(self, policy: PolicyArray, budgets: Budgets, first: int, played: int, length: int) -> None:
        """Refuse."""
        raise InputError(
            f"the server has counted {length} episodes of this round, of which this node holds {played}; real "
            "environments cannot play them again. Start the node with the state folder it had."
        )

    def absorb(self, broadcast: Message) -> None:
        """The agents add the counts to theirs, on wider supports if new next states have been seen."""
        if self._tables.width != self._width:
            self.agents = on_wider_supports(self._algorithm, self._setting, self.agents, self._tables)
            self._width = self._tables.width
            self._algorithm.budgets(self.agents, broadcast)
        self._algorithm.absorb(self.agents, broadcast[0], self.transitions, self.visits)

    def paid(self, policy: PolicyArray, length: int) -> Paid:
        """What the environments paid, and where they began."""
        starts = self._tables.starts.sum(axis=0) - self._begun_before
        return Paid(length * len(self.visits), self._tables.paid, starts, self._tables.paid_squares)

    def starts(self, agent: int) -> tuple[FloatArray, bool]:
        """Those that it has seen."""
        return self._tables.starts[agent].astype(np.float64), False

    def arrays(self) -> dict[str, Array]:
        """Those of the agents, the supports, the means of rewards, and where episodes began."""
        return {
            **self.agents.arrays(),
            **{SEEN + name: array for name, array in self._tables.arrays().items()},
            SEEN + STARTS: self._tables.starts,
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go back to the supports and means that there were, and the agents with them."""
        self._see(arrays)
        if self._tables.width != self._width:
            self.agents = self._algorithm.new_agents(self._setting, self._tables.for_agents())
            self._width = self._tables.width
        restore(self.agents, arrays)
        self.visits.fill(0)
        self.transitions.fill(0)
        self._begun_before = self._tables.starts.sum(axis=0)
        self._tables.forget_payments()

    def recall(self, arrays: Mapping[str, Array], visits: CountArray, transitions: CountArray) -> None:
        """What was seen in the round, and its counts."""
        self._see(arrays)
        self.visits[...], self.transitions[...] = visits, transitions

    def _see(self, arrays: Mapping[str, Array]) -> None:
        seen = seen_of(arrays)
        self._tables.restore(seen)
        self._tables.starts[...] = seen[STARTS]

    def close(self) -> None:
        """Close the environments."""
        self._driver.close()
