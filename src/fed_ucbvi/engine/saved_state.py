"""The state that is saved of a run, and how it is put back: array by array, each checked by name, shape and type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Array, State
from fed_ucbvi.core.errors import InputError

_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
"""Unsigned integers by their bytes."""


class SavedState(NamedTuple):
    """Everything that is needed to resume a run.

    Attributes:
        round: how many rounds have been played.
        about: what is not an array, ready for JSON.
        arrays: by name.
        rows: tables that only ever grow, by name: numbers, as many in every row.
    """

    round: int
    about: dict[str, Any]
    arrays: dict[str, Array]
    rows: Mapping[str, Sequence[tuple[float, ...]]]


def put_back(name: str, array: Array, saved: Array | None) -> None:
    """Write ``saved`` over ``array``; shapes must be the same, and types too, but that counts may get more bits."""
    if saved is None:
        raise InputError(f"the saved state does not fit this run: {name} is missing.")
    wider = saved.dtype.kind == array.dtype.kind == "i" and np.can_cast(saved.dtype, array.dtype, "safe")
    if saved.shape != array.shape or not (wider or saved.dtype == array.dtype):
        raise InputError(
            f"the saved state does not fit this run: {name} has shape {saved.shape} and type {saved.dtype}, expected "
            f"{array.shape} and {array.dtype}."
        )
    array[...] = saved


@runtime_checkable
class Growing(Protocol):
    """A state whose tables grow during a run."""

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have tables as large as those that were saved."""
        ...


def restore(state: State, arrays: Mapping[str, Array], prefix: str = "") -> None:
    """Write saved arrays over those of ``state``; names, shapes and types must be its own."""
    if isinstance(state, Growing):
        state.make_room(named(prefix, arrays))
    for name, array in state.arrays().items():
        put_back(prefix + name, array, arrays.get(prefix + name))


def named(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def differs(array: Array, before: Array) -> npt.NDArray[np.bool_]:
    """Where two arrays of one shape and type differ in a bit; NaN equals itself."""
    words = _WORDS[array.itemsize]
    mine, theirs = np.ascontiguousarray(array).view(words), np.ascontiguousarray(before).view(words)
    different: npt.NDArray[np.bool_] = mine != theirs
    return different
