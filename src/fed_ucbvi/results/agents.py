"""What one policy is worth to the agents themselves, each in its own MDP."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.problem.agent_tables import no_policy, update_values

if TYPE_CHECKING:
    from fed_ucbvi.problem.federation import Federation


class AgentsValue(NamedTuple):
    """The mean over the (honest) agents of ``V^{i,pi}_1(mu^i)``, and the worst and the best of them.

    If nothing is known, values are NaN and agents -1.

    >>> AgentsValue.of(np.array([2.0, np.nan, 1.0]))
    AgentsValue(mean=1.5, worst=1.0, best=2.0, worst_agent=2, best_agent=0, agents=2)
    """

    mean: float
    worst: float
    best: float
    worst_agent: int
    best_agent: int
    agents: int

    @classmethod
    def of(cls, by_agent: FloatArray) -> AgentsValue:
        """From the values of all agents; NaN marks agents that do not count."""
        known = int(np.count_nonzero(~np.isnan(by_agent)))
        if known == 0:
            return cls(np.nan, np.nan, np.nan, -1, -1, 0)
        worst, best = int(np.nanargmin(by_agent)), int(np.nanargmax(by_agent))
        return cls(mean_of_known(by_agent), float(by_agent[worst]), float(by_agent[best]), worst, best, known)


def mean_of_known(by_agent: FloatArray) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    known = by_agent[~np.isnan(by_agent)]
    return float(known.mean()) if len(known) else math.nan


def is_known(federation: Federation) -> bool:
    """Whether the agents' MDPs are known. They are not in a live run without a table."""
    return not bool(np.isnan(federation.common.rewards).any())


def are_alike(federation: Federation) -> bool | None:
    """Whether all honest agents have the same MDP; None if that is unknown."""
    if not is_known(federation):
        return None
    return federation.alike


def values_by_agent(federation: Federation, policy: PolicyArray) -> FloatArray:
    """``V^{i,pi}_1(mu^i)`` of every agent, ``(M,)``; NaN for liars, and where nothing is known."""
    values = np.full(federation.agents, np.nan)
    if is_known(federation):
        tables, (chosen, kind) = federation.kind_tables, federation.kinds
        H, S = policy.shape[:2]
        V = np.zeros((H + 1, S, len(chosen)))
        update_values(*tables[:3], tables.reachable, policy, no_policy(H, S, federation.actions), V)
        values[federation.honest] = (tables.initial * V[0]).sum(axis=0)[kind]
    return values


def initial_value(federation: Federation, V: FloatArray) -> float:
    """The mean over the honest agents of ``sum_s mu^i(s) V_1(s)``; NaN where the initial states' law is unknown."""
    return float(federation.mean_initial @ V[0])


def mean_over(starts: CountArray | None, V: FloatArray) -> float:
    """The mean of ``V_1`` over episodes of which ``starts[s]`` began in s; NaN if there are none or it is unknown."""
    met = 0 if starts is None else int(starts.sum())
    return float(starts @ V[0]) / met if starts is not None and met else float("nan")
