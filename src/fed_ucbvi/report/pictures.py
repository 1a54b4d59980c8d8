"""Figures of a report as pictures for print, as wide as a page: SVG, and PNG and PDF made of it. Units are points.

Above stands a legend for what no label says, below it the panels, each with labels beside the ends of its curves. The
figure's title is the page's affair: a paper has captions.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fed_ucbvi.report.charts import COLOUR, DASH, DASHES, PARAMETERS, SHAPE, SHAPES, Spec, panel_chart, rows_of
from fed_ucbvi.report.checks import check_figure
from fed_ucbvi.report.content import Figure, Panel
from fed_ucbvi.report.legend import Entry, legend_of
from fed_ucbvi.report.scales import positions, x_scale, y_scale
from fed_ucbvi.results.labels import spread
from fed_ucbvi.results.style import DARK_GREY, LIGHT_GREY

FORMATS = ("svg", "png", "pdf")
WIDTH = 533.0
HEIGHT = 150.0
"""Of axes side by side; more where that many labels stand beside them."""
HEIGHT_ALONE = 200.0
LEAST_WIDTH = 95.0
"""Of axes; where panels side by side would have less, they are put into more rows."""
MOST_COLUMNS = 4
FEW_PANELS = 2
"""More than so many with the same labels leave these to the last column."""
CHARACTER = 4.9
"""Width of a character, about."""
BESIDE = 48.0
"""What an axis takes at its left: numbers, and the title, a part of it:"""
TITLE = 14.0
GAP = 12.0
LINE = 9.5
LEADER = 12.0
"""From the axes to the labels beside them."""
LABEL_CHARACTERS = 18
SWATCH = 24.0
PIXELS = 200 / 72
"""For each point, in PNG."""
FONT = "DejaVu Sans"
"""In one weight: a document with two fonts has them in an order that chance decides."""
TITLE_CHARACTER = 5.5
"""Width of a character of a panel's title, about."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the version of the language; nothing is loaded from there."""

CONFIG: Spec = {
    "aria": False,
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "concat": {"spacing": GAP},
    "title": {"anchor": "start", "frame": "group", "fontSize": 9, "fontWeight": "normal", "offset": 6},
    "axis": {
        **{"labelFontSize": 7.5, "titleFontSize": 8, "titleFontWeight": "normal", "titlePadding": 5},
        **{"domainColor": DARK_GREY, "tickColor": DARK_GREY, "domainWidth": 0.7, "tickWidth": 0.7, "tickSize": 3},
        **{"gridColor": LIGHT_GREY, "gridWidth": 0.4, "labelFlush": False},
    },
    "axisX": {"grid": False},
    "text": {"fontSize": 7.5},
    "line": {"strokeWidth": 1.5},
    "point": {"size": 30},
}


class Label(NamedTuple):
    """A text beside axes, and the last points it names as shares (x, y) of the axes."""

    lines: list[str]
    colour: str
    ends: list[tuple[float, float]]

    @property
    def height(self) -> float:
        """Of the text, with a little room."""
        return LINE * len(self.lines) + 2

    @property
    def place(self) -> float:
        """Where it would best stand, as a share of the axes."""
        return sum(y for _, y in self.ends) / len(self.ends)


def vega_lite(figure: Figure) -> Spec:
    """The picture as a Vega-Lite specification, with its data."""
    check_figure(figure)
    labels = [_labels(panel) for panel in figure.panels]
    columns, width = _columns(figure, labels)
    labels = _left_to_last_column(labels, columns)
    least = HEIGHT_ALONE if len(figure.panels) == 1 else HEIGHT
    height = max(least, *(sum(label.height for label in beside) for beside in labels))
    lines = (max(12, int((width + 24) / CHARACTER)), int((height + 24) / CHARACTER))
    panels = []
    for number, (panel, beside) in enumerate(zip(figure.panels, labels, strict=True)):
        y_title = number % columns == 0 or not _same_y_label(figure)
        chart = panel_chart(panel, f"panel{number}", y_title=y_title, lines=lines)
        room = width + max(map(_room, labels))
        title = {"title": textwrap.wrap(panel.title, int(room / TITLE_CHARACTER))} if panel.title else {}
        layers = [chart, *_label_layers(beside, width, height)]
        panels.append({"width": width, "height": height, **title, "layer": layers})
    legend = _legend_strip(figure)
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        "params": PARAMETERS,
        "datasets": {f"panel{number}": rows_of(panel) for number, panel in enumerate(figure.panels)},
        "vconcat": [*([legend] if legend else []), {"columns": columns, "concat": panels}],
    }


def picture(figure: Figure) -> str:
    """The picture as SVG."""
    import vl_convert

    _register_font()
    return vl_convert.vegalite_to_svg(vega_lite(figure), allowed_base_urls=[])


@cache
def _register_font() -> None:
    """Make :data:`FONT` known: matplotlib brings it along, so that it is the same on every machine."""
    import vl_convert

    matplotlib = find_spec("matplotlib")  # not imported: only its folder is wanted
    if matplotlib is not None and matplotlib.origin is not None:
        folder = Path(matplotlib.origin).parent / "mpl-data" / "fonts" / "ttf"
        if folder.is_dir():
            vl_convert.register_font_directory(str(folder))


def picture_files(figure: Figure) -> dict[str, bytes]:
    """The picture in every format; the same figure gives the same bytes where the font has all its characters."""
    import vl_convert

    svg = picture(figure)
    return {
        "svg": svg.encode(),
        "png": vl_convert.svg_to_png(svg, scale=PIXELS),
        "pdf": _in_order(vl_convert.svg_to_pdf(svg)),
    }


def _in_order(pdf: bytes) -> bytes:
    """The document with the names of its parts sorted; it comes with them in an order that chance decides.

    Nothing changes its length, so that the places of objects, listed at the end of the document, stay true.
    """
    return re.sub(rb"(?: +/\w+ \d+ 0 R\n){2,}", lambda found: b"".join(sorted(found[0].splitlines(True))), pdf)


def _columns(figure: Figure, labels: Sequence[Sequence[Label]]) -> tuple[int, float]:
    """The most panels side by side that leave each its least width, in rows as even as may be; and that width."""
    count = len(figure.panels)
    for columns in range(min(count, MOST_COLUMNS), 0, -1):
        beside = columns * BESIDE - (columns - 1) * (TITLE if _same_y_label(figure) else 0)
        right = max(map(_room, labels)) * (1 if _same_labels(labels) else columns)
        width = (WIDTH - beside - right - (columns - 1) * GAP) / columns
        if (width >= LEAST_WIDTH and -(-count // -(-count // columns)) == columns) or columns == 1:
            return columns, width
    raise AssertionError


def _room(labels: Sequence[Label]) -> float:
    """What labels take at the right of axes."""
    return max((LEADER + CHARACTER * len(line) for label in labels for line in label.lines), default=4.0)


def _same_y_label(figure: Figure) -> bool:
    return len({panel.y_label for panel in figure.panels}) == 1


def _same_labels(labels: Sequence[Sequence[Label]]) -> bool:
    """Whether panels are more than a few and all have the same labels."""
    return (
        len(labels) > FEW_PANELS
        and len({frozenset((*one.lines, one.colour) for one in some) for some in labels}) == 1
    )


def _left_to_last_column(labels: Sequence[list[Label]], columns: int) -> list[list[Label]]:
    drop = columns > 1 and _same_labels(labels)
    return [[] if drop and number % columns != columns - 1 else beside for number, beside in enumerate(labels)]


def _labels(panel: Panel) -> list[Label]:
    """What stands beside a panel, from the lowest up."""
    x, y = x_scale(panel), y_scale(panel)
    ends: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for series, xs in zip(panel.series, positions(panel), strict=True):
        if series.label:
            end = (x.share(xs[-1]), y.share(float(series.y[-1])))
            ends.setdefault((series.label, series.colour), []).append(end)
    labels = [Label(textwrap.wrap(text, LABEL_CHARACTERS), colour, some) for (text, colour), some in ends.items()]
    return sorted(labels, key=lambda label: label.place)


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
            end, edge, level = x * width + 3, max(x * width, width) + 2, height * (1 - y)
            leaders += [
                {"colour": label.colour, "x": end, "y": level, "x2": edge, "y2": level},
                {"colour": label.colour, "x": edge, "y": level, "x2": width + LEADER - 2, "y2": height - centre},
            ]
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return [_at_places("rule", leaders, ends, strokeWidth=0.5, opacity=0.7), _texts(texts)]


def _legend_strip(figure: Figure) -> Spec | None:
    """The legend, in as many lines as it takes; None if labels say everything."""
    swatches, texts, x, y = [], [], 0.0, LINE * 0.65
    for entry in _entries(figure):
        width = SWATCH + 6 + CHARACTER * len(entry.text) + GAP
        if x and x + width > WIDTH:
            x, y = 0.0, y + LINE * 1.3
        shape, dash = SHAPES.get(entry.marker, ""), DASHES[entry.dash]
        place = {"x": x, "x2": x + SWATCH, "middle": x + SWATCH / 2, "y": y, "top": y - 4, "bottom": y + 4}
        swatches.append({**entry._asdict(), "dash": dash, "shape": shape, **place})
        texts.append({"text": entry.text, "colour": "black", "x": x + SWATCH + 6, "y": y})
        x += width
    if not texts:
        return None
    lines = [row for row in swatches if row["line"]]
    markers = [{**row, "x": row["middle"]} for row in swatches if row["shape"]]
    bands = [{**row, "y": row["top"]} for row in swatches if row["band"]]
    end = {"x2": {"field": "x2"}}
    layers = [
        _at_places("rect", bands, {**end, "y2": {"field": "bottom"}}, opacity=0.25),
        _at_places("rule", lines, {**end, "strokeDash": DASH}, strokeWidth=1.5),
        _at_places("point", markers, {"shape": SHAPE}, filled=True, opacity=1),
        _texts(texts),
    ]
    return {"width": WIDTH - BESIDE, "height": y + LINE * 0.65, "layer": layers}


def _texts(rows: Sequence[Spec]) -> Spec:
    text = {"text": {"field": "text", "type": "nominal"}}
    return _at_places("text", rows, text, align="left", baseline="middle", lineHeight=LINE)


def _at_places(mark: str, rows: Sequence[Spec], encoding: Spec, **looks: Any) -> Spec:
    """Marks at places given in points."""
    places = {name: {"field": name, "type": "quantitative", "scale": None} for name in ("x", "y")}
    return {
        "data": {"values": list(rows)},
        "mark": {"type": mark, **looks},
        "encoding": {**places, "color": COLOUR, **encoding},
    }


def _entries(figure: Figure) -> list[Entry]:
    """What labels do not say: series whose name no label stands for, variants, and what bands are."""
    legend = legend_of(figure)
    labelled = {series.name for panel in figure.panels for series in panel.series if series.label}
    return [*(entry for entry in legend.names if entry.text not in labelled), *legend.variants, *legend.bands]
