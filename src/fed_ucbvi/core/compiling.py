"""Compiling with Numba, in one place: with types, and with a cache that notices every edit.

Numba keys a cached function on its own file only, so an edit to a function it calls in another file would
go unnoticed. Here the cache folder carries a digest of all modules that compile something.

The cache folder is beside the modules. If that place cannot be written, it is in the home folder, and otherwise in a
temporary folder that no other user can write to. If nothing can be written, nothing is cached.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib
import inspect
import logging
import multiprocessing
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import PROGRAM

try:
    import numba
except ValueError as error:  # it looks at its settings at once
    asked = os.environ.get("NUMBA_NUM_THREADS")
    raise InputError(f"Numba does not start with NUMBA_NUM_THREADS={asked}: {error}") from error
from numba import prange, types
from numba.core.caching import IndexDataCacheFile
from numba.extending import intrinsic
from numba.np import linalg

__all__ = ["compiled", "compiled_parallel", "embedded", "inlined", "inner", "intrinsic", "prange", "threads", "types"]

F = TypeVar("F", bound=Callable[..., object])

log = logging.getLogger("fed_ucbvi.core.compiling")

_PACKAGE = Path(__file__).parent.parent

if numba.config.DISABLE_JIT:
    raise InputError("fed-ucbvi cannot run without compilation: unset the environment variable NUMBA_DISABLE_JIT.")


def _import_array_functions() -> None:
    """Import Numba's functions of arrays without SciPy's linear algebra, a tenth of a second or two.

    They would load it only to see that it is there. Whatever uses it looks again, and loads it then.
    """
    look, linalg.ensure_blas = linalg.ensure_blas, lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = look


_import_array_functions()


def _digest_of_kernels() -> str:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        source = path.read_bytes()
        if b"fed_ucbvi.core.compiling" in source:
            digest.update(source)
    return digest.hexdigest()[:16]


def _usual_places() -> Iterator[Path]:
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR)
        return
    yield _PACKAGE / "__pycache__"
    try:
        yield Path.home() / ".cache" / PROGRAM
    except RuntimeError:  # a user without a home
        return


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _temporary_place() -> Path | None:
    """A folder of this user's own. What is cached is executed, so no other user may be able to write there."""
    try:
        folder = Path(tempfile.gettempdir()) / f"fed-ucbvi-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077
    return folder if own and _is_writable(folder) else None


def _choose_place() -> Path | None:
    """Where compiled code is kept; says so in one line if that is not one of the usual places."""
    for place in _usual_places():
        if _is_writable(place):
            return place
    place_left = _temporary_place()
    if multiprocessing.parent_process() is None:
        kept = "is compiled anew in every process" if place_left is None else f"is kept in {place_left}"
        advice = "set NUMBA_CACHE_DIR to a folder that can be written to keep it elsewhere"
        log.warning("note: no usual place for compiled code can be written, so it %s; %s", kept, advice)
    return place_left


_place = _choose_place()
_KEEP = _place is not None
if _place is not None and str(_place) != numba.config.CACHE_DIR:
    numba.config.CACHE_DIR = str(_place / f"compiled-{_digest_of_kernels()}")


def _locked(function: Callable[..., Any], how: int) -> Callable[..., Any]:
    """The function, keeping other processes from the cache meanwhile; without that where files cannot be locked."""

    @functools.wraps(function)
    def while_locked(*arguments: Any) -> Any:
        with ExitStack() as stack:
            with suppress(OSError):
                folder = Path(numba.config.CACHE_DIR)
                folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((folder / "lock").open("ab"))
                fcntl.flock(lock, how)
            return function(*arguments)

    return while_locked


def _share_the_cache() -> None:
    """Let processes write to the cache one at a time, and read it while nobody writes.

    Numba numbers the files of a function, one for each combination of types, and does not look at the types again
    when it loads one. Two processes that save at the same moment choose the same number, and a later one runs code
    for other types (Numba's issue 4807). Processes of a sweep compile at the same moment, and so do the two of a
    first run.
    """
    IndexDataCacheFile.save = _locked(inspect.unwrap(IndexDataCacheFile.save), fcntl.LOCK_EX)
    IndexDataCacheFile.load = _locked(inspect.unwrap(IndexDataCacheFile.load), fcntl.LOCK_SH)


if _KEEP:
    _share_the_cache()


def compiled(function: F) -> F:
    """Compile to machine code, once; later processes load it from the cache."""
    wrapped: F = numba.njit(cache=_KEEP, error_model="numpy", no_cfunc_wrapper=True)(function)
    return wrapped


_INNER = {"cache": _KEEP, "error_model": "numpy", "no_cfunc_wrapper": True, "no_cpython_wrapper": True}


def inner(function: F) -> F:
    """Like :func:`compiled`, for functions that only compiled code calls; no wrapper for Python is compiled.

    Python must not call them: Numba does not notice, and the process crashes.
    """
    wrapped: F = numba.njit(**_INNER)(function)
    return wrapped


def inlined(function: F) -> F:
    """Like :func:`compiled`, inlined by Numba at every call: for what runs once per table entry."""
    wrapped: F = numba.njit(cache=_KEEP, error_model="numpy", inline="always")(function)
    return wrapped


def embedded(function: F) -> F:
    """Like :func:`inner`, with the machine code copied into that of its callers."""
    wrapped: F = numba.njit(**_INNER, forceinline=True)(function)
    return wrapped


def compiled_parallel(function: F) -> F:
    """Like :func:`compiled`, with ``prange`` loops spread over the cores."""
    wrapped: F = numba.njit(cache=_KEEP, error_model="numpy", parallel=True)(function)
    return wrapped


def must_compile(name: str) -> bool:
    """Whether code of a function (``module.function``) could be kept but is not, for whatever types."""
    return _KEEP and not any(Path(numba.config.CACHE_DIR).rglob(f"{name}-*.nbi"))


def types_of(*arguments: object) -> str:
    """The types that code is compiled for, on one line."""
    return " ".join(str(numba.typeof(argument)) for argument in arguments)


def use_one_thread() -> None:
    """Compute on one thread, where there is a process for every core."""
    numba.set_num_threads(1)


def threads() -> int:
    """How many threads the parallel kernels may use (``NUMBA_NUM_THREADS``; by default the cores)."""
    return int(numba.get_num_threads())
