"""Colours for curves that have none of their own."""

from __future__ import annotations

import itertools

import pytest

from fed_ucbvi.core.colours import BLUE, PALETTE, distinct_colours, rgb
from fed_ucbvi.results.about import different_colours
from fed_ucbvi.results.looks import LOOKS


def apart(one: str, other: str) -> int:
    """The sum of the differences in red, green and blue."""
    return sum(abs(mine - theirs) for mine, theirs in zip(rgb(one), rgb(other), strict=True))


@pytest.mark.parametrize("number", [2, 3, 10, 100])
def test_any_number_of_algorithms_without_a_colour_get_different_ones(
    number: int,
) -> None:
    found = different_colours([""] * number)
    assert len(set(found)) == number
    assert not {look.colour for look in LOOKS.values()} & set(found)
    assert found[:2] == different_colours(["", ""]), "the first ones do not depend on how many follow"


def test_a_few_of_them_are_easily_told_apart() -> None:
    found = different_colours([BLUE, *[""] * 5])
    assert min(apart(one, other) for one, other in itertools.combinations(found, 2)) >= 100


def test_a_chosen_colour_is_kept() -> None:
    assert distinct_colours(["", "#000000", "#123456"])[1:] == ["#000000", "#123456"]


def test_a_chosen_colour_is_not_given_to_another_entry() -> None:
    assert distinct_colours(["", "#000000"])[0] != "#000000"


def test_an_algorithm_drawn_again_gets_the_next_colour_of_the_palette() -> None:
    assert distinct_colours([BLUE] * 3) == [*PALETTE[:3]]


def test_twenty_entries_have_twenty_colours() -> None:
    assert len({*distinct_colours([BLUE] * 20)}) == 20
