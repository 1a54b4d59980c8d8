"""Going on with a run otherwise than planned: more episodes, more agents, or from the counts of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import SUMS, Algorithm, Counting, Message, Setting, exchange_messages
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.core.errors import InputError

PLANNED = ("episodes", "agents", "grid_bits")
"""What of a setting may differ from that with which a run was begun."""


def planned(setting: Setting) -> dict[str, int]:
    """What a saved state says of them."""
    return {name: getattr(setting, name) for name in PLANNED}


def planned_in(about: Mapping[str, Any]) -> dict[str, int]:
    """The same, from a saved state."""
    return {name: int(about["planned"][name]) for name in PLANNED}


def grown(
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
        ("episodes", T, before.episodes, algorithm.going_on.episodes),
        ("agents", M, before.agents, algorithm.going_on.agents),
    ):
        if now < was:
            raise InputError(f"the run was begun, or has gone on, with {was:,} {name}; it cannot go on with {now:,}.")
        if now > was and reason:
            raise InputError(f"{algorithm.name} cannot go on with more {name} than planned: {reason}.")
    if (before.episodes, before.agents) == (T, M):
        return before
    grid = algorithm.grid(before) or algorithm.reward_grid(before)
    after = replace(before, episodes=T, agents=M, grid_bits=0 if grid is None else grid.bits)
    algorithm.grid(after)  # raises where there is no room
    return after


class EarlierRun:
    """The counts that a run starts from, and the agents that report them.

    Args:
        algorithm: the run's.
        setting: of the run, with the visits that the counts bring along.
        counts: as the run counts.
    """

    def __init__(self, algorithm: Algorithm[Any, Any], setting: Setting, counts: Counts) -> None:
        self.counts = counts
        self._algorithm, self._setting = algorithm, setting
        self._agents = algorithm.earlier_agents(setting, counts)

    def begin(self, server: Any) -> None:
        """Put a server that knows nothing yet where the counts lead."""
        exchange_messages(self._algorithm, server, self._agents, self._setting)

    def report(self, query: Message, exchange: int) -> Message:
        """Their row of an exchange."""
        return self._algorithm.report(self._agents, query, exchange)

    @property
    def model(self) -> Message:
        """Their row where counts are exchanged."""
        model: Message = self._agents.model
        return model

    def synchronise(self, server: Any, agents: Any) -> None:
        """All exchanges of ``agents`` and of those of the earlier run with a server, or a planner."""
        algorithm = self._algorithm
        for exchange in range(algorithm.exchanges(self._setting)):
            query = algorithm.query(server, exchange)
            rows = algorithm.report(agents, query, exchange), self.report(query, exchange)
            algorithm.aggregate(server, beside(rows), exchange)


def beside(rows: tuple[Message, ...]) -> Message:
    """Reports one below the other."""
    return tuple(np.concatenate(arrays) for arrays in zip(*rows, strict=True))


def warmed(algorithm: Algorithm[Any, Any], setting: Setting, counts: Counts) -> tuple[Setting, Counts]:
    """The setting of a run that starts from counts, and the counts as it counts; raise where it cannot start so."""
    if algorithm.takes != SUMS or algorithm.going_on.warm_start:
        reason = algorithm.going_on.warm_start or "it takes the report of each agent by itself"
        raise InputError(f"{algorithm.name} cannot start from the counts of an earlier run: {reason}.")
    stationary = algorithm.counting is Counting.STATIONARY
    told = counts.fitting(setting, stationary=stationary, squares=not algorithm.server_counts)
    return replace(setting, earlier_visits=told.most), told


def counts_of_run(algorithm: Algorithm[Any, Any], setting: Setting, server: Any, agents: Any) -> Counts:
    """What the agents of a run have counted, for a later run; raise where no run can start from it."""
    if algorithm.going_on.warm_start:
        raise InputError(f"no run can start from the counts of {algorithm.name}: {algorithm.going_on.warm_start}.")
    counts: Counts
    if algorithm.server_counts:
        everything = algorithm.new_planner(setting, server)  # a copy, to which what was not reported yet is added
        algorithm.synchronise(everything, agents)
        counts = algorithm.counts_of(setting, everything)
    else:
        counts = algorithm.counts(setting, algorithm.model(agents))
    return counts
