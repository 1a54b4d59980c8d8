"""Checks of panels before anything is drawn; messages name the place of the error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.errors import InputError

COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


def check_panels(panels: Sequence[Panel], where: str) -> None:
    """Raise unless ``panels`` can be drawn as one figure; the message names ``where``, panel and series."""
    for panel in panels:
        _check_panel(panel, f"{where}, panel {panel.title!r}")
    named = [series for panel in panels for series in panel.series if series.name]
    _check_one_each("name", "colour", where, ((series.name, series.colour) for series in named))
    _check_one_each("variant", "dash", where, ((one.variant, one.dash) for one in named if one.variant))
    if not markers_go_with_names(named):
        markers = ((one.variant or one.name, one.marker) for one in named)
        _check_one_each("series or variant", "marker", where, markers)


def markers_go_with_names(series: Iterable[Series]) -> bool:
    """Whether every name has one marker throughout a figure, so that a legend shows it with the name."""
    pairs = {(one.name, one.marker) for one in series}
    return len(pairs) == len({name for name, _ in pairs})


def _check_panel(panel: Panel, where: str) -> None:
    if not panel.series:
        raise InputError(f"{where} has no series; give it at least one, or leave it out.")
    texts = {isinstance(x, str) for series in panel.series for x in series.x}
    if len(texts) > 1:
        raise InputError(f"{where} has both numbers and texts along x; use one or the other.")
    if texts == {True} and panel.x_log:
        raise InputError(f"{where} has texts along x, which no logarithmic axis can hold; set x_log to False.")
    seen = set()
    for series in panel.series:
        key = (series.name, series.variant)
        if key in seen:
            raise InputError(f"{where} has two series {series.full_name!r}; tell them apart by name or variant.")
        seen.add(key)
        _check_series(series, panel, f"{where}, series {series.full_name!r}")


def _check_series(series: Series, panel: Panel, where: str) -> None:
    if not series.name and len(panel.series) > 1:
        raise InputError(f"{where} has no name; where there are several series, the legend needs one.")
    if not COLOUR.fullmatch(series.colour):
        raise InputError(f"{where}: colour {series.colour!r} is not of the form #RRGGBB.")
    if len(series.x) == 0:
        raise InputError(f"{where} is empty; leave it out.")
    if not series.line and series.marker == "none":
        raise InputError(f"{where} has neither line nor marker: nothing would be seen.")
    if (series.low is None) != (series.high is None):
        raise InputError(f"{where}: low and high go together; give both or neither.")
    if not isinstance(series.x[0], str):
        _check_numbers(series.x, "x", where, positive=panel.x_log)
    _check_numbers(series.y, "y", where, positive=panel.y_log)
    for name, column in (("y", series.y), ("low", series.low), ("high", series.high)):
        if column is not None and len(column) != len(series.x):
            raise InputError(f"{where}: {name} has {len(column)} entries, x has {len(series.x)}; one for each x.")
    if series.low is not None and series.high is not None:
        _check_numbers(series.low, "low", where)
        _check_numbers(series.high, "high", where, positive=panel.y_log)
        for x, low, high in zip(series.x, series.low, series.high, strict=True):
            if low > high:
                raise InputError(f"{where}: low = {low} is above high = {high} at x = {x}.")


def _check_numbers(values: Iterable[Any], name: str, where: str, *, positive: bool = False) -> None:
    for place, value in enumerate(values):
        try:
            finite = math.isfinite(value)
        except TypeError:
            finite = False
        if not finite:
            raise InputError(f"{where}: {name}[{place}] is {value}; leave out points that are not known.")
        if positive and value <= 0:
            raise InputError(
                f"{where}: {name}[{place}] is {value}, which no logarithmic axis can hold; leave it out or set "
                f"{'x' if name == 'x' else 'y'}_log to False."
            )


def _check_one_each(what: str, style: str, where: str, pairs: Iterable[tuple[str, object]]) -> None:
    known: dict[str, object] = {}
    for key, value in pairs:
        if known.setdefault(key, value) != value:
            raise InputError(f"{where}: {what} {key!r} has more than one {style}; a legend can say one only.")
