"""The records of a run: one row for each round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

COLUMNS: dict[str, type[np.generic]] = {
    "start": np.int64,
    "length": np.int64,
    "agent_episodes": np.int64,
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
of the agent that has played most. ``agent_episodes`` is the sum over agents (M times the length where they stop
together). ``regret`` and ``reward`` are sums over its episodes, averaged over agents. ``value`` is the value of its
policy for one episode, averaged over agents, each in its own MDP. ``askers`` is the number of agents that requested
the synchronisation. ``agent``, ``step``, ``state``, ``action`` and ``rule`` (an index into the algorithm's rules)
describe the first of these requests; they are -1 in a round cut short, and under secure sums. ``reward_sd`` is the
standard deviation of an episode's reward over all episodes of the round whose rewards were observed, of all agents
together; NaN where they were not observed one by one, as in simulations, which count transitions."""


def columns_of(
    rows: Sequence[tuple[float, ...]], names: Mapping[str, type[np.generic]] = COLUMNS
) -> dict[str, npt.NDArray[Any]]:
    """Rows of records as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return {name: np.array(column, dtype=dtype) for (name, dtype), column in zip(names.items(), columns, strict=True)}


def completed(row: tuple[float, ...]) -> tuple[float, ...]:
    """A row as it is now; those of earlier versions end before ``reward_sd``."""
    return (*row, *(math.nan,) * (len(COLUMNS) - len(row)))


def rows_of(columns: Mapping[str, npt.NDArray[Any]]) -> list[tuple[float, ...]]:
    """Columns of records as rows: the inverse of :func:`columns_of`."""
    return [tuple(row) for row in zip(*(column.tolist() for column in columns.values()), strict=True)]
