"""Arrays of a state that is saved and restored."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, State
from fed_ucbvi.core.errors import InputError


def restore(state: State, arrays: Mapping[str, Array], prefix: str = "") -> None:
    """Write saved arrays over those of ``state``; names, shapes and types must be its own."""
    for name, array in state.arrays().items():
        saved = arrays.get(prefix + name)
        if saved is None or saved.shape != array.shape or saved.dtype != array.dtype:
            raise InputError(
                f"the saved state does not fit this run: {prefix + name} is missing or of another shape."
            )
        array[...] = saved


def differs(array: Array, before: Array) -> npt.NDArray[np.bool_]:
    """Where two arrays of one shape and type differ in a bit; what is not a number equals itself."""
    mine, theirs = (np.ascontiguousarray(one).view(f"u{one.itemsize}") for one in (array, before))
    different: npt.NDArray[np.bool_] = mine != theirs
    return different
