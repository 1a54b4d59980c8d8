"""Packages that only a federation over the network needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fed_ucbvi.core.errors import missing_package


@contextmanager
def needed(package: str) -> Iterator[None]:
    """Importing ``package`` fails with advice.

    >>> with needed("carrier-pigeon"):
    ...     import carrier_pigeon
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: federations over the network need carrier-pigeon, which is not installed: run
    pip install 'fed-ucbvi[network]'.
    """
    try:
        yield
    except ImportError as error:
        raise missing_package("federations over the network need", package, "network") from error
