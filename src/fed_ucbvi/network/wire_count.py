"""Messages and bytes that were really sent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class WireCount:
    """Messages and bytes that were really sent, gRPC's own headers included, TLS and TCP not."""

    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
