"""Extending a run: more episodes than planned, or a start from the counts of an earlier run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fed_ucbvi.algorithms.base import Algorithm, Counting, Setting
from fed_ucbvi.algorithms.count_reporting import counted_setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import InputError

PLANNED = ("episodes", "grid_bits")
"""Fields of a setting that may differ from those with which a run was begun."""


def extended_setting(algorithm: Algorithm[Any, Any], before: Setting, episodes: int) -> Setting:
    """The setting of a run that continues until each agent has played ``episodes`` episodes in all.

    Bonuses, thresholds and budgets are those of the new setting from here on. Exact sums keep the bits of their grid,
    so that earlier sums stay exact.

    Raises:
        InputError: if the number of episodes is smaller, the algorithm does not allow it, or the grid has no room.
    """
    if episodes < before.episodes:
        raise InputError(
            f"the run was begun, or has gone on, with {before.episodes:,} episodes; it cannot continue with "
            f"{episodes:,}."
        )
    if episodes == before.episodes:
        return before
    if algorithm.extension.episodes:
        raise InputError(
            f"{algorithm.name} cannot be extended with more episodes than planned: {algorithm.extension.episodes}."
        )
    grid = algorithm.grid(before)
    bits = 0 if grid is None else grid.bits
    after = replace(before, episodes=episodes, grid_bits=bits)
    algorithm.grid(after)  # raises where there is no room
    return after


def warm_setting(algorithm: Algorithm[Any, Any], setting: Setting, counts: CountTable) -> tuple[Setting, CountTable]:
    """The setting of a run that starts from counts, and these counts in the form of the algorithm.

    Raises:
        InputError: if the algorithm cannot start from counts, or these do not fit.
    """
    if algorithm.grid(setting) is None or algorithm.extension.warm_start:
        reason = algorithm.extension.warm_start or "it takes the report of each agent by itself"
        raise InputError(f"{algorithm.name} cannot start from the counts of an earlier run: {reason}.")
    stationary = algorithm.counting is Counting.STATIONARY
    counted = counted_setting(algorithm, setting)
    sizes = counted.states, counted.actions, counted.horizon
    counts.check_fits(sizes, stationary=stationary)
    if stationary and len(counts.visits) > 1:
        counts = counts.over_all_steps()
    warm = replace(setting, earlier_visits=counts.most)
    return warm, counts
