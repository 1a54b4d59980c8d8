"""A federation before any run: how different its agents are, the best policy they can share, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fed_ucbvi.core.errors import check_positive_integer
from fed_ucbvi.core.numbers import Bracket, number_text
from fed_ucbvi.core.text import Tabled
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.problem.common_policy import TOLERANCE, WORK, CommonOptimum, search_common_policy
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.heterogeneity import Distances, distances, overlap


@dataclass(frozen=True, eq=False)
class Inspection(Tabled):
    """The result of :func:`inspect_federation`.

    Attributes:
        federation: the federation itself.
        eps_p: the eps_p of Assumption 1 with which it was made.
        eps_p_least: the smallest eps_p for which Assumption 1 holds; at most ``eps_p``.
        eps_r: of Assumption 2.
        missing: ``(steps, S, A)``, ``1 - sum_s' min_i P^i(s')``; its largest entry is ``eps_p_least``.
        distances: L1 distances between the kernels.
        own: ``(M,)``, the value of each agent's own optimal policy in its own MDP.
        shared: ``(M,)``, the value of the common MDP's optimal policy in each agent's MDP.
        common_value: of that policy in the common MDP.
        price: the price of sharing, ``mean_i V^{i,*} - max_pi mean_i V^{i,pi}``.
    """

    federation: Federation
    eps_p: float
    eps_p_least: float
    eps_r: float
    missing: FloatArray
    distances: Distances
    own: FloatArray
    shared: FloatArray
    common_value: float
    price: Bracket

    def __repr__(self) -> str:
        federation = self.federation
        return (
            f"<Inspection of {federation.description.get('name', 'custom')}, {federation.agents:,} agents: eps_p = "
            f"{number_text(self.eps_p)} (least {number_text(self.eps_p_least)}), eps_r = {number_text(self.eps_r)}, "
            f"price of sharing {_bracket_text(self.price)}>"
        )

    def summary(self) -> dict[str, Any]:
        """The figures, without the arrays."""
        federation, gaps = self.federation, self.distances
        M = federation.agents
        others = ~np.eye(M, dtype=bool)
        worst, mean = (float(table[others].max()) if M > 1 else 0.0 for table in (gaps.worst, gaps.mean))
        h, s, a = (int(i) for i in np.unravel_index(int(self.missing.argmax()), self.missing.shape))
        return {
            "env": federation.description.get("name", "custom"),
            "agents": M,
            "states": federation.states,
            "actions": federation.actions,
            "horizon": federation.horizon,
            "stationary_kernel": self.missing.shape[0] == 1,
            "eps_p": self.eps_p,
            "eps_p_least": self.eps_p_least,
            "eps_p_least_at": {"step": h, "state": s, "action": a},
            "eps_r": self.eps_r,
            "l1_between_agents": {"worst": worst, "largest_mean": mean},
            "tv_between_agents": {"worst": worst / 2, "largest_mean": mean / 2},
            "l1_to_common": float(gaps.to_common.max()),
            "tv_to_common": float(gaps.to_common.max()) / 2,
            "own_optimum": {"mean": float(self.own.mean()), "by_agent": self.own.tolist()},
            "shared_policy": {"mean": float(self.shared.mean()), "by_agent": self.shared.tolist()},
            "common_optimum": self.common_value,
            "price_of_sharing": self.price.summary(),
        }


def _bracket_text(bracket: Bracket) -> str:
    if bracket.exact:
        return number_text(bracket.lower)
    return f"{number_text(bracket.lower)} to {number_text(bracket.upper)}"


def inspect_federation(
    federation: FederationLike, *, report: Callable[[int, int], None] = lambda done, total: None
) -> Inspection:
    """Distances, heterogeneity and values of a federation; each agent's MDP is solved exactly.

    An environment's name, an MDP or a list of MDPs will do.
    ``report`` is called with the number of agents done and of all of them.

    >>> from fed_ucbvi import synthetic
    >>> found = inspect_federation(synthetic(agents=3, eps_p=0.1))
    >>> found.eps_p_least <= found.eps_p
    True
    """
    federation = as_federation(federation)
    kernel = federation.common.kernel
    shared = overlap(federation.probabilities)
    best = federation.common.solve()
    own, together = np.zeros(federation.agents), np.zeros(federation.agents)
    for i in range(federation.agents):
        agent = federation.agent(i)
        own[i] = agent.initial @ agent.solve().V[0]
        together[i] = agent.initial @ agent.evaluate(best.policy)[0]
        report(i + 1, federation.agents)
    return Inspection(
        federation,
        federation.eps_p,
        shared.eps_p,
        federation.eps_r,
        np.maximum(1.0 - shared.mass, 0.0),
        distances(federation.probabilities, kernel.probabilities),
        own,
        together,
        float(federation.common.initial @ best.V[0]),
        price_of_sharing(federation),
    )


def best_common_policy(federation: FederationLike, *, work: int = WORK) -> CommonOptimum:
    """Bracket the best common policy of the honest agents; the result depends on nothing but the arguments.

    ``Federation.common_optimum`` is this with the default ``work``, found once and kept.

    Args:
        federation: the agents; an environment's name, an MDP or a list of MDPs will do.
        work: table entries to read, at most (a few passes over the tables are always made). More may narrow a bracket
            that is not exact.

    >>> from fed_ucbvi import gridworld
    >>> optimum = best_common_policy(gridworld(agents=5, eps_p=0.1))
    >>> optimum.value.exact, round(optimum.value.lower, 4), round(optimum.own, 4)
    (True, 3.7528, 3.7897)
    """
    allowance = check_positive_integer("work", work)
    known = as_federation(federation)
    return search_common_policy(known.differing_tables, known.common.solve().policy, allowance)


def price_of_sharing(federation: FederationLike) -> Bracket:
    """What agents lose on average by sharing one policy: the mean of their own optima minus the best common value.

    >>> from fed_ucbvi import synthetic
    >>> price_of_sharing(synthetic(agents=4))
    Bracket(lower=0.0, upper=0.0)
    """
    known = as_federation(federation)
    optimum = known.common_optimum
    lower, upper = (optimum.own - end for end in reversed(optimum.value))
    slack = TOLERANCE * known.horizon
    return Bracket(lower if lower > slack else 0.0, upper if upper > slack else 0.0)
