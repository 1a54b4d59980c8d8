"""Panels of a report's figures as plain values: curves and points on axes.

All texts are plain Unicode, without mark-up of any kind: write εₚ, 10⁶ and ≤, neither TeX nor HTML. Panels that
cannot be drawn (NaN, an empty series, a negative number on a logarithmic axis, one name in two colours) are an error
of :func:`check_panels`. Leave out points that are not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fed_ucbvi.core.colours import DARK_GREY, Dash, Marker
from fed_ucbvi.core.errors import InputError

LOOSE_WIDTH = 0.6
"""Share of a category's width over which points that no line connects are spread."""


@dataclass(frozen=True)
class Series:
    """One curve, or one set of points, with an optional band from ``low`` to ``high``.

    Curves may differ in two ways, say algorithm and εₚ. Colour and ``name`` then show the first, dash and ``variant``
    the second. Three algorithms with four εₚ each have a legend of three names and four variants, not of twelve
    curves. Throughout a figure a name has one colour and a variant one dash. The marker belongs to the name, or else
    to the variant.

    Attributes:
        name: in the legend. May be empty for the only series of a panel, which then has no entry in the legend.
        x: texts for a panel with categories.
        low: lower end of the interval at each x; given together with ``high``.
        line: True if a line connects the points.
        variant: the setting in which this curve differs from others of its name, such as ``εₚ = 0.1``.
        band: meaning of ``low`` and ``high``, such as ``95 % interval of the mean``; written in the legend.
    """

    name: str
    colour: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dash: Dash = "solid"
    marker: Marker = "none"
    line: bool = True
    variant: str = ""
    band: str = ""

    @property
    def full_name(self) -> str:
        """Name and variant.

        >>> Series("Fed-UCBVI", "#0072B2", [1], [2], variant="εₚ = 0.1").full_name
        'Fed-UCBVI, εₚ = 0.1'
        """
        return f"{self.name}, {self.variant}" if self.variant else self.name


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its series."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False


@dataclass(frozen=True)
class Entry:
    """A text of a legend and the sample of a curve beside it."""

    text: str
    colour: str
    dash: Dash
    marker: Marker
    line: bool
    band: bool = False


@dataclass(frozen=True)
class Legend:
    """Entries by their text, in order of appearance."""

    names: dict[str, Entry] = field(default_factory=dict)
    variants: dict[str, Entry] = field(default_factory=dict)
    bands: dict[str, Entry] = field(default_factory=dict)

    @property
    def entries(self) -> list[Entry]:
        return [*self.names.values(), *self.variants.values(), *self.bands.values()]


def legend_of(panels: Iterable[Panel]) -> Legend:
    """The legend of a figure: a name is shown in its colour, a variant and a band in grey."""
    all_series = [series for panel in panels for series in panel.series]
    names = {series.name for series in all_series}
    names_with_markers = {(series.name, series.marker) for series in all_series}
    by_name = len(names_with_markers) == len(names)  # every name has one marker throughout
    legend = Legend()
    for series in all_series:
        if series.name:
            legend.names.setdefault(series.name, _name_entry(series, by_name=by_name))
        if series.name and series.variant:
            legend.variants.setdefault(series.variant, _variant_entry(series, by_name=by_name))
        if series.band and series.low is not None:
            legend.bands.setdefault(series.band, _band_entry(series))
    return legend


def _name_entry(series: Series, *, by_name: bool) -> Entry:
    marked = by_name or not series.variant  # else its variants show the markers
    return Entry(
        text=series.name,
        colour=series.colour,
        dash="solid" if series.variant else series.dash,
        marker=series.marker if marked else "none",
        line=series.line or not marked,
    )


def _variant_entry(series: Series, *, by_name: bool) -> Entry:
    return Entry(
        text=series.variant,
        colour=DARK_GREY,
        dash=series.dash,
        marker="none" if by_name else series.marker,
        line=series.line or by_name,
    )


def _band_entry(series: Series) -> Entry:
    return Entry(
        text=series.band,
        colour=DARK_GREY,
        dash="solid",
        marker="none",
        line=False,
        band=True,
    )


def colour_variable(colour: str) -> str:
    """The CSS variable of a page that holds a colour, or its lighter version on a dark background."""
    return f"--colour-{colour[1:].upper()}"


def check_panels(panels: Sequence[Panel], where: str) -> None:
    """Raise unless ``panels`` can be drawn as one figure; the message names ``where``, panel and series."""
    colours: dict[str, str] = {}
    dashes: dict[str, Dash] = {}
    for panel in panels:
        place = f"{where}, panel {panel.title!r}"
        if not panel.series:
            raise InputError(f"{place} has no series; give it at least one, or leave it out.")
        for series in panel.series:
            fault = next(_faults(series, panel), None)
            if fault is not None:
                raise InputError(f"{place}, series {series.full_name!r}{fault}")
            name = series.name
            variant = series.variant
            if name and colours.setdefault(name, series.colour) != series.colour:
                raise InputError(f"{where}: name {name!r} has more than one colour; a legend shows one.")
            if variant and dashes.setdefault(variant, series.dash) != series.dash:
                raise InputError(f"{where}: variant {variant!r} has more than one dash; a legend shows one.")


def _faults(series: Series, panel: Panel) -> Iterator[str]:
    """Reasons why a series cannot be drawn, to follow its name in a message."""
    if len(series.x) == 0:
        yield " is empty; leave it out."
    if (series.low is None) != (series.high is None):
        yield ": low and high go together; give both or neither."
    if not isinstance(series.x[0], str):
        yield from _faults_of_numbers(series, "x", series.x, log=panel.x_log)
    yield from _faults_of_numbers(series, "y", series.y, log=panel.y_log)
    if series.low is not None:
        yield from _faults_of_numbers(series, "low", series.low, log=False)
    if series.high is not None:
        yield from _faults_of_numbers(series, "high", series.high, log=panel.y_log)


def _faults_of_numbers(series: Series, name: str, numbers: Sequence[Any], *, log: bool) -> Iterator[str]:
    if len(numbers) != len(series.x):
        yield f": {name} has {len(numbers)} entries, x has {len(series.x)}; one for each x."
    for place, value in enumerate(numbers):
        if value is None or not math.isfinite(value):
            yield f": {name}[{place}] is {value}; leave out points that are not known."
        elif log and value <= 0:
            axis = "x" if name == "x" else "y"
            text = f"which no logarithmic axis can hold; leave it out or set {axis}_log to False."
            yield f": {name}[{place}] is {value}, {text}"


def categories(panel: Panel) -> list[str]:
    """The texts along x in order of appearance; empty for a panel with numbers."""
    return list(dict.fromkeys(x for series in panel.series for x in series.x if isinstance(x, str)))


def positions(panel: Panel) -> list[list[float]]:
    """The x of every series as numbers; categories count from 0, and loose points in one share 60 % of its width."""
    places = {name: float(number) for number, name in enumerate(categories(panel))}
    if not places:
        return [[float(x) for x in series.x] for series in panel.series]
    loose = sum(not series.line for series in panel.series)
    loose_before = 0
    found = []
    for series in panel.series:
        move = 0.0
        if not series.line:
            share = (loose_before + 0.5) / loose
            move = LOOSE_WIDTH * (share - 0.5)
            loose_before += 1
        found.append([places[str(x)] + move for x in series.x])
    return found
