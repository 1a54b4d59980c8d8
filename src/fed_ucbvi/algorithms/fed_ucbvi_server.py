"""What Fed-UCBVI's server knows and how it turns a mean, a variance and a count into Q, V and the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, TableServer
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.kernels import choose_action
from fed_ucbvi.core.compiling import embedded, inner
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

TIES = ("first", "random")
"""Which of several greedy actions is played: the first, or one drawn for the round."""
_RANDOM = TIES.index("random")


class UpdateRule(NamedTuple):
    """How the server turns reports into Q, as numbers.

    With ``beta^c(N) = log_union + log(2 N + 1)`` the bonus is
    ``per_visit/N + per_log beta^c(N)/N + sqrt(per_variance Var/N)``, and H where ``N <= 1``. With ``plain`` there is
    none, and a pair never visited is worth nothing.
    """

    weighted: bool
    per_visit: float
    per_log: float
    log_union: float
    per_variance: float
    ties: int
    seed: np.uint64
    agents: int
    grid: Grid
    random_rewards: bool
    plain: bool = False


class Estimates(NamedTuple):
    """What the server knows.

    Attributes:
        N: ``(H, S, A)``.
        Q: ``(H, S, A)``.
        V: ``(H+1, S)``.
        policy: ``(H, S)``, one greedy action each.
        updates: ``(1,)``, how many synchronisations there were.
    """

    N: CountArray
    Q: FloatArray
    V: FloatArray
    policy: IndexArray
    updates: CountArray


@dataclass
class Server(TableServer[Estimates, UpdateRule]):
    """The central server.

    Attributes:
        table: all counts, where agents report what is new; otherwise the server knows sums over agents, never a
            transition.
        earlier: the counts of an earlier run, if the run was started from them and there is no ``table``.
    """

    table: CountTable | None = None
    earlier: CountTable | None = None

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        table = {} if self.table is None else self.table._asdict()
        return {**super().arrays(), **{f"table_{name}": array for name, array in table.items()}}

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have a table as wide as that which was saved."""
        if self.table is not None:
            self.table = self.table.widened(arrays["table_transitions"].shape[3])


@embedded
def bonus(N: float, variance: float, horizon: int, rule: UpdateRule) -> float:
    """``b(s,a)`` of a pair visited N times in all, whose next value has this variance."""
    if rule.plain:
        return 0.0
    if N <= 1.0:
        return float(horizon)
    per_visit = rule.per_visit
    if rule.per_log > 0.0:
        per_visit += rule.per_log * (rule.log_union + math.log(2.0 * N + 1.0))
    return per_visit / N + math.sqrt(rule.per_variance * variance / N)


@inner
def unvisited(horizon: int, rule: UpdateRule) -> float:
    """``Q`` of a pair never visited: H, or nothing without bonus."""
    return 0.0 if rule.plain else float(horizon)


@embedded
def optimistic(N: float, mean: float, variance: float, horizon: int, rule: UpdateRule) -> float:
    """``Q = min(mean + b, H)`` (``eq:update_rule``) of a pair visited N times, ``mean`` being that of r + V."""
    return min(mean + bonus(N, variance, horizon, rule), float(horizon))


@embedded
def act_greedily(h: int, s: int, rule: UpdateRule, Q: FloatArray, policy: IndexArray, updates: CountArray) -> float:
    """Choose the policy's action at (h,s); the largest Q. The tables are those of the estimates."""
    best = choose_action(Q[h, s], rule.ties == _RANDOM, rule.seed, updates[0], h * policy.shape[1] + s)
    policy[h, s] = best
    return float(Q[h, s, best])


@inner
def begin_step(h: int, estimates: Estimates) -> None:
    """Forget the old sums of step h; the first step of a synchronisation begins a new update."""
    estimates.N[h] = 0
    if h == estimates.Q.shape[0] - 1:
        estimates.updates[0] += 1
