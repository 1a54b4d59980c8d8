"""The nodes of a federation, as a page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.unknown import none_for_nan

if TYPE_CHECKING:
    from fed_ucbvi.network.status import FederationStatus, NodeStatus

PRESENT, AWAY, EXCLUDED, EXPECTED = STATES = ("present", "away", "excluded", "expected")
"""Present: it has an open stream and takes part. Expected: it has not come yet."""
MOST_NODES = 200
"""So many are listed: first those that are not present."""
MOST_EVENTS = 100
"""The latest of them."""


def state_of(node: NodeStatus) -> str:
    """One of :data:`STATES`."""
    if node.status == EXCLUDED:
        return EXCLUDED
    return PRESENT if node.connected and node.status != AWAY else AWAY


def federation_parts(status: FederationStatus, expected: Sequence[str]) -> dict[str, Any]:
    """Nodes, what the network has carried, and events, ready for JSON.

    Under secure sums a node has a name and a state, and nothing else.
    """
    come = {node.name for node in status.nodes}
    rows: list[dict[str, Any]] = []
    for node in status.nodes:
        row: dict[str, Any] = {"name": node.name, "state": state_of(node)}
        if not status.secure_sums:
            row |= {
                "first_agent": node.first_agent,
                "agents": node.agents,
                "episodes": node.episodes,
                "latency": none_for_nan(node.latency),
                "bytes_up": node.wire.bytes_up,
                "bytes_down": node.wire.bytes_down,
            }
        rows.append(row)
    rows += [{"name": name, "state": EXPECTED} for name in expected if name not in come]
    counts = {state: sum(row["state"] == state for row in rows) for state in STATES}
    if len(rows) > MOST_NODES:
        rows = sorted(rows, key=lambda row: row["state"] == PRESENT)[:MOST_NODES]
    latencies = [node.latency for node in status.nodes if node.connected and node.latency == node.latency]
    network = {
        "run": status.run,
        "secure_sums": status.secure_sums,
        "nodes": counts,
        "bytes_up": status.wire.bytes_up,
        "bytes_down": status.wire.bytes_down,
        "messages": status.wire.messages_up + status.wire.messages_down,
        "latency": sum(latencies) / len(latencies) if latencies else None,
        "violations": status.violations,
    }
    events = [dict(event) for event in status.events[-MOST_EVENTS:]]
    return {"nodes": rows, "network": network, "events": events}
