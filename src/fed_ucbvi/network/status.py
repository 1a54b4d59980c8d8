"""How a federation over the network stands: for the live page, for metrics, for a line on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.members import AWAY, Member
from fed_ucbvi.network.wire_count import WireCount


class NodeStatus(NamedTuple):
    """One node.

    Attributes:
        name: as in its certificate.
        first_agent: the number of its first agent.
        agents: how many it hosts.
        connected: whether it has an open stream.
        state: ``present`` (it takes part, or will from the next round on, and is connected), ``away``, ``excluded``,
            ``left`` (for good) or ``finished`` (it has heard of the end of the run).
        episodes: that its agents have played in rounds that count.
        latency: seconds from the last question to its answer; NaN before the first.
        wire: what its streams have carried since this server was started, without their first three messages.
    """

    name: str
    first_agent: int
    agents: int
    connected: bool
    state: str
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
            _state(member, finished=member.name in run.registry.told),
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


def _state(member: Member, *, finished: bool) -> str:
    if member.out:
        return member.status
    if finished:
        return "finished"
    return "present" if member.stream is not None and member.status != AWAY else "away"
