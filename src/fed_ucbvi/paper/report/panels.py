"""Panels of a report's figures as plain values: curves and points on axes.

All texts are plain Unicode, without mark-up of any kind: write εₚ, 10⁶ and ≤, neither TeX nor HTML. What cannot be
drawn (NaN, an empty series, a negative number on a logarithmic axis, one name in two colours) is an error of
:func:`check_panels`. Leave out points that are not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fed_ucbvi.core.colours import DARK_GREY, Dash, Marker
from fed_ucbvi.core.errors import InputError


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
        line: whether a line connects the points.
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
    everything = [series for panel in panels for series in panel.series]
    markers = {(one.name, one.marker) for one in everything}
    by_name = len(markers) == len({name for name, _ in markers})  # every name has one marker throughout
    legend = Legend()
    for one in everything:
        if one.name:
            legend.names.setdefault(one.name, _name_entry(one, by_name=by_name))
        if one.name and one.variant:
            legend.variants.setdefault(one.variant, _variant_entry(one, by_name=by_name))
        if one.band and one.low is not None:
            legend.bands.setdefault(one.band, Entry(one.band, DARK_GREY, "solid", "none", line=False, band=True))
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


def colour_variable(colour: str) -> str:
    """The CSS variable of a page that holds a colour, or its lighter version on a dark background."""
    return f"--colour-{colour[1:].upper()}"


def check_panels(panels: Sequence[Panel], where: str) -> None:
    """Raise unless ``panels`` can be drawn as one figure; the message names ``where``, panel and series."""
    looks: dict[tuple[str, str], str] = {}
    for panel in panels:
        place = f"{where}, panel {panel.title!r}"
        if not panel.series:
            raise InputError(f"{place} has no series; give it at least one, or leave it out.")
        for series in panel.series:
            fault = next(_faults(series, panel), None)
            if fault is not None:
                raise InputError(f"{place}, series {series.full_name!r}{fault}")
            for what, style in (("name", "colour"), ("variant", "dash")):
                name = getattr(series, what)
                look = getattr(series, style)
                if name and looks.setdefault((what, name), look) != look:
                    raise InputError(f"{where}: {what} {name!r} has more than one {style}; a legend shows one.")


def _faults(series: Series, panel: Panel) -> Iterator[str]:
    if len(series.x) == 0:
        yield " is empty; leave it out."
    if (series.low is None) != (series.high is None):
        yield ": low and high go together; give both or neither."
    columns: dict[str, tuple[Sequence[Any] | None, bool]] = {
        "x": (None if isinstance(series.x[0], str) else series.x, panel.x_log),
        "y": (series.y, panel.y_log),
        "low": (series.low, False),
        "high": (series.high, panel.y_log),
    }
    for name, (column, log) in columns.items():
        if column is not None and len(column) != len(series.x):
            yield f": {name} has {len(column)} entries, x has {len(series.x)}; one for each x."
        for place, value in enumerate(() if column is None else column):
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
    names = {name: float(number) for number, name in enumerate(categories(panel))}
    if not names:
        return [[float(x) for x in series.x] for series in panel.series]
    loose = [number for number, series in enumerate(panel.series) if not series.line]
    moves = {number: 0.6 * ((place + 0.5) / len(loose) - 0.5) for place, number in enumerate(loose)}
    return [[names[str(x)] + moves.get(number, 0.0) for x in series.x] for number, series in enumerate(panel.series)]
