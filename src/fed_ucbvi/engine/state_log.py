"""The format of a log of states: entries, each with the changes since the one before.

An entry is::

    magic (4 bytes) | bytes of header (4) | bytes of payload (8) | digest (32) | header, JSON | payload

The digest is BLAKE2b over the digest of the entry before, the lengths, the header and the payload. So an entry counts
only in its place, in its log, in its run.

The header has the round, the state's JSON data, the forms of its arrays (names, types and shapes) if they differ from
those before, and the contents of the payload. The payload holds new rows of tables, then arrays that have changed:
either all of their numbers, or the places of the new numbers and the new numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError, check_integer
from fed_ucbvi.core.memory import JSON_FACTOR, SMALLER, check_memory
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.engine.state_arrays import SavedState, changed_places

MAGIC = b"FUL3"
HEAD = struct.Struct("<4sIQ")
"""Magic and the lengths of header and payload."""
DIGEST_BYTES = 32
NUMBER_TYPE = re.compile("[<>|][biuf][1248]")
"""Types of the arrays in a state."""
ROW_TYPE = np.dtype("<f8")
PLACE_TYPE = np.dtype("<u4")
MAX_PLACES = 2**32
WHOLE = -1
"""Number of changes of an array that is saved whole, without places."""


class DamageError(Exception):
    """An entry differs from what was written."""


class ArrayForm(NamedTuple):
    """Name, type and shape of an array."""

    name: str
    dtype: str
    shape: list[int]

    @classmethod
    def of(cls, name: str, array: Array) -> ArrayForm:
        return cls(name, array.dtype.str, list(array.shape))

    def fits(self, array: Array | None) -> bool:
        """True if the array has this type and shape."""
        return array is not None and array.dtype.str == self.dtype and list(array.shape) == self.shape


class TableRows(NamedTuple):
    """Rows of a table in the payload: they replace the rows from ``first`` on."""

    name: str
    first: int
    number: int
    width: int


class ArrayChange(NamedTuple):
    """New numbers of an array, given by its position, in the payload: how many, or :data:`WHOLE`."""

    array: int
    number: int


class Header(NamedTuple):
    """The header of an entry; ``forms`` is None if the forms are those of the entry before."""

    round: int
    about: dict[str, Any]
    forms: list[ArrayForm] | None
    rows: list[TableRows]
    changed: list[ArrayChange]


class Entry(NamedTuple):
    """An entry that was read, and the length of the file up to its end."""

    header: Header
    payload: bytes
    end: int


class EncodedEntry(NamedTuple):
    """The bytes of an entry, in parts, and its digest."""

    parts: list[Any]
    digest: bytes


def first_digest(run: str, generation: int) -> bytes:
    """The digest that the first entry of a log follows."""
    return _digest_after(b"", [f"{run} {generation}".encode()])


def _digest_after(before: bytes, parts: Iterable[Any]) -> bytes:
    digest = hashlib.blake2b(before, digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _forms(arrays: Mapping[str, Array]) -> list[ArrayForm]:
    return [ArrayForm.of(name, array) for name, array in arrays.items()]


def _array_of(form: ArrayForm, array: Array | None) -> Array:
    """The array if it has this form, or zeros of this form."""
    if array is not None and form.fits(array):
        return array
    return np.zeros(form.shape, form.dtype)


# ----------------------------------------------------------------------------------------------------------- reading


def read_entries(path: Path, digest: bytes) -> Iterator[Entry]:
    """The entries of a log, the first of which follows ``digest``.

    Raises:
        DamageError: at the first entry that is incomplete or was changed.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while file.tell() < size:
            head = file.read(HEAD.size)
            stored_digest = file.read(DIGEST_BYTES)
            if len(stored_digest) < DIGEST_BYTES:
                raise DamageError("the last entry is cut off")
            magic, header_length, payload_length = HEAD.unpack(head)
            if magic != MAGIC:
                raise DamageError("there are bytes that are no entry")
            if file.tell() + header_length + payload_length > size:
                raise DamageError("the last entry is cut off")
            text = file.read(header_length)
            payload = file.read(payload_length)
            digest = _digest_after(digest, [head, text, payload])
            if digest != stored_digest:
                raise DamageError("an entry is not what was written")
            header = _checked_header(text, payload_length)
            yield Entry(header, payload, end=file.tell())


def _checked_header(text: bytes, payload_length: int) -> Header:
    """The header of an entry, which asks for no more than a payload of this length has."""
    check_memory("The header of an entry", JSON_FACTOR * len(text), SMALLER)
    try:
        data = json.loads(text)
        about = data["about"]
        if not isinstance(about, dict):
            raise ValueError("about is no table")
        return Header(
            round=check_integer("round", data["round"]),
            about=about,
            forms=_checked_forms(data["forms"]) if "forms" in data else None,
            rows=_checked_rows(data["rows"], payload_length),
            changed=_checked_changes(data["changed"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamageError(f"an entry has a header that makes no sense: {error}") from error


def _checked_forms(data: Any) -> list[ArrayForm]:
    forms = []
    for name, dtype, lengths in data:
        shape = [check_integer("length", length) for length in lengths]
        if not isinstance(name, str) or not NUMBER_TYPE.fullmatch(dtype) or math.prod(shape) >= 2**60:
            raise ValueError(f"{name} is not an array of numbers")
        forms.append(ArrayForm(name, dtype, shape))
    return forms


def _checked_rows(data: Any, payload_length: int) -> list[TableRows]:
    tables = []
    for name, first, number, width in data:
        table = TableRows(
            name=name,
            first=check_integer("length", first),
            number=check_integer("length", number),
            width=check_integer("length", width),
        )
        if not isinstance(name, str) or ROW_TYPE.itemsize * table.number * table.width > payload_length:
            raise ValueError("a table has more rows than are saved")
        tables.append(table)
    return tables


def _checked_changes(data: Any) -> list[ArrayChange]:
    changes = []
    for array, number in data:
        change = ArrayChange(
            array=check_integer("array", array),
            number=check_integer("changes", number, at_least=WHOLE),
        )
        changes.append(change)
    return changes


class _PayloadReader:
    """Takes numbers from a payload, one array after the other."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 0

    def take(self, dtype: npt.DTypeLike, count: int) -> Array:
        numbers: Array = np.frombuffer(self._payload, dtype, count, self._position)
        self._position += numbers.nbytes
        return numbers


def replay(entries: Iterable[Entry]) -> Iterator[SavedState]:
    """The state after each entry of a log; the arrays are the same objects every time, as far as they last."""
    arrays: dict[str, Array] = {}
    tables: dict[str, list[tuple[float, ...]]] = {}
    for entry in entries:
        header = entry.header
        payload = _PayloadReader(entry.payload)

        # arrays of new forms begin as zeros
        if header.forms is not None:
            _check_saved(arrays, header.forms, len(entry.payload))
            arrays = {form.name: _array_of(form, arrays.get(form.name)) for form in header.forms}

        # new rows of tables
        for name, first, number, width in header.rows:
            rows = payload.take(ROW_TYPE, number * width).reshape(number, width)
            table = tables.setdefault(name, [])
            table[first:] = [tuple(row) for row in rows.tolist()]

        # new numbers of arrays
        flat_arrays = [array.reshape(-1) for array in arrays.values()]
        for position, number in header.changed:
            array = flat_arrays[position]
            if number == WHOLE:
                array[:] = payload.take(array.dtype, array.size)
            else:
                places = payload.take(PLACE_TYPE, number)
                array[places] = payload.take(array.dtype, number)

        yield SavedState(header.round, header.about, arrays, tables)


def _check_saved(arrays: Mapping[str, Array], forms: Iterable[ArrayForm], payload_length: int) -> None:
    """Raise if arrays of new forms, which are saved whole, are larger than the payload."""
    new_bytes = 0
    for form in forms:
        if not form.fits(arrays.get(form.name)):
            new_bytes += np.dtype(form.dtype).itemsize * math.prod(form.shape)
    if new_bytes > payload_length:
        raise InputError("its arrays are larger than all that is saved.")


# ----------------------------------------------------------------------------------------------------------- writing


class NewRows(NamedTuple):
    """Rows of a table from ``first`` on that were not written before."""

    name: str
    first: int
    rows: FloatArray


class NewNumbers(NamedTuple):
    """Numbers of an array, given by name and position, that have changed; ``places`` is None if these are all."""

    name: str
    position: int
    numbers: Array
    places: CountArray | None


class Changes(NamedTuple):
    """Changes of a state since it was written last; ``forms`` are those of all its arrays."""

    forms: list[ArrayForm]
    new_forms: bool
    rows: list[NewRows]
    numbers: list[NewNumbers]


class WrittenState:
    """A copy in memory of the state that was written last, to which later states are compared."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._lengths: dict[str, int] = {}

    def changes(self, state: SavedState, *, whole: bool) -> Changes:
        """The changes of ``state`` since then, or, with ``whole``, all of it."""
        arrays = {} if whole else self._arrays
        lengths = {} if whole else self._lengths
        new_rows = []
        for name, rows in state.rows.items():
            first = lengths.get(name, 0)
            if len(rows) > first:
                new_rows.append(NewRows(name, first, np.array(rows[first:], dtype=ROW_TYPE)))

        new_numbers = []
        for position, (name, array) in enumerate(state.arrays.items()):
            _check_numbers(array)
            flat = np.ascontiguousarray(array).reshape(-1)
            places = _places_to_save(array, arrays.get(name))
            if places is None:
                new_numbers.append(NewNumbers(name, position, flat, None))
            elif len(places):
                new_numbers.append(NewNumbers(name, position, flat[places], places))

        forms = _forms(state.arrays)
        return Changes(
            forms=forms,
            new_forms=forms != _forms(arrays),
            rows=new_rows,
            numbers=new_numbers,
        )

    def update(self, state: SavedState, changes: Changes) -> None:
        """Note that ``state`` has been written, with these changes."""
        self._lengths = {name: len(rows) for name, rows in state.rows.items()}
        self._arrays = {form.name: _array_of(form, self._arrays.get(form.name)) for form in changes.forms}
        for name, _, numbers, places in changes.numbers:
            flat = self._arrays[name].reshape(-1)
            if places is None:
                flat[:] = numbers
            else:
                flat[places] = numbers


def _check_numbers(array: Array) -> None:
    """Raise if an array holds anything but numbers and truth values."""
    if not NUMBER_TYPE.fullmatch(array.dtype.str):
        raise InputError(f"a saved state holds numbers of the unknown type {array.dtype.str}.")


def _places_to_save(array: Array, before: Array | None) -> CountArray | None:
    """Flat indices of the numbers that have changed; None where the array is best saved whole."""
    if before is None or before.dtype != array.dtype or before.shape != array.shape or array.size >= MAX_PLACES:
        return None
    places = changed_places(array, before)
    bytes_of_changes = len(places) * (PLACE_TYPE.itemsize + array.itemsize)
    if bytes_of_changes >= max(1, array.nbytes):
        return None
    return places


def encode_entry(state: SavedState, changes: Changes, digest: bytes) -> EncodedEntry:
    """The entry with the changes of a state, which follows the entry of ``digest``."""
    rows = []
    changed = []
    payload: list[Array] = []
    for table in changes.rows:
        number, width = table.rows.shape
        rows.append(TableRows(table.name, table.first, number, width))
        payload.append(table.rows)
    for change in changes.numbers:
        if change.places is None:
            changed.append(ArrayChange(change.position, WHOLE))
        else:
            changed.append(ArrayChange(change.position, len(change.places)))
            payload.append(change.places.astype(PLACE_TYPE))
        payload.append(change.numbers)

    header: dict[str, Any] = {"round": state.round, "about": state.about, "rows": rows, "changed": changed}
    if changes.new_forms:
        header["forms"] = changes.forms
    text = json.dumps(header, allow_nan=False).encode()
    views = [part.reshape(-1).view(np.uint8).data for part in payload]
    payload_length = sum(len(view) for view in views)
    head = HEAD.pack(MAGIC, len(text), payload_length)
    own_digest = _digest_after(digest, [head, text, *views])
    return EncodedEntry([head, own_digest, text, *views], own_digest)
