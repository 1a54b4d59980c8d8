"""Units of rewards: an environment's own, and rescaled to [0, 1] as the algorithms need them.

Algorithms, checkpoints and messages have rescaled values. A :class:`~fed_ucbvi.results.run.Run`, printed tables and
figures are in the environment's own units; ``Run.in_units`` converts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fed_ucbvi.core.types import FloatArray

ValueT = TypeVar("ValueT", float, FloatArray)

OWN_UNITS = "own"
PER_STEP = "per step in [0, 1]"
UNITS = (OWN_UNITS, PER_STEP)
"""Units of figures, by the names that users pass."""


@dataclass(frozen=True)
class Units:
    """Conversion from rescaled rewards to an environment's own units.

    One step's reward is ``offset + scale * rescaled``, and a return over H steps ``H offset + scale * rescaled``. The
    second holds for episodes that end early too: an absorbing state pays 0 in own units, ``(0 - offset) / scale``.

    Attributes:
        offset: least reward of a step, in own units.
        scale: width of the range of rewards of a step, in own units.

    >>> taxi = Units(offset=-10.0, scale=30.0)
    >>> taxi.rescaled(-1.0), taxi.original_return(8.5, horizon=25), taxi.original_difference(0.5)
    (0.3, 5.0, 15.0)
    """

    offset: float = 0.0
    scale: float = 1.0

    @classmethod
    def spanning(cls, low: float, high: float) -> Units:
        """Units in which ``[low, high]`` becomes ``[0, 1]``; a constant reward becomes 0."""
        return cls(low, high - low if high > low else 1.0)

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Units:
        """Units in the description of an environment; most environments pay rewards in [0, 1] as they are."""
        return cls(
            float(description.get("reward_offset", 0.0)),
            float(description.get("reward_scale", 1.0)),
        )

    def description(self) -> dict[str, float]:
        """The inverse of :meth:`of`; empty where rewards are in [0, 1] as they are."""
        if self == Units():
            return {}
        return {"reward_offset": self.offset, "reward_scale": self.scale}

    def __str__(self) -> str:
        """Range of a step's reward."""
        return f"{self.offset:.12g} to {self.offset + self.scale:.12g}"

    @property
    def shares(self) -> bool:
        """True if a share of a value is meaningful: no reward is negative, so that 0 is the least there is."""
        return self.offset >= 0

    def inverse(self) -> Units:
        """The conversion from own units to rescaled rewards."""
        return Units(-self.offset / self.scale, 1.0 / self.scale)

    # --------------------------------------------------------------------------------------------------- to own units

    def original(self, reward: ValueT) -> ValueT:
        """One step's reward in own units."""
        return self.offset + self.scale * reward

    def original_return(self, value: ValueT, horizon: float) -> ValueT:
        """A return, or a value, over ``horizon`` steps in own units; the number of steps may be a mean."""
        return horizon * self.offset + self.scale * value

    def original_difference(self, difference: ValueT) -> ValueT:
        """A difference of rewards, of returns or of values, such as regret, in own units; also a deviation."""
        return self.scale * difference

    # ------------------------------------------------------------------------------------------------- from own units

    def rescaled(self, reward: ValueT) -> ValueT:
        """One step's reward, rescaled."""
        return (reward - self.offset) / self.scale

    def rescaled_return(self, value: ValueT, horizon: float) -> ValueT:
        """The inverse of :meth:`original_return`."""
        return (value - horizon * self.offset) / self.scale

    def rescaled_difference(self, difference: ValueT) -> ValueT:
        """The inverse of :meth:`original_difference`."""
        return difference / self.scale
