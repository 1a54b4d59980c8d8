"""The policies that a run recommends on its way: one row each, and when there is one.

The exploring policy is optimistic; the *recommended* policy is planned without bonus from all counts. One is planned
after the first round, whenever the number of episodes has at least doubled since the last one, and at the end: about
``log2 T`` times. Each is one more synchronisation, counted apart from those of the algorithm.

**The gap** of a row is ``optimistic - estimated``: the mean over the initial states of the server's optimistic values
minus that of the planner's values, which are those of the recommended policy on the estimated kernel. With ``V*`` the
optimum and ``V^pi`` the true value of the recommended policy::

    V* - V^pi  =  gap - (optimistic - V*) + (estimated - V^pi)

So the loss is at most the gap plus the error of the estimate, if the server's values are optimistic,
``optimistic >= V*``. That is so with high probability under bonuses with a proof (Fed-UCBVI's ``corrected``; its
``theory`` up to the factor that the print lacks; UCBVI's and Byzan-UCBVI's of their papers), for agents that are
alike or for the common MDP of Assumption 1. It is not so with ``practical`` or ``simplified`` bonuses or a
``bonus_scale`` below 1: there the gap says how much the server still hopes for, and bounds nothing. The estimate
comes from the very data by which the policy was chosen, so it is a little too high on average; where agents differ it
is that of a mixture of them. Its error falls like ``1/sqrt(N)``.

Initial states are weighted by their law where that is known, and by how often episodes began in them where it is not.
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

PLANNED, GREEDY, EXPLORING = KINDS = ("planned", "greedy", "exploring")
"""What a recommended policy is: planned without bonus; greedy in the algorithm's estimates, where it plans nothing;
or, in runs saved by earlier versions, the exploring policy, because there was no other."""

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
"""One row a recommendation. ``round`` counts the rounds played, ``episodes`` those of the agent that has played most;
``optimistic`` and ``estimated`` are the two values of the gap; ``value`` is what the policy is truly worth, in the
agents' own MDPs and averaged over them. What nobody knows is NaN. The traffic is that of the recommendation alone;
the last row of a complete run counts the policy that all agents are sent with the end signal."""

Row = tuple[float, ...]
"""In the order of :data:`COLUMNS`."""


@dataclass(frozen=True)
class Recommended:
    """What is recommended.

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
        """The policy of a planner that has planned; the server's own where there is none."""
        if planner is None:
            return cls(np.array(server.policy), np.full_like(server.V, np.nan), GREEDY)
        return cls(np.array(planner.policy), np.array(planner.V), PLANNED)


def is_due(episodes: int, rows: Sequence[Row]) -> bool:
    """Whether a recommendation is planned after so many episodes: they have doubled since the last.

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
