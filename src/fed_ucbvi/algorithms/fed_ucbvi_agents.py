"""What all kinds of Fed-UCBVI's agents share, however their counts are kept and whatever their reports look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, Message, Setting
from fed_ucbvi.algorithms.experience import Counters, Experience, absorb_round, no_experience
from fed_ucbvi.algorithms.synchronisation_rules import SynchronisationRule
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray


class Agents(Protocol):
    """A fleet of Fed-UCBVI's agents."""

    @property
    def horizon(self) -> int:
        """H."""
        ...

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        ...

    def budgets(self, policy: IndexArray, N: CountArray) -> Budgets:
        """When they request a synchronisation in a round with this policy."""
        ...

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Take in the round's counts."""
        ...

    def report(self, h: int, V_next: FloatArray) -> Message:
        """Their answer for step h."""
        ...


@dataclass
class CountingAgents:
    """A fleet of which each agent keeps its own counts."""

    experience: Experience
    asks: Budgets
    horizon: int
    rule: SynchronisationRule
    federation_size: int

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return {"visits": self.experience.visits, "transitions": self.experience.transitions}

    def budgets(self, policy: IndexArray, N: CountArray) -> Budgets:
        """When they request a synchronisation in a round with this policy."""
        fill_budgets(self.rule, self.experience.visits, N, policy, self.federation_size, self.asks)
        return self.asks

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Take in the round's counts."""
        absorb_round(policy, transitions, visits, self.experience.transitions, self.experience.visits)


def no_budgets(
    setting: Setting, rows: int, rule: SynchronisationRule, counters: type[np.signedinteger[Any]] = np.int64
) -> Budgets:
    """Room for budgets, all 1, by local rules."""
    shape, growth = (setting.horizon, setting.states), float(rule.min_round_growth)
    return Budgets(np.ones((rows, *shape), dtype=counters), np.zeros(shape, dtype=np.int8), growth)


def fill_budgets(
    rule: SynchronisationRule, own: Counters, N: CountArray, policy: IndexArray, agents: int, out: Budgets
) -> None:
    """Budgets by (h,s), those of the policy's actions; ``own (m,H,S,A)`` are each agent's visits."""
    total = np.take_along_axis(N, policy[..., None], axis=2)[..., 0]
    mine = (
        np.take_along_axis(own, policy[None, ..., None].astype(np.int64), axis=3)[..., 0] if len(own) else total * 0
    )
    out.limits[...], out.rule[...] = rule.limits(mine, total, agents), rule.kinds(total)


def no_counts(
    setting: Setting, tables: FleetTables, rule: SynchronisationRule
) -> tuple[Experience, Budgets, int, SynchronisationRule, int]:
    """No visits yet, and room for budgets."""
    budgets = no_budgets(setting, tables.agents, rule)
    return no_experience(setting, tables), budgets, setting.horizon, rule, setting.agents
