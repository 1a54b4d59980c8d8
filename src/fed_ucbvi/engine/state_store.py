"""The state of a run in a folder: one store for simulations, live runs, servers and nodes.

A :class:`StateStore` is a folder with logs, whose format is in :mod:`fed_ucbvi.engine.state_log`. Entries are only
ever added, and only changes are written, which are found by comparison with a copy in memory.

A *generation* is one log, in one file. It begins with a full state. Entries with changes follow, one for each time
that the state is saved. Once the changes of a generation take more bytes than its full state, the next generation
begins. Two are kept. If a kill or damage has left an incomplete entry at the end, its digest shows this. The entry is
left out, and the run resumes from the one before. If a full state cannot be read, the generation before it is used,
with its entries.

Only one process ever writes to a generation. A process that opens a folder begins a new generation, and a process
that finds a newer generation than its own stops. A :func:`~fed_ucbvi.engine.folder_lock.folder_lock` keeps two
processes from trying.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import (
    check_version,
    manifest_digest,
    naming,
    new_file,
    read_manifest,
    reading,
    sync_folder,
)
from fed_ucbvi.engine.folder_lock import folder_lock
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.engine.state_log import (
    DamageError,
    WrittenState,
    encode_entry,
    first_digest,
    read_entries,
    replay,
)

log = logging.getLogger("fed_ucbvi.engine.checkpoint")

KEPT_GENERATIONS = 2
SMALL_BYTES = 1 << 16
"""Up to this size, changes never begin a new generation."""


class EntryPlace(NamedTuple):
    """The round of an entry, and the length of the file up to its end."""

    round: int
    end: int


class StateStore:
    """The states of a run after some of its rounds, in a folder.

    Args:
        folder: must exist.
        run: identifies the run and all that must be the same for it to be resumed.
        durable: True if a write waits until everything is on disk, not only in the operating system's cache.
        kept: number of generations that are kept; None for all.

    Attributes:
        manifest: the manifest of the folder, if the store was opened by :meth:`open`.

    Raises:
        InputError: if there are states and none of them can be read.
    """

    def __init__(self, folder: Path, run: str, *, durable: bool = False, kept: int | None = KEPT_GENERATIONS) -> None:
        self.folder = folder
        self.manifest: Mapping[str, Any] = {}
        self._run = run
        self._durable = durable
        self._kept = kept
        self._lock = ExitStack()
        self._written = WrittenState()
        self._digest = b""
        """Digest of the last entry; empty until this process has begun a generation."""
        self._number = 0
        """Number of the newest generation, damaged or not."""
        self._generations: dict[int, list[EntryPlace]] = {}
        """The intact entries of each generation, the newest generation first."""
        self._find_entries()

    @classmethod
    def open(cls, folder: Path, kind: str, version: int, *, durable: bool = False, lock: bool = True) -> StateStore:
        """The store in a folder whose manifest is of this kind and version.

        With ``lock``, no other process can open it so until it is closed.
        """
        manifest = read_manifest(folder, kind)
        check_version(folder, manifest, version)
        with ExitStack() as stack:
            if lock:
                stack.enter_context(folder_lock(folder))
            store = cls(folder, manifest_digest(folder), durable=durable)
            store._lock = stack.pop_all()
        store.manifest = manifest
        return store

    def close(self) -> None:
        """Release the lock on the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def empty(self) -> bool:
        return not self._generations

    @property
    def last(self) -> int:
        """The round of the last state; -1 if there is none."""
        if self.empty:
            return -1
        newest = next(iter(self._generations.values()))
        return newest[-1].round

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds of the states that can be read, in order."""
        found: list[int] = []
        for entries in self._generations.values():
            earlier = [entry.round for entry in entries if not found or entry.round < found[0]]
            found = earlier + found
        return tuple(found)

    def read(self, after: int | None = None) -> SavedState:
        """The last state, or that after one of :attr:`rounds`."""
        for generation, entries in self._generations.items():
            for count in range(len(entries), 0, -1):
                if after is None or entries[count - 1].round == after:
                    *_, state = self._states(generation, count)
                    return state
        if self.empty:
            raise missing_log(self.folder)
        raise InputError(f"{self.folder} holds no state after round {after}.")

    def between(self, first: int, last: int) -> Iterator[SavedState]:
        """The states of these rounds, in order; the arrays are the same objects every time, as far as they last."""
        # a generation counts up to the round with which the next one begins
        ends: list[tuple[int, int]] = []
        end = last + 1
        for generation, entries in self._generations.items():
            ends.append((generation, end))
            end = min(last + 1, entries[0].round)
        for generation, end in reversed(ends):
            for state in self._states(generation, len(self._generations[generation])):
                if first <= state.round < end:
                    yield state

    def _path(self, generation: int) -> Path:
        return self.folder / f"log-{generation:06d}"

    def _numbers(self) -> set[int]:
        """The numbers of all generations that have a file."""
        numbers = set()
        for path in self.folder.iterdir():
            match = re.fullmatch(r"log-(\d+)", path.name)
            if match is not None:
                numbers.add(int(match[1]))
        return numbers

    def _find_entries(self) -> None:
        """Find the intact entries of all generations; raise if there are generations and no intact entry."""
        troubles = []
        for number in sorted(self._numbers(), reverse=True):
            self._number = max(self._number, number)
            entries: list[EntryPlace] = []
            try:
                for entry in read_entries(self._path(number), first_digest(self._run, number)):
                    entries.append(EntryPlace(entry.header.round, entry.end))
                if not entries:
                    raise DamageError("there is no entry")
            except DamageError as damage:
                troubles.append(damage)
                log.warning("%s, generation %d: %s", self.folder, number, damage)
            except FileNotFoundError:  # removed by a process that has begun a newer one since
                continue
            if entries:
                self._generations[number] = entries
        if troubles and self.empty:
            raise InputError(
                f"{self.folder} is damaged: {troubles[0]}, and there is no earlier state. Put back a copy of the "
                "folder, or begin the run again in another one."
            )
        if troubles:
            log.warning("%s: what cannot be read is left out; continuing after round %d", self.folder, self.last)

    def _states(self, generation: int, count: int) -> Iterator[SavedState]:
        """The state after each of the first ``count`` entries of a generation."""
        path = self._path(generation)
        with reading(path):
            entries = read_entries(path, first_digest(self._run, generation))
            yield from replay(itertools.islice(entries, count))

    # ------------------------------------------------------------------------------------------------------- writing

    def write(self, state: SavedState) -> None:
        """Add the changes since the last write; the first write of a process begins a generation."""
        if not self._digest:
            self.begin(state)
            return
        self._check_newest(self._number + 1)
        entries = self._generations[self._number]
        path = self._path(self._number)
        end, self._digest = self._add(state, path, self._digest, whole=False)
        entries.append(EntryPlace(state.round, end))

        full_bytes = entries[0].end
        if end - full_bytes > max(full_bytes, SMALL_BYTES):
            digest = self._digest
            try:
                self.begin(state)
            except OSError as error:
                log.warning("%s: a new generation cannot begin yet: %s", self.folder, error)
                self._digest = digest

    def begin(self, state: SavedState) -> None:
        """Begin a generation with a full state.

        If the run has gone back to an earlier round, entries after later rounds are no longer true and are removed.
        """
        self._digest = b""  # if this fails, the next write begins again
        number = self._number + 1
        for draft in self.folder.glob(".log-*.partial*"):  # left by a process that was stopped while it wrote
            draft.unlink(missing_ok=True)
        with new_file(self._path(number)) as draft:
            end, digest = self._add(state, draft, first_digest(self._run, number), whole=True)
            self._check_newest(number)
        if self._durable:
            sync_folder(self.folder)
        self._number = number
        self._digest = digest

        generations = {number: [EntryPlace(state.round, end)]}
        for earlier, entries in self._generations.items():
            kept = self._cut(earlier, entries, state.round)
            if kept:
                generations[earlier] = kept
        self._generations = dict(itertools.islice(generations.items(), self._kept))
        for removed in self._numbers() - self._generations.keys():
            self._path(removed).unlink()

    def _check_newest(self, number: int) -> None:
        """Raise if another process has begun the generation of this number."""
        if self._path(number).exists():
            raise InputError(f"another process is using the run in {self.folder}; this one stops.")

    def _add(self, state: SavedState, path: Path, before: bytes, *, whole: bool) -> tuple[int, bytes]:
        """Add an entry, or nothing if that fails; the length of the file, and the digest of the entry.

        Args:
            state: the state of which the changes are written, or, with ``whole``, everything.
            path: the file.
            before: digest of the entry before.
            whole: True for the first entry of a generation.
        """
        changes = self._written.changes(state, whole=whole)
        entry = encode_entry(state, changes, before)
        size = path.stat().st_size if path.exists() else 0
        try:
            end = append_bytes(path, entry.parts, durable=self._durable)
        except BaseException:
            if path.exists():
                os.truncate(path, size)
            raise
        self._written.update(state, changes)
        return end, entry.digest

    def _cut(self, generation: int, entries: list[EntryPlace], after: int) -> list[EntryPlace]:
        """The entries up to round ``after``; later ones are removed from the file."""
        kept = [entry for entry in entries if entry.round <= after]
        if kept and len(kept) < len(entries):
            os.truncate(self._path(generation), kept[-1].end)
        return kept


def missing_log(folder: Path) -> InputError:
    """The error where there is a manifest and no state, which no kill leaves behind."""
    return InputError(
        f"{folder} is damaged: its log is missing, and a run is not begun anew where one has been. Put back a copy "
        "of the folder, or use another one."
    )


def append_bytes(path: Path, parts: Sequence[Any], *, durable: bool) -> int:
    """Add bytes to a file; the length of the file afterwards."""
    with naming(path), path.open("ab", buffering=0) as file:
        for part in parts:
            left = memoryview(part)
            while left:
                written = file.write(left)
                left = left[written:]
        if durable:
            os.fsync(file.fileno())
        return file.tell()
