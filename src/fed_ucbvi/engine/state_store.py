"""Where the state of a run is kept while it goes on: one store for simulations, live runs, servers and nodes.

A :class:`StateStore` is a folder with a log. Records are only ever added, and only what has changed is written. A
*generation* is one file. It begins with a full state. *Entries* with changes follow, one for each time that the state
is kept. What has changed is found by comparison with a copy in memory of what was written last. An entry is::

    magic (4 bytes) | bytes of header (4) | bytes of payload (8) | digest (32) | header, JSON | payload

The digest is BLAKE2b over the digest of the entry before, the lengths, the header and the payload. So an entry counts
only in its place, in its generation, in its run. The header has the round and what is not an array; names, types and
shapes of the arrays, if they are others than before; and what the payload holds: new rows of tables, and arrays that
have changed, whole, or the places of their new numbers and these.

Once the changes of a generation take more bytes than its full state, the next generation begins. Two are kept. If a
kill or damage has left an incomplete entry at the end, its digest shows this. The entry is left out, and the run
resumes from the one before. If a full state cannot be read, the generation before it is used, with its entries.

Only one process ever writes to a generation. A process that opens a folder begins a new generation, and a process
that finds a newer generation than its own stops. A :func:`folder_lock` keeps two processes from trying.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import logging
import math
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, State
from fed_ucbvi.core.errors import InputError, check_integer
from fed_ucbvi.core.files import (
    check_version,
    manifest_digest,
    naming,
    new_file,
    read_manifest,
    reading,
    sync_folder,
)
from fed_ucbvi.core.memory import JSON_FACTOR, SMALLER, check_memory

log = logging.getLogger("fed_ucbvi.engine.checkpoint")

KEPT = 2
"""How many generations are kept."""
SMALL_BYTES = 1 << 16
"""Up to this size, changes never begin a new generation."""
MAGIC = b"FUL3"
HEAD = struct.Struct("<4sIQ")
DIGEST_BYTES = 32
NUMBER_TYPE = re.compile("[<>|][biuf][1248]")
"""Types of the arrays in a state."""
PLACE = np.dtype("<u4")
MAX_PLACES = 2**32
WHOLE = -1
"""In place of how many numbers of an array are new: all, without their places."""
LOCK = "lock"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of file systems that have no locks."""


class SavedState(NamedTuple):
    """Everything that is needed to resume a run after so many rounds.

    ``about`` is what is not an array, ready for JSON. ``rows`` are tables that only ever grow, by name: numbers, as
    many in every row.
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
    words = np.dtype(f"u{array.itemsize}")
    return np.flatnonzero(np.ascontiguousarray(array).view(words) != np.ascontiguousarray(before).view(words))


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Holds a folder until it is left, or the process ends in whatever way.

    The file names the holder for whoever comes second. It stays; what counts is the lock on it.

    Raises:
        InputError: if another process holds the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read(200).decode(errors="replace").strip() or "another process"
            raise InputError(f"{folder} is in use by {holder}; end that first, or use another folder.") from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            log.warning("%s is on a file system without locks; see to it that no other process uses it", folder)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield


class DamageError(Exception):
    """What is read is not what was written."""


def _digest(before: bytes, *parts: Any) -> bytes:
    made = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
    for part in parts:
        made.update(part)
    return made.digest()


def _shaped(array: Array | None, dtype: str, shape: list[int]) -> Array:
    """The array, if it has this form, or zeros that have."""
    if np.dtype(dtype).kind not in "biuf":
        raise InputError(f"a saved state holds numbers of the unknown type {dtype}.")
    same = array is not None and (array.dtype.str, [*array.shape]) == (dtype, shape)
    return array if array is not None and same else np.zeros(shape, dtype)


def _header(text: bytes, payload: int) -> dict[str, Any]:
    """The header of an entry, checked: it says nothing that would need more than a payload of this length."""
    check_memory("The header of an entry", JSON_FACTOR * len(text), SMALLER)
    try:
        header = json.loads(text)
        check_integer("round", header["round"])
        if not isinstance(header["about"], dict):
            raise ValueError("about is no table")
        for name, dtype, shape in header.get("forms", []):
            sizes = [check_integer("length", length) for length in shape]
            if not isinstance(name, str) or not NUMBER_TYPE.fullmatch(dtype) or math.prod(sizes) >= 2**60:
                raise ValueError(f"{name} is not an array of numbers")
        for name, first, count, width in header["rows"]:
            numbers = [check_integer("length", length) for length in (first, count, width)]
            if not isinstance(name, str) or 8 * numbers[1] * numbers[2] > payload:
                raise ValueError("a table has more rows than are saved")
        for index, count in header["changed"]:
            check_integer("array", index)
            check_integer("changes", count, at_least=WHOLE)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamageError(f"an entry has a header that makes no sense: {error}") from error
    return dict(header)


def _check_saved(arrays: Mapping[str, Array], forms: Sequence[Sequence[Any]], payload: int) -> None:
    """Raise if arrays of new forms, which are saved whole, are larger than the payload."""
    new = 0
    for name, dtype, shape in forms:
        known = arrays.get(name)
        if known is None or (known.dtype.str, [*known.shape]) != (dtype, shape):
            new += np.dtype(dtype).itemsize * math.prod(shape)
    if new > payload:
        raise InputError("its arrays are larger than all that is saved.")


class StateStore(ExitStack):
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
        super().__init__()
        self.folder = folder
        self._run = run
        self._durable = durable
        self._kept = kept
        self._digest = b""
        """Of the last entry, once this process has begun a generation."""
        self._arrays: dict[str, Array] = {}
        self._lengths: dict[str, int] = {}
        """A copy of what was written last: arrays, and how long tables were."""
        self._generations: dict[int, list[tuple[int, int]]] = {}
        """The whole entries by generation, the newest first: after which round, and where they end."""
        numbers = sorted(self._numbers(), reverse=True)
        troubles = []
        for number in numbers:
            entries: list[tuple[int, int]] = []
            try:
                for header, _, end in self._entries(number):
                    entries.append((header["round"], end))
                if not entries:
                    raise DamageError("there is no entry")
            except DamageError as damage:
                troubles.append(damage)
                log.warning("%s, generation %d: %s", folder, number, damage)
            except FileNotFoundError:  # whoever writes here has begun a newer one since
                continue
            if entries:
                self._generations[number] = entries
        self._number = numbers[0] if numbers else 0
        if troubles and self.empty:
            raise InputError(
                f"{folder} is damaged: {troubles[0]}, and there is no earlier state. Put back a copy of the folder, "
                "or begin the run again in another one."
            )
        if troubles:
            log.warning("%s: what cannot be read is left out; continuing after round %d", folder, self.last)

    @classmethod
    def open(cls, folder: Path, kind: str, version: int, *, durable: bool = False, lock: bool = True) -> StateStore:
        """The store in a folder whose manifest is of this kind; with ``lock`` this process's own until closed."""
        manifest = read_manifest(folder, kind)
        check_version(folder, manifest, version)
        with ExitStack() as stack:
            if lock:
                stack.enter_context(folder_lock(folder))
            store = cls(folder, manifest_digest(folder), durable=durable)
            store.callback(stack.pop_all().close)
        store.manifest = manifest
        return store

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def empty(self) -> bool:
        return not self._generations

    @property
    def last(self) -> int:
        """The round after which the last state was kept; -1 if none was."""
        return -1 if self.empty else next(iter(self._generations.values()))[-1][0]

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds after which the state can be read, in order."""
        found: list[int] = []
        for entries in self._generations.values():
            found[:0] = [at for at, _ in entries if not found or at < found[0]]
        return tuple(found)

    def read(self, after: int | None = None) -> SavedState:
        """The last state, or that after one of :attr:`rounds`."""
        for number, entries in self._generations.items():
            for place, (at, _) in reversed([*enumerate(entries, 1)]):
                if after is None or at == after:
                    *_, state = self._states(number, place)
                    return state
        if self.empty:
            raise missing_log(self.folder)
        raise InputError(f"{self.folder} holds no state after round {after}.")

    def between(self, first: int, last: int) -> Iterator[SavedState]:
        """The states after these rounds, in order; the arrays are the same ones every time, as far as they last."""
        newer = [entries[0][0] for entries in self._generations.values()]
        for number, until in reversed([*zip(self._generations, [last + 1, *newer], strict=False)]):
            for state in self._states(number):
                if first <= state.round < min(until, last + 1):
                    yield state

    def _path(self, number: int) -> Path:
        return self.folder / f"log-{number:06d}"

    def _numbers(self) -> set[int]:
        """Of all generations that there are files of."""
        names = [re.fullmatch(r"log-(\d+)", path.name) for path in self.folder.iterdir()]
        return {int(match[1]) for match in names if match is not None}

    def _origin(self, number: int) -> bytes:
        """The digest that the first entry of a generation follows."""
        return _digest(b"", f"{self._run} {number}".encode())

    def _entries(self, number: int) -> Iterator[tuple[dict[str, Any], bytes, int]]:
        """Header, payload and end of each entry of a generation; :class:`DamageError` at the first that is none."""
        digest = self._origin(number)
        with self._path(number).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while file.tell() < size:
                head = file.read(HEAD.size)
                told = file.read(DIGEST_BYTES)
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
                yield _header(header, len(payload)), payload, file.tell()

    def _states(self, number: int, most: int | None = None) -> Iterator[SavedState]:
        """The state after each entry, or so many: the full state with all changes up to there."""
        with reading(self._path(number)):
            yield from self._applied(number, most)

    def _applied(self, number: int, most: int | None) -> Iterator[SavedState]:
        arrays: dict[str, Array] = {}
        rows: dict[str, list[tuple[float, ...]]] = {}
        most = len(self._generations[number]) if most is None else most
        for header, payload, _ in itertools.islice(self._entries(number), most):
            if "forms" in header:
                _check_saved(arrays, header["forms"], len(payload))
                arrays = {name: _shaped(arrays.get(name), *form) for name, *form in header["forms"]}
            at = 0
            flat = [array.reshape(-1) for array in arrays.values()]

            def take(dtype: Any, count: int, payload: bytes = payload) -> Array:
                nonlocal at
                taken: Array = np.frombuffer(payload, dtype, count, at)
                at += taken.nbytes
                return taken

            for name, first, count, width in header["rows"]:
                new = take("<f8", count * width).reshape(count, width)
                rows.setdefault(name, [])[first:] = map(tuple, new.tolist())
            for index, count in header["changed"]:
                array = flat[index]
                places: Any = slice(None) if count == WHOLE else take(PLACE, count)
                array[places] = take(array.dtype, array.size if count == WHOLE else count)
            yield SavedState(header["round"], header["about"], arrays, rows)

    # ------------------------------------------------------------------------------------------------------- writing

    def write(self, state: SavedState) -> None:
        """Add what has changed since the last write; the first one of a process begins a generation."""
        if not self._digest:
            self.begin(state)
            return
        self._check_newest(self._number + 1)
        entries = self._generations[self._number]
        end, self._digest = self._add(state, self._number, self._path(self._number))
        entries.append((state.round, end))
        full_bytes = entries[0][1]
        digest = self._digest
        if end - full_bytes > max(full_bytes, SMALL_BYTES):
            try:
                self.begin(state)
            except OSError as error:
                log.warning("%s: a new generation cannot begin yet: %s", self.folder, error)
                self._digest = digest

    def begin(self, state: SavedState) -> None:
        """Begin a generation with a full state.

        If the run has gone back to an earlier round, entries after later rounds are no longer true and are removed.
        """
        self._digest, number = b"", self._number + 1  # if this fails, the next write begins again
        for left in self.folder.glob(".log-*.partial*"):  # by a process that was stopped while it wrote
            left.unlink(missing_ok=True)
        with new_file(self._path(number)) as draft:
            end, digest = self._add(state, number, draft)
            self._check_newest(number)
        if self._durable:
            sync_folder(self.folder)
        self._number, self._digest, earlier = number, digest, self._generations
        kept = {one: cut for one, entries in earlier.items() if (cut := self._cut(one, entries, state.round))}
        self._generations = dict(itertools.islice({number: [(state.round, end)], **kept}.items(), self._kept))
        for one in self._numbers() - self._generations.keys():
            self._path(one).unlink()

    def _check_newest(self, number: int) -> None:
        if self._path(number).exists():
            raise InputError(f"another process is using the run in {self.folder}; this one stops.")

    def _add(self, state: SavedState, number: int, path: Path) -> tuple[int, bytes]:
        """Add an entry with what is not as before, all or nothing of it; where it ends, and its digest."""
        arrays, lengths = (self._arrays, self._lengths) if self._digest else ({}, {})
        tables = []
        changed = []
        parts = list[Array]()
        new_numbers = list[tuple[str, Any, Array]]()
        for name, rows in state.rows.items():
            first = lengths.get(name, 0)
            if new := rows[first:]:
                parts.append(np.array(new, dtype="<f8"))
                tables.append([name, first, *parts[-1].shape])
        for index, (name, array) in enumerate(state.arrays.items()):
            before = arrays.get(name)
            flat = np.ascontiguousarray(array).reshape(-1)
            places = None
            form = array.dtype, array.shape
            if before is not None and (before.dtype, before.shape) == form and array.size < MAX_PLACES:
                places = changes(array, before)
            if places is None or len(places) * (PLACE.itemsize + array.itemsize) >= max(1, array.nbytes):
                changed.append([index, WHOLE])
                parts.append(flat)
                new_numbers.append((name, slice(None), flat))
            elif len(places):
                changed.append([index, len(places)])
                parts += [places.astype(PLACE), flat[places]]
                new_numbers.append((name, places, parts[-1]))
        forms = _forms(state.arrays)
        header = {"round": state.round, "about": state.about, "rows": tables, "changed": changed}
        if forms != _forms(arrays):
            header["forms"] = forms
        text = json.dumps(header, allow_nan=False).encode()
        views = [part.reshape(-1).view(np.uint8).data for part in parts]
        head = HEAD.pack(MAGIC, len(text), sum(map(len, views)))
        digest = _digest(self._digest or self._origin(number), head, text, *views)
        size = path.stat().st_size if path.exists() else 0
        try:
            end = append_bytes(path, [head, digest, text, *views], durable=self._durable)
        except BaseException:
            if path.exists():
                os.truncate(path, size)
            raise
        self._lengths = {name: len(rows) for name, rows in state.rows.items()}
        self._arrays = {name: _shaped(self._arrays.get(name), *form) for name, *form in forms}
        for name, where, numbers in new_numbers:
            self._arrays[name].reshape(-1)[where] = numbers
        return end, digest

    def _cut(self, number: int, entries: list[tuple[int, int]], after: int) -> list[tuple[int, int]]:
        """The entries after no later round; the others are removed."""
        kept = [(at, end) for at, end in entries if at <= after]
        if kept and len(kept) < len(entries):
            os.truncate(self._path(number), kept[-1][1])
        return kept


def _forms(arrays: Mapping[str, Array]) -> list[list[Any]]:
    return [[name, array.dtype.str, [*array.shape]] for name, array in arrays.items()]


def missing_log(folder: Path) -> InputError:
    """The error where there is a manifest and no state, which no kill leaves behind."""
    return InputError(
        f"{folder} is damaged: its log is missing, and a run is not begun anew where one has been. Put back a copy "
        "of the folder, or use another one."
    )


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
