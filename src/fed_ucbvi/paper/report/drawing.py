"""Figures of a report with matplotlib: whole figures for files, and single panels as SVG for the page."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from html import escape

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fed_ucbvi.charts.axes import (
    BAND_OPACITY,
    FAINT_BAND_OPACITY,
    FEW_CURVES,
    MARKERS,
    curve_label,
    draw_curve,
    draw_points,
    set_scales,
    set_texts,
    start_at_zero,
)
from fed_ucbvi.charts.figures import Panels, figure_style, legend_columns, new_panels, without_tex
from fed_ucbvi.core.numbers import short
from fed_ucbvi.core.text import shortened
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper.report.content import Figure
from fed_ucbvi.paper.report.panels import Entry, Panel, Series, categories, colour_variable, legend_of, positions

PANEL_SIZE = (4.0, 2.7)
"""Inches of a panel on the page."""
FEW_TICKS = 8
LEAST_DISTANCE = 0.09
"""Up to so many different x are each written if they are this share of the axis apart."""
CATEGORY_LENGTH = 24
CATEGORY_LINE = 12
CATEGORY_CHARACTER = 0.075
AXES_WIDTH = 3.6
"""Characters of a category and of a line of it, inches of a character, and inches of an axis: others are slanted."""
MARGIN = 0.04
"""Left free beyond the outermost points, as a share of the axis."""
LABEL_LINE = 28
TITLE_LINE = 40
"""Characters in a line of a vertical label, and of a title or a text of a legend."""
GREYS = {"#5c5c5c": "var(--faint)", "#dddddb": "var(--rule)"}
"""Colours of the style sheet by those of the page."""


def draw_figure(figure: Figure) -> Panels:
    """All panels of a figure with one legend below them, without its title and caption, and laid out for good."""
    entries = legend_of(figure.panels).entries
    with figure_style():
        panels = new_panels(len(figure.panels), columns=figure.columns, legend=[entry.text for entry in entries])
        for panel, ax in zip(figure.panels, panels, strict=True):
            draw_panel(ax, panel)
        if entries:
            _draw_legend(panels, entries)
        panels.figure.draw_without_rendering()
        panels.figure.set_layout_engine("none")  # or else every file would be laid out again
    return panels


def draw_panel(ax: Axes, panel: Panel, *, title: str | None = None) -> None:
    """The series of a panel on its axes, under its own title or another one."""
    set_scales(ax, x_log=panel.x_log, y_log=panel.y_log)
    opacity = BAND_OPACITY if len(panel.series) <= FEW_CURVES else FAINT_BAND_OPACITY
    floor = _floor(panel)
    for series, x in zip(panel.series, positions(panel), strict=True):
        low = None if series.low is None else np.maximum(series.low, floor)
        if series.line:
            draw_curve(
                ax,
                x,
                series.y,
                colour=series.colour,
                label=series.full_name,
                dash=series.dash,
                marker=series.marker,
                low=low,
                high=series.high,
                band_opacity=opacity,
            )
        else:
            _draw_bars(ax, series, x, low)
    _set_x_axis(ax, panel)
    if panel.y_log:
        ax.set_ylim(bottom=floor)
    else:
        start_at_zero(ax, _heights(panel))
    shown = _broken(panel.title if title is None else title, TITLE_LINE)
    y_label = _broken(panel.y_label, LABEL_LINE)
    set_texts(ax, title=shown, x_label=panel.x_label, y_label=y_label)


def _broken(text: str, characters: int) -> str:
    return "\n".join(textwrap.wrap(text, characters, break_on_hyphens=False))


def _floor(panel: Panel) -> float:
    """The lower end of a logarithmic axis, which cuts intervals that reach zero; minus infinity on a linear one."""
    if not panel.y_log:
        return -math.inf
    positive = [y for y in _heights(panel) if y > 0]
    least = min(positive)
    return least / (max(positive) / least) ** MARGIN if max(positive) > least else least / 2


def _draw_bars(ax: Axes, series: Series, x: Sequence[float], low: FloatArray | None) -> None:
    """Points that no line connects, each with its interval as a bar."""
    draw_points(ax, x, series.y, colour=series.colour, marker=series.marker, label=series.full_name)
    if low is not None and series.high is not None:
        ax.vlines(x, low, series.high, color=series.colour, linewidth=1.2)


def _heights(panel: Panel) -> list[float]:
    """Every y of a panel, with the ends of intervals."""
    heights: list[float] = []
    for series in panel.series:
        for part in (series.y, series.low, series.high):
            heights += [] if part is None else [float(y) for y in part]
    return heights


def _set_x_axis(ax: Axes, panel: Panel) -> None:
    """Ends and ticks: at categories, at every x if they are few, or else at round numbers."""
    names = categories(panel)
    if names:
        _set_categories(ax, names)
        return
    marked = any(series.marker != "none" for series in panel.series)
    ax.margins(x=MARGIN if marked else 0.0)
    values = sorted({x for places in positions(panel) for x in places})
    along = np.log(values) if panel.x_log else np.array(values)
    width = along[-1] - along[0]
    if len(values) <= FEW_TICKS and (width == 0 or (np.diff(along) >= LEAST_DISTANCE * width).all()):
        ax.set_xticks(values, [short(value) for value in values])


def _set_categories(ax: Axes, names: Sequence[str]) -> None:
    """Texts below the axis, in lines where there is room, otherwise slanted."""
    texts = [shortened(name, CATEGORY_LENGTH) for name in names]
    broken = [textwrap.wrap(text, CATEGORY_LINE, break_long_words=False) or [""] for text in texts]
    longest = max(len(line) for lines in broken for line in lines)
    slanted = len(names) * (longest + 1) * CATEGORY_CHARACTER > AXES_WIDTH
    labels = texts if slanted else ["\n".join(lines) for lines in broken]
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_xticks(range(len(names)), labels, rotation=35 if slanted else 0, ha="right" if slanted else "center")
    for label in ax.get_xticklabels():
        label.set_parse_math(False)
        label.set_rotation_mode("anchor")
    ax.grid(False, axis="x")


def _draw_legend(panels: Panels, entries: Sequence[Entry]) -> None:
    texts = [curve_label(_broken(entry.text, TITLE_LINE)) for entry in entries]
    legend = panels.figure.legend(
        [_sample(entry) for entry in entries],
        texts,
        loc="outside lower center",
        ncols=legend_columns(texts, panels.figure.get_figwidth()),
    )
    without_tex(legend)


def _sample(entry: Entry) -> Artist:
    """A piece of curve, or of a band, for a legend."""
    if entry.band:
        return Patch(facecolor=entry.colour, alpha=0.25)
    return Line2D(
        [],
        [],
        color=entry.colour,
        linestyle=entry.dash if entry.line else "None",
        marker=MARKERS[entry.marker],
    )


def panel_svg(panel: Panel, name: str, description: str) -> str:
    """A panel as an SVG element for a page, in the page's colours, without its title.

    Colours are variables of the page, so that the same element is light or dark. ``name`` is put before all ids,
    which makes them unique on the page; ``description`` is the text alternative.
    """
    with figure_style(), mpl.rc_context({"svg.fonttype": "none", "svg.id": None}):
        panels = new_panels(1, columns=1, size=PANEL_SIZE)
        draw_panel(panels[0], panel, title="")
        buffer = io.StringIO()
        panels.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    box = re.findall(r'viewBox="([^"]*)"', text)[0]
    content = text[text.index("</metadata>") + len("</metadata>") :]
    content = re.sub(r"<style.*?</style>", "", content, flags=re.DOTALL)
    content = content.replace(' id="', f' id="{name}-').replace("url(#", f"url(#{name}-")
    content = content.replace('xlink:href="#', f'href="#{name}-')
    colours = {series.colour.lower(): f"var({colour_variable(series.colour)})" for series in panel.series}
    for colour, variable in {**GREYS, **colours}.items():
        content = content.replace(f" {colour}", f" {variable}")
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(description)}">{content.strip()}'
