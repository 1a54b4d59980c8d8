"""Packages that only a federation over the network needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fed_ucbvi.errors import InputError


@contextmanager
def needed(package: str) -> Iterator[None]:
    """Importing ``package`` fails with advice.

    >>> with needed("carrier-pigeon"):
    ...     import carrier_pigeon
    Traceback (most recent call last):
    fed_ucbvi.errors.InputError: federations over the network need carrier-pigeon: pip install 'fed-ucbvi[network]'.
    """
    try:
        yield
    except ImportError as error:
        raise InputError(f"federations over the network need {package}: pip install 'fed-ucbvi[network]'.") from error
