"""Errors that say what was wrong, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The caller's input cannot be used; the message says why and what would work."""


def unknown_name(kind: str, given: str, known: Iterable[str]) -> InputError:
    """An error for a name nobody registered, with the nearest known one.

    >>> str(unknown_name("environment", "gridwrld", ["gridworld", "synthetic"]))
    "unknown environment 'gridwrld'; did you mean 'gridworld'? Known: gridworld, synthetic."
    """
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return InputError(f"unknown {kind} '{given}'{hint} Known: {', '.join(names)}.")


def check_choice(kind: str, given: str, known: Iterable[str]) -> None:
    """Raise unless ``given`` is one of ``known``."""
    names = list(known)
    if given not in names:
        raise unknown_name(kind, given, names)


def check_positive_integer(name: str, value: object, *, at_most: int | None = None) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number from 1 to ``at_most``."""
    return check_integer(name, value, at_least=1, at_most=at_most)


def check_integer(name: str, value: object, *, at_least: int = 0, at_most: int | None = None) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number in the range.

    Accepts NumPy integers and floats without fractional part (``1e9``); refuses booleans.
    """
    if isinstance(value, bool) or not hasattr(value, "__int__"):
        raise InputError(f"{name} must be a whole number, got {value!r}.")
    try:
        number = int(value)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} must be a whole number, got {value!r}.") from error
    if number != value:
        raise InputError(f"{name} must be a whole number, got {value!r}.")
    if number < at_least:
        raise InputError(f"{name} must be at least {at_least}, got {number}.")
    if at_most is not None and number > at_most:
        raise InputError(f"{name} must be at most {at_most}, got {number}.")
    return number
