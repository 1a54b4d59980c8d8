"""Arrays as typed raw bytes with their shape, truth values eight to a byte; nothing that arrives is ever executed.

Where both sides hold an earlier array of the same shape, only the entries that have changed are sent. One bit for
each entry says whether it has changed. (Entries of pairs that an agent never visits never change, so they are left
out.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.engine.saved_state import differs
from fed_ucbvi.network.schema import CLASSES

DTYPES = {1: np.dtype("?"), 2: np.dtype("<i1"), 3: np.dtype("<i4"), 4: np.dtype("<i8"), 5: np.dtype("<f8")}
"""By the schema's ``Array.DType``."""
CODES = {dtype: code for code, dtype in DTYPES.items()}
MAX_AXES = 6


class WireError(ValueError):
    """Bytes that are not a message, or a message that does not fit here."""


def pack(array: Array, before: Array | None = None, message: Any = None) -> Any:
    """An array as a protobuf message: whole, or, if the receiver has ``before``, where it differs from that.

    It is written to ``message``, or to a new one.
    """
    message = CLASSES["Array"]() if message is None else message
    message.dtype = CODES[array.dtype]
    message.shape.extend(array.shape)
    if before is not None:
        changed = differs(array, before).reshape(-1)
        places, values = _to_bytes(changed).rstrip(b"\0"), _to_bytes(array.reshape(-1)[changed])
        whole = _length(array.size, array.dtype)
        if len(values) < whole and len(places) + len(values) <= whole:
            message.data, message.changed = values, places
            return message
    message.data = _to_bytes(array)
    return message


def _to_bytes(array: Array) -> bytes:
    """Bytes of an array: numbers as they are, truth values eight to a byte, the first in the lowest bit."""
    data: bytes = np.packbits(array, bitorder="little").tobytes() if array.dtype.kind == "b" else array.tobytes()
    return data


def _length(size: int, dtype: np.dtype[Any]) -> int:
    """How many bytes this number of entries takes."""
    return (size + 7) // 8 if dtype.kind == "b" else size * dtype.itemsize


def _from_bytes(data: bytes, size: int, dtype: np.dtype[Any]) -> Array:
    """So many entries; there must be as many bytes as they take."""
    if dtype.kind == "b":
        return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=size, bitorder="little").astype(np.bool_)
    return np.frombuffer(data, dtype=dtype).copy()


def unpack(message: Any, before: Array | None = None) -> Array:
    """The array of a protobuf message, as a copy of its own; raises :class:`WireError` where it is none.

    ``before`` is what the sender took the differences from, if the message may hold such.
    """
    dtype = DTYPES.get(message.dtype)
    if dtype is None:
        raise WireError(f"an array has the unknown type {message.dtype}.")
    shape = tuple(message.shape)
    if len(shape) > MAX_AXES:
        raise WireError(f"an array has {len(shape)} axes; at most {MAX_AXES} are allowed.")
    size = math.prod(shape)
    expected = _length(size, dtype)
    if len(message.data) == expected and not message.changed:
        return _from_bytes(message.data, size, dtype).reshape(shape)
    if before is None:
        raise WireError(
            f"an array of shape {shape} and type {dtype} takes {expected} bytes, got {len(message.data)}."
        )
    if (before.shape, before.dtype) != (shape, dtype):
        raise WireError(
            f"changes of an array of shape {shape} and type {dtype}, but the one before has shape {before.shape} "
            f"and type {before.dtype}."
        )
    return _with_changes(before, message.changed, message.data)


def _with_changes(before: Array, places: bytes, data: bytes) -> Array:
    """A copy of ``before`` with the entries in ``data`` where bits are set in ``places``."""
    array, bits = before.copy(), int.from_bytes(places, "little")
    if len(places) > array.size // 8 + 1 or bits.bit_length() > array.size:
        raise WireError(f"changes beyond the {array.size} entries of an array.")
    numbers = bits.bit_count()
    expected = _length(numbers, array.dtype)
    if len(data) != expected:
        raise WireError(f"{numbers} changes of type {array.dtype} take {expected} bytes, got {len(data)}.")
    if numbers:
        at = np.unpackbits(np.frombuffer(places, dtype=np.uint8), bitorder="little").nonzero()
        array.reshape(-1)[at] = _from_bytes(data, numbers, array.dtype)
    return array
