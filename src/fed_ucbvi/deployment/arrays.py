"""Arrays as typed raw bytes with their shape, truth values eight to a byte; nothing that arrives is ever executed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.deployment.schema import CLASSES

DTYPES = {1: np.dtype("?"), 2: np.dtype("<i1"), 3: np.dtype("<i4"), 4: np.dtype("<i8"), 5: np.dtype("<f8")}
"""By the schema's ``Array.DType``."""
CODES = {dtype: code for code, dtype in DTYPES.items()}
MOST_AXES = 6


class WireError(ValueError):
    """Bytes that are not a message, or a message that does not fit here."""


def pack(array: Array) -> Any:
    """An array as a protobuf message."""
    data = np.packbits(array).tobytes() if array.dtype == np.bool_ else array.tobytes()
    return CLASSES["Array"](dtype=CODES[array.dtype], shape=array.shape, data=data)


def unpack(message: Any) -> Array:
    """The array of a protobuf message, as a copy of its own; raises :class:`WireError` where it is none."""
    dtype = DTYPES.get(message.dtype)
    if dtype is None:
        raise WireError(f"an array has the unknown type {message.dtype}.")
    shape = tuple(message.shape)
    if len(shape) > MOST_AXES:
        raise WireError(f"an array has {len(shape)} axes; at most {MOST_AXES} are allowed.")
    size = math.prod(shape)
    expected = (size + 7) // 8 if dtype == np.bool_ else size * dtype.itemsize
    if len(message.data) != expected:
        raise WireError(
            f"an array of shape {shape} and type {dtype} takes {expected} bytes, got {len(message.data)}."
        )
    if dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(message.data, dtype=np.uint8), count=size)
        return bits.astype(np.bool_).reshape(shape)
    return np.frombuffer(message.data, dtype=dtype).reshape(shape).copy()
