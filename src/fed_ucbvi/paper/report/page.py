"""The page of a report as HTML: outcomes of claims, plots, tables, provenance.

The page is self-contained, and its content security policy forbids every request. All text from data is escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from fed_ucbvi.core.colours import DARK_GREY, on_dark
from fed_ucbvi.paper.report.content import Cell, Figure, PageContent, Section, Table, Verdict
from fed_ucbvi.paper.report.files import FIGURE_FILES, TABLE_FILES
from fed_ucbvi.paper.report.panels import colour_variable, legend_of
from fed_ucbvi.results.statistics import Estimate

SIGNS = {
    "holds": ("✓", "holds"),
    "holds partly": ("≈", "partly"),
    "at the limit": ("≈", "undecided"),
    "undecided": ("?", "undecided"),
    "does not hold": ("✗", "fails"),
}
"""Sign and CSS class of each outcome; the words are always written too."""
PLURALS = {"holds": "hold", "holds partly": "hold partly", "does not hold": "do not hold"}
"""Outcomes that have another form in the plural."""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: the page may load nothing from outside, nor evaluate texts as programs."""
LONG_PARAGRAPH = 400
"""Characters of a paragraph at the top that is shown whole; of longer ones the first sentence is."""
SWATCH_DASHES = {"solid": "1 0", "dashed": "7 3", "dotted": "1.5 2.5", "dashdot": "7 3 1.5 3"}
SWATCH_SHAPES = {
    "cross": "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z",
    "circle": "M-.9,0A.9,.9,0,1,1,.9,0A.9,.9,0,1,1,-.9,0Z",
    "square": "M-.8,-.8H.8V.8H-.8Z",
    "diamond": "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "triangle": "M0,-1L1,.8H-1Z",
}
"""Dashes and markers of the legends on the page, as SVG."""

Judged = Sequence[tuple[Section, Verdict]]
"""Verdicts with the sections that have them."""


@dataclass(frozen=True)
class ShownCell:
    """A cell as text, with the number by which its column is sorted, and the text shown on hovering."""

    text: str
    number: float | None
    is_text: bool
    exact: str


@dataclass(frozen=True)
class RowGroup:
    """Rows of a table under a heading, which is empty if the table has no headings."""

    heading: str
    rows: list[list[ShownCell]]


def render_page(report: PageContent) -> str:
    """The page of a report; the same report always gives the same text."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    of_the_paper = [(section, verdict) for section, verdict in report.judged if not verdict.ours]
    our_own = [(section, verdict) for section, verdict in report.judged if verdict.ours]
    claims = [
        ("claims", "The paper's claims", of_the_paper),
        ("ours", "Our own claims", our_own),
    ]
    return environment.from_string(_asset("page.html")).render(
        report=report,
        policy=POLICY,
        longest=LONG_PARAGRAPH,
        claims=claims,
        counted=outcome_counts,
        signs=SIGNS,
        colours=page_colours(report),
        plots_of=plots_of,
        legend_of=legend_of,
        variable=colour_variable,
        dashes=SWATCH_DASHES,
        shapes=SWATCH_SHAPES,
        figure_files=FIGURE_FILES,
        table_files=TABLE_FILES,
        row_groups=row_groups,
        provenance=json.dumps(report.provenance, indent=2, ensure_ascii=False, allow_nan=False),
        style=_asset("page.css"),
        script=_asset("page.js"),
    )


def _asset(name: str) -> str:
    return files("fed_ucbvi.paper.report").joinpath(name).read_text(encoding="utf-8")


def page_colours(report: PageContent) -> list[tuple[str, str, str]]:
    """The CSS variable of each colour of the figures, the colour itself, and its version on a dark background."""
    colours = {DARK_GREY}
    for figure in report.figures:
        for panel in figure.panels:
            colours |= {series.colour.upper() for series in panel.series}
    return [(colour_variable(colour), colour, on_dark(colour)) for colour in sorted(colours)]


def outcome_counts(judged: Judged) -> list[tuple[str, str]]:
    """The outcomes that occur, each with its number of verdicts in words."""
    outcomes = [verdict.outcome for _, verdict in judged]
    return [(outcome, counted_text(outcome, outcomes.count(outcome))) for outcome in SIGNS if outcome in outcomes]


def counted_text(outcome: str, count: int) -> str:
    """A number of verdicts and their outcome, with the verb in the singular or the plural.

    >>> counted_text("holds", 4), counted_text("holds partly", 1), counted_text("does not hold", 2)
    ('4 hold', '1 holds partly', '2 do not hold')
    """
    if count == 1:
        return f"1 {outcome}"
    return f"{count} {PLURALS.get(outcome, outcome)}"


def plots_of(figure: Figure) -> list[str]:
    """The SVG element of each panel, with title, panel and caption as its text alternative."""
    from fed_ucbvi.paper.report.drawing import panel_svg

    plots = []
    for number, panel in enumerate(figure.panels):
        description = ". ".join(text for text in (figure.title, panel.title, figure.caption) if text)
        plots.append(panel_svg(panel, f"{figure.id}-{number}", description))
    return plots


def row_groups(table: Table) -> list[RowGroup]:
    """The rows of a table without its heading columns, which are the headings of groups of rows."""
    count = table.heading_columns
    groups = []
    for values, rows in groupby(table.rows, lambda row: list(row[:count])):
        heading = heading_text(table.columns[:count], values)
        groups.append(RowGroup(heading=heading, rows=[[shown_cell(cell) for cell in row[count:]] for row in rows]))
    return groups


def heading_text(columns: Sequence[str], values: Sequence[Cell]) -> str:
    """The heading of a group of rows: its first value, and the names and values of the others.

    >>> heading_text(["environment", "states", "T"], ["GridWorld", None, 3000])
    'GridWorld, T = 3,000'
    """
    parts: list[str] = []
    for name, value in zip(columns, values, strict=True):
        if not parts:
            parts.append(cell_text(value))
        elif value is not None:
            parts.append(f"{name} = {cell_text(value)}")
    return ", ".join(parts)


def shown_cell(cell: Cell) -> ShownCell:
    """A cell as the page shows it."""
    value = cell.mean if isinstance(cell, Estimate) else cell
    has_number = value is not None and not isinstance(value, str)
    return ShownCell(
        text=cell_text(cell),
        number=float(value) if has_number else None,  # type: ignore[arg-type]
        is_text=isinstance(cell, str),
        exact=f"{cell.mean!r} [{cell.low!r}, {cell.high!r}]" if isinstance(cell, Estimate) else "",
    )


def cell_text(cell: Cell) -> str:
    """A cell as a person reads it: an interval to two digits of its width.

    >>> cell_text(Estimate(312.04, 304.9, 319.2)), cell_text(Estimate(0.50341, 0.4987, 0.5081))
    ('312 [305, 319]', '0.5034 [0.4987, 0.5081]')
    >>> cell_text(30_000), cell_text(0.123456), cell_text(None), cell_text("all")
    ('30,000', '0.1235', '–', 'all')
    """
    if cell is None:
        return "–"  # noqa: RUF001
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        return _estimate_text(cell)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if hasattr(cell, "__index__"):
        return f"{int(cell):,}"
    value = float(cell)
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def _estimate_text(estimate: Estimate) -> str:
    """A mean with its interval; the mean alone if the ends are the same in print."""
    decimals = _decimals(abs(estimate.mean), 4)
    width = estimate.high - estimate.low
    if width > 0:
        decimals = min(_decimals(width, 2), decimals + 2)
    mean, low, high = (f"{part:,.{decimals}f}" for part in estimate)
    return mean if mean == low == high else f"{mean} [{low}, {high}]"


def _decimals(size: float, digits: int) -> int:
    """The number of decimals that shows ``digits`` leading digits of a number of this size."""
    if size <= 0:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(size)))
