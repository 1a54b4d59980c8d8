"""Names of nodes, and what certificates say about them."""

from __future__ import annotations

import re
from typing import Any

from fed_ucbvi.core.errors import InputError

PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def check_name(name: str) -> str:
    """Return ``name``, or raise unless it can stand in a certificate and a file name.

    >>> check_name("clinic-3")
    'clinic-3'
    """
    if not PATTERN.fullmatch(name):
        raise InputError(
            f"'{name[:80]}' cannot be a node's name; take 1 to 63 letters, digits, dots, dashes and underscores."
        )
    return name


def certified_names(context: Any) -> tuple[str, ...]:
    """The common names of the certificate a stream came with."""
    return tuple(name.decode("utf-8", "replace") for name in context.auth_context().get("x509_common_name", ()))
