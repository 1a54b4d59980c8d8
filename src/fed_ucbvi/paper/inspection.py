"""A federation before any run: how different its agents are, and what sharing one policy costs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fed_ucbvi.core.numbers import Bracket, number_text
from fed_ucbvi.core.text import Tabled
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.paper.sharing import price_of_sharing
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.heterogeneity import Distances, distances, overlap
from fed_ucbvi.problem.units import Units


@dataclass(frozen=True, eq=False)
class Inspection(Tabled):
    """The result of :func:`inspect_federation`; values are in the environment's own units.

    Attributes:
        eps_p: the eps_p of Assumption 1 with which it was made.
        eps_p_least: the smallest eps_p for which Assumption 1 holds; at most ``eps_p``.
        eps_r: of Assumption 2, as a share of the range of a reward.
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
        ends = dict.fromkeys(number_text(end) for end in self.price)
        return (
            f"<Inspection of {federation.description.get('name', 'custom')}, {federation.agents:,} agents: eps_p = "
            f"{number_text(self.eps_p)} (least {number_text(self.eps_p_least)}), eps_r = {number_text(self.eps_r)}, "
            f"price of sharing {' to '.join(ends)}>"
        )

    def summary(self) -> dict[str, Any]:
        """The figures, without the arrays."""
        federation = self.federation
        gaps = self.distances
        M = federation.agents
        worst = 0.0
        largest_mean = 0.0
        if M > 1:
            others = ~np.eye(M, dtype=bool)
            worst = float(gaps.worst[others].max())
            largest_mean = float(gaps.mean[others].max())
        h, s, a = np.argwhere(self.missing == self.missing.max())[0].tolist()
        return {
            "env": federation.description.get("name", "custom"),
            "agents": federation.agents,
            "states": federation.states,
            "actions": federation.actions,
            "horizon": federation.horizon,
            "stationary_kernel": self.missing.shape[0] == 1,
            "eps_p": self.eps_p,
            "eps_p_least": self.eps_p_least,
            "eps_p_least_at": {"step": h, "state": s, "action": a},
            "eps_r": self.eps_r,
            "l1_between_agents": {"worst": worst, "largest_mean": largest_mean},
            "tv_between_agents": {"worst": worst / 2, "largest_mean": largest_mean / 2},
            "l1_to_common": float(gaps.to_common.max()),
            "tv_to_common": float(gaps.to_common.max()) / 2,
            "own_optimum": {
                "mean": float(self.own.mean()),
                "by_agent": self.own.tolist(),
            },
            "shared_policy": {
                "mean": float(self.shared.mean()),
                "by_agent": self.shared.tolist(),
            },
            "common_optimum": self.common_value,
            "price_of_sharing": self.price.summary(),
        }


def inspect_federation(
    federation: FederationLike,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
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
    units = Units.of(federation.description)
    horizon = federation.horizon
    shared = overlap(federation.probabilities)
    best = federation.common.solve()
    own_values = np.zeros(federation.agents)
    shared_values = np.zeros(federation.agents)
    for i in range(federation.agents):
        agent = federation.agent(i)
        own_value = float(agent.initial @ agent.solve().V[0])
        shared_value = float(agent.initial @ agent.evaluate(best.policy)[0])
        own_values[i] = units.original_return(own_value, horizon)
        shared_values[i] = units.original_return(shared_value, horizon)
        report(i + 1, federation.agents)
    common_value = float(federation.common.initial @ best.V[0])
    return Inspection(
        federation=federation,
        eps_p=federation.eps_p,
        eps_p_least=shared.eps_p,
        eps_r=federation.eps_r,
        missing=np.maximum(1.0 - shared.mass, 0.0),
        distances=distances(federation.probabilities, federation.common.kernel.probabilities),
        own=own_values,
        shared=shared_values,
        common_value=units.original_return(common_value, horizon),
        price=price_of_sharing(federation),
    )
