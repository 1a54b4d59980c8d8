"""The records of a log: how one is written, how one is read, and how damage is noticed.

A record is::

    magic (4 bytes) | bytes of header (4) | bytes of payload (8) | digest (32) | header, JSON | payload

The digest is BLAKE2b over the digest of the record before, the lengths, the header and the payload. So a record
counts only in its place, in its generation, in its run.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import sync_folder

MAGIC = b"FUL1"
HEAD = struct.Struct("<4sIQ")
DIGEST_BYTES = 32
FILE_BYTES = 1 << 28
"""A file that has grown beyond this is followed by another."""


class DamageError(Exception):
    """What is read is not what was written."""


class Piece(NamedTuple):
    """Part of a state: a stretch of array number ``which`` from ``start`` on, or the numbers at ``places`` after it.

    Where it is rows of a table that grows, ``name`` says of which, and ``which`` is -1.
    """

    which: int
    start: int
    values: Array
    places: Array | None = None
    name: str = ""

    @property
    def nbytes(self) -> int:
        """What it takes in a payload."""
        return self.values.nbytes + (0 if self.places is None else self.places.nbytes)

    def header(self) -> list[Any]:
        """What a header says of it."""
        if self.which < 0:
            return [self.name, self.start, *self.values.shape]
        return [self.which, self.start, self.values.size, int(self.places is not None)]


class Record(NamedTuple):
    """A record that is what was written, and where it ends."""

    header: dict[str, Any]
    payload: bytes
    digest: bytes
    part: int
    end: int


def part_path(folder: Path, generation: int, part: int) -> Path:
    """A file of a log."""
    return folder / f"log-{generation:06d}-{part:04d}"


def first_digest(run: str, generation: int) -> bytes:
    """What the first record of a generation follows."""
    return hashlib.blake2b(f"{run} {generation}".encode(), digest_size=DIGEST_BYTES).digest()


def read_records(folder: Path, run: str, generation: int) -> Iterator[Record]:
    """The records of a generation in order; raises :class:`DamageError` at the first that is none."""
    digest, part = first_digest(run, generation), 0
    while (path := part_path(folder, generation, part)).exists():
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while file.tell() < size:
                record = _read_record(file, size, digest, part)
                digest = record.digest
                yield record
        part += 1


def _read_record(file: BinaryIO, size: int, before: bytes, part: int) -> Record:
    head = file.read(HEAD.size)
    digest = file.read(DIGEST_BYTES)
    if len(digest) < DIGEST_BYTES:
        raise DamageError("the last record is cut off")
    magic, header_bytes, payload_bytes = HEAD.unpack(head)
    if magic != MAGIC:
        raise DamageError("there are bytes that are no record")
    if file.tell() + header_bytes + payload_bytes > size:
        raise DamageError("the last record is cut off")
    header, payload = file.read(header_bytes), file.read(payload_bytes)
    if _digest(before, head, header, payload) != digest:
        raise DamageError("a record is not what was written")
    return Record(json.loads(header), payload, digest, part, file.tell())


def _digest(before: bytes, *parts: Any) -> bytes:
    made = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
    for part in parts:
        made.update(part)
    return made.digest()


def apply_pieces(
    arrays: Sequence[Array], rows: dict[str, list[tuple[float, ...]]], pieces: Sequence[Sequence[Any]], payload: bytes
) -> None:
    """Write what a payload holds over arrays, in the order of their forms, and into tables that grow."""
    at = 0

    def take(dtype: Any, number: int) -> Array:
        nonlocal at
        taken: Array = np.frombuffer(payload, dtype, number, at)
        at += taken.nbytes
        return taken

    for which, start, number, more in pieces:
        if isinstance(which, str):
            table = rows.setdefault(which, [])
            table[start:] = [tuple(row) for row in take("<f8", number * more).reshape(number, more).tolist()]
            continue
        flat = arrays[which].reshape(-1)
        if more:
            places = take("<u4", number)
            flat[start + places.astype(np.int64)] = take(flat.dtype, number)
        else:
            flat[start : start + number] = take(flat.dtype, number)


class GenerationWriter:
    """Adds records to one generation; no other process ever does.

    The first entry goes into files with names of their own until :meth:`commit`, so that a generation that is there
    has its full state.

    Args:
        folder: of the log.
        run: identifies it.
        generation: its number, which must be new.
        durable: whether records are on disk before :meth:`add` returns.
    """

    def __init__(self, folder: Path, run: str, generation: int, *, durable: bool) -> None:
        self._folder, self._generation, self._durable = folder, generation, durable
        self._digest = first_digest(run, generation)
        self._draft = True
        self.part = self.size = 0
        self._path(0).write_bytes(b"")

    def _path(self, part: int) -> Path:
        path = part_path(self._folder, self._generation, part)
        return path.with_name(f".{path.name}.partial-{os.getpid()}") if self._draft else path

    def commit(self) -> None:
        """Give the files of the first entry their names, that of the first file last."""
        drafts = [self._path(part) for part in range(self.part + 1)]
        self._draft = False
        if self._path(0).exists():
            raise InputError(f"another process goes on with the run in {self._folder}; this one stops.")
        for part in reversed(range(self.part + 1)):
            drafts[part].rename(self._path(part))
        if self._durable:
            sync_folder(self._folder)

    def add(self, records: Sequence[tuple[Mapping[str, Any], Sequence[Piece]]]) -> int:
        """Add the records of one entry, all or none of them; how many bytes they take."""
        part, size, digest = self.part, self.size, self._digest
        try:
            return sum(self._add_record(header, pieces) for header, pieces in records)
        except BaseException:
            for later in range(part + 1, self.part + 2):
                self._path(later).unlink(missing_ok=True)
            os.truncate(self._path(part), size)
            self.part, self.size, self._digest = part, size, digest
            raise

    def _add_record(self, header: Mapping[str, Any], pieces: Sequence[Piece]) -> int:
        if self.size > FILE_BYTES:
            self.part, self.size = self.part + 1, 0
        text = json.dumps(header, allow_nan=False).encode()
        arrays = [array for piece in pieces for array in (piece.places, piece.values) if array is not None]
        views = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]
        head = HEAD.pack(MAGIC, len(text), sum(map(len, views)))
        self._digest = _digest(self._digest, head, text, *views)
        start = self.size
        with self._path(self.part).open("ab", buffering=0) as file:
            for data in (memoryview(head + self._digest + text), *views):
                left = data
                while left:
                    left = left[file.write(left) :]
                self.size += len(data)
            if self._durable:
                os.fsync(file.fileno())
        return self.size - start
