"""Errors that say what was wrong, what was expected and what to do."""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Iterable


class InputError(ValueError):
    """The caller's input cannot be used; the message says why and what would work."""


def printable(text: str) -> str:
    r"""Text that cannot disturb a terminal: control characters are written as escapes.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(char.encode("unicode_escape").decode() if _disturbs(char) else char for char in text)


def check_printable(name: str, text: str) -> str:
    """Return ``text``, or raise if it holds control characters, which disturb terminals, tables and pages."""
    if any(map(_disturbs, text)):
        raise InputError(f"{name} must be plain text without control characters, got '{printable(text)}'.")
    return text


def _disturbs(char: str) -> bool:
    """Control characters, separators of lines, halves of characters, and what turns the direction of writing."""
    kind = unicodedata.category(char)
    return kind in ("Cc", "Cs", "Zl", "Zp") or (kind == "Cf" and unicodedata.bidirectional(char) != "BN")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name nobody registered, with the nearest known one.

    >>> str(unknown_name("environment", "gridwrld", ["gridworld", "synthetic"]))
    "unknown environment 'gridwrld'; did you mean 'gridworld'? Known: gridworld, synthetic."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return InputError(f"unknown {kind} '{name}'{hint} Known: {', '.join(names)}.")


def missing_package(who: str, package: str, extra: str) -> InputError:
    """An error for a package that is not installed, with the way to get it.

    >>> str(missing_package("runs on a cluster need", "Ray", "ray"))
    "runs on a cluster need Ray, which is not installed: run pip install 'fed-ucbvi[ray]'."
    """
    return InputError(f"{who} {package}, which is not installed: run pip install 'fed-ucbvi[{extra}]'.")


def check_choice(kind: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        raise unknown_name(kind, name, names)


def check_number(
    name: str,
    value: object,
    *,
    at_least: float = -math.inf,
    below: float = math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    why: str = "",
) -> float:
    """Return ``value`` as a float, or raise unless it is a finite number in the range; ``why`` names the source.

    >>> check_number("delta", 0.05, above=0, below=1)
    0.05
    >>> check_number("eps_p", 2, at_least=0, below=1, why="Assumption 1")
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: eps_p must be a number in [0, 1) (Assumption 1), got 2.
    """
    number = _as_float(value)
    if number is None:
        raise InputError(f"{name} must be a number, got {value!r}.")
    if at_least <= number <= at_most and above < number < below:
        return number
    low = f"({above:g}" if above >= at_least else f"[{at_least:g}"
    high = f"{below:g})" if below <= at_most else f"{at_most:g}]"
    raise InputError(f"{name} must be a number in {low}, {high}{f' ({why})' if why else ''}, got {value}.")


def _as_float(value: object) -> float | None:
    """A finite number as a float; None for anything else, truth values, text and arrays among it."""
    if type(value).__name__ in ("bool", "bool_", "str") or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def check_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {value!r}.")
    return value


def check_positive_integer(name: str, value: object, *, at_most: int | None = None) -> int:
    return check_integer(name, value, at_least=1, at_most=at_most)


def check_integer(name: str, value: object, *, at_least: int = 0, at_most: int | None = None) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number in the range.

    Accepts NumPy integers and floats without fractional part (``1e9``); refuses booleans.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        real = _as_float(value)
        if real is None or real != math.floor(real):
            raise InputError(f"{name} must be a whole number, got {value!r}.")
        number = int(value) if hasattr(value, "__index__") else int(real)
    if number < at_least:
        raise InputError(f"{name} must be at least {at_least}, got {number}.")
    if at_most is not None and number > at_most:
        raise InputError(f"{name} must be at most {at_most}, got {number}.")
    return number
