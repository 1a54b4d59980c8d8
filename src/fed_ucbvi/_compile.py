"""Numba with types, and with a cache that notices every edit.

Numba keys a cached function on its own file only, so an edit to a function it calls in another file would
go unnoticed. Here the cache folder carries a digest of all modules that compile something.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numba
from numba import prange

__all__ = ["compiled", "compiled_parallel", "inlined", "prange", "threads"]

F = TypeVar("F", bound=Callable[..., object])

_PACKAGE = Path(__file__).parent


def _digest_of_kernels() -> str:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        source = path.read_bytes()
        if b"fed_ucbvi._compile" in source:
            digest.update(source)
    return digest.hexdigest()[:16]


if not numba.config.CACHE_DIR:
    _writable = os.access(_PACKAGE, os.W_OK)
    _base = _PACKAGE / "__pycache__" if _writable else Path.home() / ".cache" / "fed-ucbvi"
    numba.config.CACHE_DIR = str(_base / f"compiled-{_digest_of_kernels()}")


def compiled(function: F) -> F:
    """Compile to machine code, once; later processes load it from the cache."""
    wrapped: F = numba.njit(cache=True, error_model="numpy")(function)
    return wrapped


def inlined(function: F) -> F:
    """Like :func:`compiled`, written out at every call: for what runs once per table entry."""
    wrapped: F = numba.njit(cache=True, error_model="numpy", inline="always")(function)
    return wrapped


def compiled_parallel(function: F) -> F:
    """Like :func:`compiled`, with ``prange`` loops spread over the cores."""
    wrapped: F = numba.njit(cache=True, error_model="numpy", parallel=True)(function)
    return wrapped


def threads() -> int:
    """How many threads the parallel kernels may use (``NUMBA_NUM_THREADS``; by default the cores)."""
    return int(numba.get_num_threads())
