"""Numbers: brackets, those that are unknown, and how people write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Bracket(NamedTuple):
    """``lower <= x <= upper``; the two are equal where x is known up to rounding, and NaN where nothing is.

    >>> Bracket(1.0, 1.5).exact, str(Bracket(1234.5, 1234.5)), str(Bracket(301.204, 303.9))
    (False, '1,234.50 (exact)', '[301.20, 303.90]')
    """

    lower: float
    upper: float

    @property
    def exact(self) -> bool:
        return self.lower == self.upper

    def __str__(self) -> str:
        if self.lower != self.lower:
            return "unknown"
        if self.exact:
            return f"{self.lower:,.2f} (exact)"
        return f"[{self.lower:,.2f}, {self.upper:,.2f}]"

    def summary(self) -> dict[str, float | bool]:
        return {"lower": self.lower, "upper": self.upper, "exact": self.exact}


def none_for_nan(content: Any) -> Any:
    """The content with None for every NaN, which marks unknown figures and cannot be written as JSON."""
    if isinstance(content, Mapping):
        return {key: none_for_nan(entry) for key, entry in content.items()}
    if isinstance(content, tuple):
        return [none_for_nan(entry) for entry in content]
    if isinstance(content, float) and math.isnan(content):
        return None
    return content


def nan_for_none(entry: float | None) -> float:
    """The inverse, for one number."""
    return math.nan if entry is None else float(entry)


def short(value: float) -> str:
    """A number beside an axis.

    >>> short(20), short(0.05), short(30_000), short(1e6), short(3e8), short(2.5e-7)
    ('20', '0.05', '30,000', '10⁶', '3×10⁸', '2.5×10⁻⁷')
    """
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return power_of_ten(value)


def number(value: float) -> str:
    """A number in a title or a label: whole from 100 on, three digits below; NaN is unknown.

    >>> number(312.04), number(46.31), number(30_000), number(10**9), number(2_345_678), number(float("nan"))
    ('312', '46.3', '30,000', '10⁹', '2.346×10⁶', 'unknown')
    """
    if math.isnan(value):
        return "unknown"
    return short(round(value) if abs(value) >= 100 else float(f"{value:.3g}"))


def number_text(figure: float) -> str:
    """A number in at most six digits, with commas; NaN is unknown.

    >>> number_text(30_000), number_text(0.19999999999999996), number_text(12345.678), number_text(float("nan"))
    ('30,000', '0.2', '12,345.7', 'unknown')
    """
    if figure != figure:
        return "unknown"
    if abs(figure) < 1e6 and not isinstance(figure, int):
        return f"{figure:,.6g}"
    return f"{figure:,.0f}"


def power_of_ten(value: float) -> str:
    """A number by its power of ten.

    >>> power_of_ten(1), power_of_ten(10), power_of_ten(1e5), power_of_ten(2e-3)
    ('1', '10', '10⁵', '2×10⁻³')
    """
    digits, power = f"{value:.3e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    if int(power) in (0, 1):
        return f"{value:.4g}"
    raised = str(int(power)).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    if digits == "1":
        return f"10{raised}"
    return f"{digits}\N{MULTIPLICATION SIGN}10{raised}"


def byte_count(count: int) -> str:
    """So many bytes.

    >>> byte_count(800), byte_count(157_700_000), byte_count(2_000_000_000)
    ('800 bytes', '158 MB', '2 GB')
    """
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
