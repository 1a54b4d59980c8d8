"""Arrays as typed raw bytes with their shape, truth values eight to a byte; nothing that arrives is ever executed."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from fed_ucbvi.algorithms.base import Array

DTypeName = Literal["b1", "i1", "i4", "i8", "f8"]
MAX_AXES = 6
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
        dtype = np.dtype(f"<{self.dtype}")
        size = math.prod(self.shape)
        expected = packed_bytes(size, dtype)
        if len(self.data) != expected:
            raise WireError(
                f"an array of shape {self.shape} and type {dtype} takes {expected} bytes, got {len(self.data)}."
            )
        if dtype.kind == "b":
            bits = np.unpackbits(np.frombuffer(self.data, dtype=np.uint8), count=size, bitorder="little")
            return bits.astype(np.bool_).reshape(self.shape)
        return np.frombuffer(self.data, dtype=dtype).copy().reshape(self.shape)


def packed_bytes(size: int, dtype: np.dtype[Any]) -> int:
    """Number of bytes of so many numbers."""
    return (size + 7) // 8 if dtype.kind == "b" else size * dtype.itemsize
