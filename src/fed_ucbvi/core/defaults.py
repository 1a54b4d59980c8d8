"""What commands and nodes take when nobody says: an algorithm and an environment."""

from __future__ import annotations

ALGORITHM = "fed-ucbvi"
ENVIRONMENT = "gridworld"
