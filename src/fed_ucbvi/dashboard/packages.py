"""Packages that only the live page needs."""

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
    fed_ucbvi.core.errors.InputError: the live page needs carrier-pigeon, which is not installed: run
    pip install 'fed-ucbvi[dashboard]'.
    """
    try:
        yield
    except ImportError as error:
        raise missing_package("the live page needs", package, "dashboard") from error
