"""Names of nodes, and what certificates say about them."""

from __future__ import annotations

import re
from typing import Any

from fed_ucbvi.core.errors import InputError, printable

MAX_NAMES, MAX_CHARACTERS = 4, 80
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


def certified_names(context: Any) -> tuple[str, ...]:
    """The common names of the certificate a stream came with, fit for a log: few, short and printable."""
    names = context.auth_context().get("x509_common_name", ())
    return tuple(printable(name.decode("utf-8", "replace"))[:MAX_CHARACTERS] for name in names[:MAX_NAMES])
