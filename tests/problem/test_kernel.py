"""Kernels stored by support say the same as dense tables, and bad tables are refused by name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.kernel import ROW_SUM_ROUNDING, Kernel, align
from problems import random_dense_kernel, row_of

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 5)
FLAGS = st.lists(st.booleans(), min_size=1, max_size=4)


def uniform_table(steps: int = 2, states: int = 3, actions: int = 2) -> FloatArray:
    return np.full((steps, states, actions, states), 1.0 / states)


@given(seed=SEEDS, steps=SIZES, states=SIZES, actions=SIZES, zeros=st.floats(0, 1))
def test_a_kernel_is_its_table_row_by_row(seed: int, steps: int, states: int, actions: int, zeros: float) -> None:
    table = random_dense_kernel(np.random.default_rng(seed), states, actions, steps=steps, zeros=zeros)
    kernel = Kernel.from_dense(table if steps > 1 else table[0])
    np.testing.assert_allclose(kernel.dense(), table, rtol=1e-15, atol=0)
    assert kernel.steps == steps
    assert kernel.states == states
    assert kernel.actions == actions
    largest = 0
    for h, s, a in np.ndindex(steps, states, actions):
        expected = {x: float(p) for x, p in enumerate(table[h, s, a]) if p > 0}
        assert row_of(kernel, h, s, a) == pytest.approx(expected, rel=1e-15)
        largest = max(largest, len(expected))
        slots = kernel.successors[h, s, a].tolist()
        used = len(expected)
        assert slots[:used] == sorted(expected)
        assert slots[used:] == [slots[used - 1]] * (kernel.width - used)
    assert kernel.width == largest


def test_a_kernel_given_by_support_may_list_impossible_successors() -> None:
    kernel = Kernel(
        np.array([[[[0, 1]], [[0, 0]]]], dtype=np.int32),
        np.array([[[[1.0, 0.0]], [[1.0, 0.0]]]]),
    )
    np.testing.assert_array_equal(kernel.dense(), [[[[1.0, 0.0]], [[1.0, 0.0]]]])


@given(seed=SEEDS, states=st.integers(1, 30), off=st.floats(-9e-10, 9e-10))
def test_rows_that_nearly_sum_to_one_are_rescaled_to_it_up_to_rounding(seed: int, states: int, off: float) -> None:
    kernel = Kernel.from_dense(random_dense_kernel(np.random.default_rng(seed), states, 2) * (1 + off))
    np.testing.assert_allclose(kernel.probabilities.sum(axis=-1), 1.0, rtol=0, atol=ROW_SUM_ROUNDING)


@given(seed=SEEDS, states=st.integers(1, 30), off=st.floats(-9e-10, 9e-10))
def test_checking_a_kernel_again_changes_no_bit(seed: int, states: int, off: float) -> None:
    kernel = Kernel.from_dense(random_dense_kernel(np.random.default_rng(seed), states, 2) * (1 + off))
    again = Kernel(kernel.successors, kernel.probabilities)
    np.testing.assert_array_equal(again.probabilities, kernel.probabilities)


def test_a_kernel_is_a_value_that_later_edits_of_its_input_do_not_reach() -> None:
    successors = np.zeros((1, 1, 1, 1), dtype=np.int32)
    probabilities = np.ones((1, 1, 1, 1))
    kernel = Kernel(successors, probabilities)
    probabilities[:] = 0.5
    assert kernel.probabilities.item() == 1.0
    with pytest.raises(ValueError, match="read-only"):
        kernel.probabilities[:] = 0.5
    with pytest.raises(ValueError, match="read-only"):
        kernel.successors[:] = 0


@given(
    seed=SEEDS,
    states=SIZES,
    actions=SIZES,
    horizon=SIZES,
    stationary=FLAGS,
    zeros=st.floats(0, 1),
)
def test_aligned_kernels_are_the_stacked_dense_tables(
    seed: int,
    states: int,
    actions: int,
    horizon: int,
    stationary: list[bool],
    zeros: float,
) -> None:
    rng = np.random.default_rng(seed)
    lengths = [1 if still else horizon for still in stationary]
    tables = [random_dense_kernel(rng, states, actions, steps=length, zeros=zeros) for length in lengths]
    successors, probabilities = align([Kernel.from_dense(table) for table in tables])
    steps = max(table.shape[0] for table in tables)
    expected = np.stack([np.broadcast_to(table, (steps, *table.shape[1:])) for table in tables])
    assert probabilities.shape == (len(tables), *successors.shape)
    for table, aligned in zip(expected, probabilities, strict=True):
        np.testing.assert_allclose(Kernel(successors, aligned).dense(), table, rtol=1e-15, atol=0)
    assert successors.shape[-1] == (expected > 0).any(axis=0).sum(axis=-1).max()


def test_disjoint_supports_are_joined_in_ascending_order() -> None:
    first = Kernel.from_dense(np.broadcast_to([0.0, 0.25, 0.0, 0.75], (4, 1, 4)))
    second = Kernel.from_dense(np.broadcast_to([1.0, 0.0, 0.0, 0.0], (4, 1, 4)))
    successors, probabilities = align([first, second])
    np.testing.assert_array_equal(successors[0, 2, 0], [0, 1, 3])
    np.testing.assert_array_equal(probabilities[:, 0, 2, 0], [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])


def test_kernels_with_equal_bytes_but_different_steps_are_aligned() -> None:
    stationary = np.full((1, 2, 1, 2), 0.5)
    identity = np.broadcast_to(np.eye(2)[:, None, :], (2, 2, 1, 2))
    successors, probabilities = align([Kernel.from_dense(stationary), Kernel.from_dense(identity)])
    np.testing.assert_array_equal(Kernel(successors, probabilities[0]).dense(), np.repeat(stationary, 2, axis=0))
    np.testing.assert_array_equal(Kernel(successors, probabilities[1]).dense(), identity)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            [{"states": 2}, {"states": 3}],
            "same states and actions; got (S, A) in [(2, 2), (3, 2)]",
        ),
        (
            [{"steps": 1}, {"steps": 2}, {"steps": 3}],
            "share one horizon; got [1, 2, 3]",
        ),
        ([], "same states and actions"),
    ],
)
def test_kernels_that_do_not_fit_each_other_are_not_aligned(shapes: list[dict[str, int]], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        align([Kernel.from_dense(uniform_table(**shape)) for shape in shapes])


def with_row(h: int, s: int, a: int, row: list[float]) -> FloatArray:
    table = uniform_table()
    table[h, s, a] = row
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        *(
            (
                with_row(1, 2, 0, [0.0, x, 0.0]),
                "row (h=1, s=2, a=0) of the kernel holds a value that is not a finite",
            )
            for x in (np.nan, np.inf, -np.inf)
        ),
        (
            with_row(1, 0, 1, [-0.1, 0.6, 0.5]),
            "row (h=1, s=0, a=1) of the kernel holds a negative",
        ),
        *(
            (
                with_row(0, 2, 1, row),
                f"row (h=0, s=2, a=1) of the kernel sums to {sum(row):.9g}, not to 1; divide",
            )
            for row in (
                [0.5, 0.4, 0.0],
                [0.5, 0.5, 1e-8],
                [0.0, 0.0, 0.0],
                [1.0, 1.0, 1.0],
            )
        ),
        *(
            (
                np.full(shape, 0.5),
                f"(H, S, A, S) if it depends on the step; got {shape}",
            )
            for shape in ((), (3,), (3, 3), (3, 2, 2), (2, 3, 2, 2), (1, 2, 3, 2, 3))
        ),
        *(
            (np.zeros(shape), f"at least one state and one action, got shape {shape}")
            for shape in ((0, 2, 0), (3, 0, 3), (0, 3, 2, 3))
        ),
    ],
)
def test_a_table_that_is_no_kernel_is_refused_with_its_row_or_shape(table: FloatArray, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Kernel.from_dense(table)


HALVES = np.full((1, 2, 1, 2), 0.5)


@pytest.mark.parametrize(
    ("successors", "probabilities", "message"),
    [
        (np.zeros((1, 2, 2, 0)), np.zeros((1, 2, 2, 0)), "(1, 2, 2, 0)"),
        (
            np.zeros((1, 2, 1, 2)),
            np.ones((1, 2, 1, 1)),
            "got (1, 2, 1, 2) and (1, 2, 1, 1)",
        ),
        (np.zeros((2, 1, 2)), np.ones((2, 1, 2)), "got (2, 1, 2) and (2, 1, 2)"),
        *(([[[[0, 1]], [row]]], HALVES, "must ascend, without repeats") for row in ([1, 0], [0, 0], [1, 1])),
        *(([[[[0]], [[state]]]], np.ones((1, 2, 1, 1)), "states 0..1") for state in (-1, 2)),
        (
            [[[[0, 1]], [[0, 1]]]],
            HALVES + np.array([[[[0.0]], [[0.2]]]]),
            "row (h=0, s=1, a=0) of the kernel sums to 1.4",
        ),
        ([[[[0.0]], [[0.7]]]], np.ones((1, 2, 1, 1)), "whole numbers only"),
    ],
)
def test_a_support_that_is_no_kernel_is_refused(successors: Any, probabilities: FloatArray, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Kernel(np.asarray(successors), probabilities)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ((1, 0, 2), r"It looks like (A, S, S): pass np.swapaxes(P, -3, -2)."),
        (
            (0, 2, 1),
            r"It looks like (S, S, A), the next state before the action: pass np.swapaxes(P, -2, -1).",
        ),
        ((2, 1, 0), "so it is transposed: the next state must be the last axis"),
    ],
)
def test_a_kernel_with_its_axes_in_another_order_is_refused_with_the_remedy(axes: tuple[int, ...], says: str) -> None:
    kernel = np.random.default_rng(3).dirichlet(np.ones(4), (4, 2))
    with pytest.raises(InputError, match=re.escape(says)):
        Kernel.from_dense(kernel.transpose(axes))


def test_a_row_that_is_nearly_a_distribution_is_refused_with_a_sum_that_is_not_1() -> None:
    with pytest.raises(InputError, match=r"sums to 1\.00000000[0-9]+, not to 1"):
        Kernel.from_dense([[[0.5, 0.5 + 3e-9]], [[0.0, 1.0]]])
