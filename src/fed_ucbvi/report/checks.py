"""What a report must be like to be written: found out before anything is drawn, and said with its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from fed_ucbvi.errors import InputError, check_choice
from fed_ucbvi.report.content import Figure, Interval, Outcome, Panel, Report, Series, Table

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


def check_report(report: Report) -> None:
    """Raise unless every figure and table of ``report`` can be written, each under a name of its own."""
    check_ids("section", [section.id for section in report.sections])
    figures = [figure for section in report.sections for figure in section.figures]
    tables = [table for section in report.sections for table in section.tables]
    check_ids("figure", [figure.id for figure in figures])
    check_ids("table", [table.id for table in tables])
    try:
        json.dumps(report.provenance, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the report's provenance is not ready for JSON: {error}.") from error
    for section in report.sections:
        for verdict in section.verdicts:
            check_choice("outcome", verdict.outcome, get_args(Outcome))
    for figure in figures:
        check_figure(figure)
    for table in tables:
        check_table(table)


def check_ids(kind: str, ids: Sequence[str]) -> None:
    """Raise unless ids can be names of files and differ, capitals aside.

    >>> check_ids("figure", ["regret", "Regret"])
    Traceback (most recent call last):
    fed_ucbvi.errors.InputError: two figures have the id 'Regret'; give each one of its own (capitals do not count).
    """
    seen = set()
    for id_ in ids:
        if not ID.fullmatch(id_):
            raise InputError(f"{kind} id {id_!r} cannot name a file; use letters, digits, '-' and '_'.")
        if id_.lower() in seen:
            raise InputError(f"two {kind}s have the id {id_!r}; give each one of its own (capitals do not count).")
        seen.add(id_.lower())


def check_figure(figure: Figure) -> None:
    """Raise unless ``figure`` can be drawn; the message names figure, panel and series."""
    where = f"figure {figure.id!r}"
    if not figure.panels:
        raise InputError(f"{where} has no panel; give it at least one, or leave it out.")
    for panel in figure.panels:
        _check_panel(panel, f"{where}, panel {panel.title!r}")
    everything = [series for panel in figure.panels for series in panel.series]
    _check_one_each("name", "colour", where, ((series.name, series.colour) for series in everything))
    _check_one_each("variant", "dash", where, ((one.variant, one.dash) for one in everything if one.variant))
    if not markers_go_with_names(figure):
        markers = ((one.variant or one.name, one.marker) for one in everything)
        _check_one_each("series or variant", "marker", where, markers)


def markers_go_with_names(figure: Figure) -> bool:
    """Whether every name has one marker throughout a figure, so that a legend shows it with the name."""
    pairs = {(series.name, series.marker) for panel in figure.panels for series in panel.series}
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
    if not series.name:
        raise InputError(f"{where} has no name; the legend needs one.")
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


def check_table(table: Table) -> None:
    """Raise unless every row of ``table`` has a cell for every column, and every figure is finite."""
    where = f"table {table.id!r}"
    if not table.columns:
        raise InputError(f"{where} has no columns.")
    if len(set(table.columns)) != len(table.columns):
        raise InputError(f"{where} has two columns of one name: {', '.join(table.columns)}.")
    for number, row in enumerate(table.rows):
        if len(row) != len(table.columns):
            raise InputError(f"{where}, row {number}: {len(row)} cells for {len(table.columns)} columns.")
        for column, cell in zip(table.columns, row, strict=True):
            parts = (cell.mean, cell.low, cell.high) if isinstance(cell, Interval) else (cell,)
            for part in parts:
                if isinstance(part, float) and not math.isfinite(part):
                    raise InputError(f"{where}, row {number}, column {column!r}: {part} is not finite; use None.")
            for end in (f"{column} low", f"{column} high"):
                if isinstance(cell, Interval) and end in table.columns:
                    raise InputError(f"{where}: column {end!r} is needed for the intervals of {column!r}; rename it.")
