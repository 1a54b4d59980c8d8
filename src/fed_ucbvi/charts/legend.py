"""What a legend says: the colour of each name, the dash of each variant, their markers, and what bands are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fed_ucbvi.charts.checks import markers_go_with_names
from fed_ucbvi.charts.panels import Dash, Panel, Series
from fed_ucbvi.core.colours import DARK_GREY, Marker


class Entry(NamedTuple):
    """A text and the piece of curve beside it."""

    text: str
    colour: str
    dash: Dash
    marker: Marker
    line: bool
    band: bool = False


class Legend(NamedTuple):
    """Entries in order of appearance."""

    names: list[Entry]
    variants: list[Entry]
    bands: list[Entry]


def legend_of(panels: Iterable[Panel]) -> Legend:
    """The legend of a figure: a name is shown in its colour, a variant and a band in grey."""
    everything = [series for panel in panels for series in panel.series]
    by_name = markers_go_with_names(everything)
    names: dict[str, Entry] = {}
    variants: dict[str, Entry] = {}
    for series in (series for series in everything if series.name):
        plain = bool(series.variant)
        names.setdefault(series.name, _name(series, plain=plain, marked=by_name or not plain))
        if series.variant:
            marker: Marker = "none" if by_name else series.marker
            variants.setdefault(
                series.variant, Entry(series.variant, DARK_GREY, series.dash, marker, series.line or by_name)
            )
    bands = dict.fromkeys(one.band for one in everything if one.band and one.low is not None)
    return Legend(
        list(names.values()),
        list(variants.values()),
        [Entry(text, DARK_GREY, "solid", "none", line=False, band=True) for text in bands],
    )


def _name(series: Series, *, plain: bool, marked: bool) -> Entry:
    """The entry of a name; without dash if variants show it, without marker unless ``marked``."""
    marker: Marker = series.marker if marked else "none"
    return Entry(series.name, series.colour, "solid" if plain else series.dash, marker, series.line or not marked)
