"""Arrays as typed raw bytes with their shape; nothing that arrives is ever executed."""

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
    return CLASSES["Array"](dtype=CODES[array.dtype], shape=array.shape, data=array.tobytes())


def unpack(message: Any) -> Array:
    """The array of a protobuf message, as a copy of its own; raises :class:`WireError` where it is none."""
    dtype = DTYPES.get(message.dtype)
    if dtype is None:
        raise WireError(f"an array has the unknown type {message.dtype}.")
    shape = tuple(message.shape)
    if len(shape) > MOST_AXES:
        raise WireError(f"an array has {len(shape)} axes; at most {MOST_AXES} are allowed.")
    expected = math.prod(shape) * dtype.itemsize
    if len(message.data) != expected:
        raise WireError(
            f"an array of shape {shape} and type {dtype} takes {expected} bytes, got {len(message.data)}."
        )
    return np.frombuffer(message.data, dtype=dtype).reshape(shape).copy()
