"""The parts of a report as plain values. The page, the pictures and the data files are all made from them.

The analysis of runs makes these values, and the writers of files read them; neither depends on the other. All texts
are plain Unicode, without mark-up of any kind. Panels and series are in :mod:`fed_ucbvi.charts.panels`.
:func:`fed_ucbvi.report.checks.check_report` raises an error for what cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fed_ucbvi.charts.panels import Panel

Outcome = Literal["holds", "holds partly", "undecided", "does not hold"]


@dataclass(frozen=True)
class Figure:
    """Panels side by side.

    Attributes:
        id: name of its files: letters, digits, ``-`` and ``_``.
        title: the finding, in one sentence; written on the page, not in the pictures.
        caption: setting, what bands mean, where in the paper.
        panels: from left to right, then from top to bottom.
    """

    id: str
    title: str
    caption: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Interval:
    """A figure with its uncertainty, as a cell of a table; ``low`` and ``high`` are ends, not distances."""

    mean: float
    low: float
    high: float


Cell = str | int | float | Interval | None


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
        claim: in the words of the paper.
        place: where the paper makes it.
        measured: the figures.
        rule: when it would hold, partly hold, not hold or stay undecided.
        outcome: the result of the rule.
        summary: what was measured in one short line, written beside claim and outcome.
        seeds: how many runs it rests on; of an undecided claim, also how many would decide it.
        detail: what else a reader should know, such as how constants were tuned; none if empty.
    """

    claim: str
    place: str
    measured: str
    rule: str
    outcome: Outcome
    summary: str = ""
    seeds: str = ""
    detail: str = ""


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
    """The whole.

    Attributes:
        title: of the page.
        text: paragraphs before the first section.
        sections: in order; the outcomes of all sections' claims are gathered at the top of the page.
        provenance: exact parameters and versions, ready for JSON.
    """

    title: str
    text: Sequence[str]
    sections: Sequence[Section]
    provenance: Mapping[str, object] = field(default_factory=dict)
