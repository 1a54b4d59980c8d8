"""The records of a run: one row a round."""

from __future__ import annotations

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
}
"""One record a round. ``start`` counts the episodes before it and ``length`` those in it, of the agent that has
played most; ``agent_episodes`` adds up all agents' (M times the length where they stop together). ``regret`` and
``reward`` are sums over its episodes, averaged over agents; ``value`` is what its policy is worth in one episode,
in the agents' own MDPs and averaged over them; who asked is -1 in a round cut short, and under secure sums; ``rule``
is an index into the algorithm's rules."""


def columns_of(
    rows: Sequence[tuple[float, ...]], names: Mapping[str, type[np.generic]] = COLUMNS
) -> dict[str, npt.NDArray[Any]]:
    """Rows of records as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return {name: np.array(column, dtype=dtype) for (name, dtype), column in zip(names.items(), columns, strict=True)}


def rows_of(columns: Mapping[str, npt.NDArray[Any]]) -> list[tuple[float, ...]]:
    """Columns as rows: the inverse."""
    return [tuple(row) for row in zip(*(column.tolist() for column in columns.values()), strict=True)]
