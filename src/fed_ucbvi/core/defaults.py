"""The algorithm and the environment that commands and nodes use if none is named."""

from __future__ import annotations

ALGORITHM = "fed-kl-ucbvi"
ENVIRONMENT = "gridworld"
