"""What reports look like, learnt from an agent that has seen nothing, and what replaces those of absent agents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import SUMS, FleetTables, Message, added_up
from fed_ucbvi.algorithms.fields import Meaning, meanings_of
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.rewards import RewardGrid
from fed_ucbvi.network.run_plan import LIVE, RunPlan


class ReportField(NamedTuple):
    """One array of a report: name, shape without the leading axis of agents, type, and what it means."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    meaning: Meaning | None


class ReportSchema:
    """One agent without experience, on the server's side. It needs no problem, because it never plays.

    It stands in for agents whose node is away. If reports are about everything seen so far (``VISITS_SO_FAR``), the
    node's last report is used instead. A report about a single round is never used twice.
    """

    def __init__(self, plan: RunPlan, server: Any) -> None:
        setting, self._plan = plan.setting, plan
        self.agents: Any = plan.algorithm.new_agents(setting, FleetTables.placeholder(setting))
        self.forms: list[tuple[ReportField, ...]] = []
        for exchange in range(plan.exchanges):
            report = self._blank(plan.algorithm.query(server, exchange), exchange)
            names = getattr(report, "_fields", tuple(f"array {i}" for i in range(len(report))))
            meanings = meanings_of(type(report))
            self.forms.append(
                tuple(
                    ReportField(name, array.shape[1:], array.dtype, meanings.get(name))
                    for name, array in zip(names, report, strict=True)
                )
            )
        used = {form.meaning for forms in self.forms for form in forms}
        self._lasting = Meaning.VISITS_SO_FAR in used
        self.does_without = bool(used & {Meaning.VISITS_SO_FAR, Meaning.VISITS_OF_ROUND, Meaning.NEW_TRANSITIONS})
        """Whether the others can go on without some agents."""
        if plan.collection == LIVE and setting.agents > 1 and plan.algorithm.sends_trajectories:
            raise InputError(
                f"{plan.algorithm.name} needs one episode of every agent in every round; in a live collection nodes "
                "stop where they are. Use lockstep, or an algorithm that reports counts."
            )
        if (plan.rules.away != "wait" or plan.rules.violation != "stop") and not self.does_without:
            raise InputError(
                f"{plan.algorithm.name} needs all its agents; wait for nodes that are away, and stop at violations."
            )

    def largest(self, agents: int) -> int:
        """Bytes of the largest report of so many agents, with what the round paid and where it began."""
        report = max(sum(int(np.prod(form.shape)) * form.dtype.itemsize for form in forms) for forms in self.forms)
        return agents * report + 8 * RewardGrid.of(self._plan.setting).numbers

    def instead(self, member: Member, query: Message, exchange: int, *, planning: bool) -> Message:
        """What replaces the report of a node that is not heard.

        Of one that is away: its last report, which is about the server's values, not about a planner's. Otherwise
        what agents report that have seen nothing.
        """
        last = member.reports.get(exchange)
        if last is not None and self._lasting and not member.out and not planning:
            return last
        rows = tuple(np.repeat(array, member.agents, axis=0) for array in self._blank(query, exchange))
        return added_up(rows) if self._plan.algorithm.report_kind == SUMS else rows

    def _blank(self, query: Message, exchange: int) -> Message:
        """What one agent reports that has seen nothing."""
        algorithm = self._plan.algorithm
        if algorithm.server_counts:
            return self._plan.listed(algorithm.new_counts(self.agents, ()))
        return algorithm.report(self.agents, query, exchange)

    @staticmethod
    def assemble(rows: list[Message]) -> Message:
        return tuple(np.concatenate(arrays) for arrays in zip(*rows, strict=True))
