"""The account of exploring: what it may have cost against an incumbent, and what it may cost.

After t episodes of all agents, E of which were exploring and paid R, exploring has cost at most ``E U0 - R`` and may
cost ``loss t W0``. Here U0 is the upper end of the incumbent's interval, and W0 is the least that the incumbent
earns, or costs where rewards are costs. Returns are counted from the least that an episode can pay.

When another policy becomes the incumbent, both sides are kept as two sums, and counting begins again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class Rates(NamedTuple):
    """Bounds on the incumbent's value, per episode, in rescaled units.

    Attributes:
        charge: ``U0`` above the least return: the most that one episode of exploring can cost.
        worth: ``W0``: the least that the incumbent earns or costs.
    """

    charge: float
    worth: float


class Balance(NamedTuple):
    """Both sides of the account over all episodes of all agents, in rescaled units; NaN without an incumbent."""

    cost: float
    allowed: float


class Outlook(NamedTuple):
    """Cost and beginning of exploring, by what is known of the incumbent so far.

    Attributes:
        charge: the most that one episode of exploring can cost against the incumbent, in rescaled units.
        begins: number of episodes of each agent after which a round can explore; NaN where no number can be given,
            because the incumbent's worth may be 0.
    """

    charge: float
    begins: float


@dataclass
class ExplorationAccount:
    """Episodes and rewards of exploring; verifying a candidate counts as exploring.

    Attributes:
        total: episodes of all agents under the present incumbent.
        explored: those of them that were exploring.
        verified: those that verified the present candidate.
        reward: reward of all exploring so far, above the least possible.
        cost_before: what exploring was charged under earlier incumbents.
        worth_before: what earlier incumbents were worth over their episodes.
    """

    total: int = 0
    explored: int = 0
    verified: int = 0
    reward: float = 0.0
    cost_before: float = 0.0
    worth_before: float = 0.0

    def record(self, episodes: int, reward: float, *, exploring: bool, verifying: bool) -> None:
        """Add a round of so many episodes of all agents, and newly known rewards of exploring."""
        self.total += episodes
        self.reward += reward
        if exploring:
            self.explored += episodes
        if verifying:
            self.verified += episodes

    def balance(self, rates: Rates, loss: float) -> Balance:
        """The cost of exploring so far at most, and what it may be."""
        cost = self.cost_before + self.explored * rates.charge - self.reward
        allowed = loss * (self.worth_before + self.total * rates.worth)
        return Balance(cost, allowed)

    def affordable(self, rates: Rates, loss: float, agents: int, most: int) -> int:
        """Number of episodes that each agent may explore next, at most ``most``, even if they pay the least."""
        net_cost = rates.charge - loss * rates.worth
        if net_cost <= 0.0:
            return most
        balance = self.balance(rates, loss)
        return min(most, math.floor((balance.allowed - balance.cost) / (net_cost * agents)))

    def outlook(self, rates: Rates, loss: float, agents: int, played: int) -> Outlook:
        """When exploring can begin, if each agent has played so many episodes and none was exploring."""
        earned = loss * rates.worth
        if earned <= 0.0:
            return Outlook(charge=rates.charge, begins=math.nan)
        balance = self.balance(rates, loss)
        missing = max(0.0, balance.cost + (rates.charge - earned) * agents - balance.allowed)
        return Outlook(charge=rates.charge, begins=played + missing / (earned * agents))

    def change_incumbent(self, rates: Rates) -> None:
        """Carry the account over to a new incumbent; ``rates`` are those of the old one."""
        self.cost_before += self.explored * rates.charge
        self.worth_before += self.total * rates.worth
        self.total = 0
        self.explored = 0
        self.verified = 0

    def to_data(self) -> dict[str, Any]:
        """The account as JSON data."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ExplorationAccount:
        """The inverse of :meth:`to_data`."""
        return cls(
            total=int(data["total"]),
            explored=int(data["explored"]),
            verified=int(data["verified"]),
            reward=float(data["reward"]),
            cost_before=float(data["cost_before"]),
            worth_before=float(data["worth_before"]),
        )
