"""The saved state of a run: named arrays, tables of rows and JSON data, and how arrays are written back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fed_ucbvi.algorithms.base import Array, State
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray


class SavedState(NamedTuple):
    """Everything that is needed to resume a run.

    Attributes:
        round: number of rounds after which the state was saved.
        about: JSON data.
        arrays: arrays of numbers, by name.
        rows: tables that only ever grow, by name: numbers, equally many in every row.
    """

    round: int
    about: dict[str, Any]
    arrays: dict[str, Array]
    rows: Mapping[str, Sequence[tuple[float, ...]]]


@runtime_checkable
class Growing(Protocol):
    """A state whose tables grow during a run."""

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Make the tables as large as those that were saved."""
        ...


def put_back(name: str, array: Array, saved: Array | None) -> None:
    """Write ``saved`` over ``array``.

    Raises:
        InputError: if nothing was saved, or the shape or the type differs. Integers may become wider.
    """
    if saved is None:
        raise InputError(f"the saved state does not fit this run: {name} is missing.")
    integers = saved.dtype.kind == array.dtype.kind == "i"
    wider = integers and np.can_cast(saved.dtype, array.dtype, "safe")
    same_type = saved.dtype == array.dtype
    if saved.shape != array.shape or not (same_type or wider):
        raise InputError(
            f"the saved state does not fit this run: {name} has shape {saved.shape} and type {saved.dtype}, expected "
            f"{array.shape} and {array.dtype}."
        )
    array[...] = saved


def restore(state: State, arrays: Mapping[str, Array], prefix: str = "") -> None:
    """Write saved arrays over those of ``state``; names, shapes and types must be its own."""
    if isinstance(state, Growing):
        state.make_room(named(prefix, arrays))
    for name, array in state.arrays().items():
        put_back(prefix + name, array, arrays.get(prefix + name))


def named(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays whose names begin with the prefix, by the rest of their names."""
    found = {}
    for name, array in arrays.items():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = array
    return found


def changed_places(array: Array, before: Array) -> CountArray:
    """Flat indices at which two arrays of one shape and type differ in a bit; NaN equals itself."""
    word_type = np.dtype(f"u{array.itemsize}")
    words = np.ascontiguousarray(array).view(word_type)
    words_before = np.ascontiguousarray(before).view(word_type)
    return np.flatnonzero(words != words_before)
