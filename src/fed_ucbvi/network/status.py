"""How a federation over the network stands: for the live page, for metrics, for a line on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.wire_count import WireCount


class NodeStatus(NamedTuple):
    """One node.

    Attributes:
        name: as in its certificate.
        first_agent: the number of its first agent.
        agents: how many it hosts.
        connected: whether it has an open stream.
        status: ``taking part``, ``away``, ``excluded``, ``joining`` or ``left``, as the server decided.
        episodes: that its agents have played in rounds that count.
        latency: seconds from the last question to its answer; NaN before the first.
        wire: what its streams have carried since this server was started, without their first three messages.
    """

    name: str
    first_agent: int
    agents: int
    connected: bool
    status: str
    episodes: int
    latency: float
    wire: WireCount


class FederationStatus(NamedTuple):
    """A federation.

    Attributes:
        run: its identifier.
        secure_sums: whether summands are secret; then nothing about single nodes should be told to others.
        nodes: in the order of their agents.
        wire: what all streams have carried since this server was started.
        violations: how often a node has broken the rules since then.
        events: that were not planned, each with ``round``, ``node``, ``what`` and ``done``.
    """

    run: str
    secure_sums: bool
    nodes: tuple[NodeStatus, ...]
    wire: WireCount
    violations: int
    events: tuple[Mapping[str, Any], ...]


def status_of(run: Coordinator) -> FederationStatus:
    """How ``run`` stands now."""
    nodes = tuple(
        NodeStatus(
            member.name,
            member.first_agent,
            member.agents,
            member.stream is not None,
            member.status,
            member.episodes,
            member.latency,
            member.wire,
        )
        for member in run.registry.everyone
    )
    plan, records = run.plan, run.records
    return FederationStatus(
        plan.run, plan.secure_sums, nodes, run.registry.wire, run.violations, tuple(records.events)
    )
