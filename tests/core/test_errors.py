"""Errors say what was wrong, what was expected and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import InputError
from fed_ucbvi.core.errors import check_choice, check_integer, check_number, check_positive_integer, unknown_name

KNOWN = ["gridworld", "synthetic"]
NO_NUMBERS = [
    True,
    np.True_,
    "7",
    None,
    [7],
    7j,
    np.array([1, 2]),
    *map(float, ("nan", "inf", "-inf")),
]


def test_a_choice_must_be_known_also_where_the_known_come_from_an_iterator() -> None:
    for name in KNOWN:
        check_choice("environment", name, iter(KNOWN))
    with pytest.raises(
        InputError,
        match=re.escape("'grid'; did you mean 'gridworld'? Known: gridworld, synthetic."),
    ):
        check_choice("environment", "grid", iter(KNOWN))
    assert isinstance(unknown_name("colour", "zzz", ["red", "blue"]), ValueError)
    assert str(unknown_name("colour", "zzz", ["red", "blue"])) == "unknown colour 'zzz'. Known: blue, red."


LOW = st.integers(-100, 100)
LENGTH = st.integers(0, 100)


@given(low=LOW, length=LENGTH, data=st.data())
def test_whole_numbers_within_limits_pass(low: int, length: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(low, low + length))
    assert check_integer("n", value, at_least=low, at_most=low + length) == value


@given(low=LOW, length=LENGTH, below=st.integers(min_value=1))
def test_the_error_of_a_small_number_names_the_lower_limit(low: int, length: int, below: int) -> None:
    with pytest.raises(InputError, match=f"n must be at least {low}, got {low - below}"):
        check_integer("n", low - below, at_least=low, at_most=low + length)


@given(low=LOW, length=LENGTH, above=st.integers(min_value=1))
def test_the_error_of_a_large_number_names_the_upper_limit(low: int, length: int, above: int) -> None:
    high = low + length
    with pytest.raises(InputError, match=f"n must be at most {high}, got {high + above}"):
        check_integer("n", high + above, at_least=low, at_most=high)


def test_zero_is_a_whole_number() -> None:
    assert check_integer("n", 0) == 0


def test_zero_is_not_a_positive_whole_number() -> None:
    with pytest.raises(InputError, match="n must be at least 1, got 0"):
        check_positive_integer("n", 0)


def test_the_largest_allowed_whole_number_passes() -> None:
    assert check_positive_integer("n", 5, at_most=5) == 5


def test_a_power_of_ten_is_a_whole_number() -> None:
    assert check_positive_integer("episodes", 1e9) == 10**9


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (check_integer, int),
        (lambda name, value: check_number(name, value, above=1, at_most=7), float),
    ],
)
@pytest.mark.parametrize("value", [7, 7.0, np.int32(7), np.uint64(7), np.float64(7), np.array(7)])
def test_numbers_of_any_type_become_pythons(check: Callable[[str, Any], Any], kind: type, value: object) -> None:
    assert check("n", value) == 7
    assert type(check("n", value)) is kind


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_values_that_are_not_numbers_are_named_in_the_error(value: object) -> None:
    for check, what in ((check_integer, "a whole number"), (check_number, "a number")):
        with pytest.raises(InputError, match=re.escape(f"delta must be {what}, got {value!r}.")):
            check("delta", value)


def test_fractions_are_not_whole_numbers() -> None:
    with pytest.raises(InputError, match=r"n must be a whole number, got 7\.5\."):
        check_integer("n", 7.5)


def test_numbers_too_large_for_a_float_are_refused() -> None:
    with pytest.raises(InputError, match="delta must be"):
        check_number("delta", 10**400)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_finite_numbers_pass_unchanged_also_on_a_closed_limit(value: float) -> None:
    assert check_number("x", value, at_least=value, at_most=value) == value


@pytest.mark.parametrize(
    ("value", "limits", "said"),
    [
        (-0.5, {"at_least": 0}, "[0, inf)"),
        (0, {"above": 0}, "(0, inf)"),
        (1, {"below": 1}, "(-inf, 1)"),
        (1.5, {"at_most": 1}, "(-inf, 1]"),
        (1, {"at_least": 0, "below": 1}, "[0, 1)"),
        (0, {"above": 0, "at_most": 1}, "(0, 1]"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_limits(value: float, limits: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"delta must be a number in {said}, got {value}.")):
        check_number("delta", value, **limits)
