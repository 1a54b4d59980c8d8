"""Where the state of a run is kept while it goes on: one store for simulations, live runs, servers and nodes.

A :class:`StateStore` is a folder with a log. Records are only ever added, and only what has changed is written. A
*generation* is one file. It begins with a full state. *Entries* with changes follow, one for each time that the state
is kept. What has changed is found by comparison with a copy in memory of what was written last. An entry is::

    magic (4 bytes) | bytes of header (4) | bytes of payload (8) | digest (32) | header, JSON | payload

The digest is BLAKE2b over the digest of the entry before, the lengths, the header and the payload. So an entry counts
only in its place, in its generation, in its run.

Once the changes of a generation take more bytes than its full state, the next generation begins. Two are kept. If a
kill or damage has left an incomplete entry at the end, its digest shows this. The entry is left out, and the run
resumes from the one before. If a full state cannot be read, the generation before it is used, with its entries.

Only one process ever writes to a generation. A process that opens a folder begins a new generation, and a process
that finds a newer generation than its own stops. A :class:`FolderLock` keeps two processes from trying.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import socket
import struct
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, State
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_version, manifest_digest, naming, read_manifest, sync_folder

log = logging.getLogger("fed_ucbvi.engine.checkpoint")

CHUNK_BYTES = 1 << 26
"""The most that one piece of an entry takes."""
KEPT = 2
"""How many generations are kept."""
SMALL_BYTES = 1 << 16
"""Up to this size, changes never begin a new generation."""
KINDS = "biuf"
"""The kinds of numbers that arrays may hold, as NumPy names them."""
MAGIC = b"FUL2"
HEAD = struct.Struct("<4sIQ")
DIGEST_BYTES = 32
LOCK = "lock"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of file systems that have no locks."""
_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
"""Unsigned integers by their bytes."""


# ---------------------------------------------------------------------------------------------------- what is saved


class SavedState(NamedTuple):
    """Everything that is needed to resume a run.

    Attributes:
        round: how many rounds have been played.
        about: what is not an array, ready for JSON.
        arrays: by name.
        rows: tables that only ever grow, by name: numbers, as many in every row.
    """

    round: int
    about: dict[str, Any]
    arrays: dict[str, Array]
    rows: Mapping[str, Sequence[tuple[float, ...]]]


@runtime_checkable
class Growing(Protocol):
    """A state whose tables grow during a run."""

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have tables as large as those that were saved."""
        ...


def put_back(name: str, array: Array, saved: Array | None) -> None:
    """Write ``saved`` over ``array``; shapes must be the same, and types too, but that counts may get more bits."""
    if saved is None:
        raise InputError(f"the saved state does not fit this run: {name} is missing.")
    wider = saved.dtype.kind == array.dtype.kind == "i" and np.can_cast(saved.dtype, array.dtype, "safe")
    if saved.shape != array.shape or not (wider or saved.dtype == array.dtype):
        raise InputError(
            f"the saved state does not fit this run: {name} has shape {saved.shape} and type {saved.dtype}, expected "
            f"{array.shape} and {array.dtype}."
        )
    array[...] = saved


def restore(state: State, arrays: Mapping[str, Array], prefix: str = "") -> None:
    """Write saved arrays over those of ``state``; names, shapes and types must be its own."""
    if isinstance(state, Growing):
        state.make_room(named(prefix, arrays))
    for name, array in state.arrays().items():
        put_back(prefix + name, array, arrays.get(prefix + name))


def named(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def changes(array: Array, before: Array) -> npt.NDArray[np.int64]:
    """Where two arrays of one shape and type differ in a bit, in row-major order; NaN equals itself."""
    words = _WORDS[array.itemsize]
    return np.flatnonzero(np.ascontiguousarray(array).view(words) != np.ascontiguousarray(before).view(words))


# ------------------------------------------------------------------------------------------------------- one owner


class FolderLock:
    """Holds a folder until it is closed, or the process ends in whatever way.

    The file names the holder for whoever comes second. It stays; what counts is the lock on it.

    Raises:
        InputError: if another process holds the folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.close = weakref.finalize(self, os.close, opened)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(opened, 200, 0).decode(errors="replace").strip() or "another process"
            self.close()
            raise InputError(f"{folder} is in use by {holder}; end that first, or use another folder.") from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            log.warning("%s is on a file system without locks; see to it that no other process uses it", folder)
        os.ftruncate(opened, 0)
        os.pwrite(opened, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# --------------------------------------------------------------------------------------------------------- entries


class DamageError(Exception):
    """What is read is not what was written."""


_Piece = tuple[list[Any], tuple[Array, ...]]
"""What the header says of a part of a state, and its arrays, which are in the payload. New rows of a table:
``[name, first row, rows, columns]``, and the rows. A stretch of array number i: ``[i, start, numbers, 0]``, and the
numbers. Some numbers in it: ``[i, start, numbers, 1]``, their places after the start, and the numbers."""


def _digest(before: bytes, *parts: Any) -> bytes:
    made = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
    for part in parts:
        made.update(part)
    return made.digest()


def _first_digest(run: str, generation: int) -> bytes:
    """What the first entry of a generation follows."""
    return _digest(b"", f"{run} {generation}".encode())


def _places(start: int, number: int, where: Array | None) -> Any:
    """Where the numbers of a piece are in their array, flat."""
    return slice(start, start + number) if where is None else start + where.astype(np.int64)


def _apply(
    pieces: list[list[Any]], payload: bytes, flat: Sequence[Array], rows: dict[str, list[tuple[float, ...]]]
) -> None:
    """Write what an entry holds over arrays, flat and in the order of their forms, and to tables."""
    at = 0

    def take(dtype: Any, number: int) -> Array:
        nonlocal at
        taken: Array = np.frombuffer(payload, dtype, number, at)
        at += taken.nbytes
        return taken

    for which, start, number, more in pieces:
        if isinstance(which, str):
            rows.setdefault(which, [])[start:] = map(tuple, take("<f8", number * more).reshape(number, more).tolist())
        else:
            places = _places(start, number, take("<u4", number) if more else None)
            flat[which][places] = take(flat[which].dtype, number)


def _forms(arrays: Mapping[str, Array]) -> list[list[Any]]:
    return [[name, array.dtype.str, [*array.shape]] for name, array in arrays.items()]


def _shaped(array: Array | None, dtype: str, shape: list[int]) -> Array:
    """The array, if it has this form, or zeros that have."""
    kind = np.dtype(dtype)
    if kind.kind not in KINDS:
        raise InputError(f"a saved state holds numbers of the unknown type {dtype}.")
    if array is not None and (array.dtype, array.shape) == (kind, tuple(shape)):
        return array
    return np.zeros(shape, dtype=kind)


@dataclass
class _Generation:
    """The entries of a generation that are whole, by round and end; and what is wrong after them."""

    number: int
    entries: list[tuple[int, int]] = field(default_factory=list)
    trouble: str = ""


# --------------------------------------------------------------------------------------------------------- the store


class StateStore:
    """The states of a run after some of its rounds, in a folder.

    Args:
        folder: must exist.
        run: identifies the run and all that must be the same for it to be resumed.
        durable: whether a write waits until everything is on disk, not only in the operating system's cache.
        kept: how many generations are kept; None for all.

    Raises:
        InputError: if there are states and none of them can be read.
    """

    manifest: Mapping[str, Any] = {}

    def __init__(self, folder: Path, run: str, *, durable: bool = False, kept: int | None = KEPT) -> None:
        self.folder, self._run, self._durable, self._kept, self._held = folder, run, durable, kept, ExitStack()
        self._writing = False
        """Whether this process has begun a generation."""
        self._full_bytes = self._change_bytes = 0
        self._last_digest = b""
        self._shadow: dict[str, Array] = {}
        self._counted: dict[str, int] = {}
        found = [self._index(number) for number in sorted(self._numbers(), reverse=True)]
        self._number = found[0].number if found else 0
        self._generations = [generation for generation in found if generation.entries]
        """The newest first."""
        damaged = [generation for generation in found if generation.trouble]
        for generation in damaged:
            log.warning("%s, generation %d: %s", folder, generation.number, generation.trouble)
        if found and not self._generations:
            raise InputError(
                f"{folder} is damaged: {found[0].trouble}, and there is no earlier state. Put back a copy of the "
                "folder, or begin the run again in another one."
            )
        if damaged:
            log.warning("%s: what cannot be read is left out; continuing after round %d", folder, self.last)

    @classmethod
    def open(
        cls, folder: Path, kind: str, version: int, *, durable: bool = False, lock: bool = True, **options: Any
    ) -> StateStore:
        """The store in a folder whose manifest is of this kind; with ``lock`` this process's own until closed."""
        manifest = read_manifest(folder, kind)
        check_version(folder, manifest, version)
        with ExitStack() as stack:
            if lock:
                stack.enter_context(FolderLock(folder))
            store = cls(folder, manifest_digest(folder), durable=durable, **options)
            store.manifest, store._held = manifest, stack.pop_all()
        return store

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def empty(self) -> bool:
        return not self._generations

    @property
    def last(self) -> int:
        """The round after which the last state was kept; -1 if none was."""
        return -1 if self.empty else self._generations[0].entries[-1][0]

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds after which the state can be read, in order."""
        found: list[int] = []
        for generation in self._generations:
            found[:0] = [at for at, _ in generation.entries if not found or at < found[0]]
        return tuple(found)

    def read(self, after: int | None = None) -> SavedState:
        """The last state, or that after one of :attr:`rounds`."""
        for generation in self._generations:
            for at, end in reversed(generation.entries):
                if after is None or at == after:
                    return next(state for state_end, state in self._states(generation) if state_end == end)
        if self.empty:
            raise missing_log(self.folder)
        raise InputError(f"{self.folder} holds no state after round {after}.")

    def between(self, first: int, last: int) -> Iterator[SavedState]:
        """The states after these rounds, in order; the arrays are the same ones every time, as far as they last."""
        newer = [generation.entries[0][0] for generation in self._generations]
        for generation, until in reversed([*zip(self._generations, [last + 1, *newer], strict=False)]):
            for _, state in self._states(generation):
                if first <= state.round < min(until, last + 1):
                    yield state

    def _path(self, number: int) -> Path:
        return self.folder / f"log-{number:06d}"

    def _numbers(self) -> set[int]:
        """Of all generations that there are files of."""
        names = [re.fullmatch(r"log-(\d+)", path.name) for path in self.folder.iterdir()]
        return {int(match[1]) for match in names if match is not None}

    def _entries(self, number: int) -> Iterator[tuple[dict[str, Any], bytes, int]]:
        """Header, payload and end of each entry of a generation; :class:`DamageError` at the first that is none."""
        digest = _first_digest(self._run, number)
        with self._path(number).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while file.tell() < size:
                head, told = file.read(HEAD.size), file.read(DIGEST_BYTES)
                if len(told) < DIGEST_BYTES:
                    raise DamageError("the last entry is cut off")
                magic, *lengths = HEAD.unpack(head)
                if magic != MAGIC:
                    raise DamageError("there are bytes that are no entry")
                if file.tell() + sum(lengths) > size:
                    raise DamageError("the last entry is cut off")
                header, payload = map(file.read, lengths)
                digest = _digest(digest, head, header, payload)
                if digest != told:
                    raise DamageError("an entry is not what was written")
                yield json.loads(header), payload, file.tell()

    def _index(self, number: int) -> _Generation:
        """Where the whole entries of a generation end."""
        generation = _Generation(number)
        try:
            for header, _, end in self._entries(number):
                generation.entries.append((header["round"], end))
            if not generation.entries:
                raise DamageError("there is no entry")
        except DamageError as damage:
            generation.trouble = str(damage)
        except FileNotFoundError:  # whoever writes here has begun a newer one since
            generation.entries.clear()
        return generation

    def _states(self, generation: _Generation) -> Iterator[tuple[int, SavedState]]:
        """The state after each entry, and where that ends: the full state with all changes up to there."""
        arrays: dict[str, Array] = {}
        rows: dict[str, list[tuple[float, ...]]] = {}
        flat: list[Array] = []
        for _, (header, payload, end) in zip(generation.entries, self._entries(generation.number), strict=False):
            if "forms" in header:
                arrays = {name: _shaped(arrays.get(name), *form) for name, *form in header["forms"]}
                flat = [array.reshape(-1) for array in arrays.values()]
            _apply(header["pieces"], payload, flat, rows)
            yield end, SavedState(header["round"], header["about"], arrays, rows)

    # ------------------------------------------------------------------------------------------------------- writing

    def write(self, state: SavedState) -> None:
        """Add what has changed since the last write; the first one of a process begins a generation."""
        if not self._writing:
            self.begin(state)
            return
        if self._path(self._number + 1).exists():
            raise InputError(f"another process is using the run in {self.folder}; this one stops.")
        self._change_bytes += self._add(self._path(self._number), self._generations[0], state, full=False)
        if self._change_bytes > max(self._full_bytes, SMALL_BYTES):
            try:
                self.begin(state)
            except OSError as error:
                log.warning("%s: a new generation cannot begin yet: %s", self.folder, error)

    def begin(self, state: SavedState) -> None:
        """Begin a generation with a full state.

        If the run has gone back to an earlier round, entries after later rounds are no longer true and are removed.
        """
        generation = _Generation(self._number + 1)
        path, digest = self._path(generation.number), self._last_digest
        draft = path.with_name(f".{path.name}.partial-{os.getpid()}")
        self._sweep()
        try:
            self._last_digest = _first_digest(self._run, generation.number)
            with naming(path, draft):
                full_bytes = self._add(draft, generation, state, full=True)
            if path.exists():
                raise InputError(f"another process is using the run in {self.folder}; this one stops.")
            draft.rename(path)
        except BaseException:
            self._last_digest = digest
            self._sweep()
            raise
        if self._durable:
            sync_folder(self.folder)
        self._writing, self._number, self._full_bytes, self._change_bytes = True, generation.number, full_bytes, 0
        kept = [earlier for earlier in self._generations if self._cut(earlier, state.round)]
        self._generations = [generation, *kept][: self._kept]
        for number in self._numbers() - {one.number for one in self._generations}:
            self._path(number).unlink()

    def _add(self, path: Path, generation: _Generation, state: SavedState, *, full: bool) -> int:
        """Add an entry, all or nothing of it; how many bytes it takes."""
        forms, shadow = _forms(state.arrays), {} if full else self._shadow
        pieces = [*_new_rows(state.rows, {} if full else self._counted), *_changed(state.arrays, shadow)]
        header = {"round": state.round, "about": state.about, "pieces": [said for said, _ in pieces]}
        if full or forms != _forms(shadow):
            header["forms"] = forms
        text = json.dumps(header, allow_nan=False).encode()
        views = [np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for _, parts in pieces for part in parts]
        head = HEAD.pack(MAGIC, len(text), sum(map(len, views)))
        digest = _digest(self._last_digest, head, text, *views)
        before = generation.entries[-1][1] if generation.entries else 0
        try:
            end = append_bytes(path, [head, digest, text, *views], durable=self._durable)
        except BaseException:
            if path.exists():
                os.truncate(path, before)
            raise
        generation.entries.append((state.round, end))
        self._last_digest = digest
        self._counted = {name: len(rows) for name, rows in state.rows.items()}
        self._shadow = {name: _shaped(self._shadow.get(name), *form) for name, *form in forms}
        flat = [array.reshape(-1) for array in self._shadow.values()]
        for (which, start, number, more), parts in pieces:
            if not isinstance(which, str):
                flat[which][_places(start, number, parts[0] if more else None)] = parts[-1]
        return end - before

    def _cut(self, generation: _Generation, after: int) -> bool:
        """Remove entries after a later round; whether any is left."""
        kept = [(at, end) for at, end in generation.entries if at <= after]
        if kept and len(kept) < len(generation.entries):
            os.truncate(self._path(generation.number), kept[-1][1])
            generation.entries = kept
        return bool(kept)

    def _sweep(self) -> None:
        """Remove what a process that was stopped while it wrote has left."""
        for draft in self.folder.glob(".log-*.partial-*"):
            draft.unlink(missing_ok=True)


def missing_log(folder: Path) -> InputError:
    """The error where there is a manifest and no state, which no kill leaves behind."""
    return InputError(
        f"{folder} is damaged: its log is missing, and a run is not begun anew where one has been. Put back a copy "
        "of the folder, or use another one."
    )


def _new_rows(rows: Mapping[str, Sequence[tuple[float, ...]]], counted: Mapping[str, int]) -> Iterator[_Piece]:
    """What tables have besides the first rows, which are counted."""
    for name, all_rows in rows.items():
        first = counted.get(name, 0)
        if all_rows[first:]:
            new = np.array(all_rows[first:], dtype="<f8")
            yield [name, first, *new.shape], (new,)


def _changed(arrays: Mapping[str, Array], before: Mapping[str, Array]) -> Iterator[_Piece]:
    """What of the arrays is not as before, in pieces."""
    for index, (name, array) in enumerate(arrays.items()):
        old, flat = before.get(name), np.ascontiguousarray(array).reshape(-1)
        same_form = old is not None and (old.shape, old.dtype) == (array.shape, array.dtype)
        step = max(1, CHUNK_BYTES // flat.itemsize)
        for start in range(0, flat.size, step):
            now = flat[start : start + step]
            where = None
            if old is not None and same_form:
                where = changes(now, old.reshape(-1)[start : start + step])
            if where is None or len(where) * (4 + now.itemsize) >= now.nbytes:
                yield [index, start, now.size, 0], (now,)
            elif len(where):
                yield [index, start, len(where), 1], (where.astype("<u4"), now[where])


def append_bytes(path: Path, parts: Sequence[Any], *, durable: bool) -> int:
    """Add bytes to a file; how long it is then."""
    with naming(path), path.open("ab", buffering=0) as file:
        for part in parts:
            left = memoryview(part)
            while left:
                left = left[file.write(left) :]
        if durable:
            os.fsync(file.fileno())
        return file.tell()
