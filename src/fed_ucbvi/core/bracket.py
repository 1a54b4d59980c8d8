"""A number known to lie between two others."""

from __future__ import annotations

from typing import NamedTuple


class Bracket(NamedTuple):
    """``lower <= x <= upper``; the two are equal where x is known up to rounding, and NaN where nothing is.

    >>> Bracket(1.0, 1.5).exact, str(Bracket(1234.5, 1234.5)), str(Bracket(301.204, 303.9))
    (False, '1,234.50 (exact)', '[301.20, 303.90]')
    """

    lower: float
    upper: float

    @property
    def exact(self) -> bool:
        """Whether nothing is left between the two."""
        return self.lower == self.upper

    def __str__(self) -> str:
        if self.lower != self.lower:
            return "unknown"
        return f"{self.lower:,.2f} (exact)" if self.exact else f"[{self.lower:,.2f}, {self.upper:,.2f}]"

    def summary(self) -> dict[str, float | bool]:
        """The same for JSON."""
        return {"lower": self.lower, "upper": self.upper, "exact": self.exact}
