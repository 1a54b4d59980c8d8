"""Parts of a federation: the agents of a fleet or of a node."""

from __future__ import annotations

import itertools
from dataclasses import replace

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.problem.federation import Federation


def part_of(federation: Federation, first_agent: int, agents: int) -> Federation:
    """The agents from ``first_agent`` on if the federation has all M, or all of it if it has just these."""
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
    rewards = federation.rewards
    variances = federation.reward_variances
    return replace(
        federation,
        probabilities=federation.probabilities[part],
        rewards=rewards if len(rewards) == 1 else rewards[part],
        initial=federation.initial[part],
        reward_variances=variances if variances is None or len(variances) == 1 else variances[part],
        laws=None if federation.laws is None else federation.laws[part],
    )


def split_agents(agents: int, parts: int, kind: str = "nodes") -> list[tuple[int, int]]:
    """``(first agent, number of agents)`` of each part, as even as can be.

    >>> split_agents(8, 3)
    [(0, 2), (2, 3), (5, 3)]
    """
    if parts > agents:
        raise InputError(f"{agents} agents make at most {agents} {kind}, not {parts}; each has at least one.")
    edges = [agents * i // parts for i in range(parts + 1)]
    return [(first, after - first) for first, after in itertools.pairwise(edges)]
