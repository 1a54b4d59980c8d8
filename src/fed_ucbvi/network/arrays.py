"""Arrays as typed raw bytes with their shape, truth values eight to a byte; nothing that arrives is ever executed.

A start, a query or a report mostly repeats the one before it: the start of the last round, or the query or report of
the same exchange in the last synchronisation. Sender and receiver of a stream each remember the last message of each
kind (``DeltaCache`` of the messages), and only what has changed since is sent (:class:`Changes`). The first message
of each kind on a stream is whole, so after a reconnection both sides can begin at once. A report of what is new
repeats nothing, but most of it is zero: it says what is not.
"""

from __future__ import annotations

import math
import zlib
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from fed_ucbvi.algorithms.base import Array, Message

DTypeName = Literal["b1", "i1", "i4", "i8", "f8"]
MAX_AXES = 6
FROM_ZEROS = -1
LONG_BYTES = 512
"""Marks of what has changed that are longer than this are packed."""
WORD = np.dtype("<u8")
Words = npt.NDArray[np.uint64]
Natural = Annotated[int, Meta(ge=0)]


class WireError(ValueError):
    """Bytes that are not a message, or a message that does not fit here."""


class PackedArray(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Numbers in row-major order, little endian. Truth values are eight to a byte, the first in the lowest bit."""

    dtype: DTypeName
    shape: Annotated[tuple[Natural, ...], Meta(max_length=MAX_AXES)]
    data: bytes

    @classmethod
    def of(cls, array: Array) -> PackedArray:
        """The wire form of an array."""
        truth = array.dtype.kind == "b"
        data = np.packbits(array, bitorder="little").tobytes() if truth else array.tobytes()
        return cls(array.dtype.str[1:], array.shape, data)  # type: ignore[arg-type]

    def unpacked(self) -> Array:
        """The array, as a copy of its own; raises :class:`WireError` where it is none."""
        dtype, size = np.dtype(f"<{self.dtype}"), math.prod(self.shape)
        expected = packed_bytes(size, dtype)
        if len(self.data) != expected:
            raise WireError(
                f"an array of shape {self.shape} and type {dtype} takes {expected} bytes, got {len(self.data)}."
            )
        if dtype.kind == "b":
            bits = np.unpackbits(np.frombuffer(self.data, dtype=np.uint8), count=size, bitorder="little")
            return bits.astype(np.bool_).reshape(self.shape)
        return np.frombuffer(self.data, dtype=dtype).copy().reshape(self.shape)


def forms(arrays: Message) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types."""
    return [(array.shape, array.dtype) for array in arrays]


def packed_bytes(size: int, dtype: np.dtype[Any]) -> int:
    """How many bytes so many numbers take by themselves."""
    return (size + 7) // 8 if dtype.kind == "b" else size * dtype.itemsize


class Changes(Struct, frozen=True, forbid_unknown_fields=True, rename=lambda name: name[0]):
    """What has changed in the arrays of a message since the one of its kind in round ``since``.

    All arrays are laid end to end, as they are in memory (truth values a byte each), each filled up with zeros to
    whole words of 64 bits. Bit i % 8 of byte i / 8 of ``changed`` says whether word i has changed (zeros at the end
    are left out, and long ones are ``packed`` by zlib), and ``data`` has the words that have. Since
    :data:`FROM_ZEROS` means: from zeros, of the shapes and types of the last message of its kind.
    """

    since: Annotated[int, Meta(ge=FROM_ZEROS)]
    changed: bytes
    data: bytes
    packed: bool = False

    @classmethod
    def of(cls, arrays: Message, before: Message, since: int) -> Changes:
        """Where arrays differ in a bit from others of the same shapes and types, or from zeros if that is less."""
        words = _to_words(arrays)
        changed = words != _to_words(before)
        if np.count_nonzero(words) < np.count_nonzero(changed):
            since, changed = FROM_ZEROS, words != 0
        bits = np.packbits(changed, bitorder="little").tobytes().rstrip(b"\0")
        packed = len(bits) > LONG_BYTES
        return cls(since, zlib.compress(bits, 1) if packed else bits, words[changed].tobytes(), packed)

    @property
    def size(self) -> int:
        """In bytes, more or less."""
        return len(self.changed) + len(self.data)

    def made_to(self, before: Message) -> Message:
        """New arrays, of which :meth:`of` has given these changes; raises :class:`WireError` where it cannot have."""
        size = sum(map(_padded_bytes, before)) // WORD.itemsize
        words = np.zeros(size, WORD) if self.since == FROM_ZEROS else _to_words(before)
        bits = self.changed
        if self.packed:
            try:
                bits = zlib.decompressobj().decompress(bits, len(words) // 8 + 2)
            except zlib.error as error:
                raise WireError(f"changes that cannot be unpacked: {error}.") from error
        at = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little").nonzero()[0]
        if len(at) and at[-1] >= len(words):
            raise WireError(f"changes beyond the {len(words)} words of the arrays before.")
        if len(self.data) != WORD.itemsize * len(at):
            raise WireError(f"{len(at)} changed words take {WORD.itemsize * len(at)} bytes, got {len(self.data)}.")
        words[at] = np.frombuffer(self.data, dtype=WORD)
        arrays, offset = [], 0
        for array in before:
            arrays.append(np.ndarray(array.shape, array.dtype, words, offset))
            if array.dtype.kind == "b" and (arrays[-1].view(np.uint8) > 1).any():
                raise WireError("changes to truth values that are neither true nor false.")
            offset += _padded_bytes(array)
        return tuple(arrays)


def _padded_bytes(array: Array) -> int:
    """Bytes of an array filled up to whole words."""
    return -(-array.nbytes // WORD.itemsize) * WORD.itemsize


def _to_words(arrays: Message) -> Words:
    """The bytes of arrays end to end, each filled up with zeros to whole words; a copy."""
    filled = [array.tobytes().ljust(_padded_bytes(array), b"\0") for array in arrays]
    return np.frombuffer(bytearray().join(filled), WORD)
