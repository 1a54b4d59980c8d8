"""Colours that everyone can tell apart, and the markers of points."""

from __future__ import annotations

import re
import zlib
from typing import Literal, get_args

from fed_ucbvi.core.errors import InputError

Marker = Literal["cross", "circle", "square", "diamond", "triangle", "none"]
MARKERS: tuple[Marker, ...] = get_args(Marker)

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

WINE = "#882255"
OLIVE = "#999933"
INDIGO = "#332288"
BROWN = "#661100"
TEAL = "#44AA99"
ROSE = "#CC6677"
MAGENTA = "#AA4499"
MUSTARD = "#7A5C00"
"""From Paul Tol's palettes, for what is seldom drawn."""

FOREST = "#117733"
GREY = "#777777"
SPARE = (BLACK, FOREST, GREY)
"""For algorithms that name no colour; no algorithm of this package has one of these."""

WHITE = "#FFFFFF"
LIGHT_GREY = "#D9D9D9"
DARK_GREY = "#404040"

DARK_PAPER = "#16181B"
"""What a page is drawn on where its reader likes it dark."""
CONTRAST = 4.5
"""The least contrast of a curve on a dark background, as WCAG measures it."""


def spare_colour(name: str) -> str:
    """The colour of an algorithm that names none; the same name has the same colour in every process.

    >>> spare_colour("something new") in SPARE
    True
    """
    return SPARE[zlib.crc32(name.encode()) % len(SPARE)]


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
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#{:02X}{:02X}{:02X}".format(*(round(part + (255 - part) * share) for part in parts))


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
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    linear = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
