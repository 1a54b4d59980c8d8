"""Indices into tables that have one row for all steps (*stationary*) or for all agents, and special entries."""

from __future__ import annotations

from fed_ucbvi.core.compiling import embedded
from fed_ucbvi.core.types import FloatArray

UNREACHABLE = 1 << 59
"""Budget that no number of visits reaches. A robust server ignores an agent all of whose budgets have this value."""


@embedded
def shared(index: int, length: int) -> int:
    """An index into an axis of steps, or agents, that has length one where all of them have the same."""
    return index if length > 1 else 0


@embedded
def reward_at(i: int, h: int, s: int, a: int, rewards: FloatArray) -> float:
    """The reward of agent i at (h,s,a)."""
    h_of_table = shared(h, rewards.shape[1])
    return float(rewards[shared(i, rewards.shape[0]), h_of_table, s, a])
