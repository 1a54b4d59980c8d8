"""When an agent requests a synchronisation: once its visits of the round to some cell reach a limit.

A rule is one small class. Its limits depend on the agent's own visits and on those of all agents, as they were at the
last synchronisation. :class:`DoublingRule` has those of the paper; ``examples/own_rule.py`` has one of one's own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.compiling import embedded, inner
from fed_ucbvi.core.errors import check_number
from fed_ucbvi.core.types import CountArray

Visits = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, kw_only=True)
class SynchronisationRule(ABC):
    """A rule for requests. An algorithm names its rule in ``synchronisation_rule``.

    Args:
        min_round_growth: a round that begins after t episodes lasts at least ``min_round_growth t`` episodes,
            whatever the limits say.
    """

    min_round_growth: float = 0.0

    def __post_init__(self) -> None:
        check_number("min_round_growth", self.min_round_growth, at_least=0)

    @property
    def shared(self) -> bool:
        """True if all agents have the same limits, as by default, so that their own visits are not needed."""
        return True

    @abstractmethod
    def limits(self, own: Visits, total: CountArray, agents: int) -> Visits:
        """Numbers of visits of a round after which an agent requests a synchronisation; at least 1.

        Args:
            own: visits of each agent before the round, one row for each; 0 if the rule is ``shared``.
            total: N, the visits of all agents before the round.
            agents: M.
        """

    def kinds(self, total: CountArray) -> npt.NDArray[np.int8]:
        """Which of the algorithm's ``rules`` is in force where, for the record; by default the first."""
        return np.zeros(total.shape, dtype=np.int8)


Doubling = tuple[float, bool, int]
"""A :class:`DoublingRule` for compiled functions: ``nu``, whether it is strict, and M."""


@dataclass(frozen=True, kw_only=True)
class DoublingRule(SynchronisationRule):
    """Counts double: the agent's own while ``N < nu``, from then on, as far as it can tell, those of all.

    Local rule (``eq:local_doubling_cond``): ``n^i + v >= 2 n^i``, so ``v >= max(1, n^i)``. Global rule
    (``eq:global_est_doubling_cond``): ``N + M v >= 2 N``, so ``v >= max(1, ceil(N/M))``.

    Args:
        nu: the threshold; infinite for the local rule alone, below 0 for the global rule alone.
        strict: compare with ``>`` as the main text does, not with ``>=`` as the appendix does.

    >>> DoublingRule.named("global").limits(np.array([0]), np.array([0, 7, 41]), agents=20)
    array([1, 1, 3])
    """

    nu: float = math.inf
    strict: bool = False

    @staticmethod
    def named(name: str, nu: float = 0.0, *, strict: bool = False, min_round_growth: float = 0.0) -> DoublingRule:
        """The ``mixture`` of the local and the global rule, split at nu, or one of them alone."""
        threshold = {"mixture": nu, "local": math.inf, "global": -1.0}[name]
        return DoublingRule(nu=threshold, strict=strict, min_round_growth=min_round_growth)

    @property
    def shared(self) -> bool:
        """True for the global rule alone, by which all agents have the same budgets."""
        return self.nu < 0

    def numbers(self, agents: int) -> Doubling:
        return float(self.nu), self.strict, agents

    def kinds(self, total: CountArray) -> npt.NDArray[np.int8]:
        """0 where the local rule is in force, 1 where it is the global one."""
        return np.where(self.nu >= total if self.strict else self.nu > total, 0, 1).astype(np.int8)

    def limits(self, own: Visits, total: CountArray, agents: int) -> Visits:
        more = 1 if self.strict else 0
        local = self.kinds(total) == 0
        everyone = total // agents + 1 if self.strict else np.maximum(1, -(-total // agents))
        return np.where(local, np.maximum(1, own + more), everyone)


@inner
def is_local(N: int, rule: Doubling) -> bool:
    """True if the local rule is in force at an (h,s,a) with N visits."""
    nu, strict, _ = rule
    return nu >= N if strict else nu > N


@embedded
def local_limit(n: int, rule: Doubling) -> int:
    """``n^i + v >= 2 n^i`` (``eq:local_doubling_cond``), so ``v >= max(1, n^i)``."""
    return n + 1 if rule[1] else max(1, n)


@inner
def global_limit(N: int, rule: Doubling) -> int:
    """``N + M v >= 2 N`` (``eq:global_est_doubling_cond``), so ``v >= max(1, ceil(N/M))``."""
    _, strict, M = rule
    return N // M + 1 if strict else max(1, (N + M - 1) // M)
