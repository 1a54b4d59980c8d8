"""Arrays as typed raw bytes with their shape, truth values eight to a byte; nothing that arrives is ever executed.

Where both sides hold earlier arrays of the same shapes and types, only what has changed is sent. For this all arrays
of a message are laid end to end as words of 64 bits. One bit for each word says whether it has changed. (Entries of
pairs that an agent never visits never change, so they are left out.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, Message
from fed_ucbvi.network.schema import CLASSES

DTYPES = {1: np.dtype("?"), 2: np.dtype("<i1"), 3: np.dtype("<i4"), 4: np.dtype("<i8"), 5: np.dtype("<f8")}
"""By the schema's ``Array.DType``."""
CODES = {dtype: code for code, dtype in DTYPES.items()}
MAX_AXES = 6
WORD = np.dtype("<u8")
Words = npt.NDArray[np.uint64]


class WireError(ValueError):
    """Bytes that are not a message, or a message that does not fit here."""


def pack(array: Array, message: Any = None) -> Any:
    """An array as a protobuf message, which is written to ``message``, or to a new one."""
    message = CLASSES["Array"]() if message is None else message
    message.dtype = CODES[array.dtype]
    message.shape.extend(array.shape)
    truth = array.dtype.kind == "b"
    message.data = np.packbits(array, bitorder="little").tobytes() if truth else array.tobytes()
    return message


def packed_bytes(array: Array) -> int:
    """How many bytes the numbers of an array take by themselves."""
    return _length(array.size, array.dtype)


def _length(size: int, dtype: np.dtype[Any]) -> int:
    return (size + 7) // 8 if dtype.kind == "b" else size * dtype.itemsize


def unpack(message: Any) -> Array:
    """The array of a protobuf message, as a copy of its own; raises :class:`WireError` where it is none."""
    dtype = DTYPES.get(message.dtype)
    if dtype is None:
        raise WireError(f"an array has the unknown type {message.dtype}.")
    shape = tuple(message.shape)
    if len(shape) > MAX_AXES:
        raise WireError(f"an array has {len(shape)} axes; at most {MAX_AXES} are allowed.")
    data, size = message.data, math.prod(shape)
    expected = _length(size, dtype)
    if len(data) != expected:
        raise WireError(f"an array of shape {shape} and type {dtype} takes {expected} bytes, got {len(data)}.")
    if dtype.kind == "b":
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=size, bitorder="little")
        return bits.astype(np.bool_).reshape(shape)
    return np.frombuffer(data, dtype=dtype).copy().reshape(shape)


def changes(arrays: Message, before: Message) -> tuple[bytes, bytes]:
    """Where arrays differ in a bit from others of the same shapes and types: which words, and those words."""
    words = _to_words(arrays)
    changed = words != _to_words(before)
    return np.packbits(changed, bitorder="little").tobytes().rstrip(b"\0"), words[changed].tobytes()


def with_changes(before: Message, changed: bytes, data: bytes) -> Message:
    """New arrays of which :func:`changes` has given these; raises :class:`WireError` where it cannot have."""
    words = _to_words(before)
    at = np.unpackbits(np.frombuffer(changed, dtype=np.uint8), bitorder="little").nonzero()[0]
    if len(at) and at[-1] >= len(words):
        raise WireError(f"changes beyond the {len(words)} words of the arrays before.")
    if len(data) != WORD.itemsize * len(at):
        raise WireError(f"{len(at)} changed words take {WORD.itemsize * len(at)} bytes, got {len(data)}.")
    words[at] = np.frombuffer(data, dtype=WORD)
    arrays, offset = [], 0
    for array in before:
        arrays.append(np.ndarray(array.shape, array.dtype, words, offset))
        if array.dtype.kind == "b" and (arrays[-1].view(np.uint8) > 1).any():
            raise WireError("changes to truth values that are neither true nor false.")
        offset += _in_words(array)
    return tuple(arrays)


def _in_words(array: Array) -> int:
    """Bytes of an array filled up to whole words."""
    return -(-array.nbytes // WORD.itemsize) * WORD.itemsize


def _to_words(arrays: Message) -> Words:
    """The bytes of arrays end to end, each filled up with zeros to whole words; a copy."""
    return np.frombuffer(bytearray().join([array.tobytes().ljust(_in_words(array), b"\0") for array in arrays]), WORD)
