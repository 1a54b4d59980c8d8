"""Panels as the page's own plots: what plotly.js is given, as values ready for JSON."""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import Any

from fed_ucbvi.report.content import Figure, Panel, Series
from fed_ucbvi.report.panels import FEW_POINTS
from fed_ucbvi.report.scales import Scale, categories, positions, x_scale, y_scale

DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot", "dashdot": "dashdot"}
SYMBOLS = {"cross": "x", "circle": "circle", "square": "square", "diamond": "diamond", "triangle": "triangle-up"}
INK = "#222222"
PALE = "#E6E6E6"
NUMBER = ",.10~r"
"""How hovering writes a number: up to ten digits, none of them idle."""
MARKS = 8
"""Marked points of a curve with many."""
MOST_DIGITS = 1e7
"""Axes that reach so far are written with powers of ten."""
CHARACTERS = 14
"""In a line under a horizontal axis."""


def plots_of(figure: Figure) -> list[dict[str, Any]]:
    """For each panel its traces and layout."""
    return [{"traces": traces_of(panel), "layout": layout_of(panel)} for panel in figure.panels]


def traces_of(panel: Panel) -> list[dict[str, Any]]:
    """Bands first, so that curves lie on top; ``meta`` says whose trace it is, for the legend."""
    y = y_scale(panel)
    grouped = bool(categories(panel))
    bands, curves = [], []
    for series, xs in zip(panel.series, positions(panel), strict=True):
        banded = series.line and len(xs) > 1 and not grouped
        if series.low is not None and banded:
            bands.append(_band(series, xs, y))
        curves.append(_curve(series, xs, panel, None if banded else y))
    return bands + curves


def _band(series: Series, xs: list[float], y: Scale) -> dict[str, Any]:
    low = [y.within(float(value)) for value in series.low or ()]
    high = [y.within(float(value)) for value in series.high or ()]
    return {
        "type": "scatter",
        "x": xs + xs[::-1],
        "y": high + low[::-1],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": _translucent(series.colour, 0.15),
        "hoverinfo": "skip",
        "meta": _meta(series),
    }


def _curve(series: Series, xs: list[float], panel: Panel, bars: Scale | None) -> dict[str, Any]:
    """A curve or points; with intervals as bars, as far as the axis ``bars`` reaches, unless a band shows them."""
    ys = [float(value) for value in series.y]
    marked = series.marker != "none" or len(xs) == 1
    trace: dict[str, Any] = {
        "type": "scatter",
        "x": xs,
        "y": ys,
        "name": _text(series.full_name),
        "mode": "+".join(part for part, there in (("lines", series.line), ("markers", marked)) if there),
        "line": {"color": series.colour, "dash": DASHES[series.dash], "width": 2},
        "meta": _meta(series),
        "hovertemplate": f"<b>%{{meta[2]}}</b><br>%{{meta[3]}}: {_x_text(panel)}<br>%{{meta[4]}}: %{{y:{NUMBER}}}",
    }
    if marked:
        trace["marker"] = {"color": series.colour, "symbol": SYMBOLS.get(series.marker, "circle"), "size": 7}
        if series.line and len(xs) > FEW_POINTS:
            trace["marker"]["maxdisplayed"] = MARKS
    trace["meta"] += [_text(series.full_name), _text(panel.x_label), _text(panel.y_label)]
    names = categories(panel)
    if names:
        trace["text"] = [_text(str(x)) for x in series.x]
    if series.low is not None and series.high is not None:
        low, high = [float(value) for value in series.low], [float(value) for value in series.high]
        trace["customdata"] = [list(pair) for pair in zip(low, high, strict=True)]
        trace["hovertemplate"] += f" [%{{customdata[0]:{NUMBER}}}, %{{customdata[1]:{NUMBER}}}]"
        if bars is not None:
            trace["error_y"] = {
                "type": "data",
                "symmetric": False,
                "array": [bars.within(top) - value for top, value in zip(high, ys, strict=True)],
                "arrayminus": [value - bars.within(bottom) for value, bottom in zip(ys, low, strict=True)],
                "thickness": 1.5,
                "width": 0,
                "color": series.colour,
            }
    trace["hovertemplate"] += "<extra></extra>"
    return trace


def layout_of(panel: Panel) -> dict[str, Any]:
    """Axes and looks of a panel."""
    return {
        "xaxis": _axis(panel.x_label, x_scale(panel)),
        "yaxis": _axis(panel.y_label, y_scale(panel)),
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 10, "r": 16, "t": 30, "b": 10},
        "paper_bgcolor": "#FFFFFF",
        "plot_bgcolor": "#FFFFFF",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "hoverlabel": {"bgcolor": "#FFFFFF", "font": {"color": INK}, "align": "left"},
        "dragmode": "zoom",
    }


def _axis(title: str, scale: Scale) -> dict[str, Any]:
    ends = [math.log10(end) if scale.log else end for end in (scale.low, scale.high)]
    axis: dict[str, Any] = {
        "title": {"text": _text(title), "standoff": 8},
        "type": "log" if scale.log else "linear",
        "range": ends,
        "automargin": True,
        "ticklabeloverflow": "allow",
        "ticks": "outside",
        "linecolor": INK,
        "gridcolor": PALE,
        "zeroline": False,
        "exponentformat": "power" if scale.log or scale.high >= MOST_DIGITS else "none",
        "separatethousands": True,
    }
    if scale.ticks is not None:
        axis["tickvals"] = [place for place, _ in scale.ticks]
        axis["ticktext"] = ["<br>".join(map(_text, textwrap.wrap(text, CHARACTERS))) for _, text in scale.ticks]
    elif scale.log:
        axis["dtick"] = 1
    return axis


def _x_text(panel: Panel) -> str:
    return "%{text}" if categories(panel) else f"%{{x:{NUMBER}}}"


def _text(text: str) -> str:
    """Text that plotly.js shows as it is: it reads tags, and no entities but the three needed to avoid them."""
    return escape(text, quote=False)


def _meta(series: Series) -> list[str]:
    """Name and variant, as the legend knows them."""
    return [series.name, series.variant]


def _translucent(colour: str, alpha: float) -> str:
    """A colour one can see through.

    >>> _translucent("#0072B2", 0.15)
    'rgba(0, 114, 178, 0.15)'
    """
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha})"
