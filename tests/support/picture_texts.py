"""Texts of a matplotlib figure, and those that cover each other or reach beyond its edges."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.0
"""Pixels by which boxes may overlap, because they are a little larger than letters."""


class DrawnText(NamedTuple):
    """A visible text and the box it takes, in pixels."""

    text: str
    box: Bbox
    slanted: bool


def drawn_texts(figure: Figure) -> list[DrawnText]:
    """Visible texts of a figure with the boxes they take."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    hidden = _beyond_their_axis(figure)
    found = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden:
            slanted = text.get_rotation() % 90 != 0
            found.append(DrawnText(text=text.get_text(), box=text.get_window_extent(renderer), slanted=slanted))
    return found


def _beyond_their_axis(figure: Figure) -> set[Text]:
    """Texts of ticks beyond the limits of their axis, which matplotlib keeps but does not draw."""
    hidden = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            outside = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
            hidden |= {tick.label1 for tick in outside}
    return hidden


def texts_of(figure: Figure) -> list[str]:
    return [drawn.text for drawn in drawn_texts(figure)]


def badly_placed(figure: Figure) -> list[str]:
    """Texts that overlap another one or reach beyond the figure; boxes of slanted texts may overlap."""
    drawn = drawn_texts(figure)
    faults = []
    for one, other in combinations(drawn, 2):
        if not (one.slanted or other.slanted) and one.box.padded(-SLACK).overlaps(other.box.padded(-SLACK)):
            faults.append(f"{one.text!r} overlaps {other.text!r}")
    width, height = figure.bbox.size
    for text in drawn:
        inside = text.box.x0 >= -SLACK and text.box.y0 >= -SLACK
        if not inside or text.box.x1 > width + SLACK or text.box.y1 > height + SLACK:
            faults.append(f"{text.text!r} reaches beyond the figure")
    return faults
