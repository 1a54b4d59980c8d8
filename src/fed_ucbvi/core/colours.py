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
"""Background of a page for readers who prefer a dark one."""
CONTRAST = 4.5
"""The least contrast of a curve on a dark background, as WCAG measures it."""
GOLDEN = 0.6180339887498949
"""Hues at this distance on the circle never come close to each other, however many there are."""
FIRST_HUE = 0.8
LIGHTNESS = (0.3, 0.2)
"""Lightness of generated colours, in turn; dark enough to be seen on white."""


def distinct_colours(wanted: Sequence[str], avoid: Iterable[str] = ()) -> list[str]:
    """A colour for each entry, no two the same: the one it wants, unless an earlier entry has it.

    An entry that comes too late gets the next of the palette that is free. An empty one, or one for which the palette
    is used up, gets a colour that is neither wanted nor to ``avoid``.

    >>> distinct_colours([BLUE, "", BLUE])
    ['#0072B2', '#7A0099', '#D55E00']
    """
    requested = {colour.upper() for colour in wanted}
    unused_palette = [colour for colour in PALETTE if colour not in requested]
    reserved = requested.union(PALETTE, avoid)
    colours: list[str] = []
    for colour in wanted:
        used = {earlier.upper() for earlier in colours}
        if colour and colour.upper() not in used:
            colours.append(colour)
        elif colour and unused_palette:
            colours.append(unused_palette.pop(0))
        else:
            unavailable = reserved.union(colours)
            colours.append(next(new for new in _generated_colours() if new not in unavailable))
    return colours


def _generated_colours() -> Iterator[str]:
    for number in itertools.count():
        hue = (FIRST_HUE + number * GOLDEN) % 1.0
        lightness = LIGHTNESS[number // 5 % 2]
        red, green, blue = colorsys.hls_to_rgb(hue, lightness, 1.0)
        yield _hexadecimal(255 * red, 255 * green, 255 * blue)


def _hexadecimal(red: float, green: float, blue: float) -> str:
    return f"#{round(red):02X}{round(green):02X}{round(blue):02X}"


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
    red, green, blue = (part + (255 - part) * share for part in rgb(colour))
    return _hexadecimal(red, green, blue)


def rgb(colour: str) -> bytes:
    """Red, green and blue, each from 0 to 255."""
    return bytes.fromhex(colour[1:])


def on_dark(colour: str) -> str:
    """The colour, made lighter if needed to be seen well on a dark background.

    >>> on_dark("#E69F00"), on_dark("#000000")
    ('#E69F00', '#808080')
    """
    paper = _luminance(DARK_PAPER)
    for percent in range(101):
        candidate = lighter(colour, percent / 100)
        contrast = (_luminance(candidate) + 0.05) / (paper + 0.05)
        if contrast >= CONTRAST:
            return candidate
    raise AssertionError("white has enough contrast")


def _luminance(colour: str) -> float:
    """Relative luminance of a colour, as WCAG 2 defines it."""
    red, green, blue = (_linear(part / 255) for part in rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    """A part of a colour in [0, 1], without the gamma correction of sRGB."""
    if part <= 10 / 255:
        return part / 12.92
    return float(((part + 0.055) / 1.055) ** 2.4)
