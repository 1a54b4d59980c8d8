"""The layout of a picture: panels and boards side by side, as wide as a page, as one Vega-Lite specification.

The legend is at the top; it has the entries for which there is no label. Below it are the panels, with labels beside
the ends of curves. Sizes are in screen pixels; on paper there are 1.6 of them to a point.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from fed_ucbvi.charts.boards import board_chart, size_of
from fed_ucbvi.charts.curves import (
    COLOUR,
    DASH,
    DASHES,
    PARAMETERS,
    SHAPE,
    SHAPES,
    SIZE,
    Spec,
    panel_chart,
    pointer_layer,
    rows_of,
)
from fed_ucbvi.charts.labels import spread
from fed_ucbvi.charts.legend import Entry, legend_of
from fed_ucbvi.charts.panels import Board, Panel
from fed_ucbvi.charts.scales import positions, x_scale, y_scale
from fed_ucbvi.core.colours import DARK_GREY, LIGHT_GREY

WIDTH = 853.0
HEIGHT = 240.0
"""Height of axes side by side; larger where many labels stand beside them."""
HEIGHT_ALONE = 320.0
MIN_WIDTH = 152.0
"""The least width of axes; where panels would have less, they are put into more rows."""
MIN_AXES, MIN_HEIGHT = 60.0, 80.0
"""The least width and height of axes where the size of the picture or its columns are given."""
HEADING_LINE = 20.0
ABOVE_AND_BELOW = 80.0
"""What a row of panels takes besides its axes: titles, numbers, the distance to the next row."""
MAX_COLUMNS = 4
FEW_PANELS = 2
"""Where more panels than this have the same labels, only the last column shows them."""
CHARACTER = 7.85
"""Width of a character, about."""
BESIDE = 77.0
"""What an axis takes at its left: numbers, and the title, a part of it:"""
TITLE = 22.0
GAP = 19.0
LINE = 15.2
LEADER = 19.0
"""From the axes to the labels beside them."""
LABEL_CHARACTERS = 18
SHADES_ROOM = 64.0
"""What a scale of shades takes at the right of a board."""
SWATCH = 38.0
FONT = "DejaVu Sans"
"""Used in one weight only, because the order of two fonts in a document is random."""
TITLE_CHARACTER = 8.8
"""Width of a character of a panel's title, about."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the version of the language; nothing is loaded from there."""

CONFIG: Spec = {
    "aria": False,
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "concat": {"spacing": GAP},
    "title": {"anchor": "start", "frame": "group", "fontSize": 14.4, "fontWeight": "normal", "offset": 9},
    "axis": {
        **{"labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": "normal", "titlePadding": 8},
        **{"domainColor": DARK_GREY, "tickColor": DARK_GREY, "tickSize": 4},
        **{"gridColor": LIGHT_GREY, "gridWidth": 0.6, "labelFlush": False},
    },
    "axisX": {"grid": False},
    "legend": {"labelFontSize": 12},
    "text": {"fontSize": 12},
    "line": {"strokeWidth": 2.2},
    "point": {"size": SIZE},
}
"""How pictures look."""


class Label(NamedTuple):
    """A text beside axes, and the last points of its curves as shares (x, y) of the axes."""

    lines: list[str]
    colour: str
    ends: list[tuple[float, float]]

    @property
    def height(self) -> float:
        """Of the text, with a little room."""
        return LINE * len(self.lines) + 3

    @property
    def place(self) -> float:
        """Where it would best stand, as a share of the axes."""
        return sum(y for _, y in self.ends) / len(self.ends)


def vega_lite(
    panels: Sequence[Panel | Board],
    *,
    title: str = "",
    size: tuple[float, float | None] = (WIDTH, None),
    columns: int | None = None,
    interactive: bool = False,
) -> Spec:
    """The picture as a Vega-Lite specification, with its data.

    Args:
        panels: from left to right, then from top to bottom.
        title: above everything; lines are kept.
        size: width and height of the picture, about; by default it is as high as panels and labels need.
        columns: panels side by side; by default as many as there is room for.
        interactive: whether points and squares show their figures under the pointer.
    """
    width, height = size
    labels = [_labels(panel) for panel in panels]
    columns, wide = _columns(panels, labels, width, columns)
    labels = _left_to_last_column(labels, columns)
    legend = _legend_strip(panels, width)
    least = HEIGHT_ALONE if len(panels) == 1 else HEIGHT
    if height is not None:
        strip = legend["height"] + GAP if legend else 0.0
        head = HEADING_LINE * len(title.splitlines()) + GAP
        least = max(MIN_HEIGHT, (height - head - strip) / -(-len(panels) // columns) - ABOVE_AND_BELOW)
    high = max(least, *(sum(label.height for label in beside) for beside in labels))
    lines = (max(12, int((wide + 38) / CHARACTER)), int((high + 38) / CHARACTER))
    room = max(map(_room, panels, labels))
    charts = []
    for number, (panel, beside) in enumerate(zip(panels, labels, strict=True)):
        axes = {"width": wide, "height": high}
        if isinstance(panel, Board):
            axes = dict(zip(axes, size_of(panel, wide, high), strict=True))
            chart = {**board_chart(panel, **axes), "resolve": {"scale": {"color": "independent"}}}
        else:
            y_title = number % columns == 0 or not _same_y_labels(panels, columns)
            drawn = panel_chart(panel, f"panel{number}", y_title=y_title, lines=lines)
            if interactive:
                drawn["layer"].append(pointer_layer(panel, f"nearest{number}"))
            chart = {"layer": [drawn, *_label_layers(beside, wide, high)]}
        above = {"title": textwrap.wrap(panel.title, int((wide + room) / TITLE_CHARACTER))} if panel.title else {}
        charts.append({**axes, **above, **chart})
    heading = {"title": {"text": title.splitlines(), "fontSize": 16, "offset": 14}} if title else {}
    curves = {f"panel{n}": rows_of(panel) for n, panel in enumerate(panels) if isinstance(panel, Panel)}
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        **heading,
        "params": PARAMETERS,
        "datasets": curves,
        "vconcat": [
            *([legend] if legend else []),
            {"columns": columns, "concat": charts, "resolve": {"scale": {"color": "independent"}}},
        ],
    }


def _columns(
    panels: Sequence[Panel | Board], labels: Sequence[Sequence[Label]], whole: float, given: int | None
) -> tuple[int, float]:
    """The number of columns, as large as the least width allows and with even rows; and the width of a panel."""
    count = len(panels)
    for columns in range(min(count, MAX_COLUMNS), 0, -1) if given is None else [given]:
        beside = columns * BESIDE - (columns - 1) * (TITLE if _same_y_labels(panels, columns) else 0)
        right = max(map(_room, panels, labels)) * (1 if _same_labels(labels) else columns)
        width = (whole - beside - right - (columns - 1) * GAP) / columns
        if given is not None:
            return columns, max(width, MIN_AXES)
        if (width >= MIN_WIDTH and -(-count // -(-count // columns)) == columns) or columns == 1:
            return columns, width
    raise AssertionError


def _room(panel: Panel | Board, labels: Sequence[Label]) -> float:
    """What labels, or a scale of shades, take at the right of axes."""
    shaded = isinstance(panel, Board) and len(panel.shades) > 0
    texts = (LEADER + CHARACTER * len(line) for label in labels for line in label.lines)
    return SHADES_ROOM if shaded else max(texts, default=6.0)


def _same_y_labels(panels: Sequence[Panel | Board], columns: int) -> bool:
    """Whether the panels of each row have the same title beside their axes, so that one will do."""
    rows = (panels[first : first + columns] for first in range(0, len(panels), columns))
    return all(len({panel.y_label for panel in row}) == 1 for row in rows)


def _same_labels(labels: Sequence[Sequence[Label]]) -> bool:
    """Whether panels are more than a few and all have the same labels."""
    return (
        len(labels) > FEW_PANELS
        and len({frozenset((*one.lines, one.colour) for one in some) for some in labels}) == 1
    )


def _left_to_last_column(labels: Sequence[list[Label]], columns: int) -> list[list[Label]]:
    drop = columns > 1 and _same_labels(labels)
    return [[] if drop and number % columns != columns - 1 else beside for number, beside in enumerate(labels)]


def _labels(panel: Panel | Board) -> list[Label]:
    """The labels beside a panel, from the lowest up."""
    if isinstance(panel, Board):
        return []
    x, y = x_scale(panel), y_scale(panel)
    ends: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for series, xs in zip(panel.series, positions(panel), strict=True):
        if series.label:
            end = (x.share(xs[-1]), y.share(float(series.y[-1])))
            ends.setdefault((series.label, series.colour), []).append(end)
    labels = [Label(_broken(text), colour, some) for (text, colour), some in ends.items()]
    return sorted(labels, key=lambda label: label.place)


def _broken(text: str) -> list[str]:
    """A label in lines, not broken at the sign of an equation.

    >>> _broken("Fed-UCBVI, bonus = 0.2: 227 ± 5.1")
    ['Fed-UCBVI,', 'bonus = 0.2:', '227 ± 5.1']
    """
    kept = re.sub(r" ([=±]) ", "\u00a0\\1\u00a0", text)
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(kept, LABEL_CHARACTERS)]


def _label_layers(labels: Sequence[Label], width: float, height: float) -> list[Spec]:
    """Labels beside axes of that size, pushed apart, with thin lines from the points they name."""
    if not labels:
        return []
    places, heights = [height * label.place for label in labels], [label.height for label in labels]
    centres = spread(places, heights, low=-LINE, high=height)
    texts, leaders = [], []
    for label, centre in zip(labels, centres, strict=True):
        first = height - centre - LINE * (len(label.lines) - 1) / 2
        texts.append({"text": label.lines, "colour": label.colour, "x": width + LEADER, "y": first})
        for x, y in label.ends:
            end, edge, level = x * width + 5, max(x * width, width) + 3, height * (1 - y)
            leaders += [
                {"colour": label.colour, "x": end, "y": level, "x2": edge, "y2": level},
                {"colour": label.colour, "x": edge, "y": level, "x2": width + LEADER - 3, "y2": height - centre},
            ]
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return [_at_places("rule", leaders, ends, strokeWidth=0.8, opacity=0.7), _texts(texts)]


def _legend_strip(panels: Sequence[Panel | Board], whole: float) -> Spec | None:
    """The legend, in as many lines as it needs; None if all entries have labels."""
    swatches, texts, x, y = [], [], 0.0, LINE * 0.65
    for entry in _entries(panels):
        width = SWATCH + 10 + CHARACTER * len(entry.text) + GAP
        if x and x + width > whole:
            x, y = 0.0, y + LINE * 1.3
        shape, dash = SHAPES.get(entry.marker, ""), DASHES[entry.dash]
        place = {"x": x, "x2": x + SWATCH, "middle": x + SWATCH / 2, "y": y, "top": y - 6, "bottom": y + 6}
        swatches.append({**entry._asdict(), "dash": dash, "shape": shape, **place})
        texts.append({"text": entry.text, "colour": "black", "x": x + SWATCH + 10, "y": y})
        x += width
    if not texts:
        return None
    lines = [row for row in swatches if row["line"]]
    markers = [{**row, "x": row["middle"]} for row in swatches if row["shape"]]
    bands = [{**row, "y": row["top"]} for row in swatches if row["band"]]
    end = {"x2": {"field": "x2"}}
    layers = [
        _at_places("rect", bands, {**end, "y2": {"field": "bottom"}}, opacity=0.25),
        _at_places("rule", lines, {**end, "strokeDash": DASH}, strokeWidth=2.2),
        _at_places("point", markers, {"shape": SHAPE}, filled=True, opacity=1),
        _texts(texts),
    ]
    return {"width": whole - BESIDE, "height": y + LINE * 0.65, "layer": layers}


def _texts(rows: Sequence[Spec]) -> Spec:
    text = {"text": {"field": "text", "type": "nominal"}}
    return _at_places("text", rows, text, align="left", baseline="middle", lineHeight=LINE)


def _at_places(mark: str, rows: Sequence[Spec], encoding: Spec, **looks: Any) -> Spec:
    """Marks at places given in pixels."""
    places = {name: {"field": name, "type": "quantitative", "scale": None} for name in ("x", "y")}
    return {
        "data": {"values": list(rows)},
        "mark": {"type": mark, **looks},
        "encoding": {**places, "color": COLOUR, **encoding},
    }


def _entries(panels: Sequence[Panel | Board]) -> list[Entry]:
    """Entries of the legend: series whose name has no label, variants, and what bands are."""
    curves = [panel for panel in panels if isinstance(panel, Panel)]
    legend = legend_of(curves)
    labelled = {series.name for panel in curves for series in panel.series if series.label}
    return [*(entry for entry in legend.names if entry.text not in labelled), *legend.variants, *legend.bands]
