"""Transition kernels stored by support.

The successors of each ``(h,s,a)`` of a kernel ``P_h(s'|s,a)`` are stored with their probabilities, padded to the
largest support ``K <= S``. A stationary kernel has a step axis of length one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.limits import MAX_COUNT
from fed_ucbvi.core.types import FloatArray, IndexArray

ROW_SUM_TOLERANCE = 1e-9
"""Largest distance from 1 of the sum of a row of a kernel."""
ROW_SUM_ROUNDING = 1e-14
"""A row this close to summing to one is left as it is, so that checking a kernel twice changes no bit."""


def real_numbers(name: str, table: npt.ArrayLike) -> FloatArray:
    """``table`` as an array of float64, or an error."""
    try:
        return np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a rectangular table of numbers: {error}.") from error


def whole_numbers(name: str, table: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """``table`` as an array of int64, or an error if something in it is not a whole number."""
    numbers = real_numbers(name, table)
    whole = np.isfinite(numbers) & (numbers == np.floor(numbers))
    if not (whole & (np.abs(numbers) < MAX_COUNT)).all():
        raise InputError(f"{name} must hold whole numbers only.")
    return numbers.astype(np.int64)


def frozen_floats(array: npt.ArrayLike) -> FloatArray:
    """A contiguous read-only copy as float64."""
    copy = np.array(array, dtype=np.float64, order="C", copy=True)
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, eq=False)
class Kernel:
    """``P_h(s'|s,a)`` as ``successors`` and ``probabilities``, both of shape ``(steps, S, A, K)``.

    ``steps`` is 1 for a stationary kernel and the horizon otherwise. Successors of a row are distinct and
    ascending; padding repeats the row's last successor with probability zero.
    """

    successors: IndexArray
    probabilities: FloatArray

    def __post_init__(self) -> None:
        successors = whole_numbers("successors", self.successors)
        probabilities = real_numbers("probabilities", self.probabilities)
        if successors.ndim != 4 or successors.shape != probabilities.shape:
            raise InputError(
                "successors and probabilities must both have shape (steps, S, A, K); "
                f"got {successors.shape} and {probabilities.shape}."
            )
        if 0 in successors.shape:
            raise InputError(f"a kernel needs at least one state and one action, got shape {successors.shape}.")
        states = successors.shape[1]
        if successors.min() < 0 or successors.max() >= states:
            raise InputError(f"successors must be states 0..{states - 1}.")
        step = np.diff(successors, axis=3)
        repeated = (step == 0) & (probabilities[..., 1:] > 0)
        if (step < 0).any() or repeated.any():
            raise InputError("the successors of a row must ascend, without repeats except in the padding.")
        stored = successors.astype(np.int32, order="C")
        stored.setflags(write=False)
        vars(self).update(successors=stored, probabilities=frozen_floats(_checked_rows(probabilities)))

    def __repr__(self) -> str:
        steps, states, actions, most = self.successors.shape
        kind = "stationary" if steps == 1 else f"{steps:,} steps"
        return f"<Kernel: S = {states:,}, A = {actions:,}, {kind}, at most {most:,} next states>"

    @classmethod
    def from_dense(cls, table: npt.ArrayLike) -> Kernel:
        """A kernel from ``P[S,A,S]`` (stationary) or ``P[H,S,A,S]``.

        >>> Kernel.from_dense([[[0.5, 0.5]], [[0.0, 1.0]]]).states
        2
        """
        dense = real_numbers("a kernel", table)
        if dense.ndim == 3:
            dense = dense[None]
        if dense.ndim != 4 or dense.shape[1] != dense.shape[3]:
            raise InputError(
                "a kernel must have shape (S, A, S), or (H, S, A, S) if it depends on the step; "
                f"got {np.shape(table)}.{_advice_on_axes(dense)}"
            )
        if dense.size == 0:
            raise InputError(f"a kernel needs at least one state and one action, got shape {np.shape(table)}.")
        _check_orientation(dense)
        _checked_rows(dense)
        positive = dense > 0
        width = max(1, int(positive.sum(axis=3).max()))
        order = np.argsort(~positive, axis=3, kind="stable")[..., :width]
        probabilities = np.take_along_axis(dense, order, axis=3)
        return cls(_padded(order, probabilities > 0), probabilities)

    @property
    def steps(self) -> int:
        """1 if stationary, otherwise the horizon."""
        return int(self.successors.shape[0])

    @property
    def states(self) -> int:
        """S."""
        return int(self.successors.shape[1])

    @property
    def actions(self) -> int:
        """A."""
        return int(self.successors.shape[2])

    @property
    def width(self) -> int:
        """K, the size of the largest support."""
        return int(self.successors.shape[3])

    def dense(self) -> FloatArray:
        """The table ``P[steps, S, A, S]``."""
        table = np.zeros((self.steps, self.states, self.actions, self.states))
        for k in range(self.width):
            slot = self.successors[..., k : k + 1].astype(np.int64)
            mass = np.take_along_axis(table, slot, axis=3) + self.probabilities[..., k : k + 1]
            np.put_along_axis(table, slot, mass, axis=3)
        return table


def _are_one(sums: npt.NDArray[np.floating]) -> bool:
    """True if all of these sums are 1 up to the tolerance."""
    return bool((np.abs(sums - 1.0) <= ROW_SUM_TOLERANCE).all())


def _advice_on_axes(dense: FloatArray) -> str:
    """Advice for a table ``(steps, ., ., .)`` that is a kernel with its axes in another order; else nothing."""
    if dense.ndim != 4 or dense.size == 0:
        return ""
    _, first, second, last = dense.shape
    if second == last and _are_one(dense.sum(axis=3)):
        return " It looks like (A, S, S): pass np.swapaxes(P, -3, -2)."
    if first == second and _are_one(dense.sum(axis=2)):
        return " It looks like (S, S, A), the next state before the action: pass np.swapaxes(P, -2, -1)."
    return ""


def _check_orientation(dense: FloatArray) -> None:
    """Raise if the first axis of states is that of the next state: then it adds up to 1 and the last one does not."""
    if not np.isfinite(dense).all() or _are_one(dense.sum(axis=3)) or not _are_one(dense.sum(axis=1)):
        return
    raise InputError(
        "the kernel adds up to 1 over its first axis of states instead of the last one, so it is transposed: the "
        "next state must be the last axis, P[s, a, s']. Pass np.swapaxes(P, -3, -1)."
    )


def _checked_rows(rows: npt.NDArray[np.generic]) -> FloatArray:
    """The rows rescaled to sum to exactly one, or an error naming the first bad row."""
    probabilities = np.asarray(rows, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        totals = probabilities.sum(axis=3, keepdims=True)
    complaints = (
        (~np.isfinite(probabilities), "holds a value that is not a finite number"),
        (probabilities < 0, "holds a negative probability"),
        (
            np.abs(totals - 1.0) > ROW_SUM_TOLERANCE,
            "sums to {:.12g}, not to 1; divide each row P[h,s,a,:] by its sum",
        ),
    )
    for is_bad, complaint in complaints:
        if is_bad.any():
            h, s, a = np.argwhere(is_bad)[0][:3].tolist()
            total = totals[h, s, a, 0]
            raise InputError(f"row (h={h}, s={s}, a={a}) of the kernel {complaint.format(total)}.")
    exact = np.abs(totals - 1.0) <= ROW_SUM_ROUNDING
    return np.asarray(probabilities / np.where(exact, 1.0, totals))


def _padded(successors: npt.NDArray[np.integer], used: npt.NDArray[np.bool_]) -> IndexArray:
    """Successors with the unused slots repeating the row's last used one (slots are used from the left)."""
    last = np.maximum(used.sum(axis=-1, keepdims=True) - 1, 0)
    slots = np.minimum(np.arange(successors.shape[-1]), last)
    return np.take_along_axis(successors, slots, axis=-1).astype(np.int32)


def align(kernels: Sequence[Kernel]) -> tuple[IndexArray, FloatArray]:
    """Several kernels on one support: ``successors[steps,S,A,K]`` and ``probabilities[len,steps,S,A,K]``.

    The support of a row is the union of the kernels' supports there, ascending.
    """
    shapes = {(kernel.states, kernel.actions) for kernel in kernels}
    if len(shapes) != 1:
        raise InputError(f"all kernels must have the same states and actions; got (S, A) in {sorted(shapes)}.")
    steps = max(kernel.steps for kernel in kernels)
    if any(kernel.steps not in (1, steps) for kernel in kernels):
        raise InputError(f"step-dependent kernels must share one horizon; got {[k.steps for k in kernels]}.")
    successors: IndexArray = kernels[0].successors
    if all(np.array_equal(kernel.successors, successors) for kernel in kernels):
        return successors, np.stack([kernel.probabilities for kernel in kernels])
    S = kernels[0].states
    A = kernels[0].actions
    rows = np.arange(steps * S * A).reshape(steps, S, A, 1)
    # The possible entries of each kernel: row * S + next state, and the probability.
    keys_by_kernel = []
    masses_by_kernel = []
    for kernel in kernels:
        mass = np.broadcast_to(kernel.probabilities, (steps, S, A, kernel.width))
        possible = mass > 0
        keys_by_kernel.append((rows * S + kernel.successors)[possible])
        masses_by_kernel.append(mass[possible])
    # The union of these entries, each with its slot in its row.
    keys = np.unique(np.concatenate(keys_by_kernel))
    row, state = np.divmod(keys, S)
    first_of_row = np.searchsorted(row, row)
    slot = np.arange(len(keys)) - first_of_row
    K = int(slot.max()) + 1
    table = np.zeros((rows.size, K), dtype=np.int32)
    table[row, slot] = state
    used = np.zeros((rows.size, K), dtype=np.bool_)
    used[row, slot] = True
    # The probabilities of each kernel in these slots.
    probabilities = np.zeros((len(kernels), rows.size, K))
    for i, (own_keys, mass) in enumerate(zip(keys_by_kernel, masses_by_kernel, strict=True)):
        entry = np.searchsorted(keys, own_keys)
        probabilities[i, row[entry], slot[entry]] = mass
    common_successors = _padded(table, used).reshape(steps, S, A, K)
    return common_successors, probabilities.reshape(len(kernels), steps, S, A, K)
