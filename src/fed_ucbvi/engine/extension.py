"""Extending a run: more episodes or agents than planned, or a start from the counts of an earlier run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fed_ucbvi.algorithms.base import Algorithm, Counting, Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import InputError

PLANNED = ("episodes", "agents", "grid_bits")
"""What of a setting may differ from that with which a run was begun."""


def extended_setting(
    algorithm: Algorithm[Any, Any], before: Setting, *, episodes: int | None = None, agents: int | None = None
) -> Setting:
    """The setting of a run that goes on with more episodes or agents than planned; by default as before.

    Bonuses, thresholds and budgets are those of the new setting from here on. Exact sums keep the bits of their grid,
    so that what lies on it stays where it is.

    Raises:
        InputError: if there would be fewer, or the algorithm does not allow it, or the grid has no room.
    """
    T, M = episodes or before.episodes, agents or before.agents
    for name, now, was, reason in (
        ("episodes", T, before.episodes, algorithm.extension.episodes),
        ("agents", M, before.agents, algorithm.extension.agents),
    ):
        if now < was:
            raise InputError(
                f"the run was begun, or has gone on, with {was:,} {name}; it cannot continue with {now:,}."
            )
        if now > was and reason:
            raise InputError(f"{algorithm.name} cannot be extended with more {name} than planned: {reason}.")
    if (before.episodes, before.agents) == (T, M):
        return before
    grid = algorithm.grid(before) or algorithm.reward_grid(before)
    after = replace(before, episodes=T, agents=M, grid_bits=0 if grid is None else grid.bits)
    algorithm.grid(after)  # raises where there is no room
    return after


def warm_setting(algorithm: Algorithm[Any, Any], setting: Setting, counts: CountTable) -> tuple[Setting, CountTable]:
    """The setting of a run that starts from counts, and the counts as it counts; raise where it cannot start so."""
    if algorithm.grid(setting) is None or algorithm.extension.warm_start:
        reason = algorithm.extension.warm_start or "it takes the report of each agent by itself"
        raise InputError(f"{algorithm.name} cannot start from the counts of an earlier run: {reason}.")
    stationary = algorithm.counting is Counting.STATIONARY
    by_slot = setting.random_rewards and algorithm.rewards_by_state
    counts.check_fits((setting.states, setting.actions, setting.horizon), stationary=stationary, by_slot=by_slot)
    told = counts.over_all_steps() if stationary and len(counts.visits) > 1 else counts
    return replace(setting, earlier_visits=told.most), told
