"""Compilation with Numba: decorators for the kernels of this package, and the folder that keeps their machine code.

Numba's cache notices an edit of the file that holds a function, but not an edit of a file that holds something the
function uses. The cache folder is therefore named by a digest of all source files that hold kernels. After an edit of
any of them, everything is compiled again. A kernel may use functions and constants of these files only, which a test
checks.

The folder is below ``NUMBA_CACHE_DIR`` if that is set, and otherwise beside the modules or, if that place is
read-only, below ``~/.cache``. If neither can be written, each process compiles for itself, and a warning says so.
Numba's own settings, and whatever else the process compiles, stay as they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import PROGRAM

try:
    import numba
except ValueError as error:  # Numba checks its settings when it is imported
    setting = os.environ.get("NUMBA_NUM_THREADS")
    raise InputError(f"Numba does not start with NUMBA_NUM_THREADS={setting}: {error}") from error
from numba import prange, types
from numba.core.caching import IndexDataCacheFile
from numba.extending import intrinsic

__all__ = [
    "compiled",
    "compiled_parallel",
    "embedded",
    "inlined",
    "inner",
    "intrinsic",
    "prange",
    "threads",
    "types",
]

F = TypeVar("F", bound=Callable[..., object])

log = logging.getLogger("fed_ucbvi.core.compiling")

PACKAGE = Path(__file__).parent.parent
MODULE_NAME = __name__.encode()
KEPT_FOLDERS = 5
"""Number of cache folders, one for each state of the sources, that are kept when a new one is made."""

if numba.config.DISABLE_JIT:
    raise InputError("fed-ucbvi cannot run without compilation: unset the environment variable NUMBA_DISABLE_JIT.")


def kernel_sources() -> list[Path]:
    """Source files of the package that hold kernels: those that import this module, and this module."""
    sources = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == Path(__file__) or MODULE_NAME in path.read_bytes():
            sources.append(path)
    return sources


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in kernel_sources():
        digest.update(str(path.relative_to(PACKAGE)).encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _possible_places() -> list[Path]:
    if numba.config.CACHE_DIR:
        return [Path(numba.config.CACHE_DIR)]
    places = [PACKAGE / "__pycache__"]
    with suppress(RuntimeError):  # a user without a home folder
        places.append(Path.home() / ".cache" / PROGRAM)
    return places


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _remove_old_folders(parent: Path) -> None:
    """Remove the cache folders of earlier states of the sources, but for the newest few."""
    folders = sorted(parent.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in folders[KEPT_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare_folder() -> Path | None:
    """The folder for compiled code, made if it is missing; None if no place can be written."""
    for place in _possible_places():
        folder = place / "compiled" / SOURCES
        if folder.is_dir() or _is_writable(folder):
            with suppress(OSError):
                _remove_old_folders(folder.parent)
            return folder
    log.warning(
        "note: compiled code cannot be kept, so every process compiles anew; set NUMBA_CACHE_DIR to a writable folder"
    )
    return None


SOURCES = _digest_of_sources()
"""Digest of all source files that hold kernels."""
cache_folder = _prepare_folder()
"""Folder of compiled code; None if there is none."""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from a folder of the cache, where the file system has locks."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _LockedIndex(IndexDataCacheFile):  # type: ignore[misc]
    """Index of the cached code of one function, used by one process at a time.

    Numba numbers the files of a function, one for each combination of argument types, and does not check the types
    when it loads one. Without a lock, two processes that save at the same moment may choose the same number, and a
    later process runs code for other types (issue 4807 of Numba).
    """

    def save(self, key: Any, data: Any) -> None:
        try:
            with _locked(Path(self._cache_path)):
                super().save(key, data)
        except OSError as error:  # for example a full disk
            log.warning(
                "compiled code cannot be kept in %s: %s",
                self._cache_path,
                error.strerror or error,
            )

    def load(self, key: Any) -> Any:
        try:
            with _locked(Path(self._cache_path)):
                return super().load(key)
        except OSError:  # a folder that can be read but not written
            return super().load(key)


def _compile(function: F, **options: Any) -> F:
    """Wrap a function with Numba; its machine code is kept in our folder."""
    if cache_folder is None:
        return numba.njit(error_model="numpy", **options)(function)  # type: ignore[no-any-return]
    folder_of_user = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder)  # Numba reads it here, when the function is wrapped, and never again
    try:
        dispatcher: Any = numba.njit(error_model="numpy", cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = folder_of_user
    cache = dispatcher._cache
    cache._cache_file = _LockedIndex(cache.cache_path, cache._impl.filename_base, SOURCES)
    wrapped: F = dispatcher
    return wrapped


def compiled(function: F) -> F:
    """Compile a function that Python calls."""
    return _compile(function, no_cfunc_wrapper=True)


def inner(function: F) -> F:
    """Compile a function that only compiled code calls, without a wrapper for Python.

    It takes less time to compile than with :func:`compiled`. Python must not call it: Numba does not notice, and the
    process crashes.
    """
    return _compile(function, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def embedded(function: F) -> F:
    """Like :func:`inner`, with the machine code copied into that of its callers: for short functions in hot loops."""
    return _compile(function, no_cfunc_wrapper=True, no_cpython_wrapper=True, forceinline=True)


def inlined(function: F) -> F:
    """Like :func:`compiled`, with the source inlined by Numba at every call, so that callers specialise it."""
    return _compile(function, inline="always")


def compiled_parallel(function: F) -> F:
    """Like :func:`compiled`, with ``prange`` loops spread over the cores."""
    return _compile(function, parallel=True)


def has_compiled_code() -> bool:
    """True if the cache folder holds compiled code, or if there is no such folder to look at."""
    return cache_folder is None or any(cache_folder.rglob("*.nbi"))


def use_one_thread() -> None:
    """Compute on one thread, where there is a process for every core."""
    numba.set_num_threads(1)


def threads() -> int:
    """Number of threads that parallel kernels may use (``NUMBA_NUM_THREADS``; by default one per core)."""
    return int(numba.get_num_threads())
