"""An estimate of the bytes that a run with secure sums sends, before its first round.

Masked numbers are random. So every report lists all transitions that are possible, whether they were seen or not,
and cannot be compressed. What is counted as in the paper can be smaller by orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fed_ucbvi.algorithms.communication import size
from fed_ucbvi.core.numbers import byte_count
from fed_ucbvi.network.members import Member
from fed_ucbvi.network.network_engine import NetworkEngine
from fed_ucbvi.network.registry import NodeRegistry
from fed_ucbvi.network.run_plan import RunPlan

ENTRY_BYTES = 190
"""Bytes of a node's entry in a roster beside its certificate: a signature, digests, a key and numbers."""


@dataclass(frozen=True)
class TrafficEstimate:
    """Bytes of a run with secure sums.

    Attributes:
        report: bytes of one node's masked report of counts and rewards.
        up: bytes to the server per round with a synchronisation.
        down: bytes to the nodes per round with a synchronisation, before compression.
        rounds: the most rounds that the run can have.
    """

    report: int
    up: int
    down: int
    rounds: int

    @classmethod
    def of(cls, registry: NodeRegistry) -> TrafficEstimate:
        """The estimate for the nodes that have joined."""
        plan = registry.plan
        members = registry.present
        report = registry.report_schema.masked_bytes()
        return cls(
            report=report,
            up=len(members) * report,
            down=len(members) * (_start(plan, registry.engine) + _roster(members)),
            rounds=_most_rounds(plan),
        )

    @property
    def total(self) -> int:
        """Bytes both ways if every round that can be has a synchronisation."""
        return self.rounds * (self.up + self.down)

    def __str__(self) -> str:
        return (
            f"secure sums: a masked report has {byte_count(self.report)}, whatever was seen; a round with a "
            f"synchronisation takes about {byte_count(self.up)} up and {byte_count(self.down)} down, and "
            f"{self.rounds:,} rounds, the most there can be, about {byte_count(self.total)} in all"
        )


def _start(plan: RunPlan, engine: NetworkEngine) -> int:
    """Bytes of the broadcast that begins a round."""
    return size(plan.algorithm.broadcast(engine.server))


def _roster(members: Sequence[Member]) -> int:
    """Bytes of a roster of all these nodes."""
    return sum(len(member.certificate) + ENTRY_BYTES for member in members)


def _most_rounds(plan: RunPlan) -> int:
    """A round has at least one episode, and no fewer than the algorithm's rule demands."""
    episodes = plan.setting.episodes
    rule = plan.algorithm.synchronisation_rule(plan.setting)
    growth = 0.0 if rule is None else rule.min_round_growth
    if growth == 0.0:
        return episodes
    return min(episodes, math.floor(2 + math.log(episodes) / math.log1p(growth)))
