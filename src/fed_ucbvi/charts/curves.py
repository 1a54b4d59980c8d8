"""A panel as a Vega-Lite specification, from which both the page and the pictures are made.

The data have one row for each series, with its style (colour, dash, shape) and its points; Vega-Lite unfolds them. So
the chart itself says only what is drawn along which axes, and a page can hide or highlight a series by its name or
variant without changing the chart.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from fed_ucbvi.charts.panels import Panel, Scale, Series
from fed_ucbvi.charts.scales import categories, positions, x_scale, y_scale

Spec = dict[str, Any]
"""Vega-Lite, or a part of it, ready for JSON."""

DASHES: dict[str, list[float]] = {"solid": [1, 0], "dashed": [7, 3], "dotted": [1.5, 2.5], "dashdot": [7, 3, 1.5, 3]}
"""Strokes and gaps."""
SHAPES = {
    "cross": "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z",
    "circle": "M-.9,0A.9,.9,0,1,1,.9,0A.9,.9,0,1,1,-.9,0Z",
    "square": "M-.8,-.8H.8V.8H-.8Z",
    "diamond": "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "triangle": "M0,-1L1,.8H-1Z",
}
"""Markers as SVG paths of about two units each way."""
FEW_POINTS = 12
"""Up to this many points, every point of a curve has a marker; otherwise about ``MARKS`` of them have one."""
MARKS = 6
SIZE = 60.0
"""Of a marker, as the area of the square that it would fill."""
MANY_POINTS, SMALL = 40, 22.0
"""With more unconnected points than this, markers are small."""
NUMBER, SHORT = ",.9~r", ",.6~r"
"""Formats of numbers with up to nine or six digits, without trailing zeros."""
PARAMETERS: list[Spec] = [{"name": "hidden", "value": []}, {"name": "stressed", "value": ""}]
"""Parameters of a specification: names and variants to hide, and the name or variant to highlight."""
PART = {
    **{part: f"indexof(datum.parts, '{part}') >= 0" for part in ("band", "bars", "line", "steps")},
    "marker": "datum.marked > 0",
}
"""Which points the layers of a panel show."""
CATEGORY_CHARACTERS = 12
CATEGORY_CHARACTER = 7.5
"""The most characters in a line of text below an axis, and the largest width of a character in pixels."""
SHOWN = "indexof(hidden, datum.name) < 0 && indexof(hidden, datum.variant) < 0"
FAINT = "stressed != '' && datum.name != stressed && datum.variant != stressed"
COLOUR = {"field": "colour", "type": "nominal", "scale": None}
DASH = {"field": "dash", "type": "nominal", "scale": None}
SHAPE = {"field": "shape", "type": "nominal", "scale": None}
MARKER_SIZE = {"field": "size", "type": "quantitative", "scale": None}
FEW_CURVES = 6
"""Up to this many curves have bands in full strength; with more, bands are fainter."""


def rows_of(panel: Panel, colour: Callable[[str], str] = str) -> list[dict[str, Any]]:
    """The data of a panel, a row for each series; ``colour`` may replace colours."""
    grouped = bool(categories(panel))
    rows = []
    for number, (series, xs) in enumerate(zip(panel.series, positions(panel), strict=True)):
        shape = "circle" if series.marker == "none" and len(xs) == 1 else series.marker
        banded = series.low is not None
        filled = banded and series.line and len(xs) > 1 and not grouped
        row: dict[str, Any] = {
            "name": series.name,
            "variant": series.variant,
            "series": series.full_name,
            "colour": colour(series.colour),
            "dash": DASHES[series.dash],
            "shape": SHAPES.get(shape, ""),
            "size": SMALL if not series.line and len(xs) > MANY_POINTS else SIZE,
            "parts": [
                *(["steps" if series.steps else "line"] if series.line and len(xs) > 1 else []),
                *(["band"] if filled else []),
                *(["bars"] if banded and not filled else []),
                *(["marker"] if shape != "none" else []),
            ],
            "x": [_rounded(x) for x in xs],
            "y": [_rounded(y) for y in series.y],
            "low": [] if series.low is None else [_rounded(y) for y in series.low],
            "high": [] if series.high is None else [_rounded(y) for y in series.high],
            "marked": _marked(series, len(xs), number) if shape != "none" else [],
        }
        if grouped:
            row["text"] = [str(x) for x in series.x]
        rows.append(row)
    return rows


def _rounded(value: Any) -> float:
    return float(f"{float(value):.9g}")


def _marked(series: Series, count: int, number: int) -> list[int]:
    """For each point whether it has a marker (1 or 0); with many points, markers of several series alternate."""
    if not series.line or count <= FEW_POINTS:
        return [1] * count
    step = count // MARKS
    first = number * max(1, step // 4) % step
    return [int(place % step == first) for place in range(count)]


def panel_chart(panel: Panel, data: str, *, y_title: bool = True, lines: tuple[int, int] = (44, 40)) -> Spec:
    """Bands, curves and markers of a panel on its axes; without size, labels or interaction.

    The outermost specification must declare :data:`PARAMETERS`.

    Args:
        panel: what to draw.
        data: name of the data set with the panel's rows.
        y_title: whether to write what is drawn along the vertical axis.
        lines: characters in a line of the titles below and beside the axes; longer titles are broken.
    """
    x, y = x_scale(panel), y_scale(panel)
    opacity = 0.18 if len(panel.series) <= FEW_CURVES else 0.1
    along = {"field": "x", "type": "quantitative", **_axis(x, panel.x_label, lines[0])}
    up = {"type": "quantitative", **_axis(y, panel.y_label if y_title else "", lines[1])}
    interval = {"y": {"field": "floor", **up}, "y2": {"field": "high"}}
    curve = {"y": {"field": "y", **up}}
    line = {"type": "line", "strokeJoin": "round"}
    layers = {
        "band": ({"type": "area", "fillOpacity": opacity, "strokeWidth": 0}, interval),
        "bars": ({"type": "rule", "strokeWidth": 1.2}, interval),
        "line": (line, {**curve, "strokeDash": DASH}),
        "steps": ({**line, "interpolate": "step-after"}, {**curve, "strokeDash": DASH}),
        "marker": ({"type": "point", "filled": True}, {**curve, "shape": SHAPE, "size": MARKER_SIZE}),
    }
    shared = {
        "x": along,
        "color": COLOUR,
        "detail": {"field": "series"},
        "opacity": {"condition": {"test": FAINT, "value": 0.12}, "value": 1},
    }
    drawn = {part for row in rows_of(panel) for part in row["parts"]}
    columns = ["x", "y", "low", "high", "marked", *(["text"] if x.categories else [])]
    return {
        "data": {"name": data},
        "transform": [
            {"filter": SHOWN},
            {"flatten": columns},
            {"calculate": f"max(datum.low, {y.low!r})", "as": "floor"},
        ],
        "encoding": shared,
        "layer": [
            {"transform": [{"filter": PART[part]}], "mark": mark, "encoding": encoding}
            for part, (mark, encoding) in layers.items()
            if part in drawn
        ],
    }


def pointer_layer(panel: Panel, name: str = "nearest") -> Spec:
    """Invisible points over a panel: the one nearest to the pointer gets a ring and shows its figures.

    Args:
        panel: what is drawn.
        name: of the selection; different for each panel of a specification.
    """
    band = ", ".join(sorted({series.band for series in panel.series if series.low is not None} - {""}))
    lines = {
        **({"series": "datum.series"} if any(series.name for series in panel.series) else {}),
        panel.x_label or "x": "datum.text" if categories(panel) else f"format(datum.x, '{NUMBER}')",
        panel.y_label or "y": f"format(datum.y, '{SHORT}')",
        band or "band": f"'[' + format(datum.low, '{SHORT}') + ', ' + format(datum.high, '{SHORT}') + ']'",
    }
    texts = [f"{json.dumps(name)}: {text}" for name, text in lines.items()]
    told = f"isValid(datum.low) ? {{{', '.join(texts)}}} : {{{', '.join(texts[:-1])}}}"
    nearest: Spec = {"type": "point", "nearest": True, "fields": ["series", "x"]}
    nearest |= {"on": "pointerover", "clear": "pointerout"}
    return {
        "transform": [{"calculate": told, "as": "told"}],
        "params": [{"name": name, "select": nearest}],
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
    """Ends and ticks of an axis."""
    axis: Spec = {"title": textwrap.wrap(title, characters) or None, "labelOverlap": "greedy"}
    if scale.ticks is None:
        axis |= {"tickCount": 5, "format": NUMBER}
    else:
        values, texts = [value for value, _ in scale.ticks], [text for _, text in scale.ticks]
        axis["values"] = values
        axis |= _category_labels(values, texts) if scale.categories else {"labelExpr": pick(values, texts)}
    kind = "log" if scale.log else "linear"
    ends = {"type": kind, "domain": [scale.low, scale.high], "nice": False}
    return {"scale": ends if scale.log else {**ends, "zero": False}, "axis": axis}


def _category_labels(values: Sequence[float], texts: Sequence[str]) -> Spec:
    """Texts below an axis: broken into lines where there is room, otherwise slanted."""
    broken = [textwrap.wrap(text, CATEGORY_CHARACTERS, break_long_words=False) for text in texts]
    longest = max(len(line) for text in broken for line in text)
    tight = f"width < {len(texts) * (longest * CATEGORY_CHARACTER + 6)}"
    return {
        "labelExpr": f"{tight} ? {pick(values, texts)} : {pick(values, broken)}",
        "labelAngle": {"expr": f"{tight} ? -40 : 0"},
        "labelAlign": {"expr": f"{tight} ? 'right' : 'center'"},
        "labelBaseline": {"expr": f"{tight} ? 'middle' : 'top'"},
        "labelOverlap": False,
        "labelLimit": 240,
        "grid": False,
    }


def pick(values: Sequence[float], texts: Sequence[object]) -> str:
    """A Vega expression for the text at a tick."""
    return f"{json.dumps(texts, ensure_ascii=False)}[indexof({json.dumps(values)}, datum.value)]"
