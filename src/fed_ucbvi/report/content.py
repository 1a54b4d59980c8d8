"""What a report is made of, as values: drawn on the page, in pictures, and written as data alike.

Whoever analyses runs makes these; whoever writes files reads them. Neither knows the other. All texts are plain
Unicode, without mark-up of any kind: write εₚ, 10⁶ and ≤, neither TeX nor HTML. What cannot be drawn (NaN, an empty
series, a negative figure on a logarithmic axis, one name in two colours) is refused by
:func:`fed_ucbvi.report.checks.check_report`; leave out points that are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fed_ucbvi.palette import Marker as Marker

Dash = Literal["solid", "dashed", "dotted", "dashdot"]
Outcome = Literal["holds", "holds partly", "undecided", "does not hold"]


@dataclass(frozen=True)
class Series:
    """One curve, or one set of points, with an optional band from ``low`` to ``high``.

    Where many curves differ in two ways (algorithm and εₚ, say), colour and ``name`` tell the one, dash and
    ``variant`` the other: three algorithms with four εₚ each make a legend of three names and four variants, not of
    twelve curves, and each name and each variant is switched on and off as a whole. Throughout a figure a name has
    one colour and a variant one dash; the marker goes with the name, or else with the variant.

    Attributes:
        name: in the legend; the same name in two panels is toggled together.
        colour: ``#RRGGBB``; of the algorithm, see :func:`fed_ucbvi.results.style.colour_of`.
        x: along the horizontal axis; texts for a panel with categories.
        y: along the vertical axis.
        low: lower end of the interval at each x; given together with ``high``.
        high: upper end of the interval at each x.
        dash: how the line is drawn.
        marker: at each point.
        line: whether points are joined.
        label: written beside the last point; none if empty. Curves of one colour with the same label share it. A name
            that has a label somewhere in a figure does not stand in the legend of the picture.
        variant: what sets this curve apart from others of its name, such as ``εₚ = 0.1``.
        band: what ``low`` and ``high`` are, such as ``95 % interval of the mean``; the legend says it.
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
    label: str = ""
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
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels side by side.

    Attributes:
        id: name of its files: letters, digits, ``-`` and ``_``.
        title: the point, in one sentence; stands on the page, not in the pictures.
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
        claim: as the paper makes it.
        place: where.
        measured: the figures.
        rule: when it would hold, partly hold, not hold or stay undecided.
        outcome: what follows.
        summary: what was measured in one short line, to stand beside claim and outcome.
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
class Report:
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
