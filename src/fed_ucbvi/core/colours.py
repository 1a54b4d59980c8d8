"""Colours that everyone can tell apart, dashes of lines, and the markers of points."""

from __future__ import annotations

import colorsys
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from fed_ucbvi.core.errors import InputError

Marker = Literal["cross", "circle", "square", "diamond", "triangle", "none"]
MARKERS: tuple[Marker, ...] = get_args(Marker)
Dash = Literal["solid", "dashed", "dotted", "dashdot"]
DASHES: tuple[Dash, ...] = get_args(Dash)

BLACK = "#000000"
ORANGE = "#E69F00"
SKY_BLUE = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY_BLUE, YELLOW, BLACK)
"""The palette of Okabe and Ito, safe for every common kind of colour blindness; in the order in which to use it."""

OLIVE = "#999933"
INDIGO = "#332288"
BROWN = "#661100"
TEAL = "#44AA99"
ROSE = "#CC6677"
RESERVED = (OLIVE, INDIGO, BROWN, TEAL, ROSE)
"""From Paul Tol's palettes, for algorithms that are seldom drawn."""

WHITE = "#FFFFFF"
LIGHT_GREY = "#D9D9D9"
DARK_GREY = "#404040"

DARK_PAPER = "#16181B"
"""What a page is drawn on where its reader likes it dark."""
CONTRAST = 4.5
"""The least contrast of a curve on a dark background, as WCAG measures it."""
GOLDEN = 0.6180339887498949
"""Hues that are so far apart on the circle never come close to each other, however many there are."""
FIRST_HUE = 0.8
LIGHTNESS = (0.3, 0.2)
"""Of colours that were not chosen by hand, in turn; dark enough to be seen on white."""


def distinct_colours(wanted: Sequence[str], avoid: Iterable[str] = ()) -> list[str]:
    """A colour for each entry, no two the same: the one it wants, unless an earlier entry has it.

    An entry that comes too late gets the next of the palette that is free. An empty one, or one for which the palette
    is used up, gets a colour that is neither wanted nor to ``avoid``.

    >>> distinct_colours([BLUE, "", BLUE])
    ['#0072B2', '#7A0099', '#D55E00']
    """
    asked = {colour.upper() for colour in wanted}
    free = (colour for colour in PALETTE if colour not in asked)
    taken = asked.union(PALETTE, avoid)
    found: list[str] = []
    fresh = (colour for colour in _colours() if colour not in taken.union(found))
    for colour in wanted:
        if colour and colour.upper() not in map(str.upper, found):
            found.append(colour)
        else:
            found.append(next(free, "") if colour else "")
            found[-1] = found[-1] or next(fresh)
    return found


def _colours() -> Iterator[str]:
    for number in itertools.count():
        parts = colorsys.hls_to_rgb((FIRST_HUE + number * GOLDEN) % 1.0, LIGHTNESS[number // 5 % 2], 1.0)
        yield "#{:02X}{:02X}{:02X}".format(*(round(255 * part) for part in parts))


def check_colour(what: str, colour: object) -> str:
    """``colour`` as it is, or raise unless it is written ``#RRGGBB``.

    >>> check_colour("the colour", BLUE)
    '#0072B2'
    """
    if not isinstance(colour, str) or re.fullmatch("#[0-9A-Fa-f]{6}", colour) is None:
        raise InputError(f"{what} must be written #RRGGBB, got {colour!r}.")
    return colour


def lighter(colour: str, share: float) -> str:
    """A colour mixed with white, which makes up that share.

    >>> lighter("#FF8000", 0.5), lighter(BLUE, 0.0) == BLUE
    ('#FFC080', True)
    """
    return "#{:02X}{:02X}{:02X}".format(*(round(part + (255 - part) * share) for part in rgb(colour)))


def rgb(colour: str) -> bytes:
    """Red, green and blue, each from 0 to 255."""
    return bytes.fromhex(colour[1:])


def on_dark(colour: str) -> str:
    """The colour, made lighter if needed to be seen well on a dark background.

    >>> on_dark("#E69F00"), on_dark("#000000")
    ('#E69F00', '#808080')
    """
    likes = (lighter(colour, share / 100) for share in range(101))
    paper = _luminance(DARK_PAPER)
    return next(like for like in likes if (_luminance(like) + 0.05) / (paper + 0.05) >= CONTRAST)


def _luminance(colour: str) -> float:
    """Relative luminance of a colour, as WCAG 2 defines it."""
    linear = (part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb(colour))
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
