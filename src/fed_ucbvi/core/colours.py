"""Colours that everyone can tell apart, and the markers of points."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import Literal, get_args

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray

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

WHITE = "#FFFFFF"
LIGHT_GREY = "#D9D9D9"
DARK_GREY = "#404040"

DARK_PAPER = "#16181B"
"""What a page is drawn on where its reader likes it dark."""
CONTRAST = 4.5
"""The least contrast of a curve on a dark background, as WCAG measures it."""
CONTRAST_ON_WHITE = 3.0
"""The least contrast on white of a colour that was not chosen by hand."""
DARKEST = 0.38
"""The least lightness of such a colour in Oklab, so that its thin lines do not look black."""
STEPS = 8
"""Levels of red, green and blue from which such colours are made."""


def distinct_colours(wanted: Sequence[str], avoid: Iterable[str] = ()) -> list[str]:
    """A colour for each entry, no two the same: the one it wants, unless an earlier entry has it.

    An entry that comes too late gets the next of the palette that is free. An empty one, or one for which the palette
    is used up, gets the colour that looks least like all others, including those to ``avoid``.

    >>> distinct_colours([BLUE, "", BLUE])
    ['#0072B2', '#000000', '#D55E00']
    """
    found: dict[int, str] = {}
    for place, colour in enumerate(wanted):
        if colour and colour.upper() not in {other.upper() for other in found.values()}:
            found[place] = colour
    texts, looks = _candidates()
    nearest = np.full(len(texts), np.inf)
    for colour in (WHITE, *found.values(), *avoid):
        nearest = np.minimum(nearest, _distances(looks, colour))
    for place in sorted(range(len(wanted)), key=lambda place: wanted[place] != ""):
        if place not in found:
            used = {colour.upper() for colour in found.values()}
            free = [colour for colour in PALETTE if wanted[place] and colour not in used]
            found[place] = free[0] if free else texts[int(nearest.argmax())]
            nearest = np.minimum(nearest, _distances(looks, found[place]))
    return [found[place] for place in range(len(wanted))]


@cache
def _candidates() -> tuple[list[str], FloatArray]:
    """Colours that can be seen on white, with their places in Oklab."""
    levels = [round(255 * step / (STEPS - 1)) for step in range(STEPS)]
    texts = ["#{:02X}{:02X}{:02X}".format(*parts) for parts in product(levels, repeat=3)]
    texts = [text for text in texts if 1.05 / (_luminance(text) + 0.05) >= CONTRAST_ON_WHITE]
    texts = [text for text in texts if text == BLACK or _oklab(text)[0] >= DARKEST]
    return texts, np.array([_oklab(text) for text in texts])


def _distances(looks: FloatArray, colour: str) -> FloatArray:
    return np.asarray(np.linalg.norm(looks - _oklab(colour), axis=1))


def _oklab(colour: str) -> FloatArray:
    """The place of a colour in Oklab (Ottosson 2020), where distances are about those that one sees."""
    cones = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ _linear(colour)
    )
    return np.asarray(
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ cones
    )


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
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), _linear(colour), strict=True))


def _linear(colour: str) -> list[float]:
    """Red, green and blue as shares of light."""
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in parts]
