"""Rewards in an environment's own units, and rescaled to [0, 1] as the algorithms need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Units:
    """One step's reward: ``original = offset + scale * ours``; a return over H steps: ``H offset + scale ours``.

    The second holds for episodes that end early too: an absorbing state pays 0 in the original units, which is
    ``(0 - offset) / scale`` in ours.

    >>> taxi = Units(offset=-10.0, scale=30.0)
    >>> taxi.rescaled(-1.0), taxi.original_return(8.5, horizon=25)
    (0.3, 5.0)
    """

    offset: float = 0.0
    scale: float = 1.0

    @classmethod
    def spanning(cls, low: float, high: float) -> Units:
        """The units in which ``[low, high]`` becomes ``[0, 1]``; a constant reward becomes 0."""
        return cls(low, high - low if high > low else 1.0)

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Units:
        """Those in the description of an environment; most environments pay rewards in [0, 1] as they are."""
        return cls(float(description.get("reward_offset", 0.0)), float(description.get("reward_scale", 1.0)))

    def description(self) -> dict[str, float]:
        """The inverse of :meth:`of`; empty where rewards are in [0, 1] as they are."""
        return {} if self == Units() else {"reward_offset": self.offset, "reward_scale": self.scale}

    def __str__(self) -> str:
        """What a step may pay."""
        return f"{self.offset:.12g} to {self.offset + self.scale:.12g}"

    def rescaled(self, reward: float) -> float:
        """One step's reward in our units."""
        return (reward - self.offset) / self.scale

    def original_return(self, value: float, horizon: int) -> float:
        """What a return, or a value, over ``horizon`` steps is in the original units."""
        return horizon * self.offset + self.scale * value

    def rescaled_return(self, value: float, horizon: int) -> float:
        """The inverse of :meth:`original_return`."""
        return (value - horizon * self.offset) / self.scale
