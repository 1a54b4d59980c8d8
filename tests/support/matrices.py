"""Matrices of cases: ``make test`` runs a part of each, and ``make test-all`` the rest, which is marked *full*."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def in_turn(rows: Iterable[Sequence[Any]], last: Sequence[Any]) -> list[Any]:
    """Every row with every value of ``last``; ``make test`` takes one of them for each row, all in turn."""
    return [
        pytest.param(
            *row,
            value,
            marks=() if (turn + number) % len(last) == 0 else pytest.mark.full,
        )
        for turn, row in enumerate(rows)
        for number, value in enumerate(last)
    ]


def every_third(number: int) -> list[Any]:
    """The numbers below ``number``; ``make test`` takes every third of them."""
    return [pytest.param(k, marks=() if k % 3 == 0 else pytest.mark.full) for k in range(number)]


def first_of(cases: Sequence[Any], number: int = 1) -> list[Any]:
    """All cases; ``make test`` takes the first ``number`` of them."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if k < number else pytest.mark.full,
        )
        for k, case in enumerate(cases)
    ]
