"""Colours and markers of algorithms in figures.

An algorithm without a look gets a colour that no other curve of the figure has, and no marker. Other packages call
:func:`register_look` in the module that defines their algorithm.
"""

from __future__ import annotations

from typing import NamedTuple

from fed_ucbvi.core.colours import BLUE, MARKERS, ROSE, TEAL, Marker, check_colour
from fed_ucbvi.core.errors import check_choice


class Look(NamedTuple):
    """Colour of an algorithm's curves, ``#RRGGBB`` or empty for any, and marker of its points."""

    colour: str = ""
    marker: Marker = "none"


NO_LOOK = Look()
LOOKS: dict[str, Look] = {
    "fed-ucbvi": Look(BLUE, "cross"),
    "fed-kl-ucbvi": Look(TEAL, "diamond"),
    "fed-kl-ucbvi-fast": Look(ROSE, "triangle"),
}
"""Looks by the names under which runs record their algorithms."""


def register_look(name: str, colour: str = "", marker: Marker = "none") -> None:
    """Draw the algorithm of this name in a colour, ``#RRGGBB``, and with a marker.

    >>> register_look("bold", "#117733", "square")
    >>> look_of("bold")
    Look(colour='#117733', marker='square')
    """
    if colour:
        check_colour(f"the colour of {name}", colour)
    check_choice(f"marker of {name}", marker, MARKERS)
    LOOKS[name] = Look(colour, marker)


def look_of(name: str) -> Look:
    """Look of the algorithm that a run records by this name.

    >>> look_of("fed-ucbvi").colour, look_of("something new").colour
    ('#0072B2', '')
    """
    return LOOKS.get(name, NO_LOOK)
