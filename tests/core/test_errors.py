"""Errors say what was wrong, what was expected and what to do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi.core.errors import (
    InputError,
    check_choice,
    check_integer,
    check_number,
    check_positive_integer,
    unknown_name,
)

KNOWN = ["gridworld", "synthetic"]


def test_input_errors_are_value_errors() -> None:
    assert issubclass(InputError, ValueError)


def test_an_unknown_name_suggests_the_nearest_and_lists_all_in_order() -> None:
    error = unknown_name("colour", "gren", ["red", "green", "blue"])
    assert str(error) == "unknown colour 'gren'; did you mean 'green'? Known: blue, green, red."


def test_a_name_like_no_other_gets_the_list_alone() -> None:
    assert str(unknown_name("colour", "zzz", ["red", "blue"])) == "unknown colour 'zzz'. Known: blue, red."


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_choice_passes(name: str) -> None:
    check_choice("environment", name, iter(KNOWN))


def test_an_unknown_choice_is_refused_also_where_the_known_come_from_an_iterator() -> None:
    with pytest.raises(InputError, match=re.escape("'grid'; did you mean 'gridworld'? Known: gridworld, synthetic.")):
        check_choice("environment", "grid", iter(KNOWN))


@given(value=st.integers(0, 2**70))
def test_whole_numbers_pass_unchanged(value: int) -> None:
    assert check_integer("n", value) == value


@pytest.mark.parametrize("value", [7, 7.0, np.int32(7), np.uint64(7), np.float64(7), np.array(7)])
def test_whole_numbers_of_any_type_become_integers(value: object) -> None:
    checked = check_integer("n", value)
    assert checked == 7
    assert type(checked) is int


def test_a_whole_number_written_as_a_power_of_ten_is_one() -> None:
    assert check_positive_integer("episodes", 1e9) == 10**9


@pytest.mark.parametrize(
    "value", [True, False, "7", None, 7.5, float("nan"), float("inf"), -float("inf"), [7], 7j, np.float64("nan")]
)
def test_anything_else_is_refused_with_its_name_and_value(value: object) -> None:
    with pytest.raises(InputError, match=re.escape(f"episodes must be a whole number, got {value!r}.")):
        check_integer("episodes", value)


def test_booleans_of_numpy_are_refused() -> None:
    with pytest.raises(InputError):
        check_integer("n", np.True_)


def test_an_array_of_several_numbers_is_refused_with_its_name() -> None:
    with pytest.raises(InputError, match="n must be a whole number"):
        check_integer("n", np.array([1, 2]))


@given(value=st.integers(), low=st.integers(-100, 100), length=st.integers(0, 100))
def test_numbers_outside_the_range_are_refused_with_the_limit_they_break(value: int, low: int, length: int) -> None:
    high = low + length
    if value < low:
        with pytest.raises(InputError, match=f"n must be at least {low}, got {value}"):
            check_integer("n", value, at_least=low, at_most=high)
    elif value > high:
        with pytest.raises(InputError, match=f"n must be at most {high}, got {value}"):
            check_integer("n", value, at_least=low, at_most=high)
    else:
        assert check_integer("n", value, at_least=low, at_most=high) == value


def test_zero_is_a_whole_number_but_not_a_positive_one() -> None:
    assert check_integer("n", 0) == 0
    with pytest.raises(InputError, match="n must be at least 1, got 0"):
        check_positive_integer("n", 0)


def test_a_positive_whole_number_may_have_a_largest_value() -> None:
    assert check_positive_integer("n", 5, at_most=5) == 5
    with pytest.raises(InputError, match="n must be at most 5, got 6"):
        check_positive_integer("n", 6, at_most=5)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_finite_numbers_pass_unchanged(value: float) -> None:
    assert check_number("x", value) == value


@pytest.mark.parametrize("value", [2, 2.0, np.int32(2), np.float32(2), np.array(2.0)])
def test_finite_numbers_of_any_type_become_floats(value: object) -> None:
    checked = check_number("x", value, above=1, at_most=2)
    assert checked == 2.0
    assert type(checked) is float


@pytest.mark.parametrize("value", [True, "0.5", None, [0.5], 1j])
def test_what_is_no_number_is_refused_with_its_name_and_value(value: object) -> None:
    with pytest.raises(InputError, match=re.escape(f"delta must be a number, got {value!r}.")):
        check_number("delta", value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_refused_with_its_name_and_value(value: float) -> None:
    with pytest.raises(InputError, match=re.escape(f"delta must be a number, got {value!r}.")):
        check_number("delta", value)


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
def test_a_number_outside_the_range_is_refused_with_the_limits(
    value: float, limits: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=re.escape(f"delta must be a number in {said}, got {value}.")):
        check_number("delta", value, **limits)


@pytest.mark.parametrize(("value", "limit"), [(0.0, "at_least"), (0.0, "at_most")])
def test_a_number_on_a_closed_limit_passes(value: float, limit: str) -> None:
    limits: dict[str, Any] = {limit: value}
    assert check_number("delta", value, **limits) == value


@pytest.mark.parametrize("value", [10**400, np.array([1.0, 2.0])], ids=["too large", "several"])
def test_what_cannot_become_one_float_is_refused_with_its_name(value: object) -> None:
    with pytest.raises(InputError, match="delta must be"):
        check_number("delta", value)
