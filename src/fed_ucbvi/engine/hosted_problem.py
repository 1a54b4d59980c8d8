"""What only a node knows: the MDPs of its own agents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units

DIGEST_BYTES = 32

Source = Callable[[int], Federation]
"""The problem of a federation of M agents, or, if it has fewer, of the node's own agents."""


@dataclass(frozen=True)
class HostedProblem:
    """A node's agents and their MDPs.

    ``federation`` holds these agents only; its common MDP is not used.
    """

    federation: Federation
    first_agent: int
    remark = ""
    """On its sizes."""

    @property
    def agents(self) -> int:
        """How many agents the node hosts."""
        return self.federation.agents

    @property
    def random_rewards(self) -> bool:
        """Whether rewards are known to be random."""
        return self.federation.reward_variances is not None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """``(S, A, H)``."""
        return self.federation.states, self.federation.actions, self.federation.horizon

    @property
    def units(self) -> Units:
        """Those of its rewards."""
        return Units.of(self.federation.description)

    def digest(self) -> bytes:
        """A fingerprint of the agents' MDPs, by which the server knows that a node comes back with the same."""
        own = self.federation
        sha = hashlib.sha256(f"{own.states} {own.actions} {own.horizon} {self.first_agent}".encode())
        random = () if own.reward_variances is None else (own.reward_variances,)
        for array in (own.successors, own.probabilities, own.rewards, own.initial, *random):
            sha.update(f"{array.dtype.str} {array.shape}".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.digest()


def host(federation: Federation, first_agent: int, agents: int) -> HostedProblem:
    """The node's agents: those from ``first_agent`` on if the federation has all M, or all if it has just these."""
    if federation.liars is not None:
        raise InputError("agents that lie know the reports of others; they live in simulations only.")
    if federation.agents == agents:
        part = slice(0, agents)
    elif federation.agents >= first_agent + agents:
        part = slice(first_agent, first_agent + agents)
    else:
        raise InputError(
            f"the problem has {federation.agents} agents; agents {first_agent} to {first_agent + agents - 1} need "
            f"{first_agent + agents}, or {agents} if it holds the node's own alone."
        )
    rewards, variances = federation.rewards, federation.reward_variances
    own = replace(
        federation,
        probabilities=federation.probabilities[part],
        rewards=rewards if len(rewards) == 1 else rewards[part],
        initial=federation.initial[part],
        reward_variances=variances if variances is None or len(variances) == 1 else variances[part],
    )
    return HostedProblem(own, first_agent)
