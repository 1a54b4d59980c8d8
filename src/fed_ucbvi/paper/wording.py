"""How figures are put into words, the same way in every verdict, title and caption."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fed_ucbvi.core.text import shortened
from fed_ucbvi.paper.judging import Comparison

MINUS = "\N{MINUS SIGN}"


def eps_text(eps_p: float) -> str:
    """How a heterogeneity is written.

    >>> eps_text(0.316228)
    'εₚ = 0.32'
    """
    return f"εₚ = {eps_p:.2g}"


def range_text(numbers: Sequence[float], digits: int = 2) -> str:
    """The least and the largest of some numbers.

    >>> range_text([0.25, 0.5]), range_text([2.0])
    ('0.25 to 0.50', '2.00')
    """
    low, high = signed(min(numbers), digits), signed(max(numbers), digits)
    return low if low == high else f"{low} to {high}"


def signed(number: float, digits: int = 2) -> str:
    """A number with a proper minus sign."""
    return f"{number:.{digits}f}".replace("-", MINUS)


def answers_text(found: Sequence[Comparison]) -> str:
    """In how many cells the answer is yes, and in how many it is open.

    >>> answers_text([Comparison(True, True, 5, None, False), Comparison(None, True, 5, 40, False)])
    'in 1 of 2 cells (1 open)'
    """
    yes, open_ = sum(one.answer is True for one in found), sum(one.open for one in found)
    return f"in {yes} of {len(found)} cells" + (f" ({open_} open)" if open_ else "")


MAX_CHARACTERS = 40
"""Longer values of options are cut."""


def differing(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of options that are not the same in all.

    >>> differing([{"states": 5, "actions": 2}, {"states": 9, "actions": 2}])
    ['states']
    """
    names = dict.fromkeys(name for one in several for name in one)
    return [name for name in names if len({json.dumps(one.get(name), sort_keys=True) for one in several}) > 1]


def value_text(value: Any) -> str:
    """The value of an option, cut if it is long."""
    text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return shortened(text, MAX_CHARACTERS)
