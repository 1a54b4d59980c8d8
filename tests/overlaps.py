"""Whether texts in a picture cover each other."""

from __future__ import annotations

import itertools

from matplotlib.figure import Figure
from matplotlib.text import Text


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other in the picture; none may stick out of it."""
    figure.draw_without_rendering()
    unseen = set()
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        ticks = axis.get_major_ticks() + axis.get_minor_ticks()
        unseen |= {tick.label1 for tick in ticks if not low <= tick.get_loc() <= high}
    boxes = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_text().strip() and text.get_visible() and text not in unseen:
            box = text.get_window_extent()
            assert figure.bbox.x0 <= box.x0, text
            assert box.x1 <= figure.bbox.x1, text
            assert figure.bbox.y0 <= box.y0, text
            assert box.y1 <= figure.bbox.y1, text
            boxes.append((text.get_text(), box.padded(-1)))
    return [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if one.overlaps(other)]
