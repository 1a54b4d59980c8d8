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
    """Panels side by side; the id names files, the title says the finding, on the page but not in the pictures."""

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
    """Rows under columns."""

    id: str
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured, and whether it holds by a rule stated beforehand.

    Attributes:
        claim: in the words of the paper; ``name`` is the same in a few, and ``place`` where it makes it.
        rule: when it would hold, partly hold, not hold or stay undecided.
        summary: what was measured in one short line, written beside claim and outcome.
        seeds: how many runs it rests on; of an undecided claim, also how many would decide it.
        detail: what else a reader should know, such as how constants were tuned; none if empty.
        ours: whether it is a claim of this package, not of the paper.
        open: settings of runs whose further seeds would decide, and which seeds (the next if none are named).
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
    """The whole: paragraphs, sections, whose outcomes are gathered at the top of the page, and exact parameters."""

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
    seen = set()
    parts = (("section", report.sections), ("figure", report.figures), ("table", report.tables))
    for kind, id_ in ((kind, part.id) for kind, some in parts for part in some):
        if not ID.fullmatch(id_):
            raise InputError(f"{kind} id {id_!r} cannot name a file; use letters, digits, '-' and '_'.")
        if (kind, id_.lower()) in seen:
            raise InputError(f"two {kind}s have the id {id_!r}; give each one of its own (capitals do not count).")
        seen.add((kind, id_.lower()))
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
            for part in cell if isinstance(cell, Estimate) else (cell,):
                if isinstance(part, float) and not math.isfinite(part):
                    raise InputError(f"{where}, row {number}, column {column!r}: {part} is not finite; use None.")
            if isinstance(cell, Estimate) and {f"{column} low", f"{column} high"} & set(table.columns):
                raise InputError(
                    f"{where}: column '{column} low' or '{column} high' is needed for the intervals of "
                    f"{column!r}; rename it."
                )
