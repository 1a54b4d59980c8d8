"""Problems of a node's agents: MDPs that only the node knows, or real environments with ``reset`` and ``step``.

A real environment cannot be taken back to an earlier episode, so such nodes take part in live collections only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms.base import Algorithm, Counting, Message, Setting
from fed_ucbvi.algorithms.count_reporting import as_count_reporting
from fed_ucbvi.analysis.logs import read_logs
from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.numbers import byte_count
from fed_ucbvi.engine.extension import warm_setting
from fed_ucbvi.engine.live_party import LiveParty
from fed_ucbvi.engine.parts import part_of
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.simulated_party import SimulatedParty
from fed_ucbvi.environments import REGISTRY, find_environment
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.environments.gymnasium_making import Kwargs, NotDiscreteError, live_sizes, live_units, named_maker
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.specifications.problem import ProblemSpec, input_errors

if TYPE_CHECKING:
    import gymnasium

AGENT_BYTES = 1024
"""Least number of bytes that an agent takes, in any problem."""

Source = Callable[[int], Federation]
"""The problem of a federation of M agents, or, if it has fewer, of the node's own agents."""


@dataclass(frozen=True)
class Hosted:
    """Problem of a node's agents: MDPs, or environments that are made when they are needed.

    Attributes:
        sizes: ``(S, A, H)``.
        digest: a fingerprint, by which the server knows that a node comes back with the same.
        party: gives the agents in a run with this setting.
        federation: the MDPs, of these agents only; its common MDP is not used.
    """

    sizes: tuple[int, int, int]
    units: Units
    digest: bytes
    party: Callable[[Algorithm[Any, Any], Setting], Party]
    federation: Federation | None = None


def check_room(agents: int, bytes_each: int = AGENT_BYTES, whose: str = "agents on this node") -> None:
    """Raise if so many agents cannot be in this machine's memory, before any of it is taken."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if agents * bytes_each > memory:
        raise InputError(
            f"{agents:,} {whose} take at least {byte_count(agents * bytes_each)} here, and this machine has "
            f"{byte_count(memory)}; divide them among more nodes."
        )


def host(federation: Federation, first_agent: int, agents: int) -> Hosted:
    """The node's agents: those from ``first_agent`` on if the federation has all M, or all if it has just these."""
    own = part_of(federation, first_agent, agents)
    sizes = (own.states, own.actions, own.horizon)
    units = Units.of(own.description)
    digest = hashlib.sha256(f"{first_agent} {own.fingerprint}".encode()).digest()
    party = partial(SimulatedParty, federation=own, first_agent=first_agent, pooled=False)
    return Hosted(sizes, units, digest, party, own)


def simulated_source(problem: ProblemSpec, agents: int) -> Source:
    """The source of a problem: a function of M, whose federation has the node's own agents alone if it has fewer.

    Errors of a registered environment of ``agents`` agents are raised at once.
    """
    name = problem.environment or defaults.ENVIRONMENT
    environment = find_environment(name)
    parameters = {
        "eps_p": problem.eps_p or 0.0,
        "seed": problem.env_seed,
        **problem.environment_options,
    }

    def source(M: int) -> Federation:
        with input_errors(name):
            return environment.build(agents=M, **parameters)

    environment.given(agents=agents, **parameters)
    if environment.name in REGISTRY:
        source(agents)
    return source


@dataclass(frozen=True)
class LiveSource:
    """Source of a node's environments.

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
        make = named_maker(text, kwargs or {}, horizon)
        is_function = text.partition(":")[2].isidentifier()
        name = text if is_function else f"{text} {json.dumps(kwargs or {}, sort_keys=True)}"
        return cls(make, reward_range, horizon, name)

    def check(self, first_agent: int, agents: int) -> Hosted | None:
        """The environments of these agents if they can be used as they are; None if they need the server's bins.

        They do where spaces are not Discrete, or where no range of rewards is given. What no bins can mend is an
        error.
        """
        try:
            return None if self.reward_range is None else self.host(first_agent, agents)
        except NotDiscreteError:
            return None

    def host(self, first_agent: int, agents: int, bins: Bins | None = None) -> Hosted:
        """The environments of these agents; each is made once to see that it can be used, and closed again.

        With ``bins`` they are made finite by them. Horizon and observed range of rewards are then those of the bins.
        """
        everyone = range(first_agent, first_agent + agents)
        make = self.make
        name = self.name
        rewards = None
        if bins is not None:
            if self.horizon not in (None, bins.horizon):
                raise InputError(
                    f"the server's bins are for episodes of {bins.horizon} steps, this node's have {self.horizon}; "
                    "leave out --horizon."
                )
            if self.reward_range is not None and bins.reward_range is not None:
                raise InputError(
                    f"the server's bins bring their range of rewards, {bins.reward_range}; leave out --reward-range."
                )
            make = partial(_finite, self.make, bins)
            name = f"{name} {bins.digest}"
            rewards = bins.reward_range
        units = live_units(rewards or self.reward_range)
        sizes = live_sizes(make, everyone, self.horizon if bins is None else bins.horizon)
        known = "live", name, *sizes, units.offset, units.scale, first_agent, agents
        digest = hashlib.sha256(json.dumps(known).encode()).digest()
        return Hosted(sizes, units, digest, partial(LiveParty, agents=everyone, make=make, units=units))


def _finite(make: Callable[[int], gymnasium.Env[Any, Any]], bins: Bins, agent: int) -> gymnasium.Env[Any, Any]:
    """An agent's environment, finite by the server's bins; by bins of its own only if they are the same."""
    from fed_ucbvi.environments.bin_making import make_finite
    from fed_ucbvi.environments.finite_spaces import FiniteEnvironment

    env = make(agent)
    if not isinstance(env, FiniteEnvironment):
        return make_finite(env, bins)
    if env.bins.digest != bins.digest:
        raise InputError(
            f"the environment of agent {agent} is made finite by bins {env.bins.digest[:12]}, the run by bins "
            f"{bins.digest[:12]}; all nodes must use the same. Leave the bins to the server."
        )
    return env


def read_reported_logs(source: Any, hosted: Hosted, plan: RunPlan) -> tuple[Message, tuple[int, int]]:
    """The report of a node's logs, and their numbers of episodes and steps."""
    algorithm = as_count_reporting(
        plan.algorithm, "takes no logs of nodes; use fed-kl-ucbvi, or plan from the logs alone."
    )
    setting = plan.setting
    units = hosted.units
    federation = hosted.federation
    counts, episodes = read_logs(
        source,
        hosted.sizes,
        (units.offset, units.offset + units.scale),
        stationary=algorithm.counting is Counting.STATIONARY,
        random_rewards=setting.random_rewards or federation is None,  # real environments pay what they like
    )
    if federation is not None:
        counts.check_support(federation.successors)
    _, told = warm_setting(algorithm, setting, counts)
    return plan.listed(algorithm.logged_counts(setting, told)), (episodes, int(told.visits.sum()))
