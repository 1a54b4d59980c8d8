"""A report as one self-contained page: outcomes of claims, plots, tables, provenance.

All text from data is escaped. The content security policy of the page forbids every request. The same report always
gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from fed_ucbvi.charts.panels import legend_of
from fed_ucbvi.charts.picture import POLICY, javascript_library
from fed_ucbvi.charts.vega import CONFIG, DASHES, PARAMETERS, SCHEMA, SHAPES, Spec, panel_chart, rows_of
from fed_ucbvi.core.colours import DARK_GREY, on_dark
from fed_ucbvi.report.content import Cell, Estimate, Figure, PageContent, Section, Table, Verdict

SIGNS = {
    "holds": ("✓", "holds"),
    "holds partly": ("≈", "partly"),
    "at the limit": ("≈", "undecided"),
    "undecided": ("?", "undecided"),
    "does not hold": ("✗", "fails"),
}
"""Sign and CSS class of each outcome; the words are always written too."""
PICTURES = ("png", "pdf")
FIGURE_FILES = (*PICTURES, "parquet")
TABLE_FILES = ("csv", "parquet")
HEIGHT = 200
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
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    drawn = {one.colour.upper() for figure in report.figures for panel in figure.panels for one in panel.series}
    claims = [
        (id_, title, [pair for pair in report.judged if pair[1].ours is ours])
        for id_, title, ours in (("claims", "The paper's claims", False), ("ours", "Our own claims", True))
    ]
    return environment.from_string(_asset("page.html")).render(
        report=report,
        policy=POLICY,
        longest=LONGEST,
        claims=claims,
        counted=_counted,
        signs=SIGNS,
        colours=[(_variable(colour), colour, on_dark(colour)) for colour in sorted(drawn | {DARK_GREY})],
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


def _counted(judged: Sequence[tuple[Section, Verdict]]) -> list[tuple[str, int]]:
    """How often each outcome occurs."""
    counts: Counter[str] = Counter(verdict.outcome for _, verdict in judged)
    return [(outcome, counts[outcome]) for outcome in SIGNS if counts[outcome]]


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
            **panel_chart(panel, "series", pointer="nearest"),
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
            value = cell.mean if isinstance(cell, Estimate) else cell
            number = None if value is None or isinstance(value, str) else float(value)
            exact = f"{cell.mean!r} [{cell.low!r}, {cell.high!r}]" if isinstance(cell, Estimate) else ""
            cells.append(
                {"text": cell_text(cell), "number": number, "is_text": isinstance(cell, str), "exact": exact}
            )
        rows.append(cells)
    return rows


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
        decimals = _decimals(abs(cell.mean), 4)
        if cell.high > cell.low:
            decimals = min(_decimals(cell.high - cell.low, 2), decimals + 2)
        texts = [f"{part:,.{decimals}f}" for part in (cell.mean, cell.low, cell.high)]
        return texts[0] if len(set(texts)) == 1 else "{} [{}, {}]".format(*texts)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if hasattr(cell, "__index__"):
        return f"{int(cell):,}"
    value = float(cell)
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.4g}"
    text = f"{value:,.{_decimals(abs(value), 4)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimals(size: float, digits: int) -> int:
    """The number of decimals that shows ``digits`` leading digits of a number of this size."""
    return max(0, digits - 1 - math.floor(math.log10(size))) if size > 0 else 0


def _asset(name: str) -> str:
    return files("fed_ucbvi.report").joinpath(name).read_text(encoding="utf-8")
