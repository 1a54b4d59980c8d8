"""The policies that a run recommends while it learns: when one is planned, and what is recorded of each.

The exploring policy is optimistic. The *recommended* policy is planned without bonus from all counts. A policy is
planned after the first round, whenever the number of episodes has at least doubled since the last plan, and at the
end: about ``log2 T`` times. Each plan is one more synchronisation, counted separately from those of the algorithm.

**The gap** of a row is ``optimistic - estimated``: the mean over the initial states of the server's optimistic values
minus that of the planner's values, which are those of the recommended policy on the estimated kernel. With ``V*`` the
optimum and ``V^pi`` the true value of the recommended policy::

    V* - V^pi  =  gap - (optimistic - V*) + (estimated - V^pi)

So the loss is at most the gap plus the error of the estimate, if the server's values are optimistic,
``optimistic >= V*``. They are, with high probability, under bonuses that have a proof, for agents that are alike or
for the common MDP of Assumption 1. Such bonuses are Fed-UCBVI's ``corrected``, its ``theory`` up to the factor that
the printed formula lacks, and those of UCBVI's and Byzan-UCBVI's papers. The ``practical`` and ``simplified``
bonuses, and a ``bonus_scale`` below 1, give no such guarantee: there the gap says how much the server still hopes
for, and bounds nothing. The estimate comes from the data that chose the policy, so it is a little too high on
average. Where agents differ, it is the value in a mixture of them. Its error falls like ``1/sqrt(N)``.

Initial states are weighted by their distribution if that is known, and otherwise by how often episodes began in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.results.records import columns_of

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import ServerState

PLANNED, GREEDY = KINDS = ("planned", "greedy")
"""How a recommended policy was made: planned without bonus, or greedy in the estimates of an algorithm that does not
plan."""

COLUMNS: dict[str, type[np.generic]] = {
    "round": np.int64,
    "episodes": np.int64,
    "optimistic": np.float64,
    "estimated": np.float64,
    "value": np.float64,
    "messages_up": np.int64,
    "messages_down": np.int64,
    "bytes_up": np.int64,
    "bytes_down": np.int64,
}
"""There is one row for each recommendation. ``round`` is the number of rounds played, ``episodes`` that of episodes
of the agent that has played most. ``optimistic`` and ``estimated`` are the two values of the gap. ``value`` is the
true value of the policy, averaged over agents, each in its own MDP. Unknown numbers are NaN. Messages and bytes are
those of the recommendation alone; the last row of a complete run includes the policy that is sent to all agents at
the end."""

Row = tuple[float, ...]
"""In the order of :data:`COLUMNS`."""


@dataclass(frozen=True)
class Recommended:
    """A recommended policy.

    Attributes:
        policy: ``(H, S)``.
        V: the planner's values ``(H+1, S)``; NaN where nothing was planned.
        kind: one of :data:`KINDS`.
    """

    policy: IndexArray
    V: FloatArray
    kind: str

    @classmethod
    def of(cls, server: ServerState, planner: ServerState | None) -> Recommended:
        """The policy of a planner that has planned, or the server's policy if there is no planner."""
        if planner is None:
            return cls(np.array(server.policy), np.full_like(server.V, np.nan), GREEDY)
        return cls(np.array(planner.policy), np.array(planner.V), PLANNED)


def is_due(episodes: int, rows: Sequence[Row]) -> bool:
    """Whether to plan a recommendation now: the number of ``episodes`` has doubled since the last one.

    >>> [is_due(episodes, [(1, 3)]) for episodes in (5, 6)]
    [False, True]
    """
    return episodes >= 2 * (rows[-1][1] if rows else 0)


def last_gap(rows: Sequence[Row]) -> float:
    """The gap of the last recommendation; NaN where there is none."""
    return rows[-1][2] - rows[-1][3] if rows else float("nan")


def table_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows as columns."""
    return columns_of(rows, COLUMNS)
