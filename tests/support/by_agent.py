"""Simulations in which every agent keeps its own transition counts, to compare pooled ones with."""

from __future__ import annotations

from typing import Any

from fed_ucbvi.engine.simulation import Simulation


class ByAgent(Simulation):
    """A simulation that pools nothing, even where the algorithm would allow it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, apart=True, **options)
