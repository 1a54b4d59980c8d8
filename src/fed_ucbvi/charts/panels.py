"""The parts of a picture as plain values: curves on axes with ends and ticks, and boards of squares.

All texts are plain Unicode, without mark-up of any kind: write εₚ, 10⁶ and ≤, neither TeX nor HTML. What cannot be
drawn (NaN, an empty series, a negative figure on a logarithmic axis, one name in two colours) is an error of
:func:`check_panels`. Leave out points that are not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fed_ucbvi.core.colours import DARK_GREY, Marker
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.numbers import power_of_ten, short
from fed_ucbvi.core.text import shortened

Dash = Literal["solid", "dashed", "dotted", "dashdot"]
DASHES: tuple[Dash, ...] = get_args(Dash)
MARGIN = 0.04
"""Left free beyond the outermost points, as a share of the axis."""


@dataclass(frozen=True)
class Series:
    """One curve, or one set of points, with an optional band from ``low`` to ``high``.

    Curves may differ in two ways, say algorithm and εₚ. Colour and ``name`` then show the first, dash and ``variant``
    the second. Three algorithms with four εₚ each have a legend of three names and four variants, not of twelve
    curves, and each name and each variant can be switched on and off as a whole. Throughout a figure a name has one
    colour and a variant one dash. The marker belongs to the name, or else to the variant.

    Attributes:
        name: in the legend; the same name in two panels is toggled together. May be empty for the only series of a
            panel, which then has no entry in the legend.
        x: texts for a panel with categories.
        low: lower end of the interval at each x; given together with ``high``.
        steps: whether the line keeps the height of a point until the next one.
        variant: what sets this curve apart from others of its name, such as ``εₚ = 0.1``.
        band: what ``low`` and ``high`` are, such as ``95 % interval of the mean``; written in the legend.
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
    steps: bool = False
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
class Scale:
    """The ends of an axis and its ticks with their texts; a linear axis with ``ticks`` None has round numbers."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...] | None = None
    categories: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes; ``x_axis`` and ``y_axis`` replace the default axes, which just fit the points."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    x_axis: Scale | None = None
    y_axis: Scale | None = None


class Square(NamedTuple):
    """Something in a square of a board, counted from 0 at the upper left; ``colour`` fills it.

    Its text is in the middle, or at the upper edge if there is an arrow: rows down and columns to the right.
    """

    row: int
    column: int
    colour: str = ""
    text: str = ""
    text_colour: str = "#000000"
    ring: Literal["circle", "diamond", ""] = ""
    arrow: tuple[int, int] | None = None


Shades = Sequence[Sequence[float]]
"""A figure for each square, by rows."""


@dataclass(frozen=True)
class Board:
    """Squares in rows and columns, the first row on top; filled, shaded by a figure, with texts, rings and arrows.

    Attributes:
        shades: from dark (least) to light (most); NaN is left blank.
        x_ticks: columns to name below, and how; likewise ``y_ticks`` rows at the left.
        even: whether squares are as high as wide; else the board fills its place.
        lines: rows and columns from one line to the next; (0, 0) for none but the outer ones.
    """

    title: str
    x_label: Sequence[str]
    y_label: str
    rows: int
    columns: int
    shades: Shades = ()
    squares: Sequence[Square] = ()
    x_ticks: Sequence[tuple[float, str]] = ()
    y_ticks: Sequence[tuple[float, str]] = ()
    even: bool = True
    lines: tuple[int, int] = (0, 0)


class Entry(NamedTuple):
    """A text of a legend and the piece of curve beside it."""

    text: str
    colour: str
    dash: Dash
    marker: Marker
    line: bool
    band: bool = False


class Legend(NamedTuple):
    """Entries by their text, in order of appearance."""

    names: dict[str, Entry]
    variants: dict[str, Entry]
    bands: dict[str, Entry]


def legend_of(panels: Iterable[Panel]) -> Legend:
    """The legend of a figure: a name is shown in its colour, a variant and a band in grey."""
    everything = [series for panel in panels for series in panel.series]
    markers = {(one.name, one.marker) for one in everything}
    legend = Legend({}, {}, {})
    by_name = len(markers) == len({name for name, _ in markers})  # every name has one marker throughout
    for one in everything:
        marked = by_name or not one.variant  # else its variants show the markers
        dash: Dash = "solid" if one.variant else one.dash
        entry = Entry(one.name, one.colour, dash, one.marker if marked else "none", one.line or not marked)
        legend.names.setdefault(one.name, entry)
        entry = Entry(one.variant, DARK_GREY, one.dash, "none" if by_name else one.marker, one.line or by_name)
        legend.variants.setdefault(one.variant if one.name else "", entry)
        entry = Entry(one.band, DARK_GREY, "solid", "none", line=False, band=True)
        legend.bands.setdefault(one.band if one.low is not None else "", entry)
    for entries in legend:
        entries.pop("", None)
    return legend


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


def x_scale(panel: Panel) -> Scale:
    """The horizontal axis; up to eight different x are each written under it if they are 9 % of it apart."""
    if panel.x_axis is not None:
        return panel.x_axis
    names = categories(panel)
    if names:
        ticks = tuple((float(number), shortened(name, 30)) for number, name in enumerate(names))
        return Scale(-0.5, len(names) - 0.5, log=False, ticks=ticks, categories=True)
    values = sorted({x for series in positions(panel) for x in series})
    marked = any(series.marker != "none" for series in panel.series)
    low, high = _widened(values[0], values[-1], panel.x_log, MARGIN if marked else 0.0)
    along = np.log([low, *values, high]) if panel.x_log else np.array([low, *values, high])
    apart = np.diff(along[1:-1]) / (along[-1] - along[0])
    if len(values) <= 8 and (apart >= 0.09).all():
        return Scale(low, high, panel.x_log, tuple((value, short(value)) for value in values))
    return log_scale(low, high) if panel.x_log else Scale(low, high, log=False)


def y_scale(panel: Panel) -> Scale:
    """The vertical axis: all points, and of intervals what the axis can hold; from 0 up where that hides nothing."""
    if panel.y_axis is not None:
        return panel.y_axis
    heights = [y for one in panel.series for part in (one.y, one.low, one.high) if part is not None for y in part]
    values = [float(y) for y in heights if y > 0 or not panel.y_log]
    low = min(values)
    high = max(values)
    if panel.y_log:
        return log_scale(*_widened(low, high, log=True, margin=MARGIN))
    if 0 <= low < high / 2 or low == high == 0:
        return Scale(0.0, high * (1 + MARGIN) or 1.0, log=False)
    return Scale(*_widened(low, high, log=False, margin=MARGIN), log=False)


def log_scale(low: float, high: float) -> Scale:
    """A logarithmic axis with up to six powers of ten, or, below 2.5 decades, 3 to 12 round numbers between them.

    >>> [text for _, text in log_scale(0.4, 30).ticks], [text for _, text in log_scale(2.9, 3.4).ticks]
    (['0.5', '1', '2', '5', '10', '20'], ['2.9', '3', '3.1', '3.2', '3.3', '3.4'])
    >>> [text for _, text in log_scale(0.7, 2e10).ticks]
    ['1', '10²', '10⁴', '10⁶', '10⁸', '10¹⁰']
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if math.log10(high / low) >= 2.5:
        whole = [power for power in powers if low <= 10.0**power <= high]
        written = power_of_ten if high >= 1e5 or low < 1e-3 else short
        values = [float(f"1e{power}") for power in whole[:: -(-len(whole) // 6)]]
        return Scale(low, high, log=True, ticks=tuple((value, written(value)) for value in values))
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8), [step / 10 for step in range(10, 100)]):
        ticks = [float(f"{step}e{power}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            some = ticks[:: -(-len(ticks) // 12)]
            return Scale(low, high, log=True, ticks=tuple((tick, short(tick)) for tick in some))
    return Scale(low, high, log=True, ticks=((low, short(low)), (high, short(high))))


def _widened(low: float, high: float, log: bool, margin: float) -> tuple[float, float]:
    if log:
        factor = (high / low) ** margin if high > low else 2.0
        return low / factor, high * factor
    step = margin * (high - low) if high > low else max(1.0, abs(low)) / 2
    return low - step, high + step
