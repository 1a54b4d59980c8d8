"""Checks of a report before anything is drawn; messages name the place of the error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import get_args

from fed_ucbvi.charts.checks import check_panels
from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.report.content import Figure, Interval, Outcome, PageContent, Table

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def check_report(report: PageContent) -> None:
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
    """Raise unless ids can be names of files and are different, also if capitals are ignored.

    >>> check_ids("figure", ["regret", "Regret"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: two figures have the id 'Regret'; give each one of its own (capitals ...
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
    check_panels(figure.panels, where)


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
