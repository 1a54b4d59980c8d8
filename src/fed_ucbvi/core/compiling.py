"""Compiling with Numba, in one place: with types, and with a cache that notices every edit.

Numba keys a cached function on its own file only, so an edit to a function it calls in another file would
go unnoticed. Here the name of a cached function carries a digest of its module and of all that the module imports,
directly or not, from this package. So an edit makes only those functions compile anew that may depend on it.

The cache folder is that of ``NUMBA_CACHE_DIR`` if it is set, otherwise beside the modules. If that place cannot be
written, it is in the home folder, and otherwise in a temporary folder that no other user can write to. If nothing can
be written, nothing is cached. Folder and lock belong to the functions compiled here; Numba itself, and whatever else
the process compiles, stay as they are.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import importlib
import logging
import multiprocessing
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fed_ucbvi.core import own_process
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import PROGRAM

try:
    import numba
except ValueError as error:  # it looks at its settings at once
    asked = os.environ.get("NUMBA_NUM_THREADS")
    raise InputError(f"Numba does not start with NUMBA_NUM_THREADS={asked}: {error}") from error
from numba import prange, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.extending import intrinsic

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
    linalg = importlib.import_module("numba.np.linalg")
    look, linalg.ensure_blas = linalg.ensure_blas, lambda: None  # type: ignore[attr-defined]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = look  # type: ignore[attr-defined]


if own_process.is_ours:
    _import_array_functions()


_IMPORTED = re.compile(rb"^(?:from|import) (fed_ucbvi[\w.]*)(?: import (\([^)]*\)|[^\n]*))?", re.MULTILINE)


@functools.cache
def _read(file: Path) -> tuple[bytes, list[Path]]:
    """The digest of a module, and the files that it imports from this package when it is imported itself."""
    source, imported = file.read_bytes(), []
    for module, names in _IMPORTED.findall(source):
        folder = _PACKAGE.parent.joinpath(*module.decode().split("."))
        if folder == _PACKAGE:  # the facade, which has something of nearly all
            imported += sorted(_PACKAGE.rglob("*.py"))
        imported.append(folder.with_suffix(".py"))
        if folder.is_dir():
            imported += [folder / f"{name}.py" for name in re.findall(r"\w+", names.decode())]
    return hashlib.sha256(source).digest(), [path for path in imported if path.is_file()]


@functools.cache
def code_digest(file: Path) -> str:
    """Of everything that functions compiled in a module may depend on."""
    seen, left = {file: _read(file)[0]}, [file]
    while left:
        for path in _read(left.pop())[1]:
            if path not in seen:
                seen[path] = _read(path)[0]
                left.append(path)
    parts = sorted((path.name, digest) for path, digest in seen.items())
    return hashlib.sha256(b"".join(name.encode() + digest for name, digest in parts)).hexdigest()[:16]


def _usual_places() -> list[Path]:
    places = [Path(numba.config.CACHE_DIR or _PACKAGE / "__pycache__")]
    with suppress(RuntimeError):  # a user without a home
        places += [] if numba.config.CACHE_DIR else [Path.home() / ".cache" / PROGRAM]
    return places


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
cache_folder = None if _place is None else _place / "compiled"
"""Where compiled code is kept; None if nowhere."""


PAUSE, PATIENCE = 0.02, 120.0
"""Seconds between two looks for what another process compiles or keeps locked, and until it is given up."""
_beside: subprocess.Popen[bytes] | None = None
_expected: tuple[str, ...] = ()


@contextmanager
def _locked(folder: str, how: int) -> Iterator[bool]:
    """Keep other processes from a folder of the cache meanwhile, where files can be locked.

    Whether nobody else is there: a process that hangs while it holds the lock is waited for only so long, and ended
    if it is the one that compiles beside this one.
    """
    last, free = time.monotonic() + PATIENCE, False
    with ExitStack() as stack:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((Path(folder) / "lock").open("ab"))
            while not free and time.monotonic() < last:
                try:
                    fcntl.flock(lock, how | fcntl.LOCK_NB)
                    free = True
                except BlockingIOError:
                    time.sleep(PAUSE)
        except OSError:  # a file system without locks
            free = True
        if not free:
            stop_compiling_beside()
        yield free


class _LockedFile(IndexDataCacheFile):  # type: ignore[misc]
    """The cache of one function: processes write to it one at a time, and read it while nobody writes.

    Numba numbers the files of a function, one for each combination of types, and does not look at the types again
    when it loads one. Two processes that save at the same moment choose the same number, and a later one runs code
    for other types (Numba's issue 4807). Processes of a sweep compile at the same moment, and so do the two of a
    first run.
    """

    def save(self, key: Any, data: Any) -> None:
        try:
            with _locked(self._cache_path, fcntl.LOCK_EX) as free:
                if free:
                    super().save(key, data)
        except OSError as error:  # a full disk: it is compiled again another time
            log.warning("compiled code cannot be kept in %s: %s", self._cache_path, error.strerror or error)

    def load(self, key: Any) -> Any:
        """The code for some types, or None; one that a second process compiles is waited for, but not for ever."""
        beside, last = _beside if self._index_name.startswith(_expected) else None, time.monotonic() + PATIENCE
        while beside is not None and beside.poll() is None and not Path(self._index_path).exists():
            if time.monotonic() > last:
                break
            time.sleep(PAUSE)
        with _locked(self._cache_path, fcntl.LOCK_SH) as free:
            found = super().load(key) if free else None
        if found is None and beside is not None:  # it has failed, hangs, or compiles for other types
            stop_compiling_beside()
        return found


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Finds the folder of a function in ours, not in the one that Numba's settings name."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        self._py_file, self._line = file, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> _Locator:
        return cls(function, file)

    def get_cache_path(self) -> str:
        assert cache_folder is not None
        return str(cache_folder / self.get_suitable_cache_subpath(self._py_file))

    def get_source_stamp(self) -> str:
        return code_digest(Path(self._py_file))

    def get_disambiguator(self) -> str:
        return f"{self._line}-{self.get_source_stamp()}"


class _Located(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):  # type: ignore[misc]
    """What a compiled function has in place of Numba's own cache."""

    _impl_class = _Located

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _LockedFile(self._cache_path, self._impl.filename_base, stamp)


def _compile(function: F, **options: Any) -> F:
    dispatcher: Any = numba.njit(error_model="numpy", **options)(function)
    if cache_folder is not None:
        dispatcher._cache = _Cache(function)
    wrapped: F = dispatcher
    return wrapped


def compiled(function: F) -> F:
    """Compile to machine code, once; later processes load it from the cache."""
    return _compile(function, no_cfunc_wrapper=True)


def inner(function: F) -> F:
    """Like :func:`compiled`, for functions that only compiled code calls; no wrapper for Python is compiled.

    Python must not call them: Numba does not notice, and the process crashes.
    """
    return _compile(function, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def inlined(function: F) -> F:
    """Like :func:`compiled`, inlined by Numba at every call: for what runs once per table entry."""
    return _compile(function, inline="always")


def embedded(function: F) -> F:
    """Like :func:`inner`, with the machine code copied into that of its callers."""
    return _compile(function, no_cfunc_wrapper=True, no_cpython_wrapper=True, forceinline=True)


def compiled_parallel(function: F) -> F:
    """Like :func:`compiled`, with ``prange`` loops spread over the cores."""
    return _compile(function, parallel=True)


def must_compile(name: str = "") -> bool:
    """Whether code of a function (``module.function``; by default of any) could be kept but is not, for any types."""
    if cache_folder is None:
        return False
    digests = [code_digest(file) for file in _PACKAGE.rglob(f"{name.partition('.')[0]}.py")] if name else [""]
    return not any(any(cache_folder.rglob(f"{name}*{digest}.*.nbi")) for digest in digests)


def compile_beside(module: str, functions: Sequence[str]) -> None:
    """Run ``module`` in a second process, which compiles ``functions`` while this one compiles others.

    Numba compiles one function at a time, also in several threads. Nothing is started where the cache has the last of
    the functions, or there is one core. This process takes them from the cache, and waits for each where it needs it.
    What is not there in the end is compiled here as ever.
    """
    global _beside, _expected
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if _beside is not None or cores < 2 or not must_compile(functions[-1]):
        return
    quiet = subprocess.DEVNULL
    with suppress(OSError):
        _beside = subprocess.Popen([sys.executable, "-P", "-m", module], stdin=quiet, stdout=quiet, stderr=quiet)
        _expected = tuple(f"{name}-" for name in functions)
        atexit.register(stop_compiling_beside)


def stop_compiling_beside() -> None:
    global _beside
    if _beside is not None:
        _beside.kill()  # also if it was stopped
        _beside.wait()
    _beside = None


def use_one_thread() -> None:
    """Compute on one thread, where there is a process for every core."""
    numba.set_num_threads(1)


def threads() -> int:
    """How many threads the parallel kernels may use (``NUMBA_NUM_THREADS``; by default the cores)."""
    return int(numba.get_num_threads())
