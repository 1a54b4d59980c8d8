"""A report as one self-contained page: outcomes of claims, plots, tables, provenance.

All text from data is escaped. The content security policy of the page forbids every request. The same report always
gives the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any

from fed_ucbvi.charts.curves import DASHES, PARAMETERS, SHAPES, Spec, panel_chart, pointer_layer, rows_of
from fed_ucbvi.charts.layout import CONFIG, SCHEMA
from fed_ucbvi.charts.legend import legend_of
from fed_ucbvi.charts.picture import POLICY, javascript_library
from fed_ucbvi.core.colours import DARK_GREY, on_dark
from fed_ucbvi.report.content import Figure, Interval, PageContent, Table
from fed_ucbvi.report.data import cell_text

SIGNS = {
    "holds": ("✓", "holds"),
    "holds partly": ("≈", "partly"),
    "undecided": ("?", "undecided"),
    "does not hold": ("✗", "fails"),
}
"""Sign and CSS class of each outcome; the words are always written too."""
PICTURES = ("svg", "png", "pdf")
FIGURE_FILES = (*PICTURES, "csv", "parquet")
TABLE_FILES = ("csv", "parquet")
HEIGHT = 230
"""Of axes, in pixels."""
MAX_COLUMNS = 3
LONGEST = 400
"""Paragraphs at the top up to this many characters are shown whole; longer ones show one sentence and unfold."""
ON_PAGE: Spec = {
    **CONFIG,
    "background": None,
    "font": "system-ui, sans-serif",
    "axis": {
        **CONFIG["axis"],
        **{"labelColor": "var(--ink)", "titleColor": "var(--ink)", "gridColor": "var(--rule)"},
        **{"domainColor": "var(--faint)", "tickColor": "var(--faint)"},
    },
}
"""The style of the page's plots: that of pictures, in the colours of the page, light or dark."""


def render_page(report: PageContent) -> str:
    """The page as HTML."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    judged = [(section, verdict) for section in report.sections for verdict in section.verdicts]
    figures = [figure for section in report.sections for figure in section.figures]
    colours = sorted(
        {one.colour.upper() for f in figures for panel in f.panels for one in panel.series} | {DARK_GREY}
    )
    counts: Counter[str] = Counter(verdict.outcome for _, verdict in judged)
    return environment.from_string(_asset("page.html")).render(
        report=report,
        policy=POLICY,
        longest=LONGEST,
        judged=judged,
        counts=[(outcome, counts[outcome]) for outcome in SIGNS if counts[outcome]],
        signs=SIGNS,
        colours=[(_variable(colour), colour, on_dark(colour)) for colour in colours],
        config=ON_PAGE,
        plots_of=plots_of,
        legend_of=legend_of,
        variable=_variable,
        dashes=DASHES,
        shapes=SHAPES,
        figure_files=FIGURE_FILES,
        table_files=TABLE_FILES,
        columns_of=lambda figure: -(-len(figure.panels) // -(-len(figure.panels) // MAX_COLUMNS)),
        table_cells=_table_cells,
        provenance=json.dumps(report.provenance, indent=2, ensure_ascii=False, allow_nan=False),
        style=_asset("page.css"),
        script=_asset("page.js"),
        library=javascript_library(),
    )


def plots_of(figure: Figure) -> list[Spec]:
    """The interactive Vega-Lite specification of each panel, as wide as its place on the page."""
    return [
        {
            "$schema": SCHEMA,
            "description": ". ".join(text for text in (figure.title, panel.title, figure.caption) if text),
            "width": "container",
            "height": HEIGHT,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "params": PARAMETERS,
            "datasets": {"series": rows_of(panel, lambda colour: f"var({_variable(colour)})")},
            **(chart := panel_chart(panel, "series")),
            "layer": [*chart["layer"], pointer_layer(panel)],
        }
        for panel in figure.panels
    ]


def _variable(colour: str) -> str:
    """The CSS variable that holds a colour, or its lighter version on a dark background."""
    return f"--colour-{colour[1:].upper()}"


def _table_cells(table: Table) -> list[list[dict[str, Any]]]:
    """Each cell as text, with the number to sort by if it is a number, and the text shown on hovering."""
    rows = []
    for row in table.rows:
        cells = []
        for cell in row:
            value = cell.mean if isinstance(cell, Interval) else cell
            number = None if value is None or isinstance(value, str) else float(value)
            exact = f"{cell.mean!r} [{cell.low!r}, {cell.high!r}]" if isinstance(cell, Interval) else ""
            cells.append(
                {"text": cell_text(cell), "number": number, "is_text": isinstance(cell, str), "exact": exact}
            )
        rows.append(cells)
    return rows


def _asset(name: str) -> str:
    return files("fed_ucbvi.report").joinpath(name).read_text(encoding="utf-8")
