"""Panels and boards as Vega-Lite, from which pages and pictures are made.

The data of a panel have one row for each series, with its style (colour, dash, shape) and its points; Vega-Lite
unfolds them. So the chart itself says only what is drawn along which axes, and a page can hide or highlight a series
by its name or variant without changing the chart. Sizes are in pixels of a screen, 1.6 to a point on paper.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from fed_ucbvi.charts.panels import Board, Panel, Scale, categories, legend_of, positions, x_scale, y_scale
from fed_ucbvi.core.colours import DARK_GREY, LIGHT_GREY, WHITE

Spec = dict[str, Any]
"""Vega-Lite, or a part of it, ready for JSON."""

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the version of the language; nothing is loaded from there."""
WIDTH = 853.0
HEIGHT = 240.0
HEIGHT_ALONE = 320.0
"""Of a picture, of axes side by side, and of the only axes of a picture."""
MIN_WIDTH = 152.0
MIN_HEIGHT = 80.0
"""The least size of axes; where panels would be narrower, they are put into more rows."""
MAX_COLUMNS = 4
BESIDE = 77.0
ABOVE_AND_BELOW = 80.0
GAP = 19.0
"""What axes take at their left and, with titles, above and below; and the distance between panels."""
SHADES_ROOM = 64.0
"""What a scale of shades takes at the right of a board."""
LINE = 20.0
HEADING_LINE = 20.0
SWATCH = 38.0
"""Height of a line of the legend and of the title, and width of the piece of curve in the legend."""
CHARACTER = 7.85
TITLE_CHARACTER = 8.8
CATEGORY_CHARACTER = 7.5
"""Widths of a character, about: of texts, of a panel's title, and (the largest) below an axis."""
CATEGORY_CHARACTERS = 12
"""The most characters in a line of text below an axis."""
FONT_SIZE = 12
BOARD_FONT_SIZE = 10.5
FEW_POINTS = 12
MARKS = 6
"""Up to so many points, every point of a curve has a marker; of more, about this many have one."""
SIZE = 60.0
SMALL = 22.0
MANY_POINTS = 40
"""Area of a marker; of one among more unconnected points than the third number."""
FEW_CURVES = 6
"""Up to this many curves have bands in full strength; with more, bands are fainter."""
NUMBER = ",.9~r"
SHORT = ",.6~r"
"""Formats of numbers with up to nine or six digits, without trailing zeros."""
DASHES: dict[str, list[float]] = {"solid": [1, 0], "dashed": [7, 3], "dotted": [1.5, 2.5], "dashdot": [7, 3, 1.5, 3]}
SHAPES = {
    "cross": "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z",
    "circle": "M-.9,0A.9,.9,0,1,1,.9,0A.9,.9,0,1,1,-.9,0Z",
    "square": "M-.8,-.8H.8V.8H-.8Z",
    "diamond": "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "triangle": "M0,-1L1,.8H-1Z",
}
"""Markers as SVG paths of about two units each way."""
ARROW = "M-1,-.11H.3V-.4L1,0L.3,.4V.11H-1Z"
"""Two units long, to the right."""
FINE = 16
"""On boards with this many rows or columns arrows nearly fill the squares."""
SHADES = "cividis"
"""From dark (smallest) to light (largest), also for colour-blind readers."""
PARAMETERS: list[Spec] = [{"name": "hidden", "value": []}, {"name": "stressed", "value": ""}]
"""Parameters of a specification: names and variants to hide, and the name or variant to highlight."""
SHOWN = "indexof(hidden, datum.name) < 0 && indexof(hidden, datum.variant) < 0"
FAINT = "stressed != '' && datum.name != stressed && datum.variant != stressed"
CONFIG: Spec = {
    "aria": False,
    "font": "DejaVu Sans",  # in one weight only, because the order of two fonts in a document is random
    "background": "white",
    "view": {"stroke": None},
    "concat": {"spacing": GAP},
    "title": {"anchor": "start", "frame": "group", "fontSize": 14.4, "fontWeight": "normal", "offset": 9},
    "axis": {
        **{"labelFontSize": FONT_SIZE, "titleFontSize": 12.5, "titleFontWeight": "normal", "titlePadding": 8},
        **{"domainColor": DARK_GREY, "tickColor": DARK_GREY, "tickSize": 4},
        **{"gridColor": LIGHT_GREY, "gridWidth": 0.6, "labelFlush": False},
    },
    "axisX": {"grid": False},
    "legend": {"labelFontSize": FONT_SIZE},
    "text": {"fontSize": FONT_SIZE},
    "line": {"strokeWidth": 2.2},
    "point": {"size": SIZE},
}
"""How pictures look."""


def _plain(field: str, kind: str = "nominal") -> Spec:
    """Encode a column by its own values: colours, dashes, paths, pixels."""
    return {"field": field, "type": kind, "scale": None}


COLOUR = _plain("colour")
DASH = _plain("dash")
TEXT = {"field": "text", "type": "nominal"}
SHAPED = {"shape": _plain("shape"), "size": _plain("size", "quantitative")}
BOX = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}


def _layer(mark: str, rows: Sequence[Spec], encoding: Spec, **looks: Any) -> Spec:
    return {"data": {"values": list(rows)}, "mark": {"type": mark, **looks}, "encoding": encoding}


def rows_of(panel: Panel, colour: Callable[[str], str] = str) -> list[Spec]:
    """The data of a panel, a row for each series; ``colour`` may replace colours."""
    grouped = bool(categories(panel))
    rows = []
    for number, (series, xs) in enumerate(zip(panel.series, positions(panel), strict=True)):
        count = len(xs)
        shape = "circle" if series.marker == "none" and count == 1 else series.marker
        joined = series.line and count > 1
        parts = {
            "steps" if series.steps else "line": joined,
            "band" if joined and not grouped else "bars": series.low is not None,
            "marker": shape != "none",
        }
        every = max(1, count // MARKS) if series.line and count > FEW_POINTS else 1
        first = number * max(1, every // 4) % every  # so that markers of several series alternate
        row = {
            "name": series.name,
            "variant": series.variant,
            "series": series.full_name,
            "colour": colour(series.colour),
            "dash": DASHES[series.dash],
            "shape": SHAPES.get(shape, ""),
            "size": SMALL if not series.line and count > MANY_POINTS else SIZE,
            "parts": [part for part, drawn in parts.items() if drawn],
            "x": _rounded(xs),
            "y": _rounded(series.y),
            "low": _rounded(series.low),
            "high": _rounded(series.high),
            "marked": [int(place % every == first) for place in range(count)] if shape != "none" else [],
        }
        rows.append({**row, "text": [str(x) for x in series.x]} if grouped else row)
    return rows


def _rounded(values: Sequence[float] | None) -> list[float]:
    return [] if values is None else [float(f"{float(value):.9g}") for value in values]


def panel_chart(panel: Panel, data: str, *, lines: tuple[int, int] = (44, 40), pointer: str = "") -> Spec:
    """Bands, curves and markers of a panel on its axes, without size.

    The outermost specification must declare :data:`PARAMETERS`, and have the panel's rows under the name ``data``.
    ``lines`` are the characters in a line of the titles below and beside the axes; longer titles are broken. With a
    ``pointer``, the name of a selection, the point nearest to the pointer shows its figures.
    """
    x = x_scale(panel)
    y = y_scale(panel)
    up = {"type": "quantitative", **_axis(y, panel.y_label, lines[1])}
    interval = {"y": {"field": "floor", **up}, "y2": {"field": "high"}}
    curve = {"y": {"field": "y", **up}}
    line = {"type": "line", "strokeJoin": "round"}
    opacity = 0.18 if len(panel.series) <= FEW_CURVES else 0.1
    layers: dict[str, tuple[Spec, Spec]] = {
        "band": ({"type": "area", "fillOpacity": opacity, "strokeWidth": 0}, interval),
        "bars": ({"type": "rule", "strokeWidth": 1.2}, interval),
        "line": (line, {**curve, "strokeDash": DASH}),
        "steps": ({**line, "interpolate": "step-after"}, {**curve, "strokeDash": DASH}),
        "marker": ({"type": "point", "filled": True}, {**curve, **SHAPED}),
    }
    parts = {part for row in rows_of(panel) for part in row["parts"]}
    drawn = []
    for part, (mark, encoding) in layers.items():
        test = "datum.marked > 0" if part == "marker" else f"indexof(datum.parts, '{part}') >= 0"
        if part in parts:
            drawn.append({"transform": [{"filter": test}], "mark": mark, "encoding": encoding})
    return {
        "data": {"name": data},
        "transform": [
            {"filter": SHOWN},
            {"flatten": ["x", "y", "low", "high", "marked", *(["text"] if x.categories else [])]},
            {"calculate": f"max(datum.low, {y.low!r})", "as": "floor"},
        ],
        "encoding": {
            "x": {"field": "x", "type": "quantitative", **_axis(x, panel.x_label, lines[0])},
            "color": COLOUR,
            "detail": {"field": "series"},
            "opacity": {"condition": {"test": FAINT, "value": 0.12}, "value": 1},
        },
        "layer": [*drawn, *([_pointer_layer(panel, pointer)] if pointer else [])],
    }


def _pointer_layer(panel: Panel, name: str) -> Spec:
    """Invisible points over a panel: the one nearest to the pointer gets a ring and shows its figures."""
    band = ", ".join(sorted({series.band for series in panel.series if series.low is not None} - {""}))
    lines = {
        **({"series": "datum.series"} if any(series.name for series in panel.series) else {}),
        panel.x_label or "x": "datum.text" if categories(panel) else f"format(datum.x, '{NUMBER}')",
        panel.y_label or "y": f"format(datum.y, '{SHORT}')",
        band or "band": f"'[' + format(datum.low, '{SHORT}') + ', ' + format(datum.high, '{SHORT}') + ']'",
    }
    texts = [f"{json.dumps(name)}: {text}" for name, text in lines.items()]
    shown = f"isValid(datum.low) ? {{{', '.join(texts)}}} : {{{', '.join(texts[:-1])}}}"
    nearest: Spec = {"type": "point", "nearest": True, "fields": ["series", "x"]}
    return {
        "transform": [{"calculate": shown, "as": "told"}],
        "params": [{"name": name, "select": {**nearest, "on": "pointerover", "clear": "pointerout"}}],
        "mark": {
            **{"type": "point", "size": 110, "strokeWidth": 2, "filled": False},
            # What is under the pointer is the point's surroundings, whose datum is the point.
            "tooltip": {"expr": "isValid(datum.datum) ? datum.datum.told : datum.told"},
        },
        "encoding": {
            "y": {"field": "y", "type": "quantitative"},
            "opacity": {"condition": {"param": name, "empty": False, "value": 1}, "value": 0},
        },
    }


def _axis(scale: Scale, title: str, characters: int) -> Spec:
    axis: Spec = {"title": textwrap.wrap(title, characters) or None, "labelOverlap": "greedy"}
    if scale.ticks is None:
        axis |= {"tickCount": 5, "format": NUMBER}
    else:
        axis |= {**_ticks(scale.ticks), **(_category_labels(scale.ticks) if scale.categories else {})}
    ends: Spec = {"type": "log" if scale.log else "linear", "domain": [scale.low, scale.high], "nice": False}
    return {"scale": ends if scale.log else {**ends, "zero": False}, "axis": axis}


def _ticks(ticks: Sequence[tuple[float, object]]) -> Spec:
    """Where ticks are, and a Vega expression for the text at a tick."""
    values = [at for at, _ in ticks]
    texts = [text for _, text in ticks]
    picked = f"{json.dumps(texts, ensure_ascii=False)}[indexof({json.dumps(values)}, datum.value)]"
    return {"values": values, "labelExpr": picked}


def _category_labels(ticks: Sequence[tuple[float, str]]) -> Spec:
    """Texts below an axis: broken into lines where there is room, otherwise slanted."""
    broken = [(at, textwrap.wrap(text, CATEGORY_CHARACTERS, break_long_words=False)) for at, text in ticks]
    longest = max(len(line) for _, text in broken for line in text)
    tight = f"width < {len(ticks) * (longest * CATEGORY_CHARACTER + 6)}"
    slanted = {"labelAngle": (-40, 0), "labelAlign": ("'right'", "'center'"), "labelBaseline": ("'middle'", "'top'")}
    return {
        "labelExpr": f"{tight} ? {_ticks(ticks)['labelExpr']} : {_ticks(broken)['labelExpr']}",
        **{name: {"expr": f"{tight} ? {one} : {other}"} for name, (one, other) in slanted.items()},
        **{"labelOverlap": False, "labelLimit": 240, "grid": False},
    }


def board_chart(board: Board, width: float, height: float) -> Spec:
    """Shades, squares, lines, texts, rings and arrows of a board that has at most this room."""
    side = min(width / board.columns, height / board.rows)
    if board.even:
        width = side * board.columns
        height = side * board.rows
    axes = {
        "x": ([-0.5, board.columns - 0.5], list(board.x_label), board.x_ticks),
        "y": ([board.rows - 0.5, -0.5], [board.y_label] if board.y_label else [], board.y_ticks),
    }
    encoding = {
        name: {
            "field": name,
            "type": "quantitative",
            "scale": {"domain": ends, "nice": False, "zero": False},
            "axis": {
                **{"title": label or None, "grid": False, "ticks": False, "domain": False, "labelPadding": 5},
                **_ticks(ticks),
                **({"titleAnchor": "start"} if name == "x" and not ticks else {}),
            },
        }
        for name, (ends, label, ticks) in axes.items()
    }
    layers = [_shades(board, height, side), *_squares(board, side)]
    drawn = [one for one in layers if one["data"]["values"]]
    return {"width": width, "height": height, "encoding": encoding, "layer": drawn}


def _box(row: int, column: int, over: float) -> Spec:
    """The corners of a square, which reach a little over the next ones, so that no gap shows."""
    return {"x": column - 0.5, "x2": column + 0.5 + over, "y": row - 0.5, "y2": row + 0.5 + over}


def _shades(board: Board, height: float, side: float) -> Spec:
    rows = [
        {**_box(row, column, 0.4 / side), "shade": shade, "told": f"row {row}, column {column}: {shade:.6g}"}
        for row, line in enumerate(board.shades)
        for column, shade in enumerate(line)
        if not math.isnan(shade)
    ]
    low, high = (end(row["shade"] for row in rows) if rows else 0.0 for end in (min, max))
    if low == high:
        low = min(0.0, low)
        high = max(0.0, high) or 1.0
    legend = {"title": None, "gradientLength": 0.85 * height, "gradientThickness": 10, "format": "~r"}
    scale = {"scheme": SHADES, "domain": [low, high]}
    colour = {"field": "shade", "type": "quantitative", "scale": scale, "legend": legend}
    return _layer("rect", rows, {**BOX, "color": colour, "tooltip": {"field": "told", "type": "nominal"}})


def _squares(board: Board, side: float) -> list[Spec]:
    (down, along), shaded, largest = board.lines, len(board.shades) > 0, max(board.rows, board.columns)
    frame = {"x": -0.5, "x2": board.columns - 0.5, "y": -0.5, "y2": board.rows - 0.5}
    lines = [{**frame, "y": y - 0.5, "y2": y - 0.5} for y in (range(down, board.rows, down) if down else ())]
    lines += [{**frame, "x": x - 0.5, "x2": x - 0.5} for x in (range(along, board.columns, along) if along else ())]
    ring = (2 * side * max(0.55, largest / 30)) ** 2
    length = side * (0.77 if largest >= FINE else 0.5)
    fills = []
    texts = []
    rings = []
    arrows = []
    for one in board.squares:
        at = {"x": one.column, "y": one.row}
        if one.colour:
            fills.append({**_box(one.row, one.column, 0.4 / side), "colour": one.colour})
        if one.text:
            up = 0.38 if one.arrow else 0
            texts.append({**at, "y": one.row - up, "text": one.text, "colour": one.text_colour})
        if one.ring:
            rings.append({**at, "shape": SHAPES[one.ring], "size": ring})
        if one.arrow is not None:
            reach = math.hypot(*one.arrow)
            angle = math.degrees(math.atan2(*one.arrow))
            shape = {"shape": ARROW if reach else SHAPES["circle"], "size": (length * (reach or 0.3)) ** 2}
            arrows.append({**at, "angle": angle, **shape})
    papers = [
        {**row, "shape": f"M{-half},-6H{half}V6H{-half}Z", "size": 4}  # this size keeps pixels as they are
        for row in texts
        if shaded and row["colour"] != WHITE
        for half in [3.3 * len(str(row["text"])) + 2]
    ]
    written: Spec = {"baseline": "middle", "fontSize": BOARD_FONT_SIZE}
    black: Spec = {"color": "black", "opacity": 1}
    return [
        _layer("rect", fills, {**BOX, "color": COLOUR}),
        _layer("rule", lines, BOX, strokeWidth=1, stroke=WHITE if shaded else LIGHT_GREY),
        _layer("rect", [frame], BOX, filled=False, strokeWidth=1, stroke=LIGHT_GREY),
        _layer("point", papers, SHAPED, filled=True, opacity=1, color=WHITE),
        _layer("text", texts, {"text": TEXT, "color": COLOUR}, **written),
        _layer("point", rings, SHAPED, **black, filled=False, strokeWidth=1.4),
        _layer("point", arrows, {**SHAPED, "angle": _plain("angle", "quantitative")}, **black, filled=True),
    ]


def vega_lite(
    panels: Sequence[Panel | Board], title: str, width: float, height: float | None, columns: int | None, hover: bool
) -> Spec:
    """A picture, the legend above its panels, as a Vega-Lite specification with its data.

    Without ``height`` it is as high as panels need, and without ``columns`` has as many as there is room for. If
    ``hover``, points and squares show their figures under the pointer.
    """
    legend = _legend_strip(panels, width)
    shaded = any(isinstance(one, Board) and len(one.shades) for one in panels)
    room = SHADES_ROOM if shaded else 6.0
    columns = columns or _columns(len(panels), width, room)
    wide = _axes_width(columns, width, room)
    high = HEIGHT_ALONE if len(panels) == 1 else HEIGHT
    if height is not None:
        taken = HEADING_LINE * len(title.splitlines()) + GAP + (legend[0]["height"] + GAP if legend else 0.0)
        high = max(MIN_HEIGHT, (height - taken) / -(-len(panels) // columns) - ABOVE_AND_BELOW)
    lines = (max(12, int((wide + 38) / CHARACTER)), int((high + 38) / CHARACTER))
    charts: list[Spec] = []
    for number, panel in enumerate(panels):
        above = {"title": textwrap.wrap(panel.title, int((wide + room) / TITLE_CHARACTER))} if panel.title else {}
        if isinstance(panel, Board):
            chart = {**board_chart(panel, wide, high), "resolve": {"scale": {"color": "independent"}}}
        else:
            pointer = f"nearest{number}" if hover else ""
            chart = panel_chart(panel, f"panel{number}", lines=lines, pointer=pointer)
            chart = {"width": wide, "height": high, **chart}
        charts.append({**above, **chart})
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        **({"title": {"text": title.splitlines(), "fontSize": 16, "offset": 14}} if title else {}),
        "params": PARAMETERS,
        "datasets": {f"panel{n}": rows_of(panel) for n, panel in enumerate(panels) if isinstance(panel, Panel)},
        "vconcat": [*legend, {"columns": columns, "concat": charts, "resolve": {"scale": {"color": "independent"}}}],
    }


def _axes_width(columns: int, whole: float, room: float) -> float:
    return max(60.0, (whole + GAP) / columns - GAP - BESIDE - room)


def _columns(count: int, whole: float, room: float) -> int:
    """The most columns that leave axes wide enough, with rows as even as can be."""
    fit = max(n for n in range(1, MAX_COLUMNS + 1) if n == 1 or _axes_width(n, whole, room) >= MIN_WIDTH)
    return -(-count // -(-count // min(count, fit)))


def _legend_strip(panels: Sequence[Panel | Board], whole: float) -> list[Spec]:
    """The legend as a chart, in as many lines as it needs; none if there are no entries."""
    rows: list[Spec] = []
    x = 0.0
    y = LINE / 2
    for entry in (entry for part in legend_of(p for p in panels if isinstance(p, Panel)) for entry in part.values()):
        width = SWATCH + 10 + CHARACTER * len(entry.text) + GAP
        if x and x + width > whole:
            x = 0.0
            y = y + LINE
        row: Spec = {"text": entry.text, "line": entry.line, "band": entry.band, "colour": entry.colour}
        row |= {"dash": DASHES[entry.dash], "shape": SHAPES.get(entry.marker, ""), "size": SIZE}
        rows.append({**row, "x": x, "x2": x + SWATCH, "y": y})
        x += width
    if not rows:
        return []
    at = {"x": _plain("x", "quantitative"), "y": _plain("y", "quantitative"), "color": COLOUR}
    lines = [row for row in rows if row["line"]]
    bands = [{**row, "y": row["y"] - 6, "y2": row["y"] + 6} for row in rows if row["band"]]
    markers = [{**row, "x": row["x"] + SWATCH / 2} for row in rows if row["shape"]]
    texts = [{**row, "x": row["x2"] + 10, "colour": "black"} for row in rows]
    layers = [
        _layer("rect", bands, {**at, **BOX}, opacity=0.25),
        _layer("rule", lines, {**at, "x2": BOX["x2"], "strokeDash": DASH}, strokeWidth=2.2),
        _layer("point", markers, {**at, **SHAPED}, filled=True, opacity=1),
        _layer("text", texts, {**at, "text": TEXT}, align="left", baseline="middle"),
    ]
    return [{"width": whole - BESIDE, "height": y + LINE / 2, "layer": layers}]
