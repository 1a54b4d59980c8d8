"""The parts of a report as plain values. The page, the pictures and the data files are all made from them.

All texts are plain Unicode, without mark-up of any kind. Panels and series are in
:mod:`fed_ucbvi.paper.report.panels`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.paper.report.panels import Panel, check_panels
from fed_ucbvi.results.statistics import Estimate

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
MAX_COLUMNS = 3
Outcome = Literal["holds", "holds partly", "at the limit", "undecided", "does not hold"]


@dataclass(frozen=True)
class Figure:
    """Panels side by side; the id names files, the title has the finding, on the page but not in the pictures."""

    id: str
    title: str
    caption: str
    panels: Sequence[Panel]

    @property
    def columns(self) -> int:
        """Number of panels side by side: at most three, with rows as even as can be."""
        rows = -(-len(self.panels) // MAX_COLUMNS)
        return -(-len(self.panels) // rows)


Cell = str | int | float | Estimate | None


@dataclass(frozen=True)
class Table:
    """Rows under columns.

    Attributes:
        heading_columns: number of leading columns that are the heading of a group of rows on the page. Rows with the
            same values there must follow each other. Files have these columns as the others.
    """

    id: str
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    heading_columns: int = 0


@dataclass(frozen=True)
class Verdict:
    """A claim, its measurement, and its outcome by a rule stated beforehand.

    Attributes:
        claim: in the words of the paper; ``name`` is a short form of it, and ``place`` its section or figure.
        rule: conditions under which it holds, partly holds, does not hold or stays undecided.
        summary: the measurement in one short line, written beside claim and outcome.
        seeds: number of runs; of an undecided claim, also the number that would decide it.
        detail: a note for readers, such as the tuning of constants; none if empty.
        ours: True for a claim of this package, False for one of the paper.
        open: settings of runs whose further seeds would decide, and these seeds (the next if none are named).
    """

    claim: str
    place: str
    measured: str
    rule: str
    outcome: Outcome
    summary: str = ""
    seeds: str = ""
    detail: str = ""
    name: str = ""
    ours: bool = False
    open: Sequence[tuple[Mapping[str, object], Sequence[int]]] = ()


@dataclass(frozen=True)
class Section:
    """A part of a report."""

    id: str
    title: str
    text: Sequence[str] = ()
    verdicts: Sequence[Verdict] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class PageContent:
    """A whole report: paragraphs, sections, whose outcomes the top of the page repeats, and exact parameters."""

    title: str
    text: Sequence[str]
    sections: Sequence[Section]
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]

    @property
    def tables(self) -> list[Table]:
        return [table for section in self.sections for table in section.tables]

    @property
    def judged(self) -> list[tuple[Section, Verdict]]:
        """Every claim with the section that judges it."""
        return [(section, verdict) for section in self.sections for verdict in section.verdicts]


def check_report(report: PageContent) -> None:
    """Raise unless every figure and table of ``report`` can be written, each under a name of its own."""
    check_ids("section", [section.id for section in report.sections])
    check_ids("figure", [figure.id for figure in report.figures])
    check_ids("table", [table.id for table in report.tables])
    try:
        json.dumps(report.provenance, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the report's provenance is not ready for JSON: {error}.") from error
    for _, verdict in report.judged:
        check_choice("outcome", verdict.outcome, get_args(Outcome))
    for figure in report.figures:
        check_figure(figure)
    for table in report.tables:
        check_table(table)


def check_ids(kind: str, ids: Sequence[str]) -> None:
    """Raise unless every id can name a file, and no two of them are equal but for capitals."""
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
            _check_cell(cell, column, table, f"{where}, row {number}")


def _check_cell(cell: Cell, column: str, table: Table, row: str) -> None:
    """Raise unless every figure of a cell is finite and its interval can have columns of its own in files."""
    for part in cell if isinstance(cell, Estimate) else (cell,):
        if isinstance(part, float) and not math.isfinite(part):
            raise InputError(f"{row}, column {column!r}: {part} is not finite; use None.")
    if isinstance(cell, Estimate) and {f"{column} low", f"{column} high"} & set(table.columns):
        raise InputError(
            f"table {table.id!r}: column '{column} low' or '{column} high' is needed for the intervals of "
            f"{column!r}; rename it."
        )
