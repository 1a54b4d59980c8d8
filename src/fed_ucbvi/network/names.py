"""Names of nodes."""

from __future__ import annotations

import re

from fed_ucbvi.core.errors import InputError, printable

MAX_CHARACTERS = 80
PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def check_name(name: str) -> str:
    """Return ``name``, or raise unless it can stand in a certificate and a file name.

    >>> check_name("clinic-3")
    'clinic-3'
    """
    if not PATTERN.fullmatch(name):
        raise InputError(
            f"'{printable(name[:MAX_CHARACTERS])}' cannot be a node's name; take 1 to 63 letters, digits, dots, "
            "dashes and underscores."
        )
    return name


def has_left(name: str) -> str:
    """What a server says of a node that has left for good."""
    return f"'{name}' has left this run for good"
