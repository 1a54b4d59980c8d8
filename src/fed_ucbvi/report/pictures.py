"""Figures of a report as pictures for print, at the width of a page.

Everything is measured and placed once, in points; no layout engine is at work. From the top: the title, a legend for
what no label says, then rows of panels, each with its labels in a margin at its right.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fed_ucbvi.report.checks import check_figure
from fed_ucbvi.report.content import Figure
from fed_ucbvi.report.legend import Entry, legend_of
from fed_ucbvi.report.panels import DASHES, LINE, MARKERS, SMALL, DrawnPanel, size
from fed_ucbvi.results.style import SETTINGS

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.lines import Line2D

INCH = 72.0
WIDTH = 7.4 * INCH
EDGE = 5.0
"""Left free all round the picture."""
GAP = 11.0
"""Between panels."""
HEIGHT = 150.0
"""Of axes side by side; more where that many labels stand beside them."""
HEIGHT_ALONE = 200.0
MOST_COLUMNS = 4
FEW_PANELS = 2
"""More than so many with the same labels leave these to the last column."""
TITLE_CHARACTER = 5.3


def draw(figure: Figure) -> matplotlib.figure.Figure:
    """Draw a figure in the house style; it belongs to no global state.

    Labels stand beside the last points of their curves, pushed apart where they would overlap. The legend names
    what labels do not: variants (dashes and markers) and series without a label.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    check_figure(figure)
    with matplotlib.rc_context(SETTINGS):
        picture = Picture(figsize=(WIDTH / INCH, 4.0), dpi=INCH)
        FigureCanvasAgg(picture)
        panels = [DrawnPanel(picture, panel) for panel in figure.panels]
        columns = _columns(panels)
        _leave_to_neighbours(panels, columns)
        rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
        _place(picture, figure, rows, columns)
    return picture


def _columns(panels: Sequence[DrawnPanel]) -> int:
    """The most panels side by side that leave each its least width, in rows as even as may be."""
    least = max(panel.least_width for panel in panels)
    left = max(panel.left for panel in panels)
    right = max(panel.right for panel in panels)
    saved = max(panel.y_label_width for panel in panels) if _same_y_label(panels) else 0.0
    for columns in range(min(len(panels), MOST_COLUMNS), 1, -1):
        others = columns - 1
        margins = columns * left - others * saved + right + others * (4 if _same_labels(panels) else right)
        if WIDTH - 2 * EDGE - others * GAP - margins >= columns * least:
            return -(-len(panels) // -(-len(panels) // columns))
    return 1


def _same_labels(panels: Sequence[DrawnPanel]) -> bool:
    """Whether panels are more than a few and all have the same labels."""
    labels = {frozenset((label.text.get_text(), label.colour) for label in panel.labels) for panel in panels}
    return len(panels) > FEW_PANELS and len(labels) == 1


def _same_y_label(panels: Sequence[DrawnPanel]) -> bool:
    return len({panel.panel.y_label for panel in panels}) == 1


def _leave_to_neighbours(panels: Sequence[DrawnPanel], columns: int) -> None:
    """What is the same in all panels is written in the first or last column only."""
    same_labels, same_y_label = _same_labels(panels), _same_y_label(panels)
    for number, panel in enumerate(panels):
        if same_labels and number % columns != columns - 1 and columns > 1:
            panel.drop_labels()
        if same_y_label and number % columns != 0:
            panel.drop_y_label()


def _place(
    picture: matplotlib.figure.Figure, figure: Figure, rows: Sequence[Sequence[DrawnPanel]], columns: int
) -> None:
    """Give everything its place and the picture its height."""
    by_column = [[row[column] for row in rows if column < len(row)] for column in range(columns)]
    lefts = [max(panel.left for panel in column) for column in by_column]
    rights = [max(panel.right for panel in column) for column in by_column]
    width = (WIDTH - 2 * EDGE - GAP * (columns - 1) - sum(lefts) - sum(rights)) / columns
    around = [[panel.fit(width) for panel in row] for row in rows]
    belows = [max(below for below, _ in row) for row in around]
    aboves = [max(above for _, above in row) for row in around]
    least = HEIGHT if len(rows) * columns > 1 else HEIGHT_ALONE
    heights = [max(least, *(sum(panel.label_heights) - LINE for panel in row)) for row in rows]

    title = picture.suptitle("\n".join(textwrap.wrap(figure.title, int((WIDTH - 2 * EDGE) / TITLE_CHARACTER))))
    title.set(fontsize=10, ha="left", va="top", parse_math=False)
    title_height = size(title)[1] if figure.title else 0.0
    legend = _legend(picture, figure)
    legend_height = 0.0 if legend is None else size(legend)[1] + 5
    head = EDGE + title_height + legend_height + 6
    total = head + sum(heights) + sum(aboves) + sum(belows) + GAP * (len(rows) - 1) + EDGE
    picture.set_size_inches(WIDTH / INCH, total / INCH)
    title.set_position((EDGE / WIDTH, 1 - EDGE / total))
    if legend is not None:
        corner = (EDGE / WIDTH, 1 - (EDGE + title_height + 5) / total)
        legend.set_bbox_to_anchor(corner, transform=picture.transFigure)
    floor = total - head
    for row, height, below, above in zip(rows, heights, belows, aboves, strict=True):
        floor -= above + height
        start = EDGE
        for panel, left, right in zip(row, lefts, rights, strict=False):
            start += left
            panel.axes.set_position((start / WIDTH, floor / total, width / WIDTH, height / total))
            panel.place_labels(width, height)
            start += width + right + GAP
        floor -= below + GAP


def _legend(picture: matplotlib.figure.Figure, figure: Figure) -> Any:
    """The legend, in as many columns as there is room for; None if labels say everything."""
    handles = _handles(figure)
    for columns in range(len(handles), 0, -1):
        legend = picture.legend(handles=handles, loc="upper left", ncols=columns, frameon=False, fontsize=SMALL)
        legend.set(gid="legend")
        legend.borderpad = legend.borderaxespad = 0
        for text in legend.get_texts():
            text.set_parse_math(False)
        if size(legend)[0] <= WIDTH - 2 * EDGE or columns == 1:
            return legend
        legend.remove()
    return None


def _handles(figure: Figure) -> list[Line2D]:
    """What labels do not say: series whose name no label stands for, in their colour; variants, in grey."""
    key = legend_of(figure)
    labelled = {series.name for panel in figure.panels for series in panel.series if series.label}
    return [
        *(_handle(entry) for entry in key.names if entry.text not in labelled),
        *(_handle(entry) for entry in key.variants),
    ]


def _handle(entry: Entry) -> Line2D:
    from matplotlib.lines import Line2D

    line = Line2D([], [], color=entry.colour, marker=MARKERS[entry.marker], linewidth=1.3, label=entry.text)
    line.set(markersize=4.5, markeredgewidth=0, linestyle=DASHES[entry.dash] if entry.line else "none")
    return line
