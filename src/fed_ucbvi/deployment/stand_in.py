"""An agent that has seen nothing: what messages look like, and what stands in for agents that are not there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import FleetTables, Message
from fed_ucbvi.deployment.members import Member
from fed_ucbvi.deployment.plan import Plan


class Form(NamedTuple):
    """One array of a report: its name, its shape without the leading axis of agents, and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class StandIn:
    """One agent without experience on the server's side; it needs no problem, for it has been nowhere."""

    def __init__(self, plan: Plan, server: Any) -> None:
        setting, self._algorithm = plan.setting, plan.algorithm
        S, A = setting.states, setting.actions
        tables = FleetTables(1, np.zeros((1, S, A, 1), dtype=np.int32), np.zeros((1, 1, S, A)))
        self.agents: Any = plan.algorithm.new_agents(setting, tables)
        self.forms: list[tuple[Form, ...]] = []
        for exchange in range(plan.algorithm.exchanges(setting)):
            report = plan.algorithm.report(self.agents, plan.algorithm.query(server, exchange), exchange)
            names = getattr(report, "_fields", tuple(f"array {i}" for i in range(len(report))))
            forms = (Form(name, array.shape[1:], array.dtype) for name, array in zip(names, report, strict=True))
            self.forms.append(tuple(forms))

    def report(self, member: Member, query: Message, exchange: int) -> Message:
        """What the server takes for the report of a node that is away."""
        last = member.reports.get(exchange)
        if last is not None:
            return last
        blank = self._algorithm.report(self.agents, query, exchange)
        return tuple(np.repeat(array, member.agents, axis=0) for array in blank)

    @staticmethod
    def assemble(rows: list[Message]) -> Message:
        """The nodes' reports, one below the other."""
        return tuple(np.concatenate(arrays) for arrays in zip(*rows, strict=True))
