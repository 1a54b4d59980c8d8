"""The nodes of a federation, as a page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.unknown import none_for_nan

if TYPE_CHECKING:
    from fed_ucbvi.network.status import FederationStatus

PRESENT, FINISHED, *_ = STATES = ("present", "finished", "away", "excluded", "left")
"""What a node of a :class:`~fed_ucbvi.network.status.FederationStatus` can be."""
EXPECTED = "expected"
"""It has not come yet."""
MOST_NODES = 200
"""So many are listed: first those that are neither present nor finished."""
MOST_EVENTS = 100
"""The latest of them."""


def federation_parts(status: FederationStatus, expected: Sequence[str]) -> dict[str, Any]:
    """Nodes, what the network has carried, and events, ready for JSON.

    Under secure sums a node has a name and a state, and nothing else.
    """
    come = {node.name for node in status.nodes}
    rows: list[dict[str, Any]] = []
    for node in status.nodes:
        row: dict[str, Any] = {"name": node.name, "state": node.state}
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
    counts = {state: sum(row["state"] == state for row in rows) for state in (*STATES, EXPECTED)}
    if len(rows) > MOST_NODES:
        rows = sorted(rows, key=lambda row: row["state"] in (PRESENT, FINISHED))[:MOST_NODES]
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
