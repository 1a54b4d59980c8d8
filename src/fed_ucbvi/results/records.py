"""The records of a run: one row for each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray

COLUMNS: dict[str, type[np.generic]] = {
    "start": np.int64,
    "length": np.int64,
    "agent_episodes": np.int64,
    "agents": np.int64,
    "regret": np.float64,
    "reward": np.float64,
    "value": np.float64,
    "askers": np.int64,
    "agent": np.int64,
    "step": np.int64,
    "state": np.int64,
    "action": np.int64,
    "rule": np.int64,
    "messages_up": np.int64,
    "messages_down": np.int64,
    "bytes_up": np.int64,
    "bytes_down": np.int64,
    "reward_sd": np.float64,
}
"""There is one record for each round. ``start`` is the number of episodes before it and ``length`` the number in it,
of the agent that has played most. ``agents`` is how many agents took part: M, unless some came later, were away or
have left. ``agent_episodes`` is the sum of their episodes (so many times the length where they stop together).
``regret`` and ``reward`` are sums over its episodes, averaged over the agents that took part. ``value`` is the value
of its policy for one episode, averaged over them, each in its own MDP. ``askers`` is the number of agents that
requested the synchronisation. ``agent``, ``step``, ``state``, ``action`` and ``rule`` (an index into the algorithm's
rules) describe the first of these requests; they are -1 in a round cut short, and under secure sums. ``reward_sd`` is
the standard deviation of an episode's reward over all episodes of the round whose rewards were observed, of all
agents together; NaN where they were not observed one by one, as in simulations, which count transitions."""


def columns_of(
    rows: Sequence[tuple[float, ...]], names: Mapping[str, type[np.generic]] = COLUMNS
) -> dict[str, npt.NDArray[Any]]:
    """Rows of records as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return {name: np.array(column, dtype=dtype) for (name, dtype), column in zip(names.items(), columns, strict=True)}


def episodes_per_agent(records: Mapping[str, npt.NDArray[Any]]) -> FloatArray:
    """Episodes per agent after each round: every round adds the mean over the agents that took part in it.

    While their number stays the same, the episodes of all of them are added up before they are divided.

    >>> rounds = {"agent_episodes": np.array([2, 2, 8]), "agents": np.array([2, 2, 4])}
    >>> episodes_per_agent(rounds).tolist()
    [1.0, 2.0, 4.0]
    """
    totals, agents = np.cumsum(records["agent_episodes"], dtype=np.int64), np.maximum(records["agents"], 1)
    ends = np.empty(len(totals))
    before, earlier = 0.0, 0
    changes = np.flatnonzero(np.diff(agents)) + 1
    for stretch in np.split(np.arange(len(totals)), changes) if len(totals) else ():
        ends[stretch] = before + (totals[stretch] - earlier) / agents[stretch]
        before, earlier = ends[stretch[-1]], totals[stretch[-1]]
    return ends


def rows_of(columns: Mapping[str, npt.NDArray[Any]]) -> list[tuple[float, ...]]:
    """Columns of records as rows: the inverse of :func:`columns_of`."""
    return [tuple(row) for row in zip(*(column.tolist() for column in columns.values()), strict=True)]
