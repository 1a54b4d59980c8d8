"""What all kinds of Fed-UCBVI's agents share, however their counts are kept and whatever their reports look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, Message, Setting
from fed_ucbvi.algorithms.experience import Counters, Experience, absorb_round, no_experience
from fed_ucbvi.algorithms.fed_ucbvi_server import Server
from fed_ucbvi.core.compiling import compiled, embedded, inner
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

SYNCHRONISATIONS = ("mixture", "local", "global")
_LOCAL = SYNCHRONISATIONS.index("local")
_GLOBAL = SYNCHRONISATIONS.index("global")
_MIXTURE = SYNCHRONISATIONS.index("mixture")


class AskingRule(NamedTuple):
    """When agents request a synchronisation; ``synchronisation`` is an index into :data:`SYNCHRONISATIONS`."""

    synchronisation: int
    strict: bool
    nu: float
    agents: int

    @property
    def alike(self) -> bool:
        """Whether all agents have the same budgets."""
        return self.synchronisation == _GLOBAL


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

    def synchronise(self, server: Server) -> None:
        """All exchanges in one process."""
        ...


@dataclass
class CountingAgents:
    """A fleet of which each agent keeps its own counts."""

    experience: Experience
    asks: Budgets
    horizon: int
    rule: AskingRule

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return {"visits": self.experience.visits, "transitions": self.experience.transitions}

    def budgets(self, policy: IndexArray, N: CountArray) -> Budgets:
        """When they request a synchronisation in a round with this policy."""
        visits, rule, _ = self.asks
        _fill_budgets(self.experience.visits, N, policy, self.rule, visits, rule)
        return self.asks

    def absorb(self, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Take in the round's counts."""
        absorb_round(policy, transitions, visits, self.experience.transitions, self.experience.visits)


def no_budgets(setting: Setting, rows: int, counters: type[np.signedinteger[Any]] = np.int64) -> Budgets:
    """Room for budgets, all 1, by local rules."""
    shape = setting.horizon, setting.states
    return Budgets(np.ones((rows, *shape), dtype=counters), np.zeros(shape, dtype=np.int8))


def no_counts(
    setting: Setting, tables: FleetTables, asking: AskingRule
) -> tuple[Experience, Budgets, int, AskingRule]:
    """No visits yet, and room for budgets."""
    return no_experience(setting, tables), no_budgets(setting, tables.agents), setting.horizon, asking


@inner
def is_local(N: int, rule: AskingRule) -> bool:
    """Whether the local rule is in force at a triplet with N visits."""
    local = rule.nu >= N if rule.strict else rule.nu > N
    return rule.synchronisation == _LOCAL or (rule.synchronisation == _MIXTURE and local)


@embedded
def local_budget(n: int, rule: AskingRule) -> int:
    """``n^i + v >= 2 n^i`` (``eq:local_doubling_cond``), so ``v >= max(1, n^i)``."""
    return n + 1 if rule.strict else max(1, n)


@inner
def global_budget(N: int, rule: AskingRule) -> int:
    """``N + M v >= 2 N`` (``eq:global_est_doubling_cond``), so ``v >= max(1, ceil(N/M))``."""
    M = rule.agents
    return N // M + 1 if rule.strict else max(1, (N + M - 1) // M)


@compiled
def _fill_budgets(
    visits: Counters,
    N: CountArray,
    policy: IndexArray,
    rule: AskingRule,
    out: CountArray,
    which: npt.NDArray[np.int8],
) -> None:
    """Budgets by (h,s), those of the policy's actions."""
    m, H, S, _ = visits.shape
    for h in range(H):
        for s in range(S):
            which[h, s] = 0 if is_local(N[h, s, policy[h, s]], rule) else 1
    for i in range(m):
        for h in range(H):
            for s in range(S):
                a = policy[h, s]
                if which[h, s] == 0:
                    out[i, h, s] = local_budget(visits[i, h, s, a], rule)
                else:
                    out[i, h, s] = global_budget(N[h, s, a], rule)
